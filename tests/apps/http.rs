//! HTTP by axum and hyper.

use std::{net::SocketAddr, sync::Arc};

use axum::{Router, body::Body, routing::get};
use futures_util::stream;
use http_body_util::{BodyExt, Empty};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use kcp9::{KcpListener, KcpStream};
use tokio::{
    io::{self, AsyncReadExt, AsyncWriteExt},
    task::JoinHandle,
};

use crate::support::{connect, listen, spawn, until, within};

/// Pieces of the body whose length the server does not know when it begins.
const PIECES: usize = 40;
const PIECE: usize = 5_000;

/// A listener that axum can serve.
struct Listener(Arc<KcpListener>);

impl axum::serve::Listener for Listener {
    type Io = KcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (KcpStream, SocketAddr) {
        self.0.accept().await.unwrap()
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A server, until it is dropped.
struct Server {
    addr: SocketAddr,
    listener: Arc<KcpListener>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        let (listener, addr) = listen().await;
        let listener = Arc::new(listener);
        let streamed = || async {
            let pieces = (0..PIECES).map(|number| io::Result::Ok(vec![number as u8; PIECE]));
            Body::from_stream(stream::iter(pieces))
        };
        let app = Router::new().route("/", get(|| async { "hello" })).route("/streamed", get(streamed));
        let own = Arc::clone(&listener);
        let task = spawn(async move { axum::serve(Listener(own), app).await.unwrap() });
        Self { addr, listener, task }
    }

    /// Waits until no session is left.
    async fn becomes_empty(&self) {
        until(10, "no session is left", || self.listener.endpoint_stats().state.sessions == 0).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// With HTTP/1.0 a body without a length ends where the stream does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_http_1_0_body_ends_with_the_stream() {
    let server = Server::start().await;
    for _ in 0..20 {
        let mut stream = connect(server.addr).await;
        stream.write_all(b"GET /streamed HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        within(10, "the body ends", stream.read_to_end(&mut answer)).await.unwrap();
        let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
        assert!(answer.starts_with(b"HTTP/1.0 200 OK\r\n"));
        let expected = (0..PIECES).flat_map(|number| [number as u8; PIECE]);
        assert!(answer[head..].iter().copied().eq(expected), "{} bytes", answer.len() - head);
    }
    server.becomes_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_follow_each_other_on_a_stream_that_is_kept() {
    let server = Server::start().await;
    let stream = connect(server.addr).await;
    let (mut requests, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = spawn(connection);
    for number in 0..50 {
        within(10, "the stream is ready for a request", requests.ready()).await.unwrap();
        let path = if number % 10 == 0 { "/streamed" } else { "/" };
        let request = Request::get(path).header("host", "kcp9").body(Empty::<Bytes>::new()).unwrap();
        let answer = within(10, "an answer", requests.send_request(request)).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let body = within(10, "a body", answer.into_body().collect()).await.unwrap().to_bytes();
        assert_eq!(body.len(), if number % 10 == 0 { PIECES * PIECE } else { 5 });
    }
    assert_eq!(server.listener.endpoint_stats().driver.accepted, 1);
    // The client ends: both sides see it.
    drop(requests);
    within(10, "the client's connection ends", connection).await.unwrap().unwrap();
    server.becomes_empty().await;
}
