//! Taking segments in: ACKs, payload, and what the peer tells of its window.

mod runs;

use core::time::Duration;

pub(in crate::proto) use self::runs::Run;

use super::{
    Arq,
    acks::{Ack, Arrived},
    bytes_queue::StreamRange,
    losses::Confirmed,
    recv_buffer::{BlockPosition, Insert},
    send_buffer::wire_len,
};
use crate::proto::{
    congestion::LossCause,
    error::PacketError,
    extension::{ExtensionSlot, stands_alone},
    path::MAX_RTO,
    seq,
    time::Instant,
    trace::tell,
    wire::{Command, HEADER_LEN, Segments},
};

/// The extension segments of a packet that are looked at. Each takes longer than others, and a packet has room for 58. A sender of
/// this crate puts three into one at most.
const MAX_EXTENSION_SEGMENTS: u32 = 8;

/// How a packet came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) enum Origin {
    /// It arrived.
    Received,
    /// FEC recovered it, later than it was sent. Its window and the times of its ACKs tell nothing.
    Recovered,
}

/// How far both directions of a session have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) struct SequenceNumbers {
    /// All before have arrived here (`rcv_nxt`).
    pub(in crate::proto) received: u32,
    /// All before have arrived at the peer, as it told (`snd_una`).
    pub(in crate::proto) acknowledged: u32,
    /// The next to be sent (`snd_nxt`).
    pub(in crate::proto) sent: u32,
}

impl Arq {
    /// How far both directions have come.
    pub(in crate::proto) const fn sequence_numbers(&self) -> SequenceNumbers {
        SequenceNumbers { received: self.recv.nxt(), acknowledged: self.peer_una, sent: self.buffer.nxt() }
    }

    /// Takes in the segments of one packet, all headers before them removed. `place` is where they lie, if their payload may
    /// stay there. `extension` takes what is not KCP's; without it, the command of the extensions is an unknown one.
    pub(in crate::proto) fn input(
        &mut self,
        now: Instant,
        segments: &[u8],
        origin: Origin,
        place: Option<BlockPosition<'_>>,
        extension: &mut ExtensionSlot,
    ) -> Result<(), PacketError> {
        debug_assert!(place.is_none_or(|place| place.is_of(segments)));
        let requires_hello =
            !extension.is_at_rest() && extension.as_ref().is_some_and(|extension| extension.requires_hello());
        if requires_hello && !stands_alone(segments) {
            return Ok(());
        }
        if self.path.validation.is_pending() && origin == Origin::Received {
            self.look_for_echo(now, segments);
        }
        let mut echoed = None;
        let mut confirmed = Confirmed::new(now, self.path.min_rtt());
        let mut skipped = false;
        let mut heard = false;
        // The peer is heard by what it cannot have said before: see `Liveness`.
        let mut is_new = false;
        let mut outcome = Ok(());
        let mut arrived = StreamRange::default();
        let mut extension_segments = 0;
        let mut rest = Segments::new(segments);
        while let Some(segment) = rest.next() {
            let (header, payload) = match segment {
                Ok(segment) => segment,
                Err(error) => {
                    self.counters.udp.malformed += 1;
                    outcome = Err(error.into());
                    break;
                }
            };
            if header.conv != self.conv {
                self.counters.udp.wrong_conv += 1;
                outcome = Err(PacketError::WrongConv { found: header.conv });
                break;
            }
            self.counters.segments.received += 1;
            let payload_at = segments.len() - rest.remaining() - payload.len();
            if header.cmd == Command::Extension {
                if extension_segments == MAX_EXTENSION_SEGMENTS {
                    skip_extension(extension);
                    continue;
                }
                extension_segments += 1;
                let here = (segments, payload_at);
                match self.input_extension(now, here, origin, extension.as_deref_mut(), &mut confirmed) {
                    Ok(is_heard) => heard |= is_heard,
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                }
                continue;
            }
            // A segment that was overtaken on its way, or that an attacker kept and sends again, tells nothing about the peer
            // as it is now.
            heard |= self.note_una(header.una, header.wnd, origin);
            let mut news = false;
            if header.cmd == Command::Ack {
                let ts = header.ts.wrapping_sub(self.ts_base);
                echoed = Some(ts);
                if let Some(segment) = self.buffer.ack(header.sn, ts, &mut confirmed) {
                    news = true;
                    let range = StreamRange { position: segment.position, len: segment.len };
                    if !arrived.join(range) {
                        self.queue.bytes.release(arrived);
                        arrived = range;
                    }
                }
            }
            // `una` comes first, so that only what is missing is counted as skipped.
            self.buffer.ack_before(header.una, &mut confirmed);
            match header.cmd {
                Command::Ack => {
                    self.counters.segments.acks_received += 1;
                    // A repeated ACK is not a later one. A path may duplicate it, and a forger would.
                    if news && self.nodelay.resend > 0 {
                        let ts = header.ts.wrapping_sub(self.ts_base);
                        skipped |= self.buffer.skip_before(header.sn, ts, self.nodelay.resend);
                    }
                }
                Command::Push if !self.alive.peer_time.admits(now, header.ts) => {
                    self.counters.segments.push_received += 1;
                    self.refuse_other_session(now);
                }
                Command::Push => {
                    let place = place.map(|place| place.forward(payload_at));
                    let ack = Ack { sn: header.sn, ts: header.ts };
                    let outcome = self.input_push(now, ack, header.frg, payload, place);
                    if outcome == Insert::InOrder && rest.next_sn() == Some(self.recv.nxt()) {
                        let place = place.map(|place| place.forward(payload.len() + HEADER_LEN));
                        rest = self.input_run(now, &header, place, rest);
                    }
                }
                _ => is_new |= self.input_window(now, header.cmd, header.ts, header.una, origin),
            }
        }
        if arrived.len > 0 {
            self.queue.bytes.release(arrived);
        }
        if skipped && let Some(due) = self.buffer.first_due() {
            self.queue.bytes.prefetch_for_copy(StreamRange { position: due.position, len: due.len });
        }
        if heard {
            let echoed = echoed.filter(|_| origin == Origin::Received);
            self.after_input(now, &confirmed, skipped, echoed, is_new);
            if !extension.is_at_rest()
                && let Some(extension) = extension.as_deref_mut().filter(|extension| !extension.is_settled())
            {
                self.tell_heard(now, extension, segments);
            }
        } else if confirmed.acked.segments > 0 {
            self.doubt_peer(now);
        }
        outcome
    }

    /// Takes in the `una` of a segment and, if it was received, its window. Returns whether the `una` is right: only then the
    /// peer is heard.
    #[inline]
    pub(super) fn note_una(&mut self, una: u32, wnd: u16, origin: Origin) -> bool {
        let right = seq::within(una, self.peer_una, self.buffer.nxt().wrapping_add(1));
        if right {
            self.peer_una = una;
            if origin == Origin::Received {
                tell!(peer_window(self.peer_window, wnd.into()));
                self.peer_window = wnd.into();
            }
        }
        right
    }

    /// Takes in a WASK or a WINS, of which `una` and the window are taken in already. Returns whether it is new.
    #[inline(never)]
    fn input_window(&mut self, now: Instant, cmd: Command, ts: u32, una: u32, origin: Origin) -> bool {
        if cmd == Command::Wask {
            self.tell_window = true;
        } else if una != self.peer_una && origin == Origin::Received {
            self.look_for_ghost(now, una);
        }
        self.is_fresh(now, ts)
    }

    /// Takes in a PUSH, which `ack` is the ACK of, and says what became of it. `place` is where its payload lies, if it may stay there.
    #[inline(always)]
    fn input_push(
        &mut self,
        now: Instant,
        ack: Ack,
        frg: u8,
        payload: &[u8],
        place: Option<BlockPosition<'_>>,
    ) -> Insert {
        self.counters.segments.push_received += 1;
        let outcome = self.recv.insert(ack.sn, frg, payload, place);
        match outcome {
            Insert::Refused => {
                self.counters.segments.out_of_window += 1;
                // No ACK, but a sign of life that tells the window as it is.
                self.tell_window = true;
                return outcome;
            }
            Insert::Duplicate => self.counters.segments.duplicates += 1,
            Insert::InOrder | Insert::OutOfOrder => self.on_new_payload(now),
        }
        // A gap is told at once, because what fills it is a round trip away. The first ACK does not wait, either. Otherwise the first
        // round trip that the peer measures would have the wait in it, and the peer's RTO would for long after.
        let is_urgent = outcome == Insert::OutOfOrder || self.counters.segments.push_received == 1;
        self.acknowledge(now, ack, Arrived::segment(payload.len()), is_urgent);
        outcome
    }

    /// Payload has arrived that the peer cannot have sent before.
    #[inline]
    fn on_new_payload(&mut self, now: Instant) {
        self.path.liveness.on_payload(now);
        self.window_update.on_new_segment();
    }

    /// Has what has `arrived` acknowledged, the last of it by `ack`.
    #[inline(always)]
    fn acknowledge(&mut self, now: Instant, ack: Ack, arrived: Arrived, is_urgent: bool) {
        self.acks.push(ack, arrived, self.recv.nxt(), now, self.nodelay.interval);
        if is_urgent || self.ack_no_delay || self.acks.are_many(self.path.mtu()) {
            self.acks.set_due();
        }
    }

    /// `is_new`: the packet has something that the peer cannot have said before, other than payload and ACKs.
    fn after_input(
        &mut self,
        now: Instant,
        confirmed: &Confirmed,
        skipped: bool,
        echoed: Option<u32>,
        is_new: bool,
    ) {
        let rtt = echoed.and_then(|ts| round_trip(now, ts, confirmed));
        if let Some(rtt) = rtt {
            self.path.on_rtt(now, rtt, &self.nodelay);
        }
        if confirmed.acked.segments > 0 {
            self.path.liveness.on_payload(now);
            self.losses.add(&confirmed.losses);
            self.path.discovery.on_acked(now, confirmed.largest);
            if self.path.discovery.is_restless() {
                self.look_for_probe(now);
            }
            if self.buffer.unacked() == 0 {
                self.fec_flush.clear(self.buffer.nxt());
            }
            let free_before = self.buffer.retire().unwrap_or(self.first_unsent());
            self.queue.bytes.release_before(free_before);
            let in_flight = self.in_flight();
            self.path.on_ack(now, &confirmed.acked, confirmed.spurious_bytes, in_flight);
            if self.path.has_controller() {
                self.update_queue_limit();
            }
        }
        if skipped {
            self.after_skips(now);
        }
        self.note_heard(now, is_new || self.path.liveness.last_payload() == now);
    }

    /// A segment has come that may be the peer's. `is_new`: it has something that the peer cannot have said before.
    #[inline(always)]
    fn note_heard(&mut self, now: Instant, is_new: bool) {
        self.control_sn = 1;
        if is_new {
            self.path.liveness.on_heard(now, self.buffer.unacked() > 0);
        }
        if self.alive.ghost.needs_una() {
            self.alive.ghost.on_known_una(now, self.peer_una);
        }
        self.probe.answered();
        self.update_probe(now);
    }

    /// Tells congestion control which segments ACKs have shown to be lost, and waits a little for more ACKs about others.
    #[inline(never)]
    fn after_skips(&mut self, now: Instant) {
        let path = &mut self.path;
        let probe = path.discovery.probe_sn();
        self.buffer.report_lost(|sn, segment| {
            if probe == Some(sn) {
                return; // It says something of its size, and nothing of congestion.
            }
            let (bytes, state) = (wire_len(segment.len), segment.send_state);
            path.on_lost(now, sn, bytes, segment.sent_at, state, LossCause::Skipped);
        });
        path.apply_losses();
        if self.early_at.is_none() {
            self.early_at = Some(now + self.early_delay());
        }
    }

    /// Stream position of the first byte that no segment carries.
    const fn first_unsent(&self) -> u32 {
        self.queue.bytes.end().wrapping_sub(self.queue.unsent() as u32)
    }

    /// How long a segment that was skipped too seldom for a fast resend waits for more ACKs: reordering on the path shows
    /// within a fraction of a round trip.
    pub(super) fn early_delay(&self) -> Duration {
        (self.path.rtt().smoothed() / 4).clamp(Duration::from_millis(1), self.nodelay.interval)
    }
}

/// Counts an extension segment behind as many as are looked at.
#[cold]
#[inline(never)]
fn skip_extension(extension: &mut ExtensionSlot) {
    if let Some(extension) = extension.as_deref_mut() {
        extension.skip();
    }
}

/// The round-trip time that an ACK tells which echoes `ts`. If `ts` is of the last transmission of the newest segment that is
/// confirmed, the time noted with that segment is finer.
fn round_trip(now: Instant, ts: u32, confirmed: &Confirmed) -> Option<Duration> {
    let sent_time = confirmed.acked.sent_time()?;
    if sent_time.as_ts() == ts {
        return Some(now - sent_time);
    }
    let millis = u64::try_from(seq::distance(ts, now.as_ts())).ok()?;
    Some(Duration::from_millis(millis)).filter(|rtt| *rtt < MAX_RTO)
}

#[cfg(test)]
mod tests;
