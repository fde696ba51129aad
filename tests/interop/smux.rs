//! Go's smux, live over TCP: both roles, both versions, with byte checks each way, half-closed streams and idle sessions.
//!
//! Its 1.5.16 closes a stream as a whole: the program echoes what it has read by then.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::OnceLock,
    time::Duration,
};

use kcp9::mux::{MuxConfig, MuxSession, MuxStream, MuxVersion};
use kcp9_tests::spawn;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
};

use crate::{echo::within, go_peer};

const STREAMS: u32 = 20;
const LEN: usize = 300_000;
const VERSIONS: [MuxVersion; 2] = [MuxVersion::V1, MuxVersion::V2];

fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| go_peer::build("smux-peer"))
}

/// The bytes of a stream in the direction that `from` names, as the program makes them.
fn pattern(id: u32, from: u8, len: usize) -> Vec<u8> {
    let byte = |at: u32| {
        at.wrapping_mul(31).wrapping_add((at >> 8) * 7).wrapping_add(id * 13).wrapping_add(from.into())
    };
    (0..len as u32).map(|at| byte(at) as u8).collect()
}

fn config(version: MuxVersion) -> MuxConfig {
    MuxConfig::builder().version(version).build().unwrap()
}

fn number(version: MuxVersion) -> String {
    version.number().to_string()
}

/// The program as a server, killed when it is dropped.
async fn serve(version: MuxVersion, flags: &[&str]) -> (SocketAddr, Child) {
    let mut command = Command::new(program());
    command.args(["serve", "--version", &number(version)]).args(flags);
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = within("smux-peer begins to listen", lines.next_line()).await.unwrap().unwrap();
    (line.strip_prefix("listening ").unwrap().parse().unwrap(), child)
}

/// One stream to an echo, and back. With `half_close` the echo reads its end before it has written all.
async fn echo(mut stream: MuxStream, half_close: bool) {
    let sent = pattern(stream.id(), b'c', LEN);
    // In version 2, Go's smux writes after our end only what its window has room for.
    let sent = if half_close { &sent[..60_000] } else { &sent[..] };
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let writing = async {
        writer.write_all(sent).await.unwrap();
        if half_close {
            writer.shutdown().await.unwrap();
        }
    };
    let mut back = vec![0; sent.len()];
    let (_, read) = tokio::join!(writing, reader.read_exact(&mut back));
    read.unwrap();
    assert!(back == sent, "other bytes came back");
    if half_close {
        assert_eq!(reader.read(&mut back).await.unwrap(), 0, "the echo closes its stream behind ours");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-smux-dev: cargo test --test interop -- --ignored"]
async fn gos_smux_serves() {
    for version in VERSIONS {
        let (addr, _server) = serve(version, &["--open", "--bytes", &LEN.to_string()]).await;
        let session = MuxSession::client(TcpStream::connect(addr).await.unwrap(), config(version));
        let echoes: Vec<_> = (0..STREAMS)
            .map(|at| {
                let session = session.clone();
                spawn(async move { echo(session.open().await.unwrap(), at % 2 == 0).await })
            })
            .collect();
        // Those that the server opens, and closes as a whole. All are read at once: together they have more than the receive buffer.
        let mut reads = Vec::new();
        for _ in 0..STREAMS {
            let mut stream = within("Go opens a stream", session.accept()).await.unwrap();
            reads.push(spawn(async move {
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).await.unwrap();
                assert!(bytes == pattern(stream.id(), b's', LEN), "{} bytes of {}", bytes.len(), stream.id());
            }));
        }
        for read in reads {
            within("Go's stream ends", read).await.unwrap();
        }
        for echo in echoes {
            within("the echo", echo).await.unwrap();
        }
        assert_eq!(session.stats().open_streams, 0);
        session.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-smux-dev: cargo test --test interop -- --ignored"]
async fn gos_smux_connects() {
    for version in VERSIONS {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let serving = spawn(async move {
            let session = MuxSession::server(listener.accept().await.unwrap().0, config(version));
            while let Ok(stream) = session.accept().await {
                spawn(async move {
                    let (mut reader, mut writer) = tokio::io::split(stream);
                    tokio::io::copy(&mut reader, &mut writer).await.unwrap();
                });
                let mut own = session.open().await.unwrap();
                spawn(async move {
                    own.write_all(&pattern(own.id(), b's', LEN)).await.unwrap();
                    own.shutdown().await.unwrap();
                    // Go closes its end when it has read ours.
                    assert_eq!(own.read(&mut [0]).await.unwrap(), 0);
                });
            }
        });
        let streams = STREAMS.to_string();
        let output = Command::new(program())
            .args(["drive", "--version", &number(version), "--addr", &addr, "--streams", &streams])
            .args(["--bytes", &LEN.to_string(), "--idle", "1s"])
            .kill_on_drop(true)
            .output();
        let output = within("smux-peer drives", output).await.unwrap();
        assert!(output.status.success(), "{version:?}: {output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["streams"], 2 * (STREAMS + 1), "{version:?}");
        within("the session ends", serving).await.unwrap();
    }
}

/// Go's smux ends a session that is silent for three intervals, and so does ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-smux-dev: cargo test --test interop -- --ignored"]
async fn idle_sessions_with_gos_smux_are_kept_alive() {
    for version in VERSIONS {
        let (addr, _server) = serve(version, &["--keepalive", "400ms"]).await;
        let builder = || {
            let builder = MuxConfig::builder().version(version);
            builder.dead_timeout(Some(Duration::from_millis(1_200)))
        };
        let kept = builder().keep_alive(Some(Duration::from_millis(400))).build().unwrap();
        let kept = MuxSession::client(TcpStream::connect(addr).await.unwrap(), kept);
        let silent = builder().keep_alive(None).build().unwrap();
        let silent = MuxSession::client(TcpStream::connect(addr).await.unwrap(), silent);
        tokio::time::sleep(Duration::from_secs(4)).await;
        echo(within("opening", kept.open()).await.unwrap(), true).await;
        let end = within("Go ends a session that is silent", silent.closed()).await;
        println!("{version:?}: {end}");
    }
}
