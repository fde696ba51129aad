//! When the window is made small to see what the queue does, and what came of it.

use core::time::Duration;

use super::{SETTLING, is_empty, loss_level::MEASUREMENT};
use crate::proto::{
    congestion::{Acked, Lost},
    time::{Instant, Micros},
};

/// How long the queue may not have been seen empty: so long, and so many round trips, as a drain takes three of them.
const LEAST_INTERVAL: Duration = Duration::from_millis(2_500);
const INTERVAL_ROUNDS: u32 = 24;
/// How long a drain lasts, in rounds: until what was in flight before it is confirmed, and two rounds of its own; one round less where
/// round trips are still half as long again as the path, so that one more would not empty the queue, or where there is nothing to find.
const ROUNDS: u8 = 3;
const ROUNDS_OF_SHORT_DRAIN: u8 = 2;
/// Rounds of a drain that measures losses, at most.
const MOST_ROUNDS: u8 = 8;
/// Beside others, the interval doubles each time that they are found, so often.
const MOST_DOUBLINGS: u8 = 3;
/// Time from a drain to the next one for losses: so many round trips, within limits.
const LOSSES_ROUNDS: u32 = 20;
const LEAST_LOSSES_INTERVAL: Duration = Duration::from_millis(250);
const MOST_LOSSES_INTERVAL: Duration = Duration::from_millis(1_000);
/// So many drains in a row that were joined, and have found a queue that stays, are reason enough for one soon.
const MOST_FAILED_TO_JOIN: u8 = 2;
/// Round trips fall if they become shorter by this and by a sixteenth, within three rounds.
const FALL: Duration = Duration::from_millis(3);

/// Why a drain begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// The queue was not seen empty for [`Drains::interval`].
    Due,
    /// Somebody else drains.
    Joined,
    /// More was lost than the path's own.
    Losses,
}

/// One drain.
#[derive(Debug)]
pub(super) struct Drain {
    pub(super) reason: Reason,
    /// The window and the rate before it, and the shortest round trip then.
    pub(super) cwnd: u64,
    pub(super) rate: u64,
    pub(super) base: Duration,
    /// The window made a longer queue than is meant to be.
    pub(super) is_too_large: bool,
    /// Nothing was lost just before it.
    pub(super) was_lossless: bool,
    rounds: u8,
    /// Segments that were sent within it, and those of them that were lost.
    pub(super) sent: u64,
    pub(super) lost: u64,
}

impl Drain {
    pub(super) const fn new(reason: Reason, cwnd: u64, rate: u64, base: Duration) -> Self {
        Self {
            reason,
            cwnd,
            rate,
            base,
            is_too_large: false,
            was_lossless: false,
            rounds: 0,
            sent: 0,
            lost: 0,
        }
    }
}

/// The drain that is under way, and when the next one is due.
#[derive(Debug)]
pub(super) struct Drains {
    interval: Duration,
    due: Instant,
    began: Instant,
    /// When the drain before that began.
    began_before: Instant,
    /// When the session last joined a drain long before its own was due: somebody of this kind has just begun, or is not sure of the path.
    met_at: Option<Instant>,
    empty_at: Instant,
    current: Option<Drain>,
    /// How many in a row have found a queue that stays.
    failed: u8,
    /// The same of those that were joined: whoever drained may have been back too soon.
    failed_to_join: u8,
    /// How often in a row others were found to be there still.
    found: u8,
    /// How often in a row losses without a queue were not the path's own.
    policed: u8,
    /// Rounds in which the queue is still that of the window that leaves at once behind a drain.
    settling: u8,
    /// The last one has found the queue empty, and the path no shorter than it was thought to be.
    is_sure: bool,
    /// Standing round trips of the last rounds.
    before: [Micros; 3],
}

impl Drains {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            interval: LEAST_INTERVAL,
            due: now + LEAST_INTERVAL,
            began: now,
            began_before: now,
            met_at: None,
            empty_at: now,
            current: None,
            failed: 0,
            failed_to_join: 0,
            found: 0,
            policed: 0,
            settling: 0,
            is_sure: false,
            before: Default::default(),
        }
    }

    /// The shortest round trip is known.
    pub(super) fn on_base(&mut self, base: Duration) {
        self.interval = LEAST_INTERVAL.max(INTERVAL_ROUNDS * base);
    }

    pub(super) const fn is_draining(&self) -> bool {
        self.current.is_some()
    }

    /// Whether the shortest round trip is known, and the queue was seen empty.
    pub(super) const fn is_sure(&self) -> bool {
        self.is_sure
    }

    /// When the queue was seen empty last.
    pub(super) const fn empty_at(&self) -> Instant {
        self.empty_at
    }

    pub(super) fn on_empty_queue(&mut self, now: Instant) {
        self.empty_at = now;
        if self.is_sure {
            self.due = self.due.max(now + self.interval);
        }
    }

    /// There is reason to think that others are there.
    pub(super) fn hasten(&mut self, now: Instant) {
        self.due = self.due.min(now.max(self.began + self.interval / 5));
    }

    /// Startup is over.
    pub(super) fn begin_soon(&mut self, now: Instant, is_lossy: bool) {
        self.due = if is_lossy { now } else { now + self.interval / 4 };
    }

    /// Whether others of this kind have begun in the last seconds.
    pub(super) fn met_kind(&self, now: Instant) -> bool {
        self.met_at.is_some_and(|at| now - at < 2 * self.interval)
    }

    /// Whether a drain that begins now comes long before it is due: somebody else has a reason for it.
    pub(super) fn is_early(&self, now: Instant) -> bool {
        now + self.interval / 5 < self.due
    }

    /// Others are there, whatever drains find. A drain costs a part of what the session has.
    pub(super) fn begin_late(&mut self, now: Instant) {
        self.due = now + self.interval_beside_others();
    }

    /// Others are there, and do not give way.
    pub(super) fn begin_latest(&mut self, now: Instant) {
        self.found = MOST_DOUBLINGS;
        self.begin_late(now);
    }

    /// Others are there still.
    pub(super) const fn on_others(&mut self) {
        self.found = self.found.saturating_add(1);
    }

    /// They are gone.
    pub(super) const fn on_alone(&mut self) {
        self.found = 0;
    }

    fn interval_beside_others(&self) -> Duration {
        self.interval * (1 << self.found.min(MOST_DOUBLINGS))
    }

    /// All that share the queue lose when it overflows, if not all of them: their next drains are to come at the same time.
    pub(super) fn on_congestion(&mut self, now: Instant) {
        let later = (now + self.interval * 3 / 5).min(self.began + 3 * self.interval);
        self.due = self.due.max(later);
    }

    pub(super) fn may_ask_for_losses(&self, now: Instant, base: Duration) -> bool {
        let interval = (LOSSES_ROUNDS * base).clamp(LEAST_LOSSES_INTERVAL, MOST_LOSSES_INTERVAL);
        now - self.began >= interval * (1 << self.policed.min(MOST_DOUBLINGS))
    }

    /// Losses without a queue were the path's own, or else those of a policer: then it is asked more seldom.
    pub(super) const fn on_policer(&mut self, is_own: bool) {
        self.policed = if is_own { 0 } else { self.policed.saturating_add(1) };
    }

    /// So many were not lost after all.
    pub(super) fn forgive(&mut self, segments: u64) {
        if let Some(drain) = &mut self.current {
            drain.lost = drain.lost.saturating_sub(segments);
        }
    }

    /// Whether a drain begins now, behind a round whose standing round trip was `rtt`. Behind one that is not steady, the queue may be
    /// the session's own.
    pub(super) fn reason(
        &mut self,
        now: Instant,
        rtt: Duration,
        is_steady: bool,
        competes: bool,
    ) -> Option<Reason> {
        if !is_steady || self.settling > 0 {
            self.settling = self.settling.saturating_sub(1);
            self.before = Default::default();
            return (now >= self.due).then_some(Reason::Due);
        }
        let fall = FALL.max(rtt / 16);
        let falls = self.before.iter().any(|before| rtt + fall < before.get());
        self.before = [self.before[1], self.before[2], rtt.into()];
        let interval = if competes { self.interval_beside_others() } else { self.interval * 3 / 5 };
        if falls && now - self.began >= interval {
            return Some(Reason::Joined);
        }
        (now >= self.due).then_some(Reason::Due)
    }

    /// The window of a drain that begins now, in tenths of what the path holds. Who is not sure of the shortest round trip takes less:
    /// that path may be as much shorter.
    pub(super) const fn tenths(&self, reason: Reason, competes: bool) -> u64 {
        match reason {
            Reason::Due | Reason::Joined if self.is_sure || competes => 8,
            Reason::Due | Reason::Joined => 5,
            Reason::Losses => 4,
        }
    }

    pub(super) fn begin(&mut self, now: Instant, drain: Drain) {
        if drain.reason == Reason::Joined && self.is_early(now) {
            self.met_at = Some(now);
        }
        self.current = Some(drain);
        self.began_before = self.began;
        self.began = now;
    }

    pub(super) fn on_ack(&mut self, acked: &Acked) {
        if let Some(drain) = &mut self.current
            && acked.rate.sent_time >= self.began
        {
            drain.sent += u64::from(acked.segments);
        }
    }

    pub(super) fn on_lost(&mut self, lost: &Lost) {
        if let Some(drain) = &mut self.current
            && lost.sent_time >= self.began
        {
            drain.sent += 1;
            drain.lost += 1;
        }
    }

    /// A round ends. Returns the drain that ends with it.
    pub(super) fn end_round(
        &mut self,
        now: Instant,
        base: Duration,
        rtt: Duration,
        competes: bool,
    ) -> Option<Drain> {
        let drain = self.current.as_mut()?;
        drain.rounds += 1;
        let is_measured =
            drain.reason != Reason::Losses || drain.sent >= MEASUREMENT || drain.rounds >= MOST_ROUNDS;
        // There is nothing to find: no losses, no queue, and no path that is shorter.
        let is_idle =
            !competes && drain.was_lossless && drain.lost == 0 && base >= drain.base && is_empty(base, rtt);
        let is_short = rtt >= base + base / 2 || is_idle;
        let rounds = if is_short { ROUNDS_OF_SHORT_DRAIN } else { ROUNDS };
        if !is_measured || drain.rounds < rounds {
            return None;
        }
        let drain = self.current.take()?;
        self.settling = SETTLING;
        self.before = Default::default();
        if self.empty_at >= self.began_before {
            (self.failed, self.failed_to_join) = (0, 0);
        } else if drain.reason == Reason::Joined {
            self.failed_to_join = self.failed_to_join.saturating_add(1);
        } else if drain.reason == Reason::Due {
            self.failed = self.failed.saturating_add(1);
            if competes {
                self.on_others();
            }
        }
        self.is_sure = self.failed == 0 && base + base / 32 >= drain.base;
        self.due = now
            + match self.failed {
                _ if competes => self.interval_beside_others(),
                0 if !self.is_sure || self.failed_to_join >= MOST_FAILED_TO_JOIN => self.interval / 4,
                // It may have been alone: soon again, to be sure.
                1 => self.interval / 4,
                _ => self.interval,
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
