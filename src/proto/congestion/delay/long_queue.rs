//! A queue that is longer than sessions of this kind make it.

use core::time::Duration;

/// So long, and half as long as the path, for so many rounds.
const LONG: Duration = Duration::from_millis(25);
const ROUNDS: u8 = 3;

/// Rounds in a row with a long queue.
#[derive(Debug, Default)]
pub(super) struct LongQueue(u8);

impl LongQueue {
    /// A round ends in which the queue was so long.
    pub(super) fn end_round(&mut self, base: Duration, delay: Duration) {
        let is_long = delay >= LONG.max(base / 2);
        self.0 = if is_long { self.0.saturating_add(1) } else { 0 };
    }

    /// Whether it was long for a while, so that others probably fill it.
    pub(super) const fn is_others(&self) -> bool {
        self.0 >= ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_is_long_for_a_while_is_others() {
        const BASE: Duration = Duration::from_millis(60);
        let mut queue = LongQueue::default();
        let round = |millis| {
            queue.end_round(BASE, Duration::from_millis(millis));
            queue.is_others()
        };
        assert_eq!([30, 30, 29, 30, 30, 30, 29].map(round), [false, false, false, false, false, true, false]);
    }
}
