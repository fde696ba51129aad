//! How much may be resent in a round trip because its RTO passed: a window's worth.
//!
//! Without this limit an outage would end in a burst of all that is in flight.

use core::time::Duration;

use crate::proto::time::Instant;

/// What has been resent in the current round trip.
#[derive(Debug)]
pub(super) struct TimeoutBudget {
    began: Instant,
    spent: u64,
}

impl TimeoutBudget {
    pub(super) const fn new(now: Instant) -> Self {
        Self { began: now, spent: 0 }
    }

    /// Until when nothing more may be resent, if `budget` bytes in each `round` are spent.
    pub(super) fn held_until(&self, budget: u64, round: Duration) -> Option<Instant> {
        (self.spent >= budget).then(|| self.began + round)
    }

    /// `bytes` are resent.
    pub(super) fn spend(&mut self, now: Instant, bytes: u64, round: Duration) {
        // A clock that has stepped back begins a round, too, or it would last for as long as the step.
        if now < self.began || now - self.began >= round {
            *self = Self::new(now);
        }
        self.spent += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_budget_holds_resends_back_until_the_round_ends() {
        let (now, round) = (Instant::from_millis(5), Duration::from_millis(100));
        let mut budget = TimeoutBudget::new(Instant::ZERO);
        budget.spend(now, 600, round);
        assert_eq!(budget.held_until(1_000, round), None);
        budget.spend(now, 600, round);
        assert_eq!(budget.held_until(1_000, round), Some(Instant::ZERO + round));
        budget.spend(now + round, 600, round);
        assert_eq!(budget.held_until(1_000, round), None);
    }

    #[test]
    fn a_clock_that_steps_back_begins_a_round() {
        let (now, round) = (Instant::from_millis(5), Duration::from_millis(100));
        let mut budget = TimeoutBudget::new(now + Duration::from_secs(30));
        budget.spend(now, 1_000, round);
        assert_eq!(budget.held_until(1_000, round), Some(now + round));
    }
}
