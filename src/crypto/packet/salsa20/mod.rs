//! Salsa20 as kcp-go runs it: the first 8 bytes of a packet, half of its nonce, are the cipher's nonce and stay as they
//! are. The rest is xored with the key stream from its start.
//!
//! Why this crate has code of its own for it: kcptun's users run Salsa20 because it is the fastest of kcptun's ciphers.
//! The crate `salsa20` computes one block at a time and is slower than kcp-go's assembly. The kernels here compute several
//! blocks at a time with AVX2 or AVX-512. Packets of 1,400 bytes on a core of an AMD EPYC (Zen 4), in MB/s: the crate 680,
//! kcp-go 1,110, this module 3,260.
//!
//! The kernels are the only `unsafe` code in [`crypto`](crate::crypto). Other CPUs get the crate `salsa20`, which is also
//! what the tests compare the kernels with.

/// Whether the CPU has instruction sets. With the feature `std` this is found out at run time, otherwise it is decided
/// when the crate is built.
#[cfg(target_arch = "x86_64")]
macro_rules! cpu_has {
    ($($feature:tt),+) => {{
        #[cfg(feature = "std")]
        { true $(&& std::arch::is_x86_feature_detected!($feature))+ }
        #[cfg(not(feature = "std"))]
        { cfg!(all($(target_feature = $feature),+)) }
    }};
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod diagonals;
#[cfg(all(test, target_arch = "x86_64"))]
mod tests;

use cipher::{KeyIvInit, StreamCipher};
use zeroize::Zeroizing;

use super::encryption::Encryption;

/// Bytes of the cipher's nonce.
const NONCE_LEN: usize = 8;

/// Salsa20 of 20 rounds with a key.
pub(super) struct Salsa20 {
    key: Zeroizing<[u8; 32]>,
}

impl Salsa20 {
    /// Takes a key of 32 bytes. [`Key`](crate::crypto::Key) has checked the length.
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut key = Zeroizing::new([0; 32]);
        key.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self { key }
    }
}

impl Encryption for Salsa20 {
    /// The front of the nonce chooses the key stream, so a change there garbles all that follows.
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

/// Xors the key stream into `data`, by the fastest instructions that the CPU has.
fn apply(key: &[u8; 32], nonce: &[u8; NONCE_LEN], data: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(avx512) = avx512::Avx512::detect() {
            return avx512.apply(key, nonce, data);
        }
        if let Some(avx2) = avx2::Avx2::detect() {
            return avx2.apply(key, nonce, data);
        }
    }
    portable(key, nonce, data);
}

/// Xors the key stream into `data`, one block after the other.
fn portable(key: &[u8; 32], nonce: &[u8; NONCE_LEN], data: &mut [u8]) {
    salsa20::Salsa20::new(key.into(), nonce.into()).apply_keystream(data);
}
