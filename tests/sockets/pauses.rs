//! Drivers that are kept from their work: nobody is called dead for what was said meanwhile and not heard.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use kcp9::{EndpointStats, KcpConfig, KcpEndpoint, KcpListener, KcpStream};
use kcp9_tests::spawn;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::Builder,
    sync::oneshot,
};

use crate::support::{ANY, EchoServer, ms, within};

const CLIENTS: usize = 400;
/// How long the driver stands still: longer than both timeouts.
const PAUSE: Duration = Duration::from_secs(2);

/// Timeouts shorter than the pause, for silent peers and for those that owe an answer.
fn impatient() -> KcpConfig {
    KcpConfig::builder().idle_timeout(Some(ms(1_500))).dead_timeout(ms(1_000)).build().unwrap()
}

/// Echoes of single bytes that go on for ever, on each of `CLIENTS` sessions.
struct Clients {
    endpoint: KcpEndpoint,
    echoes: Vec<Arc<AtomicUsize>>,
    failed: Arc<AtomicUsize>,
}

impl Clients {
    async fn start(server: SocketAddr, config: &KcpConfig) -> Self {
        let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
        let failed = Arc::new(AtomicUsize::new(0));
        let mut echoes = Vec::new();
        for _ in 0..CLIENTS {
            let stream = endpoint.connect(server, config.clone()).unwrap();
            let count = Arc::new(AtomicUsize::new(0));
            echoes.push(Arc::clone(&count));
            let failed = Arc::clone(&failed);
            spawn(async move {
                if echo_for_ever(stream, &count).await.is_err() {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let clients = Self { endpoint, echoes, failed };
        clients.wait_for_echoes().await;
        clients
    }

    /// Waits until every client has had a few more echoes.
    async fn wait_for_echoes(&self) {
        let before: Vec<_> = self.counts().collect();
        crate::support::until(20, "two more echoes for each client", || {
            assert_eq!(self.failed.load(Ordering::Relaxed), 0, "a client's session has ended");
            self.counts().zip(&before).all(|(now, before)| now >= before + 2)
        })
        .await;
    }

    fn counts(&self) -> impl Iterator<Item = usize> {
        self.echoes.iter().map(|count| count.load(Ordering::Relaxed))
    }
}

async fn echo_for_ever(mut stream: KcpStream, count: &AtomicUsize) -> std::io::Result<()> {
    loop {
        stream.write_u8(7).await?;
        stream.read_u8().await?;
        count.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(ms(100)).await;
    }
}

/// A server on a thread of its own, whose runtime can be blocked.
struct BlockableServer {
    addr: SocketAddr,
    /// Blocks the runtime for so long.
    block: tokio::sync::mpsc::UnboundedSender<Duration>,
    stats: tokio::sync::mpsc::UnboundedSender<oneshot::Sender<EndpointStats>>,
}

impl BlockableServer {
    fn start() -> Self {
        let (block, mut pauses) = tokio::sync::mpsc::unbounded_channel();
        let (stats, mut questions) = tokio::sync::mpsc::unbounded_channel::<oneshot::Sender<_>>();
        let (tell_addr, addr) = mpsc::channel();
        thread::spawn(move || {
            Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
                // The pause is twice the timeouts here, too, and clients may wait for the processor beside other work.
                let config = KcpConfig::builder().idle_timeout(Some(ms(3_000))).dead_timeout(ms(2_000));
                let listener = KcpListener::bind(ANY, config.build().unwrap()).await.unwrap();
                tell_addr.send(listener.local_addr().unwrap()).unwrap();
                loop {
                    tokio::select! {
                        accepted = listener.accept() => {
                            let (mut reader, mut writer) = accepted.unwrap().0.into_split();
                            spawn(async move { tokio::io::copy(&mut reader, &mut writer).await });
                        }
                        pause = pauses.recv() => match pause {
                            Some(pause) => thread::sleep(pause),
                            None => return,
                        },
                        Some(asker) = questions.recv() => drop(asker.send(listener.endpoint_stats())),
                    }
                }
            });
        });
        Self { addr: addr.recv().unwrap(), block, stats }
    }

    async fn stats(&self) -> EndpointStats {
        let (ask, answer) = oneshot::channel();
        self.stats.send(ask).unwrap();
        within(5, "the server's statistics", answer).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_survives_a_server_whose_runtime_was_blocked() {
    let server = BlockableServer::start();
    let clients = Clients::start(server.addr, &KcpConfig::default()).await;
    for _ in 0..2 {
        server.block.send(2 * PAUSE).unwrap();
        tokio::time::sleep(2 * PAUSE + ms(500)).await;
        let stats = server.stats().await;
        assert_eq!(stats.state.sessions as usize, CLIENTS, "of {CLIENTS} clients survive: {stats:?}");
        clients.wait_for_echoes().await;
    }
    assert_eq!(clients.endpoint.endpoint_stats().state.sessions as usize, CLIENTS);
}

/// Nothing waits in any socket when the runtime goes on: all have been silent, and none could help it.
#[tokio::test]
async fn both_ends_survive_when_the_runtime_of_both_was_blocked() {
    let listener = KcpListener::bind(ANY, impatient()).await.unwrap();
    let server = EchoServer::over(listener);
    let clients = Clients::start(server.addr, &impatient()).await;
    for _ in 0..2 {
        thread::sleep(PAUSE);
        clients.wait_for_echoes().await;
    }
    assert_eq!(clients.endpoint.endpoint_stats().state.sessions as usize, CLIENTS);
}

/// A peer that is gone is still found dead by an end that stood still, and not much later.
#[tokio::test]
async fn a_dead_peer_is_found_after_a_pause() {
    let absent = std::net::UdpSocket::bind(ANY).unwrap();
    let mut client = KcpStream::connect(absent.local_addr().unwrap(), impatient()).await.unwrap();
    client.write_all(b"anybody?").await.unwrap();
    tokio::time::sleep(ms(50)).await;
    thread::sleep(PAUSE);
    let outcome = within(3, "the read fails", client.read_u8()).await;
    assert_eq!(crate::support::kind(outcome), Some(std::io::ErrorKind::TimedOut));
}

// ---- A process that is stopped ----

/// Set in the process that is the server. Its value says what it is.
const SERVER: &str = "KCP9_PAUSED_SERVER";

/// A server in a process of its own, which ends with this.
struct ServerProcess {
    child: Child,
    addr: SocketAddr,
}

impl ServerProcess {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "pauses::server_process", "--ignored", "--nocapture"])
            .env(SERVER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let port = output.lines().find_map(|line| line.unwrap().split_once("port ")?.1.parse().ok());
        Self { child, addr: ([127, 0, 0, 1], port.expect("the server's port")).into() }
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the other process of a test: it needs its environment"]
fn server_process() {
    if std::env::var_os(SERVER).is_none() {
        return;
    }
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let listener = KcpListener::bind(ANY, impatient()).await.unwrap();
        let server = EchoServer::over(listener);
        println!("port {}", server.addr.port());
        std::io::stdout().flush().unwrap();
        // It lives as long as its parent keeps the pipe.
        let waiting = tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop));
        waiting.await.unwrap();
    });
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_survives_a_server_process_that_was_stopped() {
    let server = ServerProcess::start();
    let clients = Clients::start(server.addr, &KcpConfig::default()).await;
    server.signal("-STOP");
    tokio::time::sleep(PAUSE + ms(500)).await;
    server.signal("-CONT");
    // A session that had ended at the server would never answer again.
    clients.wait_for_echoes().await;
}
