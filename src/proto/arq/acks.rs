//! ACKs that wait to be sent.
//!
//! Every segment carries `una`, which acknowledges all segments before it. So an ACK below `rcv_nxt` has nothing to say but its
//! time, from which the peer takes the round-trip time. Of those only the newest is sent, as in kcp-go; the others never
//! enter the list.
//!
//! Segments behind a gap are not covered by `una`. If the packet with their ACKs is lost, the peer resends all of them. So the
//! next packet repeats these ACKs, if it leaves soon and has room. The repeated ACKs come first in the packet, because they are
//! late and would make the round trip look longer: kcp-go takes its time from the last ACK of a packet, and ikcp from each.

use alloc::vec::Vec;
use core::time::Duration;

use crate::proto::{seq, time::Instant, wire::HEADER_LEN};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) sn: u32,
    pub(super) ts: u32,
}

/// The most ACKs that wait. A flood of duplicates cannot make the list longer; a segment whose ACK was left out is acknowledged
/// when it is sent again.
const MAX_WAITING: usize = 4_096;
/// Full segments that are acknowledged without waiting for more: half of the least that congestion control keeps in flight. If
/// it were all of that, the sender would stop until the wait is over, in every round trip.
const PROMPT_SEGMENTS: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Acks {
    waiting: Vec<Ack>,
    /// ACKs at its front that were sent. They stay until all are: to remove those of one packet moves all the others up.
    sent: u16,
    /// The ACKs behind a gap that the last packet carried. The next one repeats them, if it leaves by `repeat_until`.
    repeatable: Vec<Ack>,
    repeat_until: Instant,
    /// What arrived since all ACKs were sent.
    arrived: Arrived,
    deadline: Option<Instant>,
    due: bool,
}

/// PUSH segments, and their bytes of payload. No window has more than 2^32 of either.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) segments: u32,
    pub(super) bytes: u32,
}

impl Arrived {
    /// One PUSH.
    pub(super) const fn segment(bytes: usize) -> Self {
        Self { segments: 1, bytes: bytes as u32 }
    }

    pub(super) const fn add(&mut self, more: Self) {
        self.segments = self.segments.saturating_add(more.segments);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// Tells which ACKs still have something to say.
#[derive(Debug, Clone, Copy)]
struct Filter {
    rcv_nxt: u32,
    /// Index of the newest ACK.
    newest: usize,
}

impl Filter {
    const fn is_behind_gap(self, ack: &Ack) -> bool {
        !seq::before(ack.sn, self.rcv_nxt)
    }

    const fn is_needed(self, index: usize, ack: &Ack) -> bool {
        index == self.newest || self.is_behind_gap(ack)
    }
}

impl Acks {
    /// Adds an ACK for what has `arrived`, to be sent within `delay`. `rcv_nxt` is the value after that was taken in: where it is more
    /// than one segment, all are before it, and the ACK is that of the last one.
    #[inline]
    pub(super) fn push(&mut self, ack: Ack, arrived: Arrived, rcv_nxt: u32, now: Instant, delay: Duration) {
        self.arrived.add(arrived);
        let waiting = self.waiting.len() - usize::from(self.sent);
        match self.waiting.last_mut() {
            Some(last) if seq::before(last.sn, rcv_nxt) => *last = ack,
            _ if waiting < MAX_WAITING => self.add(ack),
            _ => {}
        }
        self.deadline.get_or_insert(now + delay);
    }

    #[inline]
    fn add(&mut self, ack: Ack) {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.drain(..usize::from(self.sent));
            self.sent = 0;
        }
        self.waiting.push(ack);
    }

    /// Whether so much arrived that its ACKs should not wait: [`PROMPT_SEGMENTS`] full segments, or as many segments as there
    /// are ACKs in a packet of `mtu` bytes, which is kcp-go's rule.
    pub(super) const fn are_many(&self, mtu: usize) -> bool {
        self.arrived.segments as usize >= mtu / HEADER_LEN
            || self.arrived.bytes as usize >= PROMPT_SEGMENTS * (mtu - HEADER_LEN)
    }

    /// Has the ACKs sent with the next transmission.
    pub(super) const fn set_due(&mut self) {
        self.due = !self.waiting.is_empty();
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.set_due();
        }
    }

    pub(super) const fn is_due(&self) -> bool {
        self.due
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Passes up to `max` ACKs, those of one packet, to `send`: the oldest first, without those that `una` covers by now. The
    /// ACKs behind a gap are repeated by the next packet, if that leaves within `delay`.
    #[inline]
    pub(super) fn take(
        &mut self,
        max: usize,
        rcv_nxt: u32,
        now: Instant,
        delay: Duration,
        mut send: impl FnMut(Ack),
    ) {
        let filter = Filter { rcv_nxt, newest: self.waiting.len().saturating_sub(1) };
        if !self.repeatable.is_empty() {
            if now <= self.repeat_until {
                self.repeat(max, filter, &mut send);
            }
            self.repeatable.clear();
        }
        let mut taken = 0;
        let mut done = usize::from(self.sent);
        for (i, ack) in self.waiting.iter().enumerate().skip(done) {
            if filter.is_needed(i, ack) {
                if taken == max {
                    break;
                }
                send(*ack);
                taken += 1;
                if filter.is_behind_gap(ack) {
                    self.repeatable.push(*ack);
                    self.repeat_until = now + delay;
                }
            }
            done = i + 1;
        }
        self.sent = done as u16;
        if done < self.waiting.len() {
            return;
        }
        self.waiting.clear();
        self.sent = 0;
        self.arrived = Arrived::default();
        self.deadline = None;
        self.due = false;
    }

    /// Repeats the ACKs that are still behind a gap, as far as the new ACKs leave room for them.
    #[inline(never)]
    fn repeat(&self, max: usize, filter: Filter, send: &mut impl FnMut(Ack)) {
        let waiting = self.waiting.iter().enumerate().skip(self.sent.into());
        let room = max - waiting.filter(|&(i, ack)| filter.is_needed(i, ack)).take(max).count();
        self.repeatable.iter().copied().filter(|ack| filter.is_behind_gap(ack)).take(room).for_each(send);
    }

    pub(super) fn trim(&mut self) {
        self.waiting.drain(..usize::from(self.sent));
        self.sent = 0;
        self.waiting.shrink_to_fit();
        self.repeatable = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(10);

    fn take(acks: &mut Acks, max: usize, rcv_nxt: u32) -> Vec<u32> {
        take_at(acks, max, rcv_nxt, Instant::ZERO)
    }

    fn take_at(acks: &mut Acks, max: usize, rcv_nxt: u32, now: Instant) -> Vec<u32> {
        let mut taken = Vec::new();
        acks.take(max, rcv_nxt, now, DELAY, |ack| taken.push(ack.sn));
        taken
    }

    fn push(acks: &mut Acks, sns: impl IntoIterator<Item = u32>, rcv_nxt: u32) {
        for sn in sns {
            acks.push(Ack { sn, ts: 0 }, Arrived::segment(100), rcv_nxt, Instant::ZERO, DELAY);
        }
    }

    #[test]
    fn in_order_arrivals_leave_only_the_newest_ack() {
        let mut acks = Acks::default();
        for sn in 0..100 {
            acks.push(
                Ack { sn, ts: sn },
                Arrived::segment(100),
                sn + 1,
                Instant::from_millis(u64::from(sn)),
                DELAY,
            );
        }
        assert_eq!((acks.waiting.len(), acks.arrived.segments), (1, 100));
        assert_eq!(acks.deadline(), Some(Instant::from_millis(10)));
        assert_eq!(take(&mut acks, 50, 100), [99]);
        assert_eq!((acks.arrived, acks.deadline()), (Arrived::default(), None));
    }

    #[test]
    fn acks_behind_a_gap_are_all_sent_unless_it_closes() {
        let mut acks = Acks::default();
        push(&mut acks, 1..=4, 0);
        assert_eq!(take(&mut acks, 2, 0), [1, 2]);
        push(&mut acks, [0], 5);
        assert_eq!(take(&mut acks, 50, 5), [0]);
        assert!(acks.is_empty());
    }

    #[test]
    fn acks_behind_a_gap_are_repeated_once_if_there_is_room_and_time() {
        let mut acks = Acks::default();
        push(&mut acks, [2, 4], 0);
        assert_eq!(take(&mut acks, 50, 0), [2, 4]);
        push(&mut acks, [5], 0);
        assert_eq!(take(&mut acks, 50, 0), [2, 4, 5], "new ACKs go last");
        push(&mut acks, [0, 6, 7], 1);
        assert_eq!(take(&mut acks, 3, 1), [5, 6, 7], "neither a third time nor below `una`");
        push(&mut acks, [8, 9], 1);
        assert_eq!(take(&mut acks, 3, 1), [6, 8, 9], "new ACKs have the room first");
        push(&mut acks, [1], 4);
        assert_eq!(take_at(&mut acks, 50, 4, Instant::ZERO + DELAY), [8, 9, 1]);
        push(&mut acks, [10], 4);
        assert_eq!(take(&mut acks, 50, 4), [10]);
        push(&mut acks, [11], 4);
        let late = Instant::ZERO + DELAY + DELAY;
        assert_eq!(take_at(&mut acks, 50, 4, late), [11], "too late for a repetition");
    }

    #[test]
    fn acks_are_many_for_a_packet_of_them_or_for_eight_full_segments() {
        let mtu = 1_400;
        for (len, least) in [(1, mtu / HEADER_LEN), (mtu - HEADER_LEN, PROMPT_SEGMENTS)] {
            let mut acks = Acks::default();
            let mut pushed = 0;
            while !acks.are_many(mtu) {
                acks.push(Ack { sn: pushed, ts: 0 }, Arrived::segment(len), pushed + 1, Instant::ZERO, DELAY);
                pushed += 1;
            }
            assert_eq!(pushed as usize, least, "of {len} bytes");
            take(&mut acks, 50, pushed);
            assert!(!acks.are_many(mtu));
        }
    }

    #[test]
    fn a_flood_of_duplicates_does_not_grow_the_list_without_end() {
        let mut acks = Acks::default();
        for sn in 0..if cfg!(miri) { 5_000 } else { 100_000 } {
            acks.push(Ack { sn: 1 + sn % 7, ts: 0 }, Arrived::segment(100), 0, Instant::ZERO, DELAY);
        }
        assert_eq!(acks.waiting.len(), MAX_WAITING);
    }

    #[test]
    fn a_full_list_takes_as_many_as_were_sent() {
        let mut acks = Acks::default();
        let full = MAX_WAITING as u32;
        push(&mut acks, 1..=full, 0);
        assert_eq!(take(&mut acks, 58, 0), (1..=58).collect::<Vec<_>>());
        push(&mut acks, full + 1..=full + 100, 0);
        assert_eq!(acks.waiting.len(), MAX_WAITING);
        // The first 58 are repeated.
        assert!(take(&mut acks, 5_000, 0).into_iter().eq(1..=full + 58));
        assert!(acks.is_empty());
    }
}
