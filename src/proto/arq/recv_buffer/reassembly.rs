//! Segments that arrived out of order: they wait here until all segments before them have arrived.
//!
//! A hash map by sn. Its memory follows how many segments wait, and not how far apart their numbers are: one small segment at
//! the far end of the window takes no more than one that is next but one.

use alloc::boxed::Box;
use core::hash::{BuildHasherDefault, Hasher};

use bytes::BytesMut;
use hashbrown::HashMap;

/// A segment that waits.
#[derive(Debug)]
pub(super) struct OutOfOrder {
    pub(super) payload: Payload,
    pub(super) frg: u8,
}

/// Its payload: a short one lies in the map itself, since a buffer for it would take longer than a copy, and a hundred times the memory.
#[derive(Debug)]
pub(super) enum Payload {
    Short(ShortPayload),
    Buffer(BytesMut),
}

impl Payload {
    fn len(&self) -> usize {
        match self {
            Self::Short(payload) => payload.as_slice().len(),
            Self::Buffer(payload) => payload.len(),
        }
    }
}

/// As many bytes as make a [`Payload`] no larger.
const MAX_SHORT: usize = size_of::<BytesMut>() - size_of::<usize>() - 1;

/// A payload of at most [`MAX_SHORT`] bytes.
#[derive(Debug)]
pub(super) struct ShortPayload {
    bytes: [u8; MAX_SHORT],
    len: u8,
}

impl ShortPayload {
    const EMPTY: Self = Self { bytes: [0; MAX_SHORT], len: 0 };

    /// Copies `payload` to where this one lies. A copy that is made elsewhere and then moved here takes longer: a processor that has stored
    /// single bytes waits before it can load them as words. Returns `false` if `payload` is too long.
    #[inline]
    fn fill(&mut self, payload: &[u8]) -> bool {
        let Some(bytes) = self.bytes.get_mut(..payload.len()) else { return false };
        bytes.copy_from_slice(payload);
        self.len = payload.len() as u8;
        true
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

type Segments = HashMap<u32, OutOfOrder, BuildHasherDefault<Spread>>;

#[derive(Debug, Default)]
pub(super) struct Reassembly {
    /// Most sessions have no use for it most of the time.
    segments: Option<Box<Segments>>,
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
        self.segments.as_ref().map_or(0, |segments| segments.len() as u32)
    }

    /// Bytes of their payload.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the segment `sn` waits.
    #[inline]
    pub(super) fn contains(&self, sn: u32) -> bool {
        self.count() > 0 && self.segments.as_ref().is_some_and(|segments| segments.contains_key(&sn))
    }

    /// Adds the segment `sn`, with a copy of its payload, which `buffer` makes of one that is not short. Returns `false`, and calls
    /// nothing, if it waits already.
    #[inline]
    pub(super) fn insert(
        &mut self,
        sn: u32,
        frg: u8,
        payload: &[u8],
        buffer: impl FnOnce(&[u8]) -> BytesMut,
    ) -> bool {
        let segments = self.segments.get_or_insert_default();
        let hashbrown::hash_map::Entry::Vacant(place) = segments.entry(sn) else { return false };
        let segment = place.insert(OutOfOrder { payload: Payload::Short(ShortPayload::EMPTY), frg });
        if let Payload::Short(short) = &mut segment.payload
            && !short.fill(payload)
        {
            segment.payload = Payload::Buffer(buffer(payload));
        }
        self.bytes += payload.len();
        true
    }

    /// Removes the segment `sn`, if it waits, and hands it to `taken` where it lies: a short payload is copied once. Returns whether it
    /// waited.
    #[inline]
    pub(super) fn take(&mut self, sn: u32, taken: impl FnOnce(&mut OutOfOrder)) -> bool {
        let Some(segments) = &mut self.segments else { return false };
        let hashbrown::hash_map::Entry::Occupied(mut place) = segments.entry(sn) else { return false };
        let segment = place.get_mut();
        self.bytes -= segment.payload.len();
        taken(segment);
        place.remove();
        true
    }

    /// Frees the memory that those which wait do not need.
    pub(super) fn trim(&mut self) {
        self.segments.take_if(|segments| segments.is_empty());
        if let Some(segments) = &mut self.segments {
            segments.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    fn insert(reassembly: &mut Reassembly, sn: u32, payload: &[u8]) -> bool {
        reassembly.insert(sn, sn as u8, payload, |_| unreachable!("it is short"))
    }

    fn take(reassembly: &mut Reassembly, sn: u32) -> Option<(Vec<u8>, u8)> {
        let mut taken = None;
        let waited = reassembly.take(sn, |segment| {
            let Payload::Short(payload) = &segment.payload else { panic!("it is short") };
            taken = Some((payload.as_slice().to_vec(), segment.frg));
        });
        assert_eq!(waited, taken.is_some());
        taken
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
        assert!(!reassembly.contains(next) && take(&mut reassembly, next).is_none());
        for ahead in 1..=64 {
            let sn = next.wrapping_add(ahead);
            assert!(reassembly.contains(sn));
            assert_eq!(take(&mut reassembly, sn), Some((vec![sn as u8; 3], sn as u8)));
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
        let capacity = |reassembly: &Reassembly| reassembly.segments.as_ref().unwrap().capacity();
        assert_eq!(capacity(&near), capacity(&far));
        assert!(capacity(&far) < 40);
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
    fn a_short_payload_lies_in_the_map_and_takes_no_more_room_there() {
        assert_eq!(size_of::<Payload>(), size_of::<BytesMut>());
        let bytes: Vec<u8> = (1..=MAX_SHORT as u8 + 1).collect();
        let mut reassembly = Reassembly::default();
        for len in [0, 1, MAX_SHORT] {
            assert!(insert(&mut reassembly, 1, &bytes[..len]));
            assert_eq!(take(&mut reassembly, 1), Some((bytes[..len].to_vec(), 1)));
        }
        assert!(reassembly.insert(1, 0, &bytes, |payload| payload.into()));
        assert_eq!(reassembly.bytes(), bytes.len());
        let is_buffer = |segment: &mut OutOfOrder| matches!(&segment.payload, Payload::Buffer(payload) if *payload == bytes);
        let mut found = false;
        assert!(reassembly.take(1, |segment| found = is_buffer(segment)) && found);
        assert_eq!(reassembly.bytes(), 0);
    }

    #[test]
    fn trim_frees_the_map_once_nothing_waits() {
        let mut reassembly = Reassembly::default();
        insert(&mut reassembly, 1, b"one");
        reassembly.trim();
        assert!(take(&mut reassembly, 1).is_some());
        reassembly.trim();
        assert!(reassembly.segments.is_none());
    }
}
