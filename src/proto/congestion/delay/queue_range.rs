//! How long the queue gets, to tell losses of a short queue from others.

use core::time::Duration;

use crate::proto::time::{Instant, Micros};

/// The longest delay is that of the last one or two of these.
const WINDOW: Duration = Duration::from_secs(5);
/// Where none is longer than this, none is short.
const LEAST_LONGEST: Duration = Duration::from_millis(5);

/// The longest delays of two windows.
#[derive(Debug, Default)]
pub(super) struct QueueRange {
    since: Instant,
    before: Micros,
    current: Micros,
}

impl QueueRange {
    pub(super) fn add(&mut self, now: Instant, delay: Duration) {
        if now - self.since >= WINDOW {
            (self.since, self.before, self.current) = (now, self.current, Micros::default());
        }
        self.current = self.current.max(delay.into());
    }

    fn longest(&self) -> Duration {
        self.before.max(self.current).get()
    }

    /// Whether it never gets longer than jitter.
    pub(super) fn is_flat(&self) -> bool {
        self.longest() <= LEAST_LONGEST
    }

    /// Whether `delay` is that of a queue that is about as long as it gets.
    pub(super) fn is_long(&self, delay: Duration) -> bool {
        self.longest() > LEAST_LONGEST && delay >= self.longest() / 2
    }

    /// Whether `delay` is that of a queue far from as long as it gets.
    pub(super) fn is_short(&self, delay: Duration) -> bool {
        self.longest() > LEAST_LONGEST && delay < self.longest() / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_delay_is_short_beside_the_longest_of_the_last_seconds() {
        let (mut range, mut now) = (QueueRange::default(), Instant::from_millis(1));
        range.add(now, ms(40));
        assert_eq!([19, 20].map(|delay| range.is_short(ms(delay))), [true, false]);
        assert_eq!([19, 20].map(|delay| range.is_long(ms(delay))), [false, true]);
        // It is forgotten after one more window.
        for short in [true, false] {
            now += WINDOW;
            range.add(now, ms(6));
            assert_eq!(range.is_short(ms(6)), short, "{now:?}");
            range.add(now, ms(8));
        }
    }

    #[test]
    fn jitter_is_not_short() {
        let mut range = QueueRange::default();
        range.add(Instant::ZERO, ms(2));
        assert!(!range.is_short(Duration::ZERO) && range.is_flat());
        range.add(Instant::ZERO, ms(6));
        assert!(!range.is_flat());
    }
}
