//! SSSE3: 16 bytes a register, products by `pshufb`.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_load_si128, _mm_loadu_si128, _mm_set1_epi8, _mm_setzero_si128,
    _mm_shuffle_epi8, _mm_srli_epi64, _mm_storeu_si128, _mm_xor_si128,
};

use super::{
    Nibbles, Sum,
    vector::{self, Overlap, Vector},
};

/// Proof that the CPU has SSSE3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ssse3(());

impl Ssse3 {
    /// Bytes below which rows are left to the scalar kernel.
    pub(super) const MIN_LEN: usize = <__m128i as Vector>::LEN;

    pub(super) fn detect() -> Option<Self> {
        #[cfg(feature = "std")]
        let present = std::arch::is_x86_feature_detected!("ssse3");
        #[cfg(not(feature = "std"))]
        let present = cfg!(target_feature = "ssse3");
        present.then_some(Self(()))
    }

    /// See [`Kernel::combine`](super::Kernel::combine); for rows of `MIN_LEN` bytes or more.
    pub(super) fn combine(self, sum: Sum<'_, '_, '_>) {
        // SAFETY: `self` proves that the CPU has SSSE3.
        unsafe { combine(sum) }
    }
}

#[target_feature(enable = "ssse3")]
fn combine(sum: Sum<'_, '_, '_>) {
    // SAFETY: this function enables SSSE3.
    unsafe { vector::combine::<__m128i, 2>(sum) }
}

// SAFETY: loads and stores are of 16 bytes; the others touch no memory but constant tables.
unsafe impl Vector for __m128i {
    const LEN: usize = 16;
    type Factor = (Self, Self);
    type Split = (Self, Self);
    type Tail = Overlap<Self>;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: 16 bytes are readable at `at`: the caller's promise, as is the instruction set, here and below.
        unsafe { _mm_loadu_si128(at.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: 16 bytes are writable at `at`.
        unsafe { _mm_storeu_si128(at.cast(), self) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm_setzero_si128() }
    }

    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm_and_si128(self, other) }
    }

    #[inline(always)]
    unsafe fn split(self) -> (Self, Self) {
        // SAFETY: needs the instruction set only.
        unsafe {
            let low = _mm_set1_epi8(15);
            (_mm_and_si128(self, low), _mm_and_si128(_mm_srli_epi64::<4>(self), low))
        }
    }

    #[inline(always)]
    unsafe fn factor(coefficient: u8) -> (Self, Self) {
        let table = Nibbles::of(coefficient);
        // SAFETY: both halves are 16 bytes long and aligned to 16, as `Nibbles` is to 32.
        unsafe { (_mm_load_si128(table.lo.as_ptr().cast()), _mm_load_si128(table.hi.as_ptr().cast())) }
    }

    #[inline(always)]
    unsafe fn add_product(sum: Self, (lo, hi): (Self, Self), split: (Self, Self)) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe {
            let product = _mm_xor_si128(_mm_shuffle_epi8(lo, split.0), _mm_shuffle_epi8(hi, split.1));
            _mm_xor_si128(sum, product)
        }
    }
}
