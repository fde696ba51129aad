//! What packets wait for at the bottleneck: its queue, and the rate at which that is served.

use std::{ops::RangeInclusive, time::Duration};

use kcp9::proto::Instant;

use crate::Rng;

/// How a bottleneck serves what waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Shape {
    /// At its rate.
    #[default]
    Fixed,
    /// What has been served at its rate leaves at once, each time that so many microseconds have passed, as the frames of Wi-Fi do.
    Bursts(RangeInclusive<u64>),
    /// At its rate or less, down to a tenth, for so many microseconds each time, as the link of a moving phone.
    Changing(RangeInclusive<u64>),
    /// Nothing waits. What exceeds its rate is dropped, but for bursts of so many bytes.
    Policer(u64),
}

/// The transmitter of one direction, or of several that share it.
pub(crate) struct Transmitter {
    rng: Rng,
    /// When it has sent what waits for it.
    idle_at: Instant,
    /// Most bytes that have waited for it.
    pub(crate) longest_queue: usize,
    /// Bursts: when the next one leaves. Changing: until when the present rate holds.
    until: Instant,
    /// Changing: the present rate, in hundredths of the highest.
    percent: u64,
    /// Policer: bytes that may pass, as of `idle_at`.
    tokens: u64,
}

/// A packet that has been taken.
pub(crate) struct Served {
    pub(crate) departure: Instant,
    /// More bytes wait with it than may without a mark.
    pub(crate) is_marked: bool,
}

/// What limits a transmitter: bytes a second, and bytes that wait.
pub(crate) struct Limits<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) rate: u64,
    pub(crate) queue: usize,
    /// Packets that may not be marked are dropped above it.
    pub(crate) mark_above: usize,
    pub(crate) may_mark: bool,
}

impl Transmitter {
    pub(crate) const fn new(rng: Rng) -> Self {
        Self { rng, idle_at: Instant::ZERO, longest_queue: 0, until: Instant::ZERO, percent: 100, tokens: 0 }
    }

    /// A packet of `len` bytes comes. `None` if it is dropped.
    pub(crate) fn serve(&mut self, now: Instant, len: usize, limits: &Limits<'_>) -> Option<Served> {
        if let Shape::Policer(burst) = limits.shape {
            let earned = (now - self.idle_at).as_micros() as u64 * limits.rate / 1_000_000;
            self.tokens = (self.tokens + earned).min(*burst);
            self.idle_at = now;
            self.tokens = self.tokens.checked_sub(len as u64)?;
            return Some(Served { departure: now, is_marked: false });
        }
        let wait = self.idle_at - now;
        let waiting = self.bytes_in(wait, limits.rate) + len;
        let is_marked = waiting > limits.mark_above;
        if waiting > limits.queue || (is_marked && !limits.may_mark) {
            return None;
        }
        self.longest_queue = self.longest_queue.max(waiting);
        self.idle_at = now + wait;
        self.transmit(len as u64, limits);
        let mut departure = self.idle_at;
        if let Shape::Bursts(interval) = limits.shape {
            while self.until < departure {
                self.until += Duration::from_micros(self.rng.within(interval.clone()));
            }
            departure = self.until;
        }
        Some(Served { departure, is_marked })
    }

    fn bytes_in(&self, time: Duration, rate: u64) -> usize {
        (time.as_micros() as u64 * rate / 1_000_000 * self.percent / 100) as usize
    }

    fn transmit(&mut self, len: u64, limits: &Limits<'_>) {
        if let Shape::Changing(interval) = limits.shape {
            while self.until <= self.idle_at {
                // A third of the rates are the highest or the lowest, and the logarithms of the others are even.
                let exponent = self.rng.within(0..=1_500) as f64 / 1_000.0 - 1.25;
                self.percent = (100.0 * 10_f64.powf(exponent.clamp(-1.0, 0.0))) as u64;
                self.until += Duration::from_micros(self.rng.within(interval.clone()));
            }
        }
        self.idle_at += Duration::from_micros(len * 100_000_000 / (limits.rate * self.percent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 12_500_000;

    /// When packets of 1,250 bytes depart that come every `micros`, for ten seconds.
    fn departures(shape: Shape, micros: u64) -> Vec<Instant> {
        let limits =
            Limits { shape: &shape, rate: RATE, queue: 62_500, mark_above: usize::MAX, may_mark: false };
        let mut transmitter = Transmitter::new(Rng::new(1));
        let times = (0..10_000_000 / micros).map(|turn| Instant::ZERO + Duration::from_micros(turn * micros));
        times.filter_map(|now| Some(transmitter.serve(now, 1_250, &limits)?.departure)).collect()
    }

    #[test]
    fn every_shape_serves_its_rate() {
        // 100,000 packets, or with the mean of the rates 0.41.
        for (shape, least, most) in [
            (Shape::Fixed, 99_900, 100_100),
            (Shape::Bursts(4_000..=10_000), 99_900, 100_100),
            (Shape::Changing(200_000..=800_000), 25_000, 60_000),
            (Shape::Policer(78_125), 99_900, 100_200),
        ] {
            let served = departures(shape.clone(), 50).len();
            assert!((least..=most).contains(&served), "{shape:?}: {served}");
        }
    }

    #[test]
    fn bursts_leave_at_once() {
        let mut times = departures(Shape::Bursts(4_000..=10_000), 100);
        times.dedup();
        assert!((1_250..1_700).contains(&times.len()), "{}", times.len());
        assert!(times.windows(2).all(|pair| (4_000..=10_000).contains(&(pair[1] - pair[0]).as_micros())));
    }

    #[test]
    fn a_policer_lets_a_burst_pass_and_then_its_rate() {
        let times = departures(Shape::Policer(12_500), 50);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= Duration::from_micros(100)));
        let shape = Shape::Policer(12_500);
        let limits = Limits { shape: &shape, rate: RATE, queue: 0, mark_above: usize::MAX, may_mark: false };
        let mut transmitter = Transmitter::new(Rng::new(1));
        let now = Instant::from_millis(1_000);
        let passed = (0..20).filter(|_| transmitter.serve(now, 1_250, &limits).is_some()).count();
        assert_eq!(passed, 10);
    }
}
