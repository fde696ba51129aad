//! [`kcp_tokio`] 0.7, an engine of its own.
//!
//! What it needs to be met with:
//!
//! * its listener drops what arrives for a session between the first packet and `accept`, and later whatever finds
//!   256 packets waiting: both are loss to the sender. So is what finds its socket full, as it never sets the size
//!   that `socket_buffer_size` asks for;
//! * its reader gets no more than the 256 messages that wait in its channel until something else wakes the session's
//!   task, a packet or the deadline that it sleeps to: what the engine holds beyond them (received, acknowledged, in
//!   order) is handed on only then, not when the reader makes room. When nothing is under way any more, that deadline is
//!   the `keep_alive` period, 30 s by default, which looks like a stall with everything acknowledged. Without
//!   `keep_alive` it is 1 s;
//! * it ends a session after `max_retries` transmissions of one segment, however live the peer: raised here;
//! * with `keep_alive` it ends a session that heard nothing for three such periods, idle or not.

use std::net::SocketAddr;

use kcp_tokio::{
    KcpListener, KcpStream,
    config::{KcpConfig, NodeDelayConfig},
};
use kcp9_relay::Relay;
use kcp9_tests::spawn;
use tokio::task::JoinHandle;

use crate::echo::{self, OurServer, WINDOW, within};

const LEN: usize = 10 << 20;

fn settings() -> KcpConfig {
    KcpConfig::new()
        .nodelay_config(NodeDelayConfig::custom(true, 10, 2, true))
        .window_size(WINDOW.into(), WINDOW.into())
        .max_retries(1_000)
        .stream_mode(true)
        .keep_alive(None)
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
    let stream = KcpStream::connect(addr, settings()).await.unwrap();
    let (reader, writer) = tokio::io::split(stream);
    within(what, echo::drive(what, reader, writer, len)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_tokio_serves_an_echo() {
    let server = Server::start().await;
    echo::drive_ours("kcp-tokio serves", server.addr, echo::config(), LEN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_tokio_connects_to_an_echo() {
    let server = OurServer::start(echo::config()).await;
    drive("kcp-tokio connects", server.addr, LEN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_tokio_serves_an_echo_through_losses() {
    let server = Server::start().await;
    let relay = Relay::lossy(server.addr, 0.1).unwrap();
    echo::drive_ours("kcp-tokio serves, 10 % loss", relay.addr(), echo::config(), LEN).await;
    assert!(relay.counts().dropped() > 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_tokio_connects_to_an_echo_through_losses() {
    let server = OurServer::start(echo::config()).await;
    let relay = Relay::lossy(server.addr, 0.1).unwrap();
    drive("kcp-tokio connects, 10 % loss", relay.addr(), LEN).await;
    assert!(relay.counts().dropped() > 1_000);
}
