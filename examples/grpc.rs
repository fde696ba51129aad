//! gRPC over KCP, by tonic: `cargo run --example grpc --features tonic`.
//!
//! ```text
//! grpc                             server and client in one, which checks the answers
//! grpc serve [--listen ADDR]       a server, until Ctrl-C
//! grpc say ADDR WORDS              a client
//! ```
//!
//! The feature `tonic` of this crate is what lets tonic's server take the sessions of a listener. The client needs no feature: its
//! connector is any service that returns a stream. `build.rs` has the service's definition.

use std::{error::Error, future::Future, net::SocketAddr, pin::Pin, process::ExitCode};

use clap::{Parser, Subcommand};
use futures_util::{Stream, StreamExt, stream};
use hyper_util::rt::TokioIo;
use kcp9::{KcpConfig, KcpHandle, KcpListener, KcpStream};
use tokio::sync::oneshot;
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Channel, Endpoint, Server, Uri},
};
use tower::service_fn;

use self::generated::{
    echo_client::EchoClient,
    echo_server::{Echo, EchoServer},
};

mod generated {
    #![allow(missing_docs, unused_qualifications, unreachable_pub, clippy::all, reason = "tonic wrote it")]
    include!(concat!(env!("OUT_DIR"), "/kcp9.example.Echo.rs"));
}

#[derive(Clone, PartialEq, prost::Message)]
struct Line {
    #[prost(string, tag = "1")]
    text: String,
}

/// The client, as the server sees it.
#[derive(Clone, PartialEq, prost::Message)]
struct Peer {
    #[prost(string, tag = "1")]
    address: String,
    #[prost(uint32, tag = "2")]
    conv: u32,
    #[prost(uint64, tag = "3")]
    bytes_read: u64,
}

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// gRPC over KCP
#[derive(Parser)]
#[command(name = "grpc", version)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve until Ctrl-C
    Serve {
        /// The address to listen on
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:4051")]
        listen: SocketAddr,
    },
    /// Say something, and print what comes back
    Say {
        /// The server
        #[arg(value_name = "HOST:PORT")]
        server: String,
        words: String,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Options::parse().command {
        None => check().await,
        Some(Command::Serve { listen }) => serve_until_ctrl_c(listen).await,
        Some(Command::Say { server, words }) => say(server, words).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("grpc: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Service;

#[tonic::async_trait]
impl Echo for Service {
    async fn say(&self, request: Request<Line>) -> Result<Response<Line>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type ChatStream = Pin<Box<dyn Stream<Item = Result<Line, Status>> + Send>>;

    /// Answers each line when it comes.
    async fn chat(&self, request: Request<Streaming<Line>>) -> Result<Response<Self::ChatStream>, Status> {
        Ok(Response::new(request.into_inner().boxed()))
    }

    /// tonic hands on the session's handle with each request.
    async fn who_am_i(&self, request: Request<Line>) -> Result<Response<Peer>, Status> {
        let session = request.extensions().get::<KcpHandle>();
        let session = session.ok_or_else(|| Status::internal("this came by no session"))?;
        Ok(Response::new(Peer {
            address: session.peer_addr().to_string(),
            conv: session.conv(),
            bytes_read: session.stats().stream.bytes_read,
        }))
    }
}

/// Answers until `stop`, and then what is under way still.
async fn serve(listener: KcpListener, stop: impl Future<Output = ()>) -> Result<(), tonic::transport::Error> {
    let service = EchoServer::new(Service);
    Server::builder().add_service(service).serve_with_incoming_shutdown(listener, stop).await
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

/// A client that connects when it is first used, and again when its session ended.
fn client(addr: String) -> EchoClient<Channel> {
    let connector = service_fn(move |_: Uri| {
        let addr = addr.clone();
        async move { KcpStream::connect(addr, KcpConfig::default()).await.map(TokioIo::new) }
    });
    EchoClient::new(Endpoint::from_static("http://kcp9").connect_with_connector_lazy(connector))
}

async fn say(server: String, words: String) -> Outcome<()> {
    println!("{}", client(server).say(Line { text: words }).await?.into_inner().text);
    Ok(())
}

/// Both in one process.
async fn check() -> Outcome<()> {
    let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
    let (addr, endpoint) = (listener.local_addr()?, listener.endpoint().clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(listener, async { drop(stopped.await) }));

    let mut client = client(addr.to_string());
    let line = |number: usize| Line { text: format!("line {number}") };
    let answer = client.say(line(1)).await?.into_inner();
    assert_eq!(answer, line(1));

    let lines = stream::iter((0..1_000).map(line));
    let mut answers = client.chat(lines).await?.into_inner();
    let mut count = 0;
    while let Some(answer) = answers.message().await? {
        assert_eq!(answer, line(count));
        count += 1;
    }
    assert_eq!(count, 1_000);

    let peer = client.who_am_i(line(0)).await?.into_inner();
    println!("{}, conversation {}: {} bytes of requests so far", peer.address, peer.conv, peer.bytes_read);
    assert!(peer.address.starts_with("127.0.0.1:") && peer.bytes_read > 1_000 * 6);
    // All of it came by one session.
    assert_eq!(endpoint.endpoint_stats().driver.accepted, 1);

    drop(stop);
    server.await??;
    assert!(client.say(line(2)).await.is_err(), "the server answers after its end");
    println!("ok");
    Ok(())
}
