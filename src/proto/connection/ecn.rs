//! What a connection has to do with the marks of ECN: see [`ecn`](crate::proto::ecn).

use super::{Connection, Transmit};
use crate::proto::{ecn::EcnCodepoint, time::Instant};

impl Connection {
    /// Tells how the last packets came: so many of those that [`handle_packet`](Self::handle_packet) or
    /// [`handle_batch`](Self::handle_batch) took had this codepoint in the ECN fields of their IP headers. Those that were dropped do not
    /// count. For [`EcnCodepoint::NotEct`] the call does nothing and need not be made.
    ///
    /// ```
    /// use kcp9::{KcpConfig, proto::{Connection, EcnCodepoint, Instant}};
    ///
    /// # let (now, config) = (Instant::ZERO, KcpConfig::default());
    /// # let mut sender = Connection::new(7, &config, now);
    /// # let mut receiver = Connection::new(7, &config, now);
    /// # sender.write(now, b"hello")?;
    /// # let mut buffer = [0; 2_048];
    /// # let transmit = sender.poll_transmit(now, &mut buffer).ok_or("nothing to send")?;
    /// # let (packet, tos) = (&mut buffer[..transmit.len], 0b11);
    /// // `packet` has come, and its header had `tos`.
    /// if receiver.handle_packet(now, packet).is_ok() {
    ///     receiver.handle_ecn(now, EcnCodepoint::from_bits(tos), 1);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn handle_ecn(&mut self, now: Instant, codepoint: EcnCodepoint, packets: usize) {
        if codepoint != EcnCodepoint::NotEct && self.ecn.is_enabled() {
            self.count_marks(now, codepoint, packets);
        }
    }

    fn count_marks(&mut self, now: Instant, codepoint: EcnCodepoint, packets: usize) {
        let round = self.arq.round();
        let counters = self.arq.counters_mut();
        let counter = match codepoint {
            EcnCodepoint::NotEct => return,
            EcnCodepoint::Ect1 => &mut counters.ecn.ect1_received,
            EcnCodepoint::Ect0 => &mut counters.ecn.ect0_received,
            EcnCodepoint::Ce => &mut counters.ecn.ce_received,
        };
        *counter += packets as u64;
        let bytes = counters.udp.bytes_received;
        if self.ecn.on_packets(now, codepoint, packets as u32, bytes, round) {
            self.arq.send_acks();
        }
    }

    /// Writes a report in a packet of its own, of `mtu` bytes at most: the one that it was to go with was full.
    #[cold]
    pub(super) fn transmit_ecn(&mut self, now: Instant, buf: &mut [u8], mtu: usize) -> Option<Transmit> {
        let (head, tail) = (self.pipeline.crypto_head(), self.pipeline.tail());
        let out = buf.get_mut(head..mtu.saturating_sub(tail))?;
        let envelope = self.arq.envelope(now);
        let reported = self.extension.as_mut()?.write_ecn(envelope, self.ecn.counts(), out);
        if reported == 0 {
            return None;
        }
        self.after_ecn_report(now);
        let len = head + reported + tail;
        self.arq.charge(now, len);
        self.arq.counters_mut().segments.sent += 1;
        self.encrypt(now, &mut buf[..len], len, false)
    }

    /// A report was written.
    pub(super) fn after_ecn_report(&mut self, now: Instant) {
        let counters = self.arq.counters_mut();
        counters.ecn.reports_sent += 1;
        self.ecn.on_report(now, counters.udp.bytes_received);
    }

    /// Whether packets may come with marks from here on: true once.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn begins_to_expect_ecn(&mut self) -> bool {
        let packets = self.arq.counters().udp.packets_received;
        self.ecn.begins_to_expect(packets)
    }
}
