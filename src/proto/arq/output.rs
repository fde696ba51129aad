//! Writing segments: what is to be resent, what is new, and what answers the peer.

use super::{
    Arq,
    send_buffer::{Backoff, Cause, wire_len},
    send_queue::Cut,
};
use crate::proto::{
    congestion::{InFlight, LossCause, Sent},
    time::Instant,
    trace::tell,
    wire::{Command, HEADER_LEN, SegmentHeader},
};

/// Full segments that a corked transmission waits for.
const CORKED_SEGMENTS: usize = 16;

/// Bytes of a segment that is cut short because little may be sent. With fewer, hardly anything is won. One without any is not to
/// be: kcp-go's reader waits behind it for ever.
const LEAST_CUT: usize = 8;

/// What one run of [`Arq::fill`] calls has sent.
#[derive(Debug, Default)]
pub(in crate::proto) struct Flush {
    /// Payload, as congestion control is told of it.
    sent: Sent,
    /// The window and the `una` that every segment of the run carries.
    wnd: u16,
    una: u32,
    /// Payload bytes of a full segment.
    pub(super) mss: usize,
    sent_any: bool,
    /// The packet is as long as one segment that is too long for others: nothing goes before it.
    oversize: bool,
    /// New data waits until it fills [`CORKED_SEGMENTS`] segments. What does not fill one segment waits in any case.
    corked: bool,
}

impl Flush {
    /// Whether payload was sent, new or again.
    pub(super) const fn has_payload(&self) -> bool {
        self.sent.segments > 0 || self.sent.resent_bytes > 0
    }

    /// The packet has room for the segment that [`next_oversize`](Arq::next_oversize) has found, and no more.
    pub(in crate::proto) const fn set_oversize(&mut self) {
        self.oversize = true;
    }
}

impl Arq {
    /// Begins a run of [`fill`](Self::fill) calls.
    pub(in crate::proto) fn begin_flush(&mut self, now: Instant, corked: bool) -> Flush {
        self.path.refill_pacer(now);
        Flush {
            corked: corked && self.buffer.unacked() > 0,
            wnd: self.recv.free_window().min(u16::MAX.into()) as u16,
            una: self.recv.nxt(),
            mss: self.path.mss(),
            ..Flush::default()
        }
    }

    /// Writes the segments that are to be sent into `out`, one packet's room for them, as many as fit. Returns how many
    /// bytes.
    ///
    /// Payload goes before control segments. These are then in the last and shorter packet of a batch, the only one that
    /// GSO lets be shorter.
    pub(in crate::proto) fn fill(&mut self, now: Instant, out: &mut [u8], flush: &mut Flush) -> usize {
        let mut at = 0;
        // ACKs for many segments must not wait behind a stream of payload.
        let urgent =
            self.acks.is_due() && self.acks.are_many(self.path.mtu()) && !flush.sent_any && !flush.oversize;
        if urgent {
            at = self.fill_control(now, out, at, flush);
        }
        at = self.fill_resends(now, out, at, flush);
        at = self.fill_new(now, out, at, flush);
        if self.early_due && flush.sent.segments == 0 {
            at = self.fill_early(now, out, at, flush);
        }
        if self.fec_flush.has_round() {
            at = self.fill_flush_copies(now, out, at, flush);
        }
        // A packet that is sent anyway takes waiting ACKs along.
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
        if flush.wnd == 0 && flush.sent_any {
            self.window_update.on_closed();
        }
        if flush.sent.segments > 0 || flush.sent.resent_bytes > 0 {
            self.path.on_sent(&Sent { now, in_flight: self.in_flight(), ..flush.sent });
        }
    }

    /// What is in flight, as congestion control is told of it.
    pub(super) fn in_flight(&self) -> InFlight {
        InFlight {
            bytes: self.buffer.unacked_bytes(),
            segments: self.buffer.unacked(),
            span: self.buffer.span(),
            window_limit: self.send_window.min(self.peer_window),
            resend: self.nodelay.resend,
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
            && self.path.permits(self.buffer.unacked_bytes(), self.buffer.unacked())
    }

    /// Takes note of `bytes` that are sent beside the stream.
    pub(in crate::proto) fn charge(&mut self, now: Instant, bytes: usize) {
        self.path.charge(now, bytes);
    }

    /// Whether a corked run finds nothing to send: what is written waits for more, and nothing else is due. What is due by the time
    /// waits for its timer.
    #[cfg(feature = "tokio")]
    pub(in crate::proto) const fn holds_all_back(&self) -> bool {
        self.holds_back(0)
    }

    /// The same once so many `more` bytes are written.
    #[cfg(feature = "tokio")]
    pub(super) const fn holds_back(&self, more: usize) -> bool {
        let least = CORKED_SEGMENTS * self.path.mss();
        self.buffer.unacked() > 0
            && self.queue.unsent() + more < least
            && !self.early_due
            && !self.has_control()
    }

    /// When the pacer lets the next segment go, if a segment waits for nothing else.
    pub(super) fn next_paced(&self) -> Option<Instant> {
        self.path.pacer().deadline().filter(|_| self.has_sendable())
    }

    fn fill_resends(&mut self, now: Instant, out: &mut [u8], mut at: usize, flush: &mut Flush) -> usize {
        if self.buffer.unacked() == 0 {
            return at;
        }
        let (backoff, held) = self.resend_limits(now);
        while let Some((sn, cause)) = self.due_resend(now, &backoff, held) {
            if !fits(out, at, self.buffer.get(sn).len as usize) {
                break;
            }
            at = self.resend(now, sn, cause, out, at, flush);
        }
        at
    }

    /// When segments count as lost, and whether those whose RTO has passed are held back.
    #[inline]
    pub(super) fn resend_limits(&self, now: Instant) -> (Backoff, bool) {
        let held = self.path.timeouts_held_until(self.nodelay.interval).is_some_and(|until| now < until);
        (self.backoff(), held)
    }

    /// The segment that is sent again next.
    #[inline(always)] // Every packet asks, in `fill`.
    pub(super) fn due_resend(&self, now: Instant, backoff: &Backoff, held: bool) -> Option<(u32, Cause)> {
        let due = self.buffer.next_resend(now, backoff);
        due.filter(|(_, cause)| !(held && *cause == Cause::Timeout))
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
        let bytes = wire_len(self.buffer.get(sn).len);
        // It is no loss of this path.
        let was_elsewhere = self.path.is_later_than(self.buffer.get(sn).sent_at);
        let loss_cause = match cause {
            Cause::Fast => {
                self.counters.recovery.fast_resends += 1;
                tell!(resent(sn, bytes, "fast"));
                flush.sent.fast_resends += 1;
                LossCause::Skipped
            }
            Cause::Early => {
                self.counters.recovery.early_resends += 1;
                tell!(resent(sn, bytes, "early"));
                flush.sent.fast_resends += 1;
                LossCause::SkippedEarly
            }
            Cause::Timeout => {
                self.counters.recovery.timeout_resends += 1;
                tell!(rto(sn, self.path.rtt().rto(), self.buffer.unacked()));
                tell!(resent(sn, bytes, "timeout"));
                flush.sent.timeout_resends += u32::from(!was_elsewhere);
                self.path.on_timeout_resend(now, bytes, self.nodelay.interval);
                LossCause::Timeout
            }
        };
        flush.sent.resent_bytes += bytes;
        let was_probe = self.path.discovery.is_probe(sn);
        if was_probe {
            self.path.discovery.on_push_resent(now);
        } else if cause == Cause::Timeout {
            self.note_timeout(now, sn);
            // What is cut from here on may have to be shorter.
            flush.mss = flush.mss.min(self.path.mss());
        }
        if self.buffer.found_lost(sn) && !was_elsewhere && !was_probe {
            let segment = self.buffer.get(sn);
            self.path.on_lost(now, sn, bytes, segment.sent_at, segment.send_state, loss_cause);
        }
        let send_state = self.path.on_resend(now, self.buffer.unacked_bytes());
        let covered = self.fec_flush.covers(sn, now, self.path.rtt().smoothed() / 4);
        self.buffer.resent(sn, cause, covered, now, send_state);
        if sn == self.buffer.una() {
            self.path.liveness.on_resend_of_oldest();
            if self.buffer.get(sn).len as usize > self.path.mss() {
                self.path.discovery.on_oldest_as_fragments(now, sn);
            }
            self.ask_after_resends();
        }
        self.emit_push(now, sn, out, at, flush)
    }

    fn fill_new(&mut self, now: Instant, out: &mut [u8], mut at: usize, flush: &mut Flush) -> usize {
        if !self.may_begin_new(flush) {
            return at;
        }
        let (mss, held_back) = (flush.mss, self.holds_new_back(flush));
        while self.may_send_new(mss, held_back) {
            let Some(cut) = self.queue.peek(mss) else {
                self.path.on_app_limited(self.buffer.unacked_bytes());
                break;
            };
            if !fits(out, at, cut.len) {
                break;
            }
            at = self.send_new(now, cut, out, at, flush).1;
        }
        at
    }

    /// Whether a packet may begin with new segments, or go on with them.
    #[inline]
    pub(super) fn may_begin_new(&self, flush: &Flush) -> bool {
        let mss = flush.mss;
        if mss < LEAST_CUT.min(self.path.mss()) && self.queue.unsent() > mss {
            return false;
        }
        // Less than a batch waits for the writer to write more, because a system call costs as much as many segments.
        let begins = flush.sent.segments == 0;
        let least = if flush.corked && begins { CORKED_SEGMENTS * mss } else { mss };
        if begins && !self.path.pacer().permits_run() {
            return false;
        }
        !self.holds_new_back(flush) || self.queue.unsent() >= least
    }

    /// Whether one more new segment may follow.
    #[inline]
    pub(super) fn may_send_new(&self, mss: usize, held_back: bool) -> bool {
        self.path.pacer().permits() && self.has_window() && !(held_back && self.queue.unsent() < mss)
    }

    /// Whether new data waits until there is enough of it.
    #[inline]
    pub(super) const fn holds_new_back(&self, flush: &Flush) -> bool {
        flush.corked || self.flush_at.is_some()
    }

    /// Sends the next new segment. Returns its `sn`, and where it ends.
    #[inline(always)] // What every segment takes must not have a call more because probes send segments, too.
    pub(super) fn send_new(
        &mut self,
        now: Instant,
        cut: Cut,
        out: &mut [u8],
        at: usize,
        flush: &mut Flush,
    ) -> (u32, usize) {
        let Cut { len, frg } = cut;
        let position = self.queue.take(cut);
        let bytes = wire_len(len as u32);
        let send_state = self.path.on_new_segment(now, bytes, self.buffer.unacked_bytes());
        let sn = self.buffer.push(position, len as u32, frg, now, send_state);
        if sn == self.buffer.una() {
            self.path.liveness.on_send_of_oldest();
        }
        self.counters.segments.push_sent += 1;
        self.fec_flush.on_send(now, self.queue.unsent() > 0);
        flush.sent.segments += 1;
        flush.sent.bytes += bytes;
        (sn, self.emit_push(now, sn, out, at, flush))
    }

    /// Sends segments once more whose FEC group stays incomplete. The copies are data packets of that group too.
    #[inline(never)]
    fn fill_flush_copies(&mut self, now: Instant, out: &mut [u8], mut at: usize, flush: &Flush) -> usize {
        while let Some(sn) = self.next_flush_copy(now) {
            if !fits(out, at, self.buffer.get(sn).len as usize) {
                break;
            }
            self.counters.recovery.fec_flush_copies += 1;
            if self.path.discovery.is_probe(sn) {
                self.path.discovery.forget_push();
            }
            at = self.emit_push(now, sn, out, at, flush);
            self.fec_flush.advance(sn);
        }
        at
    }

    /// The segment that is sent once more next. What has been acknowledged meanwhile is not.
    pub(super) fn next_flush_copy(&mut self, now: Instant) -> Option<u32> {
        loop {
            let sn = self.fec_flush.next(now, self.buffer.una(), self.buffer.nxt())?;
            if !self.buffer.is_acked(sn) {
                return Some(sn);
            }
            self.fec_flush.advance(sn);
        }
    }

    pub(super) fn emit_push(
        &mut self,
        now: Instant,
        sn: u32,
        out: &mut [u8],
        at: usize,
        flush: &Flush,
    ) -> usize {
        self.path.liveness.on_send(now);
        let segment = self.buffer.get(sn);
        let (position, len, frg) = (segment.position, segment.len, segment.frg);
        let end = self.emit_header(Command::Push, frg, self.ts(now), sn, len, out, at, flush);
        self.queue.bytes.copy_to(position, &mut out[end..end + len as usize]);
        // A writer at full speed will write again as much as is sent.
        self.queue.bytes.prefetch_for_append(len as usize);
        end + len as usize
    }

    /// Writes the ACKs that wait, as many as fit, into a packet that is sent anyway for something beside the stream. Returns how many
    /// bytes.
    pub(in crate::proto) fn fill_acks(&mut self, now: Instant, out: &mut [u8]) -> usize {
        if self.acks.is_empty() {
            return 0;
        }
        let flush = self.begin_flush(now, false);
        let len = self.emit_acks(now, out, 0, &flush);
        if flush.wnd == 0 && len > 0 {
            self.window_update.on_closed();
        }
        len
    }

    /// Writes ACKs, WASK and WINS, as many as fit.
    fn fill_control(&mut self, now: Instant, out: &mut [u8], at: usize, flush: &Flush) -> usize {
        let mut at = self.emit_acks(now, out, at, flush);
        if self.probe.asks() && fits(out, at, 0) {
            self.probe.asked();
            self.note_question(now);
            self.counters.segments.window_probes += 1;
            tell!(window_probe());
            // Nobody reads the time in it. But without it, the packet would be equal to the one before, and a replay window
            // would drop it.
            at = self.emit_header(Command::Wask, self.mark, self.ts(now), self.control_sn, 0, out, at, flush);
        }
        if self.tell_window && fits(out, at, 0) {
            self.tell_window = false;
            if flush.wnd > 0 {
                self.window_update.on_wins(now, self.path.rtt().smoothed() + self.nodelay.interval);
            }
            at = self.emit_header(Command::Wins, self.mark, self.ts(now), self.control_sn, 0, out, at, flush);
        }
        at
    }

    #[inline]
    fn emit_acks(&mut self, now: Instant, out: &mut [u8], mut at: usize, flush: &Flush) -> usize {
        let mut acks = core::mem::take(&mut self.acks);
        acks.take((out.len() - at) / HEADER_LEN, self.recv.nxt(), now, self.nodelay.interval, |ack| {
            self.counters.segments.acks_sent += 1;
            at = self.emit_header(Command::Ack, self.mark, ack.ts, ack.sn, 0, out, at, flush);
        });
        self.acks = acks;
        at
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a header, and where it goes")]
    #[inline]
    pub(super) fn emit_header(
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
        tell!(own_window(self.told_window, flush.wnd.into()));
        self.told_window = flush.wnd.into();
        self.counters.segments.sent += 1;
        end
    }
}

/// Whether a segment of `len` payload bytes fits `out` from `at` on.
const fn fits(out: &[u8], at: usize, len: usize) -> bool {
    at + HEADER_LEN + len <= out.len()
}
