//! At which rate segments are lost whatever the window is.

use core::time::Duration;

use crate::proto::time::Instant;

/// Segments that a measurement takes, at least.
const SEGMENTS: u64 = 96;
/// Losses that raise no question, and the most that are taken for the path's own, in 1024ths: 3 % and 12 %. Where more is
/// lost than that, the window must not be as large as if nothing were.
const FEW: u64 = 30;
const MOST: u64 = 123;
/// How long what was found out holds.
const VALIDITY: Duration = Duration::from_secs(10);

/// Rates are of segments, in 1024ths.
#[derive(Debug, Default)]
pub(super) struct LossLevel {
    acked: u64,
    lost: u64,
    /// Of the last measurement.
    last: u64,
    /// The path's own, and since when.
    accepted: u64,
    accepted_at: Instant,
}

impl LossLevel {
    pub(super) fn add(&mut self, acked: u64, lost: u64) {
        self.acked += acked;
        self.lost += lost;
    }

    /// A round ends. Returns the loss rate if it is higher than the path's own.
    pub(super) fn end_round(&mut self, now: Instant) -> Option<u64> {
        let sent = self.acked + self.lost;
        if sent < SEGMENTS {
            return None;
        }
        self.last = self.lost * 1_024 / sent;
        self.clear();
        if now - self.accepted_at >= VALIDITY {
            self.accepted = 0;
        }
        self.is_excessive().then_some(self.last)
    }

    /// Begins to count anew.
    pub(super) const fn clear(&mut self) {
        (self.acked, self.lost) = (0, 0);
    }

    /// Whether more than a few were lost.
    pub(super) const fn is_high(&self) -> bool {
        self.last > FEW
    }

    /// Whether more was lost than the path's own.
    pub(super) const fn is_excessive(&self) -> bool {
        self.last > self.accepted + self.accepted / 2 + FEW
    }

    /// `rate` is the path's own. Returns whether it may be.
    pub(super) fn accept(&mut self, now: Instant, rate: u64) -> bool {
        (self.accepted, self.accepted_at) = (rate.min(MOST), now);
        rate <= MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_raise_a_question_until_they_are_taken_for_the_paths_own() {
        let mut level = LossLevel::default();
        let (mut now, lose) = (Instant::ZERO, |level: &mut LossLevel, now, lost| {
            level.add(1_024 - lost, lost);
            level.end_round(now)
        });
        assert_eq!(lose(&mut level, now, 30), None);
        assert!(!level.is_high());
        assert_eq!(lose(&mut level, now, 100), Some(100));
        assert!(level.is_high() && level.is_excessive());
        assert!(level.accept(now, 100));
        assert_eq!(lose(&mut level, now, 180), None);
        assert_eq!(lose(&mut level, now, 181), Some(181), "half as many again, and a few");
        now += VALIDITY;
        assert_eq!(lose(&mut level, now, 100), Some(100), "it is asked anew");
        assert!(!level.accept(now, 200));
        assert_eq!(lose(&mut level, now, 200), None, "what is more than that counts as the most");
        assert_eq!(lose(&mut level, now, 230), Some(230));
    }

    #[test]
    fn a_measurement_takes_enough_segments() {
        let mut level = LossLevel::default();
        level.add(10, 5);
        assert_eq!(level.end_round(Instant::ZERO), None);
        level.add(70, 11);
        assert_eq!(level.end_round(Instant::ZERO), Some(16 * 1_024 / 96));
    }
}
