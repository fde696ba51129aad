//! What a connection has to do with the marks of ECN: see [`ecn`](crate::proto::ecn).

use super::Connection;
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

    /// Whether the session can make use of the marks that packets come with.
    #[cfg(feature = "tokio")]
    pub(crate) const fn reads_ecn(&self) -> bool {
        self.ecn.is_enabled()
    }
}
