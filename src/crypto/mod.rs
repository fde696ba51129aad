//! Packet encryption: what makes each datagram private and checked.
//!
//! ```text
//! packet cipher   [ nonce 16 | CRC-32 4          | payload ]        all of it encrypted   Framing::KcpGo
//!                 [ nonce 16 | HighwayHash-64 8  | payload ]        all of it encrypted   Framing::Highway
//! AEAD            [ nonce 12 or 24 | payload (encrypted) | tag 16 ]
//! ```
//!
//! * [`PacketCipher`]: seals and opens packets in place, one or a batch at a time. Object-safe: applications bring their
//!   own.
//! * [`CipherKind`]: the ciphers of kcp-go by their names in kcptun; [`build`](CipherKind::build) makes one from a
//!   [`Key`].
//! * [`PacketCrypto`]: a cipher and where its nonces come from, as the configuration takes them
//!   ([`KcpConfigBuilder::crypto`](crate::KcpConfigBuilder::crypto)).
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
#[cfg(feature = "std")]
pub use self::nonce::{EntropyError, OsNonces};
#[cfg(feature = "password")]
pub use self::password::PasswordError;
pub use self::{
    cipher::{NonceSource, PacketCipher, PacketCrypto},
    error::{CipherError, OpenError, SealError},
    key::Key,
    kind::{CipherKind, Framing},
};
