//! The datagrams of a session: beside its stream, through the same pipeline.

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
    /// Queues a datagram, to be sent with the next [`poll_transmit`](Self::poll_transmit): beside the stream, whole, and
    /// once. It may be lost, overtake others, and arrive more than once where nothing is encrypted; the peer does not
    /// acknowledge it, and parity does not cover it. Neither the windows nor the pacing of the stream hold it back: how many
    /// the path carries is the application's concern.
    ///
    /// Where the queue ([`datagram_queue`](crate::KcpConfigBuilder::datagram_queue)) is full, the oldest that wait in
    /// it are dropped, and counted in [`Stats::datagrams`](crate::Stats::datagrams).
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

    /// The longest datagram that can be sent now, in bytes: what the mtu leaves behind encryption and a header of 12 bytes.
    /// `None` when none can be: they are not configured, or the session is shut down or has ended.
    #[must_use]
    pub fn max_datagram_len(&self) -> Option<usize> {
        self.check_datagrams_sendable().ok().map(|()| self.datagram_room())
    }

    /// Takes the datagram that has waited longest, `None` when none waits. What arrived before the session ended can still
    /// be taken. It shares memory with others that arrived about the same time, which is freed with the last of them.
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
            State::Draining(_) | State::Flushed => Err(DatagramSendError::ShutDown),
        }
    }

    /// Bytes that a datagram of the mtu has room for.
    fn datagram_room(&self) -> usize {
        self.settings.mtu.saturating_sub(self.pipeline.out_of_band_head() + self.pipeline.tail())
    }

    /// Writes as many of the queued datagrams as one GSO send takes: as long as the first, the last perhaps shorter.
    pub(super) fn transmit_datagrams(&mut self, now: Instant, buf: &mut [u8]) -> Option<Transmit> {
        let (head, tail) = (self.pipeline.out_of_band_head(), self.pipeline.tail());
        let (conv, max) = (self.conv(), self.datagram_room());
        let room = buf.len().min(MAX_BATCH_BYTES.max(self.settings.mtu));
        let mut size = self.settings.mtu;
        let mut len = 0;
        let mut count = 0;
        while count < MAX_BATCH && len + size <= room {
            let Some(datagram) = self.datagrams.next_len(max).map(|payload| head + payload + tail) else {
                break;
            };
            // One that is longer than these goes with the next batch.
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
        self.encrypt(&mut buf[..len], size, false)
    }

    /// Takes in what a datagram from the peer carries out of band.
    ///
    /// It answers nothing, so a peer that owes an answer still does; and where nobody vouches for it, it is no sign of life
    /// either: it has no number by which one that somebody kept and sends again could be told.
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
            self.arq.note_heard(now);
        }
        self.datagram_readable |= self.datagrams.receive(packet.datagram);
        Ok(())
    }
}
