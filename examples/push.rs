//! A server that pushes what is new to all of its clients: `cargo run --example push`.
//!
//! ```text
//! push                                        server and clients in one, which check what they get
//! push serve [--listen ADDR] [--every MS]     a server, until Ctrl-C
//! push follow ADDR                            a client
//! ```
//!
//! The server speaks first: between two peers of this crate a session begins without data. Each piece of news is a message of KCP,
//! which arrives as a whole. A client that does not keep up delays no other: it misses what is old by the time that it reads.

use std::{io, net::SocketAddr, process::ExitCode, time::Duration};

use clap::{Parser, Subcommand};
use kcp9::{KcpConfig, KcpListener, KcpStream, NoDelay};
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time,
};

/// A server that pushes what is new to all of its clients
#[derive(Parser)]
#[command(name = "push", version)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Push a number until Ctrl-C
    Serve {
        /// The address to listen on
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:4013")]
        listen: SocketAddr,
        /// Time between two numbers
        #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
        every: u64,
    },
    /// Print what a server pushes
    Follow {
        /// The server
        #[arg(value_name = "HOST:PORT")]
        server: String,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Options::parse().command {
        None => check().await,
        Some(Command::Serve { listen, every }) => serve_until_ctrl_c(listen, every).await,
        Some(Command::Follow { server }) => follow(&server).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("push: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Pieces of news that may wait for a client that is slow.
const QUEUE: usize = 16;

type News = broadcast::Sender<String>;

/// Small messages at once, and windows that hold back a client which does not read after little.
fn config() -> io::Result<KcpConfig> {
    let config =
        KcpConfig::builder().nodelay(NoDelay::FAST3).ack_no_delay(true).send_window(64).recv_window(128);
    config.build().map_err(io::Error::other)
}

/// Accepts clients until the listener is closed, a task for each.
async fn serve(listener: KcpListener, news: News) {
    while let Ok((stream, peer)) = listener.accept().await {
        let news = news.subscribe();
        tokio::spawn(async move {
            match push(&stream, news).await {
                Ok(0) => {}
                Ok(missed) => println!("{peer} was too slow, and has missed {missed}"),
                Err(error) => eprintln!("push: {peer}: {error}"),
            }
        });
    }
}

/// Sends what is new until the client goes. Returns how many pieces it has missed.
async fn push(stream: &KcpStream, mut news: broadcast::Receiver<String>) -> io::Result<u64> {
    let mut missed = 0;
    let pushing = async {
        loop {
            match news.recv().await {
                Ok(text) => stream.send(text.as_bytes()).await?,
                // It was too slow for these.
                Err(RecvError::Lagged(count)) => missed += count,
                Err(RecvError::Closed) => return io::Result::Ok(()),
            }
        }
    };
    tokio::select! {
        pushed = pushing => pushed?,
        // Clients say nothing: what is read is the end of the stream.
        ended = stream.recv() => drop(ended),
    }
    Ok(missed)
}

async fn serve_until_ctrl_c(addr: SocketAddr, every: u64) -> io::Result<()> {
    let listener = KcpListener::bind(addr, config()?).await?;
    println!("listening on {}", listener.local_addr()?);
    let (news, _) = broadcast::channel(QUEUE);
    let ticking = async {
        let mut ticks = time::interval(Duration::from_millis(every));
        for number in 1_u64.. {
            ticks.tick().await;
            // Nobody listens: nobody misses it.
            drop(news.send(format!("number {number}")));
        }
    };
    tokio::select! {
        () = serve(listener, news.clone()) => Ok(()),
        () = ticking => Ok(()),
        stopped = tokio::signal::ctrl_c() => stopped,
    }
}

/// A client, which the server knows when this returns.
async fn connect(server: &str) -> io::Result<KcpStream> {
    KcpStream::connect_timeout(server, config()?, Duration::from_secs(10)).await
}

async fn follow(server: &str) -> io::Result<()> {
    let stream = connect(server).await?;
    loop {
        let news = stream.recv().await?;
        if news.is_empty() {
            return Ok(());
        }
        println!("{}", String::from_utf8_lossy(&news));
    }
}

/// All in one process.
async fn check() -> io::Result<()> {
    const CLIENTS: usize = 50;
    const NUMBERS: usize = 500;

    let listener = KcpListener::bind("127.0.0.1:0", config()?).await?;
    let (addr, endpoint) = (listener.local_addr()?.to_string(), listener.endpoint().clone());
    let (news, _) = broadcast::channel(QUEUE);
    let server = tokio::spawn(serve(listener, news.clone()));
    // One of them reads nothing before the others have everything.
    let slow = connect(&addr).await?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(connect(&addr).await?);
    }
    while news.receiver_count() < CLIENTS + 1 {
        time::sleep(Duration::from_millis(1)).await;
    }

    let text = |number: usize| format!("number {number}, {}", "and what there is to say of it; ".repeat(30));
    let (heard, mut hearing) = tokio::sync::mpsc::channel(CLIENTS);
    for client in clients {
        let heard = heard.clone();
        tokio::spawn(async move {
            for number in 0..NUMBERS {
                let news = client.recv().await.map_err(|error| format!("number {number}: {error}"));
                let right = news.and_then(|news| {
                    if news == text(number) { Ok(()) } else { Err(format!("it is not number {number}")) }
                });
                if heard.send(right).await.is_err() {
                    return;
                }
            }
        });
    }
    // The next number when all but the slow one have the last.
    for number in 0..NUMBERS {
        news.send(text(number)).map_err(io::Error::other)?;
        for _ in 0..CLIENTS {
            let heard = time::timeout(Duration::from_secs(30), hearing.recv()).await?;
            heard.ok_or_else(|| io::Error::other("the clients are gone"))?.map_err(io::Error::other)?;
        }
    }

    // What the slow one gets is in order, up to the last, and with a gap: it has held up nobody.
    let (mut next, mut count) = (0, 0);
    while next < NUMBERS {
        let news = time::timeout(Duration::from_secs(30), slow.recv()).await??;
        let number = (next..NUMBERS).find(|number| news == text(*number));
        next = number.ok_or_else(|| io::Error::other("numbers came out of order"))? + 1;
        count += 1;
    }
    assert!(count < NUMBERS, "the slow client was waited for");
    drop(slow);
    endpoint.close();
    server.await?;
    println!("{CLIENTS} clients have all of {NUMBERS}, and one that did not read has {count}: ok");
    Ok(())
}
