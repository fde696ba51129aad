//! Salsa20 with AVX2: each vector holds words of two blocks.
#![allow(unsafe_code, reason = "vector instructions")]

use core::arch::x86_64::{
    __m256i, _mm_setr_epi32, _mm256_add_epi32, _mm256_blend_epi32, _mm256_broadcastsi128_si256,
    _mm256_loadu_si256, _mm256_permute2x128_si256, _mm256_setr_epi32, _mm256_shuffle_epi32,
    _mm256_slli_epi32, _mm256_srli_epi32, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::{
    NONCE_LEN,
    diagonals::{self, Vector},
};

/// Proof that the CPU has AVX2.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    #[inline]
    pub(super) fn detect() -> Option<Self> {
        cpu_has!("avx2").then_some(Self(()))
    }

    /// Xors the key stream into `data`.
    pub(super) fn apply(self, key: &[u8; 32], nonce: &[u8; NONCE_LEN], data: &mut [u8]) {
        // SAFETY: `self` proves that the CPU has AVX2.
        unsafe { apply(key, nonce, data) }
    }
}

#[target_feature(enable = "avx2")]
fn apply(key: &[u8; 32], nonce: &[u8; NONCE_LEN], data: &mut [u8]) {
    // SAFETY: this function enables AVX2.
    unsafe { diagonals::apply::<__m256i>(key, nonce, data) }
}

// SAFETY: `xor_into` accesses its arguments only. The other methods access no memory.
unsafe impl Vector for __m256i {
    const BLOCKS: usize = 2;

    #[inline(always)]
    unsafe fn in_each_lane([first, second, third, fourth]: [u32; 4]) -> Self {
        // SAFETY: needs the instruction set only, which the caller promises, here and below.
        unsafe {
            let words = _mm_setr_epi32(first as i32, second as i32, third as i32, fourth as i32);
            _mm256_broadcastsi128_si256(words)
        }
    }

    #[inline(always)]
    unsafe fn lane_numbers() -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm256_setr_epi32(0, 0, 0, 0, 1, 0, 0, 0) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm256_add_epi32(self, other) }
    }

    #[inline(always)]
    unsafe fn xor_rotated_sum<const LEFT: i32, const RIGHT: i32>(self, x: Self, y: Self) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe {
            let sum = _mm256_add_epi32(x, y);
            let half = _mm256_xor_si256(self, _mm256_slli_epi32::<LEFT>(sum));
            _mm256_xor_si256(half, _mm256_srli_epi32::<RIGHT>(sum))
        }
    }

    #[inline(always)]
    unsafe fn shuffle<const ORDER: i32>(self) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm256_shuffle_epi32::<ORDER>(self) }
    }

    #[inline(always)]
    unsafe fn diagonal([first, second, third, fourth]: [Self; 4]) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe {
            let front = _mm256_blend_epi32::<0b1010_1010>(first, second);
            let back = _mm256_blend_epi32::<0b1010_1010>(third, fourth);
            _mm256_blend_epi32::<0b1100_1100>(front, back)
        }
    }

    #[inline(always)]
    unsafe fn xor_into([first, second, third, fourth]: [Self; 4], data: &mut [u8]) {
        // SAFETY: needs the instruction set only, as `xor` does.
        unsafe {
            let stream = [
                _mm256_permute2x128_si256::<0x20>(first, second),
                _mm256_permute2x128_si256::<0x20>(third, fourth),
                _mm256_permute2x128_si256::<0x31>(first, second),
                _mm256_permute2x128_si256::<0x31>(third, fourth),
            ];
            let (whole, rest) = data.as_chunks_mut();
            for (bytes, &stream) in whole.iter_mut().zip(&stream) {
                xor(bytes, stream);
            }
            if let Some(&stream) = stream.get(whole.len()) {
                let mut bytes = [0; 32];
                bytes[..rest.len()].copy_from_slice(rest);
                xor(&mut bytes, stream);
                rest.copy_from_slice(&bytes[..rest.len()]);
            }
        }
    }
}

/// # Safety
/// The CPU must have AVX2.
#[inline(always)]
unsafe fn xor(bytes: &mut [u8; 32], stream: __m256i) {
    let bytes = bytes.as_mut_ptr().cast::<__m256i>();
    // SAFETY: `bytes` is valid for reads and writes of 32 bytes. These instructions need no alignment.
    unsafe { _mm256_storeu_si256(bytes, _mm256_xor_si256(_mm256_loadu_si256(bytes), stream)) }
}
