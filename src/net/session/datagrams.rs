//! A session's datagrams, between its stream and its driver.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use tokio::task::coop;

use super::{Guard, Session};
use crate::{
    net::{error::KcpError, handover::Next, wake_list::WakeList},
    proto::{CloseReason, DatagramSendError},
};

impl Session {
    /// Queues a datagram and sends it. While another task sends, or the socket is full, it stays queued and goes next.
    pub(in crate::net) fn send_datagram(self: &Arc<Self>, datagram: &[u8]) -> io::Result<()> {
        self.act(|mut state, wakes| {
            if state.is_released() {
                return (Err(state.error_or(CloseReason::Aborted)), Next::Wait(None));
            }
            match state.connection.send_datagram(datagram) {
                // Corked: bytes of the stream that wait for the next write go on waiting.
                Ok(()) => (Ok(()), self.transmit(state, wakes, true)),
                Err(error) => (Err(state.error_or(error)), Next::Wait(None)),
            }
        })
    }

    pub(in crate::net) fn poll_recv_datagram(&self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let budget = ready!(coop::poll_proceed(cx));
        let outcome = self.handover.locked(|mut state, wakes| next_datagram(&mut state, cx, wakes));
        if outcome.is_ready() {
            budget.made_progress();
        }
        outcome
    }

    pub(in crate::net) fn try_recv_datagram(&self) -> io::Result<Bytes> {
        let mut cx = Context::from_waker(Waker::noop());
        match self.handover.locked(|mut state, wakes| next_datagram(&mut state, &mut cx, wakes)) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(in crate::net) fn max_datagram_len(&self) -> Option<usize> {
        self.handover.locked(|state, _| state.connection.max_datagram_len())
    }
}

/// Has a task wait for a datagram. A handle of the datagrams does not keep the stream: without one, it ends.
fn next_datagram(
    state: &mut Guard<'_>,
    cx: &mut Context<'_>,
    wakes: &mut WakeList,
) -> Poll<io::Result<Bytes>> {
    if let Some(datagram) = state.connection.recv_datagram() {
        return Poll::Ready(Ok(datagram));
    }
    if state.is_released() {
        return Poll::Ready(Err(state.error_or(CloseReason::Aborted)));
    }
    if state.connection.close_reason().is_some() {
        return Poll::Ready(Err(state.close_error()));
    }
    if !state.connection.has_datagrams() {
        return Poll::Ready(Err(KcpError::from(DatagramSendError::Disabled).into()));
    }
    state.datagram_readers.add(cx.waker(), wakes);
    Poll::Pending
}
