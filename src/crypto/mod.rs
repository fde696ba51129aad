//! Packet encryption: it keeps each packet secret and finds out whether it was changed.
//!
//! ```text
//! packet cipher   [ nonce 16 | CRC-32 4          | payload ]        encrypted as a whole   Framing::KcpGo
//!                 [ nonce 16 | HighwayHash-64 8  | payload ]        encrypted as a whole   Framing::Highway
//! AEAD            [ nonce 12 or 24 | payload (encrypted) | tag 16 ]
//! ```
//!
//! * [`PacketCipher`]: the trait that seals and opens packets in place, one or a batch at a time. It is object-safe, so an
//!   application can bring a cipher of its own.
//! * [`CipherKind`]: the ciphers of kcp-go by their names in kcptun. [`build`](CipherKind::build) makes one from a
//!   [`Key`].
//! * [`PacketCrypto`]: a cipher together with the source of its nonces, as the configuration takes them
//!   ([`KcpConfigBuilder::crypto`](crate::KcpConfigBuilder::crypto)).
//!
//! The ciphers come from maintained crates, ring and RustCrypto's. Salsa20's vector kernels, the CFB mode, TEA, XTEA, `xor`
//! and `none` are written here; their modules say why.
//!
//! Nothing here does I/O or knows of sessions.

mod aead;
mod cipher;
mod error;
mod key;
mod kind;
#[cfg(feature = "std")]
mod nonce;
mod packet;
#[cfg(feature = "password")]
mod password;

#[cfg(feature = "aead-traits")]
pub use self::aead::Aead;
#[cfg(feature = "noise")]
pub(crate) use self::aead::{DetachedKey, NONCE_LEN, TAG_LEN, detached_key};
#[cfg(feature = "std")]
pub use self::nonce::{EntropyError, OsNonces};
#[cfg(feature = "password")]
pub use self::password::PasswordError;
pub use self::{
    cipher::{NonceBudget, NonceSource, PacketCipher, PacketCrypto},
    error::{CipherError, OpenError, SealError},
    key::Key,
    kind::{CipherKind, Framing},
};
