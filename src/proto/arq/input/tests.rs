use alloc::{vec, vec::Vec};

use super::*;
use crate::proto::config::{KcpConfig, NoDelay};
use crate::proto::wire::SegmentHeader;

fn header(cmd: Command, sn: u32, una: u32) -> [u8; HEADER_LEN] {
    SegmentHeader { conv: 7, cmd, frg: 0, wnd: u16::MAX, ts: 0, sn, una, len: 0 }.to_bytes()
}

fn acks(sn: impl Iterator<Item = u32>) -> Vec<u8> {
    sn.flat_map(|sn| header(Command::Ack, sn, 0)).collect()
}

/// What there is to send, as the segments of one packet.
fn sent(arq: &mut Arq) -> Vec<u8> {
    let mut out = vec![0; 1 << 20];
    let mut flush = arq.begin_flush(Instant::ZERO, false);
    let len = arq.fill(Instant::ZERO, &mut out, &mut flush);
    arq.end_flush(Instant::ZERO, &flush);
    out.truncate(len);
    out
}

/// A lost segment keeps only itself in memory, not the window behind it, and can still be sent again when what is
/// around it is gone.
fn what_arrived_behind_losses_is_freed(segments: u32) {
    let config = KcpConfig::builder().send_window(segments).nodelay(NoDelay::FAST3).build().unwrap();
    let mut arq = Arq::new(7, &config, 0, 0, Instant::ZERO);
    arq.input(
        Instant::ZERO,
        &header(Command::Wins, 0, 0),
        Origin::Received,
        None,
        &mut ExtensionSlot::empty(),
    )
    .unwrap();
    let written: Vec<u8> = (0..segments as usize * arq.path.mss()).map(|i| (i % 251) as u8).collect();
    for batch in written.chunks(64 * arq.path.mss()) {
        assert_eq!(arq.write(Instant::ZERO, batch), batch.len());
        assert_eq!(sent(&mut arq).len(), 64 * (arq.path.mss() + HEADER_LEN));
    }
    let full = arq.queue.bytes.memory();
    assert!(full >= written.len());
    // Most ACKs come in order; those of the newest segments come in reverse, as reordering may have it.
    let (lost, arrived): (Vec<u32>, Vec<u32>) = (0..segments - 56).partition(|sn| sn % 64 == 0);
    for batch in arrived.chunks(100) {
        arq.input(
            Instant::ZERO,
            &acks(batch.iter().copied()),
            Origin::Received,
            None,
            &mut ExtensionSlot::empty(),
        )
        .unwrap();
    }
    arq.input(
        Instant::ZERO,
        &acks((segments - 56..segments).rev()),
        Origin::Received,
        None,
        &mut ExtensionSlot::empty(),
    )
    .unwrap();
    assert_eq!((arq.buffer.span(), arq.buffer.unacked()), (segments, lost.len() as u32));
    assert!(arq.queue.bytes.memory() <= full / 8, "{} of {full}", arq.queue.bytes.memory());
    let resent = sent(&mut arq);
    let resent: Vec<_> = Segments::new(&resent).map(Result::unwrap).collect();
    assert_eq!(resent.iter().map(|(header, _)| header.sn).collect::<Vec<_>>(), lost);
    for (header, payload) in resent {
        assert_eq!(payload, &written[header.sn as usize * arq.path.mss()..][..arq.path.mss()]);
    }
    arq.input(
        Instant::ZERO,
        &header(Command::Ack, lost[1], segments),
        Origin::Received,
        None,
        &mut ExtensionSlot::empty(),
    )
    .unwrap();
    assert_eq!(arq.queue.bytes.memory(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "minutes: `bytes_queue` has tests of the same for Miri")]
fn what_arrived_behind_losses_is_freed_in_a_small_window() {
    what_arrived_behind_losses_is_freed(256);
}

/// So much is in flight that what is due is prefetched.
#[test]
#[cfg_attr(miri, ignore = "minutes: `bytes_queue` has tests of the same for Miri")]
fn what_arrived_behind_losses_is_freed_in_a_large_window() {
    what_arrived_behind_losses_is_freed(16_384);
}

/// A PUSH with the number `sn`.
fn push(sn: u32, ts: u32, frg: u8, payload: &[u8]) -> Vec<u8> {
    let header = SegmentHeader {
        conv: 7,
        cmd: Command::Push,
        frg,
        wnd: 99,
        ts,
        sn,
        una: 0,
        len: payload.len() as u32,
    };
    [&header.to_bytes()[..], payload].concat()
}

fn take_in(arq: &mut Arq, packet: &[u8]) {
    arq.input(Instant::ZERO, packet, Origin::Received, None, &mut ExtensionSlot::empty()).unwrap();
}

/// The numbers of the ACKs that there are to send.
fn acked(arq: &mut Arq) -> Vec<u32> {
    let sent = sent(arq);
    let acks = Segments::new(&sent).map(Result::unwrap).filter(|(header, _)| header.cmd == Command::Ack);
    let mut acks: Vec<_> = acks.map(|(header, _)| header.sn).collect();
    acks.sort_unstable();
    acks
}

/// What can be seen of a receiver.
fn seen(arq: &mut Arq) -> impl PartialEq + core::fmt::Debug {
    let segments = arq.counters.segments;
    let recv = (arq.recv.nxt(), arq.recv.unread_segments(), arq.recv.unread_bytes(), arq.recv.out_of_order());
    (segments, recv, arq.tell_window, arq.acks.deadline(), arq.last_payload(), acked(arq))
}

/// PUSHes of one packet that follow each other are taken in together. That is the same as if each had come alone.
#[test]
fn a_run_of_segments_is_taken_in_as_its_segments_one_by_one() {
    let config = KcpConfig::builder().recv_window(16).build().unwrap();
    for seed in 1_u64..if cfg!(miri) { 20 } else { 2_000 } {
        let mut state = seed;
        let mut below = |n: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % n
        };
        let new = || Arq::new(7, &config, 0, 0, Instant::ZERO);
        let (mut together, mut one_by_one) = (new(), new());
        for _ in 0..30 {
            let nxt = one_by_one.recv.nxt();
            let mut packet = Vec::new();
            for _ in 0..1 + below(4) {
                let (first, ts) = ((nxt + below(8)).saturating_sub(below(6)), below(2));
                for i in 0..1 + below(12) {
                    // Now and then, something differs or is empty, or a number is left out.
                    let (sn, frg) = (first + i + u32::from(below(20) == 0), (below(20) == 0).into());
                    packet.push(push(sn, ts, frg, &[sn as u8; 200][..[0, 1, 3, 200][below(4) as usize]]));
                }
            }
            for segment in &packet {
                take_in(&mut one_by_one, segment);
            }
            take_in(&mut together, &packet.concat());
            assert_eq!(seen(&mut together), seen(&mut one_by_one), "seed {seed}");
            let read = below(600) as usize;
            let (mut out, mut expected) = (vec![0; read], vec![0; read]);
            assert_eq!(together.read(&mut out), one_by_one.read(&mut expected), "seed {seed}");
            assert_eq!(out, expected, "seed {seed}");
        }
    }
}

#[test]
fn a_run_behind_a_duplicate_tells_that_the_peer_lives_and_sends() {
    let config = KcpConfig::default();
    let mut arq = Arq::new(7, &config, 0, 0, Instant::ZERO);
    take_in(&mut arq, &push(0, 0, 0, b"a"));
    arq.window_update.on_closed();
    arq.window_update.on_wins(Instant::ZERO, Duration::from_millis(100));
    let later = Instant::from_millis(50);
    let packet: Vec<u8> = (0..3).flat_map(|sn| push(sn, 0, 0, b"a")).collect();
    arq.input(later, &packet, Origin::Received, None, &mut ExtensionSlot::empty()).unwrap();
    assert_eq!((arq.last_payload(), arq.window_update.deadline()), (later, None));
}

#[test]
fn a_run_of_another_session_is_refused() {
    let config = KcpConfig::default();
    let mut arq = Arq::new(7, &config, 0, 0, Instant::ZERO);
    take_in(&mut arq, &push(0, 0, 0, b"a"));
    arq.alive.peer_time.confirm();
    let packet: Vec<u8> = (1..9).flat_map(|sn| push(sn, 1 << 30, 0, b"a")).collect();
    take_in(&mut arq, &packet);
    assert_eq!((arq.recv.nxt(), arq.counters.segments.push_received), (1, 9));
    let packet: Vec<u8> = (1..9).flat_map(|sn| push(sn, 0, 0, b"a")).collect();
    take_in(&mut arq, &packet);
    assert_eq!((arq.recv.nxt(), arq.counters.segments.push_received), (9, 17));
}
