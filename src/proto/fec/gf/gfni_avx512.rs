//! GFNI with AVX-512: 64 bytes a register, products by `vgf2p8affineqb`, tails by masks.
//!
//! Adding a single source to the rows is left to AVX2's registers: that is as many stores as products, of which a CPU
//! with half as wide a path to its cache (Zen 4) makes no more by wide registers, and more of the wide loads straddle
//! cache lines.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m512i, __mmask64, _mm512_and_si512, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use super::{
    Sum,
    bit_matrix::BitMatrix,
    gfni_avx2::GfniAvx2,
    vector::{self, Part, Tail, Vector},
};

/// Proof that the CPU has GFNI, AVX-512F and AVX-512BW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GfniAvx512 {
    /// For single sources.
    pub(super) narrow: GfniAvx2,
}

impl GfniAvx512 {
    /// Bytes below which there is nothing to do.
    pub(super) const MIN_LEN: usize = Masked::MIN_LEN;

    pub(super) fn detect() -> Option<Self> {
        #[cfg(feature = "std")]
        let present = std::arch::is_x86_feature_detected!("gfni")
            && std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw");
        #[cfg(not(feature = "std"))]
        let present =
            cfg!(all(target_feature = "gfni", target_feature = "avx512f", target_feature = "avx512bw"));
        GfniAvx2::detect().filter(|_| present).map(|narrow| Self { narrow })
    }

    /// See [`Kernel::combine`](super::Kernel::combine).
    #[inline]
    pub(super) fn combine(self, sum: Sum<'_, '_, '_>) {
        if sum.add && sum.sources.len() == 1 && sum.range.len() >= GfniAvx2::MIN_LEN {
            return self.narrow.combine(sum);
        }
        // SAFETY: `self` proves that the CPU has the instruction sets.
        unsafe { combine(sum) }
    }
}

#[target_feature(enable = "gfni,avx512f,avx512bw")]
fn combine(sum: Sum<'_, '_, '_>) {
    // SAFETY: this function enables GFNI, AVX-512F and AVX-512BW.
    unsafe { vector::combine::<__m512i, 4>(sum) }
}

// SAFETY: loads and stores are of 64 bytes; the others touch no memory but constant tables.
unsafe impl Vector for __m512i {
    const LEN: usize = 64;
    type Factor = Self;
    type Split = Self;
    type Tail = Masked;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: 64 bytes are readable at `at`: the caller's promise, as are the instruction sets, here and below.
        unsafe { _mm512_loadu_si512(at.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: 64 bytes are writable at `at`.
        unsafe { _mm512_storeu_si512(at.cast(), self) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm512_and_si512(self, other) }
    }

    #[inline(always)]
    unsafe fn split(self) -> Self {
        self
    }

    #[inline(always)]
    unsafe fn factor(coefficient: u8) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm512_set1_epi64(BitMatrix::of(coefficient).0 as i64) }
    }

    #[inline(always)]
    unsafe fn add_product(sum: Self, factor: Self, split: Self) -> Self {
        // SAFETY: needs the instruction sets only.
        unsafe { _mm512_xor_si512(sum, _mm512_gf2p8affine_epi64_epi8::<0>(split, factor)) }
    }

    const PAIRED: bool = true;

    #[inline(always)]
    unsafe fn add_products(sum: Self, factors: [Self; 2], splits: [Self; 2]) -> Self {
        // The truth table of the sum of three bits.
        const SUM: i32 = 0b1001_0110;
        // SAFETY: needs the instruction sets only.
        unsafe {
            let first = _mm512_gf2p8affine_epi64_epi8::<0>(splits[0], factors[0]);
            let second = _mm512_gf2p8affine_epi64_epi8::<0>(splits[1], factors[1]);
            _mm512_ternarylogic_epi64::<SUM>(sum, first, second)
        }
    }
}

/// The tail's bytes and no others: what the mask leaves out is neither read nor written.
#[derive(Clone, Copy)]
pub(super) struct Masked(__mmask64);

// SAFETY: loads and stores are of the tail's bytes.
unsafe impl Part<__m512i> for Masked {
    #[inline(always)]
    unsafe fn source(self, at: *const u8) -> __m512i {
        // SAFETY: the bytes of the mask are readable at `at`: the caller's promise, as are the instruction sets, here
        // and below.
        unsafe { _mm512_maskz_loadu_epi8(self.0, at.cast()) }
    }

    #[inline(always)]
    unsafe fn row(self, at: *const u8) -> __m512i {
        // SAFETY: the bytes of the mask are readable at `at`.
        unsafe { _mm512_maskz_loadu_epi8(self.0, at.cast()) }
    }

    #[inline(always)]
    unsafe fn set_row(self, at: *mut u8, row: __m512i) {
        // SAFETY: the bytes of the mask are writable at `at`.
        unsafe { _mm512_mask_storeu_epi8(at.cast(), self.0, row) }
    }
}

// SAFETY: as above; the mask has `len` bits.
unsafe impl Tail<__m512i> for Masked {
    const MIN_LEN: usize = 1;

    #[inline(always)]
    unsafe fn of(len: usize) -> Self {
        Self(u64::MAX >> (64 - len))
    }

    #[inline(always)]
    fn reach(len: usize) -> usize {
        len
    }
}
