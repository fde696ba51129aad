//! Whole messages.

use std::io::ErrorKind;

use kcp9::KcpConfig;
use kcp9_relay::Relay;
use kcp9_tests::spawn;

use crate::support::{PAYLOAD, Pair, accept_session, kind, listen, pair, pair_with, within};

/// 255 segments of 1,376 bytes.
const MAX: usize = 255 * 1_376;

fn message(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    PAYLOAD.fill(len as u64, &mut bytes);
    bytes
}

fn in_messages() -> KcpConfig {
    KcpConfig::builder().stream(false).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_any_size_arrive_whole() {
    let Pair { client, server, listener: _listener } = pair_with(in_messages()).await;
    let sizes = [1, 2, 1_375, 1_376, 1_377, 10_000, 65_536, MAX - 1, MAX];
    let sending = spawn(async move {
        for len in sizes.into_iter().cycle().take(4 * sizes.len()) {
            client.send(&message(len)).await.unwrap();
        }
        client
    });
    let receiving = async {
        for len in sizes.into_iter().cycle().take(4 * sizes.len()) {
            let received = server.recv().await.unwrap();
            assert!(received == message(len), "{len} bytes were sent, {} came", received.len());
        }
    };
    within(10, "messages", receiving).await;
    sending.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_arrive_whole_over_a_bad_path() {
    let listener = listen().await;
    let relay = Relay::lossy(listener.local_addr().unwrap(), 0.2).unwrap();
    let client = kcp9::KcpStream::connect(relay.addr(), in_messages()).await.unwrap();
    let (client, server) = accept_session(&listener, client).await;
    let size = |i: usize| 1 + i * 977 % 30_000;
    let sending = spawn(async move {
        for i in 0..100 {
            client.send(&message(size(i))).await.unwrap();
        }
        client
    });
    let receiving = async {
        for i in 0..100 {
            assert!(server.recv().await.unwrap() == message(size(i)), "message {i}");
        }
    };
    within(20, "messages over a bad path", receiving).await;
    sending.await.unwrap();
}

#[tokio::test]
async fn empty_and_too_long_messages_are_refused() {
    let Pair { client, server, listener: _listener } = pair_with(in_messages()).await;
    assert_eq!(kind(client.send(&[]).await), Some(ErrorKind::InvalidInput));
    let error = client.send(&message(MAX + 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains(&MAX.to_string()), "{error}");
    client.send(b"still works").await.unwrap();
    assert_eq!(within(5, "the next message", server.recv()).await.unwrap(), "still works");
}

/// Reads get a message as bytes, in pieces; `recv` then returns the next whole message.
#[tokio::test]
async fn messages_can_be_read_as_bytes() {
    use tokio::io::AsyncReadExt;
    let Pair { client, mut server, listener: _listener } = pair_with(in_messages()).await;
    client.send(&message(5_000)).await.unwrap();
    client.send(b"second").await.unwrap();
    let mut bytes = vec![0; 5_000];
    within(5, "the first as bytes", server.read_exact(&mut bytes)).await.unwrap();
    assert!(bytes == message(5_000));
    assert_eq!(within(5, "the second whole", server.recv()).await.unwrap(), "second");
}

/// In stream mode too, what one `send` takes arrives as one message.
#[tokio::test]
async fn messages_in_stream_mode_keep_their_boundaries() {
    let Pair { client, server, listener: _listener } = pair().await;
    for len in [3, 1_376, 4_000, 1] {
        client.send(&message(len)).await.unwrap();
    }
    for len in [3, 1_376, 4_000, 1] {
        let received = within(5, "a message", server.recv()).await.unwrap();
        assert!(received == message(len), "{len} bytes were sent, {} came", received.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_go_through_owned_halves() {
    let Pair { client, server, listener: _listener } = pair_with(in_messages()).await;
    let (_reader, writer) = client.into_split();
    let (reader, _writer) = server.into_split();
    writer.send(b"through the halves").await.unwrap();
    assert_eq!(within(5, "a message", reader.recv()).await.unwrap(), "through the halves");
    assert_eq!(writer.stats().stream.bytes_written, 19);
}
