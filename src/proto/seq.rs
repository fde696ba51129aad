//! Arithmetic on the protocol's 32-bit counters (`sn`, `una`, `ts`), which wrap modulo 2^32.
//!
//! Two counters are compared by the sign of their difference. This orders values that are less than 2^31 apart, and every
//! window of the protocol is far smaller.

/// The signed distance from `from` to `to`: positive when `to` is ahead.
#[inline]
pub(crate) const fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}

/// Whether `a` comes before `b`.
#[inline]
pub(crate) const fn before(a: u32, b: u32) -> bool {
    distance(a, b) > 0
}

/// Whether `x` lies in the half-open range `[start, end)`.
#[inline]
pub(crate) const fn within(x: u32, start: u32, end: u32) -> bool {
    x.wrapping_sub(start) < end.wrapping_sub(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        assert!(before(u32::MAX, 0));
        assert!(!before(0, u32::MAX));
        assert!(!before(7, 7));
        assert_eq!(distance(u32::MAX - 1, 3), 5);
        assert_eq!(distance(3, u32::MAX - 1), -5);
    }

    #[test]
    fn ranges_survive_the_wrap() {
        assert!(within(u32::MAX, u32::MAX - 2, 2));
        assert!(within(1, u32::MAX - 2, 2));
        assert!(!within(2, u32::MAX - 2, 2));
        assert!(!within(u32::MAX - 3, u32::MAX - 2, 2));
        assert!(!within(5, 5, 5));
    }
}
