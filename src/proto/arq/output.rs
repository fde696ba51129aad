//! Writing segments: what is to be resent, what is new, and what answers the peer.

use super::{Arq, send_buffer::Cause, send_queue::Cut};
use crate::proto::{
    time::Instant,
    wire::{Command, HEADER_LEN, SegmentHeader},
};

/// Full segments that a corked transmission waits for.
const CORKED_SEGMENTS: usize = 16;

/// What one run of [`Arq::fill`] calls has sent, as congestion control and early resend look at it.
#[derive(Debug, Default)]
pub(in crate::proto) struct Flush {
    new_segments: u32,
    timeouts: u32,
    skipped: u32,
    /// Window and `una` that every segment of the run carries.
    wnd: u16,
    una: u32,
    sent_any: bool,
    /// New data waits until it fills [`CORKED_SEGMENTS`] segments; what does not fill a segment waits anyway.
    corked: bool,
}

impl Arq {
    /// Begins a run of [`fill`](Self::fill) calls.
    pub(in crate::proto) fn begin_flush(&mut self, now: Instant, corked: bool) -> Flush {
        self.pacer.refill(now, self.congestion.pacing_rate());
        Flush {
            corked: corked && self.buffer.unacked() > 0,
            wnd: self.recv.free().min(u16::MAX.into()) as u16,
            una: self.recv.nxt(),
            ..Flush::default()
        }
    }

    /// Writes as many segments as there are to send and as fit into `out`, which is one packet's room for them;
    /// returns how many bytes.
    ///
    /// Payload goes before control segments: they then stand in the last, shorter packet of a batch, which is the
    /// one place where GSO lets a packet be shorter.
    pub(in crate::proto) fn fill(&mut self, now: Instant, out: &mut [u8], flush: &mut Flush) -> usize {
        let mut at = 0;
        // ACKs of many segments are not held up by a stream of payload.
        let urgent = self.acks.is_due() && self.acks.are_many(self.mtu) && !flush.sent_any;
        if urgent {
            at = self.fill_control(now, out, at, flush);
        }
        at = self.fill_resends(now, out, at, flush);
        at = self.fill_new(now, out, at, flush);
        if self.early_due && flush.new_segments == 0 {
            at = self.fill_early(now, out, at, flush);
        }
        if self.copies.is_under_way() {
            at = self.fill_copies(now, out, at, flush);
        }
        // What is sent anyway takes waiting ACKs along.
        let piggyback = at > 0 && !self.acks.is_empty();
        if piggyback || self.has_control() {
            at = self.fill_control(now, out, at, flush);
        }
        flush.sent_any |= at > 0;
        at
    }

    /// Ends a run of [`fill`](Self::fill) calls that sent something or found nothing to send.
    pub(in crate::proto) fn end_flush(&mut self, now: Instant, flush: &Flush) {
        if self.early_due || self.early_at.is_some() {
            self.plan_early(now);
        }
        if self.queue.unsent() == 0 {
            self.flush_at = None;
        }
        if flush.skipped > 0 {
            self.congestion.on_fast_resend(flush.skipped, self.buffer.span(), self.nodelay.resend);
        }
        if flush.timeouts > 0 {
            let window = self.send_window.min(self.peer_window).min(self.congestion.window(self.mtu));
            self.congestion.on_timeout(flush.timeouts, window);
        }
    }

    #[inline(never)]
    fn plan_early(&mut self, now: Instant) {
        let waiting = self.buffer.next_early().is_some();
        if self.early_due || !waiting {
            self.early_due = false;
            self.early_at = waiting.then(|| now + self.early_delay());
        }
    }

    pub(super) const fn has_control(&self) -> bool {
        self.acks.is_due() || self.probe.asks() || self.tell_window
    }

    /// Whether the windows leave room for one more new segment.
    pub(super) fn has_window(&self) -> bool {
        self.buffer.span() < self.send_window.min(self.peer_window)
            && self.congestion.permits(self.buffer.in_flight())
    }

    /// Takes note of `bytes` that are sent beside the segments.
    pub(in crate::proto) fn charge(&mut self, now: Instant, bytes: usize) {
        self.pacer.refill(now, self.congestion.pacing_rate());
        self.pacer.spend_burst(bytes);
    }

    /// When the pacer lets the next segment go, if that is all that it waits for.
    pub(super) fn next_paced(&self) -> Option<Instant> {
        self.pacer.deadline().filter(|_| self.has_sendable())
    }

    /// Whether a round trip's allowance of resends after timeouts is used up, and until when. Without it, an outage
    /// would end in a burst of all that is in flight.
    pub(super) fn timeouts_held_until(&self) -> Option<Instant> {
        let (began, bytes) = self.timeout_round;
        (bytes >= self.congestion.timeout_allowance())
            .then(|| began + self.rtt.smoothed().max(self.nodelay.interval))
    }

    fn fill_resends(&mut self, now: Instant, out: &mut [u8], mut at: usize, flush: &mut Flush) -> usize {
        if self.buffer.unacked() == 0 {
            return at;
        }
        let backoff = self.backoff();
        let held = self.timeouts_held_until().is_some_and(|until| now < until);
        while let Some((sn, cause)) = self.buffer.next_resend(now, &backoff) {
            let len = self.buffer.get(sn).len;
            if !fits(out, at, len as usize) || (cause == Cause::Timeout && held) {
                break;
            }
            at = self.resend(now, sn, cause, out, at, flush);
        }
        at
    }

    #[inline(never)]
    fn fill_early(&mut self, now: Instant, out: &mut [u8], mut at: usize, flush: &mut Flush) -> usize {
        while let Some(sn) = self.buffer.next_early() {
            if !fits(out, at, self.buffer.get(sn).len as usize) {
                break;
            }
            at = self.resend(now, sn, Cause::Early, out, at, flush);
        }
        at
    }

    #[inline(never)]
    fn resend(
        &mut self,
        now: Instant,
        sn: u32,
        cause: Cause,
        out: &mut [u8],
        at: usize,
        flush: &mut Flush,
    ) -> usize {
        match cause {
            Cause::Fast => {
                self.counters.recovery.fast_resends += 1;
                flush.skipped += 1;
            }
            Cause::Early => {
                self.counters.recovery.early_resends += 1;
                flush.skipped += 1;
            }
            Cause::Timeout => {
                self.counters.recovery.timeout_resends += 1;
                flush.timeouts += 1;
                if now - self.timeout_round.0 >= self.rtt.smoothed().max(self.nodelay.interval) {
                    self.timeout_round = (now, 0);
                }
                self.timeout_round.1 += HEADER_LEN as u64 + u64::from(self.buffer.get(sn).len);
            }
        }
        let snapshot = self.congestion.on_send(now, self.buffer.in_flight());
        self.buffer.note_covered(sn, self.copies.covers(sn, now, self.rtt.smoothed() / 4));
        self.buffer.resent(sn, cause, now, snapshot);
        if sn == self.buffer.una() {
            self.unanswered_sends += 1;
        }
        self.emit_push(now, sn, out, at, flush)
    }

    fn fill_new(&mut self, now: Instant, out: &mut [u8], mut at: usize, flush: &mut Flush) -> usize {
        // Less than a batch waits for the writer to write more: a system call costs as much as many segments.
        let begins = flush.new_segments == 0;
        let least = if flush.corked && begins { CORKED_SEGMENTS * self.mss } else { self.mss };
        if begins && !self.pacer.permits_run() {
            return at;
        }
        let held_back = flush.corked || self.flush_at.is_some();
        if held_back && self.queue.unsent() < least {
            return at;
        }
        while self.pacer.permits() && self.has_window() {
            if held_back && self.queue.unsent() < self.mss {
                break;
            }
            let Some(cut) = self.queue.peek(self.mss) else {
                self.congestion.on_app_limited(self.buffer.in_flight());
                break;
            };
            if !fits(out, at, cut.len) {
                break;
            }
            let Cut { len, frg } = cut;
            let position = self.queue.take(cut);
            let snapshot = self.congestion.on_send(now, self.buffer.in_flight());
            let sn = self.buffer.push(position, len as u32, frg, now, snapshot);
            if sn == self.buffer.una() {
                self.unanswered_sends = 1;
            }
            self.counters.segments.push_sent += 1;
            self.copies.on_send(now, self.queue.unsent() > 0);
            flush.new_segments += 1;
            self.pacer.spend(HEADER_LEN + len);
            at = self.emit_push(now, sn, out, at, flush);
        }
        at
    }

    /// Segments again whose FEC group stays incomplete: data packets of that group in their turn.
    #[inline(never)]
    fn fill_copies(&mut self, now: Instant, out: &mut [u8], mut at: usize, flush: &Flush) -> usize {
        while let Some(sn) = self.copies.next(now, self.buffer.una(), self.buffer.nxt()) {
            if !self.buffer.is_acked(sn) {
                if !fits(out, at, self.buffer.get(sn).len as usize) {
                    break;
                }
                self.counters.recovery.fec_flush_copies += 1;
                at = self.emit_push(now, sn, out, at, flush);
            }
            self.copies.advance(sn);
        }
        at
    }

    fn emit_push(&mut self, now: Instant, sn: u32, out: &mut [u8], at: usize, flush: &Flush) -> usize {
        self.unanswered_since.get_or_insert(now);
        let segment = self.buffer.get(sn);
        let (position, len, frg) = (segment.position, segment.len, segment.frg);
        let end = self.emit_header(Command::Push, frg, now.as_ts(), sn, len, out, at, flush);
        self.queue.bytes.copy_to(position, &mut out[end..end + len as usize]);
        // Who sends at full speed writes again as much as was sent.
        self.queue.bytes.expect_append(len as usize);
        end + len as usize
    }

    /// ACKs, WASK and WINS, as many as fit.
    fn fill_control(&mut self, now: Instant, out: &mut [u8], mut at: usize, flush: &Flush) -> usize {
        let mut acks = core::mem::take(&mut self.acks);
        acks.take((out.len() - at) / HEADER_LEN, self.recv.nxt(), now, self.nodelay.interval, |ack| {
            self.counters.segments.acks_sent += 1;
            at = self.emit_header(Command::Ack, 0, ack.ts, ack.sn, 0, out, at, flush);
        });
        self.acks = acks;
        if self.probe.asks() && fits(out, at, 0) {
            self.probe.asked();
            self.unanswered_since.get_or_insert(now);
            self.counters.segments.window_probes += 1;
            // The time, which nobody reads, tells it from the one before: to a replay window it would be the same.
            at = self.emit_header(Command::Wask, 0, now.as_ts(), 0, 0, out, at, flush);
        }
        if self.tell_window && fits(out, at, 0) {
            self.tell_window = false;
            at = self.emit_header(Command::Wins, 0, now.as_ts(), 0, 0, out, at, flush);
        }
        at
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a header, and where it goes")]
    #[inline]
    fn emit_header(
        &mut self,
        cmd: Command,
        frg: u8,
        ts: u32,
        sn: u32,
        len: u32,
        out: &mut [u8],
        at: usize,
        flush: &Flush,
    ) -> usize {
        let header = SegmentHeader { conv: self.conv, cmd, frg, wnd: flush.wnd, ts, sn, una: flush.una, len };
        let end = at + HEADER_LEN;
        out[at..end].copy_from_slice(&header.to_bytes());
        self.told_window = flush.wnd.into();
        self.counters.segments.sent += 1;
        end
    }
}

/// Whether a segment of `len` payload bytes fits `out` from `at` on.
const fn fits(out: &[u8], at: usize, len: usize) -> bool {
    at + HEADER_LEN + len <= out.len()
}
