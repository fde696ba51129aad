//! Endpoints whose packets are encrypted: one cipher for what is accepted, one a peer for what is begun here.

use std::sync::Arc;

use kcp9::{
    KcpConfig,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    proto::{ConnectError, Instant},
};
use kcp9_simulator::Nonces;

use crate::{
    host::{Host, address, client, first_packet},
    network::deliver_all,
};

const NOW: Instant = Instant::ZERO;

/// AES-128-GCM. No two keys have the same nonces: packets are known again by their nonces.
pub(crate) fn aead(key: &[u8; 16]) -> PacketCrypto {
    let cipher = CipherKind::Aes128Gcm.build(&Key::from_bytes(key), Framing::KcpGo).unwrap();
    let start = key.iter().fold(0, |start: u64, byte| start.wrapping_mul(257) + u64::from(*byte));
    PacketCrypto::new(cipher, Arc::new(Nonces::starting_at(start)))
}

pub(crate) fn encrypted(key: &[u8; 16]) -> KcpConfig {
    KcpConfig::builder().crypto(aead(key)).build().unwrap()
}

/// The first packet that a client with `config` sends.
pub(crate) fn first_packet_of(config: &KcpConfig, peer: &Host, conv: u32) -> Vec<u8> {
    let mut host = Host::connecting(client(1));
    let handle = host.connect(NOW, peer.address, conv, config);
    host.connection(handle).write(NOW, b"!").unwrap();
    host.drive_packets(NOW).remove(0).bytes
}

#[test]
fn what_another_key_encrypted_is_counted_and_begins_nothing() {
    let mut server = Host::accepting(address(1, 1), &encrypted(b"the server's key"));
    let wrong = first_packet_of(&encrypted(b"an intruder's key"[..16].try_into().unwrap()), &server, 7);
    server.receive(NOW, client(1), [&wrong[..], &wrong].concat(), wrong.len());
    // Nothing, too little for nonce and tag, and packets without encryption.
    for clear in [&[][..], &[7; 27], &first_packet(7), &[0; 1_400]] {
        server.receive_one(NOW, client(1), clear);
    }
    let stats = server.stats();
    assert_eq!((stats.dropped_bad_tag, stats.dropped_short), (3, 3), "{stats:?}");
    assert_eq!((stats.dropped_no_session, server.endpoint.len()), (0, 0), "{stats:?}");
}

/// Packets that do not decrypt, between others that do.
#[test]
fn damage_costs_only_the_packets_that_are_damaged() {
    let config = encrypted(b"the server's key");
    let mut server = Host::accepting(address(1, 1), &config);
    let mut host = Host::connecting(client(1));
    let handle = host.connect(NOW, server.address, 7, &config);
    while host.connection(handle).write(NOW, &[7; 1_000]).is_ok() {}
    // With extensions, HELLO comes before it, and a longer packet with the first segment, which asks how long packets may be.
    let mut batches = host.drive(NOW);
    let batch = batches.pop().unwrap();
    let first = batches.pop().unwrap();
    let count = batch.bytes.len().div_ceil(batch.stride);
    assert!(count >= 8, "{count} packets");
    let mut damaged = batch.bytes.clone();
    for packet in [2, 3, count - 1] {
        damaged[packet * batch.stride + 30] ^= 1;
    }
    server.receive(NOW, client(1), first.bytes, first.stride);
    server.receive(NOW, client(1), damaged, batch.stride);
    let accepted = server.take_accepted().unwrap();
    let received = server.connection(accepted).stats().udp.packets_received;
    assert_eq!((received, server.stats().dropped_bad_tag), (1 + count as u64 - 3, 3));
}

#[test]
fn the_sessions_with_a_peer_share_a_cipher_and_other_peers_have_others() {
    let (one, other, clear) =
        (encrypted(b"the key of one.."), encrypted(b"the other's key."), KcpConfig::default());
    let configs = [&one, &other, &clear];
    let mut hosts: Vec<_> = [&one, &other, &clear]
        .iter()
        .zip(1..)
        .map(|(config, host)| Host::accepting(address(host, 9), config))
        .collect();
    let mut caller = Host::connecting(address(77, 9));
    let mut sessions = Vec::new();
    for (index, config) in configs.iter().enumerate() {
        for conv in [1, 2] {
            let handle = caller.connect(NOW, hosts[index].address, conv, config);
            caller.connection(handle).write(NOW, b"hello").unwrap();
            sessions.push(handle);
        }
        for wrong in configs.iter().filter(|wrong| wrong.crypto() != config.crypto()) {
            let outcome = caller.endpoint.connect(hosts[index].address, 3, wrong.crypto());
            assert_eq!(outcome, Err(ConnectError::OtherCipher));
        }
    }
    hosts.push(caller);
    deliver_all(NOW, &mut hosts);
    for host in &mut hosts[..3] {
        for _ in 0..2 {
            let accepted = host.take_accepted().unwrap();
            assert_eq!(host.read(accepted), b"hello");
            host.connection(accepted).write(NOW, b"welcome").unwrap();
        }
    }
    deliver_all(NOW, &mut hosts);
    let caller = &mut hosts[3];
    for handle in &sessions {
        assert_eq!(caller.read(*handle), b"welcome");
    }
    assert_eq!((caller.stats().dropped_bad_tag, caller.stats().dropped_no_session), (0, 0));

    // Once both sessions with a peer are closed, another cipher may come.
    let peer = hosts[0].address;
    let caller = &mut hosts[3];
    caller.close(NOW, sessions[0]);
    assert_eq!(caller.endpoint.connect(peer, 1, other.crypto()), Err(ConnectError::OtherCipher));
    caller.close(NOW, sessions[1]);
    assert!(caller.endpoint.connect(peer, 1, other.crypto()).is_ok());
}

/// An endpoint accepts under one cipher and calls under others, at once.
#[test]
fn an_endpoint_calls_under_another_cipher_than_it_accepts_under() {
    let (ours, theirs) = (encrypted(b"the key of ours."), encrypted(b"the key of them."));
    let mut hosts = [
        Host::accepting(address(1, 9), &ours),
        Host::accepting(address(2, 9), &theirs),
        Host::connecting(client(5)),
    ];
    let called = {
        let peer = hosts[1].address;
        hosts[0].connect(NOW, peer, 1, &theirs)
    };
    hosts[0].connection(called).write(NOW, b"we call").unwrap();
    let calling = {
        let peer = hosts[0].address;
        hosts[2].connect(NOW, peer, 1, &ours)
    };
    hosts[2].connection(calling).write(NOW, b"you are called").unwrap();
    deliver_all(NOW, &mut hosts);
    let at_theirs = hosts[1].take_accepted().unwrap();
    assert_eq!(hosts[1].read(at_theirs), b"we call");
    let at_ours = hosts[0].take_accepted().unwrap();
    assert_eq!(hosts[0].read(at_ours), b"you are called");

    // Where a peer is called under its cipher, nothing from there is taken for a session under ours.
    let mut call_back = first_packet_of(&theirs, &hosts[0], 9);
    let peer = hosts[1].address;
    hosts[0].receive_one(NOW, peer, &call_back);
    assert_eq!((hosts[0].endpoint.len(), hosts[0].stats().dropped_no_session), (2, 1));
    // And where a session was accepted under our cipher, none is begun under another.
    assert_eq!(hosts[0].endpoint.connect(client(5), 8, theirs.crypto()), Err(ConnectError::OtherCipher));
    hosts[0].connect(NOW, client(5), 8, &ours);
    // When the call is over, the address is as any other.
    hosts[0].close(NOW, called);
    call_back = first_packet_of(&ours, &hosts[0], 9);
    hosts[0].receive_one(NOW, peer, &call_back);
    assert!(hosts[0].endpoint.find(peer, 9).is_some());
}
