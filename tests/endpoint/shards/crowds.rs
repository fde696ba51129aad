//! Clients at random behind a port of several shards, where each packet arrives at whatever shard: sessions begin, move, end and begin
//! again, while packets get lost and keys are replaced.

use std::collections::HashMap;

use kcp9::{
    KcpConfig,
    proto::{Handle, Instant},
};
use kcp9_simulator::{Rng, ms, payload::Payload};

use super::{at, port::Port};
use crate::{
    ciphers::encrypted,
    host::{Host, client},
    network::SeedOnPanic,
};

/// What a client writes and its session echoes.
const BYTES: usize = 60_000;

struct Client {
    host: Host,
    handle: Handle,
    written: usize,
    read: usize,
}

struct Packet {
    arrival: Instant,
    /// From the client with this number, or else to it.
    up: bool,
    client: usize,
    /// The client's address when it was sent, or the address that it is sent to.
    address: std::net::SocketAddr,
    bytes: Vec<u8>,
}

/// All echoes arrive whole; no session is in two shards, and none changes its shard.
fn run(seed: u64, loss: f64, moving: bool) {
    let _seed = SeedOnPanic(seed);
    let mut rng = Rng::new(seed);
    let payload = Payload::new(seed);
    let config = encrypted(b"the key of both.");
    let mut port = Port::new(rng.within(2..=5) as u16, &config);
    let mut clients: Vec<Client> = Vec::new();
    let mut next_address = 1;
    for _ in 0..6 {
        clients.push(begin(&port, &config, &mut next_address, Instant::ZERO, &mut rng));
    }
    let mut under_way: Vec<Packet> = Vec::new();
    let mut owed: HashMap<(usize, Handle), Vec<u8>> = HashMap::new();
    let mut sessions: Vec<(usize, Handle)> = Vec::new();
    let mut now = Instant::ZERO;
    let end = at(120_000);
    while clients.iter().any(|client| client.read < BYTES) {
        assert!(now < end, "not everything was echoed");
        let (arrived, later) = under_way.into_iter().partition(|packet| packet.arrival <= now);
        under_way = later;
        for packet in arrived {
            let Packet { up, client, address, bytes, .. } = packet;
            if up {
                let shard = rng.within(0..=port.shards.len() as u64 - 1) as usize;
                port.receive_one(now, shard, address, &bytes);
            } else if clients[client].host.address == address {
                clients[client].host.receive_one(now, port.address, &bytes);
            }
        }
        for (index, shard) in port.shards.iter_mut().enumerate() {
            sessions.extend(std::iter::from_fn(|| shard.take_accepted()).map(|handle| (index, handle)));
        }
        sessions.retain(|(index, handle)| port.shards[*index].endpoint.route(*handle).is_some());
        for (index, handle) in &sessions {
            let read = port.shards[*index].read(*handle);
            let owed = owed.entry((*index, *handle)).or_default();
            owed.extend(read);
            let written = port.shards[*index].connection(*handle).write(now, owed).unwrap_or(0);
            owed.drain(..written);
        }
        for client in &mut clients {
            let Client { host, handle, written, read } = client;
            let mut bytes = vec![0; (BYTES - *written).min(3_000)];
            payload.fill(*written as u64, &mut bytes);
            if !bytes.is_empty() {
                *written += host.connection(*handle).write(now, &bytes).unwrap_or(0);
            }
            let echoed = host.read(*handle);
            assert_eq!(payload.first_difference(*read as u64, &echoed), None);
            *read += echoed.len();
            let may_move = *read > 0 && *read < BYTES && host.connection(*handle).is_peer_confirmed();
            if moving && may_move && rng.chance(0.002) {
                host.address = self::client(next_address);
                next_address += 1;
                // Some do not know.
                if rng.chance(0.5) {
                    let _ = host.connection(*handle).rebind(now);
                }
            }
        }
        let mut send = |up, client, address, batch: crate::host::Batch| {
            for bytes in batch.bytes.chunks(batch.stride) {
                let arrival = now + ms(10 + rng.within(0..=10));
                if !rng.chance(loss) {
                    under_way.push(Packet { arrival, up, client, address, bytes: bytes.to_vec() });
                }
            }
        };
        for (number, client) in clients.iter_mut().enumerate() {
            let address = client.host.address;
            client.host.drive(now).into_iter().for_each(|batch| send(true, number, address, batch));
        }
        for batch in port.drive(now) {
            if let Some(number) = clients.iter().position(|client| client.host.address == batch.to) {
                send(false, number, batch.to, batch);
            }
        }
        now += ms(5);
    }
    assert_eq!(port.sum(|stats| stats.accepted), clients.len() as u64);
    if !moving {
        assert!(
            port.sum(|stats| stats.handed_over) > 50,
            "packets of each shard's sessions arrived elsewhere"
        );
    }
    port.end(now);
}

fn begin(port: &Port, config: &KcpConfig, next_address: &mut u32, now: Instant, rng: &mut Rng) -> Client {
    let mut host = Host::connecting(client(*next_address));
    *next_address += 1;
    // Some have the same conversation.
    let handle = host.connect(now, port.address, 1 + rng.within(0..=2) as u32, config);
    Client { host, handle, written: 0, read: 0 }
}

#[test]
fn whatever_shard_each_packet_arrives_at_all_is_echoed() {
    for seed in 0..60 {
        run(seed, [0.0, 0.05][seed as usize % 2], false);
    }
}

#[test]
fn clients_that_move_all_the_time_are_followed_whatever_shard_their_packets_arrive_at() {
    for seed in 100..160 {
        run(seed, [0.0, 0.05][seed as usize % 2], true);
    }
}
