//! Packets made by other implementations: kcp-go 5.6.72, and its ciphers with tags of Go's `minio/highwayhash`.

use kcp9::crypto::{CipherKind, Framing, Key};
use kcp9_vectors::Vector;

fn kind(vector: &Vector) -> Option<CipherKind> {
    vector.text("cipher").parse().ok()
}

/// Seals the vector's nonce and payload into its packet and opens it again.
fn check(vector: &Vector, framing: Framing, checksum: &[u8]) {
    let kind = kind(vector).unwrap();
    let [key, nonce, payload, packet] =
        ["key", "nonce", "payload", "packet"].map(|field| vector.bytes(field));
    let cipher = kind.build(&Key::from_bytes(&key), framing).unwrap();
    let opened = [&nonce[..], checksum, &payload].concat();
    assert_eq!(cipher.header_len() + payload.len(), packet.len());

    let mut sealed = [&nonce[..], &vec![0xee; checksum.len()], &payload].concat();
    cipher.seal(&mut sealed).unwrap();
    assert!(sealed == packet, "{kind} seals {} bytes differently", payload.len());
    cipher.open(&mut sealed).unwrap();
    assert!(sealed == opened, "{kind} opens {} bytes differently", payload.len());
}

#[test]
fn packets_equal_those_of_kcp_go_byte_by_byte() {
    let packets = kcp9_vectors::cfb_packets();
    for known in super::kinds() {
        let of_kind = |packet: &&Vector| kind(packet) == Some(known);
        assert_eq!(packets.iter().filter(of_kind).count(), 13, "{known}");
    }
    for packet in &packets {
        check(packet, Framing::KcpGo, &packet.number::<u32>("crc32").to_le_bytes());
    }
}

#[test]
fn highway_tags_equal_those_of_another_implementation() {
    let packets = kcp9_vectors::highway_packets();
    for known in super::kinds() {
        assert!(packets.iter().any(|packet| kind(packet) == Some(known)), "{known}");
    }
    // Empty keys are among them, and keys of more than the 32 bytes that the key of a tag is made of.
    assert!(packets.iter().any(|packet| packet.bytes("key").is_empty()));
    assert!(packets.iter().any(|packet| packet.bytes("key").len() > 32));
    for packet in &packets {
        check(packet, Framing::Highway, &packet.bytes("tag"));
    }
}
