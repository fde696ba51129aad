//! Limits of a server that are reached.

use std::{io::ErrorKind, net::UdpSocket, time::Duration};

use kcp9::{
    KcpConfig, KcpError, KcpListener,
    proto::{AbortReason, CloseReason, Command, SegmentHeader},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{ANY, accept, connect, failure, listen, ms, session, until, within};

/// A client that is turned away by a limit has no answer, and gets in once there is room.
#[tokio::test]
async fn too_many_sessions() {
    let listener = listen(KcpConfig::builder().max_sessions(1).build().unwrap()).await;
    let first = session(&listener, KcpConfig::default()).await;
    first.0.connected(Duration::from_secs(5)).await.unwrap();
    until(5, "the first one is validated", || listener.endpoint_stats().state.half_open == 0).await;

    let second = connect(&listener, KcpConfig::default()).await;
    let (kind, reason, _) = failure(5, "no answer", second.connected(ms(500))).await;
    assert_eq!((kind, reason), (ErrorKind::TimedOut, Some(KcpError::NoAnswer)));
    let stats = listener.endpoint_stats();
    assert!(stats.dropped.max_sessions >= 1, "{stats:?}");
    assert!(stats.driver.retries >= 1, "it was asked for a cookie before, and heard that: {stats:?}");
    assert_eq!((stats.driver.accepted, stats.state.sessions), (1, 1), "{stats:?}");

    drop(first);
    let (_second, _server) = within(10, "there is room again", accept(&listener, second)).await;
}

/// A server that does not call `accept`.
#[tokio::test]
async fn nobody_accepts() {
    let listener = listen(KcpConfig::builder().accept_backlog(1).build().unwrap()).await;
    let first = connect(&listener, KcpConfig::default()).await;
    first.connected(Duration::from_secs(5)).await.unwrap();
    let second = connect(&listener, KcpConfig::default()).await;
    let (kind, reason, _) = failure(5, "no answer", second.connected(ms(500))).await;
    assert_eq!((kind, reason), (ErrorKind::TimedOut, Some(KcpError::NoAnswer)));
    let stats = listener.endpoint_stats();
    assert!(stats.dropped.backlog >= 1, "{stats:?}");
    assert_eq!(second.endpoint_stats().socket.packets_received, 0, "it hears nothing");
    let (_, _) = within(5, "the first one", listener.accept()).await.unwrap();
    second.connected(Duration::from_secs(5)).await.expect("there is room again");
}

/// The first packet of a client that shows no sign of hearing the answers, as with a forged source.
pub fn send_first_packet(client: &UdpSocket, listener: &KcpListener, conv: u32) {
    let (cmd, wnd) = (Command::Push, 32);
    let header = SegmentHeader { conv, cmd, frg: 0, wnd, ts: 0, sn: 0, una: 0, len: 1 };
    let packet = [&header.to_bytes()[..], b"!"].concat();
    client.send_to(&packet, listener.local_addr().unwrap()).unwrap();
}

#[tokio::test]
async fn too_many_half_open_sessions() {
    let all = listen(KcpConfig::builder().max_half_open(2).build().unwrap()).await;
    let network = listen(KcpConfig::builder().max_half_open_of_network(2).build().unwrap()).await;
    for conv in 1..=6 {
        let client = UdpSocket::bind(ANY).unwrap();
        send_first_packet(&client, &all, conv);
        send_first_packet(&client, &network, conv);
    }
    until(5, "four are turned away", || {
        all.endpoint_stats().dropped.max_half_open == 4
            && network.endpoint_stats().dropped.max_half_open_of_network == 4
    })
    .await;
    assert_eq!(all.endpoint_stats().state.half_open, 2);
    // One that has been silent for a second gives way.
    let (mut oldest, _) = within(5, "the oldest", all.accept()).await.unwrap();
    assert_eq!(oldest.read_u8().await.unwrap(), b'!');
    tokio::time::sleep(ms(1_200)).await;
    send_first_packet(&UdpSocket::bind(ANY).unwrap(), &all, 7);
    let (kind, reason, _) = failure(5, "the oldest gives way", oldest.read_u8()).await;
    assert_eq!((kind, reason), (ErrorKind::ConnectionReset, Some(KcpError::Evicted)));
    assert_eq!(all.endpoint_stats().driver.evicted, 1);
}

/// A server whose streams nobody reads, and whose sessions share little memory.
#[tokio::test]
async fn no_memory_left_for_buffers() {
    let config = KcpConfig::builder().max_message_bytes(16_384).max_buffer_memory(1 << 21).build().unwrap();
    let listener = listen(config).await;
    let mut clients = Vec::new();
    let mut unread = Vec::new();
    for _ in 0..6 {
        let (mut client, server) = session(&listener, KcpConfig::default()).await;
        let _ = tokio::time::timeout(ms(300), client.write_all(&vec![0; 3 << 20])).await;
        clients.push(client);
        unread.push(server);
    }
    let stats = listener.endpoint_stats();
    assert!(stats.memory.refused_segments > 0, "{stats:?}");
    assert!(stats.state.buffer_memory <= 1 << 21, "{stats:?}");
    // Every session goes on all the same.
    for (client, server) in clients.iter().zip(&mut unread) {
        assert_eq!(client.close_reason(), None);
        let mut bytes = vec![0; 100_000];
        within(10, "100 kB more", server.read_exact(&mut bytes)).await.unwrap();
    }
}

/// A server that is rid of clients which do nothing.
#[tokio::test]
async fn idle_clients_are_ended() {
    let listener = listen(KcpConfig::builder().idle_timeout(Some(ms(400))).build().unwrap()).await;
    let (mut client, mut server) = session(&listener, KcpConfig::default()).await;
    let (kind, reason, took) = failure(5, "the server's end", server.read_u8()).await;
    assert_eq!((kind, reason), (ErrorKind::TimedOut, Some(KcpError::Closed(CloseReason::IdleTimeout))));
    assert!(took >= ms(350) && took < Duration::from_secs(3), "after {took:?}");
    let (kind, reason, _) = failure(5, "the client's end", client.read_u8()).await;
    let told = CloseReason::AbortedByPeer(AbortReason::TimedOut);
    assert_eq!((kind, reason), (ErrorKind::ConnectionReset, Some(KcpError::Closed(told))));
}
