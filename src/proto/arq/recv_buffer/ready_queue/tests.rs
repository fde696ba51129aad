use alloc::vec;

use super::*;
use crate::proto::arq::recv_buffer::blocks::Block;

/// A ready queue with the buffers that it gives back.
struct Reader {
    queue: ReadyQueue,
    buffers: SegmentBuffers,
}

impl Reader {
    fn new() -> Self {
        Self { queue: ReadyQueue::new(usize::MAX), buffers: SegmentBuffers::new(1_500) }
    }

    /// One whose application reads bytes.
    fn of_bytes() -> Self {
        let mut reader = Self::new();
        assert_eq!(reader.read(&mut [0; 1]), 0);
        reader
    }

    fn push(&mut self, frg: u8, payload: &[u8]) {
        self.queue.push(payload, frg, None);
    }

    /// Adds a segment that arrived out of order.
    fn push_buffer(&mut self, frg: u8, payload: &[u8]) {
        let buffer = self.buffers.copy_of(payload);
        self.queue.push_buffer(buffer, frg);
    }

    fn read(&mut self, out: &mut [u8]) -> usize {
        let (max, mut filled) = (out.len(), 0);
        let copy = |bytes: &[u8]| {
            out[filled..filled + bytes.len()].copy_from_slice(bytes);
            filled += bytes.len();
        };
        self.queue.read(copy, max, &mut self.buffers)
    }

    fn read_all(&mut self) -> Vec<u8> {
        let mut out = vec![0; self.queue.bytes()];
        assert_eq!(self.read(&mut out), out.len());
        out
    }

    fn recv(&mut self) -> Option<Bytes> {
        self.queue.recv(&mut self.buffers)
    }
}

/// Segments as they lie in a block that was received into: each behind a gap.
struct Batch {
    block: Block,
    /// Where each payload lies.
    payloads: Vec<core::ops::Range<usize>>,
}

impl Batch {
    /// A block of `len` bytes that holds `payloads`, each with the length of the gap in front of it.
    fn new(len: usize, payloads: &[(usize, &[u8])]) -> Self {
        let mut bytes = vec![0xee; len].into_boxed_slice();
        let mut at = 0;
        let payloads = payloads.iter().map(|(gap, payload)| {
            let range = at + gap..at + gap + payload.len();
            bytes[range.clone()].copy_from_slice(payload);
            at = range.end;
            range
        });
        Self { payloads: payloads.collect(), block: Block::new(bytes) }
    }

    /// Adds the payloads, which may stay in the block.
    fn push(&self, reader: &mut Reader) {
        for range in &self.payloads {
            let place = BlockPosition::of_batch(&self.block, range.start, self.block.len());
            reader.queue.push(&self.block[range.clone()], 0, place);
        }
    }

    fn is_held(&self) -> bool {
        Block::strong_count(&self.block) > 1
    }
}

#[test]
fn a_long_message_in_one_chunk_is_handed_out_without_a_copy_and_a_short_one_holds_no_chunk() {
    for len in [CHUNK / LEAST_PART / 3, CHUNK / LEAST_PART / 3 + 1] {
        let mut reader = Reader::new();
        reader.queue.chunk_size = ChunkSize(CHUNK as u32);
        let payload = vec![7; len];
        for frg in [2, 1, 0] {
            assert!(reader.recv().is_none(), "the message has not ended");
            reader.push(frg, &payload);
        }
        reader.push(0, b"next");
        let Some(Chunk::Copied(chunk)) = reader.queue.chunks.front() else { panic!("{:?}", reader.queue) };
        let memory = chunk.as_ptr();
        let message = reader.recv().unwrap();
        assert_eq!(message, payload.repeat(3));
        assert_eq!(message.as_ptr() == memory, message.len() * LEAST_PART >= CHUNK, "{}", message.len());
        assert_eq!(reader.recv().unwrap(), b"next"[..]);
        assert_eq!((reader.queue.segments(), reader.queue.bytes()), (0, 0));
    }
}

#[test]
fn small_messages_take_small_chunks_and_much_unread_payload_large_ones() {
    let mut reader = Reader::new();
    let capacity = |reader: &Reader| match reader.queue.chunks.back() {
        Some(Chunk::Copied(bytes)) => bytes.capacity(),
        other => panic!("{other:?}"),
    };
    for _ in 0..100 {
        reader.push(0, &[1; 600]);
        assert!(capacity(&reader) <= LEAST_CHUNK, "{}", capacity(&reader));
        assert_eq!(reader.read_all().len(), 600);
    }
    for _ in 0..100 {
        reader.push(0, &[1; 600]);
    }
    assert_eq!(capacity(&reader), CHUNK);
    assert!(reader.queue.chunks.len() <= 7, "{}", reader.queue.chunks.len());
    reader.read_all();
    reader.queue.trim();
    reader.push(0, &[1; 600]);
    assert_eq!(capacity(&reader), LEAST_CHUNK);
}

#[test]
fn a_message_in_a_buffer_of_its_own_is_handed_out_with_it_unless_that_is_much_longer() {
    for len in [1_000, 100] {
        let mut reader = Reader::new();
        let mut buffer = BytesMut::with_capacity(1_400);
        buffer.extend_from_slice(&vec![7; len]);
        let memory = buffer.as_ptr();
        reader.queue.push_buffer(buffer, 0);
        reader.buffers.copy_of(b"");
        let message = reader.recv().unwrap();
        assert_eq!((message.len(), message.as_ptr() == memory), (len, len == 1_000));
    }
}

#[test]
fn a_message_in_several_chunks_is_copied_together() {
    let mut reader = Reader::new();
    reader.push_buffer(2, b"hello ");
    reader.push(1, b"wor");
    reader.push_buffer(0, b"ld");
    assert_eq!(reader.recv().unwrap(), b"hello world"[..]);
    assert_eq!((reader.queue.segments(), reader.queue.chunks.len()), (0, 0));
}

#[test]
fn a_message_without_an_end_ends_where_the_longest_one_would() {
    let mut reader = Reader::new();
    for count in 1..=MAX_FRAGMENTS {
        assert!(!reader.queue.has_message(), "{count}");
        reader.push(9, b"x");
    }
    assert_eq!(reader.recv().unwrap().len(), MAX_FRAGMENTS);
}

#[test]
fn a_reader_of_bytes_passes_over_empty_segments() {
    let mut reader = Reader::new();
    for payload in [&b""[..], b"ab", b"", b"", b"c", b""] {
        reader.push(0, payload);
    }
    let mut out = [0; 8];
    assert_eq!(reader.read(&mut out), 3);
    assert_eq!((&out[..3], reader.queue.segments()), (&b"abc"[..], 0));
}

#[test]
fn bytes_and_messages_may_be_read_in_turn() {
    let mut reader = Reader::new();
    reader.push(0, b"headbody");
    reader.push(1, b"left");
    assert_eq!(reader.read(&mut [0; 4]), 4);
    assert_eq!(reader.recv().unwrap(), b"body"[..]);
    assert!(reader.recv().is_none());
    assert_eq!(reader.read_all(), b"left");
    reader.push(0, b"over");
    assert_eq!(reader.recv().unwrap(), b"over"[..]);
}

#[test]
fn the_only_chunk_is_used_again_even_if_an_empty_message_is_kept() {
    let mut reader = Reader::new();
    reader.push(0, b"one");
    assert_eq!(reader.read_all(), b"one");
    let [Chunk::Copied(chunk)] = reader.queue.chunks.make_contiguous() else { panic!("{:?}", reader.queue) };
    let memory = chunk.as_ptr();
    reader.push(0, b"");
    let kept = reader.recv().unwrap();
    for turn in 0..3 {
        reader.push(0, b"more");
        let same =
            matches!(&reader.queue.chunks[0], Chunk::Copied(chunk) if chunk.as_ptr().addr() == memory.addr());
        assert!(same, "turn {turn}");
        assert_eq!(reader.read_all(), b"more");
    }
    assert_eq!(kept, b""[..]);
}

#[test]
fn the_empty_chunk_makes_way_for_a_buffer() {
    let mut reader = Reader::new();
    reader.push(0, b"one");
    assert_eq!(reader.read_all(), b"one");
    reader.push(0, b"");
    reader.push_buffer(0, b"two");
    assert_eq!((reader.queue.chunks.len(), reader.queue.spare.len()), (1, 1));
    assert_eq!(reader.recv().unwrap(), b""[..]);
    assert_eq!(reader.recv().unwrap(), b"two"[..]);
}

/// Payload that is long enough to stay in its block.
const ONE: &[u8] = &[1; LEAST_IN_BLOCK];
const TWO: &[u8] = &[2; LEAST_IN_BLOCK + 10];
const THREE: &[u8] = &[3; LEAST_IN_BLOCK + 20];

#[test]
fn payload_stays_in_its_block_until_it_is_read() {
    let mut reader = Reader::of_bytes();
    let batch = Batch::new(4_096, &[(24, ONE), (32, TWO), (24, THREE)]);
    batch.push(&mut reader);
    assert!(batch.is_held() && matches!(reader.queue.chunks.make_contiguous(), [Chunk::InBlock(_)]));
    // Payload from elsewhere follows in a chunk of its own.
    reader.push(0, b"four");
    let expected = [ONE, TWO, THREE, b"four"].concat();
    assert_eq!((reader.queue.segments(), reader.queue.bytes()), (4, expected.len()));
    let mut read = Vec::new();
    for len in [2, ONE.len(), 1, 0, TWO.len()] {
        assert!(batch.is_held());
        let mut out = vec![0; len];
        assert_eq!(reader.read(&mut out), len);
        read.extend(out);
    }
    assert_eq!(reader.queue.segments(), 2);
    read.extend(reader.read_all());
    assert_eq!(read, expected);
    assert!(!batch.is_held() && reader.queue.blocks.bytes() == 0);
}

#[test]
fn a_small_part_of_a_block_is_copied() {
    let mut reader = Reader::of_bytes();
    let batch = Batch::new(4_096, &[(24, ONE)]);
    assert!(BlockPosition::of_batch(&batch.block, 0, 2_047).is_none());
    let place = BlockPosition::of_batch(&batch.block, 0, 2_048).unwrap();
    reader.queue.push(&batch.block[24..][..ONE.len()], 0, Some(place.forward(24)));
    assert!(batch.is_held());
}

#[test]
fn short_payload_is_copied() {
    let mut reader = Reader::of_bytes();
    let short = &ONE[1..];
    let batch = Batch::new(4_096, &[(24, short), (24, b""), (24, ONE), (24, short)]);
    batch.push(&mut reader);
    assert!(matches!(
        reader.queue.chunks.make_contiguous(),
        [Chunk::Copied(_), Chunk::InBlock(_), Chunk::Copied(_)]
    ));
    assert_eq!(reader.read_all(), [short, ONE, short].concat());
}

/// A message that is handed out may be kept for long.
#[test]
fn an_application_that_takes_messages_holds_no_block() {
    let mut reader = Reader::new();
    let batches: [_; 3] = core::array::from_fn(|_| Batch::new(4_096, &[(24, ONE), (24, TWO)]));
    batches[0].push(&mut reader);
    assert!(!batches[0].is_held(), "nobody has read yet");
    let read = ONE.len() + 3;
    assert_eq!(reader.read(&mut [0; 200][..read]), read);
    batches[1].push(&mut reader);
    assert!(batches[1].is_held());
    let messages: Vec<_> = core::iter::from_fn(|| reader.recv()).collect();
    assert_eq!(messages, [&TWO[3..], ONE, TWO]);
    assert!(!batches[1].is_held());
    batches[2].push(&mut reader);
    assert!(!batches[2].is_held(), "the last call took a message");
}

#[test]
fn trim_copies_out_of_blocks_and_keeps_the_order() {
    let mut reader = Reader::of_bytes();
    let batch = Batch::new(4_096, &[(24, ONE), (24, TWO), (24, THREE)]);
    reader.push(0, b"zero");
    batch.push(&mut reader);
    assert!(batch.is_held());
    reader.push_buffer(0, b"four");
    reader.push_buffer(0, b"five");
    assert_eq!(reader.read(&mut [0; 5]), 5);
    reader.queue.trim();
    assert!(!batch.is_held());
    assert_eq!(reader.read_all(), [&ONE[1..], TWO, THREE, b"fourfive"].concat());
}

/// Whatever a peer fills its packets with, and whatever was read before.
#[test]
fn the_blocks_held_are_bounded_by_the_unread_bytes() {
    const BLOCK: usize = 16_384;
    let mut reader = Reader::of_bytes();
    // Payload outside of blocks counts as well, until it is read.
    for _ in 0..100 {
        reader.push(0, &[7; 1_000]);
    }
    let mut copied = 0;
    for turn in 0..100 {
        let batch = Batch::new(BLOCK, &[(24, ONE), (15_000, ONE)]);
        batch.push(&mut reader);
        assert!(reader.queue.blocks.bytes() <= allowance(reader.queue.bytes()), "{turn}");
        copied += u32::from(!batch.is_held());
    }
    assert!((40..90).contains(&copied), "{copied} of 100 were copied");
    assert_eq!(reader.read(&mut [0; 100_000]), 100_000);
    let held = reader.queue.blocks.bytes();
    assert!(held <= allowance(200), "{held} bytes for 200");
    assert_eq!(reader.read_all(), ONE.repeat(200));
    assert_eq!(reader.queue.blocks.bytes(), 0);
}

#[test]
fn what_trim_copies_out_of_blocks_takes_little_more_than_its_bytes() {
    let mut reader = Reader::of_bytes();
    for turn in 0..100 {
        let batch = Batch::new(65_536, &[(24, ONE), (65_000, ONE)]);
        batch.push(&mut reader);
        reader.queue.trim();
        assert!(!batch.is_held(), "{turn}");
    }
    let capacity = |chunk: &Chunk| match chunk {
        Chunk::Copied(bytes) | Chunk::Segment(bytes) => bytes.capacity(),
        Chunk::InBlock(run) => panic!("{run:?}"),
    };
    let memory: usize = reader.queue.chunks.iter().map(capacity).sum();
    let bytes = 200 * ONE.len();
    assert!(memory <= bytes + bytes / 4, "{memory} bytes for {bytes}");
    assert_eq!(reader.read_all(), ONE.repeat(200));
}

#[test]
fn trim_frees_everything_of_an_empty_queue() {
    let mut reader = Reader::new();
    for _ in 0..3 {
        reader.push(0, &[1; CHUNK]);
    }
    reader.push_buffer(0, b"buffer");
    assert_eq!(reader.read_all().len(), 3 * CHUNK + 6);
    assert!(reader.queue.spare.len() >= 2);
    reader.queue.trim();
    let ReadyQueue { spare, chunks, segments, .. } = &reader.queue;
    assert_eq!((spare.capacity(), chunks.capacity(), segments.capacity()), (0, 0, 0));
}
