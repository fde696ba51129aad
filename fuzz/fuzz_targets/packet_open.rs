//! Bytes as sealed packets, for every cipher and framing.
//!
//! Proves that opening any bytes ends without a panic and without touching a byte outside the packet; that what an
//! authenticating cipher or a tag lets through was sealed with its key (so never the fuzzer's own bytes); that sealing
//! and opening any payload gives it back, one by one and in batches alike; and that no single flipped bit of a packet
//! gets past an AEAD, nor past another cipher with a changed payload (but for a CRC's chance).

#![no_main]

use std::sync::{Arc, OnceLock};

use kcp9::crypto::{CipherKind, Framing, Key, OpenError, PacketCipher};
use libfuzzer_sys::fuzz_target;

type Entry = (CipherKind, Framing, Arc<dyn PacketCipher>);

/// Most bytes of a packet.
const LIMIT: usize = 1_500;

fn ciphers() -> &'static [Entry] {
    static CIPHERS: OnceLock<Vec<Entry>> = OnceLock::new();
    CIPHERS.get_or_init(|| {
        let build = |kind: CipherKind, framing| {
            let key = Key::from_bytes(&b"0123456789abcdefFEDCBA9876543210"[..kind.key_len()]);
            kind.build(&key, framing).ok().map(|cipher| (kind, framing, cipher))
        };
        let framings = [Framing::KcpGo, Framing::Highway];
        let all: Vec<_> = CipherKind::all()
            .flat_map(|kind| framings.map(|framing| build(kind, framing)))
            .flatten()
            .collect();
        assert_eq!(all.len(), 13 * 2 + 5, "built with every cipher");
        all
    })
}

fuzz_target!(|bytes: &[u8]| {
    let [choice, flip_low, flip_high, batch, bytes @ ..] = bytes else { return };
    let ciphers = ciphers();
    let (kind, framing, cipher) = &ciphers[usize::from(*choice) % ciphers.len()];
    let (head, tail) = (cipher.header_len(), cipher.trailer_len());

    // Noise.
    let mut noise = [&[0xa5; 16], bytes, &[0x5a; 16]].concat();
    let end = noise.len() - 16;
    let outcome = cipher.open(&mut noise[16..end]);
    assert!(noise[..16] == [0xa5; 16] && noise[end..] == [0x5a; 16], "{kind}: bytes outside the packet");
    if bytes.len() < head + tail {
        assert_eq!(outcome, Err(OpenError::TooShort), "{kind}");
    }
    if kind.is_aead() {
        assert!(outcome.is_err(), "{kind}: opened noise");
    }

    // A payload there and back.
    let payload = &bytes[..bytes.len().min(LIMIT - head - tail)];
    let mut sealed = vec![0; head + payload.len() + tail];
    let nonce = cipher.nonce_len().min(payload.len());
    sealed[..nonce].copy_from_slice(&payload[..nonce]);
    sealed[head..head + payload.len()].copy_from_slice(payload);
    let plain = sealed.clone();
    cipher.seal(&mut sealed).unwrap();
    let mut opened = sealed.clone();
    assert_eq!(cipher.open(&mut opened), Ok(()), "{kind}");
    assert_eq!(&opened[head..head + payload.len()], payload, "{kind}");

    // Batches do what one call a packet does, also when the last is shorter.
    let count = usize::from(*batch) % 20 + 1;
    let short = (head + tail).max(plain.len() / 2);
    let mut packets = plain.repeat(count);
    packets.extend_from_slice(&plain[..short]);
    let mut last = plain[..short].to_vec();
    cipher.seal(&mut last).unwrap();
    cipher.seal_batch(&mut packets, plain.len()).unwrap();
    for packet in packets.chunks(plain.len()).take(count) {
        assert_eq!(packet, sealed, "{kind}: sealed in a batch of {count}");
    }
    assert_eq!(packets[count * plain.len()..], last, "{kind}: the last of a batch of {count}");
    let mut outcomes = vec![Err(OpenError::TooShort); count + 1];
    cipher.open_batch(&mut packets, plain.len(), &mut outcomes);
    assert!(outcomes.iter().all(Result::is_ok), "{kind}: {outcomes:?}");
    for packet in packets.chunks(plain.len()).take(count) {
        assert_eq!(packet, opened, "{kind}: opened in a batch of {count}");
    }

    // One flipped bit.
    let bit = usize::from(u16::from_le_bytes([*flip_low, *flip_high])) % (sealed.len() * 8);
    sealed[bit / 8] ^= 1 << (bit % 8);
    let outcome = cipher.open(&mut sealed);
    if kind.is_aead() {
        assert_eq!(outcome, Err(OpenError::BadTag), "{kind}, bit {bit}");
    } else if *framing == Framing::Highway && outcome.is_ok() {
        assert_eq!(&sealed[head..head + payload.len()], payload, "{kind}, bit {bit}");
    }
});
