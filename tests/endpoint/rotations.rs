//! The key of accepted sessions is replaced: the old one is accepted for a while, and each session keeps its own.

use std::time::Duration;

use kcp9::{
    KcpConfig,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    proto::{ConnectError, Handle, Instant, RotateError},
};
use kcp9_simulator::{Nonces, Rng};

use crate::{
    ciphers::{encrypted, first_packet_of},
    host::{Host, address, client},
    network::{SeedOnPanic, deliver_all},
};

const NOW: Instant = Instant::from_millis(1_000);
const KEEP: Duration = Duration::from_secs(60);
const OLD: &[u8; 16] = b"last month's key";
const NEW: &[u8; 16] = b"this month's key";

/// A server with the old key, and a client with a session under that.
fn server_and_client(old: &KcpConfig) -> (Vec<Host>, Handle, Handle) {
    let mut hosts = vec![Host::accepting(address(1, 9), old), Host::connecting(client(1))];
    let ours = begin(&mut hosts, old, 7);
    let theirs = hosts[0].take_accepted().unwrap();
    (hosts, ours, theirs)
}

/// Begins a session from the last host to the first.
fn begin(hosts: &mut [Host], config: &KcpConfig, conv: u32) -> Handle {
    let server = hosts[0].address;
    let caller = hosts.last_mut().unwrap();
    let handle = caller.connect(NOW, server, conv, config);
    caller.connection(handle).write(NOW, b"hello").unwrap();
    deliver_all(NOW, hosts);
    handle
}

/// Whether bytes get both ways.
fn assert_alive(hosts: &mut [Host], ours: Handle, theirs: Handle) {
    hosts[0].read(theirs);
    let caller = hosts.len() - 1;
    hosts[caller].connection(ours).write(NOW, b"ping").unwrap();
    deliver_all(NOW, hosts);
    assert_eq!(hosts[0].read(theirs), b"ping");
    hosts[0].connection(theirs).write(NOW, b"pong").unwrap();
    deliver_all(NOW, hosts);
    assert_eq!(hosts[caller].read(ours), b"pong");
}

#[test]
fn both_keys_are_accepted_until_the_old_one_retires() {
    let (old, new) = (encrypted(OLD), encrypted(NEW));
    let (mut hosts, ours, theirs) = server_and_client(&old);
    hosts[0].rotate(NOW, &new, KEEP);
    assert_eq!(hosts[0].endpoint.key_retires_at(), Some(NOW + KEEP));
    assert_eq!(hosts[0].endpoint.retired_sessions(NOW), []);
    assert_alive(&mut hosts, ours, theirs);

    hosts.push(Host::connecting(client(2)));
    let late = begin(&mut hosts, &old, 7);
    let theirs_late = hosts[0].take_accepted().unwrap();
    assert_alive(&mut hosts, late, theirs_late);
    hosts.push(Host::connecting(client(3)));
    let modern = begin(&mut hosts, &new, 7);
    let theirs_modern = hosts[0].take_accepted().unwrap();
    assert_alive(&mut hosts, modern, theirs_modern);
    let stats = hosts[0].stats();
    assert_eq!((stats.accepted, stats.dropped_bad_tag, stats.dropped_no_session), (3, 0, 0), "{stats:?}");

    let end = NOW + KEEP;
    assert_eq!(hosts[0].endpoint.retired_sessions(NOW + KEEP / 2), []);
    let mut retired = hosts[0].endpoint.retired_sessions(end);
    retired.sort();
    assert_eq!((retired, hosts[0].endpoint.key_retires_at()), (vec![theirs, theirs_late], None));
    assert_alive(&mut hosts, modern, theirs_modern);
    let packet = first_packet_of(&old, &hosts[0], 9);
    hosts[0].receive_one(end, client(4), &packet);
    assert_eq!((hosts[0].stats().accepted, hosts[0].stats().dropped_bad_tag), (3, 1));
}

/// One batch as GRO makes them: a NAT's address, and sessions of both keys behind it.
#[test]
fn packets_of_both_keys_in_one_batch_reach_their_sessions() {
    let (old, new) = (encrypted(OLD), encrypted(NEW));
    let (mut hosts, ours, theirs) = server_and_client(&old);
    hosts[0].rotate(NOW, &new, KEEP);
    let mut one = hosts.pop().unwrap();
    hosts.push(Host::connecting(client(1)));
    let modern = begin(&mut hosts, &new, 8);
    let theirs_modern = hosts[0].take_accepted().unwrap();
    let mut other = hosts.pop().unwrap();

    // Each key first twice, and damage between them.
    for turn in 0..4 {
        one.connection(ours).write(NOW, &[1; 100]).unwrap();
        other.connection(modern).write(NOW, &[2; 100]).unwrap();
        let [of_old, of_new] = [&mut one, &mut other].map(|host| host.drive(NOW).remove(0));
        assert_eq!((of_old.stride, of_old.bytes.len()), (of_new.bytes.len(), of_new.stride));
        let damaged = vec![turn; of_old.stride];
        let batch = if turn % 2 == 0 {
            [of_old.bytes, damaged, of_new.bytes].concat()
        } else {
            [of_new.bytes, damaged, of_old.bytes].concat()
        };
        hosts[0].receive(NOW, client(1), batch, of_old.stride);
    }
    assert_eq!(hosts[0].read(theirs), [&b"hello"[..], &[1; 400]].concat());
    assert_eq!(hosts[0].read(theirs_modern), [&b"hello"[..], &[2; 400]].concat());
    assert_eq!(hosts[0].stats().dropped_bad_tag, 4);
}

#[test]
fn a_session_takes_nothing_under_the_other_key() {
    let (old, new) = (encrypted(OLD), encrypted(NEW));
    let (mut hosts, ours, theirs) = server_and_client(&old);
    hosts[0].rotate(NOW, &new, KEEP);
    // The client's address and conv, under the key that the session does not have.
    let forged = first_packet_of(&new, &hosts[0], 7);
    let before = hosts[0].connection(theirs).stats();
    hosts[0].receive_one(NOW, client(1), &forged);
    let after = hosts[0].connection(theirs).stats();
    assert_eq!(before.udp.packets_received, after.udp.packets_received);
    assert_eq!((hosts[0].stats().dropped_no_session, hosts[0].endpoint.len()), (1, 1));
    assert_alive(&mut hosts, ours, theirs);
}

#[test]
fn another_rotation_ends_the_one_under_way() {
    let (old, new, third) = (encrypted(OLD), encrypted(NEW), encrypted(b"next month's key"));
    let (mut hosts, _, theirs) = server_and_client(&old);
    hosts[0].rotate(NOW, &new, KEEP);
    hosts.push(Host::connecting(client(2)));
    let modern = begin(&mut hosts, &new, 7);
    let theirs_modern = hosts[0].take_accepted().unwrap();
    hosts[0].rotate(NOW, &third, KEEP);
    assert_eq!(hosts[0].endpoint.retired_sessions(NOW), [theirs]);
    assert_alive(&mut hosts, modern, theirs_modern);
}

/// Where an endpoint also calls, each session it began keeps the key of its own configuration.
#[test]
fn sessions_that_were_begun_here_keep_their_keys() {
    let (old, new) = (encrypted(OLD), encrypted(NEW));
    let mut hosts = vec![Host::accepting(address(1, 9), &old), Host::accepting(address(2, 9), &old)];
    let peer = hosts[0].address;
    let called = hosts[1].connect(NOW, peer, 5, &old);
    hosts[1].connection(called).write(NOW, b"hello").unwrap();
    deliver_all(NOW, &mut hosts);
    let theirs = hosts[0].take_accepted().unwrap();
    for now in [NOW, NOW + KEEP] {
        if now == NOW {
            hosts[1].rotate(NOW, &new, KEEP);
        }
        assert_eq!(hosts[1].endpoint.retired_sessions(now), []);
        assert_alive(&mut hosts, called, theirs);
    }
    // As long as they live, no other key can be used with that peer.
    assert_eq!(hosts[1].endpoint.connect(peer, 6, new.crypto()), Err(ConnectError::OtherCipher));
    hosts[1].close(NOW, called);
    assert!(hosts[1].endpoint.connect(peer, 6, new.crypto()).is_ok());
}

#[test]
fn only_the_key_may_change() {
    let old = encrypted(OLD);
    let other_kind = {
        let cipher = CipherKind::Aes128.build(&Key::from_bytes(NEW), Framing::KcpGo).unwrap();
        PacketCrypto::new(cipher, std::sync::Arc::new(Nonces::starting_at(1)))
    };
    let mut server = Host::accepting(address(1, 9), &old);
    assert_eq!(server.endpoint.rotate_key(NOW, other_kind, KEEP), Err(RotateError::OtherKind));
    let new = encrypted(NEW).crypto().unwrap().clone();
    for mut keyless in
        [Host::accepting(address(1, 9), &KcpConfig::default()), Host::connecting(address(1, 9))]
    {
        assert_eq!(keyless.endpoint.rotate_key(NOW, new.clone(), KEEP), Err(RotateError::NoKey));
        assert_eq!(keyless.endpoint.retired_sessions(NOW), []);
    }
    assert_eq!((server.endpoint.key_retires_at(), server.endpoint.is_accepting()), (None, true));
}

/// Many clients, of which each has one of the keys at any time, and rotations at random.
#[test]
fn through_many_rotations_every_session_lives_as_long_as_its_key() {
    for seed in 0..20 {
        let _print = SeedOnPanic(seed);
        let mut rng = Rng::new(seed);
        let key = |number: u8| encrypted(&[number; 16]);
        let mut now = NOW;
        let never = Instant::from_millis(u64::MAX / 2_000);
        // The keys, and until when they are accepted.
        let mut keys = vec![(key(0), never)];
        let mut hosts = vec![Host::accepting(address(1, 9), &keys[0].0)];
        // Where they were begun, the handles of both ends, and their keys.
        let mut sessions: Vec<(usize, Handle, Handle, usize)> = Vec::new();
        for step in 0..60 {
            now += Duration::from_secs(rng.within(0..=19));
            let retired = hosts[0].endpoint.retired_sessions(now);
            let (gone, left): (Vec<_>, Vec<_>) =
                sessions.into_iter().partition(|session| now >= keys[session.3].1);
            assert_eq!(retired.len(), gone.len(), "step {step}");
            for (host, ours, theirs, _) in gone {
                assert!(retired.contains(&theirs));
                hosts[0].close(now, theirs);
                hosts[host].close(now, ours);
            }
            sessions = left;
            if rng.chance(0.25) {
                let current = keys.len() - 1;
                for earlier in &mut keys[..current] {
                    earlier.1 = earlier.1.min(now);
                }
                keys[current].1 = now + KEEP;
                keys.push((key(keys.len() as u8), never));
                let config = keys[current + 1].0.clone();
                hosts[0].rotate(now, &config, KEEP);
                continue;
            }
            let accepted: Vec<usize> = (0..keys.len()).filter(|index| keys[*index].1 > now).collect();
            let chosen = *rng.choose(&accepted);
            hosts.push(Host::connecting(client(step + 1)));
            let (server, host) = (hosts[0].address, hosts.len() - 1);
            let ours = hosts[host].connect(now, server, 7, &keys[chosen].0);
            hosts[host].connection(ours).write(now, b"hello").unwrap();
            deliver_all(now, &mut hosts);
            let theirs = hosts[0].take_accepted().unwrap();
            assert_eq!(hosts[0].read(theirs), b"hello");
            sessions.push((host, ours, theirs, chosen));
            for (host, ours, theirs, _) in &sessions {
                hosts[*host].connection(*ours).write(now, b"ping").unwrap();
                deliver_all(now, &mut hosts);
                assert_eq!(hosts[0].read(*theirs), b"ping", "step {step}");
            }
        }
        assert!(keys.len() > 5, "{} keys", keys.len());
    }
}
