//! What ACKs tell about losses, before and after what repairs them.
//!
//! A receiver that recovers a segment by FEC acknowledges it as if it had arrived, so resends alone show only what was
//! left to repair. What shows besides is that a later segment is acknowledged first. And a resend was not needed where its
//! ACK answers an earlier transmission, or comes sooner than a round trip after it.
//!
//! An ACK of a copy tells nothing: a receiver answers once what arrives twice within its `interval`, with the later time.

use core::time::Duration;

use crate::proto::time::Instant;

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

/// What has happened to a segment in flight since it was first sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fate(u8);

impl Fate {
    /// A later one was acknowledged first.
    const OVERTAKEN: u8 = 1;
    /// It was sent again.
    const RESENT: u8 = 2;
    /// That was after its parity.
    const COVERED: u8 = 4;

    pub(super) const fn overtake(&mut self) {
        if self.0 & Self::RESENT == 0 {
            self.0 |= Self::OVERTAKEN;
        }
    }

    /// It is sent again; its parity, or its copies, are `covered` if they were sent.
    pub(super) const fn resend(&mut self, covered: bool) {
        if self.0 & Self::RESENT == 0 {
            self.0 |= Self::RESENT | if covered { Self::COVERED } else { 0 };
        }
    }

    /// Counts a segment that was last sent at `sent_at` and is confirmed at `now`, by an ACK that echoes `ts` or by a
    /// `una`.
    pub(super) fn count(
        self,
        now: Instant,
        sent_at: Instant,
        ts: Option<u32>,
        min_rtt: Duration,
        counts: &mut LossCounts,
    ) {
        let of_another = ts.is_some_and(|ts| ts != sent_at.as_ts());
        let needed = self.0 & Self::RESENT != 0 && !of_another && now - sent_at >= min_rtt;
        counts.confirmed += 1;
        counts.missed += u64::from(needed || self.0 & Self::OVERTAKEN != 0);
        counts.resent += u64::from(needed);
        counts.unrepaired += u64::from(needed && self.0 & Self::COVERED != 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    #[test]
    fn what_an_ack_tells_of_each_fate() {
        let sent = Fate::default();
        let mut overtaken = sent;
        overtaken.overtake();
        let mut resent = sent;
        resent.resend(false);
        // ACKs of what was sent later than the resend tell nothing of the first transmission.
        resent.overtake();
        let mut both = overtaken;
        both.resend(true);
        both.resend(false);
        // Missed, resent for a reason, and although it was covered.
        for (fate, at, ts, expected) in [
            (sent, 1_100, Some(1_000), [0, 0, 0]),
            (sent, 1_100, None, [0, 0, 0]),
            (sent, 1_100, Some(1_010), [0, 0, 0]),
            (overtaken, 1_100, Some(1_000), [1, 0, 0]),
            (resent, 1_100, Some(1_000), [1, 1, 0]),
            (resent, 1_050, Some(900), [0, 0, 0]),
            (resent, 1_050, None, [0, 0, 0]),
            (both, 1_100, None, [1, 1, 1]),
            (both, 1_050, None, [1, 0, 0]),
            (both, 1_150, Some(900), [1, 0, 0]),
        ] {
            let mut counts = LossCounts::default();
            fate.count(Instant::from_millis(at), Instant::from_millis(1_000), ts, RTT, &mut counts);
            let found = [counts.missed, counts.resent, counts.unrepaired];
            assert_eq!((counts.confirmed, found), (1, expected), "{fate:?} {at} {ts:?}");
        }
    }
}
