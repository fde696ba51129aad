//! Streams that stand still, do not end, or come in other pieces than they were sent in.

use std::{io::ErrorKind, net::SocketAddr, time::Duration};

use kcp9::{
    Extensions, KcpConfig, KcpError, KcpStream,
    proto::{CloseReason, DatagramSendError},
};
use kcp9_relay::Relay;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{connect, failure, impatient, listen, ms, session, until, within};

/// A writer whose peer does not read waits, and the session does not end for it.
#[tokio::test]
async fn the_peer_does_not_read() {
    let listener = listen(KcpConfig::builder().recv_window(64).build().unwrap()).await;
    let (mut client, mut server) =
        session(&listener, KcpConfig::builder().send_window(64).build().unwrap()).await;
    let written = tokio::time::timeout(Duration::from_secs(2), client.write_all(&vec![0; 1 << 20])).await;
    assert!(written.is_err(), "the write waits: {written:?}");
    let stats = client.stats();
    assert_eq!(stats.queues.peer_window, 0, "{stats:?}");
    assert!(stats.segments.window_probes > 0, "{stats:?}");
    assert!(server.stats().queues.unread_segments >= 64, "{:?}", server.stats());
    assert_eq!(client.close_reason(), None);
    let mut bytes = vec![0; 80_000];
    within(10, "reading brings it going", server.read_exact(&mut bytes)).await.unwrap();
}

/// A peer without extensions says nothing when it closes.
#[tokio::test]
async fn a_legacy_peer_closes() {
    let legacy = || KcpConfig::builder().extensions(Extensions::Off);
    let listener = listen(KcpConfig::default()).await;
    let (mut client, mut server) = session(&listener, legacy().build().unwrap()).await;
    client.write_all(b"all").await.unwrap();
    within(5, "everything is acknowledged", client.shutdown()).await.unwrap();
    drop(client);
    let mut all = [0; 3];
    within(5, "what was sent", server.read_exact(&mut all)).await.unwrap();
    let end = tokio::time::timeout(ms(1_500), server.read_u8()).await;
    assert!(end.is_err(), "there is no end to be read: {end:?}");
    assert_eq!(server.stats().extensions.received, 0);
}

/// The same with the extensions, for comparison.
#[tokio::test]
async fn a_peer_closes() {
    let listener = listen(KcpConfig::default()).await;
    let (mut client, mut server) = session(&listener, KcpConfig::default()).await;
    client.write_all(b"all").await.unwrap();
    drop(client);
    let mut all = Vec::new();
    within(5, "the stream ends", server.read_to_end(&mut all)).await.unwrap();
    assert_eq!(all, b"all");
    assert!(server.stats().extensions.received > 0);
}

#[tokio::test]
async fn messages_of_a_byte_stream() {
    let listener = listen(KcpConfig::default()).await;
    let (mut client, server) = session(&listener, KcpConfig::default()).await;
    // Written as bytes, they come as segments.
    client.write_all(&[7; 3_000]).await.unwrap();
    let mut lens = Vec::new();
    while lens.iter().sum::<usize>() < 3_000 {
        lens.push(within(5, "a piece", server.recv()).await.unwrap().len());
    }
    // They begin with packets of 1,200 bytes.
    assert_eq!(lens, [1_176, 1_176, 648]);
    // Sent as a message, they come as one.
    client.send(&[8; 3_000]).await.unwrap();
    assert_eq!(within(5, "a message", server.recv()).await.unwrap().len(), 3_000);
}

/// A program whose runtime ends: while it did, the path was down. A dropped stream is delivered by the runtime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_ends_before_its_last_bytes_are_sent() {
    let listener = listen(KcpConfig::default()).await;
    let relay = Relay::lossy(listener.local_addr().unwrap(), 1.0).unwrap();
    let program = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let addr = relay.addr();
    program.spawn(write_and_drop(addr)).await.unwrap();
    tokio::task::spawn_blocking(move || program.shutdown_timeout(Duration::from_secs(5))).await.unwrap();
    // What it sent is lost by now, and does not wait in the relay.
    until(5, "it was sent", || relay.to_server().lost > 0).await;
    tokio::time::sleep(ms(100)).await;
    relay.set_loss(0.0);
    let accepted = tokio::time::timeout(Duration::from_secs(2), listener.accept()).await;
    assert!(accepted.is_err(), "nobody is left to send it: {accepted:?}");
    // With a runtime that lives, it arrives.
    relay.set_loss(1.0);
    write_and_drop(addr).await;
    relay.set_loss(0.0);
    let (mut server, _) = within(10, "a session", listener.accept()).await.unwrap();
    let mut all = Vec::new();
    within(10, "the stream ends", server.read_to_end(&mut all)).await.unwrap();
    assert_eq!(all, b"the end");
}

async fn write_and_drop(addr: SocketAddr) {
    let mut stream = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
    stream.write_all(b"the end").await.unwrap();
}

/// One end demands the extensions, and the other has none.
#[tokio::test]
async fn extensions_are_required_and_the_peer_has_none() {
    let required = || impatient().extensions(Extensions::Required).build().unwrap();
    let without = || impatient().extensions(Extensions::Off).build().unwrap();
    // At the server, nothing is accepted.
    let listener = listen(required()).await;
    let mut client = connect(&listener, without()).await;
    client.write_all(b"hello").await.unwrap();
    let (kind, reason, _) = failure(5, "the client's end", client.read_u8()).await;
    assert_eq!((kind, reason), (ErrorKind::TimedOut, Some(KcpError::Closed(CloseReason::DeadLink))));
    let stats = listener.endpoint_stats();
    assert!(stats.dropped.no_hello >= 1 && stats.driver.accepted == 0, "{stats:?}");
    // At the client, the session ends once the peer has shown that it lacks them.
    let listener = listen(without()).await;
    let mut client = connect(&listener, required()).await;
    client.write_all(b"hello").await.unwrap();
    let (kind, reason, _) = failure(5, "the client's end", client.read_u8()).await;
    let lacking = Some(KcpError::Closed(CloseReason::PeerLacksExtensions));
    assert_eq!((kind, reason), (ErrorKind::Unsupported, lacking));
}

/// One end has datagrams, and the other does not.
#[tokio::test]
async fn datagrams_at_one_end_only() {
    let listener = listen(KcpConfig::default()).await;
    let with_datagrams = KcpConfig::builder().datagram_queue(65_536).build().unwrap();
    let (client, server) = session(&listener, with_datagrams).await;
    client.send_datagram(b"where I am").expect("sending does not tell");
    until(5, "it is dropped", || server.stats().datagrams.unwanted == 1).await;
    let (kind, reason, _) = failure(5, "the server's wait", server.recv_datagram()).await;
    let disabled = Some(KcpError::Datagram(DatagramSendError::Disabled));
    assert_eq!((kind, reason), (ErrorKind::Unsupported, disabled));
}

/// Ports of the C library hand out a message when all of its segments are in the receive queue.
#[tokio::test]
async fn a_message_of_more_segments_than_the_window_of_a_legacy_peer() {
    const WINDOW: u16 = 128;
    for segments in [usize::from(WINDOW), usize::from(WINDOW) + 1] {
        let nodelay = tokio_kcp::KcpNoDelayConfig::fastest();
        let config = tokio_kcp::KcpConfig { wnd_size: (WINDOW, WINDOW), nodelay, ..Default::default() };
        let mut listener = tokio_kcp::KcpListener::bind(config, "127.0.0.1:0").await.unwrap();
        let client = KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
        let message = vec![7; segments * 1_176];
        client.send(&message).await.unwrap();
        let (mut server, _) = within(5, "a session", listener.accept()).await.unwrap();
        let mut buffer = vec![0; message.len()];
        let received = tokio::time::timeout(Duration::from_secs(2), server.recv(&mut buffer)).await;
        match received {
            Ok(len) => assert_eq!((len.unwrap(), segments), (message.len(), 128)),
            Err(_) => assert_eq!(segments, 129, "a message of the window's size arrives"),
        }
    }
}
