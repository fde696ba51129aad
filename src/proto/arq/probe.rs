//! Window probes: asking a peer that closed its window whether it is open again, and one that was never heard whether it is
//! there. Every peer answers them.

use core::time::Duration;

use crate::proto::time::{Instant, Micros};

const FIRST_WAIT: Duration = Duration::from_millis(500);
const MAX_WAIT: Duration = Duration::from_secs(120);
/// The first wait for a peer that was never heard: the RTO before there is a round-trip time. Somebody waits for the answer.
const FIRST_SEEK_WAIT: Duration = Duration::from_millis(200);
/// The longest.
const MAX_SEEK_WAIT: Duration = Duration::from_secs(2);

/// Sends WASK while the peer's window is zero and something waits to be sent. The first wait is 500 ms; each wait is half as
/// long again as the one before, up to 120 s. The numbers are ikcp's.
#[derive(Debug, Default)]
pub(super) struct Probe {
    wait: Micros,
    deadline: Option<Instant>,
    ask: bool,
    /// Whether the peer is asked for because it was never heard.
    seeks: bool,
    /// When the first probe since the peer was heard was due.
    unanswered_since: Option<Instant>,
}

impl Probe {
    /// Starts or stops probing.
    pub(super) fn update(&mut self, needed: bool, now: Instant) {
        if !needed {
            if self.deadline.is_some() && !self.seeks {
                *self = Self::default();
            }
        } else if self.deadline.is_none() {
            self.wait = FIRST_WAIT.into();
            self.deadline = Some(now + FIRST_WAIT);
        }
    }

    /// Asks now, and again until the peer is heard. The waits grow by half, from 200 ms to 2 s.
    pub(super) fn seek(&mut self, now: Instant) {
        if !self.seeks {
            *self = Self {
                wait: FIRST_SEEK_WAIT.into(),
                deadline: Some(now + FIRST_SEEK_WAIT),
                ask: true,
                seeks: true,
                unanswered_since: None,
            };
        }
    }

    /// The peer was heard, so the next probe can wait for its full time.
    pub(super) fn answered(&mut self) {
        if self.seeks {
            *self = Self::default();
        }
        if let Some(asked_at) = self.unanswered_since.take() {
            self.deadline = Some(asked_at + self.wait);
        }
    }

    /// Asks when it is time to. If nothing answers, it asks again after `patience` at most: one lost probe must not make
    /// the peer look dead. Returns whether it asks again.
    pub(super) fn on_timeout(&mut self, now: Instant, patience: Duration) -> bool {
        let mut again = false;
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.ask = true;
            again = self.unanswered_since.is_some();
            let wait = self.wait.get();
            let longer = wait + wait / 2;
            if self.seeks {
                self.wait = longer.min(MAX_SEEK_WAIT).into();
            } else if self.unanswered_since.is_none() {
                self.wait = longer.min(MAX_WAIT).into();
                self.unanswered_since = Some(now);
            }
            self.deadline = Some(now + self.wait.get().min(patience));
        }
        again
    }

    /// Asks once, whatever the peer's window.
    pub(super) const fn ask_now(&mut self) {
        self.ask = true;
    }

    /// Whether a WASK is to be sent.
    pub(super) const fn asks(&self) -> bool {
        self.ask
    }

    pub(super) const fn asked(&mut self) {
        self.ask = false;
    }

    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_was_never_heard_is_asked_for_until_it_is() {
        let mut probe = Probe::default();
        let mut now = Instant::ZERO;
        probe.seek(now);
        let mut waits = alloc::vec::Vec::new();
        for _ in 0..10 {
            assert!(probe.asks());
            probe.asked();
            // Neither asking for it once more nor the peer's window changes that.
            probe.seek(now);
            probe.update(false, now);
            assert!(!probe.asks());
            let deadline = probe.deadline().unwrap();
            waits.push((deadline - now).as_millis());
            now = deadline;
            probe.on_timeout(now, MAX_WAIT);
        }
        assert_eq!((&waits[..3], waits[9]), (&[200, 300, 450][..], 2_000));
        probe.answered();
        assert_eq!((probe.deadline(), probe.asks()), (None, false));
    }

    #[test]
    fn waits_between_probes_grow_by_half_up_to_two_minutes() {
        let mut probe = Probe::default();
        let mut now = Instant::ZERO;
        probe.update(true, now);
        let mut waits = alloc::vec::Vec::new();
        for _ in 0..20 {
            let deadline = probe.deadline().unwrap();
            waits.push((deadline - now).as_millis());
            probe.on_timeout(now, MAX_WAIT);
            assert!(!probe.asks());
            now = deadline;
            probe.on_timeout(now, MAX_WAIT);
            assert!(probe.asks());
            probe.asked();
            probe.answered();
        }
        assert_eq!(waits[..4], [500, 750, 1_125, 1_687]);
        assert_eq!(waits[19], 120_000);
        probe.update(false, now);
        assert_eq!(probe.deadline(), None);
    }
}
