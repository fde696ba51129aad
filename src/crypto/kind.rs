//! The ciphers by name, and the framings of packet ciphers.

use alloc::sync::Arc;
use core::{fmt, str::FromStr};

use super::{aead, cipher::PacketCipher, error::CipherError, key::Key, packet};

/// What a packet cipher puts between the nonce and the payload.
///
/// Both framings check the payload. They do not check the nonce, since it carries no information. Some bytes of the nonce
/// can be changed without being found, and the payload is then still the right one:
///
/// | cipher | bytes of a packet that can change without being found |
/// |---|---|
/// | AES, Twofish, SM4 | none: a change in block 0 garbles block 1, which holds the checksum |
/// | Blowfish, CAST5, triple DES, TEA, XTEA | 0 to 7: a change there garbles 8 to 15, which are also nonce |
/// | Salsa20 | 8 to 15: bytes 0 to 7 choose the key stream, so a change there garbles everything |
/// | `xor`, `none` | 0 to 15 |
///
/// A garbled packet is taken for a good one with a probability of 2^-32 under a CRC-32, and of 2^-64 under a tag. Neither
/// framing refuses a replayed packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Framing {
    /// kcp-go's framing: a nonce of 16 bytes and a CRC-32. It finds damage, not forgery: without the key, an attacker can
    /// flip bits of the plaintext and correct the CRC-32.
    #[default]
    KcpGo,
    /// This crate's own framing, for peers that both run it: a nonce of 16 bytes and a HighwayHash-64 tag of the payload.
    /// The key of the tag is derived from the cipher's. [`CipherKind::None`] with an empty key has a tag that anyone can
    /// compute.
    ///
    /// Without the key, nobody can make another payload open. A payload that was sent before can open again, with a nonce
    /// changed in the bytes of the table above. Where these are among bytes 0 to 7, the
    /// [`identity`](PacketCipher::identity) of a packet is its tag alone. Two datagrams of the same content
    /// ([`send_datagram`](crate::proto::Connection::send_datagram)) are then taken for one packet sent twice, and the
    /// second one is dropped while the [replay window](crate::KcpConfigBuilder::replay_window) remembers the first.
    Highway,
}

/// The ciphers of kcp-go, by their names in kcptun ([`FromStr`], [`Display`](fmt::Display)).
///
/// ```
/// use kcp9::crypto::CipherKind;
///
/// assert_eq!("aes-128".parse(), Ok(CipherKind::Aes128));
/// assert_eq!("aes".parse(), Ok(CipherKind::Aes256));
/// assert_eq!(CipherKind::TripleDes.to_string(), "3des");
/// assert_eq!(CipherKind::TripleDes.key_len(), 24);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CipherKind {
    /// AES-256 in CFB: `aes` or `aes-256`.
    Aes256,
    /// AES-128 in CFB: `aes-128`.
    Aes128,
    /// AES-192 in CFB: `aes-192`.
    Aes192,
    /// Salsa20: `salsa20`.
    Salsa20,
    /// Blowfish in CFB: `blowfish`.
    Blowfish,
    /// Twofish in CFB: `twofish`. Slow, for peers that insist on it: the crate `twofish` encrypts 2.5 MB/s on a core of an AMD
    /// EPYC (Zen 4).
    Twofish,
    /// CAST5 in CFB: `cast5`.
    Cast5,
    /// Triple DES in CFB: `3des`. Slow, for peers that insist on it: the crate `des` encrypts 12 MB/s on such a core.
    TripleDes,
    /// TEA with 16 rounds in CFB: `tea`.
    Tea,
    /// XTEA in CFB: `xtea`.
    Xtea,
    /// XOR with a fixed table: `xor`. It is no protection: two packets xored with each other reveal their contents. Takes
    /// packets of at most 1,500 bytes.
    Xor,
    /// SM4 in CFB: `sm4`.
    Sm4,
    /// Header and checksum without encryption: `none`.
    None,
    /// AES-128-GCM: `aes-128-gcm`.
    Aes128Gcm,
    /// AES-192-GCM: `aes-192-gcm`.
    Aes192Gcm,
    /// AES-256-GCM: `aes-256-gcm`.
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 8439): `chacha20-poly1305`.
    ChaCha20Poly1305,
    /// XChaCha20-Poly1305: `xchacha20-poly1305`.
    XChaCha20Poly1305,
}

/// The kind, its name, and the length of its key in bytes.
const KINDS: [(CipherKind, &str, usize); 18] = [
    (CipherKind::Aes256, "aes", 32),
    (CipherKind::Aes128, "aes-128", 16),
    (CipherKind::Aes192, "aes-192", 24),
    (CipherKind::Salsa20, "salsa20", 32),
    (CipherKind::Blowfish, "blowfish", 32),
    (CipherKind::Twofish, "twofish", 32),
    (CipherKind::Cast5, "cast5", 16),
    (CipherKind::TripleDes, "3des", 24),
    (CipherKind::Tea, "tea", 16),
    (CipherKind::Xtea, "xtea", 16),
    (CipherKind::Xor, "xor", 32),
    (CipherKind::Sm4, "sm4", 16),
    (CipherKind::None, "none", 0),
    (CipherKind::Aes128Gcm, "aes-128-gcm", 16),
    (CipherKind::Aes192Gcm, "aes-192-gcm", 24),
    (CipherKind::Aes256Gcm, "aes-256-gcm", 32),
    (CipherKind::ChaCha20Poly1305, "chacha20-poly1305", 32),
    (CipherKind::XChaCha20Poly1305, "xchacha20-poly1305", 32),
];

impl CipherKind {
    /// Every kind, whether its feature is on or not.
    pub fn all() -> impl Iterator<Item = Self> {
        KINDS.iter().map(|(kind, ..)| *kind)
    }

    /// Makes the cipher. An AEAD takes only [`Framing::KcpGo`], which adds nothing to it.
    ///
    /// # Errors
    /// * [`CipherError::KeyLength`]: `key` is too long or too short.
    /// * [`CipherError::FramingOfAead`]: an AEAD with [`Framing::Highway`].
    /// * [`CipherError::NotBuilt`], [`CipherError::FramingNotBuilt`]: the feature is off.
    pub fn build(self, key: &Key, framing: Framing) -> Result<Arc<dyn PacketCipher>, CipherError> {
        match (self.is_aead(), framing) {
            (false, _) => packet::build(self, key, framing),
            (true, Framing::KcpGo) => aead::build(self, key),
            (true, Framing::Highway) => Err(CipherError::FramingOfAead(self)),
        }
    }

    fn entry(self) -> &'static (Self, &'static str, usize) {
        KINDS.iter().find(|(kind, ..)| *kind == self).unwrap_or(&KINDS[0])
    }

    /// Its name in kcptun.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().1
    }

    /// Bytes of its key. `xor` takes a key of any length but 0: this is the length that kcptun gives it. `none` takes a key
    /// of any length, and needs it only for the tags of [`Framing::Highway`].
    #[must_use]
    pub fn key_len(self) -> usize {
        self.entry().2
    }

    /// Whether it authenticates packets itself, without a [`Framing`].
    #[must_use]
    pub const fn is_aead(self) -> bool {
        matches!(
            self,
            Self::Aes128Gcm
                | Self::Aes192Gcm
                | Self::Aes256Gcm
                | Self::ChaCha20Poly1305
                | Self::XChaCha20Poly1305
        )
    }
}

impl FromStr for CipherKind {
    type Err = CipherError;

    fn from_str(name: &str) -> Result<Self, CipherError> {
        let name = if name == "aes-256" { "aes" } else { name };
        KINDS.iter().find(|entry| entry.1 == name).map(|entry| entry.0).ok_or(CipherError::UnknownName)
    }
}

impl fmt::Display for CipherKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
