//! Encryption of one session's packets, and the packets that it must not take in a second time.

use alloc::{boxed::Box, vec::Vec};

#[cfg(feature = "noise")]
pub(super) use super::sealed::Sealed;
use super::{Begins, begins_session};
#[cfg(feature = "noise")]
use crate::proto::noise;
use crate::{
    crypto::PacketCrypto,
    proto::{
        error::{CloseReason, PacketError},
        replay::ReplayWindow,
        time::Instant,
    },
};

/// Packets that begin a session, remembered until [`take_sent_first`](Encryption::take_sent_first).
const MAX_SENT_FIRST: usize = 64;

/// Each kind has a box of its own, so that a session with keys of its own does not take the room of a static key's replay windows.
#[derive(Debug)]
pub(super) enum Encryption {
    /// A cipher whose key is that of many sessions.
    Static(Box<StaticKey>),
    /// Keys of this session alone.
    #[cfg(feature = "noise")]
    Session(Box<Sealed>),
}

#[derive(Debug)]
pub(super) struct StaticKey {
    crypto: PacketCrypto,
    /// Bytes in front of the payload, and behind it.
    head: usize,
    tail: usize,
    nonce_len: usize,
    /// Whether only a holder of the key can make a packet that is accepted.
    authenticated: bool,
    /// The packets that were received.
    received: ReplayWindow,
    /// The packets that this end sent: an attacker may send them back to it.
    sent: ReplayWindow,
    /// The packets sent that would begin a session at a listener with the same key.
    sent_first: Vec<u64>,
}

impl Encryption {
    /// `replay_window`: how many packets are remembered in each direction.
    pub(super) fn new(crypto: &PacketCrypto, replay_window: usize) -> Self {
        let cipher = crypto.cipher();
        Self::Static(Box::new(StaticKey {
            head: cipher.header_len(),
            tail: cipher.trailer_len(),
            nonce_len: cipher.nonce_len().min(cipher.header_len()),
            authenticated: cipher.is_authenticated(),
            received: ReplayWindow::new(replay_window),
            sent: ReplayWindow::new(replay_window),
            sent_first: Vec::new(),
            crypto: crypto.clone(),
        }))
    }

    /// Of a session of the conversation `conv` that has keys of its own, or will have.
    #[cfg(feature = "noise")]
    pub(super) fn of_session(conv: u32) -> Self {
        Self::Session(Box::new(Sealed::new(conv)))
    }

    /// What seals packets under keys of this session.
    #[cfg(feature = "noise")]
    #[inline]
    pub(super) const fn sealed(&self) -> Option<&Sealed> {
        match self {
            Self::Static(_) => None,
            Self::Session(sealed) => Some(sealed),
        }
    }

    #[cfg(feature = "noise")]
    #[inline]
    pub(super) const fn sealed_mut(&mut self) -> Option<&mut Sealed> {
        match self {
            Self::Static(_) => None,
            Self::Session(sealed) => Some(sealed),
        }
    }

    pub(super) const fn crypto(&self) -> Option<&PacketCrypto> {
        match self {
            Self::Static(key) => Some(&key.crypto),
            #[cfg(feature = "noise")]
            Self::Session(_) => None,
        }
    }

    /// Bytes in front of the payload.
    pub(super) const fn head(&self) -> usize {
        match self {
            Self::Static(key) => key.head,
            #[cfg(feature = "noise")]
            Self::Session(_) => noise::HEADER_LEN,
        }
    }

    /// Bytes behind the payload.
    pub(super) const fn tail(&self) -> usize {
        match self {
            Self::Static(key) => key.tail,
            #[cfg(feature = "noise")]
            Self::Session(_) => noise::TAG_LEN,
        }
    }

    /// Whether only a holder of the key can make a packet that is accepted.
    pub(super) const fn is_authenticated(&self) -> bool {
        match self {
            Self::Static(key) => key.authenticated,
            #[cfg(feature = "noise")]
            Self::Session(_) => true,
        }
    }

    /// Encrypts packets in place. They lie back to back and have `stride` bytes each; the last may be shorter. `first`: the
    /// first PUSH of the session, or a HELLO, may be among them.
    ///
    /// # Errors
    /// Why the session must end.
    pub(super) fn encrypt(
        &mut self,
        now: Instant,
        packets: &mut [u8],
        stride: usize,
        first: bool,
    ) -> Result<(), CloseReason> {
        // A static key has no time.
        #[cfg(not(feature = "noise"))]
        let _ = now;
        match self {
            Self::Static(key) => key.encrypt(packets, stride, first),
            #[cfg(feature = "noise")]
            Self::Session(sealed) => sealed.seal(now, packets, stride),
        }
    }

    /// Checks and decrypts a packet in place.
    pub(super) fn decrypt(&mut self, now: Instant, packet: &mut [u8]) -> Result<(), PacketError> {
        #[cfg(not(feature = "noise"))]
        let _ = now;
        match self {
            Self::Static(key) => key.crypto.cipher().open(packet).map_err(PacketError::Open),
            #[cfg(feature = "noise")]
            Self::Session(sealed) => sealed.open(now, packet),
        }
    }

    /// The payload of a decrypted packet.
    #[inline]
    pub(super) fn payload<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        let end = packet.len().saturating_sub(self.tail());
        packet.get(self.head()..end).unwrap_or_default()
    }

    /// The payload of a decrypted packet, unless the packet was received before, or sent by this end.
    #[inline]
    pub(super) fn check_replay<'a>(&mut self, packet: &'a [u8]) -> Result<&'a [u8], PacketError> {
        let payload = self.payload(packet);
        match self {
            Self::Static(key) => key.check_replay(packet)?,
            // It opens once.
            #[cfg(feature = "noise")]
            Self::Session(_) => {}
        }
        Ok(payload)
    }

    /// The payload of a decrypted packet that a holder of the key made and that was neither received before nor sent by this
    /// end. Unlike [`check_replay`](Self::check_replay), it does not remember the packet.
    pub(super) fn peek<'a>(&self, packet: &'a [u8]) -> Option<&'a [u8]> {
        if !self.is_authenticated() {
            return None;
        }
        match self {
            Self::Static(key) => {
                let identity = key.crypto.cipher().identity(packet)?;
                if key.sent.contains(identity) || key.received.contains(identity) {
                    return None;
                }
            }
            #[cfg(feature = "noise")]
            Self::Session(_) => {}
        }
        packet.get(self.head()..packet.len().checked_sub(self.tail())?)
    }

    /// Frees the memory that is kept for further packets.
    pub(super) fn trim(&mut self) {
        match self {
            Self::Static(key) => {
                key.received.trim();
                key.sent.trim();
            }
            #[cfg(feature = "noise")]
            Self::Session(sealed) => sealed.trim(),
        }
    }

    /// The identities of the packets sent since the last call that would begin a session at a listener with the same key.
    #[inline]
    pub(super) fn take_sent_first(&mut self) -> Vec<u64> {
        match self {
            Self::Static(key) => core::mem::take(&mut key.sent_first),
            #[cfg(feature = "noise")]
            Self::Session(_) => Vec::new(),
        }
    }
}

impl StaticKey {
    /// As [`Encryption::encrypt`].
    fn encrypt(&mut self, packets: &mut [u8], stride: usize, first: bool) -> Result<(), CloseReason> {
        // A bit for each packet that begins a session: once it is encrypted it cannot be told any more.
        let mut beginnings = 0_u64;
        if first && self.authenticated {
            for (bit, packet) in packets.chunks(stride).enumerate() {
                let payload = packet.get(self.head..packet.len() - self.tail).unwrap_or_default();
                beginnings |= u64::from(begins_session(payload) != Begins::No) << (bit % 64);
            }
        }
        if !self.crypto.reserve(packets.len().div_ceil(stride)) {
            return Err(CloseReason::NonceLimit);
        }
        if self.nonce_len > 0 {
            for packet in packets.chunks_mut(stride) {
                self.crypto.fill_nonce(&mut packet[..self.nonce_len]);
            }
        }
        let cipher = self.crypto.cipher();
        cipher.seal_batch(packets, stride).map_err(CloseReason::SealFailed)?;
        if self.authenticated {
            for (bit, packet) in packets.chunks(stride).enumerate() {
                let Some(identity) = cipher.sealed_identity(packet) else { continue };
                self.sent.insert(identity);
                if beginnings >> (bit % 64) & 1 == 1 && self.sent_first.len() < MAX_SENT_FIRST {
                    self.sent_first.push(identity);
                }
            }
        }
        Ok(())
    }

    /// Refuses a decrypted packet that was received before, or sent by this end.
    #[inline]
    fn check_replay(&mut self, packet: &[u8]) -> Result<(), PacketError> {
        let identity = self.crypto.cipher().identity(packet);
        if identity.is_some_and(|identity| self.sent.contains(identity) || !self.received.insert(identity)) {
            return Err(PacketError::Replayed);
        }
        Ok(())
    }
}
