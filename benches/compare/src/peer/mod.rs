//! The implementations in Rust: each end of a run is a process that runs one of these. Go's are in `go/`.
//!
//! A server prints `listening ADDR TOKEN` (the token may be empty), serves until its standard input ends, and prints its
//! [`Figures`]. A driver prints `started` once all of its connections work, and its figures at the end. Errors go to
//! standard error.

mod kcp9_peer;
mod kcp_tokio_peer;
pub(crate) mod quinn_peer;
mod tcp;
mod tokio_kcp_peer;
mod udp;
mod work;

use std::{
    future::Future,
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr},
};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    figures::Figures,
    options::{Setting, Side, Task},
    usage,
};

/// Names of the peers, and of the packages that have their versions.
pub(crate) const ALL: [(&str, &str); 6] = [
    ("kcp9", "kcp9"),
    ("tcp", "tokio"),
    ("quinn", "quinn"),
    ("tokio_kcp", "tokio_kcp"),
    ("kcp-tokio", "kcp-tokio"),
    ("udp", "tokio"),
];

/// Any free port of the loopback.
pub(crate) const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
/// Bytes of a UDP socket's buffers, each way: more than any window here.
const SOCKET_BUFFER: usize = 4 << 20;
/// Segments that the implementations of KCP may have in flight, where nothing else is said.
const WINDOW: u16 = 1_024;

/// An implementation of reliable streams.
trait Peer {
    type Listener: Listener;
    type Reader: AsyncRead + Unpin + Send + 'static;
    type Writer: AsyncWrite + Unpin + Send + 'static;

    fn listen(setting: Setting) -> impl Future<Output = io::Result<Bound<Self::Listener>>> + Send;

    /// Opens a connection over a socket of its own.
    fn connect(
        setting: Setting,
        task: &Task,
    ) -> impl Future<Output = io::Result<(Self::Reader, Self::Writer)>> + Send;
}

trait Listener: Send + 'static {
    type Reader: AsyncRead + Unpin + Send + 'static;
    type Writer: AsyncWrite + Unpin + Send + 'static;

    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Reader, Self::Writer)>> + Send;
}

/// A server that is bound.
struct Bound<L> {
    listener: L,
    addr: SocketAddr,
    /// What a client needs to know besides the address.
    token: String,
}

/// Runs one end of a run.
pub(crate) fn run(side: &Side) -> io::Result<()> {
    let (Side::Serve { name, .. } | Side::Drive { name, .. }) = side;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match name.as_str() {
            "kcp9" => one_end::<kcp9_peer::Kcp9>(side).await,
            "tcp" => one_end::<tcp::Tcp>(side).await,
            "quinn" => one_end::<quinn_peer::Quinn>(side).await,
            "tokio_kcp" => one_end::<tokio_kcp_peer::TokioKcp>(side).await,
            "kcp-tokio" => one_end::<kcp_tokio_peer::KcpTokio>(side).await,
            "udp" => one_end::<udp::Udp>(side).await,
            _ => Err(io::Error::new(io::ErrorKind::NotFound, format!("no peer is called {name}"))),
        }
    })?;
    // Connections may take their time to close, and nobody waits for them.
    runtime.shutdown_background();
    Ok(())
}

async fn one_end<P: Peer>(side: &Side) -> io::Result<()> {
    match side {
        Side::Serve { setting, .. } => {
            let Bound { listener, addr, token } = P::listen(*setting).await?;
            say(&format!("listening {addr} {token}"))?;
            print(work::serve(listener, setting.work).await?)
        }
        Side::Drive { setting, task, .. } => {
            let connections = work::open::<P>(*setting, task).await?;
            say("started")?;
            print(work::drive(connections, setting.work, task).await?)
        }
    }
}

fn print(mut figures: Figures) -> io::Result<()> {
    usage::add(&mut figures)?;
    say(&serde_json::to_string(&figures)?)
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// A UDP socket with large buffers, for the implementations that take one.
fn udp_socket() -> io::Result<std::net::UdpSocket> {
    let socket = std::net::UdpSocket::bind(ANY)?;
    let options = socket2::SockRef::from(&socket);
    options.set_recv_buffer_size(SOCKET_BUFFER)?;
    options.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
