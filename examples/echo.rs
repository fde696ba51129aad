//! A server that sends back what comes: `cargo run --example echo`.
//!
//! ```text
//! echo                             server and clients in one, which check what comes back
//! echo serve [--listen ADDR]       a server, until Ctrl-C
//! echo say ADDR WORDS              a client
//! ```

use std::{io, net::SocketAddr, process::ExitCode};

use clap::{Parser, Subcommand};
use kcp9::{KcpConfig, KcpListener, KcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A server that sends back what comes
#[derive(Parser)]
#[command(name = "echo", version)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve until Ctrl-C
    Serve {
        /// The address to listen on
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:4007")]
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
        Some(Command::Say { server, words }) => say(&server, words.as_bytes()).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Accepts clients until the listener is closed, a task for each.
async fn serve(listener: KcpListener) {
    while let Ok((stream, peer)) = listener.accept().await {
        tokio::spawn(async move {
            if let Err(error) = echo(stream).await {
                eprintln!("echo: {peer}: {error}");
            }
        });
    }
}

/// Sends back what comes, and ends when the client does. A client that does not read is not read from either: the write waits.
async fn echo(stream: KcpStream) -> io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    tokio::io::copy(&mut reader, &mut writer).await?;
    writer.shutdown().await
}

async fn serve_until_ctrl_c(addr: SocketAddr) -> io::Result<()> {
    let listener = KcpListener::bind(addr, KcpConfig::default()).await?;
    println!("listening on {}", listener.local_addr()?);
    tokio::select! {
        () = serve(listener) => Ok(()),
        stopped = tokio::signal::ctrl_c() => stopped,
    }
}

/// What comes back for `words`. Both directions run at a time: they need not fit into any buffer.
async fn ask(server: &str, words: &[u8]) -> io::Result<Vec<u8>> {
    let (mut reader, mut writer) = KcpStream::connect(server, KcpConfig::default()).await?.into_split();
    let mut answer = Vec::new();
    let write = async {
        writer.write_all(words).await?;
        writer.shutdown().await
    };
    tokio::try_join!(write, reader.read_to_end(&mut answer))?;
    Ok(answer)
}

async fn say(server: &str, words: &[u8]) -> io::Result<()> {
    println!("{}", String::from_utf8_lossy(&ask(server, words).await?));
    Ok(())
}

/// All in one process.
async fn check() -> io::Result<()> {
    const CLIENTS: usize = 8;
    const BYTES: usize = 4 << 20;

    let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
    let (addr, endpoint) = (listener.local_addr()?.to_string(), listener.endpoint().clone());
    let server = tokio::spawn(serve(listener));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let addr = addr.clone();
            tokio::spawn(async move {
                // Other bytes for each client, and none that repeat with a segment.
                let words: Vec<u8> = (0..BYTES).map(|at| ((at * (2 * client + 1)) >> 7) as u8).collect();
                Ok::<_, io::Error>(ask(&addr, &words).await? == words)
            })
        })
        .collect();
    for client in clients {
        assert!(client.await??, "other bytes came back");
    }
    println!("{CLIENTS} clients, {BYTES} bytes each way: ok");
    endpoint.close();
    server.await?;
    Ok(())
}
