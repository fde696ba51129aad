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
/// The rate that is kept grows by a sixteenth in a round, up to half as much again.
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
/// The same: where more is lost in a later period, the window is too large.
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
    /// The rate that it came with.
    first_rate: u64,
    /// The rate that it keeps until a loss counts, if the queue is longer than the path: it may become much longer.
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
    pub(super) base: Duration,
    pub(super) srtt: Duration,
    /// The window is what CUBIC's would be that has grown since then.
    pub(super) grows_since: Instant,
    /// It is known that others do not give way.
    pub(super) stands: bool,
}

impl Compete {
    pub(super) fn new(begin: &Begin) -> Self {
        let &Begin { now, mtu, cwnd, base, srtt, grows_since, stands } = begin;
        let rate = (u128::from(cwnd) * 1_000_000).checked_div(srtt.as_micros()).unwrap_or(0);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        Self {
            cubic: Cubic::in_avoidance(now, mtu, cwnd, srtt, grows_since),
            mtu,
            base,
            srtt,
            began: now,
            grows_since,
            first_rate: rate,
            kept_rate: Some(rate),
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
            self.stand = Some(Stand::new(now, bytes_in(self.first_rate, self.srtt)));
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
        if let Some(rate) = &mut self.kept_rate {
            let most = self.first_rate.saturating_add(self.first_rate / 2);
            *rate = rate.saturating_add(*rate / GROWTH).min(most);
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
            self.cwnd -= self.cwnd / 8;
        }
        *self = Self { period: self.period.saturating_add(1), rounds: 0, sent: 0, lost: 0, ..*self };
        !gives_way && self.cwnd >= self.first_cwnd / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::congestion::LossCause;

    const MTU: u64 = 1_000;
    const BASE: Duration = Duration::from_millis(50);
    const SRTT: Duration = Duration::from_millis(100);
    const CWND: u64 = 400_000;

    /// What is sent at the time that is returned is lost after the beginning.
    fn compete(stands: bool) -> (Compete, Instant) {
        let now = Instant::from_millis(10_000);
        let begin = Begin { now, mtu: MTU, cwnd: CWND, base: BASE, srtt: SRTT, grows_since: now, stands };
        (Compete::new(&begin), now + (GRACE - 1) * SRTT)
    }

    /// A loss of what was sent then, a round trip later.
    fn lose(compete: &mut Compete, sent_time: Instant) {
        compete.on_lost(&Lost {
            now: sent_time + SRTT,
            sn: 0,
            bytes: MTU,
            sent_time,
            cause: LossCause::Skipped,
            tx_in_flight: MTU,
            lost: MTU,
            is_app_limited: false,
        });
    }

    /// One in which so many of 1,000 segments are lost.
    fn round(lost: u64) -> Round {
        let mut round = Round::new(Instant::ZERO);
        (round.acked, round.lost) = (1_000 - lost, lost);
        round
    }

    /// Periods in which so many of 1,000 segments a round are lost.
    fn periods(compete: &mut Compete, now: Instant, lost: &[u64]) -> Option<u64> {
        lost.iter().find_map(|lost| (0..PERIOD).find_map(|_| compete.end_round(now, &round(*lost), 0)))
    }

    #[test]
    fn a_loss_at_the_beginning_does_not_count() {
        let (mut compete, now) = compete(false);
        lose(&mut compete, Instant::from_millis(10_000));
        assert_eq!(compete.window(), CWND);
        lose(&mut compete, now);
        assert_eq!((compete.window(), compete.congested_at()), (CWND / 10 * 7, now + SRTT));
    }

    /// Four more reductions, each within three round trips.
    #[test]
    fn it_stands_where_one_reduction_follows_the_other() {
        for (apart, stands) in [(2, true), (4, false)] {
            let (mut compete, mut now) = compete(false);
            for reduction in 0..=REPEATED {
                assert!(!compete.stands(), "{reduction}");
                lose(&mut compete, now);
                now += apart * SRTT;
            }
            assert_eq!(compete.stands(), stands, "{apart} round trips");
            assert_eq!(compete.window() == CWND, stands, "{apart} round trips");
            lose(&mut compete, now);
            assert_eq!(compete.window() == CWND, stands, "{apart} round trips");
        }
    }

    fn standing() -> (Compete, Instant) {
        let (mut compete, mut now) = compete(false);
        for _ in 0..=REPEATED {
            lose(&mut compete, now);
            now += 2 * SRTT;
        }
        assert!(compete.stands());
        (compete, now)
    }

    #[test]
    fn what_it_loses_proves_that_others_do_not_give_way() {
        let (mut compete, now) = standing();
        assert_eq!(periods(&mut compete, now, &[200, 60, 10, 0]), None);
        assert_eq!(compete.window(), CWND);
        let (mut compete, now) = standing();
        let cwnd = periods(&mut compete, now, &[200, 10]);
        assert!(cwnd.is_some_and(|cwnd| cwnd < CWND / 4), "{cwnd:?}");
    }

    #[test]
    fn a_window_that_loses_much_is_too_large() {
        let (mut compete, now) = standing();
        assert_eq!(periods(&mut compete, now, &[200, 200, 200]), None);
        assert_eq!(compete.window(), 306_250, "two eighths less");
        assert!(periods(&mut compete, now, &[200; 10]).is_some(), "others may be many");
    }

    /// An eighth less for each marked round, until half is left.
    #[test]
    fn it_gives_way_to_marks() {
        let (mut compete, now) = standing();
        let mut marked = round(0);
        marked.marked = true;
        assert_eq!(compete.end_round(now, &marked, 0), None);
        assert_eq!(compete.window(), 350_000);
        assert!((0..PERIOD).find_map(|_| compete.end_round(now, &marked, 0)).is_some());
    }

    #[test]
    fn it_does_not_stand_forever() {
        let (mut compete, now) = compete(true);
        assert_eq!(compete.end_round(now + STAND / 2, &round(0), 0), None);
        assert_eq!(compete.end_round(now + STAND, &round(0), 0), Some(CWND));
    }

    /// The queue becomes longer than the path, and the window with it; the rate grows by a sixteenth in a round.
    #[test]
    fn it_keeps_its_rate_until_a_loss_counts() {
        let (mut compete, now) = compete(false);
        let longer = RttSample { latest: 2 * SRTT, smoothed: 2 * SRTT, ..RttSample::default() };
        compete.on_rtt(now, &longer);
        assert_eq!(compete.window(), 2 * CWND);
        assert_eq!(compete.end_round(now, &round(0), 0), None);
        assert_eq!(compete.window(), 2 * CWND / 16 * 17);
        lose(&mut compete, now + 4 * SRTT);
        assert_eq!(compete.window(), 2 * CWND / 16 * 17 / 10 * 7);
    }
}
