//! The addresses with established sessions: how many each has, and what it sent lately.
//!
//! It is asked before a packet is decrypted, so only by the address. An address is kept as 32 bits of its keyed hash, which nobody
//! can foretell: one stranger in 4,000 is taken for one of a million peers, and shares with that peer what it may send.

use core::{hash::BuildHasher, net::SocketAddr};

use hashbrown::HashTable;

use super::hash::HashKey;

#[derive(Debug)]
pub(super) struct Sources {
    table: HashTable<Source>,
    key: HashKey,
}

/// An address with established sessions.
#[derive(Debug)]
pub(super) struct Source {
    tag: u32,
    pub(super) sessions: u32,
    /// The window in which it sent last, and what it has sent in that: see [`Rations`](super::rations::Rations).
    pub(super) window: u32,
    pub(super) work: u32,
}

impl Sources {
    pub(super) const fn new(key: HashKey) -> Self {
        Self { table: HashTable::new(), key }
    }

    fn tag(&self, address: SocketAddr) -> u32 {
        self.key.hash_one(address) as u32
    }

    /// Adds a session that is established.
    pub(super) fn add(&mut self, address: SocketAddr) {
        let tag = self.tag(address);
        let entry = self.table.entry(spread(tag), |source| source.tag == tag, |source| spread(source.tag));
        entry.or_insert(Source { tag, sessions: 0, window: 0, work: 0 }).into_mut().sessions += 1;
    }

    /// Removes a session that [`add`](Self::add) took.
    pub(super) fn remove(&mut self, address: SocketAddr) {
        let tag = self.tag(address);
        let Ok(mut entry) = self.table.find_entry(spread(tag), |source| source.tag == tag) else { return };
        entry.get_mut().sessions -= 1;
        if entry.get().sessions == 0 {
            entry.remove();
        }
    }

    pub(super) fn find_mut(&mut self, address: SocketAddr) -> Option<&mut Source> {
        let tag = self.tag(address);
        self.table.find_mut(spread(tag), |source| source.tag == tag)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

/// The table takes the lowest and the highest bits of 64.
const fn spread(tag: u32) -> u64 {
    (tag as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    #[test]
    fn an_address_is_known_as_long_as_it_has_a_session() {
        let mut sources = Sources::new(HashKey::for_tests());
        for port in [1, 1, 2] {
            sources.add(address(port));
        }
        let mut sessions = |port| sources.find_mut(address(port)).map(|source| source.sessions);
        assert_eq!((sessions(1), sessions(2), sessions(3)), (Some(2), Some(1), None));
        sources.remove(address(1));
        sources.remove(address(2));
        let mut sessions = |port| sources.find_mut(address(port)).map(|source| source.sessions);
        assert_eq!((sessions(1), sessions(2)), (Some(1), None));
        sources.remove(address(1));
        assert!(sources.is_empty());
    }

    #[test]
    fn a_crowd_of_one_host_is_told_apart() {
        let mut sources = Sources::new(HashKey::for_tests());
        (1..=2_000).for_each(|port| sources.add(address(port)));
        assert!((1..=2_000).all(|port| sources.find_mut(address(port)).is_some_and(|s| s.sessions == 1)));
        assert!((2_001..=60_000).filter(|port| sources.find_mut(address(*port)).is_some()).count() <= 2);
    }
}
