//! How much memory and work the FEC of a peer may take: enough for what is expected of it, and little where nothing is.
//!
//! Without a cipher anybody can send FEC packets, valid ones too, to a session that was not configured to have any. And anybody can
//! begin sessions: of a peer that has not shown yet that it hears this end, none is expected.
//!
//! # Memory
//!
//! A peer of which no FEC is expected gets [`UNEXPECTED_BYTES`] for all that a decoder keeps. The packets of kcp-go's usual
//! groups, 10 data and 3 parity of 1,400 bytes, take 18 KB a group: three groups, as many as kcp-go keeps, and the tables have
//! room. Half of that is for packets before its group size is known.
//!
//! # Work
//!
//! To recover a group costs a product for each missing packet and each byte of the packets that came. So each byte that came
//! costs as many products as packets of its group are missing: 3 at most in groups of 10 and 3, 128 in the worst that anybody
//! can make. Every byte that comes earns [`MIN_ROWS`] products, or as many as this end's own groups have parity, and a group that
//! costs more than was earned is given up. Groups with no more parity than that are never given up for it, and others
//! only where they lose more than so many packets on average: what is earned and not spent is kept, for the worst group once.

use super::detector::Shards;

/// Bytes of all that is kept for a peer of which FEC is expected: room for 3 groups of 256 packets of 1,500 bytes, and more.
const EXPECTED_BYTES: usize = 2 << 20;
/// Bytes of all that is kept for a peer of which none is expected.
const UNEXPECTED_BYTES: usize = 64 << 10;
/// Products that each byte earns at least. kcptun's groups have 3 parity packets, and few have more than 15.
const MIN_ROWS: u64 = 16;
/// Bytes by which a packet counts as longer than it is: the coefficient of a packet takes as long as the products of so many.
const COEFFICIENT: usize = 256;
/// The most products that are saved: those of 128 lost packets of 256.
const MAX_CREDIT: u64 = 128 * 128 * (1_500 + COEFFICIENT as u64);

/// What a decoder may keep and compute.
#[derive(Debug)]
pub(super) struct Limits {
    /// Bytes of all that it keeps.
    pub(super) bytes: usize,
    /// Products that each byte earns.
    rows: u64,
    /// Products earned and not spent.
    credit: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: UNEXPECTED_BYTES, rows: MIN_ROWS, credit: 0 }
    }
}

impl Limits {
    /// Widens the limits for a peer of which groups like `own` are expected.
    pub(super) fn expect(&mut self, own: Shards) {
        self.bytes = EXPECTED_BYTES;
        self.rows = self.rows.max(own.parity.into());
    }

    /// A packet of `len` bytes has come, and is kept.
    pub(super) fn earn(&mut self, len: usize) {
        let earned = self.rows * (len + COEFFICIENT) as u64;
        self.credit = (self.credit + earned).min(MAX_CREDIT);
    }

    /// Whether `missing` packets may be computed from others, of these lengths. If so, that is paid for.
    pub(super) fn spend(&mut self, missing: usize, lengths: impl Iterator<Item = usize>) -> bool {
        let bytes: usize = lengths.map(|len| len + COEFFICIENT).sum();
        let left = self.credit.checked_sub((missing * bytes) as u64);
        self.credit = left.unwrap_or(self.credit);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recovered(limits: &mut Limits, groups: usize, data: usize, missing: usize) -> usize {
        let one = |_: &usize| {
            (0..data).for_each(|_| limits.earn(1_400));
            limits.spend(missing, core::iter::repeat_n(1_400, data))
        };
        (0..groups).filter(one).count()
    }

    #[test]
    fn usual_groups_are_always_recovered() {
        for (data, parity) in [(1, 1), (10, 3), (20, 10), (30, 15), (16, 16), (240, 16)] {
            assert_eq!(recovered(&mut Limits::default(), 50, data, parity.min(data)), 50, "{data}/{parity}");
        }
        let mut limits = Limits::default();
        limits.expect(Shards { data: 128, parity: 128 });
        assert_eq!(recovered(&mut limits, 50, 128, 128), 50, "this end has the same");
    }

    #[test]
    fn large_groups_are_recovered_as_far_as_their_losses_are_few_on_average() {
        let mut limits = Limits::default();
        assert_eq!(recovered(&mut limits, 800, 128, 128), 100, "one in eight");
        assert_eq!(recovered(&mut limits, 100, 128, 13), 100, "a tenth of the packets lost");
        assert_eq!(recovered(&mut limits, 1, 128, 128), 1, "what was saved");
    }
}
