//! Sessions with Tokio, over a duplex pipe in memory.

use std::{
    io::{self, ErrorKind},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use kcp9::mux::{MuxConfig, MuxError, MuxSession, MuxStream, MuxVersion};
use kcp9_simulator::payload::Payload;
use kcp9_tests::{spawn, within};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex, split},
    task::JoinSet,
};

const VERSIONS: [MuxVersion; 2] = [MuxVersion::V1, MuxVersion::V2];
const PIPE: usize = 64 << 10;

fn config(version: MuxVersion) -> MuxConfig {
    MuxConfig::builder().version(version).build().unwrap()
}

fn pair(config: &MuxConfig) -> (MuxSession, MuxSession) {
    let (one, other) = duplex(PIPE);
    (MuxSession::client(one, config.clone()), MuxSession::server(other, config.clone()))
}

async fn stream_pair(client: &MuxSession, server: &MuxSession) -> (MuxStream, MuxStream) {
    let one = client.open().await.unwrap();
    let other = within(10, "a stream to accept", server.accept()).await.unwrap();
    assert_eq!(one.id(), other.id());
    (one, other)
}

fn find(error: &io::Error) -> &MuxError {
    MuxError::find(error).unwrap_or_else(|| panic!("{error:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_streams_carry_their_bytes_both_ways() {
    for version in VERSIONS {
        let (client, server) = pair(&config(version));
        let serving = spawn(async move {
            let mut server = server;
            while let Some(stream) = server.next().await {
                spawn(async move {
                    let (mut reader, mut writer) = split(stream);
                    tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                    writer.shutdown().await.unwrap();
                });
            }
        });
        let mut runs = Vec::new();
        for at in 0..100 {
            let (mut reader, mut writer) = split(client.open().await.unwrap());
            let len = 100_000 + at * 1_000;
            let sent = Payload::new(at as u64).bytes(0, len);
            runs.push(spawn(async move {
                writer.write_all(sent).await.unwrap();
                writer.shutdown().await.unwrap();
            }));
            runs.push(spawn(async move {
                let mut back = Vec::new();
                reader.read_to_end(&mut back).await.unwrap();
                assert!(back == sent, "stream {at}: {} bytes came back", back.len());
            }));
        }
        for run in runs {
            within(60, "all streams", run).await.unwrap();
        }
        assert_eq!(client.stats().open_streams, 0);
        within(10, "closing", client.close()).await.unwrap();
        within(10, "the server's end", serving).await.unwrap();
        assert!(matches!(client.open().await, Err(MuxError::Closed)));
    }
}

#[tokio::test]
async fn each_direction_ends_by_itself() {
    for version in VERSIONS {
        let (client, server) = pair(&config(version));
        let (mut one, mut other) = stream_pair(&client, &server).await;
        one.write_all(b"question").await.unwrap();
        one.shutdown().await.unwrap();
        assert_eq!(one.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
        let mut bytes = Vec::new();
        other.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, b"question");
        assert_eq!(other.read(&mut [0; 10]).await.unwrap(), 0);
        other.write_all(b"answer").await.unwrap();
        drop(other);
        bytes.clear();
        one.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, b"answer");
        drop(one);
        assert_eq!((client.stats().open_streams, server.stats().open_streams), (0, 0));
    }
}

#[tokio::test]
async fn what_had_come_is_read_before_the_sessions_end_shows() {
    let (client, server) = pair(&config(MuxVersion::V2));
    let (mut one, mut other) = stream_pair(&client, &server).await;
    let (mut whole, mut other_whole) = stream_pair(&client, &server).await;
    one.write_all(&[1; 50_000]).await.unwrap();
    whole.write_all(b"all of it").await.unwrap();
    whole.shutdown().await.unwrap();
    let mut late = client.open().await.unwrap();
    late.write_all(b"not accepted yet").await.unwrap();
    within(10, "closing", client.close()).await.unwrap();
    assert!(matches!(within(10, "the end", server.closed()).await, MuxError::PeerClosed));
    let mut bytes = vec![0; 50_000];
    other.read_exact(&mut bytes).await.unwrap();
    assert!(bytes.iter().all(|byte| *byte == 1));
    // Cut off: it does not pass for a whole one.
    assert!(matches!(find(&other.read(&mut bytes).await.unwrap_err()), MuxError::PeerClosed));
    assert!(matches!(find(&other.write(b"x").await.unwrap_err()), MuxError::PeerClosed));
    bytes.clear();
    other_whole.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(bytes, b"all of it");
    let mut accepted = server.accept().await.unwrap();
    let mut bytes = [0; 16];
    accepted.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"not accepted yet");
    assert!(matches!(server.accept().await, Err(MuxError::PeerClosed)));
    // At this end as well.
    assert!(matches!(find(&one.read(&mut [0]).await.unwrap_err()), MuxError::Closed));
}

#[tokio::test]
async fn a_stuck_stream_delays_no_other_in_version_2() {
    let (client, server) = pair(&config(MuxVersion::V2));
    let mut stuck = Vec::new();
    for _ in 0..15 {
        let (mut writer, reader) = stream_pair(&client, &server).await;
        let writing = spawn(async move {
            let bytes = [0; 10_000];
            while writer.write_all(&bytes).await.is_ok() {}
        });
        stuck.push((reader, writing));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (mut one, mut other) = stream_pair(&client, &server).await;
    let writing = spawn(async move {
        one.write_all(&vec![7; 5_000_000]).await.unwrap();
        one.shutdown().await.unwrap();
    });
    let mut bytes = Vec::new();
    within(30, "the others go on", other.read_to_end(&mut bytes)).await.unwrap();
    assert_eq!(bytes.len(), 5_000_000);
    writing.await.unwrap();
    assert!(server.stats().unread_bytes >= 15 * 250_000);
    // Their writers end with the session.
    server.abort();
    for (_, writing) in stuck {
        within(10, "a stuck writer", writing).await.unwrap();
    }
}

#[tokio::test]
async fn a_stuck_stream_of_version_1_holds_up_the_session_until_it_is_read() {
    let config = MuxConfig::builder().receive_buffer(200_000).build().unwrap();
    let (client, server) = pair(&config);
    let (mut writer, mut reader) = stream_pair(&client, &server).await;
    let writing = spawn(async move {
        writer.write_all(&vec![3; 2_000_000]).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    while server.stats().unread_bytes < 200_000 {
        tokio::task::yield_now().await;
    }
    let _behind = client.open().await.unwrap();
    tokio::time::timeout(Duration::from_millis(100), server.accept()).await.unwrap_err();
    assert!(server.stats().unread_bytes < 300_000);
    let mut bytes = Vec::new();
    within(10, "all of it", reader.read_to_end(&mut bytes)).await.unwrap();
    assert_eq!(bytes.len(), 2_000_000);
    within(10, "the stream behind", server.accept()).await.unwrap();
    writing.await.unwrap();
}

/// A `flush` waits for its own bytes, not until all others are silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_ends_while_others_write_on() {
    let (client, server) = pair(&config(MuxVersion::V1));
    let (mut busy, mut sink) = stream_pair(&client, &server).await;
    let writing = spawn(async move {
        let bytes = [0; 32_768];
        while busy.write_all(&bytes).await.is_ok() {}
    });
    let reading = spawn(async move {
        let mut bytes = vec![0; 65_536];
        while sink.read(&mut bytes).await.is_ok() {}
    });
    let mut one = client.open().await.unwrap();
    for _ in 0..100 {
        one.write_all(b"x").await.unwrap();
        within(10, "a flush", one.flush()).await.unwrap();
    }
    client.abort();
    writing.await.unwrap();
    server.abort();
    reading.await.unwrap();
}

/// A transport with fixed bytes to be read, which notes what is asked of it.
struct Noted {
    bytes: Vec<u8>,
    calls: Arc<Mutex<Vec<Call>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// With room for so many bytes.
    Read(usize),
    Write,
    Flush,
}

impl Noted {
    fn new(bytes: Vec<u8>) -> (Self, Arc<Mutex<Vec<Call>>>) {
        let calls = Arc::default();
        (Self { bytes, calls: Arc::clone(&calls) }, calls)
    }

    fn note(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }
}

impl AsyncRead for Noted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            return Poll::Pending;
        }
        self.note(Call::Read(buf.remaining()));
        let count = buf.remaining().min(self.bytes.len());
        buf.put_slice(&self.bytes[..count]);
        self.bytes.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Noted {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.note(Call::Write);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.note(Call::Flush);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The rest of a large frame is read with the next header: each payload is one piece of memory, and wakes its reader once.
#[tokio::test]
async fn large_frames_are_read_one_by_one() {
    const LEN: usize = 32_768;
    let mut frames = vec![1, 0, 0, 0, 3, 0, 0, 0];
    for _ in 0..4 {
        frames.extend([1, 2, 0, 0x80, 3, 0, 0, 0]);
        frames.extend([7; LEN]);
    }
    let (transport, calls) = Noted::new(frames);
    let session = MuxSession::server(transport, config(MuxVersion::V1));
    let mut stream = within(10, "a stream", session.accept()).await.unwrap();
    within(10, "its bytes", stream.read_exact(&mut [0; 4 * LEN])).await.unwrap();
    let reads = [4_096, LEN + 16 - 4_096 + 8, LEN + 8, LEN + 8, LEN + 8];
    assert_eq!(*calls.lock().unwrap(), reads.map(Call::Read));
}

/// While writers wait for their turn, more is to come, and what was written so far may go with it.
#[tokio::test]
async fn a_busy_session_is_flushed_at_its_end() {
    let (transport, calls) = Noted::new(Vec::new());
    let session = MuxSession::client(transport, config(MuxVersion::V1));
    let mut writers = JoinSet::new();
    for _ in 0..10 {
        let mut stream = session.open().await.unwrap();
        writers.spawn(async move { stream.write_all(&vec![7; 4_000_000]).await.unwrap() });
    }
    within(10, "the writers", writers.join_all()).await;
    within(10, "closing", session.close()).await.unwrap();
    let calls = calls.lock().unwrap();
    let count = |kind| calls.iter().filter(|call| **call == kind).count();
    let (writes, flushes) = (count(Call::Write), count(Call::Flush));
    assert_eq!(calls.last(), Some(&Call::Flush), "{writes} writes, {flushes} flushes");
    assert!(writes > 50 && flushes < writes / 10, "{writes} writes, {flushes} flushes");
}

#[tokio::test]
async fn ends_of_every_kind_reach_all_who_wait() {
    // The transport is gone: a clean end, one within a frame, an abort, one of the runtime.
    let raw = |config: &MuxConfig| -> (MuxSession, DuplexStream) {
        let (one, other) = duplex(PIPE);
        (MuxSession::server(one, config.clone()), other)
    };
    let config = config(MuxVersion::V1);
    for kind in 0..4 {
        let (session, mut peer) = raw(&config);
        peer.write_all(&[1, 0, 0, 0, 3, 0, 0, 0]).await.unwrap();
        let (mut reader, mut writer) = split(session.accept().await.unwrap());
        let reading = spawn(async move { reader.read(&mut [0; 10]).await.unwrap_err() });
        let writing = spawn(async move {
            let bytes = [0; 10_000];
            loop {
                if let Err(error) = writer.write_all(&bytes).await {
                    return error;
                }
            }
        });
        let accepting = spawn({
            let session = session.clone();
            async move { session.accept().await.unwrap_err() }
        });
        let closed = spawn({
            let session = session.clone();
            async move { session.closed().await }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        match kind {
            0 => drop(peer),
            1 => {
                peer.write_all(&[1, 2]).await.unwrap();
                peer.shutdown().await.unwrap();
            }
            2 => session.abort(),
            _ => peer.write_all(&[7; 8]).await.unwrap(),
        }
        let read = within(10, "the reader", reading).await.unwrap();
        let written = within(10, "the writer", writing).await.unwrap();
        let accepted = within(10, "the acceptor", accepting).await.unwrap();
        let closed = within(10, "closed()", closed).await.unwrap();
        let wanted = match kind {
            0 => ErrorKind::BrokenPipe,
            1 => ErrorKind::UnexpectedEof,
            2 => ErrorKind::ConnectionAborted,
            _ => ErrorKind::InvalidData,
        };
        for found in [read.kind(), written.kind(), accepted.kind(), closed.kind()] {
            assert_eq!(found, wanted, "{kind}: {read:?}");
        }
        assert_eq!(within(10, "close()", session.close()).await.unwrap_err().kind(), wanted);
    }
}

#[test]
fn a_runtime_that_ends_fails_what_is_left() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (client, _server, mut stream) = runtime.block_on(async {
        let (client, server) = pair(&config(MuxVersion::V1));
        let stream = client.open().await.unwrap();
        (client, server, stream)
    });
    runtime.shutdown_background();
    let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = other.block_on(async {
        client.closed().await;
        stream.read(&mut [0]).await.unwrap_err()
    });
    assert!(
        matches!(find(&error), MuxError::RuntimeGone | MuxError::PeerClosed | MuxError::Transport(_)),
        "{error:?}"
    );
}

#[tokio::test]
async fn dropped_handles_end_the_session_behind_what_was_written() {
    let (client, server) = pair(&config(MuxVersion::V2));
    let mut stream = client.open().await.unwrap();
    stream.write_all(&[5; 60_000]).await.unwrap();
    drop(client);
    drop(stream);
    let mut accepted = within(10, "the stream", server.accept()).await.unwrap();
    let mut bytes = Vec::new();
    within(10, "its bytes", accepted.read_to_end(&mut bytes)).await.unwrap();
    assert_eq!(bytes.len(), 60_000);
    assert!(matches!(within(10, "the end", server.closed()).await, MuxError::PeerClosed));
}

#[tokio::test]
async fn without_a_handle_of_the_session_its_streams_go_on_and_new_ones_are_refused() {
    let (client, server) = pair(&config(MuxVersion::V1));
    let (mut one, mut other) = stream_pair(&client, &server).await;
    let mut waiting = client.open().await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    drop(server);
    assert_eq!(within(10, "the refusal", waiting.read(&mut [0])).await.unwrap(), 0);
    one.write_all(b"still here").await.unwrap();
    let mut bytes = [0; 10];
    other.read_exact(&mut bytes).await.unwrap();
    let mut late = client.open().await.unwrap();
    assert_eq!(within(10, "the refusal", late.read(&mut [0])).await.unwrap(), 0);
    drop(other);
    assert!(matches!(within(10, "the end", client.closed()).await, MuxError::PeerClosed));
}

#[tokio::test]
async fn idle_sessions_live_and_dead_ones_do_not() {
    let dead = Duration::from_millis(400);
    let config = MuxConfig::builder().keep_alive(Some(Duration::from_millis(50))).dead_timeout(Some(dead));
    let config = config.build().unwrap();
    let (client, server) = pair(&config);
    let (mut one, mut other) = stream_pair(&client, &server).await;
    // Nobody reads or writes the other end of this one.
    let (transport, _peer) = duplex(PIPE);
    let silent = MuxSession::client(transport, config);
    let began = Instant::now();
    assert!(matches!(within(10, "the end", silent.closed()).await, MuxError::Dead));
    assert!(began.elapsed() >= dead);
    tokio::time::sleep(3 * dead).await;
    one.write_all(b"x").await.unwrap();
    assert_eq!(other.read_u8().await.unwrap(), b'x');
}

#[tokio::test]
async fn closing_does_not_wait_for_ever_for_a_transport_that_is_stuck() {
    let (transport, mut peer) = duplex(1_000);
    let dead = Duration::from_millis(300);
    let config = MuxConfig::builder().dead_timeout(Some(dead)).build().unwrap();
    let session = MuxSession::client(transport, config);
    let mut stream = session.open().await.unwrap();
    stream.write_all(&[0; 30_000]).await.unwrap();
    let began = Instant::now();
    let closing = spawn(async move { session.close().await });
    // The peer lives, and reads nothing.
    while !closing.is_finished() && began.elapsed() < Duration::from_secs(10) {
        peer.write_all(&[1, 3, 0, 0, 0, 0, 0, 0]).await.unwrap_or_default();
        tokio::time::sleep(dead / 10).await;
    }
    assert!(matches!(closing.await.unwrap(), Err(MuxError::Dead)));
    assert!(began.elapsed() >= dead);
}

#[tokio::test]
async fn ten_thousand_streams_are_open_at_once() {
    let config = MuxConfig::builder().version(MuxVersion::V2).accept_backlog(20_000).build().unwrap();
    let (client, server) = pair(&config);
    let mut streams = Vec::new();
    for at in 0..10_000_u32 {
        let (mut one, mut other) = stream_pair(&client, &server).await;
        one.write_all(&at.to_le_bytes()).await.unwrap();
        assert_eq!(other.read_u32_le().await.unwrap(), at);
        streams.push((one, other));
    }
    assert_eq!((client.stats().open_streams, server.stats().open_streams), (10_000, 10_000));
    for (at, (one, other)) in streams.iter_mut().enumerate().rev() {
        other.write_u32_le(at as u32).await.unwrap();
        assert_eq!(one.read_u32_le().await.unwrap(), at as u32);
    }
    drop(streams);
    within(10, "closing", client.close()).await.unwrap();
}
