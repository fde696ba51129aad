//! The end that sends, with its peer played by ready-made packets in which only the counters are changed.

use std::{hint::black_box, time::Duration};

use kcp9::{
    KcpConfig, NoDelay,
    proto::{Command, Connection, HEADER_LEN, Instant, SegmentHeader},
};

/// Segments acknowledged, sent or received by one turn.
pub(crate) const BATCH: u32 = 32;
/// Virtual time of a turn: short enough that a whole window passes before any timeout.
pub(crate) const TURN: Duration = Duration::from_micros(1);
/// Offsets of counters in a segment's header.
const TS: usize = 8;
pub(crate) const SN: usize = 12;
const UNA: usize = 16;

/// An end whose segments carry `payload` bytes, and of which at most `window` are in flight.
pub(crate) fn connection(payload: usize, window: u32) -> Connection {
    let config = KcpConfig::builder()
        .mtu(HEADER_LEN + payload)
        .send_window(window)
        .recv_window(65_535)
        .nodelay(NoDelay::FAST3)
        .build()
        .expect("settings in range");
    Connection::new(7, &config, Instant::ZERO)
}

/// `count` segments without payload.
fn control(cmd: Command, count: u32) -> Vec<u8> {
    let header = SegmentHeader { conv: 7, cmd, frg: 0, wnd: u16::MAX, ts: 0, sn: 0, una: 0, len: 0 };
    header.to_bytes().repeat(count as usize)
}

pub(crate) fn put(packet: &mut [u8], at: usize, value: u32) {
    packet[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// What is written, what is sent and what the peer answers; of all sessions.
pub(crate) struct Traffic {
    pub(crate) payload: Vec<u8>,
    pub(crate) buffer: Vec<u8>,
    ack: Vec<u8>,
    sacks: Vec<u8>,
}

impl Traffic {
    pub(crate) fn new(payload: usize) -> Self {
        Self {
            payload: vec![0x5a; payload * BATCH as usize],
            buffer: vec![0; 65_536],
            ack: control(Command::Ack, 1),
            sacks: control(Command::Ack, BATCH - 1),
        }
    }
}

/// A session that sends, `window` segments ahead of what its peer has answered.
pub(crate) struct Sender {
    pub(crate) connection: Connection,
    window: u32,
    pub(crate) now: Instant,
    /// First segment of the batch to be acknowledged next, and to be sent next.
    acked: u32,
    sent: u32,
}

impl Sender {
    /// `window` segments have been sent, of which none is answered; more may be.
    pub(crate) fn new(window: u32, payload: usize, traffic: &mut Traffic) -> Self {
        Self::limited(window, 65_535, payload, traffic)
    }

    /// The same; at most `limit` may be.
    pub(crate) fn limited(window: u32, limit: u32, payload: usize, traffic: &mut Traffic) -> Self {
        let connection = connection(payload, limit);
        let mut sender = Self { connection, window, now: Instant::ZERO, acked: 0, sent: 0 };
        let mut open = control(Command::Wins, 1);
        sender.connection.handle_packet(sender.now, &mut open).expect("a window");
        while sender.sent < window {
            sender.send_batch(traffic);
        }
        sender
    }

    /// Writes a batch, and sends what may be sent.
    pub(crate) fn send_batch(&mut self, traffic: &mut Traffic) {
        self.now += TURN;
        let written = self.connection.write(self.now, &traffic.payload);
        debug_assert_eq!(written, Ok(traffic.payload.len()));
        self.sent += BATCH;
        while let Some(transmit) = self.connection.poll_transmit(self.now, &mut traffic.buffer) {
            black_box(&traffic.buffer[..transmit.len]);
        }
    }

    /// `ts` of the batch to be acknowledged: it was sent a window ago.
    fn echo(&self) -> u32 {
        let turns = self.acked / BATCH + 1;
        Instant::from_micros(u64::from(turns) * TURN.as_micros() as u64).as_ts()
    }

    /// The peer answers a batch as a whole; another is sent.
    pub(crate) fn cumulative(&mut self, traffic: &mut Traffic) {
        put(&mut traffic.ack, TS, self.echo());
        put(&mut traffic.ack, SN, self.acked + BATCH - 1);
        put(&mut traffic.ack, UNA, self.acked + BATCH);
        self.acked += BATCH;
        let _ = self.connection.handle_packet(self.now, &mut traffic.ack);
        self.send_batch(traffic);
    }

    /// The peer has got all of a batch but its first segment, and the one that a batch of a window ago missed; another is
    /// sent.
    pub(crate) fn selective(&mut self, traffic: &mut Traffic) {
        let echo = self.echo();
        // The peer has got the resend of the hole a window before this one.
        let una = (self.acked + BATCH).saturating_sub(self.window);
        for (i, header) in (1..BATCH).zip(traffic.sacks.chunks_exact_mut(HEADER_LEN)) {
            put(header, TS, echo);
            put(header, SN, self.acked + i);
            put(header, UNA, una);
        }
        self.acked += BATCH;
        let _ = self.connection.handle_packet(self.now, &mut traffic.sacks);
        self.send_batch(traffic);
    }

    /// Until what is in flight has turned over twice, and every hole is as old as it gets.
    pub(crate) fn settle(&mut self, turn: Turn, traffic: &mut Traffic) {
        for _ in 0..4 * self.window / BATCH {
            turn(self, traffic);
        }
    }

    /// That the turns did what they claim.
    pub(crate) fn check(&self, losses: bool) {
        let stats = self.connection.stats();
        let turns = u64::from(self.acked / BATCH);
        let span =
            if losses && turns > u64::from(self.window / BATCH) { 2 * self.window } else { self.window };
        if !losses || span == 2 * self.window {
            assert!(
                stats.queues.in_flight.abs_diff(span) <= BATCH,
                "{} in flight of {span}",
                stats.queues.in_flight
            );
        }
        assert_eq!(stats.recovery.fast_resends, if losses { turns } else { 0 });
        assert_eq!((stats.recovery.timeout_resends, stats.recovery.early_resends), (0, 0));
        assert_eq!(stats.segments.push_sent, u64::from(self.sent));
    }
}

pub(crate) type Turn = fn(&mut Sender, &mut Traffic);
