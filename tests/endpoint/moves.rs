//! Clients that get another address while their sessions go on, and others who would like a session to go elsewhere.

use std::net::SocketAddr;

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    crypto::PacketCrypto,
    proto::{Command, Extensions, HEADER_LEN, Handle, Instant, RebindError, SegmentHeader, Segments},
};
use kcp9_simulator::{Rng, ms, payload::Payload};

use crate::{
    ciphers::aead,
    host::{Host, address, client, first_packet},
    network::{SeedOnPanic, deliver_all},
};

const KEY: &[u8; 16] = b"the key of both.";
const CONV: u32 = 7;
const RESET: u8 = 7;
const PING: u8 = 8;
const PONG: u8 = 9;

fn settings() -> KcpConfigBuilder {
    KcpConfig::builder().extensions(Extensions::Preferred).crypto(aead(KEY))
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Where others than the client are.
fn elsewhere(number: u32) -> SocketAddr {
    address(0x0b00_0001, 5_000 + number as u16)
}

struct Packet {
    arrival: Instant,
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

/// A server, a client with one session, and the packets under way between them. Both ends write at their leisure.
struct World {
    now: Instant,
    server: Host,
    client: Host,
    theirs: Handle,
    ours: Handle,
    flows: [Flow; 2],
    rng: Rng,
    loss: f64,
    under_way: Vec<Packet>,
    /// What goes to addresses that are neither's.
    strayed: Vec<Packet>,
}

/// What one end writes and the other one reads.
struct Flow {
    payload: Payload,
    written: u64,
    read: u64,
    limit: u64,
}

impl World {
    /// A session that both ends know of.
    fn new(seed: u64, config: &KcpConfig) -> Self {
        let mut rng = Rng::new(seed);
        let mut server = Host::accepting(address(1, 1), config);
        let mut client = Host::connecting(client(1));
        let ours = client.connect(at(0), server.address, CONV, config);
        client.connection(ours).write(at(0), b"?").unwrap();
        let mut hosts = [server, client];
        deliver_all(at(0), &mut hosts);
        [server, client] = hosts;
        let theirs = server.take_accepted().unwrap();
        server.connection(theirs).write(at(0), b"!").unwrap();
        let mut hosts = [server, client];
        deliver_all(at(0), &mut hosts);
        deliver_all(at(100), &mut hosts);
        [server, client] = hosts;
        assert_eq!((server.read(theirs), client.read(ours)), (b"?".to_vec(), b"!".to_vec()));
        let flows = [1, 2].map(|_| Flow { payload: Payload::new(rng.next()), written: 0, read: 0, limit: 0 });
        Self {
            now: at(100),
            server,
            client,
            theirs,
            ours,
            flows,
            rng,
            loss: 0.0,
            under_way: Vec::new(),
            strayed: Vec::new(),
        }
    }

    /// The client, or its NAT, has another address. `knows`: the client is told.
    fn change_address(&mut self, to: SocketAddr, knows: bool) {
        self.client.address = to;
        if knows {
            self.client.connection(self.ours).rebind(self.now).unwrap();
        }
    }

    /// Where the server sends to.
    fn route(&self) -> SocketAddr {
        self.server.endpoint.route(self.theirs).unwrap().0
    }

    fn moves(&mut self) -> u64 {
        self.server.connection(self.theirs).stats().extensions.moves
    }

    /// Lets both ends write so many bytes more.
    fn add(&mut self, from_client: u64, from_server: u64) {
        self.flows[0].limit += from_client;
        self.flows[1].limit += from_server;
    }

    fn is_done(&self) -> bool {
        self.flows.iter().all(|flow| flow.read == flow.limit)
    }

    /// One step: what has arrived, what the applications do, and what is sent by that. `tap` sees each packet of the two, with
    /// its time of arrival, even if it gets lost, and may add others.
    fn step(&mut self, tap: &mut impl FnMut(&Packet) -> Vec<Packet>) {
        let now = self.now;
        let mut arrived: Vec<_> = self.under_way.extract_if(.., |packet| packet.arrival <= now).collect();
        arrived.sort_by_key(|packet| packet.arrival);
        for packet in arrived {
            if packet.to == self.server.address {
                self.server.receive_one(now, packet.from, &packet.bytes);
            } else if packet.to == self.client.address {
                self.client.receive_one(now, packet.from, &packet.bytes);
            } else {
                self.strayed.push(packet);
            }
        }
        let [up, down] = &mut self.flows;
        up.run(now, (&mut self.client, self.ours), (&mut self.server, self.theirs));
        down.run(now, (&mut self.server, self.theirs), (&mut self.client, self.ours));
        for host in [&mut self.server, &mut self.client] {
            let from = host.address;
            for batch in host.drive(now) {
                for bytes in batch.bytes.chunks(batch.stride) {
                    let arrival = now + ms(15 + self.rng.within(0..=10));
                    let packet = Packet { arrival, from, to: batch.to, bytes: bytes.to_vec() };
                    self.under_way.extend(tap(&packet));
                    if !self.rng.chance(self.loss) {
                        self.under_way.push(packet);
                    }
                }
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        let arrivals = self.under_way.iter().map(|packet| packet.arrival);
        arrivals.chain(self.server.poll_timeout()).chain(self.client.poll_timeout()).min()
    }

    /// Goes on until `end`, or until `done`. Returns whether that came.
    fn run_until(
        &mut self,
        end: Instant,
        tap: &mut impl FnMut(&Packet) -> Vec<Packet>,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        loop {
            self.step(tap);
            if done(self) {
                return true;
            }
            match self.next() {
                Some(next) if next < end => self.now = next.max(self.now + ms(1)),
                _ => {
                    self.now = end;
                    return false;
                }
            }
        }
    }

    /// Goes on for so many milliseconds, with nobody in between.
    fn run(&mut self, millis: u64) {
        self.run_until(self.now + ms(millis), &mut |_| Vec::new(), |_| false);
    }

    /// Goes on until everything has arrived. Returns how many milliseconds that took.
    fn finish(&mut self, limit: u64) -> u64 {
        let begin = self.now;
        let done = self.run_until(begin + ms(limit), &mut |_| Vec::new(), |world| world.is_done());
        let reasons = [self.client.connection(self.ours), self.server.connection(self.theirs)];
        let reasons = reasons.map(|connection| connection.close_reason());
        assert!(done, "not everything arrived in {limit} ms: {reasons:?}");
        (self.now - begin).as_millis() as u64
    }
}

impl Flow {
    fn run(&mut self, now: Instant, from: (&mut Host, Handle), to: (&mut Host, Handle)) {
        let mut bytes = [0; 4_000];
        while self.written < self.limit {
            let len = bytes.len().min((self.limit - self.written) as usize);
            self.payload.fill(self.written, &mut bytes[..len]);
            let Ok(count) = from.0.connection(from.1).write(now, &bytes[..len]) else { break };
            self.written += count as u64;
        }
        let read = to.0.read(to.1);
        assert_eq!(self.payload.first_difference(self.read, &read), None);
        self.read += read.len() as u64;
    }
}

#[test]
fn a_client_that_takes_another_socket_is_followed_within_a_second() {
    let mut world = World::new(1, &settings().build().unwrap());
    world.add(100_000, 100_000);
    world.run(100);
    let before = world.server.connection(world.theirs).stats();
    world.change_address(client(2), true);
    world.run(1_000);
    assert_eq!((world.route(), world.moves()), (client(2), 1));
    // It was told, and asks no more.
    let asked = world.client.connection(world.ours).stats().extensions;
    world.run(5_000);
    assert!(world.is_done());
    assert_eq!(world.client.connection(world.ours).stats().extensions.sent, asked.sent);
    assert_eq!(asked.moves, 1);
    // Nothing that was learnt of the old path is kept.
    let after = world.server.connection(world.theirs).stats();
    assert!(before.path.rtt > ms(0) && after.udp.packets_sent > before.udp.packets_sent);
    assert_eq!(world.server.stats().accepted, 1);
}

#[test]
fn a_client_whose_nat_takes_another_port_is_found_by_what_it_sends_again() {
    for (up, down) in [(50_000, 0), (50_000, 50_000)] {
        let mut world = World::new(2, &settings().keep_alive(None).build().unwrap());
        world.change_address(client(2), false);
        world.add(up, down);
        let took = world.finish(10_000);
        assert!(took < 5_000, "{took} ms for {up} and {down}");
        assert_eq!((world.route(), world.moves()), (client(2), 1));
    }
}

#[test]
fn a_client_that_only_receives_is_found_by_its_keep_alive() {
    let mut world = World::new(3, &settings().keep_alive(Some(ms(5_000))).build().unwrap());
    world.change_address(client(2), false);
    world.add(0, 50_000);
    world.finish(12_000);
    assert_eq!((world.route(), world.moves()), (client(2), 1));
}

/// The server has not heard that its ANSWER came.
#[test]
fn a_client_may_move_before_the_handshake_is_done() {
    let config = settings().build().unwrap();
    let mut hosts = [Host::accepting(address(1, 1), &config), Host::connecting(client(1))];
    let handle = hosts[1].connect(at(0), hosts[0].address, CONV, &config);
    let [server, moving] = &mut hosts;
    for batch in moving.drive(at(0)) {
        server.receive(at(0), client(1), batch.bytes, batch.stride);
    }
    for batch in server.drive(at(0)) {
        moving.receive(at(0), server.address, batch.bytes, batch.stride);
    }
    moving.address = client(2);
    moving.connection(handle).rebind(at(0)).unwrap();
    moving.connection(handle).write(at(0), b"here I am").unwrap();
    for millis in (0..2_000).step_by(20) {
        deliver_all(at(millis), &mut hosts);
    }
    let session = hosts[0].take_accepted().unwrap();
    assert_eq!(hosts[0].endpoint.route(session).unwrap().0, client(2));
    assert_eq!(hosts[0].read(session), b"here I am");
    assert_eq!(hosts[0].stats().accepted, 1);
}

/// Its first PUSH comes from another address than its HELLO.
#[test]
fn a_client_that_has_only_read_begins_no_second_session_elsewhere() {
    for knows in [false, true] {
        let config = settings().build().unwrap();
        let mut hosts = [Host::accepting(address(1, 1), &config), Host::connecting(client(1))];
        let peer = hosts[0].address;
        let handle = hosts[1].connect(at(0), peer, CONV, &config);
        deliver_all(at(0), &mut hosts);
        deliver_all(at(50), &mut hosts);
        let session = hosts[0].take_accepted().unwrap();
        hosts[0].connection(session).write(at(50), b"220 ready").unwrap();
        deliver_all(at(50), &mut hosts);
        deliver_all(at(150), &mut hosts);
        assert_eq!(hosts[1].read(handle), b"220 ready");
        hosts[1].address = client(2);
        if knows {
            hosts[1].connection(handle).rebind(at(5_000)).unwrap();
        }
        hosts[1].connection(handle).write(at(5_000), b"request").unwrap();
        for millis in (5_000..9_000).step_by(20) {
            deliver_all(at(millis), &mut hosts);
        }
        assert_eq!(hosts[0].stats().accepted, 1);
        assert_eq!(hosts[0].endpoint.route(session).unwrap().0, client(2));
        assert_eq!(hosts[0].read(session), b"request");
    }
}

/// Nobody has anything to send: the session is at the new address all the same.
#[test]
fn an_idle_client_is_followed() {
    let mut world = World::new(4, &settings().build().unwrap());
    for round in 2..6 {
        world.change_address(client(round), true);
        world.run(1_500);
        assert_eq!(world.route(), client(round));
    }
    assert_eq!(world.moves(), 4);
    world.add(10_000, 10_000);
    world.finish(2_000);
}

#[test]
fn a_client_may_come_back_to_an_address() {
    let mut world = World::new(5, &settings().build().unwrap());
    for round in [2, 1, 2, 1] {
        world.add(20_000, 20_000);
        world.run(50);
        world.change_address(client(round), true);
        world.finish(10_000);
        world.run(1_000);
        assert_eq!(world.route(), client(round));
    }
    assert_eq!((world.moves(), world.server.stats().accepted), (4, 1));
}

#[test]
fn data_flows_on_over_bad_paths_whatever_moves_when() {
    for seed in 0..60 {
        let _seed = SeedOnPanic(seed);
        let config = settings().dead_timeout(ms(60_000)).keep_alive(Some(ms(3_000)));
        let config = if seed % 3 == 0 { config.fec(4, 2) } else { config };
        let mut world = World::new(seed, &config.build().unwrap());
        world.loss = [0.0, 0.02, 0.1, 0.2][seed as usize % 4];
        for round in 0..4 {
            let bytes = [0; 2].map(|_| world.rng.within(0..=150_000));
            world.add(bytes[0], bytes[1]);
            let pause = world.rng.within(0..=400);
            world.run(pause);
            let knows = world.rng.chance(0.5);
            world.change_address(client(10 + round), knows);
            if world.rng.chance(0.7) {
                world.finish(90_000);
            }
        }
        world.add(10_000, 10_000);
        world.finish(120_000);
        assert_eq!(world.server.stats().accepted, 1, "no second session of it");
        assert_eq!(world.server.endpoint.len(), 1);
    }
}

/// Someone on the path, without the key, brings a copy of whatever the client sends before the original, from an address of his
/// own, and carries to the client whatever the server sends there.
#[test]
fn copies_that_come_first_from_elsewhere_move_nothing() {
    for seed in 0..20 {
        let _seed = SeedOnPanic(seed);
        let config = settings().keep_alive(Some(ms(2_000))).build().unwrap();
        let mut world = World::new(seed, &config);
        world.loss = [0.0, 0.1][seed as usize % 2];
        let (client, server) = (world.client.address, world.server.address);
        let mut attempts = 0;
        for round in 0..20 {
            if round % 2 == 0 {
                world.add(3_000, 3_000);
            }
            let end = world.now + ms(5_000);
            let mut tap = |packet: &Packet| {
                let arrival = at(packet.arrival.as_micros() / 1_000 - 14);
                let bytes = packet.bytes.clone();
                if packet.from == client {
                    vec![Packet { arrival, from: elsewhere(1), to: server, bytes }]
                } else if packet.to == elsewhere(1) {
                    attempts += 1;
                    vec![Packet { arrival, from: server, to: client, bytes }]
                } else {
                    Vec::new()
                }
            };
            world.run_until(end, &mut tap, |_| false);
            assert_eq!((world.route(), world.moves()), (client, 0), "round {round}");
        }
        assert!(world.is_done());
        assert!(attempts > 10, "{attempts} questions: he has tried");
    }
}

/// He sends a recording instead, while the client lives and after it has moved.
#[test]
fn recordings_move_nothing() {
    let config = settings().keep_alive(Some(ms(1_000))).build().unwrap();
    let mut world = World::new(1, &config);
    let server = world.server.address;
    let mut recorded = Vec::new();
    for address in [client(1), client(2)] {
        if world.client.address != address {
            world.change_address(address, true);
        }
        world.add(5_000, 5_000);
        let end = world.now + ms(10_000);
        let mut tap = |packet: &Packet| {
            if packet.to == server {
                recorded.push(packet.bytes.clone());
            }
            Vec::new()
        };
        world.run_until(end, &mut tap, |_| false);
        // All of it has arrived.
        world.run(100);
        assert_eq!(world.route(), address);
        let moves = world.moves();
        let before = world.server.connection(world.theirs).stats().extensions;
        for (number, packet) in recorded.iter().enumerate() {
            let now = world.now;
            world.server.receive_one(now, elsewhere(number as u32 % 7), packet);
        }
        assert!(world.server.drive(world.now).iter().all(|batch| batch.to == address));
        let after = world.server.connection(world.theirs).stats().extensions;
        assert_eq!(after.received, before.received, "none means anything");
        world.run(5_000);
        assert_eq!((world.route(), world.moves()), (address, moves));
    }
}

/// What a holder of the key makes: a segment of the extensions with 8 bytes of body, sealed.
fn forge(crypto: &PacketCrypto, number: u64, frg: u8, ts: u32, tag: u32, token: [u8; 8]) -> Vec<u8> {
    let cipher = crypto.cipher();
    let header =
        SegmentHeader { conv: CONV, cmd: Command::Extension, frg, wnd: 128, ts, sn: tag, una: 0, len: 8 };
    let mut packet = vec![0; cipher.header_len()];
    packet[..8].copy_from_slice(&number.to_le_bytes());
    packet.extend(header.to_bytes());
    packet.extend(token);
    packet.resize(packet.len() + cipher.trailer_len(), 0);
    cipher.seal(&mut packet).unwrap();
    packet
}

/// The extension segments in a packet: subtype, tag, and the first 8 bytes of the body.
fn extension_segments(crypto: &PacketCrypto, packet: &[u8]) -> Vec<(u8, u32, [u8; 8])> {
    let (cipher, mut packet) = (crypto.cipher(), packet.to_vec());
    cipher.open(&mut packet).unwrap();
    let payload = &packet[cipher.header_len()..packet.len() - cipher.trailer_len()];
    assert!(payload.len() >= HEADER_LEN);
    let extension = |(header, body): (SegmentHeader, &[u8])| {
        let body = *body.first_chunk()?;
        (header.cmd == Command::Extension).then_some((header.frg, header.sn, body))
    };
    Segments::new(payload).map_while(Result::ok).filter_map(extension).collect()
}

/// A holder of the shared key knows the tags, asks for the session at an address of his own and answers there, for as long as he
/// likes. The client answers where it is.
#[test]
fn a_holder_of_the_key_moves_no_session_whose_client_answers() {
    for seed in 0..10 {
        let _seed = SeedOnPanic(seed);
        let config = settings().keep_alive(Some(ms(4_000))).build().unwrap();
        let crypto = config.crypto().unwrap().clone();
        let mut world = World::new(seed, &config);
        world.loss = [0.0, 0.1][seed as usize % 2];
        let (address, server) = (world.client.address, world.server.address);
        let (mut number, mut tags, mut asked) = (1 << 40, [None; 2], 0);
        for round in 0..200 {
            if round % 20 == 0 {
                world.add(2_000, 2_000);
            }
            let now = world.now;
            if let [Some(tag), _] = tags {
                number += 1;
                let ts = now.as_ts() + 1_000 + round;
                let ping = forge(&crypto, number, PING, ts, tag, number.to_le_bytes());
                world.server.receive_one(now, elsewhere(1), &ping);
            }
            let mut tap = |packet: &Packet| {
                for (subtype, tag, token) in extension_segments(&crypto, &packet.bytes) {
                    if packet.from == address && subtype != 1 {
                        tags[0] = Some(tag);
                    }
                    if packet.to == elsewhere(1) && subtype == PING {
                        asked += 1;
                        number += 1;
                        let ts = packet.arrival.as_ts();
                        let bytes = forge(&crypto, number, PONG, ts, tags[0].unwrap(), token);
                        let arrival = packet.arrival;
                        return vec![Packet { arrival, from: elsewhere(1), to: server, bytes }];
                    }
                }
                Vec::new()
            };
            world.run_until(now + ms(500), &mut tap, |_| false);
            assert_eq!((world.route(), world.moves()), (address, 0), "round {round}");
        }
        assert!(world.is_done());
        assert!(asked > 5, "{asked} questions: he has tried");
    }
}

#[test]
fn forged_questions_in_vain_cost_little() {
    let config = settings().build().unwrap();
    let crypto = config.crypto().unwrap().clone();
    let mut world = World::new(1, &config);
    // The tag, from the client's own question.
    let mut tag = None;
    world.change_address(client(2), true);
    let mut tap = |packet: &Packet| {
        let segments = extension_segments(&crypto, &packet.bytes);
        tag = segments
            .iter()
            .find(|segment| segment.0 == PING && packet.from == client(2))
            .map(|s| s.1)
            .or(tag);
        Vec::new()
    };
    world.run_until(at(3_000), &mut tap, |_| false);
    let (tag, begin) = (tag.unwrap(), world.now);
    let (mut resets, mut others) = (0, 0);
    for number in 0..60_000_u64 {
        world.now = begin + ms(number);
        let from = elsewhere((number % 100) as u32);
        let ts = world.now.as_ts() + 10;
        // Every second tag is wrong.
        let tag = tag ^ (number as u32 & 1);
        let ping = forge(&crypto, 1 << 41 | number, PING, ts, tag, [1; 8]);
        let now = world.now;
        world.server.receive_one(now, from, &ping);
        let mut tap = |packet: &Packet| {
            let is_reset =
                extension_segments(&crypto, &packet.bytes).iter().any(|segment| segment.0 == RESET);
            let counter = if is_reset { &mut resets } else { &mut others };
            *counter += u32::from(packet.from != client(2));
            Vec::new()
        };
        world.step(&mut tap);
    }
    assert_eq!((world.route(), world.moves()), (client(2), 1));
    // One for each question that counts, and eight a second to the client. Wrong tags draw RESETs, within their own limit.
    assert!(others < 60 * 15, "{others} packets in a minute");
    assert!(resets < 60 * 21, "{resets} RESETs in a minute");
}

/// The client has two networks, and a question of it takes the other one.
#[test]
fn a_client_that_still_answers_where_it_was_stays_there() {
    let mut world = World::new(1, &settings().keep_alive(Some(ms(1_000))).build().unwrap());
    let (address, server) = (world.client.address, world.server.address);
    let end = world.now + ms(60_000);
    let mut changed = 0;
    let mut tap = |packet: &Packet| {
        // All that the client sends leaves by both.
        changed += 1;
        let both = packet.from == address;
        let bytes = packet.bytes.clone();
        let copy = Packet { arrival: packet.arrival, from: elsewhere(1), to: server, bytes };
        if both { vec![copy] } else { Vec::new() }
    };
    world.run_until(end, &mut tap, |_| false);
    assert!(changed > 100);
    assert_eq!((world.route(), world.moves()), (address, 0));
}

#[test]
fn without_extensions_or_a_cipher_that_authenticates_nobody_is_followed() {
    let plain = KcpConfig::builder().extensions(Extensions::Preferred);
    let off = settings().extensions(Extensions::Off);
    for (name, server, client_side) in [
        ("no cipher", plain.clone(), plain),
        ("a server without extensions", off.clone(), settings()),
        ("a client without extensions", settings(), off),
    ] {
        let server = server.dead_timeout(ms(5_000)).build().unwrap();
        let client_side = client_side.dead_timeout(ms(5_000)).build().unwrap();
        let mut hosts = [Host::accepting(address(1, 1), &server), Host::connecting(client(1))];
        let peer = hosts[0].address;
        let handle = hosts[1].connect(at(0), peer, CONV, &client_side);
        hosts[1].connection(handle).write(at(0), b"hello").unwrap();
        deliver_all(at(0), &mut hosts);
        deliver_all(at(100), &mut hosts);
        let session = hosts[0].take_accepted().unwrap();
        assert!(!hosts[1].connection(handle).is_followed(), "{name}");
        assert_eq!(hosts[1].connection(handle).rebind(at(100)), Err(RebindError::NotFollowed), "{name}");
        hosts[1].address = client(2);
        hosts[1].connection(handle).write(at(200), b"hello?").unwrap();
        for millis in (200..10_000).step_by(50) {
            deliver_all(at(millis), &mut hosts);
        }
        assert_eq!(hosts[0].endpoint.route(session).unwrap().0, client(1), "{name}");
        assert!(hosts[1].connection(handle).close_reason().is_some(), "{name}: it dies as ever");
        assert_eq!(hosts[0].read(session), b"hello", "{name}");
    }
}

#[test]
fn the_session_that_moves_replaces_one_at_its_new_address_where_there_may_be_one_only() {
    let config = settings().one_session_per_address(true).build().unwrap();
    let mut world = World::new(1, &config);
    // Another client of the same NAT, whose port the first one gets.
    let mut other = Host::connecting(client(2));
    let handle = other.connect(world.now, world.server.address, CONV + 1, &config);
    other.connection(handle).write(world.now, b"hello").unwrap();
    for batch in other.drive(world.now) {
        let now = world.now;
        world.server.receive(now, client(2), batch.bytes, batch.stride);
    }
    let replaced = world.server.take_accepted().unwrap();
    world.change_address(client(2), true);
    world.run(2_000);
    assert_eq!((world.route(), world.moves()), (client(2), 1));
    assert_eq!(world.server.replaced, [replaced]);
    world.add(1_000, 1_000);
    world.finish(1_000);
}

#[test]
fn late_packets_of_the_address_before_begin_nothing() {
    let mut world = World::new(1, &settings().build().unwrap());
    world.change_address(client(2), true);
    world.run(2_000);
    assert_eq!(world.route(), client(2));
    // A first packet that was never received there: sealed anew, so that no replay is found.
    let crypto = aead(KEY);
    let cipher = crypto.cipher();
    let mut packet = vec![0xee; cipher.header_len()];
    packet.extend(first_packet(CONV));
    packet.resize(packet.len() + cipher.trailer_len(), 0);
    cipher.seal(&mut packet).unwrap();
    let (now, accepted) = (world.now, world.server.stats().accepted);
    world.server.receive_one(now, client(1), &packet);
    assert_eq!((world.server.stats().accepted, world.server.endpoint.len()), (accepted, 1));
}

#[test]
fn a_session_that_has_ended_is_found_no_more() {
    let mut world = World::new(1, &settings().build().unwrap());
    let (now, theirs) = (world.now, world.theirs);
    world.server.close(now, theirs);
    world.client.address = client(2);
    world.client.connection(world.ours).rebind(now).unwrap();
    for batch in world.client.drive(now) {
        world.server.receive(now, client(2), batch.bytes, batch.stride);
    }
    assert!(world.server.drive(now).iter().all(|batch| batch.stride <= 64), "a RESET at most");
}
