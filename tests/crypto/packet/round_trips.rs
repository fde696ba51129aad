//! A sealed packet opens again; ciphers describe themselves correctly.

use kcp9::crypto::{CipherError, CipherKind, Framing, Key, OpenError, SealError};

use super::{NONCE_LEN, bytes, cipher, each, header_len, key, kinds, unsealed};

/// Every length around the sizes of blocks and of groups of blocks, and some longer ones.
#[test]
fn every_cipher_decrypts_what_it_encrypted() {
    round_trips(|len| len <= 530 || len % 17 == 0 || len >= 1_390);
}

#[test]
#[ignore = "slow without optimisation: cargo test --release --test crypto -- --ignored"]
fn every_length_of_payload_survives_a_round_trip() {
    round_trips(|_| true);
}

fn round_trips(takes: impl Fn(usize) -> bool) {
    for (kind, framing, cipher) in each() {
        for len in (0..=1500 - header_len(framing)).filter(|len| takes(*len)) {
            let mut packet = unsealed(framing, len, len as u64);
            let original = packet.clone();
            cipher.seal(&mut packet).unwrap();
            cipher.open(&mut packet).unwrap();
            assert!(packet[..NONCE_LEN] == original[..NONCE_LEN], "{cipher:?}: nonce of {len} bytes");
            let payload = header_len(framing)..;
            assert!(packet[payload.clone()] == original[payload], "{cipher:?}: {len} bytes");
        }
        // Up to the longest packet that UDP carries.
        for len in [8_972, 65_507 - header_len(framing)].into_iter().filter(|_| kind != CipherKind::Xor) {
            let mut packet = unsealed(framing, len, 1);
            let original = packet.clone();
            cipher.seal(&mut packet).unwrap();
            cipher.open(&mut packet).unwrap();
            assert!(
                packet[header_len(framing)..] == original[header_len(framing)..],
                "{cipher:?}: {len} bytes"
            );
        }
    }
}

#[test]
fn a_packet_shorter_than_its_header_is_refused() {
    for (_, framing, cipher) in each() {
        for len in 0..header_len(framing) {
            let mut packet = bytes(len, 1);
            assert_eq!(cipher.seal(&mut packet), Err(SealError::TooShort));
            assert_eq!(cipher.open(&mut packet), Err(OpenError::TooShort));
            assert_eq!(packet, bytes(len, 1), "the packet is unchanged");
        }
    }
}

#[test]
fn xor_refuses_a_packet_longer_than_its_table() {
    for framing in [Framing::KcpGo, Framing::Highway] {
        let cipher = cipher(CipherKind::Xor, framing);
        let mut packet = vec![0; 1501];
        assert_eq!(cipher.seal(&mut packet), Err(SealError::TooLong));
        assert_eq!(cipher.open(&mut packet), Err(OpenError::TooLong));
        assert_eq!(cipher.seal_batch(&mut [0; 3_500], 1501), Err(SealError::TooLong));
        assert_eq!(cipher.seal_batch(&mut [0; 3_000], 1500), Ok(()));
        assert_eq!(cipher.seal(&mut packet[..1500]), Ok(()));
        assert_eq!(cipher.open(&mut packet[..1500]), Ok(()));
    }
}

#[test]
fn ciphers_report_their_lengths_and_whether_they_authenticate() {
    for (kind, framing, cipher) in each() {
        assert_eq!((cipher.header_len(), cipher.trailer_len()), (header_len(framing), 0));
        assert_eq!((cipher.nonce_len(), cipher.nonce_limit()), (NONCE_LEN, None));
        assert_eq!(cipher.is_authenticated(), framing == Framing::Highway, "{kind}");
        assert!(format!("{cipher:?}").contains(kind.name()));
    }
    // Anyone can compute the tags of an empty key.
    let open_to_all = CipherKind::None.build(&Key::from_bytes(&[]), Framing::Highway).unwrap();
    assert!(!open_to_all.is_authenticated());
}

#[test]
fn a_key_of_the_wrong_length_is_refused() {
    for kind in kinds().filter(|kind| !matches!(kind, CipherKind::None | CipherKind::Xor)) {
        let expected = kind.key_len();
        for actual in (0..64).filter(|len| *len != expected) {
            let error = kind.build(&Key::from_bytes(&vec![1; actual]), Framing::KcpGo).unwrap_err();
            assert_eq!(error, CipherError::KeyLength { kind, expected, actual });
        }
    }
    assert!(CipherKind::Xor.build(&Key::from_bytes(&[]), Framing::KcpGo).is_err());
    assert!(CipherKind::Xor.build(&Key::from_bytes(&[1]), Framing::KcpGo).is_ok());
    assert!(CipherKind::None.build(&Key::from_bytes(&[]), Framing::KcpGo).is_ok());
}

#[test]
fn another_key_decrypts_nothing() {
    for (kind, framing, cipher) in each() {
        let other = kind.build(&key(kind, 2), framing).unwrap();
        let mut packet = unsealed(framing, 100, 3);
        cipher.seal(&mut packet).unwrap();
        let outcome = other.open(&mut packet);
        match (kind, framing) {
            (CipherKind::None, Framing::KcpGo) => assert_eq!(outcome, Ok(())),
            (_, Framing::KcpGo) => assert_eq!(outcome, Err(OpenError::BadChecksum), "{kind}"),
            _ => assert_eq!(outcome, Err(OpenError::BadTag), "{kind}"),
        }
    }
}

/// Whether a change to the first 8 bytes of a packet garbles its checksum.
fn binds_nonce(kind: CipherKind) -> bool {
    use CipherKind::{Aes128, Aes192, Aes256, Salsa20, Sm4, Twofish};
    matches!(kind, Aes128 | Aes192 | Aes256 | Salsa20 | Sm4 | Twofish)
}

/// So an attacker cannot make a replayed packet look like another one.
#[test]
fn a_changed_nonce_does_not_change_the_identity_of_a_packet_with_a_tag() {
    for (kind, _, cipher) in each().filter(|(_, framing, _)| *framing == Framing::Highway) {
        let mut sealed = [unsealed(Framing::Highway, 0, 7), bytes(40, 1)].concat();
        cipher.seal(&mut sealed).unwrap();
        let identity = cipher.sealed_identity(&sealed).unwrap();
        for bit in 0..8 * NONCE_LEN {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let opens = cipher.open(&mut changed).is_ok();
            assert!(!opens || cipher.identity(&changed) == Some(identity), "{kind}, bit {bit}");
            assert!(!(opens && binds_nonce(kind) && bit < 64), "{kind}, bit {bit}");
        }
    }
}

#[test]
fn two_packets_have_different_identities() {
    for (kind, framing, cipher) in each() {
        let identity_of = |nonce: u64, payload: u64| {
            let payload_at = header_len(framing);
            let mut packet = [unsealed(framing, 0, nonce), bytes(40, payload)].concat();
            cipher.seal(&mut packet).unwrap();
            cipher.open(&mut packet).unwrap();
            assert_eq!(packet[payload_at..], bytes(40, payload));
            cipher.identity(&packet).unwrap()
        };
        assert_eq!(identity_of(1, 1), identity_of(1, 1));
        assert_ne!(identity_of(1, 1), identity_of(1, 2), "{kind}");
        // A tag depends on the payload alone. Ciphers that do not bind the nonce have nothing else to tell packets apart.
        let by_tag_alone = framing == Framing::Highway && !binds_nonce(kind);
        assert_eq!(identity_of(1, 1) == identity_of(2, 1), by_tag_alone, "{kind}");
        assert_eq!(cipher.identity(&[0; 17]), None);
    }
}
