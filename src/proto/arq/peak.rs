//! How much of a buffer was in use of late.

/// Observations after which a maximum is forgotten, unless it was reached again.
const MEMORY: u32 = 64;

/// The maximum of the last observations: at least [`MEMORY`] of them, at most twice as many. What repeats within that
/// keeps its memory; what does not gives it back.
#[derive(Debug, Default)]
pub(super) struct Peak {
    current: usize,
    previous: usize,
    observations: u32,
}

impl Peak {
    pub(super) fn observe(&mut self, in_use: usize) {
        self.current = self.current.max(in_use);
        self.observations += 1;
        if self.observations == MEMORY {
            self.previous = core::mem::replace(&mut self.current, in_use);
            self.observations = 0;
        }
    }

    pub(super) fn get(&self) -> usize {
        self.current.max(self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_what_repeats_and_forgets_what_does_not() {
        let mut peak = Peak::default();
        for i in 0..1_000 {
            peak.observe(if i % 50 == 0 { 20 } else { 1 });
            assert_eq!(peak.get(), 20, "{i}");
        }
        for _ in 0..2 * MEMORY {
            peak.observe(1);
        }
        assert_eq!(peak.get(), 1);
    }
}
