//! Listeners: closing, dropping, a full backlog, strangers' packets, vanished clients.

use std::{io::ErrorKind, net::UdpSocket, pin::Pin, time::Duration};

use futures_core::Stream;
use kcp9::{
    KcpConfig, KcpListener, KcpStream,
    proto::{Command, SegmentHeader},
};
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use kcp9_simulator::Rng;

use crate::support::{
    ANY, ANY_UNSHARED, Pair, accept_session, ask_for_icmp_errors, assert_alive, kind, knock, listen,
    listen_with, ms, pair, rebind, short_timeouts, until, within, without_extensions,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborting_the_listener_ends_every_pending_call() {
    let Pair { client: _client, server, listener } = pair().await;
    let listener = std::sync::Arc::new(listener);
    let accepting = spawn({
        let listener = std::sync::Arc::clone(&listener);
        async move { kind(listener.accept().await) }
    });
    let (mut reader, mut writer) = server.into_split();
    let reading = spawn(async move { kind(reader.read_u8().await) });
    tokio::time::sleep(ms(50)).await;
    listener.abort();
    let aborted = Some(ErrorKind::ConnectionAborted);
    // A kind of its own: servers take an aborted connection for the failure of one client, and accept the next.
    let ended = Some(ErrorKind::NotConnected);
    assert_eq!(within(2, "the pending accept fails", accepting).await.unwrap(), ended);
    assert_eq!(within(2, "the pending read fails", reading).await.unwrap(), aborted);
    let further = async {
        assert_eq!(kind(writer.write(b"x").await), aborted, "write");
        assert_eq!(kind(writer.send(b"x").await), aborted, "send");
        assert_eq!(kind(writer.flush().await), aborted, "flush");
        assert_eq!(kind(writer.shutdown().await), aborted, "shutdown");
        assert_eq!(kind(listener.accept().await), ended, "accept");
    };
    within(1, "further calls fail at once", further).await;

    // Nobody answers new clients, and the port is free once the streams are dropped.
    let _late = knock(listener.local_addr().unwrap()).await;
    until(2, "a late client is turned away", || listener.endpoint_stats().dropped.no_session > 0).await;
    assert_eq!(listener.endpoint_stats().driver.accepted, 1);
    let addr = listener.local_addr().unwrap();
    drop((listener, writer));
    rebind(addr).await;
}

/// A writer held back by a full window, and a shutdown that waits, end too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborting_the_listener_ends_waiting_writers_and_shutdowns() {
    let config = KcpConfig::builder().send_window(8).recv_window(8).build().unwrap();
    let listener = listen_with(config.clone()).await;
    let mut waiting = Vec::new();
    let mut clients = Vec::new();
    for write in [true, false] {
        let client = KcpStream::connect(listener.local_addr().unwrap(), config.clone()).await.unwrap();
        let (client, mut server) = accept_session(&listener, client).await;
        clients.push(client);
        waiting.push(spawn(async move {
            let bytes = vec![0; 1 << 20];
            if write {
                return kind(server.write_all(&bytes).await);
            }
            // A write that was given up may have found room that was too little to be woken for.
            while let Ok(Ok(_)) = tokio::time::timeout(ms(200), server.write(&bytes)).await {}
            kind(server.shutdown().await)
        }));
    }
    tokio::time::sleep(ms(800)).await;
    listener.abort();
    for waiting in waiting {
        let outcome = within(2, "the waiting call fails", waiting).await;
        assert_eq!(outcome.unwrap(), Some(ErrorKind::ConnectionAborted));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_sessions_go_on_when_the_listener_is_dropped() {
    let Pair { mut client, mut server, listener } = pair().await;
    let addr = listener.local_addr().unwrap();
    let unaccepted = knock(addr).await;
    until(2, "it waits to be accepted", || listener.endpoint_stats().driver.accepted == 2).await;
    drop(listener);
    for _ in 0..10 {
        assert_alive(&mut client, &mut server).await;
    }
    until(2, "the one not accepted is gone", || server.endpoint_stats().state.sessions == 1).await;
    let stranger = knock(addr).await;
    tokio::time::sleep(ms(100)).await;
    assert_eq!(server.endpoint_stats().driver.accepted, 2, "a session was opened without a listener");
    drop((server, unaccepted, stranger));
    rebind(addr).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_backlog_keeps_late_clients_waiting() {
    const CLIENTS: usize = 24;
    let listener = listen_with(KcpConfig::builder().accept_backlog(4).build().unwrap()).await;
    let addr = listener.local_addr().unwrap();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(knock(addr).await);
    }
    tokio::time::sleep(ms(400)).await;
    let stats = listener.endpoint_stats();
    assert_eq!(stats.state.sessions, 4, "{stats:?}");
    assert!(stats.dropped.backlog >= CLIENTS as u64 - 4, "{stats:?}");
    let mut servers = Vec::new();
    for _ in 0..CLIENTS {
        let (mut server, _) = within(5, "a late client gets in", listener.accept()).await.unwrap();
        within(5, "what it said", server.read_u8()).await.unwrap();
        server.write_all(b"?").await.unwrap();
        servers.push(server);
    }
    for client in &mut clients {
        assert_eq!(within(5, "the answer", client.read_u8()).await.unwrap(), b'?');
    }
    assert_eq!(listener.endpoint_stats().driver.accepted, CLIENTS as u64, "a client got in twice");
}

#[tokio::test]
async fn the_listener_is_a_stream_of_sessions() {
    let mut listener = listen().await;
    let client = knock(listener.local_addr().unwrap()).await;
    let next = std::future::poll_fn(|cx| Pin::new(&mut listener).poll_next(cx));
    let server = within(5, "the next session", next).await.unwrap().unwrap();
    assert_eq!(server.conv(), client.conv());
    assert_eq!(server.peer_addr().port(), client.local_addr().unwrap().port());

    listener.close();
    let mut end =
        async || within(1, "the end", std::future::poll_fn(|cx| Pin::new(&mut listener).poll_next(cx))).await;
    assert!(end().await.is_none(), "closing it is no error");
    assert!(end().await.is_none(), "it goes on behind its end");
}

/// Several tasks accept from one listener: each session goes to one task, and no session waits while a task does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_tasks_accept() {
    let listener = std::sync::Arc::new(listen().await);
    let mut acceptors = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let listener = std::sync::Arc::clone(&listener);
        acceptors.spawn(async move { listener.accept().await.unwrap().0 });
    }
    tokio::time::sleep(ms(50)).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(knock(listener.local_addr().unwrap()).await);
    }
    let mut convs = Vec::new();
    let all = async {
        while let Some(server) = acceptors.join_next().await {
            convs.push(server.unwrap().conv());
        }
    };
    within(5, "every acceptor has one", all).await;
    let mut expected: Vec<_> = clients.iter().map(KcpStream::conv).collect();
    convs.sort_unstable();
    expected.sort_unstable();
    assert_eq!(convs, expected);
}

fn segment(cmd: Command, sn: u32, len: u32) -> Vec<u8> {
    let header = SegmentHeader { conv: 77, cmd, frg: 0, wnd: 128, ts: 1, sn, una: 0, len };
    header.to_bytes().to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_is_accepted_for_garbage() {
    let listener = listen().await;
    let addr = listener.local_addr().unwrap();
    let stranger = UdpSocket::bind(ANY).unwrap();
    let mut rng = Rng::new(9);
    let mut sent = 0;
    for _ in 0..2_000 {
        let mut garbage = vec![0; rng.size(1..=1_500)];
        garbage.fill_with(|| rng.next() as u8);
        // Not a PUSH, not even by chance.
        if let Some(cmd) = garbage.get_mut(4) {
            *cmd |= 0x80;
        }
        stranger.send_to(&garbage, addr).unwrap();
        sent += 1;
        if sent % 100 == 0 {
            tokio::time::sleep(ms(1)).await;
        }
    }
    // Well-formed segments that begin no session, and a PUSH that claims more bytes than it has.
    for (cmd, sn, len) in [
        (Command::Ack, 0, 0),
        (Command::Wask, 0, 0),
        (Command::Wins, 0, 0),
        (Command::Push, 1 << 20, 0),
        (Command::Push, 0, 100),
    ] {
        stranger.send_to(&segment(cmd, sn, len), addr).unwrap();
        sent += 1;
    }
    let counted = || {
        let stats = listener.endpoint_stats();
        stats.dropped.short + stats.dropped.no_session + stats.dropped.malformed
    };
    until(5, "every bad packet is counted", || counted() >= sent).await;
    let stats = listener.endpoint_stats();
    assert_eq!((counted(), stats.socket.packets_received), (sent, sent), "{stats:?}");
    assert_eq!((stats.state.sessions, stats.driver.accepted), (0, 0), "{stats:?}");
    assert!(stats.dropped.short > 0, "{stats:?}");

    let client = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
    let (mut client, mut server) = accept_session(&listener, client).await;
    assert_alive(&mut client, &mut server).await;
}

/// Bad packets from the address of a live session do not harm that session. Without extensions, theirs are bad, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_from_a_peer_does_not_harm_its_session() {
    let listener = listen_with(without_extensions().build().unwrap()).await;
    let addr = listener.local_addr().unwrap();
    let socket = UdpSocket::bind(ANY).unwrap();
    let forger = socket.try_clone().unwrap();
    let client = KcpStream::from_socket(socket, addr, 77, KcpConfig::default()).unwrap();
    let (mut client, mut server) = accept_session(&listener, client).await;
    // The client's HELLO may have come with its first PUSH.
    let before = listener.endpoint_stats().dropped.malformed;
    for (cmd, sn, len) in [(Command::Push, 5, 1_000), (Command::Ack, 1 << 30, 0), (Command::Push, 1 << 31, 0)]
    {
        forger.send_to(&segment(cmd, sn, len), addr).unwrap();
    }
    let mut unknown = segment(Command::Push, 0, 0);
    unknown[4] = 0x60;
    forger.send_to(&unknown, addr).unwrap();
    forger.send_to(&unknown[..23], addr).unwrap();
    until(2, "they are counted", || {
        let stats = listener.endpoint_stats();
        stats.dropped.malformed == before + 2 && stats.dropped.short == 1
    })
    .await;
    for _ in 0..10 {
        assert_alive(&mut client, &mut server).await;
    }
    assert_eq!(listener.endpoint_stats().state.sessions, 1);
}

/// A client that is gone answers with ICMP "port unreachable". A socket that asks for such errors (`IP_RECVERR`) meets
/// them in its system calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vanished_client_does_not_stop_the_listener() {
    let socket = UdpSocket::bind(ANY).unwrap();
    ask_for_icmp_errors(&socket);
    let listener = KcpListener::from_socket(socket, short_timeouts().build().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    // All of them live at once, so that no two have the same port, and on an address where no other test gets it later.
    let doomed: Vec<_> = (0..50).map(|_| UdpSocket::bind(ANY_UNSHARED).unwrap()).collect();
    for gone in doomed {
        let mut push = segment(Command::Push, 0, 1);
        push.push(b'!');
        gone.send_to(&push, addr).unwrap();
    }
    let mut servers = Vec::new();
    for _ in 0..50 {
        let (mut server, _) = within(5, "a session of a vanished client", listener.accept()).await.unwrap();
        server.write_all(b"are you there?").await.unwrap();
        servers.push(server);
    }
    until(2, "the system reports them", || {
        let stats = listener.endpoint_stats();
        stats.socket.recv_errors + stats.socket.send_errors > 0
    })
    .await;
    let client = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
    let (mut client, mut server) = accept_session(&listener, client).await;
    for _ in 0..100 {
        assert_alive(&mut client, &mut server).await;
    }
    for server in &mut servers {
        assert_eq!(server.read_u8().await.unwrap(), b'!');
        let end = within(3, "the vanished client times out", server.read_u8()).await;
        assert_eq!(kind(end), Some(ErrorKind::TimedOut));
    }
    assert_alive(&mut client, &mut server).await;
}

/// Closing a listener while clients keep connecting leaves no session and no socket behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_the_listener_while_clients_connect_hangs_nobody() {
    for _ in 0..100 {
        let listener = listen().await;
        let addr = listener.local_addr().unwrap();
        let stranger = UdpSocket::bind(ANY).unwrap();
        let knocking = tokio::task::spawn_blocking(move || {
            let mut push = segment(Command::Push, 0, 1);
            push.push(b'!');
            for conv in 0..200_u32 {
                push[..4].copy_from_slice(&conv.to_le_bytes());
                // In the end the connection is refused: the socket is closed.
                let _ = stranger.send_to(&push, addr);
            }
        });
        tokio::time::sleep(Duration::from_micros(300)).await;
        listener.close();
        drop(listener);
        rebind(addr).await;
        knocking.await.unwrap();
    }
}
