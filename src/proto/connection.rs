//! The state machine of one session: see [`Connection`].

mod datagrams;
#[cfg(feature = "tokio")]
mod driver;
mod ecn;
mod ends;
mod extension;
mod input;
mod moves;
#[cfg(feature = "noise")]
mod noise;
mod output;
mod record;
mod settings;
#[cfg(test)]
mod tests;
mod timers;
mod validation;

pub(super) use self::record::{Ended, KnownPeer, PeerRecord};
pub use self::{input::BatchDrops, moves::RebindError, output::Transmit, record::ClosedRecord};

use core::net::SocketAddr;

use bytes::Bytes;

use self::ends::{Delivery, EndEvents};
#[cfg(feature = "noise")]
use super::agreement::Agreement;
use super::{
    arq::Arq,
    config::KcpConfig,
    datagrams::Datagrams,
    ecn::EcnReceiver,
    error::{CloseReason, ReadError, WriteError},
    extension::ExtensionSlot,
    fec::FecEvent,
    memory::BufferMemory,
    pipeline::Pipeline,
    stats::{Counters, Stats},
    time::{Instant, Micros},
    trace::tell,
};
use crate::crypto::PacketCrypto;

/// What the application may want to know of; from [`Connection::poll_event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Something arrived in order.
    Readable,
    /// A datagram arrived beside the stream.
    DatagramReadable,
    /// There is room again for a write that was refused.
    Writable,
    /// The peer has answered, for the first time. This comes once, in a session of [`Connection::connect`]. Where the
    /// [extensions are required](super::Extensions::Required), the peer is one that has them.
    Connected,
    /// The peer is at this address now, and no longer at the one before. What [`Connection::poll_transmit`] returns from
    /// here on is for the new address: see [`Endpoint::moved`](super::Endpoint::moved).
    Moved(SocketAddr),
    /// The peer has shown that it hears this end. This comes once, in a session of [`Connection::accept`], unless it was known from the
    /// beginning. [`Endpoint::validated`](super::Endpoint::validated) is to be told.
    Validated,
    /// Everything written before [`Connection::shutdown`] is acknowledged.
    Flushed,
    /// Nobody reads at the peer's end any more. What it had not acknowledged is given up, and writes fail.
    NoReader,
    /// The peer has shut down, and everything that it wrote has arrived: behind it, reads return
    /// [`ReadError::Finished`].
    Finished,
    /// The peer's forward error correction has settings that may keep it from working.
    Fec(FecEvent),
    /// The session has ended. What arrived before can still be read.
    Closed(CloseReason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Established,
    /// Shut down by the application. Data or FIN is still to be acknowledged.
    Draining,
    /// Shut down, and everything was acknowledged.
    Flushed,
    /// Nobody reads at the peer's end.
    Refused,
    Closed(CloseReason),
}

/// One end of a KCP session: a state machine without I/O, clock or randomness of its own.
///
/// Its methods are of four kinds, to be called in this order whenever something happens:
///
/// 1. **Input**: [`handle_packet`](Self::handle_packet) or [`handle_batch`](Self::handle_batch) for packets from the peer, and
///    [`handle_ecn`](Self::handle_ecn) behind them for those that came with a mark; [`handle_timeout`](Self::handle_timeout) once the instant of [`poll_timeout`](Self::poll_timeout) has come.
/// 2. **Application**: [`write`](Self::write), [`send`](Self::send), [`read`](Self::read), [`recv`](Self::recv),
///    [`send_datagram`](Self::send_datagram), [`recv_datagram`](Self::recv_datagram), [`shutdown`](Self::shutdown),
///    [`drop_reader`](Self::drop_reader), [`abort`](Self::abort), [`update_settings`](Self::update_settings).
/// 3. **Output**: [`poll_transmit`](Self::poll_transmit) until it returns `None`, and send what it returns, with *don't fragment* or
///    without as it says. [`handle_too_long`](Self::handle_too_long) where the system refuses a packet for its length.
/// 4. **Waiting**: [`poll_event`](Self::poll_event) until it returns `None`, then [`poll_timeout`](Self::poll_timeout)
///    for how long to wait. An idle session returns `None`: it needs no wakeup at all.
///
/// Time is the `now` of each call. It must not run backwards.
///
/// ```
/// use kcp9::{KcpConfig, proto::{Connection, Instant}};
///
/// let now = Instant::ZERO;
/// let config = KcpConfig::default();
/// let mut client = Connection::new(7, &config, now);
/// let mut server = Connection::new(7, &config, now);
///
/// client.write(now, b"hello")?;
/// let mut buffer = vec![0; 65_536];
/// while let Some(transmit) = client.poll_transmit(now, &mut buffer) {
///     for packet in buffer[..transmit.len].chunks_mut(transmit.stride) {
///         server.handle_packet(now, packet).unwrap();
///     }
/// }
/// let mut out = [0; 16];
/// let count = server.read(&mut out).unwrap();
/// assert_eq!(&out[..count], b"hello");
/// # Ok::<(), kcp9::proto::WriteError>(())
/// ```
#[derive(Debug)]
pub struct Connection {
    arq: Arq,
    pipeline: Pipeline,
    datagrams: Datagrams,
    /// What peers of this crate say beyond KCP; empty where the extensions are off.
    extension: ExtensionSlot,
    ecn: EcnReceiver,
    state: State,
    dead_timeout: Micros,
    dead_link: u32,
    linger: Micros,
    /// Since when a session that was shut down lingers.
    linger_since: Option<Instant>,
    idle_timeout: Option<Micros>,
    /// The session does not end before this for a silence of its peer: see [`handle_pause`](Self::handle_pause).
    no_end_before: Instant,
    /// A write was refused, and the application waits for room.
    write_blocked: bool,
    // Events that `poll_event` has not returned yet.
    readable: bool,
    datagram_readable: bool,
    writable: bool,
    connected: bool,
    /// [`Event::Connected`] is still to come.
    awaits_peer: bool,
    end_events: EndEvents,
    /// What became of everything written.
    delivery: Delivery,
    /// Nobody reads any more: see [`drop_reader`](Self::drop_reader).
    reader_dropped: bool,
    /// Both ends are still agreeing on keys.
    #[cfg(feature = "noise")]
    agreement: Option<alloc::boxed::Box<Agreement>>,
}

impl Connection {
    /// A session of the conversation `conv`, which both ends must agree on: a client chooses it at random, a server
    /// takes it from the first packet ([`peek_conv`](super::peek_conv)).
    ///
    /// It speaks KCP alone, whatever the configuration says of the [extensions](super::Extensions). For those use
    /// [`connect`](Self::connect) and [`accept`](Self::accept).
    #[must_use]
    pub fn new(conv: u32, config: &KcpConfig, now: Instant) -> Self {
        Self::starting_at(conv, config, now, 0)
    }

    /// As [`new`](Self::new), but the first segments of both directions are numbered `first_sn` instead of 0. Both ends must do
    /// so, and no other implementation can: this is for tests in which the numbers wrap.
    #[doc(hidden)]
    #[must_use]
    pub fn starting_at(conv: u32, config: &KcpConfig, now: Instant, first_sn: u32) -> Self {
        let pipeline = Pipeline::new(conv, config);
        Self {
            arq: Arq::new(conv, config, pipeline.overhead(), first_sn, now),
            pipeline,
            datagrams: Datagrams::new(config.datagram_queue),
            extension: ExtensionSlot::empty(),
            ecn: EcnReceiver::default(),
            state: State::Established,
            dead_timeout: config.dead_timeout.into(),
            dead_link: config.dead_link,
            linger: config.linger.into(),
            linger_since: None,
            idle_timeout: config.idle_timeout.map(Micros::new),
            no_end_before: Instant::ZERO,
            write_blocked: false,
            readable: false,
            datagram_readable: false,
            writable: false,
            connected: false,
            awaits_peer: false,
            end_events: EndEvents::NONE,
            delivery: Delivery::Pending,
            reader_dropped: false,
            #[cfg(feature = "noise")]
            agreement: None,
        }
    }

    /// The conversation that the session belongs to.
    #[must_use]
    pub const fn conv(&self) -> u32 {
        self.arq.conv()
    }

    /// Identifies the packets encrypted since the last call that carry the session's first segment, so that a listener with
    /// the same key begins no session when somebody sends one of them back.
    pub(crate) fn take_sent_first(&mut self) -> alloc::vec::Vec<u64> {
        self.pipeline.take_sent_first()
    }

    /// How the session's packets are encrypted.
    #[must_use]
    pub fn crypto(&self) -> Option<&PacketCrypto> {
        self.pipeline.crypto()
    }

    /// Largest packet that [`poll_transmit`](Self::poll_transmit) writes, in bytes.
    #[must_use]
    pub const fn mtu(&self) -> usize {
        self.arq.max_plpmtu()
    }

    // ---- Progress ----

    /// Notes the events that follow from what has come in or changed.
    fn after_progress(&mut self) {
        self.readable |= self.arq.is_readable();
        self.arq.settle_memory();
        self.note_room();
    }

    /// Notes that there is room again for a write that was refused.
    #[inline]
    fn note_room(&mut self) {
        if self.write_blocked && self.arq.has_much_room() {
            self.write_blocked = false;
            self.writable = true;
        }
    }

    // ---- Application ----

    /// Writes as many of `bytes` as there is room for and returns how many: never 0, unless `bytes` is empty.
    ///
    /// In stream mode the bytes share segments with what was written before. Otherwise they are cut into messages of up to a
    /// segment's payload.
    ///
    /// # Errors
    /// [`WriteError::Blocked`] when the queue is full, [`WriteError::ShutDown`] after [`shutdown`](Self::shutdown),
    /// [`WriteError::NoReader`] when nobody reads at the peer's end, [`WriteError::Closed`] when the session has ended.
    pub fn write(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, WriteError> {
        self.check_writable()?;
        match self.arq.write(now, bytes) {
            0 if !bytes.is_empty() => {
                self.write_blocked = true;
                Err(WriteError::Blocked)
            }
            count => Ok(count),
        }
    }

    /// Sends one message, whole or not at all. The peer's [`recv`](Self::recv) returns it as it is.
    ///
    /// # Errors
    /// As [`write`](Self::write); [`WriteError::MessageTooLong`] past 255 segments, [`WriteError::EmptyMessage`] for no
    /// bytes.
    pub fn send(&mut self, now: Instant, message: &[u8]) -> Result<(), WriteError> {
        self.check_writable()?;
        let outcome = self.arq.send(now, message);
        self.write_blocked |= outcome == Err(WriteError::Blocked);
        outcome
    }

    /// Whether a write would take at least one byte.
    ///
    /// # Errors
    /// As [`write`](Self::write). After [`WriteError::Blocked`], [`Event::Writable`] comes when there is room.
    pub fn write_ready(&mut self) -> Result<(), WriteError> {
        self.check_writable()?;
        if self.arq.is_writable() {
            return Ok(());
        }
        self.write_blocked = true;
        Err(WriteError::Blocked)
    }

    /// Reads up to `out.len()` bytes that have arrived in order and returns how many: never 0, unless `out` is empty.
    ///
    /// # Errors
    /// [`ReadError::Blocked`] when nothing is there, [`ReadError::Finished`] at the end of the stream, [`ReadError::Closed`] when the
    /// session has ended before.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize, ReadError> {
        match self.arq.read(out) {
            0 if !out.is_empty() => Err(self.nothing_to_read()),
            count => Ok(count),
        }
    }

    /// As [`read`](Self::read), for memory that need not be initialised: hands up to `max` bytes to `out`, in pieces.
    #[cfg(feature = "tokio")]
    pub(crate) fn read_with(&mut self, out: impl FnMut(&[u8]), max: usize) -> Result<usize, ReadError> {
        match self.arq.read_with(out, max) {
            0 if max > 0 => Err(self.nothing_to_read()),
            count => Ok(count),
        }
    }

    /// Copies up to `out.len()` bytes that have arrived in order, and leaves them for the next [`read`](Self::read). Returns how
    /// many: never 0, unless `out` is empty.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn peek(&mut self, out: &mut [u8]) -> Result<usize, ReadError> {
        match self.arq.peek(out) {
            0 if !out.is_empty() => Err(self.nothing_to_read()),
            count => Ok(count),
        }
    }

    /// Takes the next whole message (in stream mode: what one segment carried). It holds no more than four times its own memory,
    /// however long it is kept: where its segments arrived in order and it is long enough, it is not copied.
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`ReadError::UnexpectedEof`] once where the stream ends within a message.
    pub fn recv(&mut self) -> Result<Bytes, ReadError> {
        match self.arq.recv() {
            Some(message) => Ok(message),
            None if self.is_eof() && self.arq.readable_bytes() > 0 => {
                self.arq.discard_unread();
                Err(ReadError::UnexpectedEof)
            }
            None => Err(self.nothing_to_read()),
        }
    }

    /// Whether something waits to be read, as [`is_readable`](Self::is_readable), and why not.
    ///
    /// # Errors
    /// As [`read`](Self::read). After [`ReadError::Blocked`], [`Event::Readable`] comes when something has arrived.
    pub fn read_ready(&self) -> Result<(), ReadError> {
        if self.arq.is_readable() { Ok(()) } else { Err(self.nothing_to_read()) }
    }

    /// Whether something waits to be read: bytes, or a message, which may be empty.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.arq.is_readable()
    }

    /// Bytes that [`read`](Self::read) can return now.
    #[must_use]
    pub const fn readable_bytes(&self) -> usize {
        self.arq.readable_bytes()
    }

    /// Whether [`recv`](Self::recv) would return a message.
    #[must_use]
    pub fn has_message(&self) -> bool {
        self.arq.has_message()
    }

    /// Lets the next transmission send what is held back: written data under
    /// [`write_delay`](super::KcpConfigBuilder::write_delay), and ACKs.
    pub const fn flush(&mut self) {
        self.arq.flush();
    }

    /// Whether everything written is acknowledged.
    #[must_use]
    pub const fn is_flushed(&self) -> bool {
        self.arq.is_flushed()
    }

    // ---- Events, memory, statistics ----

    /// Has the session share `memory` with others, for what it holds of what its peer sent and of what was written. To be called before
    /// anything is handed to it. Without this its windows alone bound what it holds.
    pub fn set_buffer_memory(&mut self, memory: &BufferMemory) {
        self.arq.join_memory(memory);
    }

    /// The next event, `None` when there is none left.
    pub fn poll_event(&mut self) -> Option<Event> {
        if core::mem::take(&mut self.connected) {
            return Some(Event::Connected);
        }
        if core::mem::take(&mut self.readable) {
            return Some(Event::Readable);
        }
        if core::mem::take(&mut self.datagram_readable) {
            return Some(Event::DatagramReadable);
        }
        if core::mem::take(&mut self.writable) {
            return Some(Event::Writable);
        }
        if let Some(event) = self.pipeline.take_fec_event() {
            tell!(peer_fec(event));
            return Some(Event::Fec(event));
        }
        if self.end_events == EndEvents::NONE { None } else { self.next_end_event() }
    }

    /// Frees the memory that is kept for further traffic: for a session that has become idle.
    pub fn trim(&mut self) {
        self.arq.trim();
        self.pipeline.trim();
        self.datagrams.trim();
        self.extension.trim();
    }

    /// Whether [`trim`](Self::trim) would free a few KiB at most. What waits to be read or acknowledged counts too, since it will be
    /// spare memory soon. With FEC, and with datagrams, it is more.
    #[cfg(feature = "tokio")]
    pub(crate) fn keeps_little(&self) -> bool {
        const LITTLE: usize = 4 << 10;
        self.arq.memory_bytes() <= LITTLE && !self.pipeline.has_fec() && !self.datagrams.has_queues()
    }

    /// Counters and gauges as they stand now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let &Counters { udp, segments, recovery, stream, ecn } = self.arq.counters();
        Stats {
            udp,
            segments,
            recovery,
            stream,
            fec: self.pipeline.fec_stats(),
            datagrams: self.datagrams.stats(),
            extensions: self.extension.as_ref().map(|extension| *extension.stats()).unwrap_or_default(),
            ecn,
            mtu: self.arq.mtu_stats(),
            path: self.arq.path_state(),
            queues: self.arq.queue_state(),
            fec_state: self.pipeline.fec_state(),
            datagram_queues: self.datagrams.queue_state(),
        }
    }
}
