//! 8,192 clients at once, each with one kilobyte and its echo, beside the same over Tokio's TCP: `cargo bench --bench crowd`, about
//! two minutes; `-- --quick` for three rounds in place of eleven.
//!
//! It is what gaio's tests do. All clients and the server are in this process and share its runtime. A round is timed from the first
//! `connect` until every client has its echo, and the kinds take turns, so that what else the machine does meets all of them:
//!
//! * `kcp`: the clients share one UDP socket, as a program with many sessions does;
//! * `kcp, own sockets`: each client has a socket and a driver of its own, as TCP's have;
//! * `tcp`: with `TCP_NODELAY`, and a backlog as long as the system allows.
//!
//! With the second measure, `echo`, all are connected before the time begins.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use kcp9::{KcpConfig, KcpEndpoint, KcpListener, KcpStream};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Barrier,
    task::{JoinHandle, JoinSet},
};

const CLIENTS: usize = 8_192;
const BYTES: usize = 1_024;
const ROUNDS: usize = 11;
const QUICK: usize = 3;
const ANY: &str = "127.0.0.1:0";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Kcp,
    KcpOwnSockets,
    Tcp,
}

const KINDS: [(Kind, &str); 3] =
    [(Kind::Kcp, "kcp"), (Kind::KcpOwnSockets, "kcp, own sockets"), (Kind::Tcp, "tcp")];

/// Times of one round: from the first `connect`, and from when all were connected.
#[derive(Debug, Clone, Copy)]
struct Round {
    all: Duration,
    echo: Duration,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let files = raise_file_limit();
    // Both ends of each TCP connection, and what a client's own driver may need.
    if files < 2 * CLIENTS as u64 + 1_000 {
        return Err(io::Error::other(format!("{files} open files are too few")));
    }
    let rounds = if std::env::args().any(|argument| argument == "--quick") { QUICK } else { ROUNDS };
    let mut times: [Vec<Round>; 3] = Default::default();
    // The first round of each warms up.
    for round in 0..=rounds {
        for (index, (kind, _)) in KINDS.iter().enumerate() {
            let time = one_round(*kind).await?;
            if round > 0 {
                times[index].push(time);
            }
            // What ends a round's sessions is no part of the next one's time.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    let [all, echo] = [|round: &Round| round.all, |round: &Round| round.echo]
        .map(|of| times.each_ref().map(|times| median(times.iter().map(of).collect())));
    println!("{CLIENTS} clients, {BYTES} bytes and their echo, medians of {rounds} rounds in turn:");
    for (index, (_, name)) in KINDS.iter().enumerate() {
        let ratio = |of: &[Duration; 3]| of[index].as_secs_f64() / of[2].as_secs_f64();
        println!(
            "{name:>17}: {:4.0} ms with connecting ({:.2} times tcp's), {:4.0} ms the echo ({:.2})",
            all[index].as_secs_f64() * 1e3,
            ratio(&all),
            echo[index].as_secs_f64() * 1e3,
            ratio(&echo),
        );
    }
    Ok(())
}

async fn one_round(kind: Kind) -> io::Result<Round> {
    match kind {
        Kind::Kcp => {
            let (addr, server) = serve_kcp().await?;
            let endpoint = KcpEndpoint::bind(ANY).await?;
            let config = config()?;
            crowd(server, |_| std::future::ready(endpoint.connect(addr, config.clone()))).await
        }
        Kind::KcpOwnSockets => {
            let (addr, server) = serve_kcp().await?;
            let config = config()?;
            crowd(server, |_| KcpStream::connect(addr, config.clone())).await
        }
        Kind::Tcp => {
            let (addr, server) = serve_tcp()?;
            crowd(server, |_| async move {
                let stream = TcpStream::connect(addr).await?;
                stream.set_nodelay(true)?;
                Ok(stream)
            })
            .await
        }
    }
}

fn config() -> io::Result<KcpConfig> {
    // As many as come at once, from one address.
    let config = KcpConfig::builder()
        .max_half_open(2 * CLIENTS)
        .max_half_open_of_network(2 * CLIENTS)
        .accept_backlog(CLIENTS);
    config.build().map_err(io::Error::other)
}

async fn serve_kcp() -> io::Result<(SocketAddr, JoinHandle<io::Result<()>>)> {
    let listener = KcpListener::bind(ANY, config()?).await?;
    let addr = listener.local_addr()?;
    let server = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(echo(stream));
        }
    });
    Ok((addr, server))
}

fn serve_tcp() -> io::Result<(SocketAddr, JoinHandle<io::Result<()>>)> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(ANY.parse().map_err(io::Error::other)?)?;
    let listener: TcpListener = socket.listen(CLIENTS as u32)?;
    let addr = listener.local_addr()?;
    let server = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            tokio::spawn(echo(stream));
        }
    });
    Ok((addr, server))
}

async fn echo<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> io::Result<()> {
    let mut bytes = [0; BYTES];
    loop {
        stream.read_exact(&mut bytes).await?;
        stream.write_all(&bytes).await?;
    }
}

/// One echo of each client with connecting, and one more without.
async fn crowd<S, C, F>(server: JoinHandle<io::Result<()>>, connect: C) -> io::Result<Round>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    C: Fn(usize) -> F,
    F: Future<Output = io::Result<S>> + Send + 'static,
{
    let barrier = std::sync::Arc::new(Barrier::new(CLIENTS + 1));
    let begun = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let (connecting, barrier) = (connect(number), barrier.clone());
        clients.spawn(async move {
            let exchange = async {
                let mut stream = connecting.await?;
                once(&mut stream, number as u8).await?;
                Ok(stream)
            };
            let stream: io::Result<S> = exchange.await;
            barrier.wait().await;
            barrier.wait().await;
            // Who has failed keeps nobody waiting.
            let outcome = match stream {
                Ok(mut stream) => once(&mut stream, !(number as u8)).await,
                Err(error) => Err(error),
            };
            barrier.wait().await;
            outcome
        });
    }
    barrier.wait().await;
    let all = begun.elapsed();
    let begun = Instant::now();
    barrier.wait().await;
    barrier.wait().await;
    let echo = begun.elapsed();
    while let Some(client) = clients.join_next().await {
        client.map_err(io::Error::other)??;
    }
    server.abort();
    Ok(Round { all, echo })
}

async fn once<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, byte: u8) -> io::Result<()> {
    let (sent, mut echoed) = ([byte; BYTES], [0; BYTES]);
    stream.write_all(&sent).await?;
    stream.read_exact(&mut echoed).await?;
    if sent == echoed { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Lets this process open as many files as the system allows it; returns how many.
#[cfg(unix)]
fn raise_file_limit() -> u64 {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(now, _)| now)
}

#[cfg(not(unix))]
fn raise_file_limit() -> u64 {
    u64::MAX
}
