//! Counters of one UDP socket and the driver that serves it.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What has happened on one UDP socket and the driver that serves it, over all of its sessions.
        ///
        /// A snapshot; but for `sessions`, counters start at zero with the socket and only grow.
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
    /// Sessions opened by packets from new peers.
    accepted,
    /// Times that the driver task ran: none while every session is idle.
    wakeups,
    /// Deadlines of sessions that came.
    timeouts,
    /// Receive system calls that returned packets.
    recv_calls,
    /// Datagrams received.
    packets_received,
    /// Send system calls.
    send_calls,
    /// Datagrams sent.
    packets_sent,
    /// Datagrams dropped: too short for a segment header, or for what encryption puts around it.
    dropped_short,
    /// Datagrams dropped: longer than the cipher takes.
    dropped_long,
    /// Datagrams dropped: they belong to no session and do not open one.
    dropped_no_session,
    /// Datagrams dropped: they would open a session, but too many wait to be accepted.
    dropped_backlog,
    /// Datagrams dropped, or their rest: a session could not make sense of them.
    dropped_malformed,
    /// Datagrams dropped: their checksum was wrong. They are damaged, or sealed with another key.
    dropped_bad_checksum,
    /// Datagrams dropped: their tag was wrong. They are forged, damaged, or sealed with another key.
    dropped_bad_tag,
    /// Datagrams dropped: the very same were received before.
    dropped_replayed,
    /// Receive system calls that failed.
    recv_errors,
    /// Send system calls that failed; their packets are lost, as any may be.
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
