//! The end that connects, as long as its last message may be lost: it goes in front of packets until something of the peer was opened.

use alloc::vec::Vec;
use core::time::Duration;

use super::{
    Failing,
    packet::{Clear, write_last},
};
use crate::proto::{
    noise::{NoiseError, Refusal},
    time::Instant,
};

#[derive(Debug)]
pub(in crate::proto) struct Confirming {
    conv: u32,
    /// That of the peer's ANSWER.
    tag: u32,
    message: Vec<u8>,
    due: bool,
    /// It is not due again before this, whatever else arrives.
    rests_until: Instant,
    failing: Failing,
}

impl Confirming {
    pub(super) fn new(conv: u32, tag: u32, message: Vec<u8>) -> Self {
        Self { conv, tag, message, due: true, rests_until: Instant::default(), failing: Failing::default() }
    }

    /// Writes the last message, if it is due.
    pub(in crate::proto) fn write(&mut self, now: Instant, rto: Duration, out: &mut [u8]) -> Option<usize> {
        if !core::mem::take(&mut self.due) {
            return None;
        }
        self.rests_until = now + rto / 2;
        write_last(self.conv, now.as_ts(), self.tag, &self.message, out)
    }

    /// Takes in a packet in the clear: the peer may refuse the last message.
    pub(in crate::proto) fn input(&mut self, now: Instant, packet: &Clear<'_>) {
        // The tag of the message that it answers.
        if let Clear::Answer { tag, greeting, .. } = packet
            && *tag == self.tag
            && let Some(refusal) = Refusal::from_message(greeting.message)
        {
            self.failing.note(now, NoiseError::Refused(refusal));
        }
    }

    /// A timer may have fired: what is sent again is of no use without it.
    pub(in crate::proto) fn on_timeout(&mut self, now: Instant) {
        self.due |= now >= self.rests_until;
    }

    pub(in crate::proto) fn deadline(&self) -> Option<Instant> {
        self.failing.at()
    }

    /// What the user is to be told at `now`.
    pub(in crate::proto) fn expired(&self, now: Instant) -> Option<NoiseError> {
        self.failing.expired(now)
    }
}
