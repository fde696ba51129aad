//! Payload that arrived in order and waits for the reader.
//!
//! The bytes lie in a queue of chunks, of three kinds:
//!
//! * Payload that arrives in order is copied behind the payload before it, into a chunk. The chunks of a session are small at first; they grow up to
//!   [`CHUNK`] bytes when they are filled before they are read.
//! * Payload that arrived out of order brings the buffer that it waited in.
//! * Payload in a [block](super::blocks) of received packets stays there, if the application reads bytes.
//!
//! [`recv`](ReadyQueue::recv) hands out a message without a copy where it fills a good part of one chunk. Else the message is
//! copied: one that the application keeps would hold the whole chunk, or even a block.
//!
//! Beside the bytes stands a queue of the segments that they came in. It knows where messages end.

#[cfg(test)]
mod tests;

use alloc::{collections::VecDeque, vec::Vec};

use bytes::{Buf, Bytes, BytesMut};

use super::{
    blocks::{BlockPosition, BlockRun, HeldBlocks, allowance},
    segment_buffers::SegmentBuffers,
};
use crate::proto::arq::{high_water_mark::HighWaterMark, send_queue::MAX_FRAGMENTS};

/// Capacity of the chunks that payload is copied into, in a session that receives much.
const CHUNK: usize = 16 * 1_024;
/// The same in a session of small messages.
const LEAST_CHUNK: usize = 1_024;
/// A message that is handed out without a copy is at least this part of the memory that it holds.
const LEAST_PART: usize = 4;
/// Payload of fewer bytes is copied out of its block: to know where each lies would cost as much.
const LEAST_IN_BLOCK: usize = 128;
/// Drained chunks of that kind that are kept for later payload, however few were in use recently.
const MIN_SPARE: usize = 4;

/// A segment that was not wholly read.
#[derive(Debug, Clone, Copy)]
struct Segment {
    /// Bytes of its payload that were not read.
    unread: u32,
    /// Bytes between the payload before and this one, in a block.
    gap: u16,
    /// Whether its message ends with it.
    ends_message: bool,
}

/// Payload of one segment or of many.
#[derive(Debug)]
enum Chunk {
    /// Copied here, without gaps.
    Copied(BytesMut),
    /// The buffer of one segment that arrived out of order.
    Segment(BytesMut),
    /// Still where it was received.
    InBlock(BlockRun),
}

impl Chunk {
    fn is_empty(&self) -> bool {
        match self {
            Self::Copied(bytes) | Self::Segment(bytes) => bytes.is_empty(),
            Self::InBlock(run) => run.is_empty(),
        }
    }
}

/// Capacity of new chunks, in bytes.
#[derive(Debug, Clone, Copy)]
struct ChunkSize(u32);

impl Default for ChunkSize {
    fn default() -> Self {
        Self(LEAST_CHUNK as u32)
    }
}

impl ChunkSize {
    const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// A chunk was filled before it was read.
    fn grow(&mut self) {
        self.0 = (self.0 * 4).min(CHUNK as u32);
    }
}

#[derive(Debug)]
pub(super) struct ReadyQueue {
    /// Front to back. A chunk that is empty is the only one.
    chunks: VecDeque<Chunk>,
    segments: VecDeque<Segment>,
    /// Segments at the back whose message has not ended.
    unfinished: u16,
    /// Bytes of payload that they came with.
    unfinished_bytes: u32,
    /// Bytes of the longest message that is not cut.
    max_message: u32,
    /// Bytes of payload.
    bytes: usize,
    spare: Vec<BytesMut>,
    /// Their capacity.
    spare_bytes: u32,
    /// Capacity of the next new chunk.
    chunk_size: ChunkSize,
    /// The most chunks in use.
    most_chunks: HighWaterMark,
    blocks: HeldBlocks,
    /// Whether the application reads bytes or takes messages, by its last call that took something.
    reads_bytes: bool,
}

impl ReadyQueue {
    /// `max_message`: a message ends with the segment that brings it to so many bytes.
    pub(super) fn new(max_message: usize) -> Self {
        Self {
            chunks: VecDeque::new(),
            segments: VecDeque::new(),
            unfinished: 0,
            unfinished_bytes: 0,
            max_message: u32::try_from(max_message).unwrap_or(u32::MAX),
            bytes: 0,
            spare: Vec::new(),
            spare_bytes: 0,
            chunk_size: ChunkSize::default(),
            most_chunks: HighWaterMark::default(),
            blocks: HeldBlocks::default(),
            reads_bytes: false,
        }
    }

    /// Segments that were not wholly read.
    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Those of them whose message is complete.
    pub(super) fn finished_segments(&self) -> usize {
        self.segments.len() - usize::from(self.unfinished)
    }

    /// Unread bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a whole message is there, which may be empty.
    pub(super) fn has_message(&self) -> bool {
        self.segments.len() > usize::from(self.unfinished)
    }

    /// Whether the next segment begins a message.
    pub(super) const fn is_between_messages(&self) -> bool {
        self.unfinished == 0
    }

    /// Whether the application reads bytes, and needs no whole message.
    pub(super) const fn reads_bytes(&self) -> bool {
        self.reads_bytes
    }

    /// Bytes of the blocks that some of the payload lies in.
    pub(super) const fn block_bytes(&self) -> usize {
        self.blocks.bytes()
    }

    /// Bytes of spare chunks.
    pub(super) const fn spare_bytes(&self) -> usize {
        self.spare_bytes as usize
    }

    /// Bytes of the places for chunks and segments, used or not.
    pub(super) fn queue_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Chunk>() + self.segments.capacity() * size_of::<Segment>()
    }

    /// Bytes of the longest message that is not cut.
    pub(super) const fn max_message(&self) -> usize {
        self.max_message as usize
    }

    // ---- Adding ----

    /// Adds the payload of a segment. `place` is where it lies, if it may stay there.
    pub(super) fn push(&mut self, payload: &[u8], frg: u8, place: Option<BlockPosition<'_>>) {
        let gap = self.append(payload, place);
        self.push_segment(payload.len(), gap, frg);
    }

    /// Adds the payload of a segment that waited in a buffer of its own. It must not be empty.
    #[inline]
    pub(super) fn push_buffer(&mut self, payload: BytesMut, frg: u8) {
        self.push_segment(payload.len(), 0, frg);
        self.bytes += payload.len();
        self.push_chunk(Chunk::Segment(payload));
    }

    #[inline]
    fn push_segment(&mut self, len: usize, gap: u16, frg: u8) {
        let ends_message = frg == 0 || self.is_cut_at(len);
        self.segments.push_back(Segment { unread: len as u32, gap, ends_message });
        self.unfinished = if ends_message { 0 } else { self.unfinished + 1 };
    }

    /// Whether a message without an end ends with the next segment, which has `len` bytes: where the longest one would.
    fn is_cut_at(&mut self, len: usize) -> bool {
        let before = if self.unfinished == 0 { 0 } else { self.unfinished_bytes };
        self.unfinished_bytes = before + len as u32;
        usize::from(self.unfinished) + 1 >= MAX_FRAGMENTS || self.unfinished_bytes >= self.max_message
    }

    /// Adds a payload behind the others. Returns the gap in front of it.
    fn append(&mut self, payload: &[u8], place: Option<BlockPosition<'_>>) -> u16 {
        if payload.is_empty() {
            return 0;
        }
        let gap = match place {
            Some(place) if self.reads_bytes && payload.len() >= LEAST_IN_BLOCK => {
                self.append_in_block(place, payload.len())
            }
            _ => None,
        };
        if gap.is_none() {
            self.append_copy(payload);
        }
        self.bytes += payload.len();
        gap.unwrap_or(0)
    }

    fn append_copy(&mut self, payload: &[u8]) {
        match self.chunks.back_mut() {
            Some(Chunk::Copied(bytes)) if bytes.capacity() - bytes.len() >= payload.len() => {
                bytes.extend_from_slice(payload);
            }
            last => {
                if matches!(last, Some(Chunk::Copied(bytes)) if !bytes.is_empty()) {
                    self.chunk_size.grow();
                }
                let mut bytes = self.take_spare();
                bytes.reserve(payload.len().max(self.chunk_size.bytes()));
                bytes.extend_from_slice(payload);
                self.push_chunk(Chunk::Copied(bytes));
            }
        }
    }

    /// Adds a payload that stays in its block, if it may. Returns the gap in front of it.
    #[inline(never)]
    fn append_in_block(&mut self, place: BlockPosition<'_>, len: usize) -> Option<u16> {
        if let Some(Chunk::InBlock(last)) = self.chunks.back_mut()
            && let Some(gap) = last.extend(place, len)
        {
            return Some(gap);
        }
        let run = self.blocks.hold(place, len, self.bytes + len)?;
        self.push_chunk(Chunk::InBlock(run));
        Some(0)
    }

    /// Adds a chunk, for payload that the last one does not take. An empty first chunk makes way.
    #[inline]
    fn push_chunk(&mut self, chunk: Chunk) {
        if self.chunks.front().is_some_and(Chunk::is_empty) {
            self.recycle_front();
        }
        self.chunks.push_back(chunk);
    }

    #[inline(never)]
    fn recycle_front(&mut self) {
        if let Some(Chunk::Copied(bytes)) = self.chunks.pop_front() {
            self.recycle(bytes);
        }
    }

    // ---- Reading ----

    /// Hands up to `max` bytes to `out`, in pieces and across boundaries of messages, and returns how many. Drained buffers of segments
    /// go to `buffers`.
    #[inline]
    pub(super) fn read(
        &mut self,
        mut out: impl FnMut(&[u8]),
        max: usize,
        buffers: &mut SegmentBuffers,
    ) -> usize {
        self.most_chunks.end_period(self.chunks.len());
        self.reads_bytes = true;
        let wanted = max.min(self.bytes);
        let mut copied = 0;
        while copied < wanted {
            let left = wanted - copied;
            let Some(chunk) = self.chunks.front_mut() else { break };
            copied += match chunk {
                Chunk::Copied(bytes) | Chunk::Segment(bytes) => {
                    let taken = bytes.len().min(left);
                    out(&bytes[..taken]);
                    bytes.advance(taken);
                    self.consume(taken);
                    taken
                }
                Chunk::InBlock(_) => self.read_from_block(&mut out, left),
            };
            if self.chunks.front().is_some_and(Chunk::is_empty) {
                self.remove_drained(buffers);
            }
        }
        // Removes empty segments at the front.
        self.consume(0);
        // The bytes that were read may have made up most of the allowance for the blocks behind them.
        if self.blocks.bytes() > allowance(self.bytes) {
            self.copy_out_of_blocks();
        }
        copied
    }

    /// Copies bytes into `out`, as [`read`](Self::read) would, but leaves them. Returns how many. Payload leaves its blocks for
    /// that: to look into them would take a second way of reading.
    pub(super) fn peek(&mut self, out: &mut [u8]) -> usize {
        if self.blocks.bytes() > 0 {
            self.copy_out_of_blocks();
        }
        let mut copied = 0;
        for chunk in &self.chunks {
            let (Chunk::Copied(bytes) | Chunk::Segment(bytes)) = chunk else { break };
            let taken = bytes.len().min(out.len() - copied);
            out[copied..copied + taken].copy_from_slice(&bytes[..taken]);
            copied += taken;
            if copied == out.len() {
                break;
            }
        }
        copied
    }

    /// Hands up to `max` bytes to `out` of the first chunk, which is in a block. Returns how many: none only if `max` is 0.
    fn read_from_block(&mut self, mut out: impl FnMut(&[u8]), max: usize) -> usize {
        let mut copied = 0;
        self.consume(0);
        while copied < max {
            let Some(Chunk::InBlock(run)) = self.chunks.front_mut() else { break };
            let Some(segment) = self.segments.front_mut().filter(|_| !run.is_empty()) else { break };
            let take = (segment.unread as usize).min(max - copied);
            let bytes = run.take(core::mem::take(&mut segment.gap), take);
            out(bytes);
            copied += take;
            self.consume(take);
        }
        copied
    }

    /// Takes `count` bytes off the segments at the front, and removes those that were wholly read.
    fn consume(&mut self, count: usize) {
        self.bytes -= count;
        let mut left = count;
        while let Some(segment) = self.segments.front_mut() {
            let take = left.min(segment.unread as usize);
            left -= take;
            segment.unread -= take as u32;
            // An empty segment has nothing for a reader of bytes. It goes together with the segment before it.
            if segment.unread > 0 {
                break;
            }
            self.segments.pop_front();
        }
        self.unfinished = usize::from(self.unfinished).min(self.segments.len()) as u16;
    }

    /// The next whole message: a slice of the chunk that it lies in, or a copy if it lies in several. Drained buffers of
    /// segments go to `buffers`.
    pub(super) fn recv(&mut self, buffers: &mut SegmentBuffers) -> Option<Bytes> {
        if !self.has_message() {
            return None;
        }
        self.most_chunks.end_period(self.chunks.len());
        self.reads_bytes = false;
        if self.blocks.bytes() > 0 {
            self.copy_out_of_blocks();
        }
        let mut len = 0;
        let mut count = 0;
        for segment in &self.segments {
            len += segment.unread as usize;
            count += 1;
            if segment.ends_message {
                break;
            }
        }
        let message = match self.chunks.front_mut() {
            // It may be kept for long.
            Some(Chunk::Copied(front))
                if front.len() >= len
                    && len * LEAST_PART >= self.chunk_size.bytes().max(front.capacity()) =>
            {
                let message = front.split_to(len).freeze();
                if front.is_empty() {
                    self.remove_drained(buffers);
                }
                message
            }
            Some(Chunk::Segment(front)) if front.len() >= len && len * LEAST_PART > front.capacity() => {
                let message = front.split_to(len).freeze();
                if front.is_empty() {
                    self.remove_drained(buffers);
                }
                message
            }
            _ => self.copy_message(len, buffers),
        };
        self.segments.drain(..count);
        self.bytes -= len;
        Some(message)
    }

    fn copy_message(&mut self, len: usize, buffers: &mut SegmentBuffers) -> Bytes {
        let mut message = BytesMut::with_capacity(len);
        while message.len() < len {
            let Some(Chunk::Copied(chunk) | Chunk::Segment(chunk)) = self.chunks.front_mut() else { break };
            let take = chunk.len().min(len - message.len());
            message.extend_from_slice(&chunk[..take]);
            chunk.advance(take);
            if chunk.is_empty() {
                self.remove_drained(buffers);
            }
        }
        message.freeze()
    }

    /// Drops everything. Buffers of segments go to `buffers`. Returns how many bytes there were.
    pub(super) fn clear(&mut self, buffers: &mut SegmentBuffers) -> usize {
        while let Some(chunk) = self.chunks.pop_front() {
            match chunk {
                Chunk::Copied(mut bytes) => {
                    bytes.clear();
                    self.recycle(bytes);
                }
                Chunk::Segment(mut buffer) => {
                    buffer.clear();
                    buffers.give_back(buffer);
                }
                Chunk::InBlock(run) => self.blocks.release(&run),
            }
        }
        self.segments.clear();
        self.unfinished = 0;
        core::mem::take(&mut self.bytes)
    }

    // ---- Memory ----

    /// Removes the first chunk, which is drained. If it is the only one and can take more payload, it stays for that.
    fn remove_drained(&mut self, buffers: &mut SegmentBuffers) {
        if self.chunks.len() == 1
            && let Some(Chunk::Copied(bytes)) = self.chunks.front_mut()
            && bytes.try_reclaim(self.chunk_size.bytes())
        {
            return;
        }
        self.pop_drained(buffers);
    }

    #[inline(never)]
    fn pop_drained(&mut self, buffers: &mut SegmentBuffers) {
        match self.chunks.pop_front() {
            Some(Chunk::Copied(bytes)) => self.recycle(bytes),
            Some(Chunk::Segment(buffer)) => buffers.give_back(buffer),
            Some(Chunk::InBlock(run)) => self.blocks.release(&run),
            None => {}
        }
    }

    /// Keeps a drained chunk for later payload, unless enough are kept or a message still refers to it.
    fn recycle(&mut self, mut bytes: BytesMut) {
        if self.spare.len() < self.most_chunks.get().max(MIN_SPARE)
            && bytes.try_reclaim(self.chunk_size.bytes())
        {
            self.spare_bytes += bytes.capacity() as u32;
            self.spare.push(bytes);
        }
    }

    fn take_spare(&mut self) -> BytesMut {
        let spare = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= spare.capacity() as u32;
        spare
    }

    /// Copies all payload that lies in blocks, and lets go of the blocks.
    #[inline(never)]
    fn copy_out_of_blocks(&mut self) {
        let mut segments = self.segments.iter_mut().filter(|segment| segment.unread > 0);
        for chunk in &mut self.chunks {
            match chunk {
                Chunk::Copied(bytes) | Chunk::Segment(bytes) => {
                    let mut left = bytes.len();
                    while left > 0 {
                        let Some(segment) = segments.next() else { break };
                        left = left.saturating_sub(segment.unread as usize);
                    }
                }
                Chunk::InBlock(run) => {
                    let mut bytes = BytesMut::with_capacity(run.len());
                    while !run.is_empty() {
                        let Some(segment) = segments.next() else { break };
                        let gap = core::mem::take(&mut segment.gap);
                        bytes.extend_from_slice(run.take(gap, segment.unread as usize));
                    }
                    self.blocks.release(run);
                    *chunk = Chunk::Copied(bytes);
                }
            }
        }
    }

    /// Frees the memory that unread payload does not need.
    pub(super) fn trim(&mut self) {
        self.spare = Vec::new();
        self.spare_bytes = 0;
        self.most_chunks = HighWaterMark::default();
        if self.blocks.bytes() > 0 {
            self.copy_out_of_blocks();
        }
        if self.segments.is_empty() {
            self.chunks = VecDeque::new();
            self.segments = VecDeque::new();
            self.chunk_size = ChunkSize::default();
        }
    }
}
