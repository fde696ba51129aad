//! kcp-go, as the program in `go-peer`, which compares SHA-256 sums of what it sends and gets back.
//!
//! A session that kcp-go accepts starts with a receive window of 32. When the server raises it later (`SetWindowSize` after
//! `Accept`), kcp-go does not announce that. A client that has 32 segments under way by then waits for its own window probe.
//! Ours assumes a window of 31 until the peer has announced one, so its first flight never fills kcp-go's.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use kcp9::{KcpConfig, KcpListener, KcpStream, Stats, proto::Extensions};
use kcp9_relay::Relay;
use kcp9_tests::spawn;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
};

use crate::{
    echo::{self, Server, payload, within},
    go_peer,
};

const LEN: usize = 10 << 20;
const BYTES: &str = "10485760";

/// Serves a sink: see go-peer.
async fn serve_sink(listener: KcpListener) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let count = stream.read_u64_le().await.unwrap();
    let mut buffer = vec![0; 64 << 10];
    let mut left = count as usize;
    while left > 0 {
        let most = left.min(buffer.len());
        left -= stream.read(&mut buffer[..most]).await.unwrap();
    }
    stream.write_u64_le(count).await.unwrap();
    stream.shutdown().await.unwrap();
}

async fn drive_sink(stream: &mut KcpStream, len: usize) {
    stream.write_u64_le(len as u64).await.unwrap();
    stream.write_all(&payload(len)).await.unwrap();
    assert_eq!(stream.read_u64_le().await.unwrap(), len as u64);
}

fn name(peer: &Path, rest: &str) -> String {
    format!("{}: {rest}", peer.display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_serves_an_echo() {
    for peer in go_peer::all() {
        let server = go_peer::serve(&peer, "echo", &[]).await;
        echo::drive_ours(&name(&peer, "serves an echo"), server.addr, echo::config(), LEN).await;
        let relay = Relay::lossy(server.addr, 0.1).unwrap();
        echo::drive_ours(&name(&peer, "serves an echo, 10 % loss"), relay.addr(), echo::config(), LEN).await;
        assert!(relay.counts().dropped() > 500, "{} packets lost", relay.counts().dropped());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_connects_to_an_echo() {
    for peer in go_peer::all() {
        let server = Server::start(echo::config()).await;
        go_peer::drive(&peer, "echo", server.addr, &["--bytes", BYTES]).await;
        go_peer::drive(&peer, "echo", server.addr, &["--bytes", BYTES, "--conns", "8"]).await;
        let relay = Relay::lossy(server.addr, 0.1).unwrap();
        go_peer::drive(&peer, "echo", relay.addr(), &["--bytes", BYTES]).await;
        assert!(relay.counts().dropped() > 500, "{} packets lost", relay.counts().dropped());
    }
}

/// Each client has shown nothing when its first answer leaves, so that hardly more than the request's own bytes may be sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn the_first_answers_to_kcp_go_may_be_lost() {
    for peer in go_peer::all() {
        for stream in ["true", "false"] {
            let server = Server::start(echo::config()).await;
            let relay = Relay::lossy(server.addr, 0.2).unwrap();
            let began = Instant::now();
            // Of 200 ports, some were those of another test's clients a moment ago: see `onlyPeer` in the peer.
            let flags =
                ["--bytes", "100000", "--msg", "20", "--conns", "200", "--stream", stream, "--only-peer"];
            go_peer::drive(&peer, "echo", relay.addr(), &flags).await;
            let took = began.elapsed();
            assert!(took < Duration::from_secs(20), "{}: {took:?}", name(&peer, stream));
            assert!(relay.counts().dropped() > 200, "{} packets lost", relay.counts().dropped());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_serves_a_sink() {
    for peer in go_peer::all() {
        let server = go_peer::serve(&peer, "sink", &[]).await;
        let relay = Relay::lossy(server.addr, 0.1).unwrap();
        for addr in [server.addr, relay.addr()] {
            let mut stream = KcpStream::connect(addr, echo::config()).await.unwrap();
            within(&name(&peer, "serves a sink"), drive_sink(&mut stream, LEN)).await;
        }
        assert!(relay.counts().dropped() > 500, "{} packets lost", relay.counts().dropped());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_connects_to_a_sink() {
    for peer in go_peer::all() {
        for loss in [0.0, 0.1] {
            let listener = KcpListener::bind("127.0.0.1:0", echo::config()).await.unwrap();
            let relay = Relay::lossy(listener.local_addr().unwrap(), loss).unwrap();
            let serving = spawn(serve_sink(listener));
            go_peer::drive(&peer, "sink", relay.addr(), &["--bytes", BYTES]).await;
            assert!(
                loss == 0.0 || relay.counts().dropped() > 500,
                "{} packets lost",
                relay.counts().dropped()
            );
            serving.abort();
        }
    }
}

/// A path that drops packets of more than 1,300 bytes without a word.
struct NarrowPath {
    relay: Relay,
    /// Packets that were too long.
    dropped: Arc<AtomicU64>,
    /// Those that a search for the path's MTU would end with: no more than 32 bytes shorter than they may be.
    full: Arc<AtomicU64>,
}

impl NarrowPath {
    fn to(server: SocketAddr) -> Self {
        let (dropped, full) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let counts = [Arc::clone(&dropped), Arc::clone(&full)];
        let rewrite = move |_, packet: &[u8], out: &mut Vec<Vec<u8>>| {
            if packet.len() > 1_300 {
                counts[0].fetch_add(1, Ordering::Relaxed);
                return;
            }
            if packet.len() > 1_300 - 32 {
                counts[1].fetch_add(1, Ordering::Relaxed);
            }
            out.push(packet.to_vec());
        };
        Self { relay: Relay::rewriting(server, Box::new(rewrite)).unwrap(), dropped, full }
    }

    /// It was found what the path carries, at the price of a few probes, and used for most of what was sent. A burst that the relay had
    /// no room for may cast a doubt on it for a while, and each doubt a few probes more, but no black hole is found.
    fn assert_found_and_used(&self, what: &str, stats: &Stats) {
        let (dropped, full) = (self.dropped.load(Ordering::Relaxed), self.full.load(Ordering::Relaxed));
        assert!((1..80).contains(&dropped), "{what}: {dropped} packets were too long: {stats:?}");
        assert!(full > LEN as u64 / 1_300 / 2, "{what}: {full} packets were full: {stats:?}");
        assert_eq!(stats.mtu.black_holes, 0, "{what}: {stats:?}");
    }
}

/// Probes are ordinary PUSHes, which kcp-go acknowledges, with what fills them, which it takes for a repeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn the_mtu_of_a_path_to_kcp_go_is_found_in_both_roles() {
    for peer in go_peer::all() {
        // With its default mtu, packets of ACKs would be too long.
        let server = go_peer::serve(&peer, "sink", &["--mtu", "1200"]).await;
        let path = NarrowPath::to(server.addr);
        let mut stream = KcpStream::connect(path.relay.addr(), echo::config()).await.unwrap();
        let what = name(&peer, "serves a sink behind a small MTU");
        within(&what, drive_sink(&mut stream, LEN)).await;
        let stats = stream.stats();
        path.assert_found_and_used(&what, &stats);
        drop(stream);
        let report = server.report().await;
        // It has refused no probe: only HELLOs.
        let expected = (stats.stream.bytes_written, stats.extensions.sent);
        assert_eq!((report.bytes(), report.refused()), expected, "{what}");

        let listener = KcpListener::bind("127.0.0.1:0", echo::config()).await.unwrap();
        let path = NarrowPath::to(listener.local_addr().unwrap());
        let (tell, session) = oneshot::channel();
        let serving = spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            tell.send(stream.handle()).unwrap();
            let (mut reader, mut writer) = tokio::io::split(&mut stream);
            tokio::io::copy(&mut reader, &mut writer).await
        });
        let what = name(&peer, "connects to an echo behind a small MTU");
        go_peer::drive(&peer, "echo", path.relay.addr(), &["--bytes", BYTES, "--mtu", "1200"]).await;
        let handle = session.await.unwrap();
        path.assert_found_and_used(&what, &handle.stats());
        serving.abort();
    }
}

/// Messages of up to a segment come back as they were; longer ones come back in pieces, since kcp-go cuts what it writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_serves_messages() {
    let config = echo::config().to_builder().stream(false).build().unwrap();
    for peer in go_peer::all() {
        let server = go_peer::serve(&peer, "echo", &["--stream", "false"]).await;
        let stream = KcpStream::connect(server.addr, config.clone()).await.unwrap();
        let messages = async {
            for len in [1, 2, 100, 1_375, 1_376] {
                let message = payload(len);
                stream.send(&message).await.unwrap();
                assert_eq!(stream.recv().await.unwrap(), message);
            }
            for len in [1_377, 4_000, 20_000, 40_000] {
                let message = payload(len);
                stream.send(&message).await.unwrap();
                let mut back = Vec::new();
                while back.len() < len {
                    back.extend_from_slice(&stream.recv().await.unwrap());
                }
                assert!(back == message, "{len} bytes differ");
            }
        };
        within(&name(&peer, "serves messages"), messages).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_connects_with_messages() {
    let config = echo::config().to_builder().stream(false).build().unwrap();
    for peer in go_peer::all() {
        let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let serving = spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            for _ in 0..1_000 {
                let message = stream.recv().await.unwrap();
                assert_eq!(message.len(), 1_000, "a message lost its boundary");
                stream.send(&message).await.unwrap();
            }
            stream
        });
        let flags = ["--stream", "false", "--msg", "1000", "--bytes", "1000000"];
        go_peer::drive(&peer, "echo", addr, &flags).await;
        within(&name(&peer, "drives messages"), serving).await.unwrap();
    }
}

/// A client sends a first flight before the server has raised its window (see above).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn the_first_flight_goes_on_although_kcp_go_announces_no_window() {
    for peer in go_peer::all() {
        let server = go_peer::serve(&peer, "sink", &[]).await;
        for _ in 0..8 {
            let begun = Instant::now();
            let mut stream = KcpStream::connect(server.addr, echo::config()).await.unwrap();
            let run = tokio::time::timeout(Duration::from_secs(2), drive_sink(&mut stream, 200_000)).await;
            let what = name(&peer, "takes a first flight");
            assert!(run.is_ok(), "{what}: 200 kB took more than 2 s: {:#?}", stream.stats());
            let stats = stream.stats();
            // A peer that does not answer resends is asked, too. That is no stall.
            assert!(
                stats.segments.window_probes == 0 || stats.recovery.timeout_resends > 1,
                "{what}: {stats:#?}"
            );
            println!("{what}: {:?}", begun.elapsed());
        }
    }
}

/// It begins a session for what asks whether it is there, answers, and serves the same session afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_answers_before_anything_is_written() {
    for peer in go_peer::all() {
        for extensions in [Extensions::Off, Extensions::Preferred] {
            let server = go_peer::serve(&peer, "echo", &[]).await;
            let config = KcpConfig::builder().extensions(extensions).build().unwrap();
            let mut stream =
                KcpStream::connect_timeout(server.addr, config, Duration::from_secs(5)).await.unwrap();
            let sent = payload(100_000);
            stream.write_all(&sent).await.unwrap();
            let mut echoed = vec![0; sent.len()];
            within("the echo", stream.read_exact(&mut echoed)).await.unwrap();
            assert!(echoed == sent, "{}", name(&peer, "another echo"));
            assert_eq!(server.report().await.sessions(), 1, "{extensions:?}");
        }
    }
}
