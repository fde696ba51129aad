//! Which packets were seen before.
//!
//! Nonces are random, not counted, so a sliding window of numbers cannot tell a replay: what can is a set of the
//! packets seen. It has two generations. The newer fills up to the limit, then it becomes the older one and the one
//! before is forgotten: at least the last `limit` packets are remembered and at most twice as many. A generation grows
//! with what it holds, so a session of few packets takes little memory; at the limit both take 32 bytes a packet.

use alloc::{boxed::Box, vec};

/// Remembers the packets seen last, by what identifies them.
#[derive(Debug)]
pub(crate) struct ReplayWindow {
    limit: usize,
    newer: Generation,
    older: Generation,
}

impl ReplayWindow {
    /// Remembers at least the last `limit` packets; 0 remembers none.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, newer: Generation::default(), older: Generation::default() }
    }

    /// Whether a packet is remembered.
    pub(crate) fn contains(&self, identity: u64) -> bool {
        let identity = identity.max(1);
        self.newer.contains(identity) || self.older.contains(identity)
    }

    /// Takes note of a packet; returns whether it is new.
    pub(crate) fn insert(&mut self, identity: u64) -> bool {
        if self.limit == 0 {
            return true;
        }
        // 0 marks a free slot.
        let identity = identity.max(1);
        if self.older.contains(identity) || !self.newer.insert(identity) {
            return false;
        }
        if self.newer.count >= self.limit {
            core::mem::swap(&mut self.newer, &mut self.older);
            self.newer.clear();
        }
        true
    }
}

/// A hash set with linear probing, at most half full.
#[derive(Debug, Default)]
struct Generation {
    slots: Box<[u64]>,
    count: usize,
}

const FIRST_SLOTS: usize = 16;

impl Generation {
    fn contains(&self, identity: u64) -> bool {
        !self.slots.is_empty() && self.slots[self.slot_of(identity)] == identity
    }

    /// The slot that holds `identity`, or the free one where it belongs.
    fn slot_of(&self, identity: u64) -> usize {
        let mask = self.slots.len() - 1;
        // Identities are bytes of nonces and tags; what is not random there, the product spreads.
        let spread = identity.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mut slot = spread as usize & mask;
        while self.slots[slot] != 0 && self.slots[slot] != identity {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Whether it was not there.
    fn insert(&mut self, identity: u64) -> bool {
        if self.count * 2 >= self.slots.len() {
            self.grow();
        }
        let slot = self.slot_of(identity);
        if self.slots[slot] == identity {
            return false;
        }
        self.slots[slot] = identity;
        self.count += 1;
        true
    }

    fn grow(&mut self) {
        let len = (self.slots.len() * 2).max(FIRST_SLOTS);
        let before = core::mem::replace(&mut self.slots, vec![0; len].into_boxed_slice());
        for identity in before.into_iter().filter(|identity| *identity != 0) {
            let slot = self.slot_of(identity);
            self.slots[slot] = identity;
        }
    }

    fn clear(&mut self) {
        self.slots.fill(0);
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_packets_are_remembered_and_no_more_than_twice_as_many() {
        const LIMIT: u64 = if cfg!(miri) { 10 } else { 100 };
        let mut window = ReplayWindow::new(LIMIT as usize);
        for packet in 1..10 * LIMIT {
            assert!(window.insert(packet), "{packet} is new");
            for before in packet.saturating_sub(LIMIT - 1).max(1)..=packet {
                assert!(!window.insert(before), "{before} was seen, now at {packet}");
            }
        }
        assert!(window.newer.count + window.older.count < 2 * LIMIT as usize);
        assert!(window.newer.slots.len() + window.older.slots.len() <= 512);
        assert!(window.insert(5), "forgotten long ago");
    }

    #[test]
    fn few_packets_take_little_memory() {
        let mut window = ReplayWindow::new(65_536);
        for packet in 0..8 {
            assert!(window.insert(packet << 60));
        }
        assert_eq!(window.newer.slots.len(), FIRST_SLOTS);
        assert!(window.older.slots.is_empty());
    }

    #[test]
    fn a_window_of_none_takes_everything() {
        let mut window = ReplayWindow::new(0);
        assert!(window.insert(7) && window.insert(7));
        assert!(window.newer.slots.is_empty());
    }
}
