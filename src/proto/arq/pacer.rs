//! A token bucket that spreads new segments over time.
//!
//! ACKs clock a sender well until a gap closes: then one ACK may open most of a window at once, and a burst of that size
//! overruns the queues on the path. The bucket lets through a batch, or what a few milliseconds carry, and then the
//! rate. Resends are charged to it but never wait.

use core::time::Duration;

use crate::proto::time::Instant;

/// Bytes that may go at once: one GSO batch.
const MIN_BURST: i64 = 65_536;
/// Time whose worth of bytes may go at once: timers are not exact.
const BURST_TIME: u64 = 2_000;
/// Time whose worth of bytes a wait is for.
const WAIT_TIME: u64 = 1_000;
const MICROS: u64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Pacer {
    /// Bytes a second, 0 for no limit.
    rate: u64,
    /// Bytes that may go now; negative after a resend or a last segment.
    tokens: i64,
    refilled_at: Instant,
}

impl Pacer {
    pub(super) const fn new(now: Instant) -> Self {
        Self { rate: 0, tokens: MIN_BURST, refilled_at: now }
    }

    /// Adds what the time since the last call is worth at `rate` bytes a second (0 for no limit).
    pub(super) fn refill(&mut self, now: Instant, rate: u64) {
        self.rate = rate;
        if rate == 0 {
            return;
        }
        let burst = MIN_BURST.max(bytes_in(rate, BURST_TIME));
        let elapsed = (now - self.refilled_at).as_micros() as u64;
        self.tokens = self.tokens.saturating_add(bytes_in(rate, elapsed)).min(burst);
        self.refilled_at = now;
    }

    #[inline]
    pub(super) const fn permits(&self) -> bool {
        self.rate == 0 || self.tokens > 0
    }

    #[inline]
    pub(super) const fn spend(&mut self, bytes: usize) {
        self.tokens = self.tokens.saturating_sub(bytes as i64);
    }

    /// When segments may go again; `None` when they may now.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.permits() {
            return None;
        }
        let debt = self.tokens.unsigned_abs();
        let micros = debt.saturating_mul(MICROS) / self.rate + WAIT_TIME;
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
    fn lets_a_batch_go_and_then_the_rate() {
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
    fn without_a_rate_nothing_waits() {
        let mut pacer = Pacer::new(Instant::ZERO);
        pacer.refill(Instant::ZERO, 0);
        pacer.spend(1 << 30);
        assert!(pacer.permits());
        assert_eq!(pacer.deadline(), None);
    }
}
