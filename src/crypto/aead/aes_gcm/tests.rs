//! Against RustCrypto's.

extern crate std;

use alloc::{sync::Arc, vec, vec::Vec};

use super::{NONCE_LEN, TAG_LEN, Vaes512, build};
use crate::crypto::{CipherKind, OpenError, PacketCipher, aead::rust_crypto};

const KINDS: [CipherKind; 3] = [CipherKind::Aes128Gcm, CipherKind::Aes192Gcm, CipherKind::Aes256Gcm];
const OVERHEAD: usize = NONCE_LEN + TAG_LEN;
/// Bytes around a packet that must stay.
const GUARD: [u8; 80] = [0xEE; 80];

/// This crate's cipher and RustCrypto's, by kind; none where the processor lacks the instructions.
fn pairs(seed: u8) -> Vec<(Arc<dyn PacketCipher>, Arc<dyn PacketCipher>)> {
    if Vaes512::detect().is_none() {
        std::eprintln!("not tested: the processor lacks AVX-512, VAES or VPCLMULQDQ");
        return Vec::new();
    }
    let pair = |kind: CipherKind| {
        let key: Vec<u8> = (0..kind.key_len()).map(|at| noise(at, seed)).collect();
        (build(kind, &key).unwrap(), rust_crypto::build(kind, &key).unwrap())
    };
    KINDS.into_iter().map(pair).collect()
}

fn noise(at: usize, seed: u8) -> u8 {
    let mixed = (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(seed) << 32;
    (mixed.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 56) as u8
}

/// Nonce and payload of noise, and room for the tag.
fn plain(payload_len: usize, seed: u8) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..NONCE_LEN + payload_len).map(|at| noise(at, seed)).collect();
    packet.resize(payload_len + OVERHEAD, seed);
    packet
}

/// `packet` between guards, `offset` bytes from where it was, after `change`.
fn guarded<R>(packet: &mut [u8], offset: usize, change: impl FnOnce(&mut [u8]) -> R) -> R {
    let mut buffer = [&GUARD[..offset], packet, &GUARD].concat();
    let result = change(&mut buffer[offset..][..packet.len()]);
    let (front, rest) = buffer.split_at(offset);
    let (changed, back) = rest.split_at(packet.len());
    assert!(front == &GUARD[..offset] && back == GUARD, "{} bytes at {offset}", packet.len());
    packet.copy_from_slice(changed);
    result
}

#[test]
fn packets_are_those_of_rust_crypto() {
    for payload_len in (0..=1_500).chain([4_096, 9_000, 65_000]) {
        let seed = payload_len as u8;
        for (ours, theirs) in pairs(seed) {
            let plain = plain(payload_len, seed);
            let mut expected = plain.clone();
            theirs.seal(&mut expected).unwrap();

            let offset = payload_len % 67;
            let mut packet = plain.clone();
            guarded(&mut packet, offset, |packet| ours.seal(packet)).unwrap();
            assert!(packet == expected, "{ours:?} sealing {payload_len} bytes");
            guarded(&mut packet, offset, |packet| ours.open(packet)).unwrap();
            let held = NONCE_LEN + payload_len;
            assert!(packet[..held] == plain[..held], "{ours:?} opening {payload_len} bytes");
            assert!(packet[held..] == expected[held..], "{ours:?}: the tag stays");
        }
    }
}

#[test]
fn keys_of_any_bits_are_expanded_as_by_rust_crypto() {
    for seed in 0..=255 {
        for (ours, theirs) in pairs(seed) {
            let mut packets = [plain(300, seed), plain(300, seed)];
            ours.seal(&mut packets[0]).unwrap();
            theirs.seal(&mut packets[1]).unwrap();
            assert!(packets[0] == packets[1], "{ours:?} key {seed}");
        }
    }
}

#[test]
fn forged_packets_are_refused_and_give_away_nothing() {
    for (ours, _) in pairs(1) {
        for payload_len in [0, 1, 16, 63, 64, 240, 241, 255, 256, 257, 512, 1_372] {
            let mut sealed = plain(payload_len, 1);
            ours.seal(&mut sealed).unwrap();
            for bit in 0..sealed.len() * 8 {
                let mut forged = sealed.clone();
                forged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(ours.open(&mut forged), Err(OpenError::BadTag), "{ours:?} bit {bit}");
                assert_eq!(forged[NONCE_LEN..][..payload_len], vec![0; payload_len], "{ours:?} bit {bit}");
            }
        }
    }
}
