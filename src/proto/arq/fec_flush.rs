//! FEC flush: copies of segments whose FEC group stays incomplete.
//!
//! Parity is computed over whole groups. Where little is sent, the last packets of a group wait for others to fill it, and a
//! lost one is resent long before its parity is sent. So segments that have waited for a while are sent once more, all of them
//! in one packet. Such a packet is a data packet like any other; the peer takes it for an early resend.
//!
//! The other way would be to fill the group with empty packets. That would take up to nine packets and the parity for one
//! message in a group of ten. Lost fillers would use the parity up. And kcp-go drops packets of less than 24 bytes.
//!
//! A segment is copied at most `copies` times, with the time `delay` between. Copies are made in rounds. The segments that wait
//! are a range of sn, and a round copies the end of it: the segments from where the round `copies` before it ended, since
//! those before have all their copies. Parity ends it all.

use alloc::boxed::Box;
use core::time::Duration;

use crate::proto::{
    seq,
    time::{Instant, Micros},
};

/// The most copies of a segment.
pub(in crate::proto) const MAX_COPIES: usize = 3;

#[derive(Debug)]
pub(super) struct FecFlush {
    /// How long a segment waits for parity before each copy. `None` turns copies off.
    delay: Option<Micros>,
    /// `None` where no FEC is sent.
    rounds: Option<Box<Rounds>>,
}

/// How far copies and parity have come.
#[derive(Debug)]
struct Rounds {
    /// Copies of each segment.
    copies: usize,
    /// Where the last rounds ended, the latest first.
    round_ends: [u32; MAX_COPIES],
    /// When the next round begins.
    next_round_at: Option<Instant>,
    round: Option<Round>,
    parity: ParitySent,
}

/// A round under way: the segments from `next` to before `end` are still to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Round {
    next: u32,
    end: u32,
}

/// The segments whose parity was sent.
#[derive(Debug, Clone, Copy)]
struct ParitySent {
    /// The parity of all before this sn was sent.
    end: u32,
    /// When the last of it was sent.
    at: Instant,
    /// The parity of all before this sn was sent earlier.
    end_before: u32,
}

impl FecFlush {
    pub(super) fn new(delay: Option<Duration>) -> Self {
        Self { delay: delay.map(Micros::new), rounds: None }
    }

    /// How long a segment waits.
    pub(super) fn delay(&self) -> Option<Duration> {
        self.delay.map(Micros::get)
    }

    /// Changes how long a segment waits, for segments from `nxt` on.
    pub(super) fn set_delay(&mut self, delay: Option<Duration>, nxt: u32) {
        let delay = delay.map(Micros::new);
        if self.delay != delay {
            self.delay = delay;
            self.clear(nxt);
        }
    }

    /// Changes how many copies there are of each segment, for segments from `nxt` on.
    pub(super) fn set_copies(&mut self, copies: usize, nxt: u32) {
        let copies = copies.min(MAX_COPIES);
        if copies > 0 || self.rounds.is_some() {
            let rounds = self.rounds.get_or_insert_with(|| Box::new(Rounds::new(nxt)));
            if rounds.copies != copies {
                rounds.copies = copies;
                rounds.clear(nxt);
            }
        }
    }

    /// Notes that the parity of everything before `nxt` was sent.
    pub(super) fn on_parity(&mut self, now: Instant, nxt: u32) {
        if let Some(rounds) = &mut self.rounds {
            rounds.parity = ParitySent { end: nxt, at: now, end_before: rounds.parity.end };
            rounds.clear(nxt);
        }
    }

    /// Whether FEC has done all that it can for the segment `sn`: its parity was sent, or all of its copies were. The parity
    /// counts only once it was sent `margin` ago, so that it can have arrived.
    pub(super) fn covers(&self, sn: u32, now: Instant, margin: Duration) -> bool {
        let Some(rounds) = &self.rounds else { return false };
        let ParitySent { end, at, end_before } = rounds.parity;
        let sent = rounds.first_to_copy().is_some_and(|first| seq::before(sn, first));
        sent && (now - at >= margin || seq::before(sn, end_before) || !seq::before(sn, end))
    }

    /// Notes that no segment before `nxt` needs a copy any more.
    #[inline]
    pub(super) fn clear(&mut self, nxt: u32) {
        if let Some(rounds) = &mut self.rounds {
            rounds.clear(nxt);
        }
    }

    /// Notes that a new segment is sent. `more`: more data waits to be sent, and will complete the group.
    pub(super) fn on_send(&mut self, now: Instant, more: bool) {
        // The deadline was hidden while more data waited, as a delayed write does. It may have passed meanwhile.
        let (Some(delay), Some(rounds)) = (self.delay, &mut self.rounds) else { return };
        let passed = rounds.round.is_none() && rounds.next_round_at.is_none_or(|at| at <= now);
        if rounds.copies > 0 && (passed || more) {
            rounds.next_round_at = Some(now + delay);
        }
    }

    /// When the next round begins. None does while there is `more` to send.
    #[inline]
    pub(super) fn deadline(&self, more: bool) -> Option<Instant> {
        self.rounds.as_ref()?.deadline(more)
    }

    #[inline]
    pub(super) fn has_round(&self) -> bool {
        self.rounds.as_ref().is_some_and(|rounds| rounds.round.is_some())
    }

    /// Begins a round if it is time.
    pub(super) fn on_timeout(&mut self, now: Instant, nxt: u32, more: bool) {
        if let Some(rounds) = &mut self.rounds
            && rounds.round.is_none()
            && rounds.deadline(more).is_some_and(|at| at <= now)
            && let Some(next) = rounds.first_to_copy()
        {
            rounds.round = Some(Round { next, end: nxt });
        }
    }

    /// The next segment of the round under way, which ends when there is none left. All segments before `una` have arrived.
    /// `nxt` is the next new segment.
    pub(super) fn next(&mut self, now: Instant, una: u32, nxt: u32) -> Option<u32> {
        let rounds = self.rounds.as_mut()?;
        let Round { next, end } = rounds.round.as_mut()?;
        if seq::before(*next, una) {
            *next = una;
        }
        if seq::before(*next, *end) {
            return Some(*next);
        }
        rounds.round_ends.rotate_right(1);
        rounds.round_ends[0] = *end;
        rounds.round = None;
        let more = rounds.first_to_copy().is_some_and(|first| first != nxt);
        rounds.next_round_at = self.delay.filter(|_| more).map(|delay| now + delay);
        None
    }

    /// Continues the round behind the segment `sn`.
    pub(super) fn advance(&mut self, sn: u32) {
        if let Some(round) = self.rounds.as_mut().and_then(|rounds| rounds.round.as_mut()) {
            round.next = sn.wrapping_add(1);
        }
    }
}

impl Rounds {
    /// `nxt`: the first segment that will be sent.
    const fn new(nxt: u32) -> Self {
        Self {
            copies: 0,
            round_ends: [nxt; MAX_COPIES],
            next_round_at: None,
            round: None,
            parity: ParitySent { end: nxt, at: Instant::ZERO, end_before: nxt },
        }
    }

    /// The first segment that does not have all of its copies. `None` if there are no copies.
    fn first_to_copy(&self) -> Option<u32> {
        self.round_ends.get(self.copies.checked_sub(1)?).copied()
    }

    const fn clear(&mut self, nxt: u32) {
        self.round_ends = [nxt; MAX_COPIES];
        self.next_round_at = None;
        self.round = None;
    }

    /// When the next round begins. None does while there is `more` to send.
    const fn deadline(&self, more: bool) -> Option<Instant> {
        if more && self.round.is_none() { None } else { self.next_round_at }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    const DELAY: Duration = Duration::from_millis(10);

    fn flush(copies: usize) -> FecFlush {
        let mut flush = FecFlush::new(Some(DELAY));
        flush.set_copies(copies, u32::MAX);
        flush
    }

    /// What is copied at `now`, of what lies from `una` to `nxt`.
    fn round(flush: &mut FecFlush, now: u64, una: u32, nxt: u32) -> Vec<u32> {
        let now = Instant::from_millis(now);
        flush.on_timeout(now, nxt, false);
        let mut copied = Vec::new();
        while let Some(sn) = flush.next(now, una, nxt) {
            copied.push(sn);
            flush.advance(sn);
        }
        copied
    }

    #[test]
    fn each_segment_is_copied_as_often_as_configured() {
        let mut flush = flush(2);
        assert_eq!(flush.deadline(false), None, "nothing waits");
        flush.on_send(Instant::ZERO, false);
        assert_eq!(flush.deadline(false), Some(Instant::from_millis(10)));
        assert!(round(&mut flush, 9, u32::MAX, 0).is_empty());
        assert_eq!(round(&mut flush, 10, u32::MAX, 1), [u32::MAX, 0]);
        flush.on_send(Instant::from_millis(12), false);
        assert_eq!(flush.deadline(false), Some(Instant::from_millis(20)));
        assert_eq!(round(&mut flush, 20, u32::MAX, 2), [u32::MAX, 0, 1]);
        assert_eq!(round(&mut flush, 30, u32::MAX, 2), [1]);
        assert_eq!(flush.deadline(false), None, "all were copied twice");
        assert!(round(&mut flush, 40, u32::MAX, 2).is_empty());
    }

    #[test]
    fn segments_that_arrived_or_have_parity_are_not_copied() {
        let mut flush = flush(1);
        flush.on_send(Instant::ZERO, false);
        assert_eq!(round(&mut flush, 10, 2, 4), [2, 3]);
        flush.on_send(Instant::from_millis(11), false);
        flush.clear(6);
        assert_eq!(flush.deadline(false), None);
        flush.on_send(Instant::from_millis(12), false);
        assert_eq!(round(&mut flush, 22, 2, 7), [6]);
    }

    #[test]
    fn nothing_is_copied_while_more_data_waits() {
        let mut flush = flush(1);
        flush.on_send(Instant::ZERO, true);
        flush.on_timeout(Instant::from_millis(10), 5, true);
        assert_eq!((flush.deadline(true), flush.has_round()), (None, false));
        flush.on_send(Instant::from_millis(15), true);
        flush.on_send(Instant::from_millis(16), false);
        assert!(round(&mut flush, 24, 0, 5).is_empty());
        assert_eq!(round(&mut flush, 25, 3, 5), [3, 4]);
    }

    /// Found by fuzzing: a delayed write hid the deadline until it had passed.
    #[test]
    fn a_deadline_that_was_hidden_is_set_anew_when_it_has_passed() {
        let mut flush = flush(1);
        flush.on_send(Instant::ZERO, true);
        flush.on_send(Instant::from_millis(50), false);
        assert_eq!(flush.deadline(false), Some(Instant::from_millis(60)));
        assert_eq!(round(&mut flush, 60, 0, 2), [0, 1]);
    }

    #[test]
    fn parity_covers_a_segment_once_it_can_have_arrived() {
        let margin = Duration::from_millis(25);
        let mut flush = flush(1);
        let at = Instant::from_millis;
        flush.on_parity(at(100), 10);
        flush.on_parity(at(110), 20);
        let covers = |now: u64| [9, 10, 19, 20].map(|sn| flush.covers(sn, at(now), margin));
        assert_eq!(covers(134), [true, false, false, false]);
        assert_eq!(covers(135), [true, true, true, false]);
    }

    #[test]
    fn without_a_delay_or_a_number_of_copies_there_are_none() {
        let mut off = FecFlush::new(None);
        off.set_copies(2, 0);
        off.on_send(Instant::ZERO, false);
        assert_eq!(off.deadline(false), None);
        let mut zero = FecFlush::new(Some(DELAY));
        zero.on_send(Instant::ZERO, false);
        assert_eq!((zero.deadline(false), round(&mut zero, 99, 0, 1)), (None, vec![]));
    }
}
