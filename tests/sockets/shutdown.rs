//! Shutting down: everything written arrives, or an error says that it may not have.

use std::{
    io::ErrorKind,
    net::UdpSocket,
    time::{Duration, Instant},
};

use kcp9::{KcpConfig, KcpStream, proto::Extensions};
use kcp9_relay::Relay;
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    ANY, Pair, accept_session, kind, listen, ms, pair, read_payload, within, without_extensions,
    write_payload,
};

const LEN: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_waits_until_everything_arrived_over_a_path_that_drops_a_third() {
    let listener = listen().await;
    let relay = Relay::lossy(listener.local_addr().unwrap(), 0.3).unwrap();
    let client = KcpStream::connect(relay.addr(), KcpConfig::default()).await.unwrap();
    let (mut client, mut server) = accept_session(&listener, client).await;
    let closing = async {
        write_payload(&mut client, LEN).await.unwrap();
        client.shutdown().await.unwrap();
        drop(client);
    };
    within(15, "1 MB at 30 % loss is acknowledged", closing).await;
    // The client is gone. What `shutdown` said has arrived can be read without it.
    within(1, "1 MB at 30 % loss", read_payload(&mut server, LEN)).await.unwrap();
    assert!(relay.counts().dropped() > 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_gives_up_at_the_linger_limit() {
    let absent = UdpSocket::bind(ANY).unwrap();
    let config = KcpConfig::builder().linger(ms(500)).build().unwrap();
    let mut client = KcpStream::connect(absent.local_addr().unwrap(), config).await.unwrap();
    client.write_all(b"nobody hears this").await.unwrap();
    let (mut reader, mut writer) = client.into_split();
    let reading = spawn(async move { kind(reader.read_u8().await) });
    let begun = Instant::now();
    let outcome = within(2, "the shutdown gives up", writer.shutdown()).await;
    assert_eq!(kind(outcome), Some(ErrorKind::TimedOut));
    assert!(begun.elapsed() >= ms(490), "after {:?} already", begun.elapsed());
    assert_eq!(within(1, "the read ends too", reading).await.unwrap(), Some(ErrorKind::TimedOut));
}

#[tokio::test]
async fn shutdown_with_a_linger_of_zero_returns_at_once() {
    let absent = UdpSocket::bind(ANY).unwrap();
    let config = KcpConfig::builder().linger(Duration::ZERO).build().unwrap();
    let mut client = KcpStream::connect(absent.local_addr().unwrap(), config).await.unwrap();
    client.write_all(b"x").await.unwrap();
    let outcome = within(1, "the shutdown gives up", client.shutdown()).await;
    assert_eq!(kind(outcome), Some(ErrorKind::TimedOut));
}

#[tokio::test]
async fn shutdown_of_an_empty_stream_returns_at_once() {
    let absent = UdpSocket::bind(ANY).unwrap();
    let config = without_extensions().build().unwrap();
    let mut client = KcpStream::connect(absent.local_addr().unwrap(), config).await.unwrap();
    within(1, "nothing to wait for", client.shutdown()).await.unwrap();
    within(1, "nor the second time", client.shutdown()).await.unwrap();
}

/// With extensions, the peer would be told of the end. Nobody is there, and nothing can be lost: that is no error, and no reason to
/// wait for as long as data would.
#[tokio::test]
async fn shutdown_of_an_empty_stream_waits_a_moment_for_a_peer_to_tell() {
    let absent = UdpSocket::bind(ANY).unwrap();
    let config = KcpConfig::builder().extensions(Extensions::Preferred).build().unwrap();
    let mut client = KcpStream::connect(absent.local_addr().unwrap(), config).await.unwrap();
    let begun = Instant::now();
    within(6, "nobody is there", client.shutdown()).await.unwrap();
    assert!(begun.elapsed() >= ms(500), "after {:?} already", begun.elapsed());
    within(1, "it is done", client.shutdown()).await.unwrap();
    let reading = tokio::time::timeout(ms(300), client.read_u8()).await;
    assert!(reading.is_err(), "the peer may still answer: {reading:?}");
}

#[tokio::test]
async fn shutdown_ends_writing_but_not_reading() {
    let Pair { mut client, mut server, listener: _listener } = pair().await;
    client.write_all(b"last words").await.unwrap();
    within(5, "shutdown", client.shutdown()).await.unwrap();
    let broken = Some(ErrorKind::BrokenPipe);
    assert_eq!(kind(client.write(b"x").await), broken);
    assert_eq!(kind(client.send(b"x").await), broken);
    within(1, "a flush has nothing to do", client.flush()).await.unwrap();

    let mut words = [0; 10];
    within(5, "they arrive", server.read_exact(&mut words)).await.unwrap();
    server.write_all(b"a long answer").await.unwrap();
    within(5, "the other direction", server.shutdown()).await.unwrap();
    let mut answer = [0; 13];
    within(5, "the answer", client.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"a long answer");
}
