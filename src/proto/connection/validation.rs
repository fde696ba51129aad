//! What a connection sends to an address that has not shown that it hears this end: see
//! [`AddressValidation`](crate::proto::path::AddressValidation).

use super::{Connection, Transmit, ends::EndEvents};
use crate::proto::{time::Instant, trace::tell, wire::HEADER_LEN};

impl Connection {
    /// Whether the peer has shown that it receives what is sent to its address. In a session of [`connect`](Self::connect) or
    /// [`new`](Self::new) that is taken for granted. In a session of [`accept`](Self::accept), whose first packet anybody may have
    /// sent in the peer's name, it takes a round trip.
    ///
    /// Before, [`poll_transmit`](Self::poll_transmit) returns no more than three times the bytes that came, and ten times with
    /// what asks the peer to show it. What cannot be sent for that waits.
    #[must_use]
    pub const fn is_validated(&self) -> bool {
        !self.arq.is_validating()
    }

    /// The peer's address is known to be its own, as [`Incoming::validated`](crate::proto::Incoming::validated) says.
    pub fn set_validated(&mut self) {
        if self.arq.is_validating() {
            self.arq.finish_validation();
            self.after_validation();
        }
    }

    /// A message that does not fit into three times the bytes that came, and cannot be cut, may go once all the same before the peer
    /// [is validated](Self::is_validated): from `at` on, which is [`Incoming::message_at`](crate::proto::Incoming::message_at), for a second.
    /// To be called right after [`accept`](Self::accept). Without this call such a message may go at any time. In a session whose peer
    /// is validated, it has no effect.
    ///
    /// ```
    /// use kcp9::{KcpConfig, proto::{Connection, Extensions, Instant, SessionSeed}};
    ///
    /// # struct Entropy;
    /// # impl kcp9::proto::Random for Entropy {
    /// #     fn fill(&mut self, bytes: &mut [u8]) {
    /// #         bytes.fill(4);
    /// #     }
    /// # }
    /// # fn drive(connection: &mut Connection, now: Instant, buffer: &mut [u8]) -> usize {
    /// #     if connection.poll_timeout().is_some_and(|at| at <= now) {
    /// #         connection.handle_timeout(now);
    /// #     }
    /// #     let mut sent = 0;
    /// #     while let Some(transmit) = connection.poll_transmit(now, buffer) {
    /// #         sent += transmit.len;
    /// #     }
    /// #     sent
    /// # }
    /// let config = KcpConfig::builder().extensions(Extensions::Off).stream(false).build()?;
    /// let (now, at) = (Instant::ZERO, Instant::from_millis(300));
    /// let mut buffer = vec![0; 2_048];
    /// let mut client = Connection::connect(7, &config, now, SessionSeed::new(&mut Entropy));
    /// client.send(now, b"?")?;
    /// let request = client.poll_transmit(now, &mut buffer).ok_or("nothing to send")?;
    ///
    /// let mut server = Connection::accept(7, &config, now, SessionSeed::new(&mut Entropy));
    /// server.set_message_at(at);
    /// server.handle_packet(now, &mut buffer[..request.len])?;
    /// server.send(now, &[1; 1_000])?;
    /// // An ACK, and a PUSH without payload that asks the peer to show that it hears.
    /// assert_eq!(drive(&mut server, now, &mut buffer), 48);
    /// assert!(drive(&mut server, at, &mut buffer) > 1_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_message_at(&mut self, at: Instant) {
        self.arq.set_message_at(at);
    }

    /// Notes that the address was validated by what has just come in.
    #[cold]
    pub(super) fn after_validation(&mut self) {
        self.pipeline.set_peer_unproven(false);
        self.end_events.add(EndEvents::VALIDATED);
        tell!(validated());
    }

    /// As [`transmit`](Self::transmit), for a peer that has not shown that it hears this end: one packet, as long as it may be.
    #[cold]
    pub(super) fn transmit_unvalidated(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        let mtu = self.mtu();
        let around = self.around_extension();
        let is_over = self.close_reason().is_some();
        let allowance = if is_over { self.arq.allowance_in_all() } else { self.arq.allowance(now) }.min(mtu);
        let before = self.arq.pushes_sent();
        // Nothing waits here for a later call: it might not be allowed any more then.
        let mut transmit = None;
        if allowance >= HEADER_LEN + around && buf.len() >= mtu {
            transmit = self.transmit_within(now, &mut buf[..allowance], false, allowance);
        }
        let mut asks = self.arq.pushes_sent() > before;
        if transmit.is_none() && !is_over {
            self.arq.note_idle(now, false, around);
            let waits = self.arq.waits()
                || self.has_urgent_extension()
                || self.datagrams.has_unsent()
                || self.due_timers(self.arq.served_at()).next().is_some();
            self.arq.note_idle(now, waits && allowance < mtu, around);
            transmit = self.transmit_probe(now, buf);
            asks = true;
        }
        if let Some(Transmit { len, .. }) = transmit {
            self.arq.note_sent(now, len, asks);
        }
        transmit
    }

    fn transmit_probe(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        let (head, tail) = (self.pipeline.crypto_head(), self.pipeline.tail());
        let out = buf.get_mut(head..head + HEADER_LEN)?;
        let len = self.arq.fill_probe(now, out, head + tail);
        if len == 0 {
            return None;
        }
        self.encrypt(now, buf.get_mut(..head + len + tail)?, head + len + tail, false)
    }
}
