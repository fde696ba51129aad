//! A server that was started again has no keys of the sessions before, and tells their peers so by their reset keys. On virtual time.

use std::time::Duration;

use kcp9::{
    KcpConfig,
    proto::{
        CloseReason, Connection, Instant, SessionSeed,
        noise::{Pattern, Responder, SessionCipher},
    },
};
use kcp9_simulator::Rng;

use crate::{
    ends::Keys,
    virtual_ends::{Server, client_address, driven, exchange},
};

const CONV: u32 = 7;
/// The default settings find out without being told after 30 s.
const SOON: Duration = Duration::from_secs(5);

fn server_config(responder: Responder) -> KcpConfig {
    KcpConfig::builder().noise(responder).build().unwrap()
}

/// A client whose session with `server` has begun.
fn begun(keys: &Keys, pattern: Pattern, cipher: SessionCipher, server: &mut Server) -> Connection {
    let mut rng = Rng::new(11);
    let config = KcpConfig::builder().noise(keys.initiator(pattern).with_cipher(cipher)).build().unwrap();
    let seed = SessionSeed::new(&mut rng);
    let mut client = Connection::connect_with_noise(CONV, &config, Instant::ZERO, seed, &mut rng).unwrap();
    client.write(Instant::ZERO, b"begin").unwrap();
    for now in (0..1_000).map(Instant::from_millis) {
        exchange(now, server, &mut client);
    }
    let mut answer = [0; 5];
    assert_eq!((client.read(&mut answer), &answer), (Ok(5), b"begin"));
    client
}

/// Has the client write and go on with `server` from `at` on. Returns after how long it ends, and why, if it does within a minute.
fn ends(client: &mut Connection, server: &mut Server, at: Instant) -> Option<(Duration, CloseReason)> {
    client.write(at, b"anybody?").unwrap();
    (0..60_000).find_map(|millis| {
        let waited = Duration::from_millis(millis);
        exchange(at + waited, server, client);
        client.close_reason().map(|reason| (waited, reason))
    })
}

/// A server with a session, its client, and another server with the same key, which knows nothing of it.
fn client_of_one_of_two(keys: &Keys) -> (Server, Connection, Server) {
    let config = server_config(keys.responder(Pattern::Nk));
    let mut server = Server::new(config.clone(), 1);
    let client = begun(keys, Pattern::Nk, SessionCipher::default(), &mut server);
    (server, client, Server::new(config, 2))
}

const AT: Instant = Instant::from_millis(2_000);

#[test]
fn a_server_that_was_started_again_ends_the_sessions_that_it_has_lost() {
    let keys = Keys::new(1);
    let responders = [Pattern::Nk, Pattern::NkPsk0, Pattern::Xx, Pattern::XxPsk3]
        .map(|pattern| (pattern, keys.responder(pattern)))
        .into_iter()
        .chain([(Pattern::NnPsk0, keys.responder(Pattern::NnPsk0).with_reset_secret(&[5; 32]))]);
    for (pattern, responder) in responders {
        for cipher in [SessionCipher::ChaCha20Poly1305, SessionCipher::Aes256Gcm] {
            let config = server_config(responder.clone());
            let mut server = Server::new(config.clone(), 1);
            let mut client = begun(&keys, pattern, cipher, &mut server);
            let mut again = Server::new(config, 2);
            let (waited, reason) = ends(&mut client, &mut again, AT).expect("an end");
            assert_eq!(reason, CloseReason::Reset, "{pattern} {cipher:?}");
            assert!(waited < SOON, "{pattern} {cipher:?}: after {waited:?}");
            assert!(again.endpoint.stats().replies_sent >= 2);
        }
    }
}

/// Whoever repeats a client's HELLO has a server that was started again agree with somebody at its address.
#[test]
fn who_is_agreeing_keeps_no_server_that_was_started_again_from_saying_so() {
    let keys = Keys::new(1);
    for pattern in [Pattern::Nk, Pattern::NkPsk0, Pattern::Xx] {
        let config = server_config(keys.responder(pattern));
        let mut server = Server::new(config.clone(), 1);
        let (mut rng, cipher) = (Rng::new(11), SessionCipher::default());
        let client = KcpConfig::builder().noise(keys.initiator(pattern).with_cipher(cipher)).build().unwrap();
        let seed = SessionSeed::new(&mut rng);
        let mut recorded =
            Connection::connect_with_noise(CONV, &client, Instant::ZERO, seed, &mut rng).unwrap();
        let hello = driven(&mut recorded, Instant::ZERO).remove(0);
        let mut client = begun(&keys, pattern, cipher, &mut server);
        let mut again = Server::new(config, 2);
        client.write(AT, b"anybody?").unwrap();
        let waited = (0..60_000).map(Duration::from_millis).find(|waited| {
            again.receive(AT + *waited, client_address(1), &hello);
            assert!(again.endpoint.agreeing() > 0);
            exchange(AT + *waited, &mut again, &mut client);
            client.close_reason().is_some()
        });
        assert_eq!(client.close_reason(), Some(CloseReason::Reset), "{pattern}");
        assert!(waited.is_some_and(|waited| waited < SOON), "{pattern}: after {waited:?}");
    }
}

#[test]
fn only_who_has_the_secret_ends_a_session_and_only_at_its_address() {
    let keys = Keys::new(2);
    let no_secret = server_config(keys.responder(Pattern::NnPsk0));
    let nk = server_config(keys.responder(Pattern::Nk));
    let other = server_config(keys.responder(Pattern::Nk).with_reset_secret(&[6; 32]));
    for (pattern, before, after, answers) in [
        (Pattern::NnPsk0, &no_secret, &no_secret, false),
        (Pattern::NnPsk0, &no_secret, &nk, true),
        (Pattern::Nk, &nk, &other, true),
    ] {
        let mut server = Server::new(before.clone(), 1);
        let mut client = begun(&keys, pattern, SessionCipher::default(), &mut server);
        let mut again = Server::new(after.clone(), 2);
        let (waited, reason) = ends(&mut client, &mut again, AT).expect("an end");
        assert_eq!(reason, CloseReason::DeadLink, "{pattern}");
        assert!(waited >= Duration::from_secs(30), "{pattern}: after {waited:?}");
        assert_eq!(again.endpoint.stats().replies_sent > 0, answers, "{pattern}");
    }

    // What a restarted server answers to copies of the client's packets from elsewhere is for there.
    let mut server = Server::new(nk.clone(), 1);
    let mut client = begun(&keys, Pattern::Nk, SessionCipher::default(), &mut server);
    let mut again = Server::new(nk, 2);
    client.write(AT, b"anybody?").unwrap();
    for now in (0..10_000).map(|millis| AT + Duration::from_millis(millis)) {
        for packet in driven(&mut client, now) {
            again.receive(now, client_address(2), &packet);
        }
        for (_, packet) in again.drive(now) {
            let _ = client.handle_packet(now, &mut packet.clone());
        }
    }
    assert!(again.endpoint.stats().replies_sent >= 2);
    assert_eq!(client.close_reason(), None);
}

/// Somebody on the path brings everything to a server that has the same key and is nearer, and its answers back.
#[test]
fn resets_of_another_server_with_the_same_key_end_no_session_that_lives() {
    let keys = Keys::new(3);
    let (mut server, mut client, mut other) = client_of_one_of_two(&keys);
    // Its path has become slower than ever before.
    let (mut on_the_way, mut echoed) = (Vec::new(), 0);
    for millis in 0..20_000 {
        let now = AT + Duration::from_millis(millis);
        if millis % 100 == 0 {
            client.write(now, &[1; 100]).unwrap();
        }
        for packet in driven(&mut client, now) {
            other.receive(now, client_address(1), &packet);
            on_the_way.push((millis + 40, packet));
        }
        for (_, packet) in other.drive(now) {
            let _ = client.handle_packet(now, &mut packet.clone());
        }
        on_the_way.retain(|(at, packet)| {
            if *at <= millis {
                server.receive(now, client_address(1), packet);
            }
            *at > millis
        });
        for (_, packet) in server.drive(now) {
            let _ = client.handle_packet(now, &mut packet.clone());
        }
        let mut bytes = [0; 1_000];
        while let Ok(len) = client.read(&mut bytes) {
            echoed += len;
        }
        assert_eq!(client.close_reason(), None, "after {millis} ms");
    }
    assert!(other.endpoint.stats().replies_sent > 100, "it was told otherwise all the time");
    assert!(echoed >= 19_500, "{echoed}");
}

/// Somebody has the reset key, by a copy of an old session, and sends it in the server's name all the time. The session is idle, and its path
/// loses a fifth each way.
#[test]
fn who_has_the_reset_key_ends_no_idle_session_of_a_server_that_lives() {
    let keys = Keys::new(6);
    let (mut server, mut client, mut other) = client_of_one_of_two(&keys);
    other.receive(AT, client_address(1), &keys.forged(Pattern::Nk, CONV));
    let (_, reset) = other.replies.pop().unwrap();
    for seed in 0..4 {
        let mut rng = Rng::new(seed);
        let mut lost = move || rng.next().is_multiple_of(5);
        let mut questions = 0;
        for millis in 0..60_000 {
            let now = AT + Duration::from_secs(60 * seed) + Duration::from_millis(millis);
            if millis % 10 == 0 {
                let _ = client.handle_packet(now, &mut reset.clone());
            }
            for packet in driven(&mut client, now) {
                questions += 1;
                if !lost() {
                    server.receive(now, client_address(1), &packet);
                }
            }
            for (_, packet) in server.drive(now) {
                if !lost() {
                    let _ = client.handle_packet(now, &mut packet.clone());
                }
            }
            assert_eq!(client.close_reason(), None, "seed {seed}, after {millis} ms");
        }
        assert!(questions <= 60_000 / 10 + 600, "{questions} packets for 6,000");
    }
}

/// A client whose stream is over at both ends, but for the last word, ends well when its server is started again in that moment.
#[test]
fn a_client_that_has_all_and_has_delivered_all_ends_well_by_a_reset() {
    let keys = Keys::new(7);
    let (mut server, mut client, mut again) = client_of_one_of_two(&keys);
    // The server says that its stream ends, and hears no answer.
    for connection in server.sessions.values_mut() {
        connection.shutdown(AT);
    }
    for (_, packet) in server.drive(AT) {
        let _ = client.handle_packet(AT, &mut packet.clone());
    }
    client.shutdown(AT);
    let ended = (0..20_000).find_map(|millis| {
        let now = AT + Duration::from_millis(millis);
        exchange(now, &mut again, &mut client);
        client.close_reason().map(|reason| (millis, reason))
    });
    let (millis, reason) = ended.expect("an end");
    assert_eq!(reason, CloseReason::Finished);
    assert!(millis < 5_000, "after {millis} ms");
}

/// Who sends anything to a server draws no more answers than the limit says, each shorter than its cause.
#[test]
fn unknown_packets_draw_few_answers_and_short_ones() {
    let keys = Keys::new(4);
    let config = KcpConfig::builder().noise(keys.responder(Pattern::Nk)).reply_limit(100).build().unwrap();
    let mut rng = Rng::new(5);
    let mut server = Server::new(config.clone(), 1);
    let packet = |len: usize, rng: &mut Rng| (0..len).map(|_| rng.next() as u8).collect::<Vec<_>>();
    for len in 0..48 {
        server.receive(AT, client_address(1), &packet(len, &mut rng));
    }
    assert_eq!(server.replies, [], "shorter than any packet of a session");
    for nth in 0..10_000 {
        server.receive(AT, client_address(nth % 200), &packet(48 + nth % 1_300, &mut rng));
    }
    assert_eq!(server.replies.len(), 10, "a tenth of the limit at once");
    assert!(server.replies.iter().all(|(_, packet)| (47..=56).contains(&packet.len())));

    // An end that accepts, too, answers an answer by a shorter one, so that the two stop.
    let mut servers = [server, Server::new(config.clone(), 2)];
    let mut now = AT + Duration::from_secs(1);
    servers[0].replies.clear();
    servers[0].receive(now, client_address(1), &packet(1_400, &mut rng));
    let mut exchanged = 0;
    for turn in 0..100 {
        now += Duration::from_secs(1);
        let Some((_, packet)) = servers[turn % 2].replies.pop() else { break };
        servers[(turn + 1) % 2].receive(now, client_address(1), &packet);
        exchanged += 1;
    }
    assert_eq!(exchanged, 10, "56 bytes, 55, and so on");

    // Where several sockets share the port, another one may know the session.
    let mut silent = Server::new(config, 3);
    silent.endpoint.set_resets(false);
    silent.receive(AT, client_address(1), &packet(100, &mut rng));
    assert_eq!(silent.replies, []);
}
