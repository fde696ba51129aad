//! The keys of accepted sessions: the current one and, for a while after a rotation, the one before it.
//!
//! A packet does not say which key it was sealed under. So while two keys are accepted, a packet that does not open under one is
//! tried with the other. A failed try leaves nothing of the packet, hence batches are copied before. Which key is tried first is that
//! which opened the last packet from an address like this one, so the peers of either key pay for one try. What opens under
//! neither costs two, for as long as there are two.
//!
//! Every session belongs to the key that its first packet was sealed under, and takes nothing under the other.

use alloc::{boxed::Box, vec, vec::Vec};
use core::{hash::BuildHasher, net::SocketAddr};

use super::{decryptor::Opened, hash::HashKey};
use crate::{crypto::PacketCrypto, proto::Instant};

/// A key of accepted sessions, counted by rotations. It wraps: at most two are in use at a time, and a session lives no longer than
/// its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct KeyPhase(u8);

impl KeyPhase {
    const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    pub(super) const fn before(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }
}

#[derive(Debug)]
pub(super) struct Keys {
    current: Option<PacketCrypto>,
    phase: KeyPhase,
    retiring: Option<Retiring>,
}

/// The key before the current one, as long as it is accepted.
#[derive(Debug)]
struct Retiring {
    crypto: PacketCrypto,
    until: Instant,
    opened_last: OpenedLast,
    /// The batch as it was received. It is kept for its memory.
    sealed: Vec<u8>,
}

impl Keys {
    /// The cipher of accepted sessions, if they have one.
    pub(super) const fn new(current: Option<PacketCrypto>) -> Self {
        Self { current, phase: KeyPhase(0), retiring: None }
    }

    pub(super) const fn current(&self) -> Option<&PacketCrypto> {
        self.current.as_ref()
    }

    pub(super) const fn phase(&self) -> KeyPhase {
        self.phase
    }

    pub(super) fn retiring_until(&self) -> Option<Instant> {
        self.retiring.as_ref().map(|retiring| retiring.until)
    }

    /// The cipher of a key that is accepted.
    pub(super) fn get(&self, phase: KeyPhase) -> Option<&PacketCrypto> {
        if phase == self.phase { self.current() } else { self.before(phase) }
    }

    #[cold]
    fn before(&self, phase: KeyPhase) -> Option<&PacketCrypto> {
        self.retiring.as_ref().filter(|_| phase == self.phase.before()).map(|retiring| &retiring.crypto)
    }

    /// Whether sessions with this key go on.
    pub(super) fn is_accepted(&self, phase: KeyPhase) -> bool {
        phase == self.phase || self.retiring.is_some() && phase == self.phase.before()
    }

    /// The key with this cipher, if it is accepted. `None` is for sessions without a cipher.
    pub(super) fn find(&self, crypto: Option<&PacketCrypto>) -> Option<KeyPhase> {
        if self.current() == crypto {
            return Some(self.phase);
        }
        let retiring = self.retiring.as_ref().filter(|retiring| Some(&retiring.crypto) == crypto);
        retiring.map(|_| self.phase.before())
    }

    /// Makes `crypto` the current key. The one before is accepted until then. One that was retiring is not accepted any more.
    pub(super) fn rotate(&mut self, crypto: PacketCrypto, until: Instant, hash_key: HashKey) {
        let before = self.current.replace(crypto);
        self.phase = self.phase.next();
        self.retiring = before.map(|crypto| {
            // Every peer has the old key still.
            let opened_last = OpenedLast::new(hash_key, true);
            Retiring { crypto, until, opened_last, sealed: Vec::new() }
        });
    }

    /// Accepts the retiring key no longer, once its time is over. Returns whether that is so.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        self.retiring.take_if(|retiring| retiring.until <= now).is_some()
    }

    /// Opens the packets from `source` that lie back to back in `bytes`, each under the key that it was sealed under.
    #[inline]
    pub(super) fn open(&mut self, source: SocketAddr, bytes: &mut [u8], stride: usize, opened: &mut Opened) {
        opened.phase = Some(self.phase);
        let Some(crypto) = &self.current else { return };
        match &mut self.retiring {
            None => opened.open(crypto, bytes, stride),
            Some(retiring) => retiring.open(crypto, source, bytes, stride, opened),
        }
    }
}

impl Retiring {
    #[cold]
    fn open(
        &mut self,
        current: &PacketCrypto,
        source: SocketAddr,
        bytes: &mut [u8],
        stride: usize,
        opened: &mut Opened,
    ) {
        let retiring_first = self.opened_last.is_retiring(source);
        let (first, second) = if retiring_first { (&self.crypto, current) } else { (current, &self.crypto) };
        self.sealed.clear();
        self.sealed.extend_from_slice(bytes);
        opened.open(first, bytes, stride);
        opened.retiring.resize(opened.outcomes.len(), retiring_first);
        let mut other_opened_last = false;
        let packets = bytes.chunks_mut(stride).zip(self.sealed.chunks(stride));
        for ((packet, sealed), (outcome, retiring)) in
            packets.zip(opened.outcomes.iter_mut().zip(&mut opened.retiring))
        {
            if outcome.is_ok() {
                other_opened_last = false;
                continue;
            }
            packet.copy_from_slice(sealed);
            if second.cipher().open(packet).is_ok() {
                (*outcome, *retiring) = (Ok(()), !retiring_first);
                other_opened_last = true;
            }
        }
        if other_opened_last {
            self.opened_last.set(source, !retiring_first);
        }
    }
}

/// Which of two keys opened the last packet from an address. Addresses share places: then the wrong key is tried first.
#[derive(Debug)]
struct OpenedLast {
    /// A bit for each place: it was the retiring key.
    bits: Box<[u64]>,
    hash_key: HashKey,
}

impl OpenedLast {
    /// 16 KiB, for as long as two keys are accepted. Few of 10,000 peers then share a place with one of the other key.
    const PLACES: usize = 1 << 17;

    fn new(hash_key: HashKey, retiring: bool) -> Self {
        let bits = vec![if retiring { u64::MAX } else { 0 }; Self::PLACES / 64];
        Self { bits: bits.into_boxed_slice(), hash_key }
    }

    fn place(&self, source: SocketAddr) -> (usize, u64) {
        let place = self.hash_key.hash_one(source) as usize % Self::PLACES;
        (place / 64, 1 << (place % 64))
    }

    fn is_retiring(&self, source: SocketAddr) -> bool {
        let (word, bit) = self.place(source);
        self.bits[word] & bit != 0
    }

    fn set(&mut self, source: SocketAddr, retiring: bool) {
        let (word, bit) = self.place(source);
        if retiring {
            self.bits[word] |= bit;
        } else {
            self.bits[word] &= !bit;
        }
    }
}
