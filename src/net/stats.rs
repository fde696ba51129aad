//! Counters and gauges of one UDP socket and the driver that serves it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Defines each group twice: as the atomics that streams and the driver count in, and as the snapshot that is public.
macro_rules! groups {
    ($($(#[$group_doc:meta])* $group:ident: $Snapshot:ident from $Atomics:ident {
        $($(#[$doc:meta])* $name:ident,)*
    })*) => {
        /// A snapshot of the counters and gauges of one UDP socket and the driver that serves it, in all of its sessions.
        ///
        /// Every group is either all counters or all gauges. Counters start at zero with the socket and only grow; the types of
        /// their groups end in `Stats`. Gauges say how things stand now; the types of their groups end in `State`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct EndpointStats {
            $($(#[$group_doc])* pub $group: $Snapshot,)*
        }

        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $group: $Atomics,)*
        }

        impl EndpointStats {
            /// Those of both, added up.
            pub(super) fn add(mut self, other: &Self) -> Self {
                $($(self.$group.$name += other.$group.$name;)*)*
                self
            }
        }

        impl Counters {
            pub(super) fn snapshot(&self) -> EndpointStats {
                EndpointStats { $($group: $Snapshot { $($name: self.$group.$name.get(),)* },)* }
            }
        }

        $(
            $(#[$group_doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
            #[non_exhaustive]
            pub struct $Snapshot {
                $($(#[$doc])* pub $name: u64,)*
            }

            #[derive(Debug, Default)]
            pub(super) struct $Atomics {
                $(pub(super) $name: Counter,)*
            }
        )*
    };
}

groups! {
    /// Counters of the socket's system calls, and of the packets that they moved.
    socket: SocketStats from SocketCounters {
        /// Receive system calls that returned packets.
        recv_calls,
        /// Packets received.
        packets_received,
        /// Receive system calls that failed.
        recv_errors,
        /// Send system calls that succeeded. A batch that the system does not take as a whole needs many.
        send_calls,
        /// Packets sent.
        packets_sent,
        /// Send system calls that failed. Their packets are lost, and resent as other lost packets are.
        send_errors,
        /// Sends that had to wait for room in the socket's buffer.
        send_blocked,
    }
    /// Counters of what the driver did.
    driver: DriverStats from DriverCounters {
        /// Times that the driver's task was polled. It is not while every session is idle.
        wakeups,
        /// Times that the deadline of a session came.
        timeouts,
        /// Sessions that peers began.
        accepted,
        /// Packets for sessions of other shards, which were handed over to these: see [`shards`](crate::KcpConfigBuilder::shards).
        handed_over,
        /// Half-open sessions that gave way to others, because there were too many.
        evicted,
        /// Peers that were asked for a cookie before their session was accepted.
        retries,
        /// Answers to packets of sessions that had ended, sent without a session.
        replies,
        /// Such answers that were not sent, because too many were.
        replies_limited,
        /// Bytes written to streams that were dropped, and given up: the peer had not acknowledged them when
        /// [`linger`](crate::KcpConfigBuilder::linger) was over, or when the session ended before for another reason.
        bytes_abandoned,
    }
    /// Counters of the packets received that were dropped, by cause.
    dropped: DropStats from DropCounters {
        /// Packets that were too short for a segment header, or for what encryption puts around it.
        short,
        /// Packets that were longer than the cipher takes.
        long,
        /// Packets whose checksum was wrong. They are damaged, or encrypted with another key.
        bad_checksum,
        /// Packets whose tag was wrong. They are forged, damaged, or encrypted with another key.
        bad_tag,
        /// Messages of a key agreement that this end refuses: the keys differ, the pattern or the version does, or they are forged or
        /// damaged.
        no_agreement,
        /// Packets that belong to no session and do not begin one.
        no_session,
        /// Packets that would begin a session without a HELLO, where the extensions are required.
        no_hello,
        /// Packets of a session that ended within the last minute, and that begin none anew.
        recently_closed,
        /// Packets that would begin a session while too many wait to be accepted.
        backlog,
        /// Packets that would begin a session while the socket has as many as
        /// [`max_sessions`](crate::KcpConfigBuilder::max_sessions) allows.
        max_sessions,
        /// Packets that would begin a session while as many are half-open as
        /// [`max_half_open`](crate::KcpConfigBuilder::max_half_open) allows.
        max_half_open,
        /// Packets that would begin a session while as many of the peer's network are half-open as
        /// [`max_half_open_of_network`](crate::KcpConfigBuilder::max_half_open_of_network) allows.
        max_half_open_of_network,
        /// Packets that would begin a session, and whose sender is to return a cookie first.
        no_cookie,
        /// Packets of sources that sent more than their share while packets were lost, because more came than the driver could
        /// receive. They are dropped before they are decrypted.
        over_share,
        /// Packets for a session of another shard, to which so many were handed over that it had not taken them in yet.
        shard_busy,
        /// Packets that their session could not read, or not to the end.
        malformed,
        /// Packets that had been received before.
        replayed,
    }
    /// Counters of what was refused for want of the memory that all sessions share:
    /// [`max_buffer_memory`](crate::KcpConfigBuilder::max_buffer_memory).
    memory: MemoryStats from MemoryCounters {
        /// Segments that were not taken in. They are not acknowledged, and their senders send them again.
        refused_segments,
        /// Writes and messages that found no room, or less than they wanted.
        refused_writes,
    }
    /// Gauges of the driver.
    state: EndpointState from EndpointGauges {
        /// Sessions that the driver serves now.
        sessions,
        /// Those of them whose peers have not shown yet that they hear this end.
        half_open,
        /// Those whose streams were dropped, and that still deliver what was written.
        lingering,
        /// Bytes of [`max_buffer_memory`](crate::KcpConfigBuilder::max_buffer_memory) that the buffers of sessions have taken. What
        /// each may hold without asking is not counted.
        buffer_memory,
    }
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
