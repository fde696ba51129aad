//! Growth of the window by a little more than half in a round trip, until the queue or the rate says that the path is full.

use core::time::Duration;

use super::{fast::QUEUE_TIME, round::Round};

/// Rounds without growth of the rate that end it.
const FULL_ROUNDS: u8 = 3;
/// So many losses in a round may be chance.
const CHANCE: u64 = 8;

/// A session that has just begun.
#[derive(Debug, Default)]
pub(super) struct Startup {
    /// The rate that was reached, in bytes a second, and the rounds since that have not raised it by a quarter.
    rate: u64,
    rounds: u8,
    /// Segments.
    acked: u64,
    lost: u64,
}

impl Startup {
    /// A round ends in which the path had `rate`. Returns whether the path is full.
    pub(super) fn end_round(&mut self, round: &Round, rate: u64) -> bool {
        if rate >= self.rate.saturating_add(self.rate / 4) {
            (self.rate, self.rounds) = (rate, 0);
        } else {
            self.rounds += 1;
        }
        self.acked += round.acked;
        self.lost += round.lost;
        let is_lossy = round.lost > CHANCE && round.lost * 3 > round.acked + round.lost;
        // Often it was a packet with the ACKs of a whole window that was lost.
        let is_silence = round.timeouts * 4 >= round.lost * 3;
        self.rounds >= FULL_ROUNDS || is_lossy && !is_silence || round.marked
    }

    /// What the window grows by when so many bytes are confirmed.
    pub(super) const fn growth(acked: u64) -> u64 {
        acked.saturating_mul(9) / 16
    }

    /// Whether `rtt`, the shortest of the last round trips, is that of a queue. It is looked at all the time: at the beginning of the next
    /// round, the queue would be twice as long.
    pub(super) fn is_queue(base: Duration, rtt: Duration) -> bool {
        rtt >= base + (base / 8).max(QUEUE_TIME)
    }

    /// The path has delivered at `rate` at least.
    pub(super) fn on_rate(&mut self, rate: u64) {
        self.rate = self.rate.max(rate);
    }

    /// The highest rate.
    pub(super) const fn rate(&self) -> u64 {
        self.rate
    }

    /// So many were not lost after all.
    pub(super) const fn forgive(&mut self, segments: u64) {
        self.lost = self.lost.saturating_sub(segments);
    }

    /// Whether so much was lost that the queue was probably full.
    pub(super) const fn has_losses(&self) -> bool {
        self.lost * 64 > self.acked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::time::Instant;

    fn round(acked: u64, lost: u64, marked: bool) -> Round {
        let mut round = Round::new(Instant::ZERO);
        (round.acked, round.lost, round.marked) = (acked, lost, marked);
        round
    }

    #[test]
    fn it_ends_three_rounds_behind_the_last_that_raised_the_rate_by_a_quarter() {
        let mut startup = Startup::default();
        let ends = [100, 124, 125, 150, 155, 150].map(|rate| startup.end_round(&round(100, 0, false), rate));
        assert_eq!(ends, [false, false, false, false, false, true]);
        assert_eq!(startup.rate(), 125);
    }

    #[test]
    fn it_ends_with_a_third_lost_or_a_mark() {
        for (acked, lost, marked, ends) in
            [(66, 33, false, false), (66, 34, false, true), (8, 8, false, false), (100, 0, true, true)]
        {
            let mut startup = Startup::default();
            assert_eq!(startup.end_round(&round(acked, lost, marked), 100), ends, "{acked} {lost}");
        }
    }

    #[test]
    fn a_window_without_acks_does_not_end_it() {
        for (timeouts, ends) in [(30, true), (36, false), (48, false)] {
            let mut round = round(50, 48, false);
            round.timeouts = timeouts;
            assert_eq!(Startup::default().end_round(&round, 100), ends, "{timeouts}");
        }
    }

    #[test]
    fn losses_that_were_none_are_forgotten() {
        let mut startup = Startup::default();
        startup.end_round(&round(100, 2, false), 100);
        assert!(startup.has_losses());
        startup.forgive(1);
        assert!(!startup.has_losses());
    }
}
