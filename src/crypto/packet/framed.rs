//! Makes a packet cipher of a checksum and an encryption.

use alloc::sync::Arc;
use core::fmt;

#[cfg(feature = "block-ciphers")]
use super::cfb::{Cfb, CfbCipher};
use super::{checksum::Checksum, encryption::Encryption};
use crate::crypto::{
    cipher::PacketCipher,
    error::{CipherError, OpenError, SealError},
    kind::CipherKind,
};

/// Bytes of the nonce.
pub(super) const NONCE_LEN: usize = 16;

/// Bytes of a nonce and the longest checksum.
const MAX_HEADER_LEN: usize = NONCE_LEN + 8;

/// A packet cipher that encrypts with `E` and puts the checksum `C` inside.
pub(super) struct Framed<E, C> {
    kind: CipherKind,
    encryption: E,
    checksum: C,
}

impl<E: Encryption, C: Checksum> Framed<E, C> {
    const HEADER_LEN: usize = NONCE_LEN + C::LEN;

    /// Checks packets with `checksum` and encrypts them with `encryption`. `kind` is its name in debug output.
    #[expect(clippy::new_ret_no_self, reason = "callers need the trait object only")]
    pub(super) fn new(kind: CipherKind, encryption: E, checksum: C) -> Arc<dyn PacketCipher> {
        Arc::new(Self { kind, encryption, checksum })
    }

    fn write_checksum(&self, packet: &mut [u8]) {
        let (header, payload) = packet.split_at_mut(Self::HEADER_LEN);
        self.checksum.write(payload, &mut header[NONCE_LEN..]);
    }

    fn check(&self, packet: &[u8]) -> Result<(), OpenError> {
        let (header, payload) = packet.split_at(Self::HEADER_LEN);
        self.checksum.check(payload, &header[NONCE_LEN..])
    }
}

#[cfg(feature = "block-ciphers")]
impl<C: Checksum> Framed<(), C> {
    /// Checks packets with `checksum` and encrypts them with the block cipher `B` in CFB.
    pub(super) fn in_cfb<B: CfbCipher>(
        kind: CipherKind,
        key: &[u8],
        checksum: C,
    ) -> Result<Arc<dyn PacketCipher>, CipherError> {
        let wrong_length = CipherError::KeyLength { kind, expected: kind.key_len(), actual: key.len() };
        let cipher = B::new_from_slice(key).map_err(|_| wrong_length)?;
        Ok(Framed::new(kind, Cfb::new(cipher), checksum))
    }
}

impl<E: Encryption, C: Checksum> PacketCipher for Framed<E, C> {
    fn header_len(&self) -> usize {
        Self::HEADER_LEN
    }

    fn max_packet_len(&self) -> usize {
        E::MAX_LEN
    }

    fn nonce_len(&self) -> usize {
        NONCE_LEN
    }

    fn is_authenticated(&self) -> bool {
        self.checksum.is_keyed()
    }

    fn identity(&self, packet: &[u8]) -> Option<u64> {
        let (nonce, rest) = packet.split_at_checked(NONCE_LEN)?;
        let front = nonce.first_chunk().filter(|_| E::BINDS_NONCE || !self.checksum.is_keyed());
        Some(C::identity(front.unwrap_or(&[0; 8]), rest.get(..C::LEN)?))
    }

    /// Decrypts a copy of the header. No encryption here needs the rest of the packet for that.
    fn sealed_identity(&self, packet: &[u8]) -> Option<u64> {
        let mut header = [0; MAX_HEADER_LEN];
        let header = header.get_mut(..Self::HEADER_LEN)?;
        header.copy_from_slice(packet.get(..Self::HEADER_LEN)?);
        self.encryption.decrypt(header);
        self.identity(header)
    }

    fn seal(&self, packet: &mut [u8]) -> Result<(), SealError> {
        if packet.len() < Self::HEADER_LEN {
            return Err(SealError::TooShort);
        }
        if packet.len() > E::MAX_LEN {
            return Err(SealError::TooLong);
        }
        self.write_checksum(packet);
        self.encryption.encrypt(packet);
        Ok(())
    }

    fn open(&self, packet: &mut [u8]) -> Result<(), OpenError> {
        if packet.len() < Self::HEADER_LEN {
            return Err(OpenError::TooShort);
        }
        if packet.len() > E::MAX_LEN {
            return Err(OpenError::TooLong);
        }
        self.encryption.decrypt(packet);
        self.check(packet)
    }

    fn seal_batch(&self, packets: &mut [u8], stride: usize) -> Result<(), SealError> {
        // A single packet may be shorter than `stride`.
        let stride = stride.min(packets.len());
        if stride < Self::HEADER_LEN {
            return if packets.is_empty() { Ok(()) } else { Err(SealError::TooShort) };
        }
        if stride > E::MAX_LEN {
            return Err(SealError::TooLong);
        }
        let last = packets.len() % stride;
        let too_short = last > 0 && last < Self::HEADER_LEN;
        let whole = packets.len() - if too_short { last } else { 0 };
        let packets = &mut packets[..whole];
        packets.chunks_mut(stride).for_each(|packet| self.write_checksum(packet));
        self.encryption.encrypt_batch(packets, stride);
        if too_short { Err(SealError::TooShort) } else { Ok(()) }
    }
}

impl<E: Encryption, C: Checksum> fmt::Debug for Framed<E, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PacketCipher({} with {})", self.kind, C::NAME)
    }
}
