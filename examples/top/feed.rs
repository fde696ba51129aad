//! What a server tells the example `top`, once a second over a Unix socket: a line of JSON.

use std::net::SocketAddr;

use kcp9::{EndpointStats, KcpHandle, Stats};
use serde::{Deserialize, Serialize};

/// All sessions at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// Milliseconds since the server began.
    pub(crate) time: u64,
    /// How many sessions there are; `sessions` has at most [`MAX_SESSIONS`] of them.
    pub(crate) count: u64,
    /// Bytes that the sessions' buffers have taken of what they share.
    pub(crate) memory: u64,
    pub(crate) sessions: Vec<Session>,
}

/// A session. Counters are sums since it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) peer: SocketAddr,
    pub(crate) conv: u32,
    /// Bytes of UDP payload.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Microseconds; zero before the first measurement.
    pub(crate) rtt: u64,
    /// Segments sent for the first time, and again.
    pub(crate) pushed: u64,
    pub(crate) resent: u64,
    /// Packets.
    pub(crate) recovered: u64,
    pub(crate) unrecoverable: u64,
    /// Bytes of its buffers, in use or spare.
    pub(crate) memory: u64,
}

impl Session {
    pub(crate) fn of(handle: &KcpHandle) -> Self {
        Self::with(handle.peer_addr(), handle.conv(), &handle.stats())
    }

    /// What its `stats` say.
    pub(crate) fn with(peer: SocketAddr, conv: u32, stats: &Stats) -> Self {
        Self {
            peer,
            conv,
            sent: stats.udp.bytes_sent,
            received: stats.udp.bytes_received,
            rtt: stats.path.rtt.as_micros() as u64,
            pushed: stats.segments.push_sent,
            resent: stats.recovery.resends(),
            recovered: stats.fec.recovered,
            unrecoverable: stats.fec.unrecoverable,
            memory: stats.queues.memory_bytes as u64,
        }
    }
}

impl Snapshot {
    pub(crate) fn of(time: u64, endpoint: &EndpointStats, sessions: Vec<Session>) -> Self {
        Self { time, count: endpoint.state.sessions, memory: endpoint.state.buffer_memory, sessions }
    }
}

/// Sessions that are told of: a reader's memory must not grow with what a server has.
pub(crate) const MAX_SESSIONS: usize = 10_000;
/// The longest line: each session has less than 300 bytes.
pub(crate) const MAX_LINE: u64 = 4 << 20;
