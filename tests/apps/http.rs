//! HTTP by axum and hyper.

use std::{io, net::SocketAddr, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo, routing::get, serve::ListenerExt};
use futures_util::stream;
use http_body_util::{BodyExt, Empty};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use kcp9::{KcpEndpoint, KcpHandle, KcpStream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
    task::JoinHandle,
};

use crate::support::{connect, listen, spawn, until, within};

/// Pieces of the body whose length the server does not know when it begins.
const PIECES: usize = 40;
const PIECE: usize = 5_000;

/// A server, until it is dropped.
struct Server {
    addr: SocketAddr,
    endpoint: KcpEndpoint,
    task: JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        let (listener, addr) = listen().await;
        let endpoint = listener.endpoint().clone();
        let streamed = || async {
            let pieces = (0..PIECES).map(|number| io::Result::Ok(vec![number as u8; PIECE]));
            Body::from_stream(stream::iter(pieces))
        };
        let app = Router::new().route("/", get(|| async { "hello" })).route("/streamed", get(streamed));
        let task = spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { addr, endpoint, task }
    }

    /// Waits until no session is left.
    async fn becomes_empty(&self) {
        until(10, "no session is left", || self.endpoint.endpoint_stats().state.sessions == 0).await;
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
    assert_eq!(server.endpoint.endpoint_stats().driver.accepted, 1);
    // The client ends: both sides see it.
    drop(requests);
    within(10, "the client's connection ends", connection).await.unwrap().unwrap();
    server.becomes_empty().await;
}

/// The body of the answer to a request, and the client's session.
async fn ask(addr: SocketAddr) -> (String, KcpHandle) {
    let mut stream = connect(addr).await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: kcp9\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    within(10, "an answer", stream.read_to_string(&mut answer)).await.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    (body.to_owned(), stream.handle())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_know_the_session_that_a_request_came_by() {
    async fn who(ConnectInfo(session): ConnectInfo<KcpHandle>) -> String {
        let received = session.stats().stream.bytes_read;
        format!("{} {} {}", session.peer_addr().port(), session.conv(), received > 0)
    }

    let (listener, addr) = listen().await;
    let app = Router::new().route("/", get(who)).into_make_service_with_connect_info::<KcpHandle>();
    let serving = spawn(async move { axum::serve(listener, app).await.unwrap() });
    for _ in 0..3 {
        let (body, client) = ask(addr).await;
        assert_eq!(body, format!("{} {} true", client.local_addr().port(), client.conv()));
    }
    serving.abort();
}

/// What was written for TCP needs no change but for the listener.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_know_the_address_that_a_request_came_from() {
    async fn who(ConnectInfo(peer): ConnectInfo<SocketAddr>) -> String {
        peer.port().to_string()
    }

    let (listener, addr) = listen().await;
    let listener = listener.tap_io(|stream: &mut KcpStream| assert!(stream.close_reason().is_none()));
    let app = Router::new().route("/", get(who)).into_make_service_with_connect_info::<SocketAddr>();
    let serving = spawn(async move { axum::serve(listener, app).await.unwrap() });
    let (body, client) = ask(addr).await;
    assert_eq!(body, client.local_addr().port().to_string());
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_listener_is_closed_serves_whom_it_has_until_it_is_told_to_stop() {
    let (listener, addr) = listen().await;
    let endpoint = listener.endpoint().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let app = Router::new().route("/", get(|| async { "hello" }));
    let serving = async {
        let stopped = async { stopped.await.unwrap() };
        axum::serve(listener, app).with_graceful_shutdown(stopped).await.unwrap();
    };
    let mut serving = spawn(serving);
    let stream = connect(addr).await;
    let (mut requests, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = spawn(connection);
    for round in 0..3 {
        let request = Request::get("/").header("host", "kcp9").body(Empty::<Bytes>::new()).unwrap();
        let answer = within(10, "an answer", requests.send_request(request)).await.unwrap();
        assert_eq!(within(10, "a body", answer.into_body().collect()).await.unwrap().to_bytes(), "hello");
        within(10, "the stream is ready for a request", requests.ready()).await.unwrap();
        if round == 0 {
            endpoint.close();
            // Turned away.
            let late = connect(addr).await;
            assert!(late.connected(Duration::from_secs(5)).await.is_err());
        }
    }
    let still = tokio::time::timeout(Duration::from_millis(100), &mut serving).await;
    assert!(still.is_err(), "the server ended with its listener");
    stop.send(()).unwrap();
    within(10, "the server ends", serving).await.unwrap();
    within(10, "the idle connection ends", connection).await.unwrap().unwrap();
}
