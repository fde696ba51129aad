//! The queues of datagrams beside the stream: those that wait to be sent, and those that wait to be read.
//!
//! Datagrams are neither acknowledged nor resent. A late one is worth less than a new one, so that where a queue is full, the
//! oldest make room. Both queues have the same limit in bytes. Each datagram counts [`COST`] bytes more than it has, which
//! limits their number too, however short they are.
//!
//! A datagram is copied once, into memory of its own, which is handed out with it: an application that keeps it for long holds nothing else. That
//! is an allocation for each, of which most allocators have a free one of the same size at hand.
//!
//! Most sessions exchange no datagrams, or none at the moment. These have no queues.

use alloc::{boxed::Box, collections::VecDeque};

use bytes::Bytes;

use super::stats::{DatagramQueueState, DatagramStats};

/// Bytes that a datagram counts beyond its own.
const COST: usize = 64;

/// The datagrams of one session.
#[derive(Debug)]
pub(super) struct Datagrams {
    /// Bytes that each queue may hold, [`COST`] included; 0 where no datagrams are exchanged.
    limit: u32,
    queues: Option<Box<Queues>>,
    /// The last batch had datagrams, so that the next one is the stream's.
    stream_first: bool,
    /// `None` before there is something to count.
    stats: Option<Box<DatagramStats>>,
}

#[derive(Debug, Default)]
struct Queues {
    unsent: Queue,
    unread: Queue,
}

impl Datagrams {
    pub(super) fn new(limit: usize) -> Self {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        Self { limit, queues: None, stream_first: false, stats: None }
    }

    fn queues(&mut self) -> &mut Queues {
        self.queues.get_or_insert_default()
    }

    fn stats_mut(&mut self) -> &mut DatagramStats {
        self.stats.get_or_insert_default()
    }

    pub(super) const fn is_enabled(&self) -> bool {
        self.limit > 0
    }

    // ---- Sending ----

    /// Queues a datagram to be sent.
    pub(super) fn send(&mut self, datagram: &[u8]) {
        let limit = self.limit as usize;
        let dropped = self.queues().unsent.push(datagram, limit);
        self.stats_mut().dropped_unsent += dropped;
    }

    /// Whether datagrams are next to be sent. Their batches take turns with those of the stream, so that neither holds up the
    /// other for longer than a batch.
    pub(super) fn is_turn(&self) -> bool {
        !self.stream_first && self.has_unsent()
    }

    /// Whether datagrams wait to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.queues.as_ref().is_some_and(|queues| !queues.unsent.datagrams.is_empty())
    }

    /// The stream had its turn.
    pub(super) const fn after_stream(&mut self) {
        self.stream_first = false;
    }

    /// Drops datagrams longer than `max`, and returns the length of the next one to be sent.
    pub(super) fn next_len(&mut self, max: usize) -> Option<usize> {
        let queue = &mut self.queues.as_mut()?.unsent;
        loop {
            let len = queue.datagrams.front()?.len();
            if len <= max {
                return Some(len);
            }
            queue.pop();
            self.stats.get_or_insert_default().dropped_unsent += 1;
        }
    }

    /// Takes the next datagram to be sent.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        let datagram = self.queues.as_mut()?.unsent.pop()?;
        self.stream_first = true;
        self.stats_mut().sent += 1;
        Some(datagram)
    }

    // ---- Receiving ----

    /// Queues a datagram that arrived. Returns `false` where the session exchanges none.
    pub(super) fn receive(&mut self, datagram: &[u8]) -> bool {
        if !self.is_enabled() {
            self.stats_mut().unwanted += 1;
            return false;
        }
        let limit = self.limit as usize;
        let dropped = self.queues().unread.push(datagram, limit);
        let stats = self.stats_mut();
        stats.received += 1;
        stats.dropped_unread += dropped;
        true
    }

    pub(super) fn read(&mut self) -> Option<Bytes> {
        self.queues.as_mut()?.unread.pop()
    }

    /// Whether a datagram waits for its reader.
    #[cfg(feature = "tokio")]
    pub(super) fn has_unread(&self) -> bool {
        self.queues.as_ref().is_some_and(|queues| !queues.unread.datagrams.is_empty())
    }

    /// Drops what was not sent.
    pub(super) fn drop_unsent(&mut self) {
        if let Some(queues) = &mut self.queues {
            let unsent = core::mem::take(&mut queues.unsent).datagrams.len() as u64;
            self.stats_mut().dropped_unsent += unsent;
        }
    }

    /// Drops what was not read.
    pub(super) fn drop_unread(&mut self) {
        if let Some(queues) = &mut self.queues {
            let unread = core::mem::take(&mut queues.unread).datagrams.len() as u64;
            self.stats_mut().dropped_unread += unread;
        }
    }

    // ---- Both ----

    /// Whether there is memory for datagrams, used or not.
    #[cfg(feature = "tokio")]
    pub(super) const fn has_queues(&self) -> bool {
        self.queues.is_some()
    }

    /// Frees the memory that is kept for further datagrams.
    pub(super) fn trim(&mut self) {
        let Some(queues) = &mut self.queues else { return };
        queues.unsent.trim();
        queues.unread.trim();
        if queues.unsent.datagrams.is_empty() && queues.unread.datagrams.is_empty() {
            self.queues = None;
        }
    }

    pub(super) fn stats(&self) -> DatagramStats {
        self.stats.as_deref().copied().unwrap_or_default()
    }

    pub(super) fn queue_state(&self) -> DatagramQueueState {
        let Some(queues) = &self.queues else { return DatagramQueueState::default() };
        let [unsent_bytes, unread_bytes] =
            [&queues.unsent, &queues.unread].map(|queue| queue.held - COST * queue.datagrams.len());
        DatagramQueueState { unsent_bytes, unread_bytes }
    }
}

#[derive(Debug, Default)]
struct Queue {
    datagrams: VecDeque<Bytes>,
    /// Bytes of these datagrams, [`COST`] included.
    held: usize,
}

impl Queue {
    /// Adds a datagram. Returns how many were dropped to make room for it.
    fn push(&mut self, datagram: &[u8], limit: usize) -> u64 {
        let mut dropped = 0;
        while self.held + datagram.len() + COST > limit && self.pop().is_some() {
            dropped += 1;
        }
        self.datagrams.push_back(Bytes::copy_from_slice(datagram));
        self.held += datagram.len() + COST;
        dropped
    }

    fn pop(&mut self) -> Option<Bytes> {
        let datagram = self.datagrams.pop_front()?;
        self.held -= datagram.len() + COST;
        Some(datagram)
    }

    fn trim(&mut self) {
        if self.datagrams.is_empty() {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_make_room_in_a_full_queue() {
        let mut datagrams = Datagrams::new(10 * (100 + COST));
        for n in 0..25_u8 {
            datagrams.send(&[n; 100]);
            assert!(datagrams.receive(&[n; 100]));
        }
        let stats = datagrams.stats();
        assert_eq!((stats.dropped_unsent, stats.dropped_unread), (15, 15));
        let full = DatagramQueueState { unsent_bytes: 1_000, unread_bytes: 1_000 };
        assert_eq!(datagrams.queue_state(), full);
        for n in 15..25 {
            assert_eq!(datagrams.next_len(100), Some(100));
            assert_eq!(datagrams.take().as_deref(), Some(&[n; 100][..]));
            assert_eq!(datagrams.read().as_deref(), Some(&[n; 100][..]));
        }
        assert_eq!((datagrams.take(), datagrams.read()), (None, None));
        assert_eq!(datagrams.stats(), DatagramStats { sent: 10, received: 25, ..stats_of(15) });
    }

    fn stats_of(dropped: u64) -> DatagramStats {
        DatagramStats { dropped_unsent: dropped, dropped_unread: dropped, ..DatagramStats::default() }
    }

    #[test]
    fn empty_datagrams_are_limited_in_number() {
        let mut datagrams = Datagrams::new(1_000);
        for _ in 0..100 {
            datagrams.receive(&[]);
        }
        assert_eq!(datagrams.queues().unread.datagrams.len(), 1_000 / COST);
    }

    #[test]
    fn one_datagram_is_kept_whatever_its_size() {
        let mut datagrams = Datagrams::new(1);
        for len in [0, 1_400, 60_000, 3] {
            datagrams.receive(&[7; 60_000][..len]);
            assert_eq!(datagrams.queue_state().unread_bytes, len);
        }
        assert_eq!(datagrams.read().map(|datagram| datagram.len()), Some(3));
        assert_eq!(datagrams.stats().dropped_unread, 3);
    }

    #[test]
    fn datagrams_that_the_mtu_has_become_too_small_for_are_dropped() {
        let mut datagrams = Datagrams::new(10_000);
        for len in [500, 600, 100] {
            datagrams.send(&[1; 600][..len]);
        }
        assert_eq!(datagrams.next_len(499), Some(100));
        assert_eq!(datagrams.stats().dropped_unsent, 2);
    }

    #[test]
    fn a_session_without_datagrams_keeps_none() {
        let mut datagrams = Datagrams::new(0);
        assert!(!datagrams.receive(b"unwanted"));
        assert_eq!(datagrams.read(), None);
        assert_eq!(datagrams.stats(), DatagramStats { unwanted: 1, ..DatagramStats::default() });
    }

    #[test]
    fn a_queue_that_has_become_empty_gives_its_memory_back() {
        let mut queue = Queue::default();
        for _ in 0..100 {
            queue.push(&[7; 100], 5_000);
        }
        queue.trim();
        assert!(!queue.datagrams.is_empty(), "what waits stays");
        while queue.pop().is_some() {}
        queue.trim();
        assert_eq!((queue.held, queue.datagrams.capacity()), (0, 0));
    }
}
