//! Which session a packet is of shows in none of its bytes, and who has to find it does.

use std::{collections::HashSet, net::SocketAddr, time::Duration};

use kcp9::{
    KcpConfig,
    proto::{
        Command, ConnectError, Connection, Endpoint, Instant, Routed, Segments, SessionSeed,
        noise::{Initiator, Noise, Pattern, Psk, Responder},
    },
};
use kcp9_simulator::{Rng, ms};

use crate::{
    ends::Keys,
    virtual_ends::{Client, SERVER, Server, address, client_address, driven, exchange},
};

const CONV: u32 = 7;
const START: Instant = Instant::from_millis(1_000);

fn config(noise: impl Into<Noise>) -> KcpConfig {
    KcpConfig::builder().noise(noise.into()).build().unwrap()
}

fn client(keys: &Keys, pattern: Pattern) -> Connection {
    let mut rng = Rng::new(11);
    let (config, seed) = (config(keys.initiator(pattern)), SessionSeed::new(&mut rng));
    Connection::connect_with_noise(CONV, &config, START, seed, &mut rng).unwrap()
}

/// Whether a packet is said in the clear, and so has its conv in front.
fn is_clear(packet: &[u8]) -> bool {
    let mut segments = Segments::new(packet);
    let first = segments.next().and_then(Result::ok);
    first.is_some_and(|(header, _)| header.cmd == Command::Extension) && segments.next().is_none()
}

/// A session, and all that is sent in it: by the client, and by the server.
struct Watched {
    now: Instant,
    client: Connection,
    /// Where the client is.
    at: SocketAddr,
    server: Server,
    seen: [Vec<Vec<u8>>; 2],
}

impl Watched {
    fn new(keys: &Keys, pattern: Pattern) -> Self {
        let mut server = Server::new(config(keys.responder(pattern)), 1);
        server.follows = true;
        let (client, seen) = (client(keys, pattern), Default::default());
        Self { now: START, client, at: client_address(1), server, seen }
    }

    /// Passes the time, with a byte each way in every millisecond.
    fn go_on(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now += ms(1);
            let _ = self.client.write(self.now, b"x");
            for packet in driven(&mut self.client, self.now) {
                self.server.receive(self.now, self.at, &packet);
                self.seen[0].push(packet);
            }
            for (to, packet) in self.server.drive(self.now) {
                if to == self.at {
                    let _ = self.client.handle_packet(self.now, &mut packet.clone());
                }
                self.seen[1].push(packet);
            }
            while self.client.read(&mut [0; 64]).is_ok() {}
            assert_eq!(self.client.close_reason(), None);
        }
    }

    /// The packets of the session that were seen since the last call, of each end.
    fn take_sealed(&mut self) -> [Vec<Vec<u8>>; 2] {
        std::mem::take(&mut self.seen).map(|mut seen| {
            seen.retain(|packet| !is_clear(packet));
            seen
        })
    }
}

/// The words of the headers: the routes, and the counters, as they are seen.
fn words(packets: &[Vec<u8>]) -> [Vec<u32>; 2] {
    [0, 4].map(|at| {
        let word = |packet: &Vec<u8>| u32::from_le_bytes(*packet[at..].first_chunk().unwrap());
        packets.iter().map(word).collect()
    })
}

/// Numbers that nothing tells from random ones: none comes more often than by chance, and each bit is 1 in half of them.
fn assert_random(words: &[u32], what: &str) {
    let count = words.len();
    let different: HashSet<_> = words.iter().collect();
    // Of random ones, so many are expected to come again; twice as many and two more do once in a million tests.
    let expected = (count * count) as f64 / 2_f64.powi(33);
    let again = (count - different.len()) as f64;
    assert!(again <= 2.0 * expected + 2.0, "{what}: {again} of {count} come again");
    for bit in 0..32 {
        let ones = words.iter().filter(|word| *word >> bit & 1 == 1).count() as f64;
        let deviation = (ones - count as f64 / 2.0).abs() / (count as f64 / 4.0).sqrt();
        assert!(deviation < 6.0, "{what}: bit {bit} is 1 in {ones} of {count}");
    }
}

#[test]
fn no_route_can_be_seen_in_the_packets_of_a_session() {
    let keys = Keys::new(1);
    for pattern in Pattern::all() {
        let mut watched = Watched::new(&keys, pattern);
        watched.go_on(8_000);
        for (sealed, end) in watched.take_sealed().iter().zip(["client", "server"]) {
            assert!(sealed.len() > 4_000, "{pattern}, {end}: {} packets", sealed.len());
            // Nor by all that others may have: the shared key, the client's keys, the server's public key. A server's secret is missing.
            if pattern != Pattern::NnPsk0 {
                let others = Keys { responder: Keys::new(2).responder, ..Keys::new(1) }.responder(pattern);
                let shown = |packet: &&Vec<u8>| others.route_key().route(packet) == Some(CONV);
                assert_eq!(sealed.iter().filter(shown).count(), 0, "{pattern}, {end}");
            }
            for (words, what) in words(sealed).iter().zip(["route", "counter"]) {
                assert_random(words, &format!("{pattern}, {end}, {what}"));
            }
        }
        // What a server that was started again answers to them.
        if pattern == Pattern::NnPsk0 {
            continue;
        }
        watched.go_on(2_000);
        let config = KcpConfig::builder().noise(keys.responder(pattern)).reply_limit(1_000_000).build();
        let mut again = Server::new(config.unwrap(), 2);
        for packet in &watched.take_sealed()[0] {
            again.receive(watched.now, watched.at, packet);
        }
        let resets: Vec<_> = again.replies.into_iter().map(|(_, packet)| packet).collect();
        assert!(resets.len() > 1_000, "{pattern}: {} RESETs", resets.len());
        let tail = |packet: &Vec<u8>| packet[packet.len() - 16..].to_vec();
        assert!(resets.iter().all(|packet| tail(packet) == tail(&resets[0])), "{pattern}: of one session");
        for (words, what) in words(&resets).iter().zip(["route", "behind it"]) {
            assert_random(words, &format!("{pattern}, RESET, {what}"));
        }
    }
}

#[test]
fn a_session_that_moves_shows_nothing_that_it_has_shown_before() {
    let keys = Keys::new(1);
    for pattern in Pattern::all() {
        let mut watched = Watched::new(&keys, pattern);
        watched.go_on(2_000);
        let before = watched.take_sealed();
        watched.at = client_address(2);
        watched.client.rebind(watched.now).unwrap();
        watched.go_on(3_000);
        let handle = watched.server.sessions.keys().next().unwrap();
        assert_eq!(watched.server.endpoint.route(*handle).unwrap().0, watched.at, "{pattern}: it has moved");
        let after = watched.take_sealed();
        let shown: HashSet<u32> = before.iter().flat_map(|packets| words(packets)).flatten().collect();
        let again = after.iter().flat_map(|packets| words(packets)).flatten();
        let again = again.filter(|word| shown.contains(word) || *word == CONV).count();
        // Some 20,000 words meet some 8,000: by chance, none mostly.
        assert!(again <= 2, "{pattern}: {again} words were seen before");
        assert!(after.iter().all(|packets| packets.len() > 1_000));
    }
}

#[test]
fn a_packet_whose_route_was_changed_is_lost() {
    for pattern in [Pattern::NnPsk0, Pattern::Nk, Pattern::XxPsk3] {
        let keys = Keys::new(1);
        let mut watched = Watched::new(&keys, pattern);
        watched.go_on(100);
        let Watched { mut now, mut client, mut server, .. } = watched;
        server.echoes = false;
        for from_client in [true, false] {
            now += ms(10);
            let connection =
                if from_client { &mut client } else { server.sessions.values_mut().next().unwrap() };
            connection.write(now, b"true").unwrap();
            let packet = driven(connection, now).pop().unwrap();
            let before = *server.endpoint.stats();
            for bit in 0..33 {
                let mut changed = packet.clone();
                if bit < 32 {
                    changed[bit / 8] ^= 1 << (bit % 8);
                }
                if from_client {
                    server.receive(now, client_address(1), &changed);
                } else {
                    assert_eq!(client.handle_packet(now, &mut changed).is_ok(), bit == 32, "bit {bit}");
                }
                let connection =
                    if from_client { server.sessions.values_mut().next().unwrap() } else { &mut client };
                let mut bytes = [0; 64];
                let read = connection.read(&mut bytes).unwrap_or(0);
                assert_eq!(bytes[..read].ends_with(b"true"), bit == 32, "{pattern}: bit {bit}");
            }
            let lost = server.endpoint.stats().dropped_no_session - before.dropped_no_session;
            assert_eq!(lost, if from_client { 32 } else { 0 }, "{pattern}");
        }
        assert_eq!((server.accepted, server.endpoint.len()), (1, 1), "{pattern}");
    }
}

#[test]
fn a_server_with_another_route_key_is_silent() {
    let keys = Keys::new(1);
    let psk = Psk::from_bytes(&[9; 32]);
    let other = Keys::new(2);
    for (pattern, responder, answers) in [
        (Pattern::NnPsk0, Responder::nn_psk0(psk.clone()), false),
        // These two tell whoever sends something that they know nothing of it. It is not for this session.
        (Pattern::NnPsk0, Responder::nn_psk0(psk.clone()).with_reset_secret(&[1; 32]), true),
        (Pattern::NkPsk0, Responder::nk_psk0(keys.responder.clone(), psk), true),
        (Pattern::Nk, other.responder(Pattern::Nk), true),
    ] {
        let mut watched = Watched::new(&keys, pattern);
        watched.go_on(100);
        let mut server = Server::new(config(responder), 2);
        let Watched { mut now, mut client, at, .. } = watched;
        let end = now + Duration::from_secs(10);
        while now < end {
            now += ms(10);
            let _ = client.write(now, b"x");
            for packet in driven(&mut client, now) {
                server.receive(now, at, &packet);
            }
            for (_, packet) in server.drive(now) {
                assert!(client.handle_packet(now, &mut packet.clone()).is_err(), "{pattern}");
            }
        }
        let stats = server.endpoint.stats();
        assert!(stats.dropped_no_session >= 8, "{pattern}: {stats:?}");
        assert_eq!((stats.replies_sent > 0, server.accepted, client.close_reason()), (answers, 0, None));
    }
}

/// What is sent once more to an end that has closed its session, and has begun it: its record knows the route key.
#[test]
fn the_record_of_a_session_that_was_begun_here_finds_the_packets_of_its_peer() {
    a_record_finds_packets(false);
}

/// There is another session with that address, with another key. Which of both a packet is under, its session or record tells.
#[test]
fn a_record_finds_the_packets_of_its_peer_where_an_address_has_two_keys() {
    a_record_finds_packets(true);
}

fn a_record_finds_packets(has_two_keys: bool) {
    let keys = Keys::new(1);
    let mut server = Server::new(config(keys.responder(Pattern::Nk)), 1);
    let (mut client, mut now) = (client(&keys, Pattern::Nk), START);
    let mut endpoint = Endpoint::new(&mut Rng::new(3));
    let handle = endpoint.connect_sealed(address(SERVER), CONV).unwrap();
    let other = endpoint.connect_sealed(address(SERVER), CONV + 1).unwrap();
    client.write(now, b"request").unwrap();
    client.shutdown(now);
    // The last word of the client is lost.
    let mut lost = 0;
    while client.close_reason().is_none() {
        now += ms(1);
        for packet in driven(&mut client, now) {
            if client.close_reason().is_none() {
                server.receive(now, client_address(1), &packet);
            } else {
                lost += 1;
            }
        }
        for (_, mut packet) in server.drive(now) {
            let stride = packet.len();
            endpoint.receive(address(SERVER), &mut packet, stride);
            while let Some(routed) = endpoint.poll_routed(now, &packet) {
                let Routed::Session(run) = routed else { panic!("{routed:?}") };
                let _ = client.handle_packet(now, &mut packet[run.range]);
                if let Some(key) = client.route_key() {
                    endpoint.set_route_key(handle, key);
                }
            }
        }
        while client.read(&mut [0; 64]).is_ok() {}
        assert!(now < START + Duration::from_secs(5));
    }
    let (record, session_keys) = (client.record(), client.take_session_keys());
    assert!(endpoint.close_sealed(now, handle, record, session_keys));
    if has_two_keys {
        endpoint.set_route_key(other, Keys::new(2).responder(Pattern::Nk).route_key());
    } else {
        endpoint.close(now, other, None);
    }
    let closed = now;
    while !server.sessions.is_empty() {
        now += ms(1);
        for (_, mut packet) in server.drive(now) {
            let stride = packet.len();
            endpoint.receive(address(SERVER), &mut packet, stride);
            while let Some(routed) = endpoint.poll_routed(now, &packet) {
                assert!(matches!(routed, Routed::Reply(_)), "{routed:?}");
                let answer = endpoint.reply().to_vec();
                server.receive(now, client_address(1), &answer);
            }
        }
        assert!(now - closed < Duration::from_secs(5), "nobody has answered, {lost} packets were lost");
    }
    // It is forgotten with the record.
    endpoint.close(now, other, None);
    endpoint.forget_expired(now + Duration::from_secs(61));
    assert_eq!(endpoint.expires_at(), None);
}

/// A server that was started again with another key pair has another route key. Whoever has sessions from before hears of both.
#[test]
fn sessions_with_one_address_may_have_different_route_keys() {
    let servers: Vec<_> = (1..=9).map(|number| Keys::new(number).responder(Pattern::Nk)).collect();
    let mut endpoint = Endpoint::new(&mut Rng::new(3));
    let peer = address(SERVER);
    let handles: Vec<_> = (1..=9).map(|conv| endpoint.connect_sealed(peer, conv).unwrap()).collect();
    assert_eq!(endpoint.connect(peer, 10, None), Err(ConnectError::OtherCipher), "it agrees on no keys");
    // Whether a packet under the key of a server finds its session.
    let is_found = |endpoint: &mut Endpoint, server: usize| {
        let conv = server as u32 + 1;
        let mut packet = [&conv.to_le_bytes()[..], &[9; 60]].concat();
        // What shows a hidden route hides one that is shown.
        let masked = servers[server].route_key().route(&packet).unwrap();
        packet[..4].copy_from_slice(&masked.to_le_bytes());
        let stride = packet.len();
        endpoint.receive(peer, &mut packet, stride);
        let routed = endpoint.poll_routed(START, &packet);
        match routed {
            None => false,
            Some(Routed::Session(run)) => {
                assert_eq!((run.handle, &packet[..4]), (handles[server], &conv.to_le_bytes()[..]));
                true
            }
            Some(other) => panic!("{other:?}"),
        }
    };
    let learn = |endpoint: &mut Endpoint, server: usize| {
        endpoint.set_route_key(handles[server], servers[server].route_key());
        (0..9).filter(|server| is_found(endpoint, *server)).collect::<Vec<_>>()
    };
    for server in 0..8 {
        assert_eq!(learn(&mut endpoint, server), (0..=server).collect::<Vec<_>>());
    }
    // A new session under a key that is known: it is not the oldest any more.
    assert_eq!(learn(&mut endpoint, 0), (0..8).collect::<Vec<_>>());
    // Eight are remembered.
    assert_eq!(learn(&mut endpoint, 8), [0, 2, 3, 4, 5, 6, 7, 8]);
    for handle in &handles {
        assert!(endpoint.close(START, *handle, None));
        endpoint.set_route_key(*handle, servers[0].route_key());
    }
    assert!(endpoint.connect(peer, 1, None).is_ok(), "what is left of them is nothing");
}

/// The answer is what says it. What lies in one batch with it, behind it, finds its session, too: the kernel joins packets of one peer.
#[test]
fn what_comes_in_one_batch_with_the_answer_finds_its_session() {
    for pattern in Pattern::all().filter(|pattern| pattern.takes_early_data()) {
        let keys = Keys::new(1);
        let mut server = Server::new(config(keys.responder(pattern).with_early_data()), 1);
        let of_client = config(keys.initiator(pattern));
        let mut client =
            Client::with_early_data(&of_client, START, CONV, 300, 300, &mut Rng::new(2)).connection;
        for packet in driven(&mut client, START) {
            server.receive(START, client_address(1), &packet);
        }
        let (answer, mut behind) = server
            .drive(START)
            .into_iter()
            .map(|(_, packet)| packet)
            .partition::<Vec<_>, _>(|packet| is_clear(packet));
        // One that is no longer than the answer.
        let session = server.sessions.values_mut().next().unwrap();
        session.write(START, b"short").unwrap();
        behind.extend(driven(session, START));
        behind.retain(|packet| packet.len() <= answer[0].len());
        assert!(!behind.is_empty(), "{pattern}");

        let mut endpoint = Endpoint::new(&mut Rng::new(3));
        let handle = endpoint.connect_sealed(address(SERVER), CONV).unwrap();
        let deliver = |endpoint: &mut Endpoint, client: &mut Connection, mut batch: Vec<u8>, stride| {
            let mut taken = 0;
            endpoint.receive(address(SERVER), &mut batch, stride);
            while let Some(routed) = endpoint.poll_routed(START, &batch) {
                let Routed::Session(run) = routed else { panic!("{pattern}: {routed:?}") };
                assert_eq!(run.handle, handle);
                taken += usize::from(client.handle_packet(START, &mut batch[run.range]).is_ok());
                if let Some(key) = client.route_key() {
                    assert_eq!(key, keys.responder(pattern).route_key(), "{pattern}");
                    endpoint.set_route_key(handle, key);
                }
            }
            taken
        };
        let stride = behind[0].len();
        let (batch, stride_of_both) = ([&answer[0][..], &behind[0]].concat(), answer[0].len());
        assert_eq!(
            deliver(&mut endpoint, &mut client, behind[0].clone(), stride),
            0,
            "{pattern}: in front of it"
        );
        assert_eq!(deliver(&mut endpoint, &mut client, batch, stride_of_both), 2, "{pattern}");
        assert_eq!(deliver(&mut endpoint, &mut client, behind[0].clone(), stride), 0, "{pattern}: once more");
        assert_eq!(client.stats().udp.replayed, 1, "{pattern}: it was opened");
    }
}

/// With another shared key the server cannot even read the routes.
#[test]
fn a_handshake_that_fails_says_why_whatever_the_route_key() {
    let keys = Keys::new(1);
    let mut server = Server::new(config(Responder::nn_psk0(Psk::from_bytes(&[9; 32]))), 1);
    let mut rng = Rng::new(2);
    let (of_client, seed) = (config(Initiator::nn_psk0(keys.psk.clone())), SessionSeed::new(&mut rng));
    let mut client = Connection::connect_with_noise(CONV, &of_client, START, seed, &mut rng).unwrap();
    let mut now = START;
    while client.close_reason().is_none() {
        now += ms(1);
        exchange(now, &mut server, &mut client);
        assert!(now < START + Duration::from_secs(10));
    }
    let reason = format!("{:?}", client.close_reason());
    assert!(reason.contains("psk") || reason.contains("Psk"), "{reason}");
}
