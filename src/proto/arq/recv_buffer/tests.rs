use super::*;
use alloc::vec;

fn buffer(first: u32, window: u32) -> RecvBuffer {
    RecvBuffer::new(first, window, 1_376)
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
        let outcome = buffer.insert(first.wrapping_add(*i), 0, &[*i as u8; 3]);
        assert!(matches!(outcome, Insert::InOrder | Insert::Early));
        let again = buffer.insert(first.wrapping_add(*i), 0, b"dup");
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
        assert_eq!(buffer.insert(sn, 0, b"ab"), Insert::InOrder);
    }
    assert_eq!(buffer.free(), 0);
    assert_eq!(buffer.insert(4, 0, b"cd"), Insert::Early);
    assert_eq!(buffer.insert(4, 0, b"cd"), Insert::Duplicate);
    assert_eq!(buffer.insert(8, 0, b"ef"), Insert::Refused);
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
        buffer.insert(sn, frg, &[sn as u8; 4]);
        assert!(buffer.recv().is_none());
    }
    buffer.insert(2, 0, &[2; 4]);
    buffer.insert(3, 0, b"next");
    assert_eq!(buffer.recv().unwrap(), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2][..]);
    assert_eq!(buffer.recv().unwrap(), b"next"[..]);
    // Out of order: gathered from buffers of their own.
    buffer.insert(5, 0, b"world");
    buffer.insert(4, 1, b"hello ");
    assert_eq!(buffer.recv().unwrap(), b"hello world"[..]);
    assert_eq!((buffer.ready(), buffer.ready_bytes()), (0, 0));
}

#[test]
fn a_message_longer_than_the_window_completes() {
    let mut buffer = buffer(0, 2);
    for sn in 0..255_u32 {
        assert_eq!(buffer.insert(sn, (254 - sn) as u8, &[7; 10]), Insert::InOrder, "{sn}");
    }
    assert_eq!(buffer.recv().unwrap().len(), 2_550);
}

#[test]
fn fragments_that_never_end_are_bounded() {
    let mut buffer = buffer(0, 8);
    let mut sn = 0;
    while buffer.insert(sn, 9, b"x") == Insert::InOrder {
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
        buffer.insert(sn, 0, &huge);
    }
    assert!(buffer.held_bytes() <= buffer.memory_limit());
    assert_eq!(buffer.insert(0, 0, &huge), Insert::InOrder);
    assert!(buffer.early() < 63);
}

#[test]
fn empty_segments_do_not_hold_up_a_byte_reader() {
    let mut buffer = buffer(0, 4);
    for sn in 0..4 {
        buffer.insert(sn, 0, b"");
    }
    assert!(buffer.is_readable());
    assert_eq!(buffer.read(&mut [0; 8]), 0);
    assert_eq!((buffer.ready(), buffer.free()), (0, 4));
}

#[test]
fn bytes_behind_a_window_of_empty_segments_are_read_with_them() {
    let mut buffer = buffer(0, 4);
    for sn in 0..4 {
        assert_eq!(buffer.insert(sn, 0, b""), Insert::InOrder);
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
    buffer.insert(0, 0, b"headbody");
    buffer.insert(1, 1, b"left");
    assert_eq!(buffer.read(&mut [0; 4]), 4);
    assert_eq!(buffer.recv().unwrap(), b"body"[..]);
    assert!(buffer.recv().is_none());
    assert_eq!(read_all(&mut buffer), b"left");
    buffer.insert(2, 0, b"over");
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
            buffer.insert(sn, 0, &[1; 1_000]);
        }
        assert_eq!(read_all(&mut buffer).len(), 1_000 * GAP as usize);
        assert_eq!(buffer.spare_early.len(), GAP as usize - 1, "turn {turn}");
    }
    for sn in 200 * GAP..200 * GAP + 300 {
        buffer.insert(sn, 0, b"in order");
        read_all(&mut buffer);
    }
    assert_eq!((buffer.spare_early.len(), buffer.early_buffers), (0, 0));
}

#[test]
fn buffers_of_huge_segments_are_not_kept() {
    let mut buffer = buffer(0, 128);
    for (sn, len) in [(2, 60_000), (1, 1_376), (0, 10)] {
        buffer.insert(sn, 0, &vec![1; len]);
    }
    assert_eq!(read_all(&mut buffer).len(), 61_386);
    assert_eq!(buffer.spare_early.iter().map(BytesMut::capacity).collect::<Vec<_>>(), [1_376]);
}

#[test]
fn trim_frees_everything() {
    let mut buffer = buffer(0, 64);
    buffer.insert(1, 0, b"early");
    buffer.insert(0, 0, b"first");
    read_all(&mut buffer);
    buffer.trim();
    assert_eq!((buffer.ring.capacity(), buffer.spare.capacity(), buffer.chunks.capacity()), (0, 0, 0));
    assert_eq!(buffer.insert(2, 0, b"again"), Insert::InOrder);
}

/// The chunk that was read stays for what arrives next, and makes way for what arrived early; an empty message, which may be
/// kept for long, does not hold it.
#[test]
fn the_only_chunk_stays() {
    let mut buffer = buffer(0, 16);
    buffer.insert(0, 0, b"one");
    assert_eq!(read_all(&mut buffer), b"one");
    assert_eq!(buffer.chunks.len(), 1);
    let memory = buffer.chunks[0].bytes.as_ptr();
    buffer.insert(1, 0, b"");
    let kept = buffer.recv().unwrap();
    for sn in 2..5 {
        buffer.insert(sn, 0, b"more");
        assert_eq!(buffer.chunks[0].bytes.as_ptr(), memory, "{sn}");
        assert_eq!(read_all(&mut buffer), b"more");
    }
    assert_eq!(kept, b""[..]);
    buffer.insert(6, 0, b"early");
    buffer.insert(5, 0, b"");
    assert_eq!((buffer.chunks.len(), buffer.spare.len()), (1, 1), "no chunk is empty beside another");
    assert_eq!(buffer.recv().unwrap(), b""[..]);
    assert_eq!(buffer.recv().unwrap(), b"early"[..]);
}
