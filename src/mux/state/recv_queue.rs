//! What a stream has received and nobody has read yet.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// Bytes in order: slices of the buffers that they were received into, and behind them a tail of its own.
///
/// A slice keeps its whole buffer alive. So only one that is a good part of the buffer stays where it is; smaller ones are copied
/// behind each other into the tail. What a peer can make this hold is thus a small multiple of the bytes that it sent.
#[derive(Debug, Default)]
pub(super) struct RecvQueue {
    pieces: VecDeque<Bytes>,
    /// Behind all pieces.
    tail: BytesMut,
    len: usize,
}

impl RecvQueue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, piece: Bytes) {
        self.len += piece.len();
        if piece.len() < MIN_SLICE {
            self.tail.extend_from_slice(&piece);
            return;
        }
        if !self.tail.is_empty() {
            self.pieces.push_back(std::mem::take(&mut self.tail).freeze());
        }
        self.pieces.push_back(piece);
    }

    /// Hands up to `max` bytes that lie behind each other to `sink`; returns how many.
    pub(super) fn read(&mut self, max: usize, mut sink: impl FnMut(&[u8])) -> usize {
        let mut read = 0;
        while read < max {
            if let Some(first) = self.pieces.front_mut() {
                let count = first.len().min(max - read);
                sink(&first[..count]);
                first.advance(count);
                if first.is_empty() {
                    self.pieces.pop_front();
                }
                read += count;
            } else {
                let count = self.tail.len().min(max - read);
                if count > 0 {
                    sink(&self.tail[..count]);
                    self.tail.advance(count);
                    read += count;
                }
                break;
            }
        }
        self.took(read);
        read
    }

    /// The first piece, if it is a slice of no more than `max` bytes, and there is one.
    pub(super) fn take_piece(&mut self, max: usize) -> Option<Bytes> {
        self.pieces.front().filter(|piece| piece.len() <= max)?;
        let piece = self.pieces.pop_front()?;
        self.took(piece.len());
        Some(piece)
    }

    fn took(&mut self, count: usize) {
        self.len -= count;
        if self.len == 0 {
            // An idle stream keeps no memory.
            *self = Self::default();
        }
    }
}

/// A slice of fewer bytes is copied. Buffers have 64 KiB: what is kept of one is a quarter of it or more.
pub(super) const MIN_SLICE: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn slices_and_copies_keep_their_order() {
        let sizes = [3, 5, 20_000, 1, 16_384, 16_383, 7, 40_000];
        let sent: Vec<u8> = (0..sizes.iter().sum::<usize>()).map(|at| (at % 251) as u8).collect();
        let all = Bytes::from(sent.clone());
        for max in [1, 7, 10_000, usize::MAX] {
            let mut queue = RecvQueue::default();
            let mut at = 0;
            for size in sizes {
                queue.push(all.slice(at..at + size));
                at += size;
                assert_eq!(queue.len(), at);
            }
            let mut read = Vec::new();
            while queue.len() > 0 {
                if let Some(piece) = queue.take_piece(17_000).filter(|_| max > 7) {
                    read.extend_from_slice(&piece);
                }
                queue.read(max, |bytes| read.extend_from_slice(bytes));
            }
            assert!(read == sent || max <= 7, "reads of {max}");
            assert_eq!(queue.read(max, |_| panic!("nothing is left")), 0);
        }
    }
}
