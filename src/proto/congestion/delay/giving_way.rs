//! Others who take more of the link second by second, and leave the queue short: CUBIC that lost early, and grows back.
//!
//! Drains find that queue empty, as its window is less than what the path holds. A session of our kind that begins takes its part within a second,
//! and a drain of its own tells of it. So who has less second by second behind a queue that grows, and hears of nobody that begins, gives way to others.

use core::time::Duration;

use crate::proto::time::Instant;

/// From one look to the next: so long, and so many round trips.
const EVERY: Duration = Duration::from_millis(600);
const ROUNDS: u32 = 10;
/// Rounds behind a drain in which the rate is still that of the drain.
const SETTLING: u8 = 6;
/// So many looks in a row see a rate that is less by this part than in the look before.
const FALLS: u8 = 4;
const FALL: u64 = 32;
/// The queue has grown by this and by half meanwhile, and the rate has lost a fifth.
const MOVE: Duration = Duration::from_millis(2);

/// What the last looks have seen.
#[derive(Debug, Clone, Copy)]
struct Falling {
    first_rate: u64,
    first_delay: Duration,
    rate: u64,
    falls: u8,
}

/// Whether the session gives way.
#[derive(Debug, Default)]
pub(super) struct GivingWay {
    next: Option<Instant>,
    /// Rounds that are still to be left out.
    left_out: u8,
    falling: Option<Falling>,
    /// It was found once, and there was nobody.
    was_wrong: bool,
}

impl GivingWay {
    /// What comes next does not follow what was.
    pub(super) const fn begin_anew(&mut self) {
        (self.next, self.left_out, self.falling) = (None, 0, None);
    }

    /// The session competed, and the first drain found the queue empty: sessions of our kind had uneven parts, and it had more than its own.
    pub(super) const fn on_mistake(&mut self) {
        self.was_wrong = true;
    }

    /// The session drains.
    pub(super) const fn pause(&mut self) {
        self.left_out = SETTLING;
    }

    /// The rate that the session had before it became less from look to look; 0 if it did not.
    pub(super) fn first_rate(&self) -> u64 {
        // Once may be the link's doing.
        self.falling.filter(|falling| falling.falls > 1).map_or(0, |falling| falling.first_rate)
    }

    /// A round ends. Returns whether the session gives way to others.
    pub(super) fn end_round(&mut self, now: Instant, base: Duration, rate: u64, delay: Duration) -> bool {
        if self.left_out > 0 {
            self.left_out -= 1;
            return false;
        }
        if self.next.is_some_and(|next| now < next) {
            return false;
        }
        self.next = Some(now + EVERY.max(ROUNDS * base));
        let falling = self.falling.filter(|last| rate <= last.rate - last.rate / FALL);
        let falling =
            falling.map_or(Falling { first_rate: rate, first_delay: delay, rate, falls: 0 }, |last| {
                Falling { rate, falls: last.falls.saturating_add(1), ..last }
            });
        self.falling = Some(falling);
        let Falling { first_rate, first_delay, falls, .. } = falling;
        let has_fallen = falls >= FALLS && rate <= first_rate - first_rate / 5;
        has_fallen && delay >= first_delay + first_delay / 2 + MOVE && !self.was_wrong
    }
}

#[cfg(test)]
mod tests;
