//! Which packets were seen before.
//!
//! Packets carry random nonces, not numbers, so a sliding window of numbers cannot recognise a replay. A set of the last packets
//! can. Of each it has a *fingerprint*, 32 bits of its identity: a packet that is not known is taken for a known one once in
//! 2^32 / `limit` times, and is lost then, as it may be on its way.
//!
//! ```text
//! ring     fingerprints in the order in which they came; the next one takes the place of the oldest
//! places   where in the ring a fingerprint is: a hash table with linear probing, at most a quarter full
//! ```
//!
//! Both grow with the packets that come: a session of few packets takes little memory. At the limit they take 12 bytes for each
//! packet of the limit, or a little more where that is no power of two. [`trim`](ReplayWindow::trim) leaves a third of that,
//! and forgets nothing.
//!
//! Fingerprints are random, so that the processor cannot foretell how far it has to look for one. In a table that is hardly full,
//! it mostly has not to look further than the first place.

use alloc::{boxed::Box, vec, vec::Vec};

/// The highest limit: places are numbers of 16 bits.
pub(crate) const MAX_LIMIT: usize = 32_768;

/// A place of the table that no fingerprint has.
const VACANT: u16 = u16::MAX;
/// Fingerprints that the ring has room for at first.
const FIRST_ROOM: usize = 8;
/// Places of the table for each fingerprint that the ring has room for.
const SPARSENESS: usize = 4;

/// Remembers the last packets by their identities.
#[derive(Debug)]
pub(crate) struct ReplayWindow {
    limit: u16,
    /// Where the next fingerprint goes. Once there are as many as the limit, the one that is there is forgotten, and the one behind
    /// it is the oldest.
    next: u16,
    /// It has room for one more than the limit: the next one is added before the oldest is forgotten.
    ring: Vec<u32>,
    /// Their number is a power of two, or 0 after a [`trim`](Self::trim).
    places: Box<[u16]>,
}

impl ReplayWindow {
    /// Remembers the last `limit` packets, at most [`MAX_LIMIT`]; 0 remembers none.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.min(MAX_LIMIT) as u16, next: 0, ring: Vec::new(), places: Box::default() }
    }

    /// Whether the packet with this identity is remembered.
    pub(crate) fn contains(&self, identity: u64) -> bool {
        let fingerprint = fingerprint(identity);
        if self.places.is_empty() {
            let mut positions = self.ring.iter().enumerate();
            return positions.any(|(position, known)| *known == fingerprint && !self.is_forgotten(position));
        }
        self.places[self.place_of(fingerprint)] != VACANT
    }

    /// Remembers the packet with this identity. Returns whether it is new.
    pub(crate) fn insert(&mut self, identity: u64) -> bool {
        if self.limit == 0 {
            return true;
        }
        let fingerprint = fingerprint(identity);
        if self.places.len() < SPARSENESS * self.ring.len().clamp(1, self.limit.into()) {
            self.make_room();
        }
        let place = self.place_of(fingerprint);
        if self.places[place] != VACANT {
            return false;
        }
        let position = self.next;
        self.places[place] = position;
        if let Some(forgotten) = self.ring.get_mut(usize::from(position)) {
            *forgotten = fingerprint;
        } else {
            self.ring.push(fingerprint);
        }
        self.next = if position == self.limit { 0 } else { position + 1 };
        if self.is_full() {
            self.remove(self.next);
        }
        true
    }

    /// Whether there are as many as the limit.
    const fn is_full(&self) -> bool {
        self.ring.len() > self.limit as usize
    }

    /// Whether what the ring has at `position` is not remembered any more.
    const fn is_forgotten(&self, position: usize) -> bool {
        self.is_full() && position == self.next as usize
    }

    /// Frees the memory that is not needed to remember what is remembered.
    pub(crate) fn trim(&mut self) {
        self.places = Box::default();
        self.ring.shrink_to_fit();
    }

    /// The place that has `fingerprint`, or the vacant one where it belongs.
    #[inline]
    fn place_of(&self, fingerprint: u32) -> usize {
        let mask = self.places.len() - 1;
        let mut place = fingerprint as usize & mask;
        while self.places[place] != VACANT && self.ring[usize::from(self.places[place])] != fingerprint {
            place = (place + 1) & mask;
        }
        place
    }

    /// Removes what is at `position` from the table. Those behind it that stood there because of it close the gap.
    fn remove(&mut self, position: u16) {
        let mask = self.places.len() - 1;
        let mut gap = self.place_of(self.ring[usize::from(position)]);
        let mut place = gap;
        loop {
            place = (place + 1) & mask;
            let moving = self.places[place];
            if moving == VACANT {
                break;
            }
            let home = self.ring[usize::from(moving)] as usize & mask;
            if place.wrapping_sub(home) & mask >= place.wrapping_sub(gap) & mask {
                self.places[gap] = moving;
                gap = place;
            }
        }
        self.places[gap] = VACANT;
    }

    /// Makes the table anew, and the ring larger, unless it is full.
    #[cold]
    fn make_room(&mut self) {
        let (len, limit) = (self.ring.len(), usize::from(self.limit));
        let room = (len + len.max(FIRST_ROOM)).min(limit);
        self.ring.reserve_exact((room + usize::from(room == limit)).saturating_sub(len));
        self.places = vec![VACANT; (SPARSENESS * room).next_power_of_two()].into();
        for position in 0..len {
            if self.is_forgotten(position) {
                continue;
            }
            let place = self.place_of(self.ring[position]);
            self.places[place] = position as u16;
        }
    }
}

/// Identities are bytes of nonces and tags. The multiplication spreads those that are not random.
#[inline]
const fn fingerprint(identity: u64) -> u32 {
    (identity.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_packets_are_remembered_and_none_before() {
        const LIMIT: u64 = if cfg!(miri) { 10 } else { 100 };
        let mut window = ReplayWindow::new(LIMIT as usize);
        for packet in 1..10 * LIMIT {
            assert!(window.insert(packet), "{packet} is new");
            for before in packet.saturating_sub(LIMIT - 1).max(1)..=packet {
                assert!(
                    window.contains(before) && !window.insert(before),
                    "{before} was seen, now at {packet}"
                );
            }
            assert!(packet <= LIMIT || !window.contains(packet - LIMIT), "{packet}");
        }
        assert!(window.insert(5), "forgotten long ago");
    }

    /// Against a queue that is searched: fingerprints that stand in each other's way, at every fill.
    #[test]
    fn it_is_the_same_as_a_queue_of_the_last() {
        for limit in [1, 2, 3, 7, 16, 33] {
            let mut window = ReplayWindow::new(limit);
            let mut queue = alloc::collections::VecDeque::new();
            let mut random = 1_u64;
            for step in 0..if cfg!(miri) { 200 } else { 5_000 } {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let identity = (random >> 33) % (3 * limit as u64);
                let is_new = !queue.contains(&identity);
                assert_eq!(window.contains(identity), !is_new, "limit {limit}, step {step}");
                assert_eq!(window.insert(identity), is_new, "limit {limit}, step {step}");
                if is_new {
                    queue.push_back(identity);
                    if queue.len() > limit {
                        queue.pop_front();
                    }
                }
                if random >> 60 == 0 {
                    window.trim();
                }
            }
        }
    }

    #[test]
    fn few_packets_take_little_memory_and_many_no_more_than_is_said() {
        let bytes = |window: &ReplayWindow| 4 * window.ring.capacity() + 2 * window.places.len();
        let mut window = ReplayWindow::new(256);
        for packet in 0..8 {
            assert!(window.insert(packet << 40));
        }
        assert_eq!(bytes(&window), 12 * 8);
        for packet in 8..1_000 {
            window.insert(packet << 40);
        }
        assert_eq!(bytes(&window), 12 * 256 + 4);
        window.trim();
        assert_eq!(bytes(&window), 4 * 256 + 4);
        assert!((1_000 - 256..1_000).all(|packet| window.contains(packet << 40)), "nothing is forgotten");
        assert!(!window.insert(744 << 40) && window.insert(743 << 40));
    }

    #[test]
    fn the_highest_limit_is_kept() {
        let mut window = ReplayWindow::new(MAX_LIMIT);
        let packets = if cfg!(miri) { 50 } else { MAX_LIMIT as u64 };
        // Few of so many share a fingerprint.
        let new = (0..packets).filter(|packet| window.insert(*packet)).count() as u64;
        assert!(new >= packets - 8 && (0..packets).all(|packet| window.contains(packet)), "{new}");
    }

    #[test]
    fn a_limit_of_zero_remembers_nothing() {
        let mut window = ReplayWindow::new(0);
        assert!(window.insert(7) && window.insert(7) && !window.contains(7));
        assert!(window.ring.is_empty());
    }
}
