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
/// [`Connection::lend`](crate::proto::Connection::lend).
pub type Block = Arc<Box<[u8]>>;

/// Bytes of blocks that are kept whatever they hold: a reader that keeps up has one block of 64 KiB, and others are filled
/// meanwhile.
const LITTLE: usize = 256 << 10;

/// Bytes of blocks that may be kept where `waiting` bytes of payload wait to be read.
pub(super) const fn most_kept(waiting: usize) -> usize {
    2 * waiting + LITTLE
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

    /// Takes a payload in that lies behind the last one in the same block; returns the gap between them.
    pub(super) fn extend(&mut self, found: &Found<'_>) -> Option<u16> {
        if !Arc::ptr_eq(&self.block, found.block) {
            return None;
        }
        let gap = found.at.checked_sub(self.end)?.try_into().ok()?;
        self.end = found.at + found.len;
        self.left += found.len;
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

/// Where in the block lent a payload lies.
#[derive(Debug)]
pub(super) struct Found<'a> {
    block: &'a Block,
    at: usize,
    len: usize,
}

impl Found<'_> {
    /// The payload as the first of its block, if that may be kept: `waiting` bytes of payload then wait in the queue, `kept`
    /// bytes of blocks are kept for the others.
    pub(super) fn alone(&self, waiting: usize, kept: usize) -> Option<InPlace> {
        let fits = kept + self.block.len() <= most_kept(waiting);
        fits.then(|| InPlace {
            block: Arc::clone(self.block),
            at: self.at,
            end: self.at + self.len,
            left: self.len,
        })
    }
}

/// The block lent, and how much memory of such blocks is kept.
#[derive(Debug, Default)]
pub(super) struct Loan {
    block: Option<Block>,
    kept: usize,
    /// Whether the application reads bytes, as of the last call that took something.
    welcome: bool,
}

impl Loan {
    /// Says which block holds what is handed in next.
    pub(super) fn set(&mut self, block: Option<Block>) {
        self.block = block;
    }

    /// Says whether the application reads bytes, which are copied from where they are, or takes messages.
    pub(super) const fn welcome(&mut self, bytes: bool) {
        self.welcome = bytes;
    }

    /// Whether a payload may lie in a block that it may stay in.
    pub(super) const fn is_set(&self) -> bool {
        self.block.is_some() && self.welcome
    }

    /// Finds a payload in the block lent: FEC hands in others, from memory of its own.
    pub(super) fn find(&self, payload: &[u8]) -> Option<Found<'_>> {
        let block = self.block.as_ref()?;
        let at = payload.as_ptr().addr().checked_sub(block.as_ptr().addr())?;
        (at + payload.len() <= block.len()).then_some(Found { block, at, len: payload.len() })
    }

    /// Bytes of the blocks kept, of one as often as it was found anew.
    pub(super) const fn kept(&self) -> usize {
        self.kept
    }

    /// Takes note of a block that is kept.
    pub(super) fn keep(&mut self, payloads: &InPlace) {
        self.kept += payloads.block.len();
    }

    /// Takes note that a block is not kept any more.
    pub(super) fn give_back(&mut self, payloads: &InPlace) {
        self.kept -= payloads.block.len();
    }
}
