//! The memory that a thread receives into: a [`Block`] for each slot of a receive call.
//!
//! A session may hold a block, so that payload stays in it until it is read. The slot then takes another block. Blocks that
//! sessions hold are remembered here, and used again when they were released. Most are released soon, so that a few blocks are
//! enough, and they stay in the processor's caches.

use std::{collections::VecDeque, sync::Arc, vec, vec::Vec};

use crate::proto::Block;

/// Bytes of a block: the largest packet, or GRO's largest batch.
const BLOCK_SIZE: usize = 65_536;
/// Blocks that are remembered while sessions hold them: as many as eight busy sessions hold, 8 MiB. When there are more, the oldest
/// is forgotten, and its last reader frees it. A new one has to be zeroed.
const MAX_HELD: usize = 128;
/// Held blocks that are looked at when a released one is needed.
const MAX_LOOKS: usize = 16;
/// Receive calls in a row without a held block in a slot. After as many, the remembered blocks are freed.
const QUIET: u32 = 64;

#[derive(Default)]
pub(super) struct Slots {
    blocks: Vec<Block>,
    /// Blocks that sessions held when they were last looked at. The oldest are at the front, but the blocks of slow readers
    /// move to the back.
    held: VecDeque<Block>,
    /// Receive calls in a row that found no held block in a slot.
    quiet: u32,
}

impl Slots {
    /// The blocks of the first `count` slots. Nobody else refers to them.
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
        if self.quiet >= QUIET && !self.held.is_empty() {
            self.held = VecDeque::new();
        }
        &mut self.blocks[..count]
    }

    /// Gives a slot a block that was released, or a new one.
    #[inline(never)]
    fn replace(&mut self, index: usize) {
        let block = self.take_released().unwrap_or_else(new_block);
        let held = std::mem::replace(&mut self.blocks[index], block);
        if self.held.len() == MAX_HELD {
            self.held.pop_front();
        }
        self.held.push_back(held);
    }

    fn take_released(&mut self) -> Option<Block> {
        for _ in 0..self.held.len().min(MAX_LOOKS) {
            let block = self.held.pop_front()?;
            if Arc::strong_count(&block) == 1 {
                return Some(block);
            }
            // A slow reader. Its block must not hide those of others.
            self.held.push_back(block);
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
    fn a_held_block_is_replaced_and_used_again_when_released() {
        let mut slots = Slots::default();
        let first = addresses(slots.free(4));
        assert_eq!(addresses(slots.free(4)), first, "nobody holds one");
        let held = Block::clone(&slots.free(4)[1]);
        let second = addresses(slots.free(4));
        assert_eq!((second[0], &second[2..]), (first[0], &first[2..]));
        assert_ne!(second[1], first[1]);
        drop(held);
        let other = Block::clone(&slots.free(4)[3]);
        assert_eq!(addresses(slots.free(4)), [first[0], second[1], first[2], first[1]]);
        drop(other);
    }

    #[test]
    fn blocks_of_slow_readers_neither_hide_others_nor_pile_up() {
        let mut slots = Slots::default();
        let slow: Vec<_> = (0..3).map(|_| Block::clone(&slots.free(1)[0])).collect();
        let mut seen = Vec::new();
        for _ in 0..100 {
            let block = Block::clone(&slots.free(1)[0]);
            seen.push(block.as_ptr().addr());
            drop(block);
            // Held during the next call.
            let held = Block::clone(&slots.free(1)[0]);
            seen.push(slots.free(1)[0].as_ptr().addr());
            drop(held);
        }
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() <= 3, "{} blocks in turn", seen.len());
        assert!(slow.iter().all(|block| !seen.contains(&block.as_ptr().addr())));
        let held: Vec<_> = (0..2 * MAX_HELD).map(|_| Block::clone(&slots.free(1)[0])).collect();
        assert_eq!(slots.held.len(), MAX_HELD);
        assert!(
            held[..MAX_HELD / 2].iter().all(|block| Arc::strong_count(block) == 1),
            "the reader frees a forgotten block"
        );
    }

    #[test]
    fn blocks_are_freed_after_many_calls_that_found_none_held() {
        let mut slots = Slots::default();
        let held: Vec<_> = slots.free(16).iter().map(Block::clone).collect();
        slots.free(16);
        assert_eq!(slots.held.len(), 16);
        drop(held);
        for _ in 0..QUIET {
            slots.free(2);
        }
        assert_eq!((slots.held.len(), slots.blocks.len()), (0, 16));
        let held = Block::clone(&slots.free(2)[1]);
        slots.free(2);
        assert_eq!(slots.held.len(), 1);
        drop(held);
        for _ in 0..QUIET {
            slots.free(2);
        }
        assert_eq!(slots.held.len(), 0, "again");
    }
}
