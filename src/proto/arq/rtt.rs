//! Round-trip time and the retransmission timeout: RFC 6298 with KCP's bounds.

use core::time::Duration;

use crate::proto::config::NoDelay;

/// RTO before the first sample.
const INITIAL_RTO: Duration = Duration::from_millis(200);
pub(super) const MAX_RTO: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Rtt {
    srtt: Option<Duration>,
    var: Duration,
    min: Duration,
    rto: Duration,
}

impl Default for Rtt {
    fn default() -> Self {
        Self { srtt: None, var: Duration::ZERO, min: Duration::ZERO, rto: INITIAL_RTO }
    }
}

impl Rtt {
    /// Takes one sample: from a transmission to the arrival of the ACK that echoes its `ts`.
    pub(super) fn sample(&mut self, rtt: Duration, nodelay: &NoDelay) {
        match self.srtt {
            None => {
                self.srtt = Some(rtt);
                self.var = rtt / 2;
                self.min = rtt;
            }
            Some(srtt) => {
                self.var = (self.var * 3 + srtt.abs_diff(rtt)) / 4;
                self.srtt = Some((srtt * 7 + rtt) / 8);
                self.min = self.min.min(rtt);
            }
        }
        self.update_rto(nodelay);
    }

    /// Computes the RTO anew: after a sample, or when the knobs change.
    pub(super) fn update_rto(&mut self, nodelay: &NoDelay) {
        if let Some(srtt) = self.srtt {
            let rto = srtt + (self.var * 4).max(nodelay.interval);
            self.rto = rto.clamp(nodelay.min_rto(), MAX_RTO);
        }
    }

    pub(super) const fn rto(&self) -> Duration {
        self.rto
    }

    /// Smoothed round-trip time, zero before the first sample.
    pub(super) fn smoothed(&self) -> Duration {
        self.srtt.unwrap_or_default()
    }

    pub(super) const fn variation(&self) -> Duration {
        self.var
    }

    pub(super) const fn min(&self) -> Duration {
        self.min
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn rfc_6298_by_hand() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.rto(), ms(200));
        rtt.sample(ms(100), &NoDelay::FAST3);
        // srtt 100, var 50: 100 + 4 * 50.
        assert_eq!((rtt.smoothed(), rtt.variation(), rtt.rto()), (ms(100), ms(50), ms(300)));
        rtt.sample(ms(180), &NoDelay::FAST3);
        // var (3*50 + 80) / 4 = 57.5, srtt (7*100 + 180) / 8 = 110.
        assert_eq!((rtt.smoothed(), rtt.variation()), (ms(110), Duration::from_micros(57_500)));
        assert_eq!(rtt.rto(), ms(340));
        assert_eq!(rtt.min(), ms(100));
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
        assert_eq!(rtt.rto(), ms(120));
    }
}
