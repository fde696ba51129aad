//! Windows that are a lie.

use std::{sync::Arc, time::Duration};

use kcp9::{
    KcpConfig, KcpConfigBuilder, NoDelay,
    proto::{CloseReason, Command, Extensions, HEADER_LEN, SegmentHeader},
};

use kcp9_simulator::ms;

use super::{DAY, DEAD, FULL, SECOND, Victim, at, packet, push, says, settings};

/// The peer answers each question, and its answer is that there is no room.
#[test]
fn a_window_of_0_for_a_day_holds_the_writer_back_and_costs_a_probe_in_two_minutes() {
    let mut victim = Victim::new(&settings());
    let closed = SegmentHeader { wnd: 0, ..says(Command::Wins) };
    victim.hear(closed.to_bytes().to_vec()).unwrap();
    let written = victim.fill();
    assert!(written < 400_000, "{written} bytes");
    let memory = allocation_counter::measure(|| {
        let mut answered = 0;
        while victim.now < at(DAY) {
            victim.run_until(victim.connection.poll_timeout().unwrap());
            let asked = victim.stats().segments.window_probes;
            for _ in answered..asked {
                victim.hear(closed.to_bytes().to_vec()).unwrap();
            }
            answered = asked;
            assert_eq!(victim.fill(), 0, "nothing has made room");
        }
    });
    assert_eq!(victim.connection.close_reason(), None, "it is there");
    let stats = victim.stats();
    assert_eq!((stats.segments.push_sent, stats.queues.unsent_bytes), (0, written));
    let probes = victim.times_of(Command::Wask);
    assert!((720..740).contains(&probes.len()), "{}", probes.len());
    assert_eq!(victim.wakeups, probes.len());
    assert!(memory.bytes_max < 100_000, "{memory:?}");
}

#[test]
fn a_window_of_0_is_ended_by_the_idle_timeout_where_there_is_one() {
    let mut victim = Victim::new(&settings().idle_timeout(Some(60 * SECOND)));
    let closed = SegmentHeader { wnd: 0, ..says(Command::Wins) };
    victim.hear(closed.to_bytes().to_vec()).unwrap();
    victim.fill();
    for second in 1..=60 {
        assert_eq!(victim.connection.close_reason(), None);
        victim.hear(closed.to_bytes().to_vec()).unwrap();
        victim.run_until(at(SECOND * second));
    }
    assert_eq!(victim.connection.close_reason(), Some(CloseReason::IdleTimeout));
}

/// Anybody may have kept these ACKs. They leave the questions unanswered.
#[test]
fn old_acks_behind_a_closed_window_are_no_sign_of_life() {
    let mut victim = Victim::new(&settings());
    victim.connection.write(victim.now, b"first").unwrap();
    victim.transmit();
    let ack = SegmentHeader { una: 1, wnd: 0, ..says(Command::Ack) }.to_bytes().to_vec();
    victim.hear(ack.clone()).unwrap();
    victim.fill();
    victim.transmit();
    for tenth in 1..1_000 {
        victim.run_until(at(ms(100) * tenth));
        if victim.connection.close_reason().is_some() {
            break;
        }
        victim.hear(ack.clone()).unwrap();
    }
    let probes = victim.times_of(Command::Wask);
    assert_eq!(victim.connection.close_reason(), Some(CloseReason::DeadLink));
    assert_eq!(victim.now, probes[0] + DEAD);
    assert!(probes.len() < 20, "{probes:?}");
}

#[test]
fn a_window_of_65535_without_acks_fills_the_send_window_and_draws_each_segment_once_in_20_rtos() {
    // Without congestion control, which would let even less.
    // And for so long that it is not given up as one whose path carries nothing of this size.
    let patient = settings().dead_timeout(Duration::from_secs(14_400));
    let mut victim = Victim::new(&patient.send_window(64).nodelay(NoDelay::NORMAL));
    let open = SegmentHeader { wnd: u16::MAX, ..says(Command::Wins) }.to_bytes().to_vec();
    victim.hear(open.clone()).unwrap();
    victim.keeps = false;
    let memory = allocation_counter::measure(|| {
        for second in 1..=3_600 {
            victim.fill();
            victim.run_until(at(SECOND * second));
            victim.hear(open.clone()).unwrap();
            assert_eq!(victim.stats().queues.in_flight, 64);
        }
    });
    // It says something new each second, as far as anybody can tell without a cipher. So it is there.
    assert_eq!(victim.connection.close_reason(), None);
    // There was no round trip to measure, so that the RTO is what it was in the beginning.
    let rto = victim.stats().path.rto.as_secs_f64();
    assert_eq!(rto, 0.2);
    let full = (FULL + HEADER_LEN) as f64;
    let rate = victim.bytes_sent as f64 / 3_600.0;
    assert!(rate < 64.0 * full / (20.0 * rto), "{rate} bytes a second");
    assert!(memory.bytes_max < 1 << 20, "{memory:?}");
}

/// What becomes of a session that is told ten times a second of a window of 65,535, hears nothing else, and is kept full by its
/// application, which writes bytes or messages of so many: when it ends, if it does within ten minutes, and why.
fn ends_of_no_acks(config: &KcpConfigBuilder, messages_of: Option<usize>) -> Option<(Duration, CloseReason)> {
    let mut victim = Victim::new(config);
    victim.keeps = false;
    let open = SegmentHeader { wnd: u16::MAX, ..says(Command::Wins) }.to_bytes().to_vec();
    for tenth in 1..=6_000 {
        victim.hear(open.clone()).unwrap();
        match messages_of {
            None => _ = victim.fill(),
            Some(len) => while victim.connection.send(victim.now, &vec![7; len]).is_ok() {},
        }
        victim.run_until(at(ms(100) * tenth));
        if let Some(reason) = victim.connection.close_reason() {
            return Some((ms(100) * tenth, reason));
        }
    }
    None
}

/// Its packets are of a size that the path may not carry, as far as it can tell: so their dead timeout is that of the path.
#[test]
fn a_window_of_65535_without_acks_ends_a_session_with_default_settings_in_some_30_s() {
    let defaults = KcpConfig::builder();
    for (what, config) in [
        ("all defaults", defaults.clone()),
        ("without extensions", defaults.clone().extensions(Extensions::Off)),
        ("without keep-alive", defaults.clone().keep_alive(None)),
        ("without congestion control", defaults.clone().nodelay(NoDelay::NORMAL)),
        ("packets of 576 bytes", defaults.clone().mtu(576)),
        ("long messages", defaults.clone().stream(false)),
    ] {
        let takes_bytes = config.clone().build().unwrap().stream();
        let (after, reason) = ends_of_no_acks(&config, (!takes_bytes).then_some(10_000)).unwrap();
        assert_eq!(reason, CloseReason::DeadLink, "{what}");
        assert!((DEAD..DEAD + 2 * SECOND).contains(&after), "{what}: {after:?}");
    }
}

/// No path is at fault where packets are so short, and something is heard: it lives, unless there is an idle timeout.
#[test]
fn a_window_of_65535_without_acks_ends_a_session_of_short_packets_by_the_idle_timeout_only() {
    let messages = KcpConfig::builder().stream(false);
    let bytes = KcpConfig::builder().mtu(100);
    for (config, len) in [(messages, Some(100)), (bytes, None)] {
        assert_eq!(ends_of_no_acks(&config, len), None);
        let minute = 60 * SECOND;
        let ends = ends_of_no_acks(&config.idle_timeout(Some(minute)), len);
        assert_eq!(ends, Some((minute, CloseReason::IdleTimeout)));
    }
}

/// The peer sends as if there were room for everything: in order, then all of the window from its end, in segments of any size.
#[test]
fn a_peer_that_takes_our_window_for_65535_fills_our_window_twice_and_the_rest_is_refused() {
    for len in [1, FULL, 9_000, 60_000] {
        let mut victim = Victim::new(&settings().recv_window(128));
        victim.keeps = false;
        let payload = vec![1; len];
        let mut bytes = push(0, &payload);
        let memory = allocation_counter::measure(|| {
            for sn in (0..2_000).chain((0..65_535).rev().step_by(7)) {
                bytes[12..16].copy_from_slice(&u32::to_le_bytes(sn));
                bytes[6..8].copy_from_slice(&[0xff; 2]);
                victim.connection.handle_packet(victim.now, &mut bytes).unwrap();
                victim.transmit();
            }
        });
        let stats = victim.stats();
        // What the limit on memory allows for each segment of the window, and for those of a message beside it.
        let limit = (128 + 255) * 1_500 + len;
        assert!(stats.queues.unread_bytes <= limit, "{len}: {stats:?}");
        assert!(memory.bytes_max < 2 * limit as u64 + 200_000, "{len}: {memory:?}");
        let taken = stats.queues.unread_segments + stats.queues.out_of_order;
        if len <= 1_500 {
            assert_eq!((stats.queues.unread_segments, stats.queues.out_of_order), (128, 128));
        }
        let refused = stats.segments.push_received - stats.segments.duplicates - u64::from(taken);
        assert_eq!(stats.segments.out_of_window, refused, "{len}: {stats:?}");
        assert_eq!(victim.connection.close_reason(), None);
        assert!(victim.read().iter().all(|byte| *byte == 1));
    }
}

/// Payload of 128 bytes and more may stay in the block that it was received in. Here that has ACKs besides, and nothing else.
#[test]
fn blocks_that_hold_little_payload_each_and_that_nobody_reads_take_256_kib_beside_the_window() {
    let acks = packet(says(Command::Ack), b"").repeat(50);
    let packet = |sn| [&push(sn, &[b'x'; 128])[..], &acks].concat();
    let mut victim = Victim::new(&settings().recv_window(60_000));
    victim.keeps = false;
    let mut sn = 0;
    let mut receive = |victim: &mut Victim| {
        let first = packet(sn);
        sn += 1;
        let stride = first.len();
        let others = [&acks[..], &[0; 128 + HEADER_LEN]].concat().repeat(40);
        let batch = [first, others].concat();
        let mut block = vec![0; 65_536];
        block[..batch.len()].copy_from_slice(&batch);
        let block = Arc::new(block.into_boxed_slice());
        victim.connection.handle_batch(victim.now, &block, 0..batch.len(), stride);
        victim.transmit();
        Arc::strong_count(&block) > 1
    };
    // Who reads bytes and takes no messages leaves them in blocks.
    receive(&mut victim);
    while !victim.read().is_empty() {}
    let mut held = 0;
    let memory = allocation_counter::measure(|| held = (0..22).filter(|_| receive(&mut victim)).count());
    let stats = victim.stats();
    assert_eq!((stats.queues.unread_segments, stats.queues.out_of_order), (22, 0));
    // Twice the payload and 256 KiB.
    assert_eq!(held, 4, "{memory:?}");
    assert!(memory.bytes_max < 500_000, "{memory:?}");
}
