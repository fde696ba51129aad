//! [`kcp_tokio`] 0.7, an engine of its own.
//!
//! How it differs from others, and what the tests do about it:
//!
//! * Its listener drops packets that arrive for a session between the first one and `accept`, and later packets that find 256
//!   waiting. Its socket drops some too, since it never sets the size that `socket_buffer_size` asks for. To the sender all of
//!   this is loss.
//! * Its reader gets at most the 256 messages that wait in a channel. The engine may hold more, received and acknowledged. It
//!   does not hand them on when the reader makes room, but when a packet or a deadline wakes the session's task. When nothing
//!   else is under way, that deadline is the `keep_alive` period, 30 s by default, which looks like a stall. Without
//!   `keep_alive`, as here, it is 1 s.
//! * It ends a session after `max_retries` transmissions of one segment, even if the peer answers others. The tests raise it.
//! * With `keep_alive` it ends a session that received nothing for three such periods, idle or not.

use std::{net::SocketAddr, sync::atomic::Ordering};

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

pub struct KcpTokio;

impl OtherCrate for KcpTokio {
    const NAME: &'static str = "kcp-tokio";
    type Stream = KcpStream;

    async fn serve() -> Server {
        let mut listener = KcpListener::bind(([127, 0, 0, 1], 0).into(), settings()).await.unwrap();
        let addr = *listener.local_addr();
        Server::new(addr, |accepted| async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::Relaxed);
                spawn(echo::serve(stream));
            }
        })
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
