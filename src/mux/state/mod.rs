//! A session without I/O and clock: see [`MuxCore`].

mod input;
mod output;
mod recv_queue;
mod stream;

use core::task::Poll;
use std::{boxed::Box, collections::VecDeque};

use bytes::Bytes;

pub use self::stream::StreamKey;
use self::{
    input::Decoder,
    output::Output,
    stream::{Stream, Streams, WriteFailure},
};
use super::{
    MuxConfig, MuxError, MuxStats, MuxVersion,
    frame::{Command, Header},
    trace::MuxTrace,
};
use crate::proto::Instant;

/// Which end of a session this is. It decides the ids of the streams that it opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MuxRole {
    /// Opens streams 3, 5, 7, ...
    Client,
    /// Opens streams 2, 4, 6, ...
    Server,
}

/// What has changed for somebody who waits. Each event answers one call that had to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MuxEvent {
    /// [`read`](MuxCore::read) of this stream has something to say.
    Readable(StreamKey),
    /// [`write`](MuxCore::write) of this stream has something to say.
    Writable(StreamKey),
    /// There are streams to [accept](MuxCore::accept).
    Acceptable,
    /// There may be room to [open](MuxCore::open) streams.
    Openable,
    /// The session has [ended](MuxCore::end).
    Ended,
}

/// A session without I/O and clock, for other runtimes and for tests in virtual time; [`MuxSession`](super::MuxSession) is this
/// with Tokio.
///
/// * Input: [`receive`](Self::receive) with the bytes of the transport, while [`wants_input`](Self::wants_input);
///   [`receive_end`](Self::receive_end) or [`fail`](Self::fail) at its end; [`handle_timeout`](Self::handle_timeout).
/// * The application: [`open`](Self::open), [`accept`](Self::accept), [`read`](Self::read), [`write`](Self::write),
///   [`finish`](Self::finish), [`release`](Self::release).
/// * Output, after any of these: [`take_output`](Self::take_output) until there is none, [`poll_event`](Self::poll_event) until there
///   is none, [`poll_timeout`](Self::poll_timeout).
///
/// ```
/// use std::task::Poll;
/// use kcp9::{mux::{MuxConfig, MuxCore, MuxRole}, proto::Instant};
///
/// # fn main() -> Result<(), kcp9::mux::MuxError> {
/// let now = Instant::ZERO;
/// let mut client = MuxCore::new(MuxConfig::default(), MuxRole::Client, now);
/// let mut server = MuxCore::new(MuxConfig::default(), MuxRole::Server, now);
/// let stream = client.open()?.expect("room");
/// assert_eq!(client.write(now, stream, b"hello").map(Result::ok), Poll::Ready(Some(5)));
///
/// let mut wire = Vec::new();
/// while client.take_output(now, &mut wire) {
///     server.receive(now, wire.split_off(0).into());
/// }
/// let accepted = server.accept().expect("a stream");
/// let mut read = Vec::new();
/// assert!(server.read(accepted, 100, |bytes| read.extend_from_slice(bytes)).is_ready());
/// assert_eq!(read, b"hello");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct MuxCore {
    config: MuxConfig,
    role: MuxRole,
    streams: Streams,
    decoder: Decoder,
    output: Output,
    events: VecDeque<MuxEvent>,
    /// The id of the next stream that is opened here, until they run out.
    next_id: Option<u32>,
    /// Streams that the peer opened and nobody has accepted yet.
    unaccepted: VecDeque<StreamKey>,
    accepting: bool,
    acceptor_waits: bool,
    opener_waits: bool,
    /// Streams that the peer opened and that are not forgotten yet.
    peer_streams: usize,
    /// Bytes that wait to be read.
    unread: usize,
    /// Receiving stood still since the last bytes came.
    was_paused: bool,
    last_received: Instant,
    last_sent: Instant,
    /// Streams with a writer that waits for the window of a peer that has ended its direction. Each is there once at most.
    blocked: VecDeque<(Instant, StreamKey)>,
    end: Option<MuxError>,
    stats: MuxStats,
    trace: MuxTrace,
}

impl MuxCore {
    /// A session that begins now.
    #[must_use]
    pub fn new(config: MuxConfig, role: MuxRole, now: Instant) -> Self {
        Self {
            trace: MuxTrace::new(&config, role),
            config,
            role,
            streams: Streams::default(),
            decoder: Decoder::default(),
            output: Output::default(),
            events: VecDeque::new(),
            next_id: Some(match role {
                MuxRole::Client => 3,
                MuxRole::Server => 2,
            }),
            unaccepted: VecDeque::new(),
            accepting: true,
            acceptor_waits: false,
            opener_waits: false,
            peer_streams: 0,
            unread: 0,
            was_paused: false,
            last_received: now,
            last_sent: now,
            blocked: VecDeque::new(),
            end: None,
            stats: MuxStats::default(),
        }
    }

    // ---- The application ----

    /// Opens a stream. `None` when too much waits to be sent: [`MuxEvent::Openable`] will say when there is room.
    ///
    /// # Errors
    /// The [end](Self::end) of the session, or [`MuxError::IdsExhausted`].
    pub fn open(&mut self) -> Result<Option<StreamKey>, MuxError> {
        if let Some(end) = &self.end {
            return Err(end.clone());
        }
        let id = self.next_id.ok_or(MuxError::IdsExhausted)?;
        if self.output.is_full(2 * self.config.send_buffer) {
            self.opener_waits = true;
            return Ok(None);
        }
        self.next_id = id.checked_add(2);
        let key = self.streams.insert(Stream::new(id, false));
        self.output.push_frame(self.config.version, Command::Syn, id, &[]);
        self.stats.opened += 1;
        self.trace.stream_opened(id);
        Ok(Some(key))
    }

    /// The next of the streams that the peer opened. `None` when there is none: [`MuxEvent::Acceptable`] will say when there is one.
    pub fn accept(&mut self) -> Option<StreamKey> {
        let Some(key) = self.unaccepted.pop_front() else {
            self.acceptor_waits = true;
            return None;
        };
        self.acceptor_waits = false;
        self.stats.accepted += 1;
        if let Some(id) = self.id(key) {
            self.trace.stream_accepted(id);
        }
        Some(key)
    }

    /// Refuses the streams that wait to be accepted, and all that come.
    pub fn stop_accepting(&mut self) {
        self.accepting = false;
        for key in std::mem::take(&mut self.unaccepted) {
            if let Some(stream) = self.forget(key) {
                self.stats.refused += 1;
                self.trace.stream_refused(stream.id, NOT_ACCEPTING);
            }
        }
    }

    /// Hands up to `max` received bytes of a stream to `sink`, in one or more slices that follow each other, and returns how many.
    /// 0 means the end of the stream, or that `max` is 0.
    ///
    /// # Errors
    /// The [end](Self::end) of the session, once everything that had come was read and the peer has not ended the stream.
    /// [`MuxError::Closed`] for a stream that was released.
    pub fn read(
        &mut self,
        key: StreamKey,
        max: usize,
        sink: impl FnMut(&[u8]),
    ) -> Poll<Result<usize, MuxError>> {
        let Some(stream) = self.streams.get_mut(key) else { return Poll::Ready(Err(MuxError::Closed)) };
        let count = stream.received.read(max, sink);
        if count == 0 && max > 0 {
            return match &self.end {
                _ if stream.ended_by_peer => Poll::Ready(Ok(0)),
                Some(end) => Poll::Ready(Err(end.clone())),
                None => {
                    stream.reader_waits = true;
                    Poll::Pending
                }
            };
        }
        self.was_read(key, count);
        Poll::Ready(Ok(count))
    }

    /// The next received bytes of a stream in the memory that they were received into, if they are no more than `max` and many
    /// enough to be there. Where it returns `None`, [`read`](Self::read) says what there is.
    pub fn read_piece(&mut self, key: StreamKey, max: usize) -> Option<Bytes> {
        let piece = self.streams.get_mut(key)?.received.take_piece(max)?;
        self.was_read(key, piece.len());
        Some(piece)
    }

    /// Counts what was read, and tells the peer when it is due: after the first read, and each half of the buffer. From a quarter on
    /// an UPD goes with whatever else is sent, so that many streams cost few writes.
    fn was_read(&mut self, key: StreamKey, count: usize) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        self.unread -= count;
        if self.config.version == MuxVersion::V1 || count == 0 {
            return;
        }
        // Modulo 2^32, as the protocol counts.
        let first = stream.read == 0;
        stream.read = stream.read.wrapping_add(count as u32);
        stream.untold = stream.untold.saturating_add(count as u32);
        if stream.update_due || stream.ended_by_peer || self.end.is_some() {
            return;
        }
        let untold = stream.untold as usize;
        if first || untold >= self.config.stream_buffer / 2 {
            stream.update_due = true;
            self.output.push_update(key);
        } else if untold >= self.config.stream_buffer / 4 && !stream.update_may_go {
            stream.update_may_go = true;
            self.output.push_possible_update(key);
        }
    }

    /// Takes bytes of a stream to be sent, as one frame; returns how many. It waits while the peer's window is full, or other
    /// streams are first: then [`MuxEvent::Writable`] will say when to try again.
    ///
    /// # Errors
    /// The [end](Self::end) of the session; [`MuxError::ShutDown`], [`MuxError::NoReader`], [`MuxError::OverConsumed`];
    /// [`MuxError::Closed`] for a stream that was released.
    pub fn write(&mut self, now: Instant, key: StreamKey, bytes: &[u8]) -> Poll<Result<usize, MuxError>> {
        let Some(stream) = self.streams.get_mut(key) else { return Poll::Ready(Err(MuxError::Closed)) };
        if let Some(error) = write_failure(stream, self.end.as_ref()) {
            return Poll::Ready(Err(error));
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let room = match self.config.version {
            MuxVersion::V1 => usize::MAX,
            MuxVersion::V2 => stream.room(),
        };
        let count = bytes.len().min(self.config.max_frame).min(room);
        if count == 0 {
            stream.writer_waits = true;
            self.output.give_up_turn(stream);
            if stream.ended_by_peer {
                self.wait_for_window_after_end(now, key);
            }
            return Poll::Pending;
        }
        if !self.output.take_turn(key, stream, count, self.config.send_buffer) {
            stream.writer_waits = true;
            return Poll::Pending;
        }
        stream.written = stream.written.wrapping_add(count as u32);
        stream.end = self.output.push_frame(self.config.version, Command::Psh, stream.id, &bytes[..count]);
        self.stats.bytes_sent += count as u64;
        Poll::Ready(Ok(count))
    }

    /// Ends this direction of a stream, behind what was written. Reading goes on.
    pub fn finish(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        if stream.finished || self.end.is_some() {
            return;
        }
        stream.finished = true;
        self.output.give_up_turn(stream);
        stream.end = self.output.push_frame(self.config.version, Command::Fin, stream.id, &[]);
    }

    /// Ends a stream, and forgets it: what was written is still sent, what was received or will be is dropped.
    pub fn release(&mut self, key: StreamKey) {
        let finished = self.streams.get(key).is_some_and(|stream| stream.finished);
        if let Some(stream) = self.forget(key) {
            self.trace.stream_ended(stream.id, finished, stream.ended_by_peer, stream.received.len());
        }
    }

    fn forget(&mut self, key: StreamKey) -> Option<Box<Stream>> {
        self.finish(key);
        let mut stream = self.streams.remove(key)?;
        self.output.give_up_turn(&mut stream);
        self.unread -= stream.received.len();
        self.peer_streams -= usize::from(stream.by_peer);
        Some(stream)
    }

    /// The id of a stream on the wire.
    #[must_use]
    pub fn id(&self, key: StreamKey) -> Option<u32> {
        self.streams.get(key).map(|stream| stream.id)
    }

    /// Where the last byte that a stream wrote, or its end, lies in all that the session has sent and will send: it is with the
    /// transport once [`taken`](Self::taken) has come so far and the buffer was written.
    #[must_use]
    pub fn written_to(&self, key: StreamKey) -> u64 {
        self.streams.get(key).map_or(0, |stream| stream.end)
    }

    /// Bytes that [`take_output`](Self::take_output) has handed out.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.output.taken()
    }

    /// Why the session has ended, once it has.
    #[must_use]
    pub fn end(&self) -> Option<&MuxError> {
        self.end.as_ref()
    }

    /// Ends the session for this reason, unless it has ended. What was received can still be read.
    pub fn fail(&mut self, reason: MuxError) {
        if self.end.is_some() {
            return;
        }
        self.trace.ended(&reason, self.stats());
        self.end = Some(reason);
        self.output.clear();
        self.events.push_back(MuxEvent::Ended);
        for key in self.streams.keys() {
            self.wake_reader(key);
            self.wake_writer(key);
        }
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> MuxStats {
        MuxStats { open_streams: self.streams.len(), unread_bytes: self.unread, ..self.stats }
    }

    /// How long something waits for the peer that must not wait for ever.
    pub(in crate::mux) fn patience(&self) -> core::time::Duration {
        self.config.patience()
    }

    // ---- Time ----

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.end.is_some() {
            return None;
        }
        let keep_alive =
            self.config.keep_alive.filter(|_| !self.output.nop_due()).map(|after| self.last_sent + after);
        let dead = self.config.dead_timeout.map(|after| self.last_received + after);
        let blocked = self.blocked.front().map(|(since, _)| *since + self.config.patience());
        [keep_alive, dead, blocked].into_iter().flatten().min()
    }

    /// Does what the time asks for. Call it with what has come already received: it may end the session for a silence.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.end.is_some() {
            return;
        }
        if self.config.keep_alive.is_some_and(|after| now >= self.last_sent + after) {
            self.output.ask_for_nop();
        }
        if self.config.dead_timeout.is_some_and(|after| now >= self.last_received + after) {
            if !self.was_paused {
                self.fail(MuxError::Dead);
                return;
            }
            // Nothing could come, since nothing was received.
            self.last_received = now;
            self.was_paused = !self.wants_input();
        }
        let patience = self.config.patience();
        while let Some(&(since, key)) = self.blocked.front().filter(|(since, _)| now >= *since + patience) {
            self.blocked.pop_front();
            let Some(stream) = self.streams.get_mut(key) else { continue };
            match stream.blocked_since {
                Some(later) if later > since => self.blocked.push_back((later, key)),
                Some(_) => {
                    stream.in_blocked = false;
                    stream.write_error = Some(WriteFailure::NoReader);
                    self.wake_writer(key);
                }
                None => stream.in_blocked = false,
            }
        }
    }

    fn wait_for_window_after_end(&mut self, now: Instant, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        stream.blocked_since.get_or_insert(now);
        if !stream.in_blocked {
            stream.in_blocked = true;
            self.blocked.push_back((now, key));
        }
    }

    // ---- Output ----

    /// Puts the next bytes for the transport into `buffer`, whose content is lost and whose memory is used; `false` when there
    /// are none. Each call gives writers that wait their turns, so call it again when the buffer was written, and, while
    /// [`has_waiting_writers`](Self::has_waiting_writers), when it returned `false` and others could run.
    pub fn take_output(&mut self, now: Instant, buffer: &mut std::vec::Vec<u8>) -> bool {
        buffer.clear();
        if self.end.is_some() {
            return false;
        }
        self.output.take(&self.config, &mut self.streams, buffer);
        self.output.grant_turns(&self.config, &mut self.streams, |key| {
            self.events.push_back(MuxEvent::Writable(key))
        });
        if std::mem::take(&mut self.opener_waits) {
            self.events.push_back(MuxEvent::Openable);
        }
        if buffer.is_empty() {
            return false;
        }
        self.last_sent = now;
        true
    }

    /// Whether [`take_output`](Self::take_output) has something.
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.end.is_none() && !self.output.is_empty()
    }

    /// Whether writers wait to be given their turn by [`take_output`](Self::take_output).
    #[must_use]
    pub fn has_waiting_writers(&self) -> bool {
        self.end.is_none() && self.output.has_waiting()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<MuxEvent> {
        self.events.pop_front()
    }

    fn wake_reader(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        if std::mem::take(&mut stream.reader_waits) {
            self.events.push_back(MuxEvent::Readable(key));
        }
    }

    fn wake_writer(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get_mut(key) else { return };
        if std::mem::take(&mut stream.writer_waits) {
            self.events.push_back(MuxEvent::Writable(key));
        }
    }
}

fn write_failure(stream: &Stream, end: Option<&MuxError>) -> Option<MuxError> {
    match (end, stream.write_error) {
        (Some(end), _) => Some(end.clone()),
        _ if stream.finished => Some(MuxError::ShutDown),
        (None, Some(WriteFailure::NoReader)) => Some(MuxError::NoReader),
        (None, Some(WriteFailure::OverConsumed)) => Some(MuxError::OverConsumed),
        (None, None) => None,
    }
}

/// Why a stream of the peer is refused, as events say it: the application takes no more.
const NOT_ACCEPTING: &str = "not_accepting";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_whose_ids_have_run_out_opens_no_more_and_goes_on() {
        let mut core = MuxCore::new(MuxConfig::default(), MuxRole::Client, Instant::ZERO);
        core.next_id = Some(u32::MAX);
        let last = core.open().unwrap().unwrap();
        assert_eq!(core.id(last), Some(u32::MAX));
        assert!(matches!(core.open(), Err(MuxError::IdsExhausted)));
        assert!(core.end().is_none());
    }
}
