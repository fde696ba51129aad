//! tokio_kcp at its fastest: everything is flushed at once instead of at the next interval.

use std::io;

use tokio::{
    io::{ReadHalf, WriteHalf},
    net::UdpSocket,
};
use tokio_kcp::{KcpConfig, KcpListener, KcpNoDelayConfig, KcpStream};

use super::{Bound, Listener, Peer, WINDOW, udp_socket};
use crate::options::{Setting, Task};

pub(super) struct TokioKcp;

impl Peer for TokioKcp {
    type Listener = KcpListener;
    type Reader = ReadHalf<KcpStream>;
    type Writer = WriteHalf<KcpStream>;

    async fn listen(_: Setting) -> io::Result<Bound<KcpListener>> {
        let socket = UdpSocket::from_std(udp_socket()?)?;
        let listener = KcpListener::from_socket(config(), socket).await?;
        let addr = listener.local_addr()?;
        Ok(Bound { listener, addr, token: String::new() })
    }

    async fn connect(_: Setting, task: &Task) -> io::Result<(Self::Reader, Self::Writer)> {
        let socket = UdpSocket::from_std(udp_socket()?)?;
        Ok(tokio::io::split(KcpStream::connect_with_socket(&config(), socket, task.addr).await?))
    }
}

impl Listener for KcpListener {
    type Reader = ReadHalf<KcpStream>;
    type Writer = WriteHalf<KcpStream>;

    async fn accept(&mut self) -> io::Result<(Self::Reader, Self::Writer)> {
        let (stream, _) = Self::accept(self).await?;
        Ok(tokio::io::split(stream))
    }
}

fn config() -> KcpConfig {
    KcpConfig {
        nodelay: KcpNoDelayConfig::fastest(),
        wnd_size: (WINDOW, WINDOW),
        flush_write: true,
        flush_acks_input: true,
        stream: true,
        ..KcpConfig::default()
    }
}
