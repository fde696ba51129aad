//! The AEADs of the crate `ring`: assembly for x86-64 and ARM that picks the best instructions of the CPU at run time.
//!
//! ring has AES-128-GCM, AES-256-GCM and ChaCha20-Poly1305. XChaCha20-Poly1305 is ChaCha20-Poly1305 under a key that is
//! derived for each packet. ring has no AES-192-GCM: RustCrypto serves it.

#[cfg(feature = "noise")]
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::{fmt, hint::black_box};

use ::ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, Tag,
    UnboundKey,
};
use chacha20::{R20, hchacha};
use zeroize::Zeroizing;

#[cfg(feature = "noise")]
use super::DetachedKey;
use super::{identity, nonce_limit};
use crate::crypto::{
    cipher::PacketCipher,
    error::{OpenError, SealError},
    kind::CipherKind,
};

/// The cipher of `kind` with `key`. `None` if ring does not have it.
pub(super) fn build(kind: CipherKind, key: &[u8]) -> Option<Arc<dyn PacketCipher>> {
    let algorithm = match kind {
        CipherKind::Aes128Gcm => &AES_128_GCM,
        CipherKind::Aes256Gcm => &AES_256_GCM,
        CipherKind::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        CipherKind::XChaCha20Poly1305 => {
            let key = Zeroizing::new(key.try_into().ok()?);
            return Some(Arc::new(RingAead(XChaCha20Key { key })));
        }
        _ => return None,
    };
    Some(Arc::new(RingAead(ErasedKey::new(algorithm, key)?)))
}

/// The key of `kind` whose nonce is handed in. `None` if ring does not have it.
#[cfg(feature = "noise")]
pub(super) fn build_detached(kind: CipherKind, key: &[u8; 32]) -> Option<Box<dyn DetachedKey>> {
    let algorithm = match kind {
        CipherKind::Aes256Gcm => &AES_256_GCM,
        CipherKind::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        _ => return None,
    };
    Some(Box::new(ErasedKey::new(algorithm, key)?))
}

#[cfg(feature = "noise")]
impl DetachedKey for ErasedKey {
    fn seal(&self, nonce: &[u8; NONCE_LEN], payload: &mut [u8]) -> Result<[u8; TAG_LEN], SealError> {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::empty(), payload);
        tag.ok().and_then(|tag| tag.as_ref().try_into().ok()).ok_or(SealError::TooLong)
    }

    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        payload: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), OpenError> {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place_separate_tag(nonce, Aad::empty(), Tag::from(*tag), payload, 0..);
        opened.map(|_| ()).map_err(|_| OpenError::BadTag)
    }
}

/// A packet cipher made of ring's keys: `nonce | ciphertext | tag`, without additional data.
struct RingAead<K, const NONCE_LEN: usize>(K)
where
    K: PacketKey<NONCE_LEN>;

/// Tells which of ring's keys a packet is sealed with, by the nonce in the packet.
trait PacketKey<const NONCE_LEN: usize>: fmt::Debug + Send + Sync {
    /// Calls `seal_or_open` with the key for `nonce`, and with the nonce that ring takes. `None` if ring refuses the key.
    fn with_key<R>(
        &self,
        nonce: &[u8; NONCE_LEN],
        seal_or_open: impl FnOnce(&LessSafeKey, Nonce) -> R,
    ) -> Option<R>;
}

/// Bytes of the tag, for all of ring's algorithms.
const TAG_LEN: usize = 16;

impl<K: PacketKey<NONCE_LEN>, const NONCE_LEN: usize> PacketCipher for RingAead<K, NONCE_LEN> {
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

    /// The nonce is not encrypted, so the identity is the same before and after sealing.
    fn sealed_identity(&self, packet: &[u8]) -> Option<u64> {
        self.identity(packet)
    }

    fn seal(&self, packet: &mut [u8]) -> Result<(), SealError> {
        let (nonce, payload, tag) = split(packet).ok_or(SealError::TooShort)?;
        // The payload's length is all that ring can object to.
        *tag = self
            .0
            .with_key(nonce, |key, nonce| key.seal_in_place_separate_tag(nonce, Aad::empty(), payload))
            .and_then(Result::ok)
            .and_then(|tag| tag.as_ref().try_into().ok())
            .ok_or(SealError::TooLong)?;
        Ok(())
    }

    fn open(&self, packet: &mut [u8]) -> Result<(), OpenError> {
        let (nonce, payload, tag) = split(packet).ok_or(OpenError::TooShort)?;
        let tag = Tag::from(*tag);
        self.0
            .with_key(nonce, |key, nonce| {
                key.open_in_place_separate_tag(nonce, Aad::empty(), tag, payload, 0..).is_ok()
            })
            .filter(|genuine| *genuine)
            .map(|_genuine| ())
            .ok_or(OpenError::BadTag)
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

impl<K: PacketKey<NONCE_LEN>, const NONCE_LEN: usize> fmt::Debug for RingAead<K, NONCE_LEN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RingAead").field(&self.0).finish()
    }
}

/// A key of ring that is overwritten when it is dropped. ring itself leaves its keys in memory.
struct ErasedKey(LessSafeKey);

impl ErasedKey {
    fn new(algorithm: &'static Algorithm, key: &[u8]) -> Option<Self> {
        UnboundKey::new(algorithm, key).ok().map(LessSafeKey::new).map(Self)
    }

    /// Puts a key of zeros in the place of the key.
    fn erase(&mut self) {
        let algorithm = self.0.algorithm();
        let zeros = [0; 32];
        if let Some(zeros) = zeros.get(..algorithm.key_len())
            && let Ok(key) = UnboundKey::new(algorithm, zeros)
        {
            self.0 = LessSafeKey::new(key);
            // Without a reader, the compiler could leave out a write to memory that is about to be freed.
            black_box(&self.0);
        }
    }
}

impl Drop for ErasedKey {
    fn drop(&mut self) {
        self.erase();
    }
}

impl PacketKey<NONCE_LEN> for ErasedKey {
    #[inline]
    fn with_key<R>(
        &self,
        nonce: &[u8; NONCE_LEN],
        seal_or_open: impl FnOnce(&LessSafeKey, Nonce) -> R,
    ) -> Option<R> {
        Some(seal_or_open(&self.0, Nonce::assume_unique_for_key(*nonce)))
    }
}

impl fmt::Debug for ErasedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.algorithm().fmt(f)
    }
}

/// The key of XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03, section 2.3).
struct XChaCha20Key {
    key: Zeroizing<[u8; 32]>,
}

/// Bytes of XChaCha20's nonce.
const X_NONCE_LEN: usize = 24;
/// Bytes of that nonce which derive the packet's key. The other 8 end the nonce for that key.
const X_KEY_NONCE_LEN: usize = 16;

impl PacketKey<X_NONCE_LEN> for XChaCha20Key {
    /// Derives the key by HChaCha20. It is not erased afterwards: it opens this one packet only.
    #[inline]
    fn with_key<R>(
        &self,
        nonce: &[u8; X_NONCE_LEN],
        seal_or_open: impl FnOnce(&LessSafeKey, Nonce) -> R,
    ) -> Option<R> {
        let (key_nonce, rest) = nonce.split_first_chunk::<X_KEY_NONCE_LEN>()?;
        let key = hchacha::<R20>((&*self.key).into(), key_nonce.into());
        let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &key).ok()?);
        let mut nonce = [0; NONCE_LEN];
        nonce[NONCE_LEN - rest.len()..].copy_from_slice(rest);
        Some(seal_or_open(&key, Nonce::assume_unique_for_key(nonce)))
    }
}

impl fmt::Debug for XChaCha20Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("XCHACHA20_POLY1305")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_erased_key_seals_like_a_key_of_zeros() {
        for algorithm in [&AES_128_GCM, &AES_256_GCM, &CHACHA20_POLY1305] {
            let key = [0x5A; 32];
            let mut erased = ErasedKey::new(algorithm, &key[..algorithm.key_len()]).unwrap();
            erased.erase();
            let zeros = ErasedKey::new(algorithm, &[0; 32][..algorithm.key_len()]).unwrap();
            let mut packets = [[1; NONCE_LEN + 100 + TAG_LEN]; 2];
            for (key, packet) in [erased, zeros].into_iter().zip(&mut packets) {
                RingAead(key).seal(packet).unwrap();
            }
            assert_eq!(packets[0], packets[1]);
        }
    }
}
