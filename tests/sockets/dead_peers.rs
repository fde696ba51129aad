//! Peers that are gone, were never there, or cannot be sent to: every call ends with an error, in time.

use std::{
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

use kcp9::{
    KcpConfig, KcpStream,
    proto::{Command, SegmentHeader, Segments},
};
use kcp9_relay::Relay;
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    ANY, ANY_UNSHARED, EchoServer, accept_session, ask_for_icmp_errors, kind, listen, listen_with, ms,
    read_payload, short_timeouts, until, within, without_extensions,
};

/// A client whose peer answered once and can no longer be reached.
async fn black_holed(config: KcpConfig) -> (KcpStream, Relay) {
    let listener = listen().await;
    let relay = Relay::lossy(listener.local_addr().unwrap(), 0.0).unwrap();
    let client = KcpStream::connect(relay.addr(), config).await.unwrap();
    let (mut client, mut server) = accept_session(&listener, client).await;
    crate::support::assert_alive(&mut client, &mut server).await;
    // The server is still there, but the line to it is broken.
    spawn(async move {
        let _listener = listener;
        server.read_u8().await
    });
    relay.set_loss(1.0);
    (client, relay)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_pending_call_times_out_when_the_peer_vanishes() {
    let config = short_timeouts().send_window(16).linger(Duration::from_secs(30)).build().unwrap();
    let (client, _relay) = black_holed(config).await;
    let (mut reader, mut writer) = client.into_split();
    let begun = Instant::now();
    let reading = spawn(async move { (kind(reader.read_u8().await), reader) });
    let writing = spawn(async move {
        let bytes = vec![0; 1 << 20];
        (kind(writer.write_all(&bytes).await), writer)
    });
    let (read, mut reader) = within(3, "the pending read fails", reading).await.unwrap();
    let (written, mut writer) = within(3, "the pending write fails", writing).await.unwrap();
    assert_eq!((read, written), (Some(ErrorKind::TimedOut), Some(ErrorKind::TimedOut)));
    assert!(begun.elapsed() >= ms(950), "after {:?} already", begun.elapsed());

    let further = async {
        assert_eq!(kind(reader.read_u8().await), Some(ErrorKind::TimedOut), "read");
        assert_eq!(kind(reader.recv().await), Some(ErrorKind::TimedOut), "recv");
        assert_eq!(kind(writer.write(b"x").await), Some(ErrorKind::TimedOut), "write");
        assert_eq!(kind(writer.send(b"x").await), Some(ErrorKind::TimedOut), "send");
        assert_eq!(kind(writer.flush().await), Some(ErrorKind::TimedOut), "flush");
        assert_eq!(kind(writer.shutdown().await), Some(ErrorKind::TimedOut), "shutdown");
    };
    within(1, "further calls fail at once", further).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pending_messages_and_shutdowns_time_out_too() {
    let config =
        short_timeouts().send_window(4).stream(false).linger(Duration::from_secs(30)).build().unwrap();
    let (client, _relay) = black_holed(config).await;
    let client = Arc::new(client);
    let receiving = spawn({
        let client = Arc::clone(&client);
        async move { kind(client.recv().await) }
    });
    let sending = async {
        loop {
            if let Err(error) = client.send(&[0; 1_000]).await {
                return error.kind();
            }
        }
    };
    assert_eq!(within(3, "the pending send fails", sending).await, ErrorKind::TimedOut);
    assert_eq!(within(1, "the pending recv fails", receiving).await.unwrap(), Some(ErrorKind::TimedOut));

    let config = short_timeouts().linger(Duration::from_secs(30)).build().unwrap();
    let (mut client, _relay) = black_holed(config).await;
    client.write_all(b"never acknowledged").await.unwrap();
    let shutdown = within(3, "the pending shutdown fails", client.shutdown()).await;
    assert_eq!(kind(shutdown), Some(ErrorKind::TimedOut));
}

/// What had arrived before the peer was found dead can still be read. The peer is without extensions: its shutdown does not tell
/// where its stream ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_arrived_is_read_before_the_error() {
    let listener = listen_with(short_timeouts().build().unwrap()).await;
    let relay = Relay::lossy(listener.local_addr().unwrap(), 0.0).unwrap();
    let client = KcpStream::connect(relay.addr(), without_extensions().build().unwrap()).await.unwrap();
    let (mut client, mut server) = accept_session(&listener, client).await;
    crate::support::write_payload(&mut client, 10_000).await.unwrap();
    within(2, "it arrives", client.shutdown()).await.unwrap();
    relay.set_loss(1.0);
    server.write_all(b"lost").await.unwrap();
    tokio::time::sleep(ms(1_300)).await;
    within(1, "10 kB that were there", read_payload(&mut server, 10_000)).await.unwrap();
    assert_eq!(kind(within(1, "the error", server.read_u8()).await), Some(ErrorKind::TimedOut));
}

/// The peer's process is gone: nothing listens on its port, and the system answers with ICMP errors. Without extensions, since the
/// tasks of this one drop their streams as they end, which the client would be told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_time_out_when_the_server_was_killed() {
    let server = EchoServer::start().await;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let doomed = runtime.spawn(async { EchoServer::start().await });
    let doomed = doomed.await.unwrap();
    let mut client = KcpStream::connect(
        doomed.addr,
        without_extensions().dead_timeout(Duration::from_secs(1)).build().unwrap(),
    )
    .await
    .unwrap();
    client.write_all(b"x").await.unwrap();
    assert_eq!(within(5, "an echo", client.read_u8()).await.unwrap(), b'x');
    runtime.shutdown_background();
    drop(doomed);
    client.write_all(b"y").await.unwrap();
    assert_eq!(kind(within(3, "the read fails", client.read_u8()).await), Some(ErrorKind::TimedOut));
    drop(server);
}

/// The system reports "port unreachable" for what was sent meanwhile. Anybody can forge such a report, and a peer that is started
/// again is back a moment later: what was written then is resent, and arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_is_unreachable_for_a_moment_ends_nothing() {
    const CONV: u32 = 9;
    /// Acknowledges the next PUSH that comes with this `sn`.
    fn acknowledge(peer: &UdpSocket, sn: u32) {
        let mut buffer = [0; 2_048];
        loop {
            let (len, from) = peer.recv_from(&mut buffer).expect("a PUSH");
            let pushed = Segments::new(&buffer[..len]).flatten().find(|(header, _)| header.sn == sn);
            let Some((header, _)) = pushed.filter(|(header, _)| header.cmd == Command::Push) else {
                continue;
            };
            let ack = SegmentHeader { cmd: Command::Ack, wnd: 128, una: sn + 1, len: 0, ..header };
            peer.send_to(&ack.to_bytes(), from).unwrap();
            return;
        }
    }
    let open = |at: SocketAddr| {
        let peer = UdpSocket::bind(at).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        peer
    };
    let peer = open(ANY_UNSHARED.parse().unwrap());
    let addr = peer.local_addr().unwrap();
    let socket = UdpSocket::bind(ANY_UNSHARED).unwrap();
    ask_for_icmp_errors(&socket);
    let config = without_extensions().build().unwrap();
    let mut client = KcpStream::from_socket(socket, addr, CONV, config).unwrap();
    client.write_all(b"x").await.unwrap();
    let peer = tokio::task::spawn_blocking(move || {
        acknowledge(&peer, 0);
        peer
    });
    drop(within(5, "it hears", peer).await.unwrap());
    client.write_all(b"y").await.unwrap();
    until(5, "the system reports it", || {
        let stats = client.endpoint_stats();
        stats.socket.recv_errors + stats.socket.send_errors >= 2
    })
    .await;
    let peer = open(addr);
    let back = tokio::task::spawn_blocking(move || {
        acknowledge(&peer, 1);
        peer
    });
    let _peer = within(5, "it hears again", back).await.unwrap();
    within(5, "everything has arrived", client.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_absent_peer_holds_the_writer_back_and_then_times_out() {
    let absent = UdpSocket::bind(ANY).unwrap();
    let config = short_timeouts().send_window(64).build().unwrap();
    let mut client = KcpStream::connect(absent.local_addr().unwrap(), config).await.unwrap();
    let mut taken = 0;
    let begun = Instant::now();
    let writing = async {
        loop {
            match client.write(&[0; 10_000]).await {
                Ok(count) => taken += count,
                Err(error) => return error.kind(),
            }
        }
    };
    assert_eq!(within(3, "the write fails", writing).await, ErrorKind::TimedOut);
    assert!(begun.elapsed() >= ms(950), "after {:?} already", begun.elapsed());
    assert!(taken <= 2 * 64 * 1_376, "{taken} bytes were taken");
}

/// A session that sends nothing waits for no answer, so it cannot time out.
#[tokio::test]
async fn without_keep_alive_a_silent_session_does_not_time_out() {
    let absent = UdpSocket::bind(ANY).unwrap();
    let config = short_timeouts().keep_alive(None).build().unwrap();
    let mut client = KcpStream::connect(absent.local_addr().unwrap(), config).await.unwrap();
    let reading = tokio::time::timeout(ms(1_500), client.read_u8()).await;
    assert!(reading.is_err(), "{reading:?}");
}

#[tokio::test]
async fn the_idle_timeout_ends_a_silent_session() {
    let absent = UdpSocket::bind(ANY).unwrap();
    let config = KcpConfig::builder().idle_timeout(Some(ms(400))).build().unwrap();
    let mut client = KcpStream::connect(absent.local_addr().unwrap(), config).await.unwrap();
    let begun = Instant::now();
    assert_eq!(kind(within(2, "the read fails", client.read_u8()).await), Some(ErrorKind::TimedOut));
    assert!(begun.elapsed() >= ms(390), "after {:?} already", begun.elapsed());
}

/// A stream to an address where every send fails: the socket may not broadcast. `connect` would report that.
fn to_broadcast() -> KcpStream {
    let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
    let peer = "127.255.255.255:9".parse().unwrap();
    KcpStream::from_socket(udp, peer, 1, KcpConfig::default()).unwrap()
}

/// Every send fails: the session ends with that error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_when_every_send_fails() {
    let mut client = to_broadcast();
    let begun = Instant::now();
    client.write_all(b"nobody may hear this").await.unwrap();
    let failure = within(8, "the read fails", client.read_u8()).await.unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::PermissionDenied, "{failure}");
    assert!(begun.elapsed() < ms(6_500), "only after {:?}", begun.elapsed());
    assert_eq!(kind(client.write(b"x").await), Some(ErrorKind::PermissionDenied));
    let stats = client.endpoint_stats();
    assert!(stats.socket.send_errors > 1 && stats.socket.packets_sent == 0, "{stats:?}");
}

/// Every pending call fails: a `send` that waits for room, a `recv` and a `shutdown`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_socket_ends_every_pending_call() {
    let stream = Arc::new(to_broadcast());
    let receiving = {
        let stream = Arc::clone(&stream);
        spawn(async move { kind(stream.recv().await) })
    };
    let sending = spawn(async move {
        let message = vec![0; 100_000];
        loop {
            if let Err(error) = stream.send(&message).await {
                return error.kind();
            }
        }
    });
    let shutting_down = spawn(async {
        let mut stream = to_broadcast();
        stream.write_all(b"x").await.unwrap();
        kind(stream.shutdown().await)
    });
    let outcomes = async { (receiving.await.unwrap(), sending.await.unwrap(), shutting_down.await.unwrap()) };
    let denied = ErrorKind::PermissionDenied;
    assert_eq!(within(8, "all of them fail", outcomes).await, (Some(denied), denied, Some(denied)));
}

/// A reader in another task fails too, although only the writer's sends did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_writer_wakes_the_reader() {
    let client = to_broadcast();
    let (mut reader, mut writer) = client.into_split();
    let reading = spawn(async move { kind(reader.read_u8().await) });
    let writing = async {
        while writer.write_all(b"x").await.is_ok() {
            tokio::time::sleep(ms(10)).await;
        }
    };
    within(8, "the writes fail", writing).await;
    let read = within(1, "the read fails with the writes", reading).await;
    assert_eq!(read.unwrap(), Some(ErrorKind::PermissionDenied));
}

/// A short outage does not end a session, whatever is in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_outage_is_survived() {
    let server = EchoServer::start().await;
    let relay = Relay::lossy(server.addr, 0.0).unwrap();
    let config = KcpConfig::builder().dead_timeout(Duration::from_secs(5)).build().unwrap();
    let client = KcpStream::connect(relay.addr(), config).await.unwrap();
    let echo = spawn(crate::support::echo_payload(client, 4 << 20));
    until(5, "the transfer has begun", || relay.counts().passed > 100).await;
    relay.set_loss(1.0);
    tokio::time::sleep(ms(700)).await;
    assert!(!echo.is_finished(), "the outage came too late");
    relay.set_loss(0.0);
    assert!(relay.counts().dropped() > 0);
    within(15, "4 MB with an outage", echo).await.unwrap().unwrap();
}
