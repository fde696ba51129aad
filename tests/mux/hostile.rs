//! Peers that break the rules, or keep them and want to fill the memory.

use std::task::Poll;

use kcp9::{
    mux::{MuxConfig, MuxConfigBuilder, MuxCore, MuxError, MuxRole, MuxVersion, ProtocolError},
    proto::Instant,
};
use kcp9_simulator::rng::Rng;

const NOW: Instant = Instant::ZERO;
const SYN: u8 = 0;
const FIN: u8 = 1;
const PSH: u8 = 2;
const NOP: u8 = 3;
const UPD: u8 = 4;

fn frame(version: u8, command: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![version, command];
    bytes.extend((payload.len() as u16).to_le_bytes());
    bytes.extend(id.to_le_bytes());
    bytes.extend(payload);
    bytes
}

fn update(id: u32, consumed: u32, window: u32) -> Vec<u8> {
    let mut payload = consumed.to_le_bytes().to_vec();
    payload.extend(window.to_le_bytes());
    frame(2, UPD, id, &payload)
}

fn server(config: MuxConfigBuilder) -> MuxCore {
    MuxCore::new(config.build().unwrap(), MuxRole::Server, NOW)
}

fn v2() -> MuxConfigBuilder {
    MuxConfig::builder().version(MuxVersion::V2)
}

fn output(core: &mut MuxCore) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), Vec::new());
    while core.take_output(NOW, &mut buffer) {
        all.append(&mut buffer);
    }
    all
}

fn protocol_error(core: &MuxCore) -> Option<ProtocolError> {
    match core.end() {
        Some(MuxError::Protocol(error)) => Some(*error),
        _ => None,
    }
}

#[test]
fn frames_of_another_version_or_kind_end_the_session() {
    for (bytes, error) in [
        (frame(2, SYN, 3, b""), ProtocolError::Version(2)),
        (frame(1, UPD, 3, &[0; 8]), ProtocolError::Command(4)),
        (frame(1, 9, 3, b""), ProtocolError::Command(9)),
        (frame(1, FIN, 3, b"x"), ProtocolError::Length { command: 1, len: 1 }),
    ] {
        let mut core = server(MuxConfig::builder());
        core.receive(NOW, frame(1, SYN, 3, b"").into());
        core.receive(NOW, frame(1, PSH, 3, b"before").into());
        core.receive(NOW, bytes.into());
        assert_eq!(protocol_error(&core), Some(error));
        assert!(!core.has_output() && !core.wants_input());
        // What had come can still be read.
        let key = core.accept().unwrap();
        assert!(matches!(core.read(key, 100, |bytes| assert_eq!(bytes, b"before")), Poll::Ready(Ok(6))));
        assert!(matches!(core.read(key, 100, |_| ()), Poll::Ready(Err(MuxError::Protocol(_)))));
        assert!(matches!(core.write(NOW, key, b"x"), Poll::Ready(Err(MuxError::Protocol(_)))));
    }
}

#[test]
fn a_transport_that_ends_within_a_frame_is_told_apart() {
    for (bytes, truncated) in
        [(frame(1, PSH, 3, b"x"), false), (vec![1, 2], true), (vec![1, 2, 9, 0, 3, 0, 0, 0, 7], true)]
    {
        let mut core = server(MuxConfig::builder());
        core.receive(NOW, bytes.into());
        core.receive_end();
        let end = core.end().unwrap();
        assert!(
            if truncated { matches!(end, MuxError::Truncated) } else { matches!(end, MuxError::PeerClosed) },
            "{end:?}"
        );
    }
}

#[test]
fn more_than_the_window_ends_the_session() {
    let mut core = server(v2());
    core.receive(NOW, frame(2, SYN, 3, b"").into());
    // What the window is until it is told, in the least convenient pieces.
    for _ in 0..262_144 / 32 {
        core.receive(NOW, frame(2, PSH, 3, &[0; 32]).into());
    }
    assert!(core.end().is_none());
    core.receive(NOW, frame(2, PSH, 3, &[0]).into());
    assert_eq!(protocol_error(&core), Some(ProtocolError::WindowExceeded { id: 3 }));
}

#[test]
fn streams_beyond_the_limits_are_refused() {
    let mut core = server(MuxConfig::builder().max_streams(10).accept_backlog(4));
    for at in 0..6 {
        core.receive(NOW, frame(1, SYN, 3 + 2 * at, b"").into());
        // Again, and with an id of the other end: both mean nothing.
        core.receive(NOW, frame(1, SYN, 3, b"").into());
        core.receive(NOW, frame(1, SYN, 2, b"").into());
    }
    assert_eq!((core.stats().open_streams, core.stats().refused), (4, 2));
    assert_eq!(output(&mut core), [frame(1, FIN, 11, b""), frame(1, FIN, 13, b"")].concat());
    // Data of a refused stream is dropped.
    core.receive(NOW, frame(1, PSH, 13, &[0; 1_000]).into());
    assert_eq!(core.stats().unread_bytes, 0);
    let accepted: Vec<_> = std::iter::from_fn(|| core.accept()).collect();
    for at in 10..20 {
        core.receive(NOW, frame(1, SYN, 3 + 2 * at, b"").into());
        core.accept();
    }
    assert_eq!((accepted.len(), core.stats().open_streams), (4, 10));
}

#[test]
fn a_peer_that_opens_streams_and_reads_nothing_does_not_fill_the_memory() {
    // Refused ones.
    let mut core = server(MuxConfig::builder().accept_backlog(1));
    let mut at = 0;
    while core.end().is_none() {
        core.receive(NOW, frame(1, SYN, 3 + 2 * at, b"").into());
        at += 1;
        assert!(at < 10_000);
    }
    assert_eq!(protocol_error(&core), Some(ProtocolError::TooManyStreams));
    // Accepted ones that this end ends.
    let mut core = server(MuxConfig::builder());
    let mut at = 0;
    while core.end().is_none() {
        core.receive(NOW, frame(1, SYN, 3 + 2 * at, b"").into());
        if let Some(key) = core.accept() {
            core.release(key);
        }
        at += 1;
        assert!(at < 1_000_000);
    }
    assert_eq!(protocol_error(&core), Some(ProtocolError::TooManyStreams));
}

#[test]
fn windows_are_taken_at_their_word() {
    let mut core = server(v2());
    core.receive(NOW, frame(2, SYN, 3, b"").into());
    let key = core.accept().unwrap();
    assert!(core.write(NOW, key, &[0; 1_000]).is_ready());
    // The window closes behind what was sent, opens by one, and is as large as can be.
    core.receive(NOW, update(3, 0, 500).into());
    assert!(core.write(NOW, key, b"x").is_pending());
    core.receive(NOW, update(3, 0, 1_001).into());
    assert!(matches!(core.write(NOW, key, b"xy"), Poll::Ready(Ok(1))));
    assert!(core.write(NOW, key, b"y").is_pending());
    core.receive(NOW, update(3, 1_001, u32::MAX).into());
    assert!(matches!(core.write(NOW, key, b"y"), Poll::Ready(Ok(1))));
    // It cannot have read what was not written. Only this stream suffers.
    core.receive(NOW, update(3, 1_003, 65_536).into());
    assert!(matches!(core.write(NOW, key, b"z"), Poll::Ready(Err(MuxError::OverConsumed))));
    assert!(core.end().is_none());
    // Floods of windows, of known streams and others, leave nothing behind.
    for at in 0..100_000 {
        core.receive(NOW, update(at % 7, at, at).into());
        core.receive(NOW, frame(2, PSH, 3, b"").into());
    }
    assert!(output(&mut core).len() < 10_000);
}

/// What may wait to be read, and to be sent, in the sessions that get any bytes.
const BUFFER: usize = 10_000;
/// The longest frame that comes, and that goes.
const FRAME: usize = 4_000;
const STREAMS: usize = 20;
/// Heap bytes of such a session with what the test has of it. A frame may go beyond the receive buffer; writers have a buffer, twice as
/// much in turns, and a frame (`send_buffer` says so). A buffer that grows has up to twice what is in it, and for a moment the old one beside it.
const MOST: usize = 3 * (BUFFER + FRAME) + 3 * (3 * BUFFER + FRAME) + STREAMS * 500 + 10_000;

/// Any bytes, cut anywhere, in both versions: nothing panics, and the memory stays within the limits, also where nobody reads or
/// the peer takes nothing.
#[test]
fn any_bytes_are_survived() {
    let mut most = 0;
    for seed in 0..200 {
        let info = allocation_counter::measure(|| any_bytes(seed));
        assert_eq!(info.bytes_current, 0, "seed {seed}");
        most = most.max(usize::try_from(info.bytes_max).unwrap());
        assert!(most <= MOST, "seed {seed}: {most} bytes, of at most {MOST}");
    }
    println!("{most} bytes, of at most {MOST}");
    assert!(most > 2 * BUFFER, "the buffers were in use");
}

fn any_bytes(seed: u64) {
    let mut rng = Rng::new(seed);
    let version = *rng.choose(&[MuxVersion::V1, MuxVersion::V2]);
    let (reads, is_taken) = (rng.chance(0.5), rng.chance(0.5));
    let config = MuxConfig::builder()
        .version(version)
        .receive_buffer(BUFFER)
        .stream_buffer(BUFFER)
        .send_buffer(BUFFER)
        .max_frame(FRAME)
        .max_streams(STREAMS);
    let mut core = server(config.accept_backlog(10));
    let mut keys = Vec::new();
    for _ in 0..2_000 {
        // As the transport's owner is to do it.
        if core.wants_input() {
            // Few streams end, so that there are some to fill.
            let command = *rng.choose(&[SYN, SYN, FIN, NOP, UPD, UPD, PSH, PSH, PSH, PSH]);
            let command = if command == FIN && rng.chance(0.9) { PSH } else { command };
            let id = rng.within(0..=60) as u32;
            let payload = match command {
                PSH => vec![7; rng.size(0..=FRAME)],
                UPD => rng.next().to_le_bytes().to_vec(),
                _ => Vec::new(),
            };
            let mut bytes = frame(version.number(), command, id, &payload);
            if rng.chance(0.0005) {
                let at = rng.size(0..=bytes.len() - 1);
                bytes[at] ^= 1 << rng.within(0..=7);
            }
            let rest = bytes.split_off(rng.size(0..=bytes.len()));
            core.receive(NOW, bytes.into());
            core.receive(NOW, rest.into());
        }
        keys.extend(core.accept());
        if !keys.is_empty() {
            let at = rng.size(0..=keys.len() - 1);
            match rng.within(0..=99) {
                0..3 => core.release(keys.swap_remove(at)),
                3..6 => core.finish(keys[at]),
                6..50 => drop(core.write(NOW, keys[at], &[1; 5_000])),
                _ if reads => drop(core.read(keys[at], 3_000, |_| ())),
                _ => {}
            }
        }
        if is_taken && rng.chance(0.2) {
            output(&mut core);
        }
        let stats = core.stats();
        assert!(stats.open_streams <= STREAMS, "seed {seed}: {stats:?}");
        assert!(stats.unread_bytes <= BUFFER + FRAME, "seed {seed}: {stats:?}");
        while core.poll_event().is_some() {}
    }
    keys.into_iter().for_each(|key| core.release(key));
    core.stop_accepting();
    assert_eq!(core.stats().unread_bytes, 0, "seed {seed}");
}
