//! Error types of packet encryption.

use core::fmt;

use super::kind::CipherKind;

/// Why a packet was not sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealError {
    /// The packet is shorter than its header and trailer.
    TooShort,
    /// The packet is longer than the cipher takes.
    TooLong,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "packet shorter than its header and trailer",
            Self::TooLong => "packet longer than the cipher takes",
        })
    }
}

/// Why a packet was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The packet is shorter than its header and trailer.
    TooShort,
    /// The packet is longer than the cipher takes.
    TooLong,
    /// The checksum is wrong: the packet was damaged, or sealed with another key.
    BadChecksum,
    /// The tag is wrong: the packet was forged, damaged, or sealed with another key.
    BadTag,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "packet shorter than its header and trailer",
            Self::TooLong => "packet longer than the cipher takes",
            Self::BadChecksum => "wrong checksum",
            Self::BadTag => "wrong tag",
        })
    }
}

/// Why a cipher was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CipherError {
    /// No cipher has this name.
    UnknownName,
    /// The crate was built without the cipher's feature.
    NotBuilt(CipherKind),
    /// The crate was built without the feature `highway`.
    FramingNotBuilt,
    /// The key has the wrong length for the cipher.
    KeyLength {
        /// The cipher.
        kind: CipherKind,
        /// Bytes that the cipher takes.
        expected: usize,
        /// Bytes of the key.
        actual: usize,
    },
    /// An AEAD was asked to use [`Framing::Highway`](super::Framing::Highway). It checks packets itself and has no framing.
    FramingOfAead(CipherKind),
}

impl fmt::Display for CipherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName => f.write_str("not a cipher's name"),
            Self::NotBuilt(kind) => write!(f, "kcp9 was built without the feature for {kind}"),
            Self::FramingNotBuilt => f.write_str("kcp9 was built without the feature `highway`"),
            Self::KeyLength { kind, expected, actual } => {
                write!(f, "{kind} takes a key of {expected} bytes, not {actual}")
            }
            Self::FramingOfAead(kind) => write!(f, "{kind} checks packets itself and takes no framing"),
        }
    }
}

impl core::error::Error for SealError {}
impl core::error::Error for OpenError {}
impl core::error::Error for CipherError {}

#[cfg(feature = "std")]
impl From<CipherError> for std::io::Error {
    fn from(error: CipherError) -> Self {
        Self::new(std::io::ErrorKind::InvalidInput, error)
    }
}
