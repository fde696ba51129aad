//! Datagrams beside the streams, over real sockets.

use std::{io::ErrorKind, net::UdpSocket, time::Duration};

use kcp9::{KcpConfig, KcpConfigBuilder, KcpEndpoint, KcpStream, proto::Extensions};
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use kcp9_simulator::Rng;

use crate::support::{
    ANY, EchoServer, Pair, accept_session, assert_alive, echo_payload, kind, listen_with, ms, pair_with,
    poll_or_drop, rebind, short_timeouts, until, within,
};

fn config() -> KcpConfigBuilder {
    KcpConfig::builder().datagram_queue(1 << 20)
}

/// A packet with a datagram, as it stands on the wire.
fn packet(conv: u32, datagram: &[u8]) -> Vec<u8> {
    let size = (datagram.len() + 6) as u16;
    [&[0xff, 0xff, 0xff, 0xff, 0xf3, 0][..], &size.to_le_bytes(), &conv.to_le_bytes(), datagram].concat()
}

async fn assert_arrives(from: &KcpStream, to: &KcpStream, datagram: &[u8]) {
    from.send_datagram(datagram).unwrap();
    let received = within(5, "a datagram", to.recv_datagram()).await.unwrap();
    assert!(received == datagram, "{} bytes were sent, {} came", datagram.len(), received.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_travel_both_ways_beside_the_stream() {
    for (data, parity) in [(0, 0), (10, 3)] {
        let Pair { mut client, mut server, listener: _listener } =
            pair_with(config().fec(data, parity).build().unwrap()).await;
        let max = client.max_datagram_len().unwrap();
        assert_eq!((max, server.max_datagram_len()), (1_388, Some(1_388)));
        for len in [0, 1, 100, max] {
            assert_arrives(&client, &server, &vec![len as u8; len]).await;
            assert_arrives(&server, &client, &vec![len as u8; len]).await;
        }
        assert_alive(&mut client, &mut server).await;
        let error = client.send_datagram(&vec![0; max + 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("1388"), "{error}");
        assert_eq!(client.stats().datagrams.sent, 4);
        assert_eq!(server.stats().datagrams.received, 4);
    }
}

/// Datagrams at a steady pace beside a transfer: all arrive, in order, on a path that loses none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_arrive_while_the_stream_is_busy() {
    const COUNT: u32 = 300;
    let Pair { client, server, listener: _listener } = pair_with(config().fec(10, 3).build().unwrap()).await;
    let (server_datagrams, datagrams) = (server.datagrams(), client.datagrams());
    let (mut server_reader, mut server_writer) = server.into_split();
    let (mut reader, mut writer) = client.into_split();
    let echo = spawn(async move {
        let mut buffer = vec![0; 65_536];
        let mut left = 20_000_000;
        while left > 0 {
            let count = tokio::select! {
                count = server_reader.read(&mut buffer) => count.unwrap(),
                datagram = server_datagrams.recv() => {
                    server_writer.send_datagram(&datagram.unwrap()).unwrap();
                    continue;
                }
            };
            left -= count;
            server_writer.write_all(&buffer[..count]).await.unwrap();
        }
        server_writer.shutdown().await.unwrap();
        assert_eq!(kind(server_writer.send_datagram(b"late")), Some(ErrorKind::BrokenPipe));
        assert_eq!(server_writer.max_datagram_len(), None);
        server_reader
    });
    let writing = spawn(async move {
        let bytes = vec![7; 20_000];
        for n in 0..1_000_u32 {
            writer.write_all(&bytes).await.unwrap();
            if n < COUNT {
                writer.send_datagram(&n.to_le_bytes()).unwrap();
            }
        }
        writer
    });
    let reading = async {
        let mut buffer = vec![0; 65_536];
        let (mut left, mut ticks) = (20_000_000, Vec::new());
        while left > 0 {
            tokio::select! {
                count = reader.read(&mut buffer) => left -= count.unwrap(),
                datagram = datagrams.recv() => {
                    ticks.push(u32::from_le_bytes(datagram.unwrap()[..].try_into().unwrap()));
                }
            }
        }
        ticks
    };
    let ticks = within(30, "an echo with datagrams", reading).await;
    assert!(ticks.len() > COUNT as usize / 2, "{} of {COUNT} came back", ticks.len());
    assert!(ticks.is_sorted(), "out of order: {ticks:?}");
    drop(within(5, "the echo ends", echo).await.unwrap());
    drop(writing.await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_reach_their_session_among_those_of_one_address() {
    let listener = listen_with(config().build().unwrap()).await;
    let addr = listener.local_addr().unwrap();
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let mut pairs = Vec::new();
    for (conv, fec) in [(0, (0, 0)), (1, (10, 3)), (2, (0, 0)), (u32::MAX, (3, 2))] {
        let config = config().fec(fec.0, fec.1).build().unwrap();
        pairs.push(accept_session(&listener, endpoint.connect_with_conv(addr, conv, config).unwrap()).await);
    }
    for round in 0..20_u8 {
        // All at once, so that they share batches.
        for (client, server) in &pairs {
            let datagram = [&client.conv().to_le_bytes()[..], &[round]].concat();
            client.send_datagram(&datagram).unwrap();
            server.send_datagram(&datagram).unwrap();
        }
        for (client, server) in &pairs {
            let datagram = [&client.conv().to_le_bytes()[..], &[round]].concat();
            for end in [client, server] {
                let received = within(5, "a datagram", end.recv_datagram()).await.unwrap();
                assert_eq!(received, datagram);
            }
        }
    }
    for stats in [endpoint.endpoint_stats(), listener.endpoint_stats()] {
        assert_eq!(
            (stats.state.sessions, stats.dropped.malformed, stats.dropped.short),
            (4, 0, 0),
            "{stats:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_is_accepted_for_a_datagram() {
    let listener = listen_with(config().build().unwrap()).await;
    let addr = listener.local_addr().unwrap();
    let stranger = UdpSocket::bind(ANY).unwrap();
    for conv in 0..10 {
        // The bytes of a first PUSH among them.
        let push = [&[7, 0, 0, 0, 81, 0, 0, 1][..], &[0; 16]].concat();
        stranger.send_to(&packet(conv, &push), addr).unwrap();
    }
    until(5, "they are dropped", || listener.endpoint_stats().dropped.no_session == 10).await;
    let stats = listener.endpoint_stats();
    assert_eq!((stats.state.sessions, stats.driver.accepted), (0, 0), "{stats:?}");
    // What a client without extensions sends before its first PUSH is lost, and the session begins all the same.
    let off = config().extensions(Extensions::Off).build().unwrap();
    let client = KcpStream::connect(addr, off).await.unwrap();
    client.send_datagram(b"too early").unwrap();
    until(5, "it is dropped", || listener.endpoint_stats().dropped.no_session == 11).await;
    let (client, server) = accept_session(&listener, client).await;
    assert_arrives(&client, &server, b"in time").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_and_broken_datagrams_are_dropped() {
    let listener = listen_with(config().build().unwrap()).await;
    let addr = listener.local_addr().unwrap();
    let socket = UdpSocket::bind(ANY).unwrap();
    let client =
        KcpStream::from_socket(socket.try_clone().unwrap(), addr, 5, config().build().unwrap()).unwrap();
    let (client, server) = accept_session(&listener, client).await;
    let mut cut = packet(5, b"cut off");
    cut[6] += 1;
    for packet in [packet(6, b"another's"), cut, packet(5, b"whole")] {
        socket.send_to(&packet, addr).unwrap();
    }
    assert_eq!(within(5, "the whole one", server.recv_datagram()).await.unwrap(), "whole");
    let stats = listener.endpoint_stats();
    // Nobody can tell whose session the broken one was for.
    assert_eq!((stats.dropped.no_session, stats.dropped.short), (1, 1), "{stats:?}");
    assert_arrives(&client, &server, b"and on").await;
}

#[tokio::test]
async fn datagrams_are_refused_unless_configured() {
    let Pair { mut client, mut server, listener: _listener } = pair_with(KcpConfig::default()).await;
    assert_eq!(client.max_datagram_len(), None);
    assert_eq!(kind(client.send_datagram(b"x")), Some(ErrorKind::Unsupported));
    let refused = within(5, "it does not wait for ever", client.recv_datagram()).await;
    assert_eq!(kind(refused), Some(ErrorKind::Unsupported));
    assert_alive(&mut client, &mut server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_end_with_their_session() {
    // Without extensions, nobody answers the peer any more.
    datagrams_end_with_the_listener(Extensions::Off, ErrorKind::TimedOut).await;
    datagrams_end_with_the_listener(Extensions::Preferred, ErrorKind::ConnectionReset).await;
}

async fn datagrams_end_with_the_listener(extensions: Extensions, told: ErrorKind) {
    let config = short_timeouts().extensions(extensions).datagram_queue(65_536).build().unwrap();
    let Pair { client, server, listener } = pair_with(config.clone()).await;
    client.send_datagram(b"before").unwrap();
    until(5, "it has arrived", || server.stats().datagrams.received == 1).await;
    let waiting = async { tokio::join!(server.recv_datagram(), server.recv_datagram()) };
    let closing = async {
        tokio::time::sleep(ms(20)).await;
        listener.abort();
    };
    let ((first, second), ()) =
        within(5, "a pending read fails", async { tokio::join!(waiting, closing) }).await;
    assert_eq!(first.unwrap(), "before");
    assert_eq!(kind(second), Some(ErrorKind::ConnectionAborted));
    assert_eq!(kind(server.send_datagram(b"x")), Some(ErrorKind::ConnectionAborted));
    assert_eq!(server.max_datagram_len(), None);
    let mut client = client;
    // Unless it was told already.
    let _ = client.write_all(b"anybody there?").await;
    let failed = within(10, "a dead peer is noticed", client.recv_datagram()).await;
    assert_eq!(kind(failed), Some(told));
    assert_eq!(kind(client.send_datagram(b"x")), Some(told));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_datagram_handle_ends_with_its_stream() {
    let Pair { client, server, listener } = pair_with(config().build().unwrap()).await;
    let addr = client.local_addr().unwrap();
    let (handle, other) = (client.datagrams(), client.datagrams().clone());
    assert_eq!(handle.max_len(), Some(1_388));
    handle.send(b"by the handle").unwrap();
    assert_eq!(within(5, "a datagram", server.recv_datagram()).await.unwrap(), "by the handle");
    server.send_datagram(b"to the handle").unwrap();
    assert_eq!(within(5, "a datagram", other.recv()).await.unwrap(), "to the handle");
    let waiting = spawn(async move { other.recv().await });
    tokio::time::sleep(ms(20)).await;
    drop(client.into_split());
    let failed = within(5, "a pending read fails", waiting).await.unwrap();
    assert_eq!(kind(failed), Some(ErrorKind::ConnectionAborted));
    assert_eq!(kind(handle.send(b"x")), Some(ErrorKind::ConnectionAborted));
    assert_eq!(kind(handle.recv().await), Some(ErrorKind::ConnectionAborted));
    assert_eq!(handle.max_len(), None);
    // The handle does not keep the socket either.
    drop((server, listener));
    drop(rebind(addr).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_go_through_the_halves_of_a_stream() {
    let Pair { mut client, server, listener: _listener } = pair_with(config().build().unwrap()).await;
    let (reader, writer) = server.into_split();
    let (borrowed_reader, borrowed_writer) = client.split();
    borrowed_writer.send_datagram(b"there").unwrap();
    assert_eq!(within(5, "a datagram", reader.recv_datagram()).await.unwrap(), "there");
    assert_eq!(borrowed_writer.max_datagram_len(), Some(1_388));
    writer.send_datagram(b"back").unwrap();
    assert_eq!(within(5, "a datagram", borrowed_reader.recv_datagram()).await.unwrap(), "back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_recv_loses_no_datagram() {
    const COUNT: u64 = 2_000;
    let Pair { client, server, listener: _listener } = pair_with(config().build().unwrap()).await;
    let sending = spawn(async move {
        let mut rng = Rng::new(5);
        for n in 0..COUNT {
            client.send_datagram(&n.to_le_bytes()).unwrap();
            if rng.chance(0.2) {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
        }
        client
    });
    let receiving = async {
        let mut rng = Rng::new(6);
        let (mut next, mut cancelled) = (0, 0);
        while next < COUNT {
            match poll_or_drop(&mut rng, server.recv_datagram()).await {
                Some(datagram) => {
                    assert_eq!(datagram.unwrap(), next.to_le_bytes()[..]);
                    next += 1;
                }
                None => cancelled += 1,
            }
        }
        cancelled
    };
    let cancelled = within(20, "datagrams to a reader that cancels", receiving).await;
    assert!(cancelled > 5, "only {cancelled} reads were cancelled");
    drop(sending.await.unwrap());
}

/// Sending never waits, but no more than the queue is kept, and the stream goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_datagrams_does_not_stop_the_stream() {
    let config = KcpConfig::builder().datagram_queue(65_536).build().unwrap();
    let server = EchoServer::over(listen_with(config.clone()).await);
    let stream = KcpStream::connect(server.addr, config).await.unwrap();
    stream.socket().set_send_buffer_size(1 << 16).unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let flood = vec![3; writer.max_datagram_len().unwrap()];
    let mut echo = vec![0; 1_000];
    for round in 0..20 {
        for _ in 0..500 {
            writer.send_datagram(&flood).unwrap();
        }
        assert!(writer.stats().datagram_queues.unsent_bytes <= 65_536, "round {round}");
        writer.write_all(&vec![round; 1_000]).await.unwrap();
        within(10, "an echo through the flood", reader.read_exact(&mut echo)).await.unwrap();
        assert!(echo.iter().all(|byte| *byte == round));
    }
    let stats = writer.stats().datagrams;
    assert_eq!(stats.sent + stats.dropped_unsent, 10_000, "{stats:?}");
    let stream = reader.reunite(writer).unwrap();
    drop(within(30, "an echo behind it", echo_payload(stream, 1 << 20)).await.unwrap());
}
