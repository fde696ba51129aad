//! The datagrams that a session exchanges beside its stream. They pass through the same pipeline.

use bytes::Bytes;

use super::{
    Connection, State, Transmit,
    output::{MAX_BATCH, MAX_BATCH_BYTES},
};
use crate::proto::{
    error::{DatagramSendError, PacketError},
    fec::OutOfBand,
    time::Instant,
};

impl Connection {
    /// Queues a datagram, which the next [`poll_transmit`](Self::poll_transmit) sends beside the stream, whole and once.
    ///
    /// The datagram may be lost or overtake others. Without encryption it may also arrive more than once. The peer does not
    /// acknowledge it, and FEC does not protect it. Neither the windows nor the pacing of the stream hold it back: the
    /// application must not send more datagrams than the path carries.
    ///
    /// Where the queue ([`datagram_queue`](crate::KcpConfigBuilder::datagram_queue)) is full, the oldest datagrams in it are
    /// dropped, and counted in [`Stats::datagrams`](crate::Stats::datagrams).
    ///
    /// ```
    /// use kcp9::{KcpConfig, proto::{Connection, Event, Instant}};
    ///
    /// let now = Instant::ZERO;
    /// let config = KcpConfig::builder().datagram_queue(65_536).build()?;
    /// let mut client = Connection::new(7, &config, now);
    /// let mut server = Connection::new(7, &config, now);
    ///
    /// assert_eq!(client.max_datagram_len(), Some(1_388));
    /// client.send_datagram(b"where I am")?;
    /// let mut buffer = vec![0; 65_536];
    /// while let Some(transmit) = client.poll_transmit(now, &mut buffer) {
    ///     for datagram in buffer[..transmit.len].chunks_mut(transmit.stride) {
    ///         server.handle_packet(now, datagram)?;
    ///     }
    /// }
    /// assert_eq!(server.poll_event(), Some(Event::DatagramReadable));
    /// assert_eq!(server.recv_datagram().as_deref(), Some(&b"where I am"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`DatagramSendError::Disabled`] where none are configured, [`DatagramSendError::TooLarge`] past
    /// [`max_datagram_len`](Self::max_datagram_len), [`DatagramSendError::ShutDown`] after [`shutdown`](Self::shutdown),
    /// [`DatagramSendError::Closed`] when the session has ended.
    pub fn send_datagram(&mut self, datagram: &[u8]) -> Result<(), DatagramSendError> {
        self.check_datagrams_sendable()?;
        let max = self.datagram_room();
        if datagram.len() > max {
            return Err(DatagramSendError::TooLarge { max });
        }
        self.datagrams.send(datagram);
        Ok(())
    }

    /// The longest datagram that can be sent now, in bytes: the mtu less encryption and a header of 12 bytes. `None` when no
    /// datagram can be sent: they are not configured, or the session is shut down or has ended.
    #[must_use]
    pub fn max_datagram_len(&self) -> Option<usize> {
        self.check_datagrams_sendable().ok().map(|()| self.datagram_room())
    }

    /// Takes the datagram that has waited longest; `None` when none waits. Datagrams that arrived before the session ended can
    /// still be taken. A datagram has memory of its own, and may be kept for long.
    pub fn recv_datagram(&mut self) -> Option<Bytes> {
        self.datagrams.read()
    }

    /// Whether the session is configured to exchange datagrams.
    #[cfg(feature = "tokio")]
    pub(crate) const fn has_datagrams(&self) -> bool {
        self.datagrams.is_enabled()
    }

    fn check_datagrams_sendable(&self) -> Result<(), DatagramSendError> {
        match self.state {
            State::Closed(reason) => Err(DatagramSendError::Closed(reason)),
            _ if !self.datagrams.is_enabled() => Err(DatagramSendError::Disabled),
            State::Established => Ok(()),
            State::Draining | State::Flushed | State::Refused => Err(DatagramSendError::ShutDown),
        }
    }

    /// The longest datagram that fits a packet.
    fn datagram_room(&self) -> usize {
        self.mtu().saturating_sub(self.pipeline.out_of_band_head() + self.pipeline.tail())
    }

    /// Whether the datagram that is next needs a packet of which it is not known whether the path carries it, and its peer can be asked.
    /// Nothing else asks where only datagrams are sent.
    #[cold]
    pub(super) fn has_mtu_question(&mut self) -> bool {
        let around = self.pipeline.out_of_band_head() + self.pipeline.tail();
        let next = self.datagrams.next_len(self.datagram_room());
        next.is_some_and(|len| self.arq.may_probe_mtu_for(around + len)) && self.longest_ping() >= self.mtu()
    }

    /// Writes as many of the queued datagrams as one GSO send takes: all as long as the first one, but the last may be shorter.
    /// No packet is longer than `mtu`.
    pub(super) fn transmit_datagrams(
        &mut self,
        now: Instant,
        buf: &mut [u8],
        mtu: usize,
    ) -> Option<Transmit> {
        let (head, tail) = (self.pipeline.out_of_band_head(), self.pipeline.tail());
        let (conv, max) = (self.conv(), self.datagram_room());
        let room = buf.len().min(MAX_BATCH_BYTES.max(mtu));
        let mut size = mtu;
        let mut len = 0;
        let mut count = 0;
        while count < MAX_BATCH && len + size <= room {
            let Some(datagram) = self.datagrams.next_len(max).map(|payload| head + payload + tail) else {
                break;
            };
            // A datagram that is longer than those of this batch goes with the next one.
            if datagram > size {
                break;
            }
            let Some(payload) = self.datagrams.take() else { break };
            let out = &mut buf[len..len + datagram];
            out[head..head + payload.len()].copy_from_slice(&payload);
            self.pipeline.complete_out_of_band(conv, out);
            len += datagram;
            count += 1;
            if count == 1 {
                size = datagram;
            } else if datagram < size {
                break;
            }
        }
        if count == 0 {
            return None;
        }
        self.arq.charge(now, len);
        let mut transmit = self.encrypt(now, &mut buf[..len], size, false)?;
        if self.arq.is_size_doubtful(size) {
            self.allow_fragments(&mut transmit);
        }
        Some(transmit)
    }

    /// Takes in a datagram from the peer.
    ///
    /// It acknowledges nothing, so that a peer that owes an answer still owes it. Without authentication it is not even a sign of
    /// life: it has no number, so that one which somebody recorded and sends again looks like a new one.
    pub(super) fn receive_datagram(
        &mut self,
        now: Instant,
        packet: &OutOfBand<'_>,
    ) -> Result<(), PacketError> {
        if packet.conv != self.conv() {
            self.arq.counters_mut().udp.wrong_conv += 1;
            return Err(PacketError::WrongConv { found: packet.conv });
        }
        if self.pipeline.is_authenticated() {
            self.arq.note_payload(now);
        }
        if !self.reader_dropped {
            self.datagram_readable |= self.datagrams.receive(packet.datagram);
        }
        Ok(())
    }
}
