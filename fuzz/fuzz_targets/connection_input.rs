//! Bytes as what a hostile peer sends, into a live session with data in flight.
//!
//! The input is a script: settings, then operations (raw packets, segments built around the session's true counters so
//! that they reach past the first checks, time, writes, reads, settings). Proves that whatever comes in
//! * nothing panics, and no poll loop is endless or spins: the next deadline lies in the future once output is drained;
//! * output keeps its contract: packets of one size but the last, none above the mtu, whole segments of the session's
//!   own conversation, numbered from its own counters;
//! * memory stays bounded: every gauge within what the settings allow, whatever the peer claims;
//! * counters add up, and a session that has ended stays so.

#![no_main]

mod script;

use std::time::Duration;

use kcp9::{
    CongestionControl, KcpConfig, NoDelay, SessionSettings, Stats,
    proto::{
        Command, Connection, DatagramSendError, HEADER_LEN, Instant, PacketError, ReadError, SegmentError,
        SegmentHeader, Segments, WriteError,
    },
};
use libfuzzer_sys::fuzz_target;

use script::Script;

const CONV: u32 = 7;
const MAX_OPERATIONS: usize = 200;
/// Bytes written to the session at most, and its patience with a silent peer: they bound what a run costs.
const MAX_WRITTEN: u64 = 400_000;
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of datagrams beside the stream that each queue holds.
const DATAGRAM_QUEUE: usize = 3_000;
/// Datagrams one drain may produce before it counts as endless.
const MAX_PACKETS: usize = 20_000;
/// Largest payload handed in: beyond what the memory limit counts per segment.
const MAX_PAYLOAD: usize = 4_096;
/// The core's limits, as its documentation states them.
const MAX_FRAGMENTS: usize = 255;
const MAX_QUEUE: usize = 256;
/// The segment that fills a probe lies farther than that before those in flight (R75 of `docs/extensions.md`): windows reach no farther.
const FILLER_DISTANCE: u32 = 65_535;

/// What scripts of this target hold beside bytes and numbers.
impl Script<'_> {
    /// A counter near `base` mostly, anything at times.
    fn near(&mut self, base: u32) -> u32 {
        match self.byte() {
            255 => self.word(),
            254 => base.wrapping_add(u32::from(self.short())),
            253 => base.wrapping_sub(u32::from(self.short())),
            step => base.wrapping_add_signed(i32::from(step) - 100),
        }
    }

    fn nodelay(&mut self) -> NoDelay {
        let flags = self.byte();
        NoDelay {
            nodelay: flags & 1 != 0,
            nc: flags & 2 != 0,
            resend: if flags & 4 != 0 { 255 } else { u32::from(flags >> 4) },
            interval: Duration::from_millis(1 + u64::from(self.byte()) * 19),
        }
    }

    fn control(&mut self) -> CongestionControl {
        match self.byte() % 5 {
            0 => CongestionControl::BbrLike,
            1 => CongestionControl::Kcp,
            2 => CongestionControl::Cubic,
            3 => CongestionControl::DelayBased,
            _ => CongestionControl::Bbr3,
        }
    }

    fn window(&mut self) -> u32 {
        match self.byte() {
            255 => 65_535,
            choice @ 200.. => u32::from(choice) * 20,
            choice => 1 + u32::from(choice),
        }
    }

    fn mtu(&mut self) -> usize {
        match self.byte() {
            255 => 65_507,
            choice @ 128.. => 1_000 + usize::from(choice) * 4,
            choice => 64 + usize::from(choice),
        }
    }
}

struct Session {
    connection: Connection,
    now: Instant,
    buffer: Vec<u8>,
    before: Stats,
    /// Counters as the session's own segments told them: where it is, so that input can aim.
    next_sn: u32,
    first_unacked: u32,
    una: u32,
    /// The largest settings there have been: what bounds the gauges.
    max_send: u32,
    max_recv: u32,
    max_mss: usize,
    /// Payload bytes handed in.
    received: u64,
}

impl Session {
    fn new(script: &mut Script<'_>) -> Self {
        let flags = script.byte();
        let (send, recv, mtu) = (script.window(), script.window(), script.mtu());
        let config = KcpConfig::builder()
            .mtu(mtu)
            .send_window(send)
            .recv_window(recv)
            .nodelay(script.nodelay())
            .congestion_control(script.control())
            .stream(flags & 1 != 0)
            .ack_no_delay(flags & 2 != 0)
            .write_delay(flags & 4 != 0)
            .dead_link(if flags & 8 != 0 { u32::from(flags >> 4) } else { 0 })
            .dead_timeout(PATIENCE)
            .linger(PATIENCE)
            .keep_alive((flags & 32 != 0).then_some(Duration::from_secs(7)))
            .idle_timeout((flags & 16 != 0).then_some(Duration::from_secs(20)))
            .datagram_queue(DATAGRAM_QUEUE)
            .build()
            .expect("settings in range");
        let first_sn = 0_u32.wrapping_sub(u32::from(flags >> 5) * 8);
        Self {
            connection: Connection::starting_at(CONV, &config, Instant::ZERO, first_sn),
            now: Instant::ZERO,
            buffer: vec![0; 70_000],
            before: Stats::default(),
            next_sn: first_sn,
            first_unacked: first_sn,
            una: first_sn,
            max_send: send,
            max_recv: recv,
            max_mss: mtu - HEADER_LEN,
            received: 0,
        }
    }

    fn operate(&mut self, script: &mut Script<'_>) {
        match script.byte() % 26 {
            24 => {
                let len = usize::from(script.short());
                self.send_datagram(len);
            }
            25 => {
                let len = usize::from(script.byte());
                let mut packet = vec![0xff, 0xff, 0xff, 0xff, 0xf3, 0];
                packet.extend_from_slice(&(len as u16 + 6).to_le_bytes());
                packet.extend_from_slice(&CONV.to_le_bytes());
                packet.extend(script.bytes(len));
                self.input(packet);
            }
            0 => {
                let count = usize::from(script.byte());
                let packet = script.bytes(count);
                self.input(packet);
            }
            1..=9 => {
                let packet = self.aimed(script);
                self.input(packet);
            }
            10 => self.pass(Duration::from_millis(script.byte().into())),
            11 => self.pass(Duration::from_millis(u64::from(script.short()) * 4)),
            12 | 13 => {
                if let Some(due) = self.connection.poll_timeout() {
                    self.now = self.now.max(due);
                    self.connection.handle_timeout(self.now);
                }
            }
            14 | 15 => {
                let len = usize::from(script.short()) * 2;
                self.write(len, false);
            }
            16 => {
                let len = usize::from(script.short()) * 4;
                self.write(len, true);
            }
            17 => {
                let len = usize::from(script.byte()) * 64;
                self.read(Some(len));
            }
            18 => self.read(None),
            19 => {
                // Output held back: input and time go on meanwhile.
                let packet = self.aimed(script);
                let _ = self.connection.handle_packet(self.now, &mut packet.clone());
                self.received += packet.len() as u64;
                return;
            }
            20 => {
                let (send, recv) = (script.window(), script.window());
                self.connection
                    .update_settings(|settings| (settings.send_window, settings.recv_window) = (send, recv))
                    .expect("windows in range");
                self.max_send = self.max_send.max(send);
                self.max_recv = self.max_recv.max(recv);
            }
            21 => {
                let mtu = script.mtu();
                if self.connection.update_settings(|settings| settings.mtu = mtu).is_ok() {
                    self.max_mss = self.max_mss.max(mtu - HEADER_LEN);
                }
            }
            22 => match script.byte() {
                192..224 => self.connection.flush(),
                224.. => self.connection.trim(),
                choice => {
                    let on = choice & 32 == 0;
                    let change = |settings: &mut SessionSettings| match choice {
                        0..64 => settings.stream = on,
                        64..128 => settings.ack_no_delay = on,
                        _ => settings.write_delay = on,
                    };
                    self.connection.update_settings(change).expect("settings in range");
                }
            },
            _ => match script.byte() {
                0..8 => self.connection.shutdown(self.now),
                8..64 => self.connection.trim(),
                _ => {
                    let nodelay = script.nodelay();
                    self.connection
                        .update_settings(|settings| settings.nodelay = nodelay)
                        .expect("knobs in range");
                }
            },
        }
        self.settle();
    }

    /// Segments that fit the session's state, more or less.
    fn aimed(&self, script: &mut Script<'_>) -> Vec<u8> {
        let mut packet = Vec::new();
        let shape = script.byte();
        for _ in 0..=shape % 8 {
            let kind = script.byte();
            let cmd = [Command::Push, Command::Ack, Command::Push, Command::Wins][usize::from(kind) % 4];
            let cmd = if kind >= 240 { Command::Wask } else { cmd };
            let base = if cmd == Command::Ack { self.next_sn } else { self.una };
            let len = match kind >> 2 & 7 {
                0 => 0,
                1..=5 => usize::from(script.byte()),
                _ => usize::from(script.short()) % (MAX_PAYLOAD + 1),
            };
            let header = SegmentHeader {
                conv: CONV,
                cmd,
                frg: if kind & 32 != 0 { script.byte() } else { 0 },
                wnd: if kind & 64 != 0 { script.short() } else { 128 },
                ts: script.near(self.now.as_ts().wrapping_add(95)),
                sn: script.near(base),
                una: if kind & 128 != 0 { script.near(self.next_sn) } else { self.first_unacked },
                len: if cmd == Command::Push { len as u32 } else { 0 },
            };
            packet.extend_from_slice(&header.to_bytes());
            packet.resize(packet.len() + header.len as usize, 0xa5);
        }
        // Sometimes not quite.
        if shape >= 240 {
            let at = usize::from(script.short()) % packet.len();
            packet[at] = script.byte();
            packet.truncate(packet.len() - usize::from(shape & 8));
        }
        packet
    }

    fn input(&mut self, mut packet: Vec<u8>) {
        let alive = self.connection.close_reason().is_none();
        let copy = packet.clone();
        let outcome = self.connection.handle_packet(self.now, &mut packet);
        let mut expected = Ok(());
        let mut segments = &copy[..];
        // Behind an FEC header: data, or what carries no segments. Few bytes ever recover any.
        match segments {
            [_, _, _, _, 0xf1, 0, shard @ ..] => {
                let size = shard.first_chunk().map(|size| usize::from(u16::from_le_bytes(*size)));
                let payload = size.and_then(|size| shard.get(2..size));
                if payload.is_none() {
                    expected = Err(PacketError::Fec);
                }
                segments = payload.unwrap_or_default();
            }
            [_, _, _, _, 0xf2, 0, rest @ ..] => {
                self.received += 256 * rest.len() as u64;
                segments = &[];
            }
            [_, _, _, _, 0xf3, 0, shard @ ..] => {
                let size = shard.first_chunk().map(|size| usize::from(u16::from_le_bytes(*size)));
                match size.and_then(|size| shard.get(2..size)).and_then(<[u8]>::split_first_chunk) {
                    None => expected = Err(PacketError::Fec),
                    Some((conv, datagram)) if *conv == CONV.to_le_bytes() => {
                        let last = core::iter::from_fn(|| self.connection.recv_datagram()).last();
                        assert!(!alive || last.as_deref() == Some(datagram), "not what was sent");
                    }
                    Some((conv, _)) => {
                        expected = Err(PacketError::WrongConv { found: u32::from_le_bytes(*conv) });
                    }
                }
                segments = &[];
            }
            _ => {}
        }
        for segment in Segments::new(segments) {
            match segment {
                Ok((header, _)) if header.conv != CONV => {
                    expected = Err(PacketError::WrongConv { found: header.conv });
                    break;
                }
                // The extensions are off: `extension_input` has them.
                Ok((header, _)) if header.cmd == Command::Extension => {
                    expected = Err(SegmentError::UnknownCommand(header.cmd as u8).into());
                    break;
                }
                Ok((_, payload)) => self.received += payload.len() as u64,
                Err(error) => expected = Err(error.into()),
            }
        }
        assert_eq!(outcome, if alive { expected } else { Ok(()) });
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.connection.handle_timeout(self.now);
    }

    fn write(&mut self, len: usize, message: bool) {
        let room = MAX_WRITTEN.saturating_sub(self.before.stream.bytes_written);
        let len = len.min(room as usize);
        let bytes = vec![0x5a; len];
        let outcome = if message {
            self.connection.send(self.now, &bytes).map(|()| len)
        } else {
            self.connection.write(self.now, &bytes)
        };
        match outcome {
            Ok(count) => assert!(count <= len && (count > 0 || len == 0)),
            Err(WriteError::Closed(reason)) => assert_eq!(self.connection.close_reason(), Some(reason)),
            Err(_) => {}
        }
    }

    fn send_datagram(&mut self, len: usize) {
        let max = self.connection.max_datagram_len();
        assert!(max.is_none_or(|max| max == self.connection.mtu() - 12));
        match self.connection.send_datagram(&vec![0x33; len]) {
            Ok(()) => assert!(max.is_some_and(|max| len <= max)),
            Err(DatagramSendError::TooLarge { max: told }) => assert!(max == Some(told) && len > told),
            Err(DatagramSendError::Closed(reason)) => {
                assert_eq!(self.connection.close_reason(), Some(reason))
            }
            Err(error) => assert!(max.is_none() && error == DatagramSendError::ShutDown),
        }
        assert!(self.connection.stats().datagram_queues.unsent_bytes <= DATAGRAM_QUEUE.max(len));
    }

    fn read(&mut self, len: Option<usize>) {
        let (readable, has_message) = (self.connection.is_readable(), self.connection.has_message());
        let outcome = match len {
            Some(len) => {
                let outcome = self.connection.read(&mut vec![0; len]);
                // A peer may send messages of no bytes: readable, and nothing to a reader of bytes.
                assert!(outcome != Ok(0) || len == 0);
                assert!(outcome.is_err() || len == 0 || readable);
                outcome
            }
            None => {
                let outcome = self.connection.recv();
                assert_eq!(outcome.is_ok(), has_message);
                outcome.map(|message| message.len())
            }
        };
        if let Err(ReadError::Closed(reason)) = outcome {
            assert_eq!(self.connection.close_reason(), Some(reason));
        }
    }

    /// Does what a driver does after every call, and checks all that must hold then.
    fn settle(&mut self) {
        if self.connection.poll_timeout().is_some_and(|due| due <= self.now) {
            self.connection.handle_timeout(self.now);
        }
        let mut packets = 0;
        let mtu = self.connection.mtu();
        while let Some(transmit) = self.connection.poll_transmit(self.now, &mut self.buffer) {
            assert!(transmit.len > 0 && transmit.len <= self.buffer.len());
            assert!(transmit.stride > 0 && transmit.stride <= mtu);
            assert!(transmit.packets() <= 64 && transmit.len <= 65_507);
            packets += transmit.packets();
            assert!(packets < MAX_PACKETS, "endless output");
            let batch = self.buffer[..transmit.len].to_vec();
            for packet in batch.chunks(transmit.stride) {
                self.sent(packet);
            }
        }
        for _ in 0..5 {
            if self.connection.poll_event().is_none() {
                break;
            }
        }
        assert_eq!(self.connection.poll_event(), None, "endless events");
        if let Some(due) = self.connection.poll_timeout() {
            assert!(due > self.now, "spins");
        }
        self.check_stats();
    }

    /// A packet of the session's own.
    fn sent(&mut self, packet: &[u8]) {
        if let [0xff, 0xff, 0xff, 0xff, 0xf3, 0, size_low, size_high, conv @ ..] = packet {
            assert_eq!(usize::from(u16::from_le_bytes([*size_low, *size_high])), packet.len() - 6);
            let bytes = conv.strip_prefix(&CONV.to_le_bytes()).expect("the conv");
            assert!(bytes.iter().all(|byte| *byte == 0x33), "a packet that was not sent");
            return;
        }
        let mut len = 0;
        for segment in Segments::new(packet) {
            let (header, payload) = segment.expect("a whole segment");
            len += HEADER_LEN + payload.len();
            assert_eq!(header.conv, CONV);
            if header.cmd == Command::Push {
                // What fills a probe of the path's MTU stands behind a segment, far before all that is in flight.
                let fills = len > HEADER_LEN + payload.len()
                    && self.next_sn.wrapping_sub(header.sn) > FILLER_DISTANCE;
                let written = if fills { 0 } else { 0x5a };
                assert!(payload.iter().all(|byte| *byte == written), "payload that was not written");
                assert!((fills || !payload.is_empty()) && payload.len() <= self.max_mss);
                let ahead = header.sn.wrapping_sub(self.next_sn) as i32;
                assert!(ahead <= 0, "a number was left out");
                if ahead == 0 {
                    self.next_sn = header.sn.wrapping_add(1);
                }
            } else {
                assert!(payload.is_empty());
            }
            assert!((header.una.wrapping_sub(self.una) as i32) >= 0, "una runs backwards");
            self.una = header.una;
        }
        assert_eq!(len, packet.len(), "bytes behind the last segment");
    }

    fn check_stats(&mut self) {
        let stats = self.connection.stats();
        assert!(stats.queues.in_flight <= self.max_send);
        self.first_unacked = self.next_sn.wrapping_sub(stats.queues.in_flight);
        let queue = MAX_QUEUE * self.max_mss + MAX_FRAGMENTS * self.max_mss;
        assert!(stats.queues.unsent_bytes <= queue, "{} bytes queued", stats.queues.unsent_bytes);
        assert!(stats.queues.out_of_order <= self.max_recv);
        assert!(stats.queues.unread_segments as usize <= self.max_recv as usize + MAX_FRAGMENTS);
        let segment = self.max_mss.max(1_500);
        let held = (self.max_recv as usize + MAX_FRAGMENTS) * segment + (MAX_FRAGMENTS + 1) * MAX_PAYLOAD;
        assert!(stats.queues.unread_bytes <= held, "{} bytes unread", stats.queues.unread_bytes);
        assert!(stats.stream.bytes_read + stats.queues.unread_bytes as u64 <= self.received);
        assert!(stats.path.rto >= Duration::from_millis(30) && stats.path.rto <= Duration::from_secs(60));
        assert!(stats.path.congestion_window >= 1);
        assert!(
            stats.segments.push_sent
                + stats.recovery.resends()
                + stats.segments.acks_sent
                + stats.segments.window_probes
                <= stats.segments.sent
        );
        assert!(stats.udp.packets_sent <= stats.segments.sent + stats.datagrams.sent);
        assert!(stats.segments.push_received + stats.segments.acks_received <= stats.segments.received);
        assert!(stats.segments.duplicates + stats.segments.out_of_window <= stats.segments.push_received);
        for (before, now) in [
            (self.before.stream.bytes_written, stats.stream.bytes_written),
            (self.before.segments.sent, stats.segments.sent),
            (self.before.udp.bytes_sent, stats.udp.bytes_sent),
            (self.before.segments.received, stats.segments.received),
            (self.before.segments.push_received, stats.segments.push_received),
        ] {
            assert!(before <= now, "a counter ran backwards");
        }
        self.before = stats;
    }

    /// A session left alone comes to rest, or to its end.
    fn finish(mut self) {
        let reason = self.connection.close_reason();
        for _ in 0..2_000 {
            self.settle();
            let Some(due) = self.connection.poll_timeout() else { break };
            self.now = self.now.max(due);
            self.connection.handle_timeout(self.now);
        }
        assert_eq!(self.connection.poll_timeout(), None, "never at rest");
        if reason.is_some() {
            assert_eq!(self.connection.close_reason(), reason);
        }
        if self.connection.close_reason().is_none() {
            assert!(self.connection.is_flushed(), "something unanswered is waited for without a deadline");
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut script = Script(bytes);
    let mut session = Session::new(&mut script);
    for _ in 0..MAX_OPERATIONS {
        if script.0.is_empty() {
            break;
        }
        session.operate(&mut script);
    }
    session.finish();
});
