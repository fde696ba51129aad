//! The clock of two connections, and the packets under way between them.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    mem,
    time::Duration,
};

use kcp9::{
    KcpConfig,
    proto::{Connection, EcnCodepoint, Event, Instant, PacketError, SessionSettings, SettingError},
};

use super::{
    application::Flow,
    end::{Activity, Arrival, End},
    link::{Link, LinkSettings},
    rng::Rng,
};

/// Index of the end that opened the session.
pub const CLIENT: usize = 0;
/// Index of the other one.
pub const SERVER: usize = 1;

const CONV: u32 = 0x6b63_7039;
/// One GSO send, as the net layer's buffer.
const BUFFER: usize = 65_536;
/// Drives at one instant that are taken for an endless exchange.
const MAX_DRIVES_AT_ONCE: u32 = 10_000;

#[derive(Debug)]
struct UnderWay {
    at: Instant,
    /// Orders what arrives at the same time by when it was sent.
    serial: u64,
    to: usize,
    packet: Vec<u8>,
    ecn: EcnCodepoint,
}

impl PartialEq for UnderWay {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for UnderWay {}

impl PartialOrd for UnderWay {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for UnderWay {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

/// Two ends on virtual time.
pub struct Simulation {
    pub seed: u64,
    pub now: Instant,
    pub ends: [End; 2],
    /// What each end writes, and how far the other has read it.
    pub flows: [Flow; 2],
    /// Whether the ends may refuse each other's packets, as with different keys.
    pub may_refuse: bool,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    serial: u64,
    buffer: Vec<u8>,
    arrivals: Vec<Arrival>,
    drives_at_once: u32,
}

impl Simulation {
    /// Two ends of the same configuration with the same path in both directions.
    pub fn new(seed: u64, config: &KcpConfig, link: &LinkSettings) -> Self {
        Self::with(seed, [config, config], [link.clone(), link.clone()], 0, [Duration::ZERO; 2])
    }

    /// Each end with its own configuration, outgoing path and clock; both number segments from `first_sn`.
    pub fn with(
        seed: u64,
        configs: [&KcpConfig; 2],
        links: [LinkSettings; 2],
        first_sn: u32,
        clock_offsets: [Duration; 2],
    ) -> Self {
        Self::between(seed, links, clock_offsets, |side, conv, start| {
            Connection::starting_at(conv, configs[side], start, first_sn)
        })
    }

    /// Two ends whose connections `begin` makes: it is given the side, the conv and the time on that side's clock.
    pub fn between(
        seed: u64,
        links: [LinkSettings; 2],
        clock_offsets: [Duration; 2],
        mut begin: impl FnMut(usize, u32, Instant) -> Connection,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let flows = [Flow::new(rng.next()), Flow::new(rng.next())];
        let [first, second] = links;
        let mut end = |side: usize, link: LinkSettings| {
            let clock_offset = clock_offsets[side];
            let connection = begin(side, CONV, Instant::ZERO + clock_offset);
            let link = Link::new(link, rng.fork());
            End::new(connection, link, clock_offset, rng.fork())
        };
        let ends = [end(CLIENT, first), end(SERVER, second)];
        Self {
            seed,
            now: Instant::ZERO,
            ends,
            flows,
            may_refuse: false,
            under_way: BinaryHeap::new(),
            serial: 0,
            buffer: vec![0; BUFFER],
            arrivals: Vec::new(),
            drives_at_once: 0,
        }
    }

    pub fn client(&mut self) -> &mut End {
        &mut self.ends[CLIENT]
    }

    pub fn server(&mut self) -> &mut End {
        &mut self.ends[SERVER]
    }

    /// Lets one end do what there is to do now, as after calls from outside.
    pub fn drive(&mut self, side: usize) {
        self.drives_at_once += 1;
        assert!(self.drives_at_once < MAX_DRIVES_AT_ONCE, "an endless exchange at one instant");
        let [first, second] = &mut self.flows;
        let (outgoing, incoming) = if side == CLIENT { (first, second) } else { (second, first) };
        let end = &mut self.ends[side];
        end.drive(self.now, outgoing, incoming, &mut self.buffer, &mut self.arrivals);
        let mut arrivals = mem::take(&mut self.arrivals);
        for Arrival { at, packet, ecn } in arrivals.drain(..) {
            self.serial += 1;
            let under_way = UnderWay { at, serial: self.serial, to: 1 - side, packet, ecn };
            self.under_way.push(Reverse(under_way));
        }
        self.arrivals = arrivals;
    }

    /// Calls `act` for one end and lets that end do what follows.
    pub fn call<T>(&mut self, side: usize, act: impl FnOnce(&mut Connection, Instant) -> T) -> T {
        let local = self.ends[side].local(self.now);
        let outcome = act(&mut self.ends[side].connection, local);
        self.drive(side);
        outcome
    }

    /// Changes settings at one end, while everything goes on.
    pub fn update_settings(
        &mut self,
        side: usize,
        change: impl FnOnce(&mut SessionSettings),
    ) -> Result<(), SettingError> {
        self.call(side, |connection, _| connection.update_settings(change))
    }

    /// When something happens next; `None` when nothing ever will.
    pub fn next_event(&self) -> Option<Instant> {
        self.next_of(self.wakeups())
    }

    fn wakeups(&self) -> [Option<Instant>; 2] {
        [0, 1].map(|side| self.ends[side].wakeup(&self.flows[side]))
    }

    fn next_of(&self, wakeups: [Option<Instant>; 2]) -> Option<Instant> {
        let arrival = self.under_way.peek().map(|Reverse(next)| next.at);
        [arrival, wakeups[0], wakeups[1]].into_iter().flatten().min()
    }

    /// Goes to the next event and handles it. Returns whether there was one.
    pub fn step(&mut self) -> bool {
        self.step_within(Instant::from_micros(u64::MAX))
    }

    /// As [`step`](Self::step), unless the next event comes after `end`.
    pub fn step_within(&mut self, end: Instant) -> bool {
        let wakeups = self.wakeups();
        let Some(at) = self.next_of(wakeups).filter(|at| *at <= end) else { return false };
        if at > self.now {
            self.now = at;
            self.drives_at_once = 0;
        }
        let mut active = wakeups.map(|wakeup| wakeup.is_some_and(|at| at <= self.now));
        while let Some(Reverse(next)) = self.under_way.peek() {
            if next.at > self.now {
                break;
            }
            let Some(Reverse(mut next)) = self.under_way.pop() else { break };
            let end = &mut self.ends[next.to];
            let local = end.local(self.now);
            match end.connection.handle_packet(local, &mut next.packet) {
                Ok(()) if end.tells_ecn => end.connection.handle_ecn(local, next.ecn, 1),
                // Tests that duplicate or damage packets count these.
                Ok(()) | Err(PacketError::Replayed | PacketError::Open(_)) => {}
                Err(error) => assert!(self.may_refuse, "a packet of the peer is refused: {error}"),
            }
            active[next.to] = true;
            if end.one_by_one {
                self.drive(next.to);
            }
        }
        for side in [CLIENT, SERVER] {
            if active[side] {
                self.drive(side);
            }
        }
        true
    }

    /// Starts the applications; what runs later finds them started.
    pub fn start(&mut self) {
        self.drive(CLIENT);
        self.drive(SERVER);
    }

    /// Runs for a time, and leaves the clock at its end.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.start();
        while self.step_within(end) {}
        self.now = end;
        self.drives_at_once = 0;
    }

    /// Runs until `done`, which must come within `limit` of virtual time. Returns how long it took.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) -> Duration {
        let start = self.now;
        self.start();
        while !done(self) {
            let stepped = self.step();
            assert!(stepped, "stalled: nothing will ever happen\n{}", self.report());
            assert!(self.now - start <= limit, "not done after {limit:?}\n{}", self.report());
        }
        self.now - start
    }

    /// Whether everything that the writers meant to write was read, and both ends know it.
    pub fn is_complete(&self) -> bool {
        [0, 1].iter().all(|side| {
            let flow = &self.flows[*side];
            flow.read == self.ends[*side].writer.total && self.ends[*side].connection.is_flushed()
        })
    }

    /// Runs until everything is delivered and nothing is under way, then checks that both ends are at rest.
    pub fn complete(&mut self, limit: Duration) -> Duration {
        let took = self.run_until(limit, Self::is_complete);
        let quiet = self.now + limit;
        while !self.is_at_rest() && self.step_within(quiet) {}
        self.check_at_rest();
        took
    }

    /// Checks that a session that has delivered everything has no deadline but that of keep-alive, and holds nothing.
    pub fn check_at_rest(&self) {
        for (side, end) in self.ends.iter().enumerate() {
            let stats = end.connection.stats();
            let flow = &self.flows[side];
            assert!(end.is_at_rest(), "end {side} at rest: {stats:?}");
            // A wakeup costs something even when there is nothing to do.
            let Activity { wakeups, idle_wakeups, .. } = end.activity;
            assert!(idle_wakeups <= 10 + wakeups / 4, "end {side}: {:?}", end.activity);
            assert_eq!(stats.stream.bytes_written, flow.written, "end {side}");
            assert_eq!(stats.stream.bytes_read, self.flows[1 - side].read, "end {side}");
            let counts = &end.link.counts;
            let sent = (stats.udp.packets_sent, stats.udp.bytes_sent);
            assert_eq!(sent, (counts.offered, counts.bytes_offered), "end {side}: packets and bytes sent");
            let path = &self.ends[1 - side].link.counts;
            let arrived = path.offered - path.overflowed - path.lost - path.too_long + path.duplicated;
            let seen = stats.udp.packets_received + stats.udp.forged;
            assert_eq!(seen, arrived, "end {side}: packets received");
            let held = [stats.queues.in_flight, stats.queues.unread_segments, stats.queues.out_of_order];
            assert_eq!(held, [0; 3], "end {side} in flight, in order, out of order");
            assert_eq!((stats.queues.unsent_bytes, stats.queues.unread_bytes), (0, 0), "end {side}");
            assert_eq!((stats.udp.wrong_conv, stats.udp.malformed), (0, 0), "end {side}");
        }
    }

    /// Whether nothing is under way, and nothing but keep-alive will ever happen.
    fn is_at_rest(&self) -> bool {
        self.under_way.is_empty() && self.ends.iter().all(End::is_at_rest)
    }

    /// The events of one end other than readable and writable.
    pub fn events(&self, side: usize) -> &[(Instant, Event)] {
        &self.ends[side].events
    }

    /// How things stand, for failure messages.
    pub fn report(&self) -> String {
        let mut report = format!("seed {} at {:?}, {} under way", self.seed, self.now, self.under_way.len());
        for (side, end) in self.ends.iter().enumerate() {
            let flow = &self.flows[side];
            report += &format!(
                "\nend {side}: read {} of {} written of {} meant; {:?}; timeout {:?}; {:?}; {:?}",
                flow.read,
                flow.written,
                end.writer.total,
                end.activity,
                end.connection.poll_timeout(),
                end.events,
                end.connection.stats()
            );
        }
        report
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with {}", self.report());
        }
    }
}
