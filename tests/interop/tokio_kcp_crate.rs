//! [`tokio_kcp`] 0.9, a port of the C library.
//!
//! How it differs from others, and what the tests do about it:
//!
//! * A write of 128 segments or more fails with `UserBufTooBig`. The tests write 64 KiB at a time.
//! * It sends and acknowledges at the next `interval` only, unless `flush_write` and `flush_acks_input` are on, as here.
//! * Dropping its stream discards what is unacknowledged, and its `shutdown` does nothing. Here the end that drives the echo,
//!   and has got everything back, is dropped first.

use std::{net::SocketAddr, sync::atomic::Ordering};

use kcp9_tests::spawn;
use tokio_kcp::{KcpConfig, KcpListener, KcpNoDelayConfig, KcpStream};

use crate::echo::{self, OtherCrate, Server, WINDOW};

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

pub struct TokioKcp;

impl OtherCrate for TokioKcp {
    const NAME: &'static str = "tokio_kcp";
    type Stream = KcpStream;

    async fn serve() -> Server {
        let mut listener = KcpListener::bind(settings(), "127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        Server::new(addr, |accepted| async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::Relaxed);
                spawn(echo::serve(stream));
            }
        })
    }

    async fn connect(addr: SocketAddr) -> KcpStream {
        KcpStream::connect(&settings(), addr).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokio_kcp_serves_an_echo() {
    echo::drive_other::<TokioKcp>(0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokio_kcp_connects_to_an_echo() {
    echo::serve_other::<TokioKcp>(0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokio_kcp_serves_an_echo_through_losses() {
    echo::drive_other::<TokioKcp>(0.1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokio_kcp_connects_to_an_echo_through_losses() {
    echo::serve_other::<TokioKcp>(0.1).await;
}
