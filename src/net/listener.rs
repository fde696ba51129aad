//! Accepting sessions.

use std::{
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use tokio::net::ToSocketAddrs;

use super::{
    accept_queue::{AcceptQueue, Ended},
    endpoint::bind_first,
    error::Failure,
    shared::Shared,
    socket::Socket,
    stats::EndpointStats,
    stream::KcpStream,
};
use crate::proto::KcpConfig;

/// A UDP socket on which peers begin sessions.
///
/// A session begins with the first PUSH segment of a new conversation. One peer may have many sessions. The listener is also a
/// [`Stream`] of [`KcpStream`]s: its last item is the error that says why it ended. When the listener is dropped, the accepted
/// sessions go on; [`close`](Self::close) ends them.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use kcp9::{KcpConfig, KcpListener};
/// use tokio::io;
///
/// let listener = KcpListener::bind("0.0.0.0:4000", KcpConfig::default()).await?;
/// loop {
///     let (stream, peer) = listener.accept().await?;
///     tokio::spawn(async move {
///         let (mut reader, mut writer) = stream.into_split();
///         if let Err(error) = io::copy(&mut reader, &mut writer).await {
///             eprintln!("{peer}: {error}");
///         }
///     });
/// }
/// # }
/// ```
pub struct KcpListener {
    shared: Arc<Shared>,
    /// Whether the [`Stream`] has returned the error that is its last item.
    stream_ended: bool,
}

impl KcpListener {
    /// Listens on the first address that can be bound, of those that `addr` resolves to. Every accepted session has the
    /// configuration `config`.
    ///
    /// # Errors
    /// Those of resolving the address and of the socket; `Other` outside a Tokio runtime.
    pub async fn bind<A: ToSocketAddrs>(addr: A, config: KcpConfig) -> io::Result<Self> {
        let socket = bind_first(addr).await?;
        Self::start(socket, config)
    }

    /// Listens on a socket that the application made. The socket's options stay as they are.
    ///
    /// # Errors
    /// Those of the socket; `Other` outside a Tokio runtime.
    pub fn from_socket(socket: std::net::UdpSocket, config: KcpConfig) -> io::Result<Self> {
        Self::start(Socket::from_std(socket)?, config)
    }

    fn start(socket: Socket, config: KcpConfig) -> io::Result<Self> {
        Ok(Self { shared: Shared::start(socket, Some(AcceptQueue::new(config)))?, stream_ended: false })
    }

    /// Waits for the next session. A call that is cancelled loses none. Several tasks may wait at once.
    ///
    /// # Errors
    /// `ConnectionAborted` once the listener is closed.
    pub async fn accept(&self) -> io::Result<(KcpStream, SocketAddr)> {
        let stream = std::future::poll_fn(|cx| self.poll_accept(cx)).await?;
        let peer = stream.peer_addr();
        Ok((stream, peer))
    }

    /// The same as [`accept`](Self::accept), for use in a `poll` function.
    ///
    /// # Errors
    /// Those of [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<KcpStream>> {
        let waiting = match &self.shared.accept_queue {
            Some(queue) => queue.pop(cx.waker()),
            None => Err(Ended::Dropped),
        };
        match waiting {
            Ok(Some(session)) => Poll::Ready(Ok(KcpStream::new(session))),
            Ok(None) => Poll::Pending,
            Err(Ended::DriverGone) => Poll::Ready(Err(Failure::DriverGone.to_io())),
            Err(Ended::Closed | Ended::Dropped) => Poll::Ready(Err(Failure::ListenerClosed.to_io())),
        }
    }

    /// The address that the socket is bound to.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.shared.socket.local_addr()
    }

    /// Stops listening and ends the accepted sessions. Every call that waits, on them and in [`accept`](Self::accept), fails
    /// with `ConnectionAborted`.
    pub fn close(&self) {
        self.end(Ended::Closed);
    }

    fn end(&self, ended: Ended) {
        if let Some(queue) = &self.shared.accept_queue {
            for session in queue.end(ended) {
                session.release();
            }
        }
        self.shared.run_queue.wake_driver();
    }

    /// Counters of the socket and its driver.
    #[must_use]
    pub fn endpoint_stats(&self) -> EndpointStats {
        self.shared.counters.snapshot()
    }

    super::socket_options!(self => self.shared);
}

impl Stream for KcpListener {
    type Item = io::Result<KcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stream_ended {
            return Poll::Ready(None);
        }
        let accepted = ready!(self.poll_accept(cx));
        self.stream_ended = accepted.is_err();
        Poll::Ready(Some(accepted))
    }
}

impl Drop for KcpListener {
    fn drop(&mut self) {
        self.end(Ended::Dropped);
        self.shared.run_queue.remove_owner();
    }
}

impl fmt::Debug for KcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KcpListener").field("local_addr", &self.local_addr().ok()).finish_non_exhaustive()
    }
}
