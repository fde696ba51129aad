//! Streams whose byte at any position is known: a reader needs no copy of what was written.

use std::sync::OnceLock;

use super::rng::mix;

/// Bytes after which a stream repeats itself. It is a prime, so that bytes displaced by a power of two or by some segments are
/// never equal to those that should be there.
const PERIOD: usize = 65_521;
/// Longest piece that can be borrowed without a copy.
const LONGEST: usize = 1 << 18;

/// The stream that `key` names: all streams share their bytes, and begin at different ones.
#[derive(Debug, Clone, Copy)]
pub struct Payload {
    start: u64,
}

impl Payload {
    pub const fn new(key: u64) -> Self {
        Self { start: key % PERIOD as u64 }
    }

    /// The `len` bytes from `position` on, at most `LONGEST`.
    pub fn bytes(self, position: u64, len: usize) -> &'static [u8] {
        static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
        let bytes = BYTES.get_or_init(|| {
            let words = (0..PERIOD.div_ceil(8) as u64).flat_map(|word| mix(word).to_le_bytes());
            let period: Vec<u8> = words.take(PERIOD).collect();
            period.iter().copied().cycle().take(PERIOD + LONGEST).collect()
        });
        let at = ((self.start + position) % PERIOD as u64) as usize;
        &bytes[at..at + len]
    }

    /// Writes the bytes from `position` on into `out`.
    pub fn fill(self, position: u64, out: &mut [u8]) {
        for (i, piece) in out.chunks_mut(LONGEST).enumerate() {
            piece.copy_from_slice(self.bytes(position + (i * LONGEST) as u64, piece.len()));
        }
    }

    /// Offset of the first byte of `bytes` that is not the stream's at `position` and on.
    pub fn first_difference(self, position: u64, bytes: &[u8]) -> Option<usize> {
        for (i, piece) in bytes.chunks(LONGEST).enumerate() {
            let at = i * LONGEST;
            let expected = self.bytes(position + at as u64, piece.len());
            if expected != piece {
                return expected.iter().zip(piece).position(|(a, b)| a != b).map(|i| at + i);
            }
        }
        None
    }
}
