//! The patterns of handshakes and the ciphers of packets, with their numbers on the wire.

use core::fmt;

use crate::crypto::CipherKind;

/// Who knows what of whom before a handshake: the pattern, by its name in the Noise Protocol Framework (revision 34). The hash is
/// BLAKE2s, the curve X25519, and the handshake's own cipher ChaCha20-Poly1305 in all of them.
///
/// | pattern | messages | the initiator has | the responder has | the initiator learns |
/// |---|---|---|---|---|
/// | `NnPsk0` | 2 | a shared key | the same | that the peer has the shared key |
/// | `NkPsk0` | 2 | the responder's public key and a shared key | a key pair and the shared key | that it is that responder |
/// | `XxPsk3` | 3 | a key pair and a shared key | a key pair and the shared key | the responder's public key |
/// | `Nk` | 2 | the responder's public key | a key pair | that it is that responder |
/// | `Xx` | 3 | a key pair | a key pair | the responder's public key |
///
/// In `NnPsk0` and `NkPsk0` the responder learns that the peer has the shared key, in `XxPsk3` and `Xx` the initiator's public key,
/// in `Nk` nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pattern {
    /// A shared key only.
    NnPsk0,
    /// The responder's key is known, and a key is shared.
    NkPsk0,
    /// Both ends show their keys, and a key is shared.
    XxPsk3,
    /// The responder's key is known.
    Nk,
    /// Both ends show their keys.
    Xx,
}

/// The pattern, its number on the wire, and the name of its protocol.
const PATTERNS: [(Pattern, u8, &str); 5] = [
    (Pattern::NnPsk0, 0, "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s"),
    (Pattern::NkPsk0, 1, "Noise_NKpsk0_25519_ChaChaPoly_BLAKE2s"),
    (Pattern::XxPsk3, 2, "Noise_XXpsk3_25519_ChaChaPoly_BLAKE2s"),
    (Pattern::Nk, 3, "Noise_NK_25519_ChaChaPoly_BLAKE2s"),
    (Pattern::Xx, 4, "Noise_XX_25519_ChaChaPoly_BLAKE2s"),
];

impl Pattern {
    /// Every pattern.
    pub fn all() -> impl Iterator<Item = Self> {
        PATTERNS.iter().map(|(pattern, ..)| *pattern)
    }

    fn entry(self) -> &'static (Self, u8, &'static str) {
        PATTERNS.iter().find(|entry| entry.0 == self).unwrap_or(&PATTERNS[0])
    }

    /// The name of its protocol, as the Noise Protocol Framework spells it.
    #[must_use]
    pub fn protocol_name(self) -> &'static str {
        self.entry().2
    }

    pub(super) fn number(self) -> u8 {
        self.entry().1
    }

    pub(super) fn from_number(number: u8) -> Option<Self> {
        PATTERNS.iter().find(|entry| entry.1 == number).map(|entry| entry.0)
    }

    /// Whether the initiator knows the responder's key before the handshake.
    pub(super) const fn knows_responder(self) -> bool {
        matches!(self, Self::Nk | Self::NkPsk0)
    }

    /// Whether the responder has a static key, and so a secret that others do not have.
    pub(super) const fn responder_has_key(self) -> bool {
        self.knows_responder() || self.sends_keys()
    }

    /// Whether both ends send their static keys, which takes a third message.
    pub(super) const fn sends_keys(self) -> bool {
        matches!(self, Self::Xx | Self::XxPsk3)
    }

    /// Whether the first message may carry data of the application: it is encrypted, and there are keys after the answer.
    #[must_use]
    pub const fn takes_early_data(self) -> bool {
        matches!(self, Self::NnPsk0 | Self::Nk | Self::NkPsk0)
    }

    /// The message that mixes in the shared key: 0 is before the first.
    pub(super) const fn psk_position(self) -> Option<u8> {
        match self {
            Self::NnPsk0 | Self::NkPsk0 => Some(0),
            Self::XxPsk3 => Some(3),
            Self::Nk | Self::Xx => None,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.protocol_name();
        f.write_str(name.split('_').nth(1).unwrap_or(name))
    }
}

/// The cipher of the packets of a session. The initiator chooses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SessionCipher {
    /// ChaCha20-Poly1305: it is in every build of this module, and takes the same time whatever it encrypts, also where the processor
    /// has no instructions for AES.
    #[default]
    ChaCha20Poly1305,
    /// AES-256-GCM, with the feature `aes-gcm` or `ring`: the faster one where the processor has instructions for it.
    Aes256Gcm,
}

impl SessionCipher {
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Aes256Gcm => 0,
            Self::ChaCha20Poly1305 => 1,
        }
    }

    /// `None` where there is no such cipher, or where its feature is off.
    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Self::Aes256Gcm, Self::ChaCha20Poly1305]
            .into_iter()
            .find(|cipher| cipher.number() == number && cipher.is_built())
    }

    /// Whether its feature is on.
    pub(super) const fn is_built(self) -> bool {
        match self {
            Self::ChaCha20Poly1305 => true,
            Self::Aes256Gcm => cfg!(feature = "aes-gcm"),
        }
    }

    pub(super) const fn kind(self) -> CipherKind {
        match self {
            Self::Aes256Gcm => CipherKind::Aes256Gcm,
            Self::ChaCha20Poly1305 => CipherKind::ChaCha20Poly1305,
        }
    }
}
