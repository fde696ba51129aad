//! ACKs that wait to be sent.
//!
//! As in kcp-go, an ACK whose `sn` lies below `rcv_nxt` is covered by the `una` that every segment carries, and only
//! the newest such is worth a segment (for the peer's round-trip time); the rest never enter the list.

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
    /// PUSH segments that arrived since the last flush, and their payload bytes.
    owed: usize,
    owed_bytes: usize,
    deadline: Option<Instant>,
    due: bool,
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

    /// Whether enough arrived since the last flush that its ACKs should not wait: as many segments as one datagram of `mtu`
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

    /// Takes up to `max` ACKs that are still worth a segment, oldest first.
    pub(super) fn take(&mut self, max: usize, rcv_nxt: u32, mut send: impl FnMut(Ack)) {
        let last = self.waiting.len().saturating_sub(1);
        let mut taken = 0;
        let mut done = 0;
        for (i, ack) in self.waiting.iter().enumerate() {
            if i == last || !seq::before(ack.sn, rcv_nxt) {
                if taken == max {
                    break;
                }
                send(*ack);
                taken += 1;
            }
            done = i + 1;
        }
        self.waiting.drain(..done);
        if self.waiting.is_empty() {
            self.owed = 0;
            self.owed_bytes = 0;
            self.deadline = None;
            self.due = false;
        }
    }

    pub(super) fn trim(&mut self) {
        self.waiting.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(10);

    fn take(acks: &mut Acks, max: usize, rcv_nxt: u32) -> Vec<u32> {
        let mut taken = Vec::new();
        acks.take(max, rcv_nxt, |ack| taken.push(ack.sn));
        taken
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
        for sn in [1, 2, 3] {
            acks.push(Ack { sn, ts: 0 }, 100, 0, Instant::ZERO, DELAY);
        }
        acks.push(Ack { sn: 4, ts: 0 }, 100, 0, Instant::ZERO, DELAY);
        assert_eq!(take(&mut acks, 2, 0), [1, 2]);
        acks.push(Ack { sn: 0, ts: 0 }, 100, 5, Instant::ZERO, DELAY);
        assert_eq!(take(&mut acks, 50, 5), [0]);
        assert!(acks.is_empty());
    }

    #[test]
    fn many_are_a_datagram_of_acks_or_some_full_segments() {
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
