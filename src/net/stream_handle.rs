//! What a stream, or its two halves, hold of a session. The last of them releases it.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use bytes::{BufMut, Bytes};
use tokio::{
    io::{Interest, ReadBuf, Ready},
    task::coop,
};

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
        let peer = self.session.peer();
        (peer.ip().to_canonical(), peer.port()).into()
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.session.shared.socket().local_addr())
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
        within_budget(cx, |cx| self.session.poll_write(cx, |connection, now| connection.send(now, message)))
    }

    pub(super) fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        within_budget(cx, |cx| self.session.poll_recv(cx))
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
        within_budget(cx, |cx| self.session.poll_write_bytes(cx, bytes))
    }

    pub(super) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        within_budget(cx, |cx| {
            self.session.poll_write(cx, |connection, now| write_vectored(connection, now, slices))
        })
    }

    // ---- Without waiting ----

    pub(super) fn poll_ready(&self, cx: &mut Context<'_>, interest: Interest) -> Poll<io::Result<Ready>> {
        let budget = ready!(coop::poll_proceed(cx));
        let ready = ready!(self.session.poll_ready(cx, interest));
        budget.made_progress();
        Poll::Ready(Ok(ready))
    }

    pub(super) fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(0));
        }
        within_budget(cx, |cx| self.session.poll_peek(cx, buf))
    }

    pub(super) fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let mut buf = ReadBuf::new(buf);
        at_once(|cx| self.session.poll_read(cx, &mut buf))?;
        Ok(buf.filled().len())
    }

    pub(super) fn try_read_vectored(&self, bufs: &mut [io::IoSliceMut<'_>]) -> io::Result<usize> {
        let mut read = 0;
        for buf in bufs.iter_mut().filter(|buf| !buf.is_empty()) {
            match self.try_read(buf) {
                Ok(count) => {
                    read += count;
                    if count < buf.len() {
                        break;
                    }
                }
                // The next call says it again.
                Err(_) if read > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    /// Reads into the spare capacity of `buf`, over a piece of the stack: to hand out the capacity itself, which is not
    /// initialised, takes `unsafe`.
    pub(super) fn try_read_buf(&self, buf: &mut impl BufMut) -> io::Result<usize> {
        let room = buf.chunk_mut().len();
        let mut piece = [0; 4_096];
        let mut read = 0;
        while read < room {
            let wanted = (room - read).min(piece.len());
            match self.try_read(&mut piece[..wanted]) {
                Ok(count) => {
                    buf.put_slice(&piece[..count]);
                    read += count;
                    if count < wanted {
                        break;
                    }
                }
                // The next call says it again.
                Err(_) if read > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        at_once(|cx| self.session.poll_write_bytes(cx, bytes))
    }

    pub(super) fn try_write_vectored(&self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        at_once(|cx| self.session.poll_write(cx, |connection, now| write_vectored(connection, now, slices)))
    }

    pub(super) fn try_send(&self, message: &[u8]) -> io::Result<()> {
        at_once(|cx| self.session.poll_write(cx, |connection, now| connection.send(now, message)))
    }

    pub(super) fn try_recv(&self) -> io::Result<Bytes> {
        at_once(|cx| self.session.poll_recv(cx))
    }

    pub(super) fn try_recv_datagram(&self) -> io::Result<Bytes> {
        self.session.try_recv_datagram()
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

fn write_vectored(
    connection: &mut Connection,
    now: Instant,
    slices: &[io::IoSlice<'_>],
) -> Result<usize, WriteError> {
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
}

/// Polls within the task's budget of Tokio: a stream that is always ready must not keep the other tasks waiting.
#[inline]
fn within_budget<R>(cx: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<R>) -> Poll<R> {
    let budget = ready!(coop::poll_proceed(cx));
    let outcome = poll(cx);
    if outcome.is_ready() {
        budget.made_progress();
    }
    outcome
}

/// Polls once, for a caller that does not wait. What would wait fails with `WouldBlock`.
fn at_once<R>(poll: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<R>>) -> io::Result<R> {
    match poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        self.session.release();
    }
}
