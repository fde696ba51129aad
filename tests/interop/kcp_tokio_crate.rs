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
use kcp9_tests::spawn;

use crate::echo::{self, OtherCrate, Server, WINDOW};

fn settings() -> KcpConfig {
    KcpConfig::new()
        .nodelay_config(NodeDelayConfig::custom(true, 10, 2, true))
        .window_size(WINDOW.into(), WINDOW.into())
        .max_retries(1_000)
        .stream_mode(true)
        .keep_alive(None)
}

struct KcpTokio;

impl OtherCrate for KcpTokio {
    const NAME: &'static str = "kcp-tokio";
    type Stream = KcpStream;

    async fn serve() -> Server {
        let mut listener = KcpListener::bind(([127, 0, 0, 1], 0).into(), settings()).await.unwrap();
        let addr = *listener.local_addr();
        let task = spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawn(echo::serve(stream));
            }
        });
        Server::new(addr, task)
    }

    async fn connect(addr: SocketAddr) -> KcpStream {
        KcpStream::connect(addr, settings()).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_tokio_serves_an_echo() {
    echo::drive_other::<KcpTokio>(0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_tokio_connects_to_an_echo() {
    echo::serve_other::<KcpTokio>(0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_tokio_serves_an_echo_through_losses() {
    echo::drive_other::<KcpTokio>(0.1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_tokio_connects_to_an_echo_through_losses() {
    echo::serve_other::<KcpTokio>(0.1).await;
}
