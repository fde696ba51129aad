//! Congestion avoidance: the cubic curve and Reno's line beside it (RFC 9438, sections 4.2 to 4.5).

use core::time::Duration;

use crate::proto::time::Instant;

/// `C`, in tenths of a segment a second cubed (section 5).
const C_TENTHS: u128 = 4;
/// A second cubed, in cubes of microseconds.
const SECOND_CUBED: u128 = 1_000_000_000_000_000_000;
/// Farther from `K` than this many microseconds, the curve is taken for what it is there: two hours, after which it is past
/// any window.
const FARTHEST: u64 = 1 << 33;

/// The window after a reduction: `β_cubic`, which is 0.7, of `window` (section 4.6).
pub(super) const fn beta(window: u64) -> u64 {
    scale(window, 7, 10)
}

/// The window after a mark of ECN: 0.85 of `window` (RFC 8511, section 3).
pub(super) const fn beta_ecn(window: u64) -> u64 {
    scale(window, 17, 20)
}

const fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = value as u128 * numerator as u128 / denominator as u128;
    if scaled > u64::MAX as u128 { u64::MAX } else { scaled as u64 }
}

/// One congestion avoidance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Curve {
    /// `epoch_start`, later by the time in which the window could not grow.
    epoch_start: Instant,
    w_max: u64,
    /// How long the curve takes to `w_max`, in microseconds.
    k: u64,
    /// The window before the last reduction: from there on Reno grows as without a loss.
    cwnd_prior: u64,
    /// The window that Reno would have.
    w_est: u64,
    /// What `w_est` and the window have earned of a byte, in the unit of what was divided by.
    w_est_credit: u64,
    credit: u64,
}

impl Curve {
    /// Begins at `cwnd`. `w_max`: what the window was when the loss came, if one did.
    pub(super) fn new(now: Instant, cwnd: u64, cwnd_prior: u64, w_max: Option<u64>, mtu: u64) -> Self {
        // Without a loss it is what the window is now, with K = 0 (sections 4.8 and 4.10).
        let w_max = w_max.unwrap_or(cwnd).max(cwnd);
        Self {
            epoch_start: now,
            w_max,
            k: k(w_max - cwnd, mtu),
            cwnd_prior,
            w_est: cwnd,
            w_est_credit: 0,
            credit: 0,
        }
    }

    /// One with K = 0 that has grown to `cwnd` since `since`, but at most from half of that on.
    pub(super) fn grown(now: Instant, since: Instant, cwnd: u64, mtu: u64) -> Self {
        let zero = Self::new(since, 0, 0, None, mtu);
        let mut time = now - since;
        while zero.w_cubic(time, mtu) > cwnd / 2 {
            time = time / 8 * 7;
        }
        let w_max = cwnd - zero.w_cubic(time, mtu);
        Self {
            epoch_start: since + (now - since).saturating_sub(time),
            w_max,
            ..Self::new(now, cwnd, 0, None, mtu)
        }
    }

    /// The window did not grow for `time`.
    pub(super) fn pause(&mut self, time: Duration) {
        self.epoch_start += time;
    }

    /// The window after `acked` bytes are confirmed.
    pub(super) fn grow(&mut self, now: Instant, acked: u64, cwnd: u64, rtt: Duration, mtu: u64) -> u64 {
        let cwnd = cwnd.max(1);
        let t = now - self.epoch_start;
        // Section 4.3: W_est grows by α_cubic for each window that is confirmed: 3 (1 - β) / (1 + β) of a segment, which is
        // 9 / 17, and by a segment once it is as large as the window before the loss.
        let alpha = if self.w_est >= self.cwnd_prior { 17 } else { 9 };
        let earned = u128::from(acked) * u128::from(mtu) * alpha + u128::from(self.w_est_credit);
        let unit = u128::from(cwnd) * 17;
        self.w_est = self.w_est.saturating_add(u64::try_from(earned / unit).unwrap_or(u64::MAX));
        self.w_est_credit = u64::try_from(earned % unit).unwrap_or(0);
        if self.w_cubic(t, mtu) < self.w_est {
            return cwnd.max(self.w_est);
        }
        // Sections 4.2, 4.4 and 4.5: a part of the way to where the curve is in a round trip, at most half the window.
        let target = self.w_cubic(t.saturating_add(rtt), mtu).clamp(cwnd, cwnd.saturating_add(cwnd / 2));
        let earned = u128::from(target - cwnd) * u128::from(acked) + u128::from(self.credit);
        self.credit = u64::try_from(earned % u128::from(cwnd)).unwrap_or(0);
        cwnd.saturating_add(u64::try_from(earned / u128::from(cwnd)).unwrap_or(u64::MAX))
    }

    /// `W_cubic(t) = C (t - K)³ + W_max`, in bytes (section 4.2).
    fn w_cubic(&self, t: Duration, mtu: u64) -> u64 {
        let t = u64::try_from(t.as_micros()).unwrap_or(u64::MAX);
        let offset = u128::from(t.abs_diff(self.k).min(FARTHEST));
        let offset =
            offset * offset * offset / SECOND_CUBED.div_ceil(CUBE_SCALE) * C_TENTHS * u128::from(mtu);
        let bytes = u64::try_from(offset / (10 * CUBE_SCALE)).unwrap_or(u64::MAX);
        if t < self.k { self.w_max.saturating_sub(bytes) } else { self.w_max.saturating_add(bytes) }
    }
}

/// Cubes of microseconds are divided by this much less first than they must be, so that the product with the mtu fits.
const CUBE_SCALE: u128 = 1_000_000;

/// `K = ∛((W_max - cwnd_epoch) / C)`, in microseconds, for windows that differ by `bytes` (section 4.2).
fn k(bytes: u64, mtu: u64) -> u64 {
    let segments = u128::from(bytes).min(1 << 56) * SECOND_CUBED / u128::from(mtu.max(1));
    cube_root(segments * 10 / C_TENTHS)
}

/// The largest number whose cube is no more than `value`, bit by bit.
const fn cube_root(value: u128) -> u64 {
    let mut root = 0_u128;
    let mut bit = 1_u128 << 41;
    while bit > 0 {
        let next = root | bit;
        if next * next * next <= value {
            root = next;
        }
        bit >>= 1;
    }
    root as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u64 = 1_000;
    const RTT: Duration = Duration::from_millis(100);

    #[test]
    fn cube_roots_are_rounded_down() {
        for root in [0, 1, 2, 3, 1_000, 4_217_163, (1 << 42) - 1] {
            let cube = u128::from(root) * u128::from(root) * u128::from(root);
            assert_eq!(cube_root(cube), root);
            assert_eq!(cube_root(cube + 1), root.max(u64::from(root == 0)));
            assert_eq!(cube_root(cube.saturating_sub(1)), root.saturating_sub(1));
        }
    }

    /// Section 4.2: 30 segments below `W_max` take ∛(30 / 0.4) = 4.2172 s.
    #[test]
    fn k_is_the_cube_root_of_the_way_by_c() {
        assert_eq!(k(30 * MTU, MTU), 4_217_163);
        assert_eq!(k(0, MTU), 0);
        assert!(k(u64::MAX, 1) > 1_000_000_000, "no overflow");
    }

    /// After a loss at 100 segments, the curve is at 70, 70 + what 0.4 ((t - K)³ + K³) says, 100 at K, and past it:
    /// W(1 s) = 100 - 0.4 × 3.217163³ = 86.681, W(6 s) = 100 + 0.4 × 1.782837³ = 102.267.
    #[test]
    fn the_curve_has_its_plateau_at_w_max() {
        let curve = Curve::new(Instant::ZERO, 70 * MTU, 100 * MTU, Some(100 * MTU), MTU);
        let at = |millis| curve.w_cubic(Duration::from_millis(millis), MTU);
        assert_eq!([at(0), at(1_000), at(4_217), at(6_000)], [70_001, 86_681, 100_000, 102_266]);
        assert!(at(u64::MAX / 2_000) > 1 << 45, "no overflow");
    }

    /// Section 4.4: from 70 segments a whole window of ACKs goes to where the curve is a round trip later:
    /// W(1 s + 0.1 s) = 100 - 0.4 × 3.117163³ = 87.884.
    #[test]
    fn a_window_of_acks_goes_to_the_curve_of_a_round_trip_later() {
        let mut curve = Curve::new(Instant::ZERO, 70 * MTU, 100 * MTU, Some(100 * MTU), MTU);
        assert_eq!(curve.grow(Instant::from_millis(1_000), 70 * MTU, 70 * MTU, RTT, MTU), 87_885);
        // A tenth of it goes a tenth of the way.
        let mut curve = Curve::new(Instant::ZERO, 70 * MTU, 100 * MTU, Some(100 * MTU), MTU);
        assert_eq!(curve.grow(Instant::from_millis(1_000), 7 * MTU, 70 * MTU, RTT, MTU), 71_788);
    }

    /// Section 4.2: at most half the window in a round trip.
    #[test]
    fn the_target_is_at_most_one_and_a_half_windows() {
        let mut curve = Curve::new(Instant::ZERO, 70 * MTU, 70 * MTU, None, MTU);
        let late = Instant::from_millis(60_000);
        assert_eq!(curve.grow(late, 70 * MTU, 70 * MTU, RTT, MTU), 105 * MTU);
    }

    /// Section 4.3: with a round trip of 10 ms Reno is ahead of the curve. W_est grows by 9 / 17 of a segment for each
    /// window: from 7 segments, 0.529 in the first. Past the window before the loss it grows by one.
    #[test]
    fn reno_leads_on_short_round_trips() {
        let rtt = Duration::from_millis(10);
        let mut curve = Curve::new(Instant::ZERO, 7 * MTU, 10 * MTU, Some(10 * MTU), MTU);
        let (mut now, mut cwnd) = (Instant::ZERO, 7 * MTU);
        for _ in 0..2 {
            now += rtt;
            cwnd = curve.grow(now, cwnd, cwnd, rtt, MTU);
        }
        // The curve is at 10 - 0.4 (1.957 - 0.02)³ = 7.09 by then.
        assert_eq!(cwnd, 7_000 + 529 + 529);
        while cwnd < 10 * MTU {
            now += rtt;
            cwnd = curve.grow(now, cwnd, cwnd, rtt, MTU);
        }
        assert_eq!(curve.grow(now + rtt, cwnd, cwnd, rtt, MTU) - cwnd, MTU);
    }

    /// Fractions of a byte are not lost, however few are confirmed at a time.
    #[test]
    fn small_acks_grow_the_window_as_large_ones_do() {
        let grown = |step: u64| {
            let mut curve = Curve::new(Instant::ZERO, 70 * MTU, 100 * MTU, Some(100 * MTU), MTU);
            let now = Instant::from_millis(1_000);
            (0..700 / step).fold(70 * MTU, |cwnd, _| curve.grow(now, step * 10, cwnd, RTT, MTU))
        };
        assert!(grown(1).abs_diff(grown(100)) <= 20, "{} {}", grown(1), grown(100));
    }

    #[test]
    fn a_pause_moves_the_curve() {
        let mut curve = Curve::new(Instant::ZERO, 70 * MTU, 100 * MTU, Some(100 * MTU), MTU);
        let mut paused = curve;
        paused.pause(Duration::from_secs(3));
        let (early, late) = (Instant::from_millis(1_000), Instant::from_millis(4_000));
        assert_eq!(
            curve.grow(early, 10 * MTU, 70 * MTU, RTT, MTU),
            paused.grow(late, 10 * MTU, 70 * MTU, RTT, MTU)
        );
    }
}
