//! The ARQ state machine: segments in, segments out, every byte once and in order.
//!
//! ```text
//!   write/send -> SendQueue -> SendBuffer (in flight) -> fill()  -> packets
//!                    |             ^    ^
//!                BytesQueue      Path  Probe
//!                                  |    |
//!   read/recv  <- RecvBuffer <- input() <-------------------------- packets
//!                                  '-> Acks -> fill()
//! ```
//!
//! Each concern has its own file. This one connects them, with `write.rs` for what the application writes,
//! `input.rs` for the segments that come, and `output.rs` for those that go. [`Arq::input`] takes the segments of one packet, [`Arq::fill`] writes as many segments as fit one packet. What
//! belongs to the path and not to the stream (round-trip times, congestion control, pacing) is in [`Path`].
//!
//! A segment costs the same number of instructions at any window, because nothing scans what is in flight. Only a change
//! of the mtu does. What grows with the window is the memory that payloads go through, and with it the number of cache
//! misses; `bytes_queue.rs` keeps that memory to what is unacknowledged.

mod acks;
mod alive;
mod bytes_queue;
mod ecn;
mod ends;
mod extension;
mod fec_flush;
mod ghost;
mod high_water_mark;
mod input;
mod keep_alive;
mod losses;
mod mtu;
mod output;
mod peer_time;
mod prefetch;
mod probe;
mod recv_buffer;
mod send_buffer;
mod send_memory;
mod send_queue;
mod validation;
mod window_update;
mod write;

use core::time::Duration;

use bytes::Bytes;

pub use self::recv_buffer::Block;
pub(super) use self::recv_buffer::{BlockPosition, LARGEST_MESSAGE, default_max_message, most_held};
use self::{
    acks::Acks,
    alive::Alive,
    fec_flush::FecFlush,
    probe::Probe,
    recv_buffer::RecvBuffer,
    send_buffer::{Backoff, SendBuffer},
    send_memory::SendMemory,
    send_queue::SendQueue,
    window_update::WindowUpdate,
};
pub(super) use self::{
    input::{Origin, Run, SequenceNumbers},
    losses::LossCounts,
};
use super::{
    config::{KcpConfig, NoDelay, SessionSettings},
    memory::BufferMemory,
    path::{MAX_RTO, Path, PathMtu},
    stats::{Counters, PathState, QueueState},
    time::{Instant, Micros, earliest},
    timer::Timer,
};

/// Window of a peer that has told none. It is one less than the window that a kcp-go listener gives a session at first. A
/// first flight that filled that window would be answered with a closed one, and the peer does not tell when its
/// application then raises it.
const INITIAL_PEER_WINDOW: u32 = 31;
/// A stream with fewer segments unconfirmed is *thin* (the limit that Linux has for TCP). Hardly any of its segments can
/// be skipped often enough to be resent before its RTO, and resending them all costs little. So in no-delay mode it has a
/// shorter RTO, and the wait does not grow after the first timeout.
const THIN: u32 = 4;

#[derive(Debug)]
pub(super) struct Arq {
    conv: u32,
    nodelay: NoDelay,
    stream: bool,
    ack_no_delay: bool,
    write_delay: bool,
    send_window: u32,
    recv_window: u32,
    queue: SendQueue,
    /// Most full segments that may wait in `queue`, and their payload in bytes.
    queue_limit: u32,
    queue_limit_bytes: u32,
    memory: SendMemory,
    buffer: SendBuffer,
    recv: RecvBuffer,
    acks: Acks,
    path: Path,
    probe: Probe,
    alive: Alive,
    fec_flush: FecFlush,
    losses: LossCounts,
    peer_window: u32,
    /// The highest `una` that the peer told.
    peer_una: u32,
    /// A WINS is to be sent.
    tell_window: bool,
    /// The window that was told last, in segments.
    told_window: u32,
    /// `frg` of the ACK, WASK and WINS segments that are sent: it tells the peer whether this end knows the extensions.
    mark: u8,
    /// What `ts` has beyond the time: see [`Arq::ts`].
    ts_base: u32,
    /// `sn` of the WASK and WINS segments that are sent: 0 until something was heard, then 1. kcp-go's listener takes a segment
    /// with the `sn` 0 of another conversation for the beginning of a new one, which replaces the one it has of that address.
    control_sn: u32,
    window_update: WindowUpdate,
    /// When segments that were skipped too seldom for a fast resend are resent if nothing new is sent.
    early_at: Option<Instant>,
    early_due: bool,
    /// Until when writes that do not fill a segment wait for more.
    flush_at: Option<Instant>,
    /// The longest wait for an answer. Several such waits fit into the time after which a silent peer counts as dead.
    max_wait: Micros,
    counters: Counters,
}

impl Arq {
    /// `overhead`: bytes of every packet that headers in front of the segments and tags behind them take.
    pub(super) fn new(conv: u32, config: &KcpConfig, overhead: usize, first_sn: u32, now: Instant) -> Self {
        let settings = &config.settings;
        let mss = config.mss(overhead);
        let mut arq = Self {
            conv,
            nodelay: settings.nodelay,
            stream: settings.stream,
            ack_no_delay: settings.ack_no_delay,
            write_delay: settings.write_delay,
            send_window: settings.send_window,
            recv_window: settings.recv_window,
            queue: SendQueue::default(),
            queue_limit: 0,
            queue_limit_bytes: 0,
            memory: SendMemory::new(mss),
            buffer: SendBuffer::new(first_sn),
            recv: RecvBuffer::new(first_sn, settings.recv_window, mss, config.max_message_bytes()),
            acks: Acks::default(),
            path: Path::new(
                config.congestion_control.clone(),
                &settings.nodelay,
                PathMtu::new(settings.mtu, overhead),
                now,
            ),
            probe: Probe::default(),
            alive: Alive::new(config.keep_alive, first_sn, conv),
            fec_flush: FecFlush::new(settings.fec_flush),
            losses: LossCounts::default(),
            peer_window: INITIAL_PEER_WINDOW,
            peer_una: first_sn,
            tell_window: false,
            told_window: u32::MAX,
            mark: 0,
            ts_base: 0,
            control_sn: 0,
            window_update: WindowUpdate::default(),
            early_at: None,
            early_due: false,
            flush_at: None,
            max_wait: MAX_RTO.min(config.dead_timeout / 4).into(),
            counters: Counters::default(),
        };
        arq.update_queue_limit();
        // Perhaps nothing will ever be sent.
        arq.path.park();
        arq
    }

    pub(super) const fn conv(&self) -> u32 {
        self.conv
    }

    /// Whether the segment 0 is among those in flight, or still to come.
    pub(super) const fn is_first_unacknowledged(&self) -> bool {
        self.buffer.una() == 0
    }

    // ---- The application ----

    /// Whether everything written is acknowledged.
    pub(super) const fn is_flushed(&self) -> bool {
        self.queue.unsent() == 0 && self.buffer.unacked() == 0
    }

    /// Bytes written that the peer has not acknowledged.
    #[cfg(feature = "tokio")]
    pub(super) const fn undelivered_bytes(&self) -> usize {
        let headers = self.buffer.unacked() as u64 * super::wire::HEADER_LEN as u64;
        self.queue.unsent() + (self.buffer.unacked_bytes() - headers) as usize
    }

    /// The number of the oldest segment that the peer has not acknowledged.
    #[cfg(feature = "tokio")]
    pub(super) fn oldest_in_flight(&self) -> Option<u32> {
        (self.buffer.unacked() > 0).then(|| self.buffer.una())
    }

    /// Whether a segment waits that the window has room for. Delayed writes do not count.
    pub(super) fn has_sendable(&self) -> bool {
        let delayed = self.flush_at.is_some() && self.queue.unsent() < self.path.mss();
        self.queue.unsent() > 0
            && !delayed
            && self.has_window()
            && self.path.validation.blocked_at().is_none()
    }

    /// Whether nothing has been sent yet, and what was written has at most `len` bytes.
    pub(super) fn is_first_write_within(&self, len: usize) -> bool {
        self.counters.segments.push_sent == 0 && (1..=len).contains(&self.queue.unsent())
    }

    /// Whether nothing is in flight, and nothing waits that may be sent before the next deadline.
    #[cfg(feature = "tokio")]
    pub(super) const fn is_quiet(&self) -> bool {
        self.is_flushed() && !self.has_control()
    }

    #[cfg(feature = "tokio")]
    pub(super) const fn has_window_update(&self) -> bool {
        self.tell_window
    }

    /// Whether written data or ACKs wait to be sent.
    #[cfg(feature = "tokio")]
    pub(super) const fn has_held_back(&self) -> bool {
        self.queue.unsent() > 0 || !self.acks.is_empty()
    }

    /// Sends delayed writes and ACKs with the next transmission.
    pub(super) const fn flush(&mut self) {
        self.acks.set_due();
        self.flush_at = None;
    }

    pub(super) fn is_readable(&self) -> bool {
        self.recv.is_readable()
    }

    pub(super) const fn readable_bytes(&self) -> usize {
        self.recv.unread_bytes()
    }

    pub(super) fn has_message(&self) -> bool {
        self.recv.has_message()
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> usize {
        let count = self.recv.read(out);
        self.after_read(count);
        count
    }

    #[cfg(feature = "tokio")]
    pub(super) fn read_with(&mut self, out: impl FnMut(&[u8]), max: usize) -> usize {
        let count = self.recv.read_with(out, max);
        self.after_read(count);
        count
    }

    pub(super) fn peek(&mut self, out: &mut [u8]) -> usize {
        let count = self.recv.peek(out);
        self.after_read(0);
        count
    }

    pub(super) fn recv(&mut self) -> Option<Bytes> {
        let message = self.recv.recv()?;
        self.after_read(message.len());
        Some(message)
    }

    fn after_read(&mut self, count: usize) {
        self.counters.stream.bytes_read += count as u64;
        // ACKs leave before the application has read what they acknowledge, so they may tell a much smaller window than there
        // is a moment later.
        let told = self.told_window;
        if told <= self.recv_window.div_ceil(2) && self.recv.is_worth_telling(told) {
            self.tell_window = true;
        }
    }

    // ---- What came with the first message ----

    /// Adds bytes in front of the stream, before anything of it has arrived.
    #[cfg(feature = "noise")]
    pub(super) fn push_early_data(&mut self, bytes: &[u8]) {
        self.recv.push_early_data(bytes);
    }

    /// Forgets the first `len` bytes that were written, before anything was sent: the peer has them.
    #[cfg(feature = "noise")]
    pub(super) fn discard_unsent(&mut self, len: usize) {
        if len > 0 {
            self.queue.discard_unsent(len);
            self.update_queue_limit();
        }
    }

    // ---- Memory that sessions share ----

    /// Takes part in it. What is held already counts from here on.
    pub(super) fn join_memory(&mut self, memory: &BufferMemory) {
        self.recv.join(memory);
        self.memory.join(memory);
        self.settle_memory();
    }

    /// Takes what is missing of it, and gives back what is not needed any more.
    #[inline]
    pub(super) fn settle_memory(&mut self) {
        if self.recv.is_bounded() {
            self.recv.settle();
            self.memory.settle(&mut self.queue.bytes);
        }
    }

    // ---- Time ----

    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.acks.on_timeout(now);
        if self.probe.on_timeout(now, self.max_wait.get()) {
            self.doubt_peer(now);
        }
        self.ask_silent_peer(now);
        self.tell_window |= self.window_update.on_timeout(now);
        self.path.validation.on_timeout(now);
        if self.early_at.is_some_and(|at| at <= now) {
            self.early_due = true;
        }
        self.introduce_resend(now);
        self.flush_at.take_if(|at| *at <= now);
        self.memory.on_timeout(now, &self.queue.bytes);
        self.fec_flush.on_timeout(now, self.buffer.nxt(), self.queue.unsent() > 0);
    }

    /// The timers, in the order of [`deadlines`](Self::deadlines). Of several that fire at once, the first is named.
    pub(super) const TIMERS: [Timer; 11] = [
        Timer::Ack,
        Timer::WindowProbe,
        Timer::EarlyResend,
        Timer::WriteDelay,
        Timer::FecFlush,
        Timer::Pacing,
        Timer::Rto,
        Timer::WindowUpdate,
        Timer::KeepAlive,
        Timer::AddressValidation,
        Timer::BufferMemory,
    ];

    /// The next instant at which something is to be sent or resent; `None` when nothing is waiting.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        earliest(self.deadlines())
    }

    /// When each of [`TIMERS`](Self::TIMERS) fires; `None` for one that is not set.
    pub(super) fn deadlines(&self) -> [Option<Instant>; 11] {
        [
            self.acks.deadline(),
            self.probe.deadline(),
            self.early_at,
            self.flush_at,
            self.fec_flush.deadline(self.queue.unsent() > 0),
            self.next_paced(),
            self.next_rto(),
            self.window_update.deadline(),
            self.alive.keep_alive.deadline(&self.path.liveness),
            self.path.validation.deadline(),
            self.memory.deadline(),
        ]
    }

    /// When the next RTO passes, or the resend after it is no longer held back.
    fn next_rto(&self) -> Option<Instant> {
        let at = self.buffer.next_timeout(&self.backoff())?;
        let held_until = self.path.timeouts_held_until(self.nodelay.interval);
        Some(held_until.map_or(at, |until| at.max(until)))
    }

    /// Asks the peer for a sign of life, again and again until it gives one. What is in flight asks for one already.
    pub(super) fn seek_peer(&mut self, now: Instant) {
        if !self.has_heard() && self.is_flushed() {
            self.probe.seek(now);
        }
    }

    /// Whether anything was heard from the peer.
    pub(super) const fn has_heard(&self) -> bool {
        self.control_sn != 0
    }

    /// The peer was heard, by something else than its segments.
    #[cfg(feature = "noise")]
    pub(super) const fn set_heard(&mut self) {
        self.control_sn = 1;
    }

    fn backoff(&self) -> Backoff {
        let thin = self.nodelay.nodelay && self.buffer.unacked() < THIN;
        let rtt = self.path.rtt();
        let rto = if thin { rtt.thin_rto() } else { rtt.rto() };
        Backoff {
            first: rto + self.path.probing_delay(),
            rto,
            nodelay: self.nodelay.nodelay,
            thin,
            max: self.max_wait.get(),
        }
    }

    // ---- Settings and gauges ----

    /// The settings of this layer. The others are the default.
    pub(super) fn settings(&self) -> SessionSettings {
        SessionSettings {
            send_window: self.send_window,
            recv_window: self.recv_window,
            nodelay: self.nodelay,
            fec_flush: self.fec_flush.delay(),
            stream: self.stream,
            ack_no_delay: self.ack_no_delay,
            write_delay: self.write_delay,
            ..SessionSettings::default()
        }
    }

    pub(super) fn set_nodelay(&mut self, nodelay: NoDelay) {
        self.nodelay = nodelay;
        self.path.set_nodelay(&nodelay);
        self.update_queue_limit();
    }

    pub(super) fn set_windows(&mut self, send: u32, recv: u32) {
        self.send_window = send;
        self.update_queue_limit();
        self.recv_window = recv;
        self.recv.set_window(recv);
        self.recv.advance();
        self.after_read(0);
    }

    pub(super) const fn set_stream(&mut self, stream: bool) {
        self.stream = stream;
    }

    pub(super) const fn set_ack_no_delay(&mut self, ack_no_delay: bool) {
        self.ack_no_delay = ack_no_delay;
    }

    pub(super) const fn set_write_delay(&mut self, write_delay: bool) {
        self.write_delay = write_delay;
        if !write_delay {
            self.flush();
        }
    }

    /// Changes how long segments wait for their group's parity before they are copied.
    pub(super) fn set_fec_flush(&mut self, delay: Option<Duration>) {
        self.fec_flush.set_delay(delay, self.buffer.nxt());
    }

    /// Changes how many copies are made of a segment whose FEC group stays incomplete.
    pub(super) fn set_flush_copies(&mut self, copies: usize) {
        self.fec_flush.set_copies(copies, self.buffer.nxt());
    }

    /// Takes note that the parity of everything sent so far is sent.
    pub(super) fn on_parity(&mut self, now: Instant) {
        self.fec_flush.on_parity(now, self.buffer.nxt());
    }

    pub(super) const fn losses(&self) -> &LossCounts {
        &self.losses
    }

    /// The smoothed round-trip time, and the minimum.
    pub(super) fn round_trip_times(&self) -> (Duration, Duration) {
        (self.path.rtt().smoothed(), self.path.min_rtt())
    }

    pub(super) fn trim(&mut self) {
        self.queue.trim();
        self.memory.give_back(&self.queue.bytes);
        self.buffer.trim();
        self.recv.trim();
        self.acks.trim();
        if self.is_flushed() {
            self.path.park();
        }
    }

    /// Bytes of the memory for what was written and for what arrived, in use or spare.
    pub(super) fn memory_bytes(&self) -> usize {
        self.queue.bytes.memory_bytes() + self.recv.memory_bytes()
    }

    pub(super) const fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(super) const fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    pub(super) fn path_state(&self) -> PathState {
        self.path.state()
    }

    pub(super) fn queue_state(&self) -> QueueState {
        QueueState {
            send_window: self.send_window,
            recv_window: self.recv_window,
            peer_window: self.peer_window,
            unsent_bytes: self.queue.unsent(),
            in_flight: self.buffer.span(),
            unread_segments: self.recv.unread_segments() as u32,
            unread_bytes: self.recv.unread_bytes(),
            out_of_order: self.recv.out_of_order(),
            memory_bytes: self.memory_bytes(),
        }
    }
}
