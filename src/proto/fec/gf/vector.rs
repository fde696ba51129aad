//! The loop of all vector kernels: what an instruction set adds is the [`Vector`] of its file.
//!
//! Memory is walked column by column. A column is a few vectors wide and stays in registers for all its rows while the
//! sources pass by, so a source is read once and a row written once, however many sources there are.
#![allow(unsafe_code)]

use super::{ROWS, Sum};

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
    /// How the bytes behind the last whole vector are reached.
    type Tail: Tail<Self>;

    /// Reads `LEN` bytes, aligned or not.
    unsafe fn load(at: *const u8) -> Self;
    /// Writes `LEN` bytes, aligned or not.
    unsafe fn store(self, at: *mut u8);
    unsafe fn zero() -> Self;
    unsafe fn and(self, other: Self) -> Self;
    unsafe fn split(self) -> Self::Split;
    unsafe fn factor(coefficient: u8) -> Self::Factor;
    /// `sum` plus the product.
    unsafe fn add_product(sum: Self, factor: Self::Factor, split: Self::Split) -> Self;

    /// Whether [`add_products`](Self::add_products) is less work than two times [`add_product`](Self::add_product), and
    /// there are registers for it.
    const PAIRED: bool = false;
    /// `sum` plus both products.
    #[inline(always)]
    unsafe fn add_products(sum: Self, factors: [Self::Factor; 2], splits: [Self::Split; 2]) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::add_product(Self::add_product(sum, factors[0], splits[0]), factors[1], splits[1]) }
    }
}

/// How sources and rows are read and rows are written at a place: what of a vector there is.
///
/// # Safety
/// The implementation must not touch memory other than the bytes that it documents. All methods require that the CPU has
/// the instruction set, and are `inline(always)` for the reason that those of [`Vector`] are.
pub(super) unsafe trait Part<V>: Copy {
    /// Reads a source; what is not of the part is zero.
    unsafe fn source(self, at: *const u8) -> V;
    unsafe fn row(self, at: *const u8) -> V;
    unsafe fn set_row(self, at: *mut u8, row: V);
}

/// The part of the bytes behind the last whole vector.
///
/// # Safety
/// As for [`Part`]: it may touch `reach` bytes, of which the tail's are the last. If these are more than the tail has, the
/// others are written as zero, or as they were read where the row is added to.
pub(super) unsafe trait Tail<V>: Part<V> {
    /// Rows are at least so long.
    const MIN_LEN: usize;
    /// For a tail of `len` bytes, at least 1 and at most a vector.
    unsafe fn of(len: usize) -> Self;
    fn reach(len: usize) -> usize;
}

/// All `V::LEN` bytes.
#[derive(Clone, Copy)]
struct Whole;

// SAFETY: loads and stores are those of `V`.
unsafe impl<V: Vector> Part<V> for Whole {
    #[inline(always)]
    unsafe fn source(self, at: *const u8) -> V {
        // SAFETY: the caller's promises, here and below.
        unsafe { V::load(at) }
    }

    #[inline(always)]
    unsafe fn row(self, at: *const u8) -> V {
        // SAFETY: as above.
        unsafe { V::load(at) }
    }

    #[inline(always)]
    unsafe fn set_row(self, at: *mut u8, row: V) {
        // SAFETY: as above.
        unsafe { row.store(at) }
    }
}

/// A tail for instruction sets that read and write whole vectors only: the last vector of the row, of which the mask
/// keeps the tail. It reaches back over bytes of the vector before.
#[derive(Clone, Copy)]
pub(super) struct Overlap<V>(V);

// SAFETY: loads and stores are those of `V`, of as many bytes as `reach` says.
unsafe impl<V: Vector> Part<V> for Overlap<V> {
    #[inline(always)]
    unsafe fn source(self, at: *const u8) -> V {
        // SAFETY: the caller's promises, here and below.
        unsafe { V::load(at).and(self.0) }
    }

    #[inline(always)]
    unsafe fn row(self, at: *const u8) -> V {
        // SAFETY: as above.
        unsafe { V::load(at) }
    }

    #[inline(always)]
    unsafe fn set_row(self, at: *mut u8, row: V) {
        // SAFETY: as above.
        unsafe { row.store(at) }
    }
}

// SAFETY: as above.
unsafe impl<V: Vector> Tail<V> for Overlap<V> {
    const MIN_LEN: usize = V::LEN;

    #[inline(always)]
    unsafe fn of(len: usize) -> Self {
        const { assert!(V::LEN <= MAX_LEN) };
        debug_assert!(len <= V::LEN);
        // SAFETY: the bytes kept begin `len` bytes before the vector's end: at most `MAX_LEN` before the middle begins
        // what is read, and as many bytes as the longest vector has follow it.
        unsafe { Self(V::load(KEEP_FROM.as_ptr().add(MAX_LEN - (V::LEN - len)))) }
    }

    #[inline(always)]
    fn reach(_len: usize) -> usize {
        V::LEN
    }
}

/// Longest vector that [`Overlap`] serves.
const MAX_LEN: usize = 32;
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
    coefficients: &'a [u8],
    stride: usize,
    sources: &'a [&'a [u8]],
}

/// [`Kernel::combine`](super::Kernel::combine) in columns of `W` vectors.
///
/// # Safety
/// The CPU must have the instruction set of `V`.
///
/// # Panics
/// If the lengths are not those that `Kernel::combine` asks for, or below what the tail needs.
#[inline(always)]
pub(super) unsafe fn combine<V: Vector, const W: usize>(sum: Sum<'_, '_, '_>) {
    let Sum { coefficients, stride, sources, rows, range, add } = sum;
    let len = range.end.saturating_sub(range.start);
    assert!(len >= V::Tail::MIN_LEN && rows.len() <= ROWS && rows.iter().all(|row| row.len() >= range.end));
    assert!(sources.iter().all(|source| source.len() >= len));
    assert!(!sources.is_empty() && rows.len() <= stride);
    assert!(coefficients.len() >= (sources.len() - 1) * stride + rows.len());
    let job = Job { coefficients, stride, sources };
    // SAFETY: all rows have `len` bytes from `range.start` on, no source is shorter, `len` is what the tail needs, and
    // there is a coefficient for each source and row: asserted above. The instruction set is the caller's promise.
    unsafe {
        let at = range.start;
        let start = |row: &mut &mut [u8]| row.as_mut_ptr().add(at);
        match rows {
            [a] => job.run::<V, W, 1>([start(a)], len, add),
            [a, b] => job.run::<V, W, 2>([start(a), start(b)], len, add),
            [a, b, c] => job.run::<V, W, 3>([start(a), start(b), start(c)], len, add),
            [a, b, c, d] => job.run::<V, W, 4>([start(a), start(b), start(c), start(d)], len, add),
            _ => unreachable!("at most {ROWS} rows"),
        }
    }
}

/// Adds the products of `source` with the coefficients, at most [`ROWS`], to rows that begin at every `stride` bytes of
/// `memory`.
///
/// # Safety
/// The CPU must have the instruction set of `V`.
///
/// # Panics
/// If the source is longer than a row or shorter than the tail needs, or the last row ends behind the memory.
#[inline(always)]
pub(super) unsafe fn add_product<V: Vector>(
    coefficients: &[u8],
    source: &[u8],
    memory: &mut [u8],
    stride: usize,
) {
    let len = source.len();
    assert!((V::Tail::MIN_LEN..=stride).contains(&len));
    assert!(coefficients.len() <= ROWS && coefficients.len().saturating_mul(stride) <= memory.len());
    let rows = memory.as_mut_ptr();
    // SAFETY: each of as many rows as there are coefficients has `stride` bytes of the memory, no fewer than the source,
    // whose length is what the tail needs: asserted above. The instruction set is the caller's promise.
    unsafe {
        match *coefficients {
            [] => {}
            [a] => fold::<V, 1>(source, [a], [rows]),
            [a, b] => fold::<V, 2>(source, [a, b], [rows, rows.add(stride)]),
            [a, b, c] => fold::<V, 3>(source, [a, b, c], [rows, rows.add(stride), rows.add(2 * stride)]),
            [a, b, c, d] => {
                let rows = [rows, rows.add(stride), rows.add(2 * stride), rows.add(3 * stride)];
                fold::<V, 4>(source, [a, b, c, d], rows);
            }
            _ => unreachable!("at most {ROWS} rows"),
        }
    }
}

/// Adds one source to the rows. Unlike [`Job::columns`] it keeps the coefficients in registers.
///
/// # Safety
/// The CPU must have the instruction set, the source be at least as long as the tail needs, and no memory behind `rows`
/// be shorter.
#[inline(always)]
unsafe fn fold<V: Vector, const N: usize>(source: &[u8], coefficients: [u8; N], rows: [*mut u8; N]) {
    let len = source.len();
    let whole = len - len % V::LEN;
    // SAFETY: no vector starts less than its length before `len`; the rest is the caller's promise.
    unsafe {
        let mut factors = [V::factor(0); N];
        for (factor, coefficient) in factors.iter_mut().zip(coefficients) {
            *factor = V::factor(coefficient);
        }
        if whole < len {
            let tail = len - whole;
            add_at::<V, _, N>(source, factors, rows, len - V::Tail::reach(tail), V::Tail::of(tail));
        }
        let mut at = 0;
        while at < whole {
            add_at::<V, _, N>(source, factors, rows, at, Whole);
            at += V::LEN;
        }
    }
}

impl Job<'_> {
    /// # Safety
    /// As for [`combine`]; `len` must be at least `V::Tail::MIN_LEN`, and no source and no memory behind `rows` be
    /// shorter.
    #[inline(always)]
    unsafe fn run<V: Vector, const W: usize, const N: usize>(
        &self,
        rows: [*mut u8; N],
        len: usize,
        add: bool,
    ) {
        // SAFETY: the caller's promises are passed on.
        unsafe {
            match self.sources {
                [source] if add => {
                    fold::<V, N>(&source[..len], *self.coefficients.first_chunk().unwrap_unchecked(), rows);
                }
                _ => self.columns::<V, W, N>(rows, len, add),
            }
        }
    }

    /// # Safety
    /// As for [`Job::run`].
    #[inline(always)]
    unsafe fn columns<V: Vector, const W: usize, const N: usize>(
        &self,
        rows: [*mut u8; N],
        len: usize,
        add: bool,
    ) {
        let wide = len - len % (W * V::LEN);
        // SAFETY: no column starts less than its width before `len`.
        unsafe {
            // Backwards: where a tail reaches back, what follows writes what counts.
            let mut end = len;
            while end > wide {
                let part = last_part::<V>(end - wide);
                self.column::<V, _, 1, N>(rows, end - V::Tail::reach(part), V::Tail::of(part), add);
                end -= part;
            }
            let mut at = 0;
            while at < wide {
                self.column::<V, _, W, N>(rows, at, Whole, add);
                at += W * V::LEN;
            }
        }
    }

    /// The `W` vectors at `at` of each row, from all sources.
    ///
    /// # Safety
    /// As for [`Job::run`], and `part` must touch no more than is left of the rows from `at` on, `W` times.
    #[inline(always)]
    unsafe fn column<V: Vector, P: Part<V>, const W: usize, const N: usize>(
        &self,
        rows: [*mut u8; N],
        at: usize,
        part: P,
        add: bool,
    ) {
        // SAFETY: the column lies within sources and rows, as the caller promises, and there is a coefficient for
        // each source and row.
        unsafe {
            let mut sums = [[V::zero(); W]; N];
            if add {
                for (row, sums) in rows.iter().zip(&mut sums) {
                    for (w, sum) in sums.iter_mut().enumerate() {
                        *sum = part.row(row.add(at + w * V::LEN));
                    }
                }
            }
            let mut coefficients = self.coefficients.as_ptr();
            let (pairs, single) = if V::PAIRED { self.sources.as_chunks() } else { (&[][..], self.sources) };
            for &[first, second] in pairs {
                let splits = [split_at::<V, P, W>(first, at, part), split_at::<V, P, W>(second, at, part)];
                let next = coefficients.wrapping_add(self.stride);
                for (n, sums) in sums.iter_mut().enumerate() {
                    let factors = [V::factor(*coefficients.add(n)), V::factor(*next.add(n))];
                    for (w, sum) in sums.iter_mut().enumerate() {
                        *sum = V::add_products(*sum, factors, [splits[0][w], splits[1][w]]);
                    }
                }
                coefficients = next.wrapping_add(self.stride);
            }
            for source in single {
                let splits = split_at::<V, P, W>(source, at, part);
                for (n, sums) in sums.iter_mut().enumerate() {
                    let factor = V::factor(*coefficients.add(n));
                    for (sum, split) in sums.iter_mut().zip(splits) {
                        *sum = V::add_product(*sum, factor, split);
                    }
                }
                coefficients = coefficients.wrapping_add(self.stride);
            }
            for (row, sums) in rows.iter().zip(sums) {
                for (w, sum) in sums.into_iter().enumerate() {
                    part.set_row(row.add(at + w * V::LEN), sum);
                }
            }
        }
    }
}

/// Length of the last vector or part of one in `left` bytes, at least 1. Both are gone through as tails: a column fewer to
/// compile for each kernel.
#[inline(always)]
const fn last_part<V: Vector>(left: usize) -> usize {
    match left % V::LEN {
        0 => V::LEN,
        tail => tail,
    }
}

/// The source's `W` vectors at `at`, ready to be multiplied.
///
/// # Safety
/// The CPU must have the instruction set, and `part` touch no more than is left of the source from `at` on, `W` times.
#[inline(always)]
unsafe fn split_at<V: Vector, P: Part<V>, const W: usize>(
    source: &[u8],
    at: usize,
    part: P,
) -> [V::Split; W] {
    // SAFETY: the caller's promises.
    unsafe {
        let mut splits = [V::zero().split(); W];
        for (w, split) in splits.iter_mut().enumerate() {
            *split = part.source(source.as_ptr().add(at + w * V::LEN)).split();
        }
        splits
    }
}

/// Adds the products of the source's part at `at` to those of the rows.
///
/// # Safety
/// The CPU must have the instruction set, and `part` touch no more than is left of source and rows from `at` on.
#[inline(always)]
unsafe fn add_at<V: Vector, P: Part<V>, const N: usize>(
    source: &[u8],
    factors: [V::Factor; N],
    rows: [*mut u8; N],
    at: usize,
    part: P,
) {
    // SAFETY: the caller's promises.
    unsafe {
        let split = part.source(source.as_ptr().add(at)).split();
        for (row, factor) in rows.into_iter().zip(factors) {
            let sum = part.row(row.add(at));
            part.set_row(row.add(at), V::add_product(sum, factor, split));
        }
    }
}
