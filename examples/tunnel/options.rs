//! The command line: kcptun's flags, their aliases and defaults, and a few of our own.
//!
//! Numbers are as wide as kcptun's and are checked in `settings`, where those of the JSON file are as well.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

/// TCP and Unix-socket connections through KCP, with kcptun's clients and servers or between its own.
#[derive(Parser)]
#[command(name = "tunnel", version, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) role: Role,
}

#[derive(Subcommand)]
pub(crate) enum Role {
    /// Accepts connections and takes them to a server
    #[command(version, disable_version_flag = true)]
    Client(Client),
    /// Takes the connections of clients to a target
    #[command(version, disable_version_flag = true)]
    Server(Server),
}

#[derive(Args)]
pub(crate) struct Client {
    /// Where connections are accepted: HOST:PORT, :PORT or the path of a Unix socket
    #[arg(long, short, value_name = "ADDR", default_value = ":12948")]
    pub(crate) localaddr: String,
    /// The server: HOST:PORT, or HOST:FIRST-LAST for a port at random of each session
    #[arg(long, short, value_name = "ADDR", default_value = "vps:29900")]
    pub(crate) remoteaddr: String,
    /// KCP sessions that take connections in turn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) conn: i64,
    /// Seconds after which a session takes no more connections and another begins; 0 for never
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(crate) autoexpire: i64,
    /// Seconds that the connections of an expired session have left
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) scavengettl: i64,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args)]
pub(crate) struct Server {
    /// Where clients come to, over UDP: HOST:PORT or :PORT, or a range as :FIRST-LAST
    #[arg(long, short, value_name = "ADDR", default_value = ":29900")]
    pub(crate) listen: String,
    /// Where connections go: HOST:PORT, or the path of a Unix socket
    #[arg(long, short, value_name = "ADDR", default_value = "127.0.0.1:12948")]
    pub(crate) target: String,
    /// Refused: kcptun's profiler is Go's
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub(crate) pprof: bool,
    /// Ours: seconds for which the key before is accepted after SIGHUP has brought a new one
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) oldkeyttl: i64,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args)]
pub(crate) struct Common {
    /// Pre-shared secret of both ends
    #[arg(long, value_name = "WORDS", default_value = DEFAULT_KEY, env = "KCPTUN_KEY", hide_env_values = true)]
    pub(crate) key: String,
    /// aes, aes-128, aes-192, salsa20, blowfish, twofish, cast5, 3des, tea, xtea, xor, sm4, none; ours: aes-128-gcm, aes-192-gcm,
    /// aes-256-gcm, chacha20-poly1305, xchacha20-poly1305, null
    #[arg(long, value_name = "NAME", default_value = "aes")]
    pub(crate) crypt: String,
    /// Ours: how the key is made of the secret
    #[arg(long, value_name = "NAME", default_value = "kcptun")]
    pub(crate) kdf: Kdf,
    /// fast3, fast2, fast, normal, or manual with nodelay, interval, resend and nc; ours: auto, which sends as much as the path takes
    #[arg(long, value_name = "NAME", default_value = "fast")]
    pub(crate) mode: String,
    /// Bytes of a UDP packet, at most
    #[arg(long, value_name = "BYTES", default_value_t = 1_350)]
    pub(crate) mtu: i64,
    /// Send window, in packets [default: client 128, server 1024; mode auto 2048]
    #[arg(long, value_name = "PACKETS")]
    pub(crate) sndwnd: Option<i64>,
    /// Receive window, in packets [default: client 512, server 1024; mode auto 2048]
    #[arg(long, value_name = "PACKETS")]
    pub(crate) rcvwnd: Option<i64>,
    /// Data packets of a group of forward error correction; 0 turns it off [default: 10; mode auto 0]
    #[arg(long, visible_alias = "ds", value_name = "N")]
    pub(crate) datashard: Option<i64>,
    /// Parity packets of a group; 0 turns it off [default: 3; mode auto 0]
    #[arg(long, visible_alias = "ps", value_name = "N")]
    pub(crate) parityshard: Option<i64>,
    /// DSCP of the UDP packets: 0 to 63
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) dscp: i64,
    /// No compression
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub(crate) nocomp: bool,
    /// Acknowledge every packet at once
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub(crate) acknodelay: bool,
    /// Mode manual: short timeouts
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) nodelay: i64,
    /// Mode manual: milliseconds that an ACK may wait
    #[arg(long, hide = true, default_value_t = 50)]
    pub(crate) interval: i64,
    /// Mode manual: resend after so many later ACKs
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) resend: i64,
    /// Mode manual: no congestion control
    #[arg(long, hide = true, default_value_t = 0)]
    pub(crate) nc: i64,
    /// Buffers of a UDP socket, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 4_194_304)]
    pub(crate) sockbuf: i64,
    /// Ours: smux, or none for a KCP session of its own for each connection
    #[arg(long, value_name = "NAME", default_value = "smux")]
    pub(crate) mux: Mux,
    /// Version of smux: 1 or 2
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) smuxver: i64,
    /// Receive buffer of a session, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 4_194_304)]
    pub(crate) smuxbuf: i64,
    /// Receive buffer of a stream, in bytes, for smux 2
    #[arg(long, value_name = "BYTES", default_value_t = 2_097_152)]
    pub(crate) streambuf: i64,
    /// Seconds between signs of life: 1 to 30
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) keepalive: i64,
    /// A file for counters, as CSV. Go's time layout in its name is the current time, as in ./snmp-20060102.log
    #[arg(long, value_name = "FILE", default_value = "")]
    pub(crate) snmplog: String,
    /// Seconds between two lines of it; 0 for none
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) snmpperiod: i64,
    /// A file for messages, instead of stderr
    #[arg(long, value_name = "FILE", default_value = "")]
    pub(crate) log: String,
    /// No messages of streams that open and close
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub(crate) quiet: bool,
    /// Refused: TCP packets from a raw socket
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub(crate) tcp: bool,
    /// Ours: seconds that connections have left after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) drain: i64,
    /// A JSON file, whose values override the flags
    #[arg(short, value_name = "FILE")]
    pub(crate) c: Option<PathBuf>,
    /// Print version
    #[arg(long, short, action = ArgAction::Version)]
    version: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kdf {
    /// PBKDF2 with kcptun's constants: cheap to guess at
    Kcptun,
    /// Argon2id: between two ends of this program
    Argon2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mux {
    Smux,
    None,
}

impl Role {
    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::Client(client) => &client.common,
            Self::Server(server) => &server.common,
        }
    }
}

/// kcptun's own default, as it spells it. Everyone knows it.
pub(crate) const DEFAULT_KEY: &str = "it's a secrect";
