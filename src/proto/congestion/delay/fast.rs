//! The window among sessions of this kind: FAST's, with a smaller part of the queue for each after it was full.

use core::time::Duration;

use super::{policer::Policer, round::Round};

/// What each session means to have in the queue: so many full segments, and what it sends in so much time, at most the other number
/// of segments.
const QUEUE_SEGMENTS: u64 = 5;
pub(super) const QUEUE_TIME: Duration = Duration::from_millis(2);
const MAX_QUEUE_TIME_SEGMENTS: u64 = 256;
/// [`Fast::queue_segments`] counts sixteenths of a segment, and is one more each round. Slower, sessions that share a queue overflow it
/// more seldom, and have uneven parts of the link for longer, as not all of them see each overflow.
const PARTS: u64 = 16;
/// Rounds without a queue before steps double.
const PATIENCE: u32 = 3;
/// Rounds behind losses of a full queue before the window grows again, and before they are forgotten.
const CALM: u32 = 4;
const FORGOTTEN: u32 = 16;

/// What a round has shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    pub(super) cwnd: u64,
    /// The size of a full segment.
    pub(super) mtu: u64,
    /// Bytes a second that were confirmed in the last rounds.
    pub(super) rate: u64,
    /// What was under way at the rate of this round, without a queue, in bytes.
    pub(super) fits: u64,
    /// How long the queue was.
    pub(super) delay: Duration,
    /// There was one in the last seconds.
    pub(super) has_queue: bool,
    /// Packets had marks of ECN.
    pub(super) marked: bool,
    /// More was lost than the path's own.
    pub(super) overflows: bool,
    /// The window was what limited the sender.
    pub(super) is_limit: bool,
}

/// The state of the window's steps.
#[derive(Debug)]
pub(super) struct Fast {
    /// What the session means to have in the queue, in parts of a segment: see [`PARTS`].
    queue_segments: u64,
    /// Rounds without a queue.
    quick: u32,
    /// Rounds since the queue was full.
    calm: u32,
    /// The window before the queue was full; 0 if that was long ago.
    uncut: u64,
    /// What it meant to have in the queue then.
    queue_segments_uncut: u64,
    policer: Option<Policer>,
}

impl Default for Fast {
    fn default() -> Self {
        Self {
            queue_segments: QUEUE_SEGMENTS * PARTS,
            quick: 0,
            calm: FORGOTTEN,
            uncut: 0,
            queue_segments_uncut: 0,
            policer: None,
        }
    }
}

impl Fast {
    /// Bytes that the session means to have in the queue.
    pub(super) fn target(&self, mtu: u64, rate: u64) -> u64 {
        let in_time = bytes_in(rate, QUEUE_TIME).min(MAX_QUEUE_TIME_SEGMENTS * mtu);
        self.queue_segments * mtu / PARTS + in_time
    }

    /// It was not a full queue that lost. Returns the window that was before, or `cwnd` if that is larger.
    pub(super) fn undo(&mut self, cwnd: u64) -> u64 {
        self.queue_segments = self.queue_segments.max(self.queue_segments_uncut);
        cwnd.max(self.uncut)
    }

    /// A round ends. Returns whether the path itself loses what was thought to be lost to a policer, once that is known.
    pub(super) fn end_round(&mut self, round: &Round) -> Option<bool> {
        let is_own = self.policer.as_mut()?.end_round(round);
        self.policer.take_if(|policer| is_own == Some(true) || policer.is_over());
        is_own
    }

    /// The queue was full: the session means to have less in it.
    fn on_full_queue(&mut self) {
        self.queue_segments = (self.queue_segments / 2).max(PARTS);
    }

    /// One step: the window of the next round.
    pub(super) fn step(&mut self, shown: &Shown) -> u64 {
        let &Shown { cwnd, mtu, rate, fits, delay, has_queue, marked, overflows, is_limit } = shown;
        let is_full = marked || overflows;
        let least = self.queue_segments == PARTS;
        if overflows {
            self.uncut = self.uncut.max(cwnd);
            self.queue_segments_uncut = self.queue_segments_uncut.max(self.queue_segments);
        } else if self.calm >= FORGOTTEN {
            (self.uncut, self.queue_segments_uncut) = (0, 0);
        }
        if is_full {
            self.on_full_queue();
        } else {
            self.queue_segments = (self.queue_segments + 1).min(QUEUE_SEGMENTS * PARTS);
        }
        let (queued, target) = (bytes_in(rate, delay), self.target(mtu, rate));
        let no_queue = queued < target / 2 && !is_full && self.calm >= CALM;
        self.quick = if no_queue { self.quick.saturating_add(1) } else { 0 };
        self.calm = if is_full { 0 } else { self.calm.saturating_add(1) };
        if overflows {
            let less = cwnd - cwnd / 4;
            if delay >= QUEUE_TIME || has_queue {
                return less;
            }
            let policer = self.policer.insert(Policer::new(fits));
            return less.max(policer.window().min(cwnd));
        }
        // The rate is known, and doubling steps would be far beyond it.
        if self.policer.as_ref().is_some_and(|policer| policer.is_near(cwnd)) {
            self.quick = 0;
        }
        if queued > target {
            let less = ((queued - target) / 2).min(cwnd / 3);
            return cwnd - if marked && least { less.max(cwnd / 8) } else { less };
        }
        if marked {
            return if least { cwnd - cwnd / 8 } else { cwnd };
        }
        // Only what the window holds back is a reason for a larger one.
        if !is_limit || self.calm < CALM {
            return cwnd;
        }
        let step = (target - queued) / 2;
        let doublings = self.quick.saturating_sub(PATIENCE).min(16);
        let more = if doublings > 0 { (step << doublings).min(cwnd / 2).max(step) } else { step };
        cwnd.saturating_add(more.min(cwnd / 2))
    }
}

/// What `rate` bytes a second are in `time`.
pub(super) fn bytes_in(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate).saturating_mul(time.as_micros()) / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX).min(MOST)
}

/// More than any window, and little enough to be added up.
const MOST: u64 = 1 << 48;

#[cfg(test)]
mod tests;
