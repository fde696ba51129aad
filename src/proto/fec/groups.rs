//! The groups that a decoder keeps, with the shards that came of each.

use alloc::{
    collections::{VecDeque, vec_deque},
    vec::Vec,
};
use core::ops::{Index, IndexMut};

use super::{decode_cache::ShardSet, pool::ShardPool};

/// Groups kept at least, as in kcp-go. A packet that is reordered by more than that comes too late.
const MIN_GROUPS: usize = 3;
/// Where groups are small, as many are kept as hold this many packets.
const MIN_PACKETS: usize = 128;

/// A place for each shard of a group.
type Places = Vec<Option<Vec<u8>>>;

#[derive(Debug)]
pub(super) struct Group {
    /// The seqid of the group's first shard.
    pub(super) first: u32,
    /// The data shards, then the parity shards. Empty once the group is done.
    pub(super) shards: Places,
    /// The shards that came, kept or not.
    pub(super) seen: ShardSet,
    /// Data shards that came.
    pub(super) data: usize,
    /// Parity shards that came.
    pub(super) parity: usize,
    /// All data was handed on, or the group was given up.
    pub(super) done: bool,
}

impl Group {
    /// The lengths of the shards that are kept.
    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> {
        self.lengths_from(0)
    }

    /// The length of the parity shards behind `data` data shards, if all have the same and there is one.
    pub(super) fn parity_len(&self, data: usize) -> Option<usize> {
        let mut lengths = self.lengths_from(data);
        let len = lengths.next()?;
        lengths.all(|other| other == len).then_some(len)
    }

    fn lengths_from(&self, first: usize) -> impl Iterator<Item = usize> {
        let kept = self.seen.present(first..self.shards.len());
        kept.filter_map(|shard| self.shards[shard].as_ref().map(Vec::len))
    }
}

/// Groups of one size, in the order of their seqids.
///
/// A group begins and ends at a cost that its size has no part in: a packet can begin one of 256, and end another.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: VecDeque<Group>,
    /// Places of former groups, to be used again: as many as a group has, and all of them empty.
    spare: Vec<Places>,
    /// Shards of a group.
    size: usize,
    /// Groups that are not done.
    open: usize,
}

impl Groups {
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether the next group makes them too many.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.max()
    }

    fn max(&self) -> usize {
        (MIN_PACKETS / self.size.max(1)).max(MIN_GROUPS)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn front(&self) -> Option<&Group> {
        self.groups.front()
    }

    pub(super) fn iter(&self) -> vec_deque::Iter<'_, Group> {
        self.groups.iter()
    }

    /// Groups that begin now have `size` shards. There must be none.
    pub(super) fn set_size(&mut self, size: usize) {
        debug_assert!(self.is_empty());
        if self.size != size {
            self.size = size;
            self.spare = Vec::new();
        }
    }

    /// Begins a group in front of the one at `at`. There may be one too many then, until the first is dropped.
    pub(super) fn insert(&mut self, at: usize, first: u32) {
        let size = self.size;
        self.open += 1;
        self.groups.reserve_exact((self.max() + 1).saturating_sub(self.groups.len()));
        let shards = self.spare.pop().unwrap_or_else(|| (0..size).map(|_| None).collect());
        let seen = ShardSet::default();
        self.groups.insert(at, Group { first, shards, seen, data: 0, parity: 0, done: false });
    }

    /// Ends a group, and gives its shards back to the pool.
    pub(super) fn finish(&mut self, at: usize, pool: &mut ShardPool) {
        let group = &mut self.groups[at];
        group.done = true;
        self.open -= 1;
        let mut shards = core::mem::take(&mut group.shards);
        for shard in group.seen.present(0..shards.len()) {
            if let Some(shard) = shards[shard].take() {
                pool.give(shard);
            }
        }
        self.spare.push(shards);
    }

    /// Drops the first group, which must be done.
    pub(super) fn pop_front(&mut self) {
        let group = self.groups.pop_front();
        debug_assert!(group.is_none_or(|group| group.done));
    }

    /// Bytes of all lists, and of those of one group more.
    pub(super) fn memory(&self) -> usize {
        let lists = self.open + self.spare.len() + 1;
        lists * self.size * size_of::<Option<Vec<u8>>>()
            + self.spare.capacity() * size_of::<Places>()
            + self.groups.capacity() * size_of::<Group>()
    }

    /// Frees what is kept for further groups.
    pub(super) fn trim(&mut self) {
        self.groups.shrink_to_fit();
        self.spare = Vec::new();
    }
}

impl Index<usize> for Groups {
    type Output = Group;

    fn index(&self, at: usize) -> &Group {
        &self.groups[at]
    }
}

impl IndexMut<usize> for Groups {
    fn index_mut(&mut self, at: usize) -> &mut Group {
        &mut self.groups[at]
    }
}
