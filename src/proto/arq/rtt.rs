//! Round-trip time and the retransmission timeout: RFC 6298 with KCP's bounds, and a faster start.
//!
//! RFC 6298 begins with a guess, `rttvar = rtt / 2`, and forgets it by a quarter per sample. A session that exchanges one
//! message in each round trip resends late for its first ten of them. Here the first samples are averaged evenly, the guess
//! as one of them, until a sample's share is down to the RFC's.
//!
//! Both the guess and the margin, `interval`, are for what more traffic brings about: queues, and ACKs that are held back. A
//! thin stream (see `THIN` in the parent module) has an RTO without the guess from the second sample on, and with half of the margin:
//! a resend for nothing costs it little, and a late one is all that its user notices.

use core::time::Duration;

use crate::proto::config::NoDelay;

/// RTO before the first sample.
const INITIAL_RTO: Duration = Duration::from_millis(200);
pub(super) const MAX_RTO: Duration = Duration::from_secs(60);
/// A sample's share of rttvar and of srtt, once there are as many: one in so many.
const VAR_SHARE: u32 = 4;
const SRTT_SHARE: u32 = 8;

/// In nanoseconds what is computed anew for every sample: the arithmetic of `Duration` is several times as much code.
#[derive(Debug)]
pub(super) struct Rtt {
    srtt: u64,
    /// Samples taken, as far as they matter.
    samples: u32,
    var: u64,
    /// The same without the guess that `var` begins with.
    deviation: u64,
    min: Duration,
    rto: Duration,
    thin_rto: Duration,
}

impl Default for Rtt {
    fn default() -> Self {
        Self {
            srtt: 0,
            samples: 0,
            var: 0,
            deviation: 0,
            min: Duration::ZERO,
            rto: INITIAL_RTO,
            thin_rto: INITIAL_RTO,
        }
    }
}

impl Rtt {
    /// Takes one sample: from a transmission to the arrival of the ACK that echoes its `ts`.
    pub(super) fn sample(&mut self, rtt: Duration, nodelay: &NoDelay) {
        let nanos = nanos(rtt);
        if self.samples == 0 {
            self.samples = 1;
            (self.srtt, self.var) = (nanos, nanos / 2);
            self.min = rtt;
        } else {
            self.samples = (self.samples + 1).min(SRTT_SHARE);
            let deviation = self.srtt.abs_diff(nanos);
            self.var = average(self.var, deviation, self.samples.min(VAR_SHARE));
            self.deviation = average(self.deviation, deviation, (self.samples - 1).min(VAR_SHARE));
            self.srtt = average(self.srtt, nanos, self.samples);
            self.min = self.min.min(rtt);
        }
        self.update_rto(nodelay);
    }

    /// Computes the RTO anew: after a sample, or when the knobs change.
    pub(super) fn update_rto(&mut self, nodelay: &NoDelay) {
        if self.samples == 0 {
            return;
        }
        let (least, margin) = (nanos(nodelay.min_rto()), nanos(nodelay.interval));
        let rto = |var: u64, margin| {
            Duration::from_nanos(
                (self.srtt.saturating_add(var.saturating_mul(4).max(margin))).clamp(least, nanos(MAX_RTO)),
            )
        };
        self.rto = rto(self.var, margin);
        self.thin_rto = rto(if self.samples > 1 { self.deviation } else { self.var }, margin / 2);
    }

    pub(super) const fn rto(&self) -> Duration {
        self.rto
    }

    /// The RTO of a thin stream.
    pub(super) const fn thin_rto(&self) -> Duration {
        self.thin_rto
    }

    /// Smoothed round-trip time, zero before the first sample.
    pub(super) const fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.srtt)
    }

    pub(super) const fn variation(&self) -> Duration {
        Duration::from_nanos(self.var)
    }

    pub(super) const fn min(&self) -> Duration {
        self.min
    }
}

/// The nanoseconds of a sample or a knob: centuries fit.
const fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos() as u64)
}

/// The average of what was, and of a sample that counts for one in `share`.
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
    fn even_shares_and_then_those_of_rfc_6298() {
        let mut rtt = Rtt::default();
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
        assert_eq!(rtt.min(), ms(100));
    }

    #[test]
    fn the_rto_of_a_thin_stream_has_no_guess_and_half_the_margin() {
        let mut rtt = Rtt::default();
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
    fn bounds_of_the_modes() {
        let mut rtt = Rtt::default();
        rtt.sample(Duration::from_micros(200), &NoDelay::FAST3);
        assert_eq!(rtt.rto(), ms(30));
        rtt.update_rto(&NoDelay::NORMAL);
        assert_eq!(rtt.rto(), ms(100));
        rtt.sample(Duration::from_secs(1_000), &NoDelay::FAST3);
        assert_eq!(rtt.rto(), MAX_RTO);
    }

    #[test]
    fn a_steady_round_trip_leaves_the_interval_as_margin() {
        let mut rtt = Rtt::default();
        for _ in 0..200 {
            rtt.sample(ms(80), &NoDelay::NORMAL);
        }
        assert_eq!((rtt.rto(), rtt.thin_rto()), (ms(120), ms(100)));
    }
}
