//! Buffers for shards, which are used again.

use alloc::vec::Vec;

/// A pool of buffers for shards. It counts the bytes of all its buffers, in use and spare, by their capacity, and those of its list,
/// in which all of them may come to lie.
#[derive(Debug, Default)]
pub(super) struct ShardPool {
    spare: Vec<Vec<u8>>,
    bytes: usize,
    buffers: usize,
    #[cfg(test)]
    peak: usize,
}

impl ShardPool {
    /// An empty buffer with room for `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> Vec<u8> {
        let mut shard = self.spare.pop().unwrap_or_else(|| {
            self.buffers += 1;
            Vec::new()
        });
        shard.clear();
        if shard.capacity() < len {
            self.bytes -= shard.capacity();
            // Not both at a time, and nothing of the former one is copied.
            drop(shard);
            shard = Vec::with_capacity(len);
            self.bytes += shard.capacity();
        }
        #[cfg(test)]
        {
            self.peak = self.peak.max(self.bytes);
        }
        shard
    }

    /// Takes a buffer of [`take`](Self::take) back, which nobody may have grown meanwhile.
    pub(super) fn give(&mut self, shard: Vec<u8>) {
        self.spare.push(shard);
    }

    /// Frees spare buffers until no more than `max` [`bytes`](Self::bytes) are left. Returns whether that was enough.
    pub(super) fn fit(&mut self, max: usize) -> bool {
        while self.bytes() > max {
            let Some(shard) = self.spare.pop() else {
                self.spare = Vec::new();
                return self.bytes() <= max;
            };
            self.bytes -= shard.capacity();
            self.buffers -= 1;
        }
        true
    }

    /// Frees all spare buffers.
    pub(super) fn trim(&mut self) {
        self.fit(0);
        self.spare = Vec::new();
    }

    #[cfg(test)]
    pub(super) const fn peak(&self) -> usize {
        self.peak
    }

    /// Bytes of all buffers, in use and spare, and of the list, which may have twice as many places as there are buffers.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.spare.capacity().max(2 * self.buffers) * size_of::<Vec<u8>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_count_by_their_capacity() {
        let mut pool = ShardPool::default();
        let mut shard = pool.take(1_000);
        assert!(shard.capacity() >= 1_000);
        shard.extend_from_slice(b"a few bytes");
        let (memory, capacity) = (shard.as_ptr(), shard.capacity());
        assert_eq!(pool.bytes, capacity);
        pool.give(shard);
        assert_eq!(pool.bytes, capacity, "a spare buffer counts");
        let shard = pool.take(900);
        assert_eq!((shard.as_ptr(), shard.len(), shard.capacity()), (memory, 0, capacity));
        assert_eq!((pool.bytes, pool.buffers), (capacity, 1));
    }

    #[test]
    fn only_spare_buffers_are_freed() {
        let mut pool = ShardPool::default();
        let shards: Vec<_> = (0..10).map(|_| pool.take(1_000)).collect();
        let each = pool.bytes() / 10;
        assert!(each > 1_000, "with its places in the list");
        assert!(!pool.fit(5 * each), "all are in use");
        assert_eq!(pool.bytes(), 10 * each);
        shards.into_iter().take(7).for_each(|shard| pool.give(shard));
        assert_eq!(pool.bytes(), 10 * each, "the list has its places");
        assert!(pool.fit(5 * each));
        assert_eq!((pool.buffers, pool.spare.len()), (5, 2));
        pool.trim();
        assert_eq!((pool.bytes(), pool.spare.capacity()), (3 * each, 0));
    }
}
