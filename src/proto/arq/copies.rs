//! Copies of segments whose FEC group stays incomplete.
//!
//! Parity is made of whole groups. Where little is sent, the last packets of a group wait for others to fill it, and a
//! loss is resent long before their parity comes. So segments that have waited for a while are sent once more, all that
//! wait in one packet: a data packet like any other, which the peer takes for a resend that came early. Filling the
//! group with empty packets instead would take nine packets and the parity for one message in a group of ten, the
//! fillers' losses would use the parity up, and kcp-go drops packets of less than 24 bytes.
//!
//! A segment is copied `count` times at most, `after` apart. What is waiting is a range of sn, and so is what has been
//! copied once, twice, ...: each round copies from where the round `count` before it ended. Parity ends it all.

use core::time::Duration;

use crate::proto::{seq, time::Instant};

/// Copies of one segment at most.
pub(in crate::proto) const MAX_COPIES: usize = 3;

#[derive(Debug)]
pub(super) struct Copies {
    /// How long a segment waits for parity; `None` for no copies at all.
    after: Option<Duration>,
    /// Copies of each segment.
    count: usize,
    /// Where the last rounds ended, the latest first.
    ends: [u32; MAX_COPIES],
    /// When the next round is due.
    at: Option<Instant>,
    /// The round under way: what it copies next, and where it ends.
    round: Option<(u32, u32)>,
    /// Up to where parity has been sent, the last of it when, and the rest before.
    parity: (u32, Instant, u32),
}

impl Copies {
    pub(super) const fn new(after: Option<Duration>, nxt: u32) -> Self {
        Self {
            after,
            count: 0,
            ends: [nxt; MAX_COPIES],
            at: None,
            round: None,
            parity: (nxt, Instant::ZERO, nxt),
        }
    }

    pub(super) fn set_after(&mut self, after: Option<Duration>, nxt: u32) {
        if self.after != after {
            self.after = after;
            self.clear(nxt);
        }
    }

    pub(super) fn set_count(&mut self, count: usize, nxt: u32) {
        let count = count.min(MAX_COPIES);
        if self.count != count {
            self.count = count;
            self.clear(nxt);
        }
    }

    /// The parity of everything before `nxt` is sent.
    pub(super) const fn on_parity(&mut self, now: Instant, nxt: u32) {
        self.parity = (nxt, now, self.parity.0);
        self.clear(nxt);
    }

    /// Whether the parity of `sn`, or all copies that there are to be, were sent, and parity at least `margin` ago.
    pub(super) fn covers(&self, sn: u32, now: Instant, margin: Duration) -> bool {
        let (end, at, before) = self.parity;
        let sent = self.first().is_some_and(|first| seq::before(sn, first));
        sent && (now - at >= margin || seq::before(sn, before) || !seq::before(sn, end))
    }

    /// Nothing before `nxt` needs a copy any more.
    pub(super) const fn clear(&mut self, nxt: u32) {
        self.ends = [nxt; MAX_COPIES];
        self.at = None;
        self.round = None;
    }

    /// A new segment is sent. While there is `more` to send, that will complete the group.
    pub(super) fn on_send(&mut self, now: Instant, more: bool) {
        // What waited for more, like a delayed write, may have waited past the time.
        let passed = self.round.is_none() && self.at.is_none_or(|at| at <= now);
        if self.count > 0
            && (passed || more)
            && let Some(after) = self.after
        {
            self.at = Some(now + after);
        }
    }

    /// When the next round is due, unless there is `more` to send.
    pub(super) const fn deadline(&self, more: bool) -> Option<Instant> {
        if more && self.round.is_none() { None } else { self.at }
    }

    /// Whether a round is under way.
    pub(super) const fn is_under_way(&self) -> bool {
        self.round.is_some()
    }

    /// Begins a round if it is time.
    pub(super) fn on_timeout(&mut self, now: Instant, nxt: u32, more: bool) {
        if self.round.is_none()
            && self.deadline(more).is_some_and(|at| at <= now)
            && let Some(first) = self.first()
        {
            self.round = Some((first, nxt));
        }
    }

    /// Where the next round begins.
    fn first(&self) -> Option<u32> {
        self.ends.get(self.count.checked_sub(1)?).copied()
    }

    /// The segment to be looked at next in the round under way, which ends where there is none; those before `una` have
    /// arrived, `nxt` is the next to be sent.
    pub(super) fn next(&mut self, now: Instant, una: u32, nxt: u32) -> Option<u32> {
        let (next, end) = self.round.as_mut()?;
        if seq::before(*next, una) {
            *next = una;
        }
        if seq::before(*next, *end) {
            return Some(*next);
        }
        self.ends.rotate_right(1);
        self.ends[0] = *end;
        self.round = None;
        let more = self.first().is_some_and(|first| first != nxt);
        self.at = self.after.filter(|_| more).map(|after| now + after);
        None
    }

    /// Goes on behind `sn`.
    pub(super) const fn advance(&mut self, sn: u32) {
        if let Some((next, _)) = &mut self.round {
            *next = sn.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    const AFTER: Duration = Duration::from_millis(10);

    fn copies(count: usize) -> Copies {
        let mut copies = Copies::new(Some(AFTER), u32::MAX);
        copies.set_count(count, u32::MAX);
        copies
    }

    /// What is copied at `now`, of what lies from `una` to `nxt`.
    fn round(copies: &mut Copies, now: u64, una: u32, nxt: u32) -> Vec<u32> {
        let now = Instant::from_millis(now);
        copies.on_timeout(now, nxt, false);
        let mut copied = Vec::new();
        while let Some(sn) = copies.next(now, una, nxt) {
            copied.push(sn);
            copies.advance(sn);
        }
        copied
    }

    #[test]
    fn each_is_copied_as_often_as_said() {
        let mut copies = copies(2);
        assert_eq!(copies.deadline(false), None, "nothing waits");
        copies.on_send(Instant::ZERO, false);
        assert_eq!(copies.deadline(false), Some(Instant::from_millis(10)));
        assert!(round(&mut copies, 9, u32::MAX, 0).is_empty());
        assert_eq!(round(&mut copies, 10, u32::MAX, 1), [u32::MAX, 0]);
        copies.on_send(Instant::from_millis(12), false);
        assert_eq!(copies.deadline(false), Some(Instant::from_millis(20)));
        assert_eq!(round(&mut copies, 20, u32::MAX, 2), [u32::MAX, 0, 1]);
        assert_eq!(round(&mut copies, 30, u32::MAX, 2), [1]);
        assert_eq!(copies.deadline(false), None, "all were copied twice");
        assert!(round(&mut copies, 40, u32::MAX, 2).is_empty());
    }

    #[test]
    fn neither_what_arrived_nor_what_has_parity_is_copied() {
        let mut copies = copies(1);
        copies.on_send(Instant::ZERO, false);
        assert_eq!(round(&mut copies, 10, 2, 4), [2, 3]);
        copies.on_send(Instant::from_millis(11), false);
        copies.clear(6);
        assert_eq!(copies.deadline(false), None);
        copies.on_send(Instant::from_millis(12), false);
        assert_eq!(round(&mut copies, 22, 2, 7), [6]);
    }

    #[test]
    fn a_sender_with_more_to_send_completes_its_groups() {
        let mut copies = copies(1);
        copies.on_send(Instant::ZERO, true);
        copies.on_timeout(Instant::from_millis(10), 5, true);
        assert_eq!((copies.deadline(true), copies.round), (None, None));
        copies.on_send(Instant::from_millis(15), true);
        copies.on_send(Instant::from_millis(16), false);
        assert!(round(&mut copies, 24, 0, 5).is_empty());
        assert_eq!(round(&mut copies, 25, 3, 5), [3, 4]);
    }

    /// Found by fuzzing: a delayed write hid the deadline until it had passed.
    #[test]
    fn a_deadline_that_was_hidden_is_not_in_the_past() {
        let mut copies = copies(1);
        copies.on_send(Instant::ZERO, true);
        copies.on_send(Instant::from_millis(50), false);
        assert_eq!(copies.deadline(false), Some(Instant::from_millis(60)));
        assert_eq!(round(&mut copies, 60, 0, 2), [0, 1]);
    }

    #[test]
    fn parity_covers_once_it_can_have_worked() {
        let margin = Duration::from_millis(25);
        let mut copies = copies(1);
        let at = Instant::from_millis;
        copies.on_parity(at(100), 10);
        copies.on_parity(at(110), 20);
        let covers = |now: u64| [9, 10, 19, 20].map(|sn| copies.covers(sn, at(now), margin));
        assert_eq!(covers(134), [true, false, false, false]);
        assert_eq!(covers(135), [true, true, true, false]);
    }

    #[test]
    fn none_without_a_time_or_a_count() {
        let mut off = Copies::new(None, 0);
        off.set_count(2, 0);
        off.on_send(Instant::ZERO, false);
        assert_eq!(off.deadline(false), None);
        let mut zero = Copies::new(Some(AFTER), 0);
        zero.on_send(Instant::ZERO, false);
        assert_eq!((zero.deadline(false), round(&mut zero, 99, 0, 1)), (None, vec![]));
    }
}
