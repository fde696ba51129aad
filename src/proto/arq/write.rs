//! What the application writes: into the queue as far as there is room, or kept out.

use super::{Arq, send_queue::MAX_FRAGMENTS};
use crate::proto::{error::WriteError, time::Instant};

impl Arq {
    /// Takes as many of `bytes` as the queue has room for, 0 when it is full.
    // A writer of small pieces calls it for each: the call itself would be 3 % of what a piece costs.
    #[inline]
    pub(in crate::proto) fn write(&mut self, now: Instant, bytes: &[u8]) -> usize {
        if bytes.is_empty() {
            return 0;
        }
        let mut taken = 0;
        if self.stream {
            let room = (self.queue_limit_bytes as usize).saturating_sub(self.queue.unsent());
            let mut piece = &bytes[..room.min(bytes.len())];
            if !self.has_queue_room() {
                return 0;
            }
            if !self.memory.has_plain_room(&self.queue.bytes, piece.len()) {
                piece = &piece[..self.memory.make_room(&mut self.queue.bytes, piece.len())];
                if piece.is_empty() {
                    return 0;
                }
            }
            self.queue.push_stream(piece);
            taken = piece.len();
        } else {
            let mss = self.path.mss();
            while taken < bytes.len() && self.has_queue_room() {
                let piece = &bytes[taken..bytes.len().min(taken + mss)];
                if !self.memory.has_room_for_all(now, &mut self.queue.bytes, piece.len()) {
                    break;
                }
                self.queue.push_message(piece, mss);
                taken += piece.len();
            }
        }
        self.after_write(now, taken);
        taken
    }

    /// Takes the whole of a write that is kept for further ones, if this is one: it finds plain room, nothing is sent, and no timer is
    /// set. So it needs no look at the clock, which would be a large part of what a write of a few bytes costs.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(in crate::proto) fn write_kept(&mut self, bytes: &[u8]) -> bool {
        let is_kept = self.stream
            && self.holds_back(bytes.len())
            && (!self.write_delay || self.queue.unsent() > 0)
            && self.peer_window > 0
            && self.queue.unsent() + bytes.len() <= self.queue_limit_bytes as usize
            && self.has_queue_room()
            && self.memory.has_plain_room(&self.queue.bytes, bytes.len());
        if is_kept {
            self.queue.push_stream(bytes);
            self.counters.stream.bytes_written += bytes.len() as u64;
        }
        is_kept
    }

    /// Queues one message whole.
    pub(in crate::proto) fn send(&mut self, now: Instant, message: &[u8]) -> Result<(), WriteError> {
        let max = MAX_FRAGMENTS * self.path.discovery.max_mss();
        if message.is_empty() {
            return Err(WriteError::EmptyMessage);
        }
        if message.len() > max {
            return Err(WriteError::MessageTooLong { max });
        }
        if !self.has_queue_room() || !self.memory.has_room_for_all(now, &mut self.queue.bytes, message.len())
        {
            return Err(WriteError::Blocked);
        }
        let fragment = self.fragment_of(message.len());
        self.queue.push_message(message, fragment);
        self.after_write(now, message.len());
        Ok(())
    }

    fn after_write(&mut self, now: Instant, taken: usize) {
        if taken == 0 {
            return;
        }
        self.counters.stream.bytes_written += taken as u64;
        // What was waiting before is due already, or waits for the window, and takes this along.
        if self.write_delay && self.queue.unsent() == taken {
            self.flush_at = Some(now + self.nodelay.interval);
        }
        self.update_probe(now);
    }

    pub(super) fn update_probe(&mut self, now: Instant) {
        let needed = self.peer_window == 0 && self.queue.unsent() > 0;
        self.probe.update(needed, now);
    }

    /// Follows a change of what may be in flight.
    pub(super) fn update_queue_limit(&mut self) {
        let window = self.path.window().min(self.send_window);
        let limit = (window / 4).clamp(*QUEUE_LIMIT.start(), *QUEUE_LIMIT.end());
        self.queue_limit = limit.min(self.send_window.max(MIN_QUEUE_LIMIT));
        self.queue_limit_bytes = self.queue_limit * self.path.mss() as u32;
    }

    /// Whether a write would take at least one byte, or the message that was refused last.
    pub(in crate::proto) fn is_writable(&self) -> bool {
        self.has_queue_room() && self.memory.has_room_for_refused(&self.queue.bytes)
    }

    /// Whether less waits to be sent than may.
    pub(super) fn has_queue_room(&self) -> bool {
        self.queue.unsent() < self.queue_limit_bytes as usize
            && self.queue.pending() < self.queue_limit as usize
    }

    /// Whether enough room is free for a writer that had to wait to be woken.
    pub(in crate::proto) fn has_much_room(&self) -> bool {
        let half = self.queue_limit as usize / 2;
        self.queue.unsent() <= half * self.path.mss()
            && self.queue.pending() <= half
            && self.memory.has_room_for_refused(&self.queue.bytes)
    }
}

/// Written data may wait for room in the window: a quarter of what may be in flight, within these limits, in full segments.
/// That is enough to fill what ACKs free while the writer is woken, and little enough for several sessions' data to be
/// still in the processor's caches when its turn comes.
const QUEUE_LIMIT: core::ops::RangeInclusive<u32> = 96..=256;
/// No more may wait than the send window, or than this if the send window is smaller.
const MIN_QUEUE_LIMIT: u32 = 32;
