//! The same again and again, and much of what is worth nothing.

use std::time::Duration;

use kcp9::proto::{Command, Event, HEADER_LEN, SegmentHeader};

use kcp9_simulator::Rng;

use super::{CONV, Victim, packet, push, says, settings};

/// A flood of `count` packets, one each 10 µs. Returns the peak of memory that it takes, and the bytes that are sent.
fn flood(victim: &mut Victim, count: usize, mut next: impl FnMut(usize, &mut Vec<u8>)) -> (u64, usize) {
    victim.keeps = false;
    let before = victim.bytes_sent;
    let mut bytes = Vec::with_capacity(65_536);
    let memory = allocation_counter::measure(|| {
        for number in 0..count {
            next(number, &mut bytes);
            let _ = victim.connection.handle_packet(victim.now, &mut bytes);
            victim.run_until(victim.now + Duration::from_micros(10));
        }
    });
    (memory.bytes_max, victim.bytes_sent - before)
}

const MANY: usize = 100_000;

#[test]
fn the_same_packet_100000_times_takes_no_memory_and_draws_an_ack_for_a_packet_full() {
    let mut victim = Victim::new(&settings());
    let (memory, sent) = flood(&mut victim, MANY, |_, bytes| bytes.clone_from(&push(0, b"again")));
    let stats = victim.stats();
    assert_eq!((stats.segments.duplicates, stats.queues.unread_bytes), (MANY as u64 - 1, 5));
    // One ACK for as many as a packet has room for: what a packet of ACKs would have told.
    assert!(sent <= HEADER_LEN * (MANY / 57 + MANY / 100), "{sent} bytes");
    assert!(memory < 20_000, "{memory} bytes");
    assert_eq!(victim.read(), b"again");
    victim.assert_alive(1);
}

/// The ACKs of what is behind a gap are told one by one: `una` does not cover them.
#[test]
fn the_same_packet_behind_a_gap_100000_times_takes_little_memory_and_draws_less_than_it_has() {
    let mut victim = Victim::new(&settings());
    let (memory, sent) = flood(&mut victim, MANY, |_, bytes| bytes.clone_from(&push(5, b"again")));
    let stats = victim.stats();
    assert_eq!((stats.segments.duplicates, stats.queues.out_of_order), (MANY as u64 - 1, 1));
    let received = MANY * (HEADER_LEN + 5);
    assert!(sent <= received, "{sent} bytes for {received}");
    assert!(memory < 150_000, "{memory} bytes");
    victim.assert_alive(0);
}

/// The socket takes nothing meanwhile.
#[test]
fn packets_behind_a_gap_100000_times_while_nothing_can_be_sent_leave_4096_acks() {
    let mut victim = Victim::new(&settings());
    let memory = allocation_counter::measure(|| {
        for number in 0..MANY as u32 {
            victim.hear(push(5 + number % 7, b"again")).unwrap();
        }
    });
    assert!(memory.bytes_max < 100_000, "{memory:?}");
    victim.transmit();
    // The last packet has room to repeat some of the one before.
    let acks = victim.stats().segments.acks_sent;
    assert!((4_096..4_096 + 57).contains(&acks), "{acks}");
    victim.assert_alive(0);
}

/// What is past the window is answered by the window as it is.
#[test]
fn questions_and_refused_segments_100000_times_draw_an_answer_of_24_bytes_each_and_answers_draw_nothing() {
    let refused = SegmentHeader { sn: 1_000_000, ..says(Command::Push) };
    let floods = [
        (says(Command::Wask), HEADER_LEN),
        (refused, HEADER_LEN),
        (says(Command::Wins), 0),
        (says(Command::Ack), 0),
    ];
    for (header, answer) in floods {
        let mut victim = Victim::new(&settings());
        let (memory, sent) = flood(&mut victim, MANY, |_, bytes| bytes.clone_from(&packet(header, b"")));
        assert_eq!(sent, MANY * answer, "{header:?}");
        assert!(memory < 20_000, "{header:?}: {memory} bytes");
        victim.assert_alive(0);
    }
}

const DATA: u16 = 0xf1;
const PARITY: u16 = 0xf2;

/// An FEC packet of the session's conversation, with noise in it.
fn fec(bytes: &mut Vec<u8>, kind: u16, seqid: u32, len: usize, noise: u8) {
    bytes.clear();
    bytes.extend_from_slice(&seqid.to_le_bytes());
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&(len as u16 + 2).to_le_bytes());
    bytes.extend_from_slice(&CONV.to_le_bytes());
    bytes.resize(8 + len, noise);
}

/// What a session without FEC takes for that of its peer, with what it takes for itself.
const UNEXPECTED_FEC: u64 = (64 << 10) + 8_192;

/// How the packets of an FEC flood are numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// Of groups of 200 and 56 that all arrive.
    InOrder,
    /// One of 20 is missing, which parity would recover.
    WithGaps,
    /// Without parity, so that nobody learns the size of a group.
    OnlyData,
    Random,
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn fec_packets_at_a_session_without_fec_take_64_kib_at_most_and_hand_nothing_on() {
    const SEED: u64 = 5;
    let mut rng = Rng::new(SEED);
    for len in [100, 1_400, 60_000] {
        for numbers in [Numbers::InOrder, Numbers::WithGaps, Numbers::OnlyData, Numbers::Random] {
            let mut victim = Victim::new(&settings());
            let (memory, sent) = flood(&mut victim, 2_000, |number, bytes| {
                let mut seqid = number as u32;
                match numbers {
                    Numbers::InOrder | Numbers::OnlyData => {}
                    Numbers::WithGaps => seqid += seqid / 19,
                    Numbers::Random => seqid = rng.next() as u32,
                }
                let is_data = seqid % 256 < 200 || numbers == Numbers::OnlyData;
                let kind = if is_data { DATA } else { PARITY };
                fec(bytes, kind, seqid, len, number as u8);
            });
            let what = format!("{len} bytes, {numbers:?}, seed {SEED}");
            assert_eq!(sent, 0, "{what}");
            let stats = victim.stats();
            assert_eq!(stats.queues.unread_segments + stats.queues.out_of_order, 0, "{what}");
            assert_eq!(stats.fec.recovered, 0, "{what}");
            let known = (stats.fec_state.peer_data_shards, stats.fec_state.peer_parity_shards);
            let is_known = matches!(numbers, Numbers::InOrder | Numbers::WithGaps);
            assert_eq!(known, if is_known { (200, 56) } else { (0, 0) }, "{what}");
            assert!(memory < UNEXPECTED_FEC, "{memory} bytes; {what}");
            victim.assert_alive(0);
        }
    }
}

#[test]
fn parity_of_another_conversation_takes_no_memory() {
    let mut victim = Victim::new(&settings());
    let (memory, sent) = flood(&mut victim, 10_000, |number, bytes| {
        fec(bytes, PARITY, number as u32, 1_400, number as u8);
        bytes[8] ^= 1;
    });
    let wasted = victim.stats().fec.parity_wasted;
    assert_eq!((wasted, sent), (10_000, 0));
    assert!(memory < 70_000, "{memory} bytes");
    victim.assert_alive(0);
}

/// Empty segments are nothing to a reader of bytes, and each takes a place in the window until it is read.
#[test]
fn empty_segments_that_fill_the_window_stop_no_byte_behind_them() {
    let mut victim = Victim::new(&settings().recv_window(32));
    for sn in 0..9_600 {
        victim.hear(push(sn, b"")).unwrap();
        if sn % 32 == 31 {
            while victim.connection.poll_event() == Some(Event::Readable) {
                assert_eq!(victim.read(), b"");
            }
        }
    }
    assert_eq!(victim.stats().segments.out_of_window, 0);
    assert_eq!(victim.stats().queues.unread_segments, 0);
    victim.assert_alive(9_600);
}
