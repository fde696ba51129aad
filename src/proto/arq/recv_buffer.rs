//! What arrived and was not read: segments out of order, and payload in order that is ready for the reader.
//!
//! ```text
//!   insert --- next in order ------------------------> ReadyQueue --- read, recv -->
//!      |                                                    ^
//!      '------ later ------> Reassembly --- advance --------'
//! ```
//!
//! This file decides which of the two takes a segment, and how much the peer may send: the receive window and a limit on
//! memory. [`reassembly`] has the segments that wait for an earlier one. [`ready_queue`] is the payload in order.
//! Payload is copied once when it arrives, or not at all where it may stay in a [block](blocks), and once when it is read.
//!
//! Payload in order counts against the receive window until it is read. The exception is the fragments of a message whose end
//! has not arrived: else a message longer than the window could never complete. There are at most 255 of those, and no more bytes
//! of them than [`max_message_bytes`](crate::KcpConfigBuilder::max_message_bytes).
//!
//! Where sessions share their memory, [`room`] says what of all this there is room for.

mod blocks;
mod ready_queue;
mod reassembly;
mod room;
mod segment_buffers;
#[cfg(test)]
mod tests;

use bytes::Bytes;

pub use self::blocks::Block;
pub(in crate::proto) use self::blocks::BlockPosition;
use self::{
    ready_queue::ReadyQueue,
    reassembly::{Payload, Reassembly},
    room::Room,
    segment_buffers::SegmentBuffers,
};
use super::send_queue::MAX_FRAGMENTS;
use crate::proto::{
    memory::{FLOOR, ReceiveShare},
    seq,
    wire::HEADER_LEN,
};

/// The limit on memory allows at least this payload for each segment of the window: the largest that kcp-go sends.
const MIN_SEGMENT: usize = 1_500;

/// The largest payload of a segment: that of the largest UDP packet.
const LARGEST_SEGMENT: usize = 65_507 - HEADER_LEN;

/// The longest message that is taken in whole, unless it is set: as many full segments as a message may have.
pub(in crate::proto) fn default_max_message(mss: usize) -> usize {
    MAX_FRAGMENTS * mss.max(MIN_SEGMENT)
}

/// The largest that may be set: as many of the largest segments.
pub(in crate::proto) const LARGEST_MESSAGE: usize = MAX_FRAGMENTS * LARGEST_SEGMENT;

/// The most bytes of payload that are ever held, whatever a peer sends and whether or not anybody reads.
///
/// Beyond the limit on memory that is a message without its end, which is taken one segment at a time until it is whole or cut, and
/// the segment that ends it and the next one in order. Their peer chooses how long these are.
pub(in crate::proto) fn most_held(window: u32, mss: usize, max_message: usize) -> usize {
    memory_limit(window, mss.max(MIN_SEGMENT), max_message) + max_message + 2 * LARGEST_SEGMENT
}

/// The limit on memory: bytes from which on the peer is told that there is no room.
const fn memory_limit(window: u32, max_segment: usize, max_message: usize) -> usize {
    window as usize * max_segment + max_message
}

/// What became of a PUSH segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Insert {
    /// It was next in order, and is ready for the reader.
    InOrder,
    /// It waits for an earlier one.
    OutOfOrder,
    /// It had arrived before.
    Duplicate,
    /// It is past the window, or past the limit on memory, or there is no memory for it. It must not be acknowledged.
    Refused,
}

#[derive(Debug)]
pub(super) struct RecvBuffer {
    /// The next sn in order.
    nxt: u32,
    /// The receive window, in segments.
    window: u32,
    /// Segments from `nxt` on that are taken in at all: up to the end of the stream, none where nobody reads. While neither is
    /// known they are so many that they never run out.
    left: u64,
    /// The highest sn of those that wait for an earlier one. Without meaning if none waits.
    newest: u32,
    /// What it has of the memory that sessions share.
    share: ReceiveShare,
    /// Bytes held beyond which a segment needs a closer look: the limit on memory, or what the share allows.
    limit: usize,
    /// Segments in order from which on it does: the window, or what the share allows.
    places: u32,
    /// Bytes that are to come of messages of which something was taken in: there is memory for them.
    promised: u32,
    /// The sn of the last segment of these messages. Without meaning if nothing is promised.
    promised_to: u32,
    reassembly: Reassembly,
    /// The buffers of segments that arrived out of order, until they are read.
    buffers: SegmentBuffers,
    ready: ReadyQueue,
}

impl RecvBuffer {
    pub(super) fn new(first_sn: u32, window: u32, mss: usize, max_message: usize) -> Self {
        let max_segment = mss.max(MIN_SEGMENT);
        Self {
            nxt: first_sn,
            window,
            left: u64::MAX,
            newest: first_sn,
            share: ReceiveShare::unbounded(FLOOR.max(max_segment)),
            limit: memory_limit(window, max_segment, max_message),
            places: window,
            promised: 0,
            promised_to: first_sn,
            reassembly: Reassembly::default(),
            buffers: SegmentBuffers::new(max_segment),
            ready: ReadyQueue::new(max_message),
        }
    }

    /// The next sn in order: all before have arrived.
    pub(super) const fn nxt(&self) -> u32 {
        self.nxt
    }

    pub(super) fn set_window(&mut self, window: u32) {
        self.window = window;
        self.update_room();
    }

    /// Segments in order that were not read.
    pub(super) fn unread_segments(&self) -> usize {
        self.ready.segments()
    }

    /// Bytes in order that were not read.
    pub(super) const fn unread_bytes(&self) -> usize {
        self.ready.bytes()
    }

    /// Segments that wait for an earlier one.
    pub(super) fn out_of_order(&self) -> u32 {
        self.reassembly.count()
    }

    /// Whether a reader finds something: any byte, or a whole message, which may be empty.
    pub(super) fn is_readable(&self) -> bool {
        self.ready.bytes() > 0 || self.ready.has_message()
    }

    /// Whether [`recv`](Self::recv) finds a whole message.
    pub(super) fn has_message(&self) -> bool {
        self.ready.has_message()
    }

    // ---- Arrival ----

    /// Takes a PUSH segment in. `place` is where its payload lies, if it may stay there.
    #[inline]
    pub(super) fn insert(
        &mut self,
        sn: u32,
        frg: u8,
        payload: &[u8],
        place: Option<BlockPosition<'_>>,
    ) -> Insert {
        let ahead = seq::distance(self.nxt, sn);
        if ahead < 0 {
            return Insert::Duplicate;
        }
        let ahead = ahead as u32;
        if u64::from(ahead) >= u64::from(self.window).min(self.left) {
            return Insert::Refused;
        }
        if ahead == 0 && self.has_plain_room(payload.len(), frg) && !self.reassembly.contains(sn) {
            self.push(payload, frg, place);
            return Insert::InOrder;
        }
        self.insert_elsewhere(ahead, sn, frg, payload, place)
    }

    /// Takes in the segment that is next in order, if it [fits](Self::fits_in_order). Returns whether it did.
    #[inline]
    pub(super) fn insert_in_order(
        &mut self,
        frg: u8,
        payload: &[u8],
        place: Option<BlockPosition<'_>>,
    ) -> bool {
        let fits = self.fits_in_order(frg, payload.len());
        if fits {
            self.push_in_order(frg, payload, place);
        }
        fits
    }

    /// Whether there is plain room for the segment that is next in order, and nothing waits behind it.
    #[inline]
    pub(super) fn fits_in_order(&self, frg: u8, len: usize) -> bool {
        self.left > 0 && self.window > 0 && self.has_plain_room(len, frg) && self.reassembly.count() == 0
    }

    /// Takes in the segment that is next in order. It must [fit](Self::fits_in_order).
    #[inline]
    pub(super) fn push_in_order(&mut self, frg: u8, payload: &[u8], place: Option<BlockPosition<'_>>) {
        debug_assert!(self.fits_in_order(frg, payload.len()));
        self.ready.push(payload, frg, place);
        self.step();
    }

    /// Makes bytes ready that came beside the stream, before anything of it.
    #[cfg(feature = "noise")]
    pub(super) fn push_early_data(&mut self, bytes: &[u8]) {
        self.ready.push(bytes, 0, None);
    }

    #[inline]
    fn push(&mut self, payload: &[u8], frg: u8, place: Option<BlockPosition<'_>>) {
        self.ready.push(payload, frg, place);
        self.step();
        self.advance();
    }

    /// Takes in a segment that is not the next in order, or for which room must be made.
    fn insert_elsewhere(
        &mut self,
        ahead: u32,
        sn: u32,
        frg: u8,
        payload: &[u8],
        place: Option<BlockPosition<'_>>,
    ) -> Insert {
        if ahead == 0 && !self.reassembly.contains(sn) {
            match self.make_room(sn, payload.len(), frg) {
                Room::Ready => {
                    self.push(payload, frg, place);
                    return Insert::InOrder;
                }
                // While the ready queue is full, even the next segment in order waits until the reader makes room.
                Room::Waiting => {}
                Room::None => return Insert::Refused,
            }
        }
        self.insert_out_of_order(ahead, sn, frg, payload)
    }

    fn insert_out_of_order(&mut self, ahead: u32, sn: u32, frg: u8, payload: &[u8]) -> Insert {
        if ahead > 0
            && !self.has_plain_room_out_of_order(payload.len(), frg)
            && !self.make_room_out_of_order(sn, payload.len(), frg)
        {
            return Insert::Refused;
        }
        let is_new = self.reassembly.insert(sn, frg, payload, |payload| self.buffers.copy_of(payload));
        if !is_new {
            return Insert::Duplicate;
        }
        if self.reassembly.count() == 1 || seq::before(self.newest, sn) {
            self.newest = sn;
        }
        Insert::OutOfOrder
    }

    /// Takes note that the next segment in order is in the ready queue.
    const fn step(&mut self) {
        self.nxt = self.nxt.wrapping_add(1);
        self.left -= 1;
    }

    /// Moves the segments that are next in order to the ready queue, as far as it has room. Returns whether any moved.
    #[inline]
    pub(super) fn advance(&mut self) -> bool {
        let first = self.nxt;
        // Memory does not matter here: the bytes that move are held already.
        while self.reassembly.count() > 0 && self.free_segments() > 0 {
            let ready = &mut self.ready;
            let is_there = self.reassembly.take(self.nxt, |segment| match &mut segment.payload {
                Payload::Short(payload) => ready.push(payload.as_slice(), segment.frg, None),
                Payload::Buffer(payload) => ready.push_buffer(core::mem::take(payload), segment.frg),
            });
            if !is_there {
                break;
            }
            self.step();
        }
        self.nxt != first
    }

    // ---- The end ----

    /// The sn behind the last segment that has arrived, in order or not.
    pub(super) fn newest_end(&self) -> u32 {
        if self.reassembly.count() == 0 { self.nxt } else { self.newest.wrapping_add(1) }
    }

    /// The peer sends nothing from `end` on: such segments are refused. `end` must not be before [`newest_end`](Self::newest_end).
    pub(super) const fn set_end(&mut self, end: u32) {
        self.left = end.wrapping_sub(self.nxt) as u64;
    }

    /// Nobody reads any more: new segments are refused, and the window is closed.
    pub(super) const fn refuse(&mut self) {
        self.left = 0;
    }

    /// Whether something limits what is taken in, besides the window.
    pub(super) const fn is_limited(&self) -> bool {
        self.left <= u32::MAX as u64
    }

    /// Takes in segments as at the beginning: none is the last.
    pub(super) const fn accept_all(&mut self) {
        self.left = u64::MAX;
    }

    /// Drops what is ready for the reader, and what becomes ready with that. Returns how many bytes.
    pub(super) fn discard(&mut self) -> usize {
        let mut bytes = 0;
        loop {
            bytes += self.ready.clear(&mut self.buffers);
            if !self.advance() {
                self.settle();
                return bytes;
            }
        }
    }

    // ---- Reading ----

    /// Copies bytes in order into `out`, across boundaries of messages. Returns how many.
    pub(super) fn read(&mut self, out: &mut [u8]) -> usize {
        let (max, mut filled) = (out.len(), 0);
        let copy = |bytes: &[u8]| {
            out[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
        };
        self.read_with(copy, max)
    }

    /// Hands up to `max` bytes in order to `out`, in pieces, as [`read`](Self::read) would copy them. Returns how many.
    pub(super) fn read_with(&mut self, mut out: impl FnMut(&[u8]), max: usize) -> usize {
        self.buffers.on_read();
        loop {
            let copied = self.ready.read(&mut out, max, &mut self.buffers);
            // Empty segments may have filled the window while bytes waited behind them: then there is more to read now.
            if !self.advance() || copied > 0 || max == 0 {
                self.after_read();
                return copied;
            }
        }
    }

    /// Copies bytes in order into `out`, as [`read`](Self::read) would, but leaves them. Returns how many.
    pub(super) fn peek(&mut self, out: &mut [u8]) -> usize {
        // Empty segments at the front are nothing to a reader of bytes, and may keep back the bytes behind them.
        while self.ready.bytes() == 0 && self.ready.has_message() {
            self.read(&mut []);
        }
        self.ready.peek(out)
    }

    /// The next whole message.
    pub(super) fn recv(&mut self) -> Option<Bytes> {
        self.buffers.on_read();
        let message = self.ready.recv(&mut self.buffers)?;
        self.advance();
        self.after_read();
        Some(message)
    }

    /// Frees the memory that waiting segments and unread payload do not need.
    pub(super) fn trim(&mut self) {
        self.ready.trim();
        self.reassembly.trim();
        self.buffers.trim();
        self.give_back();
    }
}
