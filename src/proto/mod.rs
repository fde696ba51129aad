//! The protocol as state machines: no I/O, no clock, no randomness, no std.
//!
//! [`Connection`] is one session and the only type the layer above talks to; its documentation says what to call in
//! which order. Below it, dependencies point one way:
//!
//! ```text
//! connection   lifecycle, events, batches of packets
//!   pipeline   what stands around the segments of a packet
//!   datagrams  what travels beside the stream, unreliably
//!   arq        reliability: queues, ACKs, timers, resends, windows
//!   wire       the segment
//!   fec        parity of packets, and what is recovered from it
//!   replay     which packets were seen before
//!   config error stats time random
//! ```

mod arq;
mod config;
mod connection;
mod datagrams;
mod error;
pub mod fec;
pub(crate) mod pipeline;
mod random;
pub(crate) mod replay;
mod seq;
mod stats;
pub(crate) mod time;
mod wire;

pub use self::fec::packet::peek_conv;
pub use self::{
    arq::Block,
    config::{CongestionControl, KcpConfig, KcpConfigBuilder, NoDelay},
    connection::{Connection, Event, Transmit},
    error::{
        CloseReason, ConfigError, DatagramSendError, PacketError, ReadError, SegmentError, SettingError,
        UnknownPreset, WriteError,
    },
    random::{Random, random_conv},
    stats::{FecStats, OutOfBandStats, Stats},
    time::Instant,
    wire::{Command, HEADER_LEN, SegmentHeader, Segments},
};
