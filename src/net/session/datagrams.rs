//! A session's datagrams, between its stream and its driver.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use tokio::task::coop;

use super::{Session, state::State};
use crate::{
    net::{error::KcpError, handover::Next, wake_list::WakeList},
    proto::DatagramSendError,
};

impl Session {
    /// Queues a datagram and sends it. While another task sends, or the socket is full, it stays queued and goes next.
    pub(in crate::net) fn send_datagram(self: &Arc<Self>, datagram: &[u8]) -> io::Result<()> {
        self.act(|mut state, wakes| match state.connection.send_datagram(datagram) {
            // Corked: bytes of the stream that wait for the next write go on waiting.
            Ok(()) => (Ok(()), self.transmit(state, wakes, true)),
            Err(error) => (Err(state.error_or(error)), Next::Wait(None)),
        })
    }

    pub(in crate::net) fn poll_recv_datagram(&self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let budget = ready!(coop::poll_proceed(cx));
        let outcome = self.handover.locked(|mut state, wakes| state.poll_recv_datagram(cx, wakes));
        if outcome.is_ready() {
            budget.made_progress();
        }
        outcome
    }

    pub(in crate::net) fn try_recv_datagram(&self) -> io::Result<Bytes> {
        let mut cx = Context::from_waker(Waker::noop());
        match self.handover.locked(|mut state, wakes| state.poll_recv_datagram(&mut cx, wakes)) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(in crate::net) fn max_datagram_len(&self) -> Option<usize> {
        self.handover.locked(|state, _| state.connection.max_datagram_len())
    }
}

impl State {
    fn poll_recv_datagram(&mut self, cx: &mut Context<'_>, wakes: &mut WakeList) -> Poll<io::Result<Bytes>> {
        if let Some(datagram) = self.connection.recv_datagram() {
            return Poll::Ready(Ok(datagram));
        }
        if self.connection.close_reason().is_some() {
            return Poll::Ready(Err(self.close_error()));
        }
        if !self.connection.has_datagrams() {
            return Poll::Ready(Err(KcpError::from(DatagramSendError::Disabled).into()));
        }
        self.datagram_readers.add(cx.waker(), wakes);
        Poll::Pending
    }
}
