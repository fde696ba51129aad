//! What happens in a round trip, and the round trips of the last packets.

use core::time::Duration;

use crate::proto::{
    congestion::{Acked, LossCause, Lost},
    time::{Instant, Micros},
};

/// Of so many samples the shortest counts: the others may have waited for the peer's or our processor.
const GROUP: u32 = 4;
/// So many losses may be chance.
const CHANCE: u64 = 4;

/// One round.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) began: Instant,
    /// Segments.
    pub(super) acked: u64,
    pub(super) lost: u64,
    /// Those of the lost ones whose RTO passed: often the ACKs of a whole window were lost with one packet.
    pub(super) timeouts: u64,
    /// Packets had marks of ECN.
    pub(super) marked: bool,
    bytes: u64,
    least_in_flight: u64,
    samples: u32,
    /// The shortest of all samples.
    pub(super) shortest: Option<Duration>,
    /// The shortest of the present group, and the sum of those of the groups before.
    group: Option<Duration>,
    sum: Duration,
    groups: u32,
}

impl Round {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            began: now,
            acked: 0,
            lost: 0,
            timeouts: 0,
            marked: false,
            bytes: 0,
            least_in_flight: u64::MAX,
            samples: 0,
            shortest: None,
            group: None,
            sum: Duration::ZERO,
            groups: 0,
        }
    }

    pub(super) fn on_ack(&mut self, acked: &Acked) {
        self.acked += u64::from(acked.segments);
        self.bytes += acked.bytes;
        self.least_in_flight = self.least_in_flight.min(acked.in_flight.bytes.saturating_add(acked.bytes));
    }

    /// A segment was lost. A burst that was lost all at once is sent again, window by window, when its RTO passes: for what was sent before
    /// `reduced_at`, the window is smaller already.
    pub(super) fn on_lost(&mut self, lost: &Lost, reduced_at: Instant) {
        if lost.cause == LossCause::Timeout && lost.sent_time < reduced_at {
            return;
        }
        self.lost += 1;
        self.timeouts += u64::from(lost.cause == LossCause::Timeout);
    }

    pub(super) fn on_rtt(&mut self, rtt: Duration) {
        let shorter = |before: Option<Duration>| Some(before.map_or(rtt, |before| before.min(rtt)));
        self.samples += 1;
        self.shortest = shorter(self.shortest);
        self.group = shorter(self.group);
        if self.samples.is_multiple_of(GROUP) {
            self.sum += self.group.take().unwrap_or_default();
            self.groups += 1;
        }
    }

    /// The mean of the groups' shortest; of fewer samples, the shortest.
    pub(super) fn standing_rtt(&self) -> Option<Duration> {
        self.sum.checked_div(self.groups).or(self.shortest)
    }

    /// Whether the window was what limited the sender for all of it.
    pub(super) const fn is_full(&self, cwnd: u64) -> bool {
        self.least_in_flight >= cwnd / 2
    }

    /// Whether more is lost than a path loses by itself.
    pub(super) const fn is_lossy(&self) -> bool {
        self.lost > CHANCE && self.lost * 8 > self.acked
    }

    /// Bytes a second that were confirmed.
    pub(super) fn rate(&self, now: Instant) -> Option<u64> {
        let micros = (now - self.began).as_micros();
        let rate = (u128::from(self.bytes) * 1_000_000).checked_div(micros)?;
        u64::try_from(rate).ok()
    }
}

/// The last samples.
#[derive(Debug, Default)]
pub(super) struct Recent {
    rtts: [Micros; 8],
    next: usize,
    all: bool,
}

impl Recent {
    pub(super) fn add(&mut self, rtt: Duration) {
        self.rtts[self.next] = rtt.into();
        self.next = (self.next + 1) % self.rtts.len();
        self.all |= self.next == 0;
    }

    /// The shortest of them; `None` before there are as many as it remembers.
    pub(super) fn shortest(&self) -> Option<Duration> {
        self.all.then(|| self.rtts.iter().map(|rtt| rtt.get()).min().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn round(rtts: &[u64]) -> Round {
        let mut round = Round::new(Instant::ZERO);
        rtts.iter().for_each(|rtt| round.on_rtt(ms(*rtt)));
        round
    }

    #[test]
    fn the_standing_round_trip_is_the_mean_of_each_groups_shortest() {
        assert_eq!(round(&[]).standing_rtt(), None);
        assert_eq!(round(&[70, 60, 80]).standing_rtt(), Some(ms(60)));
        // 60 of the first four, 50 of the second, and two that are no group yet.
        assert_eq!(round(&[70, 60, 80, 90, 50, 95, 95, 95, 1, 1]).standing_rtt(), Some(ms(55)));
    }

    #[test]
    fn the_rate_is_what_was_confirmed_by_how_long_it_took() {
        let mut round = Round::new(Instant::from_millis(100));
        round.on_ack(&Acked { segments: 2, bytes: 5_000, ..Acked::default() });
        assert_eq!(round.rate(Instant::from_millis(150)), Some(100_000));
        assert_eq!(round.rate(Instant::from_millis(100)), None);
    }

    #[test]
    fn the_shortest_of_the_last_eight_counts() {
        let mut recent = Recent::default();
        (1..=7).for_each(|rtt| recent.add(ms(rtt)));
        assert_eq!(recent.shortest(), None);
        recent.add(ms(8));
        assert_eq!(recent.shortest(), Some(ms(1)));
        recent.add(ms(9));
        assert_eq!(recent.shortest(), Some(ms(2)));
    }

    #[test]
    fn timeouts_of_what_was_sent_before_the_window_became_smaller_do_not_count() {
        let lost = |cause, sent| Lost {
            now: Instant::from_millis(300),
            sn: 0,
            bytes: 1_000,
            sent_time: Instant::from_millis(sent),
            cause,
            tx_in_flight: 1_000,
            lost: 1_000,
            is_app_limited: false,
        };
        let reduced_at = Instant::from_millis(200);
        for (cause, sent, count) in [
            (LossCause::Timeout, 199, [0, 0]),
            (LossCause::Timeout, 200, [1, 1]),
            (LossCause::Skipped, 199, [1, 0]),
        ] {
            let mut round = Round::new(Instant::ZERO);
            round.on_lost(&lost(cause, sent), reduced_at);
            assert_eq!([round.lost, round.timeouts], count, "{cause:?} {sent}");
        }
    }

    #[test]
    fn a_ninth_lost_is_more_than_a_path_loses() {
        for (acked, lost, is_lossy) in [(40, 5, false), (39, 5, true), (1, 4, false)] {
            let mut round = Round::new(Instant::ZERO);
            (round.acked, round.lost) = (acked, lost);
            assert_eq!(round.is_lossy(), is_lossy, "{lost} of {acked}");
        }
    }
}
