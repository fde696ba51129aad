//! Connections on this side of the tunnel: TCP and Unix sockets.

#[cfg(unix)]
use std::path::Path;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use socket2::{SockRef, Type};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};

use crate::{
    address::{StreamAddress, bind_wildcard},
    carrier::canonical,
};

/// A connection.
pub(crate) enum Local {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Local {
    /// Connects to a target.
    pub(crate) async fn connect(target: &StreamAddress) -> io::Result<Self> {
        match target {
            StreamAddress::Tcp { host, port } => {
                let host = if host.is_empty() { "localhost" } else { host };
                let connecting = TcpStream::connect((host, *port));
                let stream = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await??;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            #[cfg(unix)]
            StreamAddress::Unix(path) => Ok(Self::Unix(UnixStream::connect(path).await?)),
            #[cfg(not(unix))]
            StreamAddress::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Has the other side see that the connection was cut off, not that it ended. Dropping it does the rest.
    pub(crate) fn reset(&self) {
        match self {
            // That it cannot be told is no reason to keep the connection.
            Self::Tcp(stream) => drop(SockRef::from(stream).set_linger(Some(Duration::ZERO))),
            #[cfg(unix)]
            Self::Unix(_) => {}
        }
    }
}

/// Accepts connections.
pub(crate) enum LocalListener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener, SocketFile),
}

impl LocalListener {
    pub(crate) async fn bind(address: &StreamAddress) -> io::Result<Self> {
        match address {
            StreamAddress::Tcp { host, port } if host.is_empty() => {
                let socket = bind_wildcard(Type::STREAM, *port)?;
                socket.set_nonblocking(true)?;
                socket.listen(BACKLOG)?;
                Ok(Self::Tcp(TcpListener::from_std(socket.into())?))
            }
            StreamAddress::Tcp { host, port } => Ok(Self::Tcp(TcpListener::bind((&**host, *port)).await?)),
            #[cfg(unix)]
            StreamAddress::Unix(path) => {
                remove_stale(path).await;
                Ok(Self::Unix(UnixListener::bind(path)?, SocketFile(path.clone())))
            }
            #[cfg(not(unix))]
            StreamAddress::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The next connection, with a name for messages.
    pub(crate) async fn accept(&self) -> io::Result<(Local, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Local::Tcp(stream), canonical(from).to_string()))
            }
            #[cfg(unix)]
            Self::Unix(listener, file) => {
                let (stream, _) = listener.accept().await?;
                Ok((Local::Unix(stream), file.0.display().to_string()))
            }
        }
    }

    /// Where it listens, for people.
    pub(crate) fn name(&self) -> io::Result<String> {
        match self {
            Self::Tcp(listener) => Ok(listener.local_addr()?.to_string()),
            #[cfg(unix)]
            Self::Unix(_, file) => Ok(file.0.display().to_string()),
        }
    }
}

/// The file of a Unix socket that listens, which goes with it.
#[cfg(unix)]
pub(crate) struct SocketFile(std::path::PathBuf);

#[cfg(unix)]
impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Removes the socket of a process that was killed: nobody answers there. Anything else stays, and binding fails.
#[cfg(unix)]
async fn remove_stale(path: &Path) {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if !is_socket {
        return;
    }
    if let Err(error) = UnixStream::connect(path).await
        && error.kind() == io::ErrorKind::ConnectionRefused
    {
        let _ = std::fs::remove_file(path);
    }
}

impl AsyncRead for Local {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Local {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Neither keeps anything back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(unix)]
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// The system's own limit is two minutes, for which a client would wait.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const BACKLOG: i32 = 1_024;
