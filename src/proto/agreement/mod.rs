//! How a session agrees on keys before anything else is said: the messages of [`noise`](super::noise) in packets, and when they are sent
//! again. The design is in `docs/secure-sessions.md`, section 7, and its rules are cited by number.
//!
//! ```text
//! packet      what is said in the clear: HELLO and ANSWER with a message each, the last message, RETRY and ABORT
//! asking      the end that connects: HELLO until its answer has come
//! confirming  the same with three messages: the last one until something of the peer was opened
//! answering   the end that accepts, where it has taken early data: ANSWER until something of the peer was opened
//! ```
//!
//! Else the end that accepts is in `endpoint/agreements.rs`: there is no session there before the peer has shown that it has the keys.
//!
//! Nothing that comes in the clear ends an agreement at once: anybody can have sent it, and a message that was damaged on its way is
//! refused, too. What was refused, and why, is remembered. Once [`REFUSALS`] were said, and [`PATIENCE`] has passed since the first of
//! them without the true answer, that is what the user is told.

mod answering;
mod asking;
mod confirming;
mod packet;

use core::time::Duration;

pub use self::answering::EarlyData;
pub(super) use self::{
    answering::Answering,
    asking::{Asking, Outcome, SHORT as MIN_HELLO},
    confirming::Confirming,
    packet::{CONTEXT_LEN, Clear, Greeting, is_clear, own_context, parse, write_answer},
};
use super::{noise::NoiseError, time::Instant};

/// How long the true answer is waited for once something was refused: several of the waits between two HELLOs.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often something must have been refused: the peer says it again to each message that is sent again, if that is what does not
/// match.
const REFUSALS: u8 = 3;
/// What follows a refusal sooner than this is taken for a copy of it.
const SPACING: Duration = Duration::from_millis(20);

/// Agreement on keys that is under way. It is boxed as a whole, and gone after a round trip or two.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one, for a round trip")]
pub(super) enum Agreement {
    /// There are no keys yet.
    Asking(Asking),
    /// There are, and the peer has not shown yet that it has them, too.
    Confirming(Confirming),
    /// The same, at the end that accepts: early data was taken, and may be a recording.
    Answering(Answering),
}

/// The last error of an agreement, and when the user is told.
#[derive(Debug, Clone, Copy, Default)]
struct Failing {
    error: Option<NoiseError>,
    refusals: u8,
    /// When the first and the last refusal came.
    since: Option<Instant>,
    last: Option<Instant>,
}

impl Failing {
    fn note(&mut self, now: Instant, error: NoiseError) {
        let says_something = !matches!(error, NoiseError::Malformed | NoiseError::Forged);
        // What says nothing does not take the place of what says something.
        if self.error.is_none() || says_something {
            self.error = Some(error);
        }
        if says_something {
            self.count(now);
        }
    }

    /// Something was refused.
    fn count(&mut self, now: Instant) {
        self.since.get_or_insert(now);
        if self.last.is_none_or(|last| now - last >= SPACING) {
            self.refusals = self.refusals.saturating_add(1);
            self.last = Some(now);
        }
    }

    /// When the user is to be told.
    fn at(&self) -> Option<Instant> {
        self.since.filter(|_| self.refusals >= REFUSALS).map(|since| since + PATIENCE)
    }

    fn is_over(&self, now: Instant) -> bool {
        self.at().is_some_and(|at| at <= now)
    }

    fn expired(&self, now: Instant) -> Option<NoiseError> {
        self.error.filter(|_| self.is_over(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_refusal_and_its_copies_end_nothing_and_three_do_after_two_seconds() {
        let at = Instant::from_millis;
        let mut failing = Failing::default();
        for came in [1_000, 1_001, 1_019] {
            failing.note(at(came), NoiseError::WrongPsk);
        }
        assert_eq!((failing.at(), failing.expired(at(60_000))), (None, None));
        failing.note(at(1_200), NoiseError::Forged);
        failing.note(at(1_400), NoiseError::WrongPsk);
        assert_eq!(failing.at(), None, "what says nothing is none");
        failing.note(at(1_600), NoiseError::Cipher);
        assert_eq!(failing.expired(at(2_999)), None);
        assert_eq!(failing.expired(at(3_000)), Some(NoiseError::Cipher));
    }
}
