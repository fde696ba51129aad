//! [`tokio_kcp`] 0.9, a port of the C library.
//!
//! What it needs to be met with:
//!
//! * a write of 128 segments or more fails with `UserBufTooBig`, whole: ours here are of 64 KiB;
//! * it sends what was written at the next `interval` only, unless `flush_write` is on, and acknowledges as slowly
//!   unless `flush_acks_input` is;
//! * its stream's drop discards what is unacknowledged, and its `shutdown` does nothing: the driving end goes first here.

use std::net::SocketAddr;

use kcp9_relay::Relay;
use kcp9_tests::spawn;
use tokio::task::JoinHandle;
use tokio_kcp::{KcpConfig, KcpListener, KcpNoDelayConfig, KcpStream};

use crate::echo::{self, OurServer, WINDOW, within};

const LEN: usize = 10 << 20;

fn settings() -> KcpConfig {
    KcpConfig {
        nodelay: KcpNoDelayConfig::fastest(),
        wnd_size: (WINDOW, WINDOW),
        flush_write: true,
        flush_acks_input: true,
        stream: true,
        ..KcpConfig::default()
    }
}

/// Its echo server, until it is dropped.
struct Server {
    addr: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        let mut listener = KcpListener::bind(settings(), "127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let task = spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawn(echo::serve(stream));
            }
        });
        Self { addr, task }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn drive(what: &str, addr: SocketAddr, len: usize) {
    let stream = KcpStream::connect(&settings(), addr).await.unwrap();
    let (reader, writer) = tokio::io::split(stream);
    within(what, echo::drive(what, reader, writer, len)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokio_kcp_serves_an_echo() {
    let server = Server::start().await;
    echo::drive_ours("tokio_kcp serves", server.addr, echo::config(), LEN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokio_kcp_connects_to_an_echo() {
    let server = OurServer::start(echo::config()).await;
    drive("tokio_kcp connects", server.addr, LEN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokio_kcp_serves_an_echo_through_losses() {
    let server = Server::start().await;
    let relay = Relay::lossy(server.addr, 0.1).unwrap();
    echo::drive_ours("tokio_kcp serves, 10 % loss", relay.addr(), echo::config(), LEN).await;
    assert!(relay.counts().dropped() > 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokio_kcp_connects_to_an_echo_through_losses() {
    let server = OurServer::start(echo::config()).await;
    let relay = Relay::lossy(server.addr, 0.1).unwrap();
    drive("tokio_kcp connects, 10 % loss", relay.addr(), LEN).await;
    assert!(relay.counts().dropped() > 1_000);
}
