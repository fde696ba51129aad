//! The shortest round trip of a path, measured anew now and then.
//!
//! Of the queue that sessions sharing a link have there, none sees the end: whatever one drains, the others use. Each comes to
//! take the round trip with the queue for the path's own and has as much more in flight, and the queue grows until it
//! overflows. So when a round trip about as short as the shortest has not been seen for a while, the path is to be emptied:
//! the window is what half fills it, until what was sent into it then has been acknowledged. The others see shorter round
//! trips as well, and since all remember them for as long, all come to empty the path at the same time. This is the
//! ProbeRTT of BBR (Cardwell et al., 2016).
//!
//! A session alone on its path sees the shortest round trips all the time, and empties nothing.

use core::time::Duration;

use crate::proto::time::Instant;

/// How long the shortest round trip is remembered for.
const MEMORY: Duration = Duration::from_secs(10);
/// Round trips that are longer than the shortest by one of so many parts of it are as short: jitter.
const NEAR: u32 = 16;

#[derive(Debug, Default)]
pub(super) struct MinRtt {
    /// It, and when one as short was seen last.
    seen: Option<(Duration, Instant)>,
    emptying: Option<Emptying>,
}

#[derive(Debug)]
struct Emptying {
    /// Shortest round trip since it began.
    shortest: Duration,
    /// When all is acknowledged that was sent before the path was empty, once it is.
    until: Option<Instant>,
}

impl MinRtt {
    pub(super) fn get(&self) -> Option<Duration> {
        self.seen.map(|(rtt, _)| rtt)
    }

    /// The path is another one now.
    pub(super) const fn set(&mut self, now: Instant, rtt: Duration) {
        self.seen = Some((rtt, now));
        self.emptying = None;
    }

    /// Whether the path is to be emptied.
    pub(super) const fn is_emptying(&self) -> bool {
        self.emptying.is_some()
    }

    /// A round trip took `rtt`. `limited`: the window is what limits the sender, so that a smaller one would change something;
    /// `emptied`: no more is in flight than is to be while the path is emptied. Returns whether that is over now.
    pub(super) fn sample(&mut self, now: Instant, rtt: Duration, limited: bool, emptied: bool) -> bool {
        if let Some(emptying) = &mut self.emptying {
            emptying.shortest = emptying.shortest.min(rtt);
            match emptying.until {
                Some(until) if now >= until => {
                    let shortest = emptying.shortest;
                    self.set(now, shortest);
                    return true;
                }
                None if emptied => emptying.until = Some(now + rtt),
                _ => {}
            }
            return false;
        }
        match self.seen {
            Some((shortest, _)) if rtt <= shortest + shortest / NEAR => {
                self.seen = Some((rtt.min(shortest), now));
            }
            Some((_, at)) if now - at < MEMORY => {}
            Some(_) if limited => self.emptying = Some(Emptying { shortest: rtt, until: None }),
            _ => self.seen = Some((rtt, now)),
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
        min_rtt.sample(Instant::ZERO, ALONE, true, false);
        (min_rtt, Instant::ZERO + time)
    }

    #[test]
    fn the_path_is_emptied_once_the_shortest_was_not_seen_for_long() {
        let (mut min_rtt, mut now) = after(MEMORY - QUEUED);
        assert!(!min_rtt.sample(now, QUEUED, true, false) && !min_rtt.is_emptying());
        now += QUEUED;
        assert!(!min_rtt.sample(now, QUEUED, true, true) && min_rtt.is_emptying());
        // Until it is empty, and for the round trip of what was sent before.
        for emptied in [false, false, true, false] {
            now += QUEUED / 2;
            assert!(!min_rtt.sample(now, QUEUED, true, emptied) && min_rtt.is_emptying());
        }
        now += QUEUED / 2;
        assert!(min_rtt.sample(now, ALONE + ALONE / 10, true, false));
        assert_eq!((min_rtt.get(), min_rtt.is_emptying()), (Some(ALONE + ALONE / 10), false));
    }

    #[test]
    fn nothing_is_emptied_while_round_trips_are_about_as_short_now_and_then() {
        let (mut min_rtt, mut now) = after(Duration::ZERO);
        for _ in 0..10 {
            for rtt in [QUEUED, ALONE + ALONE / 20] {
                now += MEMORY * 2 / 3;
                min_rtt.sample(now, rtt, true, false);
                assert_eq!((min_rtt.get(), min_rtt.is_emptying()), (Some(ALONE), false));
            }
        }
    }

    /// A smaller window would not change what the application has in flight.
    #[test]
    fn what_the_application_limits_takes_the_next_round_trip() {
        let (mut min_rtt, now) = after(MEMORY);
        min_rtt.sample(now, QUEUED, false, true);
        assert_eq!((min_rtt.get(), min_rtt.is_emptying()), (Some(QUEUED), false));
    }

    #[test]
    fn another_path_need_not_be_emptied() {
        let (mut min_rtt, now) = after(MEMORY);
        min_rtt.sample(now, QUEUED, true, false);
        min_rtt.set(now, 2 * QUEUED);
        assert_eq!((min_rtt.get(), min_rtt.is_emptying()), (Some(2 * QUEUED), false));
    }
}
