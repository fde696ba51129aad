//! The loop of all vector kernels: what an instruction set adds is the [`Vector`] of its file.
//!
//! Memory is walked column by column. A column is a few vectors wide and stays in registers for all its rows while the
//! sources pass by, so a source is read once and a row written once, however many sources there are.
#![allow(unsafe_code)]

use super::{Nibbles, ROWS};

/// A register of bytes.
///
/// # Safety
/// The implementation must not touch memory other than the `LEN` bytes at the pointers it is given. All methods require
/// that the CPU has the instruction set, and are `inline(always)` to be compiled with it inside the functions that
/// enable it.
pub(super) unsafe trait Vector: Copy {
    /// Bytes in a register.
    const LEN: usize;
    /// A coefficient as the multiplication takes it.
    type Factor: Copy;
    /// A vector made ready to be multiplied by several coefficients.
    type Split: Copy;

    /// Reads `LEN` bytes, aligned or not.
    unsafe fn load(at: *const u8) -> Self;
    /// Writes `LEN` bytes, aligned or not.
    unsafe fn store(self, at: *mut u8);
    unsafe fn zero() -> Self;
    unsafe fn and(self, other: Self) -> Self;
    unsafe fn split(self) -> Self::Split;
    unsafe fn factor(table: &Nibbles) -> Self::Factor;
    /// `sum` plus the product.
    unsafe fn add_product(sum: Self, factor: Self::Factor, split: Self::Split) -> Self;
}

/// Longest vector that the tail's mask serves.
const MAX_LEN: usize = 64;
/// Read `n` bytes before the middle, it keeps what follows the first `n` bytes.
static KEEP_FROM: [u8; 2 * MAX_LEN] = {
    let mut bytes = [0; 2 * MAX_LEN];
    let mut at = MAX_LEN;
    while at < bytes.len() {
        bytes[at] = 0xff;
        at += 1;
    }
    bytes
};

/// What a kernel works on, its lengths checked.
struct Job<'a> {
    tables: &'a [Nibbles],
    stride: usize,
    sources: &'a [&'a [u8]],
}

/// [`Kernel::combine`](super::Kernel::combine) in columns of `W` vectors.
///
/// # Safety
/// The CPU must have the instruction set of `V`.
///
/// # Panics
/// If the lengths are not those that `Kernel::combine` asks for, or below `V::LEN`.
#[inline(always)]
pub(super) unsafe fn combine<V: Vector, const W: usize>(
    tables: &[Nibbles],
    stride: usize,
    sources: &[&[u8]],
    rows: &mut [&mut [u8]],
    add: bool,
) {
    let len = rows.first().map_or(0, |row| row.len());
    assert!(len >= V::LEN && rows.len() <= ROWS && rows.iter().all(|row| row.len() == len));
    assert!(sources.iter().all(|source| source.len() >= len));
    assert!(!sources.is_empty() && rows.len() <= stride);
    assert!(tables.len() >= (sources.len() - 1) * stride + rows.len());
    let job = Job { tables, stride, sources };
    // SAFETY: all rows are `len` bytes long, no source is shorter, `len` is at least a vector, and there is a table for
    // each source and row: asserted above. The instruction set is the caller's promise.
    unsafe {
        match rows {
            [a] => job.run::<V, W, 1>([a.as_mut_ptr()], len, add),
            [a, b] => job.run::<V, W, 2>([a.as_mut_ptr(), b.as_mut_ptr()], len, add),
            [a, b, c] => job.run::<V, W, 3>([a.as_mut_ptr(), b.as_mut_ptr(), c.as_mut_ptr()], len, add),
            [a, b, c, d] => {
                let rows = [a.as_mut_ptr(), b.as_mut_ptr(), c.as_mut_ptr(), d.as_mut_ptr()];
                job.run::<V, W, 4>(rows, len, add);
            }
            _ => unreachable!("at most {ROWS} rows"),
        }
    }
}

impl Job<'_> {
    /// # Safety
    /// As for [`combine`]; `len` must be at least `V::LEN`, and no source and no memory behind `rows` be shorter.
    #[inline(always)]
    unsafe fn run<V: Vector, const W: usize, const N: usize>(
        &self,
        rows: [*mut u8; N],
        len: usize,
        add: bool,
    ) {
        // SAFETY: the caller's promises are passed on.
        unsafe {
            match (self.sources, add) {
                ([source], true) => self.fold::<V, W, N>(source, rows, len),
                (_, true) => self.columns::<V, W, N, true>(rows, len),
                (_, false) => self.columns::<V, W, N, false>(rows, len),
            }
        }
    }

    /// # Safety
    /// As for [`Job::run`].
    #[inline(always)]
    unsafe fn columns<V: Vector, const W: usize, const N: usize, const ADD: bool>(
        &self,
        rows: [*mut u8; N],
        len: usize,
    ) {
        let mut at = 0;
        // SAFETY: no column starts less than its width before `len`.
        unsafe {
            let tail = len % V::LEN;
            if tail > 0 {
                // The last vector reaches back over bytes that the loop does too: writing them twice changes nothing,
                // adding to them twice would. First, so that the loop finds it long written.
                let keep = if ADD { Some(keep_from::<V>(V::LEN - tail)) } else { None };
                self.column::<V, 1, N, ADD>(rows, len - V::LEN, keep);
            }
            while at + W * V::LEN <= len {
                self.column::<V, W, N, ADD>(rows, at, None);
                at += W * V::LEN;
            }
            while at + V::LEN <= len {
                self.column::<V, 1, N, ADD>(rows, at, None);
                at += V::LEN;
            }
        }
    }

    /// The `W` vectors at `at` of each row, from all sources.
    ///
    /// # Safety
    /// As for [`Job::run`], and `at + W * V::LEN` must be at most `len`.
    #[inline(always)]
    unsafe fn column<V: Vector, const W: usize, const N: usize, const ADD: bool>(
        &self,
        rows: [*mut u8; N],
        at: usize,
        keep: Option<V>,
    ) {
        // SAFETY: the column lies within sources and rows, as the caller promises, and `tables` has a table for each
        // source and row.
        unsafe {
            let mut sums = [[V::zero(); W]; N];
            if ADD {
                for (row, sums) in rows.iter().zip(&mut sums) {
                    for (w, sum) in sums.iter_mut().enumerate() {
                        *sum = V::load(row.add(at + w * V::LEN));
                    }
                }
            }
            let mut tables = self.tables.as_ptr();
            for source in self.sources {
                let mut split = [V::zero().split(); W];
                for (w, split) in split.iter_mut().enumerate() {
                    let vector = V::load(source.as_ptr().add(at + w * V::LEN));
                    *split = keep.map_or(vector, |keep| vector.and(keep)).split();
                }
                for (n, sums) in sums.iter_mut().enumerate() {
                    let factor = V::factor(&*tables.add(n));
                    for (sum, split) in sums.iter_mut().zip(split) {
                        *sum = V::add_product(*sum, factor, split);
                    }
                }
                tables = tables.wrapping_add(self.stride);
            }
            for (row, sums) in rows.iter().zip(sums) {
                for (w, sum) in sums.into_iter().enumerate() {
                    sum.store(row.add(at + w * V::LEN));
                }
            }
        }
    }

    /// Adds one source to the rows. Unlike [`Job::columns`] it keeps the coefficients in registers.
    ///
    /// # Safety
    /// As for [`Job::run`].
    #[inline(always)]
    unsafe fn fold<V: Vector, const W: usize, const N: usize>(
        &self,
        source: &[u8],
        rows: [*mut u8; N],
        len: usize,
    ) {
        let mut at = 0;
        // SAFETY: `tables` has `N` tables, and no vector starts less than its length before `len`.
        unsafe {
            let mut factors = [V::factor(&self.tables[0]); N];
            for (n, factor) in factors.iter_mut().enumerate() {
                *factor = V::factor(&*self.tables.as_ptr().add(n));
            }
            let tail = len % V::LEN;
            if tail > 0 {
                let last = len - V::LEN;
                let new = V::load(source.as_ptr().add(last)).and(keep_from(V::LEN - tail));
                add_at(new, factors, rows, last);
            }
            while at + W * V::LEN <= len {
                for w in 0..W {
                    let from = at + w * V::LEN;
                    add_at(V::load(source.as_ptr().add(from)), factors, rows, from);
                }
                at += W * V::LEN;
            }
            while at + V::LEN <= len {
                add_at(V::load(source.as_ptr().add(at)), factors, rows, at);
                at += V::LEN;
            }
        }
    }
}

/// Adds the products of `vector` to the rows' vectors at `at`.
///
/// # Safety
/// The CPU must have the instruction set, and each row `V::LEN` bytes from `at` on.
#[inline(always)]
unsafe fn add_at<V: Vector, const N: usize>(
    vector: V,
    factors: [V::Factor; N],
    rows: [*mut u8; N],
    at: usize,
) {
    // SAFETY: the caller's promises.
    unsafe {
        let split = vector.split();
        for (row, factor) in rows.into_iter().zip(factors) {
            let sum = V::load(row.add(at));
            V::add_product(sum, factor, split).store(row.add(at));
        }
    }
}

/// A mask of all bytes but the first `done`.
///
/// # Safety
/// The CPU must have the instruction set, and `done` be at most `V::LEN`.
#[inline(always)]
unsafe fn keep_from<V: Vector>(done: usize) -> V {
    const { assert!(V::LEN <= MAX_LEN) };
    // SAFETY: `done` is at most `MAX_LEN`, and as many bytes as the longest vector has follow the middle.
    unsafe { V::load(KEEP_FROM.as_ptr().add(MAX_LEN - done)) }
}
