//! Finds out how many data and parity shards the groups of a peer have.
//!
//! Seqids of data packets leave a remainder below d when divided by d + p, those of parity packets one from d on. So
//! every packet received, whatever was lost or reordered around it, bounds d for each possible group size from one side,
//! and a group size for which no d is left is out. When a single size is left and the bounds of its d meet, both are
//! known: within about three groups, and whatever is lost only takes longer. (kcp-go needs a run of each type without a
//! gap.)

use super::ReedSolomon;

/// Largest group: what the field of Reed-Solomon has room for.
const MAX_GROUP: usize = 256;

/// Shards of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shards {
    pub(super) data: u16,
    pub(super) parity: u16,
}

impl Shards {
    pub(super) fn of(code: &ReedSolomon) -> Self {
        Self { data: code.data_shards() as u16, parity: code.parity_shards() as u16 }
    }

    pub(super) const fn group(self) -> u32 {
        self.data as u32 + self.parity as u32
    }

    /// Whether a packet of this seqid is of this type.
    pub(super) const fn agrees(self, seqid: u32, is_data: bool) -> bool {
        (seqid % self.group() < self.data as u32) == is_data
    }
}

/// What the packets seen so far leave possible.
#[derive(Debug, Clone)]
pub(super) struct Detector {
    /// By group size, from 2 on.
    bounds: [Bounds; MAX_GROUP - 1],
}

/// Bounds of d for one group size. None is left once they have crossed.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// One more than the largest remainder of a data packet.
    min: u16,
    /// The smallest remainder of a parity packet.
    max: u16,
}

impl Detector {
    pub(super) fn new() -> Self {
        let mut bounds = [Bounds { min: 1, max: 0 }; MAX_GROUP - 1];
        for (bounds, group) in bounds.iter_mut().zip(2..) {
            bounds.max = group - 1;
        }
        Self { bounds }
    }

    /// Takes note of a packet; returns the shards if they are certain now, and whether it began anew: a packet that fits no
    /// group size at all means that the peer has changed its own, and everything before it is forgotten.
    pub(super) fn observe(&mut self, seqid: u32, is_data: bool) -> (Option<Shards>, bool) {
        let found = self.narrow(seqid, is_data);
        if !found.any {
            *self = Self::new();
            self.narrow(seqid, is_data);
        }
        (found.only, !found.any)
    }

    fn narrow(&mut self, seqid: u32, is_data: bool) -> Found {
        let mut found = Found { any: false, only: None };
        for (bounds, group) in self.bounds.iter_mut().zip(2_u32..) {
            if bounds.min > bounds.max {
                continue;
            }
            let remainder = (seqid % group) as u16;
            if is_data {
                bounds.min = bounds.min.max(remainder + 1);
            } else {
                bounds.max = bounds.max.min(remainder);
            }
            if bounds.min > bounds.max {
                continue;
            }
            let certain = !found.any && bounds.min == bounds.max;
            let shards = Shards { data: bounds.min, parity: group as u16 - bounds.min };
            found = Found { any: true, only: certain.then_some(shards) };
        }
        found
    }
}

/// What is possible.
struct Found {
    any: bool,
    only: Option<Shards>,
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// A small generator, the same every run.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }

    const SHARDS: [(u16, u16); 10] =
        [(1, 1), (3, 2), (10, 3), (30, 15), (2, 6), (20, 1), (1, 20), (128, 128), (255, 1), (1, 255)];

    #[test]
    #[cfg_attr(miri, ignore = "arithmetic only, and minutes of it")]
    fn shards_are_found_within_three_groups_from_anywhere() {
        for (data, parity) in SHARDS {
            let shards = Shards { data, parity };
            let mut state = 7;
            for _ in 0..50 {
                let start = random(&mut state) as u32;
                let mut detector = Detector::new();
                let found = (0..4 * shards.group()).find_map(|step| {
                    let seqid = start.wrapping_add(step) % seqid_wrap(shards);
                    let is_data = seqid % shards.group() < data.into();
                    detector.observe(seqid, is_data).0.map(|found| (found, step))
                });
                let (found, step) = found.expect("found");
                assert_eq!(found, shards, "from {start}");
                assert!(step <= 3 * shards.group() + 3, "{shards:?} from {start}: after {step}");
            }
        }
    }

    fn seqid_wrap(shards: Shards) -> u32 {
        u32::MAX / shards.group() * shards.group()
    }

    /// Never a wrong answer, whatever is lost, repeated or out of order.
    #[test]
    #[cfg_attr(miri, ignore = "arithmetic only, and minutes of it")]
    fn shards_are_found_through_loss_and_disorder() {
        for (data, parity) in SHARDS {
            let shards = Shards { data, parity };
            for seed in 0..20 {
                let mut state = seed;
                let start = random(&mut state) as u32;
                let mut packets: Vec<u32> = (0..40 * shards.group() + 400)
                    .filter(|_| random(&mut state) % 100 < 70)
                    .map(|step| start.wrapping_add(step) % seqid_wrap(shards))
                    .collect();
                for at in 8..packets.len() {
                    let other = at - random(&mut state) as usize % 8;
                    packets.swap(at, other);
                }
                let mut detector = Detector::new();
                let mut first = None;
                for (count, seqid) in packets.into_iter().enumerate() {
                    if let Some(found) = detector.observe(seqid, seqid % shards.group() < data.into()).0 {
                        assert_eq!(found, shards, "seed {seed}");
                        first.get_or_insert(count);
                    }
                }
                assert!(first.is_some(), "{shards:?}, seed {seed}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "arithmetic only, and minutes of it")]
    fn a_change_is_noticed() {
        let (before, after) = (Shards { data: 10, parity: 3 }, Shards { data: 5, parity: 2 });
        let mut detector = Detector::new();
        let mut found = Vec::new();
        for seqid in 0..1_000_u32 {
            let shards = if seqid < 500 { before } else { after };
            found.push(detector.observe(seqid, seqid % shards.group() < shards.data.into()).0);
        }
        assert_eq!(found[499], Some(before));
        assert_eq!(found[999], Some(after));
    }
}
