//! Segments that arrived out of order: they wait here until all segments before them have arrived.
//!
//! A hash map by sn. Its memory follows how many segments wait, and not how far apart their numbers are: one small segment at
//! the far end of the window takes no more than one that is next but one.

use core::hash::{BuildHasherDefault, Hasher};

use bytes::BytesMut;
use hashbrown::HashMap;

/// A segment that waits.
#[derive(Debug)]
pub(super) struct OutOfOrder {
    pub(super) payload: BytesMut,
    pub(super) frg: u8,
}

#[derive(Debug, Default)]
pub(super) struct Reassembly {
    segments: HashMap<u32, OutOfOrder, BuildHasherDefault<Spread>>,
    bytes: usize,
}

/// Spreads numbers that mostly follow each other. All of a session's lie within its window, so the worst that a peer can choose is a
/// walk along a few of its own segments.
#[derive(Debug, Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    #[inline]
    fn write_u32(&mut self, sn: u32) {
        // The map takes the place from the lower bits, and a tag from the upper ones.
        let product = (self.0 ^ u64::from(sn)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Reassembly {
    /// Segments that wait.
    pub(super) fn count(&self) -> u32 {
        self.segments.len() as u32
    }

    /// Bytes of their payload.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the segment `sn` waits.
    #[inline]
    pub(super) fn contains(&self, sn: u32) -> bool {
        !self.segments.is_empty() && self.segments.contains_key(&sn)
    }

    /// Adds the segment `sn` with the payload that `payload` makes. Returns `false`, and calls nothing, if it waits already.
    #[inline]
    pub(super) fn insert(&mut self, sn: u32, frg: u8, payload: impl FnOnce() -> BytesMut) -> bool {
        let hashbrown::hash_map::Entry::Vacant(place) = self.segments.entry(sn) else { return false };
        let payload = payload();
        self.bytes += payload.len();
        place.insert(OutOfOrder { payload, frg });
        true
    }

    /// Removes the segment `sn`, if it waits.
    #[inline]
    pub(super) fn take(&mut self, sn: u32) -> Option<OutOfOrder> {
        if self.segments.is_empty() {
            return None;
        }
        let segment = self.segments.remove(&sn)?;
        self.bytes -= segment.payload.len();
        Some(segment)
    }

    /// Frees the memory that those which wait do not need.
    pub(super) fn trim(&mut self) {
        self.segments.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(reassembly: &mut Reassembly, sn: u32, payload: &[u8]) -> bool {
        reassembly.insert(sn, sn as u8, || payload.into())
    }

    #[test]
    fn segments_are_found_by_sn_also_where_it_wraps() {
        let next = u32::MAX - 20;
        let mut reassembly = Reassembly::default();
        // 29 is coprime to 64: each distance once, near and far ones mixed.
        let numbers = (0..64).map(|i| next.wrapping_add(1 + i * 29 % 64));
        for (count, sn) in (1..).zip(numbers) {
            assert!(insert(&mut reassembly, sn, &[sn as u8; 3]));
            assert!(!insert(&mut reassembly, sn, b"duplicate"));
            assert_eq!((reassembly.count(), reassembly.bytes()), (count, 3 * count as usize));
        }
        assert!(!reassembly.contains(next) && reassembly.take(next).is_none());
        for ahead in 1..=64 {
            let sn = next.wrapping_add(ahead);
            assert!(reassembly.contains(sn));
            let taken = reassembly.take(sn).unwrap();
            assert_eq!((&taken.payload[..], taken.frg), (&[sn as u8; 3][..], sn as u8));
            assert!(!reassembly.contains(sn));
        }
        assert_eq!((reassembly.count(), reassembly.bytes()), (0, 0));
    }

    #[test]
    fn memory_follows_how_many_wait_and_not_their_numbers() {
        let mut near = Reassembly::default();
        let mut far = Reassembly::default();
        for i in 0..10 {
            insert(&mut near, 1 + i, b"");
            insert(&mut far, 1 + i * 6_000, b"");
        }
        assert_eq!(near.segments.capacity(), far.segments.capacity());
        assert!(far.segments.capacity() < 40);
    }

    #[test]
    fn numbers_that_follow_each_other_are_spread() {
        let place = |sn: u32| {
            let mut hasher = Spread::default();
            hasher.write_u32(sn);
            hasher.finish()
        };
        let places: alloc::collections::BTreeSet<_> = (0..4_096).map(|sn| place(sn) & 4_095).collect();
        let tags: alloc::collections::BTreeSet<_> = (0..4_096).map(|sn| place(sn) >> 57).collect();
        assert!(places.len() > 2_400 && tags.len() > 100, "{} {}", places.len(), tags.len());
    }

    #[test]
    fn trim_frees_the_map_once_nothing_waits() {
        let mut reassembly = Reassembly::default();
        insert(&mut reassembly, 1, b"one");
        reassembly.trim();
        assert!(reassembly.take(1).is_some());
        reassembly.trim();
        assert_eq!(reassembly.segments.capacity(), 0);
    }
}
