//! Streams whose byte at any position can be computed: a reader needs no copy of what was written.

use super::rng::mix;

/// The stream that `key` names.
#[derive(Debug, Clone, Copy)]
pub struct Payload {
    key: u64,
}

impl Payload {
    pub const fn new(key: u64) -> Self {
        Self { key }
    }

    /// Writes the bytes from `position` on into `out`.
    pub fn fill(self, position: u64, out: &mut [u8]) {
        let mut word = position / 8;
        let mut skip = (position % 8) as usize;
        let mut rest = out;
        while !rest.is_empty() {
            let bytes = mix(self.key.wrapping_add(word)).to_le_bytes();
            let take = (8 - skip).min(rest.len());
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(&bytes[skip..skip + take]);
            rest = later;
            skip = 0;
            word += 1;
        }
    }

    /// Offset of the first byte of `bytes` that is not the stream's at `position` and on.
    pub fn first_difference(self, position: u64, bytes: &[u8]) -> Option<usize> {
        let mut expected = [0; 512];
        for (i, piece) in bytes.chunks(expected.len()).enumerate() {
            let expected = &mut expected[..piece.len()];
            let at = i * 512;
            self.fill(position + at as u64, expected);
            if expected != piece {
                return expected.iter().zip(piece).position(|(a, b)| a != b).map(|i| at + i);
            }
        }
        None
    }
}
