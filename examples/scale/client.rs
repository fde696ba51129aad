//! The client: it begins the sessions, holds them, and tells what that cost.

use std::{
    io,
    net::SocketAddr,
    process::Stdio,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use kcp9::{KcpEndpoint, KcpStream};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    sync::Barrier,
    time,
};

use crate::{
    options::{BACKLOG, Options},
    process,
    server::Figures,
};

/// Memory is looked at this long after the last packet: sessions that became idle have given back by then what they keep for more.
const SETTLE: Duration = Duration::from_secs(4);

/// The server process.
struct Server {
    child: Child,
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Server {
    async fn start() -> io::Result<(Self, SocketAddr)> {
        let mut command = tokio::process::Command::new(std::env::current_exe()?);
        // With the same flags.
        command.args(std::env::args_os().skip(1)).arg("serve");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let (Some(ask), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the server has no pipes"));
        };
        let mut server = Self { child, ask, answers: BufReader::new(stdout).lines() };
        let addr = server.line().await?.parse().map_err(io::Error::other)?;
        Ok((server, addr))
    }

    async fn line(&mut self) -> io::Result<String> {
        self.answers.next_line().await?.ok_or_else(|| io::Error::other("the server has ended"))
    }

    async fn figures(&mut self) -> io::Result<Figures> {
        self.ask.write_all(b"\n").await?;
        Ok(serde_json::from_str(&self.line().await?)?)
    }
}

/// What the sessions' tasks have in common.
struct Crowd {
    echo: usize,
    every: Option<Duration>,
    opened: Progress,
    echoed_again: Progress,
    echoes: AtomicUsize,
    failed: AtomicUsize,
    /// Where they wait for each other: before the second echo, and before they are held.
    barrier: Barrier,
}

/// How many of all sessions have done something, and when the last one had. Its own task notes that: another one may have to wait for
/// its turn among all of theirs.
struct Progress {
    done: AtomicUsize,
    all: usize,
    all_done: OnceLock<Instant>,
}

impl Progress {
    fn of(all: usize) -> Self {
        Self { done: AtomicUsize::new(0), all, all_done: OnceLock::new() }
    }

    fn count(&self) {
        if self.done.fetch_add(1, Ordering::Relaxed) + 1 == self.all {
            let _ = self.all_done.set(Instant::now());
        }
    }

    /// When all had done it. All have.
    fn ended(&self) -> Instant {
        self.all_done.get().copied().unwrap_or_else(Instant::now)
    }
}

/// Begins the sessions; returns whether none failed.
pub(crate) async fn run(options: &Options) -> io::Result<bool> {
    let (mut server, addr) = Server::start().await?;
    let mut endpoints = Vec::new();
    for _ in 0..options.sockets() {
        endpoints.push(KcpEndpoint::bind("127.0.0.1:0").await?);
    }
    let config = options.config()?;
    let (server_before, client_before) = (server.figures().await?, process::resident());
    let crowd = Arc::new(Crowd {
        echo: options.echo,
        every: options.every.map(Duration::from_secs),
        opened: Progress::of(options.sessions),
        echoed_again: Progress::of(options.sessions),
        echoes: AtomicUsize::new(0),
        failed: AtomicUsize::new(0),
        barrier: Barrier::new(options.sessions + 1),
    });

    let start = Instant::now();
    let tasks: Vec<_> = (0..options.sessions)
        .map(|number| {
            let (endpoint, config) = (endpoints[number % endpoints.len()].clone(), config.clone());
            let connect = move || endpoint.connect(addr, config);
            tokio::spawn(session(connect, number, options.timeout(), Arc::clone(&crowd)))
        })
        .collect();
    let bar = progress_bar(options);
    let watch = async {
        loop {
            bar.set_position(crowd.opened.done.load(Ordering::Relaxed) as u64);
            time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        _ = crowd.barrier.wait() => {}
        () = watch => {}
    }
    bar.finish_and_clear();
    crowd.barrier.wait().await;
    let (opened, echoed_again) = (crowd.opened.ended(), crowd.echoed_again.ended());

    time::sleep(SETTLE).await;
    let (server_idle, client_idle) = (server.figures().await?, process::resident());
    let echoed_before = crowd.echoes.load(Ordering::Relaxed);
    time::sleep(Duration::from_secs(options.hold)).await;
    let echoes = crowd.echoes.load(Ordering::Relaxed) - echoed_before;
    let server_held = server.figures().await?;
    let cpu = (server_idle.cpu_s - server_before.cpu_s) / options.sessions.max(1) as f64;
    let held = (server_held.cpu_s - server_idle.cpu_s, server_held.wakeups - server_idle.wakeups);
    let per_second = |figure: f64| (options.hold > 0).then(|| figure / options.hold as f64);
    let per_session = |after: u64, before: u64| after.saturating_sub(before) / options.sessions as u64;
    let missing = server_held.sessions.abs_diff(options.sessions as u64);
    if missing > 0 {
        eprintln!("scale: the server has {} sessions", server_held.sessions);
    }
    // What is not done costs nothing: the figures say something only if most is.
    let expected =
        options.every.map(|every| (options.sessions as u64 * options.hold).checked_div(every).unwrap_or(0));
    let all_echoed = expected.is_none_or(|expected| echoes as u64 >= expected * 9 / 10);
    if !all_echoed {
        eprintln!("scale: {echoes} echoes while held");
    }
    let failed = (crowd.failed.load(Ordering::Relaxed) as u64).max(missing);
    for task in tasks {
        task.abort();
    }
    let report = json!({
        "sessions": options.sessions,
        "failed": failed,
        "client_sockets": endpoints.len(),
        "sessions_of_shards": server_held.sessions_of_shards,
        "open_s": (opened - start).as_secs_f64(),
        "echo_s": (options.echo > 0).then(|| (echoed_again - opened).as_secs_f64()),
        "server_pid": server.child.id(),
        "server_rss_bytes_per_session": per_session(server_idle.rss, server_before.rss),
        "client_rss_bytes_per_session": per_session(client_idle, client_before),
        "server_cpu_us_per_session": cpu * 1e6,
        "echoes_while_held": options.every.map(|_| echoes),
        "server_cpu_percent_idle": per_second(held.0 * 100.0),
        "server_wakeups_per_s_idle": per_second(held.1 as f64),
        "limits": {
            "max_sessions": config.max_sessions(),
            "max_half_open": config.max_half_open(),
            "max_half_open_of_network": config.max_half_open_of_network(),
            "accept_backlog": BACKLOG,
        },
    });
    println!("{report}");
    Ok(failed == 0 && all_echoed)
}

/// One session: opened, echoed once more, and held.
async fn session(
    connect: impl FnOnce() -> io::Result<KcpStream>,
    number: usize,
    timeout: Duration,
    crowd: Arc<Crowd>,
) -> io::Result<()> {
    let stream = match connect() {
        Ok(stream) => open(stream, number, timeout, &crowd).await,
        Err(error) => Err(error),
    };
    crowd.opened.count();
    crowd.barrier.wait().await;
    let stream = match stream {
        Ok(mut stream) => time::timeout(timeout, echo(&mut stream, number, &crowd))
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map(|()| stream),
        Err(error) => Err(error),
    };
    if let Err(error) = &stream {
        // The first one tells enough.
        if crowd.failed.fetch_add(1, Ordering::Relaxed) == 0 {
            eprintln!("scale: session {number}: {error}");
        }
    }
    crowd.echoed_again.count();
    crowd.barrier.wait().await;
    let mut stream = stream?;
    let Some(every) = crowd.every else {
        return Err(stream.closed().await.into());
    };
    // Not all in the same moment.
    time::sleep(every.mul_f64(number as f64 / crowd.opened.all as f64)).await;
    let mut interval = time::interval(every);
    loop {
        interval.tick().await;
        if let Err(error) = echo(&mut stream, number, &crowd).await {
            crowd.failed.fetch_add(1, Ordering::Relaxed);
            return Err(error);
        }
    }
}

async fn open(
    mut stream: KcpStream,
    number: usize,
    timeout: Duration,
    crowd: &Crowd,
) -> io::Result<KcpStream> {
    if crowd.echo == 0 {
        stream.connected(timeout).await?;
    } else {
        let echo = time::timeout(timeout, echo(&mut stream, number, crowd)).await;
        echo.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    }
    Ok(stream)
}

/// Writes, and reads the same back.
async fn echo(stream: &mut KcpStream, number: usize, crowd: &Crowd) -> io::Result<()> {
    if crowd.echo == 0 {
        return Ok(());
    }
    let sent = vec![number as u8; crowd.echo];
    let mut echoed = vec![0; crowd.echo];
    stream.write_all(&sent).await?;
    stream.read_exact(&mut echoed).await?;
    if sent != echoed {
        return Err(io::ErrorKind::InvalidData.into());
    }
    crowd.echoes.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn progress_bar(options: &Options) -> ProgressBar {
    if options.json {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} sessions, {elapsed}");
    let bar = ProgressBar::new(options.sessions as u64);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
