//! Batches of packets from several sources at an endpoint that accepts, connects and closes sessions, against a model.
//!
//! Proves that
//! * nothing panics, whatever the packets are: noise, damaged, replayed, of another key, of several conversations in one
//!   batch;
//! * every packet is either handed to the session of its address and conv, or counted once as dropped;
//! * what a session is handed was sealed under its key, also while the key of accepted sessions is replaced; when a key's time is
//!   over, exactly the accepted sessions under it are to end;
//! * handles are valid exactly as long as their sessions, an index is used again and a handle never is, and there are no
//!   more indexes than sessions at a time;
//! * nothing begins a session of a route that is in use or was closed a moment ago, and no resend of what began one begins it
//!   again while there is a record; no authenticated packet begins two; of an address that may have one session only the
//!   latest lives;
//! * an answer goes back to the source of its cause, is no longer than it, opens under the same key, and is of no session that lives.
//!
//! Of sessions that agree on keys: see `agreements`.

#![no_main]

#[path = "endpoint_input/agreements.rs"]
mod agreements;
#[path = "endpoint_input/plan.rs"]
mod plan;

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use kcp9::{
    CookiePolicy, KcpConfig,
    crypto::{CipherKind, Framing, Key, NonceSource, PacketCrypto},
    proto::{
        ClosedRecord, Command, ConnectError, Connection, Endpoint, Extensions, Handle, Incoming, Instant,
        Random, Refusal, Routed, Run, Segments, peek_conv,
    },
};
use libfuzzer_sys::fuzz_target;

use self::plan::{
    ABORT, HELLO, Input, Kind, Operation, PING, Packet, Plan, RESET, RETRY, address, extension, segment,
};

const MAX_OPERATIONS: usize = 300;
const MAX_PACKETS: usize = 24;
/// How long nothing begins a session of a route that was closed.
const QUIET: Duration = Duration::from_secs(3);
/// How long a record of a closed session stays.
const MEMORY: Duration = Duration::from_secs(60);

type Route = (SocketAddr, u32);

#[derive(Debug)]
struct NoNonces;

impl NonceSource for NoNonces {
    fn fill(&self, nonce: &mut [u8]) {
        nonce.fill(0);
    }
}

struct Constant;

impl Random for Constant {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(5);
    }
}

/// What is known of a session.
struct Session {
    handle: Handle,
    accepted: bool,
    key: usize,
    /// For an accepted one, how often the key of accepted sessions was replaced before that key came.
    phase: u32,
    /// The payload of the first PUSH that began it.
    first: Option<u8>,
}

/// What is known of a session that was closed.
struct Closed {
    at: Instant,
    accepted: bool,
    first: Option<u8>,
}

struct Model {
    endpoint: Endpoint,
    /// Number 0 is none, number 1 that of accepted sessions where they are encrypted.
    keys: [Option<PacketCrypto>; 3],
    accept_key: usize,
    /// The key before, and until when it is accepted.
    retiring: Option<(usize, Instant)>,
    /// How often the key was replaced.
    phase: u32,
    one_per_address: bool,
    few: bool,
    now: Instant,
    nonce: u64,
    sessions: HashMap<Route, Session>,
    most_sessions: usize,
    closed: HashMap<Route, Closed>,
    /// What a session leaves that has received its first PUSH.
    record: ClosedRecord,
    old_handles: Vec<Handle>,
    /// Authenticated packets that have begun a session.
    began: HashSet<Vec<u8>>,
    /// Batches and their stride.
    recorded: Vec<(Vec<u8>, usize)>,
    offered: u64,
    handed_over: u64,
}

impl Model {
    fn new(plan: &Plan) -> Self {
        let aead = |byte: u8| {
            let cipher = CipherKind::Aes128Gcm.build(&Key::from_bytes(&[byte; 16]), Framing::KcpGo).unwrap();
            Some(PacketCrypto::new(cipher, Arc::new(NoNonces)))
        };
        let keys = [None, aead(1), aead(2)];
        let accept_key = usize::from(plan.encrypted && plan.accepting);
        let extensions = if plan.extensions { Extensions::Preferred } else { Extensions::Off };
        let mut config =
            KcpConfig::builder().one_session_per_address(plan.one_per_address).extensions(extensions);
        if let Some(crypto) = &keys[accept_key] {
            config = config.crypto(crypto.clone());
        }
        if plan.few {
            config = config.max_half_open(3).max_half_open_of_network(2).max_sessions(5);
        }
        if !plan.cookies {
            config = config.cookies(CookiePolicy::Never);
        }
        let config = config.build().unwrap();
        let endpoint = match plan.accepting {
            true => Endpoint::accepting(&config, &mut Constant),
            false => Endpoint::new(&mut Constant),
        };
        let mut connection = Connection::new(1, &KcpConfig::default(), Instant::ZERO);
        connection.handle_packet(Instant::ZERO, &mut segment(1, Command::Push, 0, &[0; 8])).unwrap();
        Self {
            endpoint,
            record: connection.record(),
            keys,
            accept_key,
            retiring: None,
            phase: 0,
            one_per_address: plan.one_per_address,
            few: plan.few,
            now: Instant::ZERO,
            nonce: 0,
            sessions: HashMap::new(),
            most_sessions: 0,
            closed: HashMap::new(),
            old_handles: Vec::new(),
            began: HashSet::new(),
            recorded: Vec::new(),
            offered: 0,
            handed_over: 0,
        }
    }

    /// The keys under which packets from an address are decrypted.
    fn keys_of(&self, source: SocketAddr) -> Vec<usize> {
        let accepted: Vec<_> =
            [self.accept_key].into_iter().chain(self.retiring.map(|(key, _)| key)).collect();
        let connected = self.sessions.iter().find(|(route, session)| route.0 == source && !session.accepted);
        match connected {
            Some((_, session)) if !accepted.contains(&session.key) => vec![session.key],
            _ => accepted,
        }
    }

    /// Whether a packet was sealed under a key.
    fn opens(&self, key: usize, packet: &[u8]) -> bool {
        self.keys[key].as_ref().is_none_or(|crypto| crypto.cipher().open(&mut packet.to_vec()).is_ok())
    }

    fn rotate(&mut self, keep: Duration) {
        let key = 3 - self.accept_key.max(1);
        let crypto = self.keys[key].clone().unwrap();
        let outcome = self.endpoint.rotate_key(self.now, crypto, keep);
        assert_eq!(outcome.is_ok(), self.accept_key > 0, "{outcome:?}");
        if outcome.is_ok() {
            self.retiring = Some((self.accept_key, self.now + keep));
            (self.accept_key, self.phase) = (key, self.phase + 1);
        }
        self.end_retired();
    }

    /// Ends the sessions whose key is accepted no longer.
    fn end_retired(&mut self) {
        self.retiring = self.retiring.filter(|(_, until)| *until > self.now);
        let oldest = self.phase - u32::from(self.retiring.is_some());
        let over = |session: &Session| session.accepted && session.phase < oldest;
        let mut expected: Vec<_> =
            self.sessions.values().filter(|session| over(session)).map(|session| session.handle).collect();
        let mut retired = self.endpoint.retired_sessions(self.now);
        expected.sort();
        retired.sort();
        assert_eq!(retired, expected);
        for handle in retired {
            let route = self.endpoint.route(handle).expect("it lives");
            assert!(self.endpoint.close(self.now, handle, None));
            self.forget(route, handle);
        }
    }

    fn build(&mut self, packets: &[Packet]) -> (Vec<u8>, usize) {
        let mut built: Vec<Vec<u8>> =
            packets.iter().take(MAX_PACKETS).map(|packet| self.packet(packet)).collect();
        let stride = built.iter().map(Vec::len).max().unwrap_or(0);
        // All of one size but the last, as in a batch that a socket receives.
        if let Some((_, others)) = built.split_last_mut() {
            others.iter_mut().for_each(|packet| packet.resize(stride, 0));
        }
        (built.concat(), stride)
    }

    fn packet(&mut self, packet: &Packet) -> Vec<u8> {
        let conv = u32::from(packet.conv % 4);
        let segment = match packet.kind {
            Kind::First(other) => segment(conv, Command::Push, 0, &[u8::from(other); 8]),
            Kind::Push(sn) => segment(conv, Command::Push, u32::from(sn), &[1; 8]),
            Kind::Ping => extension(conv, PING, 0x0505_0505, &[3; 8]),
            Kind::Hello(id) => {
                let id = [1 + id % 4; 8];
                let body = [&b"kcp9\x01\x01\0\0\0\0\0\0"[..], &id, &[0; 4]].concat();
                extension(conv, HELLO, u32::from_le_bytes([id[0]; 4]), &body)
            }
            // Bytes behind it are no segment.
            Kind::Ack => [segment(conv, Command::Ack, 0, &[]), vec![1; 8]].concat(),
            Kind::Garbage(len) => return vec![0xee; usize::from(len)],
        };
        let Some(crypto) = self.keys[usize::from(packet.key % 3)].clone() else { return segment };
        let cipher = crypto.cipher();
        self.nonce += 1;
        let mut bytes = vec![0; cipher.header_len()];
        bytes[..8].copy_from_slice(&self.nonce.to_le_bytes());
        bytes.extend(segment);
        bytes.resize(bytes.len() + cipher.trailer_len(), 0);
        cipher.seal(&mut bytes).unwrap();
        if packet.damaged {
            bytes[20] ^= 1;
        }
        bytes
    }

    fn receive(&mut self, source: SocketAddr, encrypted: &[u8], stride: usize, mut answers: u32) {
        let keys = self.keys_of(source);
        let mut bytes = encrypted.to_vec();
        self.offered += bytes.len().div_ceil(stride.max(1)).max(1) as u64;
        self.endpoint.receive(source, &mut bytes, stride);
        let stride = stride.max(1);
        let mut behind = 0;
        while let Some(routed) = self.endpoint.poll_routed(self.now, &bytes) {
            let run = match routed {
                Routed::Session(run) => run,
                Routed::Incoming(incoming) => {
                    assert_eq!(incoming.source, source);
                    answers >>= 2;
                    let key = match self.retiring.filter(|_| incoming.retiring_key) {
                        Some((key, _)) => key,
                        None => self.accept_key,
                    };
                    assert!(keys.contains(&key), "under a cipher that accepted sessions do not have");
                    match answers & 3 {
                        0 => {
                            self.endpoint.refuse(Refusal::QueueFull);
                            continue;
                        }
                        // Left unanswered: that counts as refused.
                        1 => {
                            self.check_incoming(incoming);
                            continue;
                        }
                        _ => self.accept(incoming, key, encrypted, &bytes),
                    }
                }
                Routed::Reply(reply) => {
                    assert_eq!(reply.to, source);
                    let mut packet = self.endpoint.reply().to_vec();
                    assert!(packet.len() <= stride.min(bytes.len()), "{} bytes for {stride}", packet.len());
                    let key = keys.iter().copied().find(|key| self.opens(*key, &packet));
                    let key = key.expect("it is sealed under a key of its source");
                    let payload = match &self.keys[key] {
                        Some(crypto) => {
                            crypto.cipher().open(&mut packet).unwrap();
                            &packet
                                [crypto.cipher().header_len()..packet.len() - crypto.cipher().trailer_len()]
                        }
                        None => &packet[..],
                    };
                    let (header, rest) = Segments::new(payload).next().unwrap().unwrap();
                    match (header.cmd, header.frg) {
                        (Command::Ack, _) => {
                            let closed = &self.closed[&(source, header.conv)];
                            assert!(closed.accepted && closed.at + MEMORY > self.now);
                        }
                        (Command::Extension, RESET) => assert_eq!(rest.len(), 8),
                        (Command::Extension, ABORT) => {
                            assert!(!self.endpoint.is_accepting() && rest.is_empty());
                        }
                        // A field with a cookie.
                        (Command::Extension, RETRY) => assert_eq!(rest.len(), 23),
                        _ => panic!("{header:?}"),
                    }
                    assert!(!self.sessions.contains_key(&(source, header.conv)));
                    continue;
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(run.stride, stride);
            assert!(run.range.start >= behind && run.range.start % stride == 0, "{run:?} behind {behind}");
            assert!(!run.range.is_empty() && run.range.end <= bytes.len(), "{run:?}");
            behind = run.range.end;
            let route = self.endpoint.route(run.handle).expect("the handle of a run is valid");
            assert_eq!(self.sessions.get(&route).map(|session| session.handle), Some(run.handle));
            assert_eq!(route.0, source);
            let key = self.sessions[&route].key;
            for (packet, sealed) in
                bytes[run.range.clone()].chunks(stride).zip(encrypted[run.range.clone()].chunks(stride))
            {
                assert!(self.opens(key, sealed), "under another key than that of {route:?}");
                let (header, trailer) = match &self.keys[key] {
                    Some(crypto) => (crypto.cipher().header_len(), crypto.cipher().trailer_len()),
                    None => (0, 0),
                };
                assert_eq!(peek_conv(&packet[header..packet.len() - trailer]), Some(route.1));
                self.handed_over += 1;
            }
        }
    }

    fn check_incoming(&self, incoming: Incoming) {
        let route = (incoming.source, incoming.conv);
        assert!(self.endpoint.is_accepting());
        let key = self.retiring.filter(|_| incoming.retiring_key).map_or(self.accept_key, |(key, _)| key);
        let mut begun_here =
            self.sessions.iter().filter(|(other, session)| other.0 == route.0 && !session.accepted);
        assert!(
            begun_here.all(|(_, session)| session.key == key),
            "{} has sessions under another key",
            route.0
        );
        assert!(!self.sessions.contains_key(&route), "{route:?} is in use");
        assert_ne!(route.0.port(), 0);
        if let Some(closed) = self.closed.get(&route) {
            assert!(closed.at + QUIET <= self.now, "{route:?} was closed at {:?}", closed.at);
            assert!(closed.accepted || closed.at + MEMORY <= self.now, "{route:?} was begun here");
        }
    }

    fn accept(&mut self, incoming: Incoming, key: usize, encrypted: &[u8], decrypted: &[u8]) -> Run {
        self.check_incoming(incoming);
        let route = (incoming.source, incoming.conv);
        let accepted = self.endpoint.accept(self.now).expect("what is offered can be accepted");
        assert_eq!(self.endpoint.accept(self.now), None);
        let run = accepted.run;
        if key > 0 {
            let packets = encrypted[run.range.clone()].chunks(run.stride);
            let new = packets.filter(|packet| self.began.insert(packet.to_vec())).count();
            assert!(new > 0, "all packets that begin {route:?} began a session before");
        }
        let before = self.sessions.iter().find(|(other, session)| other.0 == route.0 && session.accepted);
        let before = before.map(|(other, session)| (*other, session.handle)).filter(|_| self.one_per_address);
        assert_eq!(accepted.replaced, before.map(|(_, handle)| handle));
        if let Some((other, handle)) = before {
            self.forget(other, handle);
        }
        if let Some(evicted) = accepted.evicted {
            let route = self.sessions.iter().find(|(_, session)| session.handle == evicted);
            let route = *route.expect("one that lives gives way").0;
            assert!(self.sessions.remove(&route).is_some_and(|session| session.accepted));
            self.old_handles.push(evicted);
        }
        let firsts = self.first_pushes(key, &decrypted[run.range.clone()], run.stride);
        if let Some(closed) = self.closed.get(&route).filter(|closed| closed.at + MEMORY > self.now) {
            let all_resends = firsts.iter().all(|first| closed.first == Some(*first));
            // A HELLO says that its sender begins anew, and these records know no ids.
            let begins = incoming.by_hello || firsts.is_empty() || !all_resends;
            assert!(begins, "a resend begins {route:?} again");
        }
        let first = firsts.first().copied();
        let phase = self.phase - u32::from(incoming.retiring_key);
        self.insert(route, Session { handle: run.handle, accepted: true, key, phase, first });
        run
    }

    /// The payloads of the first PUSHes in a run.
    fn first_pushes(&self, key: usize, run: &[u8], stride: usize) -> Vec<u8> {
        let (header, trailer) = match &self.keys[key] {
            Some(crypto) => (crypto.cipher().header_len(), crypto.cipher().trailer_len()),
            None => (0, 0),
        };
        let payloads = run.chunks(stride).map(|packet| &packet[header..packet.len() - trailer]);
        let segments = payloads.flat_map(|payload| Segments::new(payload).map_while(Result::ok));
        let firsts = segments.filter(|(header, _)| header.cmd == Command::Push && header.sn == 0);
        firsts.map(|(_, payload)| payload[0]).collect()
    }

    fn insert(&mut self, route: Route, session: Session) {
        let handle = session.handle;
        assert!(!self.old_handles.contains(&handle), "{handle:?} is used again");
        assert!(self.sessions.values().all(|other| other.handle.index() != handle.index()));
        self.sessions.insert(route, session);
        self.most_sessions = self.most_sessions.max(self.sessions.len());
        // One that ends another is there before the other goes.
        assert!(handle.index() <= self.most_sessions, "{handle:?}: {} sessions at most", self.most_sessions);
    }

    fn forget(&mut self, route: Route, handle: Handle) {
        let Some(Session { accepted, first, .. }) = self.sessions.remove(&route) else { return };
        self.old_handles.push(handle);
        self.closed.insert(route, Closed { at: self.now, accepted, first });
    }

    fn connect(&mut self, peer: SocketAddr, conv: u32, key: usize) {
        let route = (peer, conv);
        let fits = |session: &Session| key == if session.accepted { self.accept_key } else { session.key };
        let others = || self.sessions.iter().filter(|(other, _)| other.0 == peer);
        let used = self.sessions.get(&route).map(|session| session.handle);
        match self.endpoint.connect(peer, conv, self.keys[key].as_ref()) {
            Ok(handle) => {
                assert_eq!(used, None);
                assert!(others().all(|(_, session)| fits(session)), "{peer} has other ciphers");
                self.insert(route, Session { handle, accepted: false, key, phase: 0, first: None });
            }
            Err(ConnectError::ConvInUse(handle)) => assert_eq!(used, Some(handle)),
            Err(ConnectError::OtherCipher) => {
                assert!(!others().all(|(_, session)| fits(session)), "{peer} has no other cipher");
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    fn close(&mut self, nth: u8, recorded: bool) {
        let mut routes: Vec<_> = self.sessions.keys().copied().collect();
        routes.sort_unstable();
        let Some(route) = routes.get(usize::from(nth) % routes.len().max(1)).copied() else { return };
        let handle = self.sessions[&route].handle;
        assert!(self.endpoint.close(self.now, handle, recorded.then_some(self.record)));
        self.forget(route, handle);
    }

    fn check(&self) {
        assert_eq!(self.endpoint.len(), self.sessions.len());
        for (route, session) in &self.sessions {
            assert_eq!(self.endpoint.find(route.0, route.1), Some(session.handle));
            assert_eq!(self.endpoint.route(session.handle), Some(*route));
            assert_eq!(self.endpoint.is_accepted(session.handle), Some(session.accepted));
        }
        let stats = self.endpoint.stats();
        let dropped = stats.dropped_short
            + stats.dropped_long
            + stats.dropped_bad_checksum
            + stats.dropped_bad_tag
            + stats.dropped_no_agreement
            + stats.dropped_no_session
            + stats.dropped_no_hello
            + stats.dropped_recently_closed
            + stats.dropped_replayed
            + stats.dropped_queue_full
            + stats.dropped_max_sessions
            + stats.dropped_max_half_open
            + stats.dropped_max_half_open_of_network
            + stats.dropped_no_cookie;
        assert!(
            self.endpoint.half_open() <= self.sessions.values().filter(|session| session.accepted).count()
        );
        assert!(!self.few || self.endpoint.half_open() <= 3);
        assert_eq!(dropped + self.handed_over, self.offered, "{stats:?}");
    }
}

fuzz_target!(|input: Input| {
    match input {
        Input::Static(plan) => run(&plan),
        Input::Agreements(plan) => agreements::run(&plan),
    }
});

fn run(plan: &Plan) {
    let mut run = Model::new(plan);
    for operation in plan.operations.iter().take(MAX_OPERATIONS) {
        match operation {
            Operation::Batch { source, answers, packets } => {
                let (bytes, stride) = run.build(packets);
                run.receive(address(*source), &bytes, stride, *answers);
                run.recorded.push((bytes, stride));
            }
            Operation::Noise { source, stride, bytes } => {
                run.receive(address(*source), bytes, usize::from(*stride), u32::MAX);
            }
            Operation::Again { source, batch } => {
                let index = usize::from(*batch) % run.recorded.len().max(1);
                if let Some((bytes, stride)) = run.recorded.get(index).cloned() {
                    run.receive(address(*source), &bytes, stride, u32::MAX);
                }
            }
            Operation::Connect { peer, conv, key } => {
                run.connect(address(*peer), u32::from(*conv % 4), usize::from(*key % 3));
            }
            Operation::Close { nth, recorded } => run.close(*nth, *recorded),
            Operation::CloseAgain(nth) => {
                let index = usize::from(*nth) % run.old_handles.len().max(1);
                if let Some(handle) = run.old_handles.get(index) {
                    assert!(!run.endpoint.close(run.now, *handle, None), "{handle:?} was closed before");
                }
            }
            Operation::Validated(nth) => {
                let nth = usize::from(*nth) % run.sessions.len().max(1);
                if let Some(session) = run.sessions.values().nth(nth) {
                    run.endpoint.validated(session.handle);
                }
            }
            Operation::Wait(millis) => {
                run.now += Duration::from_millis(u64::from(*millis % 8_192));
                run.end_retired();
            }
            Operation::Rotate { keep } => run.rotate(Duration::from_millis(u64::from(*keep))),
            Operation::StopAccepting => run.endpoint.stop_accepting(),
        }
        run.check();
    }
}
