//! A token bucket that spreads new segments over time.
//!
//! ACKs clock a sender well until a gap closes. Then one ACK may open most of a window at once, and a burst of that size
//! overruns the queues on the path. The bucket lets a batch go at once, or what a few milliseconds carry, and from then on
//! the rate.
//!
//! Resends never wait, and they are not charged. The rate is that of what arrives. On a path that loses more than the
//! pacing gain makes up for, charging resends would lower the rate further and further.

use core::time::Duration;

use crate::proto::time::Instant;

/// Bytes that may go at once: one GSO batch.
const MIN_BURST: i64 = 65_536;
/// Bytes that the stream may always send at once, whatever was sent beside it: an application that sends few messages has
/// a low measured rate, which says little about the path.
const KEPT_BURST: i64 = MIN_BURST / 4;
/// Microseconds whose worth of bytes may go at once: timers are not exact.
const BURST_TIME: u64 = 2_000;
/// Microseconds whose worth of bytes a wait lasts for.
const WAIT_TIME: u64 = 1_000;
/// A run of segments begins with at least this part of a second's worth of bytes, up to [`MAX_RUN`]. On fast paths ACKs
/// come so often that without it each system call would send a segment or two.
const RUNS_A_SECOND: u64 = 10_000;
/// Bytes that are worth a system call. Less than [`KEPT_BURST`], which may always go.
const MAX_RUN: i64 = KEPT_BURST - 1;
/// Where a run would be shorter than this many bytes, on paths of less than 40 MB/s, a segment goes whenever it may.
const FAST_RUN: i64 = 4_096;
const MICROS: u64 = 1_000_000;

#[derive(Debug)]
pub(in crate::proto) struct Pacer {
    /// Bytes a second, 0 for no limit.
    rate: u64,
    /// Bytes that may go now; negative after a last segment.
    tokens: i64,
    refilled_at: Instant,
    /// The part of a byte that past refills have earned, in millionths.
    fraction: u64,
}

impl Pacer {
    pub(in crate::proto) const fn new(now: Instant) -> Self {
        Self { rate: 0, tokens: MIN_BURST, refilled_at: now, fraction: 0 }
    }

    /// Adds what the time since the last call is worth at `rate` bytes a second (0 for no limit).
    pub(in crate::proto) fn refill(&mut self, now: Instant, rate: u64) {
        self.rate = rate;
        let since = core::mem::replace(&mut self.refilled_at, now);
        if rate == 0 {
            self.tokens = MIN_BURST;
            self.fraction = 0;
            return;
        }
        let elapsed = (now - since).as_micros();
        let burst = MIN_BURST.max(bytes_in(rate, BURST_TIME));
        // Calls may come more often than a byte is earned, so fractions of a byte are kept.
        let earned = u128::from(rate) * elapsed + u128::from(self.fraction);
        self.fraction = (earned % u128::from(MICROS)) as u64;
        let bytes = i64::try_from(earned / u128::from(MICROS)).unwrap_or(i64::MAX);
        self.tokens = self.tokens.saturating_add(bytes).min(burst);
    }

    /// Whether one more segment may go in a run that has begun.
    #[inline]
    pub(in crate::proto) const fn permits(&self) -> bool {
        self.rate == 0 || self.tokens > 0
    }

    /// Whether a run of segments may begin. It goes on for as long as [`permits`](Self::permits) says.
    pub(in crate::proto) const fn permits_run(&self) -> bool {
        self.rate == 0 || self.tokens > self.least_run()
    }

    const fn least_run(&self) -> i64 {
        let run = (self.rate / RUNS_A_SECOND) as i64;
        match run {
            ..FAST_RUN => 0,
            FAST_RUN..MAX_RUN => run,
            _ => MAX_RUN,
        }
    }

    /// Charges a new segment.
    #[inline]
    pub(in crate::proto) const fn spend(&mut self, bytes: u64) {
        if self.rate > 0 {
            self.tokens = self.tokens.saturating_sub(bytes as i64);
        }
    }

    /// Charges what goes beside the segments, datagrams for one. It uses up the burst that segments might send at once,
    /// down to [`KEPT_BURST`], but takes nothing from their rate. The rate is measured with everything else on the path
    /// already, so charging it too would count these bytes twice.
    pub(in crate::proto) fn spend_burst(&mut self, bytes: usize) {
        if self.rate > 0 && self.tokens > KEPT_BURST {
            self.tokens = self.tokens.saturating_sub(bytes as i64).max(KEPT_BURST);
        }
    }

    /// When segments may go again; `None` when they may now.
    pub(in crate::proto) fn deadline(&self) -> Option<Instant> {
        if self.permits_run() {
            return None;
        }
        // At least one byte more than is missing, or nothing could go even then.
        let missing = (self.least_run() - self.tokens).unsigned_abs().saturating_add(1);
        let owed = missing.saturating_mul(MICROS).div_ceil(self.rate);
        let debt = self.tokens.min(0).unsigned_abs();
        let micros = owed.max((debt.saturating_mul(MICROS) / self.rate).saturating_add(WAIT_TIME));
        Some(self.refilled_at + Duration::from_micros(micros))
    }
}

fn bytes_in(rate: u64, micros: u64) -> i64 {
    i64::try_from(u128::from(rate) * u128::from(micros) / u128::from(MICROS)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_goes_at_once_and_then_the_rate_holds() {
        let mut pacer = Pacer::new(Instant::ZERO);
        let rate = 10_000_000;
        let mut sent = 0_u64;
        let mut now = Instant::ZERO;
        while now < Instant::from_millis(1_000) {
            pacer.refill(now, rate);
            while pacer.permits() {
                pacer.spend(1_400);
                sent += 1_400;
            }
            now = pacer.deadline().unwrap();
        }
        assert!((10_000_000..10_100_000).contains(&sent), "{sent}");
    }

    #[test]
    fn refills_more_frequent_than_bytes_lose_nothing() {
        for rate in [7, 999, 50_000] {
            let mut pacer = Pacer::new(Instant::ZERO);
            pacer.refill(Instant::ZERO, rate);
            pacer.spend(MIN_BURST as u64);
            let mut now = Instant::ZERO;
            let mut earned = 0;
            while now < Instant::from_millis(1_000) {
                now += Duration::from_micros(10);
                pacer.refill(now, rate);
                if pacer.permits() {
                    pacer.spend(1);
                    earned += 1;
                }
            }
            assert_eq!(earned, rate);
        }
    }

    #[test]
    fn a_run_may_begin_when_the_wait_ends() {
        for rate in [1, 10, 999, 1_001, 50_000_000, 3_000_000_000] {
            let mut pacer = Pacer::new(Instant::ZERO);
            pacer.refill(Instant::ZERO, rate);
            pacer.spend(MIN_BURST as u64);
            let at = pacer.deadline().unwrap();
            pacer.refill(at, rate);
            assert!(pacer.permits_run(), "{rate}");
        }
    }

    #[test]
    fn on_a_fast_path_a_run_is_worth_a_system_call() {
        for (rate, least) in
            [(1_000_000, 0), (40_000_000, 0), (100_000_000, 10_000), (2_000_000_000, MAX_RUN)]
        {
            let mut pacer = Pacer::new(Instant::ZERO);
            pacer.refill(Instant::ZERO, rate);
            pacer.spend(MIN_BURST as u64 + 1_400);
            let mut now = Instant::ZERO;
            while !pacer.permits_run() {
                assert!(pacer.deadline().is_some_and(|at| at > now), "{rate}");
                now += Duration::from_micros(1);
                pacer.refill(now, rate);
            }
            let earned_at_once = bytes_in(rate, 1);
            assert!(
                (least + 1..=least + 1 + earned_at_once).contains(&pacer.tokens),
                "{rate}: {}",
                pacer.tokens
            );
            assert_eq!(pacer.deadline(), None);
            pacer.spend(1_400);
            assert_eq!(pacer.permits(), pacer.tokens > 0, "a run goes on while there are tokens");
        }
    }

    #[test]
    fn what_was_sent_without_a_rate_is_not_owed_later() {
        let mut pacer = Pacer::new(Instant::ZERO);
        pacer.refill(Instant::ZERO, 0);
        pacer.spend(1 << 30);
        pacer.refill(Instant::from_millis(1), 1_000);
        assert!(pacer.permits());
    }

    #[test]
    fn what_is_sent_beside_the_stream_uses_its_burst_and_not_its_rate() {
        let mut pacer = Pacer::new(Instant::ZERO);
        let rate = 10_000_000;
        let (mut first, mut sent) = (None, 0_u64);
        let mut now = Instant::ZERO;
        while now < Instant::from_millis(1_000) {
            pacer.refill(now, rate);
            pacer.spend_burst(1 << 20);
            while pacer.permits() {
                pacer.spend(1_400);
                sent += 1_400;
            }
            first.get_or_insert(sent);
            now = pacer.deadline().unwrap();
        }
        assert_eq!(first, Some(12 * 1_400), "KEPT_BURST");
        assert!((10_000_000..10_050_000).contains(&sent), "{sent}");
    }

    #[test]
    fn nothing_waits_without_a_rate() {
        let mut pacer = Pacer::new(Instant::ZERO);
        pacer.refill(Instant::ZERO, 0);
        pacer.spend(1 << 30);
        assert!(pacer.permits());
        assert_eq!(pacer.deadline(), None);
    }
}
