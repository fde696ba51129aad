//! One end of one flow: a process of its own, in a namespace.
//!
//! A receiver prints `ready TOKEN` once it listens, a sender prints `ready`. Both then read the line
//! `BEGIN START END` from standard input: the scenario's beginning in nanoseconds of the wall clock, and two numbers of
//! milliseconds after it. The sender connects at START, and writes as fast as it can until END. The receiver counts until END and
//! prints what came in each tenth of a second since BEGIN, in bytes.

mod clock;
mod kcp9_flow;
mod quinn_flow;
mod tcp;

use std::{io, net::SocketAddr};

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use self::clock::Clock;
use crate::{
    kind::{Controller, Kind},
    link::tally::BIN,
};

/// Bytes of a write, and of a read at most.
const CHUNK: usize = 64 << 10;

#[derive(Debug, Subcommand)]
pub(crate) enum End {
    /// Receives and counts
    Receive(Setting),
    /// Sends as fast as it can
    Send {
        #[command(flatten)]
        setting: Setting,
        /// What the receiver printed: its certificate, for quinn
        #[arg(long, default_value = "")]
        token: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Setting {
    /// What the flow is
    kind: Kind,
    /// Where the receiver listens
    addr: SocketAddr,
    /// The controller of plain kcp9
    #[arg(long)]
    kcp9_cc: Option<Controller>,
}

/// What a receiver prints in the end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Received {
    /// Payload of each tenth of a second, bytes.
    pub(crate) bins: Vec<u64>,
}

/// One end, in a process that has a single thread.
pub(crate) fn run(end: &End) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match end {
            End::Receive(setting) => match setting.kind {
                Kind::Kcp9(_) => kcp9_flow::receive(setting).await,
                Kind::Tcp(_) => tcp::receive(setting).await,
                Kind::Quinn => quinn_flow::receive(setting).await,
                Kind::KcpGo => Err(io::Error::other("kcp-go has a program of its own")),
            },
            End::Send { setting, token } => match setting.kind {
                Kind::Kcp9(controller) => kcp9_flow::send(setting, controller).await,
                Kind::Tcp(name) => tcp::send(setting, name).await,
                Kind::Quinn => quinn_flow::send(setting, token).await,
                Kind::KcpGo => Err(io::Error::other("kcp-go has a program of its own")),
            },
        }
    })
}

/// Writes until the clock's end. What it connects with is kept until then.
async fn write<W: AsyncWrite + Unpin>(clock: &Clock, mut writer: W) -> io::Result<()> {
    let chunk = vec![0; CHUNK];
    let writing = async {
        loop {
            writer.write_all(&chunk).await?;
        }
    };
    clock.until_end(writing).await
}

/// Counts until the clock's end, and prints it.
async fn count<R: AsyncRead + Unpin>(
    clock: &Clock,
    accepting: impl Future<Output = io::Result<R>>,
) -> io::Result<()> {
    let mut received = Received { bins: vec![0; clock.bins()] };
    let counting = async {
        let mut reader = accepting.await?;
        let mut buffer = vec![0; CHUNK];
        loop {
            let bytes = reader.read(&mut buffer).await?;
            if bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let bin = (clock.now() / BIN) as usize;
            if let Some(sum) = received.bins.get_mut(bin) {
                *sum += bytes as u64;
            }
        }
    };
    clock.until_end(counting).await?;
    println!("{}", serde_json::to_string(&received)?);
    Ok(())
}
