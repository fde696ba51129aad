//! Which damage to a packet is found.

use std::ops::Range;

use kcp9::crypto::{CipherKind, Framing, OpenError};

use super::{each, header_len, unsealed};

/// Bytes of a packet whose change is not found, according to the documentation of [`Framing`].
fn uncovered(kind: CipherKind) -> Range<usize> {
    use CipherKind::{
        Aes128, Aes192, Aes256, Blowfish, Cast5, None, Salsa20, Sm4, Tea, TripleDes, Twofish, Xor, Xtea,
    };
    match kind {
        Aes128 | Aes192 | Aes256 | Twofish | Sm4 => 0..0,
        Blowfish | Cast5 | TripleDes | Tea | Xtea => 0..8,
        Salsa20 => 8..16,
        Xor | None => 0..16,
        _ => unreachable!("not a packet cipher"),
    }
}

fn error(framing: Framing) -> OpenError {
    if framing == Framing::Highway { OpenError::BadTag } else { OpenError::BadChecksum }
}

#[test]
fn every_flipped_bit_is_found_except_in_the_documented_nonce_bytes() {
    for (kind, framing, cipher) in each() {
        let original = unsealed(framing, 60, 7);
        let mut sealed = original.clone();
        cipher.seal(&mut sealed).unwrap();
        for bit in 0..8 * sealed.len() {
            let mut packet = sealed.clone();
            packet[bit / 8] ^= 1 << (bit % 8);
            let outcome = cipher.open(&mut packet);
            if uncovered(kind).contains(&(bit / 8)) {
                assert_eq!(outcome, Ok(()), "{cipher:?}: bit {bit}");
                assert!(packet[header_len(framing)..] == original[header_len(framing)..]);
            } else {
                assert_eq!(outcome, Err(error(framing)), "{cipher:?}: bit {bit}");
            }
        }
    }
}

#[test]
fn a_shortened_or_lengthened_packet_is_refused() {
    for (_, framing, cipher) in each() {
        let mut sealed = unsealed(framing, 60, 8);
        cipher.seal(&mut sealed).unwrap();
        for len in 0..sealed.len() {
            let short = len < header_len(framing);
            let expected = if short { OpenError::TooShort } else { error(framing) };
            assert_eq!(cipher.open(&mut sealed[..len].to_vec()), Err(expected), "{cipher:?}: {len} bytes");
        }
        let mut longer = [&sealed[..], &[0]].concat();
        assert_eq!(cipher.open(&mut longer), Err(error(framing)), "{cipher:?}");
        assert_eq!(cipher.open(&mut sealed), Ok(()));
    }
}
