//! What a session says beyond KCP: which segment goes next, in a packet of its own or behind those of the stream.

use super::{Conditions, Envelope, Extension, Written, segment};
use crate::proto::{ecn::EcnCounts, time::Instant};

impl Extension {
    /// Whether a segment is to be sent in a packet of its own, before the stream's.
    #[inline]
    pub(in crate::proto) fn is_urgent(&self) -> bool {
        self.has_end_due()
            || (!self.closed
                && (self.handshake.is_urgent()
                    || self.ping.has_urgent()
                    || self.has_move_question()
                    || self.has_mtu_probe()))
    }

    /// Whether a segment of an end is to be sent, and the peer's tag is known that it needs.
    #[inline]
    fn has_end_due(&self) -> bool {
        self.ends.has_due() && self.handshake.peer_tag().is_some()
    }

    /// Whether a segment waits that may go with a packet of the stream.
    #[inline]
    pub(in crate::proto) fn has_appendable(&self) -> bool {
        self.handshake.has_appendable() || self.awaits_last_data()
    }

    /// Whether a FIN may share a packet with the last data, once that is sent.
    #[inline]
    pub(in crate::proto) fn awaits_last_data(&self) -> bool {
        self.ends.is_ending() && self.is_confirmed()
    }

    /// Writes the next segment into `out`, a packet's room for segments, of which it is the only one. `around`: bytes of the
    /// packet in front of and behind them.
    pub(in crate::proto) fn write(
        &mut self,
        now: Instant,
        envelope: Envelope,
        out: &mut [u8],
        around: usize,
        conditions: &Conditions,
    ) -> Option<Written> {
        let written = if !self.closed && self.handshake.is_urgent() {
            let sent = self.handshake.write(now, envelope, out, around, conditions)?;
            Written { len: sent.len, begins: sent.begins, owed: sent.owed }
        } else if self.has_end_due() {
            self.write_end(now, envelope, out, conditions)?
        } else if self.has_move_question() {
            self.write_move_question(now, envelope, out, conditions.rto)?
        } else if self.has_mtu_probe() {
            self.write_mtu_probe(envelope, out, around)?
        } else {
            let (tag, secret) = (self.handshake.peer_tag(), self.handshake.secret());
            let sent = self.ping.write(now, envelope, tag, secret, out)?;
            self.refusals = self.refusals.saturating_add(sent.refuses.into());
            Written { len: sent.len, begins: false, owed: sent.owed }
        };
        self.stats.sent += 1;
        Some(written)
    }

    /// Writes the next segment that tells of an end.
    fn write_end(
        &mut self,
        now: Instant,
        envelope: Envelope,
        out: &mut [u8],
        conditions: &Conditions,
    ) -> Option<Written> {
        let tag = self.handshake.peer_tag()?;
        let mut owed = false;
        let len = if let Some(reason) = self.ends.take_abort(now) {
            envelope.write_abort(reason.code(), tag, out)
        } else if let Some(fin) = self.ends.take_answer() {
            envelope.write_fin_ack(fin, tag, out)
        } else {
            owed = true;
            let fin = self.ends.take_fin(now, conditions.rto, conditions.max_wait)?;
            if self.ends.doubts_peer() && self.is_confirmed() {
                self.ping.ask();
            }
            envelope.write_fin(fin, tag, out)
        };
        len.map(|len| Written { len, begins: false, owed })
    }

    /// Writes counts of ECN marks, if they fit `out`, and the peer takes them. Returns how many bytes.
    pub(in crate::proto) fn write_ecn(
        &mut self,
        envelope: Envelope,
        counts: EcnCounts,
        out: &mut [u8],
    ) -> usize {
        let tag = self.handshake.peer_tag().filter(|_| self.uses_ecn() && !self.closed);
        let len = tag.and_then(|tag| envelope.write_ecn(counts, tag, out)).unwrap_or(0);
        self.stats.sent += u64::from(len > 0);
        len
    }

    /// Writes segments that may stand behind those of the stream, as many as fit `out`. Returns how many bytes, and whether the
    /// peer owes an answer to them.
    pub(in crate::proto) fn append(
        &mut self,
        now: Instant,
        envelope: Envelope,
        out: &mut [u8],
        conditions: &Conditions,
    ) -> (usize, bool) {
        let len = self.handshake.append(envelope, out);
        self.stats.sent += u64::from(len > 0);
        let rest = &mut out[len..];
        if !self.is_confirmed() || !self.ends.has_fin_due() || rest.len() < segment::FIN_SEGMENT_LEN {
            return (len, false);
        }
        let Some(fin) = self.write_end(now, envelope, rest, conditions) else { return (len, false) };
        self.stats.sent += 1;
        (len + fin.len, fin.owed)
    }
}
