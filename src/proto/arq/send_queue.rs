//! What the application wrote and no segment carries yet.
//!
//! Written bytes go straight into the [`BytesQueue`] that segments refer to, so cutting a segment moves no byte. A list
//! beside it says what the bytes are. A run of stream bytes has no boundaries: later writes extend it, and segments are cut from
//! it as large as they may be. A message keeps its boundaries and is cut into numbered fragments.

use alloc::collections::VecDeque;

use super::bytes_queue::BytesQueue;

/// The most fragments of a message. Their `frg` counts down to 0, from at most 254.
pub(super) const MAX_FRAGMENTS: usize = 255;

/// A run of stream bytes, or a message.
#[derive(Debug)]
struct Pending {
    /// Bytes that no segment carries yet.
    len: usize,
    /// Payload bytes of a full fragment of a message. 0 marks a run of stream bytes: its segments are as large as the mss
    /// allows when they are cut.
    fragment: usize,
}

/// The payload of a segment that is about to be sent for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) len: usize,
    pub(super) frg: u8,
}

#[derive(Debug, Default)]
pub(super) struct SendQueue {
    pub(super) bytes: BytesQueue,
    pending: VecDeque<Pending>,
    unsent: usize,
}

impl SendQueue {
    /// Bytes that no segment carries yet.
    pub(super) const fn unsent(&self) -> usize {
        self.unsent
    }

    /// Runs and messages with bytes that no segment carries yet.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether the next segment is (a part of) a message, which has its size already.
    pub(super) fn is_message_next(&self) -> bool {
        self.pending.front().is_some_and(|front| front.fragment > 0)
    }

    /// Adds bytes of the stream.
    pub(super) fn push_stream(&mut self, bytes: &[u8]) {
        match self.pending.back_mut() {
            Some(last) if last.fragment == 0 => last.len += bytes.len(),
            _ => self.pending.push_back(Pending { len: bytes.len(), fragment: 0 }),
        }
        self.append(bytes);
    }

    /// Adds a message that is cut into fragments of `mss` bytes.
    pub(super) fn push_message(&mut self, message: &[u8], mss: usize) {
        debug_assert!(!message.is_empty() && message.len().div_ceil(mss) <= MAX_FRAGMENTS);
        self.pending.push_back(Pending { len: message.len(), fragment: mss });
        self.append(message);
    }

    fn append(&mut self, bytes: &[u8]) {
        self.bytes.append(bytes);
        self.unsent += bytes.len();
    }

    /// The payload of the next segment. It stays in the queue.
    pub(super) fn peek(&self, mss: usize) -> Option<Cut> {
        let front = self.pending.front()?;
        Some(if front.fragment == 0 {
            Cut { len: front.len.min(mss), frg: 0 }
        } else {
            Cut { len: front.len.min(front.fragment), frg: (front.len.div_ceil(front.fragment) - 1) as u8 }
        })
    }

    /// Takes the payload that [`peek`](Self::peek) returned. Returns its stream position.
    pub(super) fn take(&mut self, cut: Cut) -> u32 {
        let position = self.bytes.end().wrapping_sub(self.unsent as u32);
        self.unsent -= cut.len;
        if let Some(front) = self.pending.front_mut() {
            front.len -= cut.len;
            if front.len == 0 {
                self.pending.pop_front();
            }
        }
        position
    }

    /// Forgets the first `len` bytes that no segment carries yet, where none is in flight.
    #[cfg(feature = "noise")]
    pub(super) fn discard_unsent(&mut self, len: usize) {
        let mut left = len;
        while let Some(front) = self.pending.front().map(|front| front.len).filter(|_| left > 0) {
            let len = front.min(left);
            let position = self.take(Cut { len, frg: 0 });
            self.bytes.release_before(position.wrapping_add(len as u32));
            left -= len;
        }
    }

    /// The largest fragment of the messages queued: the mss must not become smaller.
    pub(super) fn largest_fragment(&self) -> usize {
        let sizes = self.pending.iter().map(|pending| pending.fragment.min(pending.len));
        sizes.max().unwrap_or(0)
    }

    /// Drops all bytes, those of segments in flight too. Returns how many no segment carried.
    pub(super) fn abandon(&mut self) -> usize {
        self.pending.clear();
        self.bytes.release_before(self.bytes.end());
        core::mem::take(&mut self.unsent)
    }

    /// Frees the memory that is not in use.
    pub(super) fn trim(&mut self) {
        self.bytes.trim();
        if self.pending.is_empty() {
            self.pending = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn cuts(queue: &mut SendQueue, mss: usize) -> Vec<(u32, usize, u8)> {
        core::iter::from_fn(|| {
            let cut = queue.peek(mss)?;
            Some((queue.take(cut), cut.len, cut.frg))
        })
        .collect()
    }

    #[test]
    fn stream_writes_share_segments_and_messages_keep_their_boundaries() {
        let mut queue = SendQueue::default();
        queue.push_stream(&[1; 60]);
        queue.push_stream(&[2; 60]);
        queue.push_message(&[3; 250], 100);
        queue.push_message(&[4; 100], 100);
        queue.push_stream(&[5; 10]);
        assert_eq!((queue.unsent(), queue.pending()), (480, 4));
        assert_eq!(
            cuts(&mut queue, 100),
            [
                (0, 100, 0),
                (100, 20, 0),
                (120, 100, 2),
                (220, 100, 1),
                (320, 50, 0),
                (370, 100, 0),
                (470, 10, 0),
            ]
        );
        assert_eq!((queue.unsent(), queue.pending()), (0, 0));
    }

    #[test]
    #[cfg(feature = "noise")]
    fn what_is_discarded_is_not_sent_and_the_rest_is() {
        let mut queue = SendQueue::default();
        queue.push_stream(&[1; 60]);
        queue.push_message(&[2; 50], 100);
        queue.push_stream(&[3; 10]);
        queue.discard_unsent(60);
        assert_eq!((queue.unsent(), queue.bytes.len()), (60, 60));
        queue.discard_unsent(0);
        queue.push_stream(&[4; 5]);
        assert_eq!(cuts(&mut queue, 100), [(60, 50, 0), (110, 15, 0)]);
        let mut out = [0; 15];
        queue.bytes.copy_to(110, &mut out);
        assert_eq!(out, [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4]);
        queue.push_stream(&[5; 5]);
        queue.discard_unsent(3);
        assert_eq!(cuts(&mut queue, 100), [(128, 2, 0)]);
    }

    #[test]
    fn a_message_keeps_the_fragment_size_it_was_queued_with() {
        let mut queue = SendQueue::default();
        queue.push_message(&[0; 250], 100);
        assert_eq!(queue.largest_fragment(), 100);
        assert_eq!(cuts(&mut queue, 500), [(0, 100, 2), (100, 100, 1), (200, 50, 0)]);
    }

    #[test]
    fn the_fragments_of_the_longest_message_count_down_from_254() {
        let mut queue = SendQueue::default();
        queue.push_message(&[0; MAX_FRAGMENTS * 10], 10);
        let frg: Vec<u8> = cuts(&mut queue, 10).into_iter().map(|(_, _, frg)| frg).collect();
        assert_eq!(frg, (0..255).rev().map(|frg| frg as u8).collect::<Vec<_>>());
    }
}
