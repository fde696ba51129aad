//! The command line.

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand};

use crate::ws::{Deflate, Settings, Transport, code};

/// WebSocket over KCP: an echo server, a client, and a comparison with TCP
#[derive(Debug, Parser)]
#[command(name = "websocket", version)]
pub(crate) struct Options {
    /// Without one: a server and clients in one process, which check each other
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send every message back, until Ctrl-C
    Server(ServerOptions),
    /// Send messages, and print what comes
    Client(ClientOptions),
    /// Messages a second and memory of many connections, over KCP and over TCP
    Bench(BenchOptions),
    /// Be the client of the Autobahn test suite's `fuzzingserver`, over TCP
    Autobahn(AutobahnOptions),
    /// The client process of `bench`
    #[command(hide = true)]
    Measure(BenchOptions),
}

/// What both ends have.
#[derive(Debug, Clone, Args)]
pub(crate) struct Common {
    /// The longest message that is taken
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub(crate) max_message: usize,
    /// A subprotocol that is spoken here; may be given several times, the best first
    #[arg(long, value_name = "NAME")]
    subprotocol: Vec<String>,
    /// Compress messages, if the other end does
    #[arg(long)]
    pub(crate) compress: bool,
    /// Compress each message by itself: less memory, and less compression
    #[arg(long, requires = "compress")]
    no_context_takeover: bool,
    /// Look for repetitions in the last 2^BITS bytes: 9 to 15
    #[arg(long, value_name = "BITS", default_value_t = 15, value_parser = clap::value_parser!(u8).range(9..=15), requires = "compress")]
    window_bits: u8,
    /// How hard to compress: 0 to 9
    #[arg(long, value_name = "LEVEL", default_value_t = 6, value_parser = clap::value_parser!(u32).range(0..=9), requires = "compress")]
    level: u32,
    /// Send longer messages in frames of this size
    #[arg(long, value_name = "BYTES")]
    fragment: Option<usize>,
}

impl Common {
    pub(crate) fn settings(&self) -> Settings {
        let (level, window_bits) = (self.level, self.window_bits);
        let deflate = Deflate { level, no_context_takeover: self.no_context_takeover, window_bits };
        Settings {
            max_message: self.max_message,
            fragment: self.fragment,
            deflate: self.compress.then_some(deflate),
            subprotocols: self.subprotocol.clone(),
            ..Settings::default()
        }
    }

    /// The arguments that say the same to another process.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![format!("--max-message={}", self.max_message)];
        arguments.extend(self.subprotocol.iter().map(|name| format!("--subprotocol={name}")));
        arguments.extend(self.fragment.map(|bytes| format!("--fragment={bytes}")));
        if self.compress {
            arguments.push("--compress".to_owned());
            arguments.push(format!("--window-bits={}", self.window_bits));
            arguments.push(format!("--level={}", self.level));
            if self.no_context_takeover {
                arguments.push("--no-context-takeover".to_owned());
            }
        }
        arguments
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServerOptions {
    /// The address to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:4080")]
    pub(crate) addr: SocketAddr,
    /// Over TCP, in place of KCP
    #[arg(long)]
    pub(crate) tcp: bool,
    /// Connections at a time; further ones are dropped
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) max_connections: usize,
    /// Print the address only, and resident memory for each line that is read; end with the input. `bench` starts it so
    #[arg(long, hide = true)]
    pub(crate) figures: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What `--tcp` chooses.
pub(crate) const fn transport(tcp: bool) -> Transport {
    if tcp { Transport::Tcp } else { Transport::Kcp }
}

#[derive(Debug, Args)]
pub(crate) struct ClientOptions {
    /// The server
    #[arg(value_name = "ws://HOST:PORT/PATH or HOST:PORT")]
    pub(crate) url: Url,
    /// Over TCP, in place of KCP
    #[arg(long)]
    pub(crate) tcp: bool,
    /// Send a text message
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// Send a binary message
    #[arg(long, value_name = "HEX", value_parser = hex)]
    pub(crate) binary: Vec<Hex>,
    /// Send a ping first
    #[arg(long)]
    pub(crate) ping: bool,
    /// The code to close with: 1000, or 3000 to 4999
    #[arg(long, value_name = "CODE", default_value_t = code::NORMAL, value_parser = close_code)]
    pub(crate) close_code: u16,
    /// The reason to close with
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) close_reason: String,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct BenchOptions {
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) connections: usize,
    /// Messages that each connection sends and has sent back
    #[arg(long, value_name = "M", default_value_t = 100)]
    pub(crate) messages: usize,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub(crate) size: usize,
    /// Messages that are under way at a time, each of another connection
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) at_once: usize,
    /// How often each transport has its turn
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) rounds: usize,
    /// How long the connections are idle before memory is looked at; those of KCP give back by then what they keep for traffic
    #[arg(long, value_name = "SECS", default_value_t = 4)]
    pub(crate) settle: u64,
    /// One transport only
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<Transport>,
    /// Print a line of JSON for each round, in place of a table
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct AutobahnOptions {
    /// The fuzzing server
    #[arg(value_name = "HOST:PORT", default_value = "127.0.0.1:9001")]
    pub(crate) server: String,
    /// The first case to run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) first: u32,
    /// The last case to run; without it, all
    #[arg(long, value_name = "N")]
    pub(crate) last: Option<u32>,
}

/// Where a WebSocket is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    /// Host and port.
    pub(crate) host: String,
    pub(crate) path: String,
}

impl std::str::FromStr for Url {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with("wss://") {
            return Err("this program has no TLS: the example `tls` shows how it goes under a stream");
        }
        let rest = text.strip_prefix("ws://").unwrap_or(text);
        let (host, path) = match rest.find(['/', '?']) {
            Some(end) => rest.split_at(end),
            None => (rest, ""),
        };
        if host.is_empty() || host.contains(['@', '#']) {
            return Err("not ws://HOST:PORT/PATH");
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host = if has_port { host.to_owned() } else { format!("{host}:80") };
        Ok(Self { host, path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") } })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Hex(pub(crate) Vec<u8>);

fn hex(text: &str) -> Result<Hex, &'static str> {
    let byte = |pair: &[u8]| {
        let pair =
            std::str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|digit| digit.is_ascii_hexdigit()));
        pair.filter(|pair| pair.len() == 2).and_then(|pair| u8::from_str_radix(pair, 16).ok())
    };
    let bytes: Option<_> = text.as_bytes().chunks(2).map(byte).collect();
    bytes.map(Hex).ok_or("not pairs of hexadecimal digits")
}

fn close_code(text: &str) -> Result<u16, &'static str> {
    let code = text.parse().ok();
    code.filter(|code| matches!(code, 1_000..=1_003 | 1_007..=1_014 | 3_000..=4_999))
        .ok_or("not a code that an end may send")
}
