//! A limit on the room for batches of ACKs. This is our own: BBR gives `extra_acked` all the room that it measures.
//!
//! A receiver that is slow to get the processor looks like one that batches its ACKs. Sessions that meet in one socket of
//! such a receiver would fill its buffer for that, and lose packets there. So where a round loses segments while even its
//! shortest round trip is twice the path's minimum, the room is halved. It grows back by a 64th in each round, and in no
//! less than a second to nearly three times as much. Growing faster, eight sessions over round trips of 2 ms lost 4 % of
//! all that they sent to a full buffer.
//!
//! What it is worth shows in `tests/simulation/congestion/sharing.rs`
//! (`sessions_whose_acks_come_in_batches_seldom_overflow_a_shared_buffer`): a seventh of the resends.

use core::time::Duration;

/// The room that is left whatever is lost, in full segments. Random losses on a short path to a peer that holds ACKs back
/// look like an overflowing queue too, and 10 ms of ACKs at 140 Mbit/s are as many.
pub(super) const MIN_LIMIT: u64 = 128;

/// The limit, in bytes.
#[derive(Debug)]
pub(super) struct ExtraAckedLimit(u64);

impl Default for ExtraAckedLimit {
    fn default() -> Self {
        Self(u64::MAX)
    }
}

impl ExtraAckedLimit {
    pub(super) const fn get(&self) -> u64 {
        self.0
    }

    /// Startup ends with a queue: the window that Startup has grown to may itself be acknowledged in batches.
    pub(super) const fn set(&mut self, extra_acked: u64) {
        self.0 = extra_acked;
    }

    /// A round ends whose shortest round trip was `rtt`. It lost segments with a queue on the path, or did not.
    pub(super) fn on_round(&mut self, rtt: Duration, overflows: bool, extra_acked: u64, mtu: u64) {
        self.0 = if overflows {
            (self.0.min(extra_acked) / 2).max(MIN_LIMIT * mtu)
        } else {
            let rounds_a_second = 1_000_000 / (rtt.as_micros() as u64).max(1);
            self.0.saturating_add(self.0 / rounds_a_second.max(64))
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU: u64 = 1_400;
    const LARGE: u64 = 10_000 * MTU;

    #[test]
    fn overflows_halve_the_limit_down_to_its_minimum() {
        let mut limit = ExtraAckedLimit::default();
        limit.on_round(Duration::from_millis(2), true, LARGE, MTU);
        assert_eq!(limit.get(), LARGE / 2);
        (0..10).for_each(|_| limit.on_round(Duration::from_millis(2), true, LARGE, MTU));
        assert_eq!(limit.get(), MIN_LIMIT * MTU);
    }

    #[test]
    fn the_limit_grows_to_nearly_three_times_in_a_second_or_in_64_rounds() {
        for (rtt, rounds) in [(1, 1_000), (2, 500), (20, 64), (200, 64)] {
            let mut limit = ExtraAckedLimit(LARGE);
            (0..rounds).for_each(|_| limit.on_round(Duration::from_millis(rtt), false, LARGE, MTU));
            let grown = limit.get() as f64 / LARGE as f64;
            assert!((2.6..2.8).contains(&grown), "{rtt} ms: {grown}");
        }
    }
}
