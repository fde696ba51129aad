//! AVX2: 32 bytes a register, products by `vpshufb`.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m128i, __m256i, _mm_load_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
    _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_xor_si256,
};

use super::{
    Nibbles, Sum,
    ssse3::Ssse3,
    vector::{self, Overlap, Vector},
};

/// Proof that the CPU has AVX2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Avx2 {
    /// For rows shorter than a register.
    pub(super) shorter: Ssse3,
}

impl Avx2 {
    /// Bytes below which rows are left to `shorter`.
    pub(super) const MIN_LEN: usize = <__m256i as Vector>::LEN;

    pub(super) fn detect() -> Option<Self> {
        #[cfg(feature = "std")]
        let present = std::arch::is_x86_feature_detected!("avx2");
        #[cfg(not(feature = "std"))]
        let present = cfg!(target_feature = "avx2");
        Ssse3::detect().filter(|_| present).map(|shorter| Self { shorter })
    }

    /// See [`Kernel::combine`](super::Kernel::combine); for rows of `MIN_LEN` bytes or more.
    #[inline]
    pub(super) fn combine(self, sum: Sum<'_, '_, '_>) {
        // SAFETY: `self` proves that the CPU has AVX2.
        unsafe { combine(sum) }
    }
}

#[target_feature(enable = "avx2")]
fn combine(sum: Sum<'_, '_, '_>) {
    // SAFETY: this function enables AVX2.
    unsafe { vector::combine::<__m256i, 2>(sum) }
}

// SAFETY: loads and stores are of 32 bytes; the others touch no memory but constant tables.
unsafe impl Vector for __m256i {
    const LEN: usize = 32;
    type Factor = (Self, Self);
    type Split = (Self, Self);
    type Tail = Overlap<Self>;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: 32 bytes are readable at `at`: the caller's promise, as is the instruction set, here and below.
        unsafe { _mm256_loadu_si256(at.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: 32 bytes are writable at `at`.
        unsafe { _mm256_storeu_si256(at.cast(), self) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm256_and_si256(self, other) }
    }

    #[inline(always)]
    unsafe fn split(self) -> (Self, Self) {
        // SAFETY: needs the instruction set only.
        unsafe {
            let low = _mm256_set1_epi8(15);
            (_mm256_and_si256(self, low), _mm256_and_si256(_mm256_srli_epi64::<4>(self), low))
        }
    }

    #[inline(always)]
    unsafe fn factor(coefficient: u8) -> (Self, Self) {
        let table = Nibbles::of(coefficient);
        // SAFETY: both halves are 16 bytes long and aligned to 16, as `Nibbles` is to 32.
        unsafe {
            let lo = _mm_load_si128(table.lo.as_ptr().cast::<__m128i>());
            let hi = _mm_load_si128(table.hi.as_ptr().cast::<__m128i>());
            (_mm256_broadcastsi128_si256(lo), _mm256_broadcastsi128_si256(hi))
        }
    }

    #[inline(always)]
    unsafe fn add_product(sum: Self, (lo, hi): (Self, Self), split: (Self, Self)) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe {
            let product =
                _mm256_xor_si256(_mm256_shuffle_epi8(lo, split.0), _mm256_shuffle_epi8(hi, split.1));
            _mm256_xor_si256(sum, product)
        }
    }
}
