//! How sessions of two ends with extensions end: as those of TCP do.

use std::{io::ErrorKind, net::SocketAddr};

use kcp9::{
    KcpConfig, KcpEndpoint, KcpError, KcpListener, KcpStream,
    proto::{Extensions, ReadError},
};
use kcp9_relay::Relay;
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};

use crate::support::{
    ANY, Pair, assert_payload, kind, listen_with, pair_with, read_payload, rebind, until, within,
    write_payload,
};

const LEN: usize = 100_000;

fn config() -> KcpConfig {
    KcpConfig::builder().extensions(Extensions::Preferred).build().unwrap()
}

async fn pair() -> Pair {
    pair_with(config()).await
}

fn addr_of(stream: &KcpStream) -> SocketAddr {
    ([127, 0, 0, 1], stream.local_addr().unwrap().port()).into()
}

/// Everything up to the end of the stream, which must be the payload.
async fn read_to_end(stream: &mut KcpStream) -> std::io::Result<usize> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    assert_payload(0, &bytes);
    Ok(bytes.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_direction_ends_by_itself() {
    for client_first in [true, false] {
        let Pair { client, server, listener } = pair().await;
        let (mut one, mut other) = if client_first { (client, server) } else { (server, client) };
        let port = if client_first { addr_of(&one) } else { addr_of(&other) };
        write_payload(&mut one, LEN).await.unwrap();
        within(5, "a shutdown", one.shutdown()).await.unwrap();
        assert_eq!(kind(one.write(b"x").await), Some(ErrorKind::BrokenPipe));
        assert_eq!(within(5, "the end", read_to_end(&mut other)).await.unwrap(), LEN);
        assert_eq!(other.read(&mut [0; 9]).await.unwrap(), 0, "it stays the end");
        // The other direction goes on for as long as it likes.
        for _ in 0..5 {
            tokio::time::sleep(crate::support::ms(50)).await;
            other.write_all(b"more").await.unwrap();
            let mut more = [0; 4];
            within(5, "half of the session", one.read_exact(&mut more)).await.unwrap();
            assert_eq!(&more, b"more");
        }
        write_payload(&mut other, LEN).await.unwrap();
        let (shutdown, arrived) = tokio::join!(other.shutdown(), read_to_end(&mut one));
        shutdown.unwrap();
        assert_eq!(arrived.unwrap(), LEN);
        // Both streams are still there. Their sessions are done.
        until(5, "the session is done", || listener.endpoint_stats().state.sessions == 0).await;
        for stream in [&mut one, &mut other] {
            assert_eq!(stream.read(&mut [0; 9]).await.unwrap(), 0);
            within(1, "a further shutdown", stream.shutdown()).await.unwrap();
            within(1, "a flush", stream.flush()).await.unwrap();
            assert_eq!(kind(stream.write(b"x").await), Some(ErrorKind::BrokenPipe));
        }
        drop((one, other));
        // Those of the client's socket as well.
        rebind(port).await;
    }
}

/// As the body of an HTTP/1.0 answer: who sends it drops the stream behind it.
async fn the_end_is_where_the_peer_dropped_its_stream(loss: f64) {
    let listener = listen_with(config()).await;
    let relay = Relay::lossy(listener.local_addr().unwrap(), loss).unwrap();
    let server = spawn({
        async move {
            for _ in 0..20 {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 3];
                stream.read_exact(&mut request).await.unwrap();
                assert_eq!(&request, b"GET");
                write_payload(&mut stream, LEN).await.unwrap();
            }
            until(20, "no session is left", || listener.endpoint_stats().state.sessions == 0).await;
            assert_eq!(listener.endpoint_stats().driver.bytes_abandoned, 0);
        }
    });
    for round in 0..20 {
        let mut client = KcpStream::connect(relay.addr(), config()).await.unwrap();
        client.write_all(b"GET").await.unwrap();
        let body = within(20, "the body", read_to_end(&mut client)).await;
        assert_eq!(body.unwrap(), LEN, "round {round}");
    }
    within(25, "the server is done", server).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_ends_where_the_peer_dropped_its_stream() {
    the_end_is_where_the_peer_dropped_its_stream(0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_ends_where_the_peer_dropped_its_stream_over_a_path_that_drops_a_fifth() {
    the_end_is_where_the_peer_dropped_its_stream(0.2).await;
}

/// A server that answers each session with what it received, once it has all of that, and ends.
async fn answer_all(listener: KcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        spawn(async move {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
            stream.shutdown().await.unwrap();
        });
    }
}

/// A proxy in between: `copy_bidirectional` returns, and leaves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_of_both_directions_returns_and_leaves_no_session() {
    const REQUESTS: usize = 100;
    let far = listen_with(config()).await;
    let far_addr = far.local_addr().unwrap();
    let (near, behind) = (listen_with(config()).await, KcpEndpoint::bind(ANY).await.unwrap());
    let near_addr = near.local_addr().unwrap();
    let server = spawn(answer_all(far));
    let proxy = spawn(async move {
        let mut copies = tokio::task::JoinSet::new();
        for _ in 0..REQUESTS {
            let (mut inbound, _) = near.accept().await.unwrap();
            let mut outbound = behind.connect(far_addr, config()).unwrap();
            copies.spawn(async move { copy_bidirectional(&mut inbound, &mut outbound).await });
        }
        while let Some(copied) = copies.join_next().await {
            assert_eq!(copied.unwrap().unwrap(), (10_000, 10_000));
        }
        until(10, "no session is left", || {
            near.endpoint_stats().state.sessions + behind.endpoint_stats().state.sessions == 0
        })
        .await;
    });
    let clients = KcpEndpoint::bind(ANY).await.unwrap();
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..REQUESTS {
        let mut client = clients.connect(near_addr, config()).unwrap();
        requests.spawn(async move {
            write_payload(&mut client, 10_000).await.unwrap();
            client.shutdown().await.unwrap();
            read_to_end(&mut client).await.unwrap()
        });
    }
    let answers = async {
        while let Some(answer) = requests.join_next().await {
            assert_eq!(answer.unwrap(), 10_000);
        }
    };
    within(20, "100 answers through the proxy", answers).await;
    within(15, "the proxy is done", proxy).await.unwrap();
    until(10, "no session is left", || clients.endpoint_stats().state.sessions == 0).await;
    server.abort();
}

/// Who drops a stream refuses what still comes. The writer learns of it, and the dropped end goes away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_learns_that_nobody_reads() {
    let Pair { mut client, server, listener } = pair().await;
    let writing = spawn(async move {
        let bytes = vec![7; 65_536];
        let written = async {
            loop {
                if let Err(error) = client.write_all(&bytes).await {
                    return error.kind();
                }
            }
        };
        (within(10, "the write fails", written).await, client)
    });
    tokio::time::sleep(crate::support::ms(100)).await;
    drop(server);
    let (failure, mut client) = within(12, "the writer ends", writing).await.unwrap();
    assert_eq!(failure, ErrorKind::BrokenPipe);
    assert_eq!(kind(client.shutdown().await), Some(ErrorKind::BrokenPipe));
    assert_eq!(client.read(&mut [0; 9]).await.unwrap(), 0, "what it wrote, which is nothing, ends there");
    until(5, "the dropped end is gone", || listener.endpoint_stats().state.sessions == 0).await;
}

/// What was under way when the reader was dropped is no reason to lose what that end wrote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_dropped_with_data_unread_still_delivers() {
    for _ in 0..10 {
        let Pair { mut client, mut server, listener } = pair().await;
        write_payload(&mut client, LEN).await.unwrap();
        write_payload(&mut server, LEN).await.unwrap();
        drop(server);
        assert_eq!(within(5, "what was written", read_to_end(&mut client)).await.unwrap(), LEN);
        until(5, "the dropped end is gone", || listener.endpoint_stats().state.sessions == 0).await;
        assert_eq!(listener.endpoint_stats().driver.bytes_abandoned, 0);
    }
}

/// A writing half that is dropped ends its direction, and the other half reads on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_half_ends_its_direction() {
    let Pair { client, mut server, listener: _listener } = pair().await;
    let (mut reader, mut writer) = client.into_split();
    write_payload(&mut writer, LEN).await.unwrap();
    drop(writer);
    assert_eq!(within(5, "the end", read_to_end(&mut server)).await.unwrap(), LEN);
    write_payload(&mut server, LEN).await.unwrap();
    within(5, "the other direction", read_payload(&mut reader, LEN)).await.unwrap();
    drop(server);
    assert_eq!(within(5, "its end", reader.read(&mut [0; 9])).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_of_messages_learns_of_the_end() {
    let config = KcpConfig::builder().extensions(Extensions::Preferred).stream(false).build().unwrap();
    let Pair { mut client, server, listener: _listener } = pair_with(config).await;
    client.send(b"the last message").await.unwrap();
    within(5, "a shutdown", client.shutdown()).await.unwrap();
    assert_eq!(within(5, "the message", server.recv()).await.unwrap(), "the last message");
    for _ in 0..2 {
        let end = within(5, "the end", server.recv()).await.unwrap_err();
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
        assert_eq!(KcpError::find(&end), Some(KcpError::Read(ReadError::Finished)));
    }
}

/// One end has no extensions: nothing tells it of an end, and nothing hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_legacy_peer_gets_everything_and_no_end() {
    for (ours, theirs) in [(Extensions::Preferred, Extensions::Off), (Extensions::Off, Extensions::Preferred)]
    {
        let with = |extensions| KcpConfig::builder().extensions(extensions).build().unwrap();
        let listener = listen_with(with(theirs)).await;
        let mut client = KcpStream::connect(listener.local_addr().unwrap(), with(ours)).await.unwrap();
        let port = addr_of(&client);
        write_payload(&mut client, LEN).await.unwrap();
        within(5, "a shutdown", client.shutdown()).await.unwrap();
        let (mut server, _) = within(5, "it is accepted", listener.accept()).await.unwrap();
        within(5, "100,000 bytes", read_payload(&mut server, LEN)).await.unwrap();
        let more = tokio::time::timeout(crate::support::ms(300), server.read(&mut [0; 9])).await;
        assert!(more.is_err(), "{more:?}");
        write_payload(&mut server, LEN).await.unwrap();
        drop(server);
        within(5, "the answer", read_payload(&mut client, LEN)).await.unwrap();
        until(5, "the server's is gone", || listener.endpoint_stats().state.sessions == 0).await;
        drop(client);
        rebind(port).await;
    }
}
