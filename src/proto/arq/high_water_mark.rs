//! How many of something were in use recently, at most.

/// Periods after which a maximum is forgotten, unless it was reached again.
const MEMORY: u32 = 64;

/// The most that were in use in recent periods: in at least [`MEMORY`] of them, in at most twice as many.
///
/// Buffers are kept for reuse by this measure. A need that returns within that time finds its memory again; a need that does not
/// return gives its memory back. A window has fewer segments than 2^32, and so are these.
#[derive(Debug, Default)]
pub(super) struct HighWaterMark {
    current: u32,
    previous: u32,
    /// Periods that `current` spans.
    periods: u32,
}

impl HighWaterMark {
    /// Notes that `in_use` are in use now.
    pub(super) fn rise_to(&mut self, in_use: usize) {
        self.current = self.current.max(in_use as u32);
    }

    /// Ends a period, with `in_use` in use at its end. What a period is, its user decides: an operation that the buffers serve.
    pub(super) fn end_period(&mut self, in_use: usize) {
        self.rise_to(in_use);
        self.periods += 1;
        if self.periods == MEMORY {
            self.previous = core::mem::replace(&mut self.current, in_use as u32);
            self.periods = 0;
        }
    }

    pub(super) fn get(&self) -> usize {
        self.current.max(self.previous) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_a_need_that_repeats_and_forgets_one_that_does_not() {
        let mut mark = HighWaterMark::default();
        for period in 0..1_000 {
            mark.rise_to(if period % 50 == 0 { 20 } else { 1 });
            mark.end_period(1);
            assert_eq!(mark.get(), 20, "{period}");
        }
        for _ in 0..2 * MEMORY {
            mark.end_period(1);
        }
        assert_eq!(mark.get(), 1);
    }

    #[test]
    fn what_is_in_use_for_long_is_not_forgotten() {
        let mut mark = HighWaterMark::default();
        mark.rise_to(7);
        for _ in 0..10 * MEMORY {
            mark.end_period(7);
            assert_eq!(mark.get(), 7);
        }
    }
}
