//! A token bucket that spreads new segments over time.
//!
//! ACKs clock a sender well until a gap closes: then one ACK may open most of a window at once, and a burst of that size
//! overruns the queues on the path. The bucket lets through a batch, or what a few milliseconds carry, and then the
//! rate. Resends never wait, nor are they charged: the rate is of what arrives, so that on a path that loses more than the
//! gain makes up for, charges would lower it further and further.

use core::time::Duration;

use crate::proto::time::Instant;

/// Bytes that may go at once: one GSO batch.
const MIN_BURST: i64 = 65_536;
/// Bytes that may go at once whatever went beside: messages of an application that sends few, whose rate says little.
const KEPT_BURST: i64 = MIN_BURST / 4;
/// Time whose worth of bytes may go at once: timers are not exact.
const BURST_TIME: u64 = 2_000;
/// Time whose worth of bytes a wait is for.
const WAIT_TIME: u64 = 1_000;
/// A run begins with a part of a second's worth of bytes at least, up to what is worth a system call: on fast paths ACKs
/// come so often that a segment or two would go with each. A burst that is kept may always go.
const RUNS_A_SECOND: u64 = 10_000;
const MAX_RUN: i64 = KEPT_BURST - 1;
/// Below that, as on paths of less than 40 MB/s, a segment goes whenever it may.
const FAST_RUN: i64 = 4_096;
const MICROS: u64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Pacer {
    /// Bytes a second, 0 for no limit.
    rate: u64,
    /// Bytes that may go now; negative after a last segment.
    tokens: i64,
    refilled_at: Instant,
    /// What the last refills were worth beyond whole bytes, in millionths of one.
    fraction: u64,
}

impl Pacer {
    pub(super) const fn new(now: Instant) -> Self {
        Self { rate: 0, tokens: MIN_BURST, refilled_at: now, fraction: 0 }
    }

    /// Adds what the time since the last call is worth at `rate` bytes a second (0 for no limit).
    pub(super) fn refill(&mut self, now: Instant, rate: u64) {
        self.rate = rate;
        let since = core::mem::replace(&mut self.refilled_at, now);
        if rate == 0 {
            self.tokens = MIN_BURST;
            self.fraction = 0;
            return;
        }
        let elapsed = (now - since).as_micros();
        let burst = MIN_BURST.max(bytes_in(rate, BURST_TIME));
        // Calls may come more often than a byte is earned: what is less than one is kept.
        let earned = u128::from(rate) * elapsed + u128::from(self.fraction);
        self.fraction = (earned % u128::from(MICROS)) as u64;
        let bytes = i64::try_from(earned / u128::from(MICROS)).unwrap_or(i64::MAX);
        self.tokens = self.tokens.saturating_add(bytes).min(burst);
    }

    #[inline]
    pub(super) const fn permits(&self) -> bool {
        self.rate == 0 || self.tokens > 0
    }

    /// Whether a run of segments may begin, which goes on while it is [permitted](Self::permits).
    pub(super) const fn permits_run(&self) -> bool {
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

    #[inline]
    pub(super) const fn spend(&mut self, bytes: usize) {
        if self.rate > 0 {
            self.tokens = self.tokens.saturating_sub(bytes as i64);
        }
    }

    /// Charges what goes beside the segments to the burst that they might send, down to what always remains of it. It
    /// takes nothing from the rate: that is what the path delivers of segments with all else that it carries, and would
    /// count the same bytes twice.
    pub(super) fn spend_burst(&mut self, bytes: usize) {
        if self.rate > 0 && self.tokens > KEPT_BURST {
            self.tokens = self.tokens.saturating_sub(bytes as i64).max(KEPT_BURST);
        }
    }

    /// When segments may go again; `None` when they may now.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.permits_run() {
            return None;
        }
        // At least the byte that is missing, or nothing may go even then.
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
    fn refills_more_often_than_bytes_are_earned_lose_nothing() {
        for rate in [7, 999, 50_000] {
            let mut pacer = Pacer::new(Instant::ZERO);
            pacer.refill(Instant::ZERO, rate);
            pacer.spend(MIN_BURST as usize);
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
    fn a_wait_ends_with_a_permit() {
        for rate in [1, 10, 999, 1_001, 50_000_000, 3_000_000_000] {
            let mut pacer = Pacer::new(Instant::ZERO);
            pacer.refill(Instant::ZERO, rate);
            pacer.spend(MIN_BURST as usize);
            let at = pacer.deadline().unwrap();
            pacer.refill(at, rate);
            assert!(pacer.permits_run(), "{rate}");
        }
    }

    /// On a fast path a run does not begin with a segment or two; on others, whatever may go goes.
    #[test]
    fn runs_of_a_fast_path_are_worth_their_call() {
        for (rate, least) in
            [(1_000_000, 0), (40_000_000, 0), (100_000_000, 10_000), (2_000_000_000, MAX_RUN)]
        {
            let mut pacer = Pacer::new(Instant::ZERO);
            pacer.refill(Instant::ZERO, rate);
            pacer.spend(MIN_BURST as usize + 1_400);
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
    fn what_went_without_a_rate_is_not_owed_under_one() {
        let mut pacer = Pacer::new(Instant::ZERO);
        pacer.refill(Instant::ZERO, 0);
        pacer.spend(1 << 30);
        pacer.refill(Instant::from_millis(1), 1_000);
        assert!(pacer.permits());
    }

    #[test]
    fn what_goes_beside_takes_the_burst_and_not_the_rate() {
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
    fn without_a_rate_nothing_waits() {
        let mut pacer = Pacer::new(Instant::ZERO);
        pacer.refill(Instant::ZERO, 0);
        pacer.spend(1 << 30);
        assert!(pacer.permits());
        assert_eq!(pacer.deadline(), None);
    }
}
