//! Nonces of tests: never the same twice, and the same every run.

use std::sync::atomic::{AtomicU64, Ordering};

use kcp9::crypto::NonceSource;

use super::rng::Rng;

/// A generator of its own for each nonce, by its number.
#[derive(Debug, Default)]
pub struct Nonces(AtomicU64);

impl Nonces {
    /// The numbers from `first` on: ends that share a key must not share numbers.
    pub const fn starting_at(first: u64) -> Self {
        Self(AtomicU64::new(first))
    }
}

impl NonceSource for Nonces {
    fn fill(&self, nonce: &mut [u8]) {
        let mut rng = Rng::new(self.0.fetch_add(1, Ordering::Relaxed) << 8);
        for bytes in nonce.chunks_mut(8) {
            bytes.copy_from_slice(&rng.next().to_le_bytes()[..bytes.len()]);
        }
    }
}
