//! When a link is done with a packet: its rate over time.
//!
//! All of it is arithmetic on virtual time, in seconds since the scenario began. What is known in advance (the rate of a cellular
//! link, the bursts of Wi-Fi) needs no timer, so a thread that wakes up late changes nothing about the rate.

use super::random::Random;

/// How a link serves packets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    /// One rate.
    Fixed,
    /// A new rate every 0.2 to 0.8 s, from a tenth of the full one to all of it.
    Cellular,
    /// Everything that its rate has served by then leaves every 4 to 10 ms, as aggregated frames do.
    Wifi,
    /// Packets above the rate are dropped, but for bursts of so many bytes; none waits.
    Policer { burst: u64 },
}

/// A [`Shape`] at work.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    shape: Shape,
    /// Bytes a second, at most.
    rate: f64,
    random: Random,
    /// When the last packet has left the transmitter, seconds.
    free_at: f64,
    /// Cellular: the rate, and until when. Wi-Fi: the next burst's time in `until`.
    current: f64,
    until: f64,
    /// Policer: bytes that may pass, as of `free_at`.
    tokens: f64,
}

impl Service {
    pub(crate) fn new(shape: Shape, rate: f64, seed: u64) -> Self {
        let tokens = if let Shape::Policer { burst } = shape { burst as f64 } else { 0.0 };
        Self {
            shape,
            rate,
            random: Random::new(seed, 2),
            free_at: 0.0,
            current: rate,
            until: if shape == Shape::Fixed { f64::INFINITY } else { 0.0 },
            tokens,
        }
    }

    /// When a packet of so many bytes that comes at `now` leaves the link; none if a policer drops it.
    pub(crate) fn serve(&mut self, now: f64, bytes: usize) -> Option<f64> {
        let bytes = bytes as f64;
        match self.shape {
            Shape::Fixed | Shape::Cellular => {
                self.transmit(now, bytes);
                Some(self.free_at)
            }
            Shape::Wifi => {
                self.transmit(now, bytes);
                while self.until < self.free_at {
                    self.until += self.random.between(0.004, 0.010);
                }
                Some(self.until)
            }
            Shape::Policer { burst } => {
                self.tokens = (self.tokens + (now - self.free_at) * self.rate).min(burst as f64);
                self.free_at = now;
                let passes = self.tokens >= bytes;
                if passes {
                    self.tokens -= bytes;
                }
                passes.then_some(now)
            }
        }
    }

    /// Bytes that a link of this kind could carry in this time.
    pub(crate) fn capacity(shape: Shape, rate: f64, seed: u64, from: f64, to: f64) -> f64 {
        if shape != Shape::Cellular {
            return rate * (to - from);
        }
        let mut link = Self::new(shape, rate, seed);
        let (mut at, mut bytes) = (0.0, 0.0);
        while at < to {
            link.step();
            bytes += link.current * (link.until.min(to) - at.max(from)).max(0.0);
            at = link.until;
        }
        bytes
    }

    fn transmit(&mut self, now: f64, mut bytes: f64) {
        let mut at = self.free_at.max(now);
        if self.shape != Shape::Cellular {
            self.free_at = at + bytes / self.rate;
            return;
        }
        loop {
            while self.until <= at {
                self.step();
            }
            let left = (self.until - at) * self.current;
            if bytes <= left {
                break;
            }
            bytes -= left;
            at = self.until;
        }
        self.free_at = at + bytes / self.current;
    }

    /// The next rate of a cellular link. Rates are even on a logarithmic scale, and a third of them are an end of it.
    fn step(&mut self) {
        let exponent = self.random.between(-1.25, 0.25).clamp(-1.0, 0.0);
        self.current = self.rate * 10_f64.powf(exponent);
        self.until += self.random.between(0.2, 0.8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 12.5e6;

    #[test]
    fn the_rate_is_exact_in_the_long_run() {
        let mut link = Service::new(Shape::Fixed, RATE, 1);
        let mut last = 0.0;
        for _ in 0..83_333 {
            last = link.serve(0.0, 1_500).unwrap();
        }
        assert!((last - 83_333.0 * 1_500.0 / RATE).abs() < 1e-6, "{last}");
    }

    #[test]
    fn an_idle_link_saves_nothing_up() {
        let mut link = Service::new(Shape::Fixed, RATE, 1);
        assert_eq!(link.serve(5.0, 1_250), Some(5.0001));
    }

    #[test]
    fn a_cellular_link_changes_tenfold_within_a_second_and_serves_its_capacity() {
        let mut link = Service::new(Shape::Cellular, RATE, 1);
        let (mut changes, mut before) = (0, RATE);
        for _ in 0..200 {
            link.step();
            assert!((RATE * 0.099..=RATE).contains(&link.current));
            changes += usize::from(link.current / before > 9.9 || before / link.current > 9.9);
            before = link.current;
        }
        assert!(changes >= 5, "{changes}");

        let mut link = Service::new(Shape::Cellular, RATE, 1);
        let (mut served, mut packets) = (0.0, 0);
        while served < 20.0 {
            served = link.serve(0.0, 1_500).unwrap();
            packets += 1;
        }
        let capacity = Service::capacity(Shape::Cellular, RATE, 1, 0.0, served);
        assert!((f64::from(packets) * 1_500.0 - capacity).abs() < 1.0, "{packets} packets, {capacity} bytes");
        assert!(capacity > 0.2 * RATE * 20.0 && capacity < 0.8 * RATE * 20.0, "{capacity}");
    }

    #[test]
    fn capacity_of_a_part_adds_up() {
        let of = |from, to| Service::capacity(Shape::Cellular, RATE, 3, from, to);
        assert!((of(0.0, 10.0) + of(10.0, 30.0) - of(0.0, 30.0)).abs() < 1.0);
    }

    #[test]
    fn wifi_serves_bursts_at_the_full_rate() {
        let mut link = Service::new(Shape::Wifi, RATE, 1);
        let left: Vec<_> = (0..10_000).map(|_| link.serve(0.0, 1_500).unwrap()).collect();
        let mut bursts = left.clone();
        bursts.dedup();
        let gaps: Vec<_> = bursts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| (0.0039..0.0101).contains(gap)), "{gaps:?}");
        assert!((left[9_999] - 10_000.0 * 1_500.0 / RATE).abs() < 0.011);
    }

    #[test]
    fn a_policer_lets_a_burst_pass_and_then_the_rate() {
        let mut link = Service::new(Shape::Policer { burst: 15_000 }, RATE, 1);
        let passed = |link: &mut Service, now| (0..100).filter(|_| link.serve(now, 1_500).is_some()).count();
        assert_eq!(passed(&mut link, 0.0), 10);
        // A little more than 7,500 bytes.
        assert_eq!(passed(&mut link, 0.000_601), 5);
        assert_eq!(passed(&mut link, 100.0), 10, "no more than the burst is saved up");
        assert_eq!(Service::new(link.shape, RATE, 1).serve(3.0, 100), Some(3.0), "nothing waits");
    }
}
