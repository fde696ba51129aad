//! The memory that a thread receives into: a block for each slot of a receive call.
//!
//! Sessions may keep a block that was filled well, so that its payload need not be copied out before it is read; the slot
//! takes another one. Blocks that were taken away are remembered, and used again once they were given back. Most come back
//! before long, so that few are enough, and these stay in the processor's caches.

use std::{collections::VecDeque, sync::Arc, vec, vec::Vec};

use crate::proto::Block;

/// Bytes of a block: the largest packet, or GRO's largest batch.
const BLOCK_SIZE: usize = 65_536;
/// Blocks that are remembered while sessions keep them. One that falls out is freed by its last reader.
const MAX_KEPT: usize = 32;
/// Those looked at for one that was given back.
const MAX_LOOKS: usize = 4;
/// Receive calls in a row that found no block kept after which those remembered are forgotten.
const QUIET: u32 = 64;

#[derive(Default)]
pub(super) struct Slots {
    blocks: Vec<Block>,
    /// Blocks that sessions kept, those filled first before others, but for slow readers'.
    kept: VecDeque<Block>,
    /// Receive calls in a row that found no block kept.
    quiet: u32,
}

impl Slots {
    /// `count` blocks that nobody else refers to.
    pub(super) fn free(&mut self, count: usize) -> &mut [Block] {
        if self.blocks.len() < count {
            self.blocks.resize_with(count, new_block);
        }
        self.quiet = self.quiet.saturating_add(1);
        for index in 0..count {
            if Arc::strong_count(&self.blocks[index]) > 1 {
                self.replace(index);
                self.quiet = 0;
            }
        }
        if self.quiet >= QUIET && !self.kept.is_empty() {
            self.kept = VecDeque::new();
        }
        &mut self.blocks[..count]
    }

    /// Has a slot take a block that was given back, or a new one.
    #[inline(never)]
    fn replace(&mut self, index: usize) {
        let block = self.given_back().unwrap_or_else(new_block);
        let kept = std::mem::replace(&mut self.blocks[index], block);
        if self.kept.len() == MAX_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(kept);
    }

    fn given_back(&mut self) -> Option<Block> {
        for _ in 0..self.kept.len().min(MAX_LOOKS) {
            let block = self.kept.pop_front()?;
            if Arc::strong_count(&block) == 1 {
                return Some(block);
            }
            // Its reader is slow. Others may not be.
            self.kept.push_back(block);
        }
        None
    }
}

fn new_block() -> Block {
    Arc::new(vec![0; BLOCK_SIZE].into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(blocks: &[Block]) -> Vec<usize> {
        blocks.iter().map(|block| block.as_ptr().addr()).collect()
    }

    #[test]
    fn a_block_that_is_kept_makes_way_and_comes_back() {
        let mut slots = Slots::default();
        let first = addresses(slots.free(4));
        assert_eq!(addresses(slots.free(4)), first, "nobody kept one");
        let kept = Block::clone(&slots.free(4)[1]);
        let second = addresses(slots.free(4));
        assert_eq!((second[0], &second[2..]), (first[0], &first[2..]));
        assert_ne!(second[1], first[1]);
        drop(kept);
        let other = Block::clone(&slots.free(4)[3]);
        assert_eq!(addresses(slots.free(4)), [first[0], second[1], first[2], first[1]]);
        drop(other);
    }

    #[test]
    fn slow_readers_do_not_hold_up_others_and_are_not_remembered_without_end() {
        let mut slots = Slots::default();
        let slow: Vec<_> = (0..3).map(|_| Block::clone(&slots.free(1)[0])).collect();
        let mut seen = Vec::new();
        for _ in 0..100 {
            let block = Block::clone(&slots.free(1)[0]);
            seen.push(block.as_ptr().addr());
            drop(block);
            // Kept while the next call is made.
            let kept = Block::clone(&slots.free(1)[0]);
            seen.push(slots.free(1)[0].as_ptr().addr());
            drop(kept);
        }
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() <= 3, "{} blocks in turn", seen.len());
        assert!(slow.iter().all(|block| !seen.contains(&block.as_ptr().addr())));
        let kept: Vec<_> = (0..100).map(|_| Block::clone(&slots.free(1)[0])).collect();
        assert_eq!(slots.kept.len(), MAX_KEPT);
        assert!(kept[..50].iter().all(|block| Arc::strong_count(block) == 1), "freed by who reads it");
    }

    #[test]
    fn quiet_threads_forget_blocks() {
        let mut slots = Slots::default();
        let kept: Vec<_> = slots.free(16).iter().map(Block::clone).collect();
        slots.free(16);
        assert_eq!(slots.kept.len(), 16);
        drop(kept);
        for _ in 0..QUIET {
            slots.free(2);
        }
        assert_eq!((slots.kept.len(), slots.blocks.len()), (0, 16));
        let kept = Block::clone(&slots.free(2)[1]);
        slots.free(2);
        assert_eq!(slots.kept.len(), 1);
        drop(kept);
        for _ in 0..QUIET {
            slots.free(2);
        }
        assert_eq!(slots.kept.len(), 0, "again");
    }
}
