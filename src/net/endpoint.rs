//! Many sessions over one socket.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tokio::net::{ToSocketAddrs, lookup_host};

use super::{
    clock, entropy, session::Session, shared::Shared, socket::Socket, stats::EndpointStats, stream::KcpStream,
};
use crate::proto::{Connection, KcpConfig};

/// A UDP socket that any number of streams share, to one peer or to many.
///
/// [`KcpStream::connect`] makes a socket for each stream. An endpoint has one for all of its streams, and can take one that the
/// application made. When it is dropped, its streams go on.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use kcp9::{KcpConfig, KcpEndpoint};
///
/// let endpoint = KcpEndpoint::bind("127.0.0.1:0").await?;
/// let one = endpoint.connect("127.0.0.1:4000".parse().unwrap(), KcpConfig::default())?;
/// let two = endpoint.connect("127.0.0.1:4000".parse().unwrap(), KcpConfig::default())?;
/// assert_eq!(one.local_addr()?, two.local_addr()?);
/// assert_ne!(one.conv(), two.conv());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct KcpEndpoint {
    shared: Arc<Shared>,
    /// The conv of the next stream. The first is random, and [`CONV_STEP`] leads to the others.
    next_conv: AtomicU32,
}

/// The difference of two convs. It is odd, so that a conv comes again only after all other 2^32 - 1. It is the golden ratio of
/// 2^32, so that the convs of one endpoint lie far apart, as random ones would.
const CONV_STEP: u32 = 0x9e37_79b1;

impl KcpEndpoint {
    /// Makes a socket on the first address that can be bound, of those that `addr` resolves to.
    ///
    /// # Errors
    /// Those of resolving the address and of the socket; `Other` outside a Tokio runtime.
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        let socket = bind_first(addr).await?;
        Self::start(socket)
    }

    /// Takes a socket that the application made. The socket's options stay as they are.
    ///
    /// # Errors
    /// Those of the socket; `Other` outside a Tokio runtime.
    pub fn from_socket(socket: std::net::UdpSocket) -> io::Result<Self> {
        let socket = Socket::from_std(socket)?;
        Self::start(socket)
    }

    fn start(socket: Socket) -> io::Result<Self> {
        let next_conv = AtomicU32::new(entropy::conv()?);
        Ok(Self { shared: Shared::start(socket, None)?, next_conv })
    }

    /// Makes a stream to `peer`, with a conv that no other stream of this method has. Nothing is sent until something is
    /// written.
    ///
    /// # Errors
    /// `InvalidInput` when the socket cannot reach `peer`'s kind of address, or its port is 0.
    pub fn connect(&self, peer: SocketAddr, config: KcpConfig) -> io::Result<KcpStream> {
        let mut conv = self.next_conv.fetch_add(CONV_STEP, Ordering::Relaxed);
        if conv == 0 {
            conv = self.next_conv.fetch_add(CONV_STEP, Ordering::Relaxed);
        }
        self.connect_with_conv(peer, conv, config)
    }

    /// Makes a stream to `peer` with a conv that both ends know.
    ///
    /// # Errors
    /// `InvalidInput` when the socket cannot reach `peer`'s kind of address, or its port is 0. If the endpoint already has a
    /// stream with this peer and conv, the calls of the new stream fail with `AddrInUse`.
    pub fn connect_with_conv(&self, peer: SocketAddr, conv: u32, config: KcpConfig) -> io::Result<KcpStream> {
        connect(&self.shared, peer, conv, &config)
    }

    /// The address that the socket is bound to.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.shared.socket.local_addr()
    }

    /// Counters of the socket and its driver.
    #[must_use]
    pub fn endpoint_stats(&self) -> EndpointStats {
        self.shared.counters.snapshot()
    }

    super::socket_options!(self => self.shared);
}

impl Drop for KcpEndpoint {
    fn drop(&mut self) {
        self.shared.run_queue.remove_owner();
    }
}

/// Begins a session over the socket of `shared`. The driver learns of it from the run queue.
pub(super) fn connect(
    shared: &Arc<Shared>,
    peer: SocketAddr,
    conv: u32,
    config: &KcpConfig,
) -> io::Result<KcpStream> {
    let peer = reachable(shared.socket.local_addr()?, peer)?;
    let connection = Connection::new(conv, config, clock::now());
    let session = Arc::new(Session::new(Arc::clone(shared), connection, peer, None));
    shared.schedule(&session);
    Ok(KcpStream::new(session))
}

/// The address of `peer` as a socket that is bound to `local` writes it.
fn reachable(local: SocketAddr, mut peer: SocketAddr) -> io::Result<SocketAddr> {
    if peer.port() == 0 {
        // The system would answer `EINVAL`, and quinn-udp would take that for a lack of GSO and turn it off for the socket.
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the peer's port is 0"));
    }
    // The system takes these for its own loopback address. The answers come from that one, so packets must be routed by it.
    match peer.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => peer.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => peer.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    match (local.ip(), peer.ip()) {
        (IpAddr::V4(_), IpAddr::V6(_)) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "an IPv4 socket cannot reach an IPv6 peer"))
        }
        (IpAddr::V6(_), IpAddr::V4(ip)) => Ok((ip.to_ipv6_mapped(), peer.port()).into()),
        _ => Ok(peer),
    }
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
