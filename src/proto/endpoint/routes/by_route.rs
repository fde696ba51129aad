//! The sessions by their routes: a hash table of places in [`Routes`](super::Routes)' list.
//!
//! The routes themselves are in that list only. A packet's session is looked at there next anyhow, and the table takes an eighth of
//! what one with keys does.

use core::hash::BuildHasher;

use hashbrown::HashTable;

use super::{super::hash::HashKey, Entry, Route};

#[derive(Debug)]
pub(super) struct ByRoute {
    table: HashTable<u32>,
    key: HashKey,
}

/// The list that the table's places are of.
type Entries = [Option<Entry>];

fn route_at(entries: &Entries, index: u32) -> Option<&Route> {
    entries.get(index as usize)?.as_ref().map(|entry| &entry.route)
}

impl ByRoute {
    pub(super) const fn new(key: HashKey) -> Self {
        Self { table: HashTable::new(), key }
    }

    pub(super) const fn key(&self) -> HashKey {
        self.key
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Where the session of a route is.
    #[inline]
    pub(super) fn find(&self, entries: &Entries, route: &Route) -> Option<u32> {
        let is = |index: &u32| route_at(entries, *index) == Some(route);
        self.table.find(self.key.hash_one(route), is).copied()
    }

    /// Adds the session at `index`, whose route no other one has.
    pub(super) fn insert(&mut self, entries: &Entries, index: u32) {
        let key = self.key;
        // Each place in the table is that of a session.
        let hash = |index: &u32| route_at(entries, *index).map_or(0, |route| key.hash_one(route));
        let Some(route) = route_at(entries, index) else { return };
        self.table.insert_unique(key.hash_one(route), index, hash);
    }

    /// Removes the session at `index`, before its route changes.
    pub(super) fn remove(&mut self, entries: &Entries, index: u32) {
        let Some(route) = route_at(entries, index) else { return };
        if let Ok(found) = self.table.find_entry(self.key.hash_one(route), |at| *at == index) {
            found.remove();
        }
    }
}
