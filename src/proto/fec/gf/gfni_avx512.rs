//! GFNI with AVX-512: 64 bytes a register, products by `vgf2p8affineqb`, tails by masks.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m512i, __mmask64, _mm512_and_si512, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_xor_si512,
};

use super::{
    Nibbles, ROWS,
    bit_matrix::{BitMatrix, BlockMatrices},
    vector::{self, Part, Tail, Vector},
};

/// Proof that the CPU has GFNI, AVX-512F and AVX-512BW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GfniAvx512(());

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
        present.then_some(Self(()))
    }

    /// See [`Kernel::combine`](super::Kernel::combine).
    pub(super) fn combine(
        self,
        tables: &[Nibbles],
        stride: usize,
        sources: &[&[u8]],
        rows: &mut [&mut [u8]],
        add: bool,
    ) {
        let matrices = BlockMatrices::of(tables, stride, sources.len(), rows.len());
        // SAFETY: `self` proves that the CPU has GFNI, AVX-512F and AVX-512BW.
        unsafe { combine(&matrices, sources, rows, add) }
    }
}

#[target_feature(enable = "gfni,avx512f,avx512bw")]
fn combine(matrices: &BlockMatrices, sources: &[&[u8]], rows: &mut [&mut [u8]], add: bool) {
    // SAFETY: this function enables GFNI, AVX-512F and AVX-512BW.
    unsafe { vector::combine::<__m512i, 2>(matrices.as_slice(), ROWS, sources, rows, add) }
}

// SAFETY: loads and stores are of 64 bytes; the others touch no memory but the matrices behind references.
unsafe impl Vector for __m512i {
    const LEN: usize = 64;
    type Table = BitMatrix;
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
    unsafe fn factor(&BitMatrix(matrix): &BitMatrix) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { _mm512_set1_epi64(matrix as i64) }
    }

    #[inline(always)]
    unsafe fn add_product(sum: Self, factor: Self, split: Self) -> Self {
        // SAFETY: needs the instruction sets only.
        unsafe { _mm512_xor_si512(sum, _mm512_gf2p8affine_epi64_epi8::<0>(split, factor)) }
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
