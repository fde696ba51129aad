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
    extension::Knowledge,
    time::{Instant, Micros},
    trace::tell,
};

/// Rare events that [`Connection::poll_event`] has not returned yet, one bit each. They are rare, so that one look at all of
/// them is enough for a session that goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EndEvents(u8);

impl EndEvents {
    pub(super) const NONE: Self = Self(0);
    pub(super) const FLUSHED: Self = Self(1);
    pub(super) const NO_READER: Self = Self(2);
    pub(super) const FINISHED: Self = Self(4);
    pub(super) const CLOSED: Self = Self(8);
    pub(super) const MOVED: Self = Self(16);
    pub(super) const VALIDATED: Self = Self(32);

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
        self.state = State::Draining;
        self.linger_since = Some(now);
        if let Some(extension) = self.extension.as_mut() {
            extension.ends.shutdown();
            extension.settle(now);
        }
        self.check_ends(now);
    }

    /// Ends both directions, for an application that is gone. Everything written is still delivered, as after
    /// [`shutdown`](Self::shutdown), and what has arrived or still arrives is dropped.
    ///
    /// The session closes itself with [`CloseReason::Finished`] once everything is acknowledged, and with
    /// [`CloseReason::LingerTimeout`] if that takes longer than [`linger`](crate::KcpConfigBuilder::linger). With a `linger` of
    /// zero it is aborted.
    ///
    /// A peer that knows the extensions is told that nobody reads as soon as all that was written has been sent; its writes fail
    /// then. What it sends before, and all that another peer sends, is acknowledged: else its application might wait for room to
    /// write, and never read what this end wrote.
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
        if self.linger == Micros::ZERO {
            self.abort(now, AbortReason::Application);
        }
        if self.reader_dropped || self.close_reason().is_some() {
            return;
        }
        self.reader_dropped = true;
        self.datagrams.drop_unread();
        if let Some(extension) = self.extension.as_mut() {
            extension.ends.drop_reader();
        }
        self.shutdown(now);
        self.linger_since.get_or_insert(now);
        if self.is_unanswered()
            && let Some(extension) = self.extension.as_mut()
        {
            extension.give_up();
        }
        self.arq.flush();
        self.check_ends(now);
        #[cfg(feature = "noise")]
        if self.is_asking() && self.arq.is_flushed() {
            // Nobody waits for keys any more, and nothing for who would get them.
            self.close(CloseReason::Aborted);
        }
    }

    /// Ends the session at once, with [`CloseReason::Aborted`]. A peer that knows the extensions learns of it, and why: one more
    /// packet is to be sent to it.
    pub fn abort(&mut self, _now: Instant, reason: AbortReason) {
        self.close_telling(CloseReason::Aborted, reason);
    }

    /// Ends the session at once. The peer does not learn of it. Later calls fail with `reason`.
    pub fn close(&mut self, reason: CloseReason) {
        if self.close_reason().is_none() {
            self.state = State::Closed(reason);
            self.end_events.add(EndEvents::CLOSED);
            tell!(ended(self, reason));
            if let Some(extension) = self.extension.as_mut() {
                extension.close();
            }
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

    #[inline]
    pub(super) fn check_writable(&self) -> Result<(), WriteError> {
        if self.state == State::Established { Ok(()) } else { Err(self.why_not_writable()) }
    }

    #[cold]
    fn why_not_writable(&self) -> WriteError {
        match self.state {
            State::Refused => WriteError::NoReader,
            State::Closed(CloseReason::Finished) if self.has_peer_no_reader() => WriteError::NoReader,
            State::Closed(reason) if reason != CloseReason::Finished => WriteError::Closed(reason),
            _ => WriteError::ShutDown,
        }
    }

    /// Why a read found nothing.
    pub(super) fn nothing_to_read(&self) -> ReadError {
        match self.state {
            _ if self.is_eof() => ReadError::Finished,
            State::Closed(CloseReason::Finished) => ReadError::Finished,
            State::Closed(reason) => ReadError::Closed(reason),
            _ => ReadError::Blocked,
        }
    }

    /// Whether everything that the peer wrote has arrived, and it has said so.
    pub(super) fn is_eof(&self) -> bool {
        self.extension.as_ref().is_some_and(|extension| extension.ends.is_eof())
    }

    fn has_peer_no_reader(&self) -> bool {
        self.extension.as_ref().is_some_and(|extension| extension.ends.has_peer_no_reader())
    }

    /// What is known of a peer that may have extensions.
    fn knowledge(&self) -> Knowledge {
        self.extension.as_ref().map_or(Knowledge::Legacy, |extension| extension.knowledge())
    }

    // ---- Progress ----

    #[cold]
    pub(super) fn next_end_event(&mut self) -> Option<Event> {
        let events = &mut self.end_events;
        if events.take(EndEvents::MOVED) {
            let to = self.extension.as_mut()?.take_moved()?;
            tell!(peer_moved(to));
            return Some(Event::Moved(to));
        }
        if events.take(EndEvents::VALIDATED) {
            return Some(Event::Validated);
        }
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
    #[inline]
    pub(super) fn check_ends(&mut self, now: Instant) {
        let has_news = !self.extension.is_at_rest()
            && self.extension.as_ref().is_some_and(|extension| extension.ends.has_news());
        if self.state != State::Established || has_news {
            self.conclude_ends(now);
        }
    }

    #[inline(never)]
    fn conclude_ends(&mut self, now: Instant) {
        if self.reader_dropped {
            self.drop_received(now);
        }
        if self.close_reason().is_some() {
            // What came again is acknowledged again, at once.
            self.arq.flush();
            return;
        }
        self.conclude_extension_ends(now);
        if self.state == State::Draining && (self.is_delivered() || self.has_waited_in_vain(now)) {
            self.state = State::Flushed;
            self.set_delivered();
        }
        if self.delivery == Delivery::Done && !self.reader_dropped {
            self.linger_since = None;
        }
        if self.is_finished() {
            self.close(CloseReason::Finished);
            if let Some(extension) = self.extension.as_mut().filter(|_| self.reader_dropped) {
                extension.ends.finish_without_reader();
            }
        }
    }

    /// The same, as far as the peer knows of it.
    fn conclude_extension_ends(&mut self, now: Instant) {
        let Some(extension) = self.extension.as_mut() else { return };
        if extension.knowledge() == Knowledge::Asking && self.arq.has_heard() {
            // Also if it had been given up.
            extension.settle(now);
        }
        if extension.ends.on_arrival(self.arq.rcv_nxt()) {
            self.end_events.add(EndEvents::FINISHED);
            // The peer waits for nothing else.
            self.arq.flush();
        }
        if extension.ends.has_peer_no_reader() && matches!(self.state, State::Established | State::Draining) {
            self.on_no_reader(now);
        } else if extension.ends.is_ending()
            && extension.speaks_ends()
            && self.arq.is_all_sent()
            && !self.datagrams.has_unsent()
        {
            extension.ends.on_all_sent(self.arq.snd_nxt());
        }
    }

    /// Nobody reads at the peer's end: gives up what it has not acknowledged.
    fn on_no_reader(&mut self, now: Instant) {
        if self.arq.is_flushed() {
            self.set_delivered();
        } else {
            self.delivery = Delivery::GivenUp;
            self.arq.abandon(now);
        }
        self.datagrams.drop_unsent();
        self.writable |= core::mem::take(&mut self.write_blocked);
        self.end_events.add(EndEvents::NO_READER);
        self.state = State::Refused;
    }

    /// Everything written is with the peer.
    fn set_delivered(&mut self) {
        self.delivery = Delivery::Done;
        if self.state != State::Established {
            self.end_events.add(EndEvents::FLUSHED);
        }
    }

    /// Drops what has arrived for an application that is gone, and has what follows refused, if the peer can be told that nobody
    /// reads it.
    fn drop_received(&mut self, now: Instant) {
        match self.knowledge() {
            Knowledge::Legacy | Knowledge::Unknown => {
                self.arq.accept_all();
                self.arq.discard_unread();
            }
            // What waits for room in the peer's window waits for the peer's application to read, and that may wait for room to
            // write. It is told that nobody reads as soon as the rest is sent.
            _ if !self.arq.is_all_sent() => self.arq.discard_unread(),
            Knowledge::Asking | Knowledge::Known | Knowledge::Confirmed => {
                self.arq.refuse();
                let is_over = self.close_reason().is_some();
                let Some(extension) = self.extension.as_mut() else { return };
                let (ends, rto) = (&mut extension.ends, self.arq.rto());
                if ends.on_refused(self.arq.refused(), rto) && is_over {
                    ends.repeat_abort(now, rto);
                }
            }
        }
    }

    /// Whether a shutdown is done.
    fn is_delivered(&self) -> bool {
        let told = match self.extension.as_ref() {
            None => true,
            Some(extension) => match extension.knowledge() {
                Knowledge::Legacy => true,
                // Nothing that was heard tells. If the peer has extensions after all, it is told when that is known.
                Knowledge::Unknown => !extension.is_marked(),
                // The first ACK tells. A peer that has extensions is to learn of the end, too.
                Knowledge::Asking => false,
                Knowledge::Known | Knowledge::Confirmed => extension.ends.is_write_over(),
            },
        };
        told && self.arq.is_flushed()
    }

    /// Whether nothing is left to be done in either direction, and the peer has been told all.
    fn is_finished(&self) -> bool {
        if !matches!(self.state, State::Flushed | State::Refused) || !self.arq.has_told_all() {
            return false;
        }
        match (self.extension.as_ref(), self.knowledge()) {
            (Some(extension), Knowledge::Known | Knowledge::Confirmed) => {
                let ends = &extension.ends;
                (self.reader_dropped || ends.is_eof()) && ends.is_write_over() && !ends.owes_answer()
            }
            (_, Knowledge::Legacy) => self.reader_dropped,
            // Its HELLO may be late.
            _ => false,
        }
    }

    // ---- Time ----

    /// Ends the session because its time is over.
    pub(super) fn expire(&mut self, reason: CloseReason) {
        match reason {
            // Everything was delivered, and nobody said that more was wanted.
            CloseReason::LingerTimeout
                if self.delivery == Delivery::Done && self.knowledge() == Knowledge::Unknown =>
            {
                self.close(CloseReason::Finished);
            }
            CloseReason::LingerTimeout | CloseReason::IdleTimeout => {
                self.close_telling(reason, AbortReason::TimedOut);
            }
            _ => self.close(reason),
        }
    }

    /// When a session that was shut down ends at the latest.
    ///
    /// It may be sooner than after `linger`. Where nothing was written, a peer that nothing was heard of is hardly there: then the
    /// shutdown is done, and the session ends if the application is gone. A peer of which nothing tells whether it has
    /// extensions may have lost its HELLO, and sends it again as soon as it has heard of this end.
    pub(super) fn linger_until(&self) -> Option<Instant> {
        let since = self.linger_since?;
        let rto = self.arq.rto();
        let is_doubtful = match self.knowledge() {
            Knowledge::Asking => self.is_unanswered(),
            Knowledge::Unknown => self.reader_dropped && self.delivery == Delivery::Done,
            _ => false,
        };
        let linger = self.linger.get();
        Some(since + if is_doubtful { linger.min(DOUBTFUL_RTOS * rto) } else { linger })
    }

    /// Whether nothing was heard of the peer, and it owes nothing.
    fn is_unanswered(&self) -> bool {
        self.arq.is_flushed() && !self.arq.has_heard()
    }

    /// Whether a shutdown has waited long enough for a peer that may not be there, with nothing for it. Nothing can be lost. If the
    /// peer answers later, it is still told of the end.
    fn has_waited_in_vain(&self, now: Instant) -> bool {
        !self.reader_dropped
            && self.knowledge() == Knowledge::Asking
            && self.is_unanswered()
            && self.linger_until().is_some_and(|at| at <= now)
    }

    /// Ends the session at once, and has a peer that understands it told why.
    fn close_telling(&mut self, reason: CloseReason, abort: AbortReason) {
        if self.close_reason().is_none() {
            self.close(reason);
            if let Some(extension) = self.extension.as_mut() {
                extension.ends.abort(abort);
            }
        }
    }

    // ---- After the end ----

    /// Whether packets are still taken in. A session that has ended answers a peer that understands it: as its record does, once
    /// it has been handed to an [`Endpoint`](crate::proto::Endpoint).
    #[inline]
    pub(super) fn listens(&self) -> bool {
        match self.state {
            State::Closed(reason) => self.answers_after(reason),
            _ => true,
        }
    }

    #[cold]
    fn answers_after(&self, reason: CloseReason) -> bool {
        let speaks = self.extension.as_ref().is_some_and(|extension| extension.speaks_ends());
        let silent = matches!(
            reason,
            CloseReason::AbortedByPeer(_)
                | CloseReason::Reset
                | CloseReason::Refused
                | CloseReason::NonceLimit
                | CloseReason::SealFailed(_)
        );
        speaks && !silent
    }

    /// Whether a session that has ended has something of the peer to acknowledge once more.
    #[cold]
    pub(super) fn answers_resends(&self, reason: CloseReason) -> bool {
        reason == CloseReason::Finished && self.extension.is_some() && !self.arq.has_told_all()
    }
}

/// How many RTOs a session that has nothing to deliver waits for a peer that may not be there, or not have extensions.
const DOUBTFUL_RTOS: u32 = 8;
