//! Whether others, of whom a drain has seen nothing, are gone.
//!
//! CUBIC leaves the queue empty behind a loss, and takes seconds to fill it again. BBR drains it now and then. So the session holds its window
//! for forty rounds. If the queue grows meanwhile, or comes and goes, they are there still.

use core::time::Duration;

use super::fast::QUEUE_TIME;
use crate::proto::time::Micros;

/// Rounds behind a drain in which windows open again.
const SETTLING: usize = 3;
/// Rounds before the first look at the queue, from each look to the next, and in all.
const FIRST_LOOK: usize = 12;
const LOOKS: usize = 4;
const ROUNDS: usize = 40;
/// Rounds without a queue before the window grows. Behind a drain it takes a round or two until there is one again.
const IDLE_ROUNDS: u8 = 6;
/// The queue has grown if it was longer than usual by this and a sixteenth of the path.
const MOVE: Duration = Duration::from_millis(2);

/// What is known behind a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Unknown,
    /// The others are there still.
    Still,
    Gone,
}

/// The window is held.
#[derive(Debug)]
pub(super) struct Probation {
    /// The window that the session had beside others.
    pub(super) cwnd_before: u64,
    rounds: usize,
    /// Rounds in a row without a queue.
    idle: u8,
    /// How long the queue was in each round behind [`SETTLING`].
    delays: [Micros; ROUNDS],
}

impl Probation {
    pub(super) fn new(cwnd_before: u64) -> Self {
        Self { cwnd_before, rounds: 0, idle: 0, delays: [Micros::default(); ROUNDS] }
    }

    /// Whether the link was idle for a while: what nobody takes is the session's.
    pub(super) const fn is_idle(&self) -> bool {
        self.idle >= IDLE_ROUNDS
    }

    /// A round ends in which the queue was so long.
    pub(super) fn end_round(&mut self, base: Duration, delay: Duration) -> Verdict {
        self.rounds += 1;
        self.idle = if has_queue(base, delay) { 0 } else { self.idle.saturating_add(1) };
        let Some(count) = self.rounds.checked_sub(SETTLING).filter(|count| *count > 0) else {
            return Verdict::Unknown;
        };
        self.delays[count - 1] = delay.into();
        if count < FIRST_LOOK || !count.is_multiple_of(LOOKS) {
            Verdict::Unknown
        } else if has_grown(base, &self.delays[..count]) {
            Verdict::Still
        } else if count < ROUNDS {
            Verdict::Unknown
        } else {
            Verdict::Gone
        }
    }
}

/// Whether there is a queue, so that the link is full.
fn has_queue(base: Duration, delay: Duration) -> bool {
    delay >= QUEUE_TIME.max(base / 16)
}

/// Whether a queue that was so long, one round after the other, was longer than usual. Others of our kind make it shorter for a few
/// rounds when they drain, so that what is usual is what two thirds of the rounds have at least.
fn has_grown(base: Duration, delays: &[Micros]) -> bool {
    let mut sorted = [Micros::default(); ROUNDS];
    let sorted = &mut sorted[..delays.len()];
    sorted.copy_from_slice(delays);
    sorted.sort_unstable();
    let (usual, longest) = (sorted[delays.len() / 3].get(), sorted[delays.len() - 1].get());
    longest - usual >= MOVE + base / 16
}

#[cfg(test)]
mod tests;
