//! The command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand};

use crate::cell::{Crypt, Work};

/// Measures kcp9 and its peers on the same work.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One end of one run: what the comparison starts
    #[command(subcommand)]
    Peer(Side),
    /// Measures how many sessions one thread begins in a second, with and without key agreement and by quinn
    #[cfg(feature = "handshakes")]
    Handshakes(HandshakeRun),
    /// Makes the table and the charts again, from results.jsonl
    Report {
        /// Where it is, and where they go [default: results, beside this crate's manifest]
        folder: Option<PathBuf>,
    },
}

#[cfg(feature = "handshakes")]
#[derive(Debug, Args)]
pub(crate) struct HandshakeRun {
    /// Runs of each kind
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Seconds of a run
    #[arg(long, default_value_t = 2.0)]
    pub(crate) secs: f64,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Only cells that have all of these words, like sink,plain,64KB or ping,relay; may be given more than once
    #[arg(long, value_name = "WORDS")]
    only: Vec<String>,
    /// Only these peers
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) peers: Vec<String>,
    /// Runs of each peer in each cell; unless quick, five times as many of plain sinks in 64 KB and of pings over loopback
    /// [default: 5, quick: 3]
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds that a run should take [default: 1.5, quick: 0.4]
    #[arg(long)]
    secs: Option<f64>,
    /// Seconds that pings go on for through the relay [default: 8, quick: 3]
    #[arg(long)]
    relay_secs: Option<f64>,
    /// Shorter runs and fewer of them: to see that everything works
    #[arg(long)]
    quick: bool,
    /// Another build of this program: its kcp9 takes part as a peer called kcp9-before
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) before: Option<PathBuf>,
    /// Where the results go [default: results, beside this crate's manifest]
    #[arg(long)]
    out: Option<PathBuf>,
}

impl Run {
    pub(crate) fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 3 } else { 5 }).max(1)
    }

    /// Rounds of cells whose figures are so close that fewer would tell nothing.
    pub(crate) fn close_rounds(&self) -> usize {
        self.rounds() * if self.quick { 1 } else { 5 }
    }

    pub(crate) fn secs(&self) -> f64 {
        self.secs.unwrap_or(if self.quick { 0.4 } else { 1.5 }).clamp(0.05, 60.0)
    }

    pub(crate) fn relay_secs(&self) -> f64 {
        self.relay_secs.unwrap_or(if self.quick { 3.0 } else { 8.0 }).clamp(0.5, 600.0)
    }

    pub(crate) fn out(&self) -> PathBuf {
        folder_or_default(self.out.as_ref())
    }

    /// Whether the command line asks for a cell that these words describe.
    pub(crate) fn wants(&self, words: &[String]) -> bool {
        let has = |word: &str| words.iter().any(|own| own.eq_ignore_ascii_case(word));
        self.only.is_empty() || self.only.iter().any(|all| all.split(',').all(|word| has(word.trim())))
    }

    pub(crate) fn wants_peer(&self, name: &str) -> bool {
        self.peers.is_empty() || self.peers.iter().any(|wanted| wanted == name)
    }
}

/// Where results go by default.
pub(crate) fn folder_or_default(folder: Option<&PathBuf>) -> PathBuf {
    folder.cloned().unwrap_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/results")))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Side {
    /// Serves until standard input ends
    Serve {
        /// Which implementation
        name: String,
        #[command(flatten)]
        setting: Setting,
    },
    /// Connects, works, and reports
    Drive {
        /// Which implementation
        name: String,
        #[command(flatten)]
        setting: Setting,
        #[command(flatten)]
        task: Task,
    },
}

/// What both ends agree on.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Setting {
    #[arg(long)]
    pub(crate) work: Work,
    #[arg(long)]
    pub(crate) crypt: Crypt,
}

/// What the driver has to do.
#[derive(Debug, Clone, Args)]
pub(crate) struct Task {
    /// Where the server, or the relay before it, listens
    #[arg(long)]
    pub(crate) addr: SocketAddr,
    /// What the server printed after its address: its certificate, for quinn
    #[arg(long, default_value = "")]
    pub(crate) token: String,
    #[arg(long, default_value_t = 1)]
    pub(crate) conns: usize,
    /// Bytes per write
    #[arg(long, default_value_t = 65_536)]
    pub(crate) msg: usize,
    /// Payload bytes of each connection
    #[arg(long, default_value_t = 0)]
    pub(crate) bytes: u64,
    /// How long pings go on
    #[arg(long, default_value_t = 1.0)]
    pub(crate) secs: f64,
}
