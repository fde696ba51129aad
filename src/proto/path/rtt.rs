//! Smoothed round-trip time and retransmission timeout: RFC 6298 with KCP's bounds, and a faster start.
//!
//! RFC 6298 begins with a guess, `rttvar = rtt / 2`, and forgets a quarter of it with each sample. A session that
//! exchanges one message in each round trip would resend late for its first ten. Here the first samples are averaged
//! evenly, with the guess as one of them, until the share of a sample is down to that of the RFC.
//!
//! The guess, and the `interval` that is added as a margin, allow for what more traffic brings: queues, and ACKs that are
//! held back. A thin stream, which has only a few segments in flight, has an RTO of its own: without the guess from the
//! second sample on, and with half of the margin. A needless resend costs it little, and a late one is all that its user
//! notices.

use core::time::Duration;

use crate::proto::config::NoDelay;

/// RTO before the first sample.
const INITIAL_RTO: Duration = Duration::from_millis(200);
pub(in crate::proto) const MAX_RTO: Duration = Duration::from_secs(60);
/// RFC 6298's shares of a sample in RTTVAR and SRTT: one part in so many, once there are as many samples.
const VAR_SHARE: u32 = 4;
const SRTT_SHARE: u32 = 8;

/// The estimator of one path.
///
/// Times are in nanoseconds: the arithmetic of `Duration` would be several times as much code, and it takes twice the memory.
#[derive(Debug)]
pub(in crate::proto) struct RttEstimator {
    /// RFC 6298's `SRTT`.
    srtt: u64,
    /// Samples taken, up to [`SRTT_SHARE`].
    samples: u32,
    /// RFC 6298's `RTTVAR`.
    var: u64,
    /// The same without the guess that `var` begins with.
    deviation: u64,
    rto: u64,
    thin_rto: u64,
}

impl Default for RttEstimator {
    fn default() -> Self {
        let rto = nanos(INITIAL_RTO);
        Self { srtt: 0, samples: 0, var: 0, deviation: 0, rto, thin_rto: rto }
    }
}

impl RttEstimator {
    /// Takes one sample: the time from a transmission to the arrival of its ACK.
    pub(in crate::proto) fn sample(&mut self, rtt: Duration, nodelay: &NoDelay) {
        let nanos = nanos(rtt);
        if self.samples == 0 {
            self.samples = 1;
            (self.srtt, self.var) = (nanos, nanos / 2);
        } else {
            self.samples = (self.samples + 1).min(SRTT_SHARE);
            let deviation = self.srtt.abs_diff(nanos);
            self.var = average(self.var, deviation, self.samples.min(VAR_SHARE));
            self.deviation = average(self.deviation, deviation, (self.samples - 1).min(VAR_SHARE));
            self.srtt = average(self.srtt, nanos, self.samples);
        }
        self.update_rto(nodelay);
    }

    /// Computes the RTO anew, after a sample or a change of the knobs.
    pub(in crate::proto) fn update_rto(&mut self, nodelay: &NoDelay) {
        if self.samples == 0 {
            return;
        }
        let (least, margin) = (nanos(nodelay.min_rto()), nanos(nodelay.interval));
        let rto = |var: u64, margin| {
            self.srtt.saturating_add(var.saturating_mul(4).max(margin)).clamp(least, nanos(MAX_RTO))
        };
        self.rto = rto(self.var, margin);
        self.thin_rto = rto(if self.samples > 1 { self.deviation } else { self.var }, margin / 2);
    }

    /// The RTO of a segment's first transmission.
    pub(in crate::proto) const fn rto(&self) -> Duration {
        Duration::from_nanos(self.rto)
    }

    /// The RTO of a thin stream.
    pub(in crate::proto) const fn thin_rto(&self) -> Duration {
        Duration::from_nanos(self.thin_rto)
    }

    /// Smoothed round-trip time, zero before the first sample.
    pub(in crate::proto) const fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.srtt)
    }

    /// The mean deviation, zero before the first sample.
    pub(in crate::proto) const fn variation(&self) -> Duration {
        Duration::from_nanos(self.var)
    }
}

/// The nanoseconds of a sample or a knob: centuries fit.
const fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos() as u64)
}

/// The average of `before` and of a sample that counts for one part in `share`.
fn average(before: u64, sample: u64, share: u32) -> u64 {
    let share = u64::from(share);
    before.saturating_mul(share - 1).saturating_add(sample) / share
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_first_samples_count_evenly_and_later_ones_as_in_rfc_6298() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.rto(), ms(200));
        rtt.sample(ms(100), &NoDelay::FAST3);
        // srtt 100, var 50: 100 + 4 * 50.
        assert_eq!((rtt.smoothed(), rtt.variation(), rtt.rto()), (ms(100), ms(50), ms(300)));
        rtt.sample(ms(180), &NoDelay::FAST3);
        // The mean of both: var (50 + 80) / 2, srtt (100 + 180) / 2.
        assert_eq!((rtt.smoothed(), rtt.variation(), rtt.rto()), (ms(140), ms(65), ms(400)));
        for _ in 2..SRTT_SHARE {
            rtt.sample(ms(140), &NoDelay::FAST3);
        }
        // Two thirds of 65 at the third sample, then three quarters of what was left at each.
        let var = ms(65) * 2 / 3 * 243 / 1_024;
        assert!(rtt.variation().abs_diff(var) < Duration::from_nanos(10), "{rtt:?}");
        rtt.sample(ms(180), &NoDelay::FAST3);
        assert_eq!(rtt.smoothed(), ms(145));
        assert!(rtt.variation().abs_diff((var * 3 + ms(40)) / 4) < Duration::from_nanos(10), "{rtt:?}");
    }

    #[test]
    fn the_rto_of_a_thin_stream_has_no_guess_and_half_the_margin() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.thin_rto(), ms(200));
        rtt.sample(ms(100), &NoDelay::FAST3);
        assert_eq!(rtt.thin_rto(), ms(300));
        rtt.sample(ms(100), &NoDelay::FAST3);
        assert_eq!((rtt.rto(), rtt.thin_rto()), (ms(200), ms(105)));
        // srtt 108, deviations 0 and 24: 108 + 4 * 12.
        rtt.sample(ms(124), &NoDelay::FAST3);
        assert_eq!((rtt.smoothed(), rtt.thin_rto()), (ms(108), ms(156)));
    }

    #[test]
    fn the_rto_keeps_to_the_bounds_of_its_mode() {
        let mut rtt = RttEstimator::default();
        rtt.sample(Duration::from_micros(200), &NoDelay::FAST3);
        assert_eq!(rtt.rto(), ms(30));
        rtt.update_rto(&NoDelay::NORMAL);
        assert_eq!(rtt.rto(), ms(100));
        rtt.sample(Duration::from_secs(1_000), &NoDelay::FAST3);
        assert_eq!(rtt.rto(), MAX_RTO);
    }

    #[test]
    fn a_steady_round_trip_leaves_the_interval_as_margin() {
        let mut rtt = RttEstimator::default();
        for _ in 0..200 {
            rtt.sample(ms(80), &NoDelay::NORMAL);
        }
        assert_eq!((rtt.rto(), rtt.thin_rto()), (ms(120), ms(100)));
    }
}
