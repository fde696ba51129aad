//! The shortest round trip of a path, measured anew now and then.
//!
//! Of the queue that sessions sharing a link have there, none sees the end: whatever one drains, the others use. Each comes to
//! take the round trip with the queue for the path's own and has as much more in flight, and the queue grows until it
//! overflows. So when a round trip about as short as the shortest has not been seen for a while, the path is to be emptied:
//! the window is what half fills it, until what was sent into it then has been acknowledged. The others see shorter round
//! trips as well, and since all remember them for as long, all come to empty the path at the same time. This is the
//! ProbeRTT of BBR (Cardwell et al., 2016).
//!
//! A session alone on its path sees round trips about as short again and again, and seldom empties anything.

use core::time::Duration;

use crate::proto::time::Instant;

/// How long the shortest round trip is remembered for.
const MEMORY: Duration = Duration::from_secs(10);
/// Round trips that are longer than the shortest by one of so many parts of it are as short: jitter.
const NEAR: u32 = 16;

#[derive(Debug)]
pub(super) struct MinRtt {
    /// It, and when one as short was seen last.
    seen: Option<(Duration, Instant)>,
    /// Shortest since then, or since emptying began.
    later: Duration,
    emptying: Option<Emptying>,
}

#[derive(Debug, Clone, Copy)]
enum Emptying {
    Drains,
    /// No more has been in flight since then than is to be.
    Empty(Instant),
}

/// A round trip.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) rtt: Duration,
    /// When the last of what is acknowledged with it was sent.
    pub(super) sent_at: Instant,
    /// The window is what limited the sender then, so that a smaller one would have changed something.
    pub(super) limited: bool,
    /// No more is in flight than is to be while the path is emptied.
    pub(super) emptied: bool,
}

impl Default for MinRtt {
    fn default() -> Self {
        Self { seen: None, later: Duration::MAX, emptying: None }
    }
}

impl MinRtt {
    pub(super) fn get(&self) -> Option<Duration> {
        self.seen.map(|(rtt, _)| rtt)
    }

    /// From now on it is `rtt`.
    pub(super) const fn set(&mut self, now: Instant, rtt: Duration) {
        *self = Self { seen: Some((rtt, now)), later: Duration::MAX, emptying: None };
    }

    /// Whether the path is to be emptied.
    pub(super) const fn is_emptying(&self) -> bool {
        self.emptying.is_some()
    }

    /// Takes note of a round trip; returns whether the path was to be emptied, and is no more.
    pub(super) fn sample(&mut self, now: Instant, sample: Sample) -> bool {
        let Sample { rtt, sent_at, limited, emptied } = sample;
        self.later = self.later.min(rtt);
        match (self.emptying, self.seen) {
            (Some(Emptying::Empty(at)), _) if sent_at >= at => {
                self.set(now, self.later);
                return true;
            }
            (Some(Emptying::Drains), _) if emptied => self.emptying = Some(Emptying::Empty(now)),
            (Some(_), _) => {}
            (None, Some((shortest, _))) if rtt <= shortest + shortest / NEAR => {
                self.set(now, rtt.min(shortest));
            }
            (None, Some((_, at))) if now - at < MEMORY => {}
            (None, Some(_)) if limited => self.emptying = Some(Emptying::Drains),
            (None, _) => self.set(now, self.later),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Duration = Duration::from_millis(50);
    const QUEUED: Duration = Duration::from_millis(80);

    fn after(time: Duration) -> (MinRtt, Instant) {
        let mut min_rtt = MinRtt::default();
        min_rtt.sample(Instant::ZERO, of(Instant::ZERO, ALONE));
        (min_rtt, Instant::ZERO + time)
    }

    /// A round trip that ends at `now`, of a sender limited by its window, with more in flight than is to be.
    fn of(now: Instant, rtt: Duration) -> Sample {
        Sample { rtt, sent_at: Instant::ZERO + (now - (Instant::ZERO + rtt)), limited: true, emptied: false }
    }

    #[test]
    fn the_path_is_emptied_once_the_shortest_was_not_seen_for_long() {
        let (mut min_rtt, mut now) = after(MEMORY - QUEUED);
        assert!(!min_rtt.sample(now, of(now, QUEUED)) && !min_rtt.is_emptying());
        now += QUEUED;
        assert!(!min_rtt.sample(now, Sample { emptied: true, ..of(now, QUEUED) }) && min_rtt.is_emptying());
        now += QUEUED;
        assert!(!min_rtt.sample(now, of(now, QUEUED)) && min_rtt.is_emptying());
        now += QUEUED;
        assert!(!min_rtt.sample(now, Sample { emptied: true, ..of(now, QUEUED) }) && min_rtt.is_emptying());
        // What was sent before says less than what is sent from now on.
        let late = Sample { sent_at: Instant::ZERO + (now - (Instant::ZERO + ALONE)), ..of(now, ALONE) };
        assert!(!min_rtt.sample(now, late) && min_rtt.is_emptying());
        let shortest = ALONE + ALONE / 10;
        now += shortest;
        assert!(min_rtt.sample(now, of(now, shortest)));
        assert!(!min_rtt.is_emptying());
        assert_eq!(min_rtt.get(), Some(ALONE), "it was seen meanwhile");
    }

    /// As after a process that slept: it says nothing of how long emptying takes, nor of the path.
    #[test]
    fn one_long_round_trip_neither_holds_it_up_nor_counts() {
        let (mut min_rtt, mut now) = after(MEMORY / 2);
        min_rtt.sample(now, of(now, QUEUED));
        now += MEMORY;
        min_rtt.sample(now, Sample { emptied: true, ..of(now, MEMORY) });
        assert!(min_rtt.is_emptying());
        min_rtt.sample(now, Sample { emptied: true, ..of(now, MEMORY) });
        now += 2 * QUEUED;
        assert!(min_rtt.sample(now, of(now, 2 * QUEUED)));
        assert_eq!(min_rtt.get(), Some(QUEUED));
    }

    #[test]
    fn nothing_is_emptied_while_round_trips_are_about_as_short_now_and_then() {
        let (mut min_rtt, mut now) = after(Duration::ZERO);
        for _ in 0..10 {
            for rtt in [QUEUED, ALONE + ALONE / 20] {
                now += MEMORY * 2 / 3;
                min_rtt.sample(now, of(now, rtt));
                assert_eq!((min_rtt.get(), min_rtt.is_emptying()), (Some(ALONE), false));
            }
        }
    }

    /// A smaller window would not change what the application has in flight.
    #[test]
    fn what_the_application_limits_takes_the_shortest_of_late() {
        let (mut min_rtt, mut now) = after(MEMORY / 2);
        min_rtt.sample(now, of(now, QUEUED));
        now += MEMORY;
        min_rtt.sample(now, Sample { limited: false, ..of(now, 2 * QUEUED) });
        assert_eq!((min_rtt.get(), min_rtt.is_emptying()), (Some(QUEUED), false));
    }

    #[test]
    fn another_path_need_not_be_emptied() {
        let (mut min_rtt, now) = after(MEMORY);
        min_rtt.sample(now, of(now, QUEUED));
        min_rtt.set(now, 2 * QUEUED);
        assert_eq!((min_rtt.get(), min_rtt.is_emptying()), (Some(2 * QUEUED), false));
    }
}
