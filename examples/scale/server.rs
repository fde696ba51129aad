//! The server: it echoes, and tells its figures for each line that it reads.

use std::io;

use kcp9::{KcpListener, KcpStream};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::{options::Options, process};

/// What the server takes, in all so far.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) sessions: u64,
    pub(crate) sessions_of_shards: Vec<u64>,
    pub(crate) rss: u64,
    pub(crate) cpu_s: f64,
    pub(crate) wakeups: u64,
}

pub(crate) async fn serve(options: &Options) -> io::Result<()> {
    let listener = KcpListener::bind("127.0.0.1:0", options.config()?).await?;
    println!("{}", listener.local_addr()?);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut silent = Vec::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                if options.echo > 0 {
                    tokio::spawn(echo(stream));
                } else {
                    // Nothing will come: a task would only take memory that is not the session's.
                    silent.push(stream);
                }
            }
            line = lines.next_line() => {
                // The client is gone.
                if line?.is_none() {
                    return Ok(());
                }
                let stats = listener.endpoint_stats();
                let figures = Figures {
                    sessions: stats.state.sessions,
                    sessions_of_shards: listener.shard_stats().iter().map(|shard| shard.state.sessions).collect(),
                    rss: process::resident(),
                    cpu_s: process::cpu().as_secs_f64(),
                    wakeups: stats.driver.wakeups,
                };
                println!("{}", serde_json::to_string(&figures)?);
            }
        }
    }
}

/// Sends back what comes. While nothing does, it holds no buffer.
async fn echo(stream: KcpStream) -> io::Result<()> {
    loop {
        stream.readable().await?;
        loop {
            let message = match stream.try_recv() {
                Ok(message) => message,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            let mut rest = &message[..];
            while !rest.is_empty() {
                match stream.try_write(rest) {
                    Ok(count) => rest = &rest[count..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
                    Err(error) => return Err(error),
                }
            }
        }
    }
}
