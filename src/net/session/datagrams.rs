//! A session's datagrams, between its stream and its driver.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::task::coop;

use super::{Session, State};
use crate::{net::wake_list::WakeList, proto::DatagramSendError};

impl Session {
    /// Queues a datagram and transmits it, unless somebody is transmitting or the socket is full: then it goes next.
    pub(in crate::net) fn send_datagram(self: &Arc<Self>, datagram: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        if let Err(error) = state.connection.send_datagram(datagram) {
            return Err(state.error_or(error.into()));
        }
        // What the stream holds back for the next write is not sent for it.
        self.transmit_and_leave(state, true);
        Ok(())
    }

    pub(in crate::net) fn poll_recv_datagram(&self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let budget = ready!(coop::poll_proceed(cx));
        let mut wakes = WakeList::default();
        let outcome = self.lock().poll_recv_datagram(cx, &mut wakes);
        if outcome.is_ready() {
            budget.made_progress();
        }
        outcome
    }

    pub(in crate::net) fn max_datagram_len(&self) -> Option<usize> {
        self.lock().connection.max_datagram_len()
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
            return Poll::Ready(Err(DatagramSendError::Disabled.into()));
        }
        self.datagram_readers.add(cx.waker(), wakes);
        Poll::Pending
    }
}
