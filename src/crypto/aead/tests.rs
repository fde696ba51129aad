//! Every kind from every provider that is built in.

use alloc::{format, sync::Arc, vec, vec::Vec};

use super::PROVIDERS;
use crate::crypto::{
    CipherError, CipherKind, Framing, Key, OpenError, PacketCipher, SealError, aead::identity,
};

const KINDS: [CipherKind; 5] = [
    CipherKind::Aes128Gcm,
    CipherKind::Aes192Gcm,
    CipherKind::Aes256Gcm,
    CipherKind::ChaCha20Poly1305,
    CipherKind::XChaCha20Poly1305,
];
const TAG_LEN: usize = 16;

/// The ciphers of `kind`, one from each provider that has it.
fn ciphers(kind: CipherKind, key: &[u8]) -> Vec<Arc<dyn PacketCipher>> {
    PROVIDERS.iter().filter_map(|build| build(kind, key)).collect()
}

/// The ciphers of all kinds from all providers, under a key of bytes 0x5A.
fn all() -> Vec<Arc<dyn PacketCipher>> {
    KINDS.into_iter().flat_map(|kind| ciphers(kind, &vec![0x5A; kind.key_len()])).collect()
}

/// A packet before it is sealed: nonce and payload differ by `seed`.
fn plain(cipher: &dyn PacketCipher, payload_len: usize, seed: u8) -> Vec<u8> {
    let mut packet: Vec<u8> =
        (0..cipher.header_len() + payload_len).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
    packet.resize(packet.len() + cipher.trailer_len(), 0);
    packet
}

/// Nonce and payload: what is the same before a packet is sealed and after it is opened.
fn nonce_and_payload<'a>(cipher: &dyn PacketCipher, packet: &'a [u8]) -> &'a [u8] {
    &packet[..packet.len() - cipher.trailer_len()]
}

#[test]
fn ring_has_all_kinds_but_aes_192_and_rust_crypto_has_all() {
    let count = |kind: CipherKind| ciphers(kind, &vec![0; kind.key_len()]).len();
    let ring = usize::from(cfg!(feature = "ring"));
    assert_eq!(KINDS.map(count), [1 + ring, 1, 1 + ring, 1 + ring, 1 + ring]);
}

#[test]
fn packets_are_those_of_kcp_go() {
    let known = kcp9_vectors::aead_packets();
    assert_eq!(known.len(), 35);
    for known in known {
        let [key, nonce, payload, packet] =
            ["key", "nonce", "payload", "packet"].map(|field| known.bytes(field));
        let kind: CipherKind = known.text("cipher").parse().unwrap();
        let built = kind.build(&Key::from_bytes(&key), Framing::KcpGo).unwrap();
        for cipher in ciphers(kind, &key).into_iter().chain([built]) {
            let plain = [nonce.as_slice(), &payload, &[0; TAG_LEN]].concat();
            let mut sealed = plain.clone();
            cipher.seal(&mut sealed).unwrap();
            assert_eq!(sealed, packet, "{cipher:?}");
            cipher.open(&mut sealed).unwrap();
            assert_eq!(
                nonce_and_payload(&*cipher, &sealed),
                nonce_and_payload(&*cipher, &plain),
                "{cipher:?}"
            );
        }
    }
}

#[test]
fn packets_of_every_size_open_again_and_all_providers_agree() {
    for kind in KINDS {
        for payload_len in (0..=1_500).chain([4_096, 8_972, 65_479]) {
            check_agreement(kind, &vec![0x5A; kind.key_len()], payload_len);
        }
    }
}

#[test]
fn all_providers_agree_under_any_key() {
    for kind in KINDS {
        for seed in 0..=255 {
            let key: Vec<u8> = (0..kind.key_len()).map(|at| (at as u8).wrapping_mul(197) ^ seed).collect();
            check_agreement(kind, &key, 300);
        }
    }
}

/// Seals the same packet by each provider, compares, and opens it again by each.
fn check_agreement(kind: CipherKind, key: &[u8], payload_len: usize) {
    let ciphers = ciphers(kind, key);
    let plain = plain(&*ciphers[0], payload_len, payload_len as u8);
    let mut expected = plain.clone();
    ciphers[0].seal(&mut expected).unwrap();
    for cipher in &ciphers {
        let mut packet = plain.clone();
        cipher.seal(&mut packet).unwrap();
        assert!(packet == expected, "{cipher:?} seals {payload_len} bytes differently");
        cipher.open(&mut packet).unwrap();
        assert!(
            nonce_and_payload(&**cipher, &packet) == nonce_and_payload(&**cipher, &plain),
            "{cipher:?} opens {payload_len} bytes differently"
        );
    }
}

#[test]
fn every_flipped_bit_is_found_and_the_payload_is_not_revealed() {
    for cipher in all() {
        for payload_len in [0, 1, 15, 16, 17, 64, 300] {
            let plain = plain(&*cipher, payload_len, 1);
            let payload = cipher.header_len()..cipher.header_len() + payload_len;
            let mut sealed = plain.clone();
            cipher.seal(&mut sealed).unwrap();
            for bit in 0..sealed.len() * 8 {
                let mut forged = sealed.clone();
                forged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(cipher.open(&mut forged), Err(OpenError::BadTag), "{cipher:?} bit {bit}");
                // Shorter payloads can be equal by chance.
                if payload_len >= 15 {
                    assert!(forged[payload.clone()] != plain[payload.clone()], "{cipher:?} bit {bit}");
                }
            }
        }
    }
}

#[test]
fn every_part_of_a_packet_is_refused() {
    for cipher in all() {
        let mut sealed = plain(&*cipher, 100, 2);
        cipher.seal(&mut sealed).unwrap();
        let overhead = cipher.header_len() + cipher.trailer_len();
        for len in 0..sealed.len() {
            let expected = if len < overhead { OpenError::TooShort } else { OpenError::BadTag };
            let mut front = sealed[..len].to_vec();
            assert_eq!(cipher.open(&mut front), Err(expected), "{cipher:?} cut to {len}");
            let mut back = sealed[sealed.len() - len..].to_vec();
            assert_eq!(cipher.open(&mut back), Err(expected), "{cipher:?} cut to the last {len}");
        }
    }
}

#[test]
fn another_key_opens_nothing() {
    for kind in KINDS {
        let key = vec![0x5A; kind.key_len()];
        for (cipher, at) in ciphers(kind, &key).into_iter().zip(0..) {
            let mut sealed = plain(&*cipher, 100, 3);
            cipher.seal(&mut sealed).unwrap();
            for byte in 0..key.len() {
                let mut other = key.clone();
                other[byte] ^= 1;
                let mut packet = sealed.clone();
                let outcome = ciphers(kind, &other)[at].open(&mut packet);
                assert_eq!(outcome, Err(OpenError::BadTag), "{cipher:?}");
            }
        }
    }
}

#[test]
fn packets_shorter_than_nonce_and_tag_are_not_sealed() {
    for cipher in all() {
        let overhead = cipher.header_len() + cipher.trailer_len();
        for len in 0..overhead {
            assert_eq!(cipher.seal(&mut vec![0; len]), Err(SealError::TooShort), "{cipher:?} {len}");
        }
        assert_eq!(cipher.seal(&mut vec![0; overhead]), Ok(()), "{cipher:?}");
    }
}

#[test]
fn a_batch_opens_to_its_packets_and_names_the_damaged_one() {
    for cipher in all() {
        let (stride, last) = (200, 150);
        let packets: Vec<Vec<u8>> = (0..5)
            .map(|seed| {
                let len = if seed == 4 { last } else { stride };
                plain(&*cipher, len - cipher.header_len() - cipher.trailer_len(), seed)
            })
            .collect();
        let mut batch = packets.concat();
        cipher.seal_batch(&mut batch, stride).unwrap();
        batch[stride + 20] ^= 1;
        let mut outcomes = [Err(OpenError::TooShort); 5];
        cipher.open_batch(&mut batch, stride, &mut outcomes);
        assert_eq!(outcomes, [Ok(()), Err(OpenError::BadTag), Ok(()), Ok(()), Ok(())]);
        for (at, (opened, plain)) in batch.chunks(stride).zip(&packets).enumerate() {
            assert!(
                at == 1 || nonce_and_payload(&*cipher, opened) == nonce_and_payload(&*cipher, plain),
                "{cipher:?} packet {at}"
            );
        }
    }
}

#[test]
fn keys_of_other_lengths_are_refused() {
    for kind in KINDS {
        let expected = kind.key_len();
        for actual in (0..=64).filter(|len| *len != expected) {
            let refused = kind.build(&Key::from_bytes(&vec![1; actual]), Framing::KcpGo);
            assert_eq!(refused.err(), Some(CipherError::KeyLength { kind, expected, actual }));
        }
    }
}

#[test]
fn the_nonce_gives_a_packet_its_identity_and_the_key_its_limit() {
    for cipher in all() {
        assert!(cipher.is_authenticated());
        assert_eq!(cipher.nonce_len(), cipher.header_len());
        let limit = if cipher.nonce_len() == 12 { Some(1 << 32) } else { None };
        assert_eq!(cipher.nonce_limit(), limit, "{cipher:?}");

        let mut packet = plain(&*cipher, 10, 4);
        packet[..8].copy_from_slice(&0x0123_4567_89AB_CDEF_u64.to_le_bytes());
        cipher.seal(&mut packet).unwrap();
        cipher.open(&mut packet).unwrap();
        assert_eq!(cipher.identity(&packet), Some(0x0123_4567_89AB_CDEF));
        assert_eq!(cipher.identity(&packet[..7]), None);
    }
    assert_eq!(identity(&[1; 40], 7), None, "a nonce shorter than 8 bytes is no identity");
    assert_eq!(super::nonce_limit(16), Some(1 << 48));
    assert_eq!(super::nonce_limit(0), Some(1));
}

#[test]
fn debug_shows_no_key() {
    for cipher in all() {
        let text = format!("{cipher:?}");
        // All bytes of the key are 0x5A, which is 90.
        assert!(!text.contains("90") && !text.to_lowercase().contains("5a"), "{text}");
        assert!(text.len() < 60, "{text}");
    }
}
