//! Peers that have forgotten the session: the ghosts of legacy listeners.
//!
//! A listener of kcp-go or tokio_kcp that is started again, or has timed a session out, opens a new session for any packet of
//! it, whatever its numbers are. Such a *ghost* answers and acknowledges, but it expects segment 0 and never gets it: what is
//! written to it is lost. It gives itself away by its `una`, which has gone back to the first number.
//!
//! One such segment says little. It may have been sent before anything was acknowledged, and have been late or doubled on
//! its way. So WASK is asked, twice, some time apart. A ghost answers each of them by WINS with the first number as `una`. A
//! peer that still knows the session answers with the `una` that it had, and one such answer clears it. And where WASK was
//! asked before anything was acknowledged, so that there are true answers which look like a ghost's, nothing is concluded
//! for as long as these may be under way.
//!
//! Only the end that connected looks for ghosts: a listener has no peer that would open a session for its packets. What this
//! cannot find is a ghost of a session in which nothing was ever acknowledged: its `una` was the first number before.

use core::time::Duration;

use crate::proto::time::Instant;

/// Least time between the two WASKs, if the RTO is shorter.
const MIN_APART: Duration = Duration::from_millis(500);
/// For this long after `una` has left the first number, segments with that number are late ones of the beginning.
const LATE: Duration = Duration::from_secs(3);
/// The same where WASK was asked in the beginning, so that there may be many of them. It is the time for which the crate
/// takes packets of a session for possible after its end, too.
const LATE_ANSWERS: Duration = Duration::from_secs(60);

/// What is known of a ghost in the peer's place.
#[derive(Debug)]
pub(super) struct Ghost {
    /// The first number: a `una` of the beginning.
    first_sn: u32,
    /// Whether it is looked for.
    is_enabled: bool,
    /// Whether a `una` that is known would change anything here. It is read with every packet.
    needs_una: bool,
    /// From when on a `una` of the beginning is no late one. `None` before the peer's has left the first number.
    trusted_from: Option<Instant>,
    /// When WASK was sent last.
    asked: Option<Instant>,
    /// When the WASK was sent that a `una` of the beginning answered.
    suspect: Option<Instant>,
}

impl Ghost {
    /// Nobody looks for a ghost yet.
    pub(super) const fn new(first_sn: u32) -> Self {
        Self { first_sn, is_enabled: false, needs_una: false, trusted_from: None, asked: None, suspect: None }
    }

    /// This end has connected, so that its peer may be a listener that forgets.
    pub(super) const fn enable(&mut self) {
        self.is_enabled = true;
        self.needs_una = true;
    }

    /// The number of the first segment.
    pub(super) const fn first_sn(&self) -> u32 {
        self.first_sn
    }

    pub(super) const fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// The peer is one that says so when it does not know a session: nobody needs to look for ghosts.
    pub(super) const fn disable(&mut self) {
        *self = Self::new(self.first_sn);
    }

    /// Whether [`on_known_una`](Self::on_known_una) is to be called.
    #[inline]
    pub(super) const fn needs_una(&self) -> bool {
        self.needs_una
    }

    /// A segment came with a `una` that the peer may have. No ghost would send one past the first number.
    #[cold]
    pub(super) fn on_known_una(&mut self, now: Instant, una: u32) {
        self.suspect = None;
        if una != self.first_sn {
            let late = if self.asked.is_some() { LATE_ANSWERS } else { LATE };
            self.trusted_from.get_or_insert(now + late);
            self.needs_una = false;
        }
    }

    /// WASK is sent.
    pub(super) const fn on_ask(&mut self, now: Instant) {
        self.asked = Some(now);
    }

    /// A WINS came whose `una` is not the peer's. Returns whether the peer is a ghost.
    #[cold]
    pub(super) fn on_other_una(&mut self, now: Instant, una: u32, rto: Duration) -> bool {
        let (true, Some(from), Some(asked)) = (self.is_enabled, self.trusted_from, self.asked) else {
            return false;
        };
        if una != self.first_sn || now < from {
            return false;
        }
        self.needs_una = true;
        let first = *self.suspect.get_or_insert(asked);
        asked - first >= rto.max(MIN_APART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u32 = 7;
    const RTO: Duration = Duration::from_millis(200);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn beginning() -> Ghost {
        let mut ghost = Ghost::new(FIRST);
        ghost.enable();
        ghost
    }

    fn begun() -> Ghost {
        let mut ghost = beginning();
        ghost.on_known_una(at(0), FIRST + 1);
        ghost
    }

    #[test]
    fn two_answers_to_questions_that_are_apart_tell_a_ghost() {
        let mut ghost = begun();
        ghost.on_ask(at(20_000));
        assert!(!ghost.on_other_una(at(20_100), FIRST, RTO));
        // Another answer to the same question, or to one that followed at once, says no more.
        assert!(!ghost.on_other_una(at(25_000), FIRST, RTO));
        ghost.on_ask(at(20_200));
        assert!(!ghost.on_other_una(at(25_000), FIRST, RTO));
        ghost.on_ask(at(20_500));
        assert!(ghost.on_other_una(at(25_001), FIRST, RTO));
    }

    #[test]
    fn the_questions_are_an_rto_apart() {
        let mut ghost = begun();
        let rto = Duration::from_secs(2);
        ghost.on_ask(at(20_000));
        assert!(!ghost.on_other_una(at(20_100), FIRST, rto));
        ghost.on_ask(at(21_999));
        assert!(!ghost.on_other_una(at(22_100), FIRST, rto));
        ghost.on_ask(at(22_000));
        assert!(ghost.on_other_una(at(22_100), FIRST, rto));
    }

    #[test]
    fn a_known_una_clears_the_peer() {
        let mut ghost = begun();
        ghost.on_ask(at(20_000));
        assert!(!ghost.on_other_una(at(20_100), FIRST, RTO));
        assert!(ghost.needs_una());
        ghost.on_known_una(at(20_200), FIRST + 1);
        assert!(!ghost.needs_una());
        ghost.on_ask(at(30_000));
        assert!(!ghost.on_other_una(at(30_100), FIRST, RTO));
        ghost.on_ask(at(31_000));
        assert!(ghost.on_other_una(at(31_100), FIRST, RTO));
    }

    #[test]
    fn what_nobody_asked_for_is_late_and_tells_nothing() {
        let mut ghost = begun();
        assert!(!ghost.on_other_una(at(60_000), FIRST, RTO), "not asked");
        ghost.on_ask(at(1_000));
        assert!(!ghost.on_other_una(at(1_100), FIRST, RTO), "too soon after the beginning");
        ghost.on_ask(at(2_000));
        assert!(!ghost.on_other_una(at(2_999), FIRST, RTO), "too soon after the beginning");
    }

    /// Before anything was acknowledged, the true peer has answered as a ghost would.
    #[test]
    fn questions_of_the_beginning_have_late_answers() {
        let mut ghost = beginning();
        ghost.on_ask(at(0));
        ghost.on_known_una(at(1_000), FIRST + 1);
        for second in 20..61 {
            ghost.on_ask(at(second * 1_000));
            assert!(!ghost.on_other_una(at(second * 1_000 + 10), FIRST, RTO), "{second}");
        }
        ghost.on_ask(at(62_000));
        assert!(!ghost.on_other_una(at(62_010), FIRST, RTO), "the first of two");
        ghost.on_ask(at(63_000));
        assert!(ghost.on_other_una(at(63_010), FIRST, RTO));
    }

    #[test]
    fn a_una_of_the_beginning_begins_nothing() {
        let mut ghost = beginning();
        ghost.on_known_una(at(0), FIRST);
        assert!(ghost.needs_una());
        ghost.on_ask(at(20_000));
        assert!(!ghost.on_other_una(at(20_100), FIRST, RTO));
        ghost.on_ask(at(21_000));
        assert!(!ghost.on_other_una(at(21_100), FIRST, RTO));
    }

    #[test]
    fn nobody_looks_where_nothing_was_acknowledged_or_the_peer_connected() {
        let mut accepted = Ghost::new(FIRST);
        accepted.on_known_una(at(0), FIRST + 1);
        let mut disabled = begun();
        disabled.disable();
        for mut ghost in [accepted, beginning(), disabled] {
            for second in 10..20 {
                ghost.on_ask(at(second * 1_000));
                assert!(!ghost.on_other_una(at(second * 1_000 + 50), FIRST, RTO));
            }
        }
    }
}
