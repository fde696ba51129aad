//! The minimum round-trip time of a path, over a window of ten seconds.
//!
//! There is one for all that ask: congestion control, adaptive FEC, and the counting of losses. A minimum that never
//! forgot would be wrong for ever once a route has become longer.
//!
//! It is forgotten when no round trip about as short has been seen for [`WINDOW`]; the shortest seen since takes its
//! place. That a little jitter does not count is our own. Sessions that share a link then empty it less often, and eight of
//! them resend a tenth less (`tests/simulation/congestion/sharing.rs`). Nothing is done by the clock: an idle session keeps its minimum until the next sample, and needs no wake-up.
//!
//! A controller may know better. It can [hold](MinRtt::hold) an expired minimum while it empties the path to measure it
//! anew (BBR's ProbeRTT), and [replace](MinRtt::replace) it when the path has changed.

use core::time::Duration;

use crate::proto::time::{Instant, Micros};

/// How long the minimum is remembered: as in BBR (Cardwell et al., 2016).
const WINDOW: Duration = Duration::from_secs(10);
/// Round trips that are longer than the minimum by one of so many parts of it are as short: jitter.
const NEAR: u32 = 16;

/// The minimum round-trip time of a path, over a window of ten seconds.
#[derive(Debug, Default)]
pub struct MinRtt {
    /// It, in whole microseconds like the clock, and when a round trip as short was seen last.
    seen: Option<(Micros, Instant)>,
    /// The shortest since then, and when that was.
    next: Option<(Micros, Instant)>,
    held: bool,
}

impl MinRtt {
    /// The minimum; `None` before the first sample.
    #[must_use]
    pub fn get(&self) -> Option<Duration> {
        self.seen.map(|(rtt, _)| rtt.get())
    }

    /// Whether no round trip about as short has been seen within the window. Unless it is [held](Self::hold), the
    /// minimum is forgotten after this call of the controller.
    #[must_use]
    pub fn is_expired(&self, now: Instant) -> bool {
        self.seen.is_some_and(|(_, at)| now - at >= WINDOW)
    }

    /// Keeps the minimum although it has expired, until it is [renewed](Self::renew) or [replaced](Self::replace).
    pub const fn hold(&mut self) {
        self.held = true;
    }

    /// Forgets the minimum: the shortest round trip that was seen since takes its place.
    pub const fn renew(&mut self, now: Instant) {
        if let Some((rtt, _)) = self.next {
            self.replace(now, rtt.get());
        }
        self.held = false;
    }

    /// From now on the minimum is `rtt`.
    pub const fn replace(&mut self, now: Instant, rtt: Duration) {
        *self = Self { seen: Some((Micros::new(rtt), now)), next: None, held: false };
    }

    /// Takes a sample.
    pub(in crate::proto) fn sample(&mut self, now: Instant, rtt: Duration) {
        let Some(shortest) = self.get() else { return self.replace(now, rtt) };
        if rtt <= shortest + shortest / NEAR && !self.held {
            return self.replace(now, rtt.min(shortest));
        }
        let rtt = Micros::new(rtt);
        if self.next.is_none_or(|(next, at)| rtt <= next || now - at >= WINDOW) {
            self.next = Some((rtt, now));
        }
    }

    /// Lowers the minimum to the smoothed round-trip time. Few samples may fall into the window, and all of them may have
    /// been long. The smoothed round-trip time remembers those before: no minimum lies above it.
    #[inline]
    pub(in crate::proto) fn bound(&mut self, smoothed: Duration) {
        if let Some((rtt, _)) = &mut self.seen {
            *rtt = Micros::new(smoothed).min(*rtt);
        }
    }

    /// Forgets a minimum that has expired and that nobody holds.
    pub(in crate::proto) fn forget_expired(&mut self, now: Instant) {
        if !self.held && self.is_expired(now) {
            self.renew(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_millis(80);

    /// A minimum of [`SHORT`], seen `time` ago.
    fn seen_before(time: Duration) -> (MinRtt, Instant) {
        let mut min_rtt = MinRtt::default();
        assert_eq!(min_rtt.get(), None);
        min_rtt.sample(Instant::ZERO, SHORT);
        (min_rtt, Instant::ZERO + time)
    }

    fn sample(min_rtt: &mut MinRtt, now: Instant, rtt: Duration) {
        min_rtt.sample(now, rtt);
        min_rtt.forget_expired(now);
    }

    #[test]
    fn the_minimum_is_forgotten_when_nothing_as_short_was_seen_for_ten_seconds() {
        let (mut min_rtt, mut now) = seen_before(WINDOW / 2);
        sample(&mut min_rtt, now, LONG);
        assert_eq!(min_rtt.get(), Some(SHORT));
        now += WINDOW / 2 - Duration::from_millis(1);
        sample(&mut min_rtt, now, 2 * LONG);
        assert_eq!(min_rtt.get(), Some(SHORT));
        now += Duration::from_millis(1);
        sample(&mut min_rtt, now, 2 * LONG);
        assert_eq!(min_rtt.get(), Some(LONG), "it was seen within the window");
    }

    #[test]
    fn round_trips_about_as_short_keep_the_minimum() {
        let (mut min_rtt, mut now) = seen_before(Duration::ZERO);
        for _ in 0..10 {
            for rtt in [LONG, SHORT + SHORT / 20] {
                now += WINDOW * 2 / 3;
                sample(&mut min_rtt, now, rtt);
                assert_eq!(min_rtt.get(), Some(SHORT));
            }
        }
    }

    #[test]
    fn a_shorter_round_trip_is_the_minimum_at_once() {
        let (mut min_rtt, now) = seen_before(WINDOW / 2);
        sample(&mut min_rtt, now, SHORT / 2);
        assert_eq!(min_rtt.get(), Some(SHORT / 2));
    }

    /// What was seen before a pause says nothing of the path behind it.
    #[test]
    fn only_what_was_seen_within_the_window_takes_the_place_of_what_expired() {
        let (mut min_rtt, mut now) = seen_before(WINDOW / 2);
        sample(&mut min_rtt, now, LONG);
        now += 2 * WINDOW;
        sample(&mut min_rtt, now, 3 * LONG);
        assert_eq!(min_rtt.get(), Some(3 * LONG));
    }

    #[test]
    fn the_minimum_is_never_above_the_smoothed_round_trip_time() {
        let (mut min_rtt, now) = seen_before(2 * WINDOW);
        sample(&mut min_rtt, now, 5 * LONG);
        min_rtt.bound(LONG);
        assert_eq!(min_rtt.get(), Some(LONG), "one long round trip behind a pause");
        min_rtt.bound(2 * LONG);
        assert_eq!(min_rtt.get(), Some(LONG));
    }

    #[test]
    fn a_minimum_that_is_held_stays_until_it_is_renewed() {
        let (mut min_rtt, mut now) = seen_before(WINDOW);
        min_rtt.sample(now, LONG);
        assert!(min_rtt.is_expired(now));
        min_rtt.hold();
        min_rtt.forget_expired(now);
        now += LONG;
        sample(&mut min_rtt, now, SHORT + SHORT / 20);
        assert_eq!(min_rtt.get(), Some(SHORT));
        min_rtt.renew(now);
        assert_eq!((min_rtt.get(), min_rtt.is_expired(now)), (Some(SHORT + SHORT / 20), false));
        sample(&mut min_rtt, now + WINDOW, LONG);
        assert_eq!(min_rtt.get(), Some(LONG), "it is no longer held");
    }

    #[test]
    fn a_replaced_minimum_is_remembered_for_ten_seconds() {
        let (mut min_rtt, mut now) = seen_before(WINDOW - LONG);
        min_rtt.sample(now, LONG);
        min_rtt.replace(now, LONG);
        now += WINDOW - LONG;
        sample(&mut min_rtt, now, 2 * LONG);
        assert_eq!(min_rtt.get(), Some(LONG));
    }
}
