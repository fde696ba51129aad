//! Whether the peer is heard on a path.
//!
//! Not everything that arrives is a sign of life. Who has recorded packets of a peer can send them again after that peer's
//! end, and a cipher does not tell: it opens them as it did before. The replay window only knows the last few hundred. So
//! the peer counts as heard by what it cannot have said before: a PUSH that is new, an ACK of something that no ACK had
//! confirmed, a `una` that has grown, the answer to a PING. WASK and WINS have no number: `Arq::is_fresh` says which of
//! them count.

use crate::proto::time::Instant;

/// Since when the peer has been silent, and how often it was asked since.
#[derive(Debug)]
pub(in crate::proto) struct Liveness {
    last_heard: Instant,
    /// When payload of the peer last came, or payload of ours was last confirmed.
    last_payload: Instant,
    /// Since when something is in flight and the peer has been silent.
    unanswered_since: Option<Instant>,
    /// Transmissions of the oldest segment since the peer was heard last.
    unanswered_sends: u32,
}

impl Liveness {
    pub(in crate::proto) const fn new(now: Instant) -> Self {
        Self { last_heard: now, last_payload: now, unanswered_since: None, unanswered_sends: 0 }
    }

    pub(in crate::proto) const fn last_heard(&self) -> Instant {
        self.last_heard
    }

    pub(in crate::proto) const fn last_payload(&self) -> Instant {
        self.last_payload
    }

    /// Since when an answer is due and nothing has come.
    pub(in crate::proto) const fn unanswered_since(&self) -> Option<Instant> {
        self.unanswered_since
    }

    /// Transmissions of the oldest segment since the peer was heard last.
    pub(in crate::proto) const fn unanswered_sends(&self) -> u32 {
        self.unanswered_sends
    }

    /// Something is sent that the peer must answer.
    #[inline]
    pub(in crate::proto) fn on_send(&mut self, now: Instant) {
        self.unanswered_since.get_or_insert(now);
    }

    /// The oldest segment in flight is sent for the first time.
    #[inline]
    pub(in crate::proto) const fn on_send_of_oldest(&mut self) {
        self.unanswered_sends = 1;
    }

    /// The oldest segment in flight is sent again.
    pub(in crate::proto) const fn on_resend_of_oldest(&mut self) {
        self.unanswered_sends += 1;
    }

    /// Payload passed, in either direction.
    pub(in crate::proto) const fn on_payload(&mut self, now: Instant) {
        self.last_payload = now;
    }

    /// What was in flight is given up: the peer owes nothing more.
    pub(in crate::proto) const fn on_given_up(&mut self) {
        self.unanswered_sends = 0;
        self.unanswered_since = None;
    }

    /// The peer was heard. It owes another answer while something is `in_flight`.
    pub(in crate::proto) fn on_heard(&mut self, now: Instant, in_flight: bool) {
        self.last_heard = now;
        self.unanswered_sends = 0;
        self.unanswered_since = in_flight.then_some(now);
    }
}
