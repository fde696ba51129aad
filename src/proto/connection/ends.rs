//! How a session ends: each direction by itself, or all of it at once.
//!
//! | the application | calls | the peer learns |
//! |---|---|---|
//! | has written everything | [`shutdown`](Connection::shutdown) | the end of the stream, behind the last byte |
//! | is gone, with what it wrote still under way | [`drop_reader`](Connection::drop_reader) | the same, and that nobody reads |
//! | gives up | [`abort`](Connection::abort) | that at once |
//!
//! The session is *finished* when each direction is done, and closes itself then. The writing direction is done when the peer has
//! acknowledged everything, or has nobody who reads it. The reading direction is done when everything has arrived, or
//! nobody reads here.

use super::{Connection, Event, State};
use crate::proto::{
    error::{AbortReason, CloseReason, ReadError, WriteError},
    time::Instant,
};

/// Events of the end that [`Connection::poll_event`] has not returned yet, one bit each. They are rare, so that one look at all of
/// them is enough for a session that goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EndEvents(u8);

impl EndEvents {
    pub(super) const NONE: Self = Self(0);
    pub(super) const FLUSHED: Self = Self(1);
    pub(super) const NO_READER: Self = Self(2);
    pub(super) const FINISHED: Self = Self(4);
    pub(super) const CLOSED: Self = Self(8);

    pub(super) const fn add(&mut self, event: Self) {
        self.0 |= event.0;
    }

    /// Removes an event; returns whether it was there.
    pub(super) const fn take(&mut self, event: Self) -> bool {
        let there = self.0 & event.0 != 0;
        self.0 &= !event.0;
        there
    }
}

/// What became of everything written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// More may be written, or not everything is acknowledged.
    Pending,
    /// The peer has acknowledged everything, and no more will be written.
    Done,
    /// The peer has nobody who reads, and some of it was not acknowledged.
    GivenUp,
}

impl Connection {
    // ---- The application ----

    /// Ends the writing direction. Everything written is still delivered, and [`Event::Flushed`] comes once
    /// the peer has acknowledged it. Datagrams that wait are still sent, but that event does not wait for them. Reading goes on.
    ///
    /// The session ends with [`CloseReason::LingerTimeout`] if all that takes longer than
    /// [`linger`](crate::KcpConfigBuilder::linger).
    pub fn shutdown(&mut self, now: Instant) {
        if self.state != State::Established {
            return;
        }
        self.arq.flush();
        self.state = State::Draining(now + self.linger);
        self.check_ends();
    }

    /// Ends both directions, for an application that is gone. Everything written is still delivered, as after
    /// [`shutdown`](Self::shutdown), and what has arrived or still arrives is dropped.
    ///
    /// The session closes itself with [`CloseReason::Finished`] once everything is acknowledged, and with
    /// [`CloseReason::LingerTimeout`] if that takes longer than [`linger`](crate::KcpConfigBuilder::linger). With a `linger` of
    /// zero it is aborted.
    ///
    /// A peer that does not know the extensions cannot be told that nobody reads. What it sends is acknowledged until everything
    /// is delivered: else its application might wait for room to write, and never read what this end wrote.
    ///
    /// ```
    /// use kcp9::{KcpConfig, proto::{CloseReason, Connection, Event, Instant}};
    ///
    /// let (config, now) = (KcpConfig::default(), Instant::ZERO);
    /// let mut client = Connection::new(7, &config, now);
    /// client.write(now, b"the last words")?;
    /// client.drop_reader(now);
    /// assert_eq!(client.close_reason(), None, "they are still to be delivered");
    ///
    /// let mut server = Connection::new(7, &config, now);
    /// let mut buffer = vec![0; 65_536];
    /// let sent = client.poll_transmit(now, &mut buffer).ok_or("nothing is sent")?;
    /// server.handle_packet(now, &mut buffer[..sent.len])?;
    /// let acked = server.poll_transmit(now, &mut buffer).ok_or("no ACK is sent")?;
    /// client.handle_packet(now, &mut buffer[..acked.len])?;
    /// assert_eq!(client.close_reason(), Some(CloseReason::Finished));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drop_reader(&mut self, now: Instant) {
        if self.linger.is_zero() {
            self.abort(now, AbortReason::Application);
        }
        if self.reader_dropped || self.close_reason().is_some() {
            return;
        }
        self.reader_dropped = true;
        self.arq.discard_unread();
        self.datagrams.drop_unread();
        self.shutdown(now);
        self.arq.flush();
        self.check_ends();
    }

    /// Ends the session at once, with [`CloseReason::Aborted`]. A peer that knows the extensions learns of it, and why: one more
    /// packet is to be sent to it.
    pub fn abort(&mut self, _now: Instant, _reason: AbortReason) {
        self.close(CloseReason::Aborted);
    }

    /// Ends the session at once. The peer does not learn of it. Later calls fail with `reason`.
    pub fn close(&mut self, reason: CloseReason) {
        if self.close_reason().is_none() {
            self.state = State::Closed(reason);
            self.end_events.add(EndEvents::CLOSED);
        }
    }

    // ---- What is known ----

    /// Why the session has ended, `None` while it lives.
    #[must_use]
    pub const fn close_reason(&self) -> Option<CloseReason> {
        match self.state {
            State::Closed(reason) => Some(reason),
            _ => None,
        }
    }

    /// What became of a [`shutdown`](Self::shutdown), `None` while that is not known. It is known at the latest when the
    /// session ends. [`Event::Flushed`], [`Event::NoReader`] and
    /// [`Event::Closed`] tell when to ask.
    ///
    /// # Errors
    /// [`WriteError::NoReader`] when the peer dropped its stream before it had acknowledged everything, [`WriteError::Closed`] when
    /// the session ended before.
    #[must_use]
    pub const fn shutdown_result(&self) -> Option<Result<(), WriteError>> {
        match (self.delivery, self.state) {
            (Delivery::Done, _) => Some(Ok(())),
            (Delivery::GivenUp, _) => Some(Err(WriteError::NoReader)),
            (Delivery::Pending, State::Closed(reason)) => Some(Err(WriteError::Closed(reason))),
            (Delivery::Pending, _) => None,
        }
    }

    /// Whether the application has let go of the session: see [`drop_reader`](Self::drop_reader).
    #[must_use]
    pub const fn is_reader_dropped(&self) -> bool {
        self.reader_dropped
    }

    pub(super) const fn check_writable(&self) -> Result<(), WriteError> {
        match self.state {
            State::Established => Ok(()),
            State::Draining(_) | State::Flushed => Err(WriteError::ShutDown),
            State::Closed(CloseReason::Finished) => Err(WriteError::ShutDown),
            State::Closed(reason) => Err(WriteError::Closed(reason)),
        }
    }

    /// Why a read found nothing.
    pub(super) const fn nothing_to_read(&self) -> ReadError {
        match self.state {
            State::Closed(CloseReason::Finished) => ReadError::Finished,
            State::Closed(reason) => ReadError::Closed(reason),
            _ => ReadError::Blocked,
        }
    }

    // ---- Progress ----

    #[cold]
    pub(super) fn next_end_event(&mut self) -> Option<Event> {
        let events = &mut self.end_events;
        if events.take(EndEvents::FINISHED) {
            return Some(Event::Finished);
        }
        if events.take(EndEvents::FLUSHED) {
            return Some(Event::Flushed);
        }
        if events.take(EndEvents::NO_READER) {
            return Some(Event::NoReader);
        }
        let closed = events.take(EndEvents::CLOSED);
        self.close_reason().filter(|_| closed).map(Event::Closed)
    }

    /// Draws the conclusions for the end from what has come in, was sent, or was called.
    pub(super) fn check_ends(&mut self) {
        if self.reader_dropped {
            self.arq.discard_unread();
        }
        if matches!(self.state, State::Draining(_)) && self.arq.is_flushed() {
            self.state = State::Flushed;
            self.delivery = Delivery::Done;
            self.end_events.add(EndEvents::FLUSHED);
        }
        if self.is_finished() {
            self.close(CloseReason::Finished);
        }
    }

    /// Whether nothing is left to be done in either direction, and the peer has been told all.
    fn is_finished(&self) -> bool {
        self.reader_dropped && self.state == State::Flushed && self.arq.has_told_all()
    }
}
