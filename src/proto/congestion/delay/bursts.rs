//! Round trips that rise and fall again and again: somebody on the path holds packets, and lets all of them go at once.
//!
//! Wi-Fi does that, and so does a peer that sends its ACKs when a timer fires. The first of the packets that it holds wait longest, so that
//! round trips fall within a burst by as much as they rose before it. A queue rises and falls, too, but not so often: that takes somebody
//! who sends much, and then nothing for a while.

use core::time::Duration;

use crate::proto::time::{Instant, Micros};

/// Less of a rise or a fall is jitter.
const JITTER: Duration = Duration::from_millis(3);
/// So long falls are remembered: the weight of each becomes smaller by a part that is as large as what of this has passed.
const MEMORY: Duration = Duration::from_millis(200);
/// So many are those of bursts, until there are only so many left. In [`PARTS`].
const MANY: u64 = 3 * PARTS;
const FEW: u64 = PARTS;
const PARTS: u64 = 256;
/// Rounds are at least as long, to have several bursts in each.
const LEAST_ROUND: Duration = Duration::from_millis(30);

/// The last rises and falls.
#[derive(Debug, Default)]
pub(super) struct Bursts {
    falls: bool,
    /// The longest of the last rise, and the shortest of the fall behind it.
    top: Micros,
    bottom: Micros,
    /// How many there were, with their weights, as of the end of the last round.
    level: u64,
    updated_at: Instant,
    /// How far round trips fall.
    height: Micros,
    is_found: bool,
}

impl Bursts {
    /// A round trip whose ACK waited for no other segment.
    pub(super) fn add(&mut self, rtt: Duration) {
        let (top, bottom) = (self.top.get(), self.bottom.get());
        if !self.falls {
            self.top = top.max(rtt).into();
            if rtt + JITTER < top {
                (self.falls, self.bottom) = (true, rtt.into());
            }
        } else if rtt <= bottom + JITTER {
            self.bottom = bottom.min(rtt).into();
        } else {
            (self.falls, self.top) = (false, rtt.into());
            self.on_fall(top - bottom);
        }
    }

    fn on_fall(&mut self, height: Duration) {
        let before = if self.level == 0 { height } else { self.height.get() };
        self.height = ((7 * before + height) / 8).into();
        self.level += PARTS;
    }

    /// A round ends.
    pub(super) fn end_round(&mut self, now: Instant) {
        let passed = (now - self.updated_at).min(MEMORY);
        self.level -= (u128::from(self.level) * passed.as_micros() / MEMORY.as_micros()) as u64;
        self.updated_at = now;
        self.is_found = self.level >= if self.is_found { FEW } else { MANY };
    }

    /// Whether there are bursts, so that of a round only the shortest round trip counts.
    pub(super) const fn are_found(&self) -> bool {
        self.is_found
    }

    /// How far round trips fall; zero without bursts.
    pub(super) fn height(&self) -> Duration {
        if self.is_found { self.height.get() } else { Duration::ZERO }
    }

    /// `rtt`, the shortest of several, without what even that waits.
    pub(super) fn correct(&self, rtt: Duration) -> Duration {
        rtt.saturating_sub(self.height() / 2)
    }

    /// How long a round is at least.
    pub(super) const fn least_round(&self) -> Duration {
        if self.is_found { LEAST_ROUND } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests;
