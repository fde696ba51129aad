//! The bytes that were written and not yet acknowledged, addressed by their position in the stream.
//!
//! The bytes lie in a queue of chunks of one size. (One that has little in it has memory for no more: see [`Memory`].) Segments refer to them by position and length, so a payload is stored once,
//! however often it is sent. Acknowledged bytes at the front are freed by moving one index. Bytes acknowledged behind a loss
//! are counted in their chunk, and the chunk is freed when all of its bytes are. So the memory in use is about that of the
//! unacknowledged bytes, not that of everything since the oldest loss.
//!
//! # Reuse
//!
//! Freed chunks are kept as spares, about as many as were in use recently. A steady transfer allocates nothing, and
//! [`trim`](BytesQueue::trim) frees the memory of an idle session. Usually the spare that was freed last is used first,
//! because it may still be in the processor's cache.
//!
//! # Large windows
//!
//! A window of several MiB does not fit the cache. Writing a payload to memory that was last touched a window ago then costs as
//! much as everything else that is done for its segment. Two measures help:
//!
//! * Spares are used in the order in which they were freed, and [`AHEAD`] of them are kept waiting. With every segment
//!   sent, the cache lines of the next spare are prefetched ([`prefetch_for_append`](BytesQueue::prefetch_for_append)).
//!   They have arrived when as many bytes are written.
//! * Bytes that will be resent are prefetched as soon as that is known
//!   ([`prefetch_for_copy`](BytesQueue::prefetch_for_copy)).

use alloc::{boxed::Box, collections::VecDeque};

use super::{
    high_water_mark::HighWaterMark,
    prefetch::{CACHE_LINE, prefetch},
};

/// Bytes of a chunk: a few full segments. A lost segment then keeps little more than itself in memory, yet few segments lie
/// in two chunks.
const CHUNK: usize = 8_192;
/// Spare chunks that are kept however few were in use recently: 64 KiB, a large write of a request-response protocol.
const MIN_SPARE: usize = 8;
/// Chunks in use from which on no core's cache holds them all: 4 MiB.
const LARGE: usize = 512;
/// Spare chunks that wait for their cache lines where so many are in use.
const AHEAD: usize = 8;

/// The bytes of a chunk at first, where no more are written: enough for a message of a request-response protocol. Most sessions of a
/// large server need no more.
const SHORT: usize = 1_024;

/// `N` bytes that begin with a cache line, so that they span as few of them as possible.
#[derive(Debug)]
#[repr(align(64))]
struct Lines<const N: usize>([u8; N]);

const _: () = assert!(align_of::<Lines<CHUNK>>() == CACHE_LINE);

impl<const N: usize> Lines<N> {
    fn new() -> Box<Self> {
        // An optimising compiler builds it in place, without a copy on the stack.
        Box::new(Self([0; N]))
    }
}

/// The memory of a chunk.
#[derive(Debug)]
enum Memory {
    Full(Box<Lines<CHUNK>>),
    /// It has only the first bytes of the chunk. It makes way for a full one when there are more.
    Short(Box<Lines<SHORT>>),
}

impl Memory {
    /// Memory for at least `len` bytes, or for a chunk.
    fn new(len: usize) -> Self {
        if len <= SHORT { Self::Short(Lines::new()) } else { Self::Full(Lines::new()) }
    }

    const fn len(&self) -> usize {
        match self {
            Self::Full(_) => CHUNK,
            Self::Short(_) => SHORT,
        }
    }

    /// The bytes from `at` on, an offset in a chunk.
    #[inline]
    fn from(&self, at: usize) -> &[u8] {
        match self {
            Self::Full(lines) => &lines.0[at % CHUNK..],
            Self::Short(lines) => lines.0.get(at..).unwrap_or_default(),
        }
    }

    /// Room for `len` bytes at `at`, an offset in a chunk, or for as many as the chunk has.
    #[inline]
    fn room(&mut self, at: usize, len: usize) -> &mut [u8] {
        match self {
            Self::Full(lines) => &mut lines.0[at % CHUNK..],
            Self::Short(_) => self.room_of_short(at, len),
        }
    }

    /// As [`room`](Self::room). Moves the bytes to a full one where the short one has too little.
    #[inline(never)]
    fn room_of_short(&mut self, at: usize, len: usize) -> &mut [u8] {
        if at + len > SHORT {
            let mut full = Lines::<CHUNK>::new();
            full.0[..SHORT].copy_from_slice(self.from(0));
            *self = Self::Full(full);
        }
        match self {
            Self::Full(lines) => &mut lines.0[at..],
            Self::Short(lines) => &mut lines.0[at..],
        }
    }
}

#[derive(Debug)]
struct Chunk {
    /// `None` when all of it was released, but something before it was not.
    memory: Option<Memory>,
    /// Bytes that were released out of order.
    released: usize,
}

/// A range of bytes of the stream.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StreamRange {
    /// Stream position (modulo 2^32) of the first byte.
    pub(super) position: u32,
    /// Bytes.
    pub(super) len: u32,
}

impl StreamRange {
    /// Adds `next` if it follows directly. Returns whether it does.
    pub(super) const fn join(&mut self, next: Self) -> bool {
        let follows = self.position.wrapping_add(self.len) == next.position;
        if follows {
            self.len += next.len;
        }
        follows
    }
}

#[derive(Debug, Default)]
pub(super) struct BytesQueue {
    chunks: VecDeque<Chunk>,
    /// In the order in which they were freed.
    spare: VecDeque<Memory>,
    /// Bytes at the start of the spare chunks that were prefetched.
    prefetched: usize,
    /// Chunks that have their memory.
    in_use: u32,
    most_in_use: HighWaterMark,
    /// Offset of the first byte in the first chunk.
    head: usize,
    len: usize,
    /// Stream position (modulo 2^32) of the first byte.
    start: u32,
}

impl BytesQueue {
    /// Memory in use, in bytes.
    #[cfg(test)]
    pub(super) const fn memory(&self) -> usize {
        self.in_use as usize * CHUNK
    }

    /// Bytes of spare memory.
    pub(super) fn spare_bytes(&self) -> usize {
        self.spare.len() * CHUNK
    }

    /// Bytes of all memory, in use or spare.
    pub(super) fn memory_bytes(&self) -> usize {
        let in_use = self.chunks.iter().filter_map(|chunk| chunk.memory.as_ref());
        in_use.chain(&self.spare).map(Memory::len).sum()
    }

    /// Bytes from the first to the last that are held.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Stream position behind the last byte.
    pub(super) const fn end(&self) -> u32 {
        self.start.wrapping_add(self.len as u32)
    }

    /// Offset of the byte at stream position `position` from the start of the first chunk.
    const fn offset(&self, position: u32) -> usize {
        self.head + position.wrapping_sub(self.start) as usize
    }

    pub(super) fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let tail = self.head + self.len;
            if tail == self.chunks.len() * CHUNK {
                // Behind others, it will be filled.
                let len = if self.chunks.is_empty() { bytes.len() } else { CHUNK };
                let memory = self.take_spare().unwrap_or_else(|| Memory::new(len));
                self.chunks.push_back(Chunk { memory: Some(memory), released: 0 });
                self.in_use += 1;
                self.most_in_use.rise_to(self.in_use as usize);
            }
            let memory = self.chunks[tail / CHUNK].memory.as_mut().expect("not released");
            let space = memory.room(tail % CHUNK, bytes.len());
            let take = space.len().min(bytes.len());
            space[..take].copy_from_slice(&bytes[..take]);
            self.len += take;
            bytes = &bytes[take..];
        }
    }

    fn take_spare(&mut self) -> Option<Memory> {
        if (self.in_use as usize) < LARGE {
            self.prefetched = 0;
            return self.spare.pop_back();
        }
        if self.spare.len() <= AHEAD {
            return None;
        }
        self.prefetched = self.prefetched.saturating_sub(CHUNK);
        self.spare.pop_front()
    }

    /// The bytes of a chunk from offset `at` on. Some of them at least must be held.
    fn held(&self, at: usize) -> &[u8] {
        let memory = self.chunks[at / CHUNK].memory.as_ref().expect("not released");
        memory.from(at % CHUNK)
    }

    /// Prefetches the memory that the next `len` bytes, beyond those of earlier calls, will be written to.
    pub(super) fn prefetch_for_append(&mut self, mut len: usize) {
        if (self.in_use as usize) < LARGE {
            return;
        }
        while len > 0
            && self.prefetched < AHEAD * CHUNK
            && let Some(memory) = self.spare.get(self.prefetched / CHUNK)
        {
            let take = (CHUNK - self.prefetched % CHUNK).min(len);
            let rest = memory.from(self.prefetched % CHUNK);
            prefetch(&rest[..take.min(rest.len())]);
            self.prefetched += take;
            len -= take;
        }
    }

    /// Prefetches the bytes of `range`, all of which must be held.
    pub(super) fn prefetch_for_copy(&self, range: StreamRange) {
        if (self.in_use as usize) < LARGE {
            return;
        }
        let mut at = self.offset(range.position);
        let end = at + range.len as usize;
        while at < end {
            let held = self.held(at);
            let take = held.len().min(end - at);
            prefetch(&held[..take]);
            at += take;
        }
    }

    /// Copies the bytes from stream position `position` on into `out`. All of them must be held.
    pub(super) fn copy_to(&self, position: u32, mut out: &mut [u8]) {
        let mut at = self.offset(position);
        debug_assert!(at + out.len() <= self.head + self.len);
        while !out.is_empty() {
            let held = self.held(at);
            // Most segments lie in one chunk.
            if let Some(all) = held.get(..out.len()) {
                out.copy_from_slice(all);
                return;
            }
            let (now, later) = out.split_at_mut(held.len());
            now.copy_from_slice(held);
            out = later;
            at += CHUNK - at % CHUNK;
        }
    }

    /// Frees the bytes of `range`, even if bytes before it are still needed. Each byte is to be freed once.
    pub(super) fn release(&mut self, range: StreamRange) {
        let mut at = self.offset(range.position);
        let end = at + range.len as usize;
        debug_assert!(end <= self.head + self.len || range.len == 0);
        while at < end {
            let chunk = &mut self.chunks[at / CHUNK];
            let take = (end - at).min(CHUNK - at % CHUNK);
            chunk.released += take;
            if chunk.released == CHUNK {
                self.spare.extend(chunk.memory.take());
                self.in_use -= 1;
            }
            at += take;
        }
    }

    /// Frees all bytes before stream position `position`.
    pub(super) fn release_before(&mut self, position: u32) {
        let count = position.wrapping_sub(self.start) as usize;
        debug_assert!(count <= self.len);
        self.start = position;
        self.len -= count;
        self.head += count;
        let drained = if self.len == 0 { self.chunks.len() } else { self.head / CHUNK };
        self.head = if self.len == 0 { 0 } else { self.head % CHUNK };
        for _ in 0..drained {
            if let Some(memory) = self.chunks.pop_front().and_then(|chunk| chunk.memory) {
                self.spare.push_back(memory);
                self.in_use -= 1;
            }
        }
        self.most_in_use.end_period(self.in_use as usize);
        if self.spare.len() > MIN_SPARE {
            // One more than were in use: as many bytes may begin at another offset of their first chunk.
            let most = self.most_in_use.get();
            let waiting = if most < LARGE { 0 } else { AHEAD };
            self.spare.truncate((most + 1 + waiting).saturating_sub(self.in_use as usize).max(MIN_SPARE));
        }
    }

    /// Frees the memory that is not in use.
    pub(super) fn trim(&mut self) {
        self.spare = VecDeque::new();
        self.prefetched = 0;
        self.most_in_use = HighWaterMark::default();
        if self.chunks.is_empty() {
            self.chunks = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests;
