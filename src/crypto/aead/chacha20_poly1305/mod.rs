//! ChaCha20-Poly1305 (RFC 8439) and XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03) for x86-64 CPUs with AVX-512 and
//! its IFMA.
//!
//! A packet of 1,400 bytes is two passes of ChaCha20: the first one yields Poly1305's key, and while the second one
//! keeps the vector units busy, the scalar ones compute the powers of r. A packet is decrypted only after its tag has
//! been checked, by a key stream made ahead: a forged one keeps its ciphertext.

mod chacha20;
mod poly1305;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use core::fmt;

use zeroize::Zeroizing;

use self::chacha20::{Ahead, Keystream};
use super::nonce_and_tag::{InPlace, NonceAndTag, TAG_LEN};
use crate::crypto::{
    cipher::PacketCipher,
    error::{OpenError, SealError},
    kind::CipherKind,
};

/// Bytes of ChaCha20's nonce.
const NONCE_LEN: usize = 12;
/// Bytes of XChaCha20's nonce.
const X_NONCE_LEN: usize = 24;
/// Longest payload: the number of a block has 32 bits, and the first block is Poly1305's key.
const MAX_PAYLOAD_LEN: u64 = (u32::MAX as u64) * chacha20::BLOCK as u64;

/// The cipher of `kind`, if it is one of the two and the CPU has the instruction sets.
pub(super) fn build(kind: CipherKind, key: &[u8]) -> Option<Arc<dyn PacketCipher>> {
    let cpu = Avx512::detect()?;
    match kind {
        CipherKind::ChaCha20Poly1305 => Some(Arc::new(NonceAndTag(Cipher::<NONCE_LEN>::new(cpu, key)?))),
        CipherKind::XChaCha20Poly1305 => Some(Arc::new(NonceAndTag(Cipher::<X_NONCE_LEN>::new(cpu, key)?))),
        _ => None,
    }
}

/// Proof that the CPU has AVX-512 F, VL, BW and IFMA, and BMI2.
#[derive(Clone, Copy)]
struct Avx512(());

impl Avx512 {
    fn detect() -> Option<Self> {
        cpu_has!("avx512f", "avx512vl", "avx512bw", "avx512ifma", "bmi2").then_some(Self(()))
    }
}

/// Little-endian words, if there are `N`.
fn words<const N: usize>(bytes: &[u8]) -> Option<[u32; N]> {
    let (words, rest) = bytes.as_chunks::<4>();
    let words: &[[u8; 4]; N] = words.try_into().ok().filter(|_| rest.is_empty())?;
    Some(words.map(u32::from_le_bytes))
}

/// ChaCha20-Poly1305, or XChaCha20-Poly1305 if the nonce has [`X_NONCE_LEN`] bytes.
struct Cipher<const NONCE_LEN: usize> {
    cpu: Avx512,
    key: Zeroizing<[u32; 8]>,
}

impl<const NONCE_LEN: usize> Cipher<NONCE_LEN> {
    fn new(cpu: Avx512, key: &[u8]) -> Option<Self> {
        Some(Self { cpu, key: Zeroizing::new(words(key)?) })
    }

    /// The key and the nonce of ChaCha20 for the packet with `nonce`.
    #[inline]
    fn packet_key(&self, nonce: &[u8]) -> Option<([u32; 8], [u32; 3])> {
        if NONCE_LEN == X_NONCE_LEN {
            let [n0, n1, n2, n3, n4, n5] = words(nonce)?;
            Some((chacha20::hchacha20(self.cpu, &self.key, &[n0, n1, n2, n3]), [0, n4, n5]))
        } else {
            Some((*self.key, words(nonce)?))
        }
    }
}

impl<const NONCE_LEN: usize> InPlace<NONCE_LEN> for Cipher<NONCE_LEN> {
    fn seal(
        &self,
        nonce: &[u8; NONCE_LEN],
        payload: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> Result<(), SealError> {
        if payload.len() as u64 > MAX_PAYLOAD_LEN {
            return Err(SealError::TooLong);
        }
        let (key, nonce) = self.packet_key(nonce).ok_or(SealError::TooShort)?;
        let key = Keystream::new(self.cpu, &key, &nonce).encrypt(payload);
        *tag = key.tag(self.cpu, payload).to_le_bytes();
        Ok(())
    }

    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        payload: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), OpenError> {
        if payload.len() as u64 > MAX_PAYLOAD_LEN {
            return Err(OpenError::TooLong);
        }
        let (key, nonce) = self.packet_key(nonce).ok_or(OpenError::TooShort)?;
        let mut stream = Keystream::new(self.cpu, &key, &nonce);
        let mut ahead = Ahead::new();
        let key = stream.begin(&mut ahead, payload.len());
        // One comparison of numbers: where they differ takes no time to find out.
        if key.tag(self.cpu, payload) != u128::from_le_bytes(*tag) {
            return Err(OpenError::BadTag);
        }
        stream.decrypt(&ahead, payload);
        Ok(())
    }
}

impl<const NONCE_LEN: usize> fmt::Debug for Cipher<NONCE_LEN> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extended = if NONCE_LEN == X_NONCE_LEN { "X" } else { "" };
        write!(f, "{extended}ChaCha20Poly1305(..)")
    }
}
