//! Whether the peer is there: what asks it, and what counts as its answer.
//!
//! | question | to whom | when |
//! |---|---|---|
//! | PUSH | every peer | something is in flight |
//! | WASK | every peer | its window is closed (`probe.rs`) |
//! | WASK | a peer without our extensions, or not known yet | silence (`keep_alive.rs`), the oldest segment was sent three times, or it acknowledges what it should not |
//! | PING | a peer that has confirmed our extensions | the same |
//!
//! Each of these owes an answer, and the session ends after [`dead_timeout`](crate::KcpConfigBuilder::dead_timeout) without
//! one. What counts as heard is in [`Liveness`](crate::proto::path::Liveness). Who answers in the peer's place is found by
//! `ghost.rs`, and for peers with extensions by RESET.

use core::time::Duration;

use super::{Arq, ghost::Ghost, keep_alive::KeepAlive, peer_time::PeerTime};
use crate::proto::{seq, time::Instant};

/// Transmissions of the oldest segment without any answer, after which the peer is asked whether it knows the session.
const ASK_AFTER: u32 = 3;
/// After so long without the peer's clock, a later time cannot be told from an earlier one: 12 of the 49 days in which `ts`
/// goes round.
const CLOCK_LASTS: Duration = Duration::from_millis(1 << 30);

/// How the peer is asked, and what is known of its clock.
#[derive(Debug)]
pub(super) struct Alive {
    pub(super) keep_alive: KeepAlive,
    pub(super) ghost: Ghost,
    pub(super) peer_time: PeerTime,
    /// A ghost was found in the peer's place.
    pub(super) is_ghost: bool,
    /// The peer answers PING.
    is_confirmed: bool,
    /// What had been acknowledged when the peer was confirmed, until it shows that it knows of that: see
    /// [`Arq::on_pong`].
    unproven: Option<u32>,
    /// A PING is to go before the first PUSH: see [`Arq::introduce_itself`].
    introduces: bool,
    /// A PING is to go before each resend of the first segment: the same.
    introduces_resends: bool,
    /// WASK, WINS and PING of the peer carry a time that goes forward, and nobody else can have written it.
    has_clock: bool,
    /// PING is to be sent.
    ping_due: bool,
    /// The latest `ts` of a WASK, WINS or PING of the peer, and when it came.
    peer_clock: Option<(u32, Instant)>,
}

impl Alive {
    pub(super) fn new(silence: Option<Duration>, first_sn: u32, conv: u32) -> Self {
        Self {
            // Clients choose their conv at random, so its scattered bits set the sessions apart.
            keep_alive: KeepAlive::new(silence, conv.wrapping_mul(0x9e37_79b1)),
            ghost: Ghost::new(first_sn),
            peer_time: PeerTime::default(),
            is_ghost: false,
            is_confirmed: false,
            unproven: None,
            introduces: false,
            introduces_resends: false,
            has_clock: false,
            ping_due: false,
            peer_clock: None,
        }
    }
}

impl Arq {
    // ---- What is known of the peer ----

    /// This end began the session.
    pub(in crate::proto) const fn set_connected(&mut self) {
        self.alive.ghost.enable();
    }

    /// The other end began the session. `peer_asks_after`: the silence after which it asks, as far as it has said.
    pub(in crate::proto) fn set_accepted(&mut self, peer_asks_after: Option<Duration>) {
        self.alive.keep_alive.give_way(peer_asks_after);
    }

    /// The peer has confirmed our extensions: from here on it is asked by PING. `asks_first`: this end does, or the silence after
    /// which the peer does. `is_authenticated`: only a holder of the key can have made its packets.
    pub(in crate::proto) fn set_confirmed(
        &mut self,
        now: Instant,
        asks_first: Result<(), Duration>,
        is_authenticated: bool,
    ) {
        self.alive.is_confirmed = true;
        self.alive.has_clock = is_authenticated;
        let una = self.buffer.una();
        if self.alive.ghost.is_enabled() {
            self.alive.peer_time.confirm();
            self.alive.unproven = Some(una).filter(|una| *una != self.alive.ghost.first_sn());
        }
        self.alive.ghost.disable();
        match asks_first {
            Ok(()) => self.alive.keep_alive.lead(),
            Err(peer_asks_after) => self.alive.keep_alive.give_way(Some(peer_asks_after)),
        }
        if self.alive.unproven.is_some() {
            self.alive.keep_alive.ask_now(now, &self.path.liveness, self.path.rtt().rto());
        }
    }

    /// The peer has answered a PING, with this `una`.
    ///
    /// A server may be started again between its first ACKs and its ANSWER. The new one answers the HELLO that comes again, and
    /// takes the session for a new one. It waits for the first segments, which nobody sends any more. It does not say so, since it
    /// knows the session. But its PONG says that it has not received what had been acknowledged before any PING was sent.
    pub(super) fn on_pong(&mut self, una: u32) {
        if let Some(acknowledged) = self.alive.unproven.take() {
            self.alive.is_ghost |= seq::before(una, acknowledged);
        }
    }

    pub(in crate::proto) const fn is_confirmed(&self) -> bool {
        self.alive.is_confirmed
    }

    /// Sends a PING before the first PUSH, unless that has been sent, and before each resend of it. By then this end may have another
    /// address, and does not know it, or the peer may have been restarted: then the PUSH alone would begin another session at the peer,
    /// and the PING tells whose it is.
    pub(in crate::proto) const fn introduce_itself(&mut self) {
        self.alive.introduces = self.buffer.nxt() == 0;
        self.alive.introduces_resends = self.buffer.una() == 0;
    }

    /// Has a PING sent if the first segment is about to be sent again, and a PING goes before it.
    #[inline]
    pub(super) fn introduce_resend(&mut self, now: Instant) {
        if self.alive.introduces_resends {
            self.introduce_resend_of_first(now);
        }
    }

    #[cold]
    fn introduce_resend_of_first(&mut self, now: Instant) {
        self.alive.introduces_resends = self.buffer.una() == 0;
        let is_due = |at: Instant| at <= now;
        self.alive.ping_due |= self.alive.introduces_resends
            && (self.early_due || self.buffer.next_timeout(&self.backoff()).is_some_and(is_due));
    }

    /// Since when an answer is due and nothing has come.
    pub(in crate::proto) const fn unanswered_since(&self) -> Option<Instant> {
        self.path.liveness.unanswered_since()
    }

    /// Whether the oldest segment has been sent `limit` times since the peer was heard last, and would have to be sent
    /// again.
    pub(in crate::proto) fn is_link_dead(&self, now: Instant, limit: u32) -> bool {
        self.path.liveness.unanswered_sends() >= limit
            && self.buffer.next_timeout(&self.backoff()).is_some_and(|at| at <= now)
    }

    /// When payload last passed in either direction; the beginning of the session if none did.
    pub(in crate::proto) const fn last_payload(&self) -> Instant {
        self.path.liveness.last_payload()
    }

    /// Payload passed beside the stream. It is no sign of life: without a number, an old datagram looks like a new one.
    pub(in crate::proto) const fn note_payload(&mut self, now: Instant) {
        self.path.liveness.on_payload(now);
    }

    /// Whether another peer than the session's answers in its place, which does not know what passed before.
    pub(in crate::proto) const fn is_ghost(&self) -> bool {
        self.alive.is_ghost
    }

    // ---- Questions ----

    /// A question is sent.
    pub(in crate::proto) fn note_question(&mut self, now: Instant) {
        self.path.liveness.on_send(now);
        self.alive.ghost.on_ask(now);
    }

    /// Whether PING is to be sent.
    pub(in crate::proto) const fn is_ping_due(&self) -> bool {
        self.alive.ping_due || self.alive.introduces && self.queue.unsent() > 0
    }

    /// As [`is_ping_due`](Self::is_ping_due). From here on it is not.
    pub(in crate::proto) const fn take_ping_due(&mut self) -> bool {
        let is_due = self.is_ping_due();
        if is_due {
            self.alive.ping_due = false;
            self.alive.introduces = false;
        }
        is_due
    }

    /// Asks a peer that has been silent for long enough.
    pub(super) fn ask_silent_peer(&mut self, now: Instant) {
        let rto = self.path.rtt().rto();
        if self.alive.keep_alive.on_timeout(now, &self.path.liveness, rto) {
            self.ask();
        }
    }

    /// Asks a peer that may have forgotten the session: it acknowledges segments by a `una` that is not its own, so that nothing
    /// may be in flight any more which would be resent, or it does not tell its window.
    #[cold]
    pub(super) fn doubt_peer(&mut self, now: Instant) {
        let rto = self.path.rtt().rto();
        if self.alive.is_confirmed || self.alive.ghost.is_enabled() {
            self.alive.keep_alive.ask_now(now, &self.path.liveness, rto);
        }
    }

    /// Asks a peer that does not answer what is resent. A listener that has started again may acknowledge nothing of it, and
    /// then only its answer to a question shows that it has forgotten the session.
    pub(super) const fn ask_after_resends(&mut self) {
        let asks = self.alive.is_confirmed || self.alive.ghost.is_enabled();
        if asks && self.path.liveness.unanswered_sends() >= ASK_AFTER {
            self.ask();
        }
    }

    const fn ask(&mut self) {
        if self.alive.is_confirmed {
            self.alive.ping_due = true;
        } else {
            self.probe.ask_now();
        }
    }

    // ---- Answers ----

    /// Whether a WASK, WINS or PING with this `ts` is one that the peer cannot have sent before. Of a peer without our
    /// extensions all count, since kcp-go writes no time into WINS. So do all without authentication: whoever can send one
    /// of these could write any time into it.
    pub(in crate::proto) fn is_fresh(&mut self, now: Instant, ts: u32) -> bool {
        if !self.alive.has_clock {
            return true;
        }
        let known = self.alive.peer_clock.filter(|(_, at)| now - *at < CLOCK_LASTS);
        if known.is_some_and(|(latest, _)| !seq::before(latest, ts)) {
            return false;
        }
        self.alive.peer_clock = Some((ts, now));
        true
    }

    /// The peer has answered, and not by a segment of the stream.
    pub(in crate::proto) fn note_answer(&mut self, now: Instant) {
        self.path.liveness.on_heard(now, self.buffer.unacked() > 0);
    }

    /// A WINS came whose `una` is not the peer's.
    #[cold]
    pub(super) fn look_for_ghost(&mut self, now: Instant, una: u32) {
        self.alive.is_ghost |= self.alive.ghost.on_other_una(now, una, self.path.rtt().rto());
    }
}
