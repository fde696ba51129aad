//! Packet ciphers: they encrypt the whole packet, with a checksum or a tag inside.
//!
//! ```text
//! [ nonce 16 | CRC-32 4, or HighwayHash-64 tag 8 | payload ]
//! ```
//!
//! * `checksum`: the checksum or tag behind the nonce, which checks the payload.
//! * `encryption`: the trait for encrypting a whole packet. `cfb` (with a block cipher), `salsa20`, `xor` and `none` have it.
//! * `framed`: makes a [`PacketCipher`] of a checksum and an encryption.
//!
//! [`Framing`] documents which damage they find.
//!
//! Block ciphers come from RustCrypto's crates, but for TEA and XTEA: `tea` says why. `xor` and `none` are not ciphers.

#![cfg_attr(
    not(feature = "kcptun-ciphers"),
    allow(
        dead_code,
        unused_imports,
        unused_variables,
        reason = "a build with few ciphers does not use all of this"
    )
)]

use alloc::sync::Arc;

use super::{
    cipher::PacketCipher,
    error::CipherError,
    key::Key,
    kind::{CipherKind, Framing},
};

#[cfg(feature = "block-ciphers")]
mod cfb;
#[cfg(feature = "packet-ciphers")]
mod checksum;
#[cfg(feature = "packet-ciphers")]
mod encryption;
#[cfg(feature = "packet-ciphers")]
mod framed;
#[cfg(feature = "none")]
mod none;
#[cfg(feature = "salsa20")]
mod salsa20;
#[cfg(any(feature = "tea", feature = "xtea"))]
mod tea;
#[cfg(feature = "xor")]
mod xor;

/// Makes the packet cipher of `kind` with `framing`.
#[cfg(feature = "packet-ciphers")]
pub(super) fn build(
    kind: CipherKind,
    key: &Key,
    framing: Framing,
) -> Result<Arc<dyn PacketCipher>, CipherError> {
    let key = key.bytes_for(kind)?;
    match framing {
        Framing::KcpGo => encrypted(kind, key, checksum::Crc32),
        #[cfg(feature = "highway")]
        Framing::Highway => encrypted(kind, key, checksum::HighwayTag::new(key)),
        #[cfg(not(feature = "highway"))]
        Framing::Highway => Err(CipherError::FramingNotBuilt),
    }
}

/// Refuses: no packet cipher is built in.
#[cfg(not(feature = "packet-ciphers"))]
pub(super) fn build(
    kind: CipherKind,
    key: &Key,
    _framing: Framing,
) -> Result<Arc<dyn PacketCipher>, CipherError> {
    key.bytes_for(kind)?;
    Err(CipherError::NotBuilt(kind))
}

/// The encryption of `kind` around `checksum`.
#[cfg(feature = "packet-ciphers")]
fn encrypted<C: checksum::Checksum>(
    kind: CipherKind,
    key: &[u8],
    checksum: C,
) -> Result<Arc<dyn PacketCipher>, CipherError> {
    use framed::Framed;
    match kind {
        #[cfg(feature = "aes")]
        CipherKind::Aes256 => Framed::in_cfb::<aes::Aes256Enc>(kind, key, checksum),
        #[cfg(feature = "aes-128")]
        CipherKind::Aes128 => Framed::in_cfb::<aes::Aes128Enc>(kind, key, checksum),
        #[cfg(feature = "aes-192")]
        CipherKind::Aes192 => Framed::in_cfb::<aes::Aes192Enc>(kind, key, checksum),
        #[cfg(feature = "blowfish")]
        CipherKind::Blowfish => Framed::in_cfb::<blowfish::Blowfish>(kind, key, checksum),
        #[cfg(feature = "twofish")]
        CipherKind::Twofish => Framed::in_cfb::<twofish::Twofish>(kind, key, checksum),
        #[cfg(feature = "cast5")]
        CipherKind::Cast5 => Framed::in_cfb::<cast5::Cast5>(kind, key, checksum),
        #[cfg(feature = "3des")]
        CipherKind::TripleDes => Framed::in_cfb::<des::TdesEde3>(kind, key, checksum),
        #[cfg(feature = "tea")]
        CipherKind::Tea => Framed::in_cfb::<tea::Tea>(kind, key, checksum),
        #[cfg(feature = "xtea")]
        CipherKind::Xtea => Framed::in_cfb::<tea::Xtea>(kind, key, checksum),
        #[cfg(feature = "sm4")]
        CipherKind::Sm4 => Framed::in_cfb::<sm4::Sm4>(kind, key, checksum),
        #[cfg(feature = "salsa20")]
        CipherKind::Salsa20 => Ok(Framed::new(kind, salsa20::Salsa20::new(key), checksum)),
        #[cfg(feature = "xor")]
        CipherKind::Xor => Ok(Framed::new(kind, xor::Xor::new(key), checksum)),
        #[cfg(feature = "none")]
        CipherKind::None => Ok(Framed::new(kind, none::None, checksum)),
        _ => Err(CipherError::NotBuilt(kind)),
    }
}
