//! Endpoints that begin sessions, and accept them as well.

use kcp9::{
    KcpConfig,
    proto::{ConnectError, Instant},
};
use kcp9_simulator::ms;

use crate::{
    host::{Host, address, client, first_packet},
    network::deliver_all,
};

const NOW: Instant = Instant::ZERO;

/// Two hosts, each of which calls the other over the same pair of addresses.
#[test]
fn one_endpoint_accepts_and_connects() {
    let config = KcpConfig::default();
    let mut hosts = [1, 2].map(|host| Host::accepting(address(host, 9), &config));
    let begun: [_; 2] = std::array::from_fn(|side| {
        let peer = hosts[1 - side].address;
        let handle = hosts[side].connect(NOW, peer, side as u32 + 1, &config);
        hosts[side].connection(handle).write(NOW, &[side as u8; 5_000]).unwrap();
        handle
    });
    deliver_all(NOW, &mut hosts);
    for side in [0, 1] {
        let accepted = hosts[side].take_accepted().unwrap();
        assert_eq!(hosts[side].endpoint.is_accepted(accepted), Some(true));
        assert_eq!(hosts[side].endpoint.is_accepted(begun[side]), Some(false));
        assert_eq!(hosts[side].read(accepted), [1 - side as u8; 5_000]);
        hosts[side].connection(accepted).write(NOW, b"an answer").unwrap();
    }
    deliver_all(NOW, &mut hosts);
    for side in [0, 1] {
        assert_eq!(hosts[side].read(begun[side]), b"an answer");
        assert_eq!((hosts[side].endpoint.len(), hosts[side].stats().accepted), (2, 1));
    }
}

#[test]
fn a_conversation_is_begun_once_with_each_peer() {
    let mut host = Host::accepting(address(1, 1), &KcpConfig::default());
    let first = host.connect(NOW, client(1), 7, &KcpConfig::default());
    assert_eq!(host.endpoint.connect(client(1), 7, None), Err(ConnectError::ConvInUse(first)));
    host.receive_one(NOW, client(2), &first_packet(7));
    let accepted = host.take_accepted().unwrap();
    assert_eq!(host.endpoint.connect(client(2), 7, None), Err(ConnectError::ConvInUse(accepted)));
    host.connect(NOW, client(2), 8, &KcpConfig::default());
    host.close(NOW, first);
    assert_ne!(host.connect(NOW, client(1), 7, &KcpConfig::default()), first);
}

/// Two ends begin the same conversation at once: their packets cross, and both are of the one session.
#[test]
fn both_ends_may_begin_the_same_conversation_at_once() {
    let config = KcpConfig::default();
    let mut hosts = [1, 2].map(|host| Host::accepting(address(host, 9), &config));
    let begun: [_; 2] = std::array::from_fn(|side| {
        let peer = hosts[1 - side].address;
        let handle = hosts[side].connect(NOW, peer, 7, &config);
        hosts[side].connection(handle).write(NOW, b"me too").unwrap();
        handle
    });
    deliver_all(NOW, &mut hosts);
    for side in [0, 1] {
        assert_eq!(hosts[side].read(begun[side]), b"me too");
        assert_eq!((hosts[side].endpoint.len(), hosts[side].stats().accepted), (1, 0));
    }
}

/// The peer of a session that was begun here resends its first data after the session is closed. That begins no session.
#[test]
fn late_packets_of_a_connected_session_begin_none() {
    let mut host = Host::accepting(address(1, 1), &KcpConfig::default());
    let handle = host.connect(NOW, client(1), 7, &KcpConfig::default());
    host.receive_one(NOW, client(1), &first_packet(7));
    host.close(NOW, handle);
    host.receive_one(NOW + ms(500), client(1), &first_packet(7));
    assert_eq!((host.stats().dropped_recently_closed, host.endpoint.len()), (1, 0));
    // It may be begun here again at once.
    let again = host.connect(NOW + ms(500), client(1), 7, &KcpConfig::default());
    host.receive_one(NOW + ms(500), client(1), &first_packet(7));
    assert_eq!(host.read(again), b"!");
}

#[test]
fn the_sessions_with_a_peer_are_listed() {
    let mut host = Host::accepting(address(1, 1), &KcpConfig::default());
    let connected = host.connect(NOW, client(1), 1, &KcpConfig::default());
    host.receive_one(NOW, client(1), &first_packet(2));
    let accepted = host.take_accepted().unwrap();
    let other = host.connect(NOW, client(2), 1, &KcpConfig::default());
    let with_peer: Vec<_> = host.endpoint.sessions_with(client(1)).collect();
    assert_eq!(with_peer, [connected, accepted]);
    assert_eq!(host.endpoint.sessions().collect::<Vec<_>>(), [connected, accepted, other]);
}
