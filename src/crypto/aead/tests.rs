//! Every kind from every library built in.

extern crate std;

use alloc::{format, sync::Arc, vec, vec::Vec};

use super::LIBRARIES;
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

/// The ciphers of `kind`, one from each library that has it.
fn ciphers(kind: CipherKind, key: &[u8]) -> Vec<Arc<dyn PacketCipher>> {
    LIBRARIES.iter().filter_map(|build| build(kind, key)).collect()
}

/// The ciphers of all kinds, of some key.
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

/// Nonce and payload: what a packet holds that was sealed and opened.
fn held<'a>(cipher: &dyn PacketCipher, packet: &'a [u8]) -> &'a [u8] {
    &packet[..packet.len() - cipher.trailer_len()]
}

#[test]
fn every_library_is_tested() {
    let count = |kind: CipherKind| ciphers(kind, &vec![0; kind.key_len()]).len();
    let rings = usize::from(cfg!(feature = "ring"));
    #[cfg(target_arch = "x86_64")]
    let [gcm, chacha] = [
        usize::from(cpu_has!("aes", "avx512f", "avx512bw", "avx512vl", "vaes", "vpclmulqdq")),
        usize::from(cpu_has!("avx512f", "avx512vl", "avx512bw", "avx512ifma", "bmi2")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let [gcm, chacha] = [0, 0];
    let chachas = 1 + rings + chacha;
    assert_eq!(KINDS.map(count), [1 + rings + gcm, 1 + gcm, 1 + rings + gcm, chachas, chachas]);
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
            assert_eq!(held(&*cipher, &sealed), held(&*cipher, &plain), "{cipher:?}");
        }
    }
}

#[test]
fn every_size_comes_back_and_all_libraries_agree() {
    for kind in KINDS {
        let ciphers = ciphers(kind, &vec![0x5A; kind.key_len()]);
        for payload_len in 0..=1_500 {
            let plain = plain(&*ciphers[0], payload_len, payload_len as u8);
            let mut first = plain.clone();
            ciphers[0].seal(&mut first).unwrap();
            for cipher in &ciphers {
                let mut packet = plain.clone();
                cipher.seal(&mut packet).unwrap();
                assert_eq!(packet, first, "{kind} of {payload_len} bytes");
                cipher.open(&mut packet).unwrap();
                assert_eq!(
                    held(&**cipher, &packet),
                    held(&**cipher, &plain),
                    "{kind} of {payload_len} bytes"
                );
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    for cipher in all() {
        for payload_len in [0, 1, 15, 16, 17, 64, 300] {
            let mut sealed = plain(&*cipher, payload_len, 1);
            cipher.seal(&mut sealed).unwrap();
            for bit in 0..sealed.len() * 8 {
                let mut forged = sealed.clone();
                forged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(cipher.open(&mut forged), Err(OpenError::BadTag), "{cipher:?} bit {bit}");
            }
        }
    }
}

#[test]
fn every_cut_is_noticed() {
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
fn what_is_too_short_is_not_sealed() {
    for cipher in all() {
        let overhead = cipher.header_len() + cipher.trailer_len();
        for len in 0..overhead {
            assert_eq!(cipher.seal(&mut vec![0; len]), Err(SealError::TooShort), "{cipher:?} {len}");
        }
        assert_eq!(cipher.seal(&mut vec![0; overhead]), Ok(()), "{cipher:?}");
    }
}

#[test]
fn batches_are_packets_one_after_the_other() {
    for cipher in all() {
        let (size, last) = (200, 150);
        let packets: Vec<Vec<u8>> = (0..5)
            .map(|seed| {
                let len = if seed == 4 { last } else { size };
                plain(&*cipher, len - cipher.header_len() - cipher.trailer_len(), seed)
            })
            .collect();
        let mut batch = packets.concat();
        cipher.seal_batch(&mut batch, size).unwrap();
        batch[size + 20] ^= 1;
        let mut outcomes = [Err(OpenError::TooShort); 5];
        cipher.open_batch(&mut batch, size, &mut outcomes);
        assert_eq!(outcomes, [Ok(()), Err(OpenError::BadTag), Ok(()), Ok(()), Ok(())]);
        for (at, (opened, plain)) in batch.chunks(size).zip(&packets).enumerate() {
            assert!(at == 1 || held(&*cipher, opened) == held(&*cipher, plain), "{cipher:?} packet {at}");
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
fn limits_and_identities_come_from_the_nonce() {
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
    assert_eq!(identity(&[1; 40], 7), None, "too short a nonce to tell packets apart");
    assert_eq!(super::nonce_limit(16), Some(1 << 48));
    assert_eq!(super::nonce_limit(0), Some(1));
}

#[test]
fn debug_shows_no_key() {
    for cipher in all() {
        let text = format!("{cipher:?}");
        // The key is all bytes 0x5A: 90.
        assert!(!text.contains("90") && !text.to_lowercase().contains("5a"), "{text}");
        assert!(text.len() < 60, "{text}");
    }
}
