//! Tokio's UDP sockets without any protocol: the floor under the latency of all that use them. For pings of one connection
//! over loopback, where nothing gets lost.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UdpSocket,
};

use super::{Bound, Listener, Peer, udp_socket};
use crate::options::{Setting, Task};

pub(super) struct Udp;

/// One direction of a connected socket.
pub(super) struct Half(Arc<UdpSocket>);

impl Half {
    fn both(socket: UdpSocket) -> (Self, Self) {
        let socket = Arc::new(socket);
        (Self(Arc::clone(&socket)), Self(socket))
    }
}

impl Peer for Udp {
    type Listener = Option<UdpSocket>;
    type Reader = Half;
    type Writer = Half;

    async fn listen(_: Setting) -> io::Result<Bound<Option<UdpSocket>>> {
        let socket = UdpSocket::from_std(udp_socket()?)?;
        let addr = socket.local_addr()?;
        Ok(Bound { listener: Some(socket), addr, token: String::new() })
    }

    async fn connect(_: Setting, task: &Task) -> io::Result<(Half, Half)> {
        let socket = UdpSocket::from_std(udp_socket()?)?;
        socket.connect(task.addr).await?;
        Ok(Half::both(socket))
    }
}

/// The first packet decides whom the socket talks to.
impl Listener for Option<UdpSocket> {
    type Reader = Half;
    type Writer = Half;

    async fn accept(&mut self) -> io::Result<(Half, Half)> {
        let Some(socket) = self else { return std::future::pending().await };
        let client = socket.peek_sender().await?;
        socket.connect(client).await?;
        match self.take() {
            Some(socket) => Ok(Half::both(socket)),
            None => std::future::pending().await,
        }
    }
}

impl AsyncRead for Half {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.0.poll_recv(cx, buf)
    }
}

impl AsyncWrite for Half {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(ready!(self.0.poll_send(cx, buf)))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
