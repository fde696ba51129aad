//! Many sessions over one socket.

use std::{
    boxed::Box,
    future::poll_fn,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
    vec::Vec,
};

use tokio::{
    net::{ToSocketAddrs, lookup_host},
    task::coop,
};

#[cfg(feature = "noise")]
use super::secure::begin;
use super::{
    accept_queue::Ended,
    control::{Request, Rotation},
    entropy,
    error::KcpError,
    session::Session,
    shards,
    shared::{Shared, Sharing, stats_of},
    socket::Socket,
    stats::EndpointStats,
    stream::KcpStream,
    trace::Role,
    udp_socket::{IntoUdpSocket, KcpSocket},
};
use crate::{
    crypto::PacketCrypto,
    proto::{BufferMemory, KcpConfig},
};

/// A UDP socket that any number of streams share, to one peer or to many. It connects, and [accepts](Self::bind_accepting) if it was
/// made for that: one port does for a program that has peers in place of servers and clients, and for passing through NATs, where
/// both ends connect to each other at the same time, with a conv that they have agreed on.
///
/// [`KcpStream::connect`] makes a socket for each stream. An endpoint has one for all of its streams, and can take one that the
/// application made. Clones are cheap, and are the same endpoint. When the last one is dropped, its streams go on, but nothing more is
/// accepted; [`KcpListener`](crate::KcpListener) has a table of the ways to end.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use kcp9::{KcpConfig, KcpEndpoint};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let here = KcpEndpoint::bind_accepting("127.0.0.1:0", KcpConfig::default()).await?;
/// let there = KcpEndpoint::bind_accepting("127.0.0.1:0", KcpConfig::default()).await?;
///
/// let mut one = here.connect(there.local_addr()?, KcpConfig::default())?;
/// let mut two = here.connect(there.local_addr()?, KcpConfig::default())?;
/// assert_ne!(one.conv(), two.conv());
/// one.write_all(b"one").await?;
/// two.write_all(b"two").await?;
/// for _ in 0..2 {
///     let (mut stream, peer) = there.accept().await?;
///     assert_eq!(peer, here.local_addr()?);
///     stream.read_exact(&mut [0; 3]).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct KcpEndpoint {
    inner: Arc<Inner>,
}

/// What the clones of an endpoint have in common.
#[derive(Debug)]
struct Inner {
    /// What each socket, its driver and its streams have in common: mostly one.
    shards: Box<[Arc<Shared>]>,
    /// The conv of the next stream. The first is random, and [`CONV_STEP`] leads to the others.
    next_conv: AtomicU32,
}

/// The difference of two convs. It is odd, so that a conv comes again only after all other 2^32 - 1. It is the golden ratio of
/// 2^32, so that the convs of one endpoint lie far apart, as random ones would.
const CONV_STEP: u32 = 0x9e37_79b1;

impl KcpEndpoint {
    /// Makes a socket on the first address that can be bound, of those that `addr` resolves to. The endpoint connects, and accepts
    /// nothing.
    ///
    /// # Errors
    /// Those of resolving the address and of the socket; `Other` outside a Tokio runtime.
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        Self::connecting(bind_first(addr).await?)
    }

    /// As [`bind`](Self::bind), for an endpoint that also accepts sessions. Every accepted one has the configuration `config`. Makes as
    /// many sockets as that says ([`shards`](crate::KcpConfigBuilder::shards)), all on one port.
    ///
    /// # Errors
    /// As [`bind`](Self::bind); `Unsupported` ([`KcpError::ShardsUnsupported`]) for several sockets where the system has no
    /// `SO_REUSEPORT` that spreads packets.
    pub async fn bind_accepting<A: ToSocketAddrs>(addr: A, config: KcpConfig) -> io::Result<Self> {
        let sockets = shards::bind_first(addr, config.shards()).await?;
        Self::accepting(sockets, config)
    }

    /// Takes a socket that the application made, with Tokio or the standard library. The socket's options stay as they are. The
    /// endpoint connects, and accepts nothing.
    ///
    /// # Errors
    /// Those of the socket; `Other` outside a Tokio runtime.
    pub fn from_socket(socket: impl IntoUdpSocket) -> io::Result<Self> {
        Self::connecting(Socket::from_std(socket.into_udp_socket()?)?)
    }

    /// As [`from_socket`](Self::from_socket), for an endpoint that also accepts sessions. Every accepted one has the configuration
    /// `config`, but for its number of [`shards`](crate::KcpConfigBuilder::shards): this is one.
    ///
    /// # Errors
    /// As [`from_socket`](Self::from_socket).
    pub fn from_socket_accepting(socket: impl IntoUdpSocket, config: KcpConfig) -> io::Result<Self> {
        Self::from_sockets_accepting([socket], config)
    }

    /// As [`from_socket_accepting`](Self::from_socket_accepting), over several sockets with one address: 1 to 256. Each is a
    /// [shard](crate::KcpConfigBuilder::shards). The system has to spread what arrives over them; on Linux it does if they were bound
    /// with `SO_REUSEPORT`, or as a program attached to them says (`SO_ATTACH_REUSEPORT_EBPF`).
    ///
    /// # Errors
    /// Those of the sockets; `InvalidInput` if there are none or too many, or ([`KcpError::OtherAddress`]) if they are bound to different
    /// addresses; `Other` outside a Tokio runtime.
    pub fn from_sockets_accepting<S: IntoUdpSocket>(
        sockets: impl IntoIterator<Item = S>,
        config: KcpConfig,
    ) -> io::Result<Self> {
        let socket = |socket: S| Socket::from_std(socket.into_udp_socket()?);
        let sockets: Vec<_> = sockets.into_iter().map(socket).collect::<Result<_, _>>()?;
        shards::check_addresses(&sockets)?;
        Self::accepting(sockets, config)
    }

    fn connecting(socket: Socket) -> io::Result<Self> {
        let memory = BufferMemory::new(KcpConfig::default().max_buffer_memory());
        Self::over(Box::new([Shared::start(socket, None, Sharing::Many, memory, None)?]))
    }

    fn accepting(sockets: Vec<Socket>, config: KcpConfig) -> io::Result<Self> {
        Self::over(shards::start(sockets, config)?)
    }

    fn over(shards: Box<[Arc<Shared>]>) -> io::Result<Self> {
        let inner = Inner { shards, next_conv: AtomicU32::new(0) };
        // From here on the drivers end with it.
        let endpoint = Self { inner: Arc::new(inner) };
        endpoint.inner.next_conv.store(entropy::conv()?, Ordering::Relaxed);
        Ok(endpoint)
    }

    /// Those of all sockets.
    #[cfg(feature = "metrics")]
    pub(super) fn shards(&self) -> &[Arc<Shared>] {
        &self.inner.shards
    }

    /// That of the first socket, which mostly is the only one.
    fn shared(&self) -> &Arc<Shared> {
        &self.inner.shards[0]
    }

    /// That of the only socket.
    ///
    /// # Errors
    /// There are several.
    pub(super) fn alone(&self) -> io::Result<&Arc<Shared>> {
        let shared = self.shared();
        if shared.shard.is_some() { Err(KcpError::Sharded.into()) } else { Ok(shared) }
    }

    // ---- Beginning sessions ----

    /// Makes a stream to `peer`, with a conv that no other stream of this method has. Returns at once, whether or not anybody
    /// answers: [`KcpStream::connected`] waits for that.
    ///
    /// Thousands may be made in a loop. At most 512 to 2,048 are opening at a time, the more the longer the path: further ones send
    /// nothing until peers of some have answered, or have not within 300 ms. Otherwise most of their first packets would overflow the
    /// sockets' buffers.
    ///
    /// # Errors
    /// `InvalidInput` when the socket cannot reach `peer`'s kind of address, its port is 0, or it is an address of a link (`fe80::`)
    /// without the link's scope, or there are several sockets ([`KcpError::Sharded`]); `ConnectionAborted` after
    /// [`shutdown`](Self::shutdown) and [`abort`](Self::abort).
    pub fn connect(&self, peer: SocketAddr, config: KcpConfig) -> io::Result<KcpStream> {
        self.connect_with_conv(peer, self.next_conv(), config)
    }

    /// A conv that no other stream of [`connect`](Self::connect) has.
    pub(super) fn next_conv(&self) -> u32 {
        let next_conv = &self.inner.next_conv;
        match next_conv.fetch_add(CONV_STEP, Ordering::Relaxed) {
            0 => next_conv.fetch_add(CONV_STEP, Ordering::Relaxed),
            conv => conv,
        }
    }

    /// Makes a stream to `peer` with a conv that both ends know. If both call this, they have one session: each passes the packets of
    /// the other through the NAT in front of it.
    ///
    /// # Errors
    /// As [`connect`](Self::connect). If the endpoint already has a stream with this peer and conv, the calls of the new stream
    /// fail with `AddrInUse`.
    pub fn connect_with_conv(&self, peer: SocketAddr, conv: u32, config: KcpConfig) -> io::Result<KcpStream> {
        connect(self.alone()?, peer, conv, &config, &[])
    }

    /// Waits for the next session that a peer begins. A call that is cancelled loses none. Several tasks may wait at once.
    ///
    /// # Errors
    /// `NotConnected` once nothing more is accepted ([`KcpError::ListenerClosed`], [`KcpError::RuntimeGone`]); `InvalidInput`
    /// ([`KcpError::NotListening`]) if the endpoint was not made to accept. None of them passes: a loop that accepts ends with
    /// the first one.
    pub async fn accept(&self) -> io::Result<(KcpStream, SocketAddr)> {
        let stream = poll_fn(|cx| self.poll_accept(cx)).await?;
        let peer = stream.peer_addr();
        Ok((stream, peer))
    }

    /// The same as [`accept`](Self::accept), for use in a `poll` function.
    ///
    /// # Errors
    /// Those of [`accept`](Self::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<KcpStream>> {
        let Some(queue) = &self.shared().accept_queue else {
            return Poll::Ready(Err(KcpError::NotListening.into()));
        };
        // A flood of new sessions must not keep the task from others, nor errors in a loop that ignores them.
        let budget = ready!(coop::poll_proceed(cx));
        let outcome = match queue.pop(cx.waker()) {
            Ok(Some(session)) => Ok(KcpStream::new(session)),
            Ok(None) => return Poll::Pending,
            Err(Ended::DriverGone) => Err(KcpError::RuntimeGone.into()),
            Err(Ended::Stopped) => Err(KcpError::ListenerClosed.into()),
        };
        budget.made_progress();
        Poll::Ready(outcome)
    }

    // ---- Ending them ----

    /// Accepts no new sessions. Those that wait to be accepted already still can be: [`accept`](Self::accept) fails when there are no
    /// more. Sessions live on, and new ones may be connected.
    pub fn stop_accepting(&self) {
        if let Some(queue) = &self.shared().accept_queue {
            queue.stop();
        }
        self.ask(Request::StopAccepting);
    }

    /// Accepts no new sessions, and ends those that wait to be accepted: their peers see a reset, if they have extensions. Accepted
    /// sessions live on, and new ones may be connected.
    pub fn close(&self) {
        self.inner.stop_listening();
    }

    /// Waits until no session is left: until the peers and the application are done with all of them, accepted and connected, waiting
    /// and lingering. Returns at once if there is none. It ends no session and keeps none from beginning.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> std::io::Result<()> {
    /// use std::time::Duration;
    ///
    /// use kcp9::{KcpConfig, KcpListener};
    ///
    /// let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
    /// // ... when the server is to end, having served whom it has accepted:
    /// listener.close();
    /// if tokio::time::timeout(Duration::from_secs(30), listener.wait_idle()).await.is_err() {
    ///     listener.abort();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_idle(&self) {
        loop {
            for shared in &self.inner.shards {
                let mut since = None;
                poll_fn(|cx| {
                    let first = since.is_none();
                    let outcome = shared.control.poll_idle(cx, &mut since);
                    if first {
                        shared.run_queue.wake_driver();
                    }
                    outcome
                })
                .await;
            }
            // One may have begun in a shard while others were waited for.
            if self.shared().shard.as_ref().is_none_or(|place| place.all().sessions() == 0) {
                return;
            }
        }
    }

    /// Ends the endpoint in order: accepts nothing more, [closes](Self::close) what waits to be accepted, and shuts down the writing
    /// direction of every session. A session ends when its peer has acknowledged everything that was written. Those left after `timeout`
    /// are [aborted](Self::abort). Returns when no session is left.
    ///
    /// For the tasks that use the streams it is as if another task had shut them down: they may read on, writes fail with
    /// `BrokenPipe`, and with the end of the session all calls fail with `ConnectionAborted`
    /// ([`KcpError::EndpointClosed`]). Give them time to finish by themselves with [`wait_idle`](Self::wait_idle) before.
    ///
    /// If this future is dropped, the sessions go on ending, each within its [`linger`](crate::KcpConfigBuilder::linger).
    ///
    /// # Errors
    /// `TimedOut` ([`KcpError::ShutdownTimeout`]) if sessions had to be aborted.
    pub async fn shutdown(&self, timeout: Duration) -> io::Result<()> {
        self.close();
        self.ask(Request::ShutDown);
        if tokio::time::timeout(timeout, self.wait_idle()).await.is_ok() {
            return Ok(());
        }
        let aborted = self.endpoint_stats().state.sessions as usize;
        self.abort();
        self.wait_idle().await;
        Err(KcpError::ShutdownTimeout { aborted }.into())
    }

    /// Ends the endpoint at once: accepts nothing more, and ends every session. What was written and has not arrived is given up. Every
    /// call on the streams fails with `ConnectionAborted` ([`KcpError::EndpointClosed`]), but for reads of what has arrived.
    pub fn abort(&self) {
        self.close();
        self.ask(Request::Abort);
    }

    // ---- The key ----

    /// Makes `crypto` the key of the sessions that are accepted. Sessions that are begun here have the keys of their own
    /// configurations, and those do not change. [`KcpListener::rotate_key`](crate::KcpListener::rotate_key) tells how it goes.
    ///
    /// # Errors
    /// `InvalidInput`: [`KcpError::NoKey`] if the endpoint accepts nothing, or accepts it without encryption; [`KcpError::OtherKind`] if
    /// the ciphers differ in more than their keys. Nothing is changed then.
    pub fn rotate_key(&self, crypto: PacketCrypto, keep: Duration) -> io::Result<()> {
        let queue = self.shared().accept_queue.as_ref().ok_or(KcpError::NoKey)?;
        let current = queue.config.crypto().ok_or(KcpError::NoKey)?;
        if !current.is_of_kind(&crypto) {
            return Err(KcpError::OtherKind.into());
        }
        queue.rotate(|| {
            for shared in &self.inner.shards {
                shared.control.rotate(Rotation { crypto: crypto.clone(), keep });
            }
        });
        self.inner.shards.iter().for_each(|shared| shared.run_queue.wake_driver());
        Ok(())
    }

    fn ask(&self, request: Request) {
        self.inner.ask(request);
    }

    // ---- The socket ----

    /// The address that the socket is bound to.
    ///
    /// # Errors
    /// None so far. It is a result as that of [`TcpStream::local_addr`](tokio::net::TcpStream::local_addr) is.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.shared().socket().local_addr())
    }

    /// Counters of the socket and its driver, or of all of them together where there are several.
    #[must_use]
    pub fn endpoint_stats(&self) -> EndpointStats {
        stats_of(self.inner.shards.iter().map(|shared| &**shared))
    }

    /// Counters of each socket and its driver: one for each of the [`shards`](crate::KcpConfigBuilder::shards). What concerns the
    /// memory that all of them share is the same in each.
    #[must_use]
    pub fn shard_stats(&self) -> Vec<EndpointStats> {
        self.inner.shards.iter().map(|shared| shared.stats()).collect()
    }

    /// The UDP socket, with its options. All streams of the endpoint share it. Where there are several, options are set for all, and
    /// told of the first.
    #[must_use]
    pub fn socket(&self) -> KcpSocket {
        KcpSocket::new(self.shared()).with(&self.inner.shards[1..])
    }

    /// The sockets, each by itself: one for each of the [`shards`](crate::KcpConfigBuilder::shards).
    #[must_use]
    pub fn sockets(&self) -> Vec<KcpSocket> {
        self.inner.shards.iter().map(KcpSocket::new).collect()
    }

    /// Goes on over another socket, which the application made, with Tokio or the standard library: this machine is in another network
    /// now. The socket's options stay as they are. [`KcpStream::rebind`] tells who follows, and how that goes.
    ///
    /// Sessions that no peer follows cannot go on, and end: their calls fail with `Unsupported` ([`KcpError::NotFollowed`]). These are
    /// the accepted ones, those without extensions or without a cipher that authenticates, and those whose peer has not answered yet.
    /// Sessions that are begun from here on are begun over the new socket.
    ///
    /// # Errors
    /// Those of the socket; `InvalidInput` ([`KcpError::OtherFamily`]) if it is not of the same kind, IPv4 or IPv6, as the one before,
    /// or ([`KcpError::Sharded`]) if there are several. The endpoint then keeps the one that it has.
    pub fn rebind(&self, socket: impl IntoUdpSocket) -> io::Result<()> {
        let shared = self.alone()?;
        let socket = Socket::from_std(socket.into_udp_socket()?)?;
        shared.check_family(&socket)?;
        shared.replace_socket(socket);
        Ok(())
    }
}

impl Inner {
    fn stop_listening(&self) {
        let Some(queue) = &self.shards[0].accept_queue else { return };
        queue.stop();
        for session in queue.take() {
            // Nobody will ever read what its peer wrote. An end of the stream would say that all is well.
            session.abort_with_endpoint();
            session.release();
        }
        self.ask(Request::StopAccepting);
    }

    fn ask(&self, request: Request) {
        for shared in &self.shards {
            shared.control.ask(request);
            shared.run_queue.wake_driver();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop_listening();
        self.shards.iter().for_each(|shared| shared.run_queue.remove_owner());
    }
}

/// Begins a session over the socket of `shared`. The driver learns of it from the run queue. `early`: bytes for the first packet,
/// where the session agrees on keys.
pub(super) fn connect(
    shared: &Arc<Shared>,
    peer: SocketAddr,
    conv: u32,
    config: &KcpConfig,
    early: &[u8],
) -> io::Result<KcpStream> {
    if shared.control.asked() >= Request::ShutDown {
        return Err(KcpError::EndpointClosed.into());
    }
    let peer = reachable(shared.socket().local_addr(), peer)?;
    let connection = begin(shared, conv, config, early)?;
    let session = Arc::new(Session::new(Arc::clone(shared), connection, peer, None, Role::Connects));
    if shared.sharing == Sharing::Many {
        // The driver lets it begin: at once, unless thousands do.
        session.hold();
    }
    #[cfg(feature = "metrics")]
    shared.registry.insert(&session, super::metrics::Side::Connected);
    shared.schedule(&session);
    Ok(KcpStream::new(session))
}

/// The connection of a session that is begun here.
#[cfg(not(feature = "noise"))]
fn begin(shared: &Shared, conv: u32, config: &KcpConfig, _: &[u8]) -> io::Result<crate::proto::Connection> {
    Ok(crate::proto::Connection::connect(conv, config, super::clock::now(), shared.seed()))
}

/// The address of `peer` as a socket that is bound to `local` has it for the source of what comes from there: packets are routed by
/// it.
fn reachable(local: SocketAddr, peer: SocketAddr) -> io::Result<SocketAddr> {
    let port = peer.port();
    if port == 0 {
        // The system would answer `EINVAL`, and quinn-udp would take that for a lack of GSO and turn it off for the socket.
        return Err(KcpError::NoPort.into());
    }
    // The system takes an unspecified address for its own loopback address.
    match (local, peer.ip().to_canonical()) {
        (SocketAddr::V4(_), IpAddr::V4(ip)) if ip.is_unspecified() => Ok((Ipv4Addr::LOCALHOST, port).into()),
        (SocketAddr::V4(_), IpAddr::V4(ip)) => Ok((ip, port).into()),
        (SocketAddr::V4(_), IpAddr::V6(_)) => Err(KcpError::NoIpv6.into()),
        (SocketAddr::V6(_), IpAddr::V4(ip)) if ip.is_unspecified() => {
            Ok((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), port).into())
        }
        (SocketAddr::V6(_), IpAddr::V4(ip)) => Ok((ip.to_ipv6_mapped(), port).into()),
        (SocketAddr::V6(_), IpAddr::V6(ip)) if ip.is_unspecified() => Ok((Ipv6Addr::LOCALHOST, port).into()),
        (SocketAddr::V6(local), IpAddr::V6(ip)) => {
            let given = if let SocketAddr::V6(peer) = peer { peer.scope_id() } else { 0 };
            let scope = scope(&local, ip, given).ok_or(KcpError::NoScope)?;
            Ok(SocketAddrV6::new(ip, port, 0, scope).into())
        }
    }
}

/// The scope of an address: the link that it is on. Only addresses of a link have one. If none is `given`, it is that of the
/// address that the socket is bound to; `None` if that has none either.
fn scope(local: &SocketAddrV6, ip: Ipv6Addr, given: u32) -> Option<u32> {
    if !ip.is_unicast_link_local() {
        return Some(0);
    }
    [given, local.scope_id()].into_iter().find(|scope| *scope != 0)
}

/// Binds a socket to the first address that can be bound.
pub(super) async fn bind_first<A: ToSocketAddrs>(addr: A) -> io::Result<Socket> {
    let mut outcome = Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to bind to"));
    for addr in lookup_host(addr).await? {
        outcome = Socket::bind(addr);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::{
        format,
        string::{String, ToString},
    };

    use super::*;

    fn route(local: &str, peer: &str) -> String {
        let outcome = reachable(local.parse().unwrap(), peer.parse().unwrap());
        outcome.map_or_else(|error| format!("{:?}", KcpError::find(&error).unwrap()), |addr| addr.to_string())
    }

    #[test]
    fn a_peer_is_routed_by_the_address_that_its_packets_come_from() {
        for (local, peer, expected) in [
            ("0.0.0.0:1", "192.0.2.1:9", "192.0.2.1:9"),
            ("0.0.0.0:1", "0.0.0.0:9", "127.0.0.1:9"),
            ("0.0.0.0:1", "[::ffff:192.0.2.1]:9", "192.0.2.1:9"),
            ("0.0.0.0:1", "[::1]:9", "NoIpv6"),
            ("0.0.0.0:1", "192.0.2.1:0", "NoPort"),
            ("[::]:1", "192.0.2.1:9", "[::ffff:192.0.2.1]:9"),
            ("[::]:1", "0.0.0.0:9", "[::ffff:127.0.0.1]:9"),
            ("[::]:1", "[::]:9", "[::1]:9"),
            ("[::]:1", "[2001:db8::1]:9", "[2001:db8::1]:9"),
            // Only addresses of a link have a scope.
            ("[::]:1", "[2001:db8::1%3]:9", "[2001:db8::1]:9"),
            ("[::]:1", "[fe80::1%3]:9", "[fe80::1%3]:9"),
            ("[fe80::2%4]:1", "[fe80::1]:9", "[fe80::1%4]:9"),
            ("[fe80::2%4]:1", "[fe80::1%3]:9", "[fe80::1%3]:9"),
            ("[::]:1", "[fe80::1]:9", "NoScope"),
        ] {
            assert_eq!(route(local, peer), expected, "from {local} to {peer}");
        }
    }

    #[test]
    fn the_flow_label_is_no_part_of_a_route() {
        let local = "[::]:1".parse().unwrap();
        let peer = SocketAddrV6::new("2001:db8::1".parse().unwrap(), 9, 0x1_2345, 0);
        assert_eq!(reachable(local, peer.into()).unwrap(), "[2001:db8::1]:9".parse().unwrap());
    }
}
