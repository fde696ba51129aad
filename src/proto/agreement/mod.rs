//! How a session agrees on keys before anything else is said: the messages of [`noise`](super::noise) in packets, and when they are sent
//! again. The design is in `docs/secure-sessions.md`, section 7, and its rules are cited by number.
//!
//! ```text
//! packet      what is said in the clear: HELLO and ANSWER with a message each, the last message, RETRY and ABORT
//! asking      the end that connects: HELLO until its answer has come
//! confirming  the same with three messages: the last one until something of the peer was opened
//! ```
//!
//! The end that accepts is in `endpoint/agreements.rs`: there is no session there before the peer has shown that it has the keys.
//!
//! Nothing that comes in the clear ends an agreement at once: anybody can have sent it. What was refused, and why, is remembered. If
//! the true answer has not come [`PATIENCE`] later, that is what the user is told.

mod asking;
mod confirming;
mod packet;

use core::time::Duration;

pub(super) use self::{
    asking::{Asking, Outcome},
    confirming::Confirming,
    packet::{CONTEXT_LEN, Clear, Greeting, is_clear, own_context, parse, write_answer},
};
use super::{noise::NoiseError, time::Instant};

/// How long the true answer is waited for once something was refused: several of the waits between two HELLOs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Agreement on keys that is under way, at the end that connects. It is boxed as a whole, and gone after a round trip or two.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one, for a round trip")]
pub(super) enum Agreement {
    /// There are no keys yet.
    Asking(Asking),
    /// There are, and the peer has not shown yet that it has them, too.
    Confirming(Confirming),
}

/// The last error of an agreement, and when the user is told.
#[derive(Debug, Clone, Copy, Default)]
struct Failing {
    error: Option<NoiseError>,
    at: Option<Instant>,
}

impl Failing {
    fn note(&mut self, now: Instant, error: NoiseError) {
        // What says nothing does not take the place of what says something.
        if self.error.is_none() || !matches!(error, NoiseError::Malformed | NoiseError::Forged) {
            self.error = Some(error);
        }
        if !matches!(error, NoiseError::Malformed | NoiseError::Forged) {
            self.at.get_or_insert(now + PATIENCE);
        }
    }

    fn expired(&self, now: Instant) -> Option<NoiseError> {
        self.error.filter(|_| self.at.is_some_and(|at| at <= now))
    }
}
