//! Ciphers that authenticate: `nonce | ciphertext | tag`, without additional data, as kcp-go sends them.
//!
//! RustCrypto's ciphers serve every target, through the adapter [`Aead`] that takes others as well; with the feature
//! `ring`, ring's assembly serves the kinds that it has. For x86-64 with AVX-512 there are AES-GCM and ChaCha20-Poly1305 of
//! this crate's own.

#[cfg(feature = "aead-traits")]
mod adapter;
#[cfg(all(feature = "aes-gcm", target_arch = "x86_64"))]
mod aes_gcm;
#[cfg(all(feature = "chacha20-poly1305", target_arch = "x86_64"))]
mod chacha20_poly1305;
#[cfg(any(
    feature = "ring",
    all(any(feature = "aes-gcm", feature = "chacha20-poly1305"), target_arch = "x86_64")
))]
mod nonce_and_tag;
#[cfg(feature = "ring")]
mod ring;
#[cfg(any(feature = "aes-gcm", feature = "chacha20-poly1305"))]
mod rust_crypto;
#[cfg(all(test, feature = "aead"))]
mod tests;

use alloc::sync::Arc;

#[cfg(feature = "aead-traits")]
pub use self::adapter::Aead;
use super::{cipher::PacketCipher, error::CipherError, key::Key, kind::CipherKind};

/// An AEAD of `kind`, from the fastest library built in.
pub(super) fn build(kind: CipherKind, key: &Key) -> Result<Arc<dyn PacketCipher>, CipherError> {
    let key = key.bytes_for(kind)?;
    LIBRARIES.iter().find_map(|build| build(kind, key)).ok_or(CipherError::NotBuilt(kind))
}

/// The cipher of a kind, keyed with as many bytes as it takes, if the library has it.
type Library = fn(CipherKind, &[u8]) -> Option<Arc<dyn PacketCipher>>;

/// The fastest first.
const LIBRARIES: &[Library] = &[
    #[cfg(all(feature = "aes-gcm", target_arch = "x86_64"))]
    aes_gcm::build,
    #[cfg(all(feature = "chacha20-poly1305", target_arch = "x86_64"))]
    chacha20_poly1305::build,
    #[cfg(feature = "ring")]
    ring::build,
    #[cfg(any(feature = "aes-gcm", feature = "chacha20-poly1305"))]
    rust_crypto::build,
];

/// How many packets may be sealed under one key with random nonces of `nonce_len` bytes until two of them are equal with
/// a probability of 2^-33; `None` when no sender gets that far.
///
/// n random nonces of b bits collide with a probability below n² / 2^(b+1). 2^32 nonces of 12 bytes are thus the bound
/// of NIST SP 800-38D, section 8.3. Nonces of 24 bytes (XChaCha20) allow 2^80, and 2^64 of them, more than a counter of
/// packets holds, collide with a probability of 2^-65.
#[cfg(feature = "aead-traits")]
fn nonce_limit(nonce_len: usize) -> Option<u64> {
    let exponent = (nonce_len * 8).saturating_sub(32) / 2;
    1_u64.checked_shl(u32::try_from(exponent).ok()?)
}

/// Bytes of the nonce by which a replay window tells packets apart: random, so that a genuine packet passes for a
/// replay among n others with a probability of n / 2^64.
#[cfg(feature = "aead-traits")]
fn identity(packet: &[u8], nonce_len: usize) -> Option<u64> {
    packet.get(..nonce_len)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}
