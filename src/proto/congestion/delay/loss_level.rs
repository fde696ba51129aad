//! Which losses are the path's own, and which are those of a full queue.

/// Rates are in 1024ths of all segments. The most that is taken for the path's own: 15 %. Where more is lost, the window must not be as large
/// as if nothing were.
const MOST: u64 = 154;
/// Beyond twice the path's own, so much means nothing: 1 %.
const FEW: u64 = 10;
/// Segments of a measurement of the path's own, at least.
pub(super) const MEASUREMENT: u64 = 128;
/// So many losses beyond those that mean nothing are no chance.
const CHANCE: u64 = 6;

/// The loss rate while the window is small is the path's own, unless others fill the queue then, who do not always. So the lower of two
/// measurements counts. Losses beyond it add up (CUSUM: Page, 1954), until they are no chance.
#[derive(Debug, Default)]
pub(super) struct LossLevel {
    /// The last measurements.
    measured: [Option<u64>; 2],
    /// Segments sent with a small window since, and those of them that were lost.
    sent: u64,
    lost: u64,
    /// Losses beyond what means nothing, in 1024ths.
    beyond: u64,
}

impl LossLevel {
    /// What was lost while the window was small.
    pub(super) fn learn(&mut self, sent: u64, lost: u64) {
        self.beyond = 0;
        self.sent = self.sent.saturating_add(sent);
        self.lost = self.lost.saturating_add(lost);
        if self.sent >= MEASUREMENT {
            let rate = self.lost.saturating_mul(1_024) / self.sent;
            self.measured = [Some(rate.min(MOST)), self.measured[0]];
            (self.sent, self.lost) = (0, 0);
        }
    }

    /// So many were not lost after all.
    pub(super) const fn forgive(&mut self, segments: u64) {
        self.beyond = self.beyond.saturating_sub(segments.saturating_mul(1_024));
    }

    /// The path's own.
    pub(super) fn own(&self) -> u64 {
        self.measured.iter().flatten().copied().min().unwrap_or(0)
    }

    /// The same in millionths, to be [resumed](Self::resume).
    pub(super) fn own_ppm(&self) -> u32 {
        (self.own() * 1_000_000 / 1_024) as u32
    }

    /// What was found before a pause; 0 for nothing.
    pub(super) fn resume(&mut self, ppm: u32) {
        let own = (u64::from(ppm) * 1_024).div_ceil(1_000_000).min(MOST);
        self.measured[0] = (own > 0).then_some(own);
    }

    /// What has to be sent so that `bytes` arrive.
    pub(super) fn with_own(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(1_024) / (1_024 - self.own())
    }

    /// What was lost otherwise. Returns whether that is a full queue.
    pub(super) fn add(&mut self, sent: u64, lost: u64) -> bool {
        let nothing = sent.saturating_mul(2 * self.own() + FEW);
        self.beyond = self.beyond.saturating_add(lost.saturating_mul(1_024)).saturating_sub(nothing);
        let found = self.beyond >= CHANCE * 1_024;
        if found {
            self.beyond = 0;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_beyond_the_paths_own_add_up() {
        let mut level = LossLevel::default();
        level.learn(100, 10);
        assert_eq!(level.own(), 0, "that is no measurement yet");
        level.learn(100, 10);
        assert_eq!((level.own(), level.with_own(9_000)), (102, 9_995));
        // Twice 102 of 1,024, and 10, mean nothing: 21,400 of 102,400.
        let mut rounds = |sent, lost| (1..=100).find(|_| level.add(sent, lost));
        assert_eq!(rounds(100, 20), None);
        assert_eq!(rounds(100, 25), Some(2), "4,200 each time, of 6,144");
        assert_eq!(rounds(100, 25), Some(2), "it begins anew");
    }

    #[test]
    fn what_was_measured_outlives_a_pause() {
        for (sent, lost) in [(200, 0), (128, 1), (200, 20), (200, 100)] {
            let (mut level, mut other) = (LossLevel::default(), LossLevel::default());
            level.learn(sent, lost);
            other.resume(level.own_ppm());
            assert_eq!(other.own(), level.own());
        }
    }

    #[test]
    fn what_is_lost_where_nothing_should_be_is_a_full_queue() {
        let mut level = LossLevel::default();
        level.learn(200, 0);
        assert!(!level.add(100, 6) && level.add(10, 2));
        assert!(!level.add(100, 6));
        level.forgive(2);
        assert!(!level.add(10, 2), "two were not lost after all");
    }

    #[test]
    fn the_lower_of_two_measurements_is_the_paths_own_and_it_is_not_most() {
        let mut level = LossLevel::default();
        level.learn(200, 0);
        level.learn(200, 20);
        assert_eq!(level.own(), 0);
        level.learn(200, 20);
        assert_eq!(level.own(), 102);
        (0..2).for_each(|_| level.learn(200, 100));
        assert_eq!(level.own(), MOST);
    }
}
