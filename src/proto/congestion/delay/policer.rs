//! Losses while nothing waits: those of somebody who drops what exceeds a rate, or those of the path itself.
//!
//! What comes through is the rate that is let pass. With a window that is smaller than that, a policer drops nothing, and a path
//! that loses packets at random goes on to do so. So the rounds behind the cut tell which it is.

use super::round::Round;

/// Rounds behind the cut in which losses are still those of the window before, and the first behind those that are measured.
const OLD: u32 = 2;
const MEASURED: u32 = 7;
/// So many rounds the rate is remembered.
const MEMORY: u32 = 100;

/// The limit that a policer seems to have.
#[derive(Debug)]
pub(super) struct Policer {
    /// Bytes that are under way at the rate that passed.
    fits: u64,
    /// Rounds since.
    rounds: u32,
    /// Segments that were sent with the smaller window, and those of them that were lost.
    sent: u64,
    lost: u64,
}

impl Policer {
    pub(super) const fn new(fits: u64) -> Self {
        Self { fits, rounds: 0, sent: 0, lost: 0 }
    }

    /// The window that makes no losses.
    pub(super) const fn window(&self) -> u64 {
        self.fits - self.fits / 16
    }

    /// Whether a window is close to what passes, or beyond it.
    pub(super) const fn is_near(&self, cwnd: u64) -> bool {
        cwnd >= self.fits - self.fits / 8
    }

    /// A round ends. Returns whether the path itself loses as much, once that is known.
    pub(super) fn end_round(&mut self, round: &Round) -> Option<bool> {
        self.rounds += 1;
        if (OLD + 1..MEASURED).contains(&self.rounds) {
            self.sent += round.acked + round.lost;
            self.lost += round.lost;
        }
        (self.rounds == MEASURED).then_some(self.lost * 256 > self.sent)
    }

    pub(super) const fn is_over(&self) -> bool {
        self.rounds >= MEMORY
    }
}

#[cfg(test)]
mod tests;
