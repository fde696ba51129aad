//! An attacker that records first packets and sends them again.

use kcp9::{KcpConfig, proto::Instant};
use kcp9_simulator::ms;

use crate::{
    ciphers::{aead, encrypted, first_packet_of},
    host::{Batch, Host, address, client, first_packet},
};

const NOW: Instant = Instant::ZERO;
const KEY: &[u8; 16] = b"the key of both.";

#[test]
fn a_first_packet_begins_one_session_whoever_sends_it_again() {
    let config = encrypted(KEY);
    let mut server = Host::accepting(address(1, 1), &config);
    let recorded = first_packet_of(&config, &server, 7);
    server.receive_one(NOW, client(1), &recorded);
    let session = server.take_accepted().unwrap();
    for attacker in 2..30 {
        server.receive_one(NOW, client(attacker), &recorded);
    }
    // Several at once, and from a batch.
    server.receive(NOW, client(40), recorded.repeat(3), recorded.len());
    assert_eq!((server.stats().dropped_replayed, server.endpoint.len()), (31, 1));
    // From the client's own address it is of the session, which knows it, too.
    server.receive_one(NOW, client(1), &recorded);
    assert_eq!(server.connection(session).stats().udp.replayed, 1);
    // The session is closed and forgotten. Its first packet is not.
    server.close(NOW, session);
    for address in [client(1), client(2)] {
        server.receive_one(NOW + ms(60_000), address, &recorded);
    }
    assert_eq!((server.stats().dropped_replayed, server.stats().accepted), (33, 1));
}

/// Without authentication an attacker needs no recording: it can make such packets. That is why nothing is remembered there.
#[test]
fn without_authentication_a_first_packet_begins_a_session_for_each_address() {
    let mut server = Host::accepting(address(1, 1), &KcpConfig::default());
    for attacker in 0..10 {
        server.receive_one(NOW, client(attacker), &first_packet(7));
    }
    assert_eq!((server.stats().accepted, server.stats().dropped_replayed), (10, 0));
}

/// A client whose first segment was lost, or its ACK, sends it again in another packet. The attacker may send that one.
#[test]
fn a_resend_of_the_first_segment_begins_no_session_elsewhere() {
    let config = encrypted(KEY);
    let mut server = Host::accepting(address(1, 1), &config);
    let mut host = Host::connecting(client(1));
    let handle = host.connect(NOW, server.address, 7, &config);
    host.connection(handle).write(NOW, b"!").unwrap();
    let mut now = NOW;
    let mut recorded: Vec<Batch> = Vec::new();
    while recorded.len() < 4 {
        for batch in host.drive_packets(now) {
            server.receive(now, client(1), batch.bytes.clone(), batch.stride);
            recorded.push(batch);
        }
        now = host.poll_timeout().unwrap();
    }
    for batch in &recorded {
        server.receive(now, client(2), batch.bytes.clone(), batch.stride);
    }
    assert_eq!((server.endpoint.len(), server.stats().dropped_replayed), (1, 4), "{:?}", server.stats());
}

/// Both ends have one key, so what the server itself has sent decrypts there.
#[test]
fn the_servers_own_first_packet_begins_no_session_when_it_is_sent_back() {
    let config = encrypted(KEY);
    let mut server = Host::accepting(address(1, 1), &config);
    server.receive_one(NOW, client(1), &first_packet_of(&config, &server, 7));
    let session = server.take_accepted().unwrap();
    server.connection(session).write(NOW, b"a secret greeting").unwrap();
    let sent = server.drive_packets(NOW).pop().unwrap();
    server.receive(NOW, client(2), sent.bytes.clone(), sent.stride);
    assert_eq!((server.stats().dropped_replayed, server.endpoint.len()), (1, 1));
    // To the session that it is of, it is no news either.
    server.receive(NOW, client(1), sent.bytes, sent.stride);
    assert_eq!(server.connection(session).stats().udp.replayed, 1);
}

/// Nothing in the memory of first packets grows without end, and no honest client suffers from a flood of them.
#[test]
fn a_flood_of_authentic_first_packets_takes_bounded_memory() {
    const FLOOD: u32 = 100_000;
    let crypto = aead(KEY);
    let config = KcpConfig::builder().crypto(crypto.clone()).accept_backlog(16).build().unwrap();
    let mut server = Host::accepting(address(1, 1), &config);
    let honest = first_packet_of(&config, &server, 1);
    let cipher = crypto.cipher();
    let flood = |server: &mut Host, numbers: std::ops::Range<u32>| {
        for number in numbers {
            let segment = first_packet(number);
            let mut packet = vec![0; cipher.header_len()];
            packet[..8].copy_from_slice(&(u64::from(number) + 1).to_le_bytes());
            packet.extend(segment);
            packet.resize(packet.len() + cipher.trailer_len(), 0);
            cipher.seal(&mut packet).unwrap();
            server.receive_one(NOW, client(number), &packet);
        }
    };
    flood(&mut server, 0..16);
    let memory = allocation_counter::measure(|| flood(&mut server, 16..FLOOD));
    let stats = server.stats();
    assert_eq!((stats.dropped_queue_full, server.endpoint.len()), (u64::from(FLOOD) - 16, 16), "{stats:?}");
    // 12 bytes for each of 16,384 packets, and a third of that while it grows.
    assert!(memory.bytes_max < 300_000, "{memory:?}");
    assert!(memory.bytes_current < 200_000, "{memory:?}");
    server.take_accepted().unwrap();
    server.receive_one(NOW, client(FLOOD), &honest);
    assert!(server.endpoint.find(client(FLOOD), 1).is_some());
}
