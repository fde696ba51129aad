//! Growth of the window by a little more than half in a round trip, until the queue or the rate says that the path is full.

use core::time::Duration;

use super::{
    fast::{QUEUE_TIME, bytes_in},
    round::Round,
};

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
    /// round, the queue would be twice as long. Where the path is slow, a window of a few segments that leaves at once makes a queue of its
    /// own, though the path is far from full: [`is_window_of_path`](Self::is_window_of_path) tells.
    pub(super) fn is_queue(base: Duration, rtt: Duration) -> bool {
        rtt >= base + (base / 8).max(QUEUE_TIME)
    }

    /// Whether a window of `cwnd` bytes is about what the path holds, which has delivered at `rate` since the round began, `elapsed` ago.
    pub(super) fn is_window_of_path(cwnd: u64, base: Duration, rate: u64, elapsed: Duration) -> bool {
        elapsed >= base / 8 && cwnd >= bytes_in(rate, base) / 8 * 5
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
mod tests;
