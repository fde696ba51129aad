//! Keep-alive: when a silent peer is asked whether it is still there.
//!
//! Only silence is asked about. While something is in flight the peer owes an answer anyway, and what is resent asks for it.
//! Where that is not so, `alive.rs` has the peer asked at once ([`KeepAlive::ask_now`]).
//! A question without an answer is asked again after an RTO, then after twice that time, and so on up to [`MAX_WAIT`]. What
//! it is asked with, and how long it may owe its answer, is decided elsewhere.
//!
//! Both ends of a session are silent at the same time. So that one of them asks and not both, the end that accepted the
//! session waits a quarter longer ([`KeepAlive::give_way`]). And so that many sessions that fell silent together do not ask
//! together, each has its own wait, within a tenth.
//!
//! To ask costs less than to wake up for it, at both ends. So questions are asked at the ticks of a clock that all sessions of a
//! caller share ([`TICKS`]): 100,000 sessions that ask every 20 s wake it up 61 times a second, for 80 questions each, and their
//! answers arrive as closely.

use core::time::Duration;

use crate::proto::{
    path::Liveness,
    time::{Instant, Micros},
};

/// Longest wait between two questions. Of the 30 s of `dead_timeout`, a dozen questions must be lost before a peer that is
/// there counts as dead.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Parts of the wait by which the sessions differ: up to a fifth of it.
const SPREAD: u32 = 5;
/// Ticks of the wait, at least, at which a question is asked: it comes up to a tick early. With 20 s a tick is 16 ms. A burst of
/// questions must fit into the socket buffers of those who are asked.
const TICKS: u64 = 1_024;

/// When the peer is asked.
#[derive(Debug)]
pub(super) struct KeepAlive {
    /// The silence that is configured; `None` to never ask.
    configured: Option<Micros>,
    /// The silence after which this session asks.
    after: Option<Micros>,
    /// The logarithm to base 2 of the microseconds between two ticks.
    log2_tick: u8,
    /// What sets this session apart from others: any part of `u32::MAX`.
    jitter: u32,
    /// The questions since the peer was heard last.
    asking: Option<Asking>,
}

#[derive(Debug)]
struct Asking {
    since: Instant,
    /// When it is asked again if no answer comes.
    next: Instant,
    wait: Micros,
}

impl KeepAlive {
    /// Asks after about `silence`. `jitter` is random, or differs from session to session.
    pub(super) fn new(silence: Option<Duration>, jitter: u32) -> Self {
        let configured = silence.map(Micros::new);
        let tick = (configured.unwrap_or_default().as_micros() / TICKS).max(1);
        let log2_tick = tick.ilog2() as u8;
        let mut keep_alive = Self { configured, after: None, log2_tick, jitter, asking: None };
        keep_alive.lead();
        keep_alive
    }

    /// Asks first.
    pub(super) fn lead(&mut self) {
        let tick = Duration::from_micros(self.tick());
        self.after = self.configured.map(|silence| {
            let silence = silence.get();
            (silence - silence / 10 + tick + share(silence / SPREAD - tick, self.jitter)).into()
        });
    }

    /// Leaves it to the peer to ask, which does so after a silence of `peer_asks_after`, as far as it has said: this end
    /// asks when that question is missing. The peer's word counts between once and twice what is configured here. Else a
    /// peer could have this end ask all the time, or never.
    pub(super) fn give_way(&mut self, peer_asks_after: Option<Duration>) {
        let tick = Duration::from_micros(self.tick());
        self.after = self.configured.map(|silence| {
            let silence = silence.get();
            let silence = peer_asks_after.unwrap_or(silence).clamp(silence, silence * 2);
            // Behind all that the peer may wait, with time for two of its questions to be lost.
            (silence + silence / 4 + tick + share(silence / (2 * SPREAD) - tick, self.jitter)).into()
        });
    }

    /// Asks now, and goes on until the peer is heard: something else than silence is the reason.
    pub(super) fn ask_now(&mut self, now: Instant, liveness: &Liveness, rto: Duration) {
        if self.asking.as_ref().is_none_or(|asking| asking.since <= liveness.last_heard()) {
            // The first wait behind the question is the RTO.
            self.asking = Some(Asking { since: now, next: now, wait: (rto / 2).into() });
        }
    }

    /// When the peer is asked next.
    pub(super) fn deadline(&self, liveness: &Liveness) -> Option<Instant> {
        match &self.asking {
            Some(asking) if asking.since > liveness.last_heard() => Some(asking.next),
            _ if liveness.unanswered_since().is_some() => None,
            _ => self.after.map(|after| self.tick_before(liveness.last_heard() + after)),
        }
    }

    /// Microseconds between two ticks, a power of two.
    const fn tick(&self) -> u64 {
        1 << self.log2_tick
    }

    fn tick_before(&self, at: Instant) -> Instant {
        Instant::from_micros(at.as_micros() & !(self.tick() - 1))
    }

    /// Whether the peer is to be asked now.
    pub(super) fn on_timeout(&mut self, now: Instant, liveness: &Liveness, rto: Duration) -> bool {
        if self.deadline(liveness).is_none_or(|at| at > now) {
            return false;
        }
        let asked = self.asking.take().filter(|asking| asking.since > liveness.last_heard());
        let (since, wait) = asked.map_or((now, rto), |asking| (asking.since, asking.wait.get() * 2));
        let wait = wait.min(MAX_WAIT);
        self.asking = Some(Asking { since, next: now + wait, wait: wait.into() });
        true
    }
}

/// As much of `time` as `part` is of `u32::MAX`.
fn share(time: Duration, part: u32) -> Duration {
    // A day has fewer than 2^37 microseconds.
    Duration::from_micros(((u128::from(Micros::new(time).as_micros()) * u128::from(part)) >> 32) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTO: Duration = Duration::from_millis(200);
    const SILENCE: Duration = Duration::from_secs(20);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// A wait of 20 s has ticks of 16.4 ms, by which questions come sooner or later than their wait says.
    #[track_caller]
    fn assert_near(asks: Option<Instant>, millis: u64) {
        let asks = asks.expect("it asks").as_micros();
        assert_eq!(asks % 16_384, 0, "at a tick");
        assert!(asks.abs_diff(millis * 1_000) <= 16_384, "{asks} us, not about {millis} ms");
    }

    /// When it asks a peer that never answers, in milliseconds behind the first question.
    fn questions(mut keep_alive: KeepAlive, liveness: &Liveness, count: usize) -> alloc::vec::Vec<u64> {
        let mut asked = alloc::vec::Vec::new();
        for _ in 0..count {
            let now = keep_alive.deadline(liveness).unwrap();
            assert!(!keep_alive.on_timeout(Instant::from_micros(now.as_micros() - 1), liveness, RTO));
            assert!(keep_alive.on_timeout(now, liveness, RTO));
            assert!(!keep_alive.on_timeout(now, liveness, RTO), "it asks once");
            asked.push(now.as_micros());
        }
        asked.iter().map(|at| (at - asked[0]) / 1_000).collect()
    }

    #[test]
    fn waits_between_questions_double_up_to_five_seconds() {
        let keep_alive = KeepAlive::new(Some(SILENCE), 1 << 31);
        let liveness = Liveness::new(at(1_000));
        assert_near(keep_alive.deadline(&liveness), 21_000);
        let asked = questions(keep_alive, &liveness, 9);
        assert_eq!(asked[..5], [0, 200, 600, 1_400, 3_000]);
        assert_eq!(asked[5..], [6_200, 11_200, 16_200, 21_200]);
    }

    #[test]
    fn an_answer_begins_a_new_silence() {
        let mut liveness = Liveness::new(at(0));
        let mut keep_alive = KeepAlive::new(Some(SILENCE), 1 << 31);
        let first = keep_alive.deadline(&liveness).unwrap();
        assert_near(Some(first), 20_000);
        for question in [first, first + RTO] {
            assert_eq!(keep_alive.deadline(&liveness), Some(question));
            assert!(keep_alive.on_timeout(question, &liveness, RTO));
            liveness.on_send(question);
        }
        liveness.on_heard(at(20_250), false);
        assert_near(keep_alive.deadline(&liveness), 40_250);
        assert_eq!(questions(keep_alive, &liveness, 2), [0, 200]);
    }

    #[test]
    fn questions_for_another_reason_go_on_until_the_peer_is_heard() {
        let mut liveness = Liveness::new(at(0));
        liveness.on_send(at(900));
        for silence in [None, Some(SILENCE)] {
            let mut keep_alive = KeepAlive::new(silence, 1 << 31);
            keep_alive.ask_now(at(1_000), &liveness, RTO);
            keep_alive.ask_now(at(1_000), &liveness, RTO);
            assert_eq!(keep_alive.deadline(&liveness), Some(at(1_000)));
            assert_eq!(questions(keep_alive, &liveness, 4), [0, 200, 600, 1_400]);
        }
        let mut keep_alive = KeepAlive::new(None, 0);
        keep_alive.ask_now(at(1_000), &liveness, RTO);
        liveness.on_heard(at(1_001), false);
        assert_eq!(keep_alive.deadline(&liveness), None);
    }

    #[test]
    fn what_is_in_flight_asks_by_itself() {
        let mut liveness = Liveness::new(at(0));
        let mut keep_alive = KeepAlive::new(Some(SILENCE), 0);
        liveness.on_send(at(5_000));
        assert_eq!(keep_alive.deadline(&liveness), None);
        assert!(!keep_alive.on_timeout(at(60_000), &liveness, RTO));
        liveness.on_heard(at(70_000), true);
        assert_eq!(keep_alive.deadline(&liveness), None);
        liveness.on_heard(at(70_000), false);
        assert_near(keep_alive.deadline(&liveness), 88_000);
    }

    #[test]
    fn without_a_setting_there_is_no_deadline() {
        let liveness = Liveness::new(at(0));
        let mut keep_alive = KeepAlive::new(None, 77);
        keep_alive.give_way(Some(Duration::from_secs(1)));
        assert_eq!(keep_alive.deadline(&liveness), None);
        assert!(!keep_alive.on_timeout(at(1 << 40), &liveness, RTO));
    }

    /// With the defaults: whoever asks second does so after all that the first may wait, and in time to find a dead peer
    /// within 60 s by a `dead_timeout` of 30 s.
    #[test]
    fn one_end_asks_and_both_do_in_time() {
        let liveness = Liveness::new(at(0));
        let jitters = [0, 1, 1 << 30, 1 << 31, u32::MAX - 1, u32::MAX];
        for jitter in jitters {
            let first = KeepAlive::new(Some(SILENCE), jitter);
            let first = first.deadline(&liveness).unwrap();
            assert!((at(18_000)..=at(22_000)).contains(&first), "{jitter}: {first:?}");
            for peer_asks_after in [None, Some(SILENCE)] {
                let mut second = KeepAlive::new(Some(SILENCE), jitter);
                second.give_way(peer_asks_after);
                let second = second.deadline(&liveness).unwrap();
                assert!((at(25_000)..=at(27_500)).contains(&second), "{jitter}: {second:?}");
            }
        }
    }

    #[test]
    fn a_peer_cannot_have_this_end_ask_all_the_time_or_never() {
        let liveness = Liveness::new(at(0));
        for (peer, asks_at) in
            [(0, 25_000), (1, 25_000), (20_000, 25_000), (30_000, 37_500), (1 << 30, 50_000)]
        {
            let mut keep_alive = KeepAlive::new(Some(SILENCE), 0);
            keep_alive.give_way(Some(Duration::from_millis(peer)));
            assert_near(keep_alive.deadline(&liveness), asks_at);
        }
    }

    #[test]
    fn the_longest_silence_overflows_nothing() {
        let day = Duration::from_secs(86_400);
        let mut keep_alive = KeepAlive::new(Some(day), u32::MAX);
        assert!(keep_alive.after.unwrap().get() > day);
        keep_alive.give_way(Some(Duration::MAX));
        assert!(keep_alive.after.unwrap().get() <= day * 3);
    }
}
