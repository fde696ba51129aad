//! NEON: 16 bytes a register, products by `tbl`.
#![allow(unsafe_code)]

use core::arch::aarch64::{
    uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8,
};

use super::{
    Nibbles, Sum,
    vector::{self, Overlap, Vector},
};

/// Proof that the CPU has NEON, which all 64-bit ARM targets with hardware floating point do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neon(());

impl Neon {
    /// Bytes below which rows are left to the scalar kernel.
    pub(super) const MIN_LEN: usize = <uint8x16_t as Vector>::LEN;

    pub(super) fn detect() -> Option<Self> {
        cfg!(target_feature = "neon").then_some(Self(()))
    }

    /// See [`Kernel::combine`](super::Kernel::combine); for rows of `MIN_LEN` bytes or more.
    pub(super) fn combine(self, sum: Sum<'_, '_, '_>) {
        // SAFETY: `self` proves that the CPU has NEON.
        unsafe { combine(sum) }
    }

    /// [`vector::add_product`], for sources of `MIN_LEN` bytes or more.
    #[inline]
    pub(super) fn add_product(self, coefficients: &[u8], source: &[u8], memory: &mut [u8], stride: usize) {
        // SAFETY: `self` proves that the CPU has NEON.
        unsafe { add_product(coefficients, source, memory, stride) }
    }
}

#[target_feature(enable = "neon")]
fn combine(sum: Sum<'_, '_, '_>) {
    // SAFETY: this function enables NEON.
    unsafe { vector::combine::<uint8x16_t, 2>(sum) }
}

#[target_feature(enable = "neon")]
fn add_product(coefficients: &[u8], source: &[u8], memory: &mut [u8], stride: usize) {
    // SAFETY: this function enables NEON.
    unsafe { vector::add_product::<uint8x16_t>(coefficients, source, memory, stride) }
}

// SAFETY: loads and stores are of 16 bytes; the others touch no memory but constant tables.
unsafe impl Vector for uint8x16_t {
    const LEN: usize = 16;
    type Factor = (Self, Self);
    type Split = (Self, Self);
    type Tail = Overlap<Self>;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: 16 bytes are readable at `at`: the caller's promise, as is the instruction set, here and below.
        unsafe { vld1q_u8(at) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: 16 bytes are writable at `at`.
        unsafe { vst1q_u8(at, self) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { vdupq_n_u8(0) }
    }

    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe { vandq_u8(self, other) }
    }

    #[inline(always)]
    unsafe fn split(self) -> (Self, Self) {
        // SAFETY: needs the instruction set only.
        unsafe { (vandq_u8(self, vdupq_n_u8(15)), vshrq_n_u8::<4>(self)) }
    }

    #[inline(always)]
    unsafe fn factor(coefficient: u8) -> (Self, Self) {
        let table = Nibbles::of(coefficient);
        // SAFETY: both halves are 16 bytes long.
        unsafe { (vld1q_u8(table.lo.as_ptr()), vld1q_u8(table.hi.as_ptr())) }
    }

    #[inline(always)]
    unsafe fn add_product(sum: Self, (lo, hi): (Self, Self), split: (Self, Self)) -> Self {
        // SAFETY: needs the instruction set only.
        unsafe {
            let product = veorq_u8(vqtbl1q_u8(lo, split.0), vqtbl1q_u8(hi, split.1));
            veorq_u8(sum, product)
        }
    }
}
