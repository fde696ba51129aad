//! Which shards of a group are there, and what was computed for the patterns seen last.

use alloc::vec::Vec;
use core::{fmt, ops::Range};

/// Loss patterns kept. One lost shard of the common codes (10 data shards) makes no more than so many.
const MAX_ENTRIES: usize = 16;
/// Coefficients kept, a byte each, if there is more than one pattern: small codes are never near it, and large ones
/// recover in much more time than their coefficients take.
const MAX_BYTES: usize = 4 << 10;

/// A set of shards, by their number in the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pattern([u64; 4]);

impl Pattern {
    /// `shard` must be below 256.
    pub(super) fn insert(&mut self, shard: usize) {
        self.0[shard / 64] |= 1 << (shard % 64);
    }

    pub(super) fn contains(&self, shard: usize) -> bool {
        self.0[shard / 64] >> (shard % 64) & 1 == 1
    }

    /// Those of `range` in the set, in order.
    pub(super) fn present(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        range.filter(|&shard| self.contains(shard))
    }

    /// Those of `range` not in the set, in order.
    pub(super) fn absent(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        range.filter(|&shard| !self.contains(shard))
    }
}

/// Coefficients of the loss patterns that a decoder met last, at most 4 KiB for all but the largest codes; to be kept
/// with the decoder, where losses repeat.
///
/// It may serve any number of [`ReedSolomon`](super::ReedSolomon)s and allocates nothing until the first recovery.
#[derive(Default)]
pub struct DecodeCache {
    /// The one used last comes first.
    entries: Vec<Entry>,
}

struct Entry {
    code: (usize, usize),
    pattern: Pattern,
    coefficients: Vec<u8>,
}

impl DecodeCache {
    /// An empty cache.
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// The `len` coefficients of `pattern` for a code of so many data and parity shards; `compute` writes them if they
    /// are not at hand.
    pub(super) fn coefficients(
        &mut self,
        code: (usize, usize),
        pattern: &Pattern,
        len: usize,
        compute: impl FnOnce(&mut Vec<u8>),
    ) -> &[u8] {
        let known = self.entries.iter().position(|entry| entry.pattern == *pattern && entry.code == code);
        let at = known.unwrap_or_else(|| {
            let mut coefficients = self.make_room(len);
            compute(&mut coefficients);
            self.entries.push(Entry { code, pattern: *pattern, coefficients });
            self.entries.len() - 1
        });
        self.entries[..=at].rotate_right(1);
        &self.entries[0].coefficients
    }

    /// Bytes of all that is kept.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        let coefficients: usize = self.entries.iter().map(|entry| entry.coefficients.capacity()).sum();
        coefficients + self.entries.capacity() * size_of::<Entry>()
    }

    /// Forgets what was used longest ago until `len` more coefficients fit, and returns its memory for them.
    fn make_room(&mut self, len: usize) -> Vec<u8> {
        let mut memory = Vec::new();
        loop {
            let kept: usize = self.entries.iter().map(|entry| entry.coefficients.capacity()).sum();
            let fits = |coefficients: usize| kept + coefficients <= MAX_BYTES;
            if self.entries.is_empty() || (self.entries.len() < MAX_ENTRIES && fits(len)) {
                // What served a larger code may be too much now.
                return if fits(memory.capacity()) { memory } else { Vec::new() };
            }
            if let Some(oldest) = self.entries.pop() {
                memory = oldest.coefficients;
            }
        }
    }
}

impl fmt::Debug for DecodeCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecodeCache").field("patterns", &self.entries.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(shards: impl IntoIterator<Item = usize>) -> Pattern {
        let mut pattern = Pattern::default();
        shards.into_iter().for_each(|shard| pattern.insert(shard));
        pattern
    }

    /// Looks a pattern up; whether it had to be computed.
    fn computed(cache: &mut DecodeCache, pattern: &Pattern, len: usize) -> bool {
        let mut computed = false;
        let coefficients = cache.coefficients((10, 3), pattern, len, |coefficients| {
            computed = true;
            coefficients.clear();
            coefficients.resize(len, 0);
        });
        assert_eq!(coefficients.len(), len);
        computed
    }

    #[test]
    fn patterns_are_sets() {
        let pattern = pattern([0, 63, 64, 255]);
        assert_eq!(pattern.present(0..256).collect::<Vec<_>>(), [0, 63, 64, 255]);
        assert_eq!(pattern.present(1..64).collect::<Vec<_>>(), [63]);
        assert_eq!(pattern.absent(0..256).count(), 252);
        assert_eq!(pattern.absent(62..66).collect::<Vec<_>>(), [62, 65]);
    }

    #[test]
    fn the_cache_forgets_what_was_used_longest_ago() {
        let mut cache = DecodeCache::new();
        for n in 0..MAX_ENTRIES {
            assert!(computed(&mut cache, &pattern([n]), 10));
        }
        assert!(!computed(&mut cache, &pattern([0]), 10), "all of them fit");
        assert!(computed(&mut cache, &pattern([99]), 10), "one too many");
        assert!(!computed(&mut cache, &pattern([0]), 10), "was used after the others");
        assert!(computed(&mut cache, &pattern([1]), 10), "made room");
        assert!(!computed(&mut cache, &pattern([99]), 10));
        assert_eq!(cache.entries.len(), MAX_ENTRIES);
    }

    #[test]
    fn the_cache_is_bounded_in_bytes() {
        let mut cache = DecodeCache::new();
        let large = 3 * MAX_BYTES;
        for n in 0..4 {
            assert!(computed(&mut cache, &pattern([n]), large));
            assert!(!computed(&mut cache, &pattern([n]), large), "the last one is always kept");
            assert_eq!(cache.entries.len(), 1);
        }
        for n in 10..40 {
            assert!(computed(&mut cache, &pattern([n]), 500));
        }
        let kept: usize = cache.entries.iter().map(|entry| entry.coefficients.capacity()).sum();
        assert!(kept <= MAX_BYTES);
        assert_eq!(cache.entries.len(), MAX_BYTES / 500);
    }

    #[test]
    fn codes_of_different_size_do_not_mix() {
        let mut cache = DecodeCache::new();
        assert!(computed(&mut cache, &pattern([1]), 10));
        let mut fresh = false;
        cache.coefficients((10, 4), &pattern([1]), 10, |coefficients| {
            fresh = true;
            coefficients.resize(10, 0);
        });
        assert!(fresh);
    }
}
