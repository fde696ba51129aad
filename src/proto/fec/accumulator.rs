//! Parity that grows with the data as it is sent.

use alloc::{vec, vec::Vec};
use core::fmt;

use super::{FecError, ReedSolomon};

/// Rows start at multiples of this, a cache line: stores that straddle two lines cost a tenth of the time.
const ALIGN: usize = 64;

/// The parity of a group whose data shards come one by one and are not kept.
///
/// For each group: [`add`](Self::add) every data shard, read the parity with [`rows`](Self::rows), then
/// [`clear`](Self::clear). Data shards may differ in length and need not come longest first: the rows are as long as
/// the longest so far. All calls for a group must be given the same code.
///
/// ```
/// use kcp9::fec::{ParityAccumulator, ReedSolomon};
///
/// let code = ReedSolomon::new(2, 1)?;
/// let mut parity = ParityAccumulator::new();
/// parity.add(&code, 0, b"1st")?;
/// parity.add(&code, 1, b"second")?;
///
/// let mut at_once = [[0; 6]];
/// code.encode(&[&b"1st"[..], b"second"], &mut at_once)?;
/// assert!(parity.rows(&code).eq(at_once.iter()));
/// parity.clear();
/// # Ok::<(), kcp9::fec::FecError>(())
/// ```
#[derive(Default)]
pub struct ParityAccumulator {
    /// The rows, from `start` on, each `stride` bytes after the one before.
    bytes: Vec<u8>,
    start: usize,
    stride: usize,
    /// Bytes of each row that count; what follows them is of no meaning.
    filled: usize,
}

impl ParityAccumulator {
    /// Of length 0; memory comes with the first shard.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), start: 0, stride: 0, filled: 0 }
    }

    /// Adds data shard number `index` of the group to all rows.
    ///
    /// Allocates only if no group so far had a shard as long.
    ///
    /// # Errors
    /// [`FecError::WrongIndex`] if the code has no such data shard.
    #[inline]
    pub fn add(&mut self, code: &ReedSolomon, index: usize, shard: &[u8]) -> Result<(), FecError> {
        code.check_index(index)?;
        if shard.is_empty() {
            return Ok(());
        }
        self.reserve(code.parity_shards(), shard.len());
        self.filled = code.add(index, shard, &mut self.bytes[self.start..], self.stride, self.filled);
        Ok(())
    }

    /// The parity shards in order, all of length [`len`](Self::len).
    pub fn rows(&self, code: &ReedSolomon) -> impl Iterator<Item = &[u8]> {
        (0..code.parity_shards()).map(|row| self.row(row))
    }

    /// Empty if there is no such row yet.
    fn row(&self, row: usize) -> &[u8] {
        let from = self.start + row * self.stride;
        self.bytes.get(from..from + self.filled).unwrap_or_default()
    }

    /// Bytes of a parity shard: those of the longest data shard of the group so far.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether the group has no data yet.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Starts the next group; the memory stays.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// Makes room for so many rows of `len` bytes; what they hold stays.
    fn reserve(&mut self, rows: usize, len: usize) {
        if len > self.stride || rows * self.stride > self.bytes.len() - self.start {
            self.grow(rows, len);
        }
    }

    #[cold]
    fn grow(&mut self, rows: usize, len: usize) {
        let stride = len.next_multiple_of(ALIGN).max(self.stride);
        let mut bytes = vec![0; rows * stride + ALIGN - 1];
        // Alignment is for speed alone, and need not be known.
        let start = bytes.as_ptr().align_offset(ALIGN).min(ALIGN - 1);
        for (row, to) in bytes[start..].chunks_mut(stride).enumerate().take(rows) {
            let from = self.row(row);
            to[..from.len()].copy_from_slice(from);
        }
        *self = Self { bytes, start, stride, filled: self.filled };
    }
}

impl fmt::Debug for ParityAccumulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParityAccumulator").field("len", &self.filled).finish_non_exhaustive()
    }
}
