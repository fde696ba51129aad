//! Payload that stays where it was received until it is read.
//!
//! A receive call fills a block of memory with many packets, whose payloads are copied out one by one: to gather them
//! until the reader comes, and then to the reader. Where the block is lent, the first of these copies is spared: the queue
//! keeps a reference to the block, and knows of each payload how far behind the last one it lies. Who received into it takes
//! another block for the next call, and this one again when all that lies in it was read.
//!
//! A block is as large as a receive call may want, whatever it holds of use, so what a queue keeps in this way is
//! limited: to twice the payload that waits in it, and a little more. What would exceed that is copied.

use alloc::{boxed::Box, sync::Arc};

/// Memory that packets are received into, and that their payload may stay in: see
/// [`Connection::handle_batch`](crate::proto::Connection::handle_batch).
///
/// The bytes are boxed so that [`Arc::new`] takes them over without a copy.
pub type Block = Arc<Box<[u8]>>;

/// Bytes of blocks that are kept whatever they hold: a reader that keeps up has one block of 64 KiB, and others are filled
/// meanwhile.
const LITTLE: usize = 256 << 10;

/// Bytes of blocks that may be kept where `waiting` bytes of payload wait to be read.
pub(super) const fn most_kept(waiting: usize) -> usize {
    2 * waiting + LITTLE
}

/// Where in a block some received bytes begin, if their payload may stay there.
#[derive(Debug, Clone, Copy)]
pub(in crate::proto) struct BlockPosition<'a> {
    block: &'a Block,
    offset: usize,
}

impl<'a> BlockPosition<'a> {
    /// The position of a batch of `len` bytes that begins at byte `offset` of `block`. `None` where it fills so little of the
    /// block that a copy of its payload costs less than the memory that would be kept.
    pub(in crate::proto) fn of_batch(block: &'a Block, offset: usize, len: usize) -> Option<Self> {
        (len >= block.len() / 2).then_some(Self { block, offset })
    }

    /// The position `count` bytes on.
    pub(in crate::proto) const fn forward(self, count: usize) -> Self {
        Self { block: self.block, offset: self.offset + count }
    }

    /// Whether `bytes` lie here.
    pub(in crate::proto) fn holds(self, bytes: &[u8]) -> bool {
        let here = self.block.get(self.offset..self.offset + bytes.len());
        here.is_some_and(|here| core::ptr::eq(here, bytes))
    }
}

/// Payloads in order that lie in one block, with gaps between them that the pieces know.
#[derive(Debug)]
pub(super) struct InPlace {
    block: Block,
    /// Behind what was read.
    at: usize,
    /// Behind the last payload.
    end: usize,
    /// Bytes of payload that were not read.
    left: usize,
}

impl InPlace {
    /// Bytes of payload.
    pub(super) const fn len(&self) -> usize {
        self.left
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Begins with the payload of `len` bytes at `position`.
    fn new(position: BlockPosition<'_>, len: usize) -> Self {
        let BlockPosition { block, offset } = position;
        Self { block: Arc::clone(block), at: offset, end: offset + len, left: len }
    }

    /// Adds the payload of `len` bytes at `position`, if that is in the same block behind the last one; returns the gap between
    /// them.
    pub(super) fn extend(&mut self, position: BlockPosition<'_>, len: usize) -> Option<u16> {
        if !Arc::ptr_eq(&self.block, position.block) {
            return None;
        }
        let gap = position.offset.checked_sub(self.end)?.try_into().ok()?;
        self.end = position.offset + len;
        self.left += len;
        Some(gap)
    }

    /// Takes `len` bytes off the front, behind a gap; no more than there are.
    pub(super) fn take(&mut self, gap: u16, len: usize) -> &[u8] {
        let start = self.at + usize::from(gap);
        self.at = start + len;
        self.left -= len;
        &self.block[start..self.at]
    }
}

/// How much memory of blocks is kept, and whether any may be.
#[derive(Debug, Default)]
pub(super) struct KeptBlocks {
    bytes: usize,
    /// Whether the application reads bytes, as of the last call that took something.
    read_as_bytes: bool,
}

impl KeptBlocks {
    /// Says whether the application reads bytes, which are copied from where they are, or takes messages.
    pub(super) const fn set_read_as_bytes(&mut self, bytes: bool) {
        self.read_as_bytes = bytes;
    }

    /// Whether payload may stay in blocks.
    pub(super) const fn are_allowed(&self) -> bool {
        self.read_as_bytes
    }

    /// Bytes of the blocks kept. A block counts as often as it was kept anew.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps the block of a payload of `len` bytes, unless that would be too much for the `waiting` bytes that the queue then
    /// holds.
    pub(super) fn keep(
        &mut self,
        position: BlockPosition<'_>,
        len: usize,
        waiting: usize,
    ) -> Option<InPlace> {
        let bytes = self.bytes + position.block.len();
        (bytes <= most_kept(waiting)).then(|| {
            self.bytes = bytes;
            InPlace::new(position, len)
        })
    }

    /// Takes note that a block is not kept any more.
    pub(super) fn give_back(&mut self, payloads: &InPlace) {
        self.bytes -= payloads.block.len();
    }
}
