//! What is done behind Startup, whose last window was too large by as much as waits in the queue then.
//!
//! The sender is silent until no more is under way than the path holds. All that time the link has enough to send, so what is confirmed then tells
//! its rate, or this session's part of it. In Startup itself it would be measured over a time in which it grew.

use core::time::Duration;

use super::SETTLING;
use crate::proto::{congestion::Acked, time::Instant};

/// A session whose Startup is over.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// Until too much is under way no more: since when, and bytes that were confirmed.
    silence: Option<(Instant, u64)>,
    /// Rounds until the queue is that of the window.
    rounds: u8,
}

impl Settling {
    pub(super) const fn begin(now: Instant) -> Self {
        Self { silence: Some((now, 0)), rounds: SETTLING }
    }

    /// Returns the rate, in bytes a second, once no more than `cwnd` is under way.
    pub(super) fn on_ack(&mut self, acked: &Acked, base: Duration, cwnd: u64) -> Option<u64> {
        let (since, bytes) = self.silence.as_mut()?;
        *bytes = bytes.saturating_add(acked.bytes);
        if acked.in_flight.bytes > cwnd {
            return None;
        }
        let (since, bytes) = (*since, *bytes);
        self.silence = None;
        let time = acked.now - since;
        if time < base / 4 {
            return None;
        }
        let rate = (u128::from(bytes) * 1_000_000).checked_div(time.as_micros())?;
        u64::try_from(rate).ok()
    }

    /// The window is another one now.
    pub(super) const fn on_new_window(&mut self) {
        self.rounds = SETTLING;
    }

    /// A round ends. Returns whether the queue is still that of the window before.
    pub(super) const fn end_round(&mut self) -> bool {
        let settles = self.rounds > 0;
        self.rounds = self.rounds.saturating_sub(1);
        settles
    }
}

#[cfg(test)]
mod tests;
