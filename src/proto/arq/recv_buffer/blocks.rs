//! Blocks: memory that holds many received packets, where payload may stay until it is read.
//!
//! A receive call fills a block with many packets. Copying each payload out of it, and later to the reader, would be two
//! copies. So payload that is next in order stays in the block, and the ready queue keeps a reference to the block. It is
//! copied once, when the application reads it. Meanwhile the receiver uses another block. It uses this one again when the
//! queue has let go of it.
//!
//! A block has the size that a receive call may need, however little useful payload it holds. So the queue holds blocks of at
//! most twice the size of its unread payload, and [`FREE_ALLOWANCE`]. Payload that would exceed this is copied.

use alloc::{boxed::Box, sync::Arc};

/// Memory that packets are received into, and where their payload may stay: see
/// [`Connection::handle_batch`](crate::proto::Connection::handle_batch).
///
/// The bytes are boxed because [`Arc::new`] takes a box over without copying its contents.
pub type Block = Arc<Box<[u8]>>;

/// Bytes of blocks that may be held however little they contain. A reader that keeps up has one block of 64 KiB, while others
/// are being filled.
const FREE_ALLOWANCE: usize = 256 << 10;

/// Bytes of blocks that may be held while `unread` bytes of payload wait for the reader.
pub(super) const fn allowance(unread: usize) -> usize {
    2 * unread + FREE_ALLOWANCE
}

/// Where in a block some received bytes begin, if their payload may stay there.
#[derive(Debug, Clone, Copy)]
pub(in crate::proto) struct BlockPosition<'a> {
    block: &'a Block,
    offset: usize,
}

impl<'a> BlockPosition<'a> {
    /// The position of a batch of `len` bytes that begins at byte `offset` of `block`. `None` if the batch fills less than half
    /// of the block: copying its payload then costs less than the memory that would be held.
    pub(in crate::proto) fn of_batch(block: &'a Block, offset: usize, len: usize) -> Option<Self> {
        (len >= block.len() / 2).then_some(Self { block, offset })
    }

    /// The position `count` bytes further on.
    pub(in crate::proto) const fn forward(self, count: usize) -> Self {
        Self { block: self.block, offset: self.offset + count }
    }

    /// Whether `bytes` begin at this position.
    pub(in crate::proto) fn is_of(self, bytes: &[u8]) -> bool {
        let here = self.block.get(self.offset..self.offset + bytes.len());
        here.is_some_and(|here| core::ptr::eq(here, bytes))
    }
}

/// Unread payloads that lie in one block, one behind the other in order.
///
/// There are gaps between them, at least the headers of segments and packets. The ready queue knows the gap in front of each
/// payload.
#[derive(Debug)]
pub(super) struct BlockRun {
    block: Block,
    /// Where the bytes that were read end.
    read_to: usize,
    /// Where the last payload ends.
    end: usize,
    /// Unread bytes of payload.
    unread: usize,
}

impl BlockRun {
    /// A run with one payload, which has `len` bytes and begins at `position`.
    fn new(position: BlockPosition<'_>, len: usize) -> Self {
        let BlockPosition { block, offset } = position;
        Self { block: Arc::clone(block), read_to: offset, end: offset + len, unread: len }
    }

    /// Unread bytes of payload.
    pub(super) const fn len(&self) -> usize {
        self.unread
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.unread == 0
    }

    /// Adds the payload of `len` bytes at `position`. Returns the gap in front of it, or `None` if it does not follow the last
    /// payload in the same block.
    pub(super) fn extend(&mut self, position: BlockPosition<'_>, len: usize) -> Option<u16> {
        if !Arc::ptr_eq(&self.block, position.block) {
            return None;
        }
        let gap = position.offset.checked_sub(self.end)?.try_into().ok()?;
        self.end = position.offset + len;
        self.unread += len;
        Some(gap)
    }

    /// Takes the first `len` unread bytes, which lie behind a gap of `gap` bytes.
    pub(super) fn take(&mut self, gap: u16, len: usize) -> &[u8] {
        let start = self.read_to + usize::from(gap);
        self.read_to = start + len;
        self.unread -= len;
        &self.block[start..self.read_to]
    }
}

/// How much memory of blocks the ready queue holds.
#[derive(Debug, Default)]
pub(super) struct HeldBlocks {
    bytes: usize,
}

impl HeldBlocks {
    /// Bytes of all blocks held. A block that several runs refer to counts several times.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Begins a run with the payload of `len` bytes at `position`, and so holds its block. Returns `None` if that would be too
    /// much for the `unread` bytes that the queue has with this payload.
    pub(super) fn hold(
        &mut self,
        position: BlockPosition<'_>,
        len: usize,
        unread: usize,
    ) -> Option<BlockRun> {
        let bytes = self.bytes + position.block.len();
        if bytes > allowance(unread) {
            return None;
        }
        self.bytes = bytes;
        Some(BlockRun::new(position, len))
    }

    /// Notes that a run is about to be dropped, and with it its reference to the block.
    pub(super) fn release(&mut self, run: &BlockRun) {
        self.bytes -= run.block.len();
    }
}
