//! Counters and gauges of one session.

use core::time::Duration;

/// What has happened on a session and how it stands; a snapshot from [`Connection::stats`](super::Connection::stats).
///
/// Counters start at zero with the session and only grow. Bytes of payload are the application's; bytes of packets
/// are whole UDP payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes that the application wrote.
    pub bytes_written: u64,
    /// Bytes that the application read.
    pub bytes_read: u64,
    /// Datagrams built for sending.
    pub packets_sent: u64,
    /// Bytes of those packets.
    pub packet_bytes_sent: u64,
    /// Datagrams handed in, but for forged ones.
    pub packets_received: u64,
    /// Bytes of those packets.
    pub packet_bytes_received: u64,
    /// Segments sent, of every command, resent ones included.
    pub segments_sent: u64,
    /// Segments received, of every command.
    pub segments_received: u64,
    /// PUSH segments sent for the first time.
    pub push_sent: u64,
    /// PUSH segments received, duplicates included.
    pub push_received: u64,
    /// ACK segments sent.
    pub acks_sent: u64,
    /// ACK segments received.
    pub acks_received: u64,
    /// PUSH segments resent because `resend` later ones were acknowledged.
    pub fast_resends: u64,
    /// PUSH segments resent because a later one was acknowledged and there was nothing new to send.
    pub early_resends: u64,
    /// PUSH segments resent because their RTO passed.
    pub timeout_resends: u64,
    /// PUSH segments sent once more because their FEC group stayed incomplete; they are no resends.
    pub copies_sent: u64,
    /// PUSH segments received more than once.
    pub duplicates: u64,
    /// PUSH segments refused because they lay past the receive window or its memory limit.
    pub out_of_window: u64,
    /// Window probes (WASK) sent.
    pub window_probes: u64,
    /// Datagrams dropped whole: they belong to another conversation.
    pub wrong_conv: u64,
    /// Datagrams dropped, or their rest: at a segment that is none, or for a size in their FEC header that does not fit
    /// them.
    pub malformed: u64,
    /// Datagrams dropped: the cipher refused them. Over a shared socket they count for the socket, not the session.
    pub forged: u64,
    /// Datagrams dropped: the very same were received before.
    pub replayed: u64,
    /// Smoothed round-trip time; zero before the first sample. Time that the peer holds an ACK back counts.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_var: Duration,
    /// Smallest round-trip time seen; zero before the first sample.
    pub min_rtt: Duration,
    /// Retransmission timeout of a segment's first transmission; shorter while few are unconfirmed
    /// ([`NoDelay::nodelay`](crate::NoDelay::nodelay)).
    pub rto: Duration,
    /// Configured send window, in segments.
    pub send_window: u32,
    /// Configured receive window, in segments.
    pub recv_window: u32,
    /// Receive window that the peer told last, in segments.
    pub peer_window: u32,
    /// Congestion window, in segments; `u32::MAX` without congestion control.
    pub congestion_window: u32,
    /// Rate at which the path has delivered lately, in bytes a second of segments with their headers, where congestion control measures it;
    /// else 0.
    pub delivery_rate: u64,
    /// Bytes written that no segment carries yet.
    pub send_queue_bytes: usize,
    /// Segments sent and not yet covered by the peer's `una`.
    pub in_flight: u32,
    /// Segments that arrived in order and were not yet read.
    pub recv_queue: u32,
    /// Bytes of those segments.
    pub recv_queue_bytes: usize,
    /// Segments that wait for an earlier one.
    pub out_of_order: u32,
    /// What forward error correction did.
    pub fec: FecStats,
    /// What became of the datagrams sent and received beside the stream.
    pub out_of_band: OutOfBandStats,
}

/// What became of the datagrams that a session's applications exchange beside its stream; see
/// [`Connection::send_datagram`](super::Connection::send_datagram).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OutOfBandStats {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received and queued for the application.
    pub received: u64,
    /// Datagrams dropped before they were sent: later ones took their room in the queue, or the mtu has become too small
    /// for them.
    pub dropped_unsent: u64,
    /// Datagrams dropped before they were read: later ones took their room in the queue.
    pub dropped_unread: u64,
    /// Datagrams received and dropped: the session is configured to exchange none.
    pub unwanted: u64,
    /// Bytes of the datagrams that wait to be sent.
    pub send_queue_bytes: usize,
    /// Bytes of the datagrams that wait to be read.
    pub recv_queue_bytes: usize,
}

/// What forward error correction did on a session. See [`fec`](crate::fec).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FecStats {
    /// Parity packets sent.
    pub parity_sent: u64,
    /// Parity packets received.
    pub parity_received: u64,
    /// Those of no use: all data packets of their group had been received or recovered before, or too few packets of it
    /// came to recover any, or they are of another conversation. Repeated and [`late`](Self::late) ones do not count.
    pub parity_wasted: u64,
    /// Groups whose data packets all arrived.
    pub groups_complete: u64,
    /// Data packets computed from parity.
    pub recovered: u64,
    /// Data packets missing from groups that were given up.
    pub unrecoverable: u64,
    /// Packets, data or parity, that came after their group was given up.
    pub late: u64,
    /// Times that a packet contradicted the number of shards assumed.
    pub mismatches: u64,
    /// Data packets of a group that this end sends; 0 without FEC.
    pub data_shards: u32,
    /// Parity packets of a group that this end sends, at most.
    pub parity_shards: u32,
    /// Those that it sends now: fewer where they follow the losses.
    pub current_parity: u32,
    /// Losses that parity follows, as far as ACKs let them be seen, in millionths of what is sent; 0 where it is fixed.
    pub losses_seen: u32,
    /// Data packets of a group of the peer's; 0 while that is not known.
    pub peer_data_shards: u32,
    /// Parity packets of a group of the peer's.
    pub peer_parity_shards: u32,
    /// Times that the peer's shards were found to be others than this end's, or than before: an
    /// [`Event::Fec`](super::Event::Fec) each.
    pub peer_changes: u64,
    /// Parity arrives that nothing can be recovered from: another code, or numbers that fit none.
    pub undecodable: bool,
}

impl Stats {
    /// PUSH segments sent more than once, for whatever cause.
    #[must_use]
    pub const fn resends(&self) -> u64 {
        self.fast_resends + self.early_resends + self.timeout_resends
    }
}
