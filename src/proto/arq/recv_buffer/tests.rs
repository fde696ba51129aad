use alloc::{vec, vec::Vec};

use super::*;

fn buffer(first: u32, window: u32) -> RecvBuffer {
    RecvBuffer::new(first, window, 1_376, default_max_message(1_376))
}

/// Takes in a segment whose payload is to be copied.
fn insert(buffer: &mut RecvBuffer, sn: u32, frg: u8, payload: &[u8]) -> Insert {
    buffer.insert(sn, frg, payload, None)
}

fn read_all(buffer: &mut RecvBuffer) -> Vec<u8> {
    let mut out = vec![0; buffer.unread_bytes()];
    assert_eq!(buffer.read(&mut out), out.len());
    out
}

#[test]
fn any_order_of_arrival_yields_the_stream_across_the_wrap() {
    let first = u32::MAX - 30;
    let mut buffer = buffer(first, 128);
    let mut order: Vec<u32> = (0..100).collect();
    // A fixed shuffle: 37 is coprime to 100.
    order.sort_by_key(|i| i * 37 % 100);
    for i in &order {
        let outcome = insert(&mut buffer, first.wrapping_add(*i), 0, &[*i as u8; 3]);
        assert!(matches!(outcome, Insert::InOrder | Insert::OutOfOrder));
        let again = insert(&mut buffer, first.wrapping_add(*i), 0, b"dup");
        assert_eq!(again, Insert::Duplicate);
    }
    assert_eq!((buffer.out_of_order(), buffer.nxt()), (0, first.wrapping_add(100)));
    let expected: Vec<u8> = (0..100).flat_map(|i| [i; 3]).collect();
    assert_eq!(read_all(&mut buffer), expected);
}

#[test]
fn a_full_window_refuses_segments_until_the_reader_makes_room() {
    let mut buffer = buffer(0, 4);
    for sn in 0..4 {
        assert_eq!(insert(&mut buffer, sn, 0, b"ab"), Insert::InOrder);
    }
    assert_eq!(buffer.free_window(), 0);
    assert_eq!(insert(&mut buffer, 4, 0, b"cd"), Insert::OutOfOrder);
    assert_eq!(insert(&mut buffer, 4, 0, b"cd"), Insert::Duplicate);
    assert_eq!(insert(&mut buffer, 8, 0, b"ef"), Insert::Refused);
    assert_eq!(buffer.nxt(), 4);
    let mut out = [0; 2];
    assert_eq!(buffer.read(&mut out), 2);
    assert_eq!((buffer.nxt(), buffer.free_window()), (5, 0));
    assert_eq!(read_all(&mut buffer), b"abababcd");
    assert_eq!(buffer.free_window(), 4);
}

#[test]
fn a_message_that_arrived_backwards_comes_whole() {
    let mut buffer = buffer(0, 4);
    insert(&mut buffer, 2, 0, b"!");
    insert(&mut buffer, 1, 1, b"world");
    assert!(!buffer.has_message());
    insert(&mut buffer, 0, 2, b"hello ");
    assert_eq!(buffer.recv().unwrap(), b"hello world!"[..]);
    assert_eq!((buffer.unread_segments(), buffer.unread_bytes()), (0, 0));
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
fn fragments_that_never_end_fill_the_window() {
    let mut buffer = buffer(0, 8);
    let mut sn = 0;
    while insert(&mut buffer, sn, 9, b"x") == Insert::InOrder {
        sn += 1;
        assert!(sn < 10_000);
    }
    assert!(buffer.unread_segments() <= 9 * MAX_FRAGMENTS);
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
    assert!(buffer.out_of_order() < 63);
}

#[test]
fn empty_segments_do_not_hold_up_a_reader_of_bytes() {
    let mut buffer = buffer(0, 4);
    for sn in 0..4 {
        insert(&mut buffer, sn, 0, b"");
    }
    assert!(buffer.is_readable());
    assert_eq!(buffer.read(&mut [0; 8]), 0);
    assert_eq!((buffer.unread_segments(), buffer.free_window()), (0, 4));
}

#[test]
fn bytes_behind_a_window_of_empty_segments_are_read_with_them() {
    let mut buffer = buffer(0, 4);
    for sn in 0..4 {
        assert_eq!(insert(&mut buffer, sn, 0, b""), Insert::InOrder);
    }
    for (sn, payload) in [(4, ""), (5, "late"), (6, ""), (7, "r")] {
        // The peer sent these when it knew of a larger window.
        buffer.set_window(8);
        assert_eq!(buffer.insert_out_of_order(sn - 4, sn, 0, payload.as_bytes()), Insert::OutOfOrder);
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
    assert_eq!((buffer.out_of_order(), buffer.free_window()), (0, 4));
}

/// Also where only empty segments are ready, and bytes wait behind the full window.
#[test]
fn what_was_peeked_is_read_next() {
    let mut buffer = buffer(0, 4);
    assert_eq!(buffer.peek(&mut [0; 4]), 0);
    for sn in 0..4 {
        assert_eq!(insert(&mut buffer, sn, 0, b""), Insert::InOrder);
    }
    for (sn, payload) in [(4, &b"ab"[..]), (5, b"c"), (6, b""), (7, b"defg")] {
        insert(&mut buffer, sn, 0, payload);
    }
    for _ in 0..3 {
        let mut out = [0; 5];
        assert_eq!(buffer.peek(&mut out), 5);
        assert_eq!(&out, b"abcde");
    }
    assert_eq!(buffer.peek(&mut []), 0);
    let mut out = [0; 3];
    assert_eq!((buffer.peek(&mut out), &out), (3, b"abc"));
    assert_eq!(buffer.read(&mut out[..1]), 1);
    let mut out = [0; 9];
    assert_eq!((buffer.peek(&mut out), &out[..6]), (6, &b"bcdefg"[..]));
    assert_eq!(read_all(&mut buffer), b"bcdefg");
    assert_eq!(buffer.peek(&mut out), 0);
}

#[test]
fn trim_leaves_what_waits() {
    let mut buffer = buffer(0, 64);
    insert(&mut buffer, 0, 0, b"first ");
    insert(&mut buffer, 2, 0, b"third");
    buffer.trim();
    insert(&mut buffer, 1, 0, b"second ");
    assert_eq!(read_all(&mut buffer), b"first second third");
}

/// Segments that are missing, out of order, late or there twice, in blocks and elsewhere, read in any way: the stream is the
/// same, the blocks held stay within their limit, and none is held when all is read.
#[test]
fn any_mixture_of_arrivals_and_reads_yields_the_stream() {
    const BLOCK: usize = 8_192;
    for seed in 0..if cfg!(miri) { 2 } else { 200 } {
        let mut state: u64 = seed;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let first = u32::MAX - 40;
        let mut buffer = RecvBuffer::new(first, 128, 1_376, default_max_message(1_376));
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
            // Any of them, older ones again, with two swapped sometimes.
            let oldest = segments.iter().position(|(_, arrived)| !arrived).unwrap_or(segments.len());
            let mut batch: Vec<usize> =
                (oldest.saturating_sub(2)..segments.len()).filter(|_| random(10) > 0).take(16).collect();
            if batch.len() > 1 && random(3) == 0 {
                let at = random(batch.len() - 1);
                batch.swap(at, at + 1);
            }
            let mut bytes = vec![0xee; BLOCK];
            let mut end = 0;
            let mut arrivals = Vec::new();
            for i in batch {
                let (begin, payload) = (end + 24 + random(20), &segments[i].0);
                end = begin + payload.len();
                bytes[begin..end].copy_from_slice(payload);
                arrivals.push((i, begin..end));
            }
            let block = Block::new(bytes.into_boxed_slice());
            let may_stay = random(8) > 0;
            for (i, range) in arrivals {
                let place = BlockPosition::of_batch(&block, range.start, BLOCK).filter(|_| may_stay);
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
            let held = blocks.iter().filter(|block| Block::strong_count(block) > 1).count() * BLOCK;
            let most = blocks::allowance(buffer.unread_bytes());
            assert!(held <= most, "seed {seed}, step {step}: {held} of {most}");
        }
        for (i, (payload, _)) in segments.iter().enumerate() {
            read.extend(read_all(&mut buffer));
            insert(&mut buffer, first.wrapping_add(i as u32), 0, payload);
        }
        read.extend(read_all(&mut buffer));
        assert_eq!(read, sent, "seed {seed}");
        assert!(blocks.iter().all(|block| Block::strong_count(block) == 1), "seed {seed}");
    }
}

/// Also where the end is a multiple of 2^32 away from 0, and with the window as the nearer limit.
#[test]
fn nothing_is_taken_in_from_the_end_on() {
    for first in [0, u32::MAX - 5] {
        let mut buffer = buffer(first, 8);
        let at = |i: u32| first.wrapping_add(i);
        insert(&mut buffer, at(0), 0, b"a");
        insert(&mut buffer, at(3), 0, b"d");
        insert(&mut buffer, at(2), 0, b"c");
        assert_eq!(buffer.newest_end(), at(4));
        buffer.set_end(at(5));
        assert_eq!(insert(&mut buffer, at(5), 0, b"x"), Insert::Refused);
        assert_eq!(insert(&mut buffer, at(4), 0, b"e"), Insert::OutOfOrder);
        assert_eq!(insert(&mut buffer, at(1), 0, b"b"), Insert::InOrder);
        assert_eq!((buffer.nxt(), buffer.newest_end(), buffer.free_window()), (at(5), at(5), 0));
        assert_eq!(insert(&mut buffer, at(5), 0, b"x"), Insert::Refused);
        assert_eq!(insert(&mut buffer, at(4), 0, b"e"), Insert::Duplicate);
        assert_eq!(read_all(&mut buffer), b"abcde");
    }
    let mut buffer = buffer(0, 4);
    buffer.set_end(100);
    assert_eq!(insert(&mut buffer, 4, 0, b"x"), Insert::Refused);
    for sn in 0..100 {
        assert_eq!(insert(&mut buffer, sn, 0, b"x"), Insert::InOrder);
        assert_eq!(buffer.free_window(), (99 - sn).min(3));
        read_all(&mut buffer);
    }
    assert_eq!(insert(&mut buffer, 100, 0, b"x"), Insert::Refused);
}

#[test]
fn the_newest_segment_is_known_whatever_the_order_of_arrival() {
    let mut state = 5_u32;
    let mut buffer = buffer(u32::MAX - 100, 64);
    for _ in 0..2_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let before = buffer.newest_end();
        let sn = buffer.nxt().wrapping_add((state >> 16) % 12);
        let is_new = !matches!(insert(&mut buffer, sn, 0, b"x"), Insert::Refused | Insert::Duplicate);
        let expected = if is_new && !seq::before(sn, before) { sn.wrapping_add(1) } else { before };
        assert_eq!(buffer.newest_end(), expected);
        read_all(&mut buffer);
    }
}

#[test]
fn without_a_reader_what_waits_is_dropped_and_nothing_is_taken_in_until_all_is_again() {
    let mut buffer = buffer(0, 4);
    for sn in [0, 1, 2, 3, 4, 5, 7] {
        insert(&mut buffer, sn, 0, b"ab");
    }
    assert_eq!((buffer.nxt(), buffer.out_of_order()), (4, 3));
    // What waited for room in the window becomes ready, and goes as well.
    assert_eq!(buffer.discard(), 12);
    assert_eq!((buffer.nxt(), buffer.unread_segments(), buffer.unread_bytes()), (6, 0, 0));
    buffer.refuse();
    assert_eq!((insert(&mut buffer, 6, 0, b"ab"), buffer.free_window()), (Insert::Refused, 0));
    assert_eq!(insert(&mut buffer, 5, 0, b"ab"), Insert::Duplicate, "it stays acknowledged");
    buffer.accept_all();
    assert_eq!(buffer.free_window(), 4);
    assert_eq!(insert(&mut buffer, 6, 0, b"ab"), Insert::InOrder);
    assert_eq!(read_all(&mut buffer), b"abab");
}

/// Nobody reads. The segments are as long as UDP carries them, and each order and pattern of messages is one that fills most.
#[test]
#[cfg_attr(miri, ignore = "100,000 segments")]
fn a_hostile_peer_and_a_stuck_reader_hold_no_more_than_is_said() {
    const WINDOW: u32 = 16;
    const SEGMENTS: u32 = 600;
    let payload = vec![7; LARGEST_SEGMENT];
    let most = most_held(WINDOW, 1_376, default_max_message(1_376));
    let patterns: [fn(u32) -> u8; 3] = [|_| 0, |_| 1, |sn| u8::from(sn % 200 != 0)];
    let mut largest = 0;
    for frg in patterns {
        for reverse in [false, true] {
            let mut recv = RecvBuffer::new(0, WINDOW, 1_376, default_max_message(1_376));
            for _ in 0..SEGMENTS {
                let next = recv.nxt();
                for ahead in 0..2 * WINDOW {
                    let ahead = if reverse { 2 * WINDOW - 1 - ahead } else { ahead };
                    recv.insert(next + ahead, frg(next + ahead), &payload, None);
                    assert!(recv.held_bytes() <= most, "{} of {most}", recv.held_bytes());
                    largest = largest.max(recv.held_bytes());
                }
            }
        }
    }
    assert!(largest > most * 9 / 10, "the limit is near what a peer can do: {largest} of {most}");
}
