//! The core's own clock type: it is handed in with every call and never read.

use core::{
    fmt,
    ops::{Add, AddAssign, Sub},
    time::Duration,
};

/// A point on a monotonic clock, in microseconds since an origin that the caller chooses.
///
/// The core compares instants with each other and writes their milliseconds (modulo 2^32) into segments as `ts`;
/// it never asks an operating system for the time. All arithmetic saturates: no input can make it panic.
///
/// ```
/// use core::time::Duration;
/// use kcp9::proto::Instant;
///
/// let start = Instant::from_millis(5);
/// let later = start + Duration::from_micros(250);
/// assert_eq!(later.as_micros(), 5_250);
/// assert_eq!(later - start, Duration::from_micros(250));
/// assert_eq!(start - later, Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);
    /// The end of the clock, where saturating arithmetic stops: as a deadline it never comes.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The instant `micros` microseconds after the origin.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The instant `millis` milliseconds after the origin.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// Microseconds since the origin.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The clock as it stands in a segment's `ts` field: whole milliseconds modulo 2^32.
    #[must_use]
    pub const fn as_ts(self) -> u32 {
        (self.0 / 1_000) as u32
    }

    /// The time from `earlier` to `self`, zero when `earlier` is the later one.
    #[must_use]
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// The earliest of the deadlines that are set. A deadline at the end of the clock counts as none: it never comes.
pub(crate) fn earliest<const N: usize>(deadlines: [Option<Instant>; N]) -> Option<Instant> {
    let never = Instant::NEVER;
    let at = deadlines.iter().fold(never, |earliest, at| earliest.min(at.unwrap_or(never)));
    (at < never).then_some(at)
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn add(self, delay: Duration) -> Self {
        // In 64 bits, because this runs for every packet and `Duration::as_micros` computes in 128.
        let micros = delay.as_secs().saturating_mul(1_000_000).saturating_add(delay.subsec_micros().into());
        Self(self.0.saturating_add(micros))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, delay: Duration) {
        *self = *self + delay;
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let end = Instant::from_micros(u64::MAX);
        assert_eq!(end + Duration::MAX, end);
        assert_eq!(Instant::ZERO - end, Duration::ZERO);
        assert_eq!(Instant::from_millis(u64::MAX), end);
    }

    #[test]
    fn the_earliest_deadline_is_found() {
        let at = |micros| Some(Instant::from_micros(micros));
        assert_eq!(earliest([None, at(7), None, at(5)]), at(5));
        assert_eq!(earliest([at(u64::MAX), at(9)]), at(9));
        assert_eq!(earliest([None, at(u64::MAX)]), None);
        assert_eq!(earliest([]), None);
    }

    #[test]
    fn ts_wraps_after_49_days() {
        let wrap = Instant::from_millis(1 << 32);
        assert_eq!(wrap.as_ts(), 0);
        assert_eq!((wrap + Duration::from_millis(7)).as_ts(), 7);
        assert_eq!(Instant::from_micros(999).as_ts(), 0);
    }
}
