//! ACKs that wait to be sent.
//!
//! As in kcp-go, an ACK whose `sn` lies below `rcv_nxt` is covered by the `una` that every segment carries, and only
//! the newest such is worth a segment (for the peer's round-trip time); the rest never enter the list.
//!
//! Behind a gap `una` covers nothing, and a lost packet of ACKs would have everything resent that it spoke of. So the next
//! packet says once more what still lies behind the gap, if it has room and comes soon. The repetitions go first: peers
//! take the round-trip time from the last ACK of a packet (kcp-go), or from each (ikcp), to which those are late.

use alloc::vec::Vec;
use core::time::Duration;

use crate::proto::{seq, time::Instant, wire::HEADER_LEN};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) sn: u32,
    pub(super) ts: u32,
}

/// A flood of duplicates cannot grow the list past this; what is left out is acknowledged when it is sent again.
const MAX_WAITING: usize = 4_096;
/// Full segments that are acknowledged without waiting for more: half of the least that congestion control keeps in flight.
/// Were it more than all, each round trip would last as long as an ACK may wait.
const PROMPT_SEGMENTS: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Acks {
    waiting: Vec<Ack>,
    /// What the last packet told from behind a gap, and until when it is worth a repetition.
    told: Vec<Ack>,
    told_until: Instant,
    /// PUSH segments that arrived since the last flush, and their payload bytes.
    owed: usize,
    owed_bytes: usize,
    deadline: Option<Instant>,
    due: bool,
}

/// Which of the waiting ACKs are still worth a segment.
#[derive(Debug, Clone, Copy)]
struct Worth {
    rcv_nxt: u32,
    /// Index of the newest.
    last: usize,
}

impl Worth {
    const fn is_behind_gap(self, ack: &Ack) -> bool {
        !seq::before(ack.sn, self.rcv_nxt)
    }

    const fn is_worth(self, index: usize, ack: &Ack) -> bool {
        index == self.last || self.is_behind_gap(ack)
    }
}

impl Acks {
    /// Notes an ACK for the PUSH `sn` of `len` payload bytes, to be sent within `delay`. `rcv_nxt` is the value after the
    /// PUSH was taken in.
    pub(super) fn push(&mut self, ack: Ack, len: usize, rcv_nxt: u32, now: Instant, delay: Duration) {
        self.owed += 1;
        self.owed_bytes += len;
        let waiting = self.waiting.len();
        match self.waiting.last_mut() {
            Some(last) if seq::before(last.sn, rcv_nxt) => *last = ack,
            _ if waiting < MAX_WAITING => self.waiting.push(ack),
            _ => {}
        }
        self.deadline.get_or_insert(now + delay);
    }

    /// Whether enough arrived since the last flush that its ACKs should not wait: as many segments as one packet of `mtu`
    /// bytes holds ACKs, which is kcp-go's rule, or [`PROMPT_SEGMENTS`] full ones.
    pub(super) const fn are_many(&self, mtu: usize) -> bool {
        self.owed >= mtu / HEADER_LEN || self.owed_bytes >= PROMPT_SEGMENTS * (mtu - HEADER_LEN)
    }

    /// Asks for the ACKs to be sent with the next transmission.
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

    /// Takes up to `max` ACKs that are still worth a segment, oldest first: one packet. What it tells from behind a gap, one
    /// that follows within `delay` repeats.
    pub(super) fn take(
        &mut self,
        max: usize,
        rcv_nxt: u32,
        now: Instant,
        delay: Duration,
        mut send: impl FnMut(Ack),
    ) {
        let worth = Worth { rcv_nxt, last: self.waiting.len().saturating_sub(1) };
        if !self.told.is_empty() {
            if now <= self.told_until {
                self.repeat(max, worth, &mut send);
            }
            self.told.clear();
        }
        let mut taken = 0;
        let mut done = 0;
        for (i, ack) in self.waiting.iter().enumerate() {
            if worth.is_worth(i, ack) {
                if taken == max {
                    break;
                }
                send(*ack);
                taken += 1;
                if worth.is_behind_gap(ack) {
                    self.told.push(*ack);
                    self.told_until = now + delay;
                }
            }
            done = i + 1;
        }
        if done < self.waiting.len() {
            self.waiting.drain(..done);
            return;
        }
        self.waiting.clear();
        self.owed = 0;
        self.owed_bytes = 0;
        self.deadline = None;
        self.due = false;
    }

    /// Says once more, as far as what is new leaves room for it, what still lies behind a gap.
    #[inline(never)]
    fn repeat(&self, max: usize, worth: Worth, send: &mut impl FnMut(Ack)) {
        let news = self.waiting.iter().enumerate().filter(|&(i, ack)| worth.is_worth(i, ack)).count();
        let room = max.saturating_sub(news);
        self.told.iter().copied().filter(|ack| worth.is_behind_gap(ack)).take(room).for_each(send);
    }

    pub(super) fn trim(&mut self) {
        self.waiting.shrink_to_fit();
        self.told = Vec::new();
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
            acks.push(Ack { sn, ts: 0 }, 100, rcv_nxt, Instant::ZERO, DELAY);
        }
    }

    #[test]
    fn in_order_arrivals_collapse_into_the_newest() {
        let mut acks = Acks::default();
        for sn in 0..100 {
            acks.push(Ack { sn, ts: sn }, 100, sn + 1, Instant::from_millis(u64::from(sn)), DELAY);
        }
        assert_eq!((acks.waiting.len(), acks.owed), (1, 100));
        assert_eq!(acks.deadline(), Some(Instant::from_millis(10)));
        assert_eq!(take(&mut acks, 50, 100), [99]);
        assert_eq!((acks.owed, acks.deadline()), (0, None));
    }

    #[test]
    fn arrivals_past_a_gap_are_all_sent_unless_it_closes() {
        let mut acks = Acks::default();
        push(&mut acks, 1..=4, 0);
        assert_eq!(take(&mut acks, 2, 0), [1, 2]);
        push(&mut acks, [0], 5);
        assert_eq!(take(&mut acks, 50, 5), [0]);
        assert!(acks.is_empty());
    }

    #[test]
    fn arrivals_past_a_gap_are_said_twice_where_there_is_room() {
        let mut acks = Acks::default();
        push(&mut acks, [2, 4], 0);
        assert_eq!(take(&mut acks, 50, 0), [2, 4]);
        push(&mut acks, [5], 0);
        assert_eq!(take(&mut acks, 50, 0), [2, 4, 5], "what is new goes last");
        push(&mut acks, [0, 6, 7], 1);
        assert_eq!(take(&mut acks, 3, 1), [5, 6, 7], "neither a third time nor what `una` covers");
        push(&mut acks, [8, 9], 1);
        assert_eq!(take(&mut acks, 3, 1), [6, 8, 9], "as many as there is room");
        push(&mut acks, [1], 4);
        assert_eq!(take_at(&mut acks, 50, 4, Instant::ZERO + DELAY), [8, 9, 1]);
        push(&mut acks, [10], 4);
        assert_eq!(take(&mut acks, 50, 4), [10]);
        push(&mut acks, [11], 4);
        let late = Instant::ZERO + DELAY + DELAY;
        assert_eq!(take_at(&mut acks, 50, 4, late), [11], "too late to be told twice");
    }

    #[test]
    fn many_are_a_packet_of_acks_or_some_full_segments() {
        let mtu = 1_400;
        for (len, least) in [(1, mtu / HEADER_LEN), (mtu - HEADER_LEN, PROMPT_SEGMENTS)] {
            let mut acks = Acks::default();
            let mut pushed = 0;
            while !acks.are_many(mtu) {
                acks.push(Ack { sn: pushed, ts: 0 }, len, pushed + 1, Instant::ZERO, DELAY);
                pushed += 1;
            }
            assert_eq!(pushed as usize, least, "of {len} bytes");
            take(&mut acks, 50, pushed);
            assert!(!acks.are_many(mtu));
        }
    }

    #[test]
    fn a_flood_is_bounded() {
        let mut acks = Acks::default();
        for sn in 0..if cfg!(miri) { 5_000 } else { 100_000 } {
            acks.push(Ack { sn: 1 + sn % 7, ts: 0 }, 100, 0, Instant::ZERO, DELAY);
        }
        assert_eq!(acks.waiting.len(), MAX_WAITING);
    }
}
