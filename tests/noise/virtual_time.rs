//! Sessions with key agreement on virtual time, over a path that loses, doubles, reorders and damages packets, while somebody sends again
//! what was seen, whole, cut or put together of two: to the same end, from another address, back to its sender, and into other sessions.
//! Some clients are behind an endpoint, which finds the packets of the session, and some of these endpoints accept sessions as well. A
//! failure prints its seed.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use kcp9::{
    KcpConfig,
    proto::{
        Endpoint, Handle, Instant, Refusal, Routed,
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

/// A client, and what finds its packets, unless it takes whatever comes to its address.
struct Host {
    client: Client,
    behind: Option<(Endpoint, Handle)>,
}

impl Host {
    fn new(client: Client, conv: u32, seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 3);
        let mut endpoint = match seed % 3 {
            0 => return Self { client, behind: None },
            1 => Endpoint::new(&mut rng),
            _ => {
                let pattern = Pattern::all().nth(seed as usize % 5).unwrap();
                Endpoint::accepting(&config(Keys::new(9).responder(pattern), seed), &mut rng)
            }
        };
        let handle = endpoint.connect_sealed(address(SERVER), conv).unwrap();
        Self { client, behind: Some((endpoint, handle)) }
    }

    fn receive(&mut self, now: Instant, packet: &Packet) {
        let connection = &mut self.client.connection;
        let Some((endpoint, handle)) = &mut self.behind else {
            let _ = connection.handle_packet(now, &mut packet.bytes.clone());
            return;
        };
        let stride = packet.bytes.len().max(1);
        let mut block = Arc::new(packet.bytes.clone().into_boxed_slice());
        endpoint.receive(packet.from, Arc::get_mut(&mut block).unwrap(), stride);
        while let Some(routed) = endpoint.poll_routed(now, &block) {
            match routed {
                Routed::Session(run) => {
                    assert_eq!(run.handle, *handle);
                    connection.handle_sealed_batch(now, &mut block, run.range, run.stride);
                    if let Some(key) = connection.route_key() {
                        endpoint.set_route_key(*handle, key);
                    }
                }
                Routed::Incoming(_) => endpoint.refuse(Refusal::QueueFull),
                Routed::Reply(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// What somebody makes of packets that were seen: the whole of one, a part of it, or the front of one and the tail of another.
fn made_of(seen: &[Packet], copy: &Packet, rng: &mut Rng) -> Vec<u8> {
    let cut = |bytes: &[u8], rng: &mut Rng| rng.within(0..=bytes.len() as u64) as usize;
    match rng.within(0..=3) {
        0 => copy.bytes[..cut(&copy.bytes, rng)].to_vec(),
        1 => {
            let other = &seen[rng.within(0..=seen.len() as u64 - 1) as usize].bytes;
            [&copy.bytes[..cut(&copy.bytes, rng)], &other[cut(other, rng)..]].concat()
        }
        _ => copy.bytes.clone(),
    }
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
    let mut hosts =
        [7, 7].map(|conv| Host::new(Client::new(&of_client, now, conv, len, &mut rng), conv, seed));
    // Of its own, so that the rest is as it is without it.
    let mut mischief = Rng::new(seed ^ 2);
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
        for (nth, Host { client, .. }) in hosts.iter_mut().enumerate() {
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
        let timers = hosts.iter().filter_map(|host| host.client.connection.poll_timeout());
        let timers = timers.chain(server.sessions.values().filter_map(|session| session.poll_timeout()));
        now = timers.chain(next).min().unwrap_or(now + ms(100)).max(now + Duration::from_micros(100));
        let (arrived, rest) = under_way.into_iter().partition(|packet| packet.arrival <= now);
        under_way = rest;
        for packet in arrived {
            deliver(now, &mut server, &mut hosts, &packet);
            seen.push(packet);
            if rng.within(0..=9) == 0 {
                let copy = &seen[rng.within(0..=seen.len() as u64 - 1) as usize];
                let (from, to) = match rng.within(0..=3) {
                    0 => (copy.from, copy.to),
                    1 => (client_address(9), address(SERVER)),
                    2 => (copy.to, copy.from),
                    _ => (client_address(rng.within(0..=1) as usize), address(SERVER)),
                };
                let packet = Packet { arrival: now, from, to, bytes: made_of(&seen, copy, &mut mischief) };
                deliver(now, &mut server, &mut hosts, &packet);
            }
        }
    }
    for Host { client, .. } in &hosts {
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

fn deliver(now: Instant, server: &mut Server, hosts: &mut [Host], packet: &Packet) {
    if packet.to == address(SERVER) {
        return server.receive(now, packet.from, &packet.bytes);
    }
    if let Some(nth) = (0..hosts.len()).find(|nth| client_address(*nth) == packet.to) {
        hosts[nth].receive(now, packet);
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
