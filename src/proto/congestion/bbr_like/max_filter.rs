//! The maximum of the last rounds, as BBR's `MaxBwFilter` and `ExtraACKedFilter`.

/// Rounds that a maximum is remembered for.
pub(super) const ROUNDS: usize = 10;

/// The largest value of each of the last [`ROUNDS`] rounds.
#[derive(Debug, Default)]
pub(super) struct MaxFilter {
    rounds: [u64; ROUNDS],
    current: usize,
}

impl MaxFilter {
    /// The maximum.
    pub(super) fn get(&self) -> u64 {
        self.rounds.into_iter().max().unwrap_or(0)
    }

    /// Takes a value of the current round.
    pub(super) fn update(&mut self, value: u64) {
        let largest = &mut self.rounds[self.current];
        *largest = value.max(*largest);
    }

    /// A round ends: that of [`ROUNDS`] rounds ago is forgotten.
    pub(super) const fn end_round(&mut self) {
        self.current = (self.current + 1) % ROUNDS;
        self.rounds[self.current] = 0;
    }

    /// Forgets everything.
    pub(super) const fn clear(&mut self) {
        self.rounds = [0; ROUNDS];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maximum_is_forgotten_after_its_rounds() {
        let mut filter = MaxFilter::default();
        filter.update(5);
        filter.update(3);
        for round in 1..ROUNDS {
            filter.end_round();
            filter.update(1);
            assert_eq!(filter.get(), 5, "{round}");
        }
        filter.end_round();
        assert_eq!(filter.get(), 1);
        filter.clear();
        assert_eq!(filter.get(), 0);
    }
}
