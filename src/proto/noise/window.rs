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
    /// `None`: it is not known any more which of those before `next` were seen.
    words: Option<Box<[u64; N]>>,
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
        Self { next: 0, words: None }
    }

    /// Gives back the memory. Nothing below the highest counter is taken from here on.
    pub(super) fn park(&mut self) {
        self.words = None;
    }

    /// The words, which are made where they are not there: with all counters before `next` seen.
    fn words(&mut self) -> &mut [u64; N] {
        self.words.get_or_insert_with(|| {
            let mut words = Box::new([u64::MAX; N]);
            let (word, bit) = place::<N>(self.next);
            // Free are those that share a word with the last one. The words behind it are freed as they are reached: until then they are
            // those of the oldest counters.
            if self.next == 0 || bit > 1 {
                words[word] = bit - 1;
            }
            words
        })
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
        let words = self.words.as_ref().ok_or(Refused::TooOld)?;
        if words[word] & bit == 0 { Ok(()) } else { Err(Refused::Seen) }
    }

    /// Remembers a counter that [`check`](Self::check) has let pass.
    pub(super) fn insert(&mut self, counter: u64) {
        let next = self.next;
        let words = self.words();
        if counter >= next {
            // The word of the next counter is free, as far as that is its first.
            let last = next.saturating_sub(1) / 64;
            for step in 1..=(counter / 64 - last).min(N as u64) {
                words[((last + step) % N as u64) as usize] = 0;
            }
            self.next = counter.saturating_add(1);
        }
        let (word, bit) = place::<N>(counter);
        self.words()[word] |= bit;
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
    struct Model {
        seen: BTreeSet<u64>,
        /// All before it count as seen.
        floor: u64,
        is_parked: bool,
    }

    impl Model {
        fn check(&self, counter: u64, words: u64) -> Result<(), Refused> {
            let highest = self.seen.last().copied();
            let is_forgotten = counter < self.floor && self.is_parked;
            if is_forgotten || highest.is_some_and(|highest| highest / 64 >= counter / 64 + words) {
                Err(Refused::TooOld)
            } else if self.has(counter) {
                Err(Refused::Seen)
            } else {
                Ok(())
            }
        }

        fn has(&self, counter: u64) -> bool {
            counter < self.floor || self.seen.contains(&counter)
        }
    }

    fn same_as_the_model<const N: usize>(seed: u64, parks_every: Option<usize>) {
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
                model.seen.insert(counter);
                model.is_parked = false;
                highest = highest.max(counter);
                assert_eq!(window.check(counter), Err(Refused::Seen));
            }
            assert_eq!(window.next(), model.seen.last().map_or(0, |highest| highest + 1));
            let recent = highest.saturating_sub(CounterWindow::<N>::MIN_LEN);
            if model.seen.len() % 97 == 0 {
                for counter in recent..=highest {
                    assert_eq!(window.check(counter).is_ok(), !model.has(counter), "{counter}");
                }
            }
            if parks_every.is_some_and(|steps| step % steps == 0) {
                window.park();
                (model.floor, model.is_parked) = (window.next(), true);
            }
        }
    }

    #[test]
    fn it_is_the_same_as_a_set_of_all_counters() {
        for seed in 0..4 {
            for parks_every in [None, Some(1), Some(7), Some(500)] {
                same_as_the_model::<1>(seed, parks_every);
                same_as_the_model::<2>(seed, parks_every);
                same_as_the_model::<5>(seed, parks_every);
                same_as_the_model::<WORDS>(seed, parks_every);
            }
        }
    }

    /// The next counter may be the first of a word, whose place is that of the oldest ones.
    #[test]
    fn a_parked_window_takes_nothing_from_before_wherever_it_stops() {
        for last in 0..200 {
            for ahead in [1, 2, 40, 64, 65, 200] {
                let mut window = CounterWindow::<2>::new();
                (0..=last).for_each(|counter| window.insert(counter));
                window.park();
                assert!((0..=last).all(|counter| window.check(counter) == Err(Refused::TooOld)));
                let next = last + ahead;
                window.insert(next);
                assert!((0..=last).all(|counter| window.check(counter).is_err()), "{last}, {next}");
                let between = (last + 1).max(next.saturating_sub(63))..next;
                assert!(between.clone().all(|counter| window.check(counter).is_ok()), "{last}, {between:?}");
            }
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
