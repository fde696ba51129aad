//! What there is room for: the receive window, a limit on memory, and what the session has of the
//! [memory that sessions share](crate::proto::memory).
//!
//! Most segments come in order and find plain room: two comparisons. Else the share grows by what is missing. Where nothing is left
//! of the memory, each of these keeps a session going:
//!
//! * The next segment in order is taken while less than the floor of payload is ready, whatever waits out of order. So a gap is
//!   always closed.
//! * The window that the peer is told shrinks to what there is memory for, at least that of the floor. A sender that keeps to it sends
//!   nothing that is refused. One that does not, or that was told of a larger window before, sends it again: what is refused is not
//!   acknowledged.
//! * A segment costs at least [`SEGMENT`], however short it is: its place in a queue and a buffer of its own take as much.
//!
//! A message can only be taken whole by a reader of messages. If all memory were held by halves of messages, none would complete
//! ("reassembly lockup", Kahn and Crowther 1972). So a segment of a message, which tells how many follow, is taken only where there is
//! memory for all that is missing up to the last one. That is *promised* to them, and nothing else is taken in its place.

#[cfg(test)]
mod tests;

use super::{RecvBuffer, memory_limit};
use crate::proto::{memory::BufferMemory, seq};

/// What a segment costs at least, of the memory that sessions share: its buffer, and its places in the queues.
const SEGMENT: usize = 128;

/// Where there is room for the next segment in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// In the ready queue.
    Ready,
    /// Where segments wait until the reader makes room.
    Waiting,
    /// Nowhere.
    None,
}

impl RecvBuffer {
    // ---- What the peer is told ----

    /// The free receive window, in segments: what the peer is told.
    pub(in crate::proto::arq) fn free_window(&self) -> u32 {
        let free = self.free_segments();
        let held = self.held_bytes();
        if held >= self.memory_limit() {
            // The reader must catch up first; or, if it has nothing whole to take: one segment at a time until it has.
            return if self.has_message() { 0 } else { free.min(1) };
        }
        if self.share.is_bounded() { self.segments_of_memory(free) } else { free }
    }

    /// Whether the free window has grown so much that the peer is to know, who was told of one of `told` segments. It is told once a
    /// quarter of the window is free, not at each free segment: a reader of single bytes would have one WINS sent for each. Half of the
    /// window counts: a sender that has just that in flight, and one ACK for all of it, would be told so again and again.
    pub(in crate::proto::arq) fn is_worth_telling(&self, told: u32) -> bool {
        let whole = self.whole_window();
        told <= whole.div_ceil(2) && self.free_window() >= told + whole.div_ceil(4)
    }

    /// The window as it would be if everything were read.
    fn whole_window(&self) -> u32 {
        if self.share.is_bounded() {
            self.segments(self.share.attainable(), self.window)
        } else {
            self.window
        }
    }

    /// Segments that there is memory for, `most` at most.
    fn segments_of_memory(&self, most: u32) -> u32 {
        let attainable = self.share.attainable().saturating_sub(self.overhead());
        let free = self.segments(attainable.saturating_sub(self.cost(0, 0)), most);
        // One closes a gap, or completes what the reader waits for.
        if free > 0 { free } else { most.min((self.is_below_floor() || !self.has_message()).into()) }
    }

    /// Segments that so many bytes hold, `most` at most: mostly all, which is seen without a division.
    fn segments(&self, bytes: usize, most: u32) -> u32 {
        let wanted = (most as usize).saturating_mul(self.max_segment());
        if wanted <= bytes { most } else { (bytes / self.max_segment()) as u32 }
    }

    /// Segments that the ready queue has room for, memory aside.
    pub(super) fn free_segments(&self) -> u32 {
        let free = self.window.saturating_sub(self.ready.finished_segments() as u32);
        u64::from(free).min(self.left) as u32
    }

    pub(super) const fn held_bytes(&self) -> usize {
        self.ready.bytes() + self.reassembly.bytes()
    }

    /// Bytes of payload that the limit on memory allows for each segment.
    const fn max_segment(&self) -> usize {
        self.buffers.max_capacity()
    }

    pub(super) const fn memory_limit(&self) -> usize {
        memory_limit(self.window, self.max_segment(), self.ready.max_message())
    }

    // ---- Arrival ----

    /// Whether the next segment in order can be taken without a closer look.
    #[inline]
    pub(super) fn has_plain_room(&self, len: usize, frg: u8) -> bool {
        self.held_bytes() + len <= self.limit
            && (self.ready.finished_segments() as u32) < self.places
            && frg == 0
            && self.promised == 0
    }

    /// Makes room for the next segment in order, which has `len` bytes of payload.
    #[inline(never)]
    pub(super) fn make_room(&mut self, sn: u32, len: usize, frg: u8) -> Room {
        let is_full = self.held_bytes() >= self.memory_limit() && self.has_message();
        let room = if is_full || self.free_segments() == 0 { Room::Waiting } else { Room::Ready };
        if self.grow_for(sn, len, frg) {
            return room;
        }
        if room == Room::Ready && self.is_below_floor() && self.fits_floor(len, frg) {
            return room;
        }
        self.share.count_refused();
        Room::None
    }

    /// Whether a segment that is not the next in order can be taken without a closer look.
    #[inline]
    pub(super) fn has_plain_room_out_of_order(&self, len: usize, frg: u8) -> bool {
        self.held_bytes() + len <= self.limit
            && self.reassembly.count() < self.places
            && frg == 0
            && self.promised == 0
    }

    /// Makes room for a segment that is not the next in order. One that is there needs none.
    #[inline(never)]
    pub(super) fn make_room_out_of_order(&mut self, sn: u32, len: usize, frg: u8) -> bool {
        if self.held_bytes() + len > self.memory_limit() {
            return false;
        }
        if self.reassembly.contains(sn) || self.grow_for(sn, len, frg) {
            return true;
        }
        self.share.count_refused();
        false
    }

    /// Whether there is memory for one more segment, and for all that is missing up to the end of its message.
    fn grow_for(&mut self, sn: u32, len: usize, frg: u8) -> bool {
        if !self.share.is_bounded() {
            return true;
        }
        self.forget_kept_promises();
        let end = sn.wrapping_add(frg.into());
        let is_promised = self.promised > 0 && !seq::before(self.promised_to, end);
        let promised = if is_promised {
            (self.promised as usize).saturating_sub(len)
        } else if frg > 0 {
            let behind = if self.promised > 0 { self.promised_to } else { self.nxt.wrapping_sub(1) };
            // As long as this one, unless it is the last.
            self.promised as usize + (seq::distance(behind, end).max(1) as usize - 1) * len
        } else {
            self.promised as usize
        };
        let needed = self.cost(1, len) + promised + self.overhead();
        if needed > self.share.allowed() && !self.grow_by_shedding(needed) {
            return false;
        }
        if !is_promised && frg > 0 {
            self.promised_to = end;
        }
        self.promised = u32::try_from(promised).unwrap_or(u32::MAX);
        true
    }

    /// Takes what is missing to hold `needed` bytes, if need be by freeing what is held beside payload.
    fn grow_by_shedding(&mut self, mut needed: usize) -> bool {
        let mut has_grown = self.share.grow_to(needed);
        if !has_grown && self.overhead() + self.spare_bytes() > 0 {
            needed -= self.overhead();
            self.shed();
            has_grown = self.share.grow_to(needed + self.overhead());
        }
        self.update_room();
        has_grown
    }

    /// Frees what is held beside payload, and gives it back.
    #[cold]
    fn shed(&mut self) {
        self.ready.trim();
        self.buffers.trim();
        self.give_back();
    }

    fn forget_kept_promises(&mut self) {
        if seq::before(self.promised_to, self.nxt) {
            self.promised = 0;
        }
    }

    /// Whether little is ready, so that the next segment in order is taken without memory for it.
    fn is_below_floor(&self) -> bool {
        let floor = self.share.floor();
        self.ready.bytes() + self.max_segment() <= floor && self.ready.segments() < floor / SEGMENT
    }

    /// Whether a segment is no longer than this end's own, and its reader can take its message: by bytes, or because the rest fits too.
    fn fits_floor(&self, len: usize, frg: u8) -> bool {
        let is_middle = !self.ready.is_between_messages();
        let fits = len * (usize::from(frg) + 1) <= self.share.floor();
        len <= self.max_segment() && (self.ready.reads_bytes() || is_middle || fits)
    }

    /// What is held and so many more segments with so many bytes cost.
    fn cost(&self, segments: usize, bytes: usize) -> usize {
        let segments = self.ready.segments() + self.reassembly.count() as usize + segments;
        (self.held_bytes() + bytes).max(segments * SEGMENT)
    }

    // ---- Taking and giving back ----

    /// Takes part in the memory that sessions share.
    pub(in crate::proto::arq) fn join(&mut self, memory: &BufferMemory) {
        self.share.join(memory);
        self.settle();
    }

    pub(in crate::proto::arq) const fn is_bounded(&self) -> bool {
        self.share.is_bounded()
    }

    /// Has the share follow what is held. Where there is no memory for what is held beside the payload, that is freed.
    #[inline(never)]
    pub(in crate::proto::arq) fn settle(&mut self) {
        if !self.share.is_bounded() {
            return;
        }
        let needed = self.needed();
        let is_spare = self.overhead() + self.spare_bytes() > 0;
        if is_spare && (self.share.is_short() || !self.share.settle(needed)) {
            self.shed();
        }
        let needed = self.needed();
        self.share.settle(needed);
        self.update_room();
    }

    /// Gives back all that is not needed.
    pub(super) fn give_back(&mut self) {
        let needed = self.needed();
        self.share.give_back(needed);
        self.update_room();
    }

    /// After bytes or a message were read.
    #[inline]
    pub(super) fn after_read(&mut self) {
        if self.held_bytes() < self.share.gives_back_below() {
            self.settle();
        }
    }

    /// Bytes of the blocks that some of the payload lies in.
    const fn overhead(&self) -> usize {
        self.ready.block_bytes()
    }

    /// Bytes of spare memory.
    fn spare_bytes(&self) -> usize {
        self.ready.spare_bytes() + self.buffers.spare_bytes()
    }

    /// Bytes of payload, of the queue that it stands in, and of spare memory.
    pub(in crate::proto::arq) fn memory_bytes(&self) -> usize {
        self.held_bytes() + self.overhead() + self.spare_bytes() + self.ready.queue_bytes()
    }

    /// What is to be had of the share. What arrives goes to spare memory first, so that this takes nothing of what is
    /// promised.
    fn needed(&mut self) -> usize {
        self.forget_kept_promises();
        self.cost(0, 0) + self.overhead() + (self.promised as usize).max(self.spare_bytes())
    }

    /// Follows a change of the window or the share.
    pub(super) fn update_room(&mut self) {
        let allowed = self.share.allowed().saturating_sub(self.overhead());
        self.limit = self.memory_limit().min(allowed);
        self.places = self.window.min(u32::try_from(allowed / SEGMENT).unwrap_or(u32::MAX));
    }
}
