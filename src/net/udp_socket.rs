//! The UDP socket of a stream, listener or endpoint, as the application sees it: its options, and where it comes from.

use std::{fmt, io, net::SocketAddr, sync::Arc, vec::Vec};

use super::{
    shared::{Shared, stats_of},
    socket::Socket,
    stats::EndpointStats,
};

/// The UDP socket below a [`KcpStream`](crate::KcpStream), a [`KcpListener`](crate::KcpListener) or a
/// [`KcpEndpoint`](crate::KcpEndpoint), with its options.
///
/// All streams of a listener or endpoint share it: what is set here is set for all of them. Where a listener has several
/// ([`shards`](crate::KcpConfigBuilder::shards)), what is set is set for each, and all else is of the first.
///
/// On Unix it has a descriptor (`AsFd`, `AsRawFd`), on Windows a socket handle (`AsSocket`, `AsRawSocket`), for options that are not
/// here. Do not read from it: the driver would not see what you take. It is the socket as it was when this was made, and stays open as
/// long as this lives, also when another took its place ([`rebind`](crate::KcpStream::rebind)).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use kcp9::{KcpConfig, KcpListener};
///
/// let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
/// listener.socket().set_recv_buffer_size(1 << 20)?;
/// listener.socket().set_dscp(46)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct KcpSocket {
    shared: Arc<Shared>,
    socket: Arc<Socket>,
    /// Those of the other shards.
    others: Vec<(Arc<Shared>, Arc<Socket>)>,
}

impl KcpSocket {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), socket: Arc::clone(&shared.socket()), others: Vec::new() }
    }

    /// With those of other shards.
    pub(super) fn with(self, others: &[Arc<Shared>]) -> Self {
        let others = others.iter().map(|shared| (Arc::clone(shared), Arc::clone(&shared.socket())));
        Self { others: others.collect(), ..self }
    }

    /// Has `set` called for each of the sockets.
    fn for_each(&self, set: impl Fn(&Socket) -> io::Result<()>) -> io::Result<()> {
        set(&self.socket)?;
        self.others.iter().try_for_each(|(_, socket)| set(socket))
    }

    /// Polls the driver, as a timer does that has ended.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn wake_driver(&self) {
        self.shared.run_queue.wake_driver();
    }

    /// What befalls the socket's system calls.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn faults(&self) -> &super::socket::faults::Faults {
        &self.socket.faults
    }

    /// The address that the socket is bound to.
    ///
    /// # Errors
    /// None so far. It is a result as that of [`std::net::UdpSocket::local_addr`] is.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.socket.local_addr())
    }

    /// Counters of the socket and its driver, over all of its sessions.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        let others = self.others.iter().map(|(shared, _)| &**shared);
        stats_of(std::iter::once(&*self.shared).chain(others))
    }

    /// Asks the operating system for a receive buffer of `bytes`. The system may grant less:
    /// [`recv_buffer_size`](Self::recv_buffer_size) tells what it granted.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.for_each(|socket| socket.options().set_recv_buffer_size(bytes))
    }

    /// Asks the operating system for a send buffer of `bytes`. The system may grant less:
    /// [`send_buffer_size`](Self::send_buffer_size) tells what it granted.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.for_each(|socket| socket.options().set_send_buffer_size(bytes))
    }

    /// Bytes of the receive buffer, as the operating system counts them. Linux reports twice what was granted, because it counts
    /// its own bookkeeping.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        self.socket.options().recv_buffer_size()
    }

    /// Bytes of the send buffer, as the operating system counts them. Linux reports twice what was granted, because it counts its own
    /// bookkeeping.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        self.socket.options().send_buffer_size()
    }

    /// Sets the DSCP of every packet that the socket sends: 0 to 63, where 46 asks for expedited forwarding.
    ///
    /// Set it here, or before the socket is handed over. Packets with [ECN](crate::KcpConfigBuilder::ecn) are sent with the DSCP that is
    /// known here, and not with one that was set by the descriptor since. On Linux and Android the ECN bits of the socket's option become
    /// those that most packets have; elsewhere a socket with a DSCP sends none with ECN.
    ///
    /// # Errors
    /// `InvalidInput` for a larger one; those of the socket.
    pub fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        self.for_each(|socket| socket.set_dscp(dscp))
    }
}

impl fmt::Debug for KcpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KcpSocket").field("local_addr", &self.local_addr().ok()).finish_non_exhaustive()
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for KcpSocket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.io().socket().as_fd()
    }
}

#[cfg(unix)]
impl std::os::fd::AsRawFd for KcpSocket {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.socket.io().socket().as_raw_fd()
    }
}

#[cfg(windows)]
impl std::os::windows::io::AsSocket for KcpSocket {
    fn as_socket(&self) -> std::os::windows::io::BorrowedSocket<'_> {
        self.socket.io().socket().as_socket()
    }
}

#[cfg(windows)]
impl std::os::windows::io::AsRawSocket for KcpSocket {
    fn as_raw_socket(&self) -> std::os::windows::io::RawSocket {
        self.socket.io().socket().as_raw_socket()
    }
}

/// A UDP socket that the application made: [`std::net::UdpSocket`] or [`tokio::net::UdpSocket`].
///
/// Who has another one makes one of these of it. The trait cannot be implemented elsewhere.
pub trait IntoUdpSocket: private::Sealed {
    /// The socket, free of any runtime.
    ///
    /// # Errors
    /// Those of taking it from its runtime.
    fn into_udp_socket(self) -> io::Result<std::net::UdpSocket>;
}

impl IntoUdpSocket for std::net::UdpSocket {
    fn into_udp_socket(self) -> io::Result<std::net::UdpSocket> {
        Ok(self)
    }
}

impl IntoUdpSocket for tokio::net::UdpSocket {
    fn into_udp_socket(self) -> io::Result<std::net::UdpSocket> {
        self.into_std()
    }
}

mod private {
    pub trait Sealed {}

    impl Sealed for std::net::UdpSocket {}
    impl Sealed for tokio::net::UdpSocket {}
}
