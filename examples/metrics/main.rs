//! A server whose figures Prometheus reads: `cargo run --example metrics`.
//!
//! ```text
//! metrics                                           server, client and reader in one, which checks what is read
//! metrics serve [--listen ADDR] [--metrics ADDR]    a server that sends back what comes, until Ctrl-C
//!               [--socket PATH]                     the same, and the example `top` shows its sessions
//! ```
//!
//! The figures are at `http://ADDR/metrics`. Prometheus is told of them by
//!
//! ```yaml
//! scrape_configs:
//!   - job_name: kcp9
//!     static_configs: [{ targets: ["127.0.0.1:9184"] }]
//! ```
//!
//! `docs/metrics.md` says what they mean, and `docs/grafana.json` is a dashboard for them. They are exported for each answer, so that it
//! has the figures of its moment. Who sees this port sees how much whom is served: it is for the own network.

#[cfg(unix)]
mod feed;
#[cfg(unix)]
#[path = "../top/feed.rs"]
#[allow(dead_code, reason = "only the reader has a limit of lines")]
mod top;

#[cfg(unix)]
use std::path::{Path, PathBuf};
use std::{convert::Infallible, error::Error, future::Future, io, net::SocketAddr, process::ExitCode};

use clap::{Parser, Subcommand};
use http_body_util::{BodyExt, Empty, Full};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    client, header,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use kcp9::{KcpConfig, KcpListener, KcpMetrics, KcpStream};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A server whose figures Prometheus reads
#[derive(Parser)]
#[command(name = "metrics", version)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve until Ctrl-C
    Serve {
        /// The address to listen on, over KCP
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:4007")]
        listen: SocketAddr,
        /// The address for Prometheus, over HTTP
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9184")]
        metrics: SocketAddr,
        /// A Unix socket that the example `top` reads
        #[cfg(unix)]
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Options::parse().command {
        None => check().await,
        #[cfg(unix)]
        Some(Command::Serve { listen, metrics, socket }) => {
            serve_until_ctrl_c(listen, metrics, socket.as_deref()).await
        }
        #[cfg(not(unix))]
        Some(Command::Serve { listen, metrics }) => serve_until_ctrl_c(listen, metrics).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("metrics: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is needed to tell the figures.
#[derive(Clone)]
struct Figures {
    metrics: KcpMetrics,
    recorder: PrometheusHandle,
}

impl Figures {
    /// Those of the sessions of `listener`.
    fn of(listener: &KcpListener) -> Outcome<Self> {
        let recorder = PrometheusBuilder::new().install_recorder()?;
        let metrics = KcpMetrics::new();
        metrics.watch("echo", listener.endpoint());
        Ok(Self { metrics, recorder })
    }

    /// As they are now, in Prometheus' text format.
    fn text(&self) -> String {
        self.metrics.export();
        self.recorder.run_upkeep();
        self.recorder.render()
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, text) = match (request.method(), request.uri().path()) {
            (&Method::GET, "/metrics") => (StatusCode::OK, self.text()),
            (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
            _ => (StatusCode::NOT_FOUND, "the figures are at /metrics\n".to_owned()),
        };
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        let format = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, format);
        response
    }

    /// Answers whoever asks, for ever.
    async fn serve(self, http: TcpListener) {
        loop {
            let stream = match http.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    eprintln!("metrics: {error}");
                    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                    continue;
                }
            };
            let figures = self.clone();
            tokio::spawn(async move {
                let answer = service_fn(|request| {
                    let response = figures.answer(&request);
                    async { Ok::<_, Infallible>(response) }
                });
                // A reader that goes away is no failure of this program.
                let _ = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), answer)
                    .await;
            });
        }
    }
}

/// Sends back what comes, to clients until the listener is closed. Each new session is shown to `look`.
async fn echo(listener: KcpListener, look: impl Fn(&KcpStream)) {
    while let Ok((stream, peer)) = listener.accept().await {
        look(&stream);
        tokio::spawn(async move {
            let (mut reader, mut writer) = stream.into_split();
            let echo = async {
                tokio::io::copy(&mut reader, &mut writer).await?;
                writer.shutdown().await
            };
            if let Err(error) = echo.await {
                eprintln!("metrics: {peer}: {error}");
            }
        });
    }
}

async fn serve_until_ctrl_c(
    listen: SocketAddr,
    metrics: SocketAddr,
    #[cfg(unix)] socket: Option<&Path>,
) -> Outcome<()> {
    let listener = KcpListener::bind(listen, KcpConfig::default()).await?;
    let http = TcpListener::bind(metrics).await?;
    println!("listening on {}", listener.local_addr()?);
    println!("figures at http://{}/metrics", http.local_addr()?);
    let figures = Figures::of(&listener)?;
    #[cfg(unix)]
    let (sessions, endpoint) = (feed::Sessions::default(), listener.endpoint().clone());
    let look = |_stream: &KcpStream| {
        #[cfg(unix)]
        if socket.is_some() {
            sessions.add(_stream);
        }
    };
    let feed = async {
        #[cfg(unix)]
        if let Some(socket) = socket {
            return sessions.clone().serve(socket, endpoint).await;
        }
        std::future::pending::<io::Result<()>>().await
    };
    tokio::select! {
        () = echo(listener, look) => Ok(()),
        () = figures.serve(http) => Ok(()),
        ended = feed => Ok(ended?),
        stopped = tokio::signal::ctrl_c() => Ok(stopped?),
    }
}

/// What Prometheus gets.
async fn scrape(http: SocketAddr) -> Outcome<String> {
    let stream = TokioIo::new(TcpStream::connect(http).await?);
    let (mut requests, connection) = client::conn::http1::handshake(stream).await?;
    let connection = tokio::spawn(connection);
    let request =
        Request::get("/metrics").header(header::HOST, http.to_string()).body(Empty::<Bytes>::new())?;
    let answer = requests.send_request(request).await?;
    let status = answer.status();
    let text = answer.into_body().collect().await?.to_bytes();
    drop(requests);
    connection.await??;
    if status != StatusCode::OK {
        return Err(status.to_string().into());
    }
    Ok(String::from_utf8(text.to_vec())?)
}

/// The value of a figure without labels but `endpoint`.
fn value(text: &str, name: &str) -> Option<f64> {
    let line =
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(r#"{endpoint="echo"} "#))?;
    line.parse().ok()
}

/// All in one process.
async fn check() -> Outcome<()> {
    const CLIENTS: u32 = 4;
    const BYTES: usize = 1 << 20;

    let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
    let (addr, endpoint) = (listener.local_addr()?, listener.endpoint().clone());
    let http = TcpListener::bind("127.0.0.1:0").await?;
    let http_addr = http.local_addr()?;
    let figures = Figures::of(&listener)?;
    let reader = tokio::spawn(figures.serve(http));
    let server = tokio::spawn(echo(listener, |_| {}));

    for _ in 0..CLIENTS {
        say(addr, vec![7; BYTES]).await?;
    }
    endpoint.wait_idle().await;
    let text = scrape(http_addr).await?;
    let bytes = f64::from(CLIENTS) * BYTES as f64;
    for (name, expected) in [
        ("kcp9_sessions_accepted_total", f64::from(CLIENTS)),
        ("kcp9_sessions", 0.0),
        ("kcp9_stream_read_bytes_total", bytes),
        ("kcp9_stream_written_bytes_total", bytes),
    ] {
        // The last session may still be on its way into the sums.
        let found = retry(|| async { Ok(value(&scrape(http_addr).await?, name)) }, Some(expected)).await?;
        println!("{name} {}", found.unwrap_or(f64::NAN));
        assert_eq!(found, Some(expected), "{name} in:\n{text}");
    }
    println!(
        "{} figures: ok",
        text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count()
    );
    endpoint.close();
    server.await?;
    reader.abort();
    Ok(())
}

/// Asks until the answer is `expected`, for a second or so.
async fn retry<T: PartialEq, F: Future<Output = Outcome<T>>>(ask: impl Fn() -> F, expected: T) -> Outcome<T> {
    for _ in 0..100 {
        let answer = ask().await?;
        if answer == expected {
            return Ok(answer);
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    ask().await
}

/// Sends `words` to a server, and reads them back.
async fn say(server: SocketAddr, words: Vec<u8>) -> io::Result<()> {
    let (mut reader, mut writer) = KcpStream::connect(server, KcpConfig::default()).await?.into_split();
    let mut answer = Vec::new();
    let write = async {
        writer.write_all(&words).await?;
        writer.shutdown().await
    };
    tokio::try_join!(write, reader.read_to_end(&mut answer))?;
    assert!(answer == words, "other bytes came back");
    Ok(())
}

/// An accept that fails, for want of file descriptors say, is tried again.
const PAUSE_AFTER_ERROR: std::time::Duration = std::time::Duration::from_millis(100);
