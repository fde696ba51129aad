//! Peers that are not there, not there any more, or there anew.
//!
//! A killed process is this program again, which runs the "test" [`child`].

use std::{env, io::ErrorKind, net::SocketAddr, process::Stdio, time::Duration};

use kcp9::{KcpConfig, KcpError, KcpListener, KcpStream, proto::CloseReason};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
};

use crate::support::{
    ANY, DEAD_TIMEOUT, assert_dead_timeout, failure, impatient, listen, ms, session, until, within,
};

/// Where the child listens, which is how a process knows that it is the child.
const LISTENS: &str = "KCP9_TROUBLESHOOTING_CHILD";
/// A loopback address where no other test listens, so that nobody takes a port that is free again.
const UNSHARED: &str = "127.0.0.78:0";

/// A port at which nobody listens.
fn closed_port() -> SocketAddr {
    std::net::UdpSocket::bind(UNSHARED).unwrap().local_addr().unwrap()
}

/// The machine is there and says by ICMP that the port is closed.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn nobody_there_and_the_machine_says_so() {
    let stream = KcpStream::connect(closed_port(), KcpConfig::default()).await.unwrap();
    let (kind, reason, took) = failure(5, "the refusal", stream.connected(Duration::from_secs(5))).await;
    assert_eq!((kind, reason), (ErrorKind::ConnectionRefused, Some(KcpError::Refused)));
    assert!(took < Duration::from_secs(2), "only after {took:?}");
    assert_eq!(stream.close_reason(), None, "the session lives: somebody may listen later");
}

/// A firewall drops the packets, or there is no such machine: a socket that nobody reads does the same.
#[tokio::test]
async fn nobody_there_and_nothing_says_so() {
    let silent = std::net::UdpSocket::bind(ANY).unwrap();
    let addr = silent.local_addr().unwrap();
    let begun = KcpStream::connect_timeout(addr, impatient().build().unwrap(), ms(300));
    let (kind, reason, took) = failure(5, "no answer", begun).await;
    assert_eq!((kind, reason), (ErrorKind::TimedOut, Some(KcpError::NoAnswer)));
    assert!(took >= ms(290) && took < Duration::from_secs(2), "after {took:?}");

    let mut stream = KcpStream::connect(addr, impatient().build().unwrap()).await.unwrap();
    stream.write_all(b"hello").await.unwrap();
    let (kind, reason, took) = failure(5, "the read ends", stream.read_u8()).await;
    assert_eq!((kind, reason), (ErrorKind::TimedOut, Some(KcpError::Closed(CloseReason::DeadLink))));
    assert_dead_timeout(took);
    let stats = stream.stats();
    assert!(stats.udp.packets_sent > 1 && stats.udp.packets_received == 0, "{stats:?}");
}

/// A client that neither writes nor waits for an answer asks for none, until keep-alive does.
#[tokio::test]
async fn nobody_there_and_a_client_that_only_reads() {
    let silent = std::net::UdpSocket::bind(ANY).unwrap();
    let addr = silent.local_addr().unwrap();
    let config = impatient().keep_alive(Some(ms(500))).build().unwrap();
    let mut stream = KcpStream::connect(addr, config).await.unwrap();
    let (kind, reason, took) = failure(6, "the read ends", stream.read_u8()).await;
    assert_eq!((kind, reason), (ErrorKind::TimedOut, Some(KcpError::Closed(CloseReason::DeadLink))));
    assert!(took < ms(550) + DEAD_TIMEOUT + Duration::from_secs(2), "only after {took:?}");
}

/// The other process: it accepts sessions and says nothing in them. As a test by itself it does nothing.
#[tokio::test]
#[ignore = "the other tests here run it in a process of its own"]
async fn child() {
    let Ok(addr) = env::var(LISTENS) else { return };
    let listener = KcpListener::bind(addr, KcpConfig::default()).await.unwrap();
    println!("\nready {}", listener.local_addr().unwrap());
    let mut streams = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        streams.push(stream);
    }
}

async fn start(addr: &str) -> (Child, SocketAddr) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "peers::child", "--ignored", "--nocapture"])
        .env(LISTENS, addr)
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
    (child, addr)
}

/// A client of the child that has written something and reads from then on. All of it has been acknowledged: a new server would
/// take a first segment that is sent again for a new session.
async fn client_of(addr: SocketAddr) -> KcpStream {
    let config = impatient().keep_alive(Some(ms(500))).build().unwrap();
    let mut client = KcpStream::connect(addr, config).await.unwrap();
    client.write_all(b"hello").await.unwrap();
    until(5, "what was written is acknowledged", || {
        let queues = client.stats().queues;
        queues.unsent_bytes == 0 && queues.in_flight == 0
    })
    .await;
    client
}

#[tokio::test]
async fn server_killed() {
    let (mut server, addr) = start(UNSHARED).await;
    let mut client = client_of(addr).await;
    server.kill().await.unwrap();
    let (kind, reason, took) = failure(10, "a client that only reads notices it", client.read_u8()).await;
    assert_eq!((kind, reason), (ErrorKind::TimedOut, Some(KcpError::Closed(CloseReason::DeadLink))));
    assert!(took >= DEAD_TIMEOUT - ms(50), "after {took:?} already");
    assert!(took < ms(550) + DEAD_TIMEOUT + Duration::from_secs(2), "only after {took:?}");
}

#[tokio::test]
async fn server_killed_and_started_again() {
    let (mut server, addr) = start(UNSHARED).await;
    let mut client = client_of(addr).await;
    server.kill().await.unwrap();
    let (_server, _) = start(&addr.to_string()).await;
    let (kind, reason, took) = failure(10, "a client that only reads notices it", client.read_u8()).await;
    assert_eq!((kind, reason), (ErrorKind::ConnectionReset, Some(KcpError::Closed(CloseReason::Reset))));
    assert!(took < ms(550) + DEAD_TIMEOUT + Duration::from_secs(2), "only after {took:?}");
}

/// The new server counts its answers. Here it is a second listener on the port of the first.
#[tokio::test]
async fn a_server_counts_what_it_answers_for_sessions_that_it_does_not_know() {
    let (mut server, addr) = start(UNSHARED).await;
    let mut client = client_of(addr).await;
    server.kill().await.unwrap();
    let restarted = KcpListener::bind(addr, KcpConfig::default()).await.unwrap();
    failure(10, "the client notices it", client.read_u8()).await;
    let stats = restarted.endpoint_stats();
    assert!(stats.driver.replies >= 1 && stats.dropped.no_session >= 1, "{stats:?}");
}

/// A server that drops its listener and lives on turns away whoever comes.
#[tokio::test]
async fn a_server_that_accepts_no_more() {
    let listener = listen(KcpConfig::default()).await;
    let (_client, _server) = session(&listener, KcpConfig::default()).await;
    let addr = listener.local_addr().unwrap();
    listener.stop_accepting();
    let late = KcpStream::connect_timeout(addr, KcpConfig::default(), Duration::from_secs(5));
    let (kind, reason, took) = failure(6, "the refusal", late).await;
    assert_eq!((kind, reason), (ErrorKind::ConnectionRefused, Some(KcpError::Closed(CloseReason::Refused))));
    assert!(took < Duration::from_secs(2), "only after {took:?}");
}
