//! Packets that others made: kcp-go 5.6.72, and its ciphers around tags of Go's `minio/highwayhash`.

use std::{fs, path::Path};

use kcp9::crypto::{CipherKind, Framing, Key};
use serde::{Deserialize, de::DeserializeOwned};

#[derive(Deserialize)]
struct OfKcpGo {
    cipher: String,
    key: String,
    nonce: String,
    payload: String,
    crc32: u32,
    packet: String,
}

#[derive(Deserialize)]
struct OfHighway {
    cipher: String,
    key: String,
    nonce: String,
    payload: String,
    tag: String,
    packet: String,
}

fn load<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors").join(name);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn from_hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Seals `nonce` and `payload` into `packet` and opens it again.
fn check(
    kind: CipherKind,
    framing: Framing,
    key: &str,
    nonce: &str,
    checksum: &[u8],
    payload: &str,
    packet: &str,
) {
    let cipher = kind.build(&Key::from_bytes(&from_hex(key)), framing).unwrap();
    let (nonce, payload, packet) = (from_hex(nonce), from_hex(payload), from_hex(packet));
    let opened = [&nonce[..], checksum, &payload].concat();
    assert_eq!(cipher.header_len() + payload.len(), packet.len());

    let mut sealed = [&nonce[..], &vec![0xee; checksum.len()], &payload].concat();
    cipher.seal(&mut sealed).unwrap();
    assert!(sealed == packet, "{kind} seals {} bytes differently", payload.len());
    cipher.open(&mut sealed).unwrap();
    assert!(sealed == opened, "{kind} opens {} bytes differently", payload.len());
}

#[test]
fn packets_are_those_of_kcp_go() {
    let packets: Vec<OfKcpGo> = load("cfb_packets.json");
    for kind in super::kinds() {
        let name = kind.name();
        let of_kind = |packet: &&OfKcpGo| packet.cipher.parse() == Ok(kind);
        assert_eq!(packets.iter().filter(of_kind).count(), 13, "{name}");
    }
    for p in packets {
        let kind = p.cipher.parse().unwrap();
        check(kind, Framing::KcpGo, &p.key, &p.nonce, &p.crc32.to_le_bytes(), &p.payload, &p.packet);
    }
}

#[test]
fn tags_are_those_of_another_implementation() {
    let packets: Vec<OfHighway> = load("highway_packets.json");
    for kind in super::kinds() {
        assert!(packets.iter().any(|packet| packet.cipher.parse() == Ok(kind)), "{kind}");
    }
    // Keys that are empty, or longer than the 32 bytes that a tag's key is made of, are among them.
    assert!(packets.iter().any(|packet| packet.key.is_empty()));
    assert!(packets.iter().any(|packet| packet.key.len() > 2 * 32));
    for p in packets {
        let kind = p.cipher.parse().unwrap();
        check(kind, Framing::Highway, &p.key, &p.nonce, &from_hex(&p.tag), &p.payload, &p.packet);
    }
}
