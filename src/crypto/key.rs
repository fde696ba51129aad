//! Secret keys.

use alloc::vec::Vec;
use core::fmt;

use zeroize::Zeroizing;

use super::{error::CipherError, kind::CipherKind};

/// A secret key. It is zeroed when it is dropped, and never printed.
///
/// ```
/// use kcp9::crypto::{CipherError, CipherKind, Framing, Key};
///
/// let key = Key::from_bytes(b"sixteen bytes ok");
/// # #[cfg(feature = "aes-128")]
/// assert!(CipherKind::Aes128.build(&key, Framing::KcpGo).is_ok());
/// assert!(matches!(CipherKind::Aes256.build(&key, Framing::KcpGo), Err(CipherError::KeyLength { .. })));
/// assert_eq!(format!("{key:?}"), "Key(..)");
/// ```
#[derive(Clone)]
pub struct Key {
    bytes: Zeroizing<Vec<u8>>,
    /// Made from a password. Such a key is long enough for every cipher, and each takes the bytes that it needs from the
    /// front.
    derived: bool,
}

impl Key {
    /// A key of exactly these bytes. There must be as many as the cipher takes ([`CipherKind::key_len`]).
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { bytes: Zeroizing::new(bytes.to_vec()), derived: false }
    }

    /// A key from which each cipher takes the bytes that it needs.
    #[cfg(feature = "password")]
    pub(super) fn from_derived(bytes: &[u8; 32]) -> Self {
        Self { bytes: Zeroizing::new(bytes.to_vec()), derived: true }
    }

    /// The key, if it has exactly 32 bytes.
    #[cfg(feature = "noise")]
    pub(crate) fn as_32_bytes(&self) -> Option<&[u8; 32]> {
        self.bytes.as_slice().try_into().ok()
    }

    /// The bytes that `kind` takes as its key.
    pub(super) fn bytes_for(&self, kind: CipherKind) -> Result<&[u8], CipherError> {
        let expected = kind.key_len();
        let actual = self.bytes.len();
        match kind {
            CipherKind::None => return Ok(&self.bytes),
            CipherKind::Xor if actual > 0 => return Ok(&self.bytes),
            _ => {}
        }
        match self.bytes.get(..expected) {
            Some(bytes) if self.derived || actual == expected => Ok(bytes),
            _ => Err(CipherError::KeyLength { kind, expected, actual }),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}
