//! KCP's own congestion control, as in ikcp and kcp-go: [`CongestionControl::Kcp`](super::CongestionControl::Kcp).
//!
//! It is a Reno that counts segments: slow start up to `ssthresh`, then additive growth; half of what is in flight after
//! a fast resend, one segment after a timeout. Two things are different from ikcp:
//!
//! * The window grows by the segments that ACKs confirm, not by the packets that carry ACKs, so that a receiver may batch
//!   its ACKs.
//! * A new session begins with ten segments (RFC 6928) in place of one.
//!
//! A mark of ECN, which KCP does not know, is answered as a fast resend, but for the segments that this lets be sent in place of
//! those that have left the path.
//!
//! As in ikcp, the window shrinks when segments are *resent*, which is when a run of transmissions ends, and not when
//! they are found lost: the rest of the run still goes by the window from before.

use super::{Acked, Controller, Marked, MinRtt, Sent};

/// Least value of `ssthresh`, in segments: ikcp's `IKCP_THRESH_MIN`.
const MIN_SSTHRESH: u32 = 2;
/// Window of a new session, in segments: RFC 6928's.
const INITIAL_WINDOW: u32 = 10;
/// Unit of the fraction of a segment that the window has earned.
const ONE: u32 = 1 << 16;

/// KCP's own congestion control.
#[derive(Debug)]
pub(super) struct Kcp {
    mtu: u64,
    /// Segments that may be in flight.
    cwnd: u32,
    ssthresh: u32,
    /// Fraction of a segment earned towards the next, in [`ONE`]ths.
    credit: u32,
}

impl Kcp {
    pub(super) const fn new(mtu: usize) -> Self {
        Self { mtu: mtu as u64, cwnd: INITIAL_WINDOW, ssthresh: u32::MAX, credit: 0 }
    }

    /// Grows the window by what was confirmed, up to `limit`: what the peers' windows allow.
    fn grow(&mut self, segments: u32, limit: u32) {
        for _ in 0..segments {
            if self.cwnd >= limit {
                break;
            }
            // Past ssthresh, a window's worth of ACKs earns one segment and a sixteenth of the window, as in ikcp.
            self.credit += if self.cwnd < self.ssthresh { ONE } else { ONE / self.cwnd + ONE / 16 };
            self.cwnd += self.credit / ONE;
            self.credit %= ONE;
        }
    }

    fn shrink(&mut self, ssthresh: u32, cwnd: impl FnOnce(u32) -> u32) {
        self.ssthresh = ssthresh.max(MIN_SSTHRESH);
        self.cwnd = cwnd(self.ssthresh);
        self.credit = 0;
    }
}

impl Controller for Kcp {
    fn on_sent(&mut self, sent: &Sent) {
        let flight = sent.in_flight;
        if sent.fast_resends > 0 {
            self.shrink(flight.span / 2, |ssthresh| ssthresh.saturating_add(flight.resend));
        }
        if sent.timeout_resends > 0 {
            self.shrink(self.cwnd.min(flight.window_limit) / 2, |_| 1);
        }
    }

    fn on_ack(&mut self, acked: &Acked, _min_rtt: &mut MinRtt) {
        self.grow(acked.segments, acked.in_flight.window_limit);
    }

    fn on_ecn(&mut self, marked: &Marked) {
        // No more than before: what is in flight beyond the window is not what filled the queue.
        let span = marked.in_flight.span.min(self.cwnd);
        self.shrink(span / 2, |ssthresh| ssthresh);
    }

    fn supports_ecn(&self) -> bool {
        true
    }

    fn on_mtu_change(&mut self, mtu: usize) {
        self.mtu = mtu as u64;
    }

    fn window(&self) -> u64 {
        u64::from(self.cwnd) * self.mtu
    }

    fn window_segments(&self) -> Option<u32> {
        Some(self.cwnd)
    }

    fn mode(&self) -> Option<&'static str> {
        Some(if self.cwnd < self.ssthresh { "slow_start" } else { "congestion_avoidance" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{congestion::InFlight, time::Instant};

    fn ack(kcp: &mut Kcp, segments: u32, window_limit: u32) {
        let in_flight = InFlight { window_limit, ..InFlight::default() };
        kcp.on_ack(&Acked { segments, in_flight, ..Acked::default() }, &mut MinRtt::default());
    }

    fn resent(kcp: &mut Kcp, fast_resends: u32, timeout_resends: u32, span: u32) {
        let in_flight = InFlight { span, window_limit: 128, resend: 2, ..InFlight::default() };
        kcp.on_sent(&Sent { fast_resends, timeout_resends, in_flight, ..Sent::default() });
    }

    #[test]
    fn slow_start_additive_growth_fast_resend_and_timeout_follow_ikcp() {
        let mut kcp = Kcp::new(1_400);
        ack(&mut kcp, 6, 128);
        assert_eq!((kcp.window_segments(), kcp.window()), (Some(16), 16 * 1_400));
        resent(&mut kcp, 1, 0, 16);
        assert_eq!((kcp.ssthresh, kcp.cwnd), (8, 10));
        // Ten ACKs of 1/10 + 1/16 each (rounded down) earn one segment.
        ack(&mut kcp, 6, 128);
        assert_eq!(kcp.cwnd, 10);
        ack(&mut kcp, 1, 128);
        assert_eq!(kcp.cwnd, 11);
        resent(&mut kcp, 0, 3, 11);
        assert_eq!((kcp.ssthresh, kcp.cwnd), (5, 1));
        ack(&mut kcp, 1_000_000, 32);
        assert_eq!(kcp.cwnd, 32);
    }

    #[test]
    fn a_mark_halves_what_is_in_flight() {
        for (cwnd, span, expected) in [(40, 40, 20), (40, 10, 5), (40, 90, 20), (3, 3, MIN_SSTHRESH)] {
            let mut kcp = Kcp { cwnd, ..Kcp::new(1_400) };
            let in_flight = InFlight { span, window_limit: 128, resend: 2, ..InFlight::default() };
            let (now, sent_time) = (Instant::ZERO, Instant::ZERO);
            kcp.on_ecn(&Marked { now, packets: 3, sent_time, in_flight });
            assert_eq!((kcp.ssthresh, kcp.cwnd), (expected, expected));
        }
    }

    /// A timeout in the same run halves what the fast resend has left.
    #[test]
    fn a_fast_resend_and_a_timeout_in_one_run_both_count() {
        let mut kcp = Kcp::new(1_400);
        resent(&mut kcp, 1, 1, 40);
        assert_eq!((kcp.ssthresh, kcp.cwnd), ((20 + 2) / 2, 1));
    }
}
