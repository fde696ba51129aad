//! What the handshake sends: HELLO, ANSWER, and the PONG that returns an ANSWER's token.

use super::{
    Handshake, Knowledge, MIN_ROOM,
    exchange::{Candidate, Exchange, Refusal},
};
use crate::proto::{
    extension::{
        Conditions,
        fields::{FIELD_HEADER_LEN, Fields},
        seed::{Purpose, SessionId},
        segment::{Envelope, Hello, MAX_HELLO, VERSION, refusing},
    },
    time::Instant,
    wire::HEADER_LEN,
};

/// What is sent in ANSWERs before the peer's address is known to be its own: at most this many times what was received.
const AMPLIFICATION: u64 = 3;
/// Bytes of the field MAX_PACKET.
const MAX_PACKET_LEN: usize = FIELD_HEADER_LEN + size_of::<u16>();

/// Bytes of the field RESET_KEY.
#[cfg(feature = "noise")]
const RESET_KEY_LEN: usize = FIELD_HEADER_LEN + size_of::<crate::proto::noise::ResetKey>();

/// What is sent of the handshake, and what else is to be done for it.
#[derive(Debug, Clone, Copy)]
pub(in crate::proto::extension) struct Sent {
    pub(in crate::proto::extension) len: usize,
    /// It begins a session at the peer: a HELLO.
    pub(in crate::proto::extension) begins: bool,
    /// The peer owes an answer to it.
    pub(in crate::proto::extension) owed: bool,
}

impl Handshake {
    /// Whether a segment is to be sent in a packet of its own, before anything else.
    pub(in crate::proto::extension) fn is_urgent(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.is_urgent())
    }

    /// Whether a segment may go with the next packet.
    pub(in crate::proto::extension) fn has_appendable(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.pong.is_some())
    }

    /// Writes the next segment into `out`, which has the packet's room for segments. `around` are the bytes of the packet in
    /// front of and behind it.
    pub(in crate::proto::extension) fn write(
        &mut self,
        now: Instant,
        envelope: Envelope,
        out: &mut [u8],
        around: usize,
        conditions: &Conditions,
    ) -> Option<Sent> {
        self.with_exchange(|own, exchange| {
            if core::mem::take(&mut exchange.hellos.due) {
                return own.write_hello(exchange, now, envelope, out, around, conditions);
            }
            own.write_refusal(exchange, envelope, out)
                .or_else(|| (0..2).find_map(|at| own.write_answer(exchange, at, envelope, out)))
                .or_else(|| own.write_pong(exchange, envelope, out))
        })
    }

    /// Runs `write` with what is under way, if anything is.
    fn with_exchange(&mut self, write: impl FnOnce(&Self, &mut Exchange) -> Option<Sent>) -> Option<Sent> {
        let mut exchange = self.exchange.take()?;
        let sent = write(self, &mut exchange);
        self.exchange = Some(exchange);
        sent
    }

    /// Writes a segment that may stand behind others.
    pub(in crate::proto::extension) fn append(&mut self, envelope: Envelope, out: &mut [u8]) -> usize {
        self.with_exchange(|own, exchange| own.write_pong(exchange, envelope, out)).map_or(0, |sent| sent.len)
    }

    fn write_hello(
        &self,
        exchange: &mut Exchange,
        now: Instant,
        envelope: Envelope,
        out: &mut [u8],
        around: usize,
        conditions: &Conditions,
    ) -> Option<Sent> {
        let keep_alive =
            self.keep_alive.map(|after| u32::try_from(after.get().as_millis()).unwrap_or(u32::MAX));
        let cookie = exchange.cookie.as_deref();
        let fields = Fields { keep_alive, cookie, max_packet: self.max_packet, ..Fields::default() };
        let packet = exchange.hellos.packet_len();
        let padded = packet.min(out.len() + around).saturating_sub(around).min(MAX_HELLO);
        let written = envelope.write_hello(&self.own_hello(0, fields), padded, out);
        if self.knowledge == Knowledge::Asking {
            // Also where a cookie leaves too little room.
            exchange.hellos.plan(now, conditions);
        }
        let len = written?;
        exchange.hellos.on_sent(now, envelope.ts);
        let nothing_waits = self.keep_alive.is_none() && !exchange.hellos.awaited && !conditions.in_flight;
        Some(Sent { len, begins: true, owed: !exchange.hellos.heard && !nothing_waits })
    }

    fn write_refusal(&self, exchange: &mut Exchange, envelope: Envelope, out: &mut [u8]) -> Option<Sent> {
        let Refusal { tag, ts, len, unknown } = exchange.refusal.take()?;
        let hello = self.own_hello(ts, refusing(unknown));
        let written = envelope.write_answer(&hello, tag, out)?;
        self.may_answer(exchange, written, len).then_some(Sent { len: written, begins: false, owed: false })
    }

    fn write_answer(
        &self,
        exchange: &mut Exchange,
        at: usize,
        envelope: Envelope,
        out: &mut [u8],
    ) -> Option<Sent> {
        let candidate = exchange.candidates[at].as_mut().filter(|candidate| candidate.due)?;
        candidate.due = false;
        let Candidate { info, ts, len, .. } = *candidate;
        // It is no longer than the HELLO (R15).
        let max_packet = self.max_packet.filter(|_| len >= MIN_ROOM + MAX_PACKET_LEN);
        #[cfg(feature = "noise")]
        let reset_key = self.reset_key().filter(|_| len >= MIN_ROOM + MAX_PACKET_LEN + RESET_KEY_LEN);
        #[cfg(not(feature = "noise"))]
        let reset_key = None;
        let fields =
            Fields { token: Some(self.token_of(info.id)), max_packet, reset_key, ..Fields::default() };
        let written = envelope.write_answer(&self.own_hello(ts, fields), info.id.tag(), out)?;
        self.may_answer(exchange, written, len).then_some(Sent { len: written, begins: false, owed: false })
    }

    /// Whether an answer of `len` bytes may go to the sender of a HELLO of `hello` bytes; if so, it is counted.
    fn may_answer(&self, exchange: &mut Exchange, len: usize, hello: usize) -> bool {
        if len > hello {
            return false;
        }
        if self.knowledge != Knowledge::Confirmed {
            let sent = exchange.answer_bytes.saturating_add(len as u64);
            if sent > exchange.hello_bytes.saturating_mul(AMPLIFICATION) {
                return false;
            }
            exchange.answer_bytes = sent;
        }
        true
    }

    fn write_pong(&self, exchange: &mut Exchange, envelope: Envelope, out: &mut [u8]) -> Option<Sent> {
        if out.len() < HEADER_LEN + 8 {
            return None;
        }
        let token = exchange.pong.take()?;
        exchange.pong_at = None;
        let len = envelope.write_pong(token, self.peer?.id.tag(), out)?;
        Some(Sent { len, begins: false, owed: false })
    }

    const fn own_hello<'a>(&self, echo_ts: u32, fields: Fields<'a>) -> Hello<'a> {
        Hello { version: VERSION, oldest: VERSION, caps: self.caps, id: self.id, echo_ts, fields }
    }

    /// The token of the ANSWER to a HELLO of this id.
    pub(super) fn token_of(&self, id: SessionId) -> u64 {
        self.secret.hash(Purpose::Answer, id.as_u64())
    }
}
