//! Which counters were seen: a bitmap of the last ones (RFC 6479).
//!
//! The words are a ring. A counter that is higher than all before it frees the words between, whole ones, so nothing is ever shifted.

use alloc::boxed::Box;

/// Words of 64 counters. 2,048 packets are more than any receiver reads in one go, and 256 bytes.
const WORDS: usize = 32;

/// Remembers the counters of the last [`MIN_LEN`](Self::MIN_LEN) packets or more.
pub(super) struct CounterWindow<const N: usize = WORDS> {
    /// The highest counter seen and one; 0 for none.
    next: u64,
    words: Box<[u64; N]>,
}

/// Why a counter is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It was seen.
    Seen,
    /// It is so far behind that it is not known whether it was.
    TooOld,
}

impl<const N: usize> CounterWindow<N> {
    /// Counters this far behind the highest are still told apart.
    #[cfg(test)]
    pub(super) const MIN_LEN: u64 = 64 * (N as u64 - 1);

    pub(super) fn new() -> Self {
        Self { next: 0, words: Box::new([0; N]) }
    }

    /// The highest counter seen and one; 0 for none.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Whether a packet with this counter may be new.
    pub(super) fn check(&self, counter: u64) -> Result<(), Refused> {
        if counter >= self.next {
            return Ok(());
        }
        if (self.next - 1) / 64 - counter / 64 >= N as u64 {
            return Err(Refused::TooOld);
        }
        let (word, bit) = place::<N>(counter);
        if self.words[word] & bit == 0 { Ok(()) } else { Err(Refused::Seen) }
    }

    /// Remembers a counter that [`check`](Self::check) has let pass.
    pub(super) fn insert(&mut self, counter: u64) {
        if counter >= self.next {
            // Of an empty window the words are free.
            let last = self.next.saturating_sub(1) / 64;
            for step in 1..=(counter / 64 - last).min(N as u64) {
                self.words[((last + step) % N as u64) as usize] = 0;
            }
            self.next = counter.saturating_add(1);
        }
        let (word, bit) = place::<N>(counter);
        self.words[word] |= bit;
    }
}

/// The word and the bit of a counter.
const fn place<const N: usize>(counter: u64) -> (usize, u64) {
    ((counter / 64 % N as u64) as usize, 1 << (counter % 64))
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    /// All counters that were seen, and the rule of RFC 6479 for what is too old.
    #[derive(Default)]
    struct Model(BTreeSet<u64>);

    impl Model {
        fn check(&self, counter: u64, words: u64) -> Result<(), Refused> {
            let highest = self.0.last().copied();
            if highest.is_some_and(|highest| highest / 64 >= counter / 64 + words) {
                Err(Refused::TooOld)
            } else if self.0.contains(&counter) {
                Err(Refused::Seen)
            } else {
                Ok(())
            }
        }
    }

    fn same_as_the_model<const N: usize>(seed: u64) {
        let mut window = CounterWindow::<N>::new();
        let mut model = Model::default();
        let mut random = seed;
        let mut highest = 0_u64;
        for step in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let draw = random >> 33;
            let counter = match draw % 16 {
                // Mostly the next one, or one near; sometimes a leap as long as the window, or longer.
                0..=7 => highest + 1,
                8..=11 => highest.saturating_sub(draw / 16 % 80),
                12 | 13 => highest.saturating_sub(draw / 16 % (80 * N as u64)),
                14 => highest + draw / 16 % 70,
                _ => highest + draw / 16 % (130 * N as u64),
            };
            let expected = model.check(counter, N as u64);
            assert_eq!(window.check(counter), expected, "counter {counter} at step {step}");
            if expected.is_ok() {
                window.insert(counter);
                model.0.insert(counter);
                highest = highest.max(counter);
                assert_eq!(window.check(counter), Err(Refused::Seen));
            }
            assert_eq!(window.next(), model.0.last().map_or(0, |highest| highest + 1));
            let recent = highest.saturating_sub(CounterWindow::<N>::MIN_LEN);
            if model.0.len() % 97 == 0 {
                for counter in recent..=highest {
                    assert_eq!(window.check(counter).is_ok(), !model.0.contains(&counter), "{counter}");
                }
            }
        }
    }

    #[test]
    fn it_is_the_same_as_a_set_of_all_counters() {
        for seed in 0..4 {
            same_as_the_model::<1>(seed);
            same_as_the_model::<2>(seed);
            same_as_the_model::<5>(seed);
            same_as_the_model::<WORDS>(seed);
        }
    }

    #[test]
    fn the_last_counters_of_all_are_told_apart() {
        let mut window = CounterWindow::<WORDS>::new();
        for counter in [0, u64::MAX - 3_000, u64::MAX - 1] {
            assert_eq!(window.check(counter), Ok(()));
            window.insert(counter);
            assert_eq!(window.check(counter), Err(Refused::Seen));
        }
        assert_eq!(window.check(u64::MAX - 3_000), Err(Refused::TooOld));
        assert_eq!(window.check(u64::MAX - 2), Ok(()));
    }
}
