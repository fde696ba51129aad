//! Accepting sessions.

use std::{
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
    vec::Vec,
};

use futures_core::Stream;
use tokio::net::ToSocketAddrs;

use super::{
    endpoint::KcpEndpoint,
    error::KcpError,
    stats::EndpointStats,
    stream::KcpStream,
    udp_socket::{IntoUdpSocket, KcpSocket},
};
use crate::{crypto::PacketCrypto, proto::KcpConfig};

/// A UDP socket on which peers begin sessions.
///
/// A session begins with the first PUSH segment of a new conversation. One peer may have many sessions. The listener is also a
/// [`Stream`] of [`KcpStream`]s, which ends when the listener does; where that was not the application's wish, its last item is the
/// error that says why.
///
/// How it ends:
///
/// | call | new sessions | those that wait to be accepted | accepted ones |
/// |---|---|---|---|
/// | [`stop_accepting`](Self::stop_accepting) | turned away | can still be accepted | go on |
/// | [`close`](Self::close), or dropping it | turned away | end | go on |
/// | [`shutdown`](Self::shutdown) | turned away | end | deliver what was written, then end |
/// | [`abort`](Self::abort) | turned away | end | end |
///
/// The socket is closed when the listener and all of its streams are dropped.
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
    endpoint: KcpEndpoint,
    /// Whether the [`Stream`] has returned its last item.
    stream_ended: bool,
}

impl KcpListener {
    /// Listens on the first address that can be bound, of those that `addr` resolves to. Every accepted session has the
    /// configuration `config`.
    ///
    /// # Errors
    /// Those of resolving the address and of the socket; `Other` outside a Tokio runtime.
    pub async fn bind<A: ToSocketAddrs>(addr: A, config: KcpConfig) -> io::Result<Self> {
        Ok(Self::over(KcpEndpoint::bind_accepting(addr, config).await?))
    }

    /// Listens on a socket that the application made, with Tokio or the standard library. The socket's options stay as they are.
    ///
    /// # Errors
    /// Those of the socket; `Other` outside a Tokio runtime.
    pub fn from_socket(socket: impl IntoUdpSocket, config: KcpConfig) -> io::Result<Self> {
        Ok(Self::over(KcpEndpoint::from_socket_accepting(socket, config)?))
    }

    /// Listens on several sockets with one address, which the application made: see [`KcpEndpoint::from_sockets_accepting`].
    ///
    /// # Errors
    /// As [`KcpEndpoint::from_sockets_accepting`].
    pub fn from_sockets<S: IntoUdpSocket>(
        sockets: impl IntoIterator<Item = S>,
        config: KcpConfig,
    ) -> io::Result<Self> {
        Ok(Self::over(KcpEndpoint::from_sockets_accepting(sockets, config)?))
    }

    const fn over(endpoint: KcpEndpoint) -> Self {
        Self { endpoint, stream_ended: false }
    }

    /// Waits for the next session. A call that is cancelled loses none. Several tasks may wait at once.
    ///
    /// # Errors
    /// `NotConnected` once the listener has ended ([`KcpError::ListenerClosed`], [`KcpError::RuntimeGone`]). No other error comes, and
    /// none passes: a loop that accepts ends with the first one.
    pub async fn accept(&self) -> io::Result<(KcpStream, SocketAddr)> {
        self.endpoint.accept().await
    }

    /// The same as [`accept`](Self::accept), for use in a `poll` function.
    ///
    /// # Errors
    /// Those of [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<KcpStream>> {
        self.endpoint.poll_accept(cx)
    }

    /// The endpoint of the listener's socket: it connects from the listener's port, and stays when the listener is dropped. Of all
    /// clones of the endpoint and the listener, the first that is closed ends the accepting, and so does the listener when it is
    /// dropped.
    #[must_use]
    pub const fn endpoint(&self) -> &KcpEndpoint {
        &self.endpoint
    }

    /// The address that the socket is bound to.
    ///
    /// # Errors
    /// None so far. It is a result as that of [`TcpStream::local_addr`](tokio::net::TcpStream::local_addr) is.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Makes `crypto` the key of the sessions that are accepted from here on. Both keys are accepted for `keep`: sessions under the
    /// key before live on, and peers that do not have the new one yet can still begin some. When that time is over, sessions
    /// under the key before end: their calls fail with `ConnectionAborted` ([`KcpError::KeyRetired`]), and peers with extensions are
    /// told so. If a rotation is still under way, its old key ends at once.
    ///
    /// A session has one key for its whole life; a peer changes its key by connecting anew. The new cipher must be of the same
    /// kind as the one before, so that only the key differs. While both keys are accepted, what opens under neither costs twice the
    /// work.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// use kcp9::{
    ///     KcpConfig, KcpListener,
    ///     crypto::{CipherKind, Framing, Key, PacketCrypto},
    /// };
    ///
    /// fn crypto(key: &[u8; 16]) -> Result<PacketCrypto, Box<dyn std::error::Error>> {
    ///     let cipher = CipherKind::Aes128Gcm.build(&Key::from_bytes(key), Framing::KcpGo)?;
    ///     Ok(PacketCrypto::with_os_nonces(cipher)?)
    /// }
    ///
    /// let config = KcpConfig::builder().crypto(crypto(b"this month's key")?).build()?;
    /// let listener = KcpListener::bind("127.0.0.1:0", config).await?;
    /// // A month later. Clients get their new keys within a day.
    /// listener.rotate_key(crypto(b"next month's key")?, Duration::from_secs(24 * 3_600))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`KcpEndpoint::rotate_key`].
    pub fn rotate_key(&self, crypto: PacketCrypto, keep: Duration) -> io::Result<()> {
        self.endpoint.rotate_key(crypto, keep)
    }

    /// Accepts no new sessions: see [`KcpEndpoint::stop_accepting`].
    pub fn stop_accepting(&self) {
        self.endpoint.stop_accepting();
    }

    /// Stops listening, as dropping the listener does: see [`KcpEndpoint::close`].
    pub fn close(&self) {
        self.endpoint.close();
    }

    /// Waits until no session is left: see [`KcpEndpoint::wait_idle`].
    pub async fn wait_idle(&self) {
        self.endpoint.wait_idle().await;
    }

    /// Stops listening, and shuts down every session: see [`KcpEndpoint::shutdown`].
    ///
    /// # Errors
    /// As [`KcpEndpoint::shutdown`].
    pub async fn shutdown(&self, timeout: Duration) -> io::Result<()> {
        self.endpoint.shutdown(timeout).await
    }

    /// Stops listening, and ends every session at once: see [`KcpEndpoint::abort`].
    pub fn abort(&self) {
        self.endpoint.abort();
    }

    /// Counters of the socket and its driver, or of all of them together where there are several.
    #[must_use]
    pub fn endpoint_stats(&self) -> EndpointStats {
        self.endpoint.endpoint_stats()
    }

    /// Counters of each socket and its driver: one for each of the [`shards`](crate::KcpConfigBuilder::shards).
    #[must_use]
    pub fn shard_stats(&self) -> Vec<EndpointStats> {
        self.endpoint.shard_stats()
    }

    /// The UDP socket, with its options. All streams of the listener share it.
    #[must_use]
    pub fn socket(&self) -> KcpSocket {
        self.endpoint.socket()
    }
}

impl Stream for KcpListener {
    type Item = io::Result<KcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.stream_ended {
            return Poll::Ready(None);
        }
        let accepted = ready!(self.poll_accept(cx));
        self.stream_ended = accepted.is_err();
        // Servers take an error for a failure of theirs.
        let wanted =
            accepted.as_ref().is_err_and(|error| KcpError::find(error) == Some(KcpError::ListenerClosed));
        Poll::Ready((!wanted).then_some(accepted))
    }
}

impl Drop for KcpListener {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for KcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KcpListener").field("local_addr", &self.local_addr().ok()).finish_non_exhaustive()
    }
}
