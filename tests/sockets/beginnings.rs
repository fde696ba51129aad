//! Waiting until the peer has answered.

use std::{
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use kcp9::{
    KcpConfig, KcpError, KcpStream,
    proto::{CloseReason, Command, Extensions, HEADER_LEN, SegmentHeader, Segments},
};
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    ANY, ANY_UNSHARED, EchoServer, assert_alive, kind, listen, listen_with, ms, rebind, short_timeouts,
    within, without_extensions,
};

const LONG: Duration = Duration::from_secs(10);

/// A peer without extensions that answers WASK, as kcp-go does, but ignores the first packets. Returns its address, and how many
/// packets came in all once it has answered.
fn answers_wask(ignored: usize) -> (SocketAddr, tokio::task::JoinHandle<usize>) {
    let socket = UdpSocket::bind(ANY).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let addr = socket.local_addr().unwrap();
    let answering = tokio::task::spawn_blocking(move || {
        let mut packet = [0; 2_000];
        for count in 1.. {
            let (len, from) = socket.recv_from(&mut packet).expect("a packet");
            let asked = Segments::new(&packet[..len])
                .filter_map(Result::ok)
                .find(|(header, _)| header.cmd == Command::Wask)
                .map(|(header, _)| header);
            let Some(asked) = asked.filter(|_| count > ignored) else { continue };
            let answer = SegmentHeader { cmd: Command::Wins, wnd: 32, una: 0, sn: 0, ts: 0, ..asked };
            socket.send_to(&answer.to_bytes(), from).unwrap();
            return count;
        }
        unreachable!();
    });
    (addr, answering)
}

/// An end without extensions has nothing else to ask with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_never_heard_of_us_is_asked_until_it_answers() {
    for ignored in [0, 3] {
        let (addr, answering) = answers_wask(ignored);
        let stream = KcpStream::connect(addr, without_extensions().build().unwrap()).await.unwrap();
        stream.connected(LONG).await.unwrap();
        // And ever after.
        stream.connected(Duration::ZERO).await.unwrap();
        let asked = answering.await.unwrap();
        assert!(asked > ignored, "{asked}");
        assert_eq!(stream.close_reason(), None);
        tokio::time::sleep(ms(500)).await;
        assert_eq!(stream.stats().segments.window_probes, asked as u64, "it goes on asking");
    }
}

/// What is written asks as well: nothing else is sent for it.
#[tokio::test]
async fn an_answer_to_data_will_do() {
    let server = EchoServer::start().await;
    let mut stream = KcpStream::connect(server.addr, KcpConfig::default()).await.unwrap();
    stream.write_all(b"x").await.unwrap();
    stream.connected(LONG).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'x');
}

/// The ACK, the answer to the HELLO, and what the application answers at once are one system call, and one batch on their way.
#[tokio::test]
async fn an_answer_that_is_there_at_once_goes_with_that_to_the_hello() {
    let listener = listen().await;
    let addr = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // As a server does, and that is one task more that has to run first.
        tokio::spawn(async move {
            let byte = stream.read_u8().await.unwrap();
            stream.write_u8(byte).await.unwrap();
            stream
        })
        .await
        .unwrap()
    });
    let mut client = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
    client.write_u8(7).await.unwrap();
    assert_eq!(within(5, "an echo", client.read_u8()).await.unwrap(), 7);
    let server = server.await.unwrap();
    let stats = server.endpoint_stats().socket;
    assert_eq!((stats.send_calls, stats.packets_sent), (1, 2), "{stats:?}");
}

/// Several tasks wait for the same answer, one of them not long enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_wait_for_one_answer() {
    let listener = listen().await;
    let socket = UdpSocket::bind(ANY_UNSHARED).unwrap();
    let addr = socket.local_addr().unwrap();
    let stream = std::sync::Arc::new(KcpStream::connect(addr, KcpConfig::default()).await.unwrap());
    let mut waiting = Vec::new();
    for index in 0..8 {
        let stream = std::sync::Arc::clone(&stream);
        let limit = if index == 0 { ms(50) } else { LONG };
        waiting.push(spawn(async move { stream.connected(limit).await }));
    }
    tokio::time::sleep(ms(150)).await;
    // The peer is there at last.
    drop(listener);
    let (len, from, mut packet) = tokio::task::spawn_blocking(move || {
        let mut packet = [0; 2_000];
        // With extensions, HELLO asks as well.
        let (len, from, header) = loop {
            let (len, from) = socket.recv_from(&mut packet).unwrap();
            let (header, _) = Segments::new(&packet[..len]).next().unwrap().unwrap();
            if header.cmd != Command::Extension {
                break (len, from, header);
            }
        };
        assert_eq!(header.cmd, Command::Wask);
        let answer = SegmentHeader { cmd: Command::Wins, wnd: 32, ..header }.to_bytes();
        socket.send_to(&answer, from).unwrap();
        (len, from, packet)
    })
    .await
    .unwrap();
    assert!(len >= HEADER_LEN && from.port() != 0);
    packet.fill(0);
    for (index, outcome) in waiting.into_iter().enumerate() {
        let outcome = within(5, "the answer", outcome).await.unwrap();
        let expected = (index == 0).then_some(ErrorKind::TimedOut);
        assert_eq!(kind(outcome), expected, "task {index}");
    }
}

#[tokio::test]
async fn silence_is_no_answer() {
    let silent = UdpSocket::bind(ANY_UNSHARED).unwrap();
    let config = short_timeouts().build().unwrap();
    let stream = KcpStream::connect(silent.local_addr().unwrap(), config).await.unwrap();
    let begun = Instant::now();
    let error = stream.connected(ms(200)).await.unwrap_err();
    assert!((ms(200)..ms(900)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!((error.kind(), KcpError::find(&error)), (ErrorKind::TimedOut, Some(KcpError::NoAnswer)));
    assert_eq!(stream.close_reason(), None, "who waits a little does not end the session");
    // It owes an answer, like data.
    let error = stream.connected(LONG).await.unwrap_err();
    let dead = KcpError::Closed(CloseReason::DeadLink);
    assert_eq!((error.kind(), KcpError::find(&error)), (ErrorKind::TimedOut, Some(dead)));
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

/// A port where nobody listens. Of a socket of its own the system tells.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_told_at_once() {
    let addr = UdpSocket::bind(ANY_UNSHARED).unwrap().local_addr().unwrap();
    let mut stream = KcpStream::connect(addr, KcpConfig::default()).await.unwrap();
    let begun = Instant::now();
    for _ in 0..2 {
        let error = stream.connected(LONG).await.unwrap_err();
        let reason = KcpError::find(&error);
        assert_eq!((error.kind(), reason), (ErrorKind::ConnectionRefused, Some(KcpError::Refused)));
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    // The stream waits for a server that starts later, as it does without anybody who waits for it.
    assert_eq!(stream.close_reason(), None);
    stream.write_all(b"!").await.unwrap();
    tokio::time::sleep(ms(300)).await;
    let late = kcp9::KcpListener::from_socket(rebind(addr).await, KcpConfig::default()).unwrap();
    let (mut server, _) = within(10, "the late server accepts", late.accept()).await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), b'!');
    within(5, "the answer", stream.connected(LONG)).await.unwrap();
}

/// A refused address passes its turn on at once, a silent one when its share of the time is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_address_is_tried_until_one_answers() {
    let refusing = UdpSocket::bind(ANY_UNSHARED).unwrap().local_addr().unwrap();
    let silent = UdpSocket::bind(ANY_UNSHARED).unwrap();
    let (answering, _answer) = answers_wask(0);
    let addrs = [refusing, silent.local_addr().unwrap(), answering];
    let begun = Instant::now();
    let timeout = Duration::from_secs(3);
    let stream = KcpStream::connect_timeout(&addrs[..], KcpConfig::default(), timeout).await.unwrap();
    assert_eq!(stream.peer_addr(), answering);
    assert!(begun.elapsed() < timeout, "{:?}", begun.elapsed());

    let begun = Instant::now();
    let none = KcpStream::connect_timeout(&addrs[..2], KcpConfig::default(), ms(400)).await;
    assert_eq!(kind(none), Some(ErrorKind::TimedOut));
    assert!((ms(200)..ms(1_500)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    let nowhere: &[SocketAddr] = &[];
    let none = KcpStream::connect_timeout(nowhere, KcpConfig::default(), LONG).await;
    assert_eq!(kind(none), Some(ErrorKind::InvalidInput));
}

/// The waiting ends with the session.
#[tokio::test]
async fn who_waits_hears_of_the_end() {
    let silent = UdpSocket::bind(ANY_UNSHARED).unwrap();
    let stream = KcpStream::connect(silent.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
    let handle = stream.handle();
    let (outcome, ()) = tokio::join!(stream.connected(LONG), async {
        tokio::time::sleep(ms(30)).await;
        handle.abort();
    });
    assert_eq!(kind(outcome), Some(ErrorKind::ConnectionAborted));
}

/// With extensions at both ends nothing has to be written, and nothing is accepted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extensions_answer_before_anything_is_written() {
    for extensions in [Extensions::Preferred, Extensions::Required] {
        let config = KcpConfig::builder().extensions(extensions).build().unwrap();
        let listener = listen_with(config.clone()).await;
        let addr = listener.local_addr().unwrap();
        let mut client = KcpStream::connect_timeout(addr, config.clone(), LONG).await.unwrap();
        let (mut server, _) = within(1, "it is accepted", listener.accept()).await.unwrap();
        assert_alive(&mut client, &mut server).await;
        within(1, "the other end knows it too", server.connected(LONG)).await.unwrap();
        assert_eq!(listener.endpoint_stats().driver.accepted, 1);
    }
}

/// A listener that accepts no more says so to those who ask with a HELLO.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_listener_refuses() {
    let config = KcpConfig::builder().extensions(Extensions::Preferred).build().unwrap();
    let listener = listen_with(config.clone()).await;
    let addr = listener.local_addr().unwrap();
    // Its socket stays open as long as a session does.
    let mut client = KcpStream::connect_timeout(addr, config.clone(), LONG).await.unwrap();
    let (mut server, _) = within(1, "it is accepted", listener.accept()).await.unwrap();
    listener.close();
    let late = within(5, "the refusal", KcpStream::connect_timeout(addr, config, LONG)).await;
    let error = late.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(KcpError::find(&error), Some(KcpError::Closed(CloseReason::Refused)));
    assert_alive(&mut client, &mut server).await;
}
