//! Runtimes: of either kind, several, and shut down under live streams.

use std::{future::Future, io::ErrorKind, thread, time::Duration};

use kcp9::{KcpConfig, KcpEndpoint, KcpListener, KcpStream};
use kcp9_tests::spawn;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::{Builder, Runtime},
};

use crate::support::{ANY, EchoServer, accept_session, echo_payload, kind, listen, ms, rebind, within};

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Runs `test` on a thread of its own, where it may enter and drop runtimes.
fn apart<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    thread::spawn(move || current_thread().block_on(test())).join().unwrap();
}

#[test]
fn an_echo_on_a_single_thread() {
    current_thread().block_on(async {
        let server = EchoServer::start().await;
        let client = KcpStream::connect(server.addr, KcpConfig::default()).await.unwrap();
        within(10, "1 MB on one thread", echo_payload(client, 1 << 20)).await.unwrap();
    });
}

/// The driver runs in the runtime that opened the socket, the stream is used in another.
#[test]
fn a_stream_may_be_used_in_another_runtime() {
    let home = multi_thread();
    let (server, client) = home.block_on(async {
        let server = EchoServer::start().await;
        let client = KcpStream::connect(server.addr, KcpConfig::default()).await.unwrap();
        (server, client)
    });
    current_thread().block_on(async {
        within(10, "1 MB from another runtime", echo_payload(client, 1 << 20)).await.unwrap();
    });
    drop(server);
}

#[test]
fn two_runtimes_talk() {
    let one = multi_thread();
    let two = current_thread();
    let server = one.block_on(EchoServer::start());
    two.block_on(async {
        let client = KcpStream::connect(server.addr, KcpConfig::default()).await.unwrap();
        within(10, "1 MB between runtimes", echo_payload(client, 1 << 20)).await.unwrap();
    });
}

#[test]
fn sockets_outside_a_runtime_are_an_error() {
    let listener = std::net::UdpSocket::bind(ANY).unwrap();
    let addr = listener.local_addr().unwrap();
    let stream = std::net::UdpSocket::bind(ANY).unwrap();
    let outcome = std::panic::catch_unwind(|| {
        (
            kind(KcpListener::from_socket(listener, KcpConfig::default())),
            kind(KcpStream::from_socket(stream, addr, 1, KcpConfig::default())),
        )
    });
    let kinds = outcome.expect("an error is promised, not a panic");
    assert_eq!(kinds, (Some(ErrorKind::Other), Some(ErrorKind::Other)));
}

#[test]
fn calls_fail_when_the_runtime_of_their_driver_is_gone() {
    apart(|| async {
        let home = multi_thread();
        let setup = async {
            let listener = listen().await;
            let addr = listener.local_addr().unwrap();
            let client = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
            let (client, server) = accept_session(&listener, client).await;
            let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
            (listener, client, server, endpoint)
        };
        let (listener, mut client, mut server, endpoint) = home.spawn(setup).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let reading = spawn(async move { (kind(server.read_u8().await), server) });
        let listener = std::sync::Arc::new(listener);
        let accepting = spawn({
            let listener = std::sync::Arc::clone(&listener);
            async move { kind(listener.accept().await) }
        });
        tokio::time::sleep(ms(50)).await;
        home.shutdown_background();

        let gone = Some(ErrorKind::NotConnected);
        let (read, mut server) = within(3, "the pending read fails", reading).await.unwrap();
        assert_eq!(read, gone);
        assert_eq!(within(3, "the pending accept fails", accepting).await.unwrap(), gone);
        let further = async {
            assert_eq!(kind(client.read_u8().await), gone, "read");
            assert_eq!(kind(client.write(b"x").await), gone, "write");
            assert_eq!(kind(client.send(b"x").await), gone, "send");
            assert_eq!(kind(client.flush().await), gone, "flush");
            assert_eq!(kind(client.shutdown().await), gone, "shutdown");
            assert_eq!(kind(server.write(b"x").await), gone, "write");
            assert_eq!(kind(listener.accept().await), gone, "accept");
        };
        within(1, "further calls fail at once", further).await;
        drop(endpoint);

        // All sockets are closed.
        let client_port = client.local_addr().unwrap();
        drop((client, server, listener));
        rebind(addr).await;
        rebind(client_port).await;
    });
}

/// An endpoint that outlives its runtime refuses to connect: such streams would wait for ever.
#[test]
fn connecting_on_an_endpoint_without_its_runtime_fails() {
    apart(|| async {
        let home = multi_thread();
        let endpoint = home.spawn(KcpEndpoint::bind(ANY)).await.unwrap().unwrap();
        thread::spawn(move || drop(home)).join().unwrap();
        let Ok(mut stream) = endpoint.connect("127.0.0.1:9".parse().unwrap(), KcpConfig::default()) else {
            return;
        };
        let read = within(2, "the read fails", stream.read_u8()).await;
        assert_eq!(kind(read), Some(ErrorKind::NotConnected));
    });
}

/// The endpoint is dropped before its driver has run once. Its streams are served all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_outlive_their_endpoint_or_listener() {
    let server = EchoServer::start().await;
    for attempt in 0..2_000 {
        let mut stream = if attempt % 2 == 0 {
            KcpStream::connect(server.addr, KcpConfig::default()).await.unwrap()
        } else {
            KcpEndpoint::bind(ANY).await.unwrap().connect(server.addr, KcpConfig::default()).unwrap()
        };
        let echo = async {
            stream.write_all(b"x").await?;
            stream.read_u8().await
        };
        let echo = within(5, "an echo", echo).await;
        assert_eq!(echo.map_err(|error| error.to_string()), Ok(b'x'), "attempt {attempt}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_streams_free_their_sockets() {
    let server = EchoServer::start().await;
    let mut ports = Vec::new();
    for _ in 0..50 {
        let mut stream = KcpStream::connect(server.addr, KcpConfig::default()).await.unwrap();
        let mut addr = stream.local_addr().unwrap();
        addr.set_ip([127, 0, 0, 1].into());
        ports.push(addr);
        stream.write_all(b"x").await.unwrap();
        if ports.len() % 2 == 0 {
            within(5, "an echo", stream.read_u8()).await.unwrap();
        }
    }
    for port in ports {
        rebind(port).await;
    }
}

/// Streams dropped in the middle of everything, from several threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_dropped_mid_transfer_do_not_stop_others() {
    let server = EchoServer::start().await;
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let steady = endpoint.connect(server.addr, KcpConfig::default()).unwrap();
    let steady = spawn(echo_payload(steady, 4 << 20));
    for round in 0..200 {
        let stream = endpoint.connect(server.addr, KcpConfig::default()).unwrap();
        let short = spawn(echo_payload(stream, 10 << 20));
        tokio::time::sleep(Duration::from_micros(round * 20)).await;
        short.abort();
    }
    within(20, "the steady stream", steady).await.unwrap().unwrap();
    crate::support::until(5, "the others are gone", || endpoint.endpoint_stats().state.sessions == 0).await;
}
