//! Packets sealed under keys of one session, which both ends have agreed on.

use alloc::{boxed::Box, vec::Vec};

use crate::{
    crypto::OpenError,
    proto::{
        error::{CloseReason, HandshakeError, PacketError},
        noise::{
            HEADER_LEN, NoiseFailure, OpenPacketError, PublicKey, RouteKey, SealPacketError, SessionKeys,
            TAG_LEN,
        },
        time::Instant,
    },
};

#[derive(Debug)]
pub(in crate::proto) struct Sealed {
    /// The route of packets: both ends have it for that.
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

    /// What hides the route of packets, if both ends have agreed on keys.
    pub(in crate::proto) fn route_key(&self) -> Option<&RouteKey> {
        self.keys.as_ref().map(|keys| keys.route_key())
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
        let conv = self.conv;
        self.keys_of(packet)?.open(now, conv, packet).map(|_| ()).map_err(packet_error)
    }

    /// Opens a packet in place that may be opened once more.
    pub(in crate::proto) fn peek(&mut self, packet: &mut [u8]) -> Result<(), PacketError> {
        let conv = self.conv;
        self.keys_of(packet)?.peek(conv, packet).map(|_| ()).map_err(packet_error)
    }

    /// The keys for a packet of this conversation. One that an [`Endpoint`](crate::proto::Endpoint) has routed shows it; one that was
    /// handed over as it came has its mask still.
    #[inline]
    fn keys_of(&mut self, packet: &[u8]) -> Result<&mut SessionKeys, PacketError> {
        let keys = self.keys.as_mut().ok_or(PacketError::Open(OpenError::BadTag))?;
        if packet.starts_with(&self.conv.to_le_bytes()) || keys.route_key().route(packet) == Some(self.conv) {
            return Ok(keys);
        }
        let is_short = packet.len() < HEADER_LEN + TAG_LEN;
        Err(PacketError::Open(if is_short { OpenError::TooShort } else { OpenError::BadTag }))
    }

    pub(super) fn trim(&mut self) {
        self.opened = Vec::new();
        if let Some(keys) = &mut self.keys {
            keys.park();
        }
    }
}

const fn packet_error(error: OpenPacketError) -> PacketError {
    match error {
        OpenPacketError::Replayed | OpenPacketError::TooOld => PacketError::Replayed,
        OpenPacketError::TooShort => PacketError::Open(OpenError::TooShort),
        OpenPacketError::BadTag => PacketError::Open(OpenError::BadTag),
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::proto::{Connection, KcpConfig, Random, SessionSeed, noise};

    struct Constant;

    impl Random for Constant {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.fill(5);
        }
    }

    /// Its peer is silent, so it goes on with no other key.
    #[test]
    fn a_session_whose_key_is_used_up_ends_by_the_limit_of_nonces() {
        let now = Instant::from_millis(1_000);
        let noise = noise::Responder::nk(noise::KeyPair::from_secret_bytes(&[3; 32]));
        let config = KcpConfig::builder().noise(noise).build().unwrap();
        let [_, mut keys] = SessionKeys::pair_for_tests();
        keys.use_up_but(2);
        let seed = SessionSeed::new(&mut Constant);
        let mut connection = Connection::accept_with_keys(7, &config, now, seed, Box::new(keys), None);
        connection.set_validated();
        let mut buffer = vec![0; 65_536];
        for _ in 0..2 {
            connection.write(now, b"one packet").unwrap();
            let transmit = connection.poll_transmit(now, &mut buffer).unwrap();
            assert_eq!((transmit.packets(), connection.close_reason()), (1, None));
        }
        connection.write(now, b"one too many").unwrap();
        buffer.fill(0);
        assert_eq!(connection.poll_transmit(now, &mut buffer), None);
        assert_eq!(connection.close_reason(), Some(CloseReason::NonceLimit));
        assert!(connection.write(now, b"more").is_err());
        assert_eq!(connection.poll_transmit(now, &mut buffer), None, "not even a last word");
    }
}
