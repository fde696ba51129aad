//! GFNI with AVX2: 32 bytes a register, products by `vgf2p8affineqb`.
#![allow(unsafe_code)]

use core::arch::x86_64::{__m256i, _mm256_gf2p8affine_epi64_epi8, _mm256_set1_epi64x, _mm256_xor_si256};

use super::{
    Sum,
    bit_matrix::BitMatrix,
    ssse3::Ssse3,
    vector::{self, Overlap, Vector},
};

/// Proof that the CPU has GFNI and AVX2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GfniAvx2 {
    /// For rows shorter than a register.
    pub(super) shorter: Ssse3,
}

impl GfniAvx2 {
    /// Bytes below which rows are left to `shorter`.
    pub(super) const MIN_LEN: usize = Affine256::LEN;

    pub(super) fn detect() -> Option<Self> {
        #[cfg(feature = "std")]
        let present =
            std::arch::is_x86_feature_detected!("gfni") && std::arch::is_x86_feature_detected!("avx2");
        #[cfg(not(feature = "std"))]
        let present = cfg!(all(target_feature = "gfni", target_feature = "avx2"));
        Ssse3::detect().filter(|_| present).map(|shorter| Self { shorter })
    }

    /// See [`Kernel::combine`](super::Kernel::combine); for rows of `MIN_LEN` bytes or more.
    #[inline]
    pub(super) fn combine(self, sum: Sum<'_, '_, '_>) {
        // SAFETY: `self` proves that the CPU has the instruction sets.
        unsafe { combine(sum) }
    }

    /// [`vector::add_product`], for sources of `MIN_LEN` bytes or more.
    #[inline]
    pub(super) fn add_product(self, coefficients: &[u8], source: &[u8], memory: &mut [u8], stride: usize) {
        // SAFETY: `self` proves that the CPU has the instruction sets.
        unsafe { add_product(coefficients, source, memory, stride) }
    }
}

#[target_feature(enable = "gfni,avx2")]
fn combine(sum: Sum<'_, '_, '_>) {
    // SAFETY: this function enables GFNI and AVX2.
    unsafe { vector::combine::<Affine256, 2>(sum) }
}

#[target_feature(enable = "gfni,avx2")]
fn add_product(coefficients: &[u8], source: &[u8], memory: &mut [u8], stride: usize) {
    // SAFETY: this function enables GFNI and AVX2.
    unsafe { vector::add_product::<Affine256>(coefficients, source, memory, stride) }
}

/// AVX2's register, multiplied by GFNI.
#[derive(Clone, Copy)]
struct Affine256(__m256i);

// SAFETY: loads and stores are those of AVX2; the others touch no memory but constant tables.
unsafe impl Vector for Affine256 {
    const LEN: usize = <__m256i as Vector>::LEN;
    type Factor = __m256i;
    type Split = Self;
    type Tail = Overlap<Self>;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: 32 bytes are readable at `at`: the caller's promise, as are the instruction sets, here and below.
        unsafe { Self(Vector::load(at)) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: 32 bytes are writable at `at`.
        unsafe { self.0.store(at) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { Self(Vector::zero()) }
    }

    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { Self(self.0.and(other.0)) }
    }

    #[inline(always)]
    unsafe fn split(self) -> Self {
        self
    }

    #[inline(always)]
    unsafe fn factor(coefficient: u8) -> __m256i {
        // SAFETY: needs the instruction set only.
        unsafe { _mm256_set1_epi64x(BitMatrix::of(coefficient).0 as i64) }
    }

    #[inline(always)]
    unsafe fn add_product(sum: Self, factor: __m256i, split: Self) -> Self {
        // SAFETY: needs the instruction sets only.
        unsafe { Self(_mm256_xor_si256(sum.0, _mm256_gf2p8affine_epi64_epi8::<0>(split.0, factor))) }
    }
}
