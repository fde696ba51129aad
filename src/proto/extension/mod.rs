//! What two peers of this crate say to each other beyond KCP: the design is in `docs/extensions.md`, and its rules are
//! cited here by number (R1 and so on).
//!
//! ```text
//! segment, fields   what is on the wire; no state
//! seed              a session's id, and the key of its tokens
//! handshake         who the peer is: HELLO, ANSWER, marks
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

mod fields;
mod handshake;
mod seed;
mod segment;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;

use core::time::Duration;

use self::handshake::{Handshake, Verdict};
pub use self::seed::SessionSeed;
pub(in crate::proto) use self::{
    handshake::{Knowledge, MARK, MIN_ROOM, Role},
    segment::{Caps, Envelope, Segment, Subtype},
};
use super::{
    arq::Origin,
    error::CloseReason,
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
    #[default]
    Off,
    /// Extensions are spoken with peers that know them.
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
}

/// What a segment that came in tells the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::proto) struct Taken {
    /// It is the peer's. Its `wnd` and `una` count as those of a WINS.
    pub(in crate::proto) vouched: bool,
    /// It answers what was sent this long ago.
    pub(in crate::proto) rtt: Option<Duration>,
}

impl Taken {
    const NOTHING: Self = Self { vouched: false, rtt: None };
    const VOUCHED: Self = Self { vouched: true, rtt: None };
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
    stats: ExtensionStats,
}

impl Extension {
    pub(in crate::proto) fn new(role: Role, settings: &Settings, seed: SessionSeed, now: Instant) -> Self {
        Self { handshake: Handshake::new(role, settings, seed, now), stats: ExtensionStats::default() }
    }

    // ---- What is known ----

    /// What is known of the peer.
    pub(in crate::proto) const fn knowledge(&self) -> Knowledge {
        self.handshake.knowledge()
    }

    pub(in crate::proto) fn is_confirmed(&self) -> bool {
        self.knowledge() == Knowledge::Confirmed
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
    pub(in crate::proto) const fn fate(&self) -> Option<CloseReason> {
        self.handshake.fate()
    }

    pub(in crate::proto) const fn stats(&self) -> &ExtensionStats {
        &self.stats
    }

    // ---- What comes in ----

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
        if !has_own_rule && header.sn != self.handshake.tag() {
            self.stats.wrong_tag += 1;
            if matches!(segment, Segment::Answer(_)) {
                self.handshake.on_foreign_answer(now);
            }
            return Taken::NOTHING;
        }
        let verdict = self.judge(now, header, body, &segment, conditions);
        let taken = match verdict {
            Verdict::Dropped => Taken::NOTHING,
            Verdict::Contested => {
                // The place to ask the peer whether it still has this session (2.3).
                Taken::NOTHING
            }
            Verdict::TakenAfter(rtt) => {
                Taken { rtt: Some(rtt).filter(|_| origin == Origin::Received), ..Taken::VOUCHED }
            }
            Verdict::Taken => self.take(now, &segment),
        };
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
            Segment::Retry(cookie) => self.handshake.on_retry(header.ts, cookie),
            Segment::Pong(token) if self.handshake.on_pong(*token) => Verdict::Taken,
            // Its tag is that of the peer. Only what was asked tells whether it counts (R36, R37).
            Segment::Reset(_) => Verdict::Dropped,
            Segment::Abort(REFUSED) if self.handshake.on_refused() => Verdict::Taken,
            _ => self.handshake.on_tagged(now, conditions),
        }
    }

    /// Does what a segment of the peer asks for.
    fn take(&mut self, _now: Instant, segment: &Segment<'_>) -> Taken {
        match segment {
            Segment::Hello(_) | Segment::Answer(_) => Taken::VOUCHED,
            Segment::Retry(_) | Segment::Reset(_) => Taken::NOTHING,
            // End.
            Segment::Fin(_) | Segment::FinAck(_) => Taken::VOUCHED,
            Segment::Abort(_) => Taken::NOTHING,
            // Ping. A PONG may be the one of an ANSWER's token, which the handshake has taken.
            Segment::Ping(_) | Segment::Pong(_) => Taken::VOUCHED,
        }
    }

    /// Something with a right `una` was heard. `mark`: `frg` of the packet's last ACK, WASK or WINS.
    #[inline]
    pub(in crate::proto) fn on_heard(
        &mut self,
        now: Instant,
        mark: Option<u8>,
        conditions: impl Fn() -> Conditions,
    ) {
        if !self.handshake.is_settled() {
            self.handshake.on_heard(now, mark, &conditions());
        }
    }

    // ---- Time ----

    /// The timers, in the order of [`deadlines`](Self::deadlines).
    pub(in crate::proto) const TIMERS: [Timer; 1] = [Timer::Hello];

    /// When each of [`TIMERS`](Self::TIMERS) fires; `None` for one that is not set.
    pub(in crate::proto) fn deadlines(&self) -> [Option<Instant>; 1] {
        [self.handshake.deadline()]
    }

    /// Does what is due at `now`. Returns whether the peer's window is to be asked for.
    #[must_use]
    pub(in crate::proto) fn on_timeout(&mut self, now: Instant, conditions: &Conditions) -> bool {
        self.handshake.on_timeout(now, conditions)
    }

    /// The application waits for the peer. Returns whether the peer's window is to be asked for.
    #[must_use]
    pub(in crate::proto) fn ask(&mut self) -> bool {
        self.handshake.ask()
    }

    // ---- What goes out ----

    /// Whether a segment is to be sent in a packet of its own, before the stream's.
    #[inline]
    pub(in crate::proto) fn is_urgent(&self) -> bool {
        self.handshake.is_urgent()
    }

    /// Whether a segment waits that may go with a packet of the stream.
    #[inline]
    pub(in crate::proto) const fn has_appendable(&self) -> bool {
        self.handshake.has_appendable()
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
        let sent = self.handshake.write(now, envelope, out, around, conditions)?;
        self.stats.sent += 1;
        Some(Written { len: sent.len, begins: sent.begins, owed: sent.owed })
    }

    /// Writes segments that may stand behind those of the stream, as many as fit `out`. Returns how many bytes.
    pub(in crate::proto) fn append(&mut self, envelope: Envelope, out: &mut [u8]) -> usize {
        let len = self.handshake.append(envelope, out);
        self.stats.sent += u64::from(len > 0);
        len
    }
}

/// Whether a packet holds a HELLO with which a session can begin, and nothing else.
pub(in crate::proto) fn is_beginning(payload: &[u8]) -> bool {
    let Some((header, body)) = only_segment(payload) else { return false };
    match Segment::parse(Subtype::Hello, &header, body) {
        Ok(Segment::Hello(hello)) => hello.is_version_spoken() && hello.fields.unknown.is_empty(),
        _ => false,
    }
}

/// The HELLO that fills a packet, unparsed.
fn only_segment(payload: &[u8]) -> Option<(SegmentHeader, &[u8])> {
    // Most packets are none: a look at the bytes of `cmd` and `frg` tells.
    if payload.get(4..6)? != [Command::Extension as u8, Subtype::Hello as u8] {
        return None;
    }
    let segment = Segments::new(payload).next()?.ok()?;
    (HEADER_LEN + segment.1.len() == payload.len()).then_some(segment)
}

/// The reason of an ABORT that refuses a session.
const REFUSED: u16 = 5;
