//! Whether the peer receives what is sent to its address, and how little is sent before that is known.
//!
//! The source address of a UDP packet is easily forged. Who sends a few bytes in the name of a victim must not have it sent many.
//! So a session that a peer has begun sends little until the peer has shown that it hears this end:
//!
//! * Three times the bytes that came from there, as QUIC does ([`AMPLIFICATION`]). What is cut from a stream is cut to fit. A
//!   message that cannot be cut may go once, as long as that makes no more than [`MESSAGE`] bytes. Whoever forges one address in
//!   many sessions must not draw a message of each, so sessions of an endpoint wait for their turn (`endpoint::half_open`).
//! * Whatever is lost of that: a *probe* after each RTO, which doubles up to 3 s; the first one at once, within those bytes, where
//!   nothing else asks for an ACK. It is an empty PUSH, 24 bytes, so no longer than what came. With the probes, no more than ten
//!   times the bytes that came are sent ([`AMPLIFICATION_IN_ALL`]), or where a message went, [`MESSAGE_IN_ALL`].
//!
//! # What shows that the peer hears
//!
//! An ACK returns the `ts` of the PUSH that it acknowledges. The clock of a session begins at a random value, so nobody can
//! foretell that `ts` who does not read what is sent. `una`, the window and `sn` begin at known values and show nothing. Peers
//! with our extensions show it by the tag of this end, before long.
//!
//! # The probe
//!
//! It has the `sn` before the first one that is not acknowledged. The peer has received that, or it is the one before the first of
//! all. Each implementation of KCP acknowledges such a PUSH, with its `ts`, and takes nothing else from it. So a peer whose
//! first answer was lost, whose application writes nothing, or who waits for a message that may not go yet, shows in one round
//! trip that it hears. It is a question as any other: a peer that answers none is dead after a while.

use alloc::boxed::Box;
use core::time::Duration;

use crate::proto::{
    time::{Instant, earliest},
    wire::HEADER_LEN,
};

/// So many times the bytes that came may be sent.
const AMPLIFICATION: u64 = 3;
/// The same with the probes.
const AMPLIFICATION_IN_ALL: u64 = 10;
/// Most bytes with a message that cannot be cut, unless more came: what leaves room for probes.
const MESSAGE: u64 = 1_200;
/// The same with the probes.
const MESSAGE_IN_ALL: u64 = 1_400;
/// How long a message may go beyond what came, once its turn has come. If turns could be saved, all who were begun in one name would
/// be told at once what an application tells all. By then a true peer was asked twice to show that it hears, so it waits for nothing.
const MESSAGE_TURN: Duration = Duration::from_secs(1);
/// The longest wait between two probes.
const MAX_WAIT: Duration = Duration::from_secs(3);
/// The times of so many packets are known, beside those of what is in flight: of probes, above all.
const REMEMBERED: usize = 8;

/// Whether the peer has shown that it hears this end.
#[derive(Debug, Default)]
pub(in crate::proto) struct AddressValidation(Option<Box<Pending>>);

/// It has not.
#[derive(Debug)]
struct Pending {
    /// Bytes of packets that came from there.
    received: u64,
    sent: u64,
    /// Packets that were sent and that the peer acknowledges, and the times in the last of them: `ts`, from a random base.
    questions: usize,
    times: [u32; REMEMBERED],
    /// Something waits for more bytes than may be sent.
    blocked: bool,
    /// It is a message whose turn is to come.
    awaits_turn: bool,
    /// All that was due by then has been looked at.
    served_at: Instant,
    /// When a message may go that is longer than what is left, for [`MESSAGE_TURN`]; `None` for any time.
    message_at: Option<Instant>,
    /// Such a message was sent.
    message_sent: bool,
    /// Whether a probe is to be sent, when the next one is, and how long the one after that waits.
    probe_due: bool,
    /// The packet that is about to be sent is a probe.
    probing: bool,
    probe_at: Option<Instant>,
    wait: Duration,
}

impl AddressValidation {
    /// The peer has begun the session, and anybody may have done so in its name.
    pub(in crate::proto) fn begin(&mut self) {
        self.0 = Some(Box::new(Pending {
            received: 0,
            sent: 0,
            questions: 0,
            times: [0; REMEMBERED],
            blocked: false,
            awaits_turn: false,
            served_at: Instant::ZERO,
            message_at: None,
            message_sent: false,
            probe_due: false,
            probing: false,
            probe_at: None,
            wait: Duration::ZERO,
        }));
    }

    /// A message that is longer than what is left may go from `at` on for [`MESSAGE_TURN`]. Else it has to wait until all is shown.
    pub(in crate::proto) fn set_message_at(&mut self, at: Instant) {
        if let Some(pending) = &mut self.0 {
            pending.message_at = Some(at);
        }
    }

    /// Whether a session that began with so many bytes may send any message within three times of them.
    pub(in crate::proto) const fn has_room_for_message(bytes: usize) -> bool {
        bytes as u64 * AMPLIFICATION >= MESSAGE
    }

    /// Whether it is still to be shown.
    #[inline]
    pub(in crate::proto) const fn is_pending(&self) -> bool {
        self.0.is_some()
    }

    /// The peer has shown it.
    pub(in crate::proto) fn finish(&mut self) {
        self.0 = None;
    }

    /// If something waits for more bytes than may be sent: when deadlines were looked at last. What was due by then is sent when
    /// more may be.
    pub(in crate::proto) fn blocked_at(&self) -> Option<Instant> {
        self.0.as_ref().filter(|pending| pending.blocked).map(|pending| pending.served_at)
    }

    /// When deadlines were looked at last.
    pub(in crate::proto) fn served_at(&self) -> Instant {
        self.0.as_ref().map_or(Instant::ZERO, |pending| pending.served_at)
    }

    /// When a probe is to be sent, if one is, or a message that waits for its turn.
    pub(in crate::proto) fn deadline(&self) -> Option<Instant> {
        let pending = self.0.as_ref()?;
        earliest([pending.probe_at, pending.message_at.filter(|_| pending.awaits_turn)])
    }

    /// A packet of `bytes` came.
    pub(in crate::proto) fn on_received(&mut self, bytes: usize) {
        if let Some(pending) = &mut self.0 {
            pending.received += bytes as u64;
            (pending.blocked, pending.awaits_turn) = (false, false);
        }
    }

    /// Whether an ACK with this `ts` shows that the peer hears this end.
    pub(in crate::proto) fn is_echo(&self, ts: u32) -> bool {
        self.0.as_ref().is_some_and(|pending| {
            let known = pending.questions.min(REMEMBERED);
            pending.times[..known].contains(&ts)
        })
    }

    /// How many bytes the next packet may have; no limit where all is shown. `is_message`: what is sent next is a message that cannot
    /// be cut.
    pub(in crate::proto) fn allowance(&self, now: Instant, is_message: bool) -> usize {
        let Some(pending) = &self.0 else { return usize::MAX };
        let mut limit = pending.received * AMPLIFICATION;
        let is_turn = || pending.message_at.is_none_or(|at| at <= now && now - at < MESSAGE_TURN);
        if is_message && !pending.message_sent && is_turn() {
            limit = limit.max(MESSAGE);
        }
        usize::try_from(limit.saturating_sub(pending.sent)).unwrap_or(usize::MAX)
    }

    /// How many bytes a packet may have that asks the peer to show that it hears this end, or tells it of the session's end.
    pub(in crate::proto) fn allowance_in_all(&self) -> usize {
        let Some(pending) = &self.0 else { return usize::MAX };
        let by_message = if pending.message_sent { MESSAGE_IN_ALL } else { 0 };
        let limit = by_message.max(pending.received * AMPLIFICATION_IN_ALL);
        usize::try_from(limit.saturating_sub(pending.sent)).unwrap_or(usize::MAX)
    }

    /// A packet of `bytes` is sent with the time `ts`. `asks`: an ACK to it is to come.
    pub(in crate::proto) fn on_sent(
        &mut self,
        now: Instant,
        bytes: usize,
        ts: u32,
        asks: bool,
        rto: Duration,
    ) {
        let Some(pending) = &mut self.0 else { return };
        pending.sent += bytes as u64;
        let is_probe = core::mem::take(&mut pending.probing);
        pending.message_sent |= !is_probe && pending.sent > pending.received * AMPLIFICATION;
        if pending.wait.is_zero() {
            pending.wait = rto;
        }
        if asks {
            pending.times[pending.questions % REMEMBERED] = ts;
            pending.questions += 1;
        }
        if asks || pending.probe_at.is_none() {
            pending.probe_at = Some(now + pending.wait);
        }
    }

    /// Nothing more is sent now; `blocked`: although something waits. `is_message`: what is sent next is a message that cannot be cut.
    /// `probe`: bytes of the packet that a probe has.
    pub(in crate::proto) fn on_idle(&mut self, now: Instant, blocked: bool, is_message: bool, probe: usize) {
        let Some(pending) = &mut self.0 else { return };
        pending.blocked = blocked;
        let is_to_come = !pending.message_sent && pending.message_at.is_some_and(|at| now < at);
        pending.awaits_turn = blocked && is_message && is_to_come;
        // No ACK is to come. The sooner one is asked for, the sooner the rest can go.
        let is_within = pending.sent + probe as u64 <= pending.received * AMPLIFICATION;
        pending.probe_due |= blocked && pending.questions == 0 && is_within;
    }

    /// Deadlines are looked at. Has a probe sent whose time has come.
    pub(in crate::proto) fn on_timeout(&mut self, now: Instant) {
        let Some(pending) = &mut self.0 else { return };
        pending.served_at = now;
        if pending.probe_at.take_if(|at| *at <= now).is_some() {
            pending.probe_due = true;
            pending.wait = (pending.wait * 2).min(MAX_WAIT);
        }
    }

    /// Whether a probe is to be sent, in a packet of its own that has `around` bytes more.
    pub(in crate::proto) fn is_probe_due(&self, around: usize) -> bool {
        self.0.as_ref().is_some_and(|pending| pending.probe_due)
            && HEADER_LEN + around <= self.allowance_in_all()
    }

    /// A probe is sent.
    pub(in crate::proto) fn on_probe(&mut self) {
        if let Some(pending) = &mut self.0 {
            pending.probe_due = false;
            pending.probing = true;
        }
    }
}
