//! One direction of a path between two ends.
//!
//! A packet first passes the bottleneck (a transmitter of a given rate behind a queue that drops what does not fit),
//! then may be lost, delayed, duplicated or overtaken. Delay alone keeps the order of packets, whatever its jitter;
//! only `reorder` breaks it.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kcp9::proto::{EcnCodepoint, Instant};

use super::{
    rng::Rng,
    transmitter::{Limits, Shape, Transmitter},
};

/// Losses that come in runs: the Gilbert-Elliott model, stepped once a packet.
#[derive(Debug, Clone, Copy)]
pub struct Burst {
    /// Probability that a run of losses begins.
    pub begin: f64,
    /// Probability that it ends.
    pub end: f64,
    /// Probability of losing a packet within a run.
    pub loss: f64,
}

/// What a path does to packets. The default is a perfect one.
#[derive(Debug, Clone, Default)]
pub struct LinkSettings {
    /// Probability of losing a packet.
    pub loss: f64,
    pub burst: Option<Burst>,
    /// Time on the way.
    pub delay: Duration,
    /// Random time on top, up to this.
    pub jitter: Duration,
    /// How long one draw of the jitter holds. All packets of that time are late by the same, as behind a queue that others
    /// fill. With zero, each packet has its own.
    pub jitter_hold: Duration,
    /// Probability that a packet is held up while later ones pass.
    pub reorder: f64,
    /// How long it is held up, at most.
    pub reorder_delay: Duration,
    /// Probability that a packet arrives twice.
    pub duplicate: f64,
    /// Probability that one bit of a packet is flipped.
    pub corrupt: f64,
    /// Bytes per second, `None` for no limit.
    pub rate: Option<u64>,
    /// How it serves what waits.
    pub shape: Shape,
    /// Bytes that wait for the transmitter, at most.
    pub queue: usize,
    /// The longest packet that it carries, in bytes of UDP payload. Longer ones are lost without a word.
    pub max_packet: Option<usize>,
    /// Longer packets that may be fragmented are, and arrive.
    pub fragments: bool,
    /// A packet that finds more bytes waiting gets the mark CE of ECN, or is dropped if it is not ECT (RFC 3168, section 5). `None`: the
    /// queue knows no ECN.
    pub mark_above: Option<usize>,
    /// What becomes of the ECN field behind the queue.
    pub ecn: EcnPath,
    /// Times in which nothing gets through.
    pub blackouts: Vec<Range<Instant>>,
}

impl LinkSettings {
    /// A perfect path of the given delay.
    pub fn delay(delay: Duration) -> Self {
        Self { delay, ..Self::default() }
    }

    #[must_use]
    pub fn loss(self, loss: f64) -> Self {
        Self { loss, ..self }
    }

    #[must_use]
    pub fn rate(self, rate: u64, queue: usize) -> Self {
        Self { rate: Some(rate), queue, ..self }
    }
}

/// What a path does to the ECN fields of packets, apart from marks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EcnPath {
    /// Nothing.
    #[default]
    Kept,
    /// Clears them.
    Bleached,
    /// Makes ECT(1) of ECT(0).
    Remarked,
    /// Drops packets that have one.
    Dropped,
}

/// Decides which packets are lost, by time and content.
pub type Filter = Box<dyn FnMut(Instant, &[u8]) -> bool + Send>;

/// Counts of what became of packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCounts {
    pub offered: u64,
    pub bytes_offered: u64,
    /// Did not fit the queue of the transmitter.
    pub overflowed: u64,
    /// Got the mark CE.
    pub marked: u64,
    pub lost: u64,
    /// Were too long.
    pub too_long: u64,
    /// Were too long, and arrived as fragments.
    pub fragmented: u64,
    /// Held up while later ones passed.
    pub reordered: u64,
    pub duplicated: u64,
    pub corrupted: u64,
}

/// One direction, in use.
pub struct Link {
    pub settings: LinkSettings,
    pub counts: LinkCounts,
    filter: Option<Filter>,
    rng: Rng,
    in_burst: bool,
    transmitter: Arc<Mutex<Transmitter>>,
    last_arrival: Instant,
    /// The present draw of the jitter, and until when it holds.
    jitter: (Duration, Instant),
}

impl Link {
    pub fn new(settings: LinkSettings, rng: Rng) -> Self {
        Self {
            settings,
            counts: LinkCounts::default(),
            filter: None,
            in_burst: false,
            transmitter: Arc::new(Mutex::new(Transmitter::new(rng.clone()))),
            rng,
            last_arrival: Instant::ZERO,
            jitter: (Duration::ZERO, Instant::ZERO),
        }
    }

    /// From here on loses every packet for which `filter` returns `true`, besides those lost anyway.
    pub fn lose_if(&mut self, filter: impl FnMut(Instant, &[u8]) -> bool + Send + 'static) {
        self.filter = Some(Box::new(filter));
    }

    pub fn lose_nothing_more(&mut self) {
        self.filter = None;
        self.settings = LinkSettings { delay: self.settings.delay, ..LinkSettings::default() };
    }

    /// From here on waits for the transmitter of `other`, in the same queue. Both must give it the same rate and queue.
    pub fn share_transmitter(&mut self, other: &Self) {
        self.transmitter = Arc::clone(&other.transmitter);
    }

    /// Most bytes that have waited for the transmitter since the last call.
    pub fn take_longest_queue(&mut self) -> usize {
        std::mem::take(&mut self.transmitter().longest_queue)
    }

    /// Sends a packet without ECN; returns when it arrives: never, once or twice.
    pub fn send(&mut self, now: Instant, packet: &[u8]) -> [Option<Instant>; 2] {
        self.send_marked(now, packet, &mut EcnCodepoint::NotEct, false)
    }

    /// As [`send`](Self::send), with an ECN field, which becomes that with which the packet arrives, and for a packet that may be
    /// fragmented, or not.
    pub fn send_marked(
        &mut self,
        now: Instant,
        packet: &[u8],
        ecn: &mut EcnCodepoint,
        may_fragment: bool,
    ) -> [Option<Instant>; 2] {
        if self.settings.max_packet.is_some_and(|max| packet.len() > max) {
            if !(may_fragment && self.settings.fragments) {
                self.counts.offered += 1;
                self.counts.bytes_offered += packet.len() as u64;
                self.counts.too_long += 1;
                return [None; 2];
            }
            self.counts.fragmented += 1;
        }
        self.counts.offered += 1;
        self.counts.bytes_offered += packet.len() as u64;
        let Some(departure) = self.transmit(now, packet.len(), ecn) else {
            self.counts.overflowed += 1;
            return [None; 2];
        };
        let dropped = self.settings.ecn == EcnPath::Dropped && *ecn != EcnCodepoint::NotEct;
        match self.settings.ecn {
            EcnPath::Bleached => *ecn = EcnCodepoint::NotEct,
            EcnPath::Remarked if *ecn == EcnCodepoint::Ect0 => *ecn = EcnCodepoint::Ect1,
            _ => {}
        }
        if self.loses(now, departure, packet) || dropped {
            self.counts.lost += 1;
            return [None; 2];
        }
        let first = self.arrival(departure);
        let second = self.rng.chance(self.settings.duplicate).then(|| {
            self.counts.duplicated += 1;
            self.arrival(departure)
        });
        [Some(first), second]
    }

    /// Flips a bit of the packet, if it is its turn.
    pub fn corrupt(&mut self, packet: &mut [u8]) {
        if self.rng.chance(self.settings.corrupt) {
            self.counts.corrupted += 1;
            let bit = self.rng.size(0..=packet.len() * 8 - 1);
            packet[bit / 8] ^= 1 << (bit % 8);
        }
    }

    fn transmitter(&self) -> MutexGuard<'_, Transmitter> {
        self.transmitter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn transmit(&mut self, now: Instant, len: usize, ecn: &mut EcnCodepoint) -> Option<Instant> {
        let Some(rate) = self.settings.rate else { return Some(now) };
        let limits = Limits {
            shape: &self.settings.shape,
            rate,
            queue: self.settings.queue,
            mark_above: self.settings.mark_above.unwrap_or(usize::MAX),
            may_mark: *ecn != EcnCodepoint::NotEct,
        };
        let served = self.transmitter().serve(now, len, &limits)?;
        if served.is_marked {
            *ecn = EcnCodepoint::Ce;
            self.counts.marked += 1;
        }
        Some(served.departure)
    }

    fn loses(&mut self, now: Instant, departure: Instant, packet: &[u8]) -> bool {
        let mut lost = self.rng.chance(self.settings.loss);
        if let Some(burst) = self.settings.burst {
            let turn = if self.in_burst { burst.end } else { burst.begin };
            self.in_burst ^= self.rng.chance(turn);
            lost |= self.in_burst && self.rng.chance(burst.loss);
        }
        lost |= self.settings.blackouts.iter().any(|blackout| blackout.contains(&departure));
        lost | self.filter.as_mut().is_some_and(|filter| filter(now, packet))
    }

    fn arrival(&mut self, departure: Instant) -> Instant {
        let delay = self.settings.delay + self.jitter(departure);
        if self.rng.chance(self.settings.reorder) {
            self.counts.reordered += 1;
            return departure + delay + self.rng.duration(self.settings.reorder_delay);
        }
        self.last_arrival = self.last_arrival.max(departure + delay);
        self.last_arrival
    }
    fn jitter(&mut self, now: Instant) -> Duration {
        let hold = self.settings.jitter_hold;
        if hold.is_zero() || now >= self.jitter.1 {
            self.jitter = (self.rng.duration(self.settings.jitter), now + hold);
        }
        self.jitter.0
    }
}
