//! Salsa20 with AVX-512: each vector holds words of four blocks. A rotation is one instruction, and masks read and write
//! what is left of a block at the end.
#![allow(unsafe_code, reason = "vector instructions")]

use core::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_loadu_si512, _mm512_mask_blend_epi32, _mm512_mask_storeu_epi8,
    _mm512_maskz_loadu_epi8, _mm512_or_si512, _mm512_rol_epi32, _mm512_shuffle_epi32, _mm512_shuffle_i32x4,
    _mm512_xor_si512,
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

// SAFETY: `load` and `xor_into` access their arguments only. The other methods access no memory.
unsafe impl Vector for __m512i {
    const BLOCKS: usize = 4;

    #[inline(always)]
    unsafe fn load(words: &[u32; 16]) -> Self {
        // SAFETY: the words are 64 bytes. The caller promises the instruction set, here and below.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm512_add_epi32(self, other) }
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm512_or_si512(self, other) }
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
        // SAFETY: needs the instruction set only, as `xor` does. A chunk has 1 to 64 bytes.
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
            for (data, block) in data.chunks_mut(64).zip(blocks) {
                xor(data, block);
            }
        }
    }
}

/// # Safety
/// The CPU must have AVX-512F and AVX-512BW.
#[inline(always)]
unsafe fn xor(data: &mut [u8], stream: __m512i) {
    let mask = u64::MAX >> (64 - data.len().clamp(1, 64));
    let at = data.as_mut_ptr().cast::<i8>();
    // SAFETY: `data` is not empty, so the mask has one bit for each byte of `data`, at most 64. Bytes without a bit are
    // neither read nor written.
    unsafe { _mm512_mask_storeu_epi8(at, mask, _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, at), stream)) }
}
