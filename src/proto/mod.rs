//! The protocol as state machines: no I/O, no clock, no randomness, no std.
//!
//! [`Connection`] is one session, [`Endpoint`] finds the session of each packet where many share a socket. They do not know
//! each other: the layer above hands over from one to the other. Their documentation says what to call in which order.
//! Dependencies point one way:
//!
//! ```text
//! endpoint     many sessions: decrypts, routes, admits
//! connection   one session: lifecycle, events, batches of packets
//!   pipeline   encryption, replays and FEC around the segments of a packet
//!   datagrams  unreliable messages beside the stream
//!   extension  what peers of this crate say beyond KCP: who they are
//!   arq        reliability: queues, ACKs, timers, resends, windows
//!   path       round-trip times, mtu, pacing: what is known of the path used
//!   congestion the controllers, and the delivery rate that they go by
//!   wire       the segment
//!   path       RTT, MTU, pacing and congestion control of one path
//!     congestion  the trait, and one file a controller
//!   fec        parity of packets, and recovery from it
//!   noise      handshakes and sealed packets with keys of each session, for those who send packets themselves
//!   replay     which packets were received before
//!   config error stats time timer random
//! ```

#[cfg(feature = "noise")]
mod agreement;
mod arq;
mod config;
pub mod congestion;
mod connection;
mod datagrams;
mod ecn;
mod endpoint;
mod error;
mod extension;
pub mod fec;
mod memory;
#[cfg(feature = "noise")]
pub mod noise;
mod path;
pub(crate) mod pipeline;
mod random;
pub(crate) mod replay;
mod seq;
mod stats;
pub(crate) mod time;
mod timer;
pub(crate) mod trace;
mod wire;

#[cfg(feature = "noise")]
pub use self::agreement::EarlyData;
#[cfg(feature = "tokio")]
pub(crate) use self::endpoint::FirstPackets;
#[cfg(all(feature = "tracing", feature = "tokio"))]
pub(crate) use self::endpoint::WarningLimit;
pub use self::fec::packet::peek_conv;
pub use self::{
    arq::Block,
    config::{CookiePolicy, KcpConfig, KcpConfigBuilder, NoDelay, SessionSettings},
    congestion::CongestionControl,
    connection::{BatchDrops, ClosedRecord, Connection, Event, RebindError, Transmit},
    ecn::EcnCodepoint,
    endpoint::{
        Accepted, ConnectError, Endpoint, HandOver, Handle, Incoming, MoveError, Refusal, ReplacedElsewhere,
        Reply, RotateError, Routed, RoutingStats, Run, ShardTable,
    },
    error::{
        AbortReason, CloseReason, ConfigError, DatagramSendError, HandshakeError, PacketError, ReadError,
        SegmentError, SettingError, UnknownController, UnknownPreset, WriteError,
    },
    extension::{Extensions, SessionSeed},
    memory::BufferMemory,
    path::EcnState,
    random::{Random, random_conv},
    stats::{
        DatagramQueueState, DatagramStats, EcnStats, ExtensionStats, FecState, FecStats, MtuStats, PathState,
        QueueState, RecoveryStats, SegmentStats, Stats, StreamStats, UdpStats,
    },
    time::Instant,
    timer::Timer,
    wire::{Command, HEADER_LEN, SegmentHeader, Segments},
};
