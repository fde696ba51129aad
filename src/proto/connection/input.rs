//! What a connection takes in: one packet that was received, or a batch of them.

use core::ops::Range;

use super::{Connection, State};
use crate::proto::{
    arq::{Block, BlockPosition, Run},
    error::{CloseReason, PacketError},
    extension::Subtype,
    time::Instant,
    wire::{Command, Segments},
};

/// How many packets of a batch were dropped, and why: from [`Connection::handle_batch`].
///
/// A packet may hold several segments. It counts as dropped when any of them was.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchDrops {
    /// Packets that were received before, or that this end sent.
    pub replayed: usize,
    /// Packets that are not what the protocol says, and packets of another conversation.
    pub malformed: usize,
}

impl Connection {
    /// Takes in one packet from the peer. The packet is decrypted in place, so its bytes are of no use afterwards.
    ///
    /// Use [`handle_batch`](Self::handle_batch) where packets are decrypted before it is known which session they belong
    /// to.
    ///
    /// # Errors
    /// Why the packet, or the rest of it, was dropped. The session goes on unharmed: the error is for counting.
    pub fn handle_packet(&mut self, now: Instant, packet: &mut [u8]) -> Result<(), PacketError> {
        if !self.listens() {
            return Ok(());
        }
        #[cfg(feature = "noise")]
        if self.take_clear(now, packet) {
            return Ok(());
        }
        if let Err(error) = self.pipeline.decrypt(now, packet) {
            #[cfg(feature = "noise")]
            if self.is_sealed() && self.take_keyed_reset(now, packet) {
                return Ok(());
            }
            self.arq.counters_mut().udp.count_refused(error);
            return Err(error);
        }
        #[cfg(feature = "noise")]
        self.after_opening();
        let outcome = self.take_in(now, packet, None);
        self.after_input(now);
        outcome
    }

    /// Takes in a batch of packets from the peer that were decrypted already.
    ///
    /// The packets lie back to back in `block[range]`. Each has `stride` bytes, and the last one may be shorter. A packet is
    /// whole, as [`PacketCipher::open`](crate::crypto::PacketCipher::open) left it. Without encryption it is as it was
    /// received. Bytes of `range` that lie outside the block are ignored.
    ///
    /// # Payload that stays in the block
    ///
    /// The session may keep a reference to `block`, so that payload stays where it was received until the application reads
    /// it. This saves a copy. It happens when all of this is so:
    ///
    /// * The payload is next in order, and was not recovered by FEC.
    /// * The application takes bytes with [`read`](Self::read), not messages with [`recv`](Self::recv). A message may be
    ///   held for long, and would hold the block with it.
    /// * The batch fills at least half of the block.
    /// * The blocks that the session keeps are no more than twice the payload that waits to be read, plus 256 KiB.
    ///
    /// Otherwise the payload is copied. A block can be used for receiving again when
    /// [`Arc::get_mut`](alloc::sync::Arc::get_mut) returns it; until then receive into another one.
    /// [`trim`](Self::trim) copies what was not read and lets go of all blocks.
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
    /// assert!(receiver.read(&mut [0; 1]).is_err(), "nothing to read yet");
    /// sender.write(now, &[1; 10_000])?;
    ///
    /// let mut block = Arc::new(vec![0; 16_384].into_boxed_slice());
    /// let memory = Arc::get_mut(&mut block).ok_or("in use")?;
    /// let sent = sender.poll_transmit(now, memory).ok_or("nothing to send")?;
    /// let drops = receiver.handle_batch(now, &block, 0..sent.len, sent.stride);
    /// assert_eq!((drops.replayed, drops.malformed), (0, 0));
    /// assert!(Arc::get_mut(&mut block).is_none(), "the payload lies in it");
    ///
    /// assert_eq!(receiver.read(&mut [0; 10_000])?, 10_000);
    /// assert!(Arc::get_mut(&mut block).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn handle_batch(
        &mut self,
        now: Instant,
        block: &Block,
        range: Range<usize>,
        stride: usize,
    ) -> BatchDrops {
        #[cfg(feature = "noise")]
        if self.is_sealed() {
            return self.handle_copied_batch(now, block, range, stride);
        }
        self.take_in_batch(now, block, range, stride, |_| true)
    }

    /// Takes in the packets of a batch that were decrypted: of each, by its place among them, `is_open` says whether it was.
    #[inline]
    pub(super) fn take_in_batch(
        &mut self,
        now: Instant,
        block: &Block,
        range: Range<usize>,
        stride: usize,
        is_open: impl Fn(usize) -> bool,
    ) -> BatchDrops {
        let mut drops = BatchDrops::default();
        if !self.listens() {
            return drops;
        }
        let end = range.end.min(block.len());
        let Some(batch) = block.get(range.start..end) else { return drops };
        let place = BlockPosition::of_batch(block, range.start, batch.len());
        let stride = stride.max(1);
        let mut takes_runs = self.takes_runs();
        let mut run = Run::default();
        for (index, packet) in batch.chunks(stride).enumerate().filter(|(index, _)| is_open(*index)) {
            let place = place.map(|place| place.forward(index * stride));
            if takes_runs && self.continue_run(now, packet, place, &mut run) {
                continue;
            }
            self.arq.end_run(now, &mut run);
            match self.take_in(now, packet, place) {
                Ok(()) => {}
                Err(PacketError::Replayed) => drops.replayed += 1,
                Err(_) => drops.malformed += 1,
            }
            takes_runs = self.takes_runs();
        }
        self.arq.end_run(now, &mut run);
        self.after_input(now);
        drops
    }

    /// Whether a packet may be taken in as one that continues a run: where there is nothing to be done with it but what
    /// [`continue_run`](Self::continue_run) does.
    #[inline]
    fn takes_runs(&self) -> bool {
        self.extension.is_at_rest()
            && !self.pipeline.has_fec()
            && !self.arq.is_validating()
            && !matches!(self.state, State::Closed(_))
    }

    /// Takes in a decrypted packet if it continues a run: see [`Run`]. Returns whether it did.
    #[inline]
    fn continue_run(
        &mut self,
        now: Instant,
        packet: &[u8],
        place: Option<BlockPosition<'_>>,
        run: &mut Run,
    ) -> bool {
        let pipeline = &mut self.pipeline;
        let (segments, head) = pipeline.payload_of(packet);
        let place = place.map(|place| place.forward(head));
        let overhead = packet.len() - segments.len();
        self.arq.continue_run(now, (segments, overhead), place, run, || pipeline.passes_replay_check(packet))
    }

    /// Takes in one decrypted packet. `place` is where it lies, if its payload may stay there.
    #[inline]
    fn take_in(
        &mut self,
        now: Instant,
        packet: &[u8],
        place: Option<BlockPosition<'_>>,
    ) -> Result<(), PacketError> {
        let validating = self.arq.is_validating();
        if validating {
            self.arq.note_received(packet.len());
        }
        let udp = &mut self.arq.counters_mut().udp;
        udp.packets_received += 1;
        udp.bytes_received += packet.len() as u64;
        let conv = self.arq.conv();
        if let State::Closed(reason) = self.state
            && reason != CloseReason::Finished
        {
            return self.take_in_after_abort(now, packet);
        }
        let (arq, extension) = (&mut self.arq, &mut self.extension);
        let outcome = self.pipeline.take_in(packet, place, conv, |segments, origin, place| {
            arq.input(now, segments, origin, place, extension)
        });
        if validating && !self.arq.is_validating() {
            self.after_validation();
        }
        match outcome {
            Ok(Some(packet)) => return self.receive_datagram(now, &packet),
            Err(PacketError::Replayed) => self.arq.counters_mut().udp.replayed += 1,
            Err(PacketError::Fec) => self.arq.counters_mut().udp.malformed += 1,
            _ => {}
        }
        outcome.map(|_| ())
    }

    /// Takes in one decrypted packet for a session that was aborted here.
    #[cold]
    fn take_in_after_abort(&mut self, now: Instant, packet: &[u8]) -> Result<(), PacketError> {
        let conv = self.conv();
        let mut answers = false;
        let outcome = self.pipeline.take_in(packet, None, conv, |segments, _, _| {
            answers |= is_answered_by_abort(segments, conv);
            Ok(())
        });
        if answers && let Some(extension) = self.extension.as_mut() {
            extension.ends.repeat_abort(now, self.arq.rto());
        }
        outcome.map(|_| ())
    }

    /// The system has refused to send a packet of `len` bytes because the next hop takes none as long (`EMSGSIZE`). The packet counts as
    /// lost. New ones are shorter from here on, unless it was one that asked how long they may be; what has its size already goes
    /// [as fragments](super::Transmit::may_fragment).
    ///
    /// ```
    /// use kcp9::{KcpConfig, proto::{Connection, Instant}};
    ///
    /// let now = Instant::ZERO;
    /// let mut connection = Connection::new(7, &KcpConfig::default(), now);
    /// connection.write(now, &[7; 10_000])?;
    /// let mut buffer = [0; 65_536];
    /// let transmit = connection.poll_transmit(now, &mut buffer).expect("something to send");
    /// assert_eq!(transmit.stride, 1_400);
    /// // The system refuses it.
    /// connection.handle_too_long(now, transmit.stride);
    /// assert_eq!(connection.stats().path.plpmtu, 1_200);
    /// # Ok::<(), kcp9::proto::WriteError>(())
    /// ```
    #[cold]
    pub fn handle_too_long(&mut self, now: Instant, len: usize) {
        self.arq.on_too_long(now, len);
    }

    /// Draws the conclusions from the packets that were taken in.
    #[inline]
    fn after_input(&mut self, now: Instant) {
        if self.pipeline.is_adaptive() {
            self.adapt_fec(now);
        }
        self.after_extension_input(now);
        if self.arq.is_ghost() {
            self.close(CloseReason::Reset);
        }
        self.after_progress();
        self.check_ends(now);
    }

    #[inline(never)]
    fn adapt_fec(&mut self, now: Instant) {
        let (rtt, min_rtt) = self.arq.round_trip_times();
        self.pipeline.adapt(now, self.arq.losses(), rtt, min_rtt);
    }
}

/// Whether a packet for a session that was aborted here is answered by saying so: not if it says the same, or begins a session.
fn is_answered_by_abort(segments: &[u8], conv: u32) -> bool {
    let mut segments = Segments::new(segments).map_while(Result::ok);
    segments.next().is_some_and(|(header, _)| {
        let asks = header.cmd != Command::Extension
            || matches!(
                Subtype::from_byte(header.frg),
                Some(Subtype::Fin | Subtype::FinAck | Subtype::Ping | Subtype::Pong)
            );
        header.conv == conv && asks
    })
}

#[cfg(test)]
mod tests;
