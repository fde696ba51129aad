//! What ACKs tell about losses, before and after what repairs them.
//!
//! A receiver that recovers a segment by FEC acknowledges it as if it had arrived, so resends alone show only what was
//! left to repair. Another sign is that a later segment is acknowledged first. A resend was not needed if the ACK answers
//! an earlier transmission, or if it comes sooner after the resend than the path's minimum round trip.
//!
//! The ACK of an early copy tells nothing: a receiver answers once what arrives twice within its `interval`, with the later time.

use core::time::Duration;

use crate::proto::{congestion::delivery_rate::NewlyAcked, time::Instant};

/// Segments by what became of their first transmission; counters that only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::proto) struct LossCounts {
    /// Segments confirmed.
    pub(in crate::proto) confirmed: u64,
    /// Those that were seen missing, repaired or resent. Too few where repairs come before the peer's next ACK; too many
    /// where the path reorders or loses ACKs.
    pub(in crate::proto) missed: u64,
    /// Those that had to be resent.
    pub(in crate::proto) resent: u64,
    /// Those that had to be resent although their parity, or their copies, had been sent.
    pub(in crate::proto) unrepaired: u64,
}

impl LossCounts {
    pub(super) const fn add(&mut self, other: &Self) {
        self.confirmed += other.confirmed;
        self.missed += other.missed;
        self.resent += other.resent;
        self.unrepaired += other.unrepaired;
    }

    /// What has been counted since `earlier`.
    pub(in crate::proto) const fn since(&self, earlier: &Self) -> Self {
        Self {
            confirmed: self.confirmed - earlier.confirmed,
            missed: self.missed - earlier.missed,
            resent: self.resent - earlier.resent,
            unrepaired: self.unrepaired - earlier.unrepaired,
        }
    }
}

/// What the ACKs of one packet newly confirm.
#[derive(Debug, Default)]
pub(super) struct Confirmed {
    now: Instant,
    /// The minimum round-trip time, which tells whether an ACK may answer a resend.
    min_rtt: Duration,
    pub(super) acked: NewlyAcked,
    pub(super) losses: LossCounts,
    /// Bytes of segments that had been found lost, and of which an earlier transmission arrived.
    pub(super) spurious_bytes: u64,
    /// The longest payload of a segment.
    pub(super) largest: u32,
}

impl Confirmed {
    pub(super) fn new(now: Instant, min_rtt: Duration) -> Self {
        Self { now, min_rtt, ..Self::default() }
    }

    /// Counts a segment of `bytes` with such a history. It was last sent at `sent_at`, and is confirmed by an ACK that
    /// echoes `ts` or by a `una`.
    #[inline]
    pub(super) fn count(&mut self, history: SendHistory, bytes: u64, sent_at: Instant, ts: Option<u32>) {
        self.losses.confirmed += 1;
        if history.is_uneventful() {
            return;
        }
        let of_another = ts.is_some_and(|ts| ts != sent_at.as_ts());
        let resent = history.has(SendHistory::RESENT);
        let needed = resent && !of_another && self.now - sent_at >= self.min_rtt;
        self.losses.missed += u64::from(needed || history.has(SendHistory::SKIPPED));
        self.losses.resent += u64::from(needed);
        self.losses.unrepaired += u64::from(needed && history.has(SendHistory::COVERED));
        if !needed && history.has(SendHistory::FOUND_LOST) {
            self.spurious_bytes += bytes;
        }
    }
}

/// What has happened to a segment in flight since it was first sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SendHistory(u8);

impl SendHistory {
    /// A later one was acknowledged first.
    const SKIPPED: u8 = 1;
    /// It was sent again.
    const RESENT: u8 = 2;
    /// That was after its parity, or its early copies, had been sent.
    const COVERED: u8 = 4;
    /// Congestion control was told that it is lost.
    const FOUND_LOST: u8 = 8;
    /// It was told so of the last transmission.
    const LAST_FOUND_LOST: u8 = 16;

    const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    const fn is_uneventful(self) -> bool {
        self.0 == 0
    }

    /// A later one was acknowledged. Behind a resend that tells nothing of the first transmission.
    pub(super) const fn on_skip(&mut self) {
        if !self.has(Self::RESENT) {
            self.0 |= Self::SKIPPED;
        }
    }

    /// Whether congestion control has not been told that the last transmission is lost.
    pub(super) const fn is_news_if_lost(self) -> bool {
        !self.has(Self::LAST_FOUND_LOST)
    }

    /// Notes that it is found lost; returns whether that is news.
    pub(super) const fn on_found_lost(&mut self) -> bool {
        let news = self.is_news_if_lost();
        self.0 |= Self::FOUND_LOST | Self::LAST_FOUND_LOST;
        news
    }

    /// It is sent again; `covered` if its parity, or its early copies, were sent.
    pub(super) const fn on_resend(&mut self, covered: bool) {
        if !self.has(Self::RESENT) {
            self.0 |= Self::RESENT | if covered { Self::COVERED } else { 0 };
        }
        self.0 &= !Self::LAST_FOUND_LOST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// Segments that are missed, resent for a reason, resent although covered, and bytes that were not lost after all.
    fn count(history: SendHistory, now: u64, ts: Option<u32>) -> [u64; 4] {
        let mut confirmed = Confirmed::new(Instant::from_millis(now), RTT);
        confirmed.count(history, 10, Instant::from_millis(1_000), ts);
        let LossCounts { confirmed: segments, missed, resent, unrepaired } = confirmed.losses;
        assert_eq!(segments, 1);
        [missed, resent, unrepaired, confirmed.spurious_bytes]
    }

    #[test]
    fn an_ack_tells_by_its_time_whether_a_segment_was_lost() {
        let sent = SendHistory::default();
        let mut skipped = sent;
        skipped.on_skip();
        let mut resent = sent;
        assert!(resent.on_found_lost());
        resent.on_resend(false);
        // ACKs of what was sent later than the resend tell nothing of the first transmission.
        resent.on_skip();
        let mut both = skipped;
        assert!(both.on_found_lost());
        both.on_resend(true);
        both.on_resend(false);
        for (history, now, ts, expected) in [
            (sent, 1_100, Some(1_000), [0, 0, 0, 0]),
            (sent, 1_100, None, [0, 0, 0, 0]),
            (sent, 1_100, Some(1_010), [0, 0, 0, 0]),
            (skipped, 1_100, Some(1_000), [1, 0, 0, 0]),
            (resent, 1_100, Some(1_000), [1, 1, 0, 0]),
            (resent, 1_050, Some(900), [0, 0, 0, 10]),
            (resent, 1_050, None, [0, 0, 0, 10]),
            (both, 1_100, None, [1, 1, 1, 0]),
            (both, 1_050, None, [1, 0, 0, 10]),
            (both, 1_150, Some(900), [1, 0, 0, 10]),
        ] {
            assert_eq!(count(history, now, ts), expected, "{history:?} {now} {ts:?}");
        }
    }

    #[test]
    fn each_transmission_is_found_lost_once() {
        let mut history = SendHistory::default();
        assert!(history.on_found_lost());
        assert!(!history.on_found_lost());
        assert_eq!(count(history, 1_100, None), [0, 0, 0, 10], "it arrived before it was resent");
        history.on_resend(false);
        assert!(history.on_found_lost());
    }
}
