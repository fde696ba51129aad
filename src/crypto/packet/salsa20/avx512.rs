//! Salsa20 with AVX-512: each vector holds words of four blocks. A rotation is one instruction, and masks read and write
//! what is left of a block at the end.
#![allow(unsafe_code, reason = "vector instructions")]

use core::arch::x86_64::{
    __m512i, _mm_setr_epi32, _mm512_add_epi32, _mm512_broadcast_i32x4, _mm512_loadu_si512,
    _mm512_mask_blend_epi32, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_rol_epi32,
    _mm512_setr_epi32, _mm512_shuffle_epi32, _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_xor_si512,
};

use super::{
    NONCE_LEN,
    diagonals::{self, Vector},
};

/// Proof that the CPU has AVX-512F and AVX-512BW.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    #[inline]
    pub(super) fn detect() -> Option<Self> {
        cpu_has!("avx512f", "avx512bw").then_some(Self(()))
    }

    /// Xors the key stream into `data`.
    pub(super) fn apply(self, key: &[u8; 32], nonce: &[u8; NONCE_LEN], data: &mut [u8]) {
        // SAFETY: `self` proves that the CPU has AVX-512F and AVX-512BW.
        unsafe { apply(key, nonce, data) }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn apply(key: &[u8; 32], nonce: &[u8; NONCE_LEN], data: &mut [u8]) {
    // SAFETY: this function enables AVX-512F and AVX-512BW.
    unsafe { diagonals::apply::<__m512i>(key, nonce, data) }
}

// SAFETY: `xor_into` accesses its arguments only. The other methods access no memory.
unsafe impl Vector for __m512i {
    const BLOCKS: usize = 4;

    #[inline(always)]
    unsafe fn in_each_lane([first, second, third, fourth]: [u32; 4]) -> Self {
        // SAFETY: needs the instruction set only, which the caller promises, here and below.
        unsafe {
            _mm512_broadcast_i32x4(_mm_setr_epi32(first as i32, second as i32, third as i32, fourth as i32))
        }
    }

    #[inline(always)]
    unsafe fn lane_numbers() -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm512_setr_epi32(0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm512_add_epi32(self, other) }
    }

    #[inline(always)]
    unsafe fn xor_rotated_sum<const LEFT: i32, const RIGHT: i32>(self, x: Self, y: Self) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm512_xor_si512(self, _mm512_rol_epi32::<LEFT>(_mm512_add_epi32(x, y))) }
    }

    #[inline(always)]
    unsafe fn shuffle<const ORDER: i32>(self) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm512_shuffle_epi32::<ORDER>(self) }
    }

    #[inline(always)]
    unsafe fn diagonal([first, second, third, fourth]: [Self; 4]) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe {
            let front = _mm512_mask_blend_epi32(0b1010_1010_1010_1010, first, second);
            let back = _mm512_mask_blend_epi32(0b1010_1010_1010_1010, third, fourth);
            _mm512_mask_blend_epi32(0b1100_1100_1100_1100, front, back)
        }
    }

    #[inline(always)]
    unsafe fn xor_into([first, second, third, fourth]: [Self; 4], data: &mut [u8]) {
        // SAFETY: needs the instruction set only, as `xor` and `xor_masked` do.
        unsafe {
            // First two lanes of each of two vectors are put together, then one lane of each of all four.
            let front = [
                _mm512_shuffle_i32x4::<0b01_00_01_00>(first, second),
                _mm512_shuffle_i32x4::<0b01_00_01_00>(third, fourth),
            ];
            let back = [
                _mm512_shuffle_i32x4::<0b11_10_11_10>(first, second),
                _mm512_shuffle_i32x4::<0b11_10_11_10>(third, fourth),
            ];
            let blocks = [
                _mm512_shuffle_i32x4::<0b10_00_10_00>(front[0], front[1]),
                _mm512_shuffle_i32x4::<0b11_01_11_01>(front[0], front[1]),
                _mm512_shuffle_i32x4::<0b10_00_10_00>(back[0], back[1]),
                _mm512_shuffle_i32x4::<0b11_01_11_01>(back[0], back[1]),
            ];
            let (whole, rest) = data.as_chunks_mut();
            for (bytes, &block) in whole.iter_mut().zip(&blocks) {
                xor(bytes, block);
            }
            if let Some(&block) = blocks.get(whole.len()) {
                xor_masked(rest, block);
            }
        }
    }
}

/// # Safety
/// The CPU must have AVX-512F.
#[inline(always)]
unsafe fn xor(bytes: &mut [u8; 64], stream: __m512i) {
    let bytes = bytes.as_mut_ptr().cast::<__m512i>();
    // SAFETY: `bytes` is valid for reads and writes of 64 bytes. These instructions need no alignment.
    unsafe { _mm512_storeu_si512(bytes, _mm512_xor_si512(_mm512_loadu_si512(bytes), stream)) }
}

/// Xors into fewer bytes than a block has.
///
/// # Safety
/// The CPU must have AVX-512F and AVX-512BW.
#[inline(always)]
unsafe fn xor_masked(bytes: &mut [u8], stream: __m512i) {
    let mask = (1 << (bytes.len() % 64)) - 1;
    let bytes = bytes.as_mut_ptr().cast::<i8>();
    // SAFETY: the mask has one bit for each of the first `len % 64` bytes, at most all of them. Bytes without a bit are
    // neither read nor written.
    unsafe {
        _mm512_mask_storeu_epi8(bytes, mask, _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, bytes), stream))
    }
}
