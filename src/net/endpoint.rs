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

/// A UDP socket over which any number of streams are opened, to one peer or to many.
///
/// [`KcpStream::connect`] opens a socket for each stream; an endpoint shares one, and takes one that the application
/// made. Dropping it leaves its streams as they are.
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
    /// The conv of the next stream: from a random start, in steps that come round only after all 2^32.
    next_conv: AtomicU32,
}

/// Odd, and far from its neighbours' multiples: convs of one endpoint look as unlike as those of many.
const CONV_STEP: u32 = 0x9e37_79b1;

impl KcpEndpoint {
    /// Opens a socket on the first of the addresses that `addr` resolves to that can be bound.
    ///
    /// # Errors
    /// Those of resolving the address and of the socket; `Other` outside a Tokio runtime.
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        let socket = bind_first(addr).await?;
        Self::start(socket)
    }

    /// Takes over a socket, with its options as they are.
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

    /// Opens a stream with a conv that no other call of this method was given, from a random start. Nothing is sent
    /// until something is written.
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

    /// Opens a stream with a conv that both ends know.
    ///
    /// # Errors
    /// `InvalidInput` when the socket cannot reach `peer`'s kind of address. A conv that the endpoint already uses with
    /// this peer shows in the stream's calls, as `AddrInUse`.
    pub fn connect_with_conv(&self, peer: SocketAddr, conv: u32, config: KcpConfig) -> io::Result<KcpStream> {
        open(&self.shared, peer, conv, &config)
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

    super::socket_options!(shared);
}

impl Drop for KcpEndpoint {
    fn drop(&mut self) {
        self.shared.run_queue.remove_owner();
    }
}

/// Opens a session over the socket of `shared`.
pub(super) fn open(
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

/// `peer` as a socket bound to `local` names it.
fn reachable(local: SocketAddr, mut peer: SocketAddr) -> io::Result<SocketAddr> {
    if peer.port() == 0 {
        // The system's answer would be `EINVAL`, which quinn-udp takes for a lack of GSO, for the socket as a whole.
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the peer's port is 0"));
    }
    // The system sends these to itself, and the answers come from there.
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

/// Binds the first of several addresses that can be.
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
