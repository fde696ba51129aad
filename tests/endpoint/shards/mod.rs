//! Several endpoints behind one port: packets that arrive at one and belong to another (here), and all of it at random (`crowds`).

mod crowds;
mod port;

use std::net::SocketAddr;

use kcp9::{
    CookiePolicy, KcpConfig,
    proto::{ConnectError, Extensions, Instant},
};
use kcp9_simulator::ms;

use self::port::Port;
use crate::{
    ciphers::{aead, encrypted, first_packet_of},
    host::{Host, address, client, first_packet, push},
};

const NOW: Instant = Instant::ZERO;
const KEY: &[u8; 16] = b"the key of both.";

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Lets everything arrive that the client and the port send. What the client sends arrives at `shard`.
fn deliver(now: Instant, port: &mut Port, shard: usize, peer: &mut Host) {
    loop {
        let (up, down) = (peer.drive(now), port.drive(now));
        if up.is_empty() && down.is_empty() {
            return;
        }
        for batch in up {
            port.receive(now, shard, peer.address, batch.bytes, batch.stride);
        }
        for batch in down {
            if batch.to == peer.address {
                peer.receive(now, port.address, batch.bytes, batch.stride);
            }
        }
    }
}

#[test]
fn a_session_stays_where_it_began_wherever_its_packets_arrive() {
    let mut port = Port::new(3, &KcpConfig::default());
    port.receive_one(NOW, 1, client(1), &first_packet(7));
    let session = port.shards[1].take_accepted().unwrap();
    port.receive_one(NOW, 0, client(1), &push(7, 1, 0, b"a"));
    port.receive(
        NOW,
        2,
        client(1),
        [push(7, 2, 0, b"b"), push(7, 3, 0, b"c")].concat(),
        push(7, 2, 0, b"b").len(),
    );
    port.receive_one(NOW, 1, client(1), &push(7, 4, 0, b"d"));
    assert_eq!(port.shards[1].read(session), b"!abcd");
    assert_eq!((port.sessions(), port.sum(|stats| stats.handed_over)), (vec![0, 1, 0], 3));
    // Another conversation of the same address is nobody's yet.
    port.receive_one(NOW, 2, client(1), &first_packet(8));
    assert_eq!(port.sessions(), [0, 1, 1]);
    port.end(NOW);
}

#[test]
fn a_first_packet_that_comes_again_elsewhere_begins_no_second_session_while_it_lives_and_a_minute_after() {
    let mut port = Port::new(2, &KcpConfig::default());
    port.receive_one(NOW, 0, client(1), &first_packet(7));
    port.receive_one(NOW, 1, client(1), &first_packet(7));
    assert_eq!(port.sessions(), [1, 0]);
    let session = port.shards[0].take_accepted().unwrap();
    port.shards[0].read(session);
    port.shards[0].close(NOW, session);
    for seconds in [1, 59] {
        port.drive(at(seconds * 1_000));
        port.receive_one(at(seconds * 1_000), 1, client(1), &first_packet(7));
        assert_eq!(port.sessions(), [0, 0], "after {seconds} s");
        // The record acknowledges it.
        assert_eq!(port.shards[0].replies.len(), 1);
    }
    // The endpoint forgets it with the next packet of nobody's.
    port.receive_one(at(61_000), 0, client(2), &push(9, 5, 0, b"?"));
    port.receive_one(at(61_000), 1, client(1), &first_packet(7));
    assert_eq!(port.sessions(), [0, 1]);
    port.end(at(61_000));
}

/// The peer of an ended session that comes back with the same address and conversation begins where the record is.
#[test]
fn a_session_that_begins_anew_behind_a_record_begins_once() {
    let mut port = Port::new(2, &KcpConfig::default());
    port.receive_one(NOW, 0, client(1), &first_packet(7));
    let session = port.shards[0].take_accepted().unwrap();
    port.shards[0].close(NOW, session);
    for _ in 0..2 {
        port.receive_one(at(4_000), 1, client(1), &push(7, 0, 0, b"another"));
    }
    assert_eq!((port.sessions(), port.sum(|stats| stats.accepted)), (vec![1, 0], 2));
    port.end(at(4_000));
}

/// Messages beyond three times what came: 16 at once and 16 a second, of all shards together.
#[test]
fn each_shard_has_its_part_of_the_messages_that_a_network_may_draw() {
    let mut port = Port::new(4, &KcpConfig::builder().stream(false).build().unwrap());
    for conv in 0..400 {
        port.receive_one(NOW, conv as usize % 4, client(1), &first_packet(conv));
    }
    for shard in &mut port.shards {
        shard.connections().for_each(|connection| connection.send(NOW, &[1; 1_000]).unwrap());
    }
    let mut messages = |now| port.drive(now).iter().filter(|batch| batch.bytes.len() > 1_000).count();
    assert_eq!((messages(NOW), messages(at(249)), messages(at(250)), messages(at(1_000))), (16, 0, 4, 12));
    port.end(at(1_000));
}

#[test]
fn a_recorded_first_packet_begins_no_session_at_any_shard() {
    let config = encrypted(KEY);
    let mut port = Port::new(3, &config);
    let recorded = first_packet_of(&config, &Host::connecting(port.address), 7);
    port.receive_one(NOW, 0, client(1), &recorded);
    for attacker in 2..20 {
        port.receive_one(NOW, attacker as usize % 3, client(attacker), &recorded);
    }
    assert_eq!((port.sessions(), port.sum(|stats| stats.dropped_replayed)), (vec![1, 0, 0], 18));
    port.end(NOW);
}

/// What a session of one shard sends would begin one at another if somebody sent it back.
#[test]
fn a_reflected_first_packet_begins_no_session_at_another_shard() {
    let config = KcpConfig::builder().crypto(aead(KEY)).extensions(Extensions::Off).build().unwrap();
    let mut port = Port::new(2, &config);
    let mut peer = Host::connecting(client(1));
    let handle = peer.connect(NOW, port.address, 7, &config);
    peer.connection(handle).write(NOW, b"?").unwrap();
    for batch in peer.drive(NOW) {
        port.receive(NOW, 0, client(1), batch.bytes, batch.stride);
    }
    let session = port.shards[0].take_accepted().unwrap();
    port.shards[0].connection(session).write(NOW, b"!").unwrap();
    let sent = port.drive(NOW);
    assert!(!sent.is_empty());
    for batch in sent {
        port.receive(NOW, 1, client(9), batch.bytes, batch.stride);
    }
    assert_eq!((port.sessions(), port.sum(|stats| stats.dropped_replayed)), (vec![1, 0], 1));
    port.end(NOW);
}

#[test]
fn a_cookie_of_one_shard_is_one_for_all() {
    let config = KcpConfig::builder().cookies(CookiePolicy::Always).build().unwrap();
    let mut port = Port::new(2, &config);
    let mut peer = Host::connecting(client(1));
    let handle = peer.connect(NOW, port.address, 7, &config);
    for (round, shard) in [(0, 0), (1, 1)] {
        for batch in peer.drive(at(round)) {
            port.receive(at(round), shard, client(1), batch.bytes, batch.stride);
        }
        for batch in port.drive(at(round)) {
            peer.receive(at(round), port.address, batch.bytes, batch.stride);
        }
    }
    deliver(at(10), &mut port, 1, &mut peer);
    assert_eq!((port.sessions(), port.shards[1].endpoint.half_open()), (vec![0, 1], 0));
    assert_eq!((port.sum(|stats| stats.retries), peer.connection(handle).is_validated()), (1, true));
    port.end(at(10));
}

#[test]
fn limits_are_those_of_all_shards_together() {
    let config = KcpConfig::builder().max_sessions(10).cookies(CookiePolicy::Never);
    let mut port = Port::new(4, &config.build().unwrap());
    for number in 0..40 {
        port.receive_one(NOW, number % 4, address(number as u32 + 1, 9), &first_packet(7));
    }
    assert_eq!((port.sessions(), port.sum(|stats| stats.dropped_max_sessions)), (vec![3, 3, 2, 2], 30));
    port.end(NOW);

    let config = KcpConfig::builder().max_half_open(10).cookies(CookiePolicy::Never);
    let mut port = Port::new(4, &config.build().unwrap());
    for number in 0..40 {
        port.receive_one(NOW, number % 4, address(number as u32 + 1, 9), &first_packet(7));
    }
    assert_eq!((port.sessions(), port.sum(|stats| stats.dropped_max_half_open)), (vec![3, 3, 2, 2], 30));
    // A second later the oldest of the same shard give way.
    for number in 0..8 {
        port.receive_one(at(1_000), number % 4, address(number as u32 + 100, 9), &first_packet(7));
    }
    assert_eq!((port.sessions(), port.sum(|stats| stats.evicted)), (vec![3, 3, 2, 2], 8));
    port.end(at(1_000));

    let config = KcpConfig::builder().max_half_open_of_network(10).cookies(CookiePolicy::Never);
    let mut port = Port::new(4, &config.build().unwrap());
    for number in 0..40 {
        port.receive_one(NOW, number % 4, address(1, 1 + number as u16), &first_packet(7));
        port.receive_one(NOW, number % 4, address(2 + number as u32, 1), &first_packet(7));
    }
    assert_eq!(
        (port.sessions(), port.sum(|stats| stats.dropped_max_half_open_of_network)),
        (vec![13, 13, 12, 12], 30)
    );
    port.end(NOW);
}

/// All packets of one host arrive at one shard, and it lets none of its sessions be silent for a second. Others stand behind the same
/// address and arrive elsewhere.
#[test]
fn who_fills_one_shard_shuts_nobody_out_of_the_others() {
    // The first is a limit for all, the second one for the network that all are of.
    for (all, of_network) in [(20, 1_000), (1_000, 20)] {
        let config = KcpConfig::builder().cookies(CookiePolicy::Never).max_half_open(all);
        let mut port = Port::new(4, &config.max_half_open_of_network(of_network).build().unwrap());
        let half_open =
            |port: &Port| -> usize { port.shards.iter().map(|shard| shard.endpoint.half_open()).sum() };
        for round in 0..14 {
            let now = at(900 * round);
            // Begins a session, or says that it is there still.
            for conv in 1..=40 {
                port.receive_one(now, 0, address(1, 9), &first_packet(conv));
            }
            let (shard, neighbour) = (1 + round as usize % 3, address(1, 100 + round as u16));
            port.receive_one(now, shard, neighbour, &first_packet(7));
            assert!(port.shards[shard].endpoint.find(neighbour, 7).is_some(), "{round}: shut out of {shard}");
            assert!(half_open(&port) <= 20, "{round}: more than the limit of all");
            port.drive(now);
        }
        assert_eq!(port.sessions(), [5, 5, 5, 4]);
        port.end(at(12_600));
    }
}

#[test]
fn the_parts_of_the_shards_are_the_limit_of_all_and_one_each_at_least() {
    for limit in 1..=9 {
        let config = KcpConfig::builder().max_half_open(limit).cookies(CookiePolicy::Never);
        let mut port = Port::new(4, &config.build().unwrap());
        for number in 0..80 {
            port.receive_one(NOW, number % 4, address(number as u32 + 1, 9), &first_packet(7));
        }
        assert_eq!(port.sessions().iter().sum::<usize>(), limit.max(4));
        port.end(NOW);
    }
}

/// A client with a session at shard 0 that is followed to another address, whose packets arrive at shard 1.
fn moved(config: &KcpConfig) -> (Port, Host) {
    let mut port = Port::new(2, config);
    let mut peer = Host::connecting(client(1));
    let handle = peer.connect(NOW, port.address, 7, config);
    peer.connection(handle).write(NOW, b"?").unwrap();
    for millis in [0, 50, 100] {
        deliver(at(millis), &mut port, 0, &mut peer);
    }
    let session = port.shards[0].take_accepted().unwrap();
    peer.address = client(2);
    peer.connection(handle).rebind(at(100)).unwrap();
    peer.connection(handle).write(at(100), b"from elsewhere").unwrap();
    for millis in (100..2_000).step_by(20) {
        deliver(at(millis), &mut port, 1, &mut peer);
    }
    assert_eq!(port.sessions(), [1, 0]);
    assert_eq!(port.shards[0].endpoint.route(session), Some((client(2), 7)));
    assert_eq!(port.shards[0].read(session), b"?from elsewhere");
    (port, peer)
}

#[test]
fn a_session_whose_client_moves_to_another_shard_stays() {
    let (port, _) = moved(&encrypted(KEY));
    assert_eq!(port.sum(|stats| stats.accepted), 1);
    port.end(at(2_000));
}

/// A first PUSH from the new address that comes before the session has followed would begin a second one.
#[test]
fn a_client_that_has_only_read_begins_no_second_session_at_another_shard() {
    for knows in [false, true] {
        let config = encrypted(KEY);
        let mut port = Port::new(2, &config);
        let mut peer = Host::connecting(client(1));
        let handle = peer.connect(NOW, port.address, 7, &config);
        for millis in [0, 50] {
            deliver(at(millis), &mut port, 0, &mut peer);
        }
        let session = port.shards[0].take_accepted().unwrap();
        port.shards[0].connection(session).write(at(50), b"220 ready").unwrap();
        for millis in [50, 150] {
            deliver(at(millis), &mut port, 0, &mut peer);
        }
        assert_eq!(peer.read(handle), b"220 ready");
        peer.address = client(2);
        if knows {
            peer.connection(handle).rebind(at(5_000)).unwrap();
        }
        peer.connection(handle).write(at(5_000), b"request").unwrap();
        for millis in (5_000..9_000).step_by(20) {
            deliver(at(millis), &mut port, 1, &mut peer);
        }
        assert_eq!((port.sessions(), port.sum(|stats| stats.accepted)), (vec![1, 0], 1));
        assert_eq!(port.shards[0].read(session), b"request");
        port.end(at(9_000));
    }
}

fn one_session_each() -> KcpConfig {
    KcpConfig::builder().crypto(aead(KEY)).one_session_per_address(true).build().unwrap()
}

#[test]
fn a_client_that_has_moved_and_begins_another_session_ends_the_one_before() {
    let config = one_session_each();
    let (mut port, mut peer) = moved(&config);
    peer.connect(at(2_000), port.address, 8, &config);
    deliver(at(2_000), &mut port, 1, &mut peer);
    assert_eq!(port.sessions().iter().sum::<usize>(), 1);
    assert_eq!(port.shards[0].replaced.len(), 1);
    port.end(at(2_000));
}

#[test]
fn a_session_that_follows_to_the_address_of_another_shards_session_ends_that_one() {
    let config = one_session_each();
    let mut port = Port::new(2, &config);
    let mut stale = Host::connecting(client(2));
    stale.connect(NOW, port.address, 8, &config);
    deliver(NOW, &mut port, 1, &mut stale);
    let mut peer = Host::connecting(client(1));
    let handle = peer.connect(NOW, port.address, 7, &config);
    for millis in [0, 50, 100] {
        deliver(at(millis), &mut port, 0, &mut peer);
    }
    assert_eq!(port.sessions(), [1, 1]);
    peer.address = client(2);
    peer.connection(handle).rebind(at(100)).unwrap();
    for millis in (100..2_000).step_by(20) {
        deliver(at(millis), &mut port, 1, &mut peer);
    }
    assert_eq!((port.sessions(), port.shards[1].replaced.len()), (vec![1, 0], 1));
    // The address belongs to the shard of the session that stayed.
    port.receive_one(at(2_000), 1, client(2), &first_packet_of(&config, &Host::connecting(port.address), 9));
    assert_eq!(port.sessions(), [1, 0]);
    port.end(at(2_000));
}

/// The keys are replaced one shard after the other.
#[test]
fn packets_are_handed_over_while_keys_are_replaced() {
    let (old, new) = (encrypted(b"the old key of a"), encrypted(b"the new key of a"));
    let mut port = Port::new(2, &old);
    let clients = [(1, &old), (2, &old)];
    let mut peers = clients.map(|(number, config)| {
        let mut peer = Host::connecting(client(number));
        let handle = peer.connect(NOW, port.address, 7, config);
        deliver(NOW, &mut port, 0, &mut peer);
        deliver(at(50), &mut port, 0, &mut peer);
        (peer, handle)
    });
    let sessions = [0, 1].map(|_| port.shards[0].take_accepted().unwrap());
    for first in [0, 1] {
        port.shards[first].rotate(at(100), &new, ms(10_000));
        for (number, (peer, handle)) in peers.iter_mut().enumerate() {
            peer.connection(*handle).write(at(100), b"a").unwrap();
            deliver(at(100), &mut port, 1, peer);
            deliver(at(150), &mut port, 1, peer);
            assert_eq!(port.shards[0].read(sessions[number]), b"a");
        }
    }
    // Sessions under the new key, whose packets arrive elsewhere.
    let mut peer = Host::connecting(client(3));
    let handle = peer.connect(at(200), port.address, 7, &new);
    deliver(at(200), &mut port, 1, &mut peer);
    peer.connection(handle).write(at(250), b"new").unwrap();
    deliver(at(250), &mut port, 0, &mut peer);
    let session = port.shards[1].take_accepted().unwrap();
    assert_eq!((port.shards[1].read(session), port.sessions()), (b"new".to_vec(), vec![2, 1]));
    port.end(at(300));
}

/// The session has ended since, and its peer has begun another one at a third shard.
#[test]
fn a_packet_that_comes_late_to_its_shard_goes_no_further_and_begins_nothing() {
    let mut port = Port::new(3, &KcpConfig::default());
    port.receive_one(NOW, 1, client(1), &first_packet(7));
    port.shards[0].receive_one(NOW, client(1), &first_packet(7));
    let (packets, bytes) = port.shards[0].handed_over.remove(0);
    let session = port.shards[1].take_accepted().unwrap();
    port.shards[1].close(NOW, session);
    port.shards[1].endpoint.forget_expired(at(61_000));
    port.receive_one(at(61_000), 2, client(1), &push(7, 0, 0, b"another"));
    assert_eq!(port.sessions(), [0, 0, 1]);
    port.shards[1].receive_handed_over(at(61_000), &packets, bytes);
    assert!(port.shards[1].handed_over.is_empty(), "handed over again");
    assert_eq!((port.sessions(), port.shards[1].stats().dropped_no_session), (vec![0, 0, 1], 1));
    port.end(at(61_000));
}

#[test]
fn a_shard_does_not_connect() {
    let mut port = Port::new(2, &KcpConfig::default());
    let peer: SocketAddr = client(1);
    assert_eq!(port.shards[0].endpoint.connect(peer, 7, None), Err(ConnectError::IsShard));
    port.end(NOW);
}

/// What is asked of a session that no shard has is answered once, wherever it is asked.
#[test]
fn answers_without_a_session_are_limited_for_all_together() {
    let config = KcpConfig::builder().reply_limit(100).build().unwrap();
    let mut port = Port::new(2, &config);
    port.shards.iter_mut().for_each(|shard| shard.endpoint.stop_accepting());
    let hello = {
        let mut peer = Host::connecting(client(1));
        peer.connect(NOW, port.address, 7, &KcpConfig::default());
        peer.drive(NOW).remove(0).bytes
    };
    for millis in 0..10_000 {
        port.receive_one(at(millis), millis as usize % 2, address(millis as u32 + 1, 9), &hello);
    }
    let replies = port.sum(|stats| stats.replies_sent);
    assert!((900..=1_100).contains(&replies), "{replies} in 10 s");
    port.end(at(10_000));
}
