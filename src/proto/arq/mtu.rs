//! Where the stream meets [path MTU discovery](crate::proto::path::PathMtu): its segments are the evidence and the probes, and
//! what was cut for a longer packet is found out before it is sent.

use super::{Arq, output::Flush, send_queue::MAX_FRAGMENTS};
use crate::proto::{
    error::SettingError,
    path::{ProbeBy, UNPROBED_SEGMENTS},
    seq,
    stats::MtuStats,
    time::Instant,
    wire::{Command, HEADER_LEN},
};

/// The segment that fills a probe lies so far before the first one in flight. No window reaches there, so that no ACK of the stream is
/// one of it.
const FILLER_BEHIND: u32 = 1 << 17;

impl Arq {
    /// The size of the packets that new segments are cut for.
    #[inline]
    pub(in crate::proto) const fn plpmtu(&self) -> usize {
        self.path.discovery.plpmtu()
    }

    /// The longest packet.
    pub(in crate::proto) const fn max_plpmtu(&self) -> usize {
        self.path.discovery.max()
    }

    /// Packets are as long as nearly every path carries, until probes have shown that this one carries more.
    pub(in crate::proto) fn begin_at_base_mtu(&mut self) {
        self.path.discovery.begin_at_base();
        self.follow_mtu();
    }

    /// Changes the longest packet, of which `overhead` bytes are no segments. What is cut already must still fit one.
    pub(in crate::proto) fn set_mtu(&mut self, mtu: usize, overhead: usize) -> Result<(), SettingError> {
        let largest = self.queue.largest_fragment().max(self.buffer.largest() as usize);
        let min = largest + HEADER_LEN + overhead;
        if mtu < min {
            return Err(SettingError::MtuBelowQueued { min });
        }
        self.path.discovery.set_max(mtu, overhead);
        if largest > self.path.discovery.mss() {
            self.path.discovery.set_oversize_until(Some(self.buffer.nxt()));
        }
        self.follow_mtu();
        Ok(())
    }

    /// New segments are cut for the PLPMTU as it is now.
    #[cold]
    fn follow_mtu(&mut self) {
        self.path.follow_mtu();
        self.memory.set_mss(self.path.mss());
        self.update_queue_limit();
    }

    // ---- Evidence ----

    /// The segment `sn` has passed its RTO, and was not sent again yet.
    pub(super) fn note_timeout(&mut self, now: Instant, sn: u32) {
        let segment = self.buffer.get(sn);
        let (len, sent_at) = (segment.len, segment.sent_at);
        let nxt = self.buffer.nxt();
        // What lies behind the window that the peer told may have been refused there.
        let in_window = sn.wrapping_sub(self.peer_una) < self.peer_window;
        if in_window
            && !self.path.is_later_than(sent_at)
            && self.path.discovery.on_timeout(now, len, sent_at, &self.path.liveness, nxt)
        {
            self.follow_mtu();
        }
    }

    /// Segments were confirmed, perhaps that of a probe.
    #[cold]
    pub(super) fn look_for_probe(&mut self, now: Instant) {
        let Some(sn) = self.path.discovery.probe_sn() else { return };
        let in_flight = seq::within(sn, self.buffer.una(), self.buffer.nxt());
        if (!in_flight || self.buffer.is_acked(sn)) && self.path.discovery.on_push_confirmed(now) {
            self.follow_mtu();
        }
    }

    /// The PONG of a PING that was padded to a packet of `size` bytes has come.
    pub(super) fn on_padded_pong(&mut self, now: Instant, size: usize) {
        if self.path.discovery.on_pong(now, size) {
            self.follow_mtu();
        }
    }

    /// The system knows that packets of `size` bytes are too long.
    pub(in crate::proto) fn on_too_long(&mut self, now: Instant, size: usize) {
        if self.path.discovery.on_too_long(now, size, self.buffer.nxt()) {
            self.follow_mtu();
        }
    }

    // ---- Probes ----

    /// Whether there is something to be found out about the path's MTU, and enough is sent for it. What fits one packet needs no
    /// longer ones.
    #[inline]
    pub(in crate::proto) fn may_probe_mtu(&self) -> bool {
        self.path.discovery.is_restless()
            && self.queue.unsent() > self.path.mss()
            && self.counters.segments.push_sent >= UNPROBED_SEGMENTS
    }

    /// The same for a packet of `size` bytes that waits beside the stream.
    pub(in crate::proto) const fn may_probe_mtu_for(&self, size: usize) -> bool {
        self.path.discovery.is_restless()
            && size > self.plpmtu()
            && self.counters.udp.packets_sent >= UNPROBED_SEGMENTS
    }

    /// Whether something speaks against a packet of `size` bytes.
    pub(in crate::proto) fn is_size_doubtful(&self, size: usize) -> bool {
        self.path.discovery.is_doubtful(size)
    }

    /// Whether a probe is to go now, and how. `can_ping`: the longest PING that the peer takes, if it is known to be there.
    #[cold]
    pub(in crate::proto) fn poll_mtu_probe(&mut self, now: Instant, can_ping: usize) -> Option<ProbeBy> {
        let rtt = self.path.rtt();
        let probe_time = rtt.rto().max(rtt.smoothed() + self.nodelay.interval);
        self.path.discovery.poll_probe(now, probe_time, can_ping)
    }

    /// Writes the probe that is due into `out`, a packet of its size without what is beside its segments. Returns whether it could: it
    /// takes a new segment.
    #[cold]
    pub(in crate::proto) fn fill_push_probe(&mut self, now: Instant, out: &mut [u8]) -> bool {
        let mut flush = self.begin_flush(now, false);
        if self.path.validation.is_pending() || !self.path.pacer().permits_run() || !self.has_window() {
            return false;
        }
        let Some(cut) = self.queue.peek(flush.mss) else { return false };
        if self.flush_at.is_some() || HEADER_LEN + cut.len + HEADER_LEN >= out.len() {
            return false;
        }
        let (sn, at) = self.send_new(now, cut, out, 0, &mut flush);
        let filler = self.buffer.una().wrapping_sub(FILLER_BEHIND);
        let len = out.len() - at - HEADER_LEN;
        let ts = self.ts(now);
        let at = self.emit_header(Command::Push, 0, ts, filler, len as u32, out, at, &flush);
        out[at..].fill(0);
        self.path.discovery.on_push_probe(sn);
        self.end_flush(now, &flush);
        true
    }

    /// The size of the probe that goes with the next new segment.
    pub(in crate::proto) fn push_probe_due(&self) -> Option<usize> {
        self.path.discovery.due()
    }

    // ---- What is too long ----

    pub(in crate::proto) fn mtu_stats(&self) -> MtuStats {
        self.path.discovery.stats()
    }

    /// So many packets of `bytes` each are sent that may be fragmented.
    pub(in crate::proto) fn note_fragmentable(&mut self, bytes: usize, packets: usize) {
        self.path.discovery.note_fragmentable(bytes, packets);
    }

    /// Since when the oldest segment in flight is sent as fragments and does not arrive, while nothing else can go on without it.
    pub(in crate::proto) fn stuck_since(&self) -> Option<Instant> {
        if self.buffer.unacked() == 0 {
            return None;
        }
        self.path.discovery.stuck_since(self.buffer.una())
    }

    /// The payload of a full fragment of a message of `len` bytes. One that needs more fragments than there may be has longer ones.
    pub(super) fn fragment_of(&mut self, len: usize) -> usize {
        let mss = self.path.mss();
        let least = len.div_ceil(MAX_FRAGMENTS);
        if least > mss {
            self.path.discovery.set_oversize_until(Some(self.buffer.nxt()));
        }
        mss.max(least)
    }

    /// The payload of the segment that [`fill`](Arq::fill) writes first, if it needs a packet that is longer than the PLPMTU. It has
    /// its number already, or is a fragment of a message that was cut before the PLPMTU fell.
    #[inline]
    pub(in crate::proto) fn next_oversize(&mut self, now: Instant, flush: &Flush) -> Option<usize> {
        if self.path.discovery.may_have_oversize() { self.find_oversize(now, flush) } else { None }
    }

    #[cold]
    fn find_oversize(&mut self, now: Instant, flush: &Flush) -> Option<usize> {
        let until = self.path.discovery.oversize_until()?;
        if !seq::before(self.buffer.una(), until) && !self.queue.is_message_next() {
            // A message may still wait behind bytes of the stream.
            let waits = self.queue.pending() > 1;
            self.path.discovery.set_oversize_until(waits.then_some(until));
            if !waits {
                return None;
            }
        }
        let mss = self.path.mss();
        let too_long = |len: usize| (len > mss).then_some(len);
        // In the order of `fill`.
        let (backoff, held) = self.resend_limits(now);
        if let Some((sn, _)) = self.due_resend(now, &backoff, held) {
            return too_long(self.buffer.get(sn).len as usize);
        }
        if self.may_begin_new(flush)
            && self.may_send_new(flush.mss, self.holds_new_back(flush))
            && let Some(cut) = self.queue.peek(flush.mss)
        {
            let len = too_long(cut.len);
            if len.is_some() {
                // It is in flight from here on.
                self.path.discovery.set_oversize_until(Some(self.buffer.nxt().wrapping_add(1)));
            }
            return len;
        }
        if self.early_due
            && let Some(sn) = self.buffer.next_early()
        {
            return too_long(self.buffer.get(sn).len as usize);
        }
        if !self.fec_flush.has_round() {
            return None;
        }
        let copy = self.next_flush_copy(now)?;
        too_long(self.buffer.get(copy).len as usize)
    }
}
