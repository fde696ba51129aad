//! Handshakes over a network that an attacker has in hand: messages and packets are lost, doubled, late, out of order, changed, cut, sent
//! again, sent back, and given to others than those that they are for. All on virtual time.
//!
//! Whatever happens, an end opens only what its own peer has sealed for it, and each of these once. When the network behaves again, each
//! client has a session with the server, and keys are the same at both ends of a session and at no others.

use std::{collections::HashSet, time::Duration};

use kcp9::proto::{
    Instant,
    noise::{
        AnswerNext, Initiator, InitiatorHandshake, Pattern, Responder, ResponderHandshake, SessionCipher,
        SessionKeys,
    },
};
use kcp9_simulator::Rng;

use crate::ends::{Keys, opened, sealed};

const CLIENTS: usize = 3;
/// How long the attacker is there, and how long it may take until all have a session afterwards.
const ATTACK: Duration = Duration::from_millis(2_000);
const PATIENCE: Duration = Duration::from_millis(1_000);
const TICK: Duration = Duration::from_millis(20);
const RESEND: Duration = Duration::from_millis(100);

/// A message of a handshake has the route 0 in front, which no session has, and the route of its sender.
const NO_ROUTE: [u8; 4] = [0; 4];

/// The packet of a message: `0 | route of the sender | route that the sender answers | message`.
fn handshake_packet(own: u32, peer: u32, message: &[u8]) -> Vec<u8> {
    [&NO_ROUTE, &own.to_le_bytes(), &peer.to_le_bytes(), message].concat()
}

/// Both routes and the message.
fn parse(packet: &[u8]) -> Option<(u32, u32, &[u8])> {
    let rest = packet.strip_prefix(&NO_ROUTE)?;
    let (own, rest) = rest.split_first_chunk()?;
    let (peer, message) = rest.split_first_chunk()?;
    Some((u32::from_le_bytes(*own), u32::from_le_bytes(*peer), message))
}

/// What an end has opened. The first byte says which end has sealed it.
#[derive(Default)]
struct Received(HashSet<Vec<u8>>);

impl Received {
    fn take(&mut self, payload: Vec<u8>, from: u8) {
        assert_eq!(payload[0], from, "sealed by somebody else");
        assert!(self.0.insert(payload), "opened twice");
    }
}

struct Client {
    number: u8,
    handshake: InitiatorHandshake,
    session: Option<SessionKeys>,
    /// The server's route of this session, once it is known.
    server_route: u32,
    last_message: Option<Vec<u8>>,
    resend_at: Instant,
    sent: u32,
    received: Received,
}

impl Client {
    fn new(number: u8, initiator: &Initiator, rng: &mut Rng) -> Self {
        let context = u32::from(number).to_le_bytes();
        Self {
            number,
            handshake: initiator.begin(&context, rng).unwrap(),
            session: None,
            server_route: 0,
            last_message: None,
            resend_at: Instant::ZERO,
            sent: 0,
            received: Received::default(),
        }
    }

    fn route(&self) -> u32 {
        self.number.into()
    }

    fn input(&mut self, now: Instant, packet: &[u8]) {
        if let Some((server_route, own, message)) = parse(packet) {
            if own != self.route() || self.session.is_some() {
                return;
            }
            let context = [server_route.to_le_bytes(), own.to_le_bytes()].concat();
            match self.handshake.read_answer(message, &context) {
                Ok(established) => {
                    self.session = Some(established.session);
                    self.last_message = established.last_message;
                    (self.server_route, self.resend_at) = (server_route, now);
                }
                Err(error) => assert!(!self.handshake.is_over(), "{error}"),
            }
        } else if let Some(session) = &mut self.session
            && let Ok(payload) = opened(session, now, packet)
        {
            self.received.take(payload, 100 + self.number);
        }
    }

    /// What it sends now.
    fn output(&mut self, now: Instant, rng: &mut Rng) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let is_heard = self.session.as_ref().is_some_and(SessionKeys::is_peer_heard);
        if now >= self.resend_at && !is_heard {
            self.resend_at = now + RESEND;
            match (&self.session, &self.last_message) {
                (None, _) => packets.push(handshake_packet(self.route(), 0, self.handshake.message())),
                (Some(_), Some(last)) => {
                    packets.push(handshake_packet(self.route(), self.server_route, last))
                }
                (Some(_), None) => {}
            }
        }
        if let Some(session) = &mut self.session {
            if rng.chance(0.05) {
                session.change_key();
            }
            self.sent += 1;
            packets.push(payload_packet(session, now, self.server_route, self.number, self.sent));
        }
        packets
    }
}

fn payload_packet(session: &mut SessionKeys, now: Instant, route: u32, from: u8, number: u32) -> Vec<u8> {
    let payload = [&[from][..], &number.to_le_bytes(), &vec![7; number as usize % 50]].concat();
    sealed(session, now, route, &payload)
}

/// What the server knows of one first message.
struct Entry {
    client: u32,
    first: Vec<u8>,
    answer: Vec<u8>,
    handshake: Option<ResponderHandshake>,
    session: Option<SessionKeys>,
    sent: u32,
    received: Received,
}

struct Server {
    responder: Responder,
    entries: Vec<Entry>,
}

impl Server {
    /// What it answers at once.
    fn input(&mut self, now: Instant, packet: &[u8], rng: &mut Rng) -> Option<(u8, Vec<u8>)> {
        let Some((client, own, message)) = parse(packet) else {
            let entry = self
                .entries
                .get_mut((self.responder.route_key().route(packet)? as usize).checked_sub(1_000)?)?;
            if let Ok(payload) = opened(entry.session.as_mut()?, now, packet) {
                entry.received.take(payload, entry.client as u8);
            }
            return None;
        };
        if own == 0 {
            if let Some(known) =
                self.entries.iter().find(|entry| entry.client == client && entry.first == message)
            {
                return Some((client as u8, known.answer.clone()));
            }
            let route = 1_000 + self.entries.len() as u32;
            let context = [route.to_le_bytes(), client.to_le_bytes()].concat();
            let answer = self.responder.answer(message, &client.to_le_bytes(), &context, rng).ok()?;
            let (session, handshake) = match answer.next {
                AnswerNext::Session(session) => (Some(session), None),
                AnswerNext::Last(handshake) => (None, Some(handshake)),
            };
            let answer = handshake_packet(route, client, &answer.message);
            self.entries.push(Entry {
                client,
                first: message.to_vec(),
                answer: answer.clone(),
                handshake,
                session,
                sent: 0,
                received: Received::default(),
            });
            return Some((client as u8, answer));
        }
        let entry = self.entries.get_mut((own as usize).checked_sub(1_000)?)?;
        if let Some(handshake) = &mut entry.handshake {
            match handshake.read_last(message) {
                Ok(session) => (entry.session, entry.handshake) = (Some(session), None),
                Err(error) => assert!(!handshake.is_over(), "{error}"),
            }
        }
        None
    }

    /// What it sends now. To peers that it has not heard it sends nothing.
    fn output(&mut self, now: Instant) -> Vec<(u8, Vec<u8>)> {
        let mut packets = Vec::new();
        for entry in &mut self.entries {
            if let Some(session) = entry.session.as_mut().filter(|session| session.is_peer_heard()) {
                entry.sent += 1;
                let number = entry.client as u8;
                packets.push((number, payload_packet(session, now, entry.client, 100 + number, entry.sent)));
            }
        }
        packets
    }
}

/// To the server, or to a client.
#[derive(Debug, Clone, Copy)]
enum To {
    Server,
    Client(usize),
}

/// Packets under way, and all that the attacker has seen.
struct Network {
    rng: Rng,
    under_way: Vec<(Instant, To, Vec<u8>)>,
    seen: Vec<Vec<u8>>,
}

impl Network {
    fn send(&mut self, now: Instant, to: To, packet: Vec<u8>) {
        let rng = &mut self.rng;
        self.seen.push(packet.clone());
        if now >= Instant::ZERO + ATTACK {
            self.under_way.push((now + TICK, to, packet));
            return;
        }
        let to_anyone =
            |rng: &mut Rng| *rng.choose(&[To::Server, To::Client(0), To::Client(1), To::Client(2)]);
        for _ in 0..rng.within(0..=2) {
            let mut copy = packet.clone();
            match rng.within(0..=9) {
                0 => {
                    let bit = rng.size(0..=8 * copy.len() - 1);
                    copy[bit / 8] ^= 1 << (bit % 8);
                }
                1 => copy.truncate(rng.size(0..=copy.len())),
                2 => copy = rng.choose(&self.seen).clone(),
                // The head of one message and the rest of another one.
                3 => {
                    let other = rng.choose(&self.seen).clone();
                    let at = rng.size(0..=copy.len().min(other.len()));
                    copy.truncate(at);
                    copy.extend_from_slice(&other[at..]);
                }
                _ => {}
            }
            let to = if rng.chance(0.2) { to_anyone(rng) } else { to };
            let at = now + rng.duration(Duration::from_millis(300));
            self.under_way.push((at, to, copy));
        }
    }

    fn due(&mut self, now: Instant) -> Vec<(To, Vec<u8>)> {
        self.under_way.sort_by_key(|(at, ..)| *at);
        let due = self.under_way.partition_point(|(at, ..)| *at <= now);
        self.under_way.drain(..due).map(|(_, to, packet)| (to, packet)).collect()
    }
}

fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let patterns: Vec<_> = Pattern::all().collect();
    let pattern = *rng.choose(&patterns);
    let cipher = *rng.choose(&[SessionCipher::Aes256Gcm, SessionCipher::ChaCha20Poly1305]);
    let keys = Keys::new(1);
    let initiator = keys.initiator(pattern).with_cipher(cipher);
    let mut clients: Vec<_> =
        (0..CLIENTS).map(|number| Client::new(1 + number as u8, &initiator, &mut rng)).collect();
    let mut server = Server { responder: keys.responder(pattern), entries: Vec::new() };
    let mut network = Network { rng: rng.fork(), under_way: Vec::new(), seen: Vec::new() };

    let mut now = Instant::ZERO;
    while now < Instant::ZERO + ATTACK + PATIENCE {
        for (to, packet) in network.due(now) {
            match to {
                To::Client(number) => clients[number].input(now, &packet),
                To::Server => {
                    if let Some((client, answer)) = server.input(now, &packet, &mut rng)
                        && (1..=CLIENTS).contains(&usize::from(client))
                    {
                        network.send(now, To::Client(usize::from(client) - 1), answer);
                    }
                }
            }
        }
        for client in &mut clients {
            client.output(now, &mut rng).into_iter().for_each(|packet| network.send(now, To::Server, packet));
        }
        for (client, packet) in server.output(now) {
            network.send(now, To::Client(usize::from(client) - 1), packet);
        }
        now += TICK;
    }

    let mut hashes = HashSet::new();
    for client in &clients {
        let session = client.session.as_ref().expect("a session");
        assert!(session.is_peer_heard() && client.received.0.len() > 10);
        assert!(hashes.insert(*session.handshake_hash()), "two clients have one session");
        let entry = &server.entries[client.server_route as usize - 1_000];
        assert!(entry.received.0.len() > 10);
        let other = entry.session.as_ref().expect("a session");
        assert_eq!(session.handshake_hash(), other.handshake_hash());
        let shows_keys = matches!(pattern, Pattern::Xx | Pattern::XxPsk3);
        assert_eq!(other.peer(), shows_keys.then_some(keys.initiator.public()));
    }
    let heard = server.entries.iter().filter(|entry| !entry.received.0.is_empty());
    assert_eq!(heard.count(), CLIENTS, "no session of anybody else was used");
}

fn run_all(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "seed {seed}");
    }
}

#[test]
fn handshakes_come_to_their_end_whatever_an_attacker_does() {
    run_all(0..60);
}

/// `cargo test -p kcp9-tests --test noise -- --ignored` (four minutes)
#[test]
#[ignore = "10,000 seeds"]
fn handshakes_come_to_their_end_whatever_an_attacker_does_10_000_times() {
    run_all(60..10_060);
}
