//! What became of each flow's packets, over time.

use std::ops::AddAssign;

use super::queue::Fate;

/// Seconds of a bin.
pub(crate) const BIN: f64 = 0.1;

/// Packets by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Tally {
    /// Let into the queue, or through a policer.
    pub(crate) passed: u64,
    pub(crate) lost: u64,
    pub(crate) dropped: u64,
    /// Bytes that have left the link, which may be a bin later than they came.
    pub(crate) departed_bytes: u64,
}

impl Tally {
    fn count(&mut self, fate: Fate) {
        match fate {
            Fate::Departs(_) => self.passed += 1,
            Fate::Lost => self.lost += 1,
            Fate::Dropped => self.dropped += 1,
        }
    }

    /// Packets that came.
    pub(crate) fn all(&self) -> u64 {
        self.passed + self.lost + self.dropped
    }

    /// Packets that came to the queue.
    pub(crate) fn offered(&self) -> u64 {
        self.passed + self.dropped
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.lost += other.lost;
        self.dropped += other.dropped;
        self.departed_bytes += other.departed_bytes;
    }
}

/// One flow's packets in one direction.
#[derive(Debug, Clone, Default)]
pub(crate) struct FlowTally {
    bins: Vec<Tally>,
    /// When its first packet came.
    first: Option<f64>,
    /// The second after that.
    pub(crate) first_second: Tally,
}

impl FlowTally {
    pub(crate) fn count(&mut self, now: f64, fate: Fate, bytes: usize) {
        self.bin(now).count(fate);
        if let Fate::Departs(departure) = fate {
            self.bin(departure).departed_bytes += bytes as u64;
        }
        if now - *self.first.get_or_insert(now) < 1.0 {
            self.first_second.count(fate);
        }
    }

    fn bin(&mut self, time: f64) -> &mut Tally {
        let bin = (time / BIN) as usize;
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, Tally::default());
        }
        &mut self.bins[bin]
    }

    /// Between two times, in whole bins.
    pub(crate) fn between(&self, from: f64, to: f64) -> Tally {
        let mut sum = Tally::default();
        for bin in self.bins.iter().take(bin_at(to)).skip(bin_at(from)) {
            sum += *bin;
        }
        sum
    }
}

/// The bin that begins at this time.
pub(crate) fn bin_at(time: f64) -> usize {
    (time / BIN).round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_sums_of_bins() {
        let mut flow = FlowTally::default();
        for tenth in 0..50 {
            let now = f64::from(tenth) * 0.1 + 0.05;
            flow.count(now, Fate::Departs(now + 0.1), 1_000);
        }
        flow.count(4.95, Fate::Dropped, 1_000);
        flow.count(4.95, Fate::Lost, 1_000);
        let tally = flow.between(2.0, 5.0);
        assert_eq!(tally, Tally { passed: 30, lost: 1, dropped: 1, departed_bytes: 30_000 });
        assert_eq!((tally.all(), tally.offered()), (32, 31));
        assert_eq!(flow.between(5.0, 9.0), Tally { departed_bytes: 1_000, ..Tally::default() });
    }

    #[test]
    fn the_first_second_begins_with_the_first_packet() {
        let mut flow = FlowTally::default();
        for (at, fate) in [(10.3, Fate::Departs(10.4)), (11.2, Fate::Dropped), (11.31, Fate::Dropped)] {
            flow.count(at, fate, 1_500);
        }
        assert_eq!(flow.first_second, Tally { passed: 1, dropped: 1, ..Tally::default() });
    }
}
