//! Many clients of one server over bad paths: every byte comes back, to whom it belongs.

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    proto::{Handle, Instant},
};
use kcp9_simulator::{LinkSettings, Rng, ms, payload::Payload};

use crate::{
    host::{Host, address},
    network::{Network, SeedOnPanic},
};

const CLIENTS: usize = 8;
const SESSIONS: u32 = 3;
const BYTES: usize = 40_000;
const LIMIT: Instant = Instant::from_millis(600_000);

/// A session of a client, and how much of its payload has gone out and come back.
struct Exchange {
    client: usize,
    handle: Handle,
    payload: Payload,
    written: usize,
    echoed: usize,
}

fn settings() -> KcpConfigBuilder {
    KcpConfig::builder().dead_timeout(ms(120_000))
}

fn bad_path() -> LinkSettings {
    LinkSettings {
        loss: 0.05,
        jitter: ms(10),
        reorder: 0.05,
        reorder_delay: ms(60),
        duplicate: 0.05,
        ..LinkSettings::delay(ms(20))
    }
}

/// Echoes through a server with `config`; returns the server as it is in the end.
fn run(seed: u64, config: &KcpConfig, path: LinkSettings) -> Host {
    let _seed = SeedOnPanic(seed);
    let mut rng = Rng::new(seed);
    let mut network = Network::new(path, rng.fork());
    let mut hosts: Vec<_> = (1..=CLIENTS as u32).map(|host| Host::connecting(address(host, 9))).collect();
    let server = address(99, 9);
    let mut now = Instant::ZERO;
    let mut exchanges = Vec::new();
    for (client, host) in hosts.iter_mut().enumerate() {
        for conv in 1..=SESSIONS {
            // The same convs at every client: only the address tells them apart.
            let handle = host.connect(now, server, conv, config);
            let payload = Payload::new(rng.next());
            exchanges.push(Exchange { client, handle, payload, written: 0, echoed: 0 });
        }
    }
    hosts.push(Host::accepting(server, config));
    while exchanges.iter().any(|exchange| exchange.echoed < BYTES) {
        network.receive(now, &mut hosts);
        let (server, clients) = hosts.split_last_mut().unwrap();
        while server.take_accepted().is_some() {}
        for connection in server.connections() {
            let mut bytes = [0; 1_000];
            // As much as can be written back.
            while connection.stats().queues.unsent_bytes < 20_000
                && let Ok(count) = connection.read(&mut bytes)
            {
                assert_eq!(connection.write(now, &bytes[..count]), Ok(count));
            }
        }
        for exchange in &mut exchanges {
            let client = &mut clients[exchange.client];
            let echoed = client.read(exchange.handle);
            let wrong = exchange.payload.first_difference(exchange.echoed as u64, &echoed);
            assert_eq!(wrong, None, "{:?} of client {}", exchange.handle, exchange.client);
            exchange.echoed += echoed.len();
            let mut bytes = [0; 2_000];
            while exchange.written < BYTES {
                let len = bytes.len().min(BYTES - exchange.written);
                exchange.payload.fill(exchange.written as u64, &mut bytes[..len]);
                let Ok(count) = client.connection(exchange.handle).write(now, &bytes[..len]) else { break };
                exchange.written += count;
            }
        }
        network.send(now, &mut hosts);
        let next = hosts.iter().filter_map(Host::poll_timeout).chain(network.next_arrival()).min();
        now = next.expect("somebody waits for something").max(now);
        assert!(now < LIMIT, "stuck");
    }
    let server = hosts.pop().unwrap();
    assert_eq!(server.endpoint.len(), CLIENTS * SESSIONS as usize);
    assert_eq!(server.stats().accepted, (CLIENTS * SESSIONS as usize) as u64);
    server
}

#[test]
fn a_crowd_over_bad_paths_is_echoed() {
    for seed in 0..4 {
        run(seed, &settings().build().unwrap(), bad_path());
        run(seed, &settings().fec(4, 2).build().unwrap(), bad_path());
    }
}

/// Damaged packets are dropped before they are routed.
#[cfg(feature = "aead")]
#[test]
fn an_encrypted_crowd_over_paths_that_damage_packets_is_echoed() {
    for seed in 0..4 {
        let config = settings().crypto(crate::ciphers::aead(b"a key of all, 16")).build().unwrap();
        let mut server = run(seed, &config, LinkSettings { corrupt: 0.03, ..bad_path() });
        let stats = server.stats();
        assert!(stats.dropped_bad_tag > 10, "seed {seed}: {stats:?}");
        assert_eq!(stats.dropped_short, 0, "seed {seed}: {stats:?}");
        for connection in server.connections() {
            let stats = connection.stats();
            assert_eq!((stats.udp.malformed, stats.udp.wrong_conv), (0, 0), "seed {seed}: {stats:?}");
        }
    }
}
