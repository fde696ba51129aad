use super::*;
use alloc::vec;

fn buffer(first: u32, window: u32) -> RecvBuffer {
    RecvBuffer::new(first, window, 1_376)
}

/// Hands in a segment that arrived alone.
fn insert(buffer: &mut RecvBuffer, sn: u32, frg: u8, payload: &[u8]) -> Insert {
    buffer.insert(sn, frg, payload, None)
}

fn read_all(buffer: &mut RecvBuffer) -> Vec<u8> {
    let mut out = vec![0; buffer.ready_bytes()];
    assert_eq!(buffer.read(&mut out), out.len());
    out
}

#[test]
fn any_arrival_order_yields_the_stream_across_the_wrap() {
    let first = u32::MAX - 30;
    let mut buffer = buffer(first, 128);
    let mut order: Vec<u32> = (0..100).collect();
    // A fixed shuffle: 37 is coprime to 100.
    order.sort_by_key(|i| i * 37 % 100);
    for i in &order {
        let outcome = insert(&mut buffer, first.wrapping_add(*i), 0, &[*i as u8; 3]);
        assert!(matches!(outcome, Insert::InOrder | Insert::Early));
        let again = insert(&mut buffer, first.wrapping_add(*i), 0, b"dup");
        assert_eq!(again, Insert::Duplicate);
    }
    assert_eq!((buffer.early(), buffer.nxt()), (0, first.wrapping_add(100)));
    let expected: Vec<u8> = (0..100).flat_map(|i| [i; 3]).collect();
    assert_eq!(read_all(&mut buffer), expected);
}

#[test]
fn a_full_window_refuses_and_recovers() {
    let mut buffer = buffer(0, 4);
    for sn in 0..4 {
        assert_eq!(insert(&mut buffer, sn, 0, b"ab"), Insert::InOrder);
    }
    assert_eq!(buffer.free(), 0);
    assert_eq!(insert(&mut buffer, 4, 0, b"cd"), Insert::Early);
    assert_eq!(insert(&mut buffer, 4, 0, b"cd"), Insert::Duplicate);
    assert_eq!(insert(&mut buffer, 8, 0, b"ef"), Insert::Refused);
    assert_eq!(buffer.nxt(), 4);
    let mut out = [0; 2];
    assert_eq!(buffer.read(&mut out), 2);
    assert_eq!((buffer.nxt(), buffer.free()), (5, 0));
    assert_eq!(read_all(&mut buffer), b"abababcd");
    assert_eq!(buffer.free(), 4);
}

#[test]
fn messages_come_whole_and_by_reference_when_they_lie_together() {
    let mut buffer = buffer(0, 4);
    for (sn, frg) in [(0, 2), (1, 1)] {
        insert(&mut buffer, sn, frg, &[sn as u8; 4]);
        assert!(buffer.recv().is_none());
    }
    insert(&mut buffer, 2, 0, &[2; 4]);
    insert(&mut buffer, 3, 0, b"next");
    assert_eq!(buffer.recv().unwrap(), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2][..]);
    assert_eq!(buffer.recv().unwrap(), b"next"[..]);
    // Out of order: gathered from buffers of their own.
    insert(&mut buffer, 5, 0, b"world");
    insert(&mut buffer, 4, 1, b"hello ");
    assert_eq!(buffer.recv().unwrap(), b"hello world"[..]);
    assert_eq!((buffer.ready(), buffer.ready_bytes()), (0, 0));
}

#[test]
fn a_message_longer_than_the_window_completes() {
    let mut buffer = buffer(0, 2);
    for sn in 0..255_u32 {
        assert_eq!(insert(&mut buffer, sn, (254 - sn) as u8, &[7; 10]), Insert::InOrder, "{sn}");
    }
    assert_eq!(buffer.recv().unwrap().len(), 2_550);
}

#[test]
fn fragments_that_never_end_are_bounded() {
    let mut buffer = buffer(0, 8);
    let mut sn = 0;
    while insert(&mut buffer, sn, 9, b"x") == Insert::InOrder {
        sn += 1;
        assert!(sn < 10_000);
    }
    assert!(buffer.ready() <= 9 * MAX_FRAGMENTS);
}

#[test]
fn huge_segments_meet_the_memory_limit() {
    let mut buffer = buffer(0, 64);
    let huge = vec![1; 60_000];
    for sn in (1..64).rev() {
        insert(&mut buffer, sn, 0, &huge);
    }
    assert!(buffer.held_bytes() <= buffer.memory_limit());
    assert_eq!(insert(&mut buffer, 0, 0, &huge), Insert::InOrder);
    assert!(buffer.early() < 63);
}

#[test]
fn empty_segments_do_not_hold_up_a_byte_reader() {
    let mut buffer = buffer(0, 4);
    for sn in 0..4 {
        insert(&mut buffer, sn, 0, b"");
    }
    assert!(buffer.is_readable());
    assert_eq!(buffer.read(&mut [0; 8]), 0);
    assert_eq!((buffer.ready(), buffer.free()), (0, 4));
}

#[test]
fn bytes_behind_a_window_of_empty_segments_are_read_with_them() {
    let mut buffer = buffer(0, 4);
    for sn in 0..4 {
        assert_eq!(insert(&mut buffer, sn, 0, b""), Insert::InOrder);
    }
    for (sn, payload) in [(4, ""), (5, "late"), (6, ""), (7, "r")] {
        // A window that is full is what its peer knew when it sent these.
        buffer.set_window(8);
        assert_eq!(buffer.insert_early(sn - 4, sn, 0, payload.as_bytes()), Insert::Early);
        buffer.set_window(4);
    }
    let mut out = [0; 8];
    assert_eq!(buffer.read(&mut []), 0);
    let mut count = 0;
    while count < 5 {
        let more = buffer.read(&mut out[count..]);
        assert!(more > 0, "{count} of 5 bytes");
        count += more;
    }
    assert_eq!(&out[..count], b"later");
    assert_eq!((buffer.early(), buffer.free()), (0, 4));
}

#[test]
fn bytes_and_messages_may_be_read_in_turn() {
    let mut buffer = buffer(0, 8);
    insert(&mut buffer, 0, 0, b"headbody");
    insert(&mut buffer, 1, 1, b"left");
    assert_eq!(buffer.read(&mut [0; 4]), 4);
    assert_eq!(buffer.recv().unwrap(), b"body"[..]);
    assert!(buffer.recv().is_none());
    assert_eq!(read_all(&mut buffer), b"left");
    insert(&mut buffer, 2, 0, b"over");
    assert_eq!(buffer.recv().unwrap(), b"over"[..]);
}

/// Buffers of early segments are used again while gaps repeat, and given back when they do not.
#[test]
fn early_segments_reuse_their_buffers() {
    const GAP: u32 = 40;
    let mut buffer = buffer(0, 128);
    for turn in 0..200 {
        let first = turn * GAP;
        for sn in (first..first + GAP).rev() {
            insert(&mut buffer, sn, 0, &[1; 1_000]);
        }
        assert_eq!(read_all(&mut buffer).len(), 1_000 * GAP as usize);
        assert_eq!(buffer.spare_early.len(), GAP as usize - 1, "turn {turn}");
    }
    for sn in 200 * GAP..200 * GAP + 300 {
        insert(&mut buffer, sn, 0, b"in order");
        read_all(&mut buffer);
    }
    assert_eq!((buffer.spare_early.len(), buffer.early_buffers), (0, 0));
}

#[test]
fn buffers_of_huge_segments_are_not_kept() {
    let mut buffer = buffer(0, 128);
    for (sn, len) in [(2, 60_000), (1, 1_376), (0, 10)] {
        insert(&mut buffer, sn, 0, &vec![1; len]);
    }
    assert_eq!(read_all(&mut buffer).len(), 61_386);
    assert_eq!(buffer.spare_early.iter().map(BytesMut::capacity).collect::<Vec<_>>(), [1_376]);
}

#[test]
fn trim_frees_everything() {
    let mut buffer = buffer(0, 64);
    insert(&mut buffer, 1, 0, b"early");
    insert(&mut buffer, 0, 0, b"first");
    read_all(&mut buffer);
    buffer.trim();
    assert_eq!((buffer.ring.capacity(), buffer.spare.capacity(), buffer.chunks.capacity()), (0, 0, 0));
    assert_eq!(insert(&mut buffer, 2, 0, b"again"), Insert::InOrder);
}

/// The chunk that was read stays for what arrives next, and makes way for what arrived early; an empty message, which may be
/// kept for long, does not hold it.
#[test]
fn the_only_chunk_stays() {
    let mut buffer = buffer(0, 16);
    insert(&mut buffer, 0, 0, b"one");
    assert_eq!(read_all(&mut buffer), b"one");
    assert_eq!(buffer.chunks.len(), 1);
    let Chunk::Gathered(chunk) = &buffer.chunks[0] else { panic!("{:?}", buffer.chunks[0]) };
    let memory = chunk.as_ptr();
    insert(&mut buffer, 1, 0, b"");
    let kept = buffer.recv().unwrap();
    for sn in 2..5 {
        insert(&mut buffer, sn, 0, b"more");
        let stayed = matches!(&buffer.chunks[0], Chunk::Gathered(chunk) if chunk.as_ptr() == memory);
        assert!(stayed, "{sn}");
        assert_eq!(read_all(&mut buffer), b"more");
    }
    assert_eq!(kept, b""[..]);
    insert(&mut buffer, 6, 0, b"early");
    insert(&mut buffer, 5, 0, b"");
    assert_eq!((buffer.chunks.len(), buffer.spare.len()), (1, 1), "no chunk is empty beside another");
    assert_eq!(buffer.recv().unwrap(), b""[..]);
    assert_eq!(buffer.recv().unwrap(), b"early"[..]);
}

/// Segments as they lie in a block that was received into: each behind a gap.
struct Batch {
    block: Block,
    /// Where each payload lies.
    payloads: Vec<core::ops::Range<usize>>,
}

impl Batch {
    /// One of `len` bytes, which holds `payloads` behind gaps of so many bytes.
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

    /// Hands in the payloads as segments from `first` on, which may stay in the block.
    fn insert(&self, buffer: &mut RecvBuffer, first: u32) {
        for (sn, range) in (first..).zip(&self.payloads) {
            let place = BlockPosition::of_batch(&self.block, range.start, self.block.len());
            buffer.insert(sn, 0, &self.block[range.clone()], place);
        }
    }

    fn is_kept(&self) -> bool {
        Block::strong_count(&self.block) > 1
    }
}

/// One whose application has read bytes.
fn buffer_of_reader(window: u32) -> RecvBuffer {
    let mut buffer = buffer(0, window);
    assert_eq!(buffer.read(&mut [0; 1]), 0);
    buffer
}

#[test]
fn payloads_stay_in_a_lent_block_until_they_are_read() {
    let mut buffer = buffer_of_reader(64);
    let batch = Batch::new(4_096, &[(24, b"one"), (24, b""), (32, b"two"), (24, b"three")]);
    batch.insert(&mut buffer, 0);
    assert!(batch.is_kept() && matches!(buffer.chunks.make_contiguous(), [Chunk::InPlace(_)]));
    assert_eq!((buffer.ready(), buffer.ready_bytes()), (4, 11));
    // What is not in the block joins from elsewhere.
    assert_eq!(insert(&mut buffer, 4, 0, b"four"), Insert::InOrder);
    let mut read = Vec::new();
    for len in [2, 3, 1, 0, 4] {
        assert!(batch.is_kept());
        let mut out = vec![0; len];
        assert_eq!(buffer.read(&mut out), len);
        read.extend(out);
    }
    assert_eq!((read.as_slice(), buffer.ready()), (&b"onetwothre"[..], 2));
    assert_eq!(read_all(&mut buffer), b"efour");
    assert!(!batch.is_kept() && buffer.blocks.bytes() == 0);
}

/// A message that is handed out may be kept for long.
#[test]
fn messages_keep_no_block() {
    let mut buffer = buffer(0, 64);
    let batches: [_; 3] = core::array::from_fn(|_| Batch::new(4_096, &[(24, b"first"), (24, b"second")]));
    batches[0].insert(&mut buffer, 0);
    assert!(!batches[0].is_kept(), "nobody has read yet");
    assert_eq!(buffer.read(&mut [0; 8]), 8);
    batches[1].insert(&mut buffer, 2);
    assert!(batches[1].is_kept());
    let messages: Vec<_> = core::iter::from_fn(|| buffer.recv()).collect();
    assert_eq!(messages, [&b"ond"[..], b"first", b"second"]);
    assert!(!batches[1].is_kept());
    batches[2].insert(&mut buffer, 4);
    assert!(!batches[2].is_kept(), "messages were taken last");
}

#[test]
fn a_session_that_went_idle_keeps_no_block() {
    let mut buffer = buffer_of_reader(64);
    let batch = Batch::new(4_096, &[(24, b"one"), (24, b"two"), (24, b"three")]);
    insert(&mut buffer, 0, 0, b"zero");
    batch.insert(&mut buffer, 1);
    insert(&mut buffer, 5, 0, b"five");
    insert(&mut buffer, 4, 0, b"four");
    assert_eq!(buffer.read(&mut [0; 5]), 5);
    buffer.trim();
    assert!(!batch.is_kept());
    assert_eq!(read_all(&mut buffer), b"netwothreefourfive");
}

/// Whatever a peer fills its batches with, and whatever was read before.
#[test]
fn blocks_are_kept_for_what_they_hold() {
    const BLOCK: usize = 16_384;
    let mut buffer = buffer_of_reader(4_096);
    // Payload that is not in a block counts as well, until it is read.
    for sn in 0..100 {
        insert(&mut buffer, sn, 0, &[7; 1_000]);
    }
    let mut refused = 0;
    for turn in 0..100 {
        let batch = Batch::new(BLOCK, &[(24, &[7]), (16_000, &[7])]);
        batch.insert(&mut buffer, 100 + 2 * turn);
        assert!(buffer.blocks.bytes() <= most_kept(buffer.ready_bytes()), "{turn}");
        refused += u32::from(!batch.is_kept());
    }
    assert!((40..90).contains(&refused), "{refused} of 100 were not kept");
    assert_eq!(buffer.read(&mut [0; 100_000]), 100_000);
    assert!(buffer.blocks.bytes() <= most_kept(200), "{} for 200 bytes", buffer.blocks.bytes());
    assert!(read_all(&mut buffer) == [7; 200]);
    assert_eq!(buffer.blocks.bytes(), 0);
}

/// Nor does what was copied out of blocks take more than it holds.
#[test]
fn trimming_leaves_what_waits_and_little_else() {
    let mut buffer = buffer_of_reader(4_096);
    for turn in 0..100 {
        let batch = Batch::new(65_536, &[(24, &[7]), (65_000, &[7])]);
        batch.insert(&mut buffer, 2 * turn);
        buffer.trim();
        assert!(!batch.is_kept(), "{turn}");
    }
    let capacity = |chunk: &Chunk| match chunk {
        Chunk::Gathered(bytes) | Chunk::Early(bytes) => bytes.capacity(),
        Chunk::InPlace(payloads) => panic!("{payloads:?}"),
    };
    let memory: usize = buffer.chunks.iter().map(capacity).sum();
    assert!(memory <= 100 * 64, "{memory} bytes for 200");
    assert!(read_all(&mut buffer) == [7; 200]);
}

/// Batches in which segments are missing, early, late or there twice, read in any way: the stream is the same, blocks are
/// kept only for what they hold, and none when all is read.
#[test]
fn any_use_of_lent_blocks_yields_the_stream() {
    const BLOCK: usize = 8_192;
    for seed in 0..if cfg!(miri) { 2 } else { 200 } {
        let mut state: u64 = seed;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let first = u32::MAX - 40;
        let mut buffer = RecvBuffer::new(first, 128, 1_376);
        let (mut sent, mut read) = (Vec::new(), Vec::new());
        // Segments by their distance from the first, and whether they have arrived.
        let mut segments: Vec<(Vec<u8>, bool)> = Vec::new();
        let mut blocks: Vec<Block> = Vec::new();
        for step in 0..if cfg!(miri) { 30 } else { 200 } {
            for _ in 0..random(12) {
                let payload: Vec<u8> = (0..random(400)).map(|i| (sent.len() + i) as u8).collect();
                sent.extend(&payload);
                segments.push((payload, false));
            }
            // Any of them, older ones again, with a few swapped.
            let oldest = segments.iter().position(|(_, arrived)| !arrived).unwrap_or(segments.len());
            let mut batch: Vec<usize> =
                (oldest.saturating_sub(2)..segments.len()).filter(|_| random(10) > 0).take(16).collect();
            if batch.len() > 1 && random(3) == 0 {
                let at = random(batch.len() - 1);
                batch.swap(at, at + 1);
            }
            let payloads: Vec<_> = batch.iter().map(|i| (24 + random(20), &segments[*i].0[..])).collect();
            let Batch { block, payloads } = Batch::new(BLOCK, &payloads);
            let shares = random(8) > 0;
            for (i, range) in batch.into_iter().zip(payloads) {
                let place = BlockPosition::of_batch(&block, range.start, BLOCK).filter(|_| shares);
                let outcome = buffer.insert(first.wrapping_add(i as u32), 0, &block[range], place);
                segments[i].1 |= outcome != Insert::Refused;
            }
            blocks.push(block);
            match random(10) {
                0 => buffer.trim(),
                1 => read.extend(buffer.recv().unwrap_or_default()),
                2 | 3 => {}
                _ => {
                    let mut out = vec![0; random(6_000)];
                    let count = buffer.read(&mut out);
                    read.extend(&out[..count]);
                }
            }
            assert!(sent.starts_with(&read), "seed {seed}, step {step}");
            let most = most_kept(buffer.ready_bytes());
            let kept = blocks.iter().filter(|block| Block::strong_count(block) > 1).count() * BLOCK;
            let counted = buffer.blocks.bytes();
            assert!(
                kept <= counted && counted <= most,
                "seed {seed}, step {step}: {kept}, {counted} of {most}"
            );
        }
        for (i, (payload, _)) in segments.iter().enumerate() {
            read.extend(read_all(&mut buffer));
            insert(&mut buffer, first.wrapping_add(i as u32), 0, payload);
        }
        read.extend(read_all(&mut buffer));
        assert_eq!(read, sent, "seed {seed}");
        let kept = blocks.iter().filter(|block| Block::strong_count(block) > 1).count();
        assert_eq!((kept, buffer.blocks.bytes()), (0, 0), "seed {seed}");
    }
}
