//! Packets of nonce, payload and tag around an AEAD that works in place.

use core::fmt;

use super::{identity, nonce_limit};
use crate::crypto::{
    cipher::PacketCipher,
    error::{OpenError, SealError},
};

/// Bytes of the tag.
pub(super) const TAG_LEN: usize = 16;

/// An AEAD whose nonces have `NONCE_LEN` bytes, without additional data.
pub(super) trait InPlace<const NONCE_LEN: usize>: fmt::Debug + Send + Sync {
    /// Encrypts `payload` and writes the tag.
    fn seal(
        &self,
        nonce: &[u8; NONCE_LEN],
        payload: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> Result<(), SealError>;

    /// Decrypts `payload` if the tag is right.
    fn open(&self, nonce: &[u8; NONCE_LEN], payload: &mut [u8], tag: &[u8; TAG_LEN])
    -> Result<(), OpenError>;
}

/// `A` as a packet cipher: `nonce | ciphertext | tag`.
pub(super) struct NonceAndTag<A, const NONCE_LEN: usize>(pub(super) A);

impl<A: InPlace<NONCE_LEN>, const NONCE_LEN: usize> PacketCipher for NonceAndTag<A, NONCE_LEN> {
    fn header_len(&self) -> usize {
        NONCE_LEN
    }

    fn trailer_len(&self) -> usize {
        TAG_LEN
    }

    fn nonce_len(&self) -> usize {
        NONCE_LEN
    }

    fn is_authenticated(&self) -> bool {
        true
    }

    fn nonce_limit(&self) -> Option<u64> {
        nonce_limit(NONCE_LEN)
    }

    fn identity(&self, packet: &[u8]) -> Option<u64> {
        identity(packet, NONCE_LEN)
    }

    /// The nonce is in clear.
    fn sealed_identity(&self, packet: &[u8]) -> Option<u64> {
        self.identity(packet)
    }

    fn seal(&self, packet: &mut [u8]) -> Result<(), SealError> {
        let (nonce, payload, tag) = split(packet).ok_or(SealError::TooShort)?;
        self.0.seal(nonce, payload, tag)
    }

    fn open(&self, packet: &mut [u8]) -> Result<(), OpenError> {
        let (nonce, payload, tag) = split(packet).ok_or(OpenError::TooShort)?;
        self.0.open(nonce, payload, tag)
    }
}

impl<A: fmt::Debug, const NONCE_LEN: usize> fmt::Debug for NonceAndTag<A, NONCE_LEN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Nonce, payload and tag of a packet.
fn split<const NONCE_LEN: usize>(
    packet: &mut [u8],
) -> Option<(&[u8; NONCE_LEN], &mut [u8], &mut [u8; TAG_LEN])> {
    let (nonce, rest) = packet.split_first_chunk_mut()?;
    let (payload, tag) = rest.split_last_chunk_mut()?;
    Some((nonce, payload, tag))
}
