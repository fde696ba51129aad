//! Finds out whether a path has become longer.
//!
//! After a change of network or of route, round trips are longer, and look as if a queue had filled up: a window that fitted
//! the path before holds the rate down, and the rate so measured shrinks the window. What tells them apart is a smaller
//! window, which empties a queue of this session's own, but shortens no path. So when round trips have been long for a few
//! rounds, the window is halved for as many as that takes to show.

use core::time::Duration;

use crate::proto::time::Instant;

/// Round trips that are not twice as long as the path's, or longer by less than this, give no reason to ask. ACKs are held back
/// as long, and sessions that share a link have a queue together which none of them shortens much.
const LEAST: Duration = Duration::from_millis(10);
/// Rounds of long round trips before the window is halved.
const PATIENCE: u8 = 6;
/// How long an answer holds, whatever it was, for round trips that are not half as long again: a queue that others fill again
/// and again would have it asked all the time.
const VALIDITY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Detour {
    long: Option<Long>,
    /// Round trips that there is an answer for, and until when.
    answered: (Duration, Instant),
    /// Windows at the beginnings of this round and the one before.
    windows: [u64; 2],
}

/// Rounds in which the window was the limit, and whose round trips have all been long.
#[derive(Debug)]
struct Long {
    rounds: u8,
    /// Longest of the shortest round trips of each, with the whole window.
    rtt: Duration,
    /// Window at first.
    window: u64,
    halved: bool,
}

impl Detour {
    /// A round ends whose round trips took `rtt` at best, where the path's took `shortest` so far; what was in flight was
    /// limited by the window, which is `window`. Returns whether the path has become longer: as long as `rtt`.
    pub(super) fn on_round(&mut self, now: Instant, shortest: Duration, rtt: Duration, window: u64) -> bool {
        // What a round confirms was sent in the one before, at the earliest, and a window that has shrunk takes a round trip
        // to empty a queue.
        let [earlier, before] = self.windows;
        self.windows = [before, window];
        if !self.is_long(now, shortest, rtt) {
            return false;
        }
        let long =
            self.long.get_or_insert(Long { rounds: 0, rtt, window: before.max(window), halved: false });
        if rtt < long.rtt / 16 * 15 {
            // A queue that has become shorter, be it by what others did.
            self.answer(now);
            return false;
        }
        long.rounds = long.rounds.saturating_add(1);
        if long.rounds > 2 && earlier <= long.window / 2 {
            self.answer(now);
            return true;
        }
        long.halved |= long.rounds > PATIENCE;
        if !long.halved {
            long.rtt = long.rtt.max(rtt);
        }
        false
    }

    /// Whether round trips have been long.
    pub(super) const fn is_asked(&self) -> bool {
        self.long.is_some()
    }

    /// As [`on_round`](Self::on_round), where the application had too little to send: the window changes nothing then, but
    /// short round trips tell as much.
    #[cold]
    pub(super) fn on_app_limited_round(&mut self, now: Instant, shortest: Duration, rtt: Duration) {
        self.is_long(now, shortest, rtt);
    }

    /// Whether round trips are so long that it is asked, or to be asked, why. If not, that is over.
    fn is_long(&mut self, now: Instant, shortest: Duration, rtt: Duration) -> bool {
        if rtt < (shortest * 2).max(shortest + LEAST) {
            self.answer(now);
            return false;
        }
        let (known, until) = self.answered;
        let asking = self.long.as_ref().is_some_and(|long| long.halved);
        if !asking && now < until && rtt < known * 3 / 2 {
            self.long = None;
            return false;
        }
        true
    }

    /// What there was to find out is known.
    fn answer(&mut self, now: Instant) {
        if let Some(Long { rtt, halved: true, .. }) = self.long.take() {
            self.answered = (rtt, now + VALIDITY);
        }
    }

    /// What the window may be at most for now.
    pub(super) fn limit(&self) -> u64 {
        self.long.as_ref().filter(|long| long.halved).map_or(u64::MAX, |long| long.window / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Duration = Duration::from_millis(50);
    const WINDOW: u64 = 1_000_000;

    /// Ends rounds whose round trips are those of `path`, of which a window tells, until the path is taken for longer; returns
    /// after how many, and the smallest window.
    fn rounds(detour: &mut Detour, now: &mut Instant, path: impl Fn(u64) -> Duration) -> (Option<u32>, u64) {
        let (mut in_flight, mut smallest) = ([WINDOW; 2], WINDOW);
        for round in 1..=20 {
            let rtt = path(in_flight[0]);
            *now += rtt;
            if detour.on_round(*now, ALONE, rtt, in_flight[1]) {
                return (Some(round), smallest);
            }
            let window = WINDOW.min(detour.limit());
            in_flight = [in_flight[1], window];
            smallest = smallest.min(window);
        }
        (None, smallest)
    }

    #[test]
    fn what_no_window_shortens_is_the_path() {
        let (mut detour, mut now) = (Detour::default(), Instant::ZERO);
        let longer = |_| 5 * ALONE / 2;
        let (found, smallest) = rounds(&mut detour, &mut now, longer);
        assert!(found.is_some_and(|round| round <= u32::from(PATIENCE) + 4), "{found:?}");
        assert_eq!((smallest, detour.limit()), (WINDOW / 2, u64::MAX));
        // Nor is it asked again soon, although the answer was not taken.
        assert_eq!(rounds(&mut detour, &mut now, longer), (None, WINDOW));
        let (found, _) = rounds(&mut detour, &mut now, |_| 4 * ALONE);
        assert!(found.is_some(), "it is half as long again");
        now += VALIDITY;
        assert!(rounds(&mut detour, &mut now, longer).0.is_some());
    }

    #[test]
    fn what_a_smaller_window_shortens_is_a_queue() {
        let (mut detour, mut now) = (Detour::default(), Instant::ZERO);
        // A window takes three times as long as the path without a queue.
        let queue = |in_flight: u64| ALONE.mul_f64((3.0 * in_flight as f64 / WINDOW as f64).max(1.0));
        assert_eq!(rounds(&mut detour, &mut now, queue), (None, WINDOW / 2));
        assert_eq!(rounds(&mut detour, &mut now, queue), (None, WINDOW), "it was asked before");
    }

    #[test]
    fn a_little_longer_or_for_a_little_while_is_nothing() {
        let (mut detour, mut now) = (Detour::default(), Instant::ZERO);
        let path = ALONE * 2 - Duration::from_millis(1);
        assert_eq!(rounds(&mut detour, &mut now, |_| path), (None, WINDOW));
        for _ in 0..20 {
            assert!(!detour.on_round(now, LEAST / 2, LEAST, WINDOW), "ACKs may be held back as long");
        }
        for _ in 0..20 {
            for _ in 0..PATIENCE {
                assert!(!detour.on_round(now, ALONE, 3 * ALONE, WINDOW));
                assert_eq!(detour.limit(), u64::MAX);
            }
            assert!(!detour.on_round(now, ALONE, ALONE, WINDOW));
        }
    }

    /// The application's own rounds neither count nor keep the window halved once their round trips are short.
    #[test]
    fn rounds_without_enough_to_send_only_end_it() {
        let (mut detour, now) = (Detour::default(), Instant::ZERO);
        for _ in 0..=PATIENCE {
            assert!(!detour.on_round(now, ALONE, 3 * ALONE, WINDOW));
            for _ in 0..2 * PATIENCE {
                detour.on_app_limited_round(now, ALONE, 3 * ALONE);
            }
        }
        assert_eq!(detour.limit(), WINDOW / 2);
        detour.on_app_limited_round(now, ALONE, ALONE);
        assert_eq!((detour.limit(), detour.is_asked()), (u64::MAX, false));
    }

    /// An answer to shorter ones does not hold up the question that is being asked.
    #[test]
    fn what_is_asked_is_answered() {
        let (mut detour, mut now) = (Detour::default(), Instant::ZERO);
        detour.answered = (3 * ALONE, now + 100 * VALIDITY);
        // A little less once it is halved than what would have it asked.
        let path = |in_flight| if in_flight < WINDOW { ALONE * 44 / 10 } else { ALONE * 46 / 10 };
        let (found, _) = rounds(&mut detour, &mut now, path);
        assert!(found.is_some());
        assert_eq!(detour.limit(), u64::MAX);
    }

    /// A window that halves by itself, since the rate has fallen, answers as well.
    #[test]
    fn a_window_that_shrinks_by_itself_answers() {
        let mut detour = Detour::default();
        assert!(!detour.on_round(Instant::ZERO, ALONE, 3 * ALONE, WINDOW));
        let answers = [WINDOW / 2; 4].map(|window| detour.on_round(Instant::ZERO, ALONE, 3 * ALONE, window));
        assert_eq!(answers, [false, false, true, false]);
    }
}
