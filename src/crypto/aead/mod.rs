//! Ciphers that authenticate: `nonce | ciphertext | tag`, without additional data, as kcp-go sends them.
//!
//! * `ring`: the crate `ring`, with the feature of that name. It is the fastest, and needs a C compiler.
//! * `rust_crypto`: the crates of the RustCrypto project. They serve every target, also without the standard library.
//! * `adapter`: [`Aead`], which makes a packet cipher of any RustCrypto AEAD.
//! * `detached`: keys whose nonce is not in the packet, for sessions that agree on keys.
//!
//! No cipher here is this crate's own.

#[cfg(feature = "aead-traits")]
mod adapter;
#[cfg(feature = "noise")]
mod detached;
#[cfg(feature = "ring")]
mod ring;
#[cfg(any(feature = "aes-gcm", feature = "chacha20-poly1305"))]
mod rust_crypto;
#[cfg(all(test, feature = "aead"))]
mod tests;

#[cfg(feature = "noise")]
use alloc::boxed::Box;
use alloc::sync::Arc;

#[cfg(feature = "aead-traits")]
pub use self::adapter::Aead;
#[cfg(feature = "noise")]
pub(crate) use self::detached::{DetachedKey, NONCE_LEN, TAG_LEN, detached_key};
use super::{cipher::PacketCipher, error::CipherError, key::Key, kind::CipherKind};

/// Makes the AEAD of `kind`, from the fastest provider that is built in and has it.
pub(super) fn build(kind: CipherKind, key: &Key) -> Result<Arc<dyn PacketCipher>, CipherError> {
    let key = key.bytes_for(kind)?;
    PROVIDERS.iter().find_map(|build| build(kind, key)).ok_or(CipherError::NotBuilt(kind))
}

/// Makes the cipher of a kind from a key of the right length. `None` if the provider does not have the kind.
type Provider = fn(CipherKind, &[u8]) -> Option<Arc<dyn PacketCipher>>;

/// The fastest first.
const PROVIDERS: &[Provider] = &[
    #[cfg(feature = "ring")]
    ring::build,
    #[cfg(any(feature = "aes-gcm", feature = "chacha20-poly1305"))]
    rust_crypto::build,
];

/// Makes the key of a kind whose nonce is handed in. `None` if the provider does not have the kind.
#[cfg(feature = "noise")]
type KeyProvider = fn(CipherKind, &[u8; 32]) -> Option<Box<dyn DetachedKey>>;

/// The fastest first.
#[cfg(feature = "noise")]
const fn key_providers() -> &'static [KeyProvider] {
    &[
        #[cfg(feature = "ring")]
        ring::build_detached,
        rust_crypto::build_detached,
    ]
}

/// How many packets may be sealed under one key with random nonces of `nonce_len` bytes. With that many, two nonces are
/// equal with a probability of 2^-33. `None` means that no sender gets that far.
///
/// n random nonces of b bits collide with a probability below n² / 2^(b+1). For nonces of 12 bytes that allows 2^32
/// packets, which is also the bound of NIST SP 800-38D, section 8.3. Nonces of 24 bytes (XChaCha20) allow 2^80: more than
/// a counter of 64 bits can count.
#[cfg(feature = "aead-traits")]
fn nonce_limit(nonce_len: usize) -> Option<u64> {
    let exponent = (nonce_len * 8).saturating_sub(32) / 2;
    1_u64.checked_shl(u32::try_from(exponent).ok()?)
}

/// The first 8 bytes of the nonce, by which a replay window tells packets apart. They are random: among n packets, a
/// genuine one is mistaken for a replay with a probability of n / 2^64.
#[cfg(feature = "aead-traits")]
fn identity(packet: &[u8], nonce_len: usize) -> Option<u64> {
    packet.get(..nonce_len)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}
