//! The command line.

use std::{io, time::Duration};

use clap::{Args, Parser, Subcommand};
#[cfg(feature = "noise")]
use kcp9::proto::noise::{Initiator, Noise, Psk, Responder};
use kcp9::{CookiePolicy, KcpConfig};

use crate::encryption::{Crypt, Encryption};

/// How many sessions one server carries, and at what cost
#[derive(Debug, Parser)]
#[command(name = "scale", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub(crate) enum Command {
    /// What the client starts: prints its address, and its figures for each line that it reads
    #[command(hide = true)]
    Serve,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Sessions
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) sessions: usize,
    /// Bytes that each session has echoed; without it, a session waits for the answer to its HELLO only
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(crate) echo: usize,
    /// How long the sessions are held then
    #[arg(long, value_name = "SECS", default_value_t = 0)]
    pub(crate) hold: u64,
    /// While they are held, each has an echo once in this time
    #[arg(long, value_name = "SECS", requires = "echo")]
    pub(crate) every: Option<u64>,
    /// After how much silence a session asks for its peer; 0 for never
    #[arg(long, value_name = "SECS", default_value_t = 0)]
    keep_alive: u64,
    /// Sockets that the server listens on, on one port, with a task each
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) shards: u16,
    /// Sockets that the client's sessions are over, in turn; without it, 16 for each of the server's, or one
    #[arg(long, value_name = "N")]
    sockets: Option<usize>,
    /// Give up after this
    #[arg(long, value_name = "SECS", default_value_t = 300)]
    timeout: u64,
    /// Print the JSON line only
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    encryption: Encryption,
    /// Each session agrees on keys of its own
    #[cfg(feature = "noise")]
    #[arg(long, help_heading = "Encryption", conflicts_with = "crypt")]
    noise: bool,
}

/// Half-open sessions that the server takes, and sessions that may wait to be accepted.
pub(crate) const BACKLOG: usize = 65_536;

impl Options {
    /// The settings of every session. The limits hold what is asked for, and no more.
    pub(crate) fn config(&self) -> io::Result<KcpConfig> {
        let keep_alive = Some(self.keep_alive).filter(|secs| *secs > 0).map(Duration::from_secs);
        // Both ends are this program, so that any key does.
        let encryption = self.encryption.or_password("scale");
        let config = KcpConfig::builder()
            .crypto(encryption.packet_crypto(Crypt(None))?)
            .keep_alive(keep_alive)
            .max_sessions(self.sessions.max(1))
            .max_half_open(BACKLOG)
            // All come from one address.
            .max_half_open_of_network(BACKLOG)
            .cookies(CookiePolicy::UnderLoad)
            .shards(self.shards)
            .accept_backlog(BACKLOG);
        #[cfg(feature = "noise")]
        let config = if self.noise { config.noise(key_agreement()) } else { config };
        config.build().map_err(io::Error::other)
    }

    /// Sockets of the client. The system spreads them over the server's by their ports.
    pub(crate) fn sockets(&self) -> usize {
        let several = if self.shards > 1 { 16 * usize::from(self.shards) } else { 1 };
        self.sockets.unwrap_or(several).max(1)
    }

    pub(crate) const fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// What both ends of a session know: as both are this program, any key does.
#[cfg(feature = "noise")]
fn key_agreement() -> Noise {
    let psk = || Psk::from_bytes(&[9; 32]);
    Noise::from(Responder::nn_psk0(psk())).with_initiator(Initiator::nn_psk0(psk()))
}
