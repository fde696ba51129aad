//! Packets sealed under keys of one session, which both ends have agreed on.

use alloc::{boxed::Box, vec::Vec};

use crate::{
    crypto::OpenError,
    proto::{
        error::{CloseReason, HandshakeError, PacketError},
        noise::{NoiseFailure, OpenPacketError, PublicKey, SealPacketError, SessionKeys},
        time::Instant,
    },
};

#[derive(Debug)]
pub(in crate::proto) struct Sealed {
    /// What stands in front of packets: both ends route by it.
    conv: u32,
    /// `None` until both ends have agreed on them. Nothing is sent before, nor taken in.
    keys: Option<Box<SessionKeys>>,
    /// Who the peer was, and the handshake's hash, once the keys were taken.
    past: Option<Box<(Option<PublicKey>, [u8; 32])>>,
    /// Which packets of a batch were opened. It is kept for its memory.
    opened: Vec<bool>,
}

impl Sealed {
    pub(super) const fn new(conv: u32) -> Self {
        Self { conv, keys: None, past: None, opened: Vec::new() }
    }

    pub(in crate::proto) fn set_keys(&mut self, keys: Box<SessionKeys>) {
        self.keys = Some(keys);
    }

    /// The public key of the peer, if both ends have agreed on keys and it has shown one.
    pub(in crate::proto) fn peer(&self) -> Option<PublicKey> {
        let past = || self.past.as_ref().and_then(|past| past.0);
        self.keys.as_ref().map_or_else(past, |keys| keys.peer().copied())
    }

    /// The hash of the handshake, if both ends have agreed on keys.
    pub(in crate::proto) fn handshake_hash(&self) -> Option<[u8; 32]> {
        let past = || self.past.as_ref().map(|past| past.1);
        self.keys.as_ref().map_or_else(past, |keys| Some(*keys.handshake_hash()))
    }

    pub(in crate::proto) fn take_keys(&mut self) -> Option<Box<SessionKeys>> {
        let keys = self.keys.take()?;
        self.past = Some(Box::new((keys.peer().copied(), *keys.handshake_hash())));
        Some(keys)
    }

    /// The memory for what became of a batch, to be [given back](Self::return_opened).
    pub(in crate::proto) fn take_opened(&mut self) -> Vec<bool> {
        core::mem::take(&mut self.opened)
    }

    pub(in crate::proto) fn return_opened(&mut self, mut opened: Vec<bool>) {
        opened.clear();
        self.opened = opened;
    }

    /// Seals packets in place, as [`Pipeline::encrypt`](super::Pipeline::encrypt) says.
    pub(super) fn seal(
        &mut self,
        now: Instant,
        packets: &mut [u8],
        stride: usize,
    ) -> Result<(), CloseReason> {
        let Some(keys) = &mut self.keys else {
            // Whoever made this connection has not made it agree on keys.
            return Err(CloseReason::HandshakeFailed(HandshakeError::Noise(NoiseFailure::Unconfigured)));
        };
        for packet in packets.chunks_mut(stride) {
            keys.seal(now, self.conv, packet).map_err(|error| match error {
                SealPacketError::KeyUsedUp => CloseReason::NonceLimit,
                SealPacketError::TooShort => CloseReason::SealFailed(crate::crypto::SealError::TooShort),
                SealPacketError::TooLong => CloseReason::SealFailed(crate::crypto::SealError::TooLong),
            })?;
        }
        Ok(())
    }

    /// Opens a packet in place.
    pub(in crate::proto) fn open(&mut self, now: Instant, packet: &mut [u8]) -> Result<(), PacketError> {
        let keys = self.keys.as_mut().ok_or(PacketError::Open(OpenError::BadTag))?;
        keys.open(now, packet).map(|_| ()).map_err(|error| match error {
            OpenPacketError::Replayed | OpenPacketError::TooOld => PacketError::Replayed,
            OpenPacketError::TooShort => PacketError::Open(OpenError::TooShort),
            OpenPacketError::BadTag => PacketError::Open(OpenError::BadTag),
        })
    }

    /// The payload of a packet that is opened in place and may be opened once more.
    pub(in crate::proto) fn peek<'a>(&mut self, packet: &'a mut [u8]) -> Option<&'a [u8]> {
        self.keys.as_mut()?.peek(packet).ok().map(|payload| &*payload)
    }

    pub(super) fn trim(&mut self) {
        self.opened = Vec::new();
        if let Some(keys) = &mut self.keys {
            keys.park();
        }
    }
}
