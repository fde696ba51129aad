//! Counters of one UDP socket and the driver that serves it.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What has happened on one UDP socket and the driver that serves it, in all of its sessions.
        ///
        /// A snapshot. `sessions` is a gauge; all others are counters, which start at zero with the socket and only grow.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct EndpointStats {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: Counter,)*
        }

        impl Counters {
            pub(super) fn snapshot(&self) -> EndpointStats {
                EndpointStats { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Sessions that the driver serves now.
    sessions,
    /// Sessions that peers began.
    accepted,
    /// Times that the driver's task was polled. It is not while every session is idle.
    wakeups,
    /// Times that the deadline of a session came.
    timeouts,
    /// Receive system calls that returned packets.
    recv_calls,
    /// Packets received.
    packets_received,
    /// Send system calls.
    send_calls,
    /// Packets sent.
    packets_sent,
    /// Packets dropped: too short for a segment header, or for what encryption puts around it.
    dropped_short,
    /// Packets dropped: longer than the cipher takes.
    dropped_long,
    /// Packets dropped: they belong to no session and do not begin one.
    dropped_no_session,
    /// Packets dropped: they would begin a session, but too many wait to be accepted.
    dropped_backlog,
    /// Packets dropped from the first byte on that their session could not read.
    dropped_malformed,
    /// Packets dropped: their checksum was wrong. They are damaged, or encrypted with another key.
    dropped_bad_checksum,
    /// Packets dropped: their tag was wrong. They are forged, damaged, or encrypted with another key.
    dropped_bad_tag,
    /// Packets dropped: they are copies of packets that were received before.
    dropped_replayed,
    /// Receive system calls that failed.
    recv_errors,
    /// Send system calls that failed. Their packets are lost, and resent as other lost packets are.
    send_errors,
    /// Sends that had to wait for room in the socket's buffer.
    send_blocked,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn set(&self, value: usize) {
        self.0.store(value as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
