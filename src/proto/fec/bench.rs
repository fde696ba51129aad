//! Lets this crate's benchmarks use the encoder and decoder of its sessions. Not part of the public interface.

use alloc::{sync::Arc, vec::Vec};

use super::{Decoder, Encoder, FecError, HEADER_LEN, Packet, ReedSolomon};
use crate::proto::{error::PacketError, time::Instant};

/// A session's encoder.
#[derive(Debug)]
pub struct SessionEncoder(Encoder);

impl SessionEncoder {
    /// Bytes in front of the payload of a data packet.
    pub const HEADER_LEN: usize = HEADER_LEN;

    /// The encoder of a code's packets.
    ///
    /// # Errors
    /// Those of [`ReedSolomon::new`].
    pub fn new(data: usize, parity: usize) -> Result<Self, FecError> {
        ReedSolomon::new(data, parity).map(|code| Self(Encoder::new(Arc::new(code))))
    }

    /// Completes a data packet, and writes each parity packet that follows it to `parity` and hands it on.
    pub fn data(&mut self, packet: &mut [u8], parity: &mut Vec<u8>, mut sent: impl FnMut(&[u8])) {
        self.0.data(Instant::ZERO, packet);
        while let Some(len) = self.0.parity_len() {
            parity.resize(len, 0);
            self.0.parity(parity);
            sent(parity);
        }
    }
}

/// A session's decoder.
#[derive(Debug, Default)]
pub struct SessionDecoder(Decoder);

impl SessionDecoder {
    /// That of a session which itself sends groups of `own` data and parity packets, and expects the like.
    #[must_use]
    pub fn expecting(own: (usize, usize)) -> Self {
        Self(Decoder::expecting(Some(own)))
    }

    /// Takes in a packet, hands on the segments that it brings, and returns how many packets were recovered so far.
    ///
    /// # Errors
    /// Those of a packet that is no FEC packet, or of another conversation.
    pub fn input(
        &mut self,
        packet: &[u8],
        conv: u32,
        mut deliver: impl FnMut(&[u8]),
    ) -> Result<u64, PacketError> {
        let packet = Packet::parse(packet).ok_or(PacketError::Fec)?;
        self.0.input(&packet, conv, |segments, _| {
            deliver(segments);
            Ok(())
        })?;
        Ok(self.0.stats().recovered)
    }
}
