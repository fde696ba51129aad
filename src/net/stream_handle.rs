//! What a stream, or its two halves, hold of a session. The last of them releases it.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::{io::ReadBuf, task::coop};

use super::session::Session;
use crate::proto::{Connection, Instant, SessionSettings, Stats, WriteError};

/// A stream's handle of its session: the calls that [`KcpStream`](super::KcpStream) and its halves have in common.
///
/// Reads and writes take part in Tokio's cooperative scheduling, as those of its own sockets do: a task that always finds
/// something to read is made to yield now and then.
#[derive(Debug)]
pub(super) struct StreamHandle {
    session: Arc<Session>,
}

impl StreamHandle {
    pub(super) const fn new(session: Arc<Session>) -> Self {
        Self { session }
    }

    pub(super) const fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(super) fn peer_addr(&self) -> SocketAddr {
        let peer = self.session.peer;
        (peer.ip().to_canonical(), peer.port()).into()
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.session.shared.socket.local_addr()
    }

    pub(super) fn settings(&self) -> SessionSettings {
        self.session.with(false, |connection| connection.settings())
    }

    pub(super) fn update_settings(&self, change: impl FnOnce(&mut SessionSettings)) -> io::Result<()> {
        Ok(self.session.with(true, |connection| connection.update_settings(change))?)
    }

    pub(super) fn stats(&self) -> Stats {
        self.session.with(false, |connection| connection.stats())
    }

    pub(super) fn poll_send(&self, cx: &mut Context<'_>, message: &[u8]) -> Poll<io::Result<()>> {
        self.poll_write_with(cx, |connection, now| connection.send(now, message))
    }

    pub(super) fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let budget = ready!(coop::poll_proceed(cx));
        let outcome = self.session.poll_recv(cx);
        if outcome.is_ready() {
            budget.made_progress();
        }
        outcome
    }

    pub(super) fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let budget = ready!(coop::poll_proceed(cx));
        ready!(self.session.poll_read(cx, buf))?;
        budget.made_progress();
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |connection, now| connection.write(now, bytes))
    }

    pub(super) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |connection, now| {
            let mut written = 0;
            for slice in slices.iter().filter(|slice| !slice.is_empty()) {
                match connection.write(now, slice) {
                    Ok(count) => {
                        written += count;
                        if count < slice.len() {
                            break;
                        }
                    }
                    Err(WriteError::Blocked) if written > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(written)
        })
    }

    fn poll_write_with<R>(
        &self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Connection, Instant) -> Result<R, WriteError>,
    ) -> Poll<io::Result<R>> {
        let budget = ready!(coop::poll_proceed(cx));
        let outcome = self.session.poll_write(cx, write);
        if outcome.is_ready() {
            budget.made_progress();
        }
        outcome
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        self.session.flush()
    }

    pub(super) fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.session.poll_shutdown(cx)
    }

    pub(super) fn start_shutdown(&self) {
        self.session.start_shutdown();
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        self.session.release();
    }
}
