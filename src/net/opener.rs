//! Decrypts what a socket receives, before it is routed: the conv of a packet lies behind its encryption.
//!
//! All sessions of a listener share its cipher. The streams of an endpoint share one per peer, since only the address
//! of a packet is known before it is opened.

use std::{collections::HashMap, net::SocketAddr, vec::Vec};

use super::stats::Counters;
use crate::crypto::{OpenError, PacketCrypto};

#[derive(Debug)]
pub(super) struct Opener {
    ciphers: Ciphers,
    /// Of the last batch; kept for its memory.
    outcomes: Vec<Result<(), OpenError>>,
}

#[derive(Debug)]
enum Ciphers {
    /// Whoever the peer is.
    Listener(Option<PacketCrypto>),
    Endpoint {
        peers: HashMap<SocketAddr, Peer>,
        /// Peers with a cipher.
        encrypted: usize,
    },
}

#[derive(Debug)]
struct Peer {
    crypto: Option<PacketCrypto>,
    sessions: usize,
}

impl Opener {
    pub(super) fn of_listener(crypto: Option<PacketCrypto>) -> Self {
        Self { ciphers: Ciphers::Listener(crypto), outcomes: Vec::new() }
    }

    pub(super) fn of_endpoint() -> Self {
        let ciphers = Ciphers::Endpoint { peers: HashMap::new(), encrypted: 0 };
        Self { ciphers, outcomes: Vec::new() }
    }

    /// Takes note of a session that was opened here; returns whether its cipher is that of the peer's other sessions.
    pub(super) fn add(&mut self, peer: SocketAddr, crypto: Option<PacketCrypto>) -> bool {
        let Ciphers::Endpoint { peers, encrypted } = &mut self.ciphers else { return true };
        match peers.get_mut(&peer) {
            Some(known) if known.crypto != crypto => return false,
            Some(known) => known.sessions += 1,
            None => {
                *encrypted += usize::from(crypto.is_some());
                peers.insert(peer, Peer { crypto, sessions: 1 });
            }
        }
        true
    }

    /// Forgets a session that [`add`](Self::add) took.
    pub(super) fn remove(&mut self, peer: SocketAddr) {
        let Ciphers::Endpoint { peers, encrypted } = &mut self.ciphers else { return };
        let Some(known) = peers.get_mut(&peer) else { return };
        known.sessions -= 1;
        if known.sessions == 0 {
            *encrypted -= usize::from(known.crypto.is_some());
            peers.remove(&peer);
        }
        if peers.is_empty() {
            *peers = HashMap::new();
        }
    }

    fn crypto_of(&self, peer: &SocketAddr) -> Option<&PacketCrypto> {
        match &self.ciphers {
            Ciphers::Listener(crypto) => crypto.as_ref(),
            Ciphers::Endpoint { encrypted: 0, .. } => None,
            Ciphers::Endpoint { peers, .. } => peers.get(peer)?.crypto.as_ref(),
        }
    }

    /// Opens the packets of `peer` that lie back to back in `bytes`, `size` bytes each, and counts those refused.
    pub(super) fn open(
        &mut self,
        peer: &SocketAddr,
        bytes: &mut [u8],
        size: usize,
        counters: &Counters,
    ) -> Opened {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        outcomes.clear();
        let Some(crypto) = self.crypto_of(peer) else {
            return Opened { size, crypto: None, head: 0, tail: 0, outcomes };
        };
        let crypto = crypto.clone();
        let cipher = crypto.cipher();
        // What the cipher leaves out is not opened.
        outcomes.resize(bytes.len().div_ceil(size), Err(OpenError::TooShort));
        cipher.open_batch(bytes, size, &mut outcomes);
        for error in outcomes.iter().filter_map(|outcome| outcome.err()) {
            match error {
                OpenError::TooShort => counters.dropped_short.add(1),
                OpenError::TooLong => counters.dropped_long.add(1),
                OpenError::BadChecksum => counters.dropped_bad_checksum.add(1),
                OpenError::BadTag => counters.dropped_bad_tag.add(1),
            }
        }
        let (head, tail) = (cipher.header_len(), cipher.trailer_len());
        Opened { size, crypto: Some(crypto), head, tail, outcomes }
    }

    /// Takes the memory of a batch back.
    pub(super) fn recycle(&mut self, opened: Opened) {
        self.outcomes = opened.outcomes;
    }
}

/// How opening a batch of packets went.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) size: usize,
    crypto: Option<PacketCrypto>,
    head: usize,
    tail: usize,
    /// Packet by packet; none without a cipher.
    outcomes: Vec<Result<(), OpenError>>,
}

impl Opened {
    /// Whether the packet at byte `at` of the batch was opened.
    pub(super) fn is_open(&self, at: usize) -> bool {
        self.outcomes.get(at / self.size).is_none_or(Result::is_ok)
    }

    /// What an opened packet carries.
    pub(super) fn payload<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        let end = packet.len().saturating_sub(self.tail);
        packet.get(self.head..end).unwrap_or_default()
    }

    /// What the packet at byte `at` of `bytes` carries, if it was opened.
    pub(super) fn payload_at<'a>(&self, bytes: &'a [u8], at: usize) -> Option<&'a [u8]> {
        let packet = &bytes[at..bytes.len().min(at + self.size)];
        self.is_open(at).then(|| self.payload(packet))
    }

    /// What identifies an opened packet, if it came from a holder of the key.
    pub(super) fn authentic_identity(&self, packet: &[u8]) -> Option<u64> {
        let cipher = self.crypto.as_ref()?.cipher();
        if cipher.is_authenticated() { cipher.identity(packet) } else { None }
    }
}
