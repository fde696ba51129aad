//! The peer's time, by which what it sends is told from what another session in its place sends.
//!
//! The `ts` of a session begins at a value that nobody can foretell, and goes forward with time. A PUSH says of no session which one it
//! is, and a server that was restarted may have begun one for a copy of a client's first packets, which the path had still. What it
//! writes has the numbers that the client waits for: the client would read bytes of both. So the end that began the session
//! learns from what answers it how far the peer's `ts` is ahead of its own clock, and takes nothing that is far from that.
//!
//! A clock that jumps, as when a machine was suspended, looks the same. So the peer is asked then, and its answer tells its time anew.
//! What was not taken comes again.

use super::Arq;
use crate::proto::{seq, time::Instant};

/// How far `ts` may be from what is expected, in milliseconds: packets are late, and clocks differ. Of the times of another
/// session, one in 16,000 is so near.
const TOLERANCE: u32 = 1 << 17;

#[derive(Debug, Default)]
pub(super) struct PeerTime {
    /// By how much the peer's `ts` is ahead of this end's clock.
    ahead: Option<u32>,
    /// The peer has confirmed that it knows the extensions, and so that its `ts` is a time.
    is_confirmed: bool,
}

impl PeerTime {
    /// Whether a segment with this `ts` may be the peer's. As long as the peer may be one whose `ts` says nothing, all may, and the
    /// first of them is noted.
    #[inline]
    pub(super) fn admits(&mut self, now: Instant, ts: u32) -> bool {
        if !self.is_confirmed {
            self.ahead.get_or_insert(ts.wrapping_sub(now.as_ts()));
            return true;
        }
        self.is_near(now, ts)
    }

    #[inline]
    fn is_near(&self, now: Instant, ts: u32) -> bool {
        let expected = |ahead| now.as_ts().wrapping_add(ahead);
        self.ahead.is_none_or(|ahead| seq::distance(expected(ahead), ts).unsigned_abs() <= TOLERANCE)
    }

    /// The peer has said its time, in answer to what this end has sent. Returns whether it is the time that was noted before.
    fn learn(&mut self, now: Instant, ts: u32) -> bool {
        let is_near = self.is_near(now, ts);
        self.ahead = Some(ts.wrapping_sub(now.as_ts()));
        is_near
    }

    /// From here on what is far from the peer's time is not the peer's.
    pub(super) const fn confirm(&mut self) {
        self.is_confirmed = true;
    }
}

impl Arq {
    /// The peer has answered by a segment with this `ts`. Where it had not confirmed the extensions before, and what was read until
    /// then is of another time, that was written by another session in its place.
    pub(super) fn learn_peer_time(&mut self, now: Instant, ts: u32) {
        let had_confirmed = self.alive.peer_time.is_confirmed;
        if !self.alive.peer_time.learn(now, ts) && !had_confirmed && self.alive.ghost.is_enabled() {
            self.alive.is_ghost = true;
        }
    }

    /// A segment is not the peer's, or its clock has jumped: it is asked.
    #[cold]
    pub(super) fn refuse_other_session(&mut self, now: Instant) {
        self.counters.udp.wrong_conv += 1;
        self.doubt_peer(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(50_000);
    const BASE: u32 = u32::MAX - 20_000;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(NOW.as_micros() / 1_000 + millis)
    }

    /// The peer's `ts`, so long after its answer.
    fn ts(millis: u64) -> u32 {
        BASE.wrapping_add(millis as u32)
    }

    #[test]
    fn what_is_far_from_the_time_of_an_answer_is_not_the_peers() {
        let mut time = PeerTime::default();
        assert!(time.admits(NOW, 7) && time.admits(NOW, 1 << 31), "a peer whose `ts` says nothing");
        time.learn(NOW, BASE);
        time.confirm();
        for passed in [0, 20_000, 40_000, 1 << 31, 1 << 33] {
            for (late, admitted) in [(0, true), (131_072, true), (131_073, false), (1 << 31, false)] {
                let came = at(passed + late);
                assert_eq!(time.admits(came, ts(passed)), admitted, "{late} ms late after {passed} ms");
            }
            assert!(!time.admits(at(passed), ts(passed + 131_073)), "from the future");
        }
    }

    #[test]
    fn an_answer_tells_the_time_anew() {
        let mut time = PeerTime::default();
        assert!(time.learn(NOW, BASE), "nothing was noted before");
        time.confirm();
        assert!(!time.admits(at(1_000), ts(3_600_000)), "the peer's clock has jumped");
        assert!(!time.learn(at(1_000), ts(3_600_000)));
        assert!(time.admits(at(2_000), ts(3_601_000)));
    }

    #[test]
    fn what_was_read_before_the_peer_said_its_time_is_compared_with_that() {
        let mut time = PeerTime::default();
        assert!(time.admits(NOW, BASE));
        assert!(time.learn(at(40), ts(40)));
        let mut time = PeerTime::default();
        assert!(time.admits(NOW, BASE));
        assert!(!time.learn(at(40), ts(1 << 30)));
    }
}
