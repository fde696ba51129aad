//! How keys are made of keys.
//!
//! Everything is one function, [`derive`]: BLAKE2s with a key (RFC 7693), which is a pseudo-random function, over a label and a context.
//!
//! ```text
//! split of the handshake    k of the initiator's direction, k of the responder's
//! secret 0                  derive(k, "kcp9 secret", handshake hash)
//! key of epoch n            derive(secret n, "kcp9 key")
//! secret n + 1              derive(secret n, "kcp9 next")
//! mask of the header        derive(secret 0, "kcp9 mask"), its first 16 bytes
//! ```
//!
//! The handshake hash is over all that both ends have said, so keys are the same only where both have read the same. A secret is
//! overwritten by the next one as soon as its key is made: who learns a secret learns no key of the past.

use alloc::boxed::Box;

use blake2::{
    Blake2s256, Blake2sMac256, Digest,
    digest::{KeyInit, Mac},
};
use zeroize::Zeroizing;

use super::{TAG_LEN, pattern::SessionCipher};
use crate::crypto::{DetachedKey, NONCE_LEN, OpenError, SealError, detached_key};

pub(super) type Secret = Zeroizing<[u8; 32]>;

/// A key made of `key`, for the purpose that `label` and `context` say.
pub(super) fn derive(key: &[u8; 32], label: &[u8], context: &[u8]) -> Secret {
    // With its length, so that no label and context run together as others do.
    let mac = Blake2sMac256::new(key.into()).chain_update([label.len() as u8]);
    Zeroizing::new(mac.chain_update(label).chain_update(context).finalize().into_bytes().into())
}

/// The hash of a public text for one purpose, which `label` says.
pub(super) fn digest(label: &[u8], text: &[u8]) -> [u8; 32] {
    let hash = Blake2s256::new_with_prefix([label.len() as u8]);
    hash.chain_update(label).chain_update(text).finalize().into()
}

/// The secrets of one direction, one epoch after the other.
pub(super) struct Chain {
    /// Of the epoch whose key was not made yet.
    next: Secret,
    cipher: SessionCipher,
}

impl Chain {
    pub(super) fn new(split: &[u8; 32], handshake_hash: &[u8; 32], cipher: SessionCipher) -> Self {
        Self { next: derive(split, b"kcp9 secret", handshake_hash), cipher }
    }

    /// The cipher of all keys of the direction.
    pub(super) const fn cipher(&self) -> SessionCipher {
        self.cipher
    }

    /// The mask of the direction's headers: to be made before the first key.
    pub(super) fn mask(&self) -> Zeroizing<[u8; 16]> {
        let mut mask = Zeroizing::new([0; 16]);
        mask.copy_from_slice(&derive(&self.next, b"kcp9 mask", &[])[..16]);
        mask
    }

    /// The key of the next epoch. `None` where the cipher is not built in.
    pub(super) fn peek(&self) -> Option<EpochKey> {
        EpochKey::new(self.cipher, derive(&self.next, b"kcp9 key", &[]))
    }

    /// The key of the epoch after the next one.
    pub(super) fn peek_second(&self) -> Option<EpochKey> {
        let second = derive(&self.next, b"kcp9 next", &[]);
        EpochKey::new(self.cipher, derive(&second, b"kcp9 key", &[]))
    }

    /// Forgets the secret of the next epoch for that of the one behind it.
    pub(super) fn advance(&mut self) {
        self.next = derive(&self.next, b"kcp9 next", &[]);
    }
}

/// The key of one epoch. What its cipher makes of it takes half a KiB, and a part of a microsecond to make: a session that is idle
/// [goes without](Self::park). What its cipher is, its [`Chain`] knows.
pub(super) struct EpochKey {
    secret: Secret,
    expanded: Option<Box<dyn DetachedKey>>,
}

impl EpochKey {
    /// `None` where the cipher is not built in.
    fn new(cipher: SessionCipher, secret: Secret) -> Option<Self> {
        let expanded = detached_key(cipher.kind(), &secret)?;
        Some(Self { secret, expanded: Some(expanded) })
    }

    fn expanded(&mut self, cipher: SessionCipher) -> Option<&dyn DetachedKey> {
        if self.expanded.is_none() {
            self.expand(cipher);
        }
        self.expanded.as_deref()
    }

    #[cold]
    fn expand(&mut self, cipher: SessionCipher) {
        // It could be made before, so it can be made now.
        self.expanded = detached_key(cipher.kind(), &self.secret);
    }

    pub(super) fn park(&mut self) {
        self.expanded = None;
    }

    #[cfg(test)]
    pub(super) const fn is_parked(&self) -> bool {
        self.expanded.is_none()
    }

    /// As [`DetachedKey::seal`].
    #[inline]
    pub(super) fn seal(
        &mut self,
        cipher: SessionCipher,
        nonce: &[u8; NONCE_LEN],
        payload: &mut [u8],
    ) -> Result<[u8; TAG_LEN], SealError> {
        self.expanded(cipher).ok_or(SealError::TooLong)?.seal(nonce, payload)
    }

    /// As [`DetachedKey::open`].
    #[inline]
    pub(super) fn open(
        &mut self,
        cipher: SessionCipher,
        nonce: &[u8; NONCE_LEN],
        payload: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), OpenError> {
        self.expanded(cipher).ok_or(OpenError::BadTag)?.open(nonce, payload, tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_key_label_and_context() {
        let keys = [
            derive(&[1; 32], b"label", b"context"),
            derive(&[2; 32], b"label", b"context"),
            derive(&[1; 32], b"other", b"context"),
            derive(&[1; 32], b"label", b""),
            derive(&[1; 32], b"labelc", b"ontext"),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key) && **key != [0; 32], "{at}");
        }
    }
}
