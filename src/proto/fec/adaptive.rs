//! Adaptive parity: sends as many parity packets as the losses of the path call for.
//!
//! Groups keep their size and their numbers. Less parity means that the last packets of a group are not sent and their numbers
//! are skipped, which to a receiver looks like a loss. So the amount of parity can change with every group without any receiver
//! having to detect it. kcp-go's own sender skips parity and its numbers as well. A change of the group size would be worse:
//! kcp-go's receiver decodes by the old one until it has seen 258 packets of the new, and the result may pass for segments.
//!
//! The sender does not see what a receiver recovers. It goes by two signs ([`LossCounts`]):
//!
//! * Segments **missed**, whether they were repaired or not, are a lower bound of the losses. Parity is at least what these
//!   losses call for.
//! * Segments that had to be resent **after their parity was sent** are losses that parity did not repair. More of them than
//!   [`TARGET`] call for more parity. After a while with next to none, less parity is tried. If that turns out to be too
//!   little, the next such trial waits twice as long.
//!
//! Segments that were resent before their parity was sent do not count: where there is little traffic, groups are completed late.
//!
//! Losses from a full queue are not answered with more parity, which would fill the queue further. They show in the
//! round-trip time: it is then longer than the smallest one by more than a quarter and [`QUEUE`]. A shorter queue looks like a
//! lossy path.
//!
//! What losses call for is computed for independent losses. Bursts of losses leave more to resend, which the second sign shows.
//! Reordering and lost ACKs count as missed segments, and then there is more parity than needed.

use alloc::vec::Vec;
use core::time::Duration;

use crate::proto::{arq::LossCounts, time::Instant};

/// Share of segments that parity may leave to be resent, in millionths. Each of these holds up the stream for a round trip or
/// more.
const TARGET: u32 = 1_000;
/// Losses assumed when a session begins, in millionths.
const EXPECTED: u32 = 50_000;
/// By how much the round-trip time may be longer on a path without a queue: ACKs wait, and packets come in batches.
const QUEUE: Duration = Duration::from_millis(20);
/// Acknowledged segments that make a sample. A sample also takes at least a round trip.
const SAMPLE: u64 = 64;
/// Samples with next to no unrepaired losses before less parity is tried: at first, and at most.
const HOLD: core::ops::RangeInclusive<u32> = 4..=64;
/// Unrepaired losses that are too many for an accident.
const MIN_UNREPAIRED: u64 = 3;
/// Acknowledged segments over which unrepaired losses are counted.
const MEMORY: u64 = 2_048;
/// Groups at the beginning that send all of their parity, so that a receiver can detect the group size.
const COMPLETE_GROUPS: u8 = 4;
/// Bytes of parity that the budget may save up, unless one group has more.
const MAX_CREDIT: u64 = 32 << 10;

/// Limits of adaptive parity: see [`KcpConfigBuilder::fec_adaptive`](crate::KcpConfigBuilder::fec_adaptive).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptiveFec {
    /// Least number of parity packets in a group: 0 (default) to as many as [`fec`](crate::KcpConfigBuilder::fec) gives a group.
    pub min_parity: usize,
    /// Most bytes of parity, in percent of the bytes of data packets: 1 to 1,000, default 100. What is not used is saved up, to
    /// 32 KiB or one group's parity. The first four groups of a session send all of their parity regardless.
    pub budget: u32,
}

impl Default for AdaptiveFec {
    fn default() -> Self {
        Self { min_parity: 0, budget: 100 }
    }
}

/// Chooses how many parity packets a sender's groups have.
#[derive(Debug)]
pub(in crate::proto) struct Adaptive {
    limits: AdaptiveFec,
    /// For each number of parity packets: the losses, in millionths, of which it leaves no more than [`TARGET`].
    repairs: Vec<u32>,
    /// Parity packets of the next groups.
    parity: usize,
    /// Losses as the missed segments show them, in millionths.
    losses: u32,
    /// The counts at the beginning of the current sample, and when that was.
    sample: (LossCounts, Instant),
    /// Segments acknowledged since the last change; halved now and then, so that old ones count less.
    confirmed: u64,
    /// Unrepaired losses among them.
    unrepaired: u64,
    /// Samples since the last change.
    samples: u32,
    /// Samples to wait for before less parity is tried.
    hold: u32,
    /// The last change was to less parity.
    tried_less: bool,
    /// Until then, ACKs are for segments that were sent before the last change.
    unsettled_until: Option<Instant>,
}

impl Adaptive {
    /// For groups of `data` data packets and up to `max_parity` parity packets.
    pub(in crate::proto) fn new(data: usize, max_parity: usize, limits: AdaptiveFec) -> Self {
        let repairs: Vec<u32> = (0..=max_parity).map(|parity| repaired_losses(data, parity)).collect();
        let mut adaptive = Self {
            limits: AdaptiveFec { min_parity: limits.min_parity.min(max_parity), ..limits },
            repairs,
            parity: 0,
            losses: EXPECTED,
            sample: (LossCounts::default(), Instant::ZERO),
            confirmed: 0,
            unrepaired: 0,
            samples: 0,
            hold: *HOLD.start(),
            tried_less: false,
            unsettled_until: Some(Instant::ZERO),
        };
        adaptive.parity = adaptive.called_for(EXPECTED);
        adaptive
    }

    /// Parity packets of the next groups.
    pub(in crate::proto) const fn parity(&self) -> usize {
        self.parity
    }

    /// Most bytes of parity for a hundred bytes of data.
    pub(in crate::proto) const fn budget(&self) -> u32 {
        self.limits.budget
    }

    /// The losses seen, in millionths. Losses that were repaired before an ACK could show them are missing.
    pub(in crate::proto) const fn losses(&self) -> u32 {
        self.losses
    }

    /// The fewest parity packets, within the limits, that repair such losses.
    fn called_for(&self, losses: u32) -> usize {
        let max = self.repairs.len() - 1;
        let enough = self.repairs.iter().position(|&repaired| repaired >= losses);
        enough.unwrap_or(max).max(self.limits.min_parity)
    }

    /// Takes into account what ACKs have shown so far. `rtt` is the smoothed round-trip time, `min_rtt` the smallest.
    pub(in crate::proto) fn update(
        &mut self,
        now: Instant,
        counts: &LossCounts,
        rtt: Duration,
        min_rtt: Duration,
    ) {
        if let Some(until) = self.unsettled_until {
            if now < until {
                return;
            }
            self.unsettled_until = None;
            self.sample = (*counts, now);
            return;
        }
        let new = counts.since(&self.sample.0);
        if new.confirmed < SAMPLE || now - self.sample.1 < rtt {
            return;
        }
        self.sample = (*counts, now);
        self.samples = self.samples.saturating_add(1);
        let congested = rtt > min_rtt + min_rtt / 4 + QUEUE;
        if !congested {
            self.confirmed += new.confirmed;
            self.unrepaired += new.unrepaired;
            if self.confirmed > MEMORY {
                self.confirmed /= 2;
                self.unrepaired /= 2;
            }
        }
        // Without parity, all losses are resent. Counting these leaves reordered segments out.
        let lost = if self.parity == 0 { new.resent } else { new.missed };
        let seen = millionths(lost, new.confirmed);
        if !congested || seen < self.losses / 2 {
            // One sample is no proof. Otherwise, a queue that overflows once would fill the path with parity.
            self.losses = (3 * self.losses + seen) / 4;
        }
        if let Some(parity) = self.choose(self.losses) {
            self.change(now, parity, rtt);
        }
    }

    /// The number of parity packets to change to, if it should change.
    fn choose(&mut self, losses: u32) -> Option<usize> {
        let max = self.repairs.len() - 1;
        let called_for = self.called_for(losses);
        if called_for > self.parity {
            return Some(called_for);
        }
        let left = millionths(self.unrepaired, self.confirmed);
        if self.unrepaired >= MIN_UNREPAIRED && left > 2 * TARGET && self.parity < max {
            return Some(self.parity + 1);
        }
        // A quarter more losses than seen must not call for the change to be undone at once.
        let enough = self.called_for(losses + losses / 4);
        let less = self.parity - (self.parity.saturating_sub(enough)).div_ceil(4);
        (self.samples >= self.hold && left <= TARGET && less < self.parity).then_some(less)
    }

    fn change(&mut self, now: Instant, parity: usize, rtt: Duration) {
        let less = parity < self.parity;
        if less && self.tried_less {
            // The step before, to less, turned out right.
            self.hold = (self.hold / 2).max(*HOLD.start());
        } else if !less && self.tried_less {
            self.hold = (self.hold * 2).min(*HOLD.end());
        }
        self.tried_less = less;
        self.parity = parity;
        (self.confirmed, self.unrepaired, self.samples) = (0, 0, 0);
        // Until the packets on their way and their resends are acknowledged.
        self.unsettled_until = Some(now + 2 * rtt);
    }
}

fn millionths(part: u64, whole: u64) -> u32 {
    part.saturating_mul(1_000_000).checked_div(whole).map_or(0, |share| share.min(1_000_000) as u32)
}

/// The losses, in millionths, of which groups of `data` and `parity` packets leave no more than [`TARGET`].
fn repaired_losses(data: usize, parity: usize) -> u32 {
    let (mut enough, mut many) = (0, 1_000_000);
    while many - enough > 100 {
        let losses = enough + (many - enough) / 2;
        if left(data, parity, f64::from(losses) / 1e6) * 1e6 <= f64::from(TARGET) {
            enough = losses;
        } else {
            many = losses;
        }
    }
    enough
}

/// The share of data packets that is lost and not recovered, where packets are lost independently: all lost packets, without
/// those of groups that lose no more than `parity`.
fn left(data: usize, parity: usize, losses: f64) -> f64 {
    let packets = data + parity;
    let mut chance = (0..packets).fold(1.0, |chance, _| chance * (1.0 - losses));
    let mut repaired = 0.0;
    for lost in 1..=parity {
        chance *= (packets - lost + 1) as f64 / lost as f64 * losses / (1.0 - losses);
        repaired += chance * lost as f64 / packets as f64;
    }
    losses - repaired
}

/// How much parity a sender may send within its budget.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Credit {
    hundredths: u64,
    complete_groups: u8,
}

impl Credit {
    /// A data packet of `len` bytes is sent. `group` is the number of bytes that the parity of its group takes so far: as much may
    /// always be saved up.
    pub(super) fn earn(&mut self, len: usize, budget: u32, group: usize) {
        let most = 100 * MAX_CREDIT.max(group as u64);
        self.hundredths = (self.hundredths + len as u64 * u64::from(budget)).min(most);
    }

    /// Returns how many of `rows` parity packets of `len` bytes may be sent, and takes them off the budget.
    pub(super) fn spend(&mut self, rows: usize, len: usize) -> usize {
        let each = 100 * len.max(1) as u64;
        let rows = rows.min((self.hundredths / each) as usize);
        self.hundredths -= rows as u64 * each;
        rows
    }

    /// Whether the group that begins is one of the first, which send all of their parity.
    pub(super) fn is_first_group(&mut self) -> bool {
        let first = self.complete_groups < COMPLETE_GROUPS;
        self.complete_groups += u8::from(first);
        first
    }
}

/// How many copies of a segment replace the parity of its group: as many as repair about the same losses.
pub(in crate::proto) fn copies_for(data: usize, parity: usize) -> usize {
    if parity == 0 { 0 } else { ((4 * parity + data / 2) / data).max(1) }
}

// This takes minutes under Miri, and is arithmetic only.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    #[test]
    fn more_losses_call_for_more_parity_within_the_limits() {
        let adaptive = Adaptive::new(10, 10, AdaptiveFec::default());
        let called_for =
            [0, 2_000, 10_000, 50_000, 100_000, 200_000].map(|losses| adaptive.called_for(losses));
        assert_eq!(called_for, [0, 1, 1, 3, 5, 9]);
        assert_eq!(adaptive.parity(), 3);
        assert_eq!(adaptive.called_for(900_000), 10, "as much as there may be");
        let limited = Adaptive::new(10, 3, AdaptiveFec { min_parity: 2, ..AdaptiveFec::default() });
        assert_eq!((limited.called_for(0), limited.called_for(200_000)), (2, 3));
    }

    #[test]
    fn unrepaired_losses_are_computed_as_by_hand() {
        // 10/3 at 10 %, by hand: sum over 4..=13 of k/13 C(13,k) 0.1^k 0.9^(13-k).
        assert!((left(10, 3, 0.1) - 0.011_28).abs() < 2e-4, "{}", left(10, 3, 0.1));
        assert!((left(1, 1, 0.1) - 0.01).abs() < 1e-9);
        assert!(left(10, 0, 0.1) > 0.0999);
        for (data, parity) in [(1, 255), (255, 1), (128, 128), (200, 0)] {
            for losses in [0.0, 1e-6, 0.01, 0.5, 0.999] {
                let left = left(data, parity, losses);
                assert!((-1e-9..=losses).contains(&left), "{data}/{parity} at {losses}: {left}");
            }
        }
    }

    /// A path with independent losses, which FEC repairs as computed.
    struct Path {
        adaptive: Adaptive,
        counts: LossCounts,
        now: Instant,
        state: u64,
        changes: u32,
        rtt: Duration,
    }

    impl Path {
        fn new(max: usize, limits: AdaptiveFec) -> Self {
            let adaptive = Adaptive::new(10, max, limits);
            Self {
                adaptive,
                counts: LossCounts::default(),
                now: Instant::ZERO,
                state: 1,
                changes: 0,
                rtt: RTT,
            }
        }

        fn chance(&mut self, of: f64) -> bool {
            self.state =
                self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.state >> 33) as f64) < of * f64::from(1_u32 << 31)
        }

        /// Sends `groups` groups, ten in a round trip. With `visible`, ACKs show losses that were repaired.
        fn run(&mut self, groups: u32, losses: f64, visible: bool) -> usize {
            for _ in 0..groups {
                let parity = self.adaptive.parity();
                let mut lost = [0, 0];
                for packet in 0..10 + parity {
                    lost[usize::from(packet >= 10)] += u64::from(self.chance(losses));
                }
                let repaired = lost[0] + lost[1] <= parity as u64;
                self.counts.confirmed += 10;
                self.counts.missed += if visible || !repaired { lost[0] } else { 0 };
                self.counts.resent += if repaired { 0 } else { lost[0] };
                self.counts.unrepaired += if repaired { 0 } else { lost[0] };
                self.now += RTT / 10;
                self.adaptive.update(self.now, &self.counts, self.rtt, RTT);
                self.changes += u32::from(self.adaptive.parity() != parity);
            }
            self.adaptive.parity()
        }
    }

    #[test]
    fn parity_follows_the_losses_and_goes_back_without_them() {
        for visible in [true, false] {
            for (losses, expected) in [(0.01, 1..=2), (0.05, 2..=4), (0.1, 4..=6), (0.2, 7..=10)] {
                let mut path = Path::new(10, AdaptiveFec::default());
                path.run(3_000, losses, visible);
                path.changes = 0;
                let (before, resent) = (path.counts, path.counts.resent);
                let parity = path.run(20_000, losses, visible);
                assert!(expected.contains(&parity), "{losses} {visible}: {parity}");
                let share =
                    (path.counts.resent - resent) as f64 / path.counts.since(&before).confirmed as f64;
                assert!(share < 0.006, "{losses} {visible}: {share} left");
                assert!(
                    path.changes < 80,
                    "{losses} {visible}: {} changes in 2,000 round trips",
                    path.changes
                );
                assert_eq!(path.run(3_000, 0.0, visible), 0, "{losses} {visible}");
            }
        }
    }

    #[test]
    fn parity_stays_within_its_limits() {
        let limits = AdaptiveFec { min_parity: 1, ..AdaptiveFec::default() };
        let mut path = Path::new(4, limits);
        assert_eq!(path.run(2_000, 0.3, true), 4);
        assert_eq!(path.run(4_000, 0.0, true), 1);
    }

    #[test]
    fn losses_of_a_full_queue_call_for_no_parity() {
        let mut path = Path::new(10, AdaptiveFec::default());
        path.rtt = RTT * 2;
        assert_eq!(path.run(5_000, 0.2, true), 3, "as it began");
        path.rtt = RTT;
        assert!(path.run(5_000, 0.2, true) >= 8);
        path.rtt = RTT * 2;
        assert_eq!(path.run(5_000, 0.0, true), 0, "goes back all the same");
    }

    #[test]
    fn without_acks_parity_does_not_change() {
        let mut path = Path::new(6, AdaptiveFec::default());
        for _ in 0..1_000 {
            path.now += RTT;
            path.adaptive.update(path.now, &path.counts, RTT, RTT);
        }
        assert_eq!((path.adaptive.parity(), path.adaptive.losses()), (3, EXPECTED));
    }

    #[test]
    fn the_budget_limits_the_bytes_of_parity() {
        let mut credit = Credit::default();
        let mut sent = 0;
        for _ in 0..100 {
            for _ in 0..10 {
                credit.earn(1_000, 25, 5_000);
            }
            sent += credit.spend(5, 1_000);
        }
        assert_eq!(sent, 250);
        for _ in 0..100_000 {
            credit.earn(1_000, 1_000, 5_000);
        }
        assert_eq!(credit.spend(usize::MAX, 1_024), 32);
    }

    #[test]
    fn the_number_of_copies_follows_the_share_of_parity() {
        let copies = [(10, 0), (10, 1), (10, 3), (10, 5), (10, 8), (1, 1)];
        assert_eq!(copies.map(|(data, parity)| copies_for(data, parity)), [0, 1, 1, 2, 3, 4]);
    }
}
