//! Encryption of one session's packets, and the packets that it must not take in a second time.

use alloc::vec::Vec;

use super::{Begins, begins_session};
use crate::{
    crypto::PacketCrypto,
    proto::{
        error::{CloseReason, PacketError},
        replay::ReplayWindow,
    },
};

/// Packets that begin a session, remembered until [`take_sent_first`](Encryption::take_sent_first).
const MAX_SENT_FIRST: usize = 64;

#[derive(Debug)]
pub(super) struct Encryption {
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
        Self {
            head: cipher.header_len(),
            tail: cipher.trailer_len(),
            nonce_len: cipher.nonce_len().min(cipher.header_len()),
            authenticated: cipher.is_authenticated(),
            received: ReplayWindow::new(replay_window),
            sent: ReplayWindow::new(replay_window),
            sent_first: Vec::new(),
            crypto: crypto.clone(),
        }
    }

    pub(super) const fn crypto(&self) -> &PacketCrypto {
        &self.crypto
    }

    /// Bytes in front of the payload.
    pub(super) const fn head(&self) -> usize {
        self.head
    }

    /// Bytes behind the payload.
    pub(super) const fn tail(&self) -> usize {
        self.tail
    }

    /// Whether only a holder of the key can make a packet that is accepted.
    pub(super) const fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    /// Encrypts packets in place. They lie back to back and have `stride` bytes each; the last may be shorter. `first`: the
    /// first PUSH of the session, or a HELLO, may be among them.
    ///
    /// # Errors
    /// Why the session must end.
    pub(super) fn encrypt(
        &mut self,
        packets: &mut [u8],
        stride: usize,
        first: bool,
    ) -> Result<(), CloseReason> {
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

    /// Checks and decrypts a packet in place.
    pub(super) fn decrypt(&self, packet: &mut [u8]) -> Result<(), PacketError> {
        self.crypto.cipher().open(packet).map_err(PacketError::Open)
    }

    /// The payload of a decrypted packet, unless the packet was received before, or sent by this end.
    pub(super) fn check_replay<'a>(&mut self, packet: &'a [u8]) -> Result<&'a [u8], PacketError> {
        let end = packet.len().saturating_sub(self.tail);
        let payload = packet.get(self.head..end).unwrap_or_default();
        let identity = self.crypto.cipher().identity(packet);
        if identity.is_some_and(|identity| self.sent.contains(identity) || !self.received.insert(identity)) {
            return Err(PacketError::Replayed);
        }
        Ok(payload)
    }

    /// The payload of a decrypted packet that a holder of the key made and that was neither received before nor sent by this
    /// end. Unlike [`check_replay`](Self::check_replay), it does not remember the packet.
    pub(super) fn peek<'a>(&self, packet: &'a [u8]) -> Option<&'a [u8]> {
        let identity = self.crypto.cipher().identity(packet).filter(|_| self.authenticated)?;
        if self.sent.contains(identity) || self.received.contains(identity) {
            return None;
        }
        packet.get(self.head..packet.len().checked_sub(self.tail)?)
    }

    /// Frees the memory that is kept for further packets.
    pub(super) fn trim(&mut self) {
        self.received.trim();
        self.sent.trim();
    }

    /// The identities of the packets sent since the last call that would begin a session at a listener with the same key.
    pub(super) fn take_sent_first(&mut self) -> Vec<u64> {
        core::mem::take(&mut self.sent_first)
    }
}
