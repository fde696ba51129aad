//! Makes a packet cipher of any RustCrypto AEAD.

use core::fmt;

use aead::{AeadCore, AeadInOut, Nonce, Tag, array::typenum::Unsigned};

use super::{identity, nonce_limit};
use crate::crypto::{
    cipher::PacketCipher,
    error::{OpenError, SealError},
};

/// A [`PacketCipher`] made of any cipher that has the traits of the crate [`aead`] 0.6 ([`AeadInOut`]). The packet is
/// `nonce | ciphertext | tag`, without additional data.
///
/// [`CipherKind`](crate::crypto::CipherKind) makes kcp-go's AEADs. This one takes others, for peers that both run this
/// crate. Nonces are random, so a good choice is a cipher that stays secure when a nonce is used twice:
///
/// ```
/// use aes_gcm_siv::{Aes256GcmSiv, KeyInit};
/// use kcp9::crypto::{Aead, OpenError, PacketCipher};
///
/// let cipher = Aead::new(Aes256GcmSiv::new(&[7; 32].into()));
/// assert_eq!((cipher.header_len(), cipher.trailer_len()), (12, 16));
///
/// let mut packet = [0; 12 + 5 + 16];
/// packet[..12].copy_from_slice(b"a new nonce!");
/// packet[12..17].copy_from_slice(b"hello");
/// cipher.seal(&mut packet)?;
/// assert_ne!(&packet[12..17], b"hello");
///
/// let mut forged = packet;
/// forged[13] ^= 1;
/// assert_eq!(cipher.open(&mut forged), Err(OpenError::BadTag));
///
/// cipher.open(&mut packet).expect("sealed above");
/// assert_eq!(&packet[12..17], b"hello");
/// # Ok::<(), kcp9::crypto::SealError>(())
/// ```
///
/// RustCrypto's ciphers erase their keys when they are dropped, if their feature `zeroize` is on.
pub struct Aead<A> {
    cipher: A,
}

impl<A: AeadInOut> Aead<A> {
    /// A packet cipher made of `cipher`, which has its key.
    #[must_use]
    pub const fn new(cipher: A) -> Self {
        Self { cipher }
    }
}

const fn nonce_len<A: AeadCore>() -> usize {
    <A::NonceSize as Unsigned>::USIZE
}

const fn tag_len<A: AeadCore>() -> usize {
    <A::TagSize as Unsigned>::USIZE
}

impl<A: AeadInOut + Send + Sync> PacketCipher for Aead<A> {
    fn header_len(&self) -> usize {
        nonce_len::<A>()
    }

    fn trailer_len(&self) -> usize {
        tag_len::<A>()
    }

    fn nonce_len(&self) -> usize {
        nonce_len::<A>()
    }

    fn is_authenticated(&self) -> bool {
        true
    }

    /// The number of packets at which two random nonces are equal with a probability of 2^-33: 2^32 for nonces of 12 bytes.
    /// Nonces of 24 bytes have no limit.
    fn nonce_limit(&self) -> Option<u64> {
        nonce_limit(nonce_len::<A>())
    }

    /// The first 8 bytes of the nonce. `None` if the nonce is shorter.
    fn identity(&self, packet: &[u8]) -> Option<u64> {
        identity(packet, nonce_len::<A>())
    }

    /// The nonce is not encrypted, so the identity is the same before and after sealing.
    fn sealed_identity(&self, packet: &[u8]) -> Option<u64> {
        self.identity(packet)
    }

    fn seal(&self, packet: &mut [u8]) -> Result<(), SealError> {
        let (nonce, payload, tag) =
            split(packet, nonce_len::<A>(), tag_len::<A>()).ok_or(SealError::TooShort)?;
        let nonce: &Nonce<A> = (&*nonce).try_into().map_err(|_| SealError::TooShort)?;
        let made =
            self.cipher.encrypt_inout_detached(nonce, &[], payload.into()).map_err(|_| SealError::TooLong)?;
        tag.copy_from_slice(&made);
        Ok(())
    }

    fn open(&self, packet: &mut [u8]) -> Result<(), OpenError> {
        let (nonce, payload, tag) =
            split(packet, nonce_len::<A>(), tag_len::<A>()).ok_or(OpenError::TooShort)?;
        let nonce: &Nonce<A> = (&*nonce).try_into().map_err(|_| OpenError::TooShort)?;
        let tag: &Tag<A> = (&*tag).try_into().map_err(|_| OpenError::TooShort)?;
        self.cipher.decrypt_inout_detached(nonce, &[], payload.into(), tag).map_err(|_| OpenError::BadTag)
    }
}

/// Nonce, payload and tag of a packet.
fn split(packet: &mut [u8], nonce_len: usize, tag_len: usize) -> Option<(&mut [u8], &mut [u8], &mut [u8])> {
    let (nonce, rest) = packet.split_at_mut_checked(nonce_len)?;
    let payload_len = rest.len().checked_sub(tag_len)?;
    let (payload, tag) = rest.split_at_mut_checked(payload_len)?;
    Some((nonce, payload, tag))
}

/// Prints the lengths only, so that no `A` can print its key.
impl<A: AeadCore> fmt::Debug for Aead<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aead")
            .field("nonce_len", &nonce_len::<A>())
            .field("tag_len", &tag_len::<A>())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "aes-gcm"))]
mod tests {
    use aes_gcm::{
        AesGcm, KeyInit,
        aead::consts::{U7, U13},
        aes::Aes128,
    };

    use super::*;

    #[test]
    fn nonce_and_tag_are_as_long_as_the_cipher_has_them() {
        let cipher = Aead::new(AesGcm::<Aes128, U7, U13>::new(&[3; 16].into()));
        assert_eq!((cipher.header_len(), cipher.nonce_len(), cipher.trailer_len()), (7, 7, 13));
        assert_eq!(cipher.nonce_limit(), Some(1 << 12));

        let mut packet = [9; 7 + 50 + 13];
        assert_eq!(cipher.identity(&packet), None);
        cipher.seal(&mut packet).unwrap();
        assert_eq!(packet[..7], [9; 7]);
        assert_ne!(packet[7..57], [9; 50]);
        let mut forged = packet;
        forged[69] ^= 1;
        assert_eq!(cipher.open(&mut forged), Err(OpenError::BadTag));
        cipher.open(&mut packet).unwrap();
        assert_eq!(packet[..57], [9; 57]);
        assert_eq!(cipher.open(&mut packet[..19]), Err(OpenError::TooShort));
    }
}
