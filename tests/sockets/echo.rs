//! Bytes there and back: many clients, tiny reads, both directions at once, vectored writes.

use std::{
    future::poll_fn,
    io::IoSlice,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use kcp9::{KcpConfig, KcpEndpoint, KcpStream};
use kcp9_tests::spawn;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::support::{
    ANY, EchoServer, PAYLOAD, Pair, assert_alive, echo_payload, pair, read_payload, within, write_payload,
};

/// 64 messages of 64 bytes, one after the other.
async fn ping(mut stream: KcpStream, client: usize) {
    for message in 0..64 {
        let mut sent = [0; 64];
        PAYLOAD.fill((client * 64 + message) as u64 * 64, &mut sent);
        stream.write_all(&sent).await.unwrap();
        let mut back = [0; 64];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(back, sent, "client {client}, message {message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_clients_at_once() {
    const OWN_SOCKET: usize = 256;
    const ENDPOINTS: usize = 8;
    const STREAMS: usize = 96;
    let server = EchoServer::start().await;
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..OWN_SOCKET {
        let stream = KcpStream::connect(server.addr, KcpConfig::default()).await.unwrap();
        clients.spawn(ping(stream, client));
    }
    for _ in 0..ENDPOINTS {
        let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
        for _ in 0..STREAMS {
            let stream = endpoint.connect(server.addr, KcpConfig::default()).unwrap();
            clients.spawn(ping(stream, clients.len()));
        }
    }
    assert_eq!(clients.len(), 1_024);
    let all = async { while clients.join_next().await.transpose().unwrap().is_some() {} };
    within(60, "1,024 clients' echoes", all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_one_byte_at_a_time() {
    const LEN: usize = 100_000;
    let Pair { mut client, mut server, .. } = pair().await;
    let writing = spawn(async move {
        write_payload(&mut client, LEN).await.unwrap();
        client
    });
    let reading = async {
        let mut expected = vec![0; LEN];
        PAYLOAD.fill(0, &mut expected);
        for (at, expected) in expected.into_iter().enumerate() {
            let mut byte = [0];
            assert_eq!(server.read(&mut byte).await.unwrap(), 1);
            assert_eq!(byte[0], expected, "at {at}");
        }
    };
    within(10, "100 kB, byte by byte", reading).await;
    writing.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_write_and_shutdown_at_the_same_time() {
    const LEN: usize = 4 << 20;
    let Pair { client, server, listener: _listener } = pair().await;
    let mut tasks = tokio::task::JoinSet::new();
    for stream in [client, server] {
        let (mut reader, mut writer) = stream.into_split();
        tasks.spawn(async move { read_payload(&mut reader, LEN).await.map(|()| drop(reader)) });
        tasks.spawn(async move {
            write_payload(&mut writer, LEN).await?;
            writer.shutdown().await
        });
    }
    let all = async {
        while let Some(outcome) = tasks.join_next().await {
            outcome.unwrap().unwrap();
        }
    };
    within(20, "both directions and both shutdowns", all).await;
}

#[tokio::test]
async fn borrowed_halves_work_in_one_task() {
    let Pair { mut client, server, listener: _listener } = pair().await;
    let (mut theirs, mut back) = server.into_split();
    let echo = spawn(async move { tokio::io::copy(&mut theirs, &mut back).await });
    let (mut reader, mut writer) = client.split();
    let both =
        async { tokio::join!(write_payload(&mut writer, 1 << 20), read_payload(&mut reader, 1 << 20)) };
    let (written, read) = within(10, "an echo in one task", both).await;
    written.unwrap();
    read.unwrap();
    echo.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn halves_of_different_streams_do_not_reunite() {
    let one = pair().await;
    let two = pair().await;
    let (reader, writer) = one.client.into_split();
    let (other_reader, other_writer) = two.client.into_split();
    let error = reader.reunite(other_writer).unwrap_err();
    let mut client = error.0.reunite(writer).unwrap();
    let mut server = one.server;
    assert_alive(&mut client, &mut server).await;
    drop(other_reader);
}

/// Dropping a half (other than by `forget`) begins a shutdown; the other half goes on.
#[tokio::test]
async fn dropping_the_write_half_leaves_the_read_half() {
    let Pair { client, mut server, listener: _listener } = pair().await;
    let (mut reader, mut writer) = client.into_split();
    writer.write_all(b"last words").await.unwrap();
    drop(writer);
    let mut words = [0; 10];
    within(5, "what was written arrives", server.read_exact(&mut words)).await.unwrap();
    server.write_all(b"answer").await.unwrap();
    within(5, "the answer arrives", reader.read_exact(&mut words[..6])).await.unwrap();
    assert_eq!(&words[..6], b"answer");
}

#[tokio::test]
async fn vectored_writes_keep_their_order() {
    let Pair { mut client, mut server, listener: _listener } = pair().await;
    assert!(client.is_write_vectored());
    let mut bytes = vec![0; 200_000];
    PAYLOAD.fill(0, &mut bytes);
    let reading = spawn(async move { read_payload(&mut server, 200_000).await.map(|()| server) });
    let writing = async {
        let mut at = 0;
        let mut sizes = (0..).map(|i| [0, 1, 7, 1_400, 0, 5_000, 20_000][i % 7]);
        while at < bytes.len() {
            let mut slices = Vec::new();
            let mut end = at;
            while slices.len() < 10 {
                let next = (end + sizes.next().unwrap()).min(bytes.len());
                slices.push(IoSlice::new(&bytes[end..next]));
                end = next;
            }
            let count = client.write_vectored(&slices).await.unwrap();
            assert!(count > 0 && count <= end - at);
            at += count;
        }
        client.flush().await.unwrap();
    };
    within(10, "vectored writes", writing).await;
    within(10, "what they wrote", reading).await.unwrap().unwrap();
}

/// Reading into or writing from an empty buffer returns 0 at once, and moves no byte.
#[tokio::test]
async fn empty_buffers_are_ready_at_once() {
    let Pair { mut client, mut server, listener: _listener } = pair().await;
    let mut cx = Context::from_waker(Waker::noop());
    let mut empty = ReadBuf::new(&mut []);
    assert!(matches!(Pin::new(&mut server).poll_read(&mut cx, &mut empty), Poll::Ready(Ok(()))));
    assert!(matches!(Pin::new(&mut client).poll_write(&mut cx, &[]), Poll::Ready(Ok(0))));
    let nothing = [IoSlice::new(&[]), IoSlice::new(&[])];
    assert!(matches!(Pin::new(&mut client).poll_write_vectored(&mut cx, &nothing), Poll::Ready(Ok(0))));
    assert!(matches!(Pin::new(&mut client).poll_write_vectored(&mut cx, &[]), Poll::Ready(Ok(0))));

    client.write_all(b"x").await.unwrap();
    let read = poll_fn(|cx| {
        let mut one = [0];
        let mut buf = ReadBuf::new(&mut one);
        Pin::new(&mut server).poll_read(cx, &mut buf).map_ok(|()| buf.filled().to_vec())
    });
    assert_eq!(within(5, "one byte", read).await.unwrap(), b"x");
    assert!(Pin::new(&mut server).poll_read(&mut cx, &mut empty).is_ready(), "with nothing to read");
}

#[tokio::test]
async fn a_large_echo_on_one_thread() {
    let server = EchoServer::start().await;
    let stream = KcpStream::connect(server.addr, KcpConfig::default()).await.unwrap();
    within(20, "8 MB there and back", echo_payload(stream, 8 << 20)).await.unwrap();
}
