//! Streams that are dropped: what was written is still delivered, within `linger`, and the socket lives as long.

use std::{
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use kcp9::{KcpConfig, KcpEndpoint, KcpStream};
use kcp9_relay::Relay;
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    ANY, Pair, accept_session, kind, listen, ms, pair, pair_with, read_payload, rebind, until, within,
    without_extensions, write_payload,
};

const LEN: usize = 100_000;

/// The address of a client's socket, as the loopback has it.
fn addr_of(stream: &KcpStream) -> SocketAddr {
    ([127, 0, 0, 1], stream.local_addr().unwrap().port()).into()
}

/// A client writes and is dropped, ten times, over a path that loses this share of the packets each way.
async fn what_was_written_arrives(loss: f64) {
    for round in 0..10 {
        let listener = listen().await;
        let relay = Relay::lossy(listener.local_addr().unwrap(), loss).unwrap();
        let mut client = KcpStream::connect(relay.addr(), KcpConfig::default()).await.unwrap();
        let port = addr_of(&client);
        write_payload(&mut client, LEN).await.unwrap();
        drop(client);
        let arrival = async {
            let (mut server, _) = listener.accept().await.unwrap();
            read_payload(&mut server, LEN).await.unwrap();
            server
        };
        let _server = within(20, &format!("100,000 of 100,000 bytes, round {round}"), arrival).await;
        // The driver ends when the last of it is acknowledged, and with it the socket.
        rebind(port).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dropped_stream_wrote_arrives() {
    what_was_written_arrives(0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dropped_stream_wrote_arrives_over_a_path_that_drops_a_fifth() {
    what_was_written_arrives(0.2).await;
}

/// On one thread nothing was sent by the driver before the stream is dropped.
#[tokio::test]
async fn a_stream_dropped_before_its_driver_ran_delivers_too() {
    let listener = listen().await;
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    for _ in 0..20 {
        let mut client = endpoint.connect(listener.local_addr().unwrap(), KcpConfig::default()).unwrap();
        let written = crate::support::PAYLOAD;
        let mut bytes = vec![0; 30_000];
        written.fill(0, &mut bytes);
        // As much as a write takes without waiting.
        let count = client.write(&bytes).await.unwrap();
        drop(client);
        let (mut server, _) = within(5, "it is accepted", listener.accept()).await.unwrap();
        within(5, "what was taken arrives", read_payload(&mut server, count)).await.unwrap();
    }
    drop(endpoint);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_wrote_arrives_when_it_drops_its_stream_and_the_listener() {
    let Pair { mut client, mut server, listener } = pair().await;
    let addr = listener.local_addr().unwrap();
    write_payload(&mut server, LEN).await.unwrap();
    drop((server, listener));
    within(10, "100,000 bytes", read_payload(&mut client, LEN)).await.unwrap();
    rebind(addr).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_dropped_halves_wrote_arrives() {
    for writer_first in [true, false] {
        let Pair { client, mut server, listener: _listener } = pair().await;
        let (reader, mut writer) = client.into_split();
        write_payload(&mut writer, LEN).await.unwrap();
        if writer_first {
            drop(writer);
            drop(reader);
        } else {
            drop(reader);
            drop(writer);
        }
        within(10, "100,000 bytes", read_payload(&mut server, LEN)).await.unwrap();
    }
}

/// A peer without extensions answers more than it reads, and nobody reads that. It must not be held up before it has taken everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_goes_on_sending_takes_everything() {
    const MUCH: usize = 1 << 20;
    let small = without_extensions().send_window(64).recv_window(64).build().unwrap();
    let listener = crate::support::listen_with(small).await;
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let client = endpoint.connect(listener.local_addr().unwrap(), KcpConfig::default()).unwrap();
    let (client, mut server) = accept_session(&listener, client).await;
    let echo = spawn(async move {
        let mut buffer = vec![0; 16_384];
        let mut at = 0;
        loop {
            let count = server.read(&mut buffer).await?;
            crate::support::assert_payload(at, &buffer[..count]);
            at += count;
            for _ in 0..3 {
                server.write_all(&buffer[..count]).await?;
            }
        }
        #[allow(unreachable_code, reason = "the type of the block")]
        std::io::Result::Ok(())
    });
    let (mut reader, mut writer) = client.into_split();
    // The answers are read while the client writes, and then no more.
    let reading = spawn(async move {
        let mut sink = vec![0; 65_536];
        while reader.read(&mut sink).await.is_ok() {}
    });
    within(20, "1 MB is written", write_payload(&mut writer, MUCH)).await.unwrap();
    reading.abort();
    drop(writer);
    until(10, "the client is done", || endpoint.endpoint_stats().state.sessions == 0).await;
    assert_eq!(endpoint.endpoint_stats().driver.bytes_abandoned, 0);
    assert!(!echo.is_finished(), "{:?}", echo.await);
    echo.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_delivered_is_given_up_after_linger_and_counted() {
    let config = KcpConfig::builder().linger(ms(700)).build().unwrap();
    let absent = UdpSocket::bind(ANY).unwrap();
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let mut client = endpoint.connect(absent.local_addr().unwrap(), config).unwrap();
    client.write_all(&[7; 5_000]).await.unwrap();
    let begun = Instant::now();
    drop(client);
    until(2, "it lingers", || endpoint.endpoint_stats().state.lingering == 1).await;
    assert_eq!(endpoint.endpoint_stats().state.sessions, 1);
    until(3, "it is given up", || endpoint.endpoint_stats().state.sessions == 0).await;
    assert!(begun.elapsed() >= ms(690), "after {:?} already", begun.elapsed());
    let stats = endpoint.endpoint_stats();
    assert_eq!((stats.state.lingering, stats.driver.bytes_abandoned), (0, 5_000), "{stats:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_linger_of_zero_a_dropped_stream_is_gone_at_once() {
    let config = KcpConfig::builder().linger(Duration::ZERO).build().unwrap();
    let absent = UdpSocket::bind(ANY).unwrap();
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let mut client = endpoint.connect_with_conv(absent.local_addr().unwrap(), 3, config.clone()).unwrap();
    client.write_all(&[7; 5_000]).await.unwrap();
    drop(client);
    assert_eq!(endpoint.endpoint_stats().driver.bytes_abandoned, 5_000);
    // Its conv is free.
    let again = endpoint.connect_with_conv(absent.local_addr().unwrap(), 3, config).unwrap();
    until(2, "the second is known", || endpoint.endpoint_stats().state.sessions == 1).await;
    assert_eq!(kind(again.send(b"x").await), None);
}

/// A stream with nothing left to deliver is gone at once, and counts nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_with_everything_acknowledged_does_not_linger() {
    let Pair { mut client, server, listener } = pair().await;
    client.write_all(b"last words").await.unwrap();
    within(5, "they arrive", client.shutdown()).await.unwrap();
    let port = addr_of(&client);
    drop(client);
    rebind(port).await;
    drop(server);
    until(2, "the server's too", || listener.endpoint_stats().state.sessions == 0).await;
    let stats = listener.endpoint_stats();
    assert_eq!((stats.state.lingering, stats.driver.bytes_abandoned), (0, 0), "{stats:?}");
}

/// What is still to be delivered has the conv until then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conv_of_a_lingering_session_is_in_use() {
    let config = KcpConfig::builder().linger(ms(500)).build().unwrap();
    let absent = UdpSocket::bind(ANY).unwrap();
    let peer = absent.local_addr().unwrap();
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let mut client = endpoint.connect_with_conv(peer, 3, config.clone()).unwrap();
    client.write_all(b"nobody hears this").await.unwrap();
    drop(client);
    let mut second = endpoint.connect_with_conv(peer, 3, config.clone()).unwrap();
    let refused = within(2, "the second one's read fails", second.read_u8()).await;
    assert_eq!(kind(refused), Some(ErrorKind::AddrInUse));
    until(3, "the first is given up", || endpoint.endpoint_stats().state.sessions == 0).await;
    let third = endpoint.connect_with_conv(peer, 3, config).unwrap();
    until(2, "the third is known", || endpoint.endpoint_stats().state.sessions == 1).await;
    drop(third);
}

/// A handle of the datagrams does not keep the stream, and what waits on it learns that the stream is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_end_with_the_stream_although_the_session_lingers() {
    let config = KcpConfig::builder().datagram_queue(65_536).linger(Duration::from_secs(5)).build().unwrap();
    let absent = UdpSocket::bind(ANY).unwrap();
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let mut client = endpoint.connect(absent.local_addr().unwrap(), config).unwrap();
    client.write_all(b"nobody hears this").await.unwrap();
    let datagrams = client.datagrams();
    let waiting = spawn({
        let datagrams = datagrams.clone();
        async move { kind(datagrams.recv().await) }
    });
    tokio::time::sleep(ms(50)).await;
    drop(client);
    let aborted = Some(ErrorKind::ConnectionAborted);
    assert_eq!(within(1, "the pending receive fails", waiting).await.unwrap(), aborted);
    assert_eq!(kind(datagrams.send(b"x")), aborted);
    assert_eq!(kind(within(1, "a further one", datagrams.recv()).await), aborted);
    assert_eq!(endpoint.endpoint_stats().state.sessions, 1, "it lingers all the same");
}

/// A listener that is aborted ends its sessions, also those that linger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_linger_end_when_their_listener_is_aborted() {
    let Pair { client, mut server, listener } = pair_with(KcpConfig::default()).await;
    let relay = Relay::lossy(listener.local_addr().unwrap(), 0.0).unwrap();
    let far = KcpStream::connect(relay.addr(), KcpConfig::default()).await.unwrap();
    let (_far, mut far_server) = accept_session(&listener, far).await;
    relay.set_loss(1.0);
    far_server.write_all(&[7; 3_000]).await.unwrap();
    server.write_all(b"still here").await.unwrap();
    drop(far_server);
    until(2, "it lingers", || listener.endpoint_stats().state.lingering == 1).await;
    listener.abort();
    until(2, "all are gone", || listener.endpoint_stats().state.sessions == 0).await;
    let stats = listener.endpoint_stats();
    assert_eq!((stats.state.lingering, stats.driver.bytes_abandoned), (0, 3_000), "{stats:?}");
    drop((client, server));
}

/// With its runtime, everything ends that nobody has waited for.
#[test]
fn a_lingering_session_does_not_keep_its_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let absent = UdpSocket::bind(ANY).unwrap();
    let peer = absent.local_addr().unwrap();
    let (endpoint, port) = runtime.block_on(async {
        let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
        let mut client = endpoint.connect(peer, KcpConfig::default()).unwrap();
        let port = addr_of(&client);
        client.write_all(&[7; 2_000]).await.unwrap();
        drop(client);
        until(2, "it lingers", || endpoint.endpoint_stats().state.lingering == 1).await;
        (endpoint, port)
    });
    let begun = Instant::now();
    drop(runtime);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let stats = endpoint.endpoint_stats();
    assert_eq!((stats.state.lingering, stats.driver.bytes_abandoned), (0, 2_000), "{stats:?}");
    drop(endpoint);
    UdpSocket::bind(port).expect("the socket is closed");
}
