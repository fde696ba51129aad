//! The sets of shards that a decoder recovered from lately, with the coefficients computed for each.

use alloc::vec::Vec;
use core::{fmt, ops::Range};

/// Sets kept. One lost shard of a common code, with 10 data shards, makes no more than so many.
const MAX_ENTRIES: usize = 16;
/// Bytes of coefficients kept where there is more than one set. Small codes never come near it. Large codes take much longer to
/// recover shards than to compute their coefficients.
const MAX_BYTES: usize = 4 << 10;

/// A set of shards, which are named by their index in the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ShardSet([u64; 4]);

impl ShardSet {
    /// `shard` must be below 256.
    pub(super) fn insert(&mut self, shard: usize) {
        self.0[shard / 64] |= 1 << (shard % 64);
    }

    pub(super) fn contains(&self, shard: usize) -> bool {
        self.0[shard / 64] >> (shard % 64) & 1 == 1
    }

    /// The shards of `range` that are in the set, in order.
    pub(super) fn present(&self, range: Range<usize>) -> impl Iterator<Item = usize> + use<> {
        shards(self.0, range)
    }

    /// The shards of `range` that are not in the set, in order.
    pub(super) fn absent(&self, range: Range<usize>) -> impl Iterator<Item = usize> + use<> {
        shards(self.0.map(|word| !word), range)
    }
}

/// The shards of `range` whose bits are set, in order. It takes as long as there are such shards.
fn shards(words: [u64; 4], range: Range<usize>) -> impl Iterator<Item = usize> {
    let below = |end: usize, word: usize| match end.saturating_sub(64 * word) {
        bits @ ..64 => (1_u64 << bits) - 1,
        _ => u64::MAX,
    };
    let mut words = words;
    for (at, word) in words.iter_mut().enumerate() {
        *word &= below(range.end, at) & !below(range.start, at);
    }
    let mut at = 0;
    core::iter::from_fn(move || {
        while *words.get(at)? == 0 {
            at += 1;
        }
        let shard = 64 * at + words[at].trailing_zeros() as usize;
        words[at] &= words[at] - 1;
        Some(shard)
    })
}

/// The coefficients by which a decoder recovered shards lately. The same losses often repeat; keep a cache with each decoder.
///
/// It takes at most 4 KiB, for all but the largest codes. It may serve any number of [`ReedSolomon`](super::ReedSolomon)s,
/// and it allocates nothing until the first recovery.
#[derive(Default)]
pub struct DecodeCache {
    /// The entry used last comes first.
    entries: Vec<Entry>,
    /// Bytes of their coefficients.
    bytes: usize,
}

struct Entry {
    code: (usize, usize),
    present: ShardSet,
    coefficients: Vec<u8>,
}

impl DecodeCache {
    /// An empty cache.
    pub const fn new() -> Self {
        Self { entries: Vec::new(), bytes: 0 }
    }

    /// The `len` coefficients for recovery from the shards `present`, where `code` is the number of data and parity shards.
    /// `compute` writes them where the cache does not have them.
    pub(super) fn coefficients(
        &mut self,
        code: (usize, usize),
        present: &ShardSet,
        len: usize,
        compute: impl FnOnce(&mut Vec<u8>),
    ) -> &[u8] {
        let known = self.entries.iter().position(|entry| entry.present == *present && entry.code == code);
        let at = known.unwrap_or_else(|| {
            let mut coefficients = self.make_room(len);
            compute(&mut coefficients);
            self.bytes += coefficients.capacity();
            self.entries.push(Entry { code, present: *present, coefficients });
            self.entries.len() - 1
        });
        self.entries[..=at].rotate_right(1);
        &self.entries[0].coefficients
    }

    /// Bytes of all that is kept.
    pub(super) const fn memory(&self) -> usize {
        self.bytes + self.entries.capacity() * size_of::<Entry>()
    }

    /// Drops the entries used longest ago until `len` more coefficients fit. Returns the memory of the last one for them.
    fn make_room(&mut self, len: usize) -> Vec<u8> {
        let mut memory = Vec::new();
        loop {
            let kept = self.bytes;
            let fits = |coefficients: usize| kept + coefficients <= MAX_BYTES;
            if self.entries.is_empty() || (self.entries.len() < MAX_ENTRIES && fits(len)) {
                // Memory that served a larger code may be more than is kept.
                return if fits(memory.capacity()) { memory } else { Vec::new() };
            }
            if let Some(oldest) = self.entries.pop() {
                memory = oldest.coefficients;
                self.bytes -= memory.capacity();
            }
        }
    }
}

impl fmt::Debug for DecodeCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecodeCache").field("entries", &self.entries.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(shards: impl IntoIterator<Item = usize>) -> ShardSet {
        let mut set = ShardSet::default();
        shards.into_iter().for_each(|shard| set.insert(shard));
        set
    }

    /// Asks for the coefficients of a set; returns whether they had to be computed.
    fn computed(cache: &mut DecodeCache, present: &ShardSet, len: usize) -> bool {
        let mut computed = false;
        let coefficients = cache.coefficients((10, 3), present, len, |coefficients| {
            computed = true;
            coefficients.clear();
            coefficients.resize(len, 0);
        });
        assert_eq!(coefficients.len(), len);
        computed
    }

    #[test]
    fn a_set_knows_what_is_present_and_absent() {
        let set = set([0, 63, 64, 255]);
        assert_eq!(set.present(0..256).collect::<Vec<_>>(), [0, 63, 64, 255]);
        assert_eq!(set.present(1..64).collect::<Vec<_>>(), [63]);
        assert_eq!(set.absent(0..256).count(), 252);
        assert_eq!(set.absent(62..66).collect::<Vec<_>>(), [62, 65]);
    }

    #[test]
    fn the_cache_drops_the_entry_used_longest_ago() {
        let mut cache = DecodeCache::new();
        for n in 0..MAX_ENTRIES {
            assert!(computed(&mut cache, &set([n]), 10));
        }
        assert!(!computed(&mut cache, &set([0]), 10), "all of them fit");
        assert!(computed(&mut cache, &set([99]), 10), "one too many");
        assert!(!computed(&mut cache, &set([0]), 10), "was used after the others");
        assert!(computed(&mut cache, &set([1]), 10), "made room");
        assert!(!computed(&mut cache, &set([99]), 10));
        assert_eq!(cache.entries.len(), MAX_ENTRIES);
    }

    #[test]
    fn the_cache_keeps_no_more_bytes_than_its_limit() {
        let mut cache = DecodeCache::new();
        let large = 3 * MAX_BYTES;
        for n in 0..4 {
            assert!(computed(&mut cache, &set([n]), large));
            assert!(!computed(&mut cache, &set([n]), large), "the last one is always kept");
            assert_eq!(cache.entries.len(), 1);
        }
        for n in 10..40 {
            assert!(computed(&mut cache, &set([n]), 500));
        }
        let kept: usize = cache.entries.iter().map(|entry| entry.coefficients.capacity()).sum();
        assert!(kept <= MAX_BYTES);
        assert_eq!(cache.entries.len(), MAX_BYTES / 500);
    }

    #[test]
    fn codes_of_different_sizes_have_entries_of_their_own() {
        let mut cache = DecodeCache::new();
        assert!(computed(&mut cache, &set([1]), 10));
        let mut fresh = false;
        cache.coefficients((10, 4), &set([1]), 10, |coefficients| {
            fresh = true;
            coefficients.resize(10, 0);
        });
        assert!(fresh);
    }
}
