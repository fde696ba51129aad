//! Peers that agree on keys where a session is whose peer may not be there: one that began with a recording, or with a packet that somebody
//! has kept back. It gives way to the first packet under newer keys, and to nothing else. On virtual time.

use kcp9::{
    CookiePolicy, KcpConfig,
    proto::{
        Connection, Instant,
        noise::{Noise, Pattern},
    },
};
use kcp9_simulator::Rng;

use crate::{
    ends::Keys,
    virtual_ends::{Client, Server, client_address, driven, exchange, go_on},
};

const START: Instant = Instant::from_millis(5_000);
const CONV: u32 = 7;

fn config(noise: impl Into<Noise>) -> KcpConfig {
    KcpConfig::builder().noise(noise.into()).build().unwrap()
}

/// Servers that take early data, by their policy of cookies.
fn servers(keys: &Keys) -> [Server; 2] {
    [CookiePolicy::UnderLoad, CookiePolicy::Never].map(|policy| {
        let noise = keys.responder(Pattern::Nk).with_early_data();
        Server::new(KcpConfig::builder().noise(noise).cookies(policy).build().unwrap(), 1)
    })
}

/// Brings packets as if they came from the first client's address.
fn bring(server: &mut Server, now: Instant, packets: &[Vec<u8>]) {
    packets.iter().for_each(|packet| server.receive(now, client_address(1), packet));
}

/// What a client has sent before, with early data that the server has not seen: its session keeps the client out for two round trips.
#[test]
fn a_recording_with_early_data_keeps_its_client_out_for_no_longer_than_an_agreement_takes() {
    let keys = Keys::new(1);
    for mut server in servers(&keys) {
        let (client, mut rng) = (config(keys.initiator(Pattern::Nk)), Rng::new(2));
        let mut gone = Client::with_early_data(&client, START, CONV, 300, 300, &mut rng);
        let recording = driven(&mut gone.connection, START);
        bring(&mut server, START, &recording);
        assert_eq!((server.early, server.endpoint.half_open()), (1, 1));
        let mut client = Client::with_early_data(&client, START, CONV, 200, 500, &mut rng);
        // The recording comes again and again.
        for millis in 5_000..5_020 {
            go_on(millis..millis + 1, &mut server, &mut client);
            bring(&mut server, Instant::from_millis(millis), &recording);
        }
        let stats = server.endpoint.stats();
        assert_eq!((server.accepted, server.early, server.unsure, stats.evicted), (2, 1, 0, 1));
        assert!(client.answer == client.request, "{} bytes", client.answer.len());
    }
}

/// Whatever anybody says in the clear from the address of a client whose answer is late, with cookies, too, its session is there for it.
#[test]
fn nothing_in_the_clear_ends_a_session_that_began_with_early_data() {
    let keys = Keys::new(1);
    for mut server in servers(&keys) {
        let (config, mut rng) = (config(keys.initiator(Pattern::Nk)), Rng::new(2));
        let mut client = Client::with_early_data(&config, START, CONV, 300, 300, &mut rng);
        bring(&mut server, START, &driven(&mut client.connection, START));
        let mut late = server.drive(START);
        for millis in 5_000..13_000 {
            let now = Instant::from_millis(millis);
            if millis % 100 == 0 {
                // Who reads what comes to that address has cookies and answers. Only who has sent a packet under their keys is there.
                let mut other = Client::new(&config, now, CONV, 10, &mut rng);
                for _ in ["a cookie", "an answer"] {
                    if other.connection.handshake_hash().is_none() {
                        exchange(now, &mut server, &mut other.connection);
                    }
                }
            }
            late.extend(server.drive(now));
        }
        assert!(server.endpoint.agreeing() > 0);
        assert_eq!((server.accepted, server.sessions.len()), (1, 1));
        for (_, packet) in late {
            let _ = client.connection.handle_packet(Instant::from_millis(13_000), &mut packet.clone());
        }
        go_on(13_000..15_000, &mut server, &mut client);
        assert_eq!((server.accepted, server.early), (1, 1));
        assert!(client.answer == client.request, "{} bytes", client.answer.len());
        assert_eq!(server.endpoint.agreeing(), 0, "the others are of nobody");
    }
}

/// A client whose first packets under its keys are kept back, as it gives up; and the next one, from the same port and with the same conv,
/// that has an answer when they come.
#[test]
fn a_packet_that_was_kept_back_does_not_take_the_place_of_a_newer_agreement() {
    let keys = Keys::new(1);
    for pattern in Pattern::all() {
        let (mut server, mut rng) = (Server::new(config(keys.responder(pattern)), 1), Rng::new(2));
        let config = config(keys.initiator(pattern));
        let mut gone = Client::new(&config, START, CONV, 10, &mut rng);
        exchange(START, &mut server, &mut gone.connection);
        gone.work(START);
        let kept = driven(&mut gone.connection, START);
        let mut client = Client::new(&config, START, CONV, 3_000, &mut rng);
        for _ in ["a cookie", "an answer"] {
            exchange(START, &mut server, &mut client.connection);
        }
        assert_eq!((server.accepted, server.endpoint.agreeing()), (0, 2), "{pattern}");
        client.work(START);
        let mut sent = driven(&mut client.connection, START);
        bring(&mut server, START, &kept);
        assert_eq!((server.accepted, server.unsure), (1, 1), "{pattern}");
        assert_eq!((server.sessions.len(), server.endpoint.agreeing()), (1, 1), "{pattern}");
        // Again and again: a packet opens once, and is no sign of life.
        for _ in 0..3 {
            bring(&mut server, START, &kept);
            let _ = server.drive(START);
        }
        assert_eq!(server.endpoint.half_open(), 2, "{pattern}");
        bring(&mut server, START, &sent);
        sent = server.drive(START).into_iter().map(|(_, packet)| packet).collect();
        assert_eq!((server.accepted, server.endpoint.stats().evicted), (2, 1), "{pattern}");
        for packet in &sent {
            client.connection.handle_packet(START, &mut packet.clone()).unwrap();
        }
        go_on(5_001..9_000, &mut server, &mut client);
        assert!(client.answer == client.request, "{pattern}: {} bytes", client.answer.len());
        assert_eq!((server.accepted, server.endpoint.half_open()), (2, 0), "{pattern}");
    }
}

/// Somebody else's agreement is the newer one. The session is half-open for a round trip, and then sure of its client.
#[test]
fn a_session_beside_a_newer_agreement_is_sure_of_its_peer_once_it_was_heard() {
    let keys = Keys::new(1);
    for pattern in Pattern::all() {
        let (mut server, mut rng) = (Server::new(config(keys.responder(pattern)), 1), Rng::new(2));
        let config = config(keys.initiator(pattern));
        let mut client = Client::new(&config, START, CONV, 50_000, &mut rng);
        exchange(START, &mut server, &mut client.connection);
        let mut other = Client::new(&config, START, CONV, 10, &mut rng);
        for _ in ["a cookie", "an answer"] {
            exchange(START, &mut server, &mut other.connection);
        }
        other.work(START);
        let others = driven(&mut other.connection, START);
        assert_eq!(server.endpoint.agreeing(), 2, "{pattern}");
        go_on(5_000..5_010, &mut server, &mut client);
        assert_eq!((server.accepted, server.unsure), (1, 1), "{pattern}");
        assert!(server.sessions.values().all(Connection::is_validated), "{pattern}");
        assert_eq!((server.endpoint.half_open(), server.endpoint.agreeing()), (0, 0), "{pattern}");
        // From here on nobody else has it end.
        bring(&mut server, Instant::from_millis(5_010), &others);
        go_on(5_010..9_000, &mut server, &mut client);
        assert!(client.answer == client.request, "{pattern}: {} bytes", client.answer.len());
        assert_eq!((server.accepted, server.endpoint.stats().evicted), (1, 0), "{pattern}");
    }
}
