//! The AEADs of the RustCrypto project, in Rust, for every target. They use AES and vector instructions of x86 and ARM
//! where the running CPU has them.

use alloc::sync::Arc;

use aead::{AeadInOut, KeyInit};
#[cfg(feature = "aes-gcm")]
use aes_gcm::{Aes128Gcm, Aes256Gcm, AesGcm, aead::consts::U12, aes::Aes192};
#[cfg(feature = "chacha20-poly1305")]
use chacha20poly1305::{ChaCha20Poly1305, XChaCha20Poly1305};

use super::Aead;
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
