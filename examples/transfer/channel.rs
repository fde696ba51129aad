//! Messages over a byte stream, with signs of life in between.

use std::{io, sync::Arc, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::Mutex,
    task::JoinHandle,
    time,
};

use super::protocol::{MAX_BODY, Message};

/// One end of a transfer: the two halves of its stream, and a task that sends [`Message::Alive`].
pub(crate) struct Channel<R, W> {
    pub(crate) incoming: Incoming<R>,
    pub(crate) outgoing: Arc<Outgoing<W>>,
    heartbeat: JoinHandle<()>,
}

impl<R, W> Channel<R, W>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin + Send + 'static,
{
    /// `timeout` is how long the peer may be silent.
    pub(crate) fn new(reader: R, writer: W, timeout: Duration) -> Self {
        let outgoing = Arc::new(Outgoing { writer: Mutex::new(writer) });
        let heartbeat = tokio::spawn(send_alive(Arc::clone(&outgoing), timeout / 5));
        Self { incoming: Incoming { reader, buffer: BytesMut::new(), timeout }, outgoing, heartbeat }
    }

    pub(crate) async fn send(&self, message: &Message) -> io::Result<()> {
        self.outgoing.send(&message.encode()).await
    }

    /// See [`Incoming::next`].
    pub(crate) async fn next(&mut self) -> io::Result<Message> {
        self.incoming.next().await
    }

    /// Waits until the peer has acknowledged everything.
    pub(crate) async fn shutdown(&self) -> io::Result<()> {
        self.heartbeat.abort();
        self.outgoing.writer.lock().await.shutdown().await
    }
}

impl<R, W> Drop for Channel<R, W> {
    fn drop(&mut self) {
        self.heartbeat.abort();
    }
}

/// The messages that come in.
pub(crate) struct Incoming<R> {
    pub(crate) reader: R,
    buffer: BytesMut,
    timeout: Duration,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    /// The next message; skips [`Message::Alive`]. Safe to cancel.
    ///
    /// # Errors
    /// `TimedOut` when the peer is silent for the timeout, `UnexpectedEof` when the stream ends, `InvalidData` for bytes that
    /// are no message.
    pub(crate) async fn next(&mut self) -> io::Result<Message> {
        loop {
            match Message::decode(&mut self.buffer)? {
                Some(Message::Alive) => continue,
                Some(message) => return Ok(message),
                None => {}
            }
            if self.buffer.capacity() - self.buffer.len() < READ_ROOM / 4 {
                self.buffer.reserve(READ_ROOM);
            }
            let count = time::timeout(self.timeout, self.reader.read_buf(&mut self.buffer)).await.map_err(
                |_| io::Error::new(io::ErrorKind::TimedOut, "nothing was heard from the other end"),
            )??;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// The messages that go out: one at a time, each whole.
pub(crate) struct Outgoing<W> {
    writer: Mutex<W>,
}

impl<W: AsyncWrite + Unpin> Outgoing<W> {
    /// Writes one encoded message. May be cancelled only if nothing is sent afterwards.
    pub(crate) async fn send(&self, message: &[u8]) -> io::Result<()> {
        self.writer.lock().await.write_all(message).await
    }
}

/// Tells the peer that this end is alive while it hashes, waits for its disk or has nothing to send. Does nothing while a
/// message is being written: that shows it as well.
async fn send_alive<W: AsyncWrite + Unpin>(outgoing: Arc<Outgoing<W>>, period: Duration) {
    let alive = Message::Alive.encode();
    loop {
        time::sleep(period).await;
        if let Ok(mut writer) = outgoing.writer.try_lock()
            && writer.write_all(&alive).await.is_err()
        {
            return;
        }
    }
}

/// Two Data messages: a read rarely ends in the middle of one.
const READ_ROOM: usize = 2 * MAX_BODY;
