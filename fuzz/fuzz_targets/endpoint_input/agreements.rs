//! Clients that agree on keys with an endpoint, over a network that does with their packets what it likes.
//!
//! Proves that
//! * nothing panics, whatever becomes of handshakes and sealed packets: lost, doubled, late, flipped, cut, spliced, replayed at once or an
//!   hour later, from elsewhere and back to their senders, while clients move, keys change and the server is started again;
//! * a session begins for a client that has its keys and for no other, once for each, or says that it may be a recording;
//! * each end reads a prefix of what the other end of the same handshake has written, and nothing of it is sent in the clear;
//! * the limits of agreements and sessions hold, no answer is longer than its cause, and a client that comes afterwards is served.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use arbitrary::{Arbitrary, Unstructured};
use kcp9::{
    CookiePolicy, KcpConfig,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    proto::{
        Connection, Endpoint, Event, Handle, Instant, MoveError, Random, Routed, SessionSeed,
        noise::{Initiator, KeyPair, MAX_EARLY_DATA, Noise, Pattern, Psk, Responder, SessionCipher, Trust},
    },
};
use kcp9_simulator::{Nonces, Rng, payload::Payload};

const MAX_OPERATIONS: usize = 150;
const MAX_CLIENTS: usize = 8;
/// Packets that are kept to be sent again.
const MAX_SEEN: usize = 256;
/// Packets under way. Those behind them are lost.
const MAX_UNDER_WAY: usize = 64;
/// What a client writes at most.
const MAX_WRITTEN: u64 = 20_000;
const FEW: usize = 4;

#[derive(Debug, Arbitrary)]
pub(crate) struct Plan {
    pattern: u8,
    aes: bool,
    seed: u32,
    takes_early_data: bool,
    cookies: Option<bool>,
    /// Whether there is room for few.
    few: bool,
    one_per_address: bool,
    serves_static: bool,
    /// Early data of the first client, which is there from the beginning.
    early: u16,
    operations: Vec<Operation>,
    /// So many more are drawn by the seed: a plan of few bytes goes far, too.
    drawn: u8,
}

#[derive(Debug, Arbitrary)]
enum Operation {
    Begin {
        conv: u8,
        at: u8,
        early: u16,
    },
    Write {
        client: u8,
        len: u16,
    },
    Shutdown(u8),
    /// The next packet under way.
    Carry(Fate),
    /// All goes well for so many milliseconds.
    Run(u16),
    /// Nobody does anything for so many seconds.
    Wait(u16),
    Move {
        client: u8,
        to: u8,
        knows: bool,
    },
    /// A packet that was seen goes to the server once more.
    Again {
        nth: u8,
        from: u8,
    },
    /// Or to a client.
    Back {
        nth: u8,
        client: u8,
    },
    Bytes {
        from: u8,
        bytes: Vec<u8>,
    },
    Restart,
    StopAccepting,
    Forget,
}

#[derive(Debug, Arbitrary)]
enum Fate {
    Arrives,
    Lost,
    Doubled,
    Late,
    Flipped(u16),
    Cut(u16),
    From(u8),
    /// The head of it, and the rest of one that was seen.
    Spliced(u8, u16),
}

struct Packet {
    to_server: bool,
    /// Where the client is that has sent it, or is to have it.
    client: SocketAddr,
    bytes: Vec<u8>,
}

struct Client {
    connection: Connection,
    conv: u32,
    at: SocketAddr,
    payload: Payload,
    written: u64,
    read: u64,
}

/// A session of the server. It echoes.
struct Session {
    connection: Connection,
    read: u64,
    unsent: Vec<u8>,
}

struct World {
    plan_seed: u64,
    rng: Rng,
    config: KcpConfig,
    of_client: KcpConfig,
    limit: usize,
    endpoint: Endpoint,
    sessions: HashMap<Handle, Session>,
    /// The handshakes of all sessions that there were.
    accepted: HashSet<[u8; 32]>,
    clients: Vec<Client>,
    under_way: VecDeque<Packet>,
    seen: Vec<Packet>,
    now: Instant,
    buffer: Vec<u8>,
}

fn address(number: u8) -> SocketAddr {
    match number % 6 {
        0 => "[fe80::1%3]:4000".parse().expect("an address"),
        number => SocketAddr::from(([10, 0, 0, number / 2], 4_000 + u16::from(number % 2))),
    }
}

fn ends(plan: &Plan) -> (Initiator, Responder) {
    let [own, server] = [1, 2].map(|byte| KeyPair::from_secret_bytes(&[byte; 32]));
    let (public, psk) = (*server.public(), || Psk::from_bytes(&[3; 32]));
    let (trust, trusted) = (Trust::pinned([*own.public()]), Trust::pinned([public]));
    let patterns: Vec<_> = Pattern::all().collect();
    let (initiator, responder) = match patterns[usize::from(plan.pattern) % patterns.len()] {
        Pattern::NnPsk0 => (Initiator::nn_psk0(psk()), Responder::nn_psk0(psk())),
        Pattern::NkPsk0 => (Initiator::nk_psk0(public, psk()), Responder::nk_psk0(server, psk())),
        Pattern::Nk => (Initiator::nk(public), Responder::nk(server)),
        Pattern::Xx => (Initiator::xx(own, trusted), Responder::xx(server, trust)),
        _ => (Initiator::xx_psk3(own, trusted, psk()), Responder::xx_psk3(server, trust, psk())),
    };
    let cipher = if plan.aes { SessionCipher::Aes256Gcm } else { SessionCipher::ChaCha20Poly1305 };
    let responder = if plan.takes_early_data { responder.with_early_data() } else { responder };
    (initiator.with_cipher(cipher), responder)
}

impl World {
    fn new(plan: &Plan) -> Self {
        let mut rng = Rng::new(plan.seed.into());
        let (initiator, responder) = ends(plan);
        // Longer than a key is used, so that sessions live on.
        let lasting = || KcpConfig::builder().dead_timeout(Duration::from_secs(10_000));
        let of_client = lasting().noise(initiator).build().expect("settings that fit");
        let mut config = lasting().one_session_per_address(plan.one_per_address);
        let noise = Noise::from(responder);
        if plan.serves_static {
            let cipher = CipherKind::Aes128Gcm.build(&Key::from_bytes(&[7; 16]), Framing::KcpGo);
            let nonces = Arc::new(Nonces::starting_at(1));
            config = config.crypto(PacketCrypto::new(cipher.expect("it is built in"), nonces));
            config = config.noise(noise.serving_static_peers());
        } else {
            config = config.noise(noise);
        }
        if plan.few {
            config = config.max_half_open(FEW).max_half_open_of_network(2).max_sessions(5);
        }
        if let Some(always) = plan.cookies {
            config = config.cookies(if always { CookiePolicy::Always } else { CookiePolicy::Never });
        }
        let config = config.build().expect("settings that fit");
        let endpoint = Endpoint::accepting(&config, &mut rng);
        Self {
            plan_seed: plan.seed.into(),
            limit: config.max_half_open(),
            rng,
            config,
            of_client,
            endpoint,
            sessions: HashMap::new(),
            accepted: HashSet::new(),
            clients: Vec::new(),
            under_way: VecDeque::new(),
            seen: Vec::new(),
            now: Instant::from_millis(1_000),
            buffer: vec![0; 65_536],
        }
    }

    fn begin(&mut self, conv: u32, at: SocketAddr, early: usize) {
        let payload = Payload::new(self.plan_seed + 1_009 * self.clients.len() as u64);
        let (now, seed) = (self.now, SessionSeed::new(&mut self.rng));
        let bytes = payload.bytes(0, early);
        let begun =
            Connection::connect_with_early_data(conv, &self.of_client, now, seed, bytes, &mut self.rng);
        // Patterns of three messages have none.
        let Ok(connection) = begun else { return };
        self.clients.push(Client { connection, conv, at, payload, written: early as u64, read: 0 });
    }

    fn write(&mut self, client: usize, len: usize) {
        let Some(client) = self.clients.get_mut(client) else { return };
        let len = len.min((MAX_WRITTEN - client.written.min(MAX_WRITTEN)) as usize);
        if let Ok(len) = client.connection.write(self.now, client.payload.bytes(client.written, len)) {
            client.written += len as u64;
        }
    }

    // ---- The server ----

    fn receive(&mut self, from: SocketAddr, packet: &[u8]) {
        let stride = packet.len().max(1);
        let mut block = Arc::new(packet.to_vec().into_boxed_slice());
        self.endpoint.receive(from, Arc::get_mut(&mut block).expect("it is new"), stride);
        while let Some(routed) = self.endpoint.poll_routed(self.now, &block) {
            let run = match routed {
                Routed::Session(run) => run,
                Routed::Incoming(incoming) => {
                    assert!(incoming.sealed && incoming.source == from, "a session without keys of its own");
                    let keys = self.endpoint.take_session_keys().expect("it is sealed");
                    let early = self.endpoint.take_early_data();
                    let is_early = early.is_some();
                    let seed = SessionSeed::new(&mut self.rng);
                    let (config, conv) = (&self.config, incoming.conv);
                    let mut connection =
                        Connection::accept_with_keys(conv, config, self.now, seed, keys, early);
                    if incoming.validated {
                        connection.set_validated();
                    }
                    connection.set_message_at(incoming.message_at);
                    let hash = connection.handshake_hash().expect("it has keys");
                    assert!(self.accepted.insert(hash), "one handshake, two sessions");
                    assert!(is_early || self.client_of(&hash).is_some(), "a session of nobody");
                    let accepted = self.endpoint.accept(self.now).expect("it was offered");
                    for ended in [accepted.replaced, accepted.evicted].into_iter().flatten() {
                        assert!(self.sessions.remove(&ended).is_some());
                    }
                    self.endpoint.follow(accepted.run.handle, &connection);
                    let session = Session { connection, read: 0, unsent: Vec::new() };
                    assert!(self.sessions.insert(accepted.run.handle, session).is_none());
                    accepted.run
                }
                Routed::Reply(reply) => {
                    assert_eq!(reply.to, from);
                    assert!(self.endpoint.reply().len() <= packet.len(), "longer than its cause");
                    let bytes = self.endpoint.reply().to_vec();
                    self.send(Packet { to_server: false, client: from, bytes });
                    continue;
                }
                Routed::FromElsewhere(run, elsewhere) => {
                    let session = self.sessions.get_mut(&run.handle).expect("it lives");
                    session.connection.handle_from_elsewhere(
                        self.now,
                        &block[run.range],
                        run.stride,
                        elsewhere,
                    );
                    let mut sent = Vec::new();
                    while let Some((to, transmit)) =
                        session.connection.poll_transmit_elsewhere(self.now, &mut self.buffer)
                    {
                        sent.push((to, self.buffer[..transmit.len].to_vec()));
                    }
                    for (client, bytes) in sent {
                        self.send(Packet { to_server: false, client, bytes });
                    }
                    continue;
                }
                other => panic!("{other:?}"),
            };
            let session = self.sessions.get_mut(&run.handle).expect("it lives");
            session.connection.handle_sealed_batch(self.now, &mut block, run.range, run.stride);
        }
        // Both count as half-open, and each has the limit for itself.
        let agreeing = self.endpoint.agreeing();
        assert!(agreeing <= self.limit && self.endpoint.half_open() - agreeing <= self.limit);
        assert_eq!(self.endpoint.len(), self.sessions.len());
    }

    fn client_of(&self, hash: &[u8; 32]) -> Option<usize> {
        self.clients.iter().position(|client| client.connection.handshake_hash() == Some(*hash))
    }

    /// What a session has read is what a client of its conv has written; once the session is known to be no recording, the client of its
    /// handshake.
    fn check_read(&self, session: &Session, bytes: &[u8]) {
        let hash = session.connection.handshake_hash().expect("it has keys");
        let has_written = |client: &Client| {
            client.conv == session.connection.conv()
                && client.payload.first_difference(session.read, bytes).is_none()
                && session.read + bytes.len() as u64 <= client.written
        };
        if session.connection.may_be_replayed() {
            assert!(self.clients.iter().any(has_written), "nobody has written that");
        } else {
            let client = self.client_of(&hash).expect("a session of nobody");
            assert!(has_written(&self.clients[client]), "its client has not written that");
        }
    }

    fn serve(&mut self) {
        let now = self.now;
        let mut handles: Vec<_> = self.sessions.keys().copied().collect();
        handles.sort();
        for handle in handles {
            let Some(mut session) = self.sessions.remove(&handle) else { continue };
            if session.connection.poll_timeout().is_some_and(|at| at <= now) {
                session.connection.handle_timeout(now);
            }
            let mut bytes = [0; 2_048];
            while let Ok(len) = session.connection.read(&mut bytes) {
                self.check_read(&session, &bytes[..len]);
                session.read += len as u64;
                session.unsent.extend_from_slice(&bytes[..len]);
            }
            if let Ok(len) = session.connection.write(now, &session.unsent) {
                session.unsent.drain(..len);
            }
            if session.connection.read(&mut bytes) == Err(kcp9::proto::ReadError::Finished) {
                session.connection.shutdown(now);
            }
            let mut lives = true;
            while let Some(event) = session.connection.poll_event() {
                match event {
                    Event::Validated => self.endpoint.validated(handle),
                    Event::Moved(to) => match self.endpoint.moved(now, handle, to) {
                        Ok(replaced) => {
                            if let Some(replaced) = replaced {
                                self.sessions.remove(&replaced);
                            }
                        }
                        Err(error) => {
                            assert!(matches!(error, MoveError::ConvInUse(_)), "{error:?}");
                            lives = false;
                        }
                    },
                    _ => {}
                }
            }
            // It may have given way to one before it in this loop.
            let Some((peer, _)) = self.endpoint.route(handle) else { continue };
            for bytes in self.transmitted(&mut session.connection) {
                self.send(Packet { to_server: false, client: peer, bytes });
            }
            if session.connection.close_reason().is_some() || !lives {
                let record = session.connection.record();
                let keys = session.connection.take_session_keys();
                assert!(self.endpoint.close_sealed(now, handle, record, keys));
            } else {
                self.sessions.insert(handle, session);
            }
        }
    }

    // ---- Both ----

    fn transmitted(&mut self, connection: &mut Connection) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while let Some(transmit) = connection.poll_transmit(self.now, &mut self.buffer) {
            packets.extend(self.buffer[..transmit.len].chunks(transmit.stride).map(<[u8]>::to_vec));
            assert!(packets.len() < 10_000, "endless output");
        }
        packets
    }

    fn send(&mut self, packet: Packet) {
        if self.under_way.len() < MAX_UNDER_WAY {
            self.under_way.push_back(packet);
        }
    }

    /// Has all do what is due.
    fn drive(&mut self) {
        for nth in 0..self.clients.len() {
            let mut client = self.clients.swap_remove(nth);
            if client.connection.poll_timeout().is_some_and(|at| at <= self.now) {
                client.connection.handle_timeout(self.now);
            }
            let mut bytes = [0; 2_048];
            while let Ok(len) = client.connection.read(&mut bytes) {
                let difference = client.payload.first_difference(client.read, &bytes[..len]);
                assert_eq!(difference, None, "not what was written");
                client.read += len as u64;
                assert!(client.read <= client.written, "more than was written");
            }
            while client.connection.poll_event().is_some() {}
            let secret = client.payload.bytes(0, 16);
            for bytes in self.transmitted(&mut client.connection) {
                assert!(client.written < 16 || !bytes.windows(16).any(|part| part == secret), "in the clear");
                self.send(Packet { to_server: true, client: client.at, bytes });
            }
            self.clients.push(client);
            let last = self.clients.len() - 1;
            self.clients.swap(nth, last);
        }
        self.serve();
    }

    fn arrive(&mut self, packet: &Packet) {
        if packet.to_server {
            return self.receive(packet.client, &packet.bytes);
        }
        let said = packet.bytes.first_chunk().map(|conv| u32::from_le_bytes(*conv));
        for client in &mut self.clients {
            let hidden = client.connection.route_key().and_then(|key| key.route(&packet.bytes));
            if client.at == packet.client && [said, hidden].contains(&Some(client.conv)) {
                let _ = client.connection.handle_packet(self.now, &mut packet.bytes.clone());
            }
        }
    }

    fn keep(&mut self, packet: Packet) {
        if self.seen.len() < MAX_SEEN {
            self.seen.push(packet);
        }
    }

    fn carry(&mut self, fate: &Fate) {
        let Some(mut packet) = self.under_way.pop_front() else { return };
        match *fate {
            Fate::Arrives => self.arrive(&packet),
            Fate::Lost => {}
            Fate::Doubled => {
                self.arrive(&packet);
                self.arrive(&packet);
            }
            Fate::Late => return self.under_way.push_back(packet),
            Fate::Flipped(bit) => {
                let bit = usize::from(bit) % (8 * packet.bytes.len().max(1));
                if let Some(byte) = packet.bytes.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
                self.arrive(&packet);
            }
            Fate::Cut(len) => {
                packet.bytes.truncate(usize::from(len) % (packet.bytes.len() + 1));
                self.arrive(&packet);
            }
            Fate::From(number) => {
                self.arrive(&Packet { client: address(number), bytes: packet.bytes.clone(), ..packet });
                self.arrive(&packet);
            }
            Fate::Spliced(nth, at) => {
                if let Some(other) = self.seen.get(usize::from(nth) % self.seen.len().max(1)) {
                    let at = usize::from(at) % (packet.bytes.len() + 1);
                    packet.bytes.truncate(at);
                    packet.bytes.extend_from_slice(other.bytes.get(at..).unwrap_or_default());
                }
                self.arrive(&packet);
            }
        }
        self.keep(packet);
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..400 {
            self.drive();
            while let Some(packet) = self.under_way.pop_front() {
                self.arrive(&packet);
                self.keep(packet);
            }
            self.drive();
            if self.now >= end {
                break;
            }
            let timers = self.sessions.values().filter_map(|session| session.connection.poll_timeout());
            let timers =
                timers.chain(self.clients.iter().filter_map(|client| client.connection.poll_timeout()));
            let next = if self.under_way.is_empty() { timers.min().unwrap_or(end) } else { self.now };
            self.now = next.max(self.now + Duration::from_millis(1)).min(end);
        }
    }

    fn restart(&mut self) {
        // It draws something else than the one before.
        let mut bytes = [0; 8];
        self.rng.fill(&mut bytes);
        self.endpoint = Endpoint::accepting(&self.config, &mut Rng::new(u64::from_le_bytes(bytes)));
        self.sessions.clear();
    }

    fn operate(&mut self, operation: &Operation) {
        let nth = |number: &u8, len: usize| usize::from(*number) % len.max(1);
        match operation {
            Operation::Begin { conv, at, early } => {
                if self.clients.len() < MAX_CLIENTS {
                    let early = usize::from(*early) % (2 * MAX_EARLY_DATA);
                    let early = if early > MAX_EARLY_DATA { 0 } else { early };
                    self.begin(1 + u32::from(conv % 3), address(*at), early);
                }
            }
            Operation::Write { client, len } => {
                self.write(nth(client, self.clients.len()), usize::from(*len) % 4_096);
            }
            Operation::Shutdown(client) => {
                let client = nth(client, self.clients.len());
                if let Some(client) = self.clients.get_mut(client) {
                    client.connection.shutdown(self.now);
                }
            }
            Operation::Carry(fate) => self.carry(fate),
            Operation::Run(millis) => self.run_for(Duration::from_millis(u64::from(*millis % 8_192))),
            Operation::Wait(seconds) => self.now += Duration::from_secs(u64::from(*seconds % 4_096)),
            Operation::Move { client, to, knows } => {
                let client = nth(client, self.clients.len());
                if let Some(client) = self.clients.get_mut(client) {
                    client.at = address(*to);
                    if *knows {
                        let _ = client.connection.rebind(self.now);
                    }
                }
            }
            Operation::Again { nth: number, from } => {
                if let Some(seen) = self.seen.get(nth(number, self.seen.len())) {
                    let bytes = seen.bytes.clone();
                    self.receive(address(*from), &bytes);
                }
            }
            Operation::Back { nth: number, client } => {
                let client = nth(client, self.clients.len());
                let seen = self.seen.get(nth(number, self.seen.len()));
                if let (Some(seen), Some(client)) = (seen, self.clients.get_mut(client)) {
                    let _ = client.connection.handle_packet(self.now, &mut seen.bytes.clone());
                }
            }
            Operation::Bytes { from, bytes } => self.receive(address(*from), bytes),
            Operation::Restart => self.restart(),
            Operation::StopAccepting => self.endpoint.stop_accepting(),
            Operation::Forget => self.endpoint.forget_expired(self.now),
        }
        self.drive();
    }

    /// Somebody who comes when all that is over.
    fn check_that_others_are_served(&mut self) {
        if !self.endpoint.is_accepting() {
            return;
        }
        // What waits for a while is forgotten, and there is room again.
        self.clients.clear();
        self.sessions.drain().for_each(|(handle, _)| assert!(self.endpoint.close(self.now, handle, None)));
        self.now += Duration::from_secs(60);
        self.under_way.clear();
        self.begin(99, SocketAddr::from(([10, 9, 9, 9], 9)), 0);
        self.write(0, 100);
        self.run_for(Duration::from_secs(2));
        assert_eq!(self.clients[0].read, 100, "{:?}", self.clients[0].connection.close_reason());
    }
}

/// Operations by the seed. Servers that go are among them now and then only.
fn drawn(plan: &Plan) -> Vec<Operation> {
    let mut rng = Rng::new(!u64::from(plan.seed));
    let mut bytes = [0; 24];
    let mut draw = || {
        rng.fill(&mut bytes);
        let operation = Operation::arbitrary(&mut Unstructured::new(&bytes)).ok()?;
        let goes = matches!(operation, Operation::Restart | Operation::StopAccepting);
        (!goes || rng.chance(0.05)).then_some(operation)
    };
    (0..plan.drawn % 64).filter_map(|_| draw()).collect()
}

pub(crate) fn run(plan: &Plan) {
    let mut world = World::new(plan);
    world.operate(&Operation::Begin { conv: 0, at: 1, early: plan.early });
    world.operate(&Operation::Write { client: 0, len: 2_000 });
    for operation in plan.operations.iter().take(MAX_OPERATIONS).chain(&drawn(plan)) {
        world.operate(operation);
    }
    world.check_that_others_are_served();
}
