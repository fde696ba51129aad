//! A port that anybody can send to: knocks in the names of others, too many of them, and cookies.

use std::{io::ErrorKind, net::UdpSocket, time::Instant};

use kcp9::{
    CookiePolicy, KcpConfig, KcpError, KcpListener, KcpStream,
    proto::{Command, Extensions, SegmentHeader},
};
use kcp9_relay::Relay;
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{ANY, listen_with, ms, read_payload, until, within, write_payload};

/// The first PUSH of a session, with one byte.
fn first_push(conv: u32) -> Vec<u8> {
    let header = SegmentHeader { conv, cmd: Command::Push, frg: 0, wnd: 128, ts: 1, sn: 0, una: 0, len: 1 };
    [&header.to_bytes()[..], b"!"].concat()
}

/// Sends first packets, and answers nothing.
fn knock(listener: &KcpListener, conv: u32) -> UdpSocket {
    let socket = UdpSocket::bind(ANY).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.send_to(&first_push(conv), listener.local_addr().unwrap()).unwrap();
    socket
}

fn received(socket: &UdpSocket) -> usize {
    let mut bytes = 0;
    while let Ok((len, _)) = socket.recv_from(&mut [0; 2_048]) {
        bytes += len;
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_answer_gets_little() {
    let listener = listen_with(KcpConfig::default()).await;
    let socket = knock(&listener, 7);
    let (mut server, _) = within(5, "it is accepted", listener.accept()).await.unwrap();
    let writing = spawn(async move { server.write_all(&vec![0; 1 << 20]).await });
    tokio::time::sleep(ms(2_500)).await;
    let bytes = received(&socket);
    assert!((25..=250).contains(&bytes), "{bytes} for 25");
    assert!(!writing.is_finished());
    let state = listener.endpoint_stats().state;
    assert_eq!((state.sessions, state.half_open), (1, 1));
}

/// The application answers each as soon as it is accepted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_do_not_answer_get_no_more_messages_than_their_network_may_draw() {
    let listener = listen_with(KcpConfig::builder().stream(false).build().unwrap()).await;
    let (address, count) = (listener.local_addr().unwrap(), 200);
    let begun = Instant::now();
    let socket = knock(&listener, 0);
    for conv in 1..count {
        socket.send_to(&first_push(conv), address).unwrap();
    }
    let mut streams = Vec::new();
    for _ in 0..count {
        let (stream, _) = within(5, "it is accepted", listener.accept()).await.unwrap();
        stream.send(&[1; 1_000]).await.unwrap();
        streams.push(stream);
    }
    let mut messages = 0;
    while begun.elapsed() < ms(1_500) {
        while let Ok((len, _)) = socket.recv_from(&mut [0; 2_048]) {
            messages += usize::from(len > 1_000);
        }
        let most = 16 + (begun.elapsed().as_millis() as usize * 16).div_ceil(1_000);
        assert!(messages <= most, "{messages} instead of {most}");
        tokio::time::sleep(ms(5)).await;
    }
    assert!(messages >= 20, "nothing wakes those up whose turn has come: {messages}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_sessions_give_way_and_their_streams_say_so() {
    let listener = listen_with(KcpConfig::builder().max_half_open(3).build().unwrap()).await;
    let mut sockets = Vec::new();
    let mut streams = Vec::new();
    for conv in 1..=3 {
        sockets.push(knock(&listener, conv));
        streams.push(within(5, "it is accepted", listener.accept()).await.unwrap().0);
    }
    // All are too young to give way.
    sockets.push(knock(&listener, 4));
    until(2, "a fourth is refused", || listener.endpoint_stats().dropped.max_half_open == 1).await;
    tokio::time::sleep(ms(1_200)).await;
    sockets.push(knock(&listener, 5));
    until(2, "a fifth is accepted", || listener.endpoint_stats().driver.accepted == 4).await;
    for stream in &mut streams {
        assert_eq!(stream.read_u8().await.unwrap(), b'!');
    }
    let error = within(2, "the first has ended", streams[0].read_u8()).await.unwrap_err();
    assert_eq!((KcpError::find(&error), error.kind()), (Some(KcpError::Evicted), ErrorKind::ConnectionReset));
    let stats = listener.endpoint_stats();
    assert_eq!((stats.state.sessions, stats.state.half_open, stats.driver.evicted), (3, 3, 1));
    // A true client is asked for a cookie. With that it gets in, and takes nobody's place.
    tokio::time::sleep(ms(1_200)).await;
    let mut client = KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
    write_payload(&mut client, 100_000).await.unwrap();
    let (mut server, _) = within(5, "the fifth", listener.accept()).await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), b'!');
    let (mut server, _) = within(5, "the client", listener.accept()).await.unwrap();
    within(5, "its data", read_payload(&mut server, 100_000)).await.unwrap();
    let stats = listener.endpoint_stats();
    assert_eq!((stats.state.sessions, stats.state.half_open, stats.driver.evicted), (4, 3, 1));
    assert_eq!(stats.driver.retries, 1);
}

/// Its server writes nothing, and has only its probe to learn by that the client hears.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_extensions_that_only_writes_is_not_half_open_for_long() {
    let listener = listen_with(KcpConfig::default()).await;
    let off = KcpConfig::builder().extensions(Extensions::Off).build().unwrap();
    let mut client = KcpStream::connect(listener.local_addr().unwrap(), off).await.unwrap();
    client.write_all(b"!").await.unwrap();
    let (mut server, _) = within(5, "it is accepted", listener.accept()).await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), b'!');
    until(2, "it has shown that it hears", || listener.endpoint_stats().state.half_open == 0).await;
    assert_eq!(listener.endpoint_stats().state.sessions, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_ended_leave_the_accept_queue() {
    let config = KcpConfig::builder().accept_backlog(3).build().unwrap();
    let listener = listen_with(config).await;
    for round in 0..5 {
        let mut clients = Vec::new();
        for _ in 0..3 {
            let client =
                KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
            within(5, "room for a client that says nothing", client.connected(ms(4_000))).await.unwrap();
            clients.push(client);
        }
        for client in &clients {
            client.abort();
        }
        until(5, "they are gone", || listener.endpoint_stats().state.sessions == 0).await;
        assert_eq!(listener.endpoint_stats().driver.accepted, 3 * (round + 1));
    }
    let mut client = KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
    client.write_all(b"!").await.unwrap();
    let (mut server, _) = within(5, "the one that lives", listener.accept()).await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), b'!');
}

/// With a byte to read or not: anybody can forge it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_sessions_that_gave_way_leave_the_accept_queue() {
    let config = KcpConfig::builder().accept_backlog(8).max_half_open(3).build().unwrap();
    let listener = listen_with(config).await;
    let mut sockets: Vec<_> = (1..=3).map(|conv| knock(&listener, conv)).collect();
    until(2, "three wait", || listener.endpoint_stats().driver.accepted == 3).await;
    tokio::time::sleep(ms(1_200)).await;
    sockets.extend((4..=6).map(|conv| knock(&listener, conv)));
    until(2, "three others wait", || listener.endpoint_stats().driver.evicted == 3).await;
    let mut convs = Vec::new();
    for _ in 0..3 {
        convs.push(within(5, "one that lives", listener.accept()).await.unwrap().0.conv());
    }
    convs.sort_unstable();
    assert_eq!(convs, [4, 5, 6]);
}

/// The application accepts nothing meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_sessions_leave_half_of_the_backlog_to_peers_that_return_a_cookie() {
    let listener = listen_with(KcpConfig::builder().accept_backlog(5).build().unwrap()).await;
    let sockets: Vec<_> = (1..=6).map(|conv| knock(&listener, conv)).collect();
    until(2, "three are refused", || listener.endpoint_stats().dropped.backlog == 3).await;
    assert_eq!(listener.endpoint_stats().driver.accepted, 3);
    for accepted in 4..=5 {
        let client = KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
        within(5, "room for a client", client.connected(ms(4_000))).await.unwrap();
        let driver = listener.endpoint_stats().driver;
        assert_eq!((driver.accepted, driver.retries), (accepted, accepted - 3));
        client.abort();
    }
    drop(sockets);
    // Once there is room again, nobody is asked.
    for conv in 1..=3 {
        assert_eq!(within(5, "a forged one", listener.accept()).await.unwrap().0.conv(), conv);
    }
    let client = KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
    within(5, "a client", client.connected(ms(4_000))).await.unwrap();
    assert_eq!(listener.endpoint_stats().driver.retries, 2);
}

/// Its peer has sent something, and nobody has read it. A datagram is as good as a byte of the stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ended_waits_to_be_accepted_while_a_datagram_or_a_byte_of_it_is_unread() {
    for is_datagram in [true, false] {
        let config = KcpConfig::builder().accept_backlog(3).datagram_queue(65_536).build().unwrap();
        let listener = listen_with(config.clone()).await;
        let mut client = KcpStream::connect(listener.local_addr().unwrap(), config).await.unwrap();
        within(5, "it is accepted", client.connected(ms(4_000))).await.unwrap();
        if is_datagram {
            client.send_datagram(b"!").unwrap();
        } else {
            client.write_all(b"!").await.unwrap();
        }
        client.abort();
        until(5, "it is gone", || listener.endpoint_stats().state.sessions == 0).await;
        let (mut server, _) = within(5, "the one that ended", listener.accept()).await.unwrap();
        if is_datagram {
            assert_eq!(server.recv_datagram().await.unwrap(), &b"!"[..]);
        } else {
            assert_eq!(server.read_u8().await.unwrap(), b'!');
        }
        let error = within(2, "its end", server.read_u8()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_return_a_cookie_where_it_is_asked_for_also_through_loss() {
    // A HELLO and its RETRY get through such losses with 0.64. Five lost in a row cost 6 s, six 13 s.
    for (loss, limit) in [(0.0, 10), (0.2, 60)] {
        let config = KcpConfig::builder().cookies(CookiePolicy::Always).build().unwrap();
        let listener = listen_with(config).await;
        let relay = Relay::lossy(listener.local_addr().unwrap(), loss).unwrap();
        for _ in 0..10 {
            let mut client = KcpStream::connect(relay.addr(), KcpConfig::default()).await.unwrap();
            write_payload(&mut client, 50_000).await.unwrap();
            let (mut server, _) = within(limit, "it is accepted", listener.accept()).await.unwrap();
            within(limit, "its data", read_payload(&mut server, 50_000)).await.unwrap();
            write_payload(&mut server, 50_000).await.unwrap();
            within(limit, "an answer", read_payload(&mut client, 50_000)).await.unwrap();
        }
        let stats = listener.endpoint_stats();
        assert!(stats.driver.retries >= 10, "{stats:?}");
        assert_eq!(stats.driver.accepted, 10);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_without_extensions_are_not_accepted_where_a_cookie_is_always_asked_for() {
    let config = KcpConfig::builder().cookies(CookiePolicy::Always).build().unwrap();
    let listener = listen_with(config).await;
    let off = KcpConfig::builder().extensions(Extensions::Off).dead_timeout(ms(1_500)).build().unwrap();
    let mut client = KcpStream::connect(listener.local_addr().unwrap(), off).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    let error = within(5, "nobody answers", client.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let stats = listener.endpoint_stats();
    assert!(stats.driver.accepted == 0 && stats.dropped.no_cookie > 0, "{stats:?}");
}
