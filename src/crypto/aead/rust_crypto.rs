//! The AEADs of the RustCrypto project, in Rust, for every target. They use AES and vector instructions of x86 and ARM
//! where the running CPU has them.

#[cfg(feature = "noise")]
use alloc::boxed::Box;
use alloc::sync::Arc;

#[cfg(any(feature = "aes-gcm", feature = "noise"))]
use aead::consts::U12;
#[cfg(feature = "noise")]
use aead::consts::U16;
use aead::{AeadInOut, KeyInit};
#[cfg(feature = "aes-gcm")]
use aes_gcm::{Aes128Gcm, Aes256Gcm, AesGcm, aes::Aes192};
#[cfg(feature = "chacha20-poly1305")]
use chacha20poly1305::{ChaCha20Poly1305, XChaCha20Poly1305};

use super::Aead;
#[cfg(feature = "noise")]
use super::{DetachedKey, NONCE_LEN, TAG_LEN};
#[cfg(feature = "noise")]
use crate::crypto::error::{OpenError, SealError};
use crate::crypto::{cipher::PacketCipher, kind::CipherKind};

/// The cipher of `kind` with `key`. `None` if its feature is off.
pub(super) fn build(kind: CipherKind, key: &[u8]) -> Option<Arc<dyn PacketCipher>> {
    match kind {
        #[cfg(feature = "aes-gcm")]
        CipherKind::Aes128Gcm => keyed::<Aes128Gcm>(key),
        #[cfg(feature = "aes-gcm")]
        CipherKind::Aes192Gcm => keyed::<AesGcm<Aes192, U12>>(key),
        #[cfg(feature = "aes-gcm")]
        CipherKind::Aes256Gcm => keyed::<Aes256Gcm>(key),
        #[cfg(feature = "chacha20-poly1305")]
        CipherKind::ChaCha20Poly1305 => keyed::<ChaCha20Poly1305>(key),
        #[cfg(feature = "chacha20-poly1305")]
        CipherKind::XChaCha20Poly1305 => keyed::<XChaCha20Poly1305>(key),
        _ => None,
    }
}

fn keyed<A>(key: &[u8]) -> Option<Arc<dyn PacketCipher>>
where
    A: AeadInOut + KeyInit + Send + Sync + 'static,
{
    Some(Arc::new(Aead::new(A::new_from_slice(key).ok()?)))
}

/// The key of `kind` whose nonce is handed in. `None` if its feature is off.
#[cfg(feature = "noise")]
pub(super) fn build_detached(kind: CipherKind, key: &[u8; 32]) -> Option<Box<dyn DetachedKey>> {
    match kind {
        #[cfg(feature = "aes-gcm")]
        CipherKind::Aes256Gcm => Some(Box::new(Detached(Aes256Gcm::new(key.into())))),
        CipherKind::ChaCha20Poly1305 => Some(Box::new(Detached(ChaCha20Poly1305::new(key.into())))),
        _ => None,
    }
}

#[cfg(feature = "noise")]
struct Detached<A>(A);

#[cfg(feature = "noise")]
impl<A> DetachedKey for Detached<A>
where
    A: AeadInOut<NonceSize = U12, TagSize = U16> + Send + Sync,
{
    fn seal(&self, nonce: &[u8; NONCE_LEN], payload: &mut [u8]) -> Result<[u8; TAG_LEN], SealError> {
        let tag = self.0.encrypt_inout_detached(nonce.into(), &[], payload.into());
        tag.map(Into::into).map_err(|_| SealError::TooLong)
    }

    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        payload: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), OpenError> {
        let opened = self.0.decrypt_inout_detached(nonce.into(), &[], payload.into(), tag.into());
        opened.map_err(|_| OpenError::BadTag)
    }
}
