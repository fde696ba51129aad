//! Decrypts packets before they are routed.
//!
//! The conv of a packet lies behind its encryption, so which session a packet is for is known only once it is decrypted.
//! What is known before is the address that it came from. Hence one cipher serves all sessions that are accepted, and the
//! sessions that were begun here share one cipher for each peer address.

use alloc::vec::Vec;
use core::net::SocketAddr;

use super::hash::{HashKey, Map};
use crate::crypto::{OpenError, PacketCrypto};

/// The ciphers of an endpoint.
#[derive(Debug)]
pub(super) struct Decryptor {
    /// The cipher of accepted sessions, and of every address that is not in `peers`.
    accepted: Option<PacketCrypto>,
    /// The addresses that sessions were begun with here.
    peers: Map<SocketAddr, Peer>,
    /// How many of `peers` have another cipher than accepted sessions. While there are none, no address is looked up.
    differing: usize,
    /// The peer that was looked up last because ciphers differ, with its cipher. The next batch mostly comes from there, too.
    last: Option<(SocketAddr, Option<PacketCrypto>)>,
}

#[derive(Debug)]
struct Peer {
    crypto: Option<PacketCrypto>,
    /// Sessions with the address that were begun here.
    sessions: usize,
}

/// What surrounds the payload of a decrypted packet, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frame {
    pub(super) header: usize,
    pub(super) trailer: usize,
}

impl Frame {
    /// What a decrypted packet carries; nothing if it is too short.
    pub(super) fn payload(self, packet: &[u8]) -> &[u8] {
        let end = packet.len().saturating_sub(self.trailer);
        packet.get(self.header..end).unwrap_or_default()
    }
}

impl Decryptor {
    /// `accepted`: the cipher of sessions that peers begin.
    pub(super) fn new(accepted: Option<PacketCrypto>, key: HashKey) -> Self {
        Self { accepted, peers: Map::with_hasher(key), differing: 0, last: None }
    }

    /// The cipher of accepted sessions.
    pub(super) const fn accepted(&self) -> Option<&PacketCrypto> {
        self.accepted.as_ref()
    }

    /// Adds a session that is begun here. Returns whether its cipher is that of the other sessions which were begun with
    /// this address; if not, it is not added.
    pub(super) fn add(&mut self, peer: SocketAddr, crypto: Option<&PacketCrypto>) -> bool {
        if let Some(known) = self.peers.get_mut(&peer) {
            let same = known.crypto.as_ref() == crypto;
            known.sessions += usize::from(same);
            return same;
        }
        self.differing += usize::from(crypto != self.accepted.as_ref());
        self.peers.insert(peer, Peer { crypto: crypto.cloned(), sessions: 1 });
        self.last = None;
        true
    }

    /// Removes a session that [`add`](Self::add) took.
    pub(super) fn remove(&mut self, peer: SocketAddr) {
        let Some(known) = self.peers.get_mut(&peer) else { return };
        known.sessions -= 1;
        if known.sessions > 0 {
            return;
        }
        self.differing -= usize::from(known.crypto != self.accepted);
        self.peers.remove(&peer);
        self.last = None;
        if self.peers.is_empty() {
            // Gives the memory of a crowd back.
            self.peers = Map::with_hasher(*self.peers.hasher());
        }
    }

    /// The cipher of what comes from `source`.
    pub(super) fn crypto_of(&mut self, source: SocketAddr) -> Option<&PacketCrypto> {
        if self.differing == 0 {
            return self.accepted.as_ref();
        }
        if self.last.as_ref().is_none_or(|(last, _)| *last != source) {
            match self.peers.get(&source) {
                Some(peer) if peer.crypto != self.accepted => self.last = Some((source, peer.crypto.clone())),
                _ => return self.accepted.as_ref(),
            }
        }
        self.last.as_ref()?.1.as_ref()
    }

    /// Whether what comes from `source` is decrypted as accepted sessions are.
    pub(super) fn has_accepted_cipher(&self, source: SocketAddr) -> bool {
        self.differing == 0 || self.peers.get(&source).is_none_or(|peer| peer.crypto == self.accepted)
    }

    /// Decrypts the packets from `source` that lie back to back in `bytes`, `stride` bytes each, the last perhaps shorter.
    /// `outcomes` tells how it went, packet by packet; it stays empty where nothing is encrypted.
    pub(super) fn decrypt(
        &mut self,
        source: SocketAddr,
        bytes: &mut [u8],
        stride: usize,
        outcomes: &mut Vec<Result<(), OpenError>>,
    ) -> Frame {
        outcomes.clear();
        let Some(crypto) = self.crypto_of(source) else { return Frame::default() };
        let cipher = crypto.cipher();
        // A cipher of the application's own may leave packets out. These are not decrypted.
        outcomes.resize(bytes.len().div_ceil(stride), Err(OpenError::TooShort));
        cipher.open_batch(bytes, stride, outcomes);
        Frame { header: cipher.header_len(), trailer: cipher.trailer_len() }
    }

    /// What identifies a decrypted packet from `source`, if only a holder of the key can have made it.
    pub(super) fn authentic_identity(&mut self, source: SocketAddr, packet: &[u8]) -> Option<u64> {
        let cipher = self.crypto_of(source)?.cipher();
        if cipher.is_authenticated() { cipher.identity(packet) } else { None }
    }
}

#[cfg(all(test, feature = "none"))]
mod tests {
    use alloc::sync::Arc;

    use super::*;
    use crate::crypto::{CipherKind, Framing, Key, NonceSource};

    #[derive(Debug)]
    struct Zeros;

    impl NonceSource for Zeros {
        fn fill(&self, nonce: &mut [u8]) {
            nonce.fill(0);
        }
    }

    fn crypto() -> PacketCrypto {
        let cipher = CipherKind::None.build(&Key::from_bytes(&[]), Framing::KcpGo).unwrap();
        PacketCrypto::new(cipher, Arc::new(Zeros))
    }

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn an_address_has_the_cipher_of_its_connected_sessions_until_the_last_ends() {
        let (accepted, own) = (crypto(), crypto());
        let mut decryptor = Decryptor::new(Some(accepted.clone()), HashKey::for_tests());
        assert!(decryptor.add(address(1), Some(&own)));
        assert!(decryptor.add(address(1), Some(&own)));
        assert!(!decryptor.add(address(1), Some(&accepted)), "another cipher");
        assert!(!decryptor.add(address(1), None), "no cipher");
        assert!(decryptor.add(address(2), None));
        for _ in 0..2 {
            assert_eq!(decryptor.crypto_of(address(1)), Some(&own));
            assert_eq!(decryptor.crypto_of(address(2)), None);
            assert_eq!(decryptor.crypto_of(address(3)), Some(&accepted));
        }
        decryptor.remove(address(1));
        assert_eq!(decryptor.crypto_of(address(1)), Some(&own), "one session is left");
        decryptor.remove(address(1));
        assert_eq!(decryptor.crypto_of(address(1)), Some(&accepted));
        decryptor.remove(address(1));
        decryptor.remove(address(2));
        assert_eq!((decryptor.differing, decryptor.peers.capacity()), (0, 0));
        assert_eq!(decryptor.crypto_of(address(2)), Some(&accepted));
    }
}
