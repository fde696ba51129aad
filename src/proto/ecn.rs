//! Explicit Congestion Notification (RFC 3168): what the network marks, and what one end counts and reports of it.
//!
//! ```text
//! the sender      marks packets as ECT(0): see `path/ecn.rs`
//! a queue         makes CE of that, where it would drop a packet of another kind
//! the receiver    counts what arrives with each mark, and reports the counts: EcnReceiver, here
//! the sender      validates them, and tells congestion control of CE: `path/ecn.rs`
//! ```

use core::time::Duration;

use super::{time::Instant, wire::HEADER_LEN};

/// The ECN field of a packet's IP header (RFC 3168, section 5), with its value there.
///
/// [`Transmit::ecn`](super::Transmit::ecn) says which one packets are to be sent with, and
/// [`Connection::handle_ecn`](super::Connection::handle_ecn) takes those that packets came with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum EcnCodepoint {
    /// Not-ECT: the sender does not take part, and a full queue drops the packet.
    #[default]
    NotEct = 0b00,
    /// ECT(1): that of low-latency traffic (RFC 9331). It is never sent here.
    Ect1 = 0b01,
    /// ECT(0): the sender takes part.
    Ect0 = 0b10,
    /// CE, "congestion experienced": a queue has marked the packet.
    Ce = 0b11,
}

impl EcnCodepoint {
    /// The lowest two bits of the `TOS` of IPv4 or the traffic class of IPv6.
    #[must_use]
    pub const fn from_bits(tos: u8) -> Self {
        match tos & 0b11 {
            0b00 => Self::NotEct,
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            _ => Self::Ce,
        }
    }
}

/// Packets received with each mark since the session began: what an ECN segment says. The counts wrap around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::proto) struct EcnCounts {
    pub(in crate::proto) ect0: u32,
    pub(in crate::proto) ect1: u32,
    pub(in crate::proto) ce: u32,
}

/// Packets with payload that go without ECT at first. Who sends no more than these has little use for marks, and a server of many such
/// sessions feels what each packet with ECT costs beyond one without: control messages at both ends, and reports.
pub(in crate::proto) const UNMARKED_PACKETS: u64 = 32;
/// Bytes of the body of an ECN segment.
pub(in crate::proto) const ECN_LEN: usize = 12;

impl EcnCounts {
    pub(in crate::proto) fn from_bytes(bytes: [u8; ECN_LEN]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { ect0: word(0), ect1: word(4), ce: word(8) }
    }

    pub(in crate::proto) fn to_bytes(self) -> [u8; ECN_LEN] {
        let mut bytes = [0; ECN_LEN];
        for (bytes, count) in bytes.chunks_exact_mut(4).zip([self.ect0, self.ect1, self.ce]) {
            bytes.copy_from_slice(&count.to_le_bytes());
        }
        bytes
    }
}

/// Packets with ECT after which the counts are reported, though nothing was marked.
const REPORT_PACKETS: u32 = 64;
/// So many packets at the beginning of a session are reported with every packet of ACKs, so that the peer can validate the path.
const FIRST_PACKETS: u32 = 16;
/// Packets with ECT are reported if the last report is older than this: the peer may validate another path.
const REPORT_AGE: Duration = Duration::from_secs(1);
/// Bytes that must have come since the last report: four times its own. So no packet costs more than it cost its sender.
const REPORT_BYTES: u64 = 4 * (HEADER_LEN + ECN_LEN) as u64;

/// Counts the marks of what arrives, and says when to report them.
///
/// A report goes with a packet of ACKs, or behind one without room for it, so there is no timer. It is not sent again, as later ones include
/// it; but the packet of ACKs behind one that told of new CE marks says it once more, since a whole round trip may hang on it.
#[derive(Debug, Default)]
pub(in crate::proto) struct EcnReceiver {
    /// This end has told the peer that it reports.
    enabled: bool,
    /// The caller was told that marks may come.
    #[cfg(feature = "tokio")]
    expected: bool,
    /// A report is to be sent.
    due: bool,
    /// The packet that it was to go with had no room for it.
    overdue: bool,
    /// CE marks are unreported.
    news: bool,
    /// The last report told of CE marks, and is to be repeated.
    repeat: bool,
    counts: EcnCounts,
    /// Packets with a mark since the last report.
    unreported: u32,
    reported_at: Option<Instant>,
    /// Bytes that the session had received by then.
    reported_bytes: u64,
}

impl EcnReceiver {
    pub(in crate::proto) const fn enable(&mut self) {
        self.enabled = true;
    }

    pub(in crate::proto) const fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Whether packets may have marks after so many that were received: true once. To have the system tell of them costs something with
    /// each packet of the socket, which sessions of a few packets spare it.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(in crate::proto) const fn begins_to_expect(&mut self, packets: u64) -> bool {
        let begins = packets >= UNMARKED_PACKETS / 2 && self.enabled && !self.expected;
        self.expected |= begins;
        begins
    }

    pub(in crate::proto) const fn counts(&self) -> EcnCounts {
        self.counts
    }

    /// Whether a report is to go with the next packet of ACKs.
    #[inline]
    pub(in crate::proto) const fn is_due(&self) -> bool {
        self.due
    }

    /// Whether a report is to have a packet of its own.
    #[inline]
    pub(in crate::proto) const fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// Packets were sent that a report was to go with, if one was due.
    #[inline]
    pub(in crate::proto) const fn after_packets(&mut self) {
        self.overdue = self.due;
    }

    /// `packets` have arrived with a mark; the session has received `bytes` in all. Returns whether their ACKs are not to wait (RFC
    /// 9000, section 13.2.1): for the first CE in `round`, a round trip, in which the peer answers one of them.
    pub(in crate::proto) fn on_packets(
        &mut self,
        now: Instant,
        codepoint: EcnCodepoint,
        packets: u32,
        bytes: u64,
        round: Duration,
    ) -> bool {
        let count = match codepoint {
            EcnCodepoint::NotEct => return false,
            EcnCodepoint::Ect1 => &mut self.counts.ect1,
            EcnCodepoint::Ect0 => &mut self.counts.ect0,
            EcnCodepoint::Ce => {
                self.news = true;
                &mut self.counts.ce
            }
        };
        *count = count.wrapping_add(packets);
        self.unreported = self.unreported.saturating_add(packets);
        let age = self.reported_at.map(|at| now - at);
        let is_first = self.counts.ect0 < FIRST_PACKETS;
        let is_wanted = self.news
            || self.repeat
            || self.unreported >= REPORT_PACKETS
            || is_first
            || age.is_none_or(|age| age >= REPORT_AGE);
        self.due |= is_wanted && bytes - self.reported_bytes >= REPORT_BYTES;
        self.due && codepoint == EcnCodepoint::Ce && age.is_none_or(|age| age >= round)
    }

    /// A report was written, when `bytes` had been received.
    pub(in crate::proto) const fn on_report(&mut self, now: Instant, bytes: u64) {
        self.due = false;
        self.overdue = false;
        self.repeat = self.news;
        self.news = false;
        self.unreported = 0;
        self.reported_at = Some(now);
        self.reported_bytes = bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(50);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// A receiver that has reported `ect0` packets of 1,000 bytes, at 0.
    fn receiver(ect0: u32) -> EcnReceiver {
        let mut receiver = EcnReceiver::default();
        let bytes = u64::from(ect0) * 1_000;
        receiver.on_packets(at(0), EcnCodepoint::Ect0, ect0, bytes, ROUND);
        receiver.on_report(at(0), bytes);
        receiver
    }

    #[test]
    fn codepoints_are_the_lowest_two_bits() {
        for codepoint in [EcnCodepoint::NotEct, EcnCodepoint::Ect1, EcnCodepoint::Ect0, EcnCodepoint::Ce] {
            for dscp in [0, 46, 63] {
                assert_eq!(EcnCodepoint::from_bits(dscp << 2 | codepoint as u8), codepoint);
            }
        }
    }

    #[test]
    fn the_first_packets_are_all_reported_and_then_every_64th() {
        let mut receiver = EcnReceiver::default();
        let mut reports = [0; 3];
        for n in 1..=1_000 {
            let bytes = u64::from(n) * 1_000;
            assert!(!receiver.on_packets(at(0), EcnCodepoint::Ect0, 1, bytes, ROUND), "an ACK at once");
            if receiver.is_due() {
                receiver.on_report(at(0), bytes);
                reports[if n < FIRST_PACKETS { 0 } else { 1 }] += 1;
            }
        }
        assert_eq!(reports, [15, (1_000 - 15) / 64, 0]);
        assert_eq!(receiver.counts(), EcnCounts { ect0: 1_000, ect1: 0, ce: 0 });
    }

    #[test]
    fn what_is_old_is_reported_with_the_next_packet() {
        let mut receiver = receiver(100);
        receiver.on_packets(at(999), EcnCodepoint::Ect0, 1, 101_000, ROUND);
        assert!(!receiver.is_due());
        receiver.on_packets(at(1_000), EcnCodepoint::Ect0, 1, 102_000, ROUND);
        assert!(receiver.is_due());
    }

    #[test]
    fn a_mark_is_reported_at_once_and_repeated_with_the_next_packet() {
        let mut receiver = receiver(100);
        assert!(receiver.on_packets(at(100), EcnCodepoint::Ce, 1, 101_000, ROUND));
        assert!(receiver.is_due());
        receiver.on_report(at(100), 101_000);
        assert!(!receiver.is_due(), "not with a packet that answers nothing");
        receiver.on_packets(at(110), EcnCodepoint::Ect0, 1, 102_000, ROUND);
        assert!(receiver.is_due(), "the report may be lost");
        receiver.on_report(at(110), 102_000);
        receiver.on_packets(at(120), EcnCodepoint::Ect0, 1, 103_000, ROUND);
        assert!(!receiver.is_due());
        assert!(!receiver.on_packets(at(130), EcnCodepoint::Ce, 1, 104_000, ROUND), "within a round trip");
        assert!(receiver.is_due());
        receiver.on_report(at(130), 104_000);
        assert!(receiver.on_packets(at(180), EcnCodepoint::Ce, 1, 105_000, ROUND));
    }

    /// Whoever sends packets of 24 bytes draws a report with every sixth.
    #[test]
    fn small_packets_draw_no_more_bytes_than_a_quarter_of_theirs() {
        let mut receiver = EcnReceiver::default();
        let (mut reported, mut bytes) = (0, 0);
        for _ in 0..6_000 {
            bytes += 24;
            receiver.on_packets(at(0), EcnCodepoint::Ce, 1, bytes, Duration::ZERO);
            if receiver.is_due() {
                receiver.on_report(at(0), bytes);
                reported += (HEADER_LEN + ECN_LEN) as u64;
            }
        }
        assert!(reported * 4 <= bytes && reported * 5 > bytes, "{reported} for {bytes}");
    }

    #[test]
    fn a_report_without_room_is_overdue() {
        let mut receiver = receiver(100);
        receiver.after_packets();
        assert!(!receiver.is_overdue());
        receiver.on_packets(at(10), EcnCodepoint::Ce, 1, 101_000, ROUND);
        assert!(!receiver.is_overdue());
        receiver.after_packets();
        assert!(receiver.is_overdue());
        receiver.on_report(at(10), 101_000);
        assert!(!receiver.is_overdue() && !receiver.is_due());
    }

    #[test]
    fn counts_wrap_around() {
        let mut receiver =
            EcnReceiver { counts: EcnCounts { ect0: u32::MAX, ect1: 3, ce: 1 }, ..receiver(1) };
        receiver.on_packets(at(1), EcnCodepoint::Ect0, 2, 10_000, ROUND);
        assert_eq!(receiver.counts().ect0, 1);
        assert_eq!(EcnCounts::from_bytes(receiver.counts().to_bytes()), receiver.counts());
    }
}
