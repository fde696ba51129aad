//! What the shards of a port know together: see [`ShardTable`].
//!
//! The keys are in tables of their own locks, so that shards which are flooded with packets of nobody's seldom wait for each other.
//! A key is a keyed hash already, and is not hashed again.

use std::{
    boxed::Box,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use hashbrown::HashTable;

use crate::proto::{FirstPackets, ShardTable};

/// Tables.
const TABLES: usize = 64;

#[derive(Debug)]
pub(in crate::net) struct Owners {
    shards: u16,
    tables: Box<[Mutex<Table>]>,
    sessions: AtomicUsize,
    first_packets: Mutex<FirstPackets>,
}

#[derive(Debug, Default)]
struct Table {
    owned: HashTable<Owned>,
}

#[derive(Debug)]
struct Owned {
    key: u64,
    /// How often it is held.
    count: u32,
    shard: u16,
}

impl Owners {
    pub(in crate::net) fn new(shards: u16) -> Self {
        Self {
            shards,
            tables: (0..TABLES).map(|_| Mutex::default()).collect(),
            sessions: AtomicUsize::new(0),
            first_packets: Mutex::default(),
        }
    }

    /// The table of a key. (Its other bits say where in the table it is.)
    fn table(&self, key: u64) -> MutexGuard<'_, Table> {
        lock(&self.tables[(key >> 40) as usize % TABLES])
    }
}

impl Table {
    fn find(&mut self, key: u64) -> Option<&mut Owned> {
        self.owned.find_mut(key, |owned| owned.key == key)
    }

    fn insert(&mut self, key: u64, shard: u16) {
        self.owned.insert_unique(key, Owned { key, count: 1, shard }, |owned| owned.key);
    }

    /// Removes the entry of a key. A crowd that has left leaves no memory behind.
    fn remove(&mut self, key: u64) {
        if let Ok(entry) = self.owned.find_entry(key, |owned| owned.key == key) {
            entry.remove();
        }
        if self.owned.is_empty() {
            self.owned = HashTable::new();
        }
    }
}

impl ShardTable for Owners {
    fn shards(&self) -> u16 {
        self.shards
    }

    fn owner(&self, key: u64) -> Option<u16> {
        self.table(key).find(key).map(|owned| owned.shard)
    }

    fn hold(&self, key: u64, shard: u16) -> Result<(), u16> {
        let mut table = self.table(key);
        match table.find(key) {
            None => table.insert(key, shard),
            Some(owned) if owned.shard == shard => owned.count += 1,
            Some(owned) => return Err(owned.shard),
        }
        Ok(())
    }

    fn take_over(&self, key: u64, shard: u16) -> Option<u16> {
        let mut table = self.table(key);
        let Some(owned) = table.find(key) else {
            table.insert(key, shard);
            return None;
        };
        owned.count = 1;
        let before = std::mem::replace(&mut owned.shard, shard);
        (before != shard).then_some(before)
    }

    fn release(&self, key: u64, shard: u16) {
        let mut table = self.table(key);
        let Some(owned) = table.find(key).filter(|owned| owned.shard == shard) else { return };
        owned.count -= 1;
        if owned.count == 0 {
            table.remove(key);
        }
    }

    fn add_session(&self, max: usize) -> bool {
        let more = |count: usize| (count < max).then_some(count + 1);
        self.sessions.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    fn remove_session(&self) {
        self.sessions.fetch_sub(1, Ordering::AcqRel);
    }

    fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Acquire)
    }

    fn remember_first(&self, identity: u64) -> bool {
        lock(&self.first_packets).remember(identity)
    }

    fn remember_resend(&self, identity: u64) -> bool {
        lock(&self.first_packets).remember_resend(identity)
    }

    fn remember_sent(&self, identity: u64) {
        lock(&self.first_packets).remember_sent(identity);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds this lock, but for a lack of memory.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{thread, vec::Vec};

    use super::*;

    #[test]
    fn a_key_is_of_the_shard_that_has_it_until_it_is_released_as_often() {
        let owners = Owners::new(2);
        assert_eq!((owners.owner(7), owners.hold(7, 1), owners.hold(7, 1)), (None, Ok(()), Ok(())));
        assert_eq!((owners.hold(7, 0), owners.owner(7)), (Err(1), Some(1)));
        owners.release(7, 0);
        owners.release(7, 1);
        assert_eq!(owners.owner(7), Some(1));
        owners.release(7, 1);
        assert_eq!(owners.owner(7), None);
    }

    #[test]
    fn who_lost_a_key_does_not_release_it() {
        let owners = Owners::new(2);
        assert_eq!((owners.take_over(7, 0), owners.take_over(7, 1)), (None, Some(0)));
        owners.release(7, 0);
        assert_eq!(owners.owner(7), Some(1));
        owners.release(7, 1);
        assert_eq!(owners.owner(7), None);
    }

    #[test]
    fn no_more_are_counted_than_the_limit_however_many_try_at_once() {
        let owners = Owners::new(2);
        let added: usize = thread::scope(|scope| {
            let tries = || (0..1_000).filter(|_| owners.add_session(500)).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(tries)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((added, owners.sessions()), (500, 500));
        (0..500).for_each(|_| owners.remove_session());
        assert_eq!(owners.sessions(), 0);
    }

    #[test]
    fn a_crowd_leaves_no_memory_behind() {
        let owners = Owners::new(2);
        let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..100_000).for_each(|number| owners.hold(key(number), 0).unwrap());
        assert_eq!(owners.owner(key(99_999)), Some(0));
        (0..100_000).for_each(|number| owners.release(key(number), 0));
        assert!(owners.tables.iter().all(|table| lock(table).owned.capacity() == 0));
    }
}
