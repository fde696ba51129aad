//! The handle of a session.

use core::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};
use std::sync::Arc;

use futures_core::Stream;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{MuxConfig, MuxError, MuxRole, MuxStats, MuxStream, driver::Driver, shared::Shared};

/// Many streams over one transport: see the [module](super).
///
/// Cloned handles are of the same session. It lives until it is [closed](Self::close) or fails, or all handles of it and of its
/// streams are gone; then what was written is still sent, in the background. When the last handle of the session itself is gone, no
/// more streams of the peer are accepted.
///
/// As a [`Stream`](futures_core::Stream) it yields what [`accept`](Self::accept) returns, and ends with the session.
pub struct MuxSession {
    shared: Arc<Shared>,
}

impl MuxSession {
    /// The end that began the transport's connection: it opens streams with odd ids.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    #[must_use]
    pub fn client<T>(transport: T, config: MuxConfig) -> Self
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        Self::new(transport, config, MuxRole::Client)
    }

    /// The end that accepted the transport's connection: it opens streams with even ids.
    ///
    /// # Panics
    /// Outside of a Tokio runtime.
    #[must_use]
    pub fn server<T>(transport: T, config: MuxConfig) -> Self
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        Self::new(transport, config, MuxRole::Server)
    }

    fn new<T>(transport: T, config: MuxConfig, role: MuxRole) -> Self
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        let shared = Shared::new(config, role);
        tokio::spawn(Driver::new(transport, Arc::clone(&shared)));
        Self { shared }
    }

    /// Opens a stream. It waits while more than twice the [`send_buffer`](super::MuxConfigBuilder::send_buffer) is to be sent, but not
    /// for the peer's answer: smux has none.
    ///
    /// # Errors
    /// The reason why the session has ended; [`MuxError::IdsExhausted`].
    pub async fn open(&self) -> Result<MuxStream, MuxError> {
        poll_fn(|cx| self.poll_open(cx)).await
    }

    /// As [`open`](Self::open).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn poll_open(&self, cx: &mut Context<'_>) -> Poll<Result<MuxStream, MuxError>> {
        self.shared.poll_open(cx).map_ok(|key| MuxStream::new(&self.shared, key))
    }

    /// The next stream that the peer opens. Several tasks may wait for one.
    ///
    /// # Errors
    /// The reason why the session has ended, once the streams that had come were accepted.
    pub async fn accept(&self) -> Result<MuxStream, MuxError> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`accept`](Self::accept).
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Result<MuxStream, MuxError>> {
        self.shared.poll_accept(cx).map_ok(|key| MuxStream::new(&self.shared, key))
    }

    /// Ends the session: no more streams are opened, the transport gets what was written, and is shut down. It returns when that is
    /// done. Streams that are still open fail with [`MuxError::Closed`], when they have read what had come. Their peers see them cut off,
    /// but for those that were shut down.
    ///
    /// # Errors
    /// The reason why the session has ended before, or ends meanwhile; [`MuxError::Dead`] when the transport takes nothing for
    /// [`dead_timeout`](super::MuxConfigBuilder::dead_timeout).
    pub async fn close(&self) -> Result<(), MuxError> {
        poll_fn(|cx| self.shared.poll_close(cx)).await
    }

    /// Ends the session at once, and drops the transport. What was not written to it is lost.
    pub fn abort(&self) {
        self.shared.locked(|state, _| state.core.fail(MuxError::Aborted));
    }

    /// Waits until the session has ended; returns why.
    pub async fn closed(&self) -> MuxError {
        poll_fn(|cx| self.shared.poll_ended(cx)).await
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> MuxStats {
        self.shared.locked(|state, _| state.core.stats())
    }
}

impl Stream for MuxSession {
    type Item = MuxStream;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<MuxStream>> {
        self.poll_accept(cx).map(Result::ok)
    }
}

impl Clone for MuxSession {
    fn clone(&self) -> Self {
        self.shared.add_session();
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for MuxSession {
    fn drop(&mut self) {
        self.shared.drop_session();
    }
}

impl fmt::Debug for MuxSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MuxSession").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
