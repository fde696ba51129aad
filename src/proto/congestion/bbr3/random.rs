//! The draft's `random_int_between()` and `random_float_between()`.

use core::time::Duration;

use crate::proto::time::Instant;

/// SplitMix64 (Steele, Lea and Flood, 2014). It need not be unpredictable.
#[derive(Debug)]
pub(super) struct SplitMix(u64);

impl SplitMix {
    pub(super) const fn new(now: Instant) -> Self {
        Self(now.as_micros())
    }

    /// The time of the call is mixed in: sessions that begin at the same time are not in step for long.
    const fn next(&mut self, now: Instant) -> u64 {
        self.0 = (self.0 ^ now.as_micros()).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0 or 1.
    pub(super) const fn bit(&mut self, now: Instant) -> u64 {
        self.next(now) >> 63
    }

    /// Less than a second.
    pub(super) const fn part_of_a_second(&mut self, now: Instant) -> Duration {
        Duration::from_micros(self.next(now) % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_and_the_same_for_the_same_times() {
        let mut random = SplitMix::new(Instant::from_millis(5));
        let mut again = SplitMix::new(Instant::from_millis(5));
        let (mut bits, mut sum) = (0, Duration::ZERO);
        for now in (0..1_000).map(Instant::from_millis) {
            let (bit, part) = (random.bit(now), random.part_of_a_second(now));
            assert_eq!((again.bit(now), again.part_of_a_second(now)), (bit, part));
            bits += bit;
            sum += part;
        }
        assert!((450..550).contains(&bits), "{bits}");
        assert!((470..530).contains(&(sum / 1_000).as_millis()), "{sum:?}");
    }
}
