//! A queue that is longer for a round, again and again: BBR looks for more once in eight round trips, and drains what that has made.
//!
//! Sessions of our kind make it longer for many rounds, when one begins, and shorter for a few, when they drain.

use core::time::Duration;

use super::SETTLING;
use crate::proto::time::Micros;

/// So many spikes in so many rounds are those of somebody who looks for more.
const SPIKES: usize = 3;
const ROUNDS: u32 = 40;
/// A spike is longer than the rounds before and behind it by this and a twelfth of the path; or the round behind it is shorter by as much than it
/// and, less this, the next.
const MOVE: Duration = Duration::from_millis(2);

/// The last rounds, and the last spikes.
#[derive(Debug, Default)]
pub(super) struct Spikes {
    /// How long the queue was, in the last round at the end. So many of them are known.
    delays: [Micros; 4],
    known: usize,
    /// Rounds that are still to be left out.
    left_out: u8,
    round: u32,
    /// The rounds of the last spikes, the last at the end.
    found: [Option<u32>; SPIKES],
}

impl Spikes {
    /// What comes next does not follow what was. It is the session's own queue at first, as its window leaves at once.
    pub(super) const fn pause(&mut self) {
        (self.known, self.left_out) = (0, SETTLING);
    }

    /// A round ends in which the queue was so long. Returns whether somebody looks for more.
    pub(super) fn end_round(&mut self, base: Duration, delay: Duration) -> bool {
        self.round = self.round.wrapping_add(1);
        if self.left_out > 0 {
            self.left_out -= 1;
            return false;
        }
        self.delays.rotate_left(1);
        self.delays[self.delays.len() - 1] = delay.into();
        self.known = (self.known + 1).min(self.delays.len());
        if self.known == self.delays.len() && self.is_spike(base) {
            self.found.rotate_left(1);
            self.found[SPIKES - 1] = Some(self.round);
        }
        self.found[0].is_some_and(|first| self.round.wrapping_sub(first) <= ROUNDS)
    }

    /// Whether the second of the last rounds is one.
    fn is_spike(&self, base: Duration) -> bool {
        let [before, peak, behind, next] = self.delays.map(|delay| delay.get());
        let far = MOVE + base / 12;
        peak >= before.max(behind) + far || peak.min(next + MOVE) >= behind + far
    }
}

#[cfg(test)]
mod tests;
