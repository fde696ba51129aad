//! Beside others: CUBIC, and what is done where they do not give way.
//!
//! All that answer losses share a queue with CUBIC: behind a loss each of them leaves room, and it takes seconds until the queue is full again.
//! BBR takes at once what others leave, so that who goes on leaving has an eighth of the link in the end. Where one reduction follows the other for
//! a few round trips, the session *stands*: its window is what it was when it came, whatever is lost. BBR limits itself to twice what its rate
//! fills of the path, and settles beside that in two or three seconds: beside a window of what the path holds, both have half.
//!
//! What is lost meanwhile proves that it was right to stand. Who takes part in a queue of many that answer losses soon loses next to nothing.

use core::time::Duration;

use super::{
    super::{Acked, Controller, Lost, Marked, MinRtt, RttSample, Sent, cubic::Cubic},
    fast::bytes_in,
    round::Round,
};
use crate::proto::time::Instant;

/// Round trips from the beginning in which no loss counts: the queue is full of the others' packets, and it is not yet for the session to give way.
const GRACE: u32 = 4;
/// The rate that is kept grows by an eighth in a round up to the target, and from there by a sixteenth, up to half as much again.
const QUICK_GROWTH: u64 = 8;
const GROWTH: u64 = 16;
/// So many reductions, each of them so many round trips behind the one before at most, are those of a queue that others fill at once.
const REPEATED: u8 = 4;
const REPEATED_WITHIN: u32 = 3;
/// How long a session stands before it looks whether others give way now.
const STAND: Duration = Duration::from_secs(30);
/// What is lost is looked at in periods of so many rounds. BBR settles in two to four of them.
const PERIOD: u8 = 16;
/// In 1024ths, beyond the path's own: more than this is lost in the second period, if others do not give way.
const LEAST_LOST: u64 = 50;
/// The same: where more is lost in a later period, the window is too large by what is lost, and by an eighth at least.
const MOST_LOST: u64 = 80;

/// What a session does that has others beside it.
#[derive(Debug)]
pub(super) struct Compete {
    cubic: Cubic,
    mtu: u64,
    base: Duration,
    srtt: Duration,
    began: Instant,
    /// Since when the window has grown without a loss.
    grows_since: Instant,
    /// The rate of [`Begin::target_cwnd`].
    target_rate: u64,
    /// The rate that it keeps until a loss counts, if the queue is longer than the path: it may become much longer. It grows to the target at first.
    kept_rate: Option<u64>,
    /// When a loss or a mark counted last.
    congested_at: Instant,
    reduced_at: Option<Instant>,
    repeated: u8,
    stand: Option<Stand>,
}

/// A session that begins to compete.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begin {
    pub(super) now: Instant,
    pub(super) mtu: u64,
    pub(super) cwnd: u64,
    /// The window that it is to have if there is room: its part of what it had before. At least `cwnd`.
    pub(super) target_cwnd: u64,
    pub(super) base: Duration,
    pub(super) srtt: Duration,
    /// The window is what CUBIC's would be that has grown since then.
    pub(super) grows_since: Instant,
    /// It is known that others do not give way.
    pub(super) stands: bool,
}

impl Compete {
    pub(super) fn new(begin: &Begin) -> Self {
        let &Begin { now, mtu, cwnd, target_cwnd, base, srtt, grows_since, stands } = begin;
        let rate_of = |window: u64| {
            let rate = (u128::from(window) * 1_000_000).checked_div(srtt.as_micros()).unwrap_or(0);
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        Self {
            cubic: Cubic::in_avoidance(now, mtu, cwnd, srtt, grows_since),
            mtu,
            base,
            srtt,
            began: now,
            grows_since,
            target_rate: rate_of(target_cwnd),
            kept_rate: Some(rate_of(cwnd)),
            congested_at: now,
            reduced_at: None,
            repeated: 0,
            stand: stands.then(|| Stand { period: 2, ..Stand::new(now, cwnd) }),
        }
    }

    pub(super) fn window(&self) -> u64 {
        if let Some(stand) = &self.stand {
            return stand.cwnd;
        }
        let kept = self.kept_rate.filter(|_| self.srtt >= 2 * self.base);
        self.cubic.window().max(kept.map_or(0, |rate| bytes_in(rate, self.srtt)))
    }

    pub(super) const fn stands(&self) -> bool {
        self.stand.is_some()
    }

    pub(super) const fn congested_at(&self) -> Instant {
        self.congested_at
    }

    pub(super) fn on_sent(&mut self, sent: &Sent) {
        self.cubic.on_sent(sent);
    }

    pub(super) fn on_ack(&mut self, acked: &Acked, min_rtt: &mut MinRtt) {
        if !self.stands() {
            self.cubic.on_ack(acked, min_rtt);
        }
    }

    pub(super) fn on_rtt(&mut self, now: Instant, rtt: &RttSample) {
        self.srtt = rtt.smoothed;
        self.cubic.on_rtt(now, rtt);
    }

    pub(super) fn on_mtu_change(&mut self, mtu: usize) {
        self.mtu = mtu as u64;
        self.cubic.on_mtu_change(mtu);
    }

    pub(super) fn on_spurious_loss(&mut self, now: Instant, bytes: u64) {
        self.cubic.on_spurious_loss(now, bytes);
    }

    /// A segment was lost, while the queue was not short.
    pub(super) fn on_lost(&mut self, lost: &Lost) {
        if lost.now - self.began < GRACE * self.srtt {
            return;
        }
        self.congested_at = lost.now;
        if self.stands() {
            return;
        }
        self.end_kept_rate(lost.now);
        let before = self.cubic.window();
        self.cubic.on_lost(lost);
        if self.cubic.window() < before {
            self.on_reduction(lost.now);
        }
    }

    pub(super) fn on_ecn(&mut self, marked: &Marked) {
        self.congested_at = marked.now;
        self.end_kept_rate(marked.now);
        self.cubic.on_ecn(marked);
    }

    fn on_reduction(&mut self, now: Instant) {
        let again = self.reduced_at.replace(now).is_some_and(|at| now - at < REPEATED_WITHIN * self.srtt);
        self.repeated = if again { self.repeated + 1 } else { 0 };
        if self.repeated >= REPEATED {
            self.stand = Some(Stand::new(now, bytes_in(self.target_rate, self.srtt)));
        }
    }

    /// CUBIC goes on with the window that there is.
    fn end_kept_rate(&mut self, now: Instant) {
        let cwnd = self.window();
        if self.kept_rate.take().is_some() && cwnd > self.cubic.window() {
            self.cubic = Cubic::in_avoidance(now, self.mtu, cwnd, self.srtt, self.grows_since);
        }
    }

    /// A round ends; `own` 1024ths of what is sent are lost by the path itself. Returns the window that CUBIC goes on with, if the session
    /// stands no longer.
    pub(super) fn end_round(&mut self, now: Instant, round: &Round, own: u64) -> Option<u64> {
        match &mut self.kept_rate {
            Some(rate) if *rate < self.target_rate => {
                *rate = rate.saturating_add(*rate / QUICK_GROWTH).min(self.target_rate);
                let cwnd = bytes_in(*rate, self.srtt);
                if cwnd > self.cubic.window() {
                    self.cubic = Cubic::in_avoidance(now, self.mtu, cwnd, self.srtt, self.grows_since);
                }
            }
            Some(rate) => {
                let most = self.target_rate.saturating_add(self.target_rate / 2);
                *rate = rate.saturating_add(*rate / GROWTH).min(most);
            }
            None => {}
        }
        let stand = self.stand.as_mut()?;
        if !stand.end_round(round, own) {
            return Some(self.cubic.window());
        }
        (now - stand.began >= STAND).then_some(stand.cwnd)
    }
}

/// A window that stays.
#[derive(Debug, Clone, Copy)]
struct Stand {
    began: Instant,
    cwnd: u64,
    first_cwnd: u64,
    period: u8,
    /// Of the present period: rounds, and segments.
    rounds: u8,
    sent: u64,
    lost: u64,
}

impl Stand {
    const fn new(began: Instant, cwnd: u64) -> Self {
        Self { began, cwnd, first_cwnd: cwnd, period: 0, rounds: 0, sent: 0, lost: 0 }
    }

    /// A round ends; `own` 1024ths of what is sent are lost by the path itself. Returns whether it is right to stand.
    fn end_round(&mut self, round: &Round, own: u64) -> bool {
        self.rounds += 1;
        self.sent += round.acked + round.lost;
        self.lost += round.lost;
        // A mark asks each sender to slow down, whatever others do.
        if round.marked {
            self.cwnd -= self.cwnd / 8;
        }
        if self.rounds < PERIOD {
            return true;
        }
        let is_beyond = |least| self.lost.saturating_mul(1_024) > self.sent.saturating_mul(own + least);
        let gives_way = self.period == 1 && !is_beyond(LEAST_LOST);
        if self.period > 0 && is_beyond(MOST_LOST) {
            let lost = (self.cwnd / self.sent.max(1)).saturating_mul(self.lost);
            self.cwnd -= lost.clamp(self.cwnd / 8, self.cwnd / 2);
        }
        *self = Self { period: self.period.saturating_add(1), rounds: 0, sent: 0, lost: 0, ..*self };
        !gives_way && self.cwnd >= self.first_cwnd / 2
    }
}

#[cfg(test)]
mod tests;
