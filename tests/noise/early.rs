//! Early data: what goes with the first message, when it is taken, and what somebody makes of a recording of it.

use std::{collections::VecDeque, ops::Range};

use kcp9::{
    CookiePolicy, KcpConfig,
    proto::{
        CloseReason, Connection, Instant, SessionSeed,
        noise::{AnswerNext, MAX_EARLY_DATA, Noise, NoiseError, NoiseFailure, Pattern, Responder},
    },
};
use kcp9_simulator::Rng;

use crate::{
    ends::{Keys, NOW, opened, sealed},
    virtual_ends::{Client, Server, address, client_address, driven, exchange, go_on},
};

const START: Instant = Instant::from_millis(5_000);

fn patterns() -> impl Iterator<Item = Pattern> {
    Pattern::all().filter(|pattern| pattern.takes_early_data())
}

fn config(noise: impl Into<Noise>) -> KcpConfig {
    KcpConfig::builder().noise(noise.into()).build().unwrap()
}

fn taking(keys: &Keys, pattern: Pattern) -> Responder {
    keys.responder(pattern).with_early_data()
}

// ---- The handshake alone ----

#[test]
fn early_data_is_read_with_the_first_message_and_the_answer_says_whether_it_was_taken() {
    let keys = Keys::new(1);
    for (pattern, taken) in patterns().flat_map(|pattern| [(pattern, true), (pattern, false)]) {
        for len in [0, 1, MAX_EARLY_DATA] {
            let (early, mut rng) = (vec![7; len], Rng::new(2));
            let initiator = keys.initiator(pattern);
            let mut handshake = initiator.begin_with_early_data(b"beside", &early, &mut rng).unwrap();
            let plain = initiator.begin(b"beside", &mut rng).unwrap();
            assert_eq!(handshake.message().len(), plain.message().len() + len, "{pattern}");
            assert!(len < 16 || !handshake.message().windows(16).any(|part| part == &early[..16]));
            let responder = keys.responder(pattern);
            let first = responder.read_first(handshake.message(), b"beside", &mut rng).unwrap();
            assert_eq!(first.early_data(), early, "{pattern}");
            let answer = if taken {
                let (answer, data) = first.answer_early_data(b"").unwrap();
                assert_eq!(*data, *early);
                answer
            } else {
                first.answer(b"").unwrap()
            };
            let AnswerNext::Session(mut server) = answer.next else { panic!("two messages") };
            let mut established = handshake.read_answer(&answer.message, b"").unwrap();
            assert_eq!(established.early_data_taken, taken && len > 0, "{pattern}");
            let packet = sealed(&mut established.session, NOW, 7, b"later");
            assert_eq!(opened(&mut server, NOW, &packet).unwrap(), b"later");
        }
    }
}

#[test]
fn more_than_a_message_carries_and_patterns_without_any_are_refused() {
    let keys = Keys::new(1);
    for pattern in Pattern::all() {
        let begin = |len| {
            let initiator = keys.initiator(pattern);
            initiator.begin_with_early_data(b"", &vec![1; len], &mut Rng::new(1)).err()
        };
        let refused = (!pattern.takes_early_data()).then_some(NoiseError::EarlyData);
        assert_eq!([begin(0), begin(1), begin(MAX_EARLY_DATA)], [None, refused, refused], "{pattern}");
        assert_eq!(begin(MAX_EARLY_DATA + 1), Some(NoiseError::EarlyData), "{pattern}");
    }
}

#[test]
fn a_changed_first_message_with_early_data_is_refused() {
    let keys = Keys::new(1);
    for pattern in patterns() {
        let handshake =
            keys.initiator(pattern).begin_with_early_data(b"", &[7; 40], &mut Rng::new(1)).unwrap();
        let (responder, first) = (keys.responder(pattern), handshake.message());
        let reads = |message: &[u8]| responder.read_first(message, b"", &mut Rng::new(2)).is_ok();
        assert!(reads(first));
        for bit in 0..first.len() * 8 {
            let mut changed = first.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!reads(&changed), "{pattern}, bit {bit}");
        }
        assert!((0..first.len()).all(|len| !reads(&first[..len])), "{pattern}");
        assert!(!reads(&[first, b"x"].concat()), "{pattern}");
    }
}

// ---- Sessions ----

#[test]
fn a_server_answers_early_data_with_its_first_packets_and_knows_its_peer_by_the_next_one() {
    let keys = Keys::new(1);
    for pattern in patterns() {
        let mut server = Server::new(config(taking(&keys, pattern)), 1);
        let client = config(keys.initiator(pattern));
        let mut client = Client::with_early_data(&client, START, 7, 300, 300, &mut Rng::new(2));
        for packet in driven(&mut client.connection, START) {
            server.receive(START, client_address(1), &packet);
        }
        assert_eq!((server.accepted, server.early, server.endpoint.half_open()), (1, 1, 1), "{pattern}");
        assert!(server.sessions.values().all(Connection::may_be_replayed));
        for (_, packet) in server.drive(START) {
            let _ = client.connection.handle_packet(START, &mut packet.clone());
        }
        client.work(START);
        assert_eq!(client.answer, client.request, "{pattern}: in one round trip");
        exchange(START, &mut server, &mut client.connection);
        assert!(!server.sessions.values().any(Connection::may_be_replayed), "{pattern}");
        assert_eq!(server.endpoint.half_open(), 0, "{pattern}");
        go_on(5_000..9_000, &mut server, &mut client);
        assert_eq!((server.accepted, &client.answer), (1, &client.request), "{pattern}");
    }
}

#[test]
fn early_data_that_is_not_taken_comes_once_in_front_of_what_was_written() {
    let keys = Keys::new(1);
    for (pattern, takes) in patterns().flat_map(|pattern| [(pattern, false), (pattern, true)]) {
        let responder = if takes { taking(&keys, pattern) } else { keys.responder(pattern) };
        let mut server = Server::new(config(responder), 1);
        let client = config(keys.initiator(pattern));
        let mut client = Client::with_early_data(&client, START, 7, 900, 30_000, &mut Rng::new(2));
        go_on(5_000..9_000, &mut server, &mut client);
        assert_eq!((server.accepted, server.early), (1, usize::from(takes)), "{pattern}");
        assert!(client.answer == client.request, "{pattern}: {} bytes", client.answer.len());
    }
}

/// Nobody has shown yet that it receives what is sent to its address.
#[test]
fn a_server_sends_no_more_than_three_times_what_came_before_its_peer_is_known() {
    let keys = Keys::new(1);
    let mut server = Server::new(config(taking(&keys, Pattern::NnPsk0)), 1);
    let client = config(keys.initiator(Pattern::NnPsk0));
    let mut client = Client::with_early_data(&client, START, 7, 100, 100, &mut Rng::new(2));
    let (mut came, mut sent) = (0, 0);
    for packet in driven(&mut client.connection, START) {
        came += packet.len();
        server.receive(START, client_address(1), &packet);
    }
    for connection in server.sessions.values_mut() {
        connection.write(START, &[7; 100_000]).unwrap();
    }
    for packet in server.drive(START) {
        sent += packet.1.len();
    }
    assert!(sent > 2 * came && sent <= 3 * came, "{sent} bytes for {came}");
    for now in (5_001..40_000).map(Instant::from_millis) {
        sent += server.drive(now).iter().map(|(_, packet)| packet.len()).sum::<usize>();
    }
    assert!(sent <= 10 * came, "{sent} bytes for {came}");
    assert!(server.sessions.is_empty(), "who does not answer is dead");
}

#[test]
fn a_recording_is_not_taken_again_from_anywhere() {
    let keys = Keys::new(1);
    let mut server = Server::new(config(taking(&keys, Pattern::NkPsk0)), 1);
    let client = config(keys.initiator(Pattern::NkPsk0));
    let mut client = Client::with_early_data(&client, START, 7, 300, 300, &mut Rng::new(2));
    let recording = driven(&mut client.connection, START);
    for packet in &recording {
        server.receive(START, client_address(1), packet);
    }
    go_on(5_000..8_000, &mut server, &mut client);
    assert_eq!((server.accepted, server.sessions.len(), &client.answer), (1, 0, &client.request));
    for (nth, packet) in (0..5).flat_map(|nth| recording.iter().map(move |packet| (nth, packet))) {
        let now = Instant::from_millis(100_000 + 40_000 * nth as u64);
        server.receive(now, client_address(1 + nth), packet);
        let _ = server.drive(now);
    }
    assert_eq!((server.accepted, server.sessions.len()), (1, 0));
}

/// Somebody has begun with the client's address and conv, so the client's own message needs a cookie and is answered as one without
/// early data.
#[test]
fn a_recording_of_what_was_not_taken_is_not_taken_later() {
    let keys = Keys::new(1);
    let mut server = Server::new(config(taking(&keys, Pattern::Nk)), 1);
    let (client, mut rng) = (config(keys.initiator(Pattern::Nk)), Rng::new(2));
    let mut other = Client::new(&client, START, 7, 0, &mut rng);
    for packet in driven(&mut other.connection, START) {
        server.receive(START, client_address(1), &packet);
    }
    let mut client = Client::with_early_data(&client, START, 7, 300, 3_000, &mut rng);
    let mut recording = Vec::new();
    for now in (5_000..9_000).map(Instant::from_millis) {
        client.work(now);
        for packet in driven(&mut client.connection, now) {
            server.receive(now, client_address(1), &packet);
            recording.push(packet);
        }
        for (_, packet) in server.drive(now) {
            let _ = client.connection.handle_packet(now, &mut packet.clone());
        }
    }
    assert_eq!((server.accepted, server.early), (1, 0));
    assert!(client.answer == client.request);
    for packet in &recording {
        server.receive(Instant::from_millis(100_000), client_address(2), packet);
    }
    assert_eq!((server.accepted, server.early), (1, 0));
}

/// The answer is lost, so the same message comes again.
#[test]
fn a_lost_answer_is_said_again_and_the_data_comes_once() {
    let keys = Keys::new(1);
    let mut server = Server::new(config(taking(&keys, Pattern::Nk)), 1);
    let client = config(keys.initiator(Pattern::Nk));
    let mut client = Client::with_early_data(&client, START, 7, 300, 4_000, &mut Rng::new(2));
    for now in (5_000..6_500).map(Instant::from_millis) {
        client.work(now);
        for packet in driven(&mut client.connection, now) {
            server.receive(now, client_address(1), &packet);
        }
        let _ = server.drive(now);
    }
    assert!(client.answer.is_empty() && server.sessions.values().all(Connection::may_be_replayed));
    go_on(6_500..12_000, &mut server, &mut client);
    assert_eq!((server.accepted, server.early), (1, 1));
    assert!(client.answer == client.request);
}

/// Later HELLOs are short: of any length of early data they are long enough to be answered.
#[test]
fn every_hello_is_long_enough_whatever_early_data_it_has() {
    let keys = Keys::new(1);
    let client = config(keys.initiator(Pattern::NkPsk0));
    for early in 0..=300 {
        let mut server = Server::new(config(taking(&keys, Pattern::NkPsk0)), 1);
        let mut client = Client::with_early_data(&client, START, 7, early, early, &mut Rng::new(2));
        let hellos =
            (5_000..12_000).flat_map(|millis| driven(&mut client.connection, Instant::from_millis(millis)));
        let hello = hellos.filter(|hello| hello.len() < 1_000).last().unwrap();
        server.receive(START, client_address(1), &hello);
        assert_eq!((server.early, server.replies.len()), if early > 0 { (1, 0) } else { (0, 1) }, "{early}");
    }
}

/// What somebody has recorded holds a conv and an address that the true peer begins with anew.
#[test]
fn a_session_that_nobody_has_opened_gives_way_to_who_begins_anew() {
    let keys = Keys::new(1);
    let mut server = Server::new(config(taking(&keys, Pattern::Nk)), 1);
    let client = config(keys.initiator(Pattern::Nk));
    let mut gone = Client::with_early_data(&client, START, 7, 300, 300, &mut Rng::new(2));
    for packet in driven(&mut gone.connection, START) {
        server.receive(START, client_address(1), &packet);
    }
    assert_eq!(server.early, 1);
    let mut client = Client::with_early_data(&client, START, 7, 200, 500, &mut Rng::new(3));
    go_on(5_100..18_000, &mut server, &mut client);
    assert_eq!(server.accepted, 2);
    assert!(client.answer == client.request);
}

#[test]
fn who_has_a_cookie_has_its_early_data_taken_and_is_validated() {
    let keys = Keys::new(1);
    let server = KcpConfig::builder().noise(taking(&keys, Pattern::NnPsk0)).cookies(CookiePolicy::Always);
    let mut server = Server::new(server.build().unwrap(), 1);
    let client = config(keys.initiator(Pattern::NnPsk0));
    let mut client = Client::with_early_data(&client, START, 7, MAX_EARLY_DATA, 3_000, &mut Rng::new(2));
    exchange(START, &mut server, &mut client.connection);
    assert_eq!((server.accepted, server.endpoint.stats().retries), (0, 1));
    for packet in driven(&mut client.connection, START) {
        server.receive(START, client_address(1), &packet);
    }
    assert_eq!((server.early, server.endpoint.half_open()), (1, 0));
    assert!(server.sessions.values().all(|session| session.may_be_replayed() && session.is_validated()));
    go_on(5_001..9_000, &mut server, &mut client);
    assert!(client.answer == client.request);
}

/// A flood from addresses that are false.
#[test]
fn sessions_with_early_data_are_half_open_and_no_more_than_the_limit() {
    let keys = Keys::new(1);
    let server =
        KcpConfig::builder().noise(taking(&keys, Pattern::NnPsk0)).max_half_open(16).build().unwrap();
    let mut server = Server::new(server, 1);
    let (client, mut rng) = (config(keys.initiator(Pattern::NnPsk0)), Rng::new(2));
    for nth in 0..200_u8 {
        let mut flooder = Client::with_early_data(&client, START, 7, 10, 10, &mut rng);
        for packet in driven(&mut flooder.connection, START) {
            server.receive(START, address(([10, 2, nth, 1], 9)), &packet);
        }
    }
    assert!(server.early > 0 && server.endpoint.half_open() <= 16, "{}", server.endpoint.half_open());
    let mut client = Client::with_early_data(&client, START, 7, 10, 1_000, &mut rng);
    go_on(5_000..9_000, &mut server, &mut client);
    assert!(client.answer == client.request, "who is there gets in by a cookie");
}

#[test]
fn where_an_address_has_one_session_nobody_takes_it_by_early_data() {
    let keys = Keys::new(1);
    let server = KcpConfig::builder().noise(taking(&keys, Pattern::Nk)).one_session_per_address(true);
    let mut server = Server::new(server.build().unwrap(), 1);
    let client = config(keys.initiator(Pattern::Nk));
    let mut client = Client::with_early_data(&client, START, 7, 300, 3_000, &mut Rng::new(2));
    go_on(5_000..9_000, &mut server, &mut client);
    assert_eq!((server.accepted, server.early), (1, 0));
    assert!(client.answer == client.request);
}

/// A path that loses a fifth, doubles a fifth and reorders.
fn early_data_comes_once(seeds: Range<u64>) {
    for seed in seeds {
        let (keys, mut rng) = (Keys::new(1), Rng::new(seed));
        let pattern = patterns().nth(seed as usize % 3).unwrap();
        let responder = if seed % 4 == 0 { keys.responder(pattern) } else { taking(&keys, pattern) };
        let mut server = Server::new(config(responder), seed);
        let client = config(keys.initiator(pattern));
        let early = rng.next() as usize % (MAX_EARLY_DATA + 1);
        let mut client = Client::with_early_data(&client, START, 7, early, early + 2_000, &mut rng);
        let mut under_way: VecDeque<(u64, bool, Vec<u8>)> = VecDeque::new();
        let mut is_over = false;
        for millis in 5_000..60_000 {
            let now = Instant::from_millis(millis);
            let reason = client.connection.close_reason();
            assert!(matches!(reason, None | Some(CloseReason::Finished)), "seed {seed}: {reason:?}");
            is_over = client.work(now);
            let sent = driven(&mut client.connection, now).into_iter().map(|packet| (true, packet));
            let answers = server.drive(now).into_iter().map(|(_, packet)| (false, packet));
            for (to_server, packet) in sent.chain(answers) {
                for _ in 0..[0, 1, 1, 1, 2][rng.next() as usize % 5] {
                    under_way.push_back((millis + 10 + rng.next() % 30, to_server, packet.clone()));
                }
            }
            for _ in 0..under_way.len() {
                let Some((at, to_server, packet)) = under_way.pop_front() else { break };
                if at > millis {
                    under_way.push_back((at, to_server, packet));
                } else if to_server {
                    server.receive(now, client_address(1), &packet);
                } else {
                    let _ = client.connection.handle_packet(now, &mut packet.clone());
                }
            }
            if is_over && server.sessions.is_empty() {
                break;
            }
        }
        assert!(is_over && client.answer == client.request, "seed {seed}: {} bytes", client.answer.len());
        assert_eq!(server.accepted, 1, "seed {seed}");
    }
}

#[test]
fn early_data_comes_once_whatever_the_path_does() {
    early_data_comes_once(0..100);
}

#[test]
#[ignore = "10 s: cargo test -p kcp9-tests --release --test noise -- --ignored many_seeds"]
fn early_data_comes_once_whatever_the_path_does_over_many_seeds() {
    early_data_comes_once(0..10_000);
}

#[test]
fn a_packet_that_has_no_room_for_early_data_is_refused_before_anything_is_sent() {
    let keys = Keys::new(1);
    let config = KcpConfig::builder().noise(keys.initiator(Pattern::Nk)).mtu(576).build().unwrap();
    let begin = |len: usize| {
        let mut rng = Rng::new(1);
        let seed = SessionSeed::new(&mut rng);
        Connection::connect_with_early_data(7, &config, START, seed, &vec![7; len], &mut rng).err()
    };
    assert_eq!([begin(376), begin(377)], [None, Some(NoiseError::EarlyData)]);
    assert_eq!(NoiseFailure::from(NoiseError::EarlyData), NoiseFailure::EarlyData);
}
