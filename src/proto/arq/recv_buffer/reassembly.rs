//! Segments that arrived out of order: they wait here until all segments before them have arrived.
//!
//! A ring of slots, indexed by sn. It grows to the distance of the farthest segment that waited, which the window limits. To
//! insert, find or take a segment costs the same however many wait.

use alloc::vec::Vec;

use bytes::BytesMut;

/// Slots of the smallest ring. A session in which nothing ever arrived out of order has none.
const MIN_RING: usize = 16;

/// A segment that waits.
#[derive(Debug)]
pub(super) struct OutOfOrder {
    pub(super) payload: BytesMut,
    pub(super) frg: u8,
}

#[derive(Debug, Default)]
pub(super) struct Reassembly {
    /// None at first, then a power of two.
    ring: Vec<Option<OutOfOrder>>,
    count: u32,
    bytes: usize,
}

impl Reassembly {
    /// Segments that wait.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Bytes of their payload.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the segment `next` waits. `next` is the next one in order.
    pub(super) fn contains(&self, next: u32) -> bool {
        self.count > 0 && self.ring[self.slot(next)].is_some()
    }

    /// Adds the segment `sn` with the payload that `payload` makes. It is `ahead` segments after the next one in order.
    /// Returns `false`, and calls nothing, if the segment waits already.
    #[inline]
    pub(super) fn insert(
        &mut self,
        sn: u32,
        ahead: u32,
        frg: u8,
        payload: impl FnOnce() -> BytesMut,
    ) -> bool {
        if ahead as usize >= self.ring.len() {
            self.grow(sn.wrapping_sub(ahead), ahead as usize + 1);
        }
        let slot = self.slot(sn);
        let slot = &mut self.ring[slot];
        if slot.is_some() {
            return false;
        }
        let payload = payload();
        self.count += 1;
        self.bytes += payload.len();
        *slot = Some(OutOfOrder { payload, frg });
        true
    }

    /// Removes the segment `next`, if it waits. `next` is the next one in order.
    #[inline]
    pub(super) fn take(&mut self, next: u32) -> Option<OutOfOrder> {
        if self.count == 0 {
            return None;
        }
        let slot = self.slot(next);
        let segment = self.ring[slot].take()?;
        self.count -= 1;
        self.bytes -= segment.payload.len();
        Some(segment)
    }

    const fn slot(&self, sn: u32) -> usize {
        sn as usize & (self.ring.len() - 1)
    }

    /// Makes room for `needed` segments from `next` on.
    fn grow(&mut self, next: u32, needed: usize) {
        let capacity = needed.next_power_of_two().max(MIN_RING);
        let mut old = core::mem::take(&mut self.ring);
        self.ring.resize_with(capacity, || None);
        for ahead in 0..old.len() {
            let sn = next.wrapping_add(ahead as u32) as usize;
            let from = sn & (old.len() - 1);
            self.ring[sn & (capacity - 1)] = old[from].take();
        }
    }

    /// Frees the ring if nothing waits.
    pub(super) fn trim(&mut self) {
        if self.count == 0 {
            self.ring = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(reassembly: &mut Reassembly, next: u32, ahead: u32, payload: &[u8]) -> bool {
        reassembly.insert(next.wrapping_add(ahead), ahead, ahead as u8, || payload.into())
    }

    #[test]
    fn segments_are_found_by_sn_while_the_ring_grows_and_sn_wraps() {
        let next = u32::MAX - 20;
        let mut reassembly = Reassembly::default();
        // 29 is coprime to 64: each distance once, near and far ones mixed.
        let distances = (0..64).map(|i| 1 + i * 29 % 64);
        for (count, ahead) in (1..).zip(distances) {
            assert!(insert(&mut reassembly, next, ahead, &[ahead as u8; 3]));
            assert!(!insert(&mut reassembly, next, ahead, b"duplicate"));
            assert_eq!((reassembly.count(), reassembly.bytes()), (count, 3 * count as usize));
        }
        assert!(!reassembly.contains(next) && reassembly.take(next).is_none());
        for ahead in 1..=64 {
            let sn = next.wrapping_add(ahead);
            assert!(reassembly.contains(sn));
            let taken = reassembly.take(sn).unwrap();
            assert_eq!((&taken.payload[..], taken.frg), (&[ahead as u8; 3][..], ahead as u8));
            assert!(!reassembly.contains(sn));
        }
        assert_eq!((reassembly.count(), reassembly.bytes()), (0, 0));
    }

    #[test]
    fn a_distance_past_the_ring_is_not_mistaken_for_another_segment() {
        let mut reassembly = Reassembly::default();
        assert!(insert(&mut reassembly, 0, 1, b"one"));
        assert_eq!(reassembly.ring.len(), MIN_RING);
        let same_slot = 1 + MIN_RING as u32;
        assert!(insert(&mut reassembly, 0, same_slot, b"far"));
        assert_eq!(reassembly.take(1).unwrap().payload, b"one"[..]);
        assert_eq!(reassembly.take(same_slot).unwrap().payload, b"far"[..]);
    }

    #[test]
    fn trim_frees_the_ring_once_nothing_waits() {
        let mut reassembly = Reassembly::default();
        insert(&mut reassembly, 0, 1, b"one");
        reassembly.trim();
        assert!(reassembly.take(1).is_some());
        reassembly.trim();
        assert_eq!(reassembly.ring.capacity(), 0);
    }
}
