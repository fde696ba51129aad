//! The bytes written and not yet acknowledged, addressed by their position in the stream.
//!
//! A first-in-first-out queue of fixed-size chunks. Segments refer to it by position and length, so that a payload is
//! stored once however often it is sent, whatever its size, and freed by moving one index. Chunks that drain are kept
//! for the next write, at most about as many as were in use of late: a steady transfer allocates nothing, and
//! [`trim`](BytesQueue::trim) gives the memory of a session that went idle back.

use alloc::{boxed::Box, collections::VecDeque, vec, vec::Vec};

use super::peak::Peak;

const CHUNK: usize = 16_384;
/// Spare chunks kept whatever is in use: 64 KiB, a large write of a request-response protocol.
const MIN_SPARE: usize = 4;

#[derive(Debug, Default)]
pub(super) struct BytesQueue {
    chunks: VecDeque<Box<[u8]>>,
    spare: Vec<Box<[u8]>>,
    /// Offset of the first byte in the first chunk.
    head: usize,
    len: usize,
    /// Stream position (modulo 2^32) of the first byte.
    start: u32,
    /// Most chunks in use of late.
    peak: Peak,
}

impl BytesQueue {
    /// Bytes held.
    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Stream position behind the last byte.
    pub(super) const fn end(&self) -> u32 {
        self.start.wrapping_add(self.len as u32)
    }

    pub(super) fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let tail = self.head + self.len;
            if tail == self.chunks.len() * CHUNK {
                let chunk = self.spare.pop();
                self.chunks.push_back(chunk.unwrap_or_else(|| vec![0; CHUNK].into_boxed_slice()));
            }
            let space = &mut self.chunks[tail / CHUNK][tail % CHUNK..];
            let take = space.len().min(bytes.len());
            space[..take].copy_from_slice(&bytes[..take]);
            self.len += take;
            bytes = &bytes[take..];
        }
    }

    /// Copies the bytes from stream position `position` on into `out`, all of which must be held.
    pub(super) fn copy_to(&self, position: u32, mut out: &mut [u8]) {
        let skip = position.wrapping_sub(self.start) as usize;
        debug_assert!(skip + out.len() <= self.len);
        let mut at = self.head + skip;
        while !out.is_empty() {
            let chunk = &self.chunks[at / CHUNK][at % CHUNK..];
            let take = chunk.len().min(out.len());
            let (now, later) = out.split_at_mut(take);
            now.copy_from_slice(&chunk[..take]);
            out = later;
            at += take;
        }
    }

    /// Frees the bytes before stream position `position`.
    pub(super) fn release_before(&mut self, position: u32) {
        let count = position.wrapping_sub(self.start) as usize;
        debug_assert!(count <= self.len);
        self.peak.observe(self.chunks.len());
        self.start = position;
        self.len -= count;
        self.head += count;
        while self.head >= CHUNK {
            self.head -= CHUNK;
            self.spare.extend(self.chunks.pop_front());
        }
        if self.len == 0 {
            self.head = 0;
            self.spare.extend(self.chunks.drain(..));
        }
        // One more than were in use: as many bytes may begin elsewhere in their first chunk.
        self.spare.truncate((self.peak.get() + 1).saturating_sub(self.chunks.len()).max(MIN_SPARE));
    }

    /// Gives back the memory that is not in use.
    pub(super) fn trim(&mut self) {
        self.spare = Vec::new();
        self.peak = Peak::default();
        if self.chunks.is_empty() {
            self.chunks = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
