//! Whether the peer is heard on a path.

use crate::proto::time::Instant;

/// Since when the peer has been silent, and how often it was asked since.
#[derive(Debug)]
pub(in crate::proto) struct Liveness {
    last_heard: Instant,
    /// Since when something is in flight and the peer has been silent.
    unanswered_since: Option<Instant>,
    /// Transmissions of the oldest segment since the peer was heard last.
    unanswered_sends: u32,
}

impl Liveness {
    pub(in crate::proto) const fn new(now: Instant) -> Self {
        Self { last_heard: now, unanswered_since: None, unanswered_sends: 0 }
    }

    pub(in crate::proto) const fn last_heard(&self) -> Instant {
        self.last_heard
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

    /// The peer was heard, but not by a segment: it still owes its answers.
    pub(in crate::proto) const fn on_heard(&mut self, now: Instant) {
        self.last_heard = now;
    }

    /// The peer has answered. It owes another answer while something is `in_flight`.
    pub(in crate::proto) fn on_answered(&mut self, now: Instant, in_flight: bool) {
        self.last_heard = now;
        self.unanswered_sends = 0;
        self.unanswered_since = in_flight.then_some(now);
    }
}
