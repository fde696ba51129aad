//! Segments in flight: sent and not yet covered by the peer's `una`.
//!
//! They are in a ring indexed by sn, so an ACK finds its segment at once. Every unacknowledged segment is also in one
//! doubly linked list, which is threaded through the ring in order of transmission:
//!
//! * [`Class::Due`]: segments that were skipped often enough. They are found lost, and resent with the next transmission.
//! * One pair of lists for each backoff level: segments that wait for their RTO. All of a level wait equally long, so the
//!   head of a list is the next of it to expire, and *no timer ever scans what is in flight*. One list of the pair has the
//!   segments that later ACKs may still skip. The other has those already resent for that, which only their RTO resends
//!   again.
//!
//! Skip counting needs a list in order of transmission too. An ACK of a segment sent at `ts` skips the segments at the
//! head of each list that were sent no later. These are the holes, and each is visited at most `resend` times.
//!
//! Deadlines are computed from the RTO as it is now, not as it was at transmission. So the order of a level always holds,
//! and a timeout profits from what was learnt since.

use alloc::vec::Vec;
use core::time::Duration;

use super::losses::{Confirmed, SendHistory};
use crate::proto::{congestion::delivery_rate::SendState, seq, time::Instant, wire::HEADER_LEN};

/// A segment in flight.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Segment {
    /// When it was last sent: its `ts`, with microseconds.
    pub(super) sent_at: Instant,
    pub(super) send_state: SendState,
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
    history: SendHistory,
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

/// Past this level the wait no longer grows: 20 transmissions are where ikcp sees a dead link.
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

/// What the waiting time of each backoff level is computed from. It is needed for each packet, but most segments are sent
/// only once, so what timeouts add is computed only after a timeout.
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
    #[inline]
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
    ring: Vec<Segment>,
    una: u32,
    nxt: u32,
    lists: Vec<List>,
    /// Bit i is set while list i has members.
    occupied: u64,
    unacked: u32,
    unacked_bytes: u64,
}

/// The bytes that a segment counts for, with its header. They are the same for the window, the delivery rate and pacing,
/// or small segments would be paced more slowly than they arrive.
pub(super) const fn wire_len(len: u32) -> u64 {
    HEADER_LEN as u64 + len as u64
}

/// Segments with a higher sn than the one acknowledged that skip counting looks past, in a list that is not in order of
/// sn.
const MAX_PASSED: u32 = 8;

/// Ring slots kept by a session that has nothing in flight.
const MIN_RING: usize = 4;

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

    /// Their bytes, with headers.
    pub(super) const fn unacked_bytes(&self) -> u64 {
        self.unacked_bytes
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.una == self.nxt
    }

    fn slot(&self, sn: u32) -> &Segment {
        &self.ring[sn as usize & (self.ring.len() - 1)]
    }

    fn slot_mut(&mut self, sn: u32) -> &mut Segment {
        let mask = self.ring.len() - 1;
        &mut self.ring[sn as usize & mask]
    }

    /// The segment `sn`, which must be in flight.
    pub(super) fn get(&self, sn: u32) -> &Segment {
        debug_assert!(seq::within(sn, self.una, self.nxt));
        self.slot(sn)
    }

    /// The segment `sn`, if it is in flight.
    pub(super) fn find(&self, sn: u32) -> Option<&Segment> {
        seq::within(sn, self.una, self.nxt).then(|| self.slot(sn)).filter(|segment| !segment.acked)
    }

    /// Whether an ACK has confirmed the segment `sn`, which must be in flight.
    pub(super) fn is_acked(&self, sn: u32) -> bool {
        self.get(sn).acked
    }

    /// Adds the next new segment, which is sent now; returns its sn.
    #[inline(always)] // As is `Arq::send_new`.
    pub(super) fn push(
        &mut self,
        position: u32,
        len: u32,
        frg: u8,
        now: Instant,
        send_state: SendState,
    ) -> u32 {
        if self.span() as usize == self.ring.len() {
            self.grow();
        }
        let sn = self.nxt;
        self.nxt = sn.wrapping_add(1);
        self.unacked += 1;
        self.unacked_bytes += wire_len(len);
        *self.slot_mut(sn) = Segment { sent_at: now, send_state, position, len, frg, ..Segment::default() };
        self.link(sn, Class::Waiting { level: 0, resent: false });
        sn
    }

    fn grow(&mut self) {
        let capacity = (self.ring.len() * 2).max(MIN_RING);
        let mut ring = alloc::vec![Segment::default(); capacity];
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
        let Segment { list, prev, next, .. } = *self.slot(sn);
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

    fn tail(&self, class: Class) -> Option<u32> {
        let index = class.index();
        (self.occupied & (1 << index) != 0).then(|| self.lists[usize::from(index)].tail)
    }

    /// The segment before `sn` in its list.
    fn predecessor(&self, sn: u32) -> Option<u32> {
        let prev = self.slot(sn).prev;
        (prev != sn).then_some(prev)
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
    #[inline]
    pub(super) fn ack(&mut self, sn: u32, ts: u32, confirmed: &mut Confirmed) -> Option<&Segment> {
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
        let Segment { len, sent_at, send_state, history, .. } = *self.slot(sn);
        let bytes = wire_len(len);
        self.unacked -= 1;
        self.unacked_bytes -= bytes;
        confirmed.largest = confirmed.largest.max(len);
        confirmed.acked.add(bytes, sent_at, send_state);
        confirmed.count(history, bytes, sent_at, ts);
    }

    /// Takes note that everything before `una` has arrived. A `una` that was never sent is ignored.
    #[inline]
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

    /// Lets go of the segments at the front that have arrived. Returns the stream position up to which payload can be
    /// freed, `None` if nothing is in flight any more.
    pub(super) fn retire(&mut self) -> Option<u32> {
        while self.una != self.nxt && self.slot(self.una).acked {
            self.una = self.una.wrapping_add(1);
        }
        (self.una != self.nxt).then(|| self.slot(self.una).position)
    }

    /// Counts a skip for every unconfirmed segment before `sn` that was last sent no later than `ts`. Those that reach
    /// `resend` become due. Returns whether any was skipped at all.
    #[inline]
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
                slot.history.on_skip();
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
    #[inline]
    pub(super) fn first_due(&self) -> Option<&Segment> {
        self.head(Class::Due).map(|sn| self.get(sn))
    }

    /// The next segment to send again: due ones first, then those whose RTO has passed.
    #[inline(always)] // Every packet asks, in `fill`.
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

    /// Reports the segments that have become due since the last call, in the order in which they did.
    #[cold]
    pub(super) fn report_lost(&mut self, mut report: impl FnMut(u32, &Segment)) {
        // They are at the end of the list of those due.
        let mut first = None;
        let mut cursor = self.tail(Class::Due);
        while let Some(sn) = cursor
            && self.slot(sn).history.is_news_if_lost()
        {
            first = cursor;
            cursor = self.predecessor(sn);
        }
        while let Some(sn) = first {
            self.slot_mut(sn).history.on_found_lost();
            report(sn, self.slot(sn));
            first = self.successor(sn);
        }
    }

    /// Notes that `sn` is found lost; returns whether that is news.
    pub(super) fn found_lost(&mut self, sn: u32) -> bool {
        self.slot_mut(sn).history.on_found_lost()
    }

    /// Notes that `sn` is sent again now, and whether its parity, or its early copies, were sent before.
    #[inline]
    pub(super) fn resent(
        &mut self,
        sn: u32,
        cause: Cause,
        covered: bool,
        now: Instant,
        send_state: SendState,
    ) {
        let level = match Class::of(self.slot(sn).list) {
            Class::Due => 0,
            Class::Waiting { level, .. } => level,
        };
        self.unlink(sn);
        let slot = self.slot_mut(sn);
        slot.sent_at = now;
        slot.send_state = send_state;
        slot.history.on_resend(covered);
        slot.skips = 0;
        let class = match cause {
            Cause::Timeout => Class::Waiting { level: (level + 1).min(MAX_LEVEL), resent: false },
            Cause::Fast | Cause::Early => Class::Waiting { level: 0, resent: true },
        };
        self.link(sn, class);
    }

    /// Nothing in flight waits for its RTO any more: the path that it was sent over is used no longer.
    #[cold]
    pub(super) fn expire(&mut self) {
        self.occupied = 0;
        let mut sn = self.una;
        while sn != self.nxt {
            let slot = self.slot_mut(sn);
            if !slot.acked {
                slot.sent_at = Instant::ZERO;
                slot.send_state = SendState::default();
                slot.skips = 0;
                self.link(sn, Class::Waiting { level: 0, resent: false });
            }
            sn = sn.wrapping_add(1);
        }
    }

    /// Lets go of everything in flight: nobody waits for it any more.
    pub(super) const fn abandon(&mut self) {
        self.una = self.nxt;
        self.occupied = 0;
        self.unacked = 0;
        self.unacked_bytes = 0;
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
mod tests;
