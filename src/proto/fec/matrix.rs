//! Coefficients of the code: Lagrange interpolation in place of matrix inversion.
//!
//! The matrix of kcp-go is a Vandermonde matrix times the inverse of its top square, which makes it systematic. That is
//! interpolation: the data shards are the values of a polynomial at 0, 1, ..., d - 1, and the parity shards its values
//! at d, ..., d + p - 1. Any d values name the polynomial, so each missing shard is a sum of any d others with
//! Lagrange's coefficients, which need no inversion and always exist.
//!
//! The coefficient of the shard at x for the value at y, from the shards at all points s of a set S, is
//!
//! ```text
//!     product of (y - s) over s in S
//!   ─────────────────────────────────────────────────────
//!   (y - x) * product of (x - s) over s in S other than x
//! ```
//!
//! where subtraction is exclusive or.

use alloc::{boxed::Box, vec::Vec};

use super::{decode_cache::ShardSet, gf::Log};

/// Most shards that can be missing and recovered: data shards as well as parity shards must be as many.
const MAX_MISSING: usize = 128;

/// The matrix of a code, as what its coefficients are made of.
#[derive(Debug)]
pub(super) struct Matrix {
    data: usize,
    /// For the point of each shard: the product of its differences to the points of all (other) data shards.
    differences: Box<[Log]>,
}

impl Matrix {
    /// `data + parity` must be at most 256.
    pub(super) fn new(data: usize, parity: usize) -> Self {
        // The number of a shard is below 256, and is its point.
        let differences = (0..data + parity)
            .map(|x| product((0..data).filter(|&s| s != x).map(|s| difference(x as u8, s as u8))))
            .collect();
        Self { data, differences }
    }

    /// The coefficient of data shard `column` in the shard at `row`: a parity shard, counted from the first data shard.
    pub(super) fn coefficient(&self, row: usize, column: usize) -> u8 {
        let denominator = difference(row as u8, column as u8).times(self.differences[column]);
        self.differences[row].over(denominator).element()
    }

    /// The coefficients that make the missing data shards from those of the set `present`: for each present shard
    /// in order, those of all missing data shards in order.
    ///
    /// The set must have exactly as many shards as the code has data shards.
    pub(super) fn recovery(&self, present: &ShardSet, coefficients: &mut Vec<u8>) {
        let (data, all) = (self.data, self.differences.len());
        let missing = Points::new(present.absent(0..data));
        let parity = Points::new(present.present(data..all));
        // From all data shards, whose product is at hand, to the present shards: parity shards come, missing ones go.
        let to_present = |x| {
            self.differences[usize::from(x)].times(parity.differences_to(x)).over(missing.differences_to(x))
        };
        let mut numerators = [Log::ONE; MAX_MISSING];
        for (numerator, &y) in numerators.iter_mut().zip(missing.as_slice()) {
            *numerator = to_present(y);
        }
        coefficients.clear();
        coefficients.reserve_exact(data * missing.as_slice().len());
        for x in present.present(0..all) {
            let x = x as u8;
            let denominator = to_present(x);
            let fractions = missing.as_slice().iter().zip(&numerators);
            coefficients.extend(fractions.map(|(&y, numerator)| {
                let coefficient = numerator.over(difference(y, x).times(denominator));
                coefficient.element()
            }));
        }
    }
}

/// The points of up to [`MAX_MISSING`] shards.
struct Points {
    points: [u8; MAX_MISSING],
    count: usize,
}

impl Points {
    fn new(shards: impl Iterator<Item = usize>) -> Self {
        let mut points = [0; MAX_MISSING];
        let count = points.iter_mut().zip(shards).map(|(point, shard)| *point = shard as u8).count();
        Self { points, count }
    }

    fn as_slice(&self) -> &[u8] {
        &self.points[..self.count]
    }

    /// The product of the differences between `x` and the points other than `x`.
    fn differences_to(&self, x: u8) -> Log {
        product(self.as_slice().iter().filter(|&&s| s != x).map(|&s| difference(x, s)))
    }
}

/// The difference of two different points.
#[inline]
fn difference(a: u8, b: u8) -> Log {
    Log::of(a ^ b)
}

#[inline]
fn product(factors: impl Iterator<Item = Log>) -> Log {
    Log::product(factors)
}
