//! Sessions without extensions that have ended at this end and not at the other, because the last ACK was lost. Those with
//! extensions are in `ends.rs`.

use kcp9::{
    KcpConfig,
    proto::{Extensions, Instant},
};
use kcp9_simulator::{Rng, ms};

use crate::{
    ciphers::encrypted,
    host::{Host, address, client, first_packet, push},
    network::{SeedOnPanic, deliver_all},
};

const NOW: Instant = Instant::ZERO;

/// How long nothing begins a session anew with the same address and conv.
const QUIET_MS: u64 = 3_000;
/// How long a record stays.
const MINUTE_MS: u64 = 60_000;

fn configs() -> [KcpConfig; 4] {
    let plain = KcpConfig::builder().extensions(Extensions::Off);
    let sealed = plain.clone().crypto(encrypted(b"the key of both.").crypto().cloned());
    [plain.clone(), plain.fec(10, 3), sealed.clone(), sealed.fec(3, 1)].map(|config| config.build().unwrap())
}

/// A client uploads and shuts down. The server has everything and goes, and all that it sends is lost for `silence` ms.
fn upload(config: &KcpConfig, len: usize, silence: u64) {
    let mut server = Host::accepting(address(1, 1), config);
    let mut host = Host::connecting(client(1));
    let handle = host.connect(NOW, server.address, 7, config);
    host.connection(handle).write(NOW, &vec![7; len]).unwrap();
    host.connection(handle).shutdown(NOW);
    let mut now = NOW;
    let mut session = None;
    loop {
        host.connection(handle).handle_timeout(now);
        for batch in host.drive(now) {
            server.receive(now, host.address, batch.bytes, batch.stride);
        }
        if let Some(accepted) = server.take_accepted() {
            assert_eq!(session.replace(accepted), None, "accepted a second time after {now:?}");
            assert_eq!(server.read(accepted).len(), len);
            // Its ACKs are lost, and it goes.
            server.drive(now);
            server.close(now, accepted);
        }
        for batch in server.drive(now) {
            if now >= NOW + ms(silence) {
                host.receive(now, server.address, batch.bytes, batch.stride);
            }
        }
        if host.connection(handle).is_flushed() {
            break;
        }
        assert_eq!(host.connection(handle).close_reason(), None, "at {now:?}");
        now = host.poll_timeout().unwrap();
    }
    assert!(now <= NOW + ms(2 * silence + 1_000), "only at {now:?}");
    assert_eq!((server.stats().accepted, server.endpoint.len()), (1, 0));
    assert!(server.stats().replies_sent > 0);
}

#[test]
fn a_lost_last_ack_is_no_error_of_the_peers_shutdown() {
    for config in configs() {
        for silence in [0, 1_000, 2_900, 3_100, 12_000] {
            upload(&config, 1, silence);
            upload(&config, 30_000, silence);
        }
    }
}

/// The answer is lost with the ACKs: the client does not know whether the request has arrived.
#[test]
fn a_request_whose_answer_is_lost_is_taken_in_once() {
    for config in configs() {
        let mut server = Host::accepting(address(1, 1), &config);
        let mut host = Host::connecting(client(1));
        let handle = host.connect(NOW, server.address, 7, &config);
        host.connection(handle).write(NOW, b"pay 100").unwrap();
        for batch in host.drive(NOW) {
            server.receive(NOW, host.address, batch.bytes, batch.stride);
        }
        let accepted = server.take_accepted().unwrap();
        server.connection(accepted).write(NOW, b"paid").unwrap();
        server.drive(NOW);
        server.close(NOW, accepted);
        let mut now = NOW;
        // Every answer is lost: the client resends until it gives up.
        while let Some(next) = host.poll_timeout() {
            now = next;
            for batch in host.drive(now) {
                server.receive(now, host.address, batch.bytes, batch.stride);
            }
            server.drive(now);
        }
        assert!(now >= NOW + ms(29_000), "gave up at {now:?}");
        let stats = server.stats();
        assert_eq!((stats.accepted, server.endpoint.len()), (1, 0), "{stats:?}");
        assert!(stats.replies_sent >= 5, "{stats:?}");
        // Parity draws no answer.
        let all_answered = stats.dropped_recently_closed == stats.replies_sent;
        assert!(all_answered || config.settings().fec != (0, 0), "{stats:?}");
    }
}

/// A server without encryption, whose session 7 with `client(1)` began with `request` and has just ended.
fn ended(request: &[u8]) -> Host {
    let mut server = Host::accepting(address(1, 1), &KcpConfig::default());
    server.receive_one(NOW, client(1), &push(7, 0, 0, request));
    let session = server.take_accepted().unwrap();
    server.drive(NOW);
    server.close(NOW, session);
    server
}

#[test]
fn the_same_request_is_a_resend_for_a_minute_and_another_one_a_session_after_a_while() {
    let mut server = ended(b"request");
    for late in [0, 1, QUIET_MS - 1, QUIET_MS, MINUTE_MS - 1] {
        server.receive_one(NOW + ms(late), client(1), &push(7, 0, 0, b"request"));
        assert_eq!(server.drive(NOW + ms(late)).len(), 1, "acknowledged after {late} ms");
    }
    // Neither other conversations of the address nor other addresses are concerned.
    server.receive_one(NOW, client(1), &first_packet(8));
    server.receive_one(NOW, client(2), &push(7, 0, 0, b"request"));
    assert_eq!((server.endpoint.len(), server.stats().dropped_recently_closed), (2, 5));

    let mut server = ended(b"request");
    server.receive_one(NOW + ms(QUIET_MS - 1), client(1), &push(7, 0, 0, b"another"));
    assert_eq!((server.drive(NOW).len(), server.endpoint.len()), (0, 0), "neither begun nor acknowledged");
    server.receive_one(NOW + ms(QUIET_MS), client(1), &push(7, 0, 0, b"another"));
    let again = server.take_accepted().unwrap();
    assert_eq!(server.read(again), b"another");

    let mut server = ended(b"request");
    server.receive_one(NOW + ms(MINUTE_MS), client(1), &push(7, 0, 0, b"request"));
    assert!(server.take_accepted().is_some(), "after a minute it is a session");
}

#[test]
fn what_has_expired_can_be_forgotten_although_no_packet_comes() {
    let mut server = Host::accepting(address(1, 1), &KcpConfig::default());
    assert_eq!(server.endpoint.expires_at(), None);
    for (number, late) in [(1, 0), (2, 500)] {
        server.receive_one(NOW + ms(late), client(number), &first_packet(7));
        let session = server.take_accepted().unwrap();
        server.close(NOW + ms(late), session);
    }
    for late in [0, 500] {
        let at = NOW + ms(MINUTE_MS + late);
        assert_eq!(server.endpoint.expires_at(), Some(at));
        server.endpoint.forget_expired(at);
    }
    assert_eq!(server.endpoint.expires_at(), None);
}

/// A program that always has the same port and conv, and begins each session with the same bytes.
#[test]
fn a_client_that_had_an_answer_comes_back_with_the_same_request() {
    let config = KcpConfig::default();
    let mut hosts = [Host::accepting(address(1, 1), &config), Host::connecting(client(1))];
    let [server, _] = [0, 1].map(|side: usize| hosts[side].address);
    let mut now = NOW;
    for round in 0..3 {
        let handle = hosts[1].connect(now, server, 7, &config);
        hosts[1].connection(handle).write(now, b"GET /").unwrap();
        deliver_all(now, &mut hosts);
        let session = hosts[0].take_accepted().unwrap_or_else(|| panic!("not accepted in round {round}"));
        assert_eq!(hosts[0].read(session), b"GET /");
        hosts[0].connection(session).write(now, b"200 OK").unwrap();
        deliver_all(now, &mut hosts);
        assert_eq!(hosts[1].read(handle), b"200 OK");
        // The client acknowledges the answer.
        now += ms(1_000);
        deliver_all(now, &mut hosts);
        hosts[0].close(now, session);
        hosts[1].close(now, handle);
        now += ms(QUIET_MS);
    }
    assert_eq!(hosts[0].stats().accepted, 3);
}

/// It returns within the first seconds, so that its first PUSH is dropped. What it sends behind that one must not be
/// acknowledged in place of the old session's.
#[test]
fn no_segment_of_a_session_begun_anew_is_acknowledged_for_the_old_one() {
    for seed in 0..200 {
        let _seed = SeedOnPanic(seed);
        let mut rng = Rng::new(seed);
        let config = KcpConfig::default();
        let mut hosts = [Host::accepting(address(1, 1), &config), Host::connecting(client(1))];
        let server = hosts[0].address;
        let old = hosts[1].connect(NOW, server, 7, &config);
        hosts[1].connection(old).write(NOW, &vec![1; rng.size(1..=60_000)]).unwrap();
        deliver_all(NOW, &mut hosts);
        let session = hosts[0].take_accepted().unwrap();
        hosts[0].connection(session).write(NOW, b"an answer").unwrap();
        let mut now = NOW;
        while !hosts[0].connection(session).is_flushed() {
            now += ms(10);
            deliver_all(now, &mut hosts);
        }
        hosts[0].close(now, session);
        hosts[1].close(now, old);

        let new = hosts[1].connect(now, server, 7, &config);
        let bytes: Vec<u8> = (0..rng.size(1..=60_000)).map(|i| (i % 251) as u8).collect();
        assert_eq!(hosts[1].connection(new).write(now, &bytes), Ok(bytes.len()));
        let mut received = Vec::new();
        let mut session = None;
        while received.len() < bytes.len() {
            for batch in hosts[1].drive(now) {
                for packet in batch.bytes.chunks(batch.stride).filter(|_| !rng.chance(0.3)) {
                    hosts[0].receive_one(now, client(1), packet);
                }
            }
            session = session.or_else(|| hosts[0].take_accepted());
            for batch in hosts[0].drive(now) {
                hosts[1].receive(now, server, batch.bytes, batch.stride);
            }
            if let Some(session) = session {
                received.extend(hosts[0].read(session));
            }
            assert_eq!(hosts[1].connection(new).close_reason(), None);
            assert!(now < NOW + ms(60_000), "{} of {} bytes", received.len(), bytes.len());
            now += ms(10);
        }
        assert!(received == bytes, "other bytes");
    }
}

#[test]
fn a_flood_of_resends_is_answered_within_limits_and_never_at_length() {
    let mut server = ended(b"request");
    for nth in 0..20_000 {
        let now = NOW + ms(nth / 20);
        server.receive_one(now, client(1), &push(7, 0, 0, b"request"));
    }
    let stats = server.stats();
    assert_eq!(stats.replies_sent + stats.replies_limited, 20_000, "{stats:?}");
    // 10,000 a second, and at most 1,000 at once.
    assert!((10_000..=11_000).contains(&stats.replies_sent), "{stats:?}");
    assert_eq!(server.drive(NOW).iter().map(|batch| batch.bytes.len()).max(), Some(24));
}

/// Many clients behind one address, one packet in ten lost: all of them hear in the end that everything has arrived.
#[test]
fn a_crowd_behind_one_address_ends_without_errors() {
    let [config, ..] = configs();
    let mut rng = Rng::new(1);
    let mut server = Host::accepting(address(1, 1), &config);
    let mut clients: Vec<_> = (0..1_000).map(|number| Host::connecting(address(9, 1_000 + number))).collect();
    let mut handles = Vec::new();
    for host in &mut clients {
        let handle = host.connect(NOW, server.address, 7, &config);
        host.connection(handle).write(NOW, b"log this").unwrap();
        host.connection(handle).shutdown(NOW);
        handles.push(handle);
    }
    let mut now = NOW;
    let mut open = clients.len();
    while open > 0 {
        for host in &mut clients {
            for batch in host.drive(now) {
                if !rng.chance(0.1) {
                    server.receive(now, host.address, batch.bytes, batch.stride);
                }
            }
        }
        let mut sent = server.drive(now);
        while let Some(session) = server.take_accepted() {
            sent.extend(server.drive(now));
            server.close(now, session);
        }
        for batch in sent.into_iter().filter(|_| !rng.chance(0.1)) {
            let host = clients.iter_mut().find(|host| host.address == batch.to).unwrap();
            host.receive(now, server.address, batch.bytes, batch.stride);
        }
        open = 0;
        for (host, handle) in clients.iter_mut().zip(&handles) {
            assert_eq!(host.connection(*handle).close_reason(), None);
            open += usize::from(!host.connection(*handle).is_flushed());
        }
        now += ms(10);
        assert!(now < NOW + ms(10_000), "{open} are still open");
    }
    assert_eq!(server.stats().accepted, 1_000);
}
