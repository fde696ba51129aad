//! What holds for any bytes and any sequence of operations.

use std::time::Duration;

use kcp9::{
    CongestionControl, KcpConfig, NoDelay,
    proto::{
        CloseReason, Command, Connection, HEADER_LEN, Instant, SegmentError, SegmentHeader, Segments,
        peek_conv,
    },
};
use proptest::{collection::vec, prelude::*, test_runner::RngAlgorithm};

use kcp9_simulator::{CLIENT, LinkSettings, SERVER, Simulation, Writer, ms};

const CONV: u32 = 7;

fn any_command() -> impl Strategy<Value = Command> {
    prop::sample::select(vec![Command::Push, Command::Ack, Command::Wask, Command::Wins])
}

fn any_header() -> impl Strategy<Value = SegmentHeader> {
    (any::<u32>(), any_command(), any::<u8>(), any::<u16>(), any::<[u32; 4]>()).prop_map(
        |(conv, cmd, frg, wnd, [ts, sn, una, len])| SegmentHeader { conv, cmd, frg, wnd, ts, sn, una, len },
    )
}

/// A header that a connection of `CONV` looks into, with values near those that matter.
fn plausible_header() -> impl Strategy<Value = SegmentHeader> {
    let near = || prop_oneof![0..40_u32, any::<u32>(), (u32::MAX - 5)..=u32::MAX, 1_u32 << 31..(1 << 31) + 3];
    (any_command(), 0..4_u8, prop_oneof![Just(0), any::<u16>()], near(), near(), near()).prop_map(
        |(cmd, frg, wnd, ts, sn, una)| SegmentHeader { conv: CONV, cmd, frg, wnd, ts, sn, una, len: 0 },
    )
}

fn packet(segments: Vec<(SegmentHeader, Vec<u8>)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (header, payload) in segments {
        bytes.extend_from_slice(&SegmentHeader { len: payload.len() as u32, ..header }.to_bytes());
        bytes.extend_from_slice(&payload);
    }
    bytes
}

/// Bytes of any kind: random ones, and packets that look like the peer's.
fn any_packet() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        1 => vec(any::<u8>(), 0..100),
        4 => vec((plausible_header(), vec(any::<u8>(), 0..30)), 1..5).prop_map(packet),
        1 => (vec((plausible_header(), vec(any::<u8>(), 0..30)), 1..5), any::<prop::sample::Index>(), any::<u8>())
            .prop_map(|(segments, at, byte)| {
                let mut bytes = packet(segments);
                let at = at.index(bytes.len());
                bytes[at] = byte;
                bytes
            }),
    ]
}

/// `count` cases, with the fastest generator: unoptimised, the others take longer than the code under test.
fn cases(count: u32) -> ProptestConfig {
    let rng_algorithm = RngAlgorithm::XorShift;
    ProptestConfig { failure_persistence: None, rng_algorithm, ..ProptestConfig::with_cases(count) }
}

/// Drains a connection. It must come to rest, whatever it was fed.
fn drain(connection: &mut Connection, now: Instant) {
    let mut buffer = vec![0; 65_536];
    let mut rounds = 0;
    loop {
        let mut busy = false;
        while let Some(transmit) = connection.poll_transmit(now, &mut buffer) {
            rounds += 1;
            assert!(rounds < 1_000, "poll_transmit does not end");
            assert!(transmit.len > 0 && transmit.stride <= connection.mtu());
            for packet in buffer[..transmit.len].chunks(transmit.stride) {
                assert!(Segments::new(packet).all(|segment| segment.is_ok()));
            }
        }
        while connection.poll_event().is_some() {
            rounds += 1;
            assert!(rounds < 1_000, "poll_event does not end");
        }
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            rounds += 100;
            assert!(rounds < 1_000, "poll_timeout does not advance");
            connection.handle_timeout(now);
            busy = true;
        }
        if !busy {
            break;
        }
    }
}

fn check_gauges(connection: &Connection) {
    let stats = connection.stats();
    let window = stats.queues.recv_window;
    // Fragments of a message that is not complete do not count against the window; there are at most 255.
    assert!(stats.queues.unread_segments <= window + 255, "{stats:?}");
    assert!(stats.queues.out_of_order <= window, "{stats:?}");
    assert!(stats.queues.in_flight <= stats.queues.send_window, "{stats:?}");
    assert!(
        stats.segments.duplicates + stats.segments.out_of_window <= stats.segments.push_received,
        "{stats:?}"
    );
    assert!(
        stats.segments.push_received + stats.segments.acks_received <= stats.segments.received,
        "{stats:?}"
    );
    assert!(
        stats.segments.push_sent
            + stats.recovery.resends()
            + stats.segments.acks_sent
            + stats.segments.window_probes
            <= stats.segments.sent
    );
    assert!(stats.udp.malformed + stats.udp.wrong_conv <= stats.udp.packets_received, "{stats:?}");
    assert!(stats.path.rto >= ms(30) && stats.path.rto <= Duration::from_secs(60), "{stats:?}");
    assert_eq!(connection.is_readable(), stats.queues.unread_bytes > 0 || connection.has_message());
}

fn any_control() -> impl Strategy<Value = CongestionControl> {
    prop::sample::select(vec![
        CongestionControl::Kcp,
        CongestionControl::BbrLike,
        CongestionControl::Cubic,
        CongestionControl::Bbr3,
        CongestionControl::DelayBased,
    ])
}

/// What may happen to a session of two ends.
#[derive(Debug, Clone)]
enum Operation {
    Write { side: usize, len: usize },
    Send { side: usize, len: usize },
    StopReading { side: usize, millis: u64 },
    Wait { micros: u64 },
    Path { side: usize, loss: f64, reorder: f64, duplicate: f64, delay: u64 },
    Windows { side: usize, send: u32, recv: u32 },
    Preset { side: usize, preset: NoDelay },
    Mtu { side: usize, mtu: usize },
    Stream { side: usize, on: bool },
    AckNoDelay { side: usize, on: bool },
    WriteDelay { side: usize, on: bool },
    Flush { side: usize },
    Trim { side: usize },
}

fn any_operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let side = || CLIENT..=SERVER;
    let presets = vec![NoDelay::NORMAL, NoDelay::FAST2, NoDelay::FAST3, NoDelay::IKCP];
    prop_oneof![
        4 => (side(), 1..20_000_usize).prop_map(|(side, len)| Write { side, len }),
        4 => (side(), 1..5_000_usize).prop_map(|(side, len)| Send { side, len }),
        6 => (0..200_000_u64).prop_map(|micros| Wait { micros }),
        1 => (side(), 0..2_000_u64).prop_map(|(side, millis)| StopReading { side, millis }),
        2 => (side(), 0.0..=1.0_f64, 0.0..=1.0_f64, 0.0..=0.5_f64, 0..200_u64).prop_map(
            |(side, loss, reorder, duplicate, delay)| Path { side, loss, reorder, duplicate, delay }
        ),
        1 => (side(), 1..300_u32, 1..300_u32).prop_map(|(side, send, recv)| Windows { side, send, recv }),
        1 => (side(), prop::sample::select(presets)).prop_map(|(side, preset)| Preset { side, preset }),
        1 => (side(), 64..1_500_usize).prop_map(|(side, mtu)| Mtu { side, mtu }),
        1 => (side(), any::<bool>()).prop_map(|(side, on)| Stream { side, on }),
        1 => (side(), any::<bool>()).prop_map(|(side, on)| AckNoDelay { side, on }),
        1 => (side(), any::<bool>()).prop_map(|(side, on)| WriteDelay { side, on }),
        1 => side().prop_map(|side| Flush { side }),
        1 => side().prop_map(|side| Trim { side }),
    ]
}

fn apply(simulation: &mut Simulation, operation: &Operation) {
    match *operation {
        Operation::Write { side, len } => write(simulation, side, len, false),
        Operation::Send { side, len } => write(simulation, side, len, true),
        Operation::StopReading { side, millis } => {
            let until = simulation.ends[side].local(simulation.now) + ms(millis);
            simulation.ends[side].reader.not_before = until;
        }
        Operation::Wait { micros } => simulation.run_for(Duration::from_micros(micros)),
        Operation::Path { side, loss, reorder, duplicate, delay } => {
            let settings = LinkSettings::delay(ms(delay)).loss(loss);
            simulation.ends[side].link.settings =
                LinkSettings { reorder, reorder_delay: ms(100), duplicate, ..settings };
        }
        Operation::Windows { side, send, recv } => {
            simulation
                .update_settings(side, |settings| (settings.send_window, settings.recv_window) = (send, recv))
                .unwrap();
        }
        Operation::Preset { side, preset } => {
            simulation.update_settings(side, |settings| settings.nodelay = preset).unwrap();
        }
        Operation::Mtu { side, mtu } => {
            // Refused while larger segments are under way.
            let _ = simulation.update_settings(side, |settings| settings.mtu = mtu);
        }
        Operation::Stream { side, on } => {
            simulation.update_settings(side, |settings| settings.stream = on).unwrap()
        }
        Operation::AckNoDelay { side, on } => {
            simulation.update_settings(side, |settings| settings.ack_no_delay = on).unwrap();
        }
        Operation::WriteDelay { side, on } => {
            simulation.update_settings(side, |settings| settings.write_delay = on).unwrap();
        }
        Operation::Flush { side } => simulation.call(side, |connection, _| connection.flush()),
        Operation::Trim { side } => simulation.call(side, |connection, _| connection.trim()),
    }
}

/// Writes once, as much as is taken now.
fn write(simulation: &mut Simulation, side: usize, len: usize, message: bool) {
    let flow = &simulation.flows[side];
    let (payload, position) = (flow.payload, flow.written);
    let mut bytes = vec![0; len];
    payload.fill(position, &mut bytes);
    let end = &mut simulation.ends[side];
    let now = end.local(simulation.now);
    let taken = if message {
        end.connection.send(now, &bytes).map_or(0, |()| len)
    } else {
        end.connection.write(now, &bytes).unwrap_or(0)
    };
    simulation.flows[side].written += taken as u64;
    end.writer.total = simulation.flows[side].written;
    simulation.drive(side);
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn any_header_is_read_as_it_was_written(header in any_header()) {
        let bytes = header.to_bytes();
        prop_assert_eq!(SegmentHeader::parse(&bytes), Ok(header));
        prop_assert_eq!(peek_conv(&bytes), Some(header.conv));
        for short in 0..HEADER_LEN {
            prop_assert_eq!(SegmentHeader::parse(&bytes[..short]), Err(SegmentError::Truncated));
        }
    }

    #[test]
    fn any_bytes_parse_to_whole_segments_in_order(bytes in vec(any::<u8>(), 0..300)) {
        let mut len = 0;
        let mut failed = false;
        for segment in Segments::new(&bytes) {
            prop_assert!(!failed, "something follows an error");
            match segment {
                Ok((header, payload)) => {
                    prop_assert_eq!(&bytes[len..len + HEADER_LEN], header.to_bytes());
                    prop_assert_eq!(header.len as usize, payload.len());
                    len += HEADER_LEN + payload.len();
                }
                Err(_) => failed = true,
            }
        }
        prop_assert!(len <= bytes.len());
        prop_assert!(failed || bytes.len() - len < HEADER_LEN);
    }

    #[test]
    fn segments_written_one_behind_another_are_found_again(parts in vec((any_header(), vec(any::<u8>(), 0..50)), 0..8)) {
        let bytes = packet(parts.clone());
        let found: Vec<_> = Segments::new(&bytes).map(Result::unwrap).collect();
        prop_assert_eq!(found.len(), parts.len());
        for ((header, payload), (expected, bytes)) in found.into_iter().zip(&parts) {
            prop_assert_eq!(header, SegmentHeader { len: bytes.len() as u32, ..*expected });
            prop_assert_eq!(payload, bytes.as_slice());
        }
    }

    #[test]
    fn no_packet_panics_or_grows_a_connection(
        packets in vec((any_packet(), 0..50_u64), 1..20),
        written in 0..100_000_usize,
        window in 1..64_u32,
        nc in any::<bool>(),
        control in any_control(),
    ) {
        let nodelay = NoDelay { nc, ..NoDelay::FAST3 };
        let config = KcpConfig::builder().recv_window(window).nodelay(nodelay).congestion_control(control);
        let config = config.keep_alive(None);
        let config = config.build().unwrap();
        let mut now = Instant::ZERO;
        let mut connection = Connection::new(CONV, &config, now);
        let _ = connection.write(now, &vec![1; written]);
        drain(&mut connection, now);
        for (mut bytes, wait) in packets {
            let _ = connection.handle_packet(now, &mut bytes);
            if wait % 3 == 0 {
                let _ = connection.read(&mut [0; 50]);
                let _ = connection.recv();
            }
            drain(&mut connection, now);
            check_gauges(&connection);
            now += ms(wait);
            connection.handle_timeout(now);
            drain(&mut connection, now);
        }
        // Time alone brings it to rest or to its end.
        for _ in 0..10_000 {
            let Some(at) = connection.poll_timeout() else { break };
            now = now.max(at);
            connection.handle_timeout(now);
            drain(&mut connection, now);
        }
        prop_assert_eq!(connection.poll_timeout(), None);
        prop_assert!(matches!(connection.close_reason(), None | Some(CloseReason::DeadLink)));
    }
}

proptest! {
    #![proptest_config(cases(150))]

    /// That what is read is a prefix of what was written is checked by the reader at every byte.
    #[test]
    fn any_operations_deliver_everything_once_the_path_is_clean(
        seed in any::<u64>(),
        first_sn in prop_oneof![Just(0), u32::MAX - 200..=u32::MAX],
        controls in [any_control(), any_control()],
        operations in vec(any_operation(), 1..60),
    ) {
        let configs = controls.map(|control| {
            let config = KcpConfig::builder().dead_timeout(Duration::from_secs(3_600));
            config.congestion_control(control).build().unwrap()
        });
        let link = LinkSettings::delay(ms(20));
        let clocks = [ms((1 << 32) - 1_000), ms(5)];
        let mut simulation = Simulation::with(seed, configs.each_ref(), [link.clone(), link], first_sn, clocks);
        for end in &mut simulation.ends {
            end.writer = Writer::none();
        }
        for operation in &operations {
            apply(&mut simulation, operation);
        }
        for end in &mut simulation.ends {
            end.link.lose_nothing_more();
        }
        simulation.complete(Duration::from_secs(3_600));
    }
}
