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

mod hellos;
mod output;

use alloc::boxed::Box;
use core::time::Duration;

use self::hellos::Hellos;
use super::{
    Conditions, Extensions, SessionSeed,
    fields::KindSet,
    seed::{Secret, SessionId},
    segment::{Caps, Hello},
};
use crate::proto::{
    error::{CloseReason, HandshakeError},
    path::MAX_RTO,
    time::{Instant, earliest},
    wire::HEADER_LEN,
};

/// `frg` of ACK, WASK and WINS segments of an end that knows the extensions.
pub(in crate::proto) const MARK: u8 = 0x60;

/// The shortest time between two HELLOs to a peer that is confirmed.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// Cookies that are taken in one session.
const MAX_RETRIES: u8 = 3;

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
    pub(in crate::proto) keep_alive: Option<Duration>,
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

/// A HELLO that is to be answered.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    info: PeerInfo,
    /// `ts` and bytes of its last HELLO.
    ts: u32,
    len: usize,
    due: bool,
}

/// An answer to a HELLO that makes no state here.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    tag: u32,
    ts: u32,
    len: usize,
    unknown: KindSet,
}

/// Everything that one end's handshake knows.
#[derive(Debug)]
pub(super) struct Handshake {
    role: Role,
    id: SessionId,
    secret: Secret,
    caps: Caps,
    keep_alive: Option<Duration>,
    required: bool,
    knowledge: Knowledge,
    peer: Option<PeerInfo>,
    hellos: Hellos,
    /// The HELLOs that have come, the newest first.
    candidates: [Option<Candidate>; 2],
    refusal: Option<Refusal>,
    /// Bytes received in HELLOs, and sent in answers to them.
    hello_bytes: u64,
    answer_bytes: u64,
    cookie: Option<Box<[u8]>>,
    /// When it was taken.
    cookie_at: Instant,
    retries: u8,
    /// The token of the peer's ANSWER, which is to be returned.
    pong: Option<u64>,
    /// Until when it may wait for a packet to go with.
    pong_at: Option<Instant>,
    /// Until when the peer must be confirmed.
    confirm_by: Option<Instant>,
    close_reason: Option<CloseReason>,
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
            keep_alive: settings.keep_alive,
            required,
            knowledge: if connects { Knowledge::Asking } else { Knowledge::Unknown },
            peer: None,
            hellos: Hellos::new(connects),
            candidates: [None; 2],
            refusal: None,
            hello_bytes: 0,
            answer_bytes: 0,
            cookie: None,
            cookie_at: now,
            retries: 0,
            pong: None,
            pong_at: None,
            confirm_by: (required && !connects).then(|| now + settings.dead_timeout),
            close_reason: None,
        }
    }

    // ---- What is known ----

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
            Knowledge::Known => self.candidates[0].map(|candidate| candidate.info.id.tag()),
            Knowledge::Asking | Knowledge::Unknown | Knowledge::Legacy => None,
        }
    }

    /// Whether a peer has said that this tag is its own.
    pub(super) fn has_heard_of(&self, tag: u32) -> bool {
        let heard = self.candidates.iter().flatten().map(|candidate| candidate.info.id);
        heard.chain(self.peer.map(|peer| peer.id)).any(|id| id.tag() == tag)
    }

    /// Whose session it is.
    pub(super) fn identity(&self) -> Identity {
        let peer = match self.knowledge {
            Knowledge::Legacy => return Identity::Legacy,
            Knowledge::Unknown => return Identity::Unknown,
            Knowledge::Asking => None,
            Knowledge::Known => self.candidates[0].map(|candidate| candidate.info.id),
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
        match self.candidates[0] {
            Some(candidate) if self.role == Role::Connects => self.id.as_u64() < candidate.info.id.as_u64(),
            _ => self.role == Role::Connects,
        }
    }

    /// Whether the peer has shown that it knows the extensions, by a mark at least.
    pub(super) const fn is_marked(&self) -> bool {
        self.hellos.marked
    }

    pub(super) const fn is_required(&self) -> bool {
        self.required
    }

    /// Whether segments of the stream are refused until a HELLO comes.
    pub(super) const fn requires_hello(&self) -> bool {
        self.required && matches!(self.knowledge, Knowledge::Unknown)
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
                .map(|ms| Duration::from_millis(ms.into())),
        };
        if self.knowledge == Knowledge::Legacy || hello.id == self.id {
            return Verdict::Dropped;
        }
        if self.knowledge == Knowledge::Confirmed && self.peer.is_some_and(|peer| peer.id != hello.id) {
            return Verdict::Contested;
        }
        self.hello_bytes = self.hello_bytes.saturating_add(len as u64);
        let unknown = hello.fields.unknown;
        if !hello.is_version_spoken() || !unknown.is_empty() {
            self.refusal = Some(Refusal { tag: hello.id.tag(), ts, len, unknown });
            return Verdict::Dropped;
        }
        self.add_candidate(info, ts, len);
        match self.knowledge {
            Knowledge::Unknown => self.knowledge = Knowledge::Known,
            // Both ends connect.
            Knowledge::Asking => self.hellos.on_marked(now, conditions),
            _ => {}
        }
        // Of two that contradict each other, neither is taken at its word.
        if self.knowledge != Knowledge::Confirmed && self.candidates[1].is_some() {
            return Verdict::Dropped;
        }
        Verdict::Taken
    }

    fn add_candidate(&mut self, info: PeerInfo, ts: u32, len: usize) {
        let mut known = self.candidates.iter_mut().flatten();
        if let Some(candidate) = known.find(|candidate| candidate.info.id == info.id) {
            (candidate.ts, candidate.len, candidate.due) = (ts, len, true);
            return;
        }
        self.candidates.swap(0, 1);
        self.candidates[0] = Some(Candidate { info, ts, len, due: true });
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
        let Some(sent) = self.hellos.sent_at(hello.echo_ts) else { return Verdict::Dropped };
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
        self.confirm(PeerInfo { id: hello.id, caps: hello.caps, keep_alive: None });
        self.return_token(now, hello, conditions);
        let rtt = now - sent;
        if rtt < MAX_RTO { Verdict::TakenAfter(rtt) } else { Verdict::Taken }
    }

    fn return_token(&mut self, now: Instant, answer: &Hello<'_>, conditions: &Conditions) {
        if let Some(token) = answer.fields.token {
            self.pong = Some(token);
            self.pong_at.get_or_insert(now + conditions.interval);
        }
    }

    /// A RETRY with this end's tag, in answer to the HELLO of the time `ts`. One that answers a HELLO without the present cookie has
    /// nothing new to say.
    pub(super) fn on_retry(&mut self, now: Instant, ts: u32, cookie: &[u8]) -> Verdict {
        let asks = self.knowledge == Knowledge::Asking
            && self.hellos.sent_at(ts).is_some_and(|sent| self.cookie.is_none() || sent >= self.cookie_at);
        if !asks || self.retries == MAX_RETRIES {
            return Verdict::Dropped;
        }
        self.retries += 1;
        self.cookie = Some(cookie.into());
        self.cookie_at = now;
        self.hellos.due = true;
        self.hellos.long = self.hellos.long.max(1);
        Verdict::Taken
    }

    /// Whether a PONG with this end's tag and this token answers an ANSWER. If so, it is [`Taken`](Verdict::Taken).
    pub(super) fn on_pong(&mut self, token: u64) -> bool {
        let mut candidates = self.candidates.into_iter().flatten();
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
        if let (Knowledge::Confirmed, Some(sent), false) =
            (self.knowledge, self.hellos.sent[0], self.hellos.due)
        {
            self.hellos.at.get_or_insert(now.max(sent + MIN_PAUSE));
        }
    }

    /// Any other segment with this end's tag. Whoever sends one has heard this end.
    pub(super) fn on_tagged(&mut self, now: Instant, conditions: &Conditions) -> Verdict {
        match (self.knowledge, self.candidates) {
            (Knowledge::Confirmed, _) => Verdict::Taken,
            (Knowledge::Asking, _) => {
                self.hellos.on_marked(now, conditions);
                Verdict::Taken
            }
            (Knowledge::Known, [Some(only), None]) => {
                self.confirm(only.info);
                Verdict::Taken
            }
            (Knowledge::Known, _) => {
                // It does not say which of two ids it comes from. The token of an ANSWER does.
                for candidate in self.candidates.iter_mut().flatten() {
                    candidate.due = true;
                }
                Verdict::Dropped
            }
            (Knowledge::Unknown | Knowledge::Legacy, _) => Verdict::Dropped,
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
        self.hellos.heard = true;
        if self.knowledge == Knowledge::Asking && mark.is_none() && !self.hellos.due {
            // Nothing else may come of itself that bears a mark, or shows that there is none.
            self.hellos.at.get_or_insert(now + conditions.rto);
        }
        match (self.knowledge, mark) {
            (Knowledge::Legacy | Knowledge::Confirmed, _) | (_, None) => {}
            (Knowledge::Asking, Some(MARK)) => self.hellos.on_marked(now, conditions),
            (Knowledge::Unknown | Knowledge::Known, Some(MARK)) => self.hellos.marked = true,
            (_, Some(_)) => self.become_legacy(CloseReason::PeerLacksExtensions),
        }
    }

    /// Whether [`on_heard`](Self::on_heard) has nothing to learn any more.
    pub(super) const fn is_settled(&self) -> bool {
        matches!(self.knowledge, Knowledge::Confirmed | Knowledge::Legacy)
    }

    fn confirm(&mut self, peer: PeerInfo) {
        self.knowledge = Knowledge::Confirmed;
        self.hellos.stop();
        self.hellos.marked = true;
        self.confirm_by = None;
        self.cookie = None;
        // Of the HELLOs, only the peer's matters any more. Where it sent none, there is none left.
        let of_peer = |candidate: &Candidate| candidate.info.id == peer.id;
        let own = self.candidates.into_iter().flatten().find(of_peer);
        self.peer = Some(own.map_or(peer, |candidate| candidate.info));
        self.candidates = [own, None];
        self.refusal = None;
    }

    /// The peer has no extensions, or none that this end speaks. `reason` is why the session ends where they are required.
    fn become_legacy(&mut self, reason: CloseReason) {
        self.knowledge = Knowledge::Legacy;
        self.hellos.stop();
        self.candidates = [None; 2];
        self.refusal = None;
        self.confirm_by = None;
        if self.required {
            self.close_reason = Some(reason);
        }
    }

    // ---- Time ----

    pub(super) fn deadline(&self) -> Option<Instant> {
        earliest([self.hellos.at, self.pong_at, self.confirm_by])
    }

    /// Does what is due. Returns whether the peer's window is to be asked for.
    pub(super) fn on_timeout(&mut self, now: Instant, conditions: &Conditions) -> bool {
        if self.confirm_by.take_if(|at| *at <= now).is_some() {
            self.close_reason = Some(CloseReason::PeerLacksExtensions);
        }
        self.pong_at.take_if(|at| *at <= now);
        if self.hellos.at.take_if(|at| *at <= now).is_none() {
            return false;
        }
        if self.required {
            // A peer of another kind is of no use, and need not be spared.
            self.hellos.due = true;
        }
        self.hellos.on_turn(now, conditions, self.keep_alive.is_some())
    }

    /// The application waits for the peer. Returns whether the peer's window is to be asked for.
    pub(super) fn ask(&mut self) -> bool {
        self.hellos.awaited = true;
        self.knowledge == Knowledge::Asking && !self.hellos.heard
    }

    /// The application is done. The session's end hangs on whether the peer knows the extensions, so that it is asked until that
    /// is known.
    pub(super) fn settle(&mut self, now: Instant) {
        if self.knowledge == Knowledge::Asking {
            self.hellos.ask(now);
        }
    }

    /// The application is gone, with nothing under way, and nothing was ever heard: nobody waits for an answer. What is sent to
    /// somebody who may not be there must come to its end (R25a).
    pub(super) fn give_up(&mut self) {
        self.keep_alive = None;
        self.hellos.give_up();
    }
}

/// The shortest room for segments in which the handshake works: an ANSWER with its token. HELLO is padded to as much.
pub(in crate::proto) const MIN_ROOM: usize =
    HEADER_LEN + super::segment::HELLO_LEN + super::fields::FIELD_HEADER_LEN + 8;
