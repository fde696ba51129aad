//! [`kcp_tokio`] 0.7, an engine of its own.
//!
//! What it needs to be met with:
//!
//! * its listener drops what arrives for a session between the first datagram and `accept`, and later whatever finds
//!   256 datagrams waiting: both are loss to the sender. After such loss its client sometimes acknowledges segments that
//!   its reader never gets (our end then has everything acknowledged and nothing in flight), so its windows stay below
//!   that here, and a client whose reads stall is tried again, three times in all. Wrong bytes fail at once;
//! * it ends a session after `max_retries` transmissions of one segment, however live the peer: raised here;
//! * it ends a session that heard nothing for three `keep_alive` periods (90 s by default), idle or not.

use std::{net::SocketAddr, time::Duration};

use kcp_tokio::{
    KcpListener, KcpStream,
    config::{KcpConfig, NodeDelayConfig},
};
use tokio::task::JoinHandle;

use crate::{
    echo::{self, OurServer},
    relay::Relay,
};

const LEN: usize = 10 << 20;
/// Its windows, in segments.
const WINDOW: u32 = 96;
/// Several times what a transfer takes.
const STALL: Duration = Duration::from_secs(10);

fn settings() -> KcpConfig {
    KcpConfig::new()
        .nodelay_config(NodeDelayConfig::custom(true, 10, 2, true))
        .window_size(WINDOW, WINDOW)
        .max_retries(1_000)
        .stream_mode(true)
        .socket_buffer_size(4 << 20)
}

/// Its echo server, until it is dropped.
struct Server {
    addr: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        let mut listener = KcpListener::bind(([127, 0, 0, 1], 0).into(), settings()).await.unwrap();
        let addr = *listener.local_addr();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(echo::serve(stream));
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
    for _ in 0..3 {
        let stream = KcpStream::connect(addr, settings()).await.unwrap();
        let (reader, writer) = tokio::io::split(stream);
        if tokio::time::timeout(STALL, echo::drive(what, reader, writer, len)).await.is_ok() {
            return;
        }
        eprintln!("{what}: stalled");
    }
    panic!("{what}: stalled three times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_serves() {
    let server = Server::start().await;
    echo::drive_ours("kcp-tokio serves", server.addr, echo::config(), LEN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_connects() {
    let server = OurServer::start(echo::config()).await;
    drive("kcp-tokio connects", server.addr, LEN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_serves_over_a_path_that_drops_a_tenth() {
    let server = Server::start().await;
    let relay = Relay::start(server.addr, 0.1).await.unwrap();
    echo::drive_ours("kcp-tokio serves, 10 % loss", relay.addr(), echo::config(), LEN).await;
    assert!(relay.dropped() > 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_connects_over_a_path_that_drops_a_tenth() {
    let server = OurServer::start(echo::config()).await;
    let relay = Relay::start(server.addr, 0.1).await.unwrap();
    drive("kcp-tokio connects, 10 % loss", relay.addr(), LEN).await;
    assert!(relay.dropped() > 1_000);
}
