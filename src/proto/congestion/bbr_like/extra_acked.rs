//! By how much ACKs come in batches: BBR's `extra_acked`.
//!
//! A peer may hold ACKs back for its `interval` and then confirm a lot at once. Until then a window of just the
//! bandwidth-delay product would be used up and the sender idle. So the window also has room for what has lately been
//! acknowledged beyond what the bandwidth explains. BBR's draft calls this `BBRUpdateACKAggregation`.

use super::{bytes_in, max_filter::MaxFilter};
use crate::proto::time::Instant;

/// The measurement.
#[derive(Debug, Default)]
pub(super) struct ExtraAcked {
    interval_start: Instant,
    /// Bytes acknowledged since then.
    delivered: u64,
    filter: MaxFilter,
}

impl ExtraAcked {
    /// The largest batch of the last rounds, in bytes.
    pub(super) fn get(&self) -> u64 {
        self.filter.get()
    }

    /// `acked` bytes are acknowledged on a path that delivers `bw` bytes a second; a batch counts up to `cwnd` bytes.
    pub(super) fn update(&mut self, now: Instant, acked: u64, bw: u64, cwnd: u64) {
        let mut expected = bytes_in(bw, now - self.interval_start);
        if self.delivered <= expected {
            (self.interval_start, self.delivered, expected) = (now, 0, 0);
        }
        self.delivered += acked;
        self.filter.update(self.delivered.saturating_sub(expected).min(cwnd));
    }

    pub(super) const fn end_round(&mut self) {
        self.filter.end_round();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BW: u64 = 1_000_000;

    fn after(acks: &[(u64, u64)]) -> u64 {
        let mut extra = ExtraAcked::default();
        for (millis, acked) in acks {
            extra.update(Instant::from_millis(*millis), *acked, BW, 1 << 20);
        }
        extra.get()
    }

    #[test]
    fn a_batch_counts_beyond_what_the_bandwidth_explains() {
        // 1,000 bytes a millisecond; 10,000 at once, and again 10 ms later.
        assert_eq!(after(&[(100, 10_000), (110, 10_000), (120, 10_000)]), 10_000);
        // Two batches 5 ms apart: the second comes 5,000 bytes too early.
        assert_eq!(after(&[(100, 10_000), (105, 10_000)]), 15_000);
    }

    #[test]
    fn a_batch_counts_up_to_the_window() {
        let mut extra = ExtraAcked::default();
        extra.update(Instant::from_millis(1), 10_000, BW, 3_000);
        assert_eq!(extra.get(), 3_000);
    }
}
