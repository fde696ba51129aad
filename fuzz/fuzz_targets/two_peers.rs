//! Two sessions on a bad link, the simulator's, driven by a sequence of operations.
//!
//! Proves, on virtual time:
//! * what one end reads is at every moment a prefix of what the other wrote, whatever is lost, duplicated or reordered,
//!   whatever settings change meanwhile, whether payload stays where it was received or not (and in a transfer of
//!   messages: the same messages);
//! * datagrams beside the stream arrive as they were sent, if they do;
//! * no call spins: after its output is drained a session's next deadline lies in the future;
//! * once the link is sound and both applications read, everything written arrives: no stretch of [`STALL`] passes
//!   without progress, unless a session ended by its own rules, and those are checked to have applied;
//! * once the link is dead instead, a session that has something unacknowledged ends by itself.
//!
//! So it is with sessions that have agreed on keys, too, which change meanwhile: nothing of the peer is refused but what comes twice, or
//! was sent before an end gave its memory of what it has seen away.
//!
//! Nothing is corrupted on the way: without a cipher a packet carries no checksum (UDP has one).

#![no_main]

#[path = "two_peers/plan.rs"]
mod plan;
#[path = "two_peers/sealed.rs"]
mod sealed;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kcp9::{
    KcpConfig, SessionSettings,
    fec::AdaptiveFec,
    proto::{
        AbortReason, BatchDrops, CloseReason, Connection, DatagramSendError, Event, HEADER_LEN, Instant,
        PacketError, ReadError, Stats, WriteError, noise,
    },
};
use kcp9_simulator::{Rng, link::Link, payload::Payload};
use libfuzzer_sys::fuzz_target;

use self::plan::{Action, Operation, Plan, fec, fec_flush, mtu, path, sound_path, window};

/// Longest time without progress on a sound link: the longest RTO and the longest probe, one behind the other, and what
/// a few settings of `interval` add.
const STALL: Duration = Duration::from_secs(200);
/// Segments' worth of payload that one end writes at most, to bound what a run costs.
const MAX_SEGMENTS: u64 = 600;
const MAX_OPERATIONS: usize = 250;
/// Datagrams one `poll_transmit` loop may produce before it counts as endless.
const MAX_PACKETS: usize = 50_000;
/// How long a key is used, and some more: a run does that a few times.
const PAST_KEYS: Duration = Duration::from_secs(3_700);
const MAX_KEY_CHANGES: u32 = 3;

struct End {
    connection: Connection,
    config: KcpConfig,
    written: u64,
    delivered: u64,
    /// Lengths of messages written, to be read by the other end in this order.
    messages: Vec<usize>,
    messages_read: usize,
    reads: bool,
    /// When something came that the peer had certainly not said before: payload, or an acknowledgment of some.
    news_at: Instant,
    shut_down_at: Option<Instant>,
    flushed: bool,
    /// What it writes, and the bytes of its datagrams.
    payload: Payload,
    /// The path to the other end.
    link: Link,
    /// Packets on that path, by arrival and order of sending.
    under_way: BTreeMap<(Instant, u64), Vec<u8>>,
}

impl End {
    fn closed(&self) -> bool {
        self.connection.close_reason().is_some()
    }
}

struct World {
    ends: [End; 2],
    /// How often it ran for longer than a key is used.
    key_changes: u32,
    now: Instant,
    sent: u64,
    messages: bool,
    /// Packets are handed over in batches, in memory that their payload may stay in.
    in_batches: bool,
    buffer: Vec<u8>,
}

impl World {
    fn new(plan: &Plan) -> Self {
        let first_sn = 0_u32.wrapping_sub(plan.before_wrap.into());
        let mut rng = Rng::new(plan.seed.into());
        let [one, other] = match plan.noise.map(sealed::noise) {
            Some([connects, accepts]) => [Some(connects), Some(accepts)],
            None => [None, None],
        };
        let configs = [plan.configs[0].config(one), plan.configs[1].config(other)];
        let connections = if plan.noise.is_some() {
            sealed::connections(configs.each_ref(), &mut rng)
        } else {
            configs.each_ref().map(|config| Connection::starting_at(7, config, Instant::ZERO, first_sn))
        };
        let mut end = |connection: Connection, config: KcpConfig| End {
            connection,
            config,
            written: 0,
            delivered: 0,
            messages: Vec::new(),
            messages_read: 0,
            reads: false,
            news_at: Instant::ZERO,
            shut_down_at: None,
            flushed: false,
            payload: Payload::new(rng.next()),
            link: Link::new(sound_path(), rng.fork()),
            under_way: BTreeMap::new(),
        };
        let ([one, other], [config, other_config]) = (connections, configs);
        Self {
            ends: [end(one, config), end(other, other_config)],
            key_changes: 0,
            now: Instant::ZERO,
            sent: 0,
            messages: plan.messages,
            in_batches: plan.seed.is_multiple_of(2),
            buffer: vec![0; 65_536],
        }
    }

    /// Whether the two have agreed on keys.
    fn is_sealed(&self) -> bool {
        self.ends[0].connection.is_sealed()
    }

    fn operate(&mut self, operation: &Operation) {
        let at = usize::from(operation.second);
        let now = self.now;
        let connection = &mut self.ends[at].connection;
        match operation.action {
            Action::Write(len) => self.write(at, len, false),
            Action::Send(len) => self.write(at, len, true),
            Action::Read(len) => {
                self.read(at, usize::from(len), false);
            }
            Action::Recv => {
                self.read(at, 0, true);
            }
            Action::SendDatagram(len) => self.send_datagram(at, len),
            Action::RecvDatagrams => self.recv_datagrams(at),
            Action::Run(millis) => self.run_for(Duration::from_millis(millis.into())),
            Action::RunPastKeys => {
                if self.is_sealed() && self.key_changes < MAX_KEY_CHANGES {
                    self.key_changes += 1;
                    self.run_for(PAST_KEYS);
                }
            }
            Action::Step => {
                self.step(now + Duration::from_secs(1));
            }
            Action::Wait(millis) => {
                self.now += Duration::from_millis(millis.into());
                self.deliver();
            }
            Action::Link { loss, duplicate, delay, jitter } => {
                self.ends[at].link.settings = path(loss, duplicate, delay, jitter);
            }
            Action::DropNext(count) => {
                let mut left = count;
                self.ends[at].link.lose_if(move |_, _| {
                    let loses = left > 0;
                    left = left.saturating_sub(1);
                    loses
                });
            }
            Action::Reads(reads) => self.ends[at].reads = reads,
            Action::Shutdown => {
                connection.shutdown(now);
                self.ends[at].shut_down_at.get_or_insert(now);
            }
            Action::Mtu(choice) => {
                let mtu = mtu(choice);
                if connection.update_settings(|settings| settings.mtu = mtu).is_ok() {
                    assert_eq!(connection.mtu(), mtu);
                }
            }
            Action::Fec(choice) => {
                // Refused while segments are queued that leave no room for its header.
                let _ = connection.update_settings(|settings| settings.fec = fec(choice));
            }
            Action::Flush => connection.flush(),
            Action::Trim => connection.trim(),
            Action::Windows(..)
            | Action::NoDelay(_)
            | Action::FecAdaptive(_)
            | Action::FecFlush(_)
            | Action::Stream(_)
            | Action::AckNoDelay(_)
            | Action::WriteDelay(_) => {
                let change = |settings: &mut SessionSettings| match operation.action {
                    Action::Windows(send, recv) => {
                        (settings.send_window, settings.recv_window) = (window(send), window(recv));
                    }
                    Action::NoDelay(ref knobs) => settings.nodelay = knobs.build(),
                    Action::FecAdaptive(on) => settings.fec_adaptive = on.then(AdaptiveFec::default),
                    Action::FecFlush(choice) => settings.fec_flush = fec_flush(choice),
                    Action::Stream(on) => settings.stream = on,
                    Action::AckNoDelay(on) => settings.ack_no_delay = on,
                    Action::WriteDelay(on) => settings.write_delay = on,
                    _ => {}
                };
                connection.update_settings(change).expect("settings in range");
            }
        }
    }

    fn write(&mut self, at: usize, len: u16, message: bool) {
        let (now, message) = (self.now, message || self.messages);
        let end = &mut self.ends[at];
        let is_sealed = end.connection.is_sealed();
        let around = if is_sealed { noise::HEADER_LEN + noise::TAG_LEN } else { 0 };
        let mss = (end.connection.mtu() - around - HEADER_LEN) as u64;
        let room = (MAX_SEGMENTS * mss).saturating_sub(end.written);
        let bytes = end.payload.bytes(end.written, u64::from(len).min(room) as usize);
        let count = if message {
            end.connection.send(now, bytes).map(|()| bytes.len())
        } else {
            end.connection.write(now, bytes)
        };
        match count {
            Ok(count) => {
                assert!(count <= bytes.len());
                assert!(count > 0 || bytes.is_empty());
                assert!(end.shut_down_at.is_none(), "a write after shutdown");
                end.written += count as u64;
                if message {
                    end.messages.push(count);
                }
            }
            Err(WriteError::Blocked) => {}
            Err(WriteError::EmptyMessage) => assert!(message && bytes.is_empty()),
            Err(WriteError::MessageTooLong { max }) => {
                // Less an FEC header, where there is one.
                let fits = [255 * mss, 255 * (mss - 8)].contains(&(max as u64));
                // A session with the extensions begins with packets that nearly every path carries.
                assert!(fits || is_sealed && (max as u64) < 255 * mss, "{max}");
                assert!(bytes.len() > max);
            }
            Err(WriteError::ShutDown) => assert!(end.shut_down_at.is_some()),
            Err(WriteError::Closed(reason)) => assert_eq!(end.connection.close_reason(), Some(reason)),
            Err(_) => unreachable!(),
        }
    }

    /// Sends a datagram that says by its length what it holds.
    fn send_datagram(&mut self, at: usize, len: u16) {
        let end = &mut self.ends[at];
        let max = end.connection.max_datagram_len();
        let sent = end.connection.send_datagram(end.payload.bytes(len.into(), len.into()));
        match sent {
            Ok(()) => assert!(max.is_some_and(|max| usize::from(len) <= max)),
            Err(DatagramSendError::Disabled) => assert_eq!(end.config.datagram_queue(), 0),
            Err(DatagramSendError::TooLarge { max: told }) => assert_eq!(max, Some(told)),
            Err(DatagramSendError::ShutDown) => assert!(end.shut_down_at.is_some()),
            Err(DatagramSendError::Closed(reason)) => assert_eq!(end.connection.close_reason(), Some(reason)),
            Err(_) => unreachable!(),
        }
    }

    fn recv_datagrams(&mut self, at: usize) {
        while let Some(datagram) = self.ends[at].connection.recv_datagram() {
            let sent = self.ends[1 - at].payload.bytes(datagram.len() as u64, datagram.len());
            assert_eq!(datagram, sent, "not the datagram that was sent");
        }
    }

    /// Reads once and compares; returns whether there was anything.
    fn read(&mut self, at: usize, len: usize, message: bool) -> bool {
        let [first, second] = &mut self.ends;
        let (end, other) = if at == 0 { (first, second) } else { (second, first) };
        let (readable, has_message) = (end.connection.is_readable(), end.connection.has_message());
        let message = message || self.messages;
        let outcome = if message {
            end.connection.recv().map(|message| message.to_vec())
        } else {
            let mut out = vec![0; len];
            end.connection.read(&mut out).map(|count| {
                out.truncate(count);
                out
            })
        };
        match outcome {
            Ok(bytes) => {
                assert!(if message { has_message } else { readable || len == 0 });
                assert!(!bytes.is_empty() || len == 0 && !message, "nothing read");
                let difference = other.payload.first_difference(end.delivered, &bytes);
                assert_eq!(difference, None, "not what was written");
                end.delivered += bytes.len() as u64;
                assert!(end.delivered <= other.written, "more than was written");
                if self.messages {
                    assert_eq!(bytes.len(), other.messages[end.messages_read], "not the message written");
                    end.messages_read += 1;
                }
                !bytes.is_empty()
            }
            Err(error) => {
                assert!(!(if message { has_message } else { readable }), "{error} with something to read");
                match error {
                    ReadError::Blocked => assert!(!end.closed()),
                    ReadError::Closed(reason) => assert_eq!(end.connection.close_reason(), Some(reason)),
                    ReadError::Finished => {
                        assert!(end.connection.is_sealed() && other.shut_down_at.is_some());
                        assert_eq!(end.delivered, other.written);
                    }
                    _ => unreachable!(),
                }
                false
            }
        }
    }

    /// Hands over the packets that have arrived.
    fn deliver(&mut self) {
        for at in 0..2 {
            let under_way = &mut self.ends[1 - at].under_way;
            let arrived = under_way.first_key_value();
            let Some(((due, _), _)) = arrived else { continue };
            if *due > self.now {
                continue;
            }
            let later = under_way.split_off(&(self.now, u64::MAX));
            let arrived = std::mem::replace(under_way, later);
            let arrived: Vec<_> = arrived.into_values().collect();
            // A batch has packets of one size, but for its last, which may be shorter.
            for batch in arrived.chunk_by(|packet, next| packet.len() == next.len()) {
                for batch in batch.chunks(8) {
                    self.deliver_batch(at, batch);
                }
            }
        }
    }

    fn deliver_batch(&mut self, at: usize, batch: &[Vec<u8>]) {
        let before = self.ends[at].connection.stats();
        self.hand_over(at, batch);
        let end = &mut self.ends[at];
        let after = end.connection.stats();
        if new_pushes(&after) > new_pushes(&before) || after.queues.in_flight < before.queues.in_flight {
            end.news_at = self.now;
        }
    }

    fn hand_over(&mut self, at: usize, batch: &[Vec<u8>]) {
        let end = &mut self.ends[at];
        if self.in_batches {
            let stride = batch[0].len();
            // In front of the batch is what other sessions received.
            let mut bytes = vec![0xee; stride / 2];
            let begin = bytes.len();
            bytes.extend(batch.concat());
            let mut block = Arc::new(bytes.into_boxed_slice());
            let range = begin..block.len();
            let is_sealed = end.connection.is_sealed();
            let mut drops = end.connection.handle_sealed_batch(self.now, &mut block, range, stride);
            if is_sealed {
                drops.replayed = 0;
            }
            assert_eq!(drops, BatchDrops::default(), "a packet of the peer's was refused");
            return;
        }
        for packet in batch {
            let outcome = end.connection.handle_packet(self.now, &mut packet.clone());
            let comes_twice = end.connection.is_sealed() && outcome == Err(PacketError::Replayed);
            assert!(outcome.is_ok() || comes_twice, "a packet of the peer's was refused: {outcome:?}");
        }
    }

    /// Sends what `at` has to send and checks what it waits for.
    fn drain(&mut self, at: usize) {
        let end = &mut self.ends[at];
        let mut packets = 0;
        while let Some(transmit) = end.connection.poll_transmit(self.now, &mut self.buffer) {
            let mtu = end.connection.mtu();
            assert!(transmit.len > 0 && transmit.stride <= mtu);
            packets += transmit.packets();
            assert!(packets < MAX_PACKETS, "endless output");
            for packet in self.buffer[..transmit.len].chunks(transmit.stride) {
                for arrival in end.link.send(self.now, packet).into_iter().flatten() {
                    self.sent += 1;
                    end.under_way.insert((arrival, self.sent), packet.to_vec());
                }
            }
        }
        // One of each kind at most, and two of FEC.
        for _ in 0..10 {
            match self.ends[at].connection.poll_event() {
                None => return self.check_gauges(at),
                Some(Event::Flushed) => {
                    let end = &mut self.ends[at];
                    assert!(end.shut_down_at.is_some() && end.connection.is_flushed());
                    end.flushed = true;
                }
                Some(Event::Closed(reason)) => self.check_closed(at, reason),
                Some(_) => {}
            }
        }
        panic!("endless events");
    }

    /// A session ends by a rule of its own only.
    fn check_closed(&self, at: usize, reason: CloseReason) {
        let end = &self.ends[at];
        let silence = self.now - end.news_at;
        assert_eq!(end.connection.close_reason(), Some(reason));
        match reason {
            CloseReason::DeadLink => {
                assert!(end.config.dead_link() > 0 || silence >= end.config.dead_timeout());
            }
            CloseReason::LingerTimeout => {
                // With the extensions, the end of the stream wants an answer, too.
                assert!(!end.flushed && (self.is_sealed() || !end.connection.is_flushed()));
                let since = end.shut_down_at.expect("a linger without a shutdown");
                assert!(self.now - since >= end.config.linger());
            }
            CloseReason::IdleTimeout => {
                assert!(silence >= end.config.idle_timeout().expect("no idle timeout was set"));
            }
            CloseReason::Finished => {
                assert!(self.is_sealed() && self.ends.iter().all(|end| end.shut_down_at.is_some()));
                assert!(end.connection.is_flushed());
            }
            // The other end has ended by such a rule, and says so.
            CloseReason::AbortedByPeer(AbortReason::TimedOut) => {
                let other = self.ends[1 - at].connection.close_reason();
                let rules =
                    [CloseReason::DeadLink, CloseReason::LingerTimeout, CloseReason::IdleTimeout].map(Some);
                assert!(self.is_sealed() && rules.contains(&other), "{other:?}");
            }
            _ => panic!("closed by {reason:?}"),
        }
    }

    fn check_gauges(&self, at: usize) {
        let (end, other) = (&self.ends[at], &self.ends[1 - at]);
        let stats = end.connection.stats();
        assert_eq!(stats.stream.bytes_written, end.written);
        assert_eq!(stats.stream.bytes_read, end.delivered);
        assert!(stats.stream.bytes_read + stats.queues.unread_bytes as u64 <= other.written);
        assert!(u64::from(stats.queues.in_flight) <= stats.segments.push_sent);
        assert!(stats.path.rto >= Duration::from_millis(30) && stats.path.rto <= Duration::from_secs(60));
        assert!(
            stats.path.min_rtt <= stats.path.rtt
                || stats.path.rtt == Duration::ZERO
                || stats.path.min_rtt - stats.path.rtt < Duration::from_micros(10)
        );
    }

    /// Does everything that is due now; returns whether an application read something.
    fn settle(&mut self) -> bool {
        let mut progress = false;
        self.deliver();
        for at in 0..2 {
            let connection = &mut self.ends[at].connection;
            if connection.poll_timeout().is_some_and(|due| due <= self.now) {
                connection.handle_timeout(self.now);
            }
            while self.ends[at].reads && self.read(at, 4_096, false) {
                progress = true;
            }
            self.drain(at);
            let end = &self.ends[at];
            if let Some(due) = end.connection.poll_timeout() {
                assert!(due > self.now, "{at} spins: {:#?}", end.connection.stats());
            }
        }
        progress
    }

    /// When something happens next.
    fn next(&self) -> Option<Instant> {
        let timers = self.ends.iter().filter_map(|end| end.connection.poll_timeout());
        let packets = self.ends.iter().filter_map(|end| end.under_way.first_key_value());
        timers.chain(packets.map(|((due, _), _)| *due)).min()
    }

    /// Goes to what happens next, `limit` at the latest. Returns whether an application read something.
    fn step(&mut self, limit: Instant) -> bool {
        let progress = self.settle();
        self.now = self.next().map_or(limit, |due| due.clamp(self.now, limit));
        progress
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step(end);
        }
    }

    fn complete(&self) -> bool {
        (0..2).all(|at| {
            let (end, other) = (&self.ends[at], &self.ends[1 - at]);
            end.delivered == other.written && other.connection.is_flushed()
        })
    }

    /// Nothing passes any more: a session that waits for an answer ends by itself.
    fn vanish(&mut self) {
        for end in &mut self.ends {
            end.link.settings.loss = 1.0;
            end.under_way.clear();
        }
        let limit = self.now + STALL + Duration::from_secs(300);
        while self.now < limit {
            self.step(limit);
        }
        for end in &self.ends {
            assert!(
                end.closed() || end.connection.is_flushed(),
                "waits for ever: {:?} {:#?}",
                end.connection.poll_timeout(),
                end.connection.stats()
            );
        }
    }

    /// The faults end, both applications read all there is.
    fn finish(&mut self) {
        for end in &mut self.ends {
            end.link.lose_nothing_more();
            end.link.settings = sound_path();
            end.reads = true;
        }
        let mut progress_at = self.now;
        while !self.complete() && !self.ends.iter().any(End::closed) {
            let unacked = self.unacked();
            let limit = progress_at + STALL;
            if self.step(limit) || self.unacked() < unacked {
                progress_at = self.now;
            }
            assert!(
                self.now < limit || self.complete() || self.ends.iter().any(End::closed),
                "nothing has moved for {STALL:?}: {:#?}",
                self.ends.each_ref().map(|end| (end.written, end.delivered, end.connection.stats()))
            );
        }
        self.settle();
    }

    fn unacked(&self) -> u64 {
        self.ends
            .iter()
            .map(|end| {
                let stats = end.connection.stats();
                u64::from(stats.queues.in_flight) + stats.queues.unsent_bytes as u64
            })
            .sum()
    }
}

/// PUSH segments that had not been received before.
fn new_pushes(stats: &Stats) -> u64 {
    let segments = &stats.segments;
    segments.push_received - segments.duplicates - segments.out_of_window
}

fuzz_target!(|plan: Plan| {
    let mut world = World::new(&plan);
    for operation in plan.operations.iter().take(MAX_OPERATIONS) {
        world.operate(operation);
    }
    if plan.dead { world.vanish() } else { world.finish() }
});
