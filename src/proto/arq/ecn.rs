//! Where ECN touches the stream: which packets go with ECT, and what the peer's counts tell congestion control.

use core::time::Duration;

use super::{Arq, losses::Confirmed, output::Flush};
use crate::proto::{
    ecn::{EcnCodepoint, EcnCounts},
    path::{EcnProgress, EcnReport},
    time::Instant,
    trace::tell,
    wire::SegmentHeader,
};

impl Arq {
    /// The peer counts marks.
    pub(in crate::proto) fn enable_ecn(&mut self, now: Instant) {
        self.path.ecn.enable(now);
    }

    /// A batch of `packets` is sent: how? Only payload goes with ECT. Congestion control does not govern anything else.
    #[inline]
    pub(in crate::proto) fn ecn_of_batch(
        &mut self,
        now: Instant,
        packets: usize,
        flush: &Flush,
    ) -> EcnCodepoint {
        if self.path.sends_ecn() && flush.has_payload() {
            self.mark_batch(now, packets as u64)
        } else {
            EcnCodepoint::NotEct
        }
    }

    #[inline(never)]
    fn mark_batch(&mut self, now: Instant, packets: u64) -> EcnCodepoint {
        let progress = EcnProgress {
            una: self.buffer.una(),
            nxt: self.buffer.nxt(),
            rto: self.path.rtt().rto(),
            unanswered: self.path.liveness.unanswered_sends(),
        };
        let codepoint = self.path.ecn.on_send(now, packets, &progress);
        self.counters.ecn.ect0_sent = self.path.ecn.sent();
        codepoint
    }

    /// The peer has reported its counts.
    #[cold]
    pub(super) fn input_ecn(
        &mut self,
        now: Instant,
        header: &SegmentHeader,
        counts: EcnCounts,
        confirmed: &Confirmed,
    ) {
        self.counters.ecn.reports_received += 1;
        let report = EcnReport { ts: header.ts, una: header.una, counts };
        let marked = self.path.ecn.on_report(now, &report);
        if marked > 0 {
            self.counters.ecn.ce_reported += u64::from(marked);
            let in_flight = self.in_flight();
            let told = self.path.on_ce(now, marked, &confirmed.acked, in_flight);
            tell!(ecn_marked(marked, told));
            if told {
                self.counters.ecn.congestion_events += 1;
                self.update_queue_limit();
            }
        }
    }

    /// A round trip, as far as it is known.
    pub(in crate::proto) fn round(&self) -> Duration {
        self.path.rtt().smoothed().max(self.nodelay.interval)
    }

    /// ACKs are sent with the next transmission.
    pub(in crate::proto) const fn send_acks(&mut self) {
        self.acks.set_due();
    }
}
