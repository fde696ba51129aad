//! Segments in flight: sent and not yet covered by the peer's `una`.
//!
//! A ring indexed by sn holds them, so an ACK finds its segment at once. Every unacknowledged segment is also a member of
//! one doubly linked list, threaded through the ring in order of transmission:
//!
//! * [`Class::Due`]: skipped often enough, to be resent at the next opportunity;
//! * one pair of lists per backoff level, for segments that wait for their RTO. All of a level wait equally long, so a
//!   list's head is its next to expire and *no timer ever scans what is in flight*. Of the pair, one holds segments that
//!   later ACKs may still skip, the other those already resent for it, which only their RTO resends again.
//!
//! A list in order of transmission is also what skip counting wants: an ACK of a segment sent at `ts` skips the
//! segments at the head that were sent no later; those are the holes, and each is visited at most `resend` times.
//!
//! Deadlines are computed from the RTO as it stands now, not as it stood at transmission: a level's order then always
//! holds, and a timeout profits from what was learnt since.

use alloc::vec::Vec;
use core::time::Duration;

use super::{
    bandwidth::Snapshot,
    congestion::{Confirmed, InFlightTotal},
    losses::Fate,
};
use crate::proto::{seq, time::Instant, wire::HEADER_LEN};

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InFlight {
    /// When it was last sent: its `ts`, with microseconds.
    pub(super) sent_at: Instant,
    snapshot: Snapshot,
    /// Stream position of the payload.
    pub(super) position: u32,
    pub(super) len: u32,
    /// Neighbours in the list, by sn; an end of the list names itself.
    prev: u32,
    next: u32,
    /// ACKs of later segments since the last transmission, as far as they matter.
    skips: u32,
    list: u8,
    pub(super) frg: u8,
    acked: bool,
    fate: Fate,
}

/// Why a segment is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Skipped by `resend` later ACKs.
    Fast,
    /// Skipped at least once with nothing new to send.
    Early,
    /// Its RTO passed.
    Timeout,
}

#[derive(Debug, Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

/// Which list a segment is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Due,
    Waiting { level: u8, resent: bool },
}

/// Past this the wait no longer grows: 20 transmissions are where ikcp sees a dead link.
const MAX_LEVEL: u8 = 20;

impl Class {
    const fn index(self) -> u8 {
        match self {
            Self::Due => 0,
            Self::Waiting { level, resent } => 1 + 2 * level + resent as u8,
        }
    }

    const fn of(index: u8) -> Self {
        match index {
            0 => Self::Due,
            _ => Self::Waiting { level: (index - 1) / 2, resent: index.is_multiple_of(2) },
        }
    }
}

/// What the waiting time of each backoff level is computed from. Asked for each packet, and most segments are sent once:
/// so what timeouts add is computed only behind one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    /// The wait of a segment that was sent once.
    pub(super) first: Duration,
    /// What each timeout adds: the RTO, half of it in no-delay mode.
    pub(super) rto: Duration,
    pub(super) nodelay: bool,
    /// Whether the first timeout adds nothing.
    pub(super) thin: bool,
    pub(super) max: Duration,
}

impl Backoff {
    fn wait(&self, level: u8) -> Duration {
        if level == 0 {
            return self.first.min(self.max);
        }
        let step = if self.nodelay { self.rto / 2 } else { self.rto };
        (self.first + step * u32::from(level - u8::from(self.thin))).min(self.max)
    }
}

#[derive(Debug, Default)]
pub(super) struct SendBuffer {
    ring: Vec<InFlight>,
    una: u32,
    nxt: u32,
    lists: Vec<List>,
    /// Bit i is set while list i has members.
    occupied: u64,
    unacked: u32,
    unacked_bytes: u64,
}

/// What a segment takes of the path, in bytes: the same for window, rate and pacing, or small ones would be paced by less
/// than they need.
fn wire_len(len: u32) -> u64 {
    HEADER_LEN as u64 + u64::from(len)
}

/// Segments not before the one acknowledged that skip counting looks past in a list that is not in order of sn.
const MAX_PASSED: u32 = 8;

/// Ring slots kept by a session that has nothing in flight.
const MIN_RING: usize = 16;

impl SendBuffer {
    pub(super) fn new(first_sn: u32) -> Self {
        Self { una: first_sn, nxt: first_sn, ..Self::default() }
    }

    /// The oldest sn in flight.
    pub(super) const fn una(&self) -> u32 {
        self.una
    }

    /// The sn of the next new segment.
    pub(super) const fn nxt(&self) -> u32 {
        self.nxt
    }

    /// Segments from `una` to `nxt`: the part of the window in use.
    pub(super) const fn span(&self) -> u32 {
        self.nxt.wrapping_sub(self.una)
    }

    /// Segments in flight that no ACK has confirmed.
    pub(super) const fn unacked(&self) -> u32 {
        self.unacked
    }

    /// What no ACK has confirmed.
    pub(super) const fn in_flight(&self) -> InFlightTotal {
        InFlightTotal { segments: self.unacked, bytes: self.unacked_bytes }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.una == self.nxt
    }

    fn slot(&self, sn: u32) -> &InFlight {
        &self.ring[sn as usize & (self.ring.len() - 1)]
    }

    fn slot_mut(&mut self, sn: u32) -> &mut InFlight {
        let mask = self.ring.len() - 1;
        &mut self.ring[sn as usize & mask]
    }

    /// The segment `sn`, which must be in flight.
    pub(super) fn get(&self, sn: u32) -> &InFlight {
        debug_assert!(seq::within(sn, self.una, self.nxt));
        self.slot(sn)
    }

    /// Whether an ACK has confirmed the segment `sn`, which must be in flight.
    pub(super) fn is_acked(&self, sn: u32) -> bool {
        self.get(sn).acked
    }

    /// Adds the next new segment, sent now.
    pub(super) fn push(&mut self, position: u32, len: u32, frg: u8, now: Instant, snapshot: Snapshot) -> u32 {
        if self.span() as usize == self.ring.len() {
            self.grow();
        }
        let sn = self.nxt;
        self.nxt = sn.wrapping_add(1);
        self.unacked += 1;
        self.unacked_bytes += wire_len(len);
        *self.slot_mut(sn) = InFlight { sent_at: now, snapshot, position, len, frg, ..InFlight::default() };
        self.link(sn, Class::Waiting { level: 0, resent: false });
        sn
    }

    fn grow(&mut self) {
        let capacity = (self.ring.len() * 2).max(MIN_RING);
        let mut ring = alloc::vec![InFlight::default(); capacity];
        let mut sn = self.una;
        while sn != self.nxt {
            ring[sn as usize & (capacity - 1)] = *self.slot(sn);
            sn = sn.wrapping_add(1);
        }
        self.ring = ring;
    }

    fn link(&mut self, sn: u32, class: Class) {
        let index = class.index();
        let at = usize::from(index);
        if self.lists.len() <= at {
            self.lists.resize(at + 1, List { head: 0, tail: 0 });
        }
        let bit = 1 << index;
        let prev = if self.occupied & bit == 0 {
            self.occupied |= bit;
            self.lists[at].head = sn;
            sn
        } else {
            let tail = self.lists[at].tail;
            self.slot_mut(tail).next = sn;
            tail
        };
        self.lists[at].tail = sn;
        let slot = self.slot_mut(sn);
        slot.list = index;
        slot.prev = prev;
        slot.next = sn;
    }

    fn unlink(&mut self, sn: u32) {
        let InFlight { list, prev, next, .. } = *self.slot(sn);
        let at = usize::from(list);
        match (prev == sn, next == sn) {
            (true, true) => self.occupied &= !(1 << list),
            (true, false) => {
                self.lists[at].head = next;
                self.slot_mut(next).prev = next;
            }
            (false, true) => {
                self.lists[at].tail = prev;
                self.slot_mut(prev).next = prev;
            }
            (false, false) => {
                self.slot_mut(prev).next = next;
                self.slot_mut(next).prev = prev;
            }
        }
    }

    fn head(&self, class: Class) -> Option<u32> {
        let index = class.index();
        (self.occupied & (1 << index) != 0).then(|| self.lists[usize::from(index)].head)
    }

    /// The segment behind `sn` in its list.
    fn successor(&self, sn: u32) -> Option<u32> {
        let next = self.slot(sn).next;
        (next != sn).then_some(next)
    }

    /// The lists of waiting segments that have members, lowest backoff first.
    fn waiting(&self) -> impl Iterator<Item = (u8, bool)> + use<> {
        let mut left = self.occupied & !1;
        core::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let index = left.trailing_zeros() as u8;
            left &= left - 1;
            match Class::of(index) {
                Class::Waiting { level, resent } => Some((level, resent)),
                Class::Due => None,
            }
        })
    }

    /// Marks `sn`, sent at `ts`, as arrived; returns it if it was in flight and that is news.
    pub(super) fn ack(&mut self, sn: u32, ts: u32, confirmed: &mut Confirmed) -> Option<&InFlight> {
        if !seq::within(sn, self.una, self.nxt) || self.slot(sn).acked {
            return None;
        }
        self.confirm(sn, Some(ts), confirmed);
        let slot = self.slot_mut(sn);
        slot.acked = true;
        Some(slot)
    }

    fn confirm(&mut self, sn: u32, ts: Option<u32>, confirmed: &mut Confirmed) {
        self.unlink(sn);
        let InFlight { len, sent_at, snapshot, fate, .. } = *self.slot(sn);
        self.unacked -= 1;
        self.unacked_bytes -= wire_len(len);
        confirmed.add(wire_len(len), sent_at, snapshot);
        fate.count(confirmed.now, sent_at, ts, confirmed.min_rtt, &mut confirmed.losses);
    }

    /// Takes note that everything before `una` has arrived. A `una` that was never sent is ignored.
    pub(super) fn ack_before(&mut self, una: u32, confirmed: &mut Confirmed) {
        if una.wrapping_sub(self.una) > self.span() {
            return;
        }
        while self.una != una {
            if !self.slot(self.una).acked {
                self.confirm(self.una, None, confirmed);
            }
            self.una = self.una.wrapping_add(1);
        }
    }

    /// Lets go of the segments at the front that have arrived; returns the stream position up to which payload can be
    /// freed, `None` when nothing is in flight any more.
    pub(super) fn retire(&mut self) -> Option<u32> {
        while self.una != self.nxt && self.slot(self.una).acked {
            self.una = self.una.wrapping_add(1);
        }
        (self.una != self.nxt).then(|| self.slot(self.una).position)
    }

    /// Counts a skip for every unconfirmed segment before `sn` that was last sent no later than `ts`. Those that reach
    /// `resend` become due. Returns whether any was skipped at all.
    pub(super) fn skip_before(&mut self, sn: u32, ts: u32, resend: u32) -> bool {
        let mut skipped = false;
        for (level, resent) in self.waiting() {
            if resent {
                continue;
            }
            let mut passed = 0;
            let mut cursor = self.head(Class::Waiting { level, resent });
            while let Some(hole) = cursor {
                cursor = self.successor(hole);
                let slot = self.slot_mut(hole);
                if seq::before(ts, slot.sent_at.as_ts()) {
                    break;
                }
                if !seq::before(hole, sn) {
                    // First transmissions stand in order of sn, and resent ones nearly.
                    passed += 1;
                    if level == 0 || passed > MAX_PASSED {
                        break;
                    }
                    continue;
                }
                slot.skips += 1;
                slot.fate.overtake();
                skipped = true;
                if slot.skips >= resend {
                    self.unlink(hole);
                    self.link(hole, Class::Due);
                }
            }
        }
        skipped
    }

    /// A segment that was skipped, but not often enough to be due.
    pub(super) fn next_early(&self) -> Option<u32> {
        let heads = self
            .waiting()
            .filter(|(_, resent)| !resent)
            .filter_map(|(level, resent)| self.head(Class::Waiting { level, resent }));
        heads.into_iter().find(|sn| self.slot(*sn).skips > 0)
    }

    /// The segment that was skipped often enough first.
    pub(super) fn first_due(&self) -> Option<&InFlight> {
        self.head(Class::Due).map(|sn| self.get(sn))
    }

    /// The next segment to send again: due ones first, then those whose RTO has passed.
    pub(super) fn next_resend(&self, now: Instant, backoff: &Backoff) -> Option<(u32, Cause)> {
        if let Some(sn) = self.head(Class::Due) {
            return Some((sn, Cause::Fast));
        }
        for (level, resent) in self.waiting() {
            let head = self.head(Class::Waiting { level, resent })?;
            if self.slot(head).sent_at + backoff.wait(level) <= now {
                return Some((head, Cause::Timeout));
            }
        }
        None
    }

    /// When the next RTO passes.
    pub(super) fn next_timeout(&self, backoff: &Backoff) -> Option<Instant> {
        let deadlines = self.waiting().filter_map(|(level, resent)| {
            let head = self.head(Class::Waiting { level, resent })?;
            Some(self.slot(head).sent_at + backoff.wait(level))
        });
        deadlines.min()
    }

    /// Notes that `sn` is about to be sent again, and whether its parity was sent before.
    pub(super) fn note_covered(&mut self, sn: u32, covered: bool) {
        self.slot_mut(sn).fate.resend(covered);
    }

    /// Notes that `sn` is sent again now.
    pub(super) fn resent(&mut self, sn: u32, cause: Cause, now: Instant, snapshot: Snapshot) {
        let level = match Class::of(self.slot(sn).list) {
            Class::Due => 0,
            Class::Waiting { level, .. } => level,
        };
        self.unlink(sn);
        let slot = self.slot_mut(sn);
        slot.sent_at = now;
        slot.snapshot = snapshot;
        slot.skips = 0;
        let class = match cause {
            Cause::Timeout => Class::Waiting { level: (level + 1).min(MAX_LEVEL), resent: false },
            Cause::Fast | Cause::Early => Class::Waiting { level: 0, resent: true },
        };
        self.link(sn, class);
    }

    /// The largest payload in flight.
    pub(super) fn largest(&self) -> u32 {
        let mut largest = 0;
        let mut sn = self.una;
        while sn != self.nxt {
            largest = largest.max(self.slot(sn).len);
            sn = sn.wrapping_add(1);
        }
        largest
    }

    /// Gives back the memory of a session that has nothing in flight.
    pub(super) fn trim(&mut self) {
        if self.is_empty() {
            self.ring = Vec::new();
            self.lists = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff {
        first: Duration::from_millis(100),
        rto: Duration::from_millis(100),
        nodelay: true,
        thin: false,
        max: Duration::from_secs(60),
    };

    const fn ms(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn filled(first: u32, count: u32) -> SendBuffer {
        let mut buffer = SendBuffer::new(first);
        for i in 0..count {
            let sn = buffer.push(i * 10, 10, 0, ms(u64::from(i)), Snapshot::default());
            assert_eq!(sn, first.wrapping_add(i));
        }
        buffer
    }

    fn ack(buffer: &mut SendBuffer, sn: u32) -> bool {
        buffer.ack(sn, 0, &mut Confirmed::default()).is_some()
    }

    fn ack_before(buffer: &mut SendBuffer, una: u32) -> u32 {
        let mut confirmed = Confirmed::default();
        buffer.ack_before(una, &mut confirmed);
        confirmed.segments
    }

    fn resend_all(buffer: &mut SendBuffer, now: Instant) -> Vec<(u32, Cause)> {
        let mut sent = Vec::new();
        while let Some((sn, cause)) = buffer.next_resend(now, &BACKOFF) {
            buffer.resent(sn, cause, now, Snapshot::default());
            sent.push((sn, cause));
        }
        sent
    }

    #[test]
    fn acks_in_any_order_across_the_wrap() {
        let first = u32::MAX - 20;
        let mut buffer = filled(first, 100);
        for i in (0..100).rev().step_by(3) {
            assert!(ack(&mut buffer, first.wrapping_add(i)));
            assert!(!ack(&mut buffer, first.wrapping_add(i)));
        }
        assert_eq!(buffer.unacked(), 66);
        assert_eq!(ack_before(&mut buffer, first.wrapping_add(50)), 33);
        assert_eq!(buffer.una(), first.wrapping_add(50));
        assert_eq!(buffer.retire(), Some(500));
        assert!(!ack(&mut buffer, first.wrapping_sub(1)));
        assert!(!ack(&mut buffer, first.wrapping_add(100)));
        assert_eq!(ack_before(&mut buffer, first.wrapping_add(101)), 0);
        assert_eq!(ack_before(&mut buffer, first.wrapping_add(49)), 0);
        assert_eq!(ack_before(&mut buffer, first.wrapping_add(100)), 33);
        assert_eq!(buffer.retire(), None);
        assert_eq!((buffer.unacked(), buffer.occupied), (0, 0));
        assert_eq!(buffer.next_timeout(&BACKOFF), None);
    }

    #[test]
    fn timeouts_back_off_level_by_level() {
        let mut buffer = filled(0, 2);
        assert_eq!(buffer.next_timeout(&BACKOFF), Some(ms(100)));
        assert_eq!(resend_all(&mut buffer, ms(99)), []);
        assert_eq!(resend_all(&mut buffer, ms(100)), [(0, Cause::Timeout)]);
        assert_eq!(buffer.next_timeout(&BACKOFF), Some(ms(101)));
        assert_eq!(resend_all(&mut buffer, ms(101)), [(1, Cause::Timeout)]);
        // The second wait is 150 ms from the second transmission, the third 200 ms.
        assert_eq!(buffer.next_timeout(&BACKOFF), Some(ms(250)));
        assert_eq!(resend_all(&mut buffer, ms(250)), [(0, Cause::Timeout)]);
        ack(&mut buffer, 1);
        assert_eq!(buffer.next_timeout(&BACKOFF), Some(ms(450)));
        // A thin stream is one level behind.
        assert_eq!(buffer.next_timeout(&Backoff { thin: true, ..BACKOFF }), Some(ms(400)));
    }

    #[test]
    fn a_segment_skipped_often_enough_is_resent_once_and_then_waits() {
        let mut buffer = filled(0, 5);
        assert!(ack(&mut buffer, 1));
        assert!(buffer.skip_before(1, 1, 2));
        assert_eq!(buffer.next_resend(ms(10), &BACKOFF), None);
        assert_eq!(buffer.next_early(), Some(0));
        assert!(ack(&mut buffer, 2));
        assert!(buffer.skip_before(2, 2, 2));
        assert_eq!(resend_all(&mut buffer, ms(10)), [(0, Cause::Fast)]);
        for sn in 3..5 {
            ack(&mut buffer, sn);
            assert!(!buffer.skip_before(sn, sn, 2));
        }
        assert_eq!(resend_all(&mut buffer, ms(109)), []);
        assert_eq!(resend_all(&mut buffer, ms(110)), [(0, Cause::Timeout)]);
    }

    #[test]
    fn an_ack_older_than_the_last_transmission_skips_nothing() {
        let mut buffer = filled(0, 3);
        assert_eq!(resend_all(&mut buffer, ms(100)), [(0, Cause::Timeout)]);
        ack(&mut buffer, 1);
        assert!(!buffer.skip_before(1, 1, 1));
        ack(&mut buffer, 2);
        assert!(buffer.skip_before(2, 100, 1));
        assert_eq!(resend_all(&mut buffer, ms(101)), [(0, Cause::Fast)]);
    }

    #[test]
    fn the_ring_grows_around_what_is_in_flight() {
        let mut buffer = SendBuffer::new(u32::MAX - 3);
        for i in 0..1_000_u32 {
            buffer.push(i, 1, 0, ms(0), Snapshot::default());
            if i % 5 == 4 {
                let una = buffer.una().wrapping_add(3);
                ack_before(&mut buffer, una);
            }
        }
        assert_eq!(buffer.span(), 400);
        assert_eq!(buffer.get(buffer.una()).position, 600);
        assert_eq!(resend_all(&mut buffer, ms(100)).len(), 400);
        let nxt = buffer.nxt();
        ack_before(&mut buffer, nxt);
        buffer.trim();
        assert_eq!(buffer.ring.capacity(), 0);
        buffer.push(0, 1, 0, ms(0), Snapshot::default());
    }
}
