//! Why a handshake or a packet was refused.

use core::fmt;

use super::{keys::PublicKey, pattern::Pattern};

/// Why a message of a handshake was refused, or was not made.
///
/// Messages come over UDP, where anybody can send one. So a refused message is no reason to give up: the true one may still come. It is
/// what to tell a user if none does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoiseError {
    /// It is no message of this handshake: too short, too long, or not the one that is due.
    Malformed,
    /// The peer speaks another version of key agreement.
    Version {
        /// The peer's version.
        peer: u8,
    },
    /// The peer has asked for another pattern.
    Pattern {
        /// The pattern of this end.
        own: Pattern,
        /// The peer's. `None` where this end does not know it.
        peer: Option<Pattern>,
    },
    /// The session's cipher is not known, or its feature is off.
    Cipher,
    /// The initiator expects a responder with another public key.
    UnknownServerKey,
    /// The shared keys differ. Where the message was changed on its way, or what both ends say beside it differs, it looks the same.
    WrongPsk,
    /// It was changed on its way, belongs to another handshake, or its sender does not have the keys that it says.
    Forged,
    /// The message is the peer's own, but what was said beside it is not what the peer has said.
    Context,
    /// The peer has this public key, and it is not one of those trusted.
    UntrustedKey(PublicKey),
    /// The peer says that it has refused our message. Nobody vouches for that: it tells a user what may be wrong, and a handshake goes on
    /// as if nothing had come.
    Refused(Refusal),
    /// There is more early data than a first message carries, or the pattern's first message carries none.
    EarlyData,
    /// The handshake is over.
    Over,
    /// The configuration has no keys for this end's part: an [`Initiator`](super::Initiator) is needed to connect, a
    /// [`Responder`](super::Responder) to accept.
    Unconfigured,
    /// The public key of a peer is one that must not be used: the shared secret would be no secret.
    WeakKey,
}

impl NoiseError {
    /// What to tell the peer, so that its user learns what does not match. `None` where there is nothing to tell to somebody who may
    /// be anyone.
    #[must_use]
    pub const fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Version { .. } => Some(Refusal::Version { peer: super::VERSION }),
            Self::Pattern { .. } => Some(Refusal::Pattern),
            Self::Cipher => Some(Refusal::Cipher),
            Self::UnknownServerKey => Some(Refusal::UnknownServerKey),
            Self::WrongPsk => Some(Refusal::WrongPsk),
            Self::UntrustedKey(_) => Some(Refusal::UntrustedKey),
            _ => None,
        }
    }
}

impl fmt::Display for NoiseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("not a message of this handshake"),
            Self::Version { peer } => {
                write!(f, "the peer's key agreement has version {peer}, not {}", super::VERSION)
            }
            Self::Pattern { own, peer: Some(peer) } => {
                write!(f, "the peer asks for the pattern {peer}, not {own}")
            }
            Self::Pattern { own, peer: None } => write!(f, "the peer asks for an unknown pattern, not {own}"),
            Self::Cipher => f.write_str("the session's cipher is not known, or not built in"),
            Self::UnknownServerKey => f.write_str("the initiator expects another public key"),
            Self::WrongPsk => f.write_str("the shared keys differ"),
            Self::Forged => f.write_str("not from the peer, or changed on the way"),
            Self::Context => f.write_str("what was said beside the handshake was changed"),
            Self::UntrustedKey(key) => write!(f, "the peer's key is not trusted: {key}"),
            Self::Refused(refusal) => write!(f, "the peer refuses: {refusal}"),
            Self::EarlyData => f.write_str("the first message has no room for so much early data"),
            Self::Over => f.write_str("the handshake is over"),
            Self::Unconfigured => f.write_str("the configuration has no keys for this end of a handshake"),
            Self::WeakKey => f.write_str("the peer's public key must not be used"),
        }
    }
}

impl core::error::Error for NoiseError {}

/// Why there was no agreement on keys: the last [`NoiseError`] of a session that ended for it, without the key that was not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoiseFailure {
    /// [`NoiseError::Malformed`]
    Malformed,
    /// [`NoiseError::Version`]
    Version {
        /// The peer's version.
        peer: u8,
    },
    /// [`NoiseError::Pattern`]
    Pattern,
    /// [`NoiseError::Cipher`]
    Cipher,
    /// [`NoiseError::UnknownServerKey`]
    UnknownServerKey,
    /// [`NoiseError::WrongPsk`]
    WrongPsk,
    /// [`NoiseError::Forged`]
    Forged,
    /// [`NoiseError::Context`]
    Context,
    /// The peer's key is not one of those trusted: [`Trust`](super::Trust) was shown it.
    UntrustedKey,
    /// The peer has refused our message, and says why.
    Refused(Refusal),
    /// [`NoiseError::WeakKey`]
    WeakKey,
    /// [`NoiseError::Unconfigured`]
    Unconfigured,
    /// [`NoiseError::EarlyData`]
    EarlyData,
    /// [`NoiseError::Over`]
    Over,
}

impl From<NoiseError> for NoiseFailure {
    fn from(error: NoiseError) -> Self {
        match error {
            NoiseError::Malformed => Self::Malformed,
            NoiseError::Version { peer } => Self::Version { peer },
            NoiseError::Pattern { .. } => Self::Pattern,
            NoiseError::Cipher => Self::Cipher,
            NoiseError::UnknownServerKey => Self::UnknownServerKey,
            NoiseError::WrongPsk => Self::WrongPsk,
            NoiseError::Forged => Self::Forged,
            NoiseError::Context => Self::Context,
            NoiseError::UntrustedKey(_) => Self::UntrustedKey,
            NoiseError::Refused(refusal) => Self::Refused(refusal),
            NoiseError::WeakKey => Self::WeakKey,
            NoiseError::Unconfigured => Self::Unconfigured,
            NoiseError::EarlyData => Self::EarlyData,
            NoiseError::Over => Self::Over,
        }
    }
}

impl fmt::Display for NoiseFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = match *self {
            Self::Malformed => NoiseError::Malformed,
            Self::Version { peer } => NoiseError::Version { peer },
            Self::Pattern => return f.write_str("the peer has another pattern"),
            Self::Cipher => NoiseError::Cipher,
            Self::UnknownServerKey => NoiseError::UnknownServerKey,
            Self::WrongPsk => NoiseError::WrongPsk,
            Self::Forged => NoiseError::Forged,
            Self::Context => NoiseError::Context,
            Self::UntrustedKey => return f.write_str("the peer's key is not trusted"),
            Self::Refused(refusal) => NoiseError::Refused(refusal),
            Self::WeakKey => NoiseError::WeakKey,
            Self::Unconfigured => NoiseError::Unconfigured,
            Self::EarlyData => NoiseError::EarlyData,
            Self::Over => NoiseError::Over,
        };
        error.fmt(f)
    }
}

impl core::error::Error for NoiseFailure {}

/// What an end tells its peer about a message that it has refused, in four bytes: less than what it answers. Whether to send it is the
/// application's decision, since it shows that somebody is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// It speaks this version of key agreement.
    Version {
        /// The version of who refuses.
        peer: u8,
    },
    /// It has another pattern.
    Pattern,
    /// It does not have the session's cipher.
    Cipher,
    /// It has another public key than the one expected.
    UnknownServerKey,
    /// It has another shared key.
    WrongPsk,
    /// It does not trust the public key.
    UntrustedKey,
}

impl Refusal {
    /// The message that tells it, to be sent where an answer would be.
    #[must_use]
    pub const fn to_message(self) -> [u8; super::message::HEADER_LEN] {
        let reason = match self {
            Self::Version { .. } => 1,
            Self::Pattern => 2,
            Self::Cipher => 3,
            Self::UnknownServerKey => 4,
            Self::WrongPsk => 5,
            Self::UntrustedKey => 6,
        };
        [super::VERSION, super::message::REFUSAL, reason, 0]
    }

    /// The refusal in a message, whatever version its sender speaks. `None` for other messages, and for reasons of versions to come.
    pub(in crate::proto) fn from_message(message: &[u8]) -> Option<Self> {
        let [version, super::message::REFUSAL, reason, 0] = *message else { return None };
        Some(match reason {
            1 => Self::Version { peer: version },
            2 => Self::Pattern,
            3 => Self::Cipher,
            4 => Self::UnknownServerKey,
            5 => Self::WrongPsk,
            6 => Self::UntrustedKey,
            _ => return None,
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { peer } => {
                write!(f, "it speaks version {peer} of key agreement, not {}", super::VERSION)
            }
            Self::Pattern => f.write_str("it has another pattern"),
            Self::Cipher => f.write_str("it does not have the session's cipher"),
            Self::UnknownServerKey => f.write_str("it has another public key than the one expected"),
            Self::WrongPsk => f.write_str("it has another shared key"),
            Self::UntrustedKey => f.write_str("it does not trust our public key"),
        }
    }
}

/// Why a packet was not sealed. It must not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SealPacketError {
    /// It is shorter than header and tag.
    TooShort,
    /// It is longer than the cipher takes.
    TooLong,
    /// 2^33 packets were sealed under one key, and the peer has not shown that it has heard of it: the session must end.
    KeyUsedUp,
}

impl fmt::Display for SealPacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "packet shorter than its header and tag",
            Self::TooLong => "packet longer than the cipher takes",
            Self::KeyUsedUp => "the key is used up, and the peer is silent",
        })
    }
}

impl core::error::Error for SealPacketError {}

/// Why a packet was not opened. It should be forgotten; the session is as it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenPacketError {
    /// It is shorter than header and tag.
    TooShort,
    /// It was received before.
    Replayed,
    /// It is so late that it is not known whether it was received before, or that its key is gone.
    TooOld,
    /// It was forged or changed on its way, or is of another session or direction.
    BadTag,
}

impl fmt::Display for OpenPacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "packet shorter than its header and tag",
            Self::Replayed => "received before",
            Self::TooOld => "too late to be told from one received before",
            Self::BadTag => "wrong tag",
        })
    }
}

impl core::error::Error for OpenPacketError {}
