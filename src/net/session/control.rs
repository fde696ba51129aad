//! What the application may ask of a session beside reading and writing: whether it is ready, whether the peer is there, how it
//! ended; and to end it.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{Interest, ReadBuf, Ready};

use super::{Session, state::State};
use crate::{
    net::{clock, error::KcpError, handle::End, wake_list::WakeList},
    proto::{AbortReason, ReadError, WriteError},
};

impl Session {
    /// Ends the session at once, and has the driver forget it.
    pub(in crate::net) fn abort(self: &Arc<Self>) {
        self.act(|mut state, wakes| {
            let now = clock::now();
            state.abort(now, None, AbortReason::Application);
            ((), self.transmit_at(state, now, wakes, false))
        });
        self.shared.schedule(self);
    }

    /// Ends the session at once: its endpoint does.
    pub(in crate::net) fn abort_with_endpoint(&self) {
        self.abort_for(KcpError::EndpointClosed, AbortReason::EndpointClosed);
    }

    /// Ends the session at once: the key of its packets is accepted no longer.
    pub(in crate::net) fn abort_with_key(&self) {
        self.abort_for(KcpError::KeyRetired, AbortReason::KeyRetired);
    }

    /// Ends the session at once. The driver sends what is to be said of it.
    fn abort_for(&self, failure: KcpError, reason: AbortReason) {
        let _entered = self.trace.enter();
        self.handover.locked(|mut state, wakes| {
            state.abort(clock::now(), Some(failure), reason);
            state.collect_events(wakes);
        });
    }

    /// Begins a shutdown, after which the session ends: its endpoint is shut down.
    pub(in crate::net) fn end_when_flushed(&self) {
        let _entered = self.trace.enter();
        self.handover.locked(|mut state, wakes| {
            state.ends_when_flushed = true;
            state.connection.shutdown(clock::now());
            if state.flushed {
                state.after_shutdown();
            }
            state.collect_events(wakes);
        });
    }

    /// Why the session has ended, if it has.
    pub(in crate::net) fn close_reason(&self) -> Option<KcpError> {
        self.handover.locked(|state, _| state.close_reason())
    }

    /// Waits until the session has ended.
    pub(in crate::net) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<KcpError> {
        self.handover.locked(|mut state, wakes| match state.close_reason() {
            Some(reason) => Poll::Ready(reason),
            None => {
                state.watchers.add(cx.waker(), wakes);
                Poll::Pending
            }
        })
    }

    /// Where the end of the session is noted for its handles. `new` makes it, for a peer at that address, under the lock.
    pub(in crate::net) fn end(&self, new: impl FnOnce(SocketAddr) -> End) -> Arc<End> {
        self.handover.locked(|mut state, _| {
            let peer = state.address.peer;
            let end = Arc::clone(state.end.get_or_insert_with(|| Arc::new(new(peer))));
            if let Some(reason) = state.close_reason() {
                end.set(reason, state.connection.stats());
            }
            end
        })
    }

    // ---- Whether the peer is there ----

    /// Begins to wait for the peer's first answer, and asks for it. What the network said before does not count.
    pub(in crate::net) fn begin_to_seek(self: &Arc<Self>) {
        self.act(|mut state, wakes| {
            state.seeks = !state.connection.is_connected();
            state.refused = false;
            state.connection.await_peer(clock::now());
            ((), self.transmit(state, wakes, false))
        });
    }

    /// Waits until the peer has answered.
    pub(in crate::net) fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = self.poll_answered(cx);
        if outcome.is_pending() && self.shared.is_refused() {
            self.note_refused();
            return self.poll_answered(cx);
        }
        outcome
    }

    fn poll_answered(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.handover.locked(|mut state, wakes| {
            if let Some(reason) = state.close_reason() {
                return Poll::Ready(Err(reason.into()));
            }
            if state.connection.is_connected() {
                return Poll::Ready(Ok(()));
            }
            if std::mem::take(&mut state.refused) {
                return Poll::Ready(Err(KcpError::Refused.into()));
            }
            state.watchers.add(cx.waker(), wakes);
            Poll::Pending
        })
    }

    /// The network says that nobody listens at the peer's address.
    pub(in crate::net) fn note_refused(&self) {
        let _entered = self.trace.enter();
        self.handover.locked(|mut state, wakes| {
            state.refused = true;
            state.connection.note_unreachable(clock::now());
            state.collect_events(wakes);
        });
    }

    // ---- Readiness ----

    /// Waits until a read or a write of the kinds in `interest` would not have to wait.
    pub(in crate::net) fn poll_ready(&self, cx: &mut Context<'_>, interest: Interest) -> Poll<Ready> {
        self.handover.locked(|mut state, wakes| {
            let mut ready = Ready::EMPTY;
            if interest.is_readable() {
                ready |= state.read_readiness();
            }
            if interest.is_writable() {
                ready |= state.write_readiness();
            }
            if !ready.is_empty() {
                return Poll::Ready(ready);
            }
            if interest.is_readable() {
                state.readers.add(cx.waker(), wakes);
            }
            if interest.is_writable() {
                state.writers.add(cx.waker(), wakes);
            }
            Poll::Pending
        })
    }

    pub(in crate::net) fn poll_peek(
        self: &Arc<Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        self.act(|mut state, wakes| {
            let wanted = buf.remaining().min(state.connection.readable_bytes());
            // Of no bytes nothing could be said, not even that there are none.
            let outcome = match state.connection.peek(buf.initialize_unfilled_to(wanted.max(1))) {
                Ok(count) => {
                    buf.advance(count);
                    Poll::Ready(Ok(count))
                }
                Err(ReadError::Finished) if state.is_eof() => Poll::Ready(Ok(0)),
                Err(error) => state.wait_to_read(cx, error, wakes),
            };
            (outcome, self.tell_window(state, wakes))
        })
    }
}

impl State {
    fn read_readiness(&self) -> Ready {
        match self.connection.read_ready() {
            // All that was left of a message that will not end, perhaps: a call will say.
            Ok(()) if self.connection.close_reason().is_some() => Ready::READABLE | Ready::READ_CLOSED,
            Ok(()) if !self.read_blocked => Ready::READABLE,
            Ok(()) | Err(ReadError::Blocked) => Ready::EMPTY,
            Err(_) => Ready::READABLE | Ready::READ_CLOSED,
        }
    }

    fn write_readiness(&mut self) -> Ready {
        match self.connection.write_ready() {
            Ok(()) => Ready::WRITABLE,
            Err(WriteError::Blocked) => Ready::EMPTY,
            Err(_) => Ready::WRITABLE | Ready::WRITE_CLOSED,
        }
    }

    /// Wakes the tasks that wait for the peer's first answer, if it is there, or shows that there will be none.
    #[cold]
    pub(super) fn wake_seekers(&mut self, wakes: &mut WakeList) {
        let answered = self.connection.is_connected();
        if answered || self.refused {
            self.seeks = !answered;
            self.watchers.take_into(wakes);
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let (Some(end), Some(reason)) = (&self.end, self.close_reason()) {
            end.set(reason, self.connection.stats());
        }
    }
}
