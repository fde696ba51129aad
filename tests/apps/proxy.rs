//! Two proxies, TCP to KCP and back, that only call `copy_bidirectional`.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kcp9::{KcpListener, KcpStream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use crate::support::{ANY, config, listen, spawn, until, within};

const REQUESTS: usize = 500;
const AT_ONCE: usize = 25;
/// A client's socket may stay for so long behind the end of its session, to answer what the peer sends again.
const SOCKETS_STAY: Duration = Duration::from_secs(4);
/// Bytes of an answer's body.
const BODY: usize = 20_000;

/// Open descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A web server that closes behind each answer, as HTTP/1.0 does.
async fn web_server() -> SocketAddr {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let addr = listener.local_addr().unwrap();
    spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            spawn(async move {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(stream.read_u8().await.unwrap());
                }
                stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").await.unwrap();
                stream.write_all(&vec![b'x'; BODY]).await.unwrap();
                // Dropping it closes.
            });
        }
    });
    addr
}

/// Copies both ways until both ends have ended. `open` counts the pairs, `failed` those that did not end well.
#[derive(Debug, Clone, Default)]
struct Copies {
    open: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
}

impl Copies {
    async fn copy(&self, mut stream: KcpStream, mut tcp: TcpStream) {
        self.open.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = copy_bidirectional(&mut stream, &mut tcp).await {
            println!("a copy failed: {error}");
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        drop((stream, tcp));
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn are_done(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }
}

/// A proxy from KCP to TCP.
fn far_proxy(listener: Arc<KcpListener>, server: SocketAddr, copies: Copies) {
    spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let copies = copies.clone();
            spawn(async move {
                let tcp = TcpStream::connect(server).await.unwrap();
                copies.copy(stream, tcp).await;
            });
        }
    });
}

/// A proxy from TCP to KCP.
async fn near_proxy(server: SocketAddr, copies: Copies) -> SocketAddr {
    let listener = TcpListener::bind(ANY).await.unwrap();
    let addr = listener.local_addr().unwrap();
    spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let copies = copies.clone();
            spawn(async move {
                let stream = KcpStream::connect(server, config()).await.unwrap();
                copies.copy(stream, tcp).await;
            });
        }
    });
    addr
}

/// What curl does for a page.
async fn get(addr: SocketAddr) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\nhost: kcp9\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer.len(), 19 + BODY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_copies_both_ways_leaves_no_session_and_no_descriptor_behind() {
    let (listener, addr) = listen().await;
    let listener = Arc::new(listener);
    let copies = Copies::default();
    far_proxy(Arc::clone(&listener), web_server().await, copies.clone());
    let front = near_proxy(addr, copies.clone()).await;
    // What is made at the first use is there, and what stays a while after the end is gone.
    within(10, "the first request", get(front)).await;
    let is_empty = || copies.are_done() && listener.endpoint_stats().state.sessions == 0;
    until(20, "the first session ends", is_empty).await;
    tokio::time::sleep(SOCKETS_STAY).await;
    let before = descriptors();

    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut requests = Vec::new();
    for _ in 0..REQUESTS {
        let slot = Arc::clone(&slots).acquire_owned().await.unwrap();
        requests.push(spawn(async move {
            within(20, "a request", get(front)).await;
            drop(slot);
        }));
    }
    for request in requests {
        request.await.unwrap();
    }
    until(20, "every copy returns and no session is left", is_empty).await;
    assert_eq!(copies.failed.load(Ordering::Relaxed), 0, "copies that failed");
    assert_eq!(listener.endpoint_stats().driver.accepted, REQUESTS as u64 + 1);
    until(20, "no descriptor is left", || descriptors() <= before).await;
}
