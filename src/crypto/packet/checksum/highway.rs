//! The tag of this crate's own framing.

use highway::{HighwayHash, HighwayHasher, Key as HashKey};
use zeroize::Zeroizing;

use super::Checksum;
use crate::crypto::error::OpenError;

/// HighwayHash-64 of the payload, little-endian, under a key that is derived from the cipher's.
pub(in super::super) struct HighwayTag {
    key: Zeroizing<[u64; 4]>,
    is_keyed: bool,
}

impl HighwayTag {
    /// The tag of packets whose cipher has the key `secret`. The key of the tag is the HighwayHash-256 of [`LABEL`] under
    /// `secret`.
    ///
    /// `secret` is filled up with zero bytes to 32. If it is longer, its HighwayHash-256 under 32 zero bytes takes its place:
    /// only `xor` and `none` take such keys. With an empty one, anyone can compute the tag.
    pub(in super::super) fn new(secret: &[u8]) -> Self {
        let words = match secret.len() {
            0..=32 => words(secret),
            _ => hash256(&Zeroizing::default(), secret),
        };
        Self { key: hash256(&words, LABEL), is_keyed: !secret.is_empty() }
    }

    #[inline]
    fn tag(&self, payload: &[u8]) -> u64 {
        HighwayHasher::new(HashKey(*self.key)).hash64(payload)
    }
}

impl Checksum for HighwayTag {
    const LEN: usize = 8;
    const NAME: &'static str = "HighwayHash-64";

    fn is_keyed(&self) -> bool {
        self.is_keyed
    }

    #[inline]
    fn write(&self, payload: &[u8], field: &mut [u8]) {
        field.copy_from_slice(&self.tag(payload).to_le_bytes());
    }

    /// Compares whole words. That takes the same time wherever they differ.
    #[inline]
    fn check(&self, payload: &[u8], field: &[u8]) -> Result<(), OpenError> {
        if self.tag(payload) == word(field) { Ok(()) } else { Err(OpenError::BadTag) }
    }

    /// Packets of equal payload have equal tags, and differ in the nonce.
    fn identity(nonce: &[u8; 8], field: &[u8]) -> u64 {
        u64::from_le_bytes(*nonce) ^ word(field)
    }
}

/// From this, a cipher's key makes the key of its tags. Another version of the tags would have another label.
const LABEL: &[u8] = b"kcp9 packet tag v1";

fn hash256(key: &Zeroizing<[u64; 4]>, bytes: &[u8]) -> Zeroizing<[u64; 4]> {
    Zeroizing::new(HighwayHasher::new(HashKey(**key)).hash256(bytes))
}

/// The little-endian words of at most 32 bytes.
fn words(bytes: &[u8]) -> Zeroizing<[u64; 4]> {
    let mut words = Zeroizing::new([0; 4]);
    words.iter_mut().zip(bytes.chunks(8)).for_each(|(to, bytes)| *to = word(bytes));
    words
}

/// The little-endian word of at most 8 bytes.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(word)
}
