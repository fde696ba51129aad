//! Salsa20: the first 8 bytes of a packet, half of its nonce, are the cipher's nonce and travel as they are; the rest is
//! xored with the key stream from its start.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(all(test, target_arch = "x86_64"))]
mod tests;

use cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use zeroize::Zeroizing;

use super::encryption::Encryption;

/// Bytes of the cipher's nonce.
const NONCE_LEN: usize = 8;

/// Salsa20 of 20 rounds with a key.
pub(super) struct Salsa20 {
    key: Zeroizing<[u8; 32]>,
}

impl Salsa20 {
    /// Takes a key of 32 bytes; [`Key`](crate::crypto::Key) has seen to that.
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut key = Zeroizing::new([0; 32]);
        key.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self { key }
    }
}

impl Encryption for Salsa20 {
    /// It chooses the key stream.
    const BINDS_NONCE: bool = true;

    fn encrypt(&self, packet: &mut [u8]) {
        if let Some((nonce, rest)) = packet.split_first_chunk_mut::<NONCE_LEN>() {
            apply(&self.key, nonce, rest);
        }
    }

    fn decrypt(&self, packet: &mut [u8]) {
        self.encrypt(packet);
    }
}

/// Xors the key stream into `data`.
fn apply(key: &[u8; 32], nonce: &[u8; NONCE_LEN], data: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    let done = avx2::apply(key, nonce, data);
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    apply_from(key, nonce, data, done);
}

/// Xors the key stream into `data` but for its first `done` bytes, one block after the other.
fn apply_from(key: &[u8; 32], nonce: &[u8; NONCE_LEN], data: &mut [u8], done: usize) {
    if done < data.len() {
        let mut cipher = salsa20::Salsa20::new(key.into(), nonce.into());
        cipher.seek(done);
        cipher.apply_keystream(&mut data[done..]);
    }
}
