//! The handle of a stream.

use core::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};
use std::{io, sync::Arc};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{StreamKey, shared::Shared};

/// One of the streams of a [`MuxSession`](super::MuxSession). `tokio::io::split` makes two halves of it.
///
/// * Reads return what has come, then 0 once the peer has ended its direction. The errors are [`MuxError`](super::MuxError)s inside
///   of `io::Error`s.
/// * Writes wait while the session's [`send_buffer`](super::MuxConfigBuilder::send_buffer) is full, and in version 2 while the peer's
///   window is. Each takes one frame at most.
/// * `flush` waits until the transport has what was written, and has flushed it.
/// * `shutdown` ends this direction behind what was written, and waits as `flush` does. Reading goes on.
/// * Dropping it ends both directions: what was written is still sent.
pub struct MuxStream {
    shared: Arc<Shared>,
    key: StreamKey,
}

impl MuxStream {
    pub(super) fn new(shared: &Arc<Shared>, key: StreamKey) -> Self {
        Self { shared: Arc::clone(shared), key }
    }

    /// The stream's id on the wire: odd where the client opened it, even where the server did.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.shared.locked(|state, _| state.core.id(self.key)).unwrap_or_default()
    }
}

impl AsyncRead for MuxStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.shared.poll_read(cx, self.key, buf).map_err(Into::into)
    }
}

impl AsyncWrite for MuxStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.shared.poll_write(cx, self.key, bytes).map_err(Into::into)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.poll_flush(cx, self.key, false).map_err(Into::into)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.poll_flush(cx, self.key, true).map_err(Into::into)
    }
}

impl Drop for MuxStream {
    fn drop(&mut self) {
        self.shared.drop_stream(self.key);
    }
}

impl fmt::Debug for MuxStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MuxStream").field("id", &self.id()).finish_non_exhaustive()
    }
}
