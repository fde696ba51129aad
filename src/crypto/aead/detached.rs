//! AEADs whose nonce is not in the packet: both ends know it.

use alloc::boxed::Box;
use core::fmt;

use super::key_providers;
use crate::crypto::{
    error::{OpenError, SealError},
    kind::CipherKind,
};

/// Bytes of the nonce of AES-GCM and ChaCha20-Poly1305.
pub(crate) const NONCE_LEN: usize = 12;
/// Bytes of their tag.
pub(crate) const TAG_LEN: usize = 16;

/// A key that seals and opens payloads in place, with a nonce that the caller hands in. No nonce may be used twice for sealing.
/// There is no additional data: what a packet has in the clear is part of the nonce.
pub(crate) trait DetachedKey: Send + Sync {
    fn seal(&self, nonce: &[u8; NONCE_LEN], payload: &mut [u8]) -> Result<[u8; TAG_LEN], SealError>;

    /// What `payload` has afterwards is unspecified if it was refused.
    fn open(&self, nonce: &[u8; NONCE_LEN], payload: &mut [u8], tag: &[u8; TAG_LEN])
    -> Result<(), OpenError>;
}

impl fmt::Debug for dyn DetachedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DetachedKey(..)")
    }
}

/// The key of `kind`, from the fastest provider that is built in and has it. `None` if none has it.
pub(crate) fn detached_key(kind: CipherKind, key: &[u8; 32]) -> Option<Box<dyn DetachedKey>> {
    key_providers().iter().find_map(|build| build(kind, key))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn providers_agree_with_each_other_and_with_the_packet_ciphers() {
        for kind in [CipherKind::Aes256Gcm, CipherKind::ChaCha20Poly1305] {
            let keys: Vec<_> = key_providers().iter().filter_map(|build| build(kind, &[7; 32])).collect();
            let framed = kind.build(&crate::crypto::Key::from_bytes(&[7; 32]), crate::crypto::Framing::KcpGo);
            assert_eq!(keys.is_empty(), framed.is_err(), "{kind}");
            let Ok(framed) = framed else { continue };
            let mut packet = [9; NONCE_LEN + 100 + TAG_LEN];
            framed.seal(&mut packet).unwrap();
            for key in &keys {
                let mut payload = [9; 100];
                let tag = key.seal(&[9; NONCE_LEN], &mut payload).unwrap();
                assert_eq!((&payload[..], &tag[..]), packet[NONCE_LEN..].split_at(100), "{kind}");
                for other in &keys {
                    let mut opened = payload;
                    other.open(&[9; NONCE_LEN], &mut opened, &tag).unwrap();
                    assert_eq!(opened, [9; 100]);
                    assert_eq!(
                        other.open(&[8; NONCE_LEN], &mut payload.clone(), &tag),
                        Err(OpenError::BadTag)
                    );
                    let mut damaged = tag;
                    damaged[15] ^= 0x80;
                    assert_eq!(
                        other.open(&[9; NONCE_LEN], &mut payload.clone(), &damaged),
                        Err(OpenError::BadTag)
                    );
                }
            }
        }
    }
}
