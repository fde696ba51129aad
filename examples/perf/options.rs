//! The command line.

use std::{io, str::FromStr, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use kcp9::{CongestionControl, KcpConfig, NoDelay};

use crate::{
    encryption::{Crypt, Encryption},
    fec::Fec,
};

const CLEAR: Crypt = Crypt(None);

/// Measures kcp9 over real sockets.
#[derive(Debug, Parser)]
#[command(name = "perf", version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serves until a signal comes.
    Serve(Serve),
    /// Moves bytes to a server and prints the figures.
    Drive(Drive),
    /// Both ends in one process.
    #[command(name = "self")]
    Self_(Drive),
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Address to bind.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) addr: String,
    /// Seconds without input after which a session is dropped; 0: never.
    #[arg(long, default_value_t = 30.0)]
    idle: f64,
    #[command(flatten)]
    pub(crate) session: Session,
}

impl Serve {
    pub(crate) fn idle(&self) -> Option<Duration> {
        limit(self.idle)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Drive {
    /// Address to connect to; for `self`, to bind.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) addr: String,
    /// Payload bytes in all, shared among the connections; K, M and G are decimal.
    #[arg(long, default_value = "10M", value_parser = parse_count)]
    pub(crate) bytes: u64,
    /// Bytes per write.
    #[arg(long, default_value = "65536", value_parser = parse_size)]
    pub(crate) msg: usize,
    /// Connections, all at the same time.
    #[arg(long, default_value = "1", value_parser = parse_size)]
    pub(crate) conns: usize,
    /// Seed of the payload.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Seconds to keep the connections open and idle afterwards. They count in `cpu_s`, not in `secs`.
    #[arg(long, default_value_t = 0.0)]
    hold: f64,
    /// All connections over one socket instead of one each.
    #[arg(long)]
    pub(crate) one_socket: bool,
    #[command(flatten)]
    pub(crate) session: Session,
}

impl Drive {
    pub(crate) fn hold(&self) -> Option<Duration> {
        limit(self.hold)
    }
}

/// What both ends have to agree on, and what each may choose.
#[derive(Debug, Clone, Args)]
pub(crate) struct Session {
    /// What the server does.
    #[arg(long, value_enum, default_value_t = Mode::Echo)]
    pub(crate) mode: Mode,
    #[command(flatten)]
    encryption: Encryption,
    /// Data and parity packets of an FEC group; 0/0: none.
    #[arg(long, value_name = "DATA/PARITY", default_value = "0/0")]
    fec: Fec,
    /// UDP payload bytes per packet.
    #[arg(long)]
    mtu: Option<usize>,
    /// Send and receive window, segments.
    #[arg(long)]
    wnd: Option<u32>,
    /// nodelay,interval,resend,nc, or a preset: normal, fast, fast2, fast3, ikcp.
    #[arg(long, value_parser = NoDelay::from_str)]
    nodelay: Option<NoDelay>,
    /// Congestion control: bbr, bbr3, cubic, delay or kcp, or none, which turns nc on. Default: as nodelay has it, or bbr.
    #[arg(long, value_name = "NAME")]
    cc: Option<Control>,
    /// Stream mode, true or false.
    #[arg(long)]
    stream: Option<bool>,
    /// Acknowledge every batch of packets at once, true or false.
    #[arg(long)]
    ack_nodelay: Option<bool>,
    /// Seconds until the whole run counts as failed; 0: never. Default 60, for serve 0.
    #[arg(long)]
    timeout: Option<f64>,
    /// Print the counters of sessions and sockets on stderr.
    #[arg(long)]
    pub(crate) stats: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    Echo,
    Sink,
}

/// How a sender adapts to the path, if it does.
#[derive(Debug, Clone)]
struct Control(Option<CongestionControl>);

impl FromStr for Control {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "none" => Ok(Self(None)),
            _ => {
                name.parse().map(|control| Self(Some(control))).map_err(|error| format!("{error}, nor none"))
            }
        }
    }
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Sink => "sink",
        }
    }
}

impl Session {
    /// The default settings, but for the flags given.
    pub(crate) fn config(&self, idle: Option<Duration>) -> io::Result<KcpConfig> {
        let default = KcpConfig::default();
        let mut nodelay = self.nodelay.unwrap_or(default.nodelay());
        let mut control = default.congestion_control().clone();
        if let Some(Control(chosen)) = &self.cc {
            nodelay.nc = chosen.is_none();
            control = chosen.clone().unwrap_or(control);
        }
        KcpConfig::builder()
            .mtu(self.mtu.unwrap_or(default.mtu()))
            .send_window(self.wnd.unwrap_or(default.send_window()))
            .recv_window(self.wnd.unwrap_or(default.recv_window()))
            .nodelay(nodelay)
            .congestion_control(control)
            .stream(self.stream.unwrap_or(default.stream()))
            .ack_no_delay(self.ack_nodelay.unwrap_or(default.ack_no_delay()))
            .idle_timeout(idle)
            .fec(self.fec.data, self.fec.parity)
            .crypto(self.encryption.packet_crypto(CLEAR)?)
            .build()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }

    pub(crate) fn fec(&self) -> String {
        self.fec.to_string()
    }

    /// The cipher's name; in the clear unless the command line says otherwise.
    pub(crate) fn crypt(&self) -> String {
        self.encryption.crypt(CLEAR).to_string()
    }

    /// The limit of the whole run, `default` seconds if the command line says nothing.
    pub(crate) fn timeout(&self, default: f64) -> Option<Duration> {
        limit(self.timeout.unwrap_or(default))
    }
}

/// Seconds, of which 0 means none.
fn limit(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero())
}

/// A number of at least 1, with a decimal suffix.
fn parse_count(text: &str) -> Result<u64, String> {
    let (digits, scale) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        Some((at, 'g' | 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|error| format!("{error}"))?;
    number.checked_mul(scale).filter(|count| *count > 0).ok_or_else(|| "out of range".to_owned())
}

fn parse_size(text: &str) -> Result<usize, String> {
    usize::try_from(parse_count(text)?).map_err(|error| format!("{error}"))
}
