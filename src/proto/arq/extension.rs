//! Where the extensions touch the stream: what an extension segment tells of the peer's windows, and what KCP's segments tell
//! of its extensions.
//!
//! Nothing here is on the path of payload.

use super::{Arq, input::Origin, losses::Confirmed};
use crate::proto::{
    error::{PacketError, SegmentError},
    extension::{Conditions, Envelope, Extension, MARK, Subtype},
    time::Instant,
    wire::{Command, HEADER_LEN, Segments},
};

impl Arq {
    // ---- What comes in ----

    /// Takes in an extension segment: the one of `segments` whose body begins at `body_at`. Returns whether the peer is heard
    /// by it.
    ///
    /// # Errors
    /// Without `extension`, the command is an unknown one.
    #[cold]
    #[inline(never)]
    pub(super) fn input_extension(
        &mut self,
        now: Instant,
        (segments, body_at): (&[u8], usize),
        origin: Origin,
        extension: Option<&mut Extension>,
        confirmed: &mut Confirmed,
    ) -> Result<bool, PacketError> {
        // Parsed once more: the loop over all segments would be slower if it had to keep every header together for this.
        let segment = segments.get(body_at - HEADER_LEN..).unwrap_or_default();
        let Some(Ok((header, body))) = Segments::new(segment).next() else { return Ok(false) };
        let Some(extension) = extension else {
            self.counters.udp.malformed += 1;
            return Err(SegmentError::UnknownCommand(header.cmd as u8).into());
        };
        let is_fin = header.frg == Subtype::Fin as u8 && extension.has_own_tag(&header);
        if is_fin && !self.alive.peer_time.admits(now, header.ts) {
            self.refuse_other_session(now);
            return Ok(false);
        }
        let taken = extension.input(now, &header, body, origin, &self.conditions());
        if let Some(rtt) = taken.rtt {
            self.path.on_rtt(now, rtt, &self.nodelay);
        }
        if let Some(size) = taken.carried {
            self.on_padded_pong(now, size);
        }
        if let Some(end) = taken.end {
            self.recv.set_end(end);
        }
        if taken.moved || taken.retried {
            self.change_path(now);
        }
        if !taken.vouched {
            return Ok(false);
        }
        if taken.answers {
            self.learn_peer_time(now, header.ts);
            if header.frg == Subtype::Pong as u8 {
                self.on_pong(header.una);
            }
        }
        let right = self.note_una(header.una, header.wnd, origin);
        self.buffer.ack_before(header.una, confirmed);
        if let Some(counts) = taken.ecn.filter(|_| right) {
            self.input_ecn(now, &header, counts, confirmed);
        }
        // Counts go with ACKs. Where those are of a peer that was restarted, by their `una`, it is to be asked, and the counts are no
        // answer.
        let tells = right || taken.ecn.is_none();
        // The time of an answer is taken note of, too: else its copy would be later than any before.
        if tells && self.is_fresh(now, header.ts) | taken.answers {
            self.path.liveness.on_heard(now, self.buffer.unacked() > 0);
        }
        Ok(right)
    }

    /// Tells the extensions, which do not know yet who the peer is, that it was heard by `segments`.
    #[cold]
    #[inline(never)]
    pub(super) fn tell_heard(&self, now: Instant, extension: &mut Extension, segments: &[u8]) {
        extension.on_heard(now, self.mark_of(segments), &self.conditions());
    }

    /// `frg` of the last ACK, WASK or WINS of a packet, by which its sender tells whether it knows the extensions. A probe of this
    /// end's address, which is an empty PUSH, tells it only if it does. Only those count that have the newest `una`.
    fn mark_of(&self, segments: &[u8]) -> Option<u8> {
        let headers = Segments::new(segments).map_while(Result::ok).map(|(header, _)| header);
        headers
            .filter(|header| match header.cmd {
                Command::Push => header.len == 0 && header.frg == MARK,
                Command::Extension => false,
                Command::Ack | Command::Wask | Command::Wins => true,
            })
            .filter(|header| header.conv == self.conv && header.una == self.peer_una)
            .last()
            .map(|header| header.frg)
    }

    // ---- What goes out ----

    /// Tells the peer in each ACK, WASK and WINS that this end knows the extensions.
    pub(in crate::proto) const fn mark_segments(&mut self) {
        self.mark = MARK;
    }

    /// Asks for the peer's window with the next transmission.
    pub(in crate::proto) const fn ask_window(&mut self) {
        self.probe.ask_now();
    }

    /// Something was sent beside the stream that the peer must answer.
    pub(in crate::proto) fn owe_answer(&mut self, now: Instant) {
        self.path.liveness.on_send(now);
    }

    /// What a segment beside the stream says in its header. It tells the window.
    pub(in crate::proto) fn envelope(&mut self, now: Instant) -> Envelope {
        let wnd = self.recv.free_window().min(u16::MAX.into()) as u16;
        self.told_window = wnd.into();
        Envelope { conv: self.conv, wnd, ts: self.ts(now), una: self.recv.nxt() }
    }

    pub(in crate::proto) fn conditions(&self) -> Conditions {
        let rtt = self.path.rtt();
        Conditions {
            rto: rtt.rto(),
            rtt: rtt.smoothed(),
            interval: self.nodelay.interval,
            in_flight: self.buffer.unacked() > 0,
            all_acked: self.is_flushed(),
            max_wait: self.max_wait.get(),
            newest: self.recv.newest_end(),
            last_heard: self.path.liveness.last_heard(),
            read_until: Instant::ZERO,
        }
    }

    /// The session goes on over another path, or begins anew on this one. What is in flight is sent again, as fast as the new path's
    /// window lets it.
    #[cold]
    pub(in crate::proto) fn change_path(&mut self, now: Instant) {
        self.path.begin_anew(&self.nodelay, now, self.buffer.nxt());
        self.memory.set_mss(self.path.mss());
        self.buffer.expire();
        self.early_at = None;
        self.early_due = false;
        self.update_queue_limit();
    }
}
