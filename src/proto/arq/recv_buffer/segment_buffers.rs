//! Buffers for the payloads of segments that arrive out of order, one segment each.
//!
//! A buffer is filled when its segment arrives, and given back when its payload was read. As many buffers are kept for later
//! segments as were in use recently: a path that keeps losing or reordering packets then allocates nothing.

use alloc::{boxed::Box, vec::Vec};

use bytes::BytesMut;

use crate::proto::arq::high_water_mark::HighWaterMark;

#[derive(Debug)]
pub(super) struct SegmentBuffers {
    /// Capacity of the largest buffer that is kept. A short payload in a large buffer would escape the limit on memory.
    max_capacity: usize,
    /// Most sessions have no use for any.
    buffers: Option<Box<Buffers>>,
}

#[derive(Debug, Default)]
struct Buffers {
    spare: Vec<BytesMut>,
    /// Buffers that hold payload.
    in_use: usize,
    most_in_use: HighWaterMark,
}

impl SegmentBuffers {
    /// `max_capacity`: bytes of the largest buffer that is kept for later segments.
    pub(super) const fn new(max_capacity: usize) -> Self {
        Self { max_capacity, buffers: None }
    }

    /// Capacity of the largest buffer that is kept.
    pub(super) const fn max_capacity(&self) -> usize {
        self.max_capacity
    }

    /// A buffer that holds a copy of `payload`.
    #[inline]
    pub(super) fn copy_of(&mut self, payload: &[u8]) -> BytesMut {
        let buffers = self.buffers.get_or_insert_default();
        let mut buffer = buffers.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(payload);
        buffers.in_use += 1;
        buffers.most_in_use.rise_to(buffers.in_use);
        buffer
    }

    /// Takes a buffer back whose payload was read.
    pub(super) fn give_back(&mut self, mut buffer: BytesMut) {
        let Some(buffers) = &mut self.buffers else { return };
        buffers.in_use -= 1;
        if buffers.spare.len() < buffers.max_spare()
            && buffer.try_reclaim(1)
            && buffer.capacity() <= self.max_capacity
        {
            buffers.spare.push(buffer);
        }
    }

    /// Frees the buffers that were not needed recently. To be called with every read.
    #[inline]
    pub(super) fn on_read(&mut self) {
        if let Some(buffers) = &mut self.buffers {
            buffers.on_read();
        }
    }

    /// Bytes of the spare buffers, at most.
    pub(super) fn spare_bytes(&self) -> usize {
        self.buffers.as_ref().map_or(0, |buffers| buffers.spare.len() * self.max_capacity)
    }

    /// Frees all spare buffers.
    pub(super) fn trim(&mut self) {
        let in_use = self.buffers.as_ref().map_or(0, |buffers| buffers.in_use);
        self.buffers = (in_use > 0).then(|| Box::new(Buffers { in_use, ..Buffers::default() }));
    }
}

impl Buffers {
    fn on_read(&mut self) {
        self.most_in_use.end_period(self.in_use);
        if !self.spare.is_empty() {
            self.spare.truncate(self.max_spare());
        }
    }

    fn max_spare(&self) -> usize {
        self.most_in_use.get().saturating_sub(self.in_use)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use bytes::Buf;

    use super::*;

    fn spare(buffers: &SegmentBuffers) -> &[BytesMut] {
        buffers.buffers.as_ref().map_or(&[], |buffers| &buffers.spare)
    }

    fn in_use(buffers: &SegmentBuffers) -> usize {
        buffers.buffers.as_ref().map_or(0, |buffers| buffers.in_use)
    }

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
            assert_eq!(spare(&buffers).len(), 0, "turn {turn}");
            used.into_iter().for_each(|buffer| give_back(&mut buffers, buffer));
            buffers.on_read();
            assert_eq!((spare(&buffers).len(), in_use(&buffers)), (40, 0), "turn {turn}");
        }
        for _ in 0..200 {
            buffers.on_read();
        }
        assert_eq!(spare(&buffers).len(), 0);
    }

    #[test]
    fn large_buffers_are_not_kept() {
        let mut buffers = SegmentBuffers::new(1_500);
        let used = [60_000, 1_376].map(|len| buffers.copy_of(&vec![1; len]));
        used.into_iter().for_each(|buffer| give_back(&mut buffers, buffer));
        assert_eq!(spare(&buffers).iter().map(BytesMut::capacity).collect::<Vec<_>>(), [1_376]);
    }

    #[test]
    fn trim_frees_what_is_spare() {
        let mut buffers = SegmentBuffers::new(1_500);
        let buffer = buffers.copy_of(b"payload");
        give_back(&mut buffers, buffer);
        buffers.trim();
        assert_eq!(spare(&buffers).len(), 0);
        let buffer = buffers.copy_of(b"again");
        assert_eq!((&buffer[..], in_use(&buffers)), (&b"again"[..], 1));
    }
}
