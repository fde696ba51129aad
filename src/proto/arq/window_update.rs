//! Window updates that are sent again: telling a sender that it may go on until it does.
//!
//! A reader that pauses closes the window, and the sender stops. When the reader goes on, one WINS tells it. If that WINS is
//! lost, only the sender's next probe finds out, and the wait between probes grows to two minutes. The receiver knows better:
//! it has opened the window, and a sender that waited for that would have sent something a round trip later. So WINS is
//! repeated until a new segment comes, a few times with growing waits. A sender that has nothing left to send does not answer
//! at all, and its silence must cost little.

use core::time::Duration;

use crate::proto::time::{Instant, Micros};

/// How often WINS is repeated. Six in a row are lost once in 15,000 times where one in five is.
const REPEATS: u32 = 5;

/// Whether the peer may be waiting for the window to open, and when it is told again.
#[derive(Debug, Default)]
pub(super) enum WindowUpdate {
    /// The window was open when the peer was told of it last, or it has sent something new since.
    #[default]
    Idle,
    /// The peer was told that the window is closed.
    Closed,
    /// It was told by WINS that it is open again.
    Told {
        /// When it is told again.
        at: Instant,
        /// The wait before that.
        wait: Micros,
        left: u32,
    },
}

impl WindowUpdate {
    /// The peer was told that the window is closed.
    pub(super) const fn on_closed(&mut self) {
        *self = Self::Closed;
    }

    /// A WINS tells the peer that the window is open. `wait`: how long an answer takes.
    pub(super) fn on_wins(&mut self, now: Instant, wait: Duration) {
        *self = match *self {
            Self::Closed => Self::Told { at: now + wait, wait: wait.into(), left: REPEATS },
            // A WINS for another reason takes the place of a repeat: the peer has asked, or the window has grown further.
            Self::Told { wait, left: left @ 2.., .. } => {
                let wait = wait.get() * 2;
                Self::Told { at: now + wait, wait: wait.into(), left: left - 1 }
            }
            Self::Idle | Self::Told { .. } => Self::Idle,
        };
    }

    /// The peer has sent something new, so it knows.
    pub(super) const fn on_new_segment(&mut self) {
        *self = Self::Idle;
    }

    /// Whether the peer is to be told again now.
    pub(super) fn on_timeout(&mut self, now: Instant) -> bool {
        match self {
            Self::Told { at, .. } if *at <= now => {
                *at = Instant::NEVER;
                true
            }
            _ => false,
        }
    }

    /// When the peer is told again.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Told { at, .. } => Some(*at),
            Self::Idle | Self::Closed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(60);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// When WINS is sent, if nothing ever comes.
    fn told(update: &mut WindowUpdate, first: Instant) -> alloc::vec::Vec<u64> {
        let mut told = alloc::vec![first.as_micros() / 1_000];
        update.on_wins(first, WAIT);
        while let Some(now) = update.deadline() {
            assert!(!update.on_timeout(Instant::from_micros(now.as_micros() - 1)));
            assert!(update.on_timeout(now));
            assert!(!update.on_timeout(now), "it is sent once");
            told.push(now.as_micros() / 1_000);
            update.on_wins(now, WAIT);
        }
        told
    }

    #[test]
    fn an_opened_window_is_told_six_times_at_most() {
        let mut update = WindowUpdate::default();
        update.on_closed();
        assert_eq!(update.deadline(), None, "closed, nothing to tell");
        assert_eq!(told(&mut update, at(1_000)), [1_000, 1_060, 1_180, 1_420, 1_900, 2_860]);
        assert_eq!(update.deadline(), None);
    }

    #[test]
    fn a_window_that_was_not_closed_is_told_once() {
        assert_eq!(told(&mut WindowUpdate::default(), at(5)), [5]);
    }

    #[test]
    fn a_new_segment_or_a_closed_window_ends_the_repeats() {
        for end in [WindowUpdate::on_new_segment, WindowUpdate::on_closed] {
            let mut update = WindowUpdate::default();
            update.on_closed();
            update.on_wins(at(0), WAIT);
            end(&mut update);
            assert_eq!(update.deadline(), None);
            assert!(!update.on_timeout(at(10_000)));
        }
    }
}
