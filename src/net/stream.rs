//! The application's handle of a session.

use std::{
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{ToSocketAddrs, lookup_host},
    task::coop,
};

use super::{
    datagrams::KcpDatagrams,
    endpoint, entropy,
    session::Session,
    shared::Shared,
    socket::Socket,
    split::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf},
    stats::EndpointStats,
};
use crate::proto::{Connection, Instant, KcpConfig, SessionSettings, Stats, WriteError};

/// A reliable, ordered stream of bytes (or messages) to a peer, over UDP.
///
/// It has a `TcpStream`'s manners where the protocol allows: reads and writes wait and are safe to cancel, a full peer
/// holds the writer back, and [`shutdown`](tokio::io::AsyncWrite::poll_shutdown) returns when the peer has acknowledged
/// everything. Two things differ, because KCP has no segment for them:
///
/// * **Connecting** sends nothing. A peer that is not there shows once data has waited for
///   [`dead_timeout`](crate::KcpConfigBuilder::dead_timeout): every call then fails with `TimedOut`.
/// * **Closing** is not told to the peer. Applications say in their own bytes where their data ends; reads never return
///   0 bytes. Dropping a stream releases everything at once, unacknowledged data included: call `shutdown` first.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use kcp9::{KcpConfig, KcpListener, KcpStream};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
/// let mut client = KcpStream::connect(listener.local_addr()?, KcpConfig::default()).await?;
/// client.write_all(b"hello").await?;
///
/// let (mut server, _) = listener.accept().await?;
/// let mut hello = [0; 5];
/// server.read_exact(&mut hello).await?;
/// assert_eq!(&hello, b"hello");
///
/// client.shutdown().await?;
/// # Ok(())
/// # }
/// ```
pub struct KcpStream {
    handle: Arc<Handle>,
}

/// What a stream, or its two halves, hold of a session; the last one releases it.
#[derive(Debug)]
pub(super) struct Handle {
    session: Arc<Session>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.session.release();
    }
}

/// Whether the system knows a way to `peer`. Nothing is sent.
fn has_route(any: SocketAddr, peer: SocketAddr) -> io::Result<()> {
    std::net::UdpSocket::bind(any)?.connect(peer)
}

impl KcpStream {
    pub(super) fn new(session: Arc<Session>) -> Self {
        Self { handle: Arc::new(Handle { session }) }
    }

    pub(super) const fn from_handle(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    /// Opens a socket and on it a stream to the first of the addresses that `addr` resolves to and the system knows a way
    /// to, with a random conv. Nothing is sent until something is written: whether anyone answers there shows only then.
    ///
    /// # Errors
    /// Those of resolving the address and of the socket; `Other` outside a Tokio runtime.
    pub async fn connect<A: ToSocketAddrs>(addr: A, config: KcpConfig) -> io::Result<Self> {
        Self::connect_with_conv(addr, entropy::conv()?, config).await
    }

    /// As [`connect`](Self::connect), with a conv that both ends know.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_with_conv<A: ToSocketAddrs>(
        addr: A,
        conv: u32,
        config: KcpConfig,
    ) -> io::Result<Self> {
        let mut outcome = Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to connect to"));
        for peer in lookup_host(addr).await? {
            let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let any: SocketAddr = any.parse().map_err(io::Error::other)?;
            outcome = has_route(any, peer)
                .and_then(|()| Socket::bind(any))
                .and_then(|socket| Self::over(socket, peer, conv, &config));
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Takes over a socket, with its options as they are, for one stream to `peer`.
    ///
    /// # Errors
    /// Those of the socket; `InvalidInput` when it cannot reach `peer`'s kind of address; `Other` outside a Tokio
    /// runtime.
    pub fn from_socket(
        socket: std::net::UdpSocket,
        peer: SocketAddr,
        conv: u32,
        config: KcpConfig,
    ) -> io::Result<Self> {
        Self::over(Socket::from_std(socket)?, peer, conv, &config)
    }

    fn over(socket: Socket, peer: SocketAddr, conv: u32, config: &KcpConfig) -> io::Result<Self> {
        let shared = Shared::start(socket, None)?;
        let stream = endpoint::open(&shared, peer, conv, config);
        shared.run_queue.remove_owner();
        stream
    }

    /// Sends one message, whole; the peer's [`recv`](Self::recv) returns it as it is. Cancelling it sends nothing.
    ///
    /// # Errors
    /// `InvalidInput` for no bytes or more than 255 segments' worth; else as writes.
    pub async fn send(&self, message: &[u8]) -> io::Result<()> {
        std::future::poll_fn(|cx| self.handle.poll_send(cx, message)).await
    }

    /// Receives the next whole message; from a peer that writes a stream, what one segment carried. It is not copied
    /// when its segments arrived in order. Cancelling it loses nothing.
    ///
    /// # Errors
    /// As reads.
    pub async fn recv(&self) -> io::Result<Bytes> {
        std::future::poll_fn(|cx| self.handle.poll_recv(cx)).await
    }

    /// Sends a datagram beside the stream, to a peer that knows them: whole, once, and without waiting for anything. It
    /// may be lost, overtake others, and arrive more than once where nothing is encrypted. While the socket is full it waits in
    /// a queue of [`datagram_queue`](crate::KcpConfigBuilder::datagram_queue) bytes, from which newer ones drive it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// use kcp9::{KcpConfig, KcpListener, KcpStream};
    /// use tokio::io::AsyncWriteExt;
    ///
    /// let config = KcpConfig::builder().datagram_queue(65_536).build()?;
    /// let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await?;
    /// let mut client = KcpStream::connect(listener.local_addr()?, config).await?;
    /// client.write_all(b"hello").await?; // opens the session: no datagram does
    ///
    /// let (server, _) = listener.accept().await?;
    /// server.send_datagram(b"tick")?;
    /// assert_eq!(client.recv_datagram().await?, "tick");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unsupported` where none are configured, `InvalidInput` past [`max_datagram_len`](Self::max_datagram_len),
    /// `BrokenPipe` after a shutdown; else as writes.
    pub fn send_datagram(&self, datagram: &[u8]) -> io::Result<()> {
        self.handle.session.send_datagram(datagram)
    }

    /// Receives the datagram that has waited longest. Where the queue is full, the oldest make room for new ones. Cancelling
    /// it loses nothing.
    ///
    /// # Errors
    /// `Unsupported` where none are configured; else as reads.
    pub async fn recv_datagram(&self) -> io::Result<Bytes> {
        std::future::poll_fn(|cx| self.handle.session.poll_recv_datagram(cx)).await
    }

    /// The longest datagram that can be sent now, in bytes: 12 less than the mtu leaves behind encryption. `None` when none
    /// can be: they are not configured, or the session is shut down or has ended.
    #[must_use]
    pub fn max_datagram_len(&self) -> Option<usize> {
        self.handle.session.max_datagram_len()
    }

    /// A handle of the datagrams, for tasks of their own: reads and writes of bytes borrow the stream meanwhile.
    #[must_use]
    pub fn datagrams(&self) -> KcpDatagrams {
        KcpDatagrams::new(&self.handle.session)
    }

    /// Splits the stream into halves that borrow it.
    pub const fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        split::split(&self.handle)
    }

    /// Splits the stream into halves that own it together.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        split::into_split(self.handle)
    }

    /// The peer's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.handle.peer_addr()
    }

    /// The address that the socket is bound to.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.local_addr()
    }

    /// The conversation number.
    #[must_use]
    pub fn conv(&self) -> u32 {
        self.handle.session.conv
    }

    /// Counters and gauges of the session.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.handle.stats()
    }

    /// Counters of the socket and its driver, over all of its sessions.
    #[must_use]
    pub fn endpoint_stats(&self) -> EndpointStats {
        self.handle.session.shared.counters.snapshot()
    }

    /// The settings as they are now: those of the configuration, with the changes made since.
    #[must_use]
    pub fn settings(&self) -> SessionSettings {
        self.handle.settings()
    }

    /// Changes settings of the live session: `change` is given the present ones. They are applied together, or not at all
    /// where one of them is refused. What becomes sendable is sent at once.
    ///
    /// `change` runs under the session's lock: it must not call methods of this stream or its halves.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// use kcp9::{KcpConfig, KcpStream};
    ///
    /// let stream = KcpStream::connect("127.0.0.1:9", KcpConfig::default()).await?;
    /// stream.update_settings(|settings| {
    ///     settings.recv_window = 4_096;
    ///     settings.fec = (10, 3);
    /// })?;
    /// assert_eq!(stream.settings().recv_window, 4_096);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` for a value that the configuration would not take either, and while segments are queued or in flight
    /// that do not fit the new packets; see [`SettingError`](crate::proto::SettingError), which is the error's source.
    pub fn update_settings(&self, change: impl FnOnce(&mut SessionSettings)) -> io::Result<()> {
        self.handle.update_settings(change)
    }

    super::socket_options!(handle.session.shared);
}

impl Handle {
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

    pub(super) const fn session(&self) -> &Arc<Session> {
        &self.session
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

impl AsyncRead for KcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.handle.poll_read(cx, buf)
    }
}

impl AsyncWrite for KcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.handle.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.handle.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Sends what is held back; does not wait for it to arrive.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.handle.flush())
    }

    /// Waits until the peer has acknowledged everything, at most [`linger`](crate::KcpConfigBuilder::linger). Reading
    /// goes on.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.handle.poll_shutdown(cx)
    }
}

impl fmt::Debug for KcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KcpStream")
            .field("peer", &self.peer_addr())
            .field("conv", &self.conv())
            .finish_non_exhaustive()
    }
}
