//! Packets of an address or a conversation that belongs to another session, or did a moment ago.

use std::collections::HashMap;

use kcp9::{KcpConfig, proto::Instant};
use kcp9_simulator::{Rng, ms};

use crate::{
    host::{Host, address, client, first_packet},
    network::SeedOnPanic,
};

const NOW: Instant = Instant::ZERO;

/// As long as the endpoint remembers a session that has ended.
const MEMORY_MS: u64 = 60_000;

fn server() -> Host {
    Host::accepting(address(1, 1), &KcpConfig::default())
}

#[test]
fn another_conversation_from_the_same_address_is_another_session() {
    let mut server = server();
    server.receive_one(NOW, client(1), &first_packet(1));
    server.receive_one(NOW, client(1), &first_packet(2));
    let [one, two] = [(); 2].map(|()| server.take_accepted().unwrap());
    assert_ne!(one, two);
    assert_eq!((server.read(one), server.read(two)), (b"!".to_vec(), b"!".to_vec()));
    assert!(server.replaced.is_empty());
}

/// Without authentication nobody can tell whether it is the same peer. So it is another session, which gets nothing of the
/// first one, and does not disturb it.
#[test]
fn the_same_conversation_from_another_address_is_another_session() {
    let mut server = server();
    server.receive_one(NOW, client(1), &first_packet(7));
    let honest = server.take_accepted().unwrap();
    server.connection(honest).write(NOW, b"secret").unwrap();
    server.receive_one(NOW, client(2), &first_packet(7));
    let other = server.take_accepted().unwrap();
    for batch in server.drive(NOW) {
        let carries = batch.bytes.windows(6).any(|bytes| bytes == b"secret");
        assert_eq!(carries, batch.to == client(1), "to {}", batch.to);
    }
    assert_eq!(server.endpoint.route(honest), Some((client(1), 7)));
    assert_eq!(server.endpoint.route(other), Some((client(2), 7)));
    assert_eq!(server.connection(honest).stats().udp.packets_received, 1);
}

#[test]
fn with_one_session_an_address_the_next_ends_the_one_before() {
    let config = KcpConfig::builder().one_session_per_address(true).build().unwrap();
    let mut server = Host::accepting(address(1, 1), &config);
    server.receive_one(NOW, client(1), &first_packet(1));
    server.receive_one(NOW, client(2), &first_packet(1));
    let [old, bystander] = [(); 2].map(|()| server.take_accepted().unwrap());
    server.receive_one(NOW, client(1), &first_packet(2));
    let new = server.take_accepted().unwrap();
    assert_eq!(server.replaced, [old]);
    assert_eq!(server.endpoint.find(client(1), 2), Some(new));
    assert_eq!(server.endpoint.find(client(2), 1), Some(bystander));

    // What the old one's peer sent before it began anew is late: it takes nothing back.
    server.receive_one(NOW + ms(100), client(1), &first_packet(1));
    assert_eq!((server.replaced.len(), server.endpoint.len()), (1, 2));
    assert_eq!(server.stats().dropped_recently_closed, 1);

    // One that has been closed ends none, and is ended by none.
    server.close(NOW, new);
    server.receive_one(NOW, client(1), &first_packet(3));
    assert_eq!((server.replaced.len(), server.endpoint.len()), (1, 2));
}

/// Several conversations in one batch, each of which ends the one before.
#[test]
fn with_one_session_an_address_the_last_of_a_batch_lives() {
    let config = KcpConfig::builder().one_session_per_address(true).build().unwrap();
    let mut server = Host::accepting(address(1, 1), &config);
    let batch: Vec<_> = (1..=5).flat_map(first_packet).collect();
    let stride = batch.len() / 5;
    server.receive(NOW, client(1), batch, stride);
    assert_eq!((server.replaced.len(), server.stats().accepted), (4, 5));
    let last = server.take_accepted().unwrap();
    assert_eq!(server.endpoint.route(last), Some((client(1), 5)));
    assert_eq!(server.take_accepted(), None);
}

#[test]
fn an_old_handle_reaches_no_later_session() {
    let mut server = server();
    server.receive_one(NOW, client(1), &first_packet(1));
    let old = server.take_accepted().unwrap();
    server.close(NOW, old);
    server.receive_one(NOW, client(2), &first_packet(2));
    let new = server.take_accepted().unwrap();
    assert_eq!(new.index(), old.index(), "the index is used again");
    assert_ne!(new, old);
    assert!(!server.endpoint.close(NOW, old, None), "it was closed already");
    assert_eq!((server.endpoint.route(old), server.endpoint.is_accepted(old)), (None, None));
    assert_eq!(server.endpoint.route(new), Some((client(2), 2)));
    server.receive_one(NOW, client(2), &first_packet(2));
    assert_eq!(server.connection(new).stats().udp.packets_received, 2);
}

/// Sessions that come and go in any order, against a map.
#[test]
fn every_packet_finds_the_session_of_its_address_and_conversation() {
    for seed in 0..8 {
        let _seed = SeedOnPanic(seed);
        let mut rng = Rng::new(seed);
        let config = KcpConfig::builder().accept_backlog(10_000).build().unwrap();
        let mut server = Host::accepting(address(1, 1), &config);
        let mut model = HashMap::new();
        let mut now = NOW;
        for step in 0..3_000 {
            let route = (client(rng.size(0..=9) as u32), rng.size(0..=4) as u32);
            match rng.size(0..=3) {
                0 if model.contains_key(&route) => {
                    server.close(now, model.remove(&route).unwrap());
                    // Nobody closed remains known.
                    now += ms(MEMORY_MS);
                }
                _ => {
                    server.receive_one(now, route.0, &first_packet(route.1));
                    if let Some(accepted) = server.take_accepted() {
                        assert!(
                            model.insert(route, accepted).is_none(),
                            "step {step}: {route:?} began twice"
                        );
                    }
                }
            }
            assert_eq!(server.endpoint.find(route.0, route.1), model.get(&route).copied(), "step {step}");
            assert_eq!(server.endpoint.len(), model.len(), "step {step}");
            let highest = server.endpoint.sessions().map(|handle| handle.index()).max().unwrap_or(0);
            assert!(highest < 50, "step {step}: index {highest} for at most 50 sessions");
        }
        assert!(server.stats().accepted > 300, "{:?}", server.stats());
    }
}
