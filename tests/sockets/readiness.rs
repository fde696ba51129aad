//! Streams without waiting: `try_` methods, readiness, `peek`.

use std::{
    io::{ErrorKind, IoSlice, IoSliceMut},
    sync::Arc,
};

use kcp9::KcpConfig;
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};

use crate::support::{PAYLOAD, Pair, assert_payload, kind, ms, pair, pair_with, within};

const WOULD_BLOCK: Option<ErrorKind> = Some(ErrorKind::WouldBlock);

/// The loop that Tokio's documentation shows, in both directions at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_by_readiness_alone() {
    const LEN: usize = 3 << 20;
    let Pair { client, server, listener: _listener } = pair().await;
    let writing = spawn(async move {
        let (mut at, mut blocked) = (0, 0);
        let mut piece = vec![0; 50_000];
        while at < LEN {
            client.writable().await.unwrap();
            let count = piece.len().min(LEN - at);
            PAYLOAD.fill(at as u64, &mut piece[..count]);
            match client.try_write(&piece[..count]) {
                Ok(count) => at += count,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    blocked += 1;
                }
            }
        }
        (client, blocked)
    });
    let reading = async {
        let mut buffer = vec![0; 20_000];
        let (mut at, mut blocked) = (0, 0);
        while at < LEN {
            server.readable().await.unwrap();
            match server.try_read(&mut buffer) {
                Ok(count) => {
                    assert_payload(at, &buffer[..count]);
                    at += count;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    blocked += 1;
                }
            }
        }
        blocked
    };
    let blocked = within(20, "3 MB", reading).await;
    let (_client, refused) = writing.await.unwrap();
    // Readiness is no promise, but a loop that often finds nothing would burn the processor.
    assert!(blocked < 1_000 && refused < 1_000, "nothing to read {blocked} times, no room {refused} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_stream_is_writable_again_when_its_peer_reads() {
    let config = KcpConfig::builder().send_window(8).recv_window(8).build().unwrap();
    let Pair { client, mut server, listener: _listener } = pair_with(config).await;
    let mut written = 0;
    // Until both windows are full: what the socket does not take at once leaves a moment later.
    while tokio::time::timeout(ms(300), client.writable()).await.is_ok() {
        match client.try_write(&[7; 10_000]) {
            Ok(count) => written += count,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert_eq!(kind(client.try_write(b"x")), WOULD_BLOCK);
    assert_eq!(kind(client.try_send(b"x")), WOULD_BLOCK);
    assert_eq!(kind(client.try_write_vectored(&[IoSlice::new(b"x")])), WOULD_BLOCK);
    let both = client.ready(Interest::READABLE | Interest::WRITABLE);
    assert!(tokio::time::timeout(ms(50), both).await.is_err(), "it is ready for something");
    let (room, ()) = within(5, "room", async {
        tokio::join!(client.ready(Interest::WRITABLE), async {
            server.read_exact(&mut vec![0; written]).await.unwrap();
        })
    })
    .await;
    assert!(room.unwrap().is_writable());
    assert_eq!(client.try_write(b"x").unwrap(), 1);
    assert_eq!(within(5, "the byte", server.read_u8()).await.unwrap(), b'x');
}

#[tokio::test]
async fn nothing_to_read_is_no_error_of_the_stream() {
    let Pair { mut client, server, listener: _listener } = pair().await;
    let mut buffer = [0; 8];
    assert_eq!(kind(server.try_read(&mut buffer)), WOULD_BLOCK);
    assert_eq!(kind(server.try_recv()), WOULD_BLOCK);
    assert_eq!(server.try_read(&mut []).unwrap(), 0);
    client.write_all(b"abcdef").await.unwrap();
    within(5, "bytes", server.readable()).await.unwrap();
    assert_eq!(server.try_read(&mut buffer[..2]).unwrap(), 2);
    // It stays readable for what is left.
    within(5, "the others", server.readable()).await.unwrap();
    let (mut first, mut second) = ([0; 3], [0; 9]);
    let mut slices = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut []), IoSliceMut::new(&mut second)];
    assert_eq!(server.try_read_vectored(&mut slices).unwrap(), 4);
    assert_eq!((&buffer[..2], &first, second[0]), (&b"ab"[..], b"cde", b'f'));
    assert_eq!(kind(server.try_read(&mut buffer)), WOULD_BLOCK);
    assert!(tokio::time::timeout(ms(30), server.readable()).await.is_err(), "still readable");
    assert_eq!(server.try_write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"c")]).unwrap(), 3);
    client.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"abc");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spare_capacity_is_filled_and_no_more() {
    const LEN: usize = 20_000;
    let Pair { mut client, server, listener: _listener } = pair().await;
    let mut bytes = Vec::with_capacity(LEN);
    assert_eq!(kind(server.try_read_buf(&mut bytes)), WOULD_BLOCK);
    crate::support::write_payload(&mut client, LEN + 5).await.unwrap();
    while bytes.len() < LEN {
        within(5, "more", server.readable()).await.unwrap();
        match server.try_read_buf(&mut bytes) {
            Ok(count) => assert!(count > 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert_eq!(bytes.capacity(), LEN, "it grew");
    }
    assert_payload(0, &bytes);
    let (reader, _writer) = server.into_split();
    let mut none: &mut [u8] = &mut [];
    assert_eq!(reader.try_read_buf(&mut none).unwrap(), 0);
    let mut rest: &mut [u8] = &mut [0; 9];
    within(5, "the rest", reader.readable()).await.unwrap();
    assert!(reader.try_read_buf(&mut rest).unwrap() > 0);
}

/// Half of a message is bytes to read, but no message: who waits for messages waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_of_a_message_does_not_keep_its_reader_busy() {
    let config = KcpConfig::builder().stream(false).recv_window(4).send_window(4).build().unwrap();
    let Pair { client, server, listener: _listener } = pair_with(config).await;
    let message: Arc<Vec<u8>> = Arc::new((0..200 * 1_376_u32).map(|i| i as u8).collect());
    let sending = spawn({
        let message = Arc::clone(&message);
        async move {
            client.send(&message).await.unwrap();
            client
        }
    });
    let (mut tries, mut received) = (0, None);
    let receiving = async {
        while received.is_none() {
            server.readable().await.unwrap();
            tries += 1;
            match server.try_recv() {
                Ok(message) => received = Some(message),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
    };
    within(10, "the message", receiving).await;
    assert_eq!(received.unwrap(), message[..]);
    // At most once for each packet that arrives.
    assert!(tries <= 400, "{tries} tries");
    let _client = sending.await.unwrap();
}

#[tokio::test]
async fn the_end_is_a_readiness() {
    let Pair { client: _client, mut server, listener: _listener } = pair().await;
    server.shutdown().await.unwrap();
    let ready = within(1, "it is ready", server.ready(Interest::WRITABLE)).await.unwrap();
    assert!(ready.is_write_closed() && !ready.is_read_closed());
    assert_eq!(kind(server.try_write(b"x")), Some(ErrorKind::BrokenPipe));

    // With extensions, that shutdown was the end of what this client reads. Another one is still open.
    let Pair { client, server: _server, listener: _other } = pair().await;
    let waiting = async { tokio::join!(client.readable(), client.ready(Interest::READABLE)) };
    let ((readable, ready), ()) = within(5, "the end wakes", async {
        tokio::join!(waiting, async {
            tokio::time::sleep(ms(20)).await;
            client.abort();
        })
    })
    .await;
    readable.unwrap();
    assert!(ready.unwrap().is_read_closed());
    assert_eq!(kind(client.try_read(&mut [0; 1])), Some(ErrorKind::ConnectionAborted));
    assert_eq!(kind(client.try_write(b"x")), Some(ErrorKind::ConnectionAborted));
    assert_eq!(kind(client.peek(&mut [0; 1]).await), Some(ErrorKind::ConnectionAborted));
}

#[tokio::test]
async fn peeked_bytes_are_read_afterwards() {
    let Pair { client, mut server, listener: _listener } = pair().await;
    let mut buffer = [0; 8];
    assert_eq!(server.peek(&mut []).await.unwrap(), 0);
    let (count, ()) = within(5, "a peek waits", async {
        tokio::join!(server.peek(&mut buffer), async {
            tokio::time::sleep(ms(20)).await;
            client.try_write(b"hello").unwrap();
        })
    })
    .await;
    assert_eq!((count.unwrap(), &buffer[..5]), (5, &b"hello"[..]));
    for _ in 0..2 {
        let mut two = [0; 2];
        assert_eq!(server.peek(&mut two).await.unwrap(), 2);
        assert_eq!(&two, b"he");
    }
    server.read_exact(&mut buffer[..2]).await.unwrap();
    let (mut reader, writer) = server.into_split();
    assert_eq!(reader.peek(&mut buffer).await.unwrap(), 3);
    reader.read_exact(&mut buffer[..3]).await.unwrap();
    assert_eq!(&buffer[..3], b"llo");
    assert_eq!(kind(reader.try_read(&mut buffer)), WOULD_BLOCK);
    drop(writer);
}

/// The halves have what the stream has, and wait independently of each other.
#[tokio::test]
async fn halves_are_ready_each_for_their_own() {
    let Pair { client, mut server, listener: _listener } = pair().await;
    let (mut reader, writer) = client.into_split();
    within(1, "room", writer.writable()).await.unwrap();
    assert!(tokio::time::timeout(ms(30), reader.readable()).await.is_err(), "nothing was sent");
    assert_eq!(writer.try_write(b"ping").unwrap(), 4);
    let (borrowed_reader, borrowed_writer) = server.split();
    within(5, "the ping", borrowed_reader.readable()).await.unwrap();
    let mut ping = [0; 9];
    assert_eq!(borrowed_reader.try_read(&mut ping).unwrap(), 4);
    assert!(borrowed_writer.ready(Interest::WRITABLE).await.unwrap().is_writable());
    borrowed_writer.try_send(b"pong").unwrap();
    within(5, "the pong", reader.readable()).await.unwrap();
    assert_eq!(reader.peek(&mut ping).await.unwrap(), 4);
    assert_eq!(reader.try_recv().unwrap(), b"pong"[..]);
    assert_eq!(kind(reader.try_recv()), WOULD_BLOCK);
}

#[tokio::test]
async fn datagrams_are_taken_without_waiting() {
    let config = KcpConfig::builder().datagram_queue(65_536).build().unwrap();
    let Pair { client, server, listener: _listener } = pair_with(config).await;
    assert_eq!(kind(server.try_recv_datagram()), WOULD_BLOCK);
    for round in 0..300_u32 {
        client.send_datagram(&round.to_le_bytes()).unwrap();
    }
    crate::support::until(5, "they have arrived", || server.stats().datagrams.received == 300).await;
    // Without a pause: the budget of the task is for calls that may wait.
    let handle = server.datagrams();
    for round in 0..300_u32 {
        let datagram = if round % 2 == 0 { server.try_recv_datagram() } else { handle.try_recv() };
        assert_eq!(datagram.unwrap(), round.to_le_bytes()[..]);
    }
    assert_eq!(kind(handle.try_recv()), WOULD_BLOCK);
}
