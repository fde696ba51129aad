//! The core's own clock type: it is handed in with every call and never read.

use core::{
    fmt,
    num::NonZeroU64,
    ops::{Add, AddAssign, Sub},
    time::Duration,
};

/// A point on a monotonic clock, in microseconds since an origin that the caller chooses.
///
/// The core compares instants with each other and writes their milliseconds (modulo 2^32) into segments as `ts`;
/// it never asks an operating system for the time. All arithmetic saturates, at 2^64 - 2 microseconds: no input can make it panic.
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(PlusOne);

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Self = Self::from_micros(0);
    /// The end of the clock, where saturating arithmetic stops: as a deadline it never comes.
    pub(crate) const NEVER: Self = Self(PlusOne::MAX);

    /// The instant `micros` microseconds after the origin.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(PlusOne::new(micros))
    }

    /// The instant `millis` milliseconds after the origin.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self::from_micros(millis.saturating_mul(1_000))
    }

    /// Microseconds since the origin.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0.get()
    }

    /// The clock as it stands in a segment's `ts` field: whole milliseconds modulo 2^32.
    #[must_use]
    pub const fn as_ts(self) -> u32 {
        (self.as_micros() / 1_000) as u32
    }

    /// The time from `earlier` to `self`, zero when `earlier` is the later one.
    #[must_use]
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        // Both are one above their numbers.
        Duration::from_micros(self.0.0.get().saturating_sub(earlier.0.0.get()))
    }
}

impl Default for Instant {
    fn default() -> Self {
        Self::ZERO
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
        write!(f, "{}.{:06}s", self.as_micros() / 1_000_000, self.as_micros() % 1_000_000)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn add(self, delay: Duration) -> Self {
        Self(PlusOne(self.0.0.saturating_add(micros_of(delay))))
    }
}

impl Add<Micros> for Instant {
    type Output = Self;

    #[inline]
    fn add(self, delay: Micros) -> Self {
        Self(PlusOne(self.0.0.saturating_add(delay.as_micros())))
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

/// A duration in whole microseconds, rounded down. It takes 8 bytes and a [`Duration`] takes 16: for what each session keeps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Micros(PlusOne);

impl Micros {
    pub(crate) const ZERO: Self = Self(PlusOne::new(0));

    #[inline]
    pub(crate) const fn new(duration: Duration) -> Self {
        Self(PlusOne::new(micros_of(duration)))
    }

    pub(crate) const fn as_micros(self) -> u64 {
        self.0.get()
    }

    pub(crate) const fn get(self) -> Duration {
        Duration::from_micros(self.as_micros())
    }
}

/// In 64 bits, because this runs for every packet and `Duration::as_micros` computes in 128.
#[inline]
const fn micros_of(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(duration.subsec_micros() as u64)
}

impl From<Duration> for Micros {
    #[inline]
    fn from(duration: Duration) -> Self {
        Self::new(duration)
    }
}

impl Default for Micros {
    fn default() -> Self {
        Self::ZERO
    }
}

impl fmt::Debug for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// A number, stored as the next one. Zero is never stored, so an `Option` can use it for `None` and takes no more memory than the
/// number. A session has dozens of deadlines that may be unset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct PlusOne(NonZeroU64);

impl PlusOne {
    const MAX: Self = Self(NonZeroU64::MAX);

    const fn new(number: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(number))
    }

    const fn get(self) -> u64 {
        self.0.get() - 1
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
