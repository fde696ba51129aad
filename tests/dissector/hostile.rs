//! What nobody should send: tshark shows it, and nothing fails in Lua.

use std::time::Duration;

use kcp9_relay::Direction;
use kcp9_simulator::Rng;

use crate::{
    agreement::known_session,
    capture::{Packet, SERVER_PORT, pcap},
    tshark::{dissect, dissect_twice},
};

const PACKETS: usize = 1_500;

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.within(0..=255) as u8).collect()
}

/// A packet that some implementation has sent.
fn genuine() -> Vec<Vec<u8>> {
    let segments = kcp9_vectors::segments().into_iter().chain(kcp9_vectors::extension());
    let mut packets: Vec<_> = segments.map(|vector| vector.bytes("wire")).collect();
    for vector in kcp9_vectors::fec_packets().iter().filter(|vector| vector.has("packets")) {
        packets.extend(vector.byte_strings("packets"));
    }
    for vector in kcp9_vectors::client_transcripts() {
        packets.extend(vector.vectors("datagrams").iter().map(|datagram| datagram.bytes("datagram")));
    }
    for vector in kcp9_vectors::noise() {
        packets.extend(known_session(&vector).into_iter().map(|(_, packet)| packet));
    }
    packets
}

/// Some bytes of it are others, or there are fewer, or more.
fn damage(rng: &mut Rng, packet: &mut Vec<u8>) {
    match rng.within(0..=4) {
        0 => packet.truncate(rng.size(0..=packet.len())),
        1 => {
            let more = rng.size(1..=40);
            packet.extend(bytes(rng, more));
        }
        _ => {
            // The headers are what is read.
            for _ in 0..rng.within(1..=4) {
                let at = rng.size(0..=packet.len().min(64) - 1);
                packet[at] = *rng.choose(&[0, 1, 0x60, 0xff, 0xf1, 0xf2, 0xf3, 81, 82, 83, 84, 0x80]);
            }
        }
    }
}

fn capture(rng: &mut Rng, mut payload: impl FnMut(&mut Rng) -> Vec<u8>) -> Vec<Packet> {
    let each = (0..PACKETS).map(|number| {
        let way = *rng.choose(&[Direction::ToServer, Direction::ToClient]);
        Packet::new(way, Duration::from_millis(number as u64), payload(rng))
    });
    each.collect()
}

#[test]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
fn tshark_takes_no_random_bytes_for_kcp() {
    let mut rng = Rng::new(1);
    let packets = capture(&mut rng, |rng| {
        let len = rng.size(1..=100);
        let mut bytes = bytes(rng, len);
        // Every other one begins as KCP does.
        if len > 6 && rng.chance(0.5) {
            bytes[4] = *rng.choose(&[81, 82, 83, 84, 0x60, 0xf1, 0xf2, 0xf3]);
            bytes[5] = 0;
        }
        bytes
    });
    let capture = pcap(&packets);
    for frame in dissect(&capture, &[]) {
        assert!(frame.kcp.is_none() && frame.protocol != "KCP", "{}", frame.info);
    }
    // On a port that was named there is nothing else to be said of them.
    let frames = dissect(&capture, &["-o", &format!("kcp.ports:{SERVER_PORT}")]);
    for frame in &frames {
        assert!(frame.is("encrypted"), "{}", frame.info);
    }
}

#[test]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
fn tshark_marks_damaged_packets_and_nothing_fails_in_lua() {
    let (mut rng, genuine) = (Rng::new(2), genuine());
    let damaged = capture(&mut rng, |rng| {
        let mut packet = rng.choose(&genuine).clone();
        damage(rng, &mut packet);
        packet
    });
    let decode = format!("udp.port=={SERVER_PORT},kcp");
    let shards = ["-o", "kcp.data_shards:10", "-o", "kcp.parity_shards:3"];
    let frames = dissect_twice(&pcap(&damaged), &[&["-d", &decode][..], &shards].concat());
    for expert in ["malformed", "ext.malformed", "trailing", "frg.reserved", "fec.shards_differ"] {
        assert!(frames.iter().any(|frame| frame.is(expert)), "no packet is {expert}");
    }
    // The heuristic, which must find a first packet by itself.
    dissect(&pcap(&damaged), &[]);
}

/// Captures that keep the first bytes of packets only.
#[test]
#[ignore = "needs tshark: cargo test --test dissector -- --ignored"]
fn tshark_shows_what_a_capture_has_of_its_packets() {
    let (mut rng, genuine) = (Rng::new(3), genuine());
    let mut packets = capture(&mut rng, |rng| rng.choose(&genuine).clone());
    for packet in &mut packets {
        packet.kept = *rng.choose(&[0, 1, 7, 8, 12, 24, 31, 47, 48, 50, 64, 100]);
    }
    let decode = format!("udp.port=={SERVER_PORT},kcp");
    let frames = dissect(&pcap(&packets), &["-d", &decode]);
    assert!(frames.iter().any(|frame| frame.is("cut")));
    // What was kept of a packet makes it no damaged one.
    let whole = |packet: &Packet| packet.kept >= packet.payload.len();
    for (packet, frame) in packets.iter().zip(&frames) {
        assert!(whole(packet) || packet.kept < 24 || !frame.is("trailing"), "{}", frame.info);
    }
}
