//! Which figures there are: their names, units, and where they come from.
//!
//! One table for each source. What adds up, exports and documents the figures goes through these tables, so that a new counter is one
//! new line here; a test counts the fields of the sources.

use metrics::Unit;

use crate::{
    net::{error::KcpError, stats::EndpointStats},
    proto::{CloseReason, Stats},
};

/// A figure of a source `S`.
pub(super) struct Figure<S, T> {
    /// The name behind the prefix.
    pub(super) name: &'static str,
    /// Tells figures of one name apart.
    pub(super) label: Option<(&'static str, &'static str)>,
    pub(super) unit: Unit,
    pub(super) help: &'static str,
    pub(super) get: fn(&S) -> T,
}

impl<S, T> Figure<S, T> {
    const fn count(name: &'static str, help: &'static str, get: fn(&S) -> T) -> Self {
        Self { name, label: None, unit: Unit::Count, help, get }
    }

    const fn bytes(name: &'static str, help: &'static str, get: fn(&S) -> T) -> Self {
        Self { name, label: None, unit: Unit::Bytes, help, get }
    }

    const fn seconds(name: &'static str, help: &'static str, get: fn(&S) -> T) -> Self {
        Self { name, label: None, unit: Unit::Seconds, help, get }
    }

    /// One of several causes with the same name.
    const fn of(name: &'static str, cause: &'static str, help: &'static str, get: fn(&S) -> T) -> Self {
        Self { name, label: Some(("cause", cause)), unit: Unit::Count, help, get }
    }
}

/// Counters of a session: every one of [`Stats`].
pub(super) const SESSION: &[Figure<Stats, u64>] = &[
    Figure::count("sent_packets_total", SENT_PACKETS, |stats| stats.udp.packets_sent),
    Figure::bytes("sent_bytes_total", "Bytes of the packets sent, as UDP payload", |stats| {
        stats.udp.bytes_sent
    }),
    Figure::count("received_packets_total", RECEIVED_PACKETS, |stats| stats.udp.packets_received),
    Figure::bytes("received_bytes_total", "Bytes of the packets received, as UDP payload", |stats| {
        stats.udp.bytes_received
    }),
    Figure::of("ignored_packets_total", "wrong_conv", IGNORED, |stats| stats.udp.wrong_conv),
    Figure::of("ignored_packets_total", "malformed", IGNORED, |stats| stats.udp.malformed),
    Figure::of("ignored_packets_total", "forged", IGNORED, |stats| stats.udp.forged),
    Figure::of("ignored_packets_total", "replayed", IGNORED, |stats| stats.udp.replayed),
    Figure::count("sent_segments_total", "Segments sent, resent ones included", |stats| stats.segments.sent),
    Figure::count("received_segments_total", "Segments received, duplicates included", |stats| {
        stats.segments.received
    }),
    Figure::count("sent_push_segments_total", "PUSH segments sent for the first time", |stats| {
        stats.segments.push_sent
    }),
    Figure::count("received_push_segments_total", "PUSH segments received, duplicates included", |stats| {
        stats.segments.push_received
    }),
    Figure::count("sent_ack_segments_total", "ACK segments sent", |stats| stats.segments.acks_sent),
    Figure::count("received_ack_segments_total", "ACK segments received", |stats| {
        stats.segments.acks_received
    }),
    Figure::count("sent_window_probes_total", "Window probes sent", |stats| stats.segments.window_probes),
    Figure::count("duplicate_segments_total", "PUSH segments received that had arrived before", |stats| {
        stats.segments.duplicates
    }),
    Figure::count(
        "out_of_window_segments_total",
        "PUSH segments refused because they lay past the window",
        |stats| stats.segments.out_of_window,
    ),
    Figure::of("retransmitted_segments_total", "fast", RESENT, |stats| stats.recovery.fast_resends),
    Figure::of("retransmitted_segments_total", "early", RESENT, |stats| stats.recovery.early_resends),
    Figure::of("retransmitted_segments_total", "timeout", RESENT, |stats| stats.recovery.timeout_resends),
    Figure::count("fec_flush_copies_total", "Copies sent because an FEC group stayed incomplete", |stats| {
        stats.recovery.fec_flush_copies
    }),
    Figure::bytes("stream_written_bytes_total", "Bytes that the application has written", |stats| {
        stats.stream.bytes_written
    }),
    Figure::bytes("stream_read_bytes_total", "Bytes that the application has read", |stats| {
        stats.stream.bytes_read
    }),
    Figure::count("fec_sent_parity_packets_total", "Parity packets sent", |stats| stats.fec.parity_sent),
    Figure::count("fec_received_parity_packets_total", "Parity packets received", |stats| {
        stats.fec.parity_received
    }),
    Figure::count("fec_wasted_parity_packets_total", "Parity packets received in vain", |stats| {
        stats.fec.parity_wasted
    }),
    Figure::count("fec_complete_groups_total", "FEC groups whose data packets all arrived", |stats| {
        stats.fec.groups_complete
    }),
    Figure::count("fec_recovered_packets_total", "Data packets computed from parity", |stats| {
        stats.fec.recovered
    }),
    Figure::count(
        "fec_unrecoverable_packets_total",
        "Data packets still missing when their FEC group was given up",
        |stats| stats.fec.unrecoverable,
    ),
    Figure::count(
        "fec_late_packets_total",
        "Packets that came after their FEC group had been given up",
        |stats| stats.fec.late,
    ),
    Figure::count(
        "fec_mismatched_packets_total",
        "Packets that contradicted the peer's FEC group size",
        |stats| stats.fec.mismatches,
    ),
    Figure::count(
        "fec_peer_changes_total",
        "Times that the peer's FEC group size was found to differ",
        |stats| stats.fec.peer_changes,
    ),
    Figure::count("sent_datagrams_total", "Datagrams sent", |stats| stats.datagrams.sent),
    Figure::count("received_datagrams_total", "Datagrams received and queued for the application", |stats| {
        stats.datagrams.received
    }),
    Figure::of("dropped_datagrams_total", "unsent", DATAGRAMS, |stats| stats.datagrams.dropped_unsent),
    Figure::of("dropped_datagrams_total", "unread", DATAGRAMS, |stats| stats.datagrams.dropped_unread),
    Figure::of("dropped_datagrams_total", "unwanted", DATAGRAMS, |stats| stats.datagrams.unwanted),
    Figure::count("extension_sent_segments_total", "Extension segments sent", |stats| stats.extensions.sent),
    Figure::count(
        "extension_received_segments_total",
        "Extension segments received that meant something",
        |stats| stats.extensions.received,
    ),
    Figure::of("extension_dropped_segments_total", "meaningless", EXTENSIONS, |stats| {
        stats.extensions.dropped
    }),
    Figure::of("extension_dropped_segments_total", "wrong_tag", EXTENSIONS, |stats| {
        stats.extensions.wrong_tag
    }),
    Figure::of("extension_dropped_segments_total", "malformed", EXTENSIONS, |stats| {
        stats.extensions.malformed
    }),
    Figure::of("extension_dropped_segments_total", "unknown", EXTENSIONS, |stats| stats.extensions.unknown),
    Figure::count("moves_total", "Times that a session went on at another address", |stats| {
        stats.extensions.moves
    }),
    Figure::count("ecn_sent_ect0_packets_total", "Packets sent with ECT(0)", |stats| stats.ecn.ect0_sent),
    Figure::count("ecn_received_ect0_packets_total", "Packets received with ECT(0)", |stats| {
        stats.ecn.ect0_received
    }),
    Figure::count("ecn_received_ect1_packets_total", "Packets received with ECT(1)", |stats| {
        stats.ecn.ect1_received
    }),
    Figure::count("ecn_received_ce_packets_total", "Packets received with CE", |stats| stats.ecn.ce_received),
    Figure::count("ecn_sent_reports_total", "ECN reports sent to the peer", |stats| stats.ecn.reports_sent),
    Figure::count("ecn_received_reports_total", "ECN reports of the peer", |stats| {
        stats.ecn.reports_received
    }),
    Figure::count("ecn_reported_ce_packets_total", "Packets that the peer has received with CE", |stats| {
        stats.ecn.ce_reported
    }),
    Figure::count(
        "ecn_congestion_events_total",
        "Times that ECN told the congestion controller of a queue",
        |stats| stats.ecn.congestion_events,
    ),
    Figure::count(
        "mtu_black_holes_total",
        "Times that a path was found to drop long packets that had passed",
        |stats| stats.mtu.black_holes,
    ),
    Figure::count(
        "sent_fragmentable_packets_total",
        "Packets sent without DF because they are longer than the PLPMTU",
        |stats| stats.mtu.fragmentable,
    ),
];

/// Counters of a socket and its driver: every one of [`EndpointStats`].
pub(super) const SOCKET: &[Figure<EndpointStats, u64>] = &[
    Figure::count("socket_receive_calls_total", "Receive system calls that returned packets", |stats| {
        stats.socket.recv_calls
    }),
    Figure::count("socket_received_packets_total", "Packets received from the socket", |stats| {
        stats.socket.packets_received
    }),
    Figure::count("socket_receive_errors_total", "Receive system calls that failed", |stats| {
        stats.socket.recv_errors
    }),
    Figure::count("socket_send_calls_total", "Send system calls that succeeded", |stats| {
        stats.socket.send_calls
    }),
    Figure::count("socket_sent_packets_total", "Packets that the socket took", |stats| {
        stats.socket.packets_sent
    }),
    Figure::count("socket_send_errors_total", "Send system calls that failed", |stats| {
        stats.socket.send_errors
    }),
    Figure::count(
        "socket_send_blocked_total",
        "Sends that waited for room in the socket's buffer",
        |stats| stats.socket.send_blocked,
    ),
    Figure::count("driver_wakeups_total", "Times that a driver's task was polled", |stats| {
        stats.driver.wakeups
    }),
    Figure::count("driver_timeouts_total", "Times that the deadline of a session came", |stats| {
        stats.driver.timeouts
    }),
    Figure::count("sessions_accepted_total", "Sessions that peers began", |stats| stats.driver.accepted),
    Figure::count("handed_over_packets_total", "Packets handed over to other shards", |stats| {
        stats.driver.handed_over
    }),
    Figure::count("sessions_evicted_total", "Half-open sessions that gave way to others", |stats| {
        stats.driver.evicted
    }),
    Figure::count("cookie_retries_total", "Peers that were asked for a cookie first", |stats| {
        stats.driver.retries
    }),
    Figure::count("replies_total", "Answers to packets of sessions that had ended", |stats| {
        stats.driver.replies
    }),
    Figure::count(
        "replies_limited_total",
        "Such answers that were not sent, because too many were",
        |stats| stats.driver.replies_limited,
    ),
    Figure::bytes("abandoned_bytes_total", "Bytes written to dropped streams, and given up", |stats| {
        stats.driver.bytes_abandoned
    }),
    Figure::of("dropped_packets_total", "short", DROPPED, |stats| stats.dropped.short),
    Figure::of("dropped_packets_total", "long", DROPPED, |stats| stats.dropped.long),
    Figure::of("dropped_packets_total", "bad_checksum", DROPPED, |stats| stats.dropped.bad_checksum),
    Figure::of("dropped_packets_total", "bad_tag", DROPPED, |stats| stats.dropped.bad_tag),
    Figure::of("dropped_packets_total", "no_agreement", DROPPED, |stats| stats.dropped.no_agreement),
    Figure::of("dropped_packets_total", "no_session", DROPPED, |stats| stats.dropped.no_session),
    Figure::of("dropped_packets_total", "no_hello", DROPPED, |stats| stats.dropped.no_hello),
    Figure::of("dropped_packets_total", "recently_closed", DROPPED, |stats| stats.dropped.recently_closed),
    Figure::of("dropped_packets_total", "backlog", DROPPED, |stats| stats.dropped.backlog),
    Figure::of("dropped_packets_total", "max_sessions", DROPPED, |stats| stats.dropped.max_sessions),
    Figure::of("dropped_packets_total", "max_half_open", DROPPED, |stats| stats.dropped.max_half_open),
    Figure::of("dropped_packets_total", "max_half_open_of_network", DROPPED, |stats| {
        stats.dropped.max_half_open_of_network
    }),
    Figure::of("dropped_packets_total", "no_cookie", DROPPED, |stats| stats.dropped.no_cookie),
    Figure::of("dropped_packets_total", "over_share", DROPPED, |stats| stats.dropped.over_share),
    Figure::of("dropped_packets_total", "shard_busy", DROPPED, |stats| stats.dropped.shard_busy),
    Figure::of("dropped_packets_total", "malformed", DROPPED, |stats| stats.dropped.malformed),
    Figure::of("dropped_packets_total", "replayed", DROPPED, |stats| stats.dropped.replayed),
    Figure::count("memory_refused_segments_total", "Segments not taken in for want of memory", |stats| {
        stats.memory.refused_segments
    }),
    Figure::count(
        "memory_refused_writes_total",
        "Writes that found no memory, or less than they wanted",
        |stats| stats.memory.refused_writes,
    ),
];

/// Gauges of a socket and its driver: every one of [`EndpointStats`].
pub(super) const SOCKET_GAUGES: &[Figure<EndpointStats, u64>] = &[
    Figure::count("sessions", "Sessions that are served now", |stats| stats.state.sessions),
    Figure::count(
        "half_open_sessions",
        "Sessions whose peers have not shown yet that they hear this end",
        |stats| stats.state.half_open,
    ),
    Figure::count("lingering_sessions", "Sessions without a stream that still deliver", |stats| {
        stats.state.lingering
    }),
    Figure::bytes(
        "buffer_memory_bytes",
        "Memory that the buffers of sessions have taken of what they share",
        |stats| stats.state.buffer_memory,
    ),
];

/// Gauges of a session that can be added up.
pub(super) const SUMMED_GAUGES: &[Figure<Stats, f64>] = &[
    Figure::bytes("unsent_bytes", "Bytes written that no segment carries yet", |stats| {
        stats.queues.unsent_bytes as f64
    }),
    Figure::count("in_flight_segments", "Segments sent and not acknowledged", |stats| {
        stats.queues.in_flight.into()
    }),
    Figure::count("unread_segments", "Segments that arrived in order and were not read yet", |stats| {
        stats.queues.unread_segments.into()
    }),
    Figure::bytes("unread_bytes", "Bytes of those segments", |stats| stats.queues.unread_bytes as f64),
    Figure::count("out_of_order_segments", "Segments that wait for an earlier one", |stats| {
        stats.queues.out_of_order.into()
    }),
    Figure::bytes("session_buffer_bytes", "Memory of the streams' buffers, in use or spare", |stats| {
        stats.queues.memory_bytes as f64
    }),
    Figure::bytes("unsent_datagram_bytes", "Bytes of datagrams that wait to be sent", |stats| {
        stats.datagram_queues.unsent_bytes as f64
    }),
    Figure::bytes("unread_datagram_bytes", "Bytes of datagrams that wait to be read", |stats| {
        stats.datagram_queues.unread_bytes as f64
    }),
    Figure::bytes(
        "delivery_rate_bytes_per_second",
        "Rate at which the path has delivered lately, where congestion control measures it",
        |stats| stats.path.delivery_rate as f64,
    ),
];

/// Gauges that say something of one session only.
pub(super) const SESSION_GAUGES: &[Figure<Stats, f64>] = &[
    Figure::seconds("rtt_seconds", "Smoothed round-trip time", |stats| stats.path.rtt.as_secs_f64()),
    Figure::seconds("rtt_deviation_seconds", "Mean deviation of the round-trip time", |stats| {
        stats.path.rtt_var.as_secs_f64()
    }),
    Figure::seconds("min_rtt_seconds", "Least round-trip time of the last ten seconds or so", |stats| {
        stats.path.min_rtt.as_secs_f64()
    }),
    Figure::seconds("rto_seconds", "Retransmission timeout", |stats| stats.path.rto.as_secs_f64()),
    Figure::count(
        "congestion_window_segments",
        "Congestion window; infinite without congestion control",
        |stats| match stats.path.congestion_window {
            u32::MAX => f64::INFINITY,
            window => window.into(),
        },
    ),
    Figure::bytes(
        "plpmtu_bytes",
        "What new packets have at most, as UDP payload: what the path carries",
        |stats| stats.path.plpmtu.into(),
    ),
    Figure::count("send_window_segments", "Configured send window", |stats| stats.queues.send_window.into()),
    Figure::count("recv_window_segments", "Configured receive window", |stats| {
        stats.queues.recv_window.into()
    }),
    Figure::count("peer_window_segments", "Free receive window that the peer announced last", |stats| {
        stats.queues.peer_window.into()
    }),
    Figure::count("fec_parity_shards", "Parity packets sent with an FEC group now", |stats| {
        stats.fec_state.current_parity.into()
    }),
    Figure::count("fec_loss_ratio", "Losses that parity follows, 0 to 1; 0 where parity is fixed", |stats| {
        f64::from(stats.fec_state.loss_ppm) / 1e6
    }),
];

/// Why sessions end, as the label `cause` says it.
pub(super) const CAUSES: [&str; 22] = [
    "finished",
    "dead_link",
    "linger_timeout",
    "idle_timeout",
    "aborted",
    "aborted_by_peer",
    "reset",
    "refused",
    "peer_lacks_extensions",
    "handshake_failed",
    "nonce_limit",
    "seal_failed",
    "endpoint_closed",
    "key_retired",
    "replaced",
    "evicted",
    "conv_in_use",
    "other_cipher",
    "runtime_gone",
    "network",
    "not_followed",
    OTHER,
];

/// The cause of an end, among [`CAUSES`]. A new reason is to be named here, or the build fails.
pub(super) const fn cause(reason: &KcpError) -> &'static str {
    match reason {
        KcpError::Closed(reason) => match reason {
            CloseReason::Finished => "finished",
            CloseReason::DeadLink => "dead_link",
            CloseReason::LingerTimeout => "linger_timeout",
            CloseReason::IdleTimeout => "idle_timeout",
            CloseReason::Aborted => "aborted",
            CloseReason::AbortedByPeer(_) => "aborted_by_peer",
            CloseReason::Reset => "reset",
            CloseReason::Refused => "refused",
            CloseReason::PeerLacksExtensions => "peer_lacks_extensions",
            CloseReason::HandshakeFailed(_) => "handshake_failed",
            CloseReason::NonceLimit => "nonce_limit",
            CloseReason::SealFailed(_) => "seal_failed",
        },
        KcpError::EndpointClosed => "endpoint_closed",
        KcpError::KeyRetired => "key_retired",
        KcpError::Replaced => "replaced",
        KcpError::Evicted => "evicted",
        KcpError::ConvInUse => "conv_in_use",
        KcpError::OtherCipher => "other_cipher",
        KcpError::RuntimeGone => "runtime_gone",
        KcpError::Network { .. } => "network",
        KcpError::NotFollowed => "not_followed",
        // Calls fail for these, and the session goes on, or there is none yet.
        KcpError::Read(_)
        | KcpError::Write(_)
        | KcpError::Datagram(_)
        | KcpError::Refused
        | KcpError::NoAnswer
        | KcpError::NoKey
        | KcpError::OtherKind
        | KcpError::SocketShared
        | KcpError::OtherFamily
        | KcpError::Sharded
        | KcpError::OtherAddress
        | KcpError::ShardsUnsupported
        | KcpError::ListenerClosed
        | KcpError::NotListening
        | KcpError::ShutdownTimeout { .. }
        | KcpError::NoPort
        | KcpError::NoIpv6
        | KcpError::NoScope => OTHER,
    }
}

const OTHER: &str = "other";
const SENT_PACKETS: &str = "Packets that sessions built for sending";
const RECEIVED_PACKETS: &str = "Packets that sessions received";
const IGNORED: &str = "Packets that sessions received and did not use";
const RESENT: &str = "PUSH segments sent again";
const DATAGRAMS: &str = "Datagrams dropped";
const EXTENSIONS: &str = "Extension segments received and dropped";
const DROPPED: &str = "Packets received from the socket and dropped";
