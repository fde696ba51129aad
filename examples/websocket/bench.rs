//! Messages a second and memory of many connections, over KCP and over TCP.
//!
//! A round is two processes, a server and a client, which are started for it: memory that one round took is not there in the next.
//! The transports have their rounds in turn, so that what else the machine does meets both.

use std::{
    io,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::body::Bytes;
use kcp9::{KcpConfig, KcpEndpoint};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::Barrier,
    time,
};

use crate::{
    options::BenchOptions,
    process,
    ws::{self, Event, Settings, Socket, Stream, Transport},
};

/// What a round measures. Memory is what it is more than before the first connection, for each connection.
#[derive(Debug, Serialize, Deserialize)]
struct Figures {
    transport: String,
    connections: usize,
    /// From the first connection to the last handshake.
    connect_s: f64,
    /// Messages that were sent and came back.
    messages_per_s: f64,
    /// When all are open and have been idle for a while.
    server_idle_bytes: f64,
    client_idle_bytes: f64,
    /// When all have sent messages, and have been idle for a while.
    server_after_bytes: f64,
    client_after_bytes: f64,
}

/// Runs the rounds, and prints them.
pub(crate) async fn run(options: &BenchOptions) -> io::Result<()> {
    let transports: &[Transport] = match &options.only {
        Some(Transport::Kcp) => &[Transport::Kcp],
        Some(Transport::Tcp) => &[Transport::Tcp],
        None => &[Transport::Kcp, Transport::Tcp],
    };
    let mut all = Vec::new();
    for _ in 0..options.rounds {
        for transport in transports {
            let mut command = Command::new(std::env::current_exe()?);
            // With the same flags; those behind win.
            command.arg("measure").args(std::env::args_os().skip(2));
            if options.only.is_none() {
                command.args(["--only", transport.name()]);
            }
            let output = command.stderr(Stdio::inherit()).kill_on_drop(true).output().await?;
            if !output.status.success() {
                return Err(io::Error::other(format!("the client of {} failed", transport.name())));
            }
            let line = String::from_utf8_lossy(&output.stdout).into_owned();
            if options.json {
                print!("{line}");
            }
            all.push(serde_json::from_str::<Figures>(&line)?);
        }
    }
    if !options.json {
        table(options, transports, &all);
    }
    Ok(())
}

/// Medians, and the least and the most.
fn table(options: &BenchOptions, transports: &[Transport], all: &[Figures]) {
    println!(
        "{} connections, {} messages of {} bytes each, {} at once; medians of {} rounds (least to most)\n",
        options.connections, options.messages, options.size, options.at_once, options.rounds
    );
    print!("{:<32}", "");
    for transport in transports {
        print!("{:>32}", transport.name());
    }
    println!();
    type Row = (&'static str, fn(&Figures) -> f64);
    let rows: [Row; 6] = [
        ("messages a second", |figures| figures.messages_per_s),
        ("opened in, ms", |figures| figures.connect_s * 1e3),
        ("server, idle: bytes each", |figures| figures.server_idle_bytes),
        ("client, idle: bytes each", |figures| figures.client_idle_bytes),
        ("server, after messages", |figures| figures.server_after_bytes),
        ("client, after messages", |figures| figures.client_after_bytes),
    ];
    for (name, figure) in rows {
        print!("{name:<32}");
        for transport in transports {
            let of_it = all.iter().filter(|figures| figures.transport == transport.name());
            let mut values: Vec<f64> = of_it.map(figure).collect();
            values.sort_by(f64::total_cmp);
            let (Some(least), Some(most)) = (values.first(), values.last()) else { continue };
            let median = values[values.len() / 2];
            print!("{:>32}", format!("{median:.0} ({least:.0} to {most:.0})"));
        }
        println!();
    }
}

/// The server process.
struct Server {
    _child: Child,
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Server {
    async fn start(options: &BenchOptions, transport: Transport) -> io::Result<(Self, String)> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["server", "--figures", "--addr", "127.0.0.1:0"]);
        command.args(["--max-connections", &options.connections.to_string()]);
        command.args(options.common.arguments());
        if transport == Transport::Tcp {
            command.arg("--tcp");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (Some(ask), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the server has no pipes"));
        };
        let mut server = Self { _child: child, ask, answers: BufReader::new(stdout).lines() };
        let addr = server.line().await?;
        Ok((server, addr))
    }

    async fn line(&mut self) -> io::Result<String> {
        self.answers.next_line().await?.ok_or_else(|| io::Error::other("the server has ended"))
    }

    async fn resident(&mut self) -> io::Result<u64> {
        self.ask.write_all(b"\n").await?;
        self.line().await?.parse().map_err(io::Error::other)
    }
}

/// The client process of a round.
pub(crate) async fn measure(options: &BenchOptions) -> io::Result<()> {
    let transport = options.only.unwrap_or(Transport::Kcp);
    // The runtime, the standard streams and the server's pipes have some, too.
    let wanted = options.connections as u64 + 50;
    if let Some(limit) = process::raise_descriptor_limit()
        && transport == Transport::Tcp
        && limit < wanted
    {
        let message = format!("TCP needs {wanted} descriptors, and the limit is {limit}: ulimit -n {wanted}");
        return Err(io::Error::other(message));
    }
    let (mut server, addr) = Server::start(options, transport).await?;
    // All sessions of KCP are over one socket.
    let endpoint = KcpEndpoint::bind("127.0.0.1:0").await?;
    let (server_before, client_before) = (server.resident().await?, process::resident());

    let workers = options.at_once.clamp(1, options.connections.max(1));
    let barrier = Arc::new(Barrier::new(workers + 1));
    let start = Instant::now();
    let tasks: Vec<_> = (0..workers)
        .map(|number| {
            let share = (number..options.connections).step_by(workers).len();
            let worker = Worker {
                transport,
                addr: addr.clone(),
                endpoint: endpoint.clone(),
                settings: options.common.settings(),
                message: (0..options.size).map(|index| (index * 7) as u8).collect::<Vec<_>>().into(),
                messages: options.messages,
                barrier: Arc::clone(&barrier),
            };
            tokio::spawn(worker.run(share))
        })
        .collect();
    // A worker that fails ends the round: the others would wait for it.
    let failed = async {
        for task in tasks {
            match task.await.map_err(io::Error::other).flatten() {
                Ok(()) => {}
                Err(error) => return error,
            }
        }
        std::future::pending().await
    };
    let round = async {
        barrier.wait().await;
        let connect_s = start.elapsed().as_secs_f64();
        time::sleep(Duration::from_secs(options.settle)).await;
        let (server_idle, client_idle) = (server.resident().await?, process::resident());

        barrier.wait().await;
        let start = Instant::now();
        barrier.wait().await;
        let exchange_s = start.elapsed().as_secs_f64();
        time::sleep(Duration::from_secs(options.settle)).await;
        let (server_after, client_after) = (server.resident().await?, process::resident());

        let each = |after: u64, before: u64| after.saturating_sub(before) as f64 / options.connections as f64;
        Ok(Figures {
            transport: transport.name().to_owned(),
            connections: options.connections,
            connect_s,
            messages_per_s: (options.connections * options.messages) as f64 / exchange_s,
            server_idle_bytes: each(server_idle, server_before),
            client_idle_bytes: each(client_idle, client_before),
            server_after_bytes: each(server_after, server_before),
            client_after_bytes: each(client_after, client_before),
        })
    };
    let figures: io::Result<Figures> = tokio::select! {
        figures = round => figures,
        error = failed => Err(error),
    };
    println!("{}", serde_json::to_string(&figures?)?);
    Ok(())
}

/// Some of the connections, one of which has a message under way at a time.
struct Worker {
    transport: Transport,
    addr: String,
    endpoint: KcpEndpoint,
    settings: Settings,
    message: Bytes,
    messages: usize,
    barrier: Arc<Barrier>,
}

impl Worker {
    async fn run(self, share: usize) -> io::Result<()> {
        let mut sockets = Vec::with_capacity(share);
        for _ in 0..share {
            // What a handshake needs is given back behind it.
            sockets.push(Box::pin(self.open()).await?);
        }
        self.barrier.wait().await;
        self.barrier.wait().await;
        for _ in 0..self.messages {
            for socket in &mut sockets {
                socket.send_binary(self.message.clone()).await.map_err(io::Error::other)?;
                let answer = socket.recv().await.map_err(io::Error::other)?;
                if answer != Event::Binary(self.message.clone()) {
                    return Err(io::Error::other("another message came back"));
                }
            }
        }
        self.barrier.wait().await;
        // The connections stay open while memory is looked at.
        std::future::pending().await
    }

    async fn open(&self) -> io::Result<Socket> {
        let stream = match self.transport {
            Transport::Kcp => {
                let addr = self.addr.parse().map_err(io::Error::other)?;
                Stream::Kcp(self.endpoint.connect(addr, KcpConfig::default())?)
            }
            Transport::Tcp => {
                let stream = TcpStream::connect(&self.addr).await?;
                Stream::tcp(stream)?
            }
        };
        ws::connect(stream, &self.addr, "/", &self.settings).await.map_err(io::Error::other)
    }
}
