//! A server that reads no faster than it wants to: `cargo run --example sink`.
//!
//! ```text
//! sink                                           server and client in one, which check that the client waits
//! sink serve [--listen ADDR] [--rate BYTES]      a server, until Ctrl-C
//! sink fill ADDR [--bytes BYTES]                 a client that writes as fast as it can
//! ```
//!
//! Nobody tells the client how fast it may be. What the server has not read fills its receive window, and what the client cannot
//! send fills its own buffers; then its writes wait. So neither end holds more than that, however slow the reader is.

use std::{
    io,
    net::SocketAddr,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clap::{Parser, Subcommand};
use kcp9::{KcpConfig, KcpListener, KcpStream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{self, Instant},
};

/// A server that reads no faster than it wants to
#[derive(Parser)]
#[command(name = "sink", version)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Read until Ctrl-C
    Serve {
        /// The address to listen on
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:4009")]
        listen: SocketAddr,
        /// Bytes a second that are read from each client
        #[arg(long, value_name = "BYTES", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
        rate: u64,
    },
    /// Write as fast as the server lets one
    Fill {
        /// The server
        #[arg(value_name = "HOST:PORT")]
        server: String,
        #[arg(long, value_name = "BYTES", default_value_t = 10_000_000)]
        bytes: u64,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Options::parse().command {
        None => check().await,
        Some(Command::Serve { listen, rate }) => serve_until_ctrl_c(listen, rate).await,
        Some(Command::Fill { server, bytes }) => show(&server, bytes).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sink: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Segments that each end holds for the other at most.
const WINDOW: u32 = 128;

fn config() -> io::Result<KcpConfig> {
    KcpConfig::builder().send_window(WINDOW).recv_window(WINDOW).build().map_err(io::Error::other)
}

/// Reads all that comes, `rate` bytes a second. `read` counts them.
async fn drain(mut stream: KcpStream, rate: u64, read: &AtomicU64) -> io::Result<u64> {
    let begun = Instant::now();
    let mut buffer = vec![0; 16 << 10];
    let mut total = 0;
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(total);
        }
        total += count as u64;
        read.store(total, Ordering::Relaxed);
        // Not before so many bytes are due. Meanwhile nothing is read, and that is all it takes.
        time::sleep_until(begun + Duration::from_secs_f64(total as f64 / rate as f64)).await;
    }
}

async fn serve_until_ctrl_c(addr: SocketAddr, rate: u64) -> io::Result<()> {
    let listener = KcpListener::bind(addr, config()?).await?;
    println!("listening on {}", listener.local_addr()?);
    let serving = async {
        while let Ok((stream, peer)) = listener.accept().await {
            tokio::spawn(async move {
                let begun = Instant::now();
                match drain(stream, rate, &AtomicU64::new(0)).await {
                    Ok(bytes) => println!("{peer}: {bytes} bytes in {:.1?}", begun.elapsed()),
                    Err(error) => eprintln!("sink: {peer}: {error}"),
                }
            });
        }
    };
    tokio::select! {
        () = serving => Ok(()),
        stopped = tokio::signal::ctrl_c() => stopped,
    }
}

/// Writes `bytes`, and counts them in `written`. Returns when the server has acknowledged all.
async fn fill(mut stream: KcpStream, bytes: u64, written: &AtomicU64) -> io::Result<()> {
    let block = vec![7; 16 << 10];
    let mut total = 0;
    while total < bytes {
        let len = block.len().min((bytes - total) as usize);
        total += stream.write(&block[..len]).await? as u64;
        written.store(total, Ordering::Relaxed);
    }
    stream.shutdown().await
}

async fn show(server: &str, bytes: u64) -> io::Result<()> {
    let written = AtomicU64::new(0);
    let begun = Instant::now();
    let progress = async {
        loop {
            time::sleep(Duration::from_secs(1)).await;
            println!("{:.0?}: {} bytes written", begun.elapsed(), written.load(Ordering::Relaxed));
        }
    };
    let stream = KcpStream::connect(server, config()?).await?;
    tokio::select! {
        filled = fill(stream, bytes, &written) => filled?,
        () = progress => {}
    }
    println!("{bytes} bytes in {:.1?}", begun.elapsed());
    Ok(())
}

/// Both in one process.
async fn check() -> io::Result<()> {
    const BYTES: u64 = 4_000_000;
    const RATE: u64 = 2_000_000;
    /// The receive window of one end, and what waits at the other: its send window, and as much again before it.
    const HELD: u64 = 3 * WINDOW as u64 * 1_400;

    let listener = KcpListener::bind("127.0.0.1:0", config()?).await?;
    let stream = KcpStream::connect(listener.local_addr()?, config()?).await?;
    let (written, read) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let client = tokio::spawn({
        let written = Arc::clone(&written);
        async move { fill(stream, BYTES, &written).await }
    });
    let server = tokio::spawn({
        let read = Arc::clone(&read);
        async move { drain(listener.accept().await?.0, RATE, &read).await }
    });
    let begun = Instant::now();
    let mut most = 0;
    while !server.is_finished() {
        time::sleep(Duration::from_millis(5)).await;
        // In this order: what is read in between makes the difference smaller, not larger.
        let written = written.load(Ordering::Relaxed);
        most = most.max(written.saturating_sub(read.load(Ordering::Relaxed)));
    }
    let (total, took) = (server.await??, begun.elapsed());
    client.await??;
    assert_eq!(total, BYTES);
    println!("{BYTES} bytes in {took:.1?}; at most {most} of them were written and not read");
    assert!(took.as_secs_f64() >= (BYTES - HELD) as f64 / RATE as f64 && most <= HELD && most > 0);
    println!("ok");
    Ok(())
}
