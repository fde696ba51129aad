//! Processes that are killed, and one that is started again: the other end notices, although it only reads.
//!
//! The other process is this program again, which runs the "test" [`child`].

use std::{
    env,
    io::ErrorKind,
    net::SocketAddr,
    process::Stdio,
    time::{Duration, Instant},
};

use kcp9::{KcpConfig, KcpListener, KcpStream};
use tokio::{
    io::{self, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
};

use crate::support::{ANY, builder, config, spawn, within};

/// Names what the child does: `serve ADDR`, or `connect ADDR`.
const ROLE: &str = "KCP9_APPS_CHILD";
const GREETING: &[u8] = b"is anybody there?";

/// Settings under which a silent death is noticed within seconds.
fn attentive() -> KcpConfig {
    let keep_alive = Duration::from_millis(500);
    builder().keep_alive(Some(keep_alive)).dead_timeout(Duration::from_secs(3)).build().unwrap()
}

/// The other process. As a test by itself it does nothing.
#[tokio::test]
#[ignore = "the other tests here run it in a process of its own"]
async fn child() {
    let Ok(role) = env::var(ROLE) else { return };
    let (role, addr) = role.split_once(' ').unwrap();
    let addr: SocketAddr = addr.parse().unwrap();
    if role == "connect" {
        let mut stream = KcpStream::connect(addr, config()).await.unwrap();
        stream.write_all(GREETING).await.unwrap();
        println!("\nready {}", stream.local_addr().unwrap());
        std::future::pending::<()>().await;
    }
    let listener = KcpListener::bind(addr, config()).await.unwrap();
    println!("\nready {}", listener.local_addr().unwrap());
    while let Ok((mut stream, _)) = listener.accept().await {
        spawn(async move {
            let (mut reader, mut writer) = io::split(&mut stream);
            io::copy(&mut reader, &mut writer).await
        });
    }
}

/// The child in a role, and the address that it has.
async fn start(role: &str, addr: SocketAddr) -> (Child, SocketAddr) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "processes::child", "--ignored", "--nocapture"])
        .env(ROLE, format!("{role} {addr}"))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = async {
        loop {
            let line = lines.next_line().await.unwrap().expect("the child is ready before it ends");
            if let Some(addr) = line.strip_prefix("ready ") {
                return addr.parse().unwrap();
            }
        }
    };
    let addr = within(20, "the child is ready", ready).await;
    // Nobody reads what it says from here on, and it says nothing.
    (child, addr)
}

/// By SIGKILL: no line of its code runs any more.
async fn kill(mut child: Child) {
    child.kill().await.unwrap();
}

/// A session with an echo server, over which something went.
async fn begin(addr: SocketAddr, config: KcpConfig) -> KcpStream {
    let mut stream = KcpStream::connect(addr, config).await.unwrap();
    let mut back = [0; GREETING.len()];
    stream.write_all(GREETING).await.unwrap();
    within(10, "an echo", stream.read_exact(&mut back)).await.unwrap();
    assert_eq!(back, GREETING);
    stream
}

/// How a stream that only reads ends, and when.
async fn end_of(stream: &mut KcpStream, limit: u64) -> (ErrorKind, Duration) {
    let begun = Instant::now();
    let ended = within(limit, "a read of a dead peer's stream ends", stream.read_u8()).await;
    (ended.unwrap_err().kind(), begun.elapsed())
}

/// The death of the server, seen by a client that only reads.
async fn server_dies(config: KcpConfig, limit: u64) {
    let (server, addr) = start("serve", ANY.parse().unwrap()).await;
    let mut stream = begin(addr, config).await;
    kill(server).await;
    let (kind, took) = end_of(&mut stream, limit).await;
    println!("{kind} after {took:?}");
    // Another test's server may have got the port meanwhile. It says that it does not know the session.
    let kinds = [ErrorKind::TimedOut, ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset];
    assert!(kinds.contains(&kind), "{kind}");
}

/// The death of the client, seen by a server that only reads.
async fn client_dies(config: KcpConfig, limit: u64) {
    let listener = KcpListener::bind(ANY, config).await.unwrap();
    let (client, _) = start("connect", listener.local_addr().unwrap()).await;
    let (mut stream, _) = within(10, "a session", listener.accept()).await.unwrap();
    let mut greeting = [0; GREETING.len()];
    stream.read_exact(&mut greeting).await.unwrap();
    kill(client).await;
    let (kind, took) = end_of(&mut stream, limit).await;
    println!("{kind} after {took:?}");
    assert_eq!(kind, ErrorKind::TimedOut);
    drop(stream);
    assert_eq!(listener.endpoint_stats().state.sessions, 0);
}

#[tokio::test]
async fn a_client_that_only_reads_notices_that_its_server_was_killed() {
    server_dies(attentive(), 10).await;
}

#[tokio::test]
async fn a_server_that_only_reads_notices_that_its_client_was_killed() {
    client_dies(attentive(), 10).await;
}

#[tokio::test]
#[ignore = "a minute: cargo test --test apps -- --ignored with_usual_settings"]
async fn with_usual_settings_each_side_notices_within_a_minute_that_the_other_was_killed() {
    let config = builder().keep_alive(Some(Duration::from_secs(20))).build().unwrap();
    tokio::join!(server_dies(config.clone(), 60), client_dies(config, 60));
}

/// The new process knows nothing of the session and says so: the client need not wait for `dead_timeout`.
#[tokio::test]
async fn a_restarted_server_resets_the_sessions_that_it_does_not_know() {
    let (server, addr) = start("serve", ANY.parse().unwrap()).await;
    let config = builder().keep_alive(Some(Duration::from_millis(500))).build().unwrap();
    let mut idle = begin(addr, config.clone()).await;
    let mut writes = begin(addr, config.clone()).await;
    kill(server).await;
    let (_server, again) = start("serve", addr).await;
    assert_eq!(again, addr);
    writes.write_all(GREETING).await.unwrap();
    for stream in [&mut idle, &mut writes] {
        let (kind, took) = end_of(stream, 10).await;
        println!("{kind} after {took:?}");
        assert_eq!(kind, ErrorKind::ConnectionReset);
    }
    begin(addr, config).await;
}
