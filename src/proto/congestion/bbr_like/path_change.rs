//! Whether the path has become longer. This is our own: BBR waits until its minimum round-trip time has expired.
//!
//! After a change of network or of route, round trips are longer, and that looks as if a queue had filled up. A window
//! that fitted the path before then holds the rate down, and the low rate shrinks the window. A smaller window tells the
//! two apart: it empties a queue of this session's own, but it shortens no path. So when round trips have been long for a
//! few rounds, the window is halved for as many rounds as that takes to show. If the round trips stay long, the path is a
//! new one: its minimum round-trip time is set to theirs, and Startup begins again.
//!
//! What it is worth shows in `tests/simulation/congestion/path_change.rs` (`a_path_that_becomes_longer_is_filled_again_soon`):
//! without it, a path of 20 ms that becomes one of 150 ms has a 20th of its throughput until the minimum has expired.

use core::time::Duration;

use crate::proto::time::{Instant, Micros};

/// Round trips are long if they are twice the minimum, and longer by at least this. ACKs are held back for as long, and
/// sessions that share a link have a queue together that none of them can shorten much.
const LEAST: Duration = Duration::from_millis(10);
/// Rounds of long round trips before the window is halved.
const PATIENCE: u8 = 6;
/// How long an answer holds for round trips that are not half as long again. A queue that others fill again and again
/// would otherwise raise the question all the time.
const VALIDITY: Duration = Duration::from_secs(10);

/// The state of the question.
#[derive(Debug, Default)]
pub(super) struct PathChange {
    long: Option<LongRounds>,
    /// The round trips that an answer is known for, and until when it holds.
    answered: (Micros, Instant),
    /// Windows at the beginnings of this round and the one before.
    cwnds: [u64; 2],
}

/// Rounds in which the window was the limit, and whose round trips have all been long.
#[derive(Debug)]
struct LongRounds {
    count: u8,
    /// The longest of their minimum round-trip times, of those with the whole window.
    rtt: Micros,
    /// The window at first.
    cwnd: u64,
    halved: bool,
}

impl PathChange {
    /// A round ends in which the window, now `cwnd`, was the limit, and whose shortest round trip was `rtt`. `min_rtt` is
    /// the path's so far. Returns whether the path has become longer: `rtt` is its round trip now.
    pub(super) fn on_round(&mut self, now: Instant, min_rtt: Duration, rtt: Duration, cwnd: u64) -> bool {
        // What a round confirms was sent in the round before, at the earliest, and a window that has shrunk takes a round
        // trip to empty a queue.
        let [earlier, before] = self.cwnds;
        self.cwnds = [before, cwnd];
        if !self.is_long(now, min_rtt, rtt) {
            return false;
        }
        let long = self.long.get_or_insert(LongRounds {
            count: 0,
            rtt: rtt.into(),
            cwnd: before.max(cwnd),
            halved: false,
        });
        if rtt < long.rtt.get() / 16 * 15 {
            // It is a queue, and it has become shorter, if only by what others did.
            self.answer(now);
            return false;
        }
        long.count = long.count.saturating_add(1);
        if long.count > 2 && earlier <= long.cwnd / 2 {
            self.answer(now);
            return true;
        }
        long.halved |= long.count > PATIENCE;
        if !long.halved {
            long.rtt = long.rtt.max(rtt.into());
        }
        false
    }

    /// As [`on_round`](Self::on_round), where the application had too little to send. A smaller window would change
    /// nothing then, but a short round trip answers the question as well.
    #[cold]
    pub(super) fn on_app_limited_round(&mut self, now: Instant, min_rtt: Duration, rtt: Duration) {
        self.is_long(now, min_rtt, rtt);
    }

    /// Whether round trips have been long.
    pub(super) const fn is_asked(&self) -> bool {
        self.long.is_some()
    }

    /// What the window may be at most for now.
    pub(super) fn max_cwnd(&self) -> u64 {
        self.long.as_ref().filter(|long| long.halved).map_or(u64::MAX, |long| long.cwnd / 2)
    }

    /// Whether round trips are so long that the question is asked, or is to be asked. If not, it is over.
    fn is_long(&mut self, now: Instant, min_rtt: Duration, rtt: Duration) -> bool {
        if rtt < (min_rtt * 2).max(min_rtt + LEAST) {
            self.answer(now);
            return false;
        }
        let (known, until) = self.answered;
        let asking = self.long.as_ref().is_some_and(|long| long.halved);
        if !asking && now < until && rtt < known.get() * 3 / 2 {
            self.long = None;
            return false;
        }
        true
    }

    /// Ends the question, and remembers its answer if the window was halved for it.
    fn answer(&mut self, now: Instant) {
        if let Some(LongRounds { rtt, halved: true, .. }) = self.long.take() {
            self.answered = (rtt, now + VALIDITY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_RTT: Duration = Duration::from_millis(50);
    const WINDOW: u64 = 1_000_000;

    /// Ends rounds whose round trips are what `path` makes of the bytes in flight, until the path is taken for longer.
    /// Returns after how many rounds, and the smallest window.
    fn rounds(
        change: &mut PathChange,
        now: &mut Instant,
        path: impl Fn(u64) -> Duration,
    ) -> (Option<u32>, u64) {
        let (mut in_flight, mut smallest) = ([WINDOW; 2], WINDOW);
        for round in 1..=20 {
            let rtt = path(in_flight[0]);
            *now += rtt;
            if change.on_round(*now, MIN_RTT, rtt, in_flight[1]) {
                return (Some(round), smallest);
            }
            let window = WINDOW.min(change.max_cwnd());
            in_flight = [in_flight[1], window];
            smallest = smallest.min(window);
        }
        (None, smallest)
    }

    #[test]
    fn round_trips_that_a_smaller_window_does_not_shorten_are_the_path() {
        let (mut change, mut now) = (PathChange::default(), Instant::ZERO);
        let longer = |_| 5 * MIN_RTT / 2;
        let (found, smallest) = rounds(&mut change, &mut now, longer);
        assert!(found.is_some_and(|round| round <= u32::from(PATIENCE) + 4), "{found:?}");
        assert_eq!((smallest, change.max_cwnd()), (WINDOW / 2, u64::MAX));
        // Nor is it asked again soon, although the answer was not taken.
        assert_eq!(rounds(&mut change, &mut now, longer), (None, WINDOW));
        let (found, _) = rounds(&mut change, &mut now, |_| 4 * MIN_RTT);
        assert!(found.is_some(), "half as long again is asked anew");
        now += VALIDITY;
        assert!(rounds(&mut change, &mut now, longer).0.is_some());
    }

    #[test]
    fn round_trips_that_a_smaller_window_shortens_are_a_queue() {
        let (mut change, mut now) = (PathChange::default(), Instant::ZERO);
        // A whole window takes three times as long as the path without a queue.
        let queue = |in_flight: u64| MIN_RTT.mul_f64((3.0 * in_flight as f64 / WINDOW as f64).max(1.0));
        assert_eq!(rounds(&mut change, &mut now, queue), (None, WINDOW / 2));
        assert_eq!(rounds(&mut change, &mut now, queue), (None, WINDOW), "it was asked before");
    }

    #[test]
    fn slightly_or_briefly_longer_round_trips_are_ignored() {
        let (mut change, mut now) = (PathChange::default(), Instant::ZERO);
        let path = MIN_RTT * 2 - Duration::from_millis(1);
        assert_eq!(rounds(&mut change, &mut now, |_| path), (None, WINDOW));
        for _ in 0..20 {
            assert!(!change.on_round(now, LEAST / 2, LEAST, WINDOW), "ACKs may be held back as long");
        }
        for _ in 0..20 {
            for _ in 0..PATIENCE {
                assert!(!change.on_round(now, MIN_RTT, 3 * MIN_RTT, WINDOW));
                assert_eq!(change.max_cwnd(), u64::MAX);
            }
            assert!(!change.on_round(now, MIN_RTT, MIN_RTT, WINDOW));
        }
    }

    #[test]
    fn app_limited_rounds_can_only_end_the_question() {
        let (mut change, now) = (PathChange::default(), Instant::ZERO);
        for _ in 0..=PATIENCE {
            assert!(!change.on_round(now, MIN_RTT, 3 * MIN_RTT, WINDOW));
            for _ in 0..2 * PATIENCE {
                change.on_app_limited_round(now, MIN_RTT, 3 * MIN_RTT);
            }
        }
        assert_eq!(change.max_cwnd(), WINDOW / 2);
        change.on_app_limited_round(now, MIN_RTT, MIN_RTT);
        assert_eq!((change.max_cwnd(), change.is_asked()), (u64::MAX, false));
    }

    #[test]
    fn an_earlier_answer_does_not_stop_a_question_under_way() {
        let (mut change, mut now) = (PathChange::default(), Instant::ZERO);
        change.answered = ((3 * MIN_RTT).into(), now + 100 * VALIDITY);
        // Once the window is halved, round trips are a little shorter than what would raise the question.
        let path = |in_flight| if in_flight < WINDOW { MIN_RTT * 44 / 10 } else { MIN_RTT * 46 / 10 };
        let (found, _) = rounds(&mut change, &mut now, path);
        assert!(found.is_some());
        assert_eq!(change.max_cwnd(), u64::MAX);
    }

    #[test]
    fn a_window_that_halves_by_itself_answers_too() {
        let mut change = PathChange::default();
        assert!(!change.on_round(Instant::ZERO, MIN_RTT, 3 * MIN_RTT, WINDOW));
        let answers =
            [WINDOW / 2; 4].map(|window| change.on_round(Instant::ZERO, MIN_RTT, 3 * MIN_RTT, window));
        assert_eq!(answers, [false, false, true, false]);
    }
}
