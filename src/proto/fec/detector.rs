//! Detects how many data shards (d) and parity shards (p) the groups of a peer have.
//!
//! A group has d + p packets. Divide a packet's seqid by that: the remainder is below d for a data packet, and d or more for a
//! parity packet. So for each possible group size, every packet received bounds d from one side, whatever was lost or reordered
//! around it. A group size is ruled out when its bounds cross. When only one group size is left and its bounds meet, both d
//! and p are known. That takes about three groups; losses only make it take longer. (kcp-go's receiver needs a run of packets
//! of each type without a gap.)

use super::ReedSolomon;

/// Largest group, in packets: Reed-Solomon over 256 elements has no more shards.
const MAX_GROUP: usize = 256;

/// Numbers of data and parity shards in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shards {
    pub(super) data: u16,
    pub(super) parity: u16,
}

impl From<(usize, usize)> for Shards {
    fn from((data, parity): (usize, usize)) -> Self {
        Self { data: data as u16, parity: parity as u16 }
    }
}

impl Shards {
    pub(super) fn of(code: &ReedSolomon) -> Self {
        Self { data: code.data_shards() as u16, parity: code.parity_shards() as u16 }
    }

    pub(super) const fn group(self) -> u32 {
        self.data as u32 + self.parity as u32
    }

    /// Whether a packet of this type may have this seqid.
    pub(super) const fn agrees(self, seqid: u32, is_data: bool) -> bool {
        (seqid % self.group() < self.data as u32) == is_data
    }
}

/// The group sizes that agree with every packet seen so far.
///
/// Every packet is held against every group size, and anybody can have a port do that. So the lists are laid out for vector
/// instructions, which the compiler finds by itself: no branches, and no divisions.
#[derive(Debug, Clone)]
pub(super) struct Detector {
    /// For each group size, from 1 on: one more than the largest remainder of a data packet.
    min: [u16; MAX_GROUP],
    /// The smallest remainder of a parity packet. A group size is ruled out once `max` is below `min`, as that of 1 is at once.
    max: [u16; MAX_GROUP],
}

impl Detector {
    pub(super) const fn new() -> Self {
        Self { min: [1; MAX_GROUP], max: PLACES }
    }

    /// Takes a packet into account. Returns the group size if it is certain now, and whether the search began anew. It does when
    /// a packet rules the last group size out: then the peer has changed its own, and the packets before are forgotten.
    pub(super) fn observe(&mut self, seqid: u32, is_data: bool) -> (Option<Shards>, bool) {
        let found = self.narrow(seqid, is_data);
        if !found.any {
            *self = Self::new();
            self.narrow(seqid, is_data);
        }
        (found.only, !found.any)
    }

    fn narrow(&mut self, seqid: u32, is_data: bool) -> Found {
        let remainders = remainders(seqid);
        if is_data {
            self.min
                .iter_mut()
                .zip(&remainders)
                .for_each(|(min, rest)| *min = (*min).max(rest.wrapping_add(1)));
        } else {
            self.max.iter_mut().zip(&remainders).for_each(|(max, rest)| *max = (*max).min(*rest));
        }
        // How many group sizes are possible, and the sum of their places: where one is left, that is its place.
        let (mut possible, mut place) = (0_u16, 0_u16);
        for ((min, max), at) in self.min.iter().zip(&self.max).zip(&PLACES) {
            let is_possible = u16::from(min <= max);
            possible += is_possible;
            place = place.wrapping_add(is_possible * at);
        }
        let place = usize::from(place);
        let only = (possible == 1 && self.min[place] == self.max[place])
            .then(|| Shards { data: self.min[place], parity: place as u16 + 1 - self.min[place] });
        Found { any: possible > 0, only }
    }
}

/// What remains of a number divided by each group size, from 1 on. That of 1 does not matter.
#[inline]
fn remainders(seqid: u32) -> [u16; MAX_GROUP] {
    let (high, middle, low) = ((seqid >> 16) as u16, seqid as u16 >> 8, seqid as u16 & 0xff);
    let mut remainders = [0; MAX_GROUP];
    for ((rest, place), inverse) in remainders.iter_mut().zip(&PLACES).zip(&INVERSES) {
        let divide = |number| remainder(number, place + 1, *inverse);
        // A remainder is below 256, so that it and the next byte are 16 bits.
        *rest = divide(divide(divide(high) << 8 | middle) << 8 | low);
    }
    remainders
}

/// The places of the lists.
const PLACES: [u16; MAX_GROUP] = {
    let mut places = [0; MAX_GROUP];
    let mut at = 0;
    while at < MAX_GROUP {
        places[at] = at as u16;
        at += 1;
    }
    places
};

/// For each group size, from 1 on: 2^16 divided by it, rounded down. By it, the quotient of a number of 16 bits is right or too
/// small by one.
const INVERSES: [u16; MAX_GROUP] = {
    let mut inverses = [0; MAX_GROUP];
    let mut at = 1;
    while at < MAX_GROUP {
        inverses[at] = ((1_u32 << 16) / (at as u32 + 1)) as u16;
        at += 1;
    }
    inverses
};

/// What remains of `number` divided by `size`, of which `inverse` is among [`INVERSES`].
#[inline]
fn remainder(number: u16, size: u16, inverse: u16) -> u16 {
    let quotient = ((u32::from(number) * u32::from(inverse)) >> 16) as u16;
    let remainder = number.wrapping_sub(quotient.wrapping_mul(size));
    remainder.min(remainder.wrapping_sub(size))
}

/// The outcome of one packet.
struct Found {
    /// Some group size is still possible.
    any: bool,
    /// The group size, if it is the only one possible and its bounds meet.
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
    fn any_group_size_is_detected_within_three_groups() {
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

    /// The answer is never wrong, whatever is lost or out of order.
    #[test]
    #[cfg_attr(miri, ignore = "arithmetic only, and minutes of it")]
    fn losses_and_reordering_never_yield_a_wrong_group_size() {
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
    fn remainders_are_those_of_a_division() {
        for (size, inverse) in (1..).zip(INVERSES).skip(1) {
            let mut numbers = (0..=u16::MAX).step_by(if cfg!(miri) { 4_099 } else { 1 });
            assert!(numbers.all(|number| remainder(number, size, inverse) == number % size));
        }
        let mut state = 5;
        for _ in 0..100 {
            let seqid = (random(&mut state) as u32).wrapping_mul(3);
            let mut detector = Detector::new();
            detector.observe(seqid, true);
            let sizes = 2..=MAX_GROUP as u32;
            assert!(sizes.zip(&detector.min[1..]).all(|(size, min)| u32::from(*min) == seqid % size + 1));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "arithmetic only, and minutes of it")]
    fn a_change_of_the_group_size_is_detected() {
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
