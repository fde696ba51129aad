//! What carries a connection between the two ends.

use std::{io, net::SocketAddr};

use kcp9::{
    KcpHandle, KcpSocket, KcpStream,
    mux::{MuxError, MuxStream, ProtocolError},
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{log::say, settings::Settings, snappy::Snappy};

/// Anything that reads and writes.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// One connection's stream to the other end.
pub(crate) struct Carried {
    pub(crate) io: Box<dyn Transport>,
    /// For messages.
    pub(crate) name: String,
    pub(crate) peer: Peer,
    /// What is written must be flushed: nothing else does.
    pub(crate) needs_flush: bool,
}

/// The other end of a session.
pub(crate) struct Peer {
    handle: KcpHandle,
    /// A connection has a session of its own, which only this program knows.
    is_ours: bool,
}

impl Carried {
    /// A stream of smux in the session `peer`.
    pub(crate) fn stream(stream: MuxStream, handle: KcpHandle) -> Self {
        let name = format!("{}({})", canonical(handle.peer_addr()), stream.id());
        Self { io: Box::new(stream), name, peer: Peer { handle, is_ours: false }, needs_flush: false }
    }

    /// A session of its own.
    pub(crate) fn session(stream: KcpStream, settings: &Settings) -> Self {
        let handle = stream.handle();
        let name = canonical(handle.peer_addr()).to_string();
        let io = compressed(stream, settings);
        Self { io, name, peer: Peer { handle, is_ours: true }, needs_flush: settings.compress }
    }
}

impl Peer {
    /// Whether the peer keeps one direction open when the other has ended. Ours do. kcptun closes both.
    pub(crate) fn half_closes(&self) -> bool {
        self.is_ours || self.handle.stats().extensions.received > 0
    }
}

/// The session, or what compresses it.
pub(crate) fn compressed(stream: KcpStream, settings: &Settings) -> Box<dyn Transport> {
    if settings.compress { Box::new(Snappy::new(stream)) } else { Box::new(stream) }
}

/// Sets the options of a UDP socket. What the system refuses is said and not insisted on, as with kcptun.
pub(crate) fn set_options(socket: &KcpSocket, settings: &Settings) {
    for (name, outcome) in [
        ("dscp", if settings.dscp == 0 { Ok(()) } else { socket.set_dscp(settings.dscp) }),
        ("sockbuf", socket.set_recv_buffer_size(settings.sockbuf)),
        ("sockbuf", socket.set_send_buffer_size(settings.sockbuf)),
    ] {
        if let Err(error) = outcome {
            say!("{name}: {error}");
        }
    }
}

/// IPv4 addresses as such, which a socket for both kinds tells as IPv6.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Why a session ended, for people, with what they can do about it.
pub(crate) fn explain(error: &MuxError) -> String {
    match error {
        MuxError::Protocol(ProtocolError::Version(0xff)) => {
            format!(
                "{error}: the peer seems to compress what this end does not. nocomp must be the same at both ends"
            )
        }
        MuxError::Protocol(ProtocolError::Version(1 | 2)) => {
            format!("{error}: smuxver must be the same at both ends")
        }
        _ => error.to_string(),
    }
}

/// Whether an error is how connections end every day.
pub(crate) fn is_ordinary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted
    )
}
