//! Buffers for the payloads of segments that arrive out of order, one segment each.
//!
//! A buffer is filled when its segment arrives, and given back when its payload was read. As many buffers are kept for later
//! segments as were in use recently: a path that keeps losing or reordering packets then allocates nothing.

use alloc::vec::Vec;

use bytes::BytesMut;

use crate::proto::arq::high_water_mark::HighWaterMark;

#[derive(Debug)]
pub(super) struct SegmentBuffers {
    spare: Vec<BytesMut>,
    /// Buffers that hold payload.
    in_use: usize,
    most_in_use: HighWaterMark,
    /// Capacity of the largest buffer that is kept. A short payload in a large buffer would escape the limit on memory.
    max_capacity: usize,
}

impl SegmentBuffers {
    /// `max_capacity`: bytes of the largest buffer that is kept for later segments.
    pub(super) fn new(max_capacity: usize) -> Self {
        Self { spare: Vec::new(), in_use: 0, most_in_use: HighWaterMark::default(), max_capacity }
    }

    /// A buffer that holds a copy of `payload`.
    #[inline]
    pub(super) fn copy_of(&mut self, payload: &[u8]) -> BytesMut {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(payload);
        self.in_use += 1;
        self.most_in_use.rise_to(self.in_use);
        buffer
    }

    /// Takes a buffer back whose payload was read.
    pub(super) fn give_back(&mut self, mut buffer: BytesMut) {
        self.in_use -= 1;
        if self.spare.len() < self.max_spare()
            && buffer.try_reclaim(1)
            && buffer.capacity() <= self.max_capacity
        {
            self.spare.push(buffer);
        }
    }

    /// Frees the buffers that were not needed recently. To be called with every read.
    pub(super) fn on_read(&mut self) {
        self.most_in_use.end_period(self.in_use);
        if !self.spare.is_empty() {
            self.spare.truncate(self.max_spare());
        }
    }

    fn max_spare(&self) -> usize {
        self.most_in_use.get().saturating_sub(self.in_use)
    }

    /// Bytes of the spare buffers, at most.
    pub(super) const fn spare_bytes(&self) -> usize {
        self.spare.len() * self.max_capacity
    }

    /// Frees all spare buffers.
    pub(super) fn trim(&mut self) {
        self.spare = Vec::new();
        self.most_in_use = HighWaterMark::default();
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use bytes::Buf;

    use super::*;

    /// Gives a buffer back whose payload was read.
    fn give_back(buffers: &mut SegmentBuffers, mut buffer: BytesMut) {
        buffer.advance(buffer.len());
        buffers.give_back(buffer);
    }

    #[test]
    fn buffers_are_reused_while_they_are_needed_and_freed_afterwards() {
        let mut buffers = SegmentBuffers::new(1_500);
        for turn in 0..200 {
            let used: Vec<_> = (0..40).map(|_| buffers.copy_of(&[1; 1_000])).collect();
            assert_eq!(buffers.spare.len(), 0, "turn {turn}");
            used.into_iter().for_each(|buffer| give_back(&mut buffers, buffer));
            buffers.on_read();
            assert_eq!((buffers.spare.len(), buffers.in_use), (40, 0), "turn {turn}");
        }
        for _ in 0..200 {
            buffers.on_read();
        }
        assert_eq!(buffers.spare.len(), 0);
    }

    #[test]
    fn large_buffers_are_not_kept() {
        let mut buffers = SegmentBuffers::new(1_500);
        let used = [60_000, 1_376].map(|len| buffers.copy_of(&vec![1; len]));
        used.into_iter().for_each(|buffer| give_back(&mut buffers, buffer));
        assert_eq!(buffers.spare.iter().map(BytesMut::capacity).collect::<Vec<_>>(), [1_376]);
    }

    #[test]
    fn trim_frees_what_is_spare() {
        let mut buffers = SegmentBuffers::new(1_500);
        let buffer = buffers.copy_of(b"payload");
        give_back(&mut buffers, buffer);
        buffers.trim();
        assert_eq!(buffers.spare.capacity(), 0);
        let buffer = buffers.copy_of(b"again");
        assert_eq!((&buffer[..], buffers.in_use), (&b"again"[..], 1));
    }
}
