use alloc::{vec, vec::Vec};

use super::*;

/// However the bytes of a short chunk came, and whatever was released of them.
#[test]
fn little_takes_little_memory_and_more_moves_it() {
    let byte_at = |position: u32| (position % 251) as u8;
    for (first, second, released) in [(1, 1_023, 0), (64, 961, 10), (1_024, 1, 1_024), (1_000, 9_000, 999)] {
        let mut queue = BytesQueue::default();
        queue.append(&(0..first).map(byte_at).collect::<Vec<_>>());
        assert!(matches!(queue.chunks[0].memory, Some(Memory::Short(_))));
        queue.release_before(released.min(first));
        queue.append(&(first..first + second).map(byte_at).collect::<Vec<_>>());
        let released = released.min(first);
        let stays = queue.chunks.len() == 1 && queue.head + queue.len <= SHORT;
        assert_eq!(matches!(queue.chunks[0].memory, Some(Memory::Short(_))), stays);
        let mut out = vec![0; (first + second - released) as usize];
        queue.copy_to(released, &mut out);
        assert!(out.into_iter().zip(released..).all(|(byte, position)| byte == byte_at(position)));
    }
}

#[test]
fn any_pattern_of_appends_and_releases_reads_back() {
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
        assert!(kept <= (queue.most_in_use.get() + 1).max(queue.chunks.len() + MIN_SPARE));
    }
}

/// Segments of any size are acknowledged in any order. The others can be read, and nothing but their chunks is held.
#[test]
fn only_chunks_with_unacknowledged_bytes_are_held_whatever_the_order_of_acks() {
    const START: u32 = u32::MAX - 50_000;
    const LONGEST: u32 = 4_000;
    let period: Vec<u8> = (0..251 + LONGEST).map(|i| (i % 251) as u8).collect();
    let bytes_at = |StreamRange { position, len }| {
        let at = position.wrapping_sub(START) % 251;
        &period[at as usize..(at + len) as usize]
    };
    for seed in 0..if cfg!(miri) { 1 } else { 4 } {
        let mut queue = BytesQueue { start: START, ..BytesQueue::default() };
        let mut state: u64 = seed;
        let mut random = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % u64::from(below)) as u32
        };
        let mut left: VecDeque<(StreamRange, bool)> = VecDeque::new();
        for step in 0..if cfg!(miri) { 20 } else { 120 } {
            for _ in 0..random(8) {
                let range = StreamRange { position: queue.end(), len: 1 + random(LONGEST) };
                queue.append(bytes_at(range));
                left.push_back((range, false));
            }
            for _ in 0..random(8).min(left.len() as u32) {
                let at = random(left.len() as u32) as usize;
                let (range, acked) = &mut left[at];
                if !core::mem::replace(acked, true) {
                    queue.release(*range);
                }
            }
            // Sometimes `una` acknowledges the oldest.
            if random(20) == 0 {
                left.drain(..left.len() / 2);
            }
            while left.front().is_some_and(|(_, acked)| *acked) {
                left.pop_front();
            }
            queue.release_before(left.front().map_or(queue.end(), |(range, _)| range.position));
            let mut needed = vec![false; queue.chunks.len()];
            for (range, _) in left.iter().filter(|(_, acked)| !acked) {
                let mut out = vec![0; range.len as usize];
                queue.copy_to(range.position, &mut out);
                assert!(out == bytes_at(*range), "seed {seed}, step {step}");
                let at = queue.offset(range.position);
                needed[at / CHUNK..=(at + out.len() - 1) / CHUNK].fill(true);
            }
            // The last one has room for more.
            if !(queue.head + queue.len).is_multiple_of(CHUNK) {
                *needed.last_mut().unwrap() = true;
            }
            let held: Vec<bool> = queue.chunks.iter().map(|chunk| chunk.memory.is_some()).collect();
            assert_eq!(held, needed, "seed {seed}, step {step}");
            assert_eq!(queue.in_use as usize, held.into_iter().filter(|held| *held).count());
            assert!(queue.spare.len() <= (queue.most_in_use.get() + 1).max(MIN_SPARE));
        }
    }
}

/// All but the first segment of each write is acknowledged at once, and the first with the next write.
#[test]
fn a_steady_transfer_with_losses_reuses_its_chunks() {
    let mut queue = BytesQueue::default();
    let (rounds, chunks) = (if cfg!(miri) { 70 } else { 300 }, 3 * MIN_SPARE);
    let bytes = vec![1; chunks * CHUNK];
    for round in 0..rounds {
        assert!(round < 2 || queue.spare.len() >= chunks, "round {round}: {} spare", queue.spare.len());
        let lost = queue.end();
        queue.append(&bytes);
        let arrived = StreamRange { position: lost.wrapping_add(1_000), len: (bytes.len() - 1_000) as u32 };
        queue.release(arrived);
        queue.release_before(lost);
        assert_eq!(queue.in_use, 1);
    }
    for _ in 0..200 {
        queue.release_before(queue.end());
    }
    assert_eq!(queue.spare.len(), MIN_SPARE, "chunks that are no longer needed are freed");
}

#[test]
fn adjacent_ranges_join_across_the_wrap() {
    let mut range = StreamRange { position: u32::MAX - 9, len: 6 };
    assert!(!range.join(StreamRange { position: u32::MAX - 4, len: 1 }));
    assert!(range.join(StreamRange { position: u32::MAX - 3, len: 8 }));
    assert!(range.join(StreamRange { position: 4, len: 1 }));
    assert_eq!((range.position, range.len), (u32::MAX - 9, 15));
}

/// A few of them wait, and nothing is allocated.
#[test]
fn in_a_large_window_spare_chunks_are_used_in_the_order_of_freeing() {
    const BATCH: usize = 5;
    const USED: usize = LARGE + BATCH;
    let mut queue = BytesQueue::default();
    queue.append(&[1; USED * CHUNK]);
    let mut seen = Vec::new();
    for turn in 0..2 * USED / BATCH {
        queue.prefetch_for_append(BATCH * CHUNK);
        queue.release_before(queue.start.wrapping_add((BATCH * CHUNK) as u32));
        let first: Vec<_> = queue.spare.iter().take(BATCH).map(|memory| memory.from(0).as_ptr()).collect();
        queue.append(&[2; BATCH * CHUNK]);
        // The first turns allocate the chunks that wait.
        if turn >= AHEAD {
            let written = queue
                .chunks
                .range(USED - BATCH..)
                .map(|chunk| chunk.memory.as_ref().unwrap().from(0).as_ptr());
            assert!(written.eq(first.iter().copied()), "turn {turn}");
            seen.extend(first);
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), USED + queue.spare.len());
    assert_eq!(queue.spare.len(), AHEAD);
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
