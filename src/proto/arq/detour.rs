//! Finds out whether a path has become longer.
//!
//! After a change of network or of route, round trips are longer, and look as if a queue had filled up: a window that fitted
//! the path before holds the rate down, and the rate so measured shrinks the window. What tells them apart is a smaller
//! window, which empties a queue of this session's own, but shortens no path. So when round trips have been long for a few
//! rounds, the window is halved for as many as that takes to show.

use core::time::Duration;

use crate::proto::time::Instant;

/// Round trips longer than the path's by less than this, or by less than half, give no reason to ask: ACKs are held back as
/// long.
const LEAST: Duration = Duration::from_millis(10);
/// Rounds of long round trips before the window is halved.
const PATIENCE: u8 = 4;
/// How long an answer holds for round trips that are not half as long again: a queue that others keep full would have it
/// asked all the time.
const VALIDITY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Detour {
    long: Option<Long>,
    /// Round trips that there is an answer for, and until when.
    answered: (Duration, Instant),
    /// Windows at the beginnings of this round and the one before.
    windows: [u64; 2],
}

/// Rounds whose round trips have all been long.
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
    /// A round ends whose round trips took `rtt` at best, where the path's took `shortest` so far; the window is `window`.
    /// Returns whether the path has become longer: as long as `rtt`.
    pub(super) fn on_round(&mut self, now: Instant, shortest: Duration, rtt: Duration, window: u64) -> bool {
        // What a round confirms was sent in the one before, at the earliest, and a window that has shrunk takes a round trip
        // to empty a queue.
        let [earlier, before] = self.windows;
        self.windows = [before, window];
        if rtt < (shortest * 3 / 2).max(shortest + LEAST) {
            self.answer(now);
            return false;
        }
        let window = before.max(window);
        let long = self.long.get_or_insert(Long { rounds: 0, rtt, window, halved: false });
        if rtt < long.rtt / 8 * 7 {
            // A queue that has become shorter.
            self.answer(now);
            return false;
        }
        let (known, until) = self.answered;
        if now < until && rtt < known * 3 / 2 {
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
        let longer = |_| 2 * ALONE;
        let (found, smallest) = rounds(&mut detour, &mut now, longer);
        assert!(found.is_some_and(|round| round <= u32::from(PATIENCE) + 4), "{found:?}");
        assert_eq!((smallest, detour.limit()), (WINDOW / 2, u64::MAX));
        // Nor is it asked again soon, although it was not believed.
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
        for path in [ALONE + LEAST - Duration::from_millis(1), ALONE * 3 / 2 - Duration::from_millis(1)] {
            assert_eq!(rounds(&mut detour, &mut now, |_| path), (None, WINDOW));
        }
        for _ in 0..20 {
            for _ in 0..PATIENCE {
                assert!(!detour.on_round(now, ALONE, 3 * ALONE, WINDOW));
                assert_eq!(detour.limit(), u64::MAX);
            }
            assert!(!detour.on_round(now, ALONE, ALONE, WINDOW));
        }
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
