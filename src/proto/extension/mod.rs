//! What two peers of this crate say to each other beyond KCP: the design is in `docs/extensions.md`, and its rules are
//! cited here by number (R1 and so on).
//!
//! ```text
//! segment, fields   what is on the wire; no state
//! seed              a session's id, and the key of its tokens
//! handshake         who the peer is: HELLO, ANSWER, marks
//! moves             a peer that has another address than before
//! elsewhere         what the session does for that
//! mtu               PINGs that are as long as a packet of the path may be
//! ping              whether the peer is there, and knows the session: PING, PONG, RESET
//! keyed_reset       RESET of a peer that has lost the session with its keys
//! end               where each direction of the stream ends: FIN, ABORT
//! output            which of them speaks next
//! ```
//!
//! All extension segments have one command. KCP's own segments are as ever, so that a peer which does not know the extensions
//! loses nothing. An extension segment has no place in the sequence of the stream: nothing acknowledges it, congestion control
//! does not see it, and each kind has its own rule for when it is sent again (R7).
//!
//! [`Extension`] holds the state of one session and is all that the connection knows of it. It has no clock and no I/O:
//! segments go in by [`input`](Extension::input), what the stream's segments tell by [`on_heard`](Extension::on_heard), and
//! segments come out by [`write`](Extension::write) for a packet of their own and by [`append`](Extension::append) for the end
//! of a packet of the stream. Until the peer is confirmed, an extension segment stands alone in its packet (R5).

mod elsewhere;
mod end;
mod fields;
mod handshake;
#[cfg(feature = "noise")]
mod keyed_reset;
mod moves;
mod mtu;
mod output;
mod ping;
mod seed;
mod segment;
mod slot;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;

use alloc::boxed::Box;
use core::{net::SocketAddr, time::Duration};

#[cfg(any(test, feature = "noise"))]
pub(in crate::proto) use self::fields::Fields;
pub use self::seed::SessionSeed;
#[cfg(feature = "noise")]
pub(in crate::proto) use self::segment::VERSION;
pub(in crate::proto) use self::{
    elsewhere::probe_tag,
    end::Ends,
    handshake::{Identity, Knowledge, MARK, MIN_ROOM, Role},
    seed::SessionId,
    segment::{Caps, Envelope, Fin, Hello, Segment, Subtype},
    slot::ExtensionSlot,
};
use self::{
    end::FinOutcome,
    handshake::{Handshake, Verdict},
    moves::{Follower, Rebind},
    ping::{Ping, ResetEcho, Token},
};
use super::{
    arq::Origin,
    ecn::EcnCounts,
    error::{AbortReason, CloseReason},
    stats::ExtensionStats,
    time::Instant,
    timer::Timer,
    wire::{Command, HEADER_LEN, SegmentHeader, Segments},
};

/// Whether a session speaks the extensions, with which it begins, ends and dies as a TCP connection does; set by
/// [`extensions`](super::KcpConfigBuilder::extensions).
///
/// Peers that do not know the extensions skip them. So they are safe with kcp-go and ikcp, where a session works as if they
/// were off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Extensions {
    /// Nothing is sent beyond KCP, and nothing beyond it is understood.
    Off,
    /// Extensions are spoken with peers that know them.
    #[default]
    Preferred,
    /// A peer that does not know the extensions is refused: the session ends with
    /// [`CloseReason::PeerLacksExtensions`](super::CloseReason::PeerLacksExtensions). Data that was sent with the beginning may
    /// have reached it.
    Required,
}

/// What a session's configuration says about its extensions.
#[derive(Debug, Clone, Copy)]
pub(in crate::proto) struct Settings {
    pub(in crate::proto) extensions: Extensions,
    pub(in crate::proto) caps: Caps,
    pub(in crate::proto) keep_alive: Option<Duration>,
    pub(in crate::proto) dead_timeout: Duration,
    /// The longest packet that this end takes, in bytes of UDP payload, if it says so.
    pub(in crate::proto) max_packet: Option<u16>,
}

/// How things stand with the stream when the extensions are asked to do something.
#[derive(Debug, Clone, Copy)]
pub(in crate::proto) struct Conditions {
    pub(in crate::proto) rto: Duration,
    /// The smoothed round-trip time; zero before the first sample.
    pub(in crate::proto) rtt: Duration,
    /// How long an answer may wait for a packet to go with.
    pub(in crate::proto) interval: Duration,
    /// Whether segments are in flight, which the peer must acknowledge.
    pub(in crate::proto) in_flight: bool,
    /// Whether everything written is acknowledged.
    pub(in crate::proto) all_acked: bool,
    /// The longest wait for an answer.
    pub(in crate::proto) max_wait: Duration,
    /// The `sn` behind the last segment that has arrived.
    pub(in crate::proto) newest: u32,
    /// When the session's path last brought a sign of life.
    pub(in crate::proto) last_heard: Instant,
    /// Everything that arrived before this was taken in.
    pub(in crate::proto) read_until: Instant,
}

/// What a segment that came in tells the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::proto) struct Taken {
    /// It is the peer's. Its `wnd` and `una` count as those of a WINS.
    pub(in crate::proto) vouched: bool,
    /// It answers something that this end has sent, so that the peer cannot have sent it before.
    pub(in crate::proto) answers: bool,
    /// What it answers was sent this long ago.
    pub(in crate::proto) rtt: Option<Duration>,
    /// It says where the peer's stream ends.
    pub(in crate::proto) end: Option<u32>,
    /// The peer has found this end at its new address.
    pub(in crate::proto) moved: bool,
    /// The peer has dropped what was sent so far, and takes it from here on.
    pub(in crate::proto) retried: bool,
    /// A padded PING of so many bytes of a packet has arrived.
    pub(in crate::proto) carried: Option<usize>,
    /// The peer's counts of ECN marks.
    pub(in crate::proto) ecn: Option<EcnCounts>,
}

impl Taken {
    const NOTHING: Self = Self {
        vouched: false,
        answers: false,
        rtt: None,
        end: None,
        moved: false,
        retried: false,
        carried: None,
        ecn: None,
    };
    const VOUCHED: Self = Self { vouched: true, ..Self::NOTHING };

    /// An answer after `rtt`, if that is a sample of the round-trip time.
    const fn answer(rtt: Option<Duration>) -> Self {
        Self { answers: true, rtt, ..Self::VOUCHED }
    }
}

/// An extension segment that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) struct Written {
    /// Bytes with its header.
    pub(in crate::proto) len: usize,
    /// It would begin a session at a listener.
    pub(in crate::proto) begins: bool,
    /// The peer owes an answer to it: if none comes, it is dead.
    pub(in crate::proto) owed: bool,
}

/// The extensions of one session.
#[derive(Debug)]
pub(in crate::proto) struct Extension {
    handshake: Handshake,
    ping: Ping,
    /// PINGs of an earlier session that were answered by RESET, while this end asked its peer for the first time.
    refusals: u8,
    /// The peer has said that it does not know the session.
    is_reset: bool,
    pub(in crate::proto) ends: Ends,
    /// Why the peer has ended the session.
    aborted: Option<AbortReason>,
    /// The session has ended here. Only what tells the peer of that is still sent.
    closed: bool,
    /// What follows the peer to another address, once there was a reason.
    follower: Option<Box<Follower>>,
    /// This end is at another address, and the peer is to learn it.
    rebind: Option<Box<Rebind>>,
    /// The session goes on at this address of the peer, which the connection does not know yet.
    moved: Option<Box<SocketAddr>>,
    stats: ExtensionStats,
}

impl Extension {
    pub(in crate::proto) fn new(role: Role, settings: &Settings, seed: SessionSeed, now: Instant) -> Self {
        Self {
            ping: Ping::new(),
            handshake: Handshake::new(role, settings, seed, now),
            refusals: 0,
            is_reset: false,
            ends: Ends::default(),
            aborted: None,
            closed: false,
            follower: None,
            rebind: None,
            moved: None,
            stats: ExtensionStats::default(),
        }
    }

    // ---- What is known ----

    /// What is known of the peer.
    pub(in crate::proto) const fn knowledge(&self) -> Knowledge {
        self.handshake.knowledge()
    }

    /// Whose session it is, for its record.
    pub(in crate::proto) fn identity(&self) -> Identity {
        self.handshake.identity()
    }

    pub(in crate::proto) fn is_confirmed(&self) -> bool {
        self.knowledge() == Knowledge::Confirmed
    }

    /// Whether both ends report marks of ECN, and hear each other.
    pub(in crate::proto) fn uses_ecn(&self) -> bool {
        let peer = self.handshake.peer().filter(|_| self.is_confirmed());
        self.handshake.caps().has(Caps::ECN) && peer.is_some_and(|peer| peer.caps.has(Caps::ECN))
    }

    /// Whether the peer has shown that it knows the extensions, by a mark at least.
    pub(in crate::proto) fn is_marked(&self) -> bool {
        self.handshake.is_marked()
    }

    /// Whether the session ends if the peer has no extensions.
    pub(in crate::proto) const fn is_required(&self) -> bool {
        self.handshake.is_required()
    }

    /// Whether segments of the stream are refused until a HELLO comes (R44).
    pub(in crate::proto) const fn requires_hello(&self) -> bool {
        self.handshake.requires_hello()
    }

    /// Why the session must end, if it must.
    pub(in crate::proto) const fn close_reason(&self) -> Option<CloseReason> {
        if self.is_reset {
            return Some(CloseReason::Reset);
        }
        match (self.handshake.close_reason(), self.aborted) {
            (None, Some(reason)) => Some(CloseReason::AbortedByPeer(reason)),
            (close_reason, _) => close_reason,
        }
    }

    /// Whether the peer still has an earlier session of this address and conversation, which took this end for its peer and
    /// has ended for it (2.3). What it has acknowledged before that is lost.
    pub(in crate::proto) fn has_ended_another(&self) -> bool {
        // The other end believes two RESETs (R37).
        self.refusals >= 2 && self.knowledge() == Knowledge::Asking
    }

    /// Whether this end asks a silent peer first, or else the silence after which the peer asks.
    pub(in crate::proto) fn asks_first(&self) -> Result<(), Duration> {
        if self.handshake.is_prober() {
            return Ok(());
        }
        self.handshake.peer().and_then(|peer| peer.keep_alive).map_or(Ok(()), |silence| Err(silence.get()))
    }

    /// Whether the peer understands FIN and ABORT, as far as is known.
    pub(in crate::proto) fn speaks_ends(&self) -> bool {
        matches!(self.knowledge(), Knowledge::Known | Knowledge::Confirmed)
    }

    /// The session has ended at this end.
    pub(in crate::proto) const fn close(&mut self) {
        self.closed = true;
    }

    /// Gives back the memory of what is over.
    pub(in crate::proto) fn trim(&mut self) {
        self.handshake.trim();
        self.ping.trim();
    }

    pub(in crate::proto) const fn stats(&self) -> &ExtensionStats {
        &self.stats
    }

    // ---- What comes in ----

    /// Whether a segment has the tag of this end.
    pub(in crate::proto) fn has_own_tag(&self, header: &SegmentHeader) -> bool {
        header.sn == self.handshake.tag()
    }

    /// Counts an extension segment of a packet that has too many.
    pub(in crate::proto) const fn skip(&mut self) {
        self.stats.dropped += 1;
    }

    /// Takes in an extension segment of this conversation.
    #[cold]
    pub(in crate::proto) fn input(
        &mut self,
        now: Instant,
        header: &SegmentHeader,
        body: &[u8],
        origin: Origin,
        conditions: &Conditions,
    ) -> Taken {
        let Some(subtype) = Subtype::from_byte(header.frg) else {
            self.stats.unknown += 1;
            return Taken::NOTHING;
        };
        let Ok(segment) = Segment::parse(subtype, header, body) else {
            self.stats.malformed += 1;
            return Taken::NOTHING;
        };
        // These two carry the tag of their sender, or of what they answer (R3).
        let has_own_rule = matches!(segment, Segment::Hello(_) | Segment::Reset(_));
        if !has_own_rule && !self.has_own_tag(header) {
            self.stats.wrong_tag += 1;
            match segment {
                Segment::Answer(_) => self.handshake.on_foreign_answer(now),
                Segment::Ping(token) => self.refuse(header, token),
                _ => {}
            }
            return Taken::NOTHING;
        }
        let verdict = self.judge(now, header, body, &segment, conditions);
        let mut taken = match verdict {
            Verdict::Dropped => Taken::NOTHING,
            Verdict::Contested => {
                // Another session of the peer may have taken the place of this one: it is asked (2.3).
                self.ping.ask_unless_asked(now, CONTEST_PAUSE);
                Taken::NOTHING
            }
            Verdict::TakenAfter(rtt) => Taken::answer(Some(rtt)),
            Verdict::Taken => self.take(now, &segment, conditions),
        };
        if taken.vouched {
            self.ping.on_vouched();
        }
        if origin == Origin::Recovered {
            taken.rtt = None;
        }
        let counter = match verdict {
            Verdict::Dropped | Verdict::Contested => &mut self.stats.dropped,
            Verdict::Taken | Verdict::TakenAfter(_) => &mut self.stats.received,
        };
        *counter += 1;
        taken
    }

    /// What the handshake says to a segment.
    fn judge(
        &mut self,
        now: Instant,
        header: &SegmentHeader,
        body: &[u8],
        segment: &Segment<'_>,
        conditions: &Conditions,
    ) -> Verdict {
        match segment {
            Segment::Hello(hello) => {
                let len = HEADER_LEN + body.len();
                self.handshake.on_hello(now, header.ts, len, hello, conditions)
            }
            Segment::Answer(hello) => self.handshake.on_answer(now, hello, conditions),
            Segment::Retry(cookie) => self.handshake.on_retry(now, header.ts, cookie),
            Segment::Pong(token) if self.handshake.on_pong(*token) => Verdict::Taken,
            // Its tag is that of the peer, and it answers a PING. More than one is needed for it to have an effect (R37).
            Segment::Reset(token) => {
                let is_peers = self.is_confirmed() && self.handshake.peer_tag() == Some(header.sn);
                let counts = is_peers && self.ping.on_reset(now, *token, header.ts, conditions.rto);
                if counts { Verdict::Taken } else { Verdict::Dropped }
            }
            Segment::Abort(REFUSED) if self.handshake.on_refused() => Verdict::Taken,
            _ => self.handshake.on_tagged(now, conditions),
        }
    }

    /// Does what a segment of the peer asks for.
    fn take(&mut self, now: Instant, segment: &Segment<'_>, conditions: &Conditions) -> Taken {
        match segment {
            Segment::Hello(_) | Segment::Answer(_) => Taken::VOUCHED,
            Segment::Retry(_) => Taken { retried: true, ..Taken::NOTHING },
            Segment::Reset(_) => Taken::NOTHING,
            Segment::Fin(fin) => {
                let outcome = self.ends.on_fin(*fin, conditions.newest);
                if outcome == FinOutcome::Refused {
                    self.stats.dropped += 1;
                    return Taken::VOUCHED;
                }
                let is_read = outcome == FinOutcome::New && !self.ends.has_no_reader();
                let is_new = outcome == FinOutcome::New;
                Taken { end: is_read.then_some(fin.end), answers: is_new, ..Taken::VOUCHED }
            }
            Segment::FinAck(fin) => {
                let answers = self.ends.on_fin_ack(*fin);
                Taken { answers, ..Taken::VOUCHED }
            }
            Segment::Abort(reason) => {
                self.aborted.get_or_insert(AbortReason::from_code(*reason));
                Taken::NOTHING
            }
            Segment::Ping(token) => {
                self.ping.answer(*token);
                if let Some(follower) = &mut self.follower {
                    follower.on_ping(now, *token);
                }
                Taken::VOUCHED
            }
            Segment::Pong(token) => self.take_pong(now, *token),
            Segment::Ecn(_) if !self.uses_ecn() => {
                self.stats.dropped += 1;
                Taken::VOUCHED
            }
            Segment::Ecn(counts) => Taken { ecn: Some(*counts), ..Taken::VOUCHED },
        }
    }

    fn take_pong(&mut self, now: Instant, token: Token) -> Taken {
        if self.rebind.take_if(|rebind| rebind.is_done_by(token)).is_some() {
            self.ping.forget_mtu_probes();
            return Taken { moved: true, ..Taken::answer(None) };
        }
        if self.follower.as_mut().is_some_and(|follower| follower.on_pong(now, token)) {
            return Taken::answer(None);
        }
        if let Some(size) = self.ping.on_mtu_pong(token) {
            return Taken { carried: Some(size), ..Taken::answer(None) };
        }
        // It may be the one of an ANSWER's token, which the handshake has taken.
        self.ping.on_pong(now, token).map_or(Taken::VOUCHED, Taken::answer)
    }

    /// A PING came whose tag is not that of this end: the peer's session is another one, if it is from the peer (R36).
    fn refuse(&mut self, header: &SegmentHeader, token: u64) {
        // A tag of the peer's would be that of this end's own PING, reflected.
        if header.sn == 0 || self.knowledge() == Knowledge::Legacy || self.handshake.has_heard_of(header.sn) {
            return;
        }
        self.ping.refuse(ResetEcho { tag: header.sn, ts: header.ts, token });
    }

    /// The peer is to be asked whether it is there.
    pub(in crate::proto) fn ask_peer(&mut self) {
        self.ping.ask();
    }

    /// Whether the peer has said that it knows the extensions: by its HELLO, which anybody may have sent in its name, or since.
    pub(in crate::proto) fn is_peer_known(&self) -> bool {
        self.handshake.peer_tag().is_some()
    }

    /// Whether KCP's segments tell nothing about the peer that is not known.
    #[inline]
    pub(in crate::proto) const fn is_settled(&self) -> bool {
        self.handshake.is_settled() && !self.ends.awaits_answer()
    }

    /// Whether there is nothing to send, to wait for or to conclude, and will not be before something is told to it.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_settled()
            && !self.is_urgent()
            && !self.has_appendable()
            && !self.ends.has_news()
            && !self.has_moved()
            && self.close_reason().is_none()
            && self.deadlines().iter().all(Option::is_none)
    }

    /// Something with a right `una` was heard. `mark`: `frg` of the packet's last ACK, WASK or WINS. Nothing is to be done where
    /// all is [settled](Self::is_settled).
    pub(in crate::proto) fn on_heard(&mut self, now: Instant, mark: Option<u8>, conditions: &Conditions) {
        self.ends.on_heard();
        if !self.handshake.is_settled() {
            self.handshake.on_heard(now, mark, conditions);
            if self.knowledge() == Knowledge::Legacy {
                self.ends.forget_peer();
            }
        }
    }

    // ---- Time ----

    /// The timers, in the order of [`deadlines`](Self::deadlines).
    pub(in crate::proto) const TIMERS: [Timer; 4] = [Timer::Hello, Timer::Fin, Timer::Reset, Timer::Move];

    /// When each of [`TIMERS`](Self::TIMERS) fires; `None` for one that is not set.
    pub(in crate::proto) fn deadlines(&self) -> [Option<Instant>; 4] {
        let moves = self.move_deadline();
        [self.handshake.deadline(), self.ends.deadline(), self.ping.deadline(), moves]
    }

    /// Does what is due at `now`. Returns whether the peer's window is to be asked for.
    #[must_use]
    pub(in crate::proto) fn on_timeout(&mut self, now: Instant, conditions: &Conditions) -> bool {
        self.ping.on_timeout(now);
        if self.ping.is_reset(conditions.read_until) {
            // A peer that was done may be gone: nothing is lost.
            if self.ends.on_unreachable(conditions.all_acked) {
                self.ping.on_vouched();
            } else {
                self.is_reset = true;
            }
        }
        self.ends.on_timeout(now, conditions.all_acked);
        self.on_move_timeout(now, conditions);
        self.handshake.on_timeout(now, conditions)
    }

    /// Nobody has listened for a while: the peer's silence counts for nothing until `at`.
    pub(in crate::proto) fn wait_until(&mut self, at: Instant) {
        self.ping.wait_until(at);
    }

    /// The application waits for the peer. Returns whether the peer's window is to be asked for.
    #[must_use]
    pub(in crate::proto) fn ask(&mut self, now: Instant) -> bool {
        self.handshake.ask(now)
    }

    /// The application is done with the session, and its end depends on what the peer knows.
    pub(in crate::proto) fn settle(&mut self, now: Instant) {
        self.handshake.settle(now);
    }

    /// The application is gone, and nothing is owed to anybody.
    pub(in crate::proto) fn give_up(&mut self) {
        self.handshake.give_up();
    }
}

/// Whether a packet holds a HELLO with which a session can begin, and nothing else.
pub(in crate::proto) fn is_beginning(payload: &[u8]) -> bool {
    // Most packets are none: a look at the bytes of `cmd` and `frg` tells.
    if payload.get(4..6) != Some(&[Command::Extension as u8, Subtype::Hello as u8]) {
        return false;
    }
    let Some((header, body)) = only_segment(payload) else { return false };
    match Segment::parse(Subtype::Hello, &header, body) {
        Ok(Segment::Hello(hello)) => hello.is_version_spoken() && hello.fields.unknown.is_empty(),
        _ => false,
    }
}

/// The HELLO of a packet that [begins](is_beginning) a session, with its `ts`.
pub(in crate::proto) fn hello_of(payload: &[u8]) -> Option<(u32, Hello<'_>)> {
    let (header, body) = only_segment(payload)?;
    match Segment::parse(Subtype::from_byte(header.frg)?, &header, body) {
        Ok(Segment::Hello(hello)) => Some((header.ts, hello)),
        _ => None,
    }
}

/// Whether a packet holds one extension segment and nothing else.
#[cold]
pub(in crate::proto) fn stands_alone(payload: &[u8]) -> bool {
    only_segment(payload).is_some_and(|(header, _)| header.cmd == Command::Extension)
}

/// The segment that fills a packet.
fn only_segment(payload: &[u8]) -> Option<(SegmentHeader, &[u8])> {
    let segment = Segments::new(payload).next()?.ok()?;
    (HEADER_LEN + segment.1.len() == payload.len()).then_some(segment)
}

/// Least time between two questions whether the peer still has the session, when HELLOs of another one come from its address.
const CONTEST_PAUSE: Duration = Duration::from_secs(1);
/// What a peer that was heard is asked, and does not answer, is asked again after waits that grow by an RTO, at most by this.
const MAX_WAIT_GROWTH: Duration = Duration::from_millis(250);
/// The reason of an ABORT that refuses a session.
const REFUSED: u16 = 5;
