//! What a connection takes in: packets, and the memory that they were received into.

use super::{Connection, State};
use crate::proto::{arq::Block, error::PacketError, time::Instant};

impl Connection {
    /// Takes in one packet from the peer. It is opened in place, so its bytes are of no use afterwards.
    ///
    /// # Errors
    /// Tells why the packet, or the rest of it, was dropped. The session is unharmed; the error is for counting.
    pub fn handle_packet(&mut self, now: Instant, packet: &mut [u8]) -> Result<(), PacketError> {
        if let State::Closed(_) = self.state {
            return Ok(());
        }
        if let Err(error) = self.pipeline.decrypt(packet) {
            self.arq.counters_mut().udp.forged += 1;
            return Err(error);
        }
        self.handle_decrypted_packet(now, packet)
    }

    /// As [`handle_packet`](Self::handle_packet), for a packet that the configured cipher has opened already: for
    /// who serves several sessions over one socket and must look inside to tell whose a packet is. It is the whole
    /// packet, as [`PacketCipher::open`](crate::crypto::PacketCipher::open) left it.
    ///
    /// # Errors
    /// As [`handle_packet`](Self::handle_packet).
    pub fn handle_decrypted_packet(&mut self, now: Instant, packet: &[u8]) -> Result<(), PacketError> {
        if let State::Closed(_) = self.state {
            return Ok(());
        }
        let udp = &mut self.arq.counters_mut().udp;
        udp.packets_received += 1;
        udp.bytes_received += packet.len() as u64;
        let conv = self.arq.conv();
        let arq = &mut self.arq;
        let outcome = self.pipeline.open(packet, conv, |segments, origin| arq.input(now, segments, origin));
        match outcome {
            Ok(Some(packet)) => return self.receive_datagram(now, &packet),
            Err(PacketError::Replayed) => self.arq.counters_mut().udp.replayed += 1,
            Err(PacketError::Fec) => self.arq.counters_mut().udp.malformed += 1,
            _ => {}
        }
        if self.pipeline.is_adaptive() {
            let (rtt, min_rtt) = self.arq.round_trip_times();
            self.pipeline.adapt(now, self.arq.losses(), rtt, min_rtt);
        }
        self.after_progress();
        outcome.map(|_| ())
    }

    /// Lends the memory that the packets handed in next lie in, until the next call: once the application
    /// [reads](Self::read) bytes, payloads that are next in order stay there until they are read, which spares a copy. It
    /// pays where a receive call fills `block` with many packets. Until
    /// [`Arc::get_mut`](alloc::sync::Arc::get_mut) says that it is free again, the next call needs another one.
    ///
    /// The blocks that a session keeps are at most twice as much memory as the payload that waits to be read, and
    /// 256 KiB. What is not read is copied out of them when the session is [trimmed](Self::trim).
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use kcp9::{
    ///     KcpConfig,
    ///     proto::{Connection, Instant},
    /// };
    ///
    /// let (config, now) = (KcpConfig::default(), Instant::ZERO);
    /// let mut sender = Connection::new(7, &config, now);
    /// let mut receiver = Connection::new(7, &config, now);
    /// assert!(receiver.read(&mut [0; 1]).is_err(), "nothing yet, but it is known to read");
    /// sender.write(now, &[1; 10_000])?;
    ///
    /// let mut block = Arc::new(vec![0; 65_536].into_boxed_slice());
    /// let memory = Arc::get_mut(&mut block).ok_or("lent")?;
    /// let received = sender.poll_transmit(now, memory).ok_or("nothing sent")?;
    /// receiver.lend(Some(Arc::clone(&block)));
    /// for packet in block[..received.len].chunks(received.stride) {
    ///     receiver.handle_decrypted_packet(now, packet)?;
    /// }
    /// receiver.lend(None);
    /// assert!(Arc::get_mut(&mut block).is_none(), "what was received lies in it");
    ///
    /// assert_eq!(receiver.read(&mut [0; 10_000])?, 10_000);
    /// assert!(Arc::get_mut(&mut block).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lend(&mut self, block: Option<Block>) {
        self.arq.lend(block);
    }
}
