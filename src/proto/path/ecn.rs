//! Whether the path carries ECN, and what the peer reports of it: after RFC 9000, section 13.4.2 and appendix A.4.
//!
//! ```text
//! Testing    the first packets go without, the next ones with ECT(0), and then one run of them a second
//!            reports that count them        -> Capable
//!            acknowledged, and no report    -> Failed
//! Capable    every packet with payload goes with ECT(0)
//!            counts that do not add up      -> Failed
//! Failed     none, until the session goes on over another path
//! ```
//!
//! # What adds up
//!
//! RFC 9000 compares the counts with the packets that each ACK acknowledges. ACKs of KCP name segments: what came by FEC, or was sent
//! twice, is acknowledged without the packet that is counted. So a *check* is of many packets at a time. A report whose `una` is
//! behind everything that they carried must count half of them, or a quarter of the few that test the path. The others may be lost.
//!
//! A path that duplicates packets makes the counts larger than what was sent, where no cipher tells copies: up to twice as much is
//! believed.
//!
//! # Peers that lie
//!
//! * **No marks, or ECT(0) in place of CE**: nothing can tell. Queues drop what they have marked in vain, and the losses count as
//!   ever. Such a peer could as well acknowledge what was lost.
//! * **More marks than there are**: it slows down what is sent to itself, by no more than a loss in each round trip would. Counts of
//!   more than twice the packets sent end ECN.
//! * **Counts that become smaller, or ECT(1)**, which is never sent: they end ECN.

use core::time::Duration;

use crate::proto::{
    ecn::{EcnCodepoint, EcnCounts, UNMARKED_PACKETS},
    seq,
    time::Instant,
    trace::tell,
};

/// Packets that go with ECT(0) before anything is known of the path.
const TEST_PACKETS: u64 = 10;
/// While nothing is known, one more run of packets is sent so after this time.
const TEST_INTERVAL: Duration = Duration::from_secs(1);
/// Packets of a check.
const CHECK_PACKETS: u64 = 64;
/// How long a report may be missing of what was acknowledged: the receiver has one for each second. Besides, as many RTOs.
const PATIENCE: Duration = Duration::from_secs(3);
const PATIENCE_RTOS: u32 = 3;
/// Transmissions of the oldest segment without an answer, from which on packets go without ECT: something may drop those with it.
const UNANSWERED: u32 = 3;
/// A report older than this by its own clock is a new one: the clock has wrapped around.
const MAX_REPORT_AGE: Duration = Duration::from_millis(1 << 30);

/// Whether packets are sent with ECN; see [`PathState::ecn`](crate::proto::PathState::ecn).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum EcnState {
    /// No packet is: one of the ends has ECN or the extensions off or does not know them, the peer has not answered yet, or the
    /// congestion controller does not answer marks.
    #[default]
    Off,
    /// Some are, to find out whether the path carries the marks.
    Testing,
    /// All that carry payload are.
    Capable,
    /// None are: the path clears or changes the marks, or the peer does not count them.
    Failed,
}

/// What the sender knows of ECN on its path.
#[derive(Debug, Default)]
pub(in crate::proto) struct EcnValidation {
    state: EcnState,
    /// The first packets that were sent without ECT.
    unmarked: u64,
    /// Packets sent with ECT(0) since the session began.
    sent: u64,
    /// What the peer has counted of them, with and without CE.
    counted: u64,
    /// The counts of the last report, its `ts`, and when it came.
    reported: EcnCounts,
    last_report: Option<(u32, Instant)>,
    check: Option<Check>,
    /// When the next packets are sent with ECT(0) although nothing is known.
    test_at: Instant,
    /// When congestion control was told of CE last.
    congested_at: Option<Instant>,
}

/// Packets that are to be counted.
#[derive(Debug, Clone, Copy)]
struct Check {
    /// What had been sent and counted before them.
    sent: u64,
    counted: u64,
    /// `sn` behind everything that they carry.
    end: u32,
    /// When that was found acknowledged.
    acked_at: Option<Instant>,
}

/// How things stand with the stream when packets are sent.
#[derive(Debug, Clone, Copy)]
pub(in crate::proto) struct Progress {
    /// What is acknowledged, and what was sent.
    pub(in crate::proto) una: u32,
    pub(in crate::proto) nxt: u32,
    pub(in crate::proto) rto: Duration,
    /// Transmissions of the oldest segment without an answer.
    pub(in crate::proto) unanswered: u32,
}

/// A report of the peer.
#[derive(Debug, Clone, Copy)]
pub(in crate::proto) struct Report {
    pub(in crate::proto) ts: u32,
    pub(in crate::proto) una: u32,
    pub(in crate::proto) counts: EcnCounts,
}

impl EcnValidation {
    /// The peer takes part.
    pub(in crate::proto) fn enable(&mut self, now: Instant) {
        if self.state == EcnState::Off {
            self.state = EcnState::Testing;
            self.test_at = now;
        }
    }

    /// The session goes on over another path. What the peer counts, it counts from the session's beginning.
    pub(in crate::proto) fn begin_anew(&mut self, now: Instant) {
        self.check = None;
        if self.is_on() || self.state == EcnState::Failed {
            self.state = EcnState::Testing;
            self.test_at = now;
        }
    }

    pub(in crate::proto) const fn state(&self) -> EcnState {
        self.state
    }

    #[inline]
    pub(in crate::proto) const fn is_on(&self) -> bool {
        matches!(self.state, EcnState::Testing | EcnState::Capable)
    }

    /// Packets sent with ECT(0).
    pub(in crate::proto) const fn sent(&self) -> u64 {
        self.sent
    }

    /// When congestion control was told of CE last.
    pub(in crate::proto) const fn congested_at(&self) -> Option<Instant> {
        self.congested_at
    }

    pub(in crate::proto) const fn on_congestion(&mut self, now: Instant) {
        self.congested_at = Some(now);
    }

    /// `packets` with payload are sent at once: how?
    pub(in crate::proto) fn on_send(
        &mut self,
        now: Instant,
        packets: u64,
        progress: &Progress,
    ) -> EcnCodepoint {
        if self.is_missed(now, progress) {
            self.fail("no_reports");
        }
        if !self.is_on() || progress.unanswered >= UNANSWERED {
            return EcnCodepoint::NotEct;
        }
        if self.unmarked < UNMARKED_PACKETS {
            self.unmarked += packets;
            return EcnCodepoint::NotEct;
        }
        let (sent, counted) = (self.sent, self.counted);
        let limit = self.check_packets();
        let check = self.check.get_or_insert(Check { sent, counted, end: progress.nxt, acked_at: None });
        let is_whole = sent - check.sent >= limit;
        if is_whole && self.state == EcnState::Testing && now < self.test_at {
            return EcnCodepoint::NotEct;
        }
        if !is_whole {
            check.end = progress.nxt;
        }
        self.test_at = now + TEST_INTERVAL;
        self.sent += packets;
        EcnCodepoint::Ect0
    }

    /// Packets of a check, at least; those of the last run are more.
    const fn check_packets(&self) -> u64 {
        match self.state {
            EcnState::Testing => TEST_PACKETS,
            _ => CHECK_PACKETS,
        }
    }

    /// Whether the report of a check is missing for too long.
    fn is_missed(&mut self, now: Instant, progress: &Progress) -> bool {
        let is_due = self.is_due();
        let Some(check) = &mut self.check else { return false };
        if !is_due || (check.acked_at.is_none() && seq::before(progress.una, check.end)) {
            return false;
        }
        let since = *check.acked_at.get_or_insert(now);
        now - since > PATIENCE + PATIENCE_RTOS * progress.rto
    }

    /// Whether a check has as many packets as it needs: a test is of whatever there is.
    fn is_due(&self) -> bool {
        let testing = self.state == EcnState::Testing;
        self.check.is_some_and(|check| testing || self.sent - check.sent >= CHECK_PACKETS)
    }

    /// The peer has reported what it counted. Returns how many packets were marked since the report before.
    pub(in crate::proto) fn on_report(&mut self, now: Instant, report: &Report) -> u32 {
        let Report { ts, una, counts } = *report;
        if !self.is_on() || self.is_old(now, ts, counts) {
            return 0;
        }
        let before = core::mem::replace(&mut self.reported, counts);
        self.last_report = Some((ts, now));
        let [ect0, ect1, ce] =
            [(counts.ect0, before.ect0), (counts.ect1, before.ect1), (counts.ce, before.ce)]
                .map(|(now, before)| seq::distance(before, now));
        if ect1 != 0 {
            self.fail("ect1");
            return 0;
        }
        if ect0 < 0 || ce < 0 {
            self.fail("fewer");
            return 0;
        }
        self.counted += ect0 as u64 + ce as u64;
        if self.counted > 2 * self.sent {
            self.fail("too_many");
            return 0;
        }
        self.judge(una);
        if self.state == EcnState::Failed { 0 } else { ce as u32 }
    }

    /// Whether a report was overtaken by a later one.
    fn is_old(&self, now: Instant, ts: u32, counts: EcnCounts) -> bool {
        let Some((last, at)) = self.last_report else { return false };
        let is_less = |count: u32, last: u32| seq::before(count, last);
        let same_time =
            ts == last && (is_less(counts.ect0, self.reported.ect0) || is_less(counts.ce, self.reported.ce));
        same_time || seq::before(ts, last) && now - at < MAX_REPORT_AGE
    }

    /// Draws the conclusion from a report: enough of the check's packets are counted, or all have been acknowledged and they are not.
    fn judge(&mut self, una: u32) {
        let Some(check) = self.check.filter(|_| self.is_due()) else { return };
        // Later packets than those of the check may be among either. There are at least as many sent as counted.
        let sent = (self.sent - check.sent).min(self.check_packets());
        let counted = self.counted - check.counted;
        let part = if self.state == EcnState::Testing { 4 } else { 2 };
        if part * counted >= sent {
            if self.state == EcnState::Testing {
                tell!(ecn_capable());
            }
            self.state = EcnState::Capable;
        } else if seq::before(una, check.end) {
            return;
        } else {
            self.fail("too_few");
        }
        self.check = None;
    }

    /// Packets go without ECT until the session goes on over another path. `cause` is for people.
    fn fail(&mut self, cause: &'static str) {
        self.state = EcnState::Failed;
        tell!(ecn_failed(cause));
    }
}

#[cfg(test)]
mod tests;
