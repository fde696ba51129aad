//! Sessions with key agreement on virtual time, over a path that loses, doubles, reorders and damages packets, while somebody sends again
//! what was seen: to the same end, from another address, back to its sender, and into other sessions. A failure prints its seed.

use std::{net::SocketAddr, time::Duration};

use kcp9::{
    KcpConfig,
    proto::{
        Instant,
        noise::{Noise, Pattern},
    },
};
use kcp9_simulator::{LinkSettings, Rng, link::Link, ms};

use crate::{
    ends::Keys,
    virtual_ends::{Client, SERVER, SeedOnPanic, Server, address, client_address, driven},
};

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
