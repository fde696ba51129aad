//! A stream: the application's side of a session.

mod readiness;

use std::{
    fmt,
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
    vec::Vec,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{ToSocketAddrs, lookup_host},
};

use super::{
    datagrams::KcpDatagrams,
    endpoint, entropy,
    error::KcpError,
    handle::KcpHandle,
    session::Session,
    shared::{Shared, Sharing},
    socket::Socket,
    split::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf},
    stats::EndpointStats,
    stream_handle::StreamHandle,
    udp_socket::{IntoUdpSocket, KcpSocket},
};
use crate::proto::{BufferMemory, KcpConfig, SessionSettings, Stats};

/// A reliable, ordered stream of bytes (or messages) to a peer, over UDP.
///
/// It behaves as a `TcpStream` where the protocol allows that. Reads and writes wait and are safe to cancel. A peer that does
/// not read holds the writer back. [`shutdown`](tokio::io::AsyncWrite::poll_shutdown) returns when the peer has acknowledged
/// everything, and the peer's reads then end behind the last byte. Two things differ:
///
/// * **Connecting** does not wait for the peer: data may leave with the first packet. [`connected`](Self::connected) and
///   [`connect_timeout`](Self::connect_timeout) wait. That nobody answers shows at the latest when the first packets have
///   waited for [`dead_timeout`](crate::KcpConfigBuilder::dead_timeout): from then on every call fails with `TimedOut`.
/// * **Dropping** a stream does not lose what was written: it is still delivered in the background, within
///   [`linger`](crate::KcpConfigBuilder::linger), as long as the runtime lives. A program that is about to end calls
///   `shutdown` first, which waits until everything has arrived.
///
/// Where the peer does not speak kcp9's [extensions](crate::Extensions) (kcp-go, ikcp and others), **closing is not told to it**,
/// and it does not tell. Applications then say in their own bytes where their data ends, and reads never return 0 bytes.
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
    pub(super) handle: Arc<StreamHandle>,
}

impl KcpStream {
    pub(super) fn new(session: Arc<Session>) -> Self {
        Self { handle: Arc::new(StreamHandle::new(session)) }
    }

    #[cfg(feature = "metrics")]
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.handle.session().shared
    }

    pub(super) const fn from_handle(handle: Arc<StreamHandle>) -> Self {
        Self { handle }
    }

    /// Makes a socket, and on it a stream with a random conv. Returns at once, whether or not anybody answers:
    /// [`connected`](Self::connected) waits for that, and [`connect_timeout`](Self::connect_timeout) does both.
    ///
    /// Of the addresses that `addr` resolves to, the first is taken to which the system knows a route and for which it gives a
    /// socket. That nobody answers there is not known yet, so no other is tried for that reason.
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
        let mut outcome = Err(no_address());
        for peer in lookup_host(addr).await? {
            outcome = Self::connect_to(peer, conv, &config, &[]);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Connects and waits until the peer has answered: [`connect`](Self::connect) with [`connected`](Self::connected).
    ///
    /// Of the addresses that `addr` resolves to, one after the other is tried until one answers. Each has an equal share of the time
    /// that is left, and a refusal by the network passes its turn on at once.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// use std::time::Duration;
    ///
    /// use kcp9::{KcpConfig, KcpStream};
    ///
    /// let config = KcpConfig::default();
    /// let stream = KcpStream::connect_timeout("kcp.example:4000", config, Duration::from_secs(5)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect) and [`connected`](Self::connected); of several addresses that of the last.
    pub async fn connect_timeout<A: ToSocketAddrs>(
        addr: A,
        config: KcpConfig,
        timeout: Duration,
    ) -> io::Result<Self> {
        let begun = Instant::now();
        let left = || timeout.saturating_sub(begun.elapsed());
        let resolved = tokio::time::timeout(timeout, lookup_host(addr)).await;
        let peers: Vec<_> = resolved.map_err(|_| KcpError::NoAnswer)??.collect();
        let mut outcome = Err(no_address());
        for (tried, peer) in peers.iter().enumerate() {
            let share = left() / (peers.len() - tried) as u32;
            let stream = Self::connect_to(*peer, entropy::conv()?, &config, &[]);
            outcome = match stream {
                Ok(stream) => stream.connected(share).await.map(|()| stream),
                Err(error) => Err(error),
            };
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Makes a stream to `peer` on a socket that the application made, with Tokio or the standard library. The socket's options stay
    /// as they are.
    ///
    /// # Errors
    /// Those of the socket; `InvalidInput` when it cannot reach `peer`'s kind of address; `Other` outside a Tokio
    /// runtime.
    pub fn from_socket(
        socket: impl IntoUdpSocket,
        peer: SocketAddr,
        conv: u32,
        config: KcpConfig,
    ) -> io::Result<Self> {
        Self::over(Socket::from_std(socket.into_udp_socket()?)?, peer, conv, &config, &[])
    }

    /// `early`: bytes for the first packet, where the session agrees on keys.
    pub(super) fn connect_to(
        peer: SocketAddr,
        conv: u32,
        config: &KcpConfig,
        early: &[u8],
    ) -> io::Result<Self> {
        let any: SocketAddr = if peer.is_ipv4() {
            (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
        };
        has_route(any, peer)?;
        Self::over(Socket::bind(any)?, peer, conv, config, early)
    }

    fn over(
        socket: Socket,
        peer: SocketAddr,
        conv: u32,
        config: &KcpConfig,
        early: &[u8],
    ) -> io::Result<Self> {
        let memory = BufferMemory::new(config.max_buffer_memory());
        let shared = Shared::start(socket, None, Sharing::OneStream, memory, None)?;
        let stream = endpoint::connect(&shared, peer, conv, config, early);
        // The driver ends with this stream.
        shared.run_queue.remove_owner();
        stream
    }

    // ---- Begin and end ----

    /// Waits until the peer has answered, for as long as `timeout`. Returns at once if it has answered before.
    ///
    /// If nothing was sent yet, the peer is asked for an answer, again and again. kcp-go answers always. ikcp answers if its
    /// program knows the session by then: many begin one only with the first data. A listener of this crate does not know a
    /// session before data has come, unless both ends have extensions.
    ///
    /// With `KcpConfigBuilder::noise` and a pattern of two messages, the peer has shown then that it is the right one, and
    /// begins its session with what comes next: a listener that was restarted in between, or that is full, knows nothing of it.
    ///
    /// After an error the stream can still be used, and waited for again, unless [`close_reason`](Self::close_reason) says that it
    /// has ended.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// use std::time::Duration;
    ///
    /// use kcp9::{KcpConfig, KcpListener, KcpStream};
    /// use tokio::io::AsyncWriteExt;
    ///
    /// let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
    /// let mut stream = KcpStream::connect(listener.local_addr()?, KcpConfig::default()).await?;
    /// stream.write_all(b"hello").await?;
    /// stream.connected(Duration::from_secs(5)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// * `ConnectionRefused` ([`KcpError::Refused`]) if the network says that nobody listens there. Linux, Android and Windows tell,
    ///   and only where the stream has a socket of its own. It is never told behind a firewall that drops packets.
    /// * `TimedOut` ([`KcpError::NoAnswer`]) if the time has passed.
    /// * Why the session has ended, if it has: with [`TimedOut`](io::ErrorKind::TimedOut) after
    ///   [`dead_timeout`](crate::KcpConfigBuilder::dead_timeout).
    pub async fn connected(&self, timeout: Duration) -> io::Result<()> {
        let session = self.handle.session();
        let _told = session.shared.tell_refusals();
        session.begin_to_seek();
        let waiting = poll_fn(|cx| session.poll_connected(cx));
        tokio::time::timeout(timeout, waiting).await.map_err(|_| KcpError::NoAnswer)?
    }

    /// Why the session has ended, `None` while it lives. What arrived before the end can still be read.
    #[must_use]
    pub fn close_reason(&self) -> Option<KcpError> {
        self.handle.session().close_reason()
    }

    /// Waits until the session has ended, and returns why. Other tasks may read and write meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// use kcp9::{KcpConfig, KcpError, KcpListener, KcpStream, proto::CloseReason};
    /// use tokio::io::AsyncReadExt;
    ///
    /// let mut stream = KcpStream::connect("127.0.0.1:9", KcpConfig::default()).await?;
    /// let handle = stream.handle();
    /// tokio::spawn(async move { handle.abort() });
    /// tokio::select! {
    ///     reason = stream.closed() => assert_eq!(reason, KcpError::Closed(CloseReason::Aborted)),
    ///     _ = tokio::time::sleep(std::time::Duration::from_secs(5)) => panic!("it lives"),
    /// }
    /// assert!(stream.read_u8().await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn closed(&self) -> KcpError {
        poll_fn(|cx| self.handle.session().poll_closed(cx)).await
    }

    /// Ends the session at once. What was written and is not sent yet is given up. Every call on the stream, its halves and its handles
    /// fails with `ConnectionAborted` from here on, but for reads of what has arrived.
    pub fn abort(&self) {
        self.handle.session().abort();
    }

    /// Says that this end has another address: the machine is in another network now, or its address has changed. Call it when the
    /// system reports that. The session goes on: the peer follows as soon as it has seen that nobody answers at the old address,
    /// which takes three of its retransmission timeouts, and what was lost meanwhile is sent again. Round-trip times and congestion
    /// control begin anew. Without this call the peer follows as well, but later: when something has been sent three times without
    /// an answer, or by [`keep_alive`](crate::KcpConfigBuilder::keep_alive).
    ///
    /// The socket must be able to send from the new address. One that [`connect`](Self::connect) has made can; one that the
    /// application has bound to an address can only as long as the machine has that address.
    ///
    /// A peer follows if it accepted the session, if both ends have the [extensions](crate::proto::Extensions), and if the cipher
    /// authenticates packets ([`is_authenticated`](crate::crypto::PacketCipher::is_authenticated)).
    ///
    /// ```
    /// use kcp9::{
    ///     KcpConfig, KcpListener, KcpStream,
    ///     crypto::{CipherKind, Framing, Key, PacketCrypto},
    ///     proto::Extensions,
    /// };
    /// # use std::time::Duration;
    /// # use tokio::io::{AsyncReadExt, AsyncWriteExt};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let cipher = CipherKind::Aes128Gcm.build(&Key::from_bytes(b"0123456789abcdef"), Framing::KcpGo)?;
    /// let crypto = PacketCrypto::with_os_nonces(cipher)?;
    /// let config = KcpConfig::builder().crypto(crypto).extensions(Extensions::Required).build()?;
    ///
    /// let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await?;
    /// let mut client = KcpStream::connect(listener.local_addr()?, config).await?;
    /// client.connected(Duration::from_secs(5)).await?;
    ///
    /// // The telephone leaves the house.
    /// client.network_changed()?;
    /// client.write_all(b"still here").await?;
    /// # let (mut server, _) = listener.accept().await?;
    /// # let mut bytes = [0; 10];
    /// # server.read_exact(&mut bytes).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unsupported` where the peer does not follow ([`KcpError::NotFollowed`]), and why the session has ended if it has.
    pub fn network_changed(&self) -> io::Result<()> {
        self.handle.session().network_changed()
    }

    /// Goes on over another socket, which the application made, with Tokio or the standard library: the machine is in another network
    /// now. The socket's options stay as they are. The session goes on as with [`network_changed`](Self::network_changed), which also
    /// says whose peers follow; the old socket is closed at once.
    ///
    /// ```no_run
    /// # use kcp9::KcpStream;
    /// # fn switch(stream: &KcpStream) -> std::io::Result<()> {
    /// // The address of the interface that has just come up.
    /// stream.rebind(std::net::UdpSocket::bind("192.0.2.7:0")?)
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unsupported` where the peer does not follow ([`KcpError::NotFollowed`]); `InvalidInput` where other streams share the socket
    /// ([`KcpError::SocketShared`], for which there is [`KcpEndpoint::rebind`](crate::KcpEndpoint::rebind)) and for a socket that is
    /// not of the same kind, IPv4 or IPv6 ([`KcpError::OtherFamily`]); those of the socket, and why the session has ended if it has.
    /// The stream then keeps the socket that it has.
    pub fn rebind(&self, socket: impl IntoUdpSocket) -> io::Result<()> {
        self.handle.session().rebind(Socket::from_std(socket.into_udp_socket()?)?)
    }

    /// A handle for statistics and control, which stays when the stream is given away.
    #[must_use]
    pub fn handle(&self) -> KcpHandle {
        KcpHandle::new(self.handle.session())
    }

    // ---- Messages and datagrams ----

    /// Sends one message as a whole, and waits while there is no room for it. The peer's [`recv`](Self::recv) returns the same
    /// bytes. A call that is cancelled has sent nothing.
    ///
    /// # Errors
    /// `InvalidInput` for a message of no bytes, or one that fills more than 255 segments. Otherwise those of a write.
    pub async fn send(&self, message: &[u8]) -> io::Result<()> {
        poll_fn(|cx| self.handle.poll_send(cx, message)).await
    }

    /// Receives the next whole message. From a peer that writes a byte stream, that is what one segment carried. Nothing is
    /// copied when the segments of a message arrived in order. A call that is cancelled loses nothing.
    ///
    /// # Errors
    /// Those of a read.
    pub async fn recv(&self) -> io::Result<Bytes> {
        poll_fn(|cx| self.handle.poll_recv(cx)).await
    }

    /// Sends a datagram beside the stream: whole, once, and without waiting. The peer must know datagrams too.
    ///
    /// A datagram may be lost or overtake others. Without encryption it may also arrive more than once. While the socket is
    /// full, datagrams wait in a queue of [`datagram_queue`](crate::KcpConfigBuilder::datagram_queue) bytes; when that is full
    /// too, the oldest are dropped for new ones.
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
    /// client.write_all(b"hello").await?; // begins the session: no datagram does
    ///
    /// let (server, _) = listener.accept().await?;
    /// server.send_datagram(b"tick")?;
    /// assert_eq!(client.recv_datagram().await?, "tick");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unsupported` if the configuration has no datagrams, `InvalidInput` for one longer than
    /// [`max_datagram_len`](Self::max_datagram_len), `BrokenPipe` after a shutdown. Otherwise those of a write.
    pub fn send_datagram(&self, datagram: &[u8]) -> io::Result<()> {
        self.handle.session().send_datagram(datagram)
    }

    /// Receives the datagram that has waited longest. They wait in a queue of
    /// [`datagram_queue`](crate::KcpConfigBuilder::datagram_queue) bytes; when it is full, the oldest are dropped for new ones.
    /// A call that is cancelled loses nothing.
    ///
    /// # Errors
    /// `Unsupported` if the configuration has no datagrams. Otherwise those of a read.
    pub async fn recv_datagram(&self) -> io::Result<Bytes> {
        poll_fn(|cx| self.handle.session().poll_recv_datagram(cx)).await
    }

    /// The longest datagram that can be sent now, in bytes: the mtu without what encryption needs and a header of 12 bytes.
    /// `None` if the configuration has no datagrams, and after a shutdown or the end of the session.
    #[must_use]
    pub fn max_datagram_len(&self) -> Option<usize> {
        self.handle.session().max_datagram_len()
    }

    /// A handle for datagrams alone. Another task can use it while reads and writes borrow the stream.
    #[must_use]
    pub fn datagrams(&self) -> KcpDatagrams {
        KcpDatagrams::new(self.handle.session())
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
    /// None so far. It is a result as that of [`TcpStream::local_addr`](tokio::net::TcpStream::local_addr) is.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.handle.local_addr()
    }

    /// The conversation number.
    #[must_use]
    pub fn conv(&self) -> u32 {
        self.handle.session().conv
    }

    /// Counters and gauges of the session.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.handle.stats()
    }

    /// Counters of the socket and its driver, over all of its sessions.
    #[must_use]
    pub fn endpoint_stats(&self) -> EndpointStats {
        self.handle.session().shared.stats()
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

    /// The UDP socket below, with its options. Other streams may share it.
    #[must_use]
    pub fn socket(&self) -> KcpSocket {
        KcpSocket::new(&self.handle.session().shared)
    }
}

/// Fails if the system knows no route to `peer`. Sends nothing.
fn has_route(any: SocketAddr, peer: SocketAddr) -> io::Result<()> {
    std::net::UdpSocket::bind(any)?.connect(peer)
}

pub(super) fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no address to connect to")
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

    /// Sends what waits for further writes. Does not wait for it to arrive.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.handle.flush())
    }

    /// Waits until the peer has acknowledged everything, but no longer than [`linger`](crate::KcpConfigBuilder::linger).
    /// Reading goes on.
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
