//! What the stream has to do with the [validation](crate::proto::path::AddressValidation) of the peer's address.

use super::{Arq, output::Flush};
use crate::proto::{
    time::Instant,
    wire::{Command, HEADER_LEN, SegmentHeader, Segments},
};

/// ACKs of one packet that may be the proof that the peer hears this end.
const MAX_GUESSES: usize = 8;

impl Arq {
    /// What stands in the `ts` of a segment that is sent at `now`. The times of a session that has a seed begin at a value that
    /// nobody can foretell, so that who returns one has read it.
    pub(super) const fn ts(&self, now: Instant) -> u32 {
        now.as_ts().wrapping_add(self.ts_base)
    }

    /// Has times begin at a value of the session's own.
    pub(in crate::proto) const fn set_ts_base(&mut self, base: u32) {
        self.ts_base = base;
    }

    /// The peer has begun the session, and has not shown that it hears this end.
    pub(in crate::proto) fn begin_validation(&mut self) {
        self.path.validation.begin();
    }

    /// The peer has shown that it hears this end.
    pub(in crate::proto) fn finish_validation(&mut self) {
        self.path.validation.finish();
    }

    /// Whether the peer has still to show that it hears this end.
    #[inline]
    pub(in crate::proto) const fn is_validating(&self) -> bool {
        self.path.validation.is_pending()
    }

    /// A packet of `bytes` came from a peer that has not shown that it hears this end.
    pub(in crate::proto) fn note_received(&mut self, bytes: usize) {
        self.path.validation.on_received(bytes);
    }

    /// Looks in a packet that was received for an ACK that shows that the peer hears this end. Few are looked at: a packet full of
    /// guesses is worth no more than they are.
    #[cold]
    pub(super) fn look_for_echo(&mut self, now: Instant, segments: &[u8]) {
        let acks = Segments::new(segments)
            .map_while(Result::ok)
            .filter(|(header, _)| header.conv == self.conv && header.cmd == Command::Ack);
        for (SegmentHeader { sn, ts, .. }, _) in acks.take(MAX_GUESSES) {
            if self.is_last_sent_at(sn, ts) || self.path.validation.is_echo(ts) {
                self.finish_validation();
                self.note_answer(now);
                return;
            }
        }
    }

    /// Whether the segment `sn` is in flight and was last sent with this `ts`.
    fn is_last_sent_at(&self, sn: u32, ts: u32) -> bool {
        self.buffer.find(sn).is_some_and(|segment| self.ts(segment.sent_at) == ts)
    }

    /// When a message may go that is longer than what may be sent else.
    pub(in crate::proto) fn set_message_at(&mut self, at: Instant) {
        self.path.validation.set_message_at(at);
    }

    /// Bytes that the next packet may have.
    pub(in crate::proto) fn allowance(&self, now: Instant) -> usize {
        self.path.validation.allowance(now, self.queue.is_message_next())
    }

    /// Bytes that a packet may have that tells the peer of the session's end.
    pub(in crate::proto) fn allowance_in_all(&self) -> usize {
        self.path.validation.allowance_in_all()
    }

    /// PUSH segments that were sent, those that were sent again as well.
    pub(in crate::proto) const fn pushes_sent(&self) -> u64 {
        let recovery = &self.counters.recovery;
        self.counters.segments.push_sent
            + recovery.fast_resends
            + recovery.early_resends
            + recovery.timeout_resends
            + recovery.fec_flush_copies
    }

    /// Bytes were sent to a peer that has not shown that it hears this end. `asks`: it will acknowledge some of it.
    pub(in crate::proto) fn note_sent(&mut self, now: Instant, bytes: usize, asks: bool) {
        let (ts, rto) = (self.ts(now), self.path.rtt().rto());
        self.path.validation.on_sent(now, bytes, ts, asks, rto);
    }

    /// Nothing more is sent now; `blocked`: although something waits. `around`: bytes of a packet beside its segments.
    pub(in crate::proto) fn note_idle(&mut self, now: Instant, blocked: bool, around: usize) {
        let is_message = self.queue.is_message_next();
        self.path.validation.on_idle(now, blocked, is_message, HEADER_LEN + around);
    }

    /// If something waits because no more may be sent to the peer: when deadlines were looked at last.
    pub(in crate::proto) fn blocked_at(&self) -> Option<Instant> {
        self.path.validation.blocked_at()
    }

    /// When deadlines were looked at last, while the peer has not shown that it hears this end.
    pub(in crate::proto) fn served_at(&self) -> Instant {
        self.path.validation.served_at()
    }

    /// Whether something of the stream waits to be sent that the windows have room for.
    pub(in crate::proto) fn waits(&self) -> bool {
        self.queue.unsent() > 0 && self.has_window() || self.has_control()
    }

    /// Writes the segment that asks the peer to show that it hears this end, if it is time for it. `around`: bytes of the packet
    /// beside it.
    pub(in crate::proto) fn fill_probe(&mut self, now: Instant, out: &mut [u8], around: usize) -> usize {
        if !self.path.validation.is_probe_due(around) || out.len() < HEADER_LEN {
            return 0;
        }
        self.path.validation.on_probe();
        self.path.liveness.on_send(now);
        let header = SegmentHeader {
            conv: self.conv,
            cmd: Command::Push,
            // Nobody takes a fragment from it. The peer may hear nothing else that tells that this end knows the extensions.
            frg: self.mark,
            wnd: self.recv.free_window().min(u16::MAX.into()) as u16,
            ts: self.ts(now),
            sn: self.buffer.una().wrapping_sub(1),
            una: self.recv.nxt(),
            len: 0,
        };
        out[..HEADER_LEN].copy_from_slice(&header.to_bytes());
        self.told_window = header.wnd.into();
        self.counters.segments.sent += 1;
        HEADER_LEN
    }
}

impl Flush {
    /// Has new segments cut to at most `mss` bytes of payload.
    pub(in crate::proto) fn limit_segments(&mut self, mss: usize) {
        self.mss = self.mss.min(mss);
    }
}
