//! How many round trips pass before data arrives, on a path of a fixed delay: what section 7 of the page says of each pattern.

use std::{collections::VecDeque, time::Duration};

use kcp9::{
    CookiePolicy, KcpConfig,
    proto::{Connection, Event, Instant, SessionSeed, noise::Pattern},
};
use kcp9_simulator::{Rng, ms};

use crate::{
    ends::Keys,
    virtual_ends::{Server, client_address, driven_with},
};

const START: Instant = Instant::from_millis(5_000);
/// Half a round trip. Nothing is sent again within some of them.
const DELAY: Duration = Duration::from_millis(20);

/// When something came for the first time, in half round trips.
#[derive(Debug, PartialEq, Eq)]
struct Halves {
    /// The client knows that the server is the right one.
    connected: u32,
    /// The server reads the client's first byte.
    at_server: u32,
    /// The client reads the answer.
    back: u32,
}

/// What a client with `early` of its two bytes as early data sees of a server with these settings.
fn measured(client: &KcpConfig, server: KcpConfig, early: usize) -> Halves {
    let (mut server, mut rng) = (Server::new(server, 1), Rng::new(2));
    let seed = SessionSeed::new(&mut rng);
    let mut client =
        Connection::connect_with_early_data(7, client, START, seed, &b"hi"[..early], &mut rng).unwrap();
    client.write(START, &b"hi"[early..]).unwrap();
    let mut under_way = VecDeque::<(Instant, bool, Vec<u8>)>::new();
    let (mut connected, mut at_server, mut back) = (None, None, None);
    for now in (0..1_000).map(|millis| START + ms(millis)) {
        let passed = now - START;
        let halves = || (passed.as_millis() / DELAY.as_millis()) as u32;
        while under_way.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, up, mut packet) = under_way.pop_front().unwrap();
            if up {
                server.receive(now, client_address(1), &packet);
            } else {
                let _ = client.handle_packet(now, &mut packet);
            }
        }
        if client.read(&mut [0; 2]).is_ok() {
            back.get_or_insert(halves());
        }
        let packets = driven_with(&mut client, now, |event| {
            if event == Event::Connected {
                connected.get_or_insert(halves());
            }
        });
        under_way.extend(packets.into_iter().map(|packet| (now + DELAY, true, packet)));
        under_way.extend(server.drive(now).into_iter().map(|(_, packet)| (now + DELAY, false, packet)));
        if server.sessions.values().any(|session| session.stats().stream.bytes_read > 0) {
            at_server.get_or_insert(halves());
        }
    }
    Halves { connected: connected.unwrap(), at_server: at_server.unwrap(), back: back.unwrap() }
}

#[test]
fn data_arrives_after_as_many_round_trips_as_the_page_says() {
    let keys = Keys::new(1);
    for pattern in Pattern::all() {
        let client = KcpConfig::builder().noise(keys.initiator(pattern)).build().unwrap();
        let server = || KcpConfig::builder().noise(keys.responder(pattern));
        // HELLO, ANSWER, and data with the sealed HELLO, in front of which the last message goes. Who is asked for its key knows only by
        // something of the server that opens that the server trusts it.
        let connected = if pattern.takes_early_data() { 2 } else { 4 };
        assert_eq!(
            measured(&client, server().build().unwrap(), 0),
            Halves { connected, at_server: 3, back: 4 },
            "{pattern}"
        );
        // RETRY takes one more.
        assert_eq!(
            measured(&client, server().cookies(CookiePolicy::Always).build().unwrap(), 0),
            Halves { connected: connected + 2, at_server: 5, back: 6 },
            "{pattern} with a cookie"
        );
        if !pattern.takes_early_data() {
            continue;
        }
        let server = |cookies| {
            let noise = keys.responder(pattern).with_early_data();
            KcpConfig::builder().noise(noise).cookies(cookies).build().unwrap()
        };
        assert_eq!(
            measured(&client, server(CookiePolicy::UnderLoad), 1),
            Halves { connected: 2, at_server: 1, back: 2 },
            "{pattern} with early data"
        );
        assert_eq!(
            measured(&client, server(CookiePolicy::Always), 1),
            Halves { connected: 4, at_server: 3, back: 4 },
            "{pattern} with early data and a cookie"
        );
    }
}
