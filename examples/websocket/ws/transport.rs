//! The streams under WebSockets: sessions of KCP, or TCP connections.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    str::FromStr,
    task::{Context, Poll},
};

use kcp9::{KcpConfig, KcpListener, KcpStream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpSocket, TcpStream},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Kcp,
    Tcp,
}

impl FromStr for Transport {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [Self::Kcp, Self::Tcp].into_iter().find(|transport| transport.name() == name).ok_or("kcp or tcp")
    }
}

impl Transport {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kcp => "kcp",
            Self::Tcp => "tcp",
        }
    }
}

/// What a WebSocket is spoken over.
pub(crate) enum Stream {
    Kcp(KcpStream),
    Tcp(TcpStream),
}

impl Stream {
    pub(crate) async fn connect(transport: Transport, addr: &str, config: KcpConfig) -> io::Result<Self> {
        match transport {
            Transport::Kcp => Ok(Self::Kcp(KcpStream::connect(addr, config).await?)),
            Transport::Tcp => Self::tcp(TcpStream::connect(addr).await?),
        }
    }

    /// Messages leave at once, as they do over KCP.
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Kcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Kcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Kcp(stream) => stream.is_write_vectored(),
            Self::Tcp(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Kcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

pub(crate) enum Listener {
    Kcp(KcpListener),
    Tcp(TcpListener),
}

impl Listener {
    pub(crate) async fn bind(transport: Transport, addr: SocketAddr, config: KcpConfig) -> io::Result<Self> {
        if transport == Transport::Kcp {
            return Ok(Self::Kcp(KcpListener::bind(addr, config).await?));
        }
        let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        // As many as Linux lets wait by default; a crowd of clients comes at once.
        Ok(Self::Tcp(socket.listen(4_096)?))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Kcp(listener) => listener.local_addr(),
            Self::Tcp(listener) => listener.local_addr(),
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Self::Kcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Stream::Kcp(stream), peer))
            }
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Stream::tcp(stream)?, peer))
            }
        }
    }
}
