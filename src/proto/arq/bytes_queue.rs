//! The bytes written and not yet acknowledged, addressed by their position in the stream.
//!
//! A queue of fixed-size chunks. Segments refer to it by position and length, so that a payload is stored once however
//! often it is sent, whatever its size. What is acknowledged in order is freed by moving one index. What is acknowledged
//! behind a loss is counted in its chunk, which is freed once all of it is: so the memory in use is about that of what is
//! unacknowledged, not of all that was written since the oldest loss.
//!
//! Where a window of full segments exceeds the processor's cache, writing a payload to memory that was last touched a
//! window ago costs as much as all else that is done for its segment. With losses, half the memory means twice the window
//! until then.
//!
//! Chunks that are freed are kept for the next write, and at most about as many as were in use of late: a steady
//! transfer allocates nothing, and [`trim`](BytesQueue::trim) gives the memory of a session that went idle back. The last
//! one comes first, since the cache may still have it; but where so much is in use that it cannot, the first one does, and
//! a few are always waiting: what is sent asks for the cache lines of the first of them
//! ([`expect_append`](BytesQueue::expect_append)), so that they are there when as much is written again. For the same reason
//! what is to be resent is asked for when that is known ([`expect_copy`](BytesQueue::expect_copy)).

use alloc::{boxed::Box, collections::VecDeque};

use super::{
    peak::Peak,
    prefetch::{CACHE_LINE, prefetch},
};

/// A few full segments: a loss keeps little more than itself, yet few segments lie in two chunks.
const CHUNK: usize = 8_192;
/// Spare chunks kept whatever is in use: 64 KiB, a large write of a request-response protocol.
const MIN_SPARE: usize = 8;
/// Chunks in use that no cache of a single core holds: 4 MiB.
const MANY: usize = 512;
/// Spare chunks that wait for their cache lines where many are in use.
const AHEAD: usize = 8;

/// Memory of a chunk. It shares no cache line, so that as few as possible are moved.
#[derive(Debug)]
#[repr(align(64))]
struct Block([u8; CHUNK]);

const _: () = assert!(align_of::<Block>() == CACHE_LINE);

impl Block {
    fn new() -> Box<Self> {
        // Built in place where the compiler optimises at all: no stack need have room for it.
        Box::new(Self([0; CHUNK]))
    }
}

#[derive(Debug)]
struct Chunk {
    /// `None` once all of it was released, while something before it was not.
    block: Option<Box<Block>>,
    /// Bytes released out of order.
    released: usize,
}

/// A part of the stream.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stretch {
    pub(super) position: u32,
    pub(super) len: u32,
}

impl Stretch {
    /// Adds `next` if that follows it; returns whether it does.
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
    spare: VecDeque<Box<Block>>,
    /// Bytes of the first spare chunks whose cache lines were asked for.
    expected: usize,
    /// Chunks that have their bytes.
    in_use: usize,
    /// Most of them since `peak` was told.
    most: usize,
    /// Offset of the first byte in the first chunk.
    head: usize,
    len: usize,
    /// Stream position (modulo 2^32) of the first byte.
    start: u32,
    /// Most chunks in use of late.
    peak: Peak,
}

impl BytesQueue {
    /// Memory in use, in bytes.
    #[cfg(test)]
    pub(super) const fn memory(&self) -> usize {
        self.in_use * CHUNK
    }

    /// Bytes from the first to the last that are held.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Stream position behind the last byte.
    pub(super) const fn end(&self) -> u32 {
        self.start.wrapping_add(self.len as u32)
    }

    /// Where the byte at stream position `position` lies, counted from the start of the first chunk.
    const fn offset(&self, position: u32) -> usize {
        self.head + position.wrapping_sub(self.start) as usize
    }

    pub(super) fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let tail = self.head + self.len;
            if tail == self.chunks.len() * CHUNK {
                let block = self.take_spare().unwrap_or_else(Block::new);
                self.chunks.push_back(Chunk { block: Some(block), released: 0 });
                self.in_use += 1;
                self.most = self.most.max(self.in_use);
            }
            let block = self.chunks[tail / CHUNK].block.as_mut().expect("not released");
            let space = &mut block.0[tail % CHUNK..];
            let take = space.len().min(bytes.len());
            space[..take].copy_from_slice(&bytes[..take]);
            self.len += take;
            bytes = &bytes[take..];
        }
    }

    fn take_spare(&mut self) -> Option<Box<Block>> {
        if self.in_use < MANY {
            self.expected = 0;
            return self.spare.pop_back();
        }
        if self.spare.len() <= AHEAD {
            return None;
        }
        self.expected = self.expected.saturating_sub(CHUNK);
        self.spare.pop_front()
    }

    /// The bytes of a chunk from offset `at` on, of which some at least are held.
    fn held(&self, at: usize) -> &[u8] {
        let block = self.chunks[at / CHUNK].block.as_ref().expect("not released");
        &block.0[at % CHUNK..]
    }

    /// Expects that `len` bytes more than so far will be written soon.
    pub(super) fn expect_append(&mut self, mut len: usize) {
        if self.in_use < MANY {
            return;
        }
        while len > 0
            && self.expected < AHEAD * CHUNK
            && let Some(block) = self.spare.get(self.expected / CHUNK)
        {
            let rest = &block.0[self.expected % CHUNK..];
            let take = rest.len().min(len);
            prefetch(&rest[..take]);
            self.expected += take;
            len -= take;
        }
    }

    /// Expects that `stretch`, all of which must be held, will be copied soon.
    pub(super) fn expect_copy(&self, stretch: Stretch) {
        if self.in_use < MANY {
            return;
        }
        let mut at = self.offset(stretch.position);
        let end = at + stretch.len as usize;
        while at < end {
            let held = self.held(at);
            let take = held.len().min(end - at);
            prefetch(&held[..take]);
            at += take;
        }
    }

    /// Copies the bytes from stream position `position` on into `out`, all of which must be held.
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

    /// Frees bytes, each of them once, although what is before them is still needed.
    pub(super) fn release(&mut self, stretch: Stretch) {
        let mut at = self.offset(stretch.position);
        let end = at + stretch.len as usize;
        debug_assert!(end <= self.head + self.len || stretch.len == 0);
        while at < end {
            let chunk = &mut self.chunks[at / CHUNK];
            let take = (end - at).min(CHUNK - at % CHUNK);
            chunk.released += take;
            if chunk.released == CHUNK {
                self.spare.extend(chunk.block.take());
                self.in_use -= 1;
            }
            at += take;
        }
    }

    /// Frees the bytes before stream position `position`.
    pub(super) fn release_before(&mut self, position: u32) {
        let count = position.wrapping_sub(self.start) as usize;
        debug_assert!(count <= self.len);
        self.peak.observe(self.most);
        self.start = position;
        self.len -= count;
        self.head += count;
        let drained = if self.len == 0 { self.chunks.len() } else { self.head / CHUNK };
        self.head = if self.len == 0 { 0 } else { self.head % CHUNK };
        for _ in 0..drained {
            if let Some(block) = self.chunks.pop_front().and_then(|chunk| chunk.block) {
                self.spare.push_back(block);
                self.in_use -= 1;
            }
        }
        self.most = self.in_use;
        if self.spare.len() > MIN_SPARE {
            // One more than were in use: as many bytes may begin elsewhere in their first chunk.
            let waiting = if self.peak.get() < MANY { 0 } else { AHEAD };
            self.spare.truncate((self.peak.get() + 1 + waiting).saturating_sub(self.in_use).max(MIN_SPARE));
        }
    }

    /// Gives back the memory that is not in use.
    pub(super) fn trim(&mut self) {
        self.spare = VecDeque::new();
        self.expected = 0;
        self.peak = Peak::default();
        if self.chunks.is_empty() {
            self.chunks = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};

    #[test]
    fn holds_any_pattern_of_appends_and_releases() {
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
            assert!(kept <= (queue.peak.get() + 1).max(queue.chunks.len() + MIN_SPARE));
        }
    }

    /// Segments of any size that arrive in any order: what is left can be read, and only that is held.
    #[test]
    fn holds_only_what_is_left_of_any_order() {
        const START: u32 = u32::MAX - 50_000;
        const LONGEST: u32 = 4_000;
        let period: Vec<u8> = (0..251 + LONGEST).map(|i| (i % 251) as u8).collect();
        let bytes_at = |Stretch { position, len }| {
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
            let mut left: VecDeque<(Stretch, bool)> = VecDeque::new();
            for step in 0..if cfg!(miri) { 20 } else { 120 } {
                for _ in 0..random(8) {
                    let stretch = Stretch { position: queue.end(), len: 1 + random(LONGEST) };
                    queue.append(bytes_at(stretch));
                    left.push_back((stretch, false));
                }
                for _ in 0..random(8).min(left.len() as u32) {
                    let at = random(left.len() as u32) as usize;
                    let (stretch, acked) = &mut left[at];
                    if !core::mem::replace(acked, true) {
                        queue.release(*stretch);
                    }
                }
                // Sometimes the oldest are confirmed by what follows them.
                if random(20) == 0 {
                    left.drain(..left.len() / 2);
                }
                while left.front().is_some_and(|(_, acked)| *acked) {
                    left.pop_front();
                }
                queue.release_before(left.front().map_or(queue.end(), |(stretch, _)| stretch.position));
                let mut needed = vec![false; queue.chunks.len()];
                for (stretch, _) in left.iter().filter(|(_, acked)| !acked) {
                    let mut out = vec![0; stretch.len as usize];
                    queue.copy_to(stretch.position, &mut out);
                    assert!(out == bytes_at(*stretch), "seed {seed}, step {step}");
                    let at = queue.offset(stretch.position);
                    needed[at / CHUNK..=(at + out.len() - 1) / CHUNK].fill(true);
                }
                // The last one has room for more.
                if !(queue.head + queue.len).is_multiple_of(CHUNK) {
                    *needed.last_mut().unwrap() = true;
                }
                let held: Vec<bool> = queue.chunks.iter().map(|chunk| chunk.block.is_some()).collect();
                assert_eq!(held, needed, "seed {seed}, step {step}");
                assert_eq!(queue.in_use, held.into_iter().filter(|held| *held).count());
                assert!(queue.spare.len() <= (queue.peak.get() + 1).max(MIN_SPARE));
            }
        }
    }

    /// All but the first of what is written arrives at once, that with the next: writes find the chunks that it used.
    #[test]
    fn a_steady_transfer_with_losses_reuses_its_chunks() {
        let mut queue = BytesQueue::default();
        let (rounds, chunks) = (if cfg!(miri) { 70 } else { 300 }, 3 * MIN_SPARE);
        let bytes = vec![1; chunks * CHUNK];
        for round in 0..rounds {
            assert!(round < 2 || queue.spare.len() >= chunks, "round {round}: {} spare", queue.spare.len());
            let lost = queue.end();
            queue.append(&bytes);
            let arrived = Stretch { position: lost.wrapping_add(1_000), len: (bytes.len() - 1_000) as u32 };
            queue.release(arrived);
            queue.release_before(lost);
            assert_eq!(queue.in_use, 1);
        }
        for _ in 0..200 {
            queue.release_before(queue.end());
        }
        assert_eq!(queue.spare.len(), MIN_SPARE, "what is no longer in use is given back");
    }

    #[test]
    fn neighbours_join_across_the_wrap() {
        let mut stretch = Stretch { position: u32::MAX - 9, len: 6 };
        assert!(!stretch.join(Stretch { position: u32::MAX - 4, len: 1 }));
        assert!(stretch.join(Stretch { position: u32::MAX - 3, len: 8 }));
        assert!(stretch.join(Stretch { position: 4, len: 1 }));
        assert_eq!((stretch.position, stretch.len), (u32::MAX - 9, 15));
    }

    /// With much in flight, what was freed first is written first, a few chunks wait, and none is allocated.
    #[test]
    fn many_chunks_take_turns() {
        const BATCH: usize = 5;
        const USED: usize = MANY + BATCH;
        let mut queue = BytesQueue::default();
        queue.append(&[1; USED * CHUNK]);
        let mut seen = Vec::new();
        for turn in 0..2 * USED / BATCH {
            queue.expect_append(BATCH * CHUNK);
            queue.release_before(queue.start.wrapping_add((BATCH * CHUNK) as u32));
            let first: Vec<_> = queue.spare.iter().take(BATCH).map(|chunk| chunk.0.as_ptr()).collect();
            queue.append(&[2; BATCH * CHUNK]);
            // The first turns add those that wait.
            if turn >= AHEAD {
                let written =
                    queue.chunks.range(USED - BATCH..).map(|chunk| chunk.block.as_ref().unwrap().0.as_ptr());
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
