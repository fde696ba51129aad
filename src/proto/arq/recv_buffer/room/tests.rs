use alloc::{vec, vec::Vec};

use super::*;
use crate::proto::{
    arq::recv_buffer::{Insert, default_max_message},
    memory::FLOOR,
};

const LEN: usize = 1_376;

/// A buffer that shares `memory`.
fn sharing(memory: &BufferMemory) -> RecvBuffer {
    let mut buffer = RecvBuffer::new(0, 2_048, LEN, default_max_message(LEN));
    buffer.join(memory);
    buffer
}

fn insert(buffer: &mut RecvBuffer, sn: u32, frg: u8, len: usize) -> Insert {
    let outcome = buffer.insert(sn, frg, &vec![sn as u8; len], None);
    buffer.settle();
    outcome
}

#[test]
fn a_message_that_is_too_long_is_cut_and_one_that_is_not_comes_whole() {
    let mut buffer = RecvBuffer::new(0, 64, LEN, 3_000);
    for (sn, frg) in [(0, 3), (1, 2), (2, 1), (3, 0), (4, 2), (5, 1), (6, 0), (7, 0)] {
        assert_eq!(insert(&mut buffer, sn, frg, 999), Insert::InOrder);
    }
    let lengths = core::iter::from_fn(|| buffer.recv()).map(|message| message.len());
    assert!(lengths.eq([3_996, 2_997, 999]), "the end of the first comes with what brings it to 3,000 bytes");
}

#[test]
fn what_ends_a_message_that_is_too_long_begins_none() {
    let mut buffer = RecvBuffer::new(0, 64, LEN, 2_000);
    for (sn, frg) in [(0, 3), (1, 2), (2, 1), (3, 0)] {
        insert(&mut buffer, sn, frg, 1_000);
    }
    assert!(core::iter::from_fn(|| buffer.recv()).map(|message| message.len()).eq([2_000, 2_000]));
}

/// Without any memory to share, as much is taken in as the peer is told, and no more than the floor in order and out of order.
#[test]
fn at_the_floor_the_window_is_what_is_taken_in() {
    let memory = BufferMemory::new(0);
    for len in [LEN, 1_000, 10, 0] {
        let mut buffer = sharing(&memory);
        let mut sn = 0;
        for _ in 0..3 {
            let told = buffer.free_window();
            assert!(told >= 5, "{told} of {len} bytes");
            for _ in 0..told {
                assert_eq!(insert(&mut buffer, sn, 0, len), Insert::InOrder, "{sn} of {len} bytes");
                sn += 1;
            }
            while buffer.read(&mut [0; 500]) > 0 {}
        }
        while insert(&mut buffer, sn, 0, len) == Insert::InOrder {
            sn += 1;
        }
        assert!(buffer.unread_bytes() <= FLOOR && buffer.unread_segments() <= FLOOR / SEGMENT);
        assert_eq!(buffer.free_window(), 0, "{len} bytes");
        assert_eq!(insert(&mut buffer, sn, 0, len), Insert::Refused);
    }
    assert!(memory.refused_segments() > 0);
}

/// A gap is closed whatever waits behind it.
#[test]
fn at_the_floor_a_gap_is_closed() {
    let mut buffer = sharing(&BufferMemory::new(0));
    let taken = (1..100).filter(|sn| insert(&mut buffer, *sn, 0, LEN) == Insert::OutOfOrder).count();
    assert_eq!(taken, FLOOR / LEN);
    assert_eq!(insert(&mut buffer, 3, 0, LEN), Insert::Duplicate, "it is acknowledged again");
    assert_eq!(insert(&mut buffer, 0, 0, LEN), Insert::InOrder);
    assert_eq!(buffer.unread_segments(), taken + 1);
}

#[test]
fn at_the_floor_a_segment_longer_than_those_of_this_end_waits_for_memory() {
    let memory = BufferMemory::new(1 << 20);
    let mut hoarder = sharing(&memory);
    while hoarder.share.grow_to(hoarder.share.allowed() + 1) {}
    let mut others: Vec<_> = (0..100).map(|_| sharing(&memory)).collect();
    for other in &mut others {
        while other.share.grow_to(other.share.allowed() + 1) {}
    }
    let mut buffer = sharing(&memory);
    assert_eq!(insert(&mut buffer, 0, 0, 9_000), Insert::Refused);
    others.clear();
    assert_eq!(insert(&mut buffer, 0, 0, 9_000), Insert::InOrder);
}

/// What is promised to a message is there for it, although others want it and other segments come first.
#[test]
fn a_message_of_which_a_segment_was_taken_in_completes() {
    let memory = BufferMemory::new(128 << 10);
    let mut first = sharing(&memory);
    // 40 KB, of which the fifth segment comes first.
    assert_eq!(insert(&mut first, 4, 25, LEN), Insert::OutOfOrder);
    let mut others: Vec<_> = (0..10).map(|_| sharing(&memory)).collect();
    for other in &mut others {
        for sn in 0..60 {
            insert(other, sn, 0, LEN);
        }
    }
    assert_eq!(insert(&mut sharing(&memory), 0, 29, LEN), Insert::Refused, "there is no memory for another");
    // Of the next message.
    for sn in 30..60 {
        insert(&mut first, sn, 0, LEN);
    }
    for sn in (0..30).rev().filter(|sn| *sn != 4) {
        assert_ne!(insert(&mut first, sn, (29 - sn) as u8, LEN), Insert::Refused, "{sn}");
    }
    assert_eq!(first.recv().map(|message| message.len()), Some(30 * LEN));
}

/// A reader of bytes takes the parts of a message for which there is no memory.
#[test]
fn at_the_floor_a_reader_of_bytes_takes_a_message_in_parts() {
    let mut buffer = sharing(&BufferMemory::new(0));
    assert_eq!(insert(&mut buffer, 0, 29, LEN), Insert::Refused);
    insert(&mut buffer, 0, 0, 1);
    assert_eq!(buffer.read(&mut [0; 9]), 1);
    for sn in 1..31 {
        assert_eq!(insert(&mut buffer, sn, (30 - sn) as u8, LEN), Insert::InOrder);
        while buffer.read(&mut [0; 1_000]) > 0 {}
    }
}

#[test]
fn what_was_read_is_given_back() {
    let memory = BufferMemory::new(1 << 20);
    let mut buffer = sharing(&memory);
    for sn in 0..100 {
        assert_eq!(insert(&mut buffer, sn, 0, LEN), Insert::InOrder);
    }
    let most = memory.taken();
    assert!(most >= 100 * LEN - FLOOR, "{most}");
    while buffer.read(&mut [0; 10_000]) > 0 {
        let held = buffer.held_bytes() + buffer.ready.spare_bytes();
        assert!(memory.taken() <= held + (64 << 10), "{} for {held}", memory.taken());
    }
    buffer.trim();
    assert_eq!(memory.taken(), 0);
}
