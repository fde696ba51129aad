//! kcp-tokio at its fastest. `tests/interop/kcp_tokio_crate.rs` says why it has so many retries and no keep-alive.

use std::{io, sync::Arc};

use kcp_tokio::{
    KcpListener, KcpStream, UdpTransport,
    config::{KcpConfig, NodeDelayConfig},
};
use tokio::{
    io::{ReadHalf, WriteHalf},
    net::UdpSocket,
};

use super::{Bound, Listener, Peer, WINDOW, udp_socket};
use crate::options::{Setting, Task};

pub(super) struct KcpTokio;

impl Peer for KcpTokio {
    type Listener = KcpListener<UdpTransport>;
    type Reader = ReadHalf<KcpStream<UdpTransport>>;
    type Writer = WriteHalf<KcpStream<UdpTransport>>;

    async fn listen(_: Setting) -> io::Result<Bound<Self::Listener>> {
        let listener = KcpListener::with_transport(transport()?, config()).await.map_err(io::Error::other)?;
        let addr = *listener.local_addr();
        Ok(Bound { listener, addr, token: String::new() })
    }

    async fn connect(_: Setting, task: &Task) -> io::Result<(Self::Reader, Self::Writer)> {
        let stream = KcpStream::connect_with_transport(transport()?, task.addr, config()).await;
        Ok(tokio::io::split(stream.map_err(io::Error::other)?))
    }
}

impl Listener for KcpListener<UdpTransport> {
    type Reader = ReadHalf<KcpStream<UdpTransport>>;
    type Writer = WriteHalf<KcpStream<UdpTransport>>;

    async fn accept(&mut self) -> io::Result<(Self::Reader, Self::Writer)> {
        let (stream, _) = Self::accept(self).await.map_err(io::Error::other)?;
        Ok(tokio::io::split(stream))
    }
}

fn transport() -> io::Result<Arc<UdpTransport>> {
    Ok(Arc::new(UdpTransport::new(UdpSocket::from_std(udp_socket()?)?)))
}

fn config() -> KcpConfig {
    KcpConfig::new()
        .nodelay_config(NodeDelayConfig::custom(true, 10, 2, true))
        .window_size(WINDOW.into(), WINDOW.into())
        .max_retries(1_000)
        .stream_mode(true)
        .keep_alive(None)
}
