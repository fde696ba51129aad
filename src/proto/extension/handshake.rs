//! Who the peer is: HELLO and ANSWER, and what each end knows of the other.
//!
//! The end that connects sends HELLO at once, and its data behind it without waiting. The end that accepts answers each HELLO
//! by an ANSWER. Both carry the sender's id; its first four bytes are the tag that segments to this end carry. Neither is
//! acknowledged and neither is certain: any of them may be lost, late or doubled, and KCP goes on all the same.
//!
//! # Peers without extensions
//!
//! Whether a peer knows the extensions does not hang on HELLO and ANSWER. Each end that knows them *marks* its ACK, WASK and
//! WINS segments: `frg` is [`MARK`] there, which no implementation reads. Everybody answers PUSH and WASK. So the first ACK or
//! WINS tells after one round trip whom it is from. A peer whose first one bears no mark is a legacy peer and hears of the
//! extensions no more. A peer that marks is asked by HELLO until its ANSWER has come.
//!
//! # Whom to believe
//!
//! Whoever sends a segment with this end's tag has read what this end sent. So the end that accepts takes its peer for
//! *known* after a HELLO, which anybody can forge, and for *confirmed* after a segment with its own tag. Until then it answers
//! every HELLO, of two ids at most, and the answer's token shows which of them the peer's is. It sends no more than three
//! times the bytes that it received in HELLOs, so that a forged source address is not worth much.
//!
//! Who forges several HELLOs in the round trip before the peer is confirmed can have its id forgotten. The answers that the
//! peer's next segments draw then carry the forger's tags, and to those the peer answers with its HELLO once more.
//!
//! # Memory
//!
//! Most of this is needed for a round trip or two, and a session may then live for days. So what is under way is in an [`Exchange`]
//! of its own. A session whose peer is settled gives it back when it goes idle, and has a new one where a HELLO or ANSWER comes late.

mod exchange;
mod hellos;
mod output;

use alloc::boxed::Box;
use core::time::Duration;

use self::exchange::{Candidate, Exchange, Refusal};
use super::{
    Conditions, Extensions, SessionSeed,
    seed::{Secret, SessionId},
    segment::{Caps, Hello},
};
#[cfg(feature = "noise")]
use crate::proto::noise::ResetKey;
use crate::proto::{
    error::{CloseReason, HandshakeError},
    path::MAX_RTO,
    time::{Instant, Micros},
    wire::HEADER_LEN,
};

/// `frg` of ACK, WASK and WINS segments of an end that knows the extensions.
pub(in crate::proto) const MARK: u8 = 0x60;

/// Which end began the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) enum Role {
    Connects,
    Accepts,
}

/// What an end knows of its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) enum Knowledge {
    /// HELLO was sent, and neither ANSWER nor an unmarked segment has come. Only for the end that connects.
    Asking,
    /// No HELLO has come, and nothing that says there will be none. Only for the end that accepts.
    Unknown,
    /// The peer does not know the extensions. This is for ever.
    Legacy,
    /// A HELLO has come. The peer has not shown that it hears this end. Only for the end that accepts.
    Known,
    /// The peer has used the tag of this end. This is for ever.
    Confirmed,
}

/// Whose session it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) enum Identity {
    /// That of a peer without extensions.
    Legacy,
    /// That of a peer whose HELLO may still come.
    Unknown,
    /// That of a peer with extensions. `tag` is that of this end. `peer` is `None` where the peer has not answered yet.
    Known { tag: u32, peer: Option<SessionId> },
}

/// What the peer has said of itself in its first HELLO or ANSWER. Later copies change nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) struct PeerInfo {
    pub(in crate::proto) id: SessionId,
    pub(in crate::proto) caps: Caps,
    /// After how much silence the peer probes. `None`: it does not, or is the end that accepts.
    pub(in crate::proto) keep_alive: Option<Micros>,
    /// The longest packet that it takes.
    pub(in crate::proto) max_packet: Option<u16>,
}

/// What becomes of a segment that the handshake was asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the peer's.
    Taken,
    /// As [`Taken`](Self::Taken), and it answers a HELLO that was sent this long ago.
    TakenAfter(Duration),
    /// It means nothing here and now.
    Dropped,
    /// Another session of the peer may have taken the place of this one.
    Contested,
}

/// Everything that one end's handshake knows.
#[derive(Debug)]
pub(super) struct Handshake {
    role: Role,
    id: SessionId,
    secret: Secret,
    caps: Caps,
    keep_alive: Option<Micros>,
    max_packet: Option<u16>,
    required: bool,
    knowledge: Knowledge,
    peer: Option<PeerInfo>,
    /// The peer has sent HELLO too, and this is not in the exchange any more.
    peer_connects: bool,
    close_reason: Option<CloseReason>,
    /// The key of RESETs of a session with keys of its own: of the end that accepts what it says, of the other what it was told.
    #[cfg(feature = "noise")]
    reset_key: Option<Box<ResetKey>>,
    exchange: Option<Box<Exchange>>,
}

impl Handshake {
    pub(super) fn new(
        role: Role,
        settings: &super::Settings,
        SessionSeed { id, secret }: SessionSeed,
        now: Instant,
    ) -> Self {
        let required = settings.extensions == Extensions::Required;
        let connects = role == Role::Connects;
        Self {
            role,
            id,
            secret,
            caps: settings.caps,
            keep_alive: settings.keep_alive.map(Micros::new),
            max_packet: settings.max_packet,
            required,
            knowledge: if connects { Knowledge::Asking } else { Knowledge::Unknown },
            peer: None,
            peer_connects: false,
            close_reason: None,
            #[cfg(feature = "noise")]
            reset_key: None,
            exchange: Some(Box::new(Exchange::begin(
                connects,
                now,
                (required && !connects).then(|| now + settings.dead_timeout),
            ))),
        }
    }

    /// What is under way. A settled session may have none: then it has one again.
    fn exchange(&mut self, now: Instant) -> &mut Exchange {
        self.exchange.get_or_insert_with(|| Box::new(Exchange::resume(now)))
    }

    /// The HELLO that has come last, as far as it is kept.
    fn newest_candidate(&self) -> Option<&Candidate> {
        self.exchange.as_ref()?.candidates[0].as_ref()
    }

    // ---- What is known ----

    #[cfg(feature = "noise")]
    pub(super) const fn role(&self) -> Role {
        self.role
    }

    /// The key of all tokens of the session.
    pub(super) const fn secret(&self) -> Secret {
        self.secret
    }

    pub(super) const fn knowledge(&self) -> Knowledge {
        self.knowledge
    }

    /// What this end has said that it can receive.
    pub(super) const fn caps(&self) -> Caps {
        self.caps
    }

    /// The tag of this end.
    pub(super) const fn tag(&self) -> u32 {
        self.id.tag()
    }

    /// The tag that segments to the peer carry, as far as there is one that it may know.
    pub(super) fn peer_tag(&self) -> Option<u32> {
        match self.knowledge {
            Knowledge::Confirmed => self.peer.map(|peer| peer.id.tag()),
            Knowledge::Known => self.newest_candidate().map(|candidate| candidate.info.id.tag()),
            Knowledge::Asking | Knowledge::Unknown | Knowledge::Legacy => None,
        }
    }

    /// Whether a peer has said that this tag is its own.
    pub(super) fn has_heard_of(&self, tag: u32) -> bool {
        let candidates = self.exchange.iter().flat_map(|exchange| exchange.candidates.iter().flatten());
        candidates
            .map(|candidate| candidate.info.id)
            .chain(self.peer.map(|peer| peer.id))
            .any(|id| id.tag() == tag)
    }

    /// Whose session it is.
    pub(super) fn identity(&self) -> Identity {
        let peer = match self.knowledge {
            Knowledge::Legacy => return Identity::Legacy,
            Knowledge::Unknown => return Identity::Unknown,
            Knowledge::Asking => None,
            Knowledge::Known => self.newest_candidate().map(|candidate| candidate.info.id),
            Knowledge::Confirmed => self.peer.map(|peer| peer.id),
        };
        Identity::Known { tag: self.tag(), peer }
    }

    /// What a confirmed peer has said of itself.
    pub(super) const fn peer(&self) -> Option<&PeerInfo> {
        self.peer.as_ref()
    }

    /// Whether this end is the one that looks after the other. Where both have connected, the smaller id decides.
    pub(super) fn is_prober(&self) -> bool {
        let connects = self.role == Role::Connects;
        let candidate = self.newest_candidate().map(|candidate| candidate.info.id);
        let before = self.peer.filter(|_| self.peer_connects).map(|peer| peer.id);
        match candidate.or(before) {
            Some(peer) if connects => self.id.as_u64() < peer.as_u64(),
            _ => connects,
        }
    }

    /// Whether the peer has shown that it knows the extensions, by a mark at least.
    pub(super) fn is_marked(&self) -> bool {
        self.knowledge == Knowledge::Confirmed
            || self.exchange.as_ref().is_some_and(|exchange| exchange.hellos.marked)
    }

    pub(super) const fn is_required(&self) -> bool {
        self.required
    }

    /// Whether segments of the stream are refused until a HELLO comes.
    pub(super) const fn requires_hello(&self) -> bool {
        self.required && matches!(self.knowledge, Knowledge::Unknown)
    }

    /// The key of RESETs that the peer may be told, or was.
    #[cfg(feature = "noise")]
    pub(super) fn reset_key(&self) -> Option<&ResetKey> {
        self.reset_key.as_deref()
    }

    #[cfg(feature = "noise")]
    pub(super) fn set_reset_key(&mut self, key: Box<ResetKey>) {
        self.reset_key = Some(key);
    }

    /// Why the session must end, if it must.
    pub(super) const fn close_reason(&self) -> Option<CloseReason> {
        self.close_reason
    }

    // ---- What comes in ----

    /// A HELLO of `len` bytes with its header and the time `ts`.
    pub(super) fn on_hello(
        &mut self,
        now: Instant,
        ts: u32,
        len: usize,
        hello: &Hello<'_>,
        conditions: &Conditions,
    ) -> Verdict {
        let info = PeerInfo {
            id: hello.id,
            caps: hello.caps,
            keep_alive: hello
                .fields
                .keep_alive
                .filter(|ms| *ms > 0)
                .map(|ms| Duration::from_millis(ms.into()).into()),
            max_packet: hello.fields.max_packet,
        };
        if self.knowledge == Knowledge::Legacy || hello.id == self.id {
            return Verdict::Dropped;
        }
        if self.knowledge == Knowledge::Confirmed && self.peer.is_some_and(|peer| peer.id != hello.id) {
            return Verdict::Contested;
        }
        let knowledge = self.knowledge;
        let exchange = self.exchange(now);
        exchange.hello_bytes = exchange.hello_bytes.saturating_add(len as u64);
        let unknown = hello.fields.unknown;
        if !hello.is_version_spoken() || !unknown.is_empty() {
            exchange.refusal = Some(Refusal { tag: hello.id.tag(), ts, len, unknown });
            return Verdict::Dropped;
        }
        exchange.add_candidate(info, ts, len);
        if knowledge == Knowledge::Asking {
            // Both ends connect.
            exchange.hellos.on_marked(now, conditions);
        }
        // Of two that contradict each other, neither is taken at its word.
        let is_contradicted = exchange.candidates[1].is_some();
        if knowledge == Knowledge::Unknown {
            self.knowledge = Knowledge::Known;
        }
        if knowledge != Knowledge::Confirmed && is_contradicted { Verdict::Dropped } else { Verdict::Taken }
    }

    /// An ANSWER with this end's tag.
    pub(super) fn on_answer(&mut self, now: Instant, hello: &Hello<'_>, conditions: &Conditions) -> Verdict {
        match self.knowledge {
            Knowledge::Confirmed if self.peer.is_some_and(|peer| peer.id == hello.id) => {
                self.return_token(now, hello, conditions);
                return Verdict::Taken;
            }
            Knowledge::Asking if hello.id != self.id => {}
            _ => return Verdict::Dropped,
        }
        let Some(sent) = self.exchange(now).hellos.sent_at(hello.echo_ts) else { return Verdict::Dropped };
        if hello.fields.unsupported.is_some() {
            // This end sends no field that must be understood.
            return Verdict::Dropped;
        }
        if !hello.is_version_spoken() {
            self.become_legacy(CloseReason::HandshakeFailed(HandshakeError::Version));
            return Verdict::Dropped;
        }
        if !hello.fields.unknown.is_empty() {
            self.close_reason = Some(CloseReason::HandshakeFailed(HandshakeError::UnknownField));
            return Verdict::Dropped;
        }
        let max_packet = hello.fields.max_packet;
        self.confirm(PeerInfo { id: hello.id, caps: hello.caps, keep_alive: None, max_packet });
        #[cfg(feature = "noise")]
        {
            self.reset_key = hello.fields.reset_key.map(|key| Box::new(*key));
        }
        self.return_token(now, hello, conditions);
        let rtt = now - sent;
        if rtt < MAX_RTO { Verdict::TakenAfter(rtt) } else { Verdict::Taken }
    }

    fn return_token(&mut self, now: Instant, answer: &Hello<'_>, conditions: &Conditions) {
        if let Some(token) = answer.fields.token {
            let exchange = self.exchange(now);
            exchange.pong = Some(token);
            exchange.pong_at.get_or_insert(now + conditions.interval);
        }
    }

    /// A RETRY with this end's tag, in answer to the HELLO of the time `ts`. One that answers a HELLO without the present cookie has
    /// nothing new to say.
    pub(super) fn on_retry(&mut self, now: Instant, ts: u32, cookie: &[u8]) -> Verdict {
        if self.knowledge == Knowledge::Asking && self.exchange(now).take_cookie(now, ts, cookie) {
            Verdict::Taken
        } else {
            Verdict::Dropped
        }
    }

    /// Whether a PONG with this end's tag and this token answers an ANSWER. If so, it is [`Taken`](Verdict::Taken).
    pub(super) fn on_pong(&mut self, token: u64) -> bool {
        let candidates = self.exchange.as_ref().map_or([None; 2], |exchange| exchange.candidates);
        let mut candidates = candidates.into_iter().flatten();
        let Some(peer) = candidates.find(|candidate| self.token_of(candidate.info.id) == token) else {
            return false;
        };
        if self.knowledge != Knowledge::Confirmed {
            self.confirm(peer.info);
        }
        true
    }

    /// An ANSWER with another tag than this end's. The peer has taken somebody else's HELLO for this end's, and is told again.
    pub(super) fn on_foreign_answer(&mut self, now: Instant) {
        // Who accepts has sent no HELLO.
        if self.knowledge == Knowledge::Confirmed && self.role == Role::Connects {
            self.exchange(now).hellos.repeat(now);
        }
    }

    /// Any other segment with this end's tag. Whoever sends one has heard this end.
    pub(super) fn on_tagged(&mut self, now: Instant, conditions: &Conditions) -> Verdict {
        match self.knowledge {
            Knowledge::Confirmed => Verdict::Taken,
            Knowledge::Asking => {
                self.exchange(now).hellos.on_marked(now, conditions);
                Verdict::Taken
            }
            Knowledge::Known => {
                let exchange = self.exchange(now);
                if let [Some(only), None] = exchange.candidates {
                    self.confirm(only.info);
                    return Verdict::Taken;
                }
                // It does not say which of two ids it comes from. The token of an ANSWER does.
                for candidate in exchange.candidates.iter_mut().flatten() {
                    candidate.due = true;
                }
                Verdict::Dropped
            }
            Knowledge::Unknown | Knowledge::Legacy => Verdict::Dropped,
        }
    }

    /// An ABORT with this end's tag: whether it refuses the session.
    pub(super) fn on_refused(&mut self) -> bool {
        let asks = self.knowledge == Knowledge::Asking;
        if asks {
            self.close_reason = Some(CloseReason::Refused);
        }
        asks
    }

    /// The peer was heard. `mark`: `frg` of the last ACK, WASK or WINS.
    pub(super) fn on_heard(&mut self, now: Instant, mark: Option<u8>, conditions: &Conditions) {
        if self.is_settled() {
            return;
        }
        let knowledge = self.knowledge;
        let hellos = &mut self.exchange(now).hellos;
        hellos.heard = true;
        if knowledge == Knowledge::Asking && mark.is_none() && !hellos.due {
            // Nothing else may come of itself that bears a mark, or shows that there is none.
            hellos.at.get_or_insert(now + conditions.rto);
        }
        match (knowledge, mark) {
            (_, None) => {}
            (Knowledge::Asking, Some(MARK)) => hellos.on_marked(now, conditions),
            (_, Some(MARK)) => hellos.marked = true,
            (_, Some(_)) => self.become_legacy(CloseReason::PeerLacksExtensions),
        }
    }

    /// Whether [`on_heard`](Self::on_heard) has nothing to learn any more.
    pub(super) const fn is_settled(&self) -> bool {
        matches!(self.knowledge, Knowledge::Confirmed | Knowledge::Legacy)
    }

    fn confirm(&mut self, peer: PeerInfo) {
        self.knowledge = Knowledge::Confirmed;
        // Of the HELLOs, only the peer's matters any more. Where it sent none, there is none left.
        let own = self.exchange.as_mut().and_then(|exchange| exchange.confirm(peer.id));
        self.peer = Some(own.map_or(peer, |candidate| candidate.info));
    }

    /// The peer has no extensions, or none that this end speaks. `reason` is why the session ends where they are required.
    fn become_legacy(&mut self, reason: CloseReason) {
        self.knowledge = Knowledge::Legacy;
        self.exchange = None;
        if self.required {
            self.close_reason = Some(reason);
        }
    }

    /// Gives back the memory of what is over.
    pub(super) fn trim(&mut self) {
        let is_settled = self.is_settled();
        if let Some(exchange) = self.exchange.take_if(|exchange| is_settled && exchange.is_over()) {
            self.peer_connects |= exchange.candidates[0].is_some();
        }
    }

    // ---- Time ----

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.exchange.as_ref()?.deadline()
    }

    /// Does what is due. Returns whether the peer's window is to be asked for.
    pub(super) fn on_timeout(&mut self, now: Instant, conditions: &Conditions) -> bool {
        let Some(exchange) = &mut self.exchange else { return false };
        if exchange.confirm_by.take_if(|at| *at <= now).is_some() {
            self.close_reason = Some(CloseReason::PeerLacksExtensions);
        }
        exchange.pong_at.take_if(|at| *at <= now);
        if exchange.hellos.at.take_if(|at| *at <= now).is_none() {
            return false;
        }
        if self.required {
            // A peer of another kind is of no use, and need not be spared.
            exchange.hellos.due = true;
        }
        exchange.hellos.on_turn(now, conditions, self.keep_alive.is_some())
    }

    /// The application waits for the peer. Returns whether the peer's window is to be asked for.
    pub(super) fn ask(&mut self, now: Instant) -> bool {
        if self.knowledge != Knowledge::Asking {
            return false;
        }
        let hellos = &mut self.exchange(now).hellos;
        hellos.ask(now);
        !hellos.heard
    }

    /// The application is done. The session's end hangs on whether the peer knows the extensions, so that it is asked until that
    /// is known.
    pub(super) fn settle(&mut self, now: Instant) {
        if self.knowledge == Knowledge::Asking {
            self.exchange(now).hellos.ask(now);
        }
    }

    /// The application is gone, with nothing under way, and nothing was ever heard: nobody waits for an answer. What is sent to
    /// somebody who may not be there must come to its end (R25a).
    pub(super) fn give_up(&mut self) {
        self.keep_alive = None;
        if let Some(exchange) = &mut self.exchange {
            exchange.hellos.give_up();
        }
    }
}

/// The shortest room for segments in which the handshake works: an ANSWER with its token. HELLO is padded to as much.
pub(in crate::proto) const MIN_ROOM: usize =
    HEADER_LEN + super::segment::HELLO_LEN + super::fields::FIELD_HEADER_LEN + 8;
