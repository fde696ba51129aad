//! What a peer may do that is hostile or broken, and what becomes of the session. One end is driven by hand here: its packets are
//! none that this crate sends.
//!
//! Elsewhere: conversations that collide (`tests/endpoint/takeovers.rs`), forged openings (`tests/endpoint/amplification.rs`,
//! `openings.rs`), probes of a window that nobody opens (`windows.rs`, `tests/regressions.rs`), clocks that wrap (`wrap.rs`), ICMP
//! errors (`tests/sockets/dead_peers.rs`, `listener.rs`).

mod floods;
mod windows;

use std::time::Duration;

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    proto::{
        CloseReason, Command, Connection, Extensions, Instant, PacketError, SegmentError, SegmentHeader,
        Segments, SessionSeed, Stats, WriteError,
    },
};

use kcp9_simulator::ms;

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
