//! The pieces of work, and who can do them.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What the driver and the server do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Work {
    Sink,
    Echo,
    Ping,
}

/// What protects the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Crypt {
    Plain,
    #[value(name = "aes-128-gcm")]
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// Salsa20 and FEC of 10 data and 3 parity packets.
    #[value(name = "salsa20-fec")]
    #[serde(rename = "salsa20-fec")]
    Salsa20Fec,
}

/// Between driver and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Path {
    Loopback,
    /// Through the relay, which loses this many percent each way.
    Relay(u32),
}

/// Round trip through the relay, milliseconds.
pub(crate) const RELAY_RTT_MS: u64 = 50;
/// Losses of the relay, percent each way.
const LOSSES: [u32; 4] = [0, 1, 5, 10];
/// Connections that ping at the same time through the relay. Each mostly waits, and only many pings show rare events.
const RELAY_CONNS: usize = 32;

/// One piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) work: Work,
    pub(crate) crypt: Crypt,
    pub(crate) path: Path,
    pub(crate) conns: usize,
    pub(crate) msg: usize,
}

impl Cell {
    /// All of them, in the order in which they are measured and shown.
    pub(crate) fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for work in [Work::Sink, Work::Echo] {
            for crypt in Crypt::value_variants() {
                for conns in [1, 8] {
                    for msg in [64, 1 << 10, 64 << 10] {
                        cells.push(Self::bulk(work, *crypt, conns, msg));
                    }
                }
            }
        }
        cells.push(Self::ping(Path::Loopback));
        cells.extend(LOSSES.map(|loss| Self::ping(Path::Relay(loss))));
        cells
    }

    pub(crate) const fn bulk(work: Work, crypt: Crypt, conns: usize, msg: usize) -> Self {
        Self { work, crypt, path: Path::Loopback, conns, msg }
    }

    pub(crate) const fn ping(path: Path) -> Self {
        let conns = match path {
            Path::Loopback => 1,
            Path::Relay(_) => RELAY_CONNS,
        };
        Self { work: Work::Ping, crypt: Crypt::Plain, path, conns, msg: 64 }
    }

    /// Whether a peer of this name has what the cell needs. quinn's connections are always under TLS; they are compared with
    /// plain ones too, since QUIC has none.
    pub(crate) fn suits(&self, peer: &str) -> bool {
        match (peer, self.work, self.crypt) {
            ("udp", work, _) => work == Work::Ping && self.path == Path::Loopback,
            ("tcp", _, crypt) => crypt == Crypt::Plain && self.path == Path::Loopback,
            ("quinn", _, crypt) => crypt != Crypt::Salsa20Fec,
            ("tokio_kcp" | "kcp-tokio", _, crypt) => crypt == Crypt::Plain,
            ("kcp-go-5.6.1", _, crypt) => crypt != Crypt::Aes128Gcm,
            _ => true,
        }
    }

    /// Whether the figures compared differ less from each other than from run to run, because of the machine's other work. A ping
    /// over loopback is a few wake-ups of threads, and eight connections move about as much as one.
    pub(crate) fn is_close(&self) -> bool {
        *self == Self::ping(Path::Loopback)
            || *self == Self { conns: self.conns, ..Self::bulk(Work::Sink, Crypt::Plain, 1, 64 << 10) }
    }

    /// The words by which `--only` picks it.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = vec![self.work.to_string(), self.crypt.to_string()];
        words.push(size(self.msg).replace(' ', ""));
        words.push(conns(self.conns).replace(' ', ""));
        words.push(match self.path {
            Path::Loopback => "loopback".to_owned(),
            Path::Relay(_) => "relay".to_owned(),
        });
        if let Path::Relay(loss) = self.path {
            words.push(format!("loss{loss}"));
        }
        words
    }

    /// How it differs from others of the same work and cipher.
    pub(crate) fn variant(&self) -> String {
        match (self.work, self.path) {
            (Work::Ping, Path::Loopback) => "loopback".to_owned(),
            (_, Path::Relay(loss)) => format!("{RELAY_RTT_MS} ms, {loss} % loss"),
            _ => format!("{}, {}", size(self.msg), conns(self.conns)),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.work, self.crypt, self.variant())
    }
}

fn size(bytes: usize) -> String {
    if bytes < 1 << 10 { format!("{bytes} B") } else { format!("{} KB", bytes >> 10) }
}

fn conns(count: usize) -> String {
    if count == 1 { "1 conn".to_owned() } else { format!("{count} conns") }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sink => "sink",
            Self::Echo => "echo",
            Self::Ping => "ping",
        })
    }
}

impl fmt::Display for Crypt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Salsa20Fec => "salsa20-fec",
        })
    }
}
