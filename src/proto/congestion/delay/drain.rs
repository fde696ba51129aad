//! When the window is made small to see what the queue does, and what came of it.

use core::time::Duration;

use crate::proto::{
    congestion::{Acked, Lost},
    time::{Instant, Micros},
};

/// How long the queue may not have been seen empty.
pub(super) const INTERVAL: Duration = Duration::from_millis(2_500);
/// How long a drain lasts, in rounds: until what was in flight before it is confirmed, and two rounds of its own. Beside others,
/// who fill what it leaves, it is shorter and comes half as often.
const ROUNDS: u8 = 3;
const ROUNDS_BESIDE_OTHERS: u8 = 2;
/// From so many drains in a row on that have found a queue that stays, it is taken to stay for long.
const LASTING: u8 = 4;
/// Time from a drain to the next one for losses, and to the next one that is joined.
const LOSSES_INTERVAL: Duration = Duration::from_millis(1_000);
const JOIN_INTERVAL: Duration = Duration::from_millis(1_500);
/// Round trips fall if they become shorter by this and by a sixteenth, within three rounds.
const FALL: Duration = Duration::from_millis(3);

/// Why a drain begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// The queue was not seen empty for [`INTERVAL`].
    Due,
    /// Somebody else drains.
    Joined,
    /// Segments were lost at this rate, in 1024ths.
    Losses(u64),
}

impl Reason {
    /// The window of the drain, in tenths of what the path holds.
    pub(super) const fn tenths(self) -> u64 {
        match self {
            Self::Due | Self::Joined => 8,
            Self::Losses(_) => 4,
        }
    }
}

/// One drain.
#[derive(Debug)]
pub(super) struct Drain {
    pub(super) reason: Reason,
    /// The window before it, and the shortest round trip then.
    pub(super) cwnd: u64,
    pub(super) base: Duration,
    rounds: u8,
    /// Segments that were sent within it.
    acked: u64,
    lost: u64,
}

impl Drain {
    pub(super) const fn new(reason: Reason, cwnd: u64, base: Duration) -> Self {
        Self { reason, cwnd, base, rounds: 0, acked: 0, lost: 0 }
    }

    /// Whether the loss rate within the drain was less than half of `rate`, in 1024ths.
    pub(super) const fn lost_less_than_half(&self, rate: u64) -> bool {
        self.lost * 1_024 * 2 < rate * (self.lost + self.acked)
    }
}

/// The drain that is under way, and when the next one is due.
#[derive(Debug)]
pub(super) struct Drains {
    due: Instant,
    began: Instant,
    empty_at: Instant,
    current: Option<Drain>,
    /// How many in a row have found a queue that stays.
    failed: u8,
    /// Standing round trips of the last rounds.
    before: [Micros; 3],
}

impl Drains {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            due: now + INTERVAL,
            began: now,
            empty_at: now,
            current: None,
            failed: 0,
            before: Default::default(),
        }
    }

    pub(super) const fn is_draining(&self) -> bool {
        self.current.is_some()
    }

    /// When the queue was seen empty last.
    pub(super) const fn empty_at(&self) -> Instant {
        self.empty_at
    }

    pub(super) fn on_empty_queue(&mut self, now: Instant) {
        self.empty_at = now;
        self.postpone(now);
    }

    pub(super) fn postpone(&mut self, now: Instant) {
        self.due = now + INTERVAL;
    }

    /// All that share the queue lose when it overflows, if not all of them: their next drains are to come at the same time.
    pub(super) fn on_congestion(&mut self, now: Instant) {
        let latest = self.began + 3 * INTERVAL;
        self.due = self.due.max(now + INTERVAL * 3 / 5).min(latest);
    }

    pub(super) fn may_ask_for_losses(&self, now: Instant) -> bool {
        now - self.began >= LOSSES_INTERVAL
    }

    /// Whether a drain begins now, behind a round whose standing round trip was `rtt`.
    pub(super) fn reason(&mut self, now: Instant, rtt: Duration) -> Option<Reason> {
        let fall = FALL.max(rtt / 16);
        let falls = self.before.iter().any(|before| rtt + fall < before.get());
        self.before = [self.before[1], self.before[2], rtt.into()];
        if falls && now - self.began >= JOIN_INTERVAL {
            return Some(Reason::Joined);
        }
        (now >= self.due).then_some(Reason::Due)
    }

    pub(super) fn begin(&mut self, now: Instant, drain: Drain) {
        self.current = Some(drain);
        self.began = now;
    }

    pub(super) fn on_ack(&mut self, acked: &Acked) {
        if let Some(drain) = &mut self.current
            && acked.rate.sent_time >= self.began
        {
            drain.acked += u64::from(acked.segments);
        }
    }

    pub(super) fn on_lost(&mut self, lost: &Lost) {
        if let Some(drain) = &mut self.current
            && lost.sent_time >= self.began
        {
            drain.lost += 1;
        }
    }

    /// A round ends. Returns the drain that ends with it.
    pub(super) fn end_round(&mut self, now: Instant) -> Option<Drain> {
        let drain = self.current.as_mut()?;
        drain.rounds += 1;
        if drain.rounds < if self.failed >= LASTING { ROUNDS_BESIDE_OTHERS } else { ROUNDS } {
            return None;
        }
        let drain = self.current.take()?;
        self.before = Default::default();
        if self.found_empty_queue() {
            self.failed = 0;
        } else if drain.reason == Reason::Due {
            self.failed = self.failed.saturating_add(1);
        }
        self.due = now
            + match self.failed {
                // It may have been alone: soon again, to be sure.
                1 => INTERVAL / 4,
                LASTING.. => 2 * INTERVAL,
                _ => INTERVAL,
            };
        Some(drain)
    }

    /// Whether the queue was empty since the last drain began.
    pub(super) fn found_empty_queue(&self) -> bool {
        self.empty_at >= self.began
    }

    pub(super) const fn failed_twice(&self) -> bool {
        self.failed >= 2
    }
}
