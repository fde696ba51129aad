//! Cost of reliability per segment, at windows from 32 to 16,384 segments: it must not grow with the window.
//!
//! Every turn does the same work at every size ([`BATCH`] segments in, as many out), so the times compare as they are.
//! The peer is played by ready-made packets in which only the counters are changed, so that one end is measured alone:
//!
//! * `cumulative`: one ACK confirms a batch by its `una`, which is how a receiver without losses answers; a batch is
//!   written and sent.
//! * `selective`: the first segment of every batch was lost. The others are acknowledged one by one, the loss is resent
//!   by fast resend, and confirmed a whole window later: at the front of what is in flight there is always a hole, and
//!   one for every batch of the window behind it.
//! * `cumulative_sessions`, `selective_sessions`: the same with as many sessions in turn as together have the largest window in
//!   flight. All keep the same amount of payload in memory, so what is left to differ is the protocol.
//! * `memory`: no protocol at all: as many bytes are written to a ring that holds a window of payloads. What this costs
//!   more at a large window is the price of memory, which a sender that keeps what it may have to send again pays too.
//! * `flush_idle`: a window full and unanswered, more waiting behind it, nothing due: what a look at the session costs.
//! * `receive`: PUSH packets in order, and with the first of every batch late by a window; with reads and ACKs. Those of a
//!   turn lie in one block of memory. In `in_order_batches` they are handed in together, so that payload may stay in it.

mod sender;

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{Bencher, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use kcp9::proto::{Command, Connection, HEADER_LEN, Instant, SegmentHeader};

use self::sender::{BATCH, SN, Sender, TURN, Traffic, Turn, connection, put};

/// Segments in flight.
const WINDOWS: [u32; 3] = [32, 1_024, 16_384];
/// Payload bytes of a segment: a window that mostly fits the caches, and one of full packets that does not.
const PAYLOADS: [usize; 2] = [64, 1_376];
/// After the last segment was sent: no RTO is as short.
const BEFORE_RTO: Duration = Duration::from_millis(5);
/// Bytes that `memory` copies at once.
const PIECE: usize = 4_096;
/// `turn` after turn of `sessions` that come one after another.
fn turns(b: &mut Bencher<'_>, sessions: u32, window: u32, payload: usize, losses: bool, turn: Turn) {
    let mut traffic = Traffic::new(payload);
    let mut senders: Vec<_> = (0..sessions).map(|_| Sender::new(window, payload, &mut traffic)).collect();
    for sender in &mut senders {
        sender.settle(turn, &mut traffic);
    }
    let mut next = 0;
    b.iter(|| {
        turn(&mut senders[next], &mut traffic);
        next = if next + 1 == senders.len() { 0 } else { next + 1 };
    });
    for sender in &senders {
        sender.check(losses);
    }
}

fn sender(c: &mut Criterion, name: &str, losses: bool, turn: Turn) {
    for payload in PAYLOADS {
        let mut group = c.benchmark_group(format!("arq/{name}/{payload}B"));
        group.throughput(Throughput::Elements(BATCH.into()));
        for window in WINDOWS {
            let id = BenchmarkId::from_parameter(window);
            group.bench_function(id, |b| turns(b, 1, window, payload, losses, turn));
        }
        group.finish();
        let mut group = c.benchmark_group(format!("arq/{name}_sessions/{payload}B"));
        group.throughput(Throughput::Elements(BATCH.into()));
        for window in WINDOWS {
            let sessions = WINDOWS[WINDOWS.len() - 1] / window;
            let id = BenchmarkId::from_parameter(format!("{sessions}x{window}"));
            group.bench_function(id, |b| turns(b, sessions, window, payload, losses, turn));
        }
        group.finish();
    }
}

fn cumulative(c: &mut Criterion) {
    sender(c, "cumulative", false, Sender::cumulative);
}

fn selective(c: &mut Criterion) {
    sender(c, "selective", true, Sender::selective);
}

fn memory(c: &mut Criterion) {
    for payload in PAYLOADS {
        let mut group = c.benchmark_group(format!("arq/memory/{payload}B"));
        group.throughput(Throughput::Elements(BATCH.into()));
        for window in WINDOWS {
            group.bench_function(BenchmarkId::from_parameter(window), |b| {
                let written = vec![0x5a; payload * BATCH as usize];
                let mut ring = vec![1_u8; payload * window as usize];
                let mut at = 0;
                b.iter(|| {
                    let pieces = ring[at..at + written.len()].chunks_mut(PIECE);
                    for (kept, written) in pieces.zip(written.chunks(PIECE)) {
                        kept.copy_from_slice(black_box(written));
                    }
                    at = (at + written.len()) % ring.len();
                });
            });
        }
        group.finish();
    }
}

fn flush_idle(c: &mut Criterion) {
    for payload in PAYLOADS {
        let mut group = c.benchmark_group(format!("arq/flush_idle/{payload}B"));
        group.throughput(Throughput::Elements(1));
        for window in WINDOWS {
            group.bench_function(BenchmarkId::from_parameter(window), |b| {
                let mut traffic = Traffic::new(payload);
                let mut sender = Sender::limited(window, window, payload, &mut traffic);
                sender.send_batch(&mut traffic);
                let now = sender.now + BEFORE_RTO;
                let connection = &mut sender.connection;
                b.iter(|| {
                    connection.handle_timeout(now);
                    let transmit = connection.poll_transmit(now, &mut traffic.buffer);
                    assert!(transmit.is_none());
                    connection.poll_timeout()
                });
                let stats = connection.stats();
                assert_eq!((stats.queues.in_flight, stats.segments.push_sent), (window, window.into()));
                assert!(stats.queues.unsent_bytes > 0, "nothing waits for the window");
            });
        }
        group.finish();
    }
}

/// A session that receives.
struct Receiver {
    connection: Connection,
    /// What the packets of a turn were received into.
    block: Arc<Box<[u8]>>,
    packet: usize,
    in_batches: bool,
    buffer: Vec<u8>,
    out: Vec<u8>,
    now: Instant,
    next: u32,
    /// How many segments after its turn the first of every batch comes.
    late: u32,
}

impl Receiver {
    fn new(late: u32, payload: usize, in_batches: bool) -> Self {
        let header = SegmentHeader {
            conv: 7,
            cmd: Command::Push,
            frg: 0,
            wnd: u16::MAX,
            ts: 0,
            sn: 0,
            una: 0,
            len: payload as u32,
        };
        let mut packet = header.to_bytes().to_vec();
        packet.resize(HEADER_LEN + payload, 0x5a);
        Self {
            connection: connection(payload, BATCH),
            block: Arc::new(packet.repeat(BATCH as usize).into()),
            packet: packet.len(),
            in_batches,
            buffer: vec![0; 65_536],
            out: vec![0; payload * BATCH as usize],
            now: Instant::ZERO,
            next: 0,
            late,
        }
    }

    /// Hands in a batch of packets with these segments.
    fn push(&mut self, segments: impl Iterator<Item = u32>) {
        let block = Arc::get_mut(&mut self.block).expect("all was read");
        let mut len = 0;
        for sn in segments {
            put(&mut block[len..len + self.packet], SN, sn);
            len += self.packet;
        }
        if self.in_batches {
            let _ = self.connection.handle_batch(self.now, &self.block, 0..len, self.packet);
            return;
        }
        for packet in block[..len].chunks_mut(self.packet) {
            let _ = self.connection.handle_packet(self.now, packet);
        }
    }

    fn turn(&mut self) {
        self.now += TURN;
        let (first, late) = (self.next, self.late);
        self.next += BATCH;
        if late == 0 {
            self.push(first..self.next);
        } else {
            self.push((first + 1..self.next).chain(first.checked_sub(late)));
        }
        while let Ok(count) = self.connection.read(&mut self.out) {
            black_box(&self.out[..count]);
        }
        while let Some(transmit) = self.connection.poll_transmit(self.now, &mut self.buffer) {
            black_box(&self.buffer[..transmit.len]);
        }
    }
}

fn receive(c: &mut Criterion) {
    for payload in PAYLOADS {
        let mut group = c.benchmark_group(format!("arq/receive/{payload}B"));
        group.throughput(Throughput::Elements(BATCH.into()));
        let cases = WINDOWS.map(|window| (format!("late_by_{window}"), window));
        let in_order = [("in_order".to_owned(), 0), ("in_order_batches".to_owned(), 0)];
        for (name, late) in in_order.into_iter().chain(cases) {
            let in_batches = name.ends_with("_batches");
            group.bench_function(name, |b| {
                let mut receiver = Receiver::new(late, payload, in_batches);
                for _ in 0..=2 * late / BATCH {
                    receiver.turn();
                }
                b.iter(|| receiver.turn());
                let stats = receiver.connection.stats();
                assert_eq!(
                    (stats.segments.duplicates, stats.segments.out_of_window, stats.queues.unread_segments),
                    (0, 0, 0)
                );
                // All but the first of every batch that is late.
                assert!(stats.queues.out_of_order.abs_diff(late - late / BATCH) <= BATCH);
            });
        }
        group.finish();
    }
}

criterion_group!(benches, cumulative, selective, memory, flush_idle, receive);
criterion_main!(benches);
