//! HTTP over KCP, by axum and hyper: `cargo run --example http --features axum`.
//!
//! ```text
//! http                          server and client in one, which checks the answers
//! http serve [--listen ADDR]    a server, until Ctrl-C
//! http get ADDR [PATH]          a client
//! ```
//!
//! The feature `axum` of this crate is what lets `axum::serve` take the listener. hyper's client needs no feature: it takes any
//! stream. Nothing is encrypted here: a cipher comes with the configuration, and TLS over the stream as in the example `tls`.

use std::{error::Error, future::Future, io, net::SocketAddr, process::ExitCode};

use axum::{Router, extract::ConnectInfo, routing::get};
use clap::{Parser, Subcommand};
use http_body_util::{BodyExt, Empty};
use hyper::{
    Request, StatusCode,
    body::Bytes,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use kcp9::{KcpConfig, KcpHandle, KcpListener, KcpStream};
use tokio::{sync::oneshot, task::JoinHandle};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// HTTP over KCP
#[derive(Parser)]
#[command(name = "http", version)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve until Ctrl-C
    Serve {
        /// The address to listen on
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:4080")]
        listen: SocketAddr,
    },
    /// Get one page
    Get {
        /// The server
        #[arg(value_name = "HOST:PORT")]
        server: String,
        /// The page
        #[arg(default_value = "/")]
        path: String,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Options::parse().command {
        None => check().await,
        Some(Command::Serve { listen }) => serve_until_ctrl_c(listen).await,
        Some(Command::Get { server, path }) => print(&server, &path).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("http: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Answers until `stop`, and then what is under way still.
async fn serve(listener: KcpListener, stop: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    let app = Router::new().route("/", get(|| async { "hello over KCP\n" })).route("/session", get(session));
    // A handler learns by `ConnectInfo` which session a request came by.
    let app = app.into_make_service_with_connect_info::<KcpHandle>();
    axum::serve(listener, app).with_graceful_shutdown(stop).await
}

/// Who asks, over what.
async fn session(ConnectInfo(session): ConnectInfo<KcpHandle>) -> String {
    let stats = session.stats();
    let (peer, conv) = (session.peer_addr(), session.conv());
    format!("{peer}, conversation {conv}: {} bytes of requests so far\n", stats.stream.bytes_read)
}

async fn serve_until_ctrl_c(addr: SocketAddr) -> Outcome<()> {
    let listener = KcpListener::bind(addr, KcpConfig::default()).await?;
    let endpoint = listener.endpoint().clone();
    println!("listening on {}", listener.local_addr()?);
    let stop = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    serve(listener, stop).await?;
    // The answers that were given last are still delivered.
    endpoint.wait_idle().await;
    Ok(())
}

/// A connection of hyper's client over a session, and the task that runs it to its end.
async fn connect(addr: &str) -> Outcome<(SendRequest<Empty<Bytes>>, JoinHandle<hyper::Result<()>>)> {
    let stream = KcpStream::connect(addr, KcpConfig::default()).await?;
    let (requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
    Ok((requests, tokio::spawn(connection)))
}

async fn fetch(requests: &mut SendRequest<Empty<Bytes>>, path: &str) -> Outcome<(StatusCode, Bytes)> {
    requests.ready().await?;
    let request = Request::get(path).header("host", "kcp9").body(Empty::new())?;
    let answer = requests.send_request(request).await?;
    Ok((answer.status(), answer.into_body().collect().await?.to_bytes()))
}

async fn print(server: &str, path: &str) -> Outcome<()> {
    let (mut requests, _connection) = connect(server).await?;
    let (status, body) = fetch(&mut requests, path).await?;
    print!("{}", String::from_utf8_lossy(&body));
    if status.is_success() { Ok(()) } else { Err(status.to_string().into()) }
}

/// Both in one process.
async fn check() -> Outcome<()> {
    let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
    let (addr, endpoint) = (listener.local_addr()?, listener.endpoint().clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async { drop(stopped.await) };
    let server = tokio::spawn(serve(listener, stopped));

    let (mut requests, connection) = connect(&addr.to_string()).await?;
    let (status, body) = fetch(&mut requests, "/").await?;
    assert_eq!((status, &body[..]), (StatusCode::OK, &b"hello over KCP\n"[..]));
    // The second request comes by the same session, which has read the first.
    let (_, body) = fetch(&mut requests, "/session").await?;
    let session = String::from_utf8(body.to_vec())?;
    print!("{session}");
    assert!(session.starts_with("127.0.0.1:") && !session.contains(": 0 bytes"), "{session}");
    let (status, _) = fetch(&mut requests, "/nowhere").await?;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(endpoint.endpoint_stats().driver.accepted, 1);

    // The server ends although a client keeps an idle connection.
    drop(stop);
    server.await??;
    // A request that is handed over at the moment when hyper's connection ends may never be answered, nor refused
    // (https://github.com/hyperium/hyper/issues/4122). So its end comes first.
    connection.await??;
    assert!(fetch(&mut requests, "/").await.is_err(), "the server answers after its end");
    println!("ok");
    Ok(())
}
