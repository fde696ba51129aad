//! Decrypts packets before they are routed.
//!
//! The conv of a packet lies behind its encryption, so which session a packet is for is known only once it is decrypted.
//! What is known before is the address that it came from. Hence one cipher serves all sessions that are accepted (two while it is
//! being [rotated](super::keys)), and the sessions that were begun here share one cipher for each peer address. The keys that hide the
//! convs of packets that are decrypted later, by their sessions, are known by the address, too (`masks`).

#[cfg(feature = "noise")]
use alloc::sync::Arc;
use alloc::{collections::VecDeque, vec::Vec};
use core::{net::SocketAddr, time::Duration};

use super::{
    batch::Batch,
    hash::{HashKey, Map},
    keys::{KeyPhase, Keys},
};
use crate::{
    crypto::{OpenError, PacketCrypto},
    proto::Instant,
};

#[cfg(feature = "noise")]
use crate::proto::noise::RouteKey;

/// Most ciphers that are kept for peers without sessions. Past it, the oldest go early.
const MAX_KEPT: usize = 65_536;
/// Most route keys of one peer. It has one, and another one when it was started again with other keys, or where several servers with keys
/// of their own stand behind one address. Past it, the one goes that a new session has brought the longest time ago.
#[cfg(feature = "noise")]
const MAX_ROUTE_KEYS: usize = 8;

/// The ciphers of an endpoint.
#[derive(Debug)]
pub(super) struct Decryptor {
    /// The ciphers of accepted sessions, and of every address that is not in `peers`.
    accepted: Keys,
    /// The addresses that sessions were begun with here.
    peers: Map<SocketAddr, Peer>,
    /// When the ciphers of peers without sessions are forgotten, in order of time.
    kept: VecDeque<(Instant, SocketAddr)>,
    /// How many of `peers` have none of the ciphers of accepted sessions. While there are none, no address is looked up.
    differing: usize,
    /// The peer that was looked up last because ciphers differ, with its cipher. The next batch mostly comes from there, too.
    last: Option<(SocketAddr, Option<PacketCrypto>)>,
    /// The same of what packets show of their routes.
    #[cfg(feature = "noise")]
    last_begun: Option<(SocketAddr, BegunHere)>,
}

/// What the packets of the sessions show that were begun here with an address.
#[cfg(feature = "noise")]
#[derive(Debug, Clone)]
pub(super) enum BegunHere {
    /// There are no such sessions.
    Nothing,
    /// Routes that one of these keys hides, the last one that was learned first. There is none before a session has agreed on keys.
    Masked(Arc<[RouteKey]>),
    /// All.
    Plain,
    /// Nothing.
    Encrypted,
}

#[derive(Debug)]
struct Peer {
    crypto: Option<PacketCrypto>,
    /// Sessions agree on keys.
    sealed: bool,
    /// What hides the routes of their packets, as far as it is known: the last one that was learned comes first.
    #[cfg(feature = "noise")]
    route_keys: Arc<[RouteKey]>,
    /// Sessions with the address that were begun here.
    sessions: usize,
    /// Until when the cipher is kept behind the last of them.
    until: Instant,
}

/// What surrounds the payload of a decrypted packet, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frame {
    pub(super) header: usize,
    pub(super) trailer: usize,
}

impl Frame {
    fn of(crypto: &PacketCrypto) -> Self {
        let cipher = crypto.cipher();
        Self { header: cipher.header_len(), trailer: cipher.trailer_len() }
    }

    /// What a decrypted packet carries; nothing if it is too short.
    pub(super) fn payload(self, packet: &[u8]) -> &[u8] {
        let end = packet.len().saturating_sub(self.trailer);
        packet.get(self.header..end).unwrap_or_default()
    }
}

/// How the packets of a batch were decrypted.
#[derive(Debug, Default)]
pub(super) struct Opened {
    pub(super) frame: Frame,
    /// How it went, packet by packet; empty where nothing is encrypted. It is kept for its memory.
    pub(super) outcomes: Vec<Result<(), OpenError>>,
    /// The key of accepted sessions that they were opened under; `None` where it was the cipher of a peer.
    pub(super) phase: Option<KeyPhase>,
    /// Which packets were opened under the key before that one instead. Empty while only one is accepted.
    pub(super) retiring: Vec<bool>,
}

impl Opened {
    /// Opens packets that lie back to back in `bytes`, `stride` bytes each, the last perhaps shorter.
    pub(super) fn open(&mut self, crypto: &PacketCrypto, bytes: &mut [u8], stride: usize) {
        self.frame = Frame::of(crypto);
        // A cipher of the application's own may leave packets out. These are not decrypted.
        self.outcomes.resize(bytes.len().div_ceil(stride), Err(OpenError::TooShort));
        crypto.cipher().open_batch(bytes, stride, &mut self.outcomes);
    }

    fn clear(&mut self) {
        self.frame = Frame::default();
        self.outcomes.clear();
        self.phase = None;
        self.retiring.clear();
    }
}

impl Decryptor {
    /// `accepted`: the cipher of sessions that peers begin.
    pub(super) fn new(accepted: Option<PacketCrypto>, key: HashKey) -> Self {
        Self {
            accepted: Keys::new(accepted),
            peers: Map::with_hasher(key),
            kept: VecDeque::new(),
            differing: 0,
            last: None,
            #[cfg(feature = "noise")]
            last_begun: None,
        }
    }

    /// The keys of accepted sessions.
    pub(super) const fn accepted(&self) -> &Keys {
        &self.accepted
    }

    /// Makes `crypto` the key of accepted sessions. The one before is accepted until then.
    pub(super) fn rotate(&mut self, crypto: PacketCrypto, until: Instant) {
        self.accepted.rotate(crypto, until, *self.peers.hasher());
        self.count_differing();
    }

    /// Accepts the key before the current one no longer, once its time is over. Returns whether that is so.
    pub(super) fn expire_key(&mut self, now: Instant) -> bool {
        let expired = self.accepted.expire(now);
        if expired {
            self.count_differing();
        }
        expired
    }

    /// The keys of accepted sessions have changed.
    fn count_differing(&mut self) {
        let differs = |peer: &&Peer| self.accepted.find(peer.crypto.as_ref()).is_none();
        self.differing = self.peers.values().filter(differs).count();
        self.last = None;
    }

    /// Which key of accepted sessions the sessions have that were begun here with `peer`; `None` if it is a cipher of their own.
    pub(super) fn phase_of(&self, peer: SocketAddr) -> Option<KeyPhase> {
        self.accepted.find(self.peers.get(&peer)?.crypto.as_ref())
    }

    /// Adds a session that is begun here. Returns whether its cipher, and whether it agrees on keys, is that of the other sessions which
    /// were begun with this address; if not, it is not added.
    pub(super) fn add(&mut self, peer: SocketAddr, crypto: Option<&PacketCrypto>, sealed: bool) -> bool {
        if let Some(known) = self.peers.get_mut(&peer) {
            let same = known.crypto.as_ref() == crypto && known.sealed == sealed;
            if same || known.sessions > 0 {
                known.sessions += usize::from(same);
                return same;
            }
            // The cipher of sessions that have ended gives way.
            self.drop_peer(peer);
        }
        self.differing += usize::from(self.accepted.find(crypto).is_none());
        let known = Peer {
            crypto: crypto.cloned(),
            sealed,
            #[cfg(feature = "noise")]
            route_keys: Arc::default(),
            sessions: 1,
            until: Instant::ZERO,
        };
        self.peers.insert(peer, known);
        self.forget_last();
        true
    }

    /// A session that was begun here has agreed on keys, and this one hides the routes of its packets.
    #[cfg(feature = "noise")]
    pub(super) fn learn_route_key(&mut self, peer: SocketAddr, key: &RouteKey) {
        let Some(known) = self.peers.get_mut(&peer) else { return };
        if known.route_keys.first() != Some(key) {
            let others = known.route_keys.iter().filter(|other| *other != key).take(MAX_ROUTE_KEYS - 1);
            known.route_keys = core::iter::once(key).chain(others).cloned().collect();
            self.forget_last();
        }
    }

    /// Removes a session that [`add`](Self::add) took. The cipher of the address is kept for `keep` where that is more than
    /// nothing, so that what the peer still sends can be read.
    pub(super) fn remove(&mut self, now: Instant, peer: SocketAddr, keep: Duration) {
        self.expire(now);
        let Some(known) = self.peers.get_mut(&peer) else { return };
        known.sessions -= 1;
        known.until = known.until.max(now + keep);
        let until = known.until;
        if known.sessions > 0 {
            return;
        }
        let is_as_accepted = !known.sealed && self.accepted.find(known.crypto.as_ref()).is_some();
        // A session before it may have left something for which the cipher is kept.
        if known.until <= now || is_as_accepted {
            self.drop_peer(peer);
            return;
        }
        if self.kept.len() == MAX_KEPT {
            self.expire_oldest(now);
        }
        self.kept.push_back((until, peer));
    }

    /// Until when the cipher is kept that is kept the shortest.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        self.kept.front().map(|(until, _)| *until)
    }

    /// Forgets the ciphers that were kept until now.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.kept.front().is_some_and(|(until, _)| *until <= now) {
            self.expire_oldest(now);
        }
    }

    fn expire_oldest(&mut self, now: Instant) {
        let Some((until, peer)) = self.kept.pop_front() else { return };
        // There may be sessions again, or it may be kept for later ones.
        let is_over = |known: &Peer| known.sessions == 0 && known.until <= until.max(now);
        if self.peers.get(&peer).is_some_and(is_over) {
            self.drop_peer(peer);
        }
        if self.kept.is_empty() {
            self.kept = VecDeque::new();
        }
    }

    fn drop_peer(&mut self, peer: SocketAddr) {
        let Some(known) = self.peers.remove(&peer) else { return };
        self.differing -= usize::from(self.accepted.find(known.crypto.as_ref()).is_none());
        self.forget_last();
        if self.peers.is_empty() {
            // Gives the memory of a crowd back.
            self.peers = Map::with_hasher(*self.peers.hasher());
        }
    }

    fn forget_last(&mut self) {
        self.last = None;
        #[cfg(feature = "noise")]
        {
            self.last_begun = None;
        }
    }

    /// What packets from `source` show, if they are of sessions that were begun here.
    #[cfg(feature = "noise")]
    #[inline]
    pub(super) fn begun_with(&mut self, source: SocketAddr) -> &BegunHere {
        if self.peers.is_empty() {
            return &BegunHere::Nothing;
        }
        let last = self.last_begun.take().filter(|(last, _)| *last == source);
        let begun = last.map_or_else(|| self.look_up(source), |(_, begun)| begun);
        &self.last_begun.insert((source, begun)).1
    }

    #[cfg(feature = "noise")]
    fn look_up(&self, source: SocketAddr) -> BegunHere {
        match self.peers.get(&source) {
            None => BegunHere::Nothing,
            Some(Peer { sealed: true, route_keys, .. }) => BegunHere::Masked(Arc::clone(route_keys)),
            Some(Peer { crypto: None, .. }) => BegunHere::Plain,
            Some(_) => BegunHere::Encrypted,
        }
    }

    /// The cipher of the sessions that were begun here with `source`, if accepted sessions have others.
    fn own_cipher_of(&mut self, source: SocketAddr) -> Option<Option<&PacketCrypto>> {
        if self.differing == 0 {
            return None;
        }
        if self.last.as_ref().is_none_or(|(last, _)| *last != source) {
            let crypto = &self.peers.get(&source)?.crypto;
            if self.accepted.find(crypto.as_ref()).is_some() {
                return None;
            }
            self.last = Some((source, crypto.clone()));
        }
        self.last.as_ref().map(|(_, crypto)| crypto.as_ref())
    }

    /// The cipher that answers to a run of packets from `source` are to have, if it was opened under this key.
    pub(super) fn crypto_of(&mut self, source: SocketAddr, phase: Option<KeyPhase>) -> Option<&PacketCrypto> {
        match phase {
            Some(phase) => self.accepted.get(phase),
            None => self.own_cipher_of(source)?,
        }
    }

    /// Whether a run of packets from `source` that was opened under a key of accepted sessions may be of one. Not so where sessions
    /// were begun with that address under another key or cipher: a time comes in which only that is tried.
    pub(super) fn may_be_of_accepted(&self, source: SocketAddr, phase: Option<KeyPhase>) -> bool {
        let same = |peer: &Peer| phase.is_some() && self.accepted.find(peer.crypto.as_ref()) == phase;
        self.peers.get(&source).is_none_or(same)
    }

    /// Decrypts the packets from `source` that lie back to back in `bytes`, `stride` bytes each, the last perhaps shorter.
    pub(super) fn decrypt(
        &mut self,
        source: SocketAddr,
        bytes: &mut [u8],
        stride: usize,
        opened: &mut Opened,
    ) {
        opened.clear();
        match self.own_cipher_of(source) {
            None => self.accepted.open(source, bytes, stride, opened),
            Some(None) => {}
            Some(Some(crypto)) => opened.open(crypto, bytes, stride),
        }
    }

    /// Leaves a batch as it is.
    #[cfg(feature = "noise")]
    pub(super) fn leave(opened: &mut Opened) {
        opened.clear();
    }

    /// Another shard has decrypted a batch, under this key of accepted sessions. Returns whether it is one of this endpoint's.
    pub(super) fn already_decrypted(&self, phase: Option<KeyPhase>, opened: &mut Opened) -> bool {
        opened.clear();
        opened.phase = phase;
        let Some(phase) = phase.filter(|phase| self.accepted.is_accepted(*phase)) else { return false };
        opened.frame = self.accepted.get(phase).map(Frame::of).unwrap_or_default();
        true
    }

    /// What identifies a decrypted packet of the last run of `batch`, if only a holder of the key can have made it.
    pub(super) fn authentic_identity(&mut self, batch: &Batch, packet: &[u8]) -> Option<u64> {
        let cipher = self.crypto_of(batch.source, batch.run_phase)?.cipher();
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

    /// The cipher of what comes from `source`.
    fn cipher_of(decryptor: &mut Decryptor, source: SocketAddr) -> Option<&PacketCrypto> {
        let mut opened = Opened::default();
        decryptor.decrypt(source, &mut [], 1, &mut opened);
        decryptor.crypto_of(source, opened.phase)
    }

    const NOW: Instant = Instant::from_millis(1_000);
    const KEEP: Duration = Duration::from_secs(60);

    #[test]
    fn a_cipher_is_kept_for_a_while_and_gives_way_to_another() {
        let (one, other) = (crypto(), crypto());
        let mut decryptor = Decryptor::new(None, HashKey::for_tests());
        decryptor.add(address(1), Some(&one), false);
        decryptor.add(address(2), Some(&one), false);
        for port in [1, 2] {
            decryptor.remove(NOW, address(port), KEEP);
            assert_eq!(cipher_of(&mut decryptor, address(port)), Some(&one));
        }
        // Another session of the first, with its own cipher.
        assert!(decryptor.add(address(1), Some(&other), false));
        assert_eq!(cipher_of(&mut decryptor, address(1)), Some(&other));
        assert_eq!(decryptor.differing, 2);
        decryptor.remove(NOW + KEEP / 2, address(1), KEEP);
        decryptor.expire(NOW + KEEP);
        assert_eq!(cipher_of(&mut decryptor, address(1)), Some(&other), "half of its time is left");
        assert_eq!(cipher_of(&mut decryptor, address(2)), None);
        decryptor.expire(NOW + KEEP * 2);
        assert_eq!(cipher_of(&mut decryptor, address(1)), None);
        assert_eq!((decryptor.differing, decryptor.peers.capacity(), decryptor.kept.capacity()), (0, 0, 0));
    }

    #[test]
    fn no_more_ciphers_are_kept_than_the_limit() {
        let one = crypto();
        let mut decryptor = Decryptor::new(None, HashKey::for_tests());
        for number in 0..MAX_KEPT as u32 + 10 {
            let peer = SocketAddr::from((number.to_be_bytes(), 1));
            decryptor.add(peer, Some(&one), false);
            decryptor.remove(NOW, peer, KEEP);
        }
        assert_eq!((decryptor.kept.len(), decryptor.peers.len()), (MAX_KEPT, MAX_KEPT));
    }

    #[test]
    fn an_address_has_the_cipher_of_its_connected_sessions_until_the_last_ends() {
        let (accepted, own) = (crypto(), crypto());
        let mut decryptor = Decryptor::new(Some(accepted.clone()), HashKey::for_tests());
        assert!(decryptor.add(address(1), Some(&own), false));
        assert!(decryptor.add(address(1), Some(&own), false));
        assert!(!decryptor.add(address(1), Some(&accepted), false), "another cipher");
        assert!(!decryptor.add(address(1), None, false), "no cipher");
        assert!(decryptor.add(address(2), None, false));
        for _ in 0..2 {
            assert_eq!(cipher_of(&mut decryptor, address(1)), Some(&own));
            assert_eq!(cipher_of(&mut decryptor, address(2)), None);
            assert_eq!(cipher_of(&mut decryptor, address(3)), Some(&accepted));
        }
        decryptor.remove(NOW, address(1), Duration::ZERO);
        assert_eq!(cipher_of(&mut decryptor, address(1)), Some(&own), "one session is left");
        decryptor.remove(NOW, address(1), Duration::ZERO);
        assert_eq!(cipher_of(&mut decryptor, address(1)), Some(&accepted));
        decryptor.remove(NOW, address(1), Duration::ZERO);
        decryptor.remove(NOW, address(2), Duration::ZERO);
        assert_eq!((decryptor.differing, decryptor.peers.capacity()), (0, 0));
        assert_eq!(cipher_of(&mut decryptor, address(2)), Some(&accepted));
    }
}
