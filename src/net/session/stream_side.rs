//! What the application's calls do with a session: reads, writes, flushes, shutdowns, and letting go of it.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use bytes::Bytes;
use tokio::io::ReadBuf;

use super::{Guard, Session};
use crate::{
    net::{clock, handover::Next, wake_list::WakeList},
    proto::{CloseReason, Connection, Instant, ReadError, WriteError},
};

impl Session {
    pub(in crate::net) fn poll_read(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.act(|mut state, wakes| {
            let room = buf.remaining();
            let outcome = match state.connection.read_with(|bytes| buf.put_slice(bytes), room) {
                Ok(_) => Poll::Ready(Ok(())),
                // Nothing is filled: the end of the stream.
                Err(ReadError::Finished) if state.is_eof() => Poll::Ready(Ok(())),
                Err(error) => state.wait_to_read(cx, error, wakes),
            };
            // Also after an error: segments without bytes may have been taken, and make room.
            (outcome, self.tell_window(state, wakes))
        })
    }

    pub(in crate::net) fn poll_recv(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        self.act(|mut state, wakes| {
            let outcome = match state.connection.recv() {
                Ok(message) => Poll::Ready(Ok(message)),
                Err(error) => state.wait_to_read(cx, error, wakes),
            };
            (outcome, self.tell_window(state, wakes))
        })
    }

    /// After a read: tells the peer if there is room again where there was little.
    #[inline]
    pub(super) fn tell_window(&self, state: Guard<'_>, wakes: &mut WakeList) -> Next {
        if state.connection.has_window_update() {
            self.transmit(state, wakes, false)
        } else {
            Next::Wait(None)
        }
    }

    /// Writes as many of `bytes` as there is room for, and sends.
    pub(in crate::net) fn poll_write_bytes(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.act(|mut state, wakes| match write_kept(&mut state, bytes) {
            Some(next) => (Poll::Ready(Ok(bytes.len())), next),
            None => self.write_and_send(cx, state, wakes, |connection, now| connection.write(now, bytes)),
        })
    }

    /// Writes with `write`, sends, and returns what `write` returned.
    pub(in crate::net) fn poll_write<R>(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Connection, Instant) -> Result<R, WriteError>,
    ) -> Poll<io::Result<R>> {
        self.act(|state, wakes| self.write_and_send(cx, state, wakes, write))
    }

    #[inline]
    fn write_and_send<R>(
        &self,
        cx: &mut Context<'_>,
        mut state: Guard<'_>,
        wakes: &mut WakeList,
        write: impl FnOnce(&mut Connection, Instant) -> Result<R, WriteError>,
    ) -> (Poll<io::Result<R>>, Next) {
        let now = clock::now();
        match write(&mut state.connection, now) {
            Ok(result) => (Poll::Ready(Ok(result)), self.transmit_at(state, now, wakes, true)),
            Err(WriteError::Blocked) => {
                state.writers.add(cx.waker(), wakes);
                (Poll::Pending, Next::Wait(None))
            }
            Err(error) => (Poll::Ready(Err(state.error_or(error))), Next::Wait(None)),
        }
    }

    /// Sends what waits for further writes.
    pub(in crate::net) fn flush(self: &Arc<Self>) -> io::Result<()> {
        self.act(|mut state, wakes| {
            match state.connection.close_reason() {
                None => {}
                Some(CloseReason::Finished) => return (Ok(()), Next::Wait(None)),
                Some(_) => return (Err(state.close_error()), Next::Wait(None)),
            }
            // Most flushes follow a write that has sent everything.
            if !state.connection.has_held_back() {
                return (Ok(()), Next::Wait(None));
            }
            state.connection.flush();
            (Ok(()), self.transmit(state, wakes, false))
        })
    }

    /// Begins the shutdown, and waits until the peer has acknowledged everything written, and that this was all if it understands
    /// that.
    pub(in crate::net) fn poll_shutdown(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.act(|mut state, wakes| {
            state.connection.shutdown(clock::now());
            let outcome = match state.connection.shutdown_result() {
                Some(outcome) => Poll::Ready(outcome.map_err(|error| state.error_or(error))),
                None => {
                    state.closers.add(cx.waker(), wakes);
                    Poll::Pending
                }
            };
            (outcome, self.transmit(state, wakes, false))
        })
    }

    /// Begins a shutdown that nobody waits for.
    pub(in crate::net) fn start_shutdown(self: &Arc<Self>) {
        self.with(true, |connection| connection.shutdown(clock::now()));
    }

    /// The stream is gone. Sends what can be sent at once, and leaves to the driver what is still to be delivered.
    pub(in crate::net) fn release(self: &Arc<Self>) {
        // Before the driver finds the session in the run queue.
        self.released.store(true, Ordering::Release);
        let _entered = self.trace.enter();
        let ended = self
            .handover
            .release(|state| self.send_batches(state, clock::now(), false), || self.shared.schedule(self));
        if ended {
            self.count_abandoned();
        }
    }
}

/// Takes a write that is kept for further ones, whole. `None` if it is not such a one.
#[inline]
fn write_kept(state: &mut Guard<'_>, bytes: &[u8]) -> Option<Next> {
    if state.blocked.is_some() || !state.connection.write_kept(bytes) {
        return None;
    }
    // Who is sending takes it along, or leaves it to the driver.
    Some(if state.is_transmitting() { Next::Wait(None) } else { state.next(true) })
}
