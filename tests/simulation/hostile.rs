//! What a peer may do that is hostile or broken, and what becomes of the session. One end is driven by hand here: its packets are
//! none that this crate sends.
//!
//! Elsewhere: conversations that collide (`tests/endpoint/takeovers.rs`), forged openings (`tests/endpoint/amplification.rs`,
//! `openings.rs`), probes of a window that nobody opens (`windows.rs`, `tests/regressions.rs`), clocks that wrap (`wrap.rs`), ICMP
//! errors (`tests/sockets/dead_peers.rs`, `listener.rs`).

use std::{sync::Arc, time::Duration};

use kcp9::{
    KcpConfig, KcpConfigBuilder, NoDelay,
    proto::{
        CloseReason, Command, Connection, Event, Extensions, HEADER_LEN, Instant, PacketError, SegmentError,
        SegmentHeader, Segments, SessionSeed, Stats, WriteError,
    },
};

use kcp9_simulator::{Rng, ms};

const CONV: u32 = 7;
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
/// The default dead timeout.
const DEAD: Duration = Duration::from_secs(30);
/// Payload of a full segment.
const FULL: usize = 1_376;

const fn at(time: Duration) -> Instant {
    Instant::from_millis(time.as_millis() as u64)
}

/// Without keep-alive and extensions, so that nothing is asked and answered but what a test is about.
fn settings() -> KcpConfigBuilder {
    KcpConfig::builder().keep_alive(None).extensions(Extensions::Off)
}

/// A segment of the peer, without payload.
fn says(cmd: Command) -> SegmentHeader {
    SegmentHeader { conv: CONV, cmd, frg: 0, wnd: 128, ts: 0, sn: 0, una: 0, len: 0 }
}

fn packet(header: SegmentHeader, payload: &[u8]) -> Vec<u8> {
    let header = SegmentHeader { len: payload.len() as u32, ..header };
    [&header.to_bytes()[..], payload].concat()
}

fn push(sn: u32, payload: &[u8]) -> Vec<u8> {
    packet(SegmentHeader { sn, ..says(Command::Push) }, payload)
}

/// The end that the peer is hostile to.
struct Victim {
    connection: Connection,
    now: Instant,
    /// What it has sent, as long as it is kept.
    sent: Vec<(Instant, SegmentHeader)>,
    keeps: bool,
    bytes_sent: usize,
    wakeups: usize,
    buffer: Vec<u8>,
}

impl Victim {
    fn new(config: &KcpConfigBuilder) -> Self {
        Self {
            connection: Connection::new(CONV, &config.clone().build().unwrap(), Instant::ZERO),
            now: Instant::ZERO,
            sent: Vec::new(),
            keeps: true,
            bytes_sent: 0,
            wakeups: 0,
            buffer: vec![0; 65_536],
        }
    }

    /// Takes in a packet. What that makes sendable waits for [`transmit`](Self::transmit).
    fn hear(&mut self, mut packet: Vec<u8>) -> Result<(), PacketError> {
        self.connection.handle_packet(self.now, &mut packet)
    }

    /// Writes as much as is taken. Returns how many bytes.
    fn fill(&mut self) -> usize {
        let mut written = 0;
        loop {
            match self.connection.write(self.now, &[7; 4_096]) {
                Ok(count) => written += count,
                Err(WriteError::Blocked) => return written,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn transmit(&mut self) {
        while let Some(transmit) = self.connection.poll_transmit(self.now, &mut self.buffer) {
            self.bytes_sent += transmit.len;
            for packet in self.buffer[..transmit.len].chunks(transmit.stride) {
                let headers = Segments::new(packet).map(|segment| (self.now, segment.unwrap().0));
                if self.keeps {
                    self.sent.extend(headers);
                }
            }
        }
        while self.connection.poll_event().is_some() {}
    }

    /// Serves every deadline until `until`, and sends what there is to send.
    fn run_until(&mut self, until: Instant) {
        self.transmit();
        while let Some(due) = self.connection.poll_timeout().filter(|due| *due <= until) {
            let same = due <= self.now;
            self.now = self.now.max(due);
            self.wakeups += 1;
            self.connection.handle_timeout(self.now);
            self.transmit();
            let next = self.connection.poll_timeout();
            assert!(!same || next.is_none_or(|next| next > self.now), "it spins at {:?}", self.now);
        }
        self.now = self.now.max(until);
    }

    /// Serves every deadline until the session ends. Returns when and why, if it does within a day.
    fn until_closed(&mut self) -> Option<(Instant, CloseReason)> {
        self.transmit();
        loop {
            if let Some(reason) = self.connection.close_reason() {
                return Some((self.now, reason));
            }
            let due = self.connection.poll_timeout().filter(|due| *due < at(DAY))?;
            self.run_until(due);
        }
    }

    fn stats(&self) -> Stats {
        self.connection.stats()
    }

    fn read(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 100_000];
        let count = self.connection.read(&mut bytes).unwrap_or(0);
        bytes.truncate(count);
        bytes
    }

    fn times_of(&self, cmd: Command) -> Vec<Instant> {
        self.sent.iter().filter(|(_, header)| header.cmd == cmd).map(|(at, _)| *at).collect()
    }

    /// It lives, and takes what is honest. `sn` is the peer's next number.
    fn assert_alive(&mut self, sn: u32) {
        assert_eq!(self.connection.close_reason(), None);
        self.hear(push(sn, b"hello")).unwrap();
        assert_eq!(self.read(), b"hello");
    }
}

// ---- Extension segments ----

struct Zeros;

impl kcp9::proto::Random for Zeros {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

/// Each takes longer to look at than a segment of KCP: what is looked at is counted here, whatever they are and say.
#[test]
fn of_a_packet_full_of_extension_segments_the_first_8_are_looked_at() {
    for subtype in 0..=255 {
        let config = settings().extensions(Extensions::Preferred).build().unwrap();
        let mut victim = Victim::new(&settings());
        victim.connection = Connection::accept(CONV, &config, victim.now, SessionSeed::new(&mut Zeros));
        let looked_at = |victim: &Victim| {
            let counts = victim.stats().extensions;
            counts.received + counts.unknown + counts.malformed + counts.wrong_tag
        };
        let segment = SegmentHeader { frg: subtype, sn: 9, ..says(Command::Extension) };
        let one = packet(segment, &[1; 8]);
        let wask = packet(says(Command::Wask), b"");
        for packets in 1..=10 {
            let before = victim.stats().extensions.dropped;
            victim.hear([&one.repeat(42)[..], &wask].concat()).unwrap();
            let dropped = victim.stats().extensions.dropped - before;
            assert!((34..=42).contains(&dropped), "{subtype:#x}: {dropped}");
            assert!(looked_at(&victim) <= 8 * packets, "{subtype:#x}: {:?}", victim.stats().extensions);
            // What stands behind them counts.
            assert_eq!(victim.stats().segments.received, 43 * packets);
        }
        // Eight are as many as ever.
        let before = victim.stats().extensions.dropped + looked_at(&victim);
        victim.hear(one.repeat(8)).unwrap();
        assert_eq!(victim.stats().extensions.dropped + looked_at(&victim), before + 8);
    }
}

// ---- ACKs and `una` ----

/// What a session that has written one segment sends while it is told `lie` every second, and when and why it ends.
fn dies_of(lie: Option<SegmentHeader>) -> (Vec<(Instant, SegmentHeader)>, Instant, Option<CloseReason>) {
    let mut victim = Victim::new(&settings());
    victim.connection.write(victim.now, b"question").unwrap();
    victim.transmit();
    for second in 1..60 {
        victim.run_until(at(SECOND * second));
        if victim.connection.close_reason().is_some() {
            break;
        }
        if let Some(lie) = lie {
            victim.hear(lie.to_bytes().to_vec()).unwrap();
            let stats = victim.stats();
            assert_eq!((stats.queues.in_flight, stats.path.rtt), (1, Duration::ZERO), "{lie:?}");
        }
    }
    (victim.sent, victim.now, victim.connection.close_reason())
}

#[test]
fn acks_of_what_was_never_sent_and_a_una_beyond_it_are_as_good_as_silence_and_the_peer_is_dead_in_30_s() {
    let silence = dies_of(None);
    assert_eq!((silence.1, silence.2), (at(DEAD), Some(CloseReason::DeadLink)));
    let numbers = [1, 2, 31, 1_000, i32::MAX as u32, 1 << 31, u32::MAX - 1, u32::MAX];
    let times = [0, 1, 100_000, u32::MAX];
    for (sn, ts) in numbers.into_iter().flat_map(|sn| times.map(|ts| (sn, ts))) {
        let ack = SegmentHeader { sn, ts, ..says(Command::Ack) };
        assert_eq!(dies_of(Some(ack)), silence, "{ack:?}");
        let una = sn.max(2);
        let ack = SegmentHeader { una, ..ack };
        assert_eq!(dies_of(Some(ack)), silence, "{ack:?}");
        let wins = SegmentHeader { una, wnd: 0, ..says(Command::Wins) };
        assert_eq!(dies_of(Some(wins)), silence, "{wins:?}");
    }
}

/// Nothing is left that would be resent, so that nothing but the dead timeout tells that the peer is not what it was.
#[test]
fn right_acks_with_a_una_beyond_what_was_sent_end_the_session_in_30_s() {
    for una in [2, 1_000, i32::MAX as u32, u32::MAX] {
        let mut victim = Victim::new(&settings());
        victim.connection.write(victim.now, b"question").unwrap();
        victim.transmit();
        victim.run_until(at(ms(10)));
        victim.hear(packet(SegmentHeader { una, ..says(Command::Ack) }, b"")).unwrap();
        assert_eq!(victim.until_closed(), Some((at(DEAD), CloseReason::DeadLink)), "{una}");
    }
}

#[test]
fn an_ack_whose_time_is_none_of_ours_confirms_its_segment_and_gives_no_round_trip_time() {
    // From the future, from before the longest RTO, and from the other half of the clock.
    for ahead in
        [1, 5_000, i32::MAX as u32, 1 << 31, 60_000_u32.wrapping_neg(), 86_400_000_u32.wrapping_neg()]
    {
        let mut victim = Victim::new(&settings());
        victim.run_until(at(100 * SECOND));
        victim.connection.write(victim.now, b"question").unwrap();
        victim.transmit();
        victim.run_until(at(100 * SECOND + ms(10)));
        let ts = victim.now.as_ts().wrapping_add(ahead);
        victim.hear(packet(SegmentHeader { ts, una: 1, ..says(Command::Ack) }, b"")).unwrap();
        let stats = victim.stats();
        assert_eq!((stats.queues.in_flight, stats.path.rtt), (0, Duration::ZERO), "{ahead}");
        assert_eq!(stats.path.rto, ms(200), "{ahead}");
        victim.assert_alive(0);
    }
}

/// The longest round trip that a peer can claim is just below the longest RTO.
#[test]
fn a_round_trip_time_that_is_a_lie_holds_a_resend_back_for_a_quarter_of_the_dead_timeout_at_most() {
    let mut victim = Victim::new(&settings());
    victim.run_until(at(100 * SECOND));
    victim.connection.write(victim.now, b"question").unwrap();
    victim.transmit();
    let ts = victim.now.as_ts() - 59_999;
    victim.hear(packet(SegmentHeader { ts, una: 1, ..says(Command::Ack) }, b"")).unwrap();
    assert_eq!(victim.stats().path.rtt, ms(59_999));
    victim.connection.write(victim.now, b"another").unwrap();
    assert_eq!(victim.until_closed(), Some((at(130 * SECOND), CloseReason::DeadLink)));
    let sent = &victim.times_of(Command::Push)[1..];
    assert_eq!(sent.len(), 4, "{sent:?}");
    assert!(sent.windows(2).all(|pair| pair[1] - pair[0] == DEAD / 4), "{sent:?}");
}

/// Times from the future make each ACK one of a later transmission than the hole.
#[test]
fn acks_with_times_from_the_future_draw_one_resend_of_a_hole_and_no_more() {
    let mut victim = Victim::new(&settings());
    for sn in 0..20 {
        victim.connection.write(victim.now, &[sn; FULL]).unwrap();
    }
    victim.transmit();
    victim.run_until(at(ms(5)));
    for round in 0..3 {
        for sn in 1..20 {
            let ts = victim.now.as_ts() + 1_000_000 + round;
            victim.hear(packet(SegmentHeader { sn, ts, ..says(Command::Ack) }, b"")).unwrap();
            victim.transmit();
        }
    }
    let stats = victim.stats();
    assert_eq!((stats.recovery.fast_resends, stats.recovery.resends()), (1, 1), "{stats:?}");
    assert_eq!(stats.queues.in_flight, 20);
}

// ---- Windows ----

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

// ---- Lengths ----

#[test]
fn a_length_past_the_packet_costs_the_rest_of_the_packet_and_no_memory() {
    for len in [4, 1_500, 65_536, i32::MAX as u32, 1 << 31, u32::MAX] {
        let mut victim = Victim::new(&settings());
        let mut bytes = push(0, b"good");
        let lies = SegmentHeader { sn: 1, len, ..says(Command::Push) };
        bytes.extend_from_slice(&lies.to_bytes());
        bytes.extend_from_slice(b"bad");
        let mut outcome = Ok(());
        let memory = allocation_counter::measure(|| outcome = victim.hear(bytes));
        let error = SegmentError::LengthPastEnd { len, available: 3 };
        assert_eq!(outcome, Err(PacketError::Segment(error)));
        assert!(memory.bytes_max < 10_000, "{len}: {memory:?}");
        let stats = victim.stats();
        assert_eq!((stats.udp.malformed, stats.segments.push_received), (1, 1));
        assert_eq!(victim.read(), b"good");
        victim.assert_alive(1);
    }
}

#[test]
fn a_segment_longer_than_any_of_ours_is_taken_whole() {
    let mut victim = Victim::new(&settings());
    let payload: Vec<u8> = (0..60_000_u32).map(|at| at as u8).collect();
    victim.hear(push(0, &payload)).unwrap();
    assert_eq!(victim.read(), payload);
    victim.assert_alive(1);
}

// ---- Times ----

#[test]
fn any_time_of_a_push_is_echoed_and_any_time_of_a_question_is_taken() {
    let mut victim = Victim::new(&settings().ack_no_delay(true));
    victim.run_until(at(100 * SECOND));
    let now = victim.now.as_ts();
    let times = [0, 1, now, now + 1, now - 60_000, 1 << 31, i32::MAX as u32, u32::MAX];
    for (sn, ts) in times.into_iter().chain(times).enumerate() {
        let sn = sn as u32;
        victim.hear(packet(SegmentHeader { sn, ts, ..says(Command::Push) }, b"x")).unwrap();
        victim.hear(packet(SegmentHeader { ts, ..says(Command::Wask) }, b"")).unwrap();
        victim.hear(packet(SegmentHeader { ts, ..says(Command::Wins) }, b"")).unwrap();
        victim.transmit();
        let [(_, ack), (_, wins)] = victim.sent[..] else { panic!("{:?}", victim.sent) };
        assert_eq!((ack.cmd, ack.sn, ack.ts, ack.una), (Command::Ack, sn, ts, sn + 1));
        assert_eq!((wins.cmd, wins.una), (Command::Wins, sn + 1));
        victim.sent.clear();
        assert_eq!(victim.read(), b"x");
        assert_eq!(victim.connection.poll_timeout(), None);
    }
    assert_eq!(victim.stats().path.rtt, Duration::ZERO);
}

// ---- Conversations ----

#[test]
fn a_segment_of_another_conversation_costs_the_rest_of_its_packet() {
    let mut victim = Victim::new(&settings());
    let stranger = SegmentHeader { conv: 9, sn: 1, ..says(Command::Push) };
    let bytes = [push(0, b"ours"), packet(stranger, b"not ours"), push(1, b"lost")].concat();
    assert_eq!(victim.hear(bytes), Err(PacketError::WrongConv { found: 9 }));
    assert_eq!((victim.stats().udp.wrong_conv, victim.stats().segments.push_received), (1, 1));
    assert_eq!(victim.read(), b"ours");
    victim.assert_alive(1);
}

// ---- Floods ----

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

// ---- Slow peers ----

#[test]
fn a_byte_each_10_s_keeps_a_session_alive_for_a_day_in_constant_memory() {
    let mut victim = Victim::new(&settings().idle_timeout(Some(60 * SECOND)));
    victim.keeps = false;
    let memory = allocation_counter::measure(|| {
        for sn in 0..8_640 {
            victim.run_until(at(10 * SECOND * sn));
            victim.hear(push(sn, b"x")).unwrap();
            assert_eq!(victim.read(), b"x");
        }
    });
    assert_eq!(victim.connection.close_reason(), None);
    // The first ACK goes at once, and the last is still to go.
    assert_eq!((victim.stats().segments.acks_sent, victim.wakeups), (8_640 - 1, 8_640 - 2));
    // The reader's own buffer is most of it.
    assert!(memory.bytes_max < 120_000, "{memory:?}");
}

/// What is refused is no payload.
#[test]
fn a_byte_each_10_s_that_nobody_reads_fills_the_window_twice_and_then_the_session_is_idle() {
    let mut victim = Victim::new(&settings().recv_window(16).idle_timeout(Some(60 * SECOND)));
    for sn in 0..100 {
        victim.run_until(at(10 * SECOND * sn));
        if victim.connection.close_reason().is_some() {
            break;
        }
        victim.hear(push(sn, b"x")).unwrap();
    }
    let stats = victim.stats();
    assert_eq!((stats.queues.unread_segments, stats.queues.out_of_order), (16, 16));
    assert_eq!(victim.connection.close_reason(), Some(CloseReason::IdleTimeout));
    // The last that was taken had the number 31.
    assert_eq!(victim.now, at(10 * SECOND * 31 + 60 * SECOND));
}

#[test]
fn half_of_a_message_holds_what_came_of_it_and_is_no_message_until_the_session_is_idle() {
    for fragments in [1, 100, 254] {
        let mut victim = Victim::new(&settings().stream(false).idle_timeout(Some(60 * SECOND)));
        for sn in 0..fragments {
            let header = SegmentHeader { sn, frg: 254 - sn as u8, ..says(Command::Push) };
            victim.hear(packet(header, &[1; FULL])).unwrap();
        }
        // The last one comes again and again.
        for second in 1..=60 {
            assert_eq!(victim.connection.close_reason(), None);
            let again = SegmentHeader { sn: fragments - 1, ..says(Command::Push) };
            victim.hear(packet(again, &[1; FULL])).unwrap();
            victim.run_until(at(SECOND * second));
        }
        assert_eq!(victim.connection.close_reason(), Some(CloseReason::IdleTimeout));
        let stats = victim.stats();
        assert_eq!(
            (stats.queues.unread_segments, stats.queues.unread_bytes),
            (fragments, fragments as usize * FULL)
        );
        assert!(!victim.connection.has_message());
    }
}

/// A message has 255 fragments at most. What would be longer ends there, so that a reader finds it and the window counts it.
#[test]
fn a_message_that_never_ends_is_cut_at_255_fragments_and_holds_no_more_than_window_and_message() {
    for len in [0, FULL, 60_000] {
        let mut victim = Victim::new(&settings().stream(false).recv_window(32));
        victim.keeps = false;
        let payload = vec![1; len];
        let memory = allocation_counter::measure(|| {
            for sn in 0..2_000 {
                let header = SegmentHeader { sn, frg: 255, ..says(Command::Push) };
                victim.hear(packet(header, &payload)).unwrap();
                victim.transmit();
            }
        });
        let stats = victim.stats();
        assert!(victim.connection.has_message(), "{len}: {stats:?}");
        assert!(
            stats.queues.unread_segments <= 32 + 255 && stats.queues.out_of_order <= 32,
            "{len}: {stats:?}"
        );
        assert!(stats.segments.out_of_window > 1_600, "{len}: {stats:?}");
        // It ends with its 255th segment, or with the one that brings it to the longest length.
        let longest = KcpConfig::default().max_message_bytes();
        assert_eq!(victim.connection.recv().unwrap().len(), len * longest.div_ceil(len.max(1)).min(255));
        assert!(memory.bytes_max < 2 * (longest + 60_000) as u64 + 600_000, "{len}: {memory:?}");
    }
}
