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
mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};

    /// However the bytes of a short chunk came, and whatever was released of them.
    #[test]
    fn little_takes_little_memory_and_more_moves_it() {
        let byte_at = |position: u32| (position % 251) as u8;
        for (first, second, released) in
            [(1, 1_023, 0), (64, 961, 10), (1_024, 1, 1_024), (1_000, 9_000, 999)]
        {
            let mut queue = BytesQueue::default();
            queue.append(&(0..first).map(byte_at).collect::<Vec<_>>());
            assert!(matches!(queue.chunks[0].memory, Some(Memory::Short(_))));
            queue.release_before(released.min(first));
            queue.append(&(first..first + second).map(byte_at).collect::<Vec<_>>());
            let released = released.min(first);
            let stays = queue.chunks.len() == 1 && queue.head + queue.len <= SHORT;
            assert_eq!(matches!(queue.chunks[0].memory, Some(Memory::Short(_))), stays);
            let mut out = vec![0; (first + second - released) as usize];
            queue.copy_to(released, &mut out);
            assert!(out.into_iter().zip(released..).all(|(byte, position)| byte == byte_at(position)));
        }
    }

    #[test]
    fn any_pattern_of_appends_and_releases_reads_back() {
        let mut queue = BytesQueue { start: u32::MAX - 5_000, ..BytesQueue::default() };
        let byte_at = |position: u32| (position % 251) as u8;
        let mut released = queue.start;
        let steps = if cfg!(miri) { 40 } else { 400 };
        for step in 1..steps {
            let position = queue.end();
            let bytes: Vec<u8> =
                (0..(step * 37) % 9_000).map(|i| byte_at(position.wrapping_add(i as u32))).collect();
            queue.append(&bytes);
            let take = ((step * 53) % 9_500).min(queue.len());
            let mut out = vec![0; take];
            queue.copy_to(released, &mut out);
            for (i, byte) in out.into_iter().enumerate() {
                assert_eq!(byte, byte_at(released.wrapping_add(i as u32)));
            }
            released = released.wrapping_add(take as u32);
            queue.release_before(released);
            let kept = queue.chunks.len() + queue.spare.len();
            assert!(kept <= (queue.most_in_use.get() + 1).max(queue.chunks.len() + MIN_SPARE));
        }
    }

    /// Segments of any size are acknowledged in any order. The others can be read, and nothing but their chunks is held.
    #[test]
    fn only_chunks_with_unacknowledged_bytes_are_held_whatever_the_order_of_acks() {
        const START: u32 = u32::MAX - 50_000;
        const LONGEST: u32 = 4_000;
        let period: Vec<u8> = (0..251 + LONGEST).map(|i| (i % 251) as u8).collect();
        let bytes_at = |StreamRange { position, len }| {
            let at = position.wrapping_sub(START) % 251;
            &period[at as usize..(at + len) as usize]
        };
        for seed in 0..if cfg!(miri) { 1 } else { 4 } {
            let mut queue = BytesQueue { start: START, ..BytesQueue::default() };
            let mut state: u64 = seed;
            let mut random = |below: u32| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 33) % u64::from(below)) as u32
            };
            let mut left: VecDeque<(StreamRange, bool)> = VecDeque::new();
            for step in 0..if cfg!(miri) { 20 } else { 120 } {
                for _ in 0..random(8) {
                    let range = StreamRange { position: queue.end(), len: 1 + random(LONGEST) };
                    queue.append(bytes_at(range));
                    left.push_back((range, false));
                }
                for _ in 0..random(8).min(left.len() as u32) {
                    let at = random(left.len() as u32) as usize;
                    let (range, acked) = &mut left[at];
                    if !core::mem::replace(acked, true) {
                        queue.release(*range);
                    }
                }
                // Sometimes `una` acknowledges the oldest.
                if random(20) == 0 {
                    left.drain(..left.len() / 2);
                }
                while left.front().is_some_and(|(_, acked)| *acked) {
                    left.pop_front();
                }
                queue.release_before(left.front().map_or(queue.end(), |(range, _)| range.position));
                let mut needed = vec![false; queue.chunks.len()];
                for (range, _) in left.iter().filter(|(_, acked)| !acked) {
                    let mut out = vec![0; range.len as usize];
                    queue.copy_to(range.position, &mut out);
                    assert!(out == bytes_at(*range), "seed {seed}, step {step}");
                    let at = queue.offset(range.position);
                    needed[at / CHUNK..=(at + out.len() - 1) / CHUNK].fill(true);
                }
                // The last one has room for more.
                if !(queue.head + queue.len).is_multiple_of(CHUNK) {
                    *needed.last_mut().unwrap() = true;
                }
                let held: Vec<bool> = queue.chunks.iter().map(|chunk| chunk.memory.is_some()).collect();
                assert_eq!(held, needed, "seed {seed}, step {step}");
                assert_eq!(queue.in_use as usize, held.into_iter().filter(|held| *held).count());
                assert!(queue.spare.len() <= (queue.most_in_use.get() + 1).max(MIN_SPARE));
            }
        }
    }

    /// All but the first segment of each write is acknowledged at once, and the first with the next write.
    #[test]
    fn a_steady_transfer_with_losses_reuses_its_chunks() {
        let mut queue = BytesQueue::default();
        let (rounds, chunks) = (if cfg!(miri) { 70 } else { 300 }, 3 * MIN_SPARE);
        let bytes = vec![1; chunks * CHUNK];
        for round in 0..rounds {
            assert!(round < 2 || queue.spare.len() >= chunks, "round {round}: {} spare", queue.spare.len());
            let lost = queue.end();
            queue.append(&bytes);
            let arrived =
                StreamRange { position: lost.wrapping_add(1_000), len: (bytes.len() - 1_000) as u32 };
            queue.release(arrived);
            queue.release_before(lost);
            assert_eq!(queue.in_use, 1);
        }
        for _ in 0..200 {
            queue.release_before(queue.end());
        }
        assert_eq!(queue.spare.len(), MIN_SPARE, "chunks that are no longer needed are freed");
    }

    #[test]
    fn adjacent_ranges_join_across_the_wrap() {
        let mut range = StreamRange { position: u32::MAX - 9, len: 6 };
        assert!(!range.join(StreamRange { position: u32::MAX - 4, len: 1 }));
        assert!(range.join(StreamRange { position: u32::MAX - 3, len: 8 }));
        assert!(range.join(StreamRange { position: 4, len: 1 }));
        assert_eq!((range.position, range.len), (u32::MAX - 9, 15));
    }

    /// A few of them wait, and nothing is allocated.
    #[test]
    fn in_a_large_window_spare_chunks_are_used_in_the_order_of_freeing() {
        const BATCH: usize = 5;
        const USED: usize = LARGE + BATCH;
        let mut queue = BytesQueue::default();
        queue.append(&[1; USED * CHUNK]);
        let mut seen = Vec::new();
        for turn in 0..2 * USED / BATCH {
            queue.prefetch_for_append(BATCH * CHUNK);
            queue.release_before(queue.start.wrapping_add((BATCH * CHUNK) as u32));
            let first: Vec<_> =
                queue.spare.iter().take(BATCH).map(|memory| memory.from(0).as_ptr()).collect();
            queue.append(&[2; BATCH * CHUNK]);
            // The first turns allocate the chunks that wait.
            if turn >= AHEAD {
                let written = queue
                    .chunks
                    .range(USED - BATCH..)
                    .map(|chunk| chunk.memory.as_ref().unwrap().from(0).as_ptr());
                assert!(written.eq(first.iter().copied()), "turn {turn}");
                seen.extend(first);
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), USED + queue.spare.len());
        assert_eq!(queue.spare.len(), AHEAD);
    }

    #[test]
    fn trim_frees_everything_of_an_empty_queue() {
        let mut queue = BytesQueue::default();
        queue.append(&[1; 3 * CHUNK]);
        queue.release_before(3 * CHUNK as u32);
        assert_eq!(queue.spare.len(), 3);
        queue.trim();
        assert_eq!((queue.spare.capacity(), queue.chunks.capacity()), (0, 0));
    }
}
