//! Sessions with key agreement on virtual time, over a path that loses, doubles, reorders and damages packets, while somebody sends again
//! what was seen: to the same end, from another address, back to its sender, and into other sessions. A failure prints its seed.

use std::{collections::HashMap, net::SocketAddr, sync::Arc, time::Duration};

use kcp9::{
    CookiePolicy, KcpConfig,
    proto::{
        Connection, Endpoint, Handle, Instant, ReadError, Refusal, Routed, SessionSeed,
        noise::{Noise, Pattern},
    },
};
use kcp9_simulator::{LinkSettings, Rng, link::Link, ms};

use crate::ends::Keys;

/// Says which seed failed.
struct SeedOnPanic(u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {}", self.0);
        }
    }
}

const SERVER: ([u8; 4], u16) = ([10, 0, 0, 1], 443);

fn address((ip, port): ([u8; 4], u16)) -> SocketAddr {
    SocketAddr::from((ip, port))
}

fn client_address(nth: usize) -> SocketAddr {
    address(([10, 0, 1, nth as u8], 4_000))
}

/// A server that echoes and then ends its stream.
struct Server {
    endpoint: Endpoint,
    config: KcpConfig,
    rng: Rng,
    sessions: HashMap<Handle, Connection>,
    accepted: usize,
    replies: Vec<(SocketAddr, Vec<u8>)>,
}

impl Server {
    fn new(config: KcpConfig, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let endpoint = Endpoint::accepting(&config, &mut rng);
        Self { endpoint, config, rng, sessions: HashMap::new(), accepted: 0, replies: Vec::new() }
    }

    fn receive(&mut self, now: Instant, source: SocketAddr, packet: &[u8]) {
        let stride = packet.len().max(1);
        let mut block = Arc::new(packet.to_vec().into_boxed_slice());
        self.endpoint.receive(source, Arc::get_mut(&mut block).unwrap(), stride);
        while let Some(routed) = self.endpoint.poll_routed(now, &block) {
            let run = match routed {
                Routed::Session(run) => run,
                Routed::Incoming(incoming) => {
                    assert!(incoming.sealed && incoming.validated);
                    let keys = self.endpoint.take_session_keys().unwrap();
                    let seed = SessionSeed::new(&mut self.rng);
                    let connection =
                        Connection::accept_with_keys(incoming.conv, &self.config, now, seed, keys);
                    let accepted = self.endpoint.accept(now).unwrap();
                    self.endpoint.follow(accepted.run.handle, &connection);
                    self.sessions.insert(accepted.run.handle, connection);
                    self.accepted += 1;
                    accepted.run
                }
                Routed::Reply(reply) => {
                    assert!(self.endpoint.reply().len() <= packet.len(), "longer than its cause");
                    self.replies.push((reply.to, self.endpoint.reply().to_vec()));
                    continue;
                }
                Routed::FromElsewhere(run, from) => {
                    let connection = self.sessions.get_mut(&run.handle).unwrap();
                    connection.handle_from_elsewhere(now, packet, stride, from);
                    let mut buffer = vec![0; 2_048];
                    assert_eq!(
                        connection.poll_transmit_elsewhere(now, &mut buffer),
                        None,
                        "a copy from elsewhere is asked for nothing"
                    );
                    continue;
                }
                other => panic!("{other:?}"),
            };
            let connection = self.sessions.get_mut(&run.handle).unwrap();
            connection.handle_sealed_batch(now, &mut block, run.range, run.stride);
        }
    }

    fn drive(&mut self, now: Instant) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut sent = std::mem::take(&mut self.replies);
        let mut ended = Vec::new();
        for (handle, connection) in &mut self.sessions {
            let mut bytes = [0; 4_096];
            loop {
                match connection.read(&mut bytes) {
                    Ok(len) => assert_eq!(connection.write(now, &bytes[..len]), Ok(len)),
                    Err(ReadError::Finished) => break connection.shutdown(now),
                    Err(_) => break,
                }
            }
            let (peer, _) = self.endpoint.route(*handle).unwrap();
            sent.extend(driven(connection, now).into_iter().map(|packet| (peer, packet)));
            if connection.close_reason().is_some() {
                ended.push(*handle);
            }
        }
        for handle in ended {
            let mut connection = self.sessions.remove(&handle).unwrap();
            let (record, keys) = (connection.record(), connection.take_session_keys());
            assert!(self.endpoint.close_sealed(now, handle, record, keys));
        }
        sent
    }
}

/// What a connection sends now.
fn driven(connection: &mut Connection, now: Instant) -> Vec<Vec<u8>> {
    if connection.poll_timeout().is_some_and(|at| at <= now) {
        connection.handle_timeout(now);
    }
    while connection.poll_event().is_some() {}
    let (mut buffer, mut packets) = (vec![0; 65_536], Vec::new());
    while let Some(transmit) = connection.poll_transmit(now, &mut buffer) {
        packets.extend(buffer[..transmit.len].chunks(transmit.stride).map(<[u8]>::to_vec));
    }
    packets
}

/// What a client at the first address sends now, and what comes back.
fn exchange(now: Instant, server: &mut Server, client: &mut Connection) {
    for packet in driven(client, now) {
        server.receive(now, client_address(1), &packet);
    }
    for (_, packet) in server.drive(now) {
        let _ = client.handle_packet(now, &mut packet.clone());
    }
}

/// A client that writes, ends its stream, and reads to the end.
struct Client {
    connection: Connection,
    request: Vec<u8>,
    answer: Vec<u8>,
    written: usize,
}

impl Client {
    fn new(config: &KcpConfig, now: Instant, conv: u32, len: usize, rng: &mut Rng) -> Self {
        let seed = SessionSeed::new(rng);
        let connection = Connection::connect_with_noise(conv, config, now, seed, rng).unwrap();
        let request = (0..len).map(|_| rng.next() as u8).collect();
        Self { connection, request, answer: Vec::new(), written: 0 }
    }

    /// Returns whether all is done.
    fn work(&mut self, now: Instant) -> bool {
        if self.written < self.request.len()
            && let Ok(len) = self.connection.write(now, &self.request[self.written..])
        {
            self.written += len;
        }
        if self.written == self.request.len() {
            self.connection.shutdown(now);
        }
        let mut bytes = [0; 4_096];
        while let Ok(len) = self.connection.read(&mut bytes) {
            self.answer.extend_from_slice(&bytes[..len]);
        }
        let reason = self.connection.close_reason();
        assert!(matches!(reason, None | Some(kcp9::proto::CloseReason::Finished)), "{reason:?}");
        reason.is_some()
    }
}

struct Packet {
    arrival: Instant,
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

fn config(noise: impl Into<Option<Noise>>, seed: u64) -> KcpConfig {
    let builder = KcpConfig::builder().noise(noise).datagram_queue(4_096);
    if seed.is_multiple_of(3) { builder.fec(5, 2).build().unwrap() } else { builder.build().unwrap() }
}

/// Two clients at once.
fn run(seed: u64) {
    let _seed = SeedOnPanic(seed);
    let mut rng = Rng::new(seed);
    let pattern = Pattern::all().nth(seed as usize % 5).unwrap();
    let keys = Keys::new(1);
    let mut server = Server::new(config(keys.responder(pattern), seed), seed);
    let mut now = Instant::from_millis(1_000);
    let len = rng.within(0..=20_000) as usize;
    let of_client = config(keys.initiator(pattern), seed);
    let mut clients: Vec<_> = [7, 7].map(|conv| Client::new(&of_client, now, conv, len, &mut rng)).into();
    let settings = LinkSettings {
        jitter: ms(rng.within(0..=40)),
        duplicate: 0.05,
        corrupt: 0.02,
        ..LinkSettings::delay(ms(rng.within(1..=80))).loss(rng.within(0..=20) as f64 / 100.0)
    };
    let mut link = Link::new(settings, Rng::new(seed ^ 1));
    let (mut under_way, mut seen) = (Vec::<Packet>::new(), Vec::<Packet>::new());
    let start = now;
    let mut done = [false; 2];
    loop {
        let mut sent: Vec<(SocketAddr, SocketAddr, Vec<u8>)> = Vec::new();
        for (nth, client) in clients.iter_mut().enumerate() {
            done[nth] |= client.work(now);
            let packets = driven(&mut client.connection, now);
            sent.extend(packets.into_iter().map(|packet| (client_address(nth), address(SERVER), packet)));
        }
        sent.extend(server.drive(now).into_iter().map(|(to, packet)| (address(SERVER), to, packet)));
        for (from, to, bytes) in sent {
            for arrival in link.send(now, &bytes).into_iter().flatten() {
                let mut bytes = bytes.clone();
                link.corrupt(&mut bytes);
                under_way.push(Packet { arrival, from, to, bytes });
            }
        }
        if done == [true; 2] {
            break;
        }
        assert!(now - start < Duration::from_secs(300), "not done: {done:?}");
        let next = under_way.iter().map(|packet| packet.arrival).min();
        let timers = clients.iter().filter_map(|client| client.connection.poll_timeout());
        let timers = timers.chain(server.sessions.values().filter_map(|session| session.poll_timeout()));
        now = timers.chain(next).min().unwrap_or(now + ms(100)).max(now + Duration::from_micros(100));
        let (arrived, rest) = under_way.into_iter().partition(|packet| packet.arrival <= now);
        under_way = rest;
        for packet in arrived {
            deliver(now, &mut server, &mut clients, &packet);
            seen.push(packet);
            if rng.within(0..=9) == 0 {
                let copy = &seen[rng.within(0..=seen.len() as u64 - 1) as usize];
                let (from, to) = match rng.within(0..=3) {
                    0 => (copy.from, copy.to),
                    1 => (client_address(9), address(SERVER)),
                    2 => (copy.to, copy.from),
                    _ => (client_address(rng.within(0..=1) as usize), address(SERVER)),
                };
                let packet = Packet { arrival: now, from, to, bytes: copy.bytes.clone() };
                deliver(now, &mut server, &mut clients, &packet);
            }
        }
    }
    for client in &clients {
        assert!(client.answer == client.request, "{pattern}: other bytes");
    }
    assert_eq!(server.accepted, 2, "{pattern}");
    // Everything once more, now and when all is forgotten.
    for later in [0, 3_600_000] {
        now += ms(later);
        for packet in &seen {
            server.receive(now, packet.from, &packet.bytes);
        }
        assert_eq!(server.accepted, 2, "{pattern}: a recording has opened a session");
        let _ = server.drive(now);
    }
}

fn deliver(now: Instant, server: &mut Server, clients: &mut [Client], packet: &Packet) {
    if packet.to == address(SERVER) {
        return server.receive(now, packet.from, &packet.bytes);
    }
    if let Some(nth) = (0..clients.len()).find(|nth| client_address(*nth) == packet.to) {
        let _ = clients[nth].connection.handle_packet(now, &mut packet.bytes.clone());
    }
}

#[test]
fn sessions_come_to_their_end_and_recordings_open_none() {
    (0..200).for_each(run);
}

/// What a seed has found: a recorded first message held up the true one.
#[test]
fn other_first_messages_are_not_in_the_way_of_the_true_one() {
    run(1_494);
}

/// The client of this seed has nothing to say.
#[test]
fn a_session_without_a_byte_begins_and_ends() {
    run(7_326);
}

#[test]
#[ignore = "half a minute: cargo test -p kcp9-tests --release --test noise -- --ignored many_seeds"]
fn sessions_come_to_their_end_and_recordings_open_none_for_many_seeds() {
    (0..10_000).for_each(run);
}

/// What floods a server with first messages costs it no more than its limits say.
#[test]
fn first_messages_fill_no_more_than_the_limit_and_who_is_there_gets_in_by_a_cookie() {
    let keys = Keys::new(2);
    let server = KcpConfig::builder()
        .noise(keys.responder(Pattern::NnPsk0))
        .max_half_open(64)
        .max_half_open_of_network(16)
        .build()
        .unwrap();
    let mut server = Server::new(server, 1);
    let client = KcpConfig::builder().noise(keys.initiator(Pattern::NnPsk0)).build().unwrap();
    let (mut rng, now) = (Rng::new(3), Instant::from_millis(5_000));
    let mut retries = 0;
    for nth in 0..500_u16 {
        let mut flooder = Client::new(&client, now, 1 + u32::from(nth), 0, &mut rng);
        for packet in driven(&mut flooder.connection, now) {
            let [high, low] = nth.to_be_bytes();
            server.receive(now, address(([10, 1, high, low], 9)), &packet);
        }
        retries += server.replies.drain(..).filter(|(_, reply)| reply[5] == 3).count();
    }
    assert_eq!(server.endpoint.agreeing(), 32, "from half of it on, a cookie is asked for");
    assert_eq!(retries, 500 - 32);
    let mut client = Client::new(&client, now, 7, 10, &mut rng);
    for _ in 0..20 {
        client.work(now);
        for packet in driven(&mut client.connection, now) {
            server.receive(now, client_address(1), &packet);
        }
        for (to, packet) in server.drive(now) {
            if to == client_address(1) {
                let _ = client.connection.handle_packet(now, &mut packet.clone());
            }
        }
    }
    assert_eq!((server.accepted, client.answer), (1, client.request));
    // All of it is forgotten before long.
    server.endpoint.forget_expired(now + Duration::from_secs(31));
    assert_eq!(server.endpoint.agreeing(), 0);
}

/// Messages that cost three multiplications on the curve each, and leave nothing that a limit of what is kept would count.
#[test]
fn a_flood_of_wrong_first_messages_has_cookies_asked_for() {
    let keys = Keys::new(2);
    let config = |noise: Noise| KcpConfig::builder().noise(noise).build().unwrap();
    let mut server = Server::new(config(keys.responder(Pattern::NkPsk0).into()), 1);
    let wrong = Keys { psk: Keys::new(3).psk, ..Keys::new(2) };
    let flooder = config(wrong.initiator(Pattern::NkPsk0).into());
    let (mut rng, now) = (Rng::new(3), Instant::from_millis(5_000));
    let mut retries = 0;
    for nth in 0..1_000_u16 {
        let mut flooder = Client::new(&flooder, now, 1 + u32::from(nth), 0, &mut rng);
        for packet in driven(&mut flooder.connection, now) {
            let [high, low] = nth.to_be_bytes();
            server.receive(now, address(([10, 1, high, low], 9)), &packet);
        }
        retries += server.replies.drain(..).filter(|(_, reply)| reply[5] == 3).count();
    }
    assert_eq!((server.endpoint.agreeing(), retries), (0, 500), "500 were computed");
    // Who is there pays a round trip.
    let of_client = config(keys.initiator(Pattern::NkPsk0).into());
    let mut client = Client::new(&of_client, now, 7, 10, &mut rng);
    for packet in driven(&mut client.connection, now) {
        server.receive(now, client_address(1), &packet);
    }
    assert_eq!(server.replies[0].1[5], 3);
    // A second later nobody is asked.
    let now = now + Duration::from_secs(1);
    let mut client = Client::new(&of_client, now, 8, 10, &mut rng);
    server.replies.clear();
    for packet in driven(&mut client.connection, now) {
        server.receive(now, client_address(2), &packet);
    }
    assert_eq!(server.replies[0].1[5], 2);
}

/// Somebody who sees what a client sends makes up a cookie before each true one comes.
#[test]
fn forged_cookies_do_not_keep_the_true_one_away_and_draw_no_more_packets() {
    let keys = Keys::new(2);
    let server = KcpConfig::builder().noise(keys.responder(Pattern::Nk)).cookies(CookiePolicy::Always);
    let mut server = Server::new(server.build().unwrap(), 1);
    let client = KcpConfig::builder().noise(keys.initiator(Pattern::Nk)).build().unwrap();
    let mut client = Client::new(&client, Instant::from_millis(0), 7, 10, &mut Rng::new(3));
    let mut sent = 0;
    for millis in 0..3_000 {
        let now = Instant::from_millis(millis);
        client.work(now);
        for packet in driven(&mut client.connection, now) {
            sent += 1;
            server.receive(now, client_address(1), &packet);
        }
        for (_, packet) in server.drive(now) {
            if packet[4..6] == [0x60, 3] {
                for made_up in 0..10 {
                    let mut forged = packet.clone();
                    *forged.last_mut().unwrap() ^= 1 + made_up;
                    let _ = client.connection.handle_packet(now, &mut forged);
                }
            }
            let _ = client.connection.handle_packet(now, &mut packet.clone());
        }
    }
    assert_eq!((server.accepted, client.answer), (1, client.request));
    assert!(sent < 30, "{sent} packets");
}

/// Once something of the peer was opened, nothing in the clear counts: refusals that somebody has made up least of all.
#[test]
fn refusals_in_the_clear_end_no_session_that_lives() {
    let keys = Keys::new(2);
    let config = |noise: Noise| KcpConfig::builder().noise(noise).build().unwrap();
    let mut server = Server::new(config(keys.responder(Pattern::Xx).into()), 1);
    let mut rng = Rng::new(3);
    // What a server says to somebody whose pattern is another one.
    let at = Instant::from_millis;
    let other = config(keys.initiator(Pattern::Nk).into());
    for packet in driven(&mut Client::new(&other, at(0), 7, 0, &mut rng).connection, at(0)) {
        server.receive(at(0), client_address(2), &packet);
    }
    let (_, mut refusal) = server.replies.remove(0);
    let client = config(keys.initiator(Pattern::Xx).into());
    let seed = SessionSeed::new(&mut rng);
    let mut client = Connection::connect_with_noise(7, &client, at(0), seed, &mut rng).unwrap();
    client.write(at(0), b"one").unwrap();
    for millis in 1..4_000 {
        let now = at(millis);
        if millis == 1_000 || millis == 1_100 || millis == 1_200 {
            let _ = client.handle_packet(now, &mut refusal.clone());
        }
        for packet in driven(&mut client, now) {
            if packet[4..6] == [0x60, 0x0b] {
                // The last message has the tag that a refusal of it must have.
                assert!(millis < 1_000, "it has arrived");
                refusal[12..16].copy_from_slice(&packet[12..16]);
            }
            server.receive(now, client_address(1), &packet);
        }
        for (_, packet) in server.drive(now) {
            let _ = client.handle_packet(now, &mut packet.clone());
        }
        if millis == 2_000 {
            client.write(now, b"two").unwrap();
        }
    }
    let mut bytes = [0; 10];
    assert_eq!(client.read(&mut bytes), Ok(6), "{:?}", client.close_reason());
    assert_eq!((&bytes[..6], client.close_reason()), (&b"onetwo"[..], None));
}

/// Whoever begins a second session from one address and conv shows that it receives there, and gets in although others were first.
#[test]
fn first_messages_of_one_route_do_not_shut_out_who_is_there() {
    let keys = Keys::new(2);
    let config = |noise: Noise| KcpConfig::builder().noise(noise).build().unwrap();
    let mut server = Server::new(config(keys.responder(Pattern::Nk).into()), 1);
    let client = config(keys.initiator(Pattern::Nk).into());
    let (mut rng, now) = (Rng::new(3), Instant::from_millis(5_000));
    for _ in 0..10 {
        let mut forger = Client::new(&client, now, 7, 0, &mut rng);
        for packet in driven(&mut forger.connection, now) {
            server.receive(now, client_address(1), &packet);
        }
    }
    assert_eq!(server.endpoint.agreeing(), 1, "the others are asked for a cookie");
    server.replies.clear();
    let mut client = Client::new(&client, now, 7, 10, &mut rng);
    for millis in 5_000..6_000 {
        let now = Instant::from_millis(millis);
        client.work(now);
        exchange(now, &mut server, &mut client.connection);
    }
    assert_eq!((server.accepted, client.answer), (1, client.request));
}

/// Many may be behind one address, and one of them may send first messages that it never follows.
#[test]
fn at_the_limit_of_a_network_the_oldest_gives_way_to_who_has_a_cookie() {
    let keys = Keys::new(2);
    let server = KcpConfig::builder()
        .noise(keys.responder(Pattern::Nk))
        .cookies(CookiePolicy::Always)
        .max_half_open_of_network(4);
    let mut server = Server::new(server.build().unwrap(), 1);
    let client = KcpConfig::builder().noise(keys.initiator(Pattern::Nk)).build().unwrap();
    let (mut rng, now) = (Rng::new(3), Instant::from_millis(5_000));
    for conv in 1..=6 {
        let mut other = Client::new(&client, now, conv, 0, &mut rng);
        for _ in ["a cookie", "an answer"] {
            exchange(now, &mut server, &mut other.connection);
        }
    }
    assert_eq!(server.endpoint.agreeing(), 4);
    let mut client = Client::new(&client, now, 7, 10, &mut rng);
    for millis in 5_000..7_000 {
        let now = Instant::from_millis(millis);
        client.work(now);
        exchange(now, &mut server, &mut client.connection);
        assert!(millis >= 6_000 || server.accepted == 0, "those that may still come do not give way");
    }
    assert_eq!((server.accepted, client.answer), (1, client.request));
}

/// Somebody who sees a client's last message has copies of it there first, spoilt where it takes the most to find that out.
#[test]
fn spoilt_copies_of_a_last_message_shut_out_the_true_one_for_no_longer_than_they_come() {
    let keys = Keys::new(2);
    let config = |noise: Noise| KcpConfig::builder().noise(noise).build().unwrap();
    let mut server = Server::new(config(keys.responder(Pattern::Xx).into()), 1);
    let client = config(keys.initiator(Pattern::Xx).into());
    let mut client = Client::new(&client, Instant::from_millis(5_000), 7, 10, &mut Rng::new(3));
    let mut spoilt = 0;
    for millis in 5_000..8_000 {
        let now = Instant::from_millis(millis);
        client.work(now);
        for packet in driven(&mut client.connection, now) {
            for nth in 0..9 {
                if packet[4..6] == [0x60, 0x0b] && millis < 6_000 {
                    let mut packet = packet.clone();
                    *packet.last_mut().unwrap() ^= 1 << (nth % 8);
                    server.receive(now, client_address(1), &packet);
                    spoilt += 1;
                }
            }
            server.receive(now, client_address(1), &packet);
        }
        for (_, packet) in server.drive(now) {
            let _ = client.connection.handle_packet(now, &mut packet.clone());
        }
        assert!(millis >= 6_000 || server.accepted == 0);
    }
    assert!(spoilt >= 2 * 9, "{spoilt}");
    assert_eq!((server.accepted, client.answer), (1, client.request));
}

/// Its backlog was full in the moment in which the session was to be put there.
#[test]
fn a_session_that_is_refused_for_want_of_room_is_offered_again() {
    let keys = Keys::new(2);
    let config = |noise: Noise| KcpConfig::builder().noise(noise).build().unwrap();
    let mut server = Server::new(config(keys.responder(Pattern::Nk).into()), 1);
    let client = config(keys.initiator(Pattern::Nk).into());
    let start = Instant::from_millis(5_000);
    let mut client = Client::new(&client, start, 7, 10, &mut Rng::new(3));
    exchange(start, &mut server, &mut client.connection);
    client.work(start);
    let mut refused = 0;
    for mut packet in driven(&mut client.connection, start) {
        let stride = packet.len();
        server.endpoint.receive(client_address(1), &mut packet, stride);
        while let Some(Routed::Incoming(_)) = server.endpoint.poll_routed(start, &packet) {
            let keys = server.endpoint.take_session_keys().unwrap();
            server.endpoint.return_session_keys(keys);
            server.endpoint.refuse(Refusal::QueueFull);
            refused += 1;
        }
    }
    assert!(refused > 0);
    for millis in 5_000..6_000 {
        let now = Instant::from_millis(millis);
        client.work(now);
        exchange(now, &mut server, &mut client.connection);
    }
    assert_eq!((server.accepted, client.answer), (1, client.request));
}

#[test]
fn a_configuration_without_key_agreement_says_nothing_for_a_session_that_has_keys() {
    let [_, keys] = Keys::new(2).session(Pattern::Nk, &mut Rng::new(1));
    let (now, seed) = (Instant::from_millis(0), SessionSeed::new(&mut Rng::new(2)));
    let mut connection = Connection::accept_with_keys(7, &KcpConfig::default(), now, seed, Box::new(keys));
    assert!(connection.write(now, b"secret").is_err());
    assert_eq!(driven(&mut connection, now), Vec::<Vec<u8>>::new());
    assert!(connection.close_reason().is_some());
}

/// What follows the conv in a sealed packet looks like an FEC header in one of 21,845.
#[test]
fn no_sealed_packet_is_lost_for_what_it_looks_like() {
    let keys = Keys::new(2);
    let config = |noise: Noise| KcpConfig::builder().noise(noise).build().unwrap();
    let mut server = Server::new(config(keys.responder(Pattern::Nk).into()), 1);
    let client = config(keys.initiator(Pattern::Nk).into());
    let (mut rng, mut now) = (Rng::new(3), Instant::from_millis(0));
    let seed = SessionSeed::new(&mut rng);
    let mut client = Connection::connect_with_noise(7, &client, now, seed, &mut rng).unwrap();
    let (mut sent, mut bytes) = (0, [0; 64]);
    while sent < 150_000 {
        now += ms(1);
        client.write(now, b"x").unwrap();
        for packet in driven(&mut client, now) {
            sent += 1;
            server.receive(now, client_address(1), &packet);
        }
        for (_, packet) in server.drive(now) {
            client.handle_packet(now, &mut packet.clone()).unwrap();
        }
        while client.read(&mut bytes).is_ok() {}
    }
    assert_eq!(server.endpoint.stats().dropped_no_session, 0);
}

/// Somebody keeps the first packets of a session back until its client has given up.
#[test]
fn what_opens_half_a_minute_late_begins_no_session() {
    let keys = Keys::new(2);
    let config = |noise: Noise| KcpConfig::builder().noise(noise).build().unwrap();
    for (late, accepted) in [(29_000, 1), (31_000, 0)] {
        let mut server = Server::new(config(keys.responder(Pattern::Nk).into()), 1);
        let mut client = Client::new(
            &config(keys.initiator(Pattern::Nk).into()),
            Instant::from_millis(0),
            7,
            10,
            &mut Rng::new(3),
        );
        let now = Instant::from_millis(0);
        exchange(now, &mut server, &mut client.connection);
        client.work(now);
        for packet in driven(&mut client.connection, now) {
            server.receive(Instant::from_millis(late), client_address(1), &packet);
        }
        assert_eq!(server.accepted, accepted, "{late} ms");
    }
}
