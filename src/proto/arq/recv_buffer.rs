//! Segments that arrived: those in order wait for the reader, those past a gap wait for the gap to close.
//!
//! A payload that arrives in order is copied once, behind the last one, into a chunk that reads drain and that
//! [`recv`](RecvBuffer::recv) can hand out by reference. One that arrives early is copied once into a buffer of its own,
//! found by its sn in a ring, and moves into the queue by reference when its turn comes. Buffers that were read are kept for
//! the next, about as many as were in use of late.
//!
//! A payload in order that lies in a block of memory, with many others, may stay there: [`read`](RecvBuffer::read) then
//! copies it from where it is ([`in_place`]). Whole messages are not handed out from there: each would keep a block.
//!
//! What is in order counts against the receive window until it is read, but for the fragments of a message whose end
//! has not arrived: else a message longer than the window could never complete. There are at most 255 of those.

mod in_place;
#[cfg(test)]
mod tests;

use alloc::{collections::VecDeque, vec::Vec};

use bytes::{Buf, Bytes, BytesMut};

pub use self::in_place::Block;
pub(in crate::proto) use self::in_place::BlockPosition;
use self::in_place::{InPlace, KeptBlocks, most_kept};
use super::{peak::Peak, send_queue::MAX_FRAGMENTS};
use crate::proto::seq;

/// Capacity of the chunks that payloads in order are gathered in.
const CHUNK: usize = 16 * 1_024;
/// Drained chunks kept for the next arrivals whatever is in use.
const MIN_SPARE: usize = 4;
/// Payload counted per segment of the window in the limit on memory, at least: the largest of kcp-go.
const MIN_SEGMENT: usize = 1_500;
/// Ring slots of a session in which something arrived early.
const MIN_RING: usize = 16;

/// What became of a PUSH segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Insert {
    /// Taken in; it was next in order.
    InOrder,
    /// Taken in; it waits for an earlier one.
    Early,
    /// It had arrived before.
    Duplicate,
    /// It lies past the window, or the memory limit leaves no room for it. It must not be acknowledged.
    Refused,
}

/// A segment in order: what is left of its payload, and whether a message ends with it.
#[derive(Debug, Clone, Copy)]
struct Piece {
    left: u32,
    /// Bytes of its chunk between the payload before and its own.
    gap: u16,
    ends: bool,
}

#[derive(Debug, Default)]
struct Slot {
    payload: BytesMut,
    frg: u8,
    filled: bool,
}

/// Payload in order, one or many segments'.
#[derive(Debug)]
enum Chunk {
    /// Gathered here, without gaps.
    Gathered(BytesMut),
    /// The buffer of one that arrived early.
    Early(BytesMut),
    /// Still where it was received.
    InPlace(InPlace),
}

impl Chunk {
    fn is_empty(&self) -> bool {
        match self {
            Self::Gathered(bytes) | Self::Early(bytes) => bytes.is_empty(),
            Self::InPlace(payloads) => payloads.is_empty(),
        }
    }
}

#[derive(Debug)]
pub(super) struct RecvBuffer {
    nxt: u32,
    window: u32,
    /// Payload in order, front to back. A chunk that is empty is the only one.
    chunks: VecDeque<Chunk>,
    spare: Vec<BytesMut>,
    pieces: VecDeque<Piece>,
    /// The blocks that hold chunks.
    blocks: KeptBlocks,
    /// Pieces behind the last end of a message.
    open: usize,
    ready_bytes: usize,
    ring: Vec<Slot>,
    early: u32,
    early_bytes: usize,
    max_segment: usize,
    /// Most chunks in use of late.
    peak: Peak,
    /// Buffers for payloads that arrive early.
    spare_early: Vec<BytesMut>,
    /// How many of them hold payload, early or in order; most since `early_peak` was told, and most of late.
    early_buffers: usize,
    most_early: usize,
    early_peak: Peak,
}

impl RecvBuffer {
    pub(super) fn new(first_sn: u32, window: u32, mss: usize) -> Self {
        Self {
            nxt: first_sn,
            window,
            chunks: VecDeque::new(),
            spare: Vec::new(),
            pieces: VecDeque::new(),
            blocks: KeptBlocks::default(),
            open: 0,
            ready_bytes: 0,
            ring: Vec::new(),
            early: 0,
            early_bytes: 0,
            max_segment: mss.max(MIN_SEGMENT),
            peak: Peak::default(),
            spare_early: Vec::new(),
            early_buffers: 0,
            most_early: 0,
            early_peak: Peak::default(),
        }
    }

    /// The next sn in order: all before have arrived.
    pub(super) const fn nxt(&self) -> u32 {
        self.nxt
    }

    pub(super) const fn set_window(&mut self, window: u32) {
        self.window = window;
    }

    /// Segments in order and not read.
    pub(super) fn ready(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes in order and not read.
    pub(super) const fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }

    /// Segments that wait for an earlier one.
    pub(super) const fn early(&self) -> u32 {
        self.early
    }

    /// Free window, in segments: what is told to the peer.
    pub(super) fn free(&self) -> u32 {
        // Past the memory limit the reader must catch up first, unless there is nothing whole that it could take.
        if self.held_bytes() >= self.memory_limit() && self.has_message() {
            return 0;
        }
        self.room().min(if self.held_bytes() >= self.memory_limit() { 1 } else { u32::MAX })
    }

    /// Segments that the queue has room for, their bytes aside.
    fn room(&self) -> u32 {
        self.window.saturating_sub((self.pieces.len() - self.open) as u32)
    }

    const fn held_bytes(&self) -> usize {
        self.ready_bytes + self.early_bytes
    }

    const fn memory_limit(&self) -> usize {
        self.window as usize * self.max_segment + MAX_FRAGMENTS * self.max_segment
    }

    /// Whether a reader finds something: any byte, or a whole (perhaps empty) message.
    pub(super) fn is_readable(&self) -> bool {
        self.ready_bytes > 0 || self.has_message()
    }

    /// Whether [`recv`](Self::recv) finds a whole message.
    pub(super) fn has_message(&self) -> bool {
        self.pieces.len() > self.open
    }

    /// Takes a PUSH segment in. `place` is where the payload lies, if it may stay there.
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
        if ahead as u32 >= self.window {
            return Insert::Refused;
        }
        if ahead == 0 && self.free() > 0 && !self.holds(sn) {
            let gap = self.append(payload, place);
            self.finish_piece(payload.len(), gap, frg);
            self.advance();
            return Insert::InOrder;
        }
        // While the queue is full, even the next one in order is held back until the reader makes room.
        self.insert_early(ahead as u32, sn, frg, payload)
    }

    /// Whether `sn`, no more than a ring ahead, waits in the ring.
    fn holds(&self, sn: u32) -> bool {
        self.early > 0 && self.ring[sn as usize & (self.ring.len() - 1)].filled
    }

    fn insert_early(&mut self, ahead: u32, sn: u32, frg: u8, payload: &[u8]) -> Insert {
        // The segment that closes the gap is always taken: without it nothing else could leave.
        if ahead > 0 && self.held_bytes() + payload.len() > self.memory_limit() {
            return Insert::Refused;
        }
        if ahead as usize >= self.ring.len() {
            self.grow(ahead as usize + 1);
        }
        let mask = self.ring.len() - 1;
        let slot = &mut self.ring[sn as usize & mask];
        if slot.filled {
            return Insert::Duplicate;
        }
        let mut buffer = self.spare_early.pop().unwrap_or_default();
        buffer.extend_from_slice(payload);
        *slot = Slot { payload: buffer, frg, filled: true };
        self.early += 1;
        self.early_buffers += 1;
        self.most_early = self.most_early.max(self.early_buffers);
        self.early_bytes += payload.len();
        Insert::Early
    }

    fn grow(&mut self, needed: usize) {
        let capacity = needed.next_power_of_two().max(MIN_RING);
        let mut old = core::mem::take(&mut self.ring);
        self.ring.resize_with(capacity, Slot::default);
        for ahead in 0..old.len() {
            let sn = self.nxt.wrapping_add(ahead as u32) as usize;
            let from = sn & (old.len() - 1);
            self.ring[sn & (capacity - 1)] = core::mem::take(&mut old[from]);
        }
    }

    /// Moves segments whose turn has come from the ring into the queue; returns whether any moved.
    pub(super) fn advance(&mut self) -> bool {
        let first = self.nxt;
        // What moves is held already: its bytes do not count again.
        while self.early > 0 && self.room() > 0 {
            let mask = self.ring.len() - 1;
            let slot = &mut self.ring[self.nxt as usize & mask];
            if !slot.filled {
                break;
            }
            let Slot { payload, frg, .. } = core::mem::take(slot);
            self.early -= 1;
            self.early_bytes -= payload.len();
            let len = payload.len();
            if len > 0 {
                self.ready_bytes += len;
                self.push_chunk(Chunk::Early(payload));
            } else {
                self.recycle_early(payload);
            }
            self.finish_piece(len, 0, frg);
        }
        self.nxt != first
    }

    /// Puts a payload behind the others; returns the gap before it.
    fn append(&mut self, payload: &[u8], place: Option<BlockPosition<'_>>) -> u16 {
        if payload.is_empty() {
            return 0;
        }
        let gap = match place {
            Some(place) if self.blocks.are_allowed() => self.keep_in_place(place, payload.len()),
            _ => None,
        };
        if gap.is_none() {
            self.gather_behind(payload);
        }
        self.ready_bytes += payload.len();
        gap.unwrap_or(0)
    }

    fn gather_behind(&mut self, payload: &[u8]) {
        match self.chunks.back_mut() {
            Some(Chunk::Gathered(bytes)) if bytes.capacity() - bytes.len() >= payload.len() => {
                bytes.extend_from_slice(payload);
            }
            _ => {
                let mut bytes = self.spare.pop().unwrap_or_default();
                bytes.reserve(payload.len().max(CHUNK));
                bytes.extend_from_slice(payload);
                self.push_chunk(Chunk::Gathered(bytes));
            }
        }
    }

    /// Has a payload stay in the block that it lies in, if it may; returns the gap before it.
    #[inline(never)]
    fn keep_in_place(&mut self, place: BlockPosition<'_>, len: usize) -> Option<u16> {
        if let Some(Chunk::InPlace(last)) = self.chunks.back_mut()
            && let Some(gap) = last.extend(place, len)
        {
            return Some(gap);
        }
        let payloads = self.blocks.keep(place, len, self.ready_bytes + len)?;
        self.push_chunk(Chunk::InPlace(payloads));
        Some(0)
    }

    fn finish_piece(&mut self, len: usize, gap: u16, frg: u8) {
        self.nxt = self.nxt.wrapping_add(1);
        let ends = frg == 0 || self.open + 1 >= MAX_FRAGMENTS;
        self.pieces.push_back(Piece { left: len as u32, gap, ends });
        self.open = if ends { 0 } else { self.open + 1 };
    }

    /// Copies bytes in order into `out`, across boundaries of messages; returns how many.
    pub(super) fn read(&mut self, out: &mut [u8]) -> usize {
        self.observe();
        self.blocks.set_read_as_bytes(true);
        loop {
            let copied = self.read_ready(out);
            // Empty segments may have filled the window, with bytes waiting behind them.
            if !self.advance() || copied > 0 || out.is_empty() {
                // What was read may have held more than what was behind it.
                if self.blocks.bytes() > most_kept(self.ready_bytes) {
                    self.leave_blocks();
                }
                return copied;
            }
        }
    }

    fn observe(&mut self) {
        self.peak.observe(self.chunks.len());
        self.early_peak.observe(self.most_early);
        self.most_early = self.early_buffers;
        if !self.spare_early.is_empty() {
            self.spare_early.truncate(self.early_room());
        }
    }

    /// Spare buffers that may be kept.
    fn early_room(&self) -> usize {
        self.early_peak.get().saturating_sub(self.early_buffers)
    }

    fn read_ready(&mut self, out: &mut [u8]) -> usize {
        let wanted = out.len().min(self.ready_bytes);
        let mut copied = 0;
        while copied < wanted {
            let out = &mut out[copied..wanted];
            let Some(chunk) = self.chunks.front_mut() else { break };
            let taken = match chunk {
                Chunk::Gathered(bytes) | Chunk::Early(bytes) => {
                    let taken = bytes.len().min(out.len());
                    out[..taken].copy_from_slice(&bytes[..taken]);
                    bytes.advance(taken);
                    self.consume(taken);
                    taken
                }
                Chunk::InPlace(_) => self.read_in_place(out),
            };
            copied += taken;
            if self.chunks.front().is_some_and(Chunk::is_empty) {
                self.recycle_front();
            }
        }
        // Empty segments at the front.
        self.consume(0);
        copied
    }

    /// Copies from the first chunk, which is in place; returns how many bytes, none only if `out` is empty.
    fn read_in_place(&mut self, out: &mut [u8]) -> usize {
        let mut copied = 0;
        self.consume(0);
        while copied < out.len() {
            let Some(Chunk::InPlace(payloads)) = self.chunks.front_mut() else { break };
            let Some(piece) = self.pieces.front_mut().filter(|_| !payloads.is_empty()) else { break };
            let take = (piece.left as usize).min(out.len() - copied);
            let bytes = payloads.take(core::mem::take(&mut piece.gap), take);
            out[copied..copied + take].copy_from_slice(bytes);
            copied += take;
            self.consume(take);
        }
        copied
    }

    /// The next whole message: a slice of the chunk it was gathered in when it lies in one, else a copy.
    pub(super) fn recv(&mut self) -> Option<Bytes> {
        if !self.has_message() {
            return None;
        }
        self.observe();
        self.blocks.set_read_as_bytes(false);
        if self.blocks.bytes() > 0 {
            self.leave_blocks();
        }
        let mut len = 0;
        let mut count = 0;
        for piece in &self.pieces {
            len += piece.left as usize;
            count += 1;
            if piece.ends {
                break;
            }
        }
        let message = match self.chunks.front_mut() {
            // An empty message keeps no chunk.
            Some(Chunk::Gathered(front) | Chunk::Early(front)) if len > 0 && front.len() >= len => {
                let message = front.split_to(len).freeze();
                if front.is_empty() {
                    self.recycle_front();
                }
                message
            }
            _ => self.gather(len),
        };
        self.pieces.drain(..count);
        self.ready_bytes -= len;
        self.advance();
        Some(message)
    }

    fn gather(&mut self, len: usize) -> Bytes {
        let mut message = BytesMut::with_capacity(len);
        while message.len() < len {
            let Some(Chunk::Gathered(chunk) | Chunk::Early(chunk)) = self.chunks.front_mut() else { break };
            let take = chunk.len().min(len - message.len());
            message.extend_from_slice(&chunk[..take]);
            chunk.advance(take);
            if chunk.is_empty() {
                self.recycle_front();
            }
        }
        message.freeze()
    }

    /// The first chunk is drained. The only one stays where it is, for what arrives next.
    fn recycle_front(&mut self) {
        if self.chunks.len() == 1
            && let Some(Chunk::Gathered(bytes)) = self.chunks.front_mut()
            && bytes.try_reclaim(CHUNK)
        {
            return;
        }
        self.remove_front();
    }

    /// Removes the drained first chunk.
    #[inline(never)]
    fn remove_front(&mut self) {
        match self.chunks.pop_front() {
            Some(Chunk::Early(bytes)) => self.recycle_early(bytes),
            Some(Chunk::Gathered(bytes)) => self.recycle_gathered(bytes),
            Some(Chunk::InPlace(payloads)) => self.blocks.give_back(&payloads),
            None => {}
        }
    }

    /// Adds a chunk, for what the last one does not fit; an empty first one makes way.
    fn push_chunk(&mut self, chunk: Chunk) {
        if self.chunks.front().is_some_and(Chunk::is_empty) {
            self.remove_front();
        }
        self.chunks.push_back(chunk);
    }

    /// Copies what lies in blocks of others to memory of its own.
    #[inline(never)]
    fn leave_blocks(&mut self) {
        let mut pieces = self.pieces.iter_mut().filter(|piece| piece.left > 0);
        for chunk in &mut self.chunks {
            match chunk {
                Chunk::Gathered(bytes) | Chunk::Early(bytes) => {
                    let mut left = bytes.len();
                    while left > 0 {
                        let Some(piece) = pieces.next() else { break };
                        left = left.saturating_sub(piece.left as usize);
                    }
                }
                Chunk::InPlace(payloads) => {
                    let mut bytes = BytesMut::with_capacity(payloads.len());
                    while !payloads.is_empty() {
                        let Some(piece) = pieces.next() else { break };
                        let gap = core::mem::take(&mut piece.gap);
                        bytes.extend_from_slice(payloads.take(gap, piece.left as usize));
                    }
                    self.blocks.give_back(payloads);
                    *chunk = Chunk::Gathered(bytes);
                }
            }
        }
    }

    /// Keeps a drained chunk for the next, if it is one worth keeping.
    fn recycle_gathered(&mut self, mut chunk: BytesMut) {
        if self.spare.len() < self.peak.get().max(MIN_SPARE) && chunk.try_reclaim(CHUNK) {
            self.spare.push(chunk);
        }
    }

    /// Keeps the drained buffer of a segment that arrived early for the next.
    fn recycle_early(&mut self, mut buffer: BytesMut) {
        self.early_buffers -= 1;
        // Little may arrive next in what held much: that would escape the memory limit.
        if self.spare_early.len() < self.early_room()
            && buffer.try_reclaim(1)
            && buffer.capacity() <= self.max_segment
        {
            self.spare_early.push(buffer);
        }
    }

    /// Takes `count` bytes off the pieces at the front.
    fn consume(&mut self, count: usize) {
        self.ready_bytes -= count;
        let mut left = count;
        while let Some(piece) = self.pieces.front_mut() {
            let take = left.min(piece.left as usize);
            left -= take;
            piece.left -= take as u32;
            // Empty segments carry nothing for a byte reader and go with what precedes them.
            if piece.left > 0 {
                break;
            }
            self.pieces.pop_front();
        }
        self.open = self.open.min(self.pieces.len());
    }

    /// Gives back the memory that what waits does not need.
    pub(super) fn trim(&mut self) {
        self.spare = Vec::new();
        self.peak = Peak::default();
        self.spare_early = Vec::new();
        self.early_peak = Peak::default();
        if self.blocks.bytes() > 0 {
            self.leave_blocks();
        }
        if self.pieces.is_empty() {
            self.chunks = VecDeque::new();
            self.pieces = VecDeque::new();
        }
        if self.early == 0 {
            self.ring = Vec::new();
        }
    }
}
