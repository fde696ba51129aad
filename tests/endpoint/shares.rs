//! Shares of the work: a port that gets more than it can receive, in virtual time.
//!
//! The [`Port`] is a buffer of limited length that drops what finds it full, and a server that has so much time in each millisecond: a
//! part of it to take a packet out of the buffer, and nine times as much to work on it.

use std::{collections::VecDeque, net::SocketAddr};

use kcp9::{
    KcpConfig,
    proto::{Command, Endpoint, Instant, Routed},
};
use kcp9_simulator::{Rng, ms};

use crate::{
    host::{Entropy, address, client, first_packet, segment},
    network::SeedOnPanic,
};

/// Packets that the buffer holds.
const BUFFER: usize = 500;
/// What a millisecond is worth, what a packet takes out of it, and what work on it takes besides.
const TIME: usize = 1_000;
const RECEIVE: usize = 1;
const WORK: usize = 9;
/// Packets that are worked on in a millisecond at the most.
const CAPACITY: usize = TIME / (RECEIVE + WORK);
/// Packets of a flood in a millisecond. To receive them takes a quarter of the time, and to work on them two and a half times as much
/// as there is.
const FLOOD: usize = CAPACITY * 5 / 2;

/// Who sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sender {
    /// The session of that number.
    Session(u32),
    /// A stranger of that number.
    Stranger(u32),
}

impl Sender {
    fn address(self) -> SocketAddr {
        match self {
            Self::Session(number) => client(number),
            Self::Stranger(number) => address(0x8000_0000 | number, 9),
        }
    }
}

/// What became of the packets of some senders.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    sent: usize,
    worked_on: usize,
}

struct Port {
    endpoint: Endpoint,
    buffer: VecDeque<Sender>,
    now: Instant,
    /// What a session sends, and a stranger.
    of_session: Vec<u8>,
    of_stranger: Vec<u8>,
    /// Time that is left, or was taken too much of.
    time: usize,
    lost: bool,
}

/// Begins a session and has it established.
fn establish(endpoint: &mut Endpoint, peer: SocketAddr, conv: u32, packet: &[u8]) {
    let mut bytes = packet.to_vec();
    let stride = bytes.len();
    endpoint.receive(peer, &mut bytes, stride);
    assert!(matches!(endpoint.poll_routed(Instant::ZERO, &bytes), Some(Routed::Incoming(_))));
    let handle = endpoint.accept(Instant::ZERO).unwrap().run.handle;
    endpoint.validated(handle);
    assert_eq!(endpoint.find(peer, conv), Some(handle));
}

impl Port {
    fn new(sessions: u32) -> Self {
        let config = KcpConfig::builder().max_half_open(64).build().unwrap();
        let packet = segment(7, Command::Ack, 0);
        Self::with(&config, sessions, first_packet(7), packet.clone(), packet)
    }

    fn with(
        config: &KcpConfig,
        sessions: u32,
        first: Vec<u8>,
        of_session: Vec<u8>,
        of_stranger: Vec<u8>,
    ) -> Self {
        let mut endpoint = Endpoint::accepting(config, &mut Entropy(Rng::new(1)));
        for number in 0..sessions {
            establish(&mut endpoint, client(number), 7, &first);
        }
        let now = Instant::from_millis(1);
        Self { endpoint, buffer: VecDeque::new(), now, of_session, of_stranger, time: 0, lost: false }
    }

    /// A millisecond in which these arrive, in any order; returns those that were worked on.
    fn tick(&mut self, rng: &mut Rng, mut arrive: Vec<Sender>) -> Vec<Sender> {
        for at in (1..arrive.len()).rev() {
            arrive.swap(at, rng.size(0..=at));
        }
        let mut worked_on = Vec::new();
        let steps = 10;
        for step in 0..steps {
            self.time += TIME / steps;
            let part = arrive.len() * step / steps..arrive.len() * (step + 1) / steps;
            for sender in &arrive[part] {
                if self.buffer.len() < BUFFER {
                    self.buffer.push_back(*sender);
                } else {
                    self.lost = true;
                }
            }
            while self.time >= RECEIVE + WORK {
                let Some(sender) = self.buffer.pop_front() else {
                    (self.time, self.lost) = (0, false);
                    break;
                };
                self.time -= RECEIVE;
                if self.takes(sender) {
                    self.time -= WORK;
                    worked_on.push(sender);
                }
            }
        }
        self.now += ms(1);
        if std::mem::take(&mut self.lost) {
            self.endpoint.note_overload(self.now);
        }
        worked_on
    }

    /// Whether a packet was worked on.
    fn takes(&mut self, sender: Sender) -> bool {
        let mut packet =
            if matches!(sender, Sender::Session(_)) { &self.of_session } else { &self.of_stranger }.clone();
        let (stride, before) = (packet.len(), self.over_share());
        self.endpoint.receive(sender.address(), &mut packet, stride);
        let mut routed = false;
        while let Some(next) = self.endpoint.poll_routed(self.now, &packet) {
            routed |= matches!(next, Routed::Session(_));
        }
        let taken = self.over_share() == before;
        assert_eq!(routed, taken && matches!(sender, Sender::Session(_)), "{sender:?}");
        taken
    }

    fn over_share(&self) -> u64 {
        self.endpoint.stats().dropped_over_share
    }

    /// Has `senders` say who sends in each millisecond of so many; returns what became of those that `counts` picks.
    fn run<const N: usize>(
        &mut self,
        rng: &mut Rng,
        millis: u64,
        mut senders: impl FnMut(u64, &mut Rng) -> Vec<Sender>,
        counts: [&dyn Fn(Sender) -> bool; N],
    ) -> [Tally; N] {
        let mut tallies = [Tally::default(); N];
        for milli in 0..millis {
            let arrive = senders(milli, rng);
            let mut count = |senders: &[Sender], add: fn(&mut Tally) -> &mut usize| {
                for (tally, counts) in tallies.iter_mut().zip(counts) {
                    *add(tally) += senders.iter().filter(|sender| counts(**sender)).count();
                }
            };
            count(&arrive, |tally| &mut tally.sent);
            let worked_on = self.tick(rng, arrive);
            count(&worked_on, |tally| &mut tally.worked_on);
        }
        tallies
    }
}

fn is_session(sender: Sender) -> bool {
    matches!(sender, Sender::Session(_))
}

fn is_stranger(sender: Sender) -> bool {
    !is_session(sender)
}

/// 100 sessions that send half of what the server can do.
fn honest(rng: &mut Rng) -> Vec<Sender> {
    (0..CAPACITY / 2).map(|_| Sender::Session(rng.size(0..=99) as u32)).collect()
}

/// Until shares have settled.
const SETTLE: u64 = 1_000;
const MEASURE: u64 = 2_000;

/// Floods the port in the way that `flood` says, beside sessions that send so much of what [`honest`] ones do; returns what becomes of
/// both once it has settled.
fn flooded(port: &mut Port, seed: u64, times: usize, flood: impl Fn(&mut Rng) -> Vec<Sender>) -> [Tally; 2] {
    let _seed = SeedOnPanic(seed);
    let mut rng = Rng::new(seed);
    let both = |_: u64, rng: &mut Rng| {
        let mut senders = flood(rng);
        (0..times).for_each(|_| senders.extend(honest(rng)));
        senders
    };
    let is_honest = |sender| matches!(sender, Sender::Session(0..=99));
    let counts: [&dyn Fn(Sender) -> bool; 2] = [&is_honest, &|sender| !is_honest(sender)];
    port.run(&mut rng, SETTLE, both, counts);
    port.run(&mut rng, MEASURE, both, counts)
}

fn strangers_from_everywhere(rng: &mut Rng) -> Vec<Sender> {
    (0..FLOOD).map(|_| Sender::Stranger(rng.next() as u32 >> 4)).collect()
}

fn one_stranger(_: &mut Rng) -> Vec<Sender> {
    vec![Sender::Stranger(5); FLOOD]
}

/// Without shares they lose two thirds.
fn assert_nothing_lost([honest, others]: [Tally; 2]) {
    assert!(honest.worked_on * 100 >= honest.sent * 99, "{honest:?} beside {others:?}");
}

#[test]
fn established_sessions_lose_nothing_to_strangers() {
    for seed in 0..2 {
        assert_nothing_lost(flooded(&mut Port::new(100), seed, 1, strangers_from_everywhere));
        assert_nothing_lost(flooded(&mut Port::new(100), seed, 1, one_stranger));
    }
}

/// The sessions alone send all that the server can do.
#[test]
fn strangers_get_no_more_than_a_quarter_of_the_work_while_established_sessions_wait() {
    for flood in [strangers_from_everywhere, one_stranger] {
        let [honest, strangers] = flooded(&mut Port::new(100), 1, 2, flood);
        let all = honest.worked_on + strangers.worked_on;
        assert!(honest.worked_on * 100 >= all * 74, "{honest:?} beside {strangers:?}");
        assert!(strangers.worked_on * 100 >= all * 5, "they are not shut out");
    }
}

#[cfg(feature = "aead")]
#[test]
fn established_sessions_lose_nothing_to_packets_without_the_key() {
    use crate::ciphers::encrypted;

    let config = encrypted(b"the server's key");
    let cipher = config.crypto().unwrap().cipher();
    let seal = |packet: &[u8], number: u8| {
        let mut sealed = vec![number; cipher.header_len()];
        sealed.extend_from_slice(packet);
        sealed.resize(sealed.len() + cipher.trailer_len(), 0);
        cipher.seal(&mut sealed).unwrap();
        sealed
    };
    let mut endpoint = Endpoint::accepting(&config, &mut Entropy(Rng::new(1)));
    for number in 0..100 {
        establish(&mut endpoint, client(number), 7, &seal(&first_packet(7), number as u8));
    }
    let packet = seal(&segment(7, Command::Ack, 0), 200);
    let mut port = Port::with(&config, 0, Vec::new(), packet, vec![3; 60]);
    port.endpoint = endpoint;
    assert_nothing_lost(flooded(&mut port, 1, 1, strangers_from_everywhere));
    assert!(port.endpoint.stats().dropped_bad_tag > 0);
}

#[test]
fn a_session_that_floods_gets_no_more_than_all_others_while_they_wait() {
    for seed in 0..2 {
        let mut port = Port::new(101);
        let [honest, flood] = flooded(&mut port, seed, 1, |_| vec![Sender::Session(100); FLOOD]);
        assert!(flood.worked_on <= honest.worked_on, "{flood:?} beside {honest:?}");
        assert!(honest.worked_on * 100 >= honest.sent * 97, "{honest:?}");
        // Two of them are no better off.
        let mut port = Port::new(102);
        let [honest, flood] =
            flooded(&mut port, seed, 1, |_| [Sender::Session(100), Sender::Session(101)].repeat(FLOOD / 2));
        assert!(flood.worked_on <= honest.worked_on, "{flood:?} beside {honest:?}");
        assert!(honest.worked_on * 100 >= honest.sent * 97, "{honest:?}");
    }
}

/// It does not send in each window.
#[test]
fn a_session_that_sends_a_packet_now_and_then_is_heard_beside_one_that_floods() {
    let mut port = Port::new(2);
    let mut rng = Rng::new(3);
    let both = |milli: u64, _: &mut Rng| {
        let mut senders = vec![Sender::Session(1); FLOOD];
        senders.extend(milli.is_multiple_of(50).then_some(Sender::Session(0)));
        senders
    };
    let counts: [&dyn Fn(Sender) -> bool; 2] =
        [&|sender| sender == Sender::Session(0), &|sender| sender == Sender::Session(1)];
    port.run(&mut rng, SETTLE, both, counts);
    let [seldom, flood] = port.run(&mut rng, 5_000, both, counts);
    assert_eq!(seldom.sent, 100);
    assert!(seldom.worked_on >= 90, "{seldom:?} beside {flood:?}");
}

#[test]
fn who_is_alone_has_all_of_the_work() {
    for sender in [Sender::Session(1), Sender::Stranger(1)] {
        let mut port = Port::new(if is_session(sender) { 100 } else { 0 });
        let [tally] = port.run(&mut Rng::new(4), MEASURE, |_, _| vec![sender; FLOOD], [&|_| true]);
        assert_eq!(port.over_share(), 0, "{sender:?}");
        assert!(tally.worked_on >= CAPACITY * (MEASURE as usize - 1), "{tally:?}");
    }
}

#[test]
fn equal_senders_lose_nothing_however_busy_they_are() {
    for sessions in [2, 8, 100] {
        let mut port = Port::new(sessions);
        let equal = |_: u64, rng: &mut Rng| {
            (0..2 * CAPACITY).map(|_| Sender::Session(rng.size(0..=sessions as usize - 1) as u32)).collect()
        };
        port.run(&mut Rng::new(5), MEASURE, equal, [&|_| true]);
        assert_eq!(port.over_share(), 0, "{sessions} sessions");
    }
}

/// The server keeps up: all that is sent is worked on, whoever sends it.
#[test]
fn a_sender_of_much_beside_many_of_little_loses_nothing_while_nothing_is_lost() {
    let mut port = Port::new(101);
    let all = |_: u64, rng: &mut Rng| {
        let mut senders = honest(rng);
        senders.truncate(10);
        senders.extend(vec![Sender::Session(100); CAPACITY * 85 / 100]);
        senders
    };
    let [tally] = port.run(&mut Rng::new(6), MEASURE, all, [&|_| true]);
    assert_eq!(port.over_share(), 0);
    assert!(tally.sent - tally.worked_on <= BUFFER, "{tally:?}");
}

#[test]
fn many_sessions_behind_one_address_lose_nothing() {
    // 1,000 users of one NAT, each with a port of its own; and 1,000 sessions of one socket, which have 1,000 shares.
    let config = KcpConfig::default();
    let nat = |number: u32| address(0x0a0a_0a0a, 1_000 + number as u16);
    let one_socket = |_: u32| address(0x0a0a_0a0a, 9);
    for (name, source) in [("ports", &nat as &dyn Fn(u32) -> SocketAddr), ("one socket", &one_socket)] {
        let mut endpoint = Endpoint::accepting(&config, &mut Entropy(Rng::new(1)));
        for conv in 1..=1_000 {
            establish(&mut endpoint, source(conv), conv, &first_packet(conv));
        }
        establish(&mut endpoint, client(1), 1, &first_packet(1));
        let mut over_share = |now: Instant, from: SocketAddr, conv: u32| {
            let before = endpoint.stats().dropped_over_share;
            let mut packet = segment(conv, Command::Ack, 0);
            let stride = packet.len();
            endpoint.note_overload(now);
            endpoint.receive(from, &mut packet, stride);
            while endpoint.poll_routed(now, &packet).is_some() {}
            endpoint.stats().dropped_over_share - before
        };
        for milli in (0..1_000).step_by(5) {
            let now = Instant::from_millis(milli);
            for conv in 0..100 {
                assert_eq!(over_share(now, source(conv), conv + 1), 0, "{name}, ms {milli}");
            }
            assert_eq!(over_share(now, client(1), 1), 0, "ms {milli}");
        }
    }
}

/// A server that has just been started: nobody is established, and one stranger floods.
#[test]
fn a_stranger_that_floods_leaves_room_for_others_to_begin() {
    let mut port = Port::new(0);
    let mut rng = Rng::new(7);
    let all = |milli: u64, rng: &mut Rng| {
        let mut senders = one_stranger(rng);
        senders.extend((0..5).map(|nth| Sender::Stranger(1_000 + (milli * 5 + nth) as u32)));
        senders
    };
    let is_flood = |sender| sender == Sender::Stranger(5);
    let counts: [&dyn Fn(Sender) -> bool; 2] = [&|sender| !is_flood(sender), &is_flood];
    port.run(&mut rng, SETTLE, all, counts);
    let [others, flood] = port.run(&mut rng, MEASURE, all, counts);
    assert!(others.worked_on * 100 >= others.sent * 90, "{others:?} beside {flood:?}");
}

#[test]
fn new_sessions_begin_beside_a_flood_of_one_stranger_and_established_sessions() {
    let mut port = Port::new(100);
    let mut rng = Rng::new(8);
    let all = |milli: u64, rng: &mut Rng| {
        let mut senders = [honest(rng), one_stranger(rng)].concat();
        senders.push(Sender::Stranger(1_000 + milli as u32));
        senders
    };
    let is_new = |sender| is_stranger(sender) && sender != Sender::Stranger(5);
    port.run(&mut rng, SETTLE, all, [&is_new]);
    let [new] = port.run(&mut rng, MEASURE, all, [&is_new]);
    assert!(new.worked_on * 100 >= new.sent * 90, "{new:?}");
}

#[test]
fn when_the_flood_is_over_everything_is_worked_on_again_and_the_memory_given_back() {
    let mut port = Port::new(101);
    let mut rng = Rng::new(9);
    let flood = |_: u64, rng: &mut Rng| [honest(rng), strangers_from_everywhere(rng)].concat();
    port.run(&mut rng, SETTLE, flood, []);
    assert!(port.over_share() > 0 && port.endpoint.expires_at().is_some());
    // One that sends what the server can do, and begins while the shares still hold.
    let much = |_: u64, _: &mut Rng| vec![Sender::Session(100); CAPACITY * 9 / 10];
    port.run(&mut rng, 5_000, much, []);
    assert!(port.endpoint.expires_at().is_none());
    let before = port.over_share();
    let [tally] = port.run(&mut rng, 100, much, [&|_| true]);
    assert_eq!((port.over_share(), tally.worked_on), (before, tally.sent));
    // And where nothing comes any more.
    port.run(&mut rng, SETTLE, flood, []);
    let at = port.endpoint.expires_at().unwrap();
    port.endpoint.forget_expired(at);
    assert!(port.endpoint.expires_at().is_none());
}
