//! The application's handle for the datagrams of a session.

use std::{
    fmt, io,
    sync::{Arc, Weak},
    task::{Context, Poll},
};

use bytes::Bytes;

use super::{error::KcpError, session::Session};
use crate::proto::CloseReason;

/// Sends and receives the datagrams of a [`KcpStream`](crate::KcpStream), in tasks of their own while others read and write its
/// bytes. From [`KcpStream::datagrams`](crate::KcpStream::datagrams).
///
/// It does not keep the session alive: after the stream is dropped, every call fails with `ConnectionAborted`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use kcp9::{KcpConfig, KcpListener, KcpStream};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let config = KcpConfig::builder().datagram_queue(65_536).build()?;
/// let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await?;
/// let mut client = KcpStream::connect(listener.local_addr()?, config).await?;
/// client.write_all(b"hello").await?;
///
/// let (mut server, _) = listener.accept().await?;
/// let datagrams = server.datagrams();
/// let echo = tokio::spawn(async move {
///     while let Ok(datagram) = datagrams.recv().await {
///         datagrams.send(&datagram)?;
///     }
///     Ok::<_, std::io::Error>(())
/// });
/// client.send_datagram(b"there and back")?;
/// server.read_exact(&mut [0; 5]).await?;
/// assert_eq!(client.recv_datagram().await?, "there and back");
/// drop(server);
/// echo.await??;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct KcpDatagrams {
    session: Weak<Session>,
}

impl KcpDatagrams {
    pub(super) fn new(session: &Arc<Session>) -> Self {
        Self::of(Arc::downgrade(session))
    }

    pub(super) const fn of(session: Weak<Session>) -> Self {
        Self { session }
    }

    /// Sends a datagram: see [`KcpStream::send_datagram`](crate::KcpStream::send_datagram).
    ///
    /// # Errors
    /// Those of [`KcpStream::send_datagram`](crate::KcpStream::send_datagram).
    pub fn send(&self, datagram: &[u8]) -> io::Result<()> {
        self.session()?.send_datagram(datagram)
    }

    /// Receives a datagram: see [`KcpStream::recv_datagram`](crate::KcpStream::recv_datagram).
    ///
    /// # Errors
    /// Those of [`KcpStream::recv_datagram`](crate::KcpStream::recv_datagram).
    pub async fn recv(&self) -> io::Result<Bytes> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The same as [`recv`](Self::recv), for use in a `poll` function.
    ///
    /// # Errors
    /// Those of [`recv`](Self::recv).
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        self.session()?.poll_recv_datagram(cx)
    }

    /// Receives a datagram, if one is there: see [`KcpStream::try_recv_datagram`](crate::KcpStream::try_recv_datagram).
    ///
    /// # Errors
    /// Those of [`KcpStream::try_recv_datagram`](crate::KcpStream::try_recv_datagram).
    pub fn try_recv(&self) -> io::Result<Bytes> {
        self.session()?.try_recv_datagram()
    }

    /// The longest datagram that can be sent now, in bytes: see
    /// [`KcpStream::max_datagram_len`](crate::KcpStream::max_datagram_len).
    #[must_use]
    pub fn max_len(&self) -> Option<usize> {
        self.session.upgrade()?.max_datagram_len()
    }

    fn session(&self) -> io::Result<Arc<Session>> {
        self.session.upgrade().ok_or_else(|| KcpError::from(CloseReason::Aborted).into())
    }
}

impl fmt::Debug for KcpDatagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let conv = self.session.upgrade().map(|session| session.conv);
        f.debug_struct("KcpDatagrams").field("conv", &conv).finish_non_exhaustive()
    }
}
