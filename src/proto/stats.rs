//! Counters and gauges of one session, in groups by layer.

use core::time::Duration;

use super::{error::PacketError, path::EcnState};

/// A snapshot of one session's counters and gauges; from [`Connection::stats`](super::Connection::stats).
///
/// Every group is either all counters or all gauges. Counters start at zero with the session and only grow; the types of
/// their groups end in `Stats`. Gauges say how things stand now; the types of their groups end in `State`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Counters of the packets that UDP carries.
    pub udp: UdpStats,
    /// Counters of KCP's segments.
    pub segments: SegmentStats,
    /// Counters of the segments that were sent more than once.
    pub recovery: RecoveryStats,
    /// Counters of the application's bytes.
    pub stream: StreamStats,
    /// Counters of forward error correction.
    pub fec: FecStats,
    /// Counters of the datagrams beside the stream.
    pub datagrams: DatagramStats,
    /// Counters of the extension segments.
    pub extensions: ExtensionStats,
    /// Counters of ECN marks.
    pub ecn: EcnStats,
    /// Counters of packets that are too long for the path.
    pub mtu: MtuStats,
    /// Gauges of the path: round-trip times, rate, congestion window, the size of packets.
    pub path: PathState,
    /// Gauges of the windows and queues of the stream.
    pub queues: QueueState,
    /// Gauges of forward error correction: group sizes and losses.
    pub fec_state: FecState,
    /// Gauges of the queues of datagrams.
    pub datagram_queues: DatagramQueueState,
}

/// The packets that UDP carries, as the session has sent and received them. Bytes are those of whole UDP payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct UdpStats {
    /// Packets built for sending.
    pub packets_sent: u64,
    /// Bytes of those packets.
    pub bytes_sent: u64,
    /// Packets received, without the [`forged`](Self::forged) ones.
    pub packets_received: u64,
    /// Bytes of those packets.
    pub bytes_received: u64,
    /// Packets dropped because they belong to another conversation, and segments of another session of this one.
    pub wrong_conv: u64,
    /// Packets dropped because they are not well formed: a header names a length that does not fit, or a command that
    /// does not exist. The segments before that place still count.
    pub malformed: u64,
    /// Packets dropped because the cipher refused them. Where several sessions share a socket, the socket counts these
    /// packets and the session does not: nobody can tell whose they are.
    pub forged: u64,
    /// Packets dropped because the same packet had been received before.
    pub replayed: u64,
}

impl UdpStats {
    /// Counts a packet that was not opened, for this reason.
    #[cold]
    pub(in crate::proto) fn count_refused(&mut self, error: PacketError) {
        if error == PacketError::Replayed {
            self.replayed += 1;
        } else {
            self.forged += 1;
        }
    }
}

/// KCP's segments, as the session has sent and received them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SegmentStats {
    /// Segments sent, of every command, each transmission counted.
    pub sent: u64,
    /// Segments received, of every command, duplicates included.
    pub received: u64,
    /// PUSH segments sent for the first time.
    pub push_sent: u64,
    /// PUSH segments received, duplicates included.
    pub push_received: u64,
    /// ACK segments sent.
    pub acks_sent: u64,
    /// ACK segments received.
    pub acks_received: u64,
    /// Window probes (WASK) sent.
    pub window_probes: u64,
    /// PUSH segments received that had arrived before.
    pub duplicates: u64,
    /// PUSH segments refused because they lay past the receive window or its limit of memory.
    pub out_of_window: u64,
}

/// PUSH segments that the session has sent more than once, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RecoveryStats {
    /// Segments resent because [`resend`](crate::NoDelay::resend) later ones were acknowledged.
    pub fast_resends: u64,
    /// Segments resent because a later one was acknowledged and nothing new waited to be sent.
    pub early_resends: u64,
    /// Segments resent because their RTO passed.
    pub timeout_resends: u64,
    /// Copies sent because an FEC group stayed incomplete for
    /// [`fec_flush`](crate::KcpConfigBuilder::fec_flush). They are not resends.
    pub fec_flush_copies: u64,
}

impl RecoveryStats {
    /// Resends for any cause.
    #[must_use]
    pub const fn resends(&self) -> u64 {
        self.fast_resends + self.early_resends + self.timeout_resends
    }
}

/// The application's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StreamStats {
    /// Bytes that the application has written.
    pub bytes_written: u64,
    /// Bytes that the application has read.
    pub bytes_read: u64,
}

/// What forward error correction has done; see [`fec`](crate::fec).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FecStats {
    /// Parity packets sent.
    pub parity_sent: u64,
    /// Parity packets received.
    pub parity_received: u64,
    /// Parity packets received in vain: every data packet of their group had arrived or been recovered before, or too few
    /// packets of the group came to recover any, or they belong to another conversation. Repeated packets and
    /// [`late`](Self::late) ones do not count here.
    pub parity_wasted: u64,
    /// Groups whose data packets all arrived.
    pub groups_complete: u64,
    /// Data packets computed from parity.
    pub recovered: u64,
    /// Data packets still missing when their group was given up.
    pub unrecoverable: u64,
    /// Packets, data or parity, that came after their group had been given up.
    pub late: u64,
    /// Packets whose number contradicted the peer's group size as assumed until then.
    pub mismatches: u64,
    /// Times that the peer's group size was found to differ from this end's, or from the one before. Each also comes as an
    /// [`Event::Fec`](super::Event::Fec).
    pub peer_changes: u64,
}

/// What became of the datagrams that the applications exchange beside the stream; see
/// [`Connection::send_datagram`](super::Connection::send_datagram).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DatagramStats {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received and queued for the application.
    pub received: u64,
    /// Datagrams dropped before they were sent: later ones took their room in the queue, or the mtu has become too small
    /// for them.
    pub dropped_unsent: u64,
    /// Datagrams dropped before they were read: later ones took their room in the queue.
    pub dropped_unread: u64,
    /// Datagrams received and dropped because the session is configured to exchange none.
    pub unwanted: u64,
}

/// What the session knows of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PathState {
    /// Smoothed round-trip time; zero before the first sample. Time for which the peer holds an ACK back is part of it.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_var: Duration,
    /// Minimum round-trip time of the last ten seconds or so; zero before the first sample.
    pub min_rtt: Duration,
    /// Retransmission timeout of a segment's first transmission. It is shorter while few segments are unacknowledged: see
    /// [`NoDelay::nodelay`](crate::NoDelay::nodelay).
    pub rto: Duration,
    /// Congestion window, in segments; `u32::MAX` without congestion control.
    pub congestion_window: u32,
    /// Bytes of UDP payload that new packets have at most: what the path carries, as far as that is known, and no more than the
    /// [`mtu`](crate::KcpConfigBuilder::mtu). See there.
    pub plpmtu: u32,
    /// Rate at which the path has delivered lately, in bytes of segments with their headers per second; 0 where congestion
    /// control does not measure it.
    pub delivery_rate: u64,
    /// Whether packets are sent with ECN.
    pub ecn: EcnState,
}

/// The stream's windows, and how full its queues are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct QueueState {
    /// Configured send window, in segments.
    pub send_window: u32,
    /// Configured receive window, in segments.
    pub recv_window: u32,
    /// Free receive window that the peer announced last, in segments.
    pub peer_window: u32,
    /// Bytes written that no segment carries yet.
    pub unsent_bytes: usize,
    /// Segments sent that the peer's `una` does not cover yet.
    pub in_flight: u32,
    /// Segments that arrived in order and were not read yet.
    pub unread_segments: u32,
    /// Bytes of those segments.
    pub unread_bytes: usize,
    /// Segments that arrived and wait for an earlier one.
    pub out_of_order: u32,
    /// Memory of the stream's buffers, in bytes: for what was written and is not acknowledged, for what arrived and was not read, and
    /// spare memory that is kept for more.
    pub memory_bytes: usize,
}

/// The sizes of FEC groups in both directions, and the losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FecState {
    /// Data packets in a group that this end sends; 0 without FEC.
    pub data_shards: u32,
    /// Parity packets in a group that this end sends, at most.
    pub parity_shards: u32,
    /// Parity packets that this end sends with a group now: fewer where parity
    /// [follows the losses](crate::KcpConfigBuilder::fec_adaptive).
    pub current_parity: u32,
    /// Losses that parity follows, in millionths of the packets sent, as far as ACKs show them; 0 where parity is fixed.
    pub loss_ppm: u32,
    /// Data packets in a group of the peer's; 0 while that is unknown.
    pub peer_data_shards: u32,
    /// Parity packets in a group of the peer's; 0 while that is unknown.
    pub peer_parity_shards: u32,
    /// Parity arrives from which nothing can be recovered: it is of another code, or its numbers fit no group size.
    pub undecodable: bool,
}

/// The segments of the [extensions](super::Extensions), which peers of this crate exchange beside KCP's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ExtensionStats {
    /// Segments sent.
    pub sent: u64,
    /// Segments received that meant something.
    pub received: u64,
    /// Segments dropped because they meant nothing when they came: they were late, repeated or forged.
    pub dropped: u64,
    /// Segments dropped because they are not for this session: they carry another tag.
    pub wrong_tag: u64,
    /// Segments dropped because they are not well formed.
    pub malformed: u64,
    /// Segments skipped because they are of a kind that this version does not know.
    pub unknown: u64,
    /// How often the session went on at another address: of the peer where this end accepted it, else of this end.
    pub moves: u64,
}

/// What Explicit Congestion Notification has done; see [`KcpConfigBuilder::ecn`](crate::KcpConfigBuilder::ecn).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct EcnStats {
    /// Packets built for sending with ECT(0).
    pub ect0_sent: u64,
    /// Packets received with ECT(0).
    pub ect0_received: u64,
    /// Packets received with ECT(1).
    pub ect1_received: u64,
    /// Packets received with CE: a queue on the way here was about to overflow.
    pub ce_received: u64,
    /// Reports of these three that were sent to the peer.
    pub reports_sent: u64,
    /// Reports of the peer.
    pub reports_received: u64,
    /// Packets that the peer has received with CE, as it reported.
    pub ce_reported: u64,
    /// How often the congestion controller was told of them: once in a round trip, at most.
    pub congestion_events: u64,
}

/// What was too long for the path; see [`KcpConfigBuilder::mtu`](crate::KcpConfigBuilder::mtu).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MtuStats {
    /// How often a path of this session was found to drop packets without a word that are as long as it carried before, or as the
    /// [`mtu`](crate::KcpConfigBuilder::mtu) allows. [`plpmtu`](PathState::plpmtu) was smaller from then on.
    pub black_holes: u64,
    /// Packets built for sending that [may be fragmented](super::Transmit::may_fragment), because they are longer than what the path
    /// carries as far as is known.
    pub fragmentable: u64,
}

/// How full the queues of datagrams are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DatagramQueueState {
    /// Bytes of the datagrams that wait to be sent.
    pub unsent_bytes: usize,
    /// Bytes of the datagrams that wait to be read.
    pub unread_bytes: usize,
}

/// The counters that the layers of segments and packets keep.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) udp: UdpStats,
    pub(super) segments: SegmentStats,
    pub(super) recovery: RecoveryStats,
    pub(super) stream: StreamStats,
    pub(super) ecn: EcnStats,
}
