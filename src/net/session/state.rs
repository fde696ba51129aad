//! What a session's lock protects: the connection and the tasks that wait for it.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use super::transmit::Blocked;
use crate::{
    net::{
        error::KcpError,
        handle::End,
        handover::{Due, Next, SessionState},
        waiters::Waiters,
        wake_list::WakeList,
    },
    proto::{CloseReason, Connection, Event, Instant, ReadError},
};

#[derive(Debug)]
pub(super) struct State {
    pub(super) connection: Connection,
    /// A batch that found the socket full. It goes before all others.
    pub(super) blocked: Option<Blocked>,
    /// Since when every send has failed, and how many have.
    failing: Option<(Instant, u32)>,
    /// Why calls fail, when it is not for the connection's own reason.
    failure: Option<KcpError>,
    /// The peer has acknowledged everything that was written before the shutdown.
    pub(super) flushed: bool,
    pub(super) readers: Waiters,
    pub(super) datagram_readers: Waiters,
    pub(super) writers: Waiters,
    /// Tasks that wait for a shutdown to complete.
    pub(super) closers: Waiters,
    /// Tasks that wait for the peer's first answer, or for the end of the session.
    pub(super) watchers: Waiters,
    /// A task waits for the peer's first answer.
    pub(super) seeks: bool,
    /// The network says that nobody listens at the peer's address.
    pub(super) refused: bool,
    /// The session ends once a shutdown is done.
    pub(super) ends_when_flushed: bool,
    /// A read found nothing, and nothing has come since: not even if half of a message is there.
    pub(super) read_blocked: bool,
    /// Where the end of the session is noted, if somebody has a handle that stays.
    pub(super) end: Option<Arc<End>>,
}

impl State {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            blocked: None,
            failing: None,
            failure: None,
            flushed: false,
            readers: Waiters::default(),
            datagram_readers: Waiters::default(),
            writers: Waiters::default(),
            closers: Waiters::default(),
            watchers: Waiters::default(),
            seeks: false,
            refused: false,
            ends_when_flushed: false,
            read_blocked: false,
            end: None,
        }
    }

    /// What is to be done next, once there is no further batch.
    #[inline]
    pub(super) fn next(&self, corked: bool) -> Next {
        if corked && self.connection.has_sendable() {
            return Next::Again;
        }
        Next::Wait(self.connection.poll_timeout())
    }

    /// Lists the tasks that the connection's events concern.
    pub(super) fn collect_events(&mut self, wakes: &mut WakeList) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Readable => {
                    self.read_blocked = false;
                    self.readers.take_into(wakes);
                }
                Event::DatagramReadable => self.datagram_readers.take_into(wakes),
                Event::Writable => self.writers.take_into(wakes),
                Event::Flushed => {
                    self.flushed = true;
                    self.closers.take_into(wakes);
                    if self.ends_when_flushed {
                        self.fail(KcpError::EndpointClosed);
                    }
                }
                Event::Finished => self.readers.take_into(wakes),
                Event::NoReader => {
                    self.writers.take_into(wakes);
                    self.closers.take_into(wakes);
                }
                // Nobody waits for these. The stats show them.
                Event::Fec(_) | Event::Connected => {}
                Event::Closed(_) => {
                    self.readers.take_into(wakes);
                    self.datagram_readers.take_into(wakes);
                    self.writers.take_into(wakes);
                    self.closers.take_into(wakes);
                    self.watchers.take_into(wakes);
                    if let (Some(end), Some(reason)) = (&self.end, self.close_reason()) {
                        end.set(reason, self.connection.stats());
                    }
                }
            }
        }
        if self.seeks {
            self.wake_seekers(wakes);
        }
    }

    /// Has a reader wait, or tells it why it cannot.
    pub(super) fn wait_to_read<R>(
        &mut self,
        cx: &mut Context<'_>,
        error: ReadError,
        wakes: &mut WakeList,
    ) -> Poll<io::Result<R>> {
        if error == ReadError::Blocked {
            self.read_blocked = true;
            self.readers.add(cx.waker(), wakes);
            return Poll::Pending;
        }
        Poll::Ready(Err(self.error_or(error)))
    }

    /// Why the session failed, or `error`.
    pub(super) fn error_or(&self, error: impl Into<KcpError>) -> io::Error {
        self.reason_or(error.into()).into()
    }

    fn reason_or(&self, error: KcpError) -> KcpError {
        self.failure.filter(|_| self.connection.close_reason().is_some()).unwrap_or(error)
    }

    /// Why the session has ended. It has.
    pub(super) fn close_error(&self) -> io::Error {
        self.close_reason().unwrap_or(CloseReason::Aborted.into()).into()
    }

    /// Why the session has ended, if it has.
    pub(super) fn close_reason(&self) -> Option<KcpError> {
        Some(self.reason_or(self.connection.close_reason()?.into()))
    }

    /// Ends the session for a reason that is not the connection's own.
    pub(super) fn fail(&mut self, failure: KcpError) {
        if self.connection.close_reason().is_none() {
            self.failure = Some(failure);
            self.connection.close(CloseReason::Aborted);
        }
    }

    /// Takes note of how a send went. One that failed lost its packets, as any may be lost: the session goes on. It ends
    /// when none has succeeded for a while.
    #[inline]
    pub(super) fn note_send(&mut self, now: Instant, outcome: io::Result<()>) {
        match outcome {
            Ok(()) => self.failing = None,
            Err(error) => self.note_send_error(now, &error),
        }
    }

    #[cold]
    fn note_send_error(&mut self, now: Instant, error: &io::Error) {
        let (since, count) = self.failing.get_or_insert((now, 0));
        *count += 1;
        self.refused |= is_refusal(error);
        if now - *since >= SEND_FAILURE_LIMIT && *count >= MIN_SEND_FAILURES {
            self.fail(KcpError::network(error));
        }
    }
}

impl SessionState for State {
    #[inline]
    fn handle_timeout(&mut self, now: Instant, wakes: &mut WakeList) -> Due {
        self.connection.handle_timeout(now);
        self.collect_events(wakes);
        let quiet =
            self.blocked.is_none() && self.connection.close_reason().is_none() && self.connection.is_quiet();
        Due { quiet, deadline: self.connection.poll_timeout() }
    }

    fn collect_wakes(&mut self, wakes: &mut WakeList) {
        self.collect_events(wakes);
    }

    fn flush(&mut self) {
        self.connection.flush();
    }

    fn is_over(&self) -> bool {
        self.connection.close_reason().is_some()
    }

    fn end(&mut self, wakes: &mut WakeList) {
        self.connection.close(CloseReason::Aborted);
        // Tasks may still wait for its datagrams: their handle does not keep the stream.
        self.collect_events(wakes);
        self.blocked = None;
    }
}

/// Whether the network says that nobody listens where something was sent. Windows calls it a reset.
pub(in crate::net) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
}

/// How long every send may fail before the session ends: longer than a change of network takes.
const SEND_FAILURE_LIMIT: Duration = Duration::from_secs(5);
/// How many sends must have failed by then.
const MIN_SEND_FAILURES: u32 = 4;
