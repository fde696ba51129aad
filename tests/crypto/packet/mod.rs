//! The packet ciphers of kcp-go, with its framing and with this crate's own.

mod batches;
mod damage;
mod known_answers;
mod round_trips;

use std::sync::Arc;

use kcp9::crypto::{CipherKind, Framing, Key, PacketCipher};

const FRAMINGS: [Framing; 2] = [Framing::KcpGo, Framing::Highway];
const NONCE_LEN: usize = 16;

fn kinds() -> impl Iterator<Item = CipherKind> {
    CipherKind::all().filter(|kind| !kind.is_aead())
}

fn header_len(framing: Framing) -> usize {
    NONCE_LEN + if framing == Framing::Highway { 8 } else { 4 }
}

/// Bytes that look random.
fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

/// A key as long as kcptun's for `kind`.
fn key(kind: CipherKind, seed: u64) -> Key {
    let len = if kind == CipherKind::None { 32 } else { kind.key_len() };
    Key::from_bytes(&bytes(len, seed))
}

fn cipher(kind: CipherKind, framing: Framing) -> Arc<dyn PacketCipher> {
    kind.build(&key(kind, 1), framing).unwrap()
}

/// Every cipher with every framing.
fn each() -> impl Iterator<Item = (CipherKind, Framing, Arc<dyn PacketCipher>)> {
    kinds().flat_map(|kind| FRAMINGS.map(|framing| (kind, framing, cipher(kind, framing))))
}

/// A packet before it is sealed: a nonce, room for the checksum, a payload.
fn unsealed(framing: Framing, payload_len: usize, seed: u64) -> Vec<u8> {
    bytes(header_len(framing) + payload_len, seed)
}
