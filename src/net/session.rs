//! One session between its stream and its driver.
//!
//! Both work on the [`Connection`] under one short lock. Whoever changes it also transmits what has become sendable,
//! outside the lock; a flag keeps two from doing so at once, which would reorder packets. What cannot be done on the
//! spot (a full socket, an earlier deadline, a session to be removed) is left to the driver by putting the session on
//! its run queue.

mod datagrams;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    vec::Vec,
};

use bytes::Bytes;
use tokio::io::ReadBuf;

use super::{clock, error::Failure, shared::Shared, socket, waiters::Waiters, wake_list::WakeList};
use crate::{
    crypto::PacketCrypto,
    proto::{Block, CloseReason, Connection, Event, Instant, ReadError, Transmit, WriteError},
};

/// Batches that one call sends before it leaves the rest to the driver's next turn.
const MAX_BATCHES: usize = 8;
/// Bytes of a buffer that are initialised before it is known that there is as much to read.
const MIN_READ: usize = 2_048;
/// How long every send may fail before the session gives up: longer than a change of network.
const SEND_FAILURE_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);
/// And how many sends that must be.
const MIN_SEND_FAILURES: u32 = 4;

#[derive(Debug)]
pub(super) struct Session {
    pub(super) peer: SocketAddr,
    /// The local address that the peer talks to, where the socket is bound to all.
    local_ip: Option<IpAddr>,
    pub(super) conv: u32,
    pub(super) shared: Arc<Shared>,
    /// Whether it is in the driver's run queue.
    pub(super) scheduled: AtomicBool,
    /// The deadline that the driver will look at it, in microseconds; `u64::MAX` for none.
    armed: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    connection: Connection,
    /// Someone is transmitting outside the lock.
    transmitting: bool,
    /// A batch that found the socket full.
    blocked: Option<Blocked>,
    /// Since when every send has failed, and how many those are.
    failing: Option<(Instant, u32)>,
    /// Why calls fail, when it is not for the connection's own reason.
    failure: Option<Failure>,
    /// Everything written before a shutdown is acknowledged.
    flushed: bool,
    /// No stream refers to it any more.
    released: bool,
    readers: Waiters,
    datagram_readers: Waiters,
    writers: Waiters,
    /// Tasks that wait for a shutdown to complete.
    closers: Waiters,
}

#[derive(Debug)]
struct Blocked {
    bytes: Vec<u8>,
    transmit: Transmit,
}

/// What a driver should do about a session after it has served it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Look at it again at its deadline, if it has one.
    Wait(Option<Instant>),
    /// Look at it again at once: there is more to send.
    Again,
    /// Look at it again when the socket takes packets.
    Blocked,
    /// Forget it.
    Remove,
}

impl Session {
    pub(super) fn new(
        shared: Arc<Shared>,
        connection: Connection,
        peer: SocketAddr,
        local_ip: Option<IpAddr>,
    ) -> Self {
        Self {
            peer,
            local_ip,
            conv: connection.conv(),
            shared,
            scheduled: AtomicBool::new(false),
            armed: AtomicU64::new(u64::MAX),
            state: Mutex::new(State {
                connection,
                transmitting: false,
                blocked: None,
                failing: None,
                failure: None,
                flushed: false,
                released: false,
                readers: Waiters::default(),
                datagram_readers: Waiters::default(),
                writers: Waiters::default(),
                closers: Waiters::default(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics by design; if something did, the session's state is still the best there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at or changes the connection; transmits what that makes sendable if `transmit`.
    pub(super) fn with<R>(self: &Arc<Self>, transmit: bool, work: impl FnOnce(&mut Connection) -> R) -> R {
        let mut state = self.lock();
        let result = work(&mut state.connection);
        if transmit {
            self.transmit_and_leave(state, false);
        }
        result
    }

    // ---- The stream's side ----

    pub(super) fn poll_read(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut wakes = WakeList::default();
        let mut state = self.lock();
        // Initialise no more of a large buffer than is about to be filled.
        let wanted = buf.remaining().min(state.connection.readable_bytes().max(MIN_READ));
        match state.connection.read(buf.initialize_unfilled_to(wanted)) {
            Ok(count) => {
                buf.advance(count);
                self.after_read(state);
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                let waiting = state.wait_to_read(cx, error, &mut wakes);
                // Segments without bytes may have been taken.
                self.after_read(state);
                waiting
            }
        }
    }

    pub(super) fn poll_recv(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let mut wakes = WakeList::default();
        let mut state = self.lock();
        match state.connection.recv() {
            Ok(message) => {
                self.after_read(state);
                Poll::Ready(Ok(message))
            }
            Err(error) => state.wait_to_read(cx, error, &mut wakes),
        }
    }

    fn after_read(self: &Arc<Self>, state: MutexGuard<'_, State>) {
        if state.connection.has_window_update() {
            self.transmit_and_leave(state, false);
        }
    }

    /// Writes with `write`, transmits, and returns what it returned.
    pub(super) fn poll_write<R>(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Connection, Instant) -> Result<R, WriteError>,
    ) -> Poll<io::Result<R>> {
        let mut wakes = WakeList::default();
        let mut state = self.lock();
        let now = clock::now();
        match write(&mut state.connection, now) {
            Ok(result) => {
                // Behind data in flight, less than a batch of segments waits for the next write to share its system
                // call, unless the driver comes first.
                let (mut state, next) = self.transmit(state, now, true);
                state.collect_events(&mut wakes);
                drop(state);
                self.leave_to_driver(next);
                Poll::Ready(Ok(result))
            }
            Err(WriteError::Blocked) => {
                state.writers.add(cx.waker(), &mut wakes);
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(state.error_or(error.into()))),
        }
    }

    /// Sends what is held back.
    pub(super) fn flush(self: &Arc<Self>) -> io::Result<()> {
        let mut state = self.lock();
        if state.connection.close_reason().is_some() {
            return Err(state.close_error());
        }
        // Most flushes follow a write that has sent it all.
        if state.connection.has_held_back() {
            state.connection.flush();
            self.transmit_and_leave(state, false);
        }
        Ok(())
    }

    /// Begins the shutdown, and waits for everything written to be acknowledged.
    pub(super) fn poll_shutdown(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut wakes = WakeList::default();
        let now = clock::now();
        let mut state = self.lock();
        if !state.flushed && state.connection.close_reason().is_some() {
            return Poll::Ready(Err(state.close_error()));
        }
        state.connection.shutdown(now);
        state.collect_events(&mut wakes);
        if state.flushed {
            return Poll::Ready(Ok(()));
        }
        state.closers.add(cx.waker(), &mut wakes);
        self.transmit_and_leave(state, false);
        Poll::Pending
    }

    /// Begins a shutdown that nobody waits for.
    pub(super) fn start_shutdown(self: &Arc<Self>) {
        let now = clock::now();
        self.with(true, |connection| connection.shutdown(now));
    }

    /// The stream is gone: one last chance for what can be sent at once, ACKs above all, and out with the session.
    pub(super) fn release(self: &Arc<Self>) {
        let mut wakes = WakeList::default();
        let mut state = self.lock();
        state.released = true;
        state.connection.flush();
        let (mut state, _) = self.transmit(state, clock::now(), false);
        // Where the driver is at it, it comes to these ACKs too, and ends the session when it next looks.
        if !state.transmitting {
            state.end(&mut wakes);
        }
        drop(state);
        self.leave_to_driver(Next::Remove);
    }

    /// Whether it has ended, or no stream refers to it any more.
    pub(super) fn is_over(&self) -> bool {
        let state = self.lock();
        state.released || state.connection.close_reason().is_some()
    }

    /// Ends the session: everything pending fails with `failure`.
    pub(super) fn fail(&self, failure: Failure) {
        let mut wakes = WakeList::default();
        let mut state = self.lock();
        state.fail(failure);
        state.collect_events(&mut wakes);
    }

    // ---- The driver's side ----

    /// Takes in the decrypted packets in `block[range]`, `stride` bytes each (the last may be shorter), and counts those
    /// dropped.
    pub(super) fn receive(&self, now: Instant, block: &Block, range: Range<usize>, stride: usize) {
        let drops = self.lock().connection.handle_batch(now, block, range, stride);
        let counters = &self.shared.counters;
        if drops.replayed > 0 {
            counters.dropped_replayed.add(drops.replayed);
        }
        if drops.malformed > 0 {
            counters.dropped_malformed.add(drops.malformed);
        }
    }

    /// How its packets are encrypted.
    pub(super) fn crypto(&self) -> Option<PacketCrypto> {
        self.lock().connection.crypto().cloned()
    }

    /// Does what is due, wakes whom it concerns, and transmits.
    pub(super) fn serve(&self, now: Instant) -> Next {
        let mut wakes = WakeList::default();
        let mut state = self.lock();
        self.armed.store(u64::MAX, Ordering::Relaxed);
        if state.released {
            let (mut state, _) = self.transmit(state, clock::now(), false);
            state.end(&mut wakes);
            return Next::Remove;
        }
        state.connection.handle_timeout(now);
        state.collect_events(&mut wakes);
        let deadline = state.connection.poll_timeout();
        if state.is_quiet() && deadline.is_none_or(|at| at > now) {
            // What was received needs no answer yet: the application may have one.
            return self.arm(deadline);
        }
        // Before the system calls: the reader can start on another core.
        drop(state);
        wakes.wake_all();
        let state = self.lock();
        // By a clock read under the lock: the application may have sent since `now`, and time must not run backwards.
        let (mut state, next) = self.transmit(state, clock::now(), false);
        state.collect_events(&mut wakes);
        if state.connection.close_reason().is_some() {
            // Its stream reads what had arrived; its peer may begin anew.
            return Next::Remove;
        }
        match next {
            Next::Wait(deadline) => self.arm(deadline),
            next => next,
        }
    }

    /// Takes note, under the lock, of the deadline that the driver will keep.
    fn arm(&self, deadline: Option<Instant>) -> Next {
        self.armed.store(deadline.map_or(u64::MAX, Instant::as_micros), Ordering::Relaxed);
        Next::Wait(deadline)
    }

    /// Gives back the memory kept for further traffic.
    pub(super) fn trim(&self) {
        self.lock().connection.trim();
    }

    // ---- Both ----

    /// Sends what is sendable. The lock is let go of for each system call.
    fn transmit<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        now: Instant,
        corked: bool,
    ) -> (MutexGuard<'a, State>, Next) {
        if state.transmitting {
            // Whoever is at it looks again before it stops.
            return (state, Next::Wait(None));
        }
        if let Some(blocked) = state.blocked.take()
            && !self.send_blocked(&mut state, now, blocked)
        {
            return (state, Next::Blocked);
        }
        state.transmitting = true;
        let (mut state, next) = socket::with_transmit_buffer(|buffer| {
            for _ in 0..MAX_BATCHES {
                let Some(transmit) = state.connection.transmit(now, buffer, corked) else {
                    let next = state.next(corked);
                    return (state, next);
                };
                let first = state.connection.take_sent_first();
                drop(state);
                self.shared.note_sent_first(&first);
                let mut sent = 0;
                let outcome = self.shared.send(self.peer, self.local_ip, transmit, buffer, &mut sent);
                state = self.lock();
                match outcome {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        let bytes = buffer[sent..transmit.len].to_vec();
                        let transmit = Transmit { len: bytes.len(), ..transmit };
                        state.blocked = Some(Blocked { bytes, transmit });
                        return (state, Next::Blocked);
                    }
                    outcome => state.note_send(now, outcome),
                }
            }
            (state, Next::Again)
        });
        state.transmitting = false;
        (state, next)
    }

    /// Sends a batch that found the socket full, or the rest of it; returns whether that is no more.
    #[cold]
    fn send_blocked(&self, state: &mut State, now: Instant, mut blocked: Blocked) -> bool {
        let mut sent = 0;
        let outcome = self.shared.send(self.peer, self.local_ip, blocked.transmit, &blocked.bytes, &mut sent);
        if outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            blocked.bytes.drain(..sent);
            blocked.transmit.len -= sent;
            state.blocked = Some(blocked);
            return false;
        }
        state.note_send(now, outcome);
        true
    }

    /// Sends what is sendable in the application's own task, tells whom it concerns, and leaves the rest to the driver.
    fn transmit_and_leave(self: &Arc<Self>, state: MutexGuard<'_, State>, corked: bool) {
        let mut wakes = WakeList::default();
        let (mut state, next) = self.transmit(state, clock::now(), corked);
        state.collect_events(&mut wakes);
        drop(state);
        self.leave_to_driver(next);
    }

    /// Puts the session in the driver's run queue if it has to do something about it, or sooner than it plans to.
    fn leave_to_driver(self: &Arc<Self>, next: Next) {
        match next {
            Next::Wait(None) => return,
            Next::Wait(Some(at)) => {
                let at = at.as_micros();
                if self.armed.fetch_min(at, Ordering::Relaxed) <= at {
                    return;
                }
            }
            Next::Again | Next::Blocked | Next::Remove => {}
        }
        self.shared.schedule(self);
    }
}

impl State {
    /// What is left to do once there is nothing more to transmit.
    fn next(&self, corked: bool) -> Next {
        if corked && self.connection.has_sendable() {
            return Next::Again;
        }
        Next::Wait(self.connection.poll_timeout())
    }

    /// Whether the session lives, and there is nothing to transmit, nor anybody at it.
    fn is_quiet(&self) -> bool {
        !self.transmitting
            && self.blocked.is_none()
            && self.connection.close_reason().is_none()
            && self.connection.is_quiet()
    }

    /// Hands the wakers of those whom the connection's events concern to `wakes`.
    fn collect_events(&mut self, wakes: &mut WakeList) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Readable => self.readers.take_into(wakes),
                Event::DatagramReadable => self.datagram_readers.take_into(wakes),
                Event::Writable => self.writers.take_into(wakes),
                Event::Flushed => {
                    self.flushed = true;
                    self.closers.take_into(wakes);
                }
                // To be seen in the stats.
                Event::Fec(_) => {}
                Event::Closed(_) => {
                    self.readers.take_into(wakes);
                    self.datagram_readers.take_into(wakes);
                    self.writers.take_into(wakes);
                    self.closers.take_into(wakes);
                }
            }
        }
    }

    fn wait_to_read<R>(
        &mut self,
        cx: &mut Context<'_>,
        error: ReadError,
        wakes: &mut WakeList,
    ) -> Poll<io::Result<R>> {
        if error == ReadError::Blocked {
            self.readers.add(cx.waker(), wakes);
            return Poll::Pending;
        }
        Poll::Ready(Err(self.error_or(error.into())))
    }

    /// Why the session failed, or `error`.
    fn error_or(&self, error: io::Error) -> io::Error {
        match &self.failure {
            Some(failure) if self.connection.close_reason().is_some() => failure.to_io(),
            _ => error,
        }
    }

    /// Why the session, which has ended, has.
    fn close_error(&self) -> io::Error {
        let reason = self.connection.close_reason().unwrap_or(CloseReason::Aborted);
        self.error_or(reason.into())
    }

    /// Ends it for want of a stream. Others may still wait for its datagrams.
    fn end(&mut self, wakes: &mut WakeList) {
        self.connection.close(CloseReason::Aborted);
        self.collect_events(wakes);
        self.blocked = None;
    }

    fn fail(&mut self, failure: Failure) {
        if self.connection.close_reason().is_none() {
            self.failure = Some(failure);
            self.connection.close(CloseReason::Aborted);
        }
    }

    /// A send that failed lost its packets, as any may be; only when none has succeeded for a while is it over.
    fn note_send(&mut self, now: Instant, outcome: io::Result<()>) {
        match outcome {
            Ok(()) => self.failing = None,
            Err(error) => self.note_send_error(now, &error),
        }
    }

    #[cold]
    fn note_send_error(&mut self, now: Instant, error: &io::Error) {
        let (since, count) = self.failing.get_or_insert((now, 0));
        *count += 1;
        if now - *since >= SEND_FAILURE_LIMIT && *count >= MIN_SEND_FAILURES {
            self.fail(Failure::from_io(error));
        }
    }
}
