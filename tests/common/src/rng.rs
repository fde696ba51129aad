//! A small generator (SplitMix64): fast, seeded with any number, and the same on every machine and in every release.

use std::{ops::RangeInclusive, time::Duration};

use kcp9::proto::Random;

/// A stream of numbers that a seed determines.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator of its own for one part of a test, so that parts do not shift each other's numbers.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `range`.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        match (high - low).checked_add(1) {
            Some(span) => low + ((u128::from(self.next()) * u128::from(span)) >> 64) as u64,
            None => self.next(),
        }
    }

    /// A number in `range` of a random order of magnitude: small numbers come up as often as large ones.
    pub fn magnitude(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        let bits = self.within(0..=(64 - (high - low).leading_zeros()).into());
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        low + (self.next() & mask).min(high - low)
    }

    pub fn size(&mut self, range: RangeInclusive<usize>) -> usize {
        self.within(*range.start() as u64..=*range.end() as u64) as usize
    }

    /// A duration of up to `max`, to the microsecond.
    pub fn duration(&mut self, max: Duration) -> Duration {
        Duration::from_micros(self.within(0..=max.as_micros() as u64))
    }

    /// `true` with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        // 53 bits are what a double holds.
        probability > 0.0 && ((self.next() >> 11) as f64) < probability * (1_u64 << 53) as f64
    }

    pub fn choose<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.size(0..=choices.len() - 1)]
    }
}

impl Random for Rng {
    fn fill(&mut self, bytes: &mut [u8]) {
        for bytes in bytes.chunks_mut(8) {
            bytes.copy_from_slice(&self.next().to_le_bytes()[..bytes.len()]);
        }
    }
}

/// The finalizer of SplitMix64: a good hash of a number.
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
