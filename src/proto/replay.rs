//! Which packets were seen before.
//!
//! Packets carry random nonces, not numbers, so a sliding window of numbers cannot recognise a replay. A set of the packets seen
//! can. It has two generations, a newer and an older one. When the newer one is full it becomes the older one, and the older one
//! is forgotten. So at least the last `limit` packets are remembered, and at most twice as many.
//!
//! A generation grows with its contents: a session of few packets takes little memory. At the limit both together take 32 bytes
//! for each packet of the limit.

use alloc::{boxed::Box, vec};

/// Remembers the last packets by their identities.
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

    /// Whether the packet with this identity is remembered.
    pub(crate) fn contains(&self, identity: u64) -> bool {
        let identity = nonzero(identity);
        self.newer.contains(identity) || self.older.contains(identity)
    }

    /// Remembers the packet with this identity. Returns whether it is new.
    pub(crate) fn insert(&mut self, identity: u64) -> bool {
        if self.limit == 0 {
            return true;
        }
        let identity = nonzero(identity);
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

/// 0 marks a free slot, so the identity 0 counts as 1.
fn nonzero(identity: u64) -> u64 {
    identity.max(1)
}

/// A hash set with linear probing, at most half full.
#[derive(Debug, Default)]
struct Generation {
    /// Identities; 0 marks a free slot. Their number is 0 or a power of two.
    slots: Box<[u64]>,
    count: usize,
}

/// Slots of a generation with its first packet.
const FIRST_SLOTS: usize = 16;

impl Generation {
    fn contains(&self, identity: u64) -> bool {
        !self.slots.is_empty() && self.slots[self.slot_of(identity)] == identity
    }

    /// The slot that holds `identity`, or the free slot where it belongs.
    fn slot_of(&self, identity: u64) -> usize {
        let mask = self.slots.len() - 1;
        // Identities are bytes of nonces and tags. The multiplication spreads those that are not random.
        let spread = identity.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mut slot = spread as usize & mask;
        while self.slots[slot] != 0 && self.slots[slot] != identity {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Adds `identity`. Returns whether it is new.
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
    fn at_least_the_limit_and_at_most_twice_as_many_packets_are_remembered() {
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
    fn a_limit_of_zero_remembers_nothing() {
        let mut window = ReplayWindow::new(0);
        assert!(window.insert(7) && window.insert(7));
        assert!(window.newer.slots.is_empty());
    }
}
