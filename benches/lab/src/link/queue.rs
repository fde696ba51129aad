//! One direction of the bottleneck: random loss, a drop-tail queue, the transmitter.
//!
//! It is driven by arrivals alone. Departures are computed when a packet comes, and the queue's length at any time is what
//! was let in and departs later.

use std::collections::VecDeque;

use super::{Direction, random::Random, service::Service};

/// Seconds between two looks at the queue.
pub(crate) const SAMPLE: f64 = 0.010;

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fate {
    /// It leaves the transmitter at this time, seconds.
    Departs(f64),
    /// The random loss, which strikes before the queue.
    Lost,
    /// The queue was full, or the policer had no tokens.
    Dropped,
}

#[derive(Debug)]
pub(crate) struct Queue {
    service: Service,
    loss: f64,
    random: Random,
    /// Bytes that may wait, with the packet being sent; none where there is a policer.
    limit: Option<u64>,
    waiting: VecDeque<(f64, u64)>,
    bytes: u64,
    last_departure: f64,
    /// How long a packet would have waited at each multiple of [`SAMPLE`], seconds.
    delays: Vec<f32>,
}

impl Queue {
    pub(crate) fn new(direction: &Direction, seed: u64) -> Self {
        Self {
            service: Service::new(direction.shape, direction.rate, seed),
            loss: direction.loss,
            random: Random::new(seed, 1),
            limit: direction.limit(),
            waiting: VecDeque::new(),
            bytes: 0,
            last_departure: 0.0,
            delays: Vec::new(),
        }
    }

    /// A packet of so many bytes comes. `now` must not go backwards.
    pub(crate) fn offer(&mut self, now: f64, bytes: usize) -> Fate {
        self.sample_until(now);
        if self.loss > 0.0 && self.random.unit() < self.loss {
            return Fate::Lost;
        }
        while let Some(&(departure, gone)) = self.waiting.front()
            && departure <= now
        {
            self.waiting.pop_front();
            self.bytes -= gone;
        }
        let size = bytes as u64;
        if self.limit.is_some_and(|limit| self.bytes + size > limit) {
            return Fate::Dropped;
        }
        let Some(departure) = self.service.serve(now, bytes) else { return Fate::Dropped };
        self.bytes += size;
        self.waiting.push_back((departure, size));
        self.last_departure = departure;
        Fate::Departs(departure)
    }

    /// The samples until `end`. Packets may have come after it.
    pub(crate) fn into_delays(mut self, end: f64) -> Vec<f32> {
        self.sample_until(end);
        self.delays.truncate((end / SAMPLE).round() as usize);
        self.delays
    }

    /// Nothing has come since the last packet, so that what waits then is what departs later.
    fn sample_until(&mut self, now: f64) {
        loop {
            let at = self.delays.len() as f64 * SAMPLE;
            if at >= now {
                break;
            }
            self.delays.push((self.last_departure - at).max(0.0) as f32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Shape;

    const RATE: f64 = 12.5e6;

    fn direction(queue: u64, loss: f64) -> Direction {
        Direction { shape: Shape::Fixed, rate: RATE, queue, loss }
    }

    #[test]
    fn the_tail_is_dropped_by_bytes() {
        let mut queue = Queue::new(&direction(10_000, 0.0), 1);
        let mut fates: Vec<_> = (0..7).map(|_| queue.offer(0.0, 1_500)).collect();
        assert_eq!(fates.pop(), Some(Fate::Dropped));
        assert!(fates.iter().all(|fate| matches!(fate, Fate::Departs(_))), "{fates:?}");
        assert!(matches!(queue.offer(0.0, 1_000), Fate::Departs(_)), "a small one fits");
        assert_eq!(queue.offer(0.000_119, 1_500), Fate::Dropped);
        assert!(matches!(queue.offer(0.000_121, 1_500), Fate::Departs(_)), "one has left");
    }

    #[test]
    fn a_full_queue_passes_the_rate_and_drops_the_rest() {
        let mut queue = Queue::new(&direction(625_000, 0.0), 1);
        // Twice the rate for ten seconds.
        let (mut passed, mut dropped) = (0, 0);
        for packet in 0..166_666 {
            match queue.offer(f64::from(packet) * 60e-6, 1_500) {
                Fate::Departs(_) => passed += 1,
                Fate::Dropped => dropped += 1,
                Fate::Lost => panic!("no loss was asked for"),
            }
        }
        let expected = (10.0 * RATE + 625_000.0) / 1_500.0;
        assert!((f64::from(passed) - expected).abs() < 3.0, "{passed} of {expected}");
        assert_eq!(passed + dropped, 166_666);
        let delays = queue.into_delays(10.0);
        assert_eq!(delays.len(), 1_000);
        assert!((delays[999] - 0.05).abs() < 0.001, "{}", delays[999]);
    }

    #[test]
    fn the_queue_drains_while_nothing_comes() {
        let mut queue = Queue::new(&direction(625_000, 0.0), 1);
        for _ in 0..250 {
            queue.offer(0.001, 1_250);
        }
        queue.offer(0.08, 1_250);
        let delays = queue.into_delays(0.05);
        assert_eq!(delays.len(), 5);
        let expected = [0.0, 0.016, 0.006, 0.0, 0.0];
        assert!(
            delays.iter().zip(expected).all(|(delay, expected)| (delay - expected).abs() < 1e-5),
            "{delays:?}"
        );
    }

    #[test]
    fn loss_is_seeded_strikes_at_its_rate_and_takes_no_room() {
        let fates = |seed| {
            let mut queue = Queue::new(&direction(625_000, 0.05), seed);
            (0..100_000).map(|at| queue.offer(f64::from(at) * 1e-3, 1_500)).collect::<Vec<_>>()
        };
        let first = fates(1);
        let lost = first.iter().filter(|fate| **fate == Fate::Lost).count();
        assert!((4_700..5_300).contains(&lost), "{lost}");
        assert!(!first.contains(&Fate::Dropped));
        assert_eq!(first, fates(1));
        assert_ne!(first, fates(2));
    }

    #[test]
    fn a_policer_has_no_queue() {
        let shape = Shape::Policer { burst: 3_000 };
        let mut queue = Queue::new(&Direction { shape, ..direction(0, 0.0) }, 1);
        assert_eq!(queue.offer(0.5, 1_500), Fate::Departs(0.5));
        assert_eq!(queue.offer(0.5, 1_500), Fate::Departs(0.5));
        assert_eq!(queue.offer(0.5, 1_500), Fate::Dropped);
        assert!(queue.into_delays(1.0).iter().all(|delay| *delay == 0.0));
    }
}
