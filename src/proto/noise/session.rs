//! The packets of a session: sealed under keys of each direction, with counters as nonces.
//!
//! ```text
//! route u32, masked | counter u32, masked | payload, encrypted | tag 16
//! ```
//!
//! The counter's top bit on the wire is the phase: the lowest bit of the epoch whose key seals the packet. The other 31 bits are the
//! lowest ones of a counter of 64 bits that never begins anew. The nonce is the route and the whole counter, so a packet whose clear
//! part was changed does not open. The route is hidden under a key of the end, the counter under one of the session.

use alloc::{boxed::Box, vec::Vec};
use core::{fmt, time::Duration};

use zeroize::Zeroizing;

use super::{
    HEADER_LEN, TAG_LEN,
    error::{OpenPacketError, SealPacketError},
    keys::PublicKey,
    pattern::SessionCipher,
    reset::ResetKey,
    route::{RouteKey, mask},
    schedule::{Chain, EpochKey},
    window::{CounterWindow, Refused},
};
use crate::{
    crypto::{NONCE_LEN, OpenError, SealError},
    proto::Instant,
};

/// Packets that one key seals before the next one is due. With packets of 1,400 bytes that is 2^38.5 blocks of AES: an attacker tells them
/// from random bytes with a probability below 2^-50 (n² / 2^129, NIST SP 800-38D and RFC 9001, appendix B).
const KEY_PACKETS: u64 = 1 << 32;
/// Packets that one key seals at most, where the peer does not show that it has the next one.
const MAX_KEY_PACKETS: u64 = 1 << 33;
/// How long a key is used. Who breaks into an end learns no more than what was said under its last two keys.
const KEY_LIFETIME: Duration = Duration::from_secs(3_600);
/// How long packets under an old key are still taken in.
const OLD_KEY_LIFETIME: Duration = Duration::from_secs(60);
/// Forgeries after which the next key is due. 2^36 are ChaCha20-Poly1305's limit (RFC 9001, section 6.6).
const KEY_FORGERIES: u64 = 1 << 35;
/// Forgeries after which a key opens nothing more.
const MAX_KEY_FORGERIES: u64 = 1 << 36;

/// Bits of the counter that are on the wire.
const COUNTER_BITS: u32 = 31;
const COUNTER_MASK: u64 = (1 << COUNTER_BITS) - 1;

/// Which end of a handshake this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Initiator,
    Responder,
}

/// The keys of one session: it seals the packets that this end sends, and opens those that its peer sends.
///
/// Packets are sealed and opened in place: [`seal`](Self::seal), [`open`](Self::open). Time comes in as an argument, of the same clock for
/// both. Each direction has keys of its own, so a packet that is sent back to its sender opens nothing.
///
/// # Keys change
/// After 2^32 packets or an hour the next packet that is sealed is under a new key; the peer follows with its own packets. That takes no
/// message, no round trip and no pause: packets under the key before are taken in for a minute more. An end waits with another change until
/// its peer has followed.
pub struct SessionKeys {
    sending: Sending,
    receiving: Receiving,
    peer: Option<PublicKey>,
    handshake_hash: [u8; 32],
    route_key: RouteKey,
    /// What the peer of a session that was accepted is to be told of first.
    reset_key: Option<Box<ResetKey>>,
    /// A packet of the peer was opened.
    heard: bool,
}

impl SessionKeys {
    /// `None` where the cipher is not built in.
    pub(super) fn new(
        initiator: &[u8; 32],
        responder: &[u8; 32],
        handshake_hash: &[u8; 32],
        role: Role,
        cipher: SessionCipher,
        peer: Option<PublicKey>,
        route_key: RouteKey,
    ) -> Option<Self> {
        let (own, other) = match role {
            Role::Initiator => (initiator, responder),
            Role::Responder => (responder, initiator),
        };
        Some(Self {
            sending: Sending::new(Chain::new(own, handshake_hash, cipher))?,
            receiving: Receiving::new(Chain::new(other, handshake_hash, cipher))?,
            peer,
            handshake_hash: *handshake_hash,
            route_key,
            reset_key: None,
            heard: false,
        })
    }

    /// Both ends of a session.
    #[cfg(test)]
    pub(in crate::proto) fn pair_for_tests() -> [Self; 2] {
        [Role::Initiator, Role::Responder].map(|role| {
            let cipher = SessionCipher::ChaCha20Poly1305;
            #[expect(clippy::unwrap_used, reason = "a test")]
            Self::new(&[1; 32], &[2; 32], &[3; 32], role, cipher, None, RouteKey::new(None, None)).unwrap()
        })
    }

    /// As if all packets but so many that one key seals had been sealed.
    #[cfg(test)]
    pub(in crate::proto) const fn use_up_but(&mut self, packets: u64) {
        self.sending.counter = self.sending.first + MAX_KEY_PACKETS - packets;
    }

    /// The peer's static public key. `None` in the patterns in which it has none, or does not show it.
    #[must_use]
    pub const fn peer(&self) -> Option<&PublicKey> {
        self.peer.as_ref()
    }

    /// A public value that is the same at both ends of this session, and at no end of another: what an application signs to tie
    /// something of its own to the session (channel binding).
    #[must_use]
    pub const fn handshake_hash(&self) -> &[u8; 32] {
        &self.handshake_hash
    }

    /// Whether a packet of the peer was opened: it has the session's keys, and the handshake is over at both ends.
    #[must_use]
    pub const fn is_peer_heard(&self) -> bool {
        self.heard
    }

    /// The key under which the routes of the session's packets are found, at both ends:
    /// [that of the responder](super::Responder::route_key).
    #[must_use]
    pub const fn route_key(&self) -> &RouteKey {
        &self.route_key
    }

    pub(in crate::proto) fn set_reset_key(&mut self, key: ResetKey) {
        self.reset_key = Some(Box::new(key));
    }

    pub(in crate::proto) fn take_reset_key(&mut self) -> Option<Box<ResetKey>> {
        self.reset_key.take()
    }

    /// Seals a packet in place: `8 bytes of header | payload | 16 bytes of tag`. The header and the tag are written, the payload is
    /// encrypted. `route` is for the peer's routing, which finds it by [`RouteKey::route`]. What is sent again is sealed again, from its
    /// payload: a packet opens once.
    ///
    /// # Errors
    /// [`SealPacketError`]. The packet must not be sent.
    pub fn seal(&mut self, now: Instant, route: u32, packet: &mut [u8]) -> Result<(), SealPacketError> {
        let (_, rest) = packet.split_first_chunk_mut::<HEADER_LEN>().ok_or(SealPacketError::TooShort)?;
        let (payload, tag) = rest.split_last_chunk_mut::<TAG_LEN>().ok_or(SealPacketError::TooShort)?;
        if self.receiving.previous.is_some() {
            self.receiving.expire(now);
        }
        let is_due = self.sending.is_due(now) || self.receiving.forgeries >= KEY_FORGERIES;
        if is_due && self.sending.confirmed {
            self.sending.begin_epoch(now);
        }
        let counter = self.sending.next_counter(now)?;
        let cipher = self.sending.chain.cipher();
        let sealed = self.sending.key.seal(cipher, &nonce(route, counter), payload);
        *tag = sealed.map_err(|error| match error {
            SealError::TooShort => SealPacketError::TooShort,
            _ => SealPacketError::TooLong,
        })?;
        let phase = (self.sending.epoch as u32 & 1) << COUNTER_BITS;
        let clear = phase | (counter & COUNTER_MASK) as u32;
        // A tag is there, so there are 16 bytes behind the header.
        let mask = self.sending.mask.of(&packet[HEADER_LEN..]);
        packet[4..HEADER_LEN].copy_from_slice(&(clear ^ mask).to_le_bytes());
        self.route_key.write(route, packet);
        Ok(())
    }

    /// Opens a packet in place, and returns its payload. It opens once. `route` is what [`RouteKey::route`] has said of it: what stands
    /// in its place is not read again.
    ///
    /// # Errors
    /// [`OpenPacketError`]. Nothing is remembered of the packet then. What its bytes are is unspecified, but for the last 16, which are as they
    /// were.
    pub fn open<'a>(
        &mut self,
        now: Instant,
        route: u32,
        packet: &'a mut [u8],
    ) -> Result<&'a mut [u8], OpenPacketError> {
        let is_followed = self.is_followed();
        let mut parts = self.receiving.take_apart(route, packet)?;
        self.receiving.open(now, is_followed, &mut parts)?;
        self.heard = true;
        if self.receiving.epoch > self.sending.epoch {
            self.sending.begin_epoch(now);
        }
        if self.receiving.epoch == self.sending.epoch {
            self.sending.confirmed = true;
        }
        Ok(parts.payload)
    }

    /// Opens a packet in place as [`open`](Self::open) does, and remembers nothing of it: it may be opened once more. For packets of
    /// which more must be known before they count, such as those from another address.
    ///
    /// # Errors
    /// [`OpenPacketError`]. A packet under the key before the current one is too old here.
    pub fn peek<'a>(&mut self, route: u32, packet: &'a mut [u8]) -> Result<&'a mut [u8], OpenPacketError> {
        let is_followed = self.is_followed();
        let mut parts = self.receiving.take_apart(route, packet)?;
        self.receiving.peek(is_followed, &mut parts)?;
        Ok(parts.payload)
    }

    /// Whether the peer has followed the last change of this end, as far as this end has heard. Until it has, what it sends may be two
    /// epochs ahead of what was opened: it has followed, nothing of that has arrived, and it has gone on by itself.
    #[inline]
    const fn is_followed(&self) -> bool {
        self.sending.epoch <= self.receiving.epoch
    }

    /// Has the next packet sealed under a new key, as soon as the peer has followed the last change.
    pub const fn change_key(&mut self) {
        self.sending.asked = true;
    }

    /// How many changes of keys there were.
    #[must_use]
    pub const fn key_changes(&self) -> u64 {
        self.sending.epoch
    }

    /// Frees what a session that is idle does not need: an old key whose time is over, what is made again for the next packet. Of the
    /// packets before the last one that was opened it is forgotten which of them were: they are all refused.
    pub fn trim(&mut self, now: Instant) {
        self.receiving.expire(now);
        self.park();
    }

    /// As [`trim`](Self::trim), but for an old key.
    pub(in crate::proto) fn park(&mut self) {
        self.sending.key.park();
        self.receiving.key.park();
        self.receiving.window.park();
        self.receiving.later = None;
    }
}

impl fmt::Debug for SessionKeys {
    /// No secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKeys")
            .field("peer", &self.peer)
            .field("heard", &self.heard)
            .field("key_changes", &self.sending.epoch)
            .finish_non_exhaustive()
    }
}

/// The direction in which this end sends.
struct Sending {
    chain: Chain,
    key: EpochKey,
    mask: Mask,
    /// Of the next packet. It goes on through all epochs.
    counter: u64,
    epoch: u64,
    /// The counter of the epoch's first packet, and when that was sealed.
    first: u64,
    began: Option<Instant>,
    /// The peer has sealed a packet under its key of this epoch, so it has ours.
    confirmed: bool,
    /// The application has asked for the next epoch.
    asked: bool,
}

impl Sending {
    fn new(mut chain: Chain) -> Option<Self> {
        let mask = Mask(chain.mask());
        let key = chain.peek()?;
        chain.advance();
        Some(Self {
            chain,
            key,
            mask,
            counter: 0,
            epoch: 0,
            first: 0,
            began: None,
            confirmed: false,
            asked: false,
        })
    }

    fn is_due(&self, now: Instant) -> bool {
        self.asked
            || self.counter - self.first >= KEY_PACKETS
            || self.began.is_some_and(|began| now - began >= KEY_LIFETIME)
    }

    /// Seals under the next key from now on.
    #[cold]
    fn begin_epoch(&mut self, now: Instant) {
        // It could be made before, so it can be made now.
        let Some(key) = self.chain.peek() else { return };
        self.chain.advance();
        self.key = key;
        self.epoch += 1;
        (self.first, self.began) = (self.counter, Some(now));
        (self.confirmed, self.asked) = (false, false);
    }

    fn next_counter(&mut self, now: Instant) -> Result<u64, SealPacketError> {
        if self.counter - self.first >= MAX_KEY_PACKETS {
            return Err(SealPacketError::KeyUsedUp);
        }
        self.began.get_or_insert(now);
        let counter = self.counter;
        self.counter += 1;
        Ok(counter)
    }
}

/// A received packet, before it is opened.
struct Parts<'a> {
    phase: u32,
    counter: u64,
    cipher: SessionCipher,
    nonce: [u8; NONCE_LEN],
    payload: &'a mut [u8],
    tag: &'a [u8; TAG_LEN],
}

impl Parts<'_> {
    #[inline]
    fn open(&mut self, key: &mut EpochKey) -> Result<(), OpenError> {
        key.open(self.cipher, &self.nonce, self.payload, self.tag)
    }
}

/// The direction in which the peer sends.
struct Receiving {
    chain: Chain,
    key: EpochKey,
    mask: Mask,
    window: CounterWindow,
    epoch: u64,
    /// The lowest counter seen in this epoch. Lower ones with the other phase are of the epoch before.
    first: u64,
    /// The key before, and until when it opens packets.
    previous: Option<Box<(EpochKey, Instant)>>,
    /// The keys after, once something may have been sealed under them. They are kept, so that forgeries do not have them made again and
    /// again.
    later: Option<Box<Later>>,
    /// Packets with a wrong tag, in this epoch.
    forgeries: u64,
}

/// The keys of epochs that have not begun.
struct Later {
    next: EpochKey,
    /// The one after the next, as long as the peer may be two epochs ahead.
    second: Option<EpochKey>,
}

impl Receiving {
    fn new(mut chain: Chain) -> Option<Self> {
        let mask = Mask(chain.mask());
        let key = chain.peek()?;
        chain.advance();
        Some(Self {
            chain,
            key,
            mask,
            window: CounterWindow::new(),
            epoch: 0,
            first: 0,
            previous: None,
            later: None,
            forgeries: 0,
        })
    }

    /// The parts of a packet whose counter was not seen before.
    #[inline]
    fn take_apart<'a>(&self, route: u32, packet: &'a mut [u8]) -> Result<Parts<'a>, OpenPacketError> {
        let (header, rest) = packet.split_first_chunk_mut::<HEADER_LEN>().ok_or(OpenPacketError::TooShort)?;
        let mask = self.mask.of(rest);
        let (payload, tag) = rest.split_last_chunk_mut::<TAG_LEN>().ok_or(OpenPacketError::TooShort)?;
        let [_, _, _, _, c0, c1, c2, c3] = *header;
        let clear = u32::from_le_bytes([c0, c1, c2, c3]) ^ mask;
        let counter = nearest(u64::from(clear) & COUNTER_MASK, self.window.next());
        self.window.check(counter).map_err(|refused| match refused {
            Refused::Seen => OpenPacketError::Replayed,
            Refused::TooOld => OpenPacketError::TooOld,
        })?;
        let nonce = nonce(route, counter);
        Ok(Parts { phase: clear >> COUNTER_BITS, counter, cipher: self.chain.cipher(), nonce, payload, tag })
    }

    /// The key of the next epoch, and what else there is behind it. It is made where it is not there.
    fn later(&mut self) -> Option<&mut Later> {
        if self.later.is_none() {
            self.later = self.chain.peek().map(|next| Box::new(Later { next, second: None }));
        }
        self.later.as_deref_mut()
    }

    /// Whether nothing more is to be opened under the key of this epoch: an end that does not seal, or whose peer does not follow, has
    /// begun no other.
    #[inline]
    const fn is_worn_out(&self) -> bool {
        self.forgeries >= MAX_KEY_FORGERIES
    }

    fn is_current(&self, parts: &Parts<'_>) -> bool {
        u64::from(parts.phase) == self.epoch & 1
    }

    /// Opens a packet of this epoch or a later one, and goes on as if it had not come.
    #[cold]
    fn peek(&mut self, is_followed: bool, parts: &mut Parts<'_>) -> Result<(), OpenPacketError> {
        let opened = if self.is_current(parts) {
            if self.is_worn_out() {
                return Err(OpenPacketError::BadTag);
            }
            let copy = (!is_followed).then(|| parts.payload.to_vec());
            let opened = parts.open(&mut self.key);
            match copy {
                Some(copy) if opened.is_err() => self.try_second(copy, parts),
                _ => opened,
            }
        } else if parts.counter < self.first {
            return Err(OpenPacketError::TooOld);
        } else {
            let later = self.later().ok_or(OpenPacketError::BadTag)?;
            parts.open(&mut later.next)
        };
        opened.map_err(|_| {
            self.forgeries += 1;
            OpenPacketError::BadTag
        })
    }

    #[inline]
    fn open(
        &mut self,
        now: Instant,
        is_followed: bool,
        parts: &mut Parts<'_>,
    ) -> Result<(), OpenPacketError> {
        let is_current = self.is_current(parts);
        if is_current && self.is_worn_out() {
            return Err(OpenPacketError::BadTag);
        }
        let opened = if is_current && !is_followed {
            self.open_unfollowed(now, parts)
        } else if is_current {
            parts.open(&mut self.key)
        } else {
            self.open_other(now, parts)?
        };
        if opened.is_err() {
            self.forgeries += 1;
            return Err(OpenPacketError::BadTag);
        }
        if is_current {
            self.first = self.first.min(parts.counter);
        }
        self.window.insert(parts.counter);
        Ok(())
    }

    /// Opens a packet of the other phase than that of this epoch.
    #[cold]
    fn open_other(
        &mut self,
        now: Instant,
        parts: &mut Parts<'_>,
    ) -> Result<Result<(), OpenError>, OpenPacketError> {
        if parts.counter < self.first {
            self.expire(now);
            let previous = self.previous.as_mut().ok_or(OpenPacketError::TooOld)?;
            return Ok(parts.open(&mut previous.0));
        }
        let Some(later) = self.later() else { return Ok(Err(OpenError::BadTag)) };
        let opened = parts.open(&mut later.next);
        if let Some(later) = self.later.take_if(|_| opened.is_ok()) {
            let old = core::mem::replace(&mut self.key, later.next);
            self.begin_epoch(now, 1, old, parts.counter);
        }
        Ok(opened)
    }

    /// Opens a packet of this epoch's phase: it is of this epoch, or of the second one after it.
    #[cold]
    fn open_unfollowed(&mut self, now: Instant, parts: &mut Parts<'_>) -> Result<(), OpenError> {
        let copy = parts.payload.to_vec();
        if parts.open(&mut self.key).is_ok() {
            return Ok(());
        }
        self.try_second(copy, parts)?;
        let Later { next, second } = *self.later.take().ok_or(OpenError::BadTag)?;
        self.key = second.ok_or(OpenError::BadTag)?;
        self.begin_epoch(now, 2, next, parts.counter);
        Ok(())
    }

    /// Opens what is in `copy` with the key after the next one, into the payload.
    fn try_second(&mut self, mut copy: Vec<u8>, parts: &mut Parts<'_>) -> Result<(), OpenError> {
        if parts.counter < self.window.next() {
            return Err(OpenError::BadTag);
        }
        self.later();
        let Self { later: Some(later), chain, .. } = self else { return Err(OpenError::BadTag) };
        if later.second.is_none() {
            later.second = chain.peek_second();
        }
        let second = later.second.as_mut().ok_or(OpenError::BadTag)?;
        let opened = second.open(parts.cipher, &parts.nonce, &mut copy, parts.tag);
        opened.map(|()| parts.payload.copy_from_slice(&copy))
    }

    /// The key is that of an epoch `steps` later from here on, and `previous` is of the one before that.
    fn begin_epoch(&mut self, now: Instant, steps: u64, previous: EpochKey, first: u64) {
        (0..steps).for_each(|_| self.chain.advance());
        self.epoch += steps;
        self.previous = Some(Box::new((previous, now + OLD_KEY_LIFETIME)));
        self.later = None;
        (self.first, self.forgeries) = (first, 0);
    }

    #[cold]
    fn expire(&mut self, now: Instant) {
        self.previous.take_if(|previous| previous.1 <= now);
    }
}

/// Hides the counter, so that an observer cannot tell how many packets there were, which were lost, and which follow each other (as RFC
/// 9001, section 5.4, does); nor can who knows the [`RouteKey`].
struct Mask(Zeroizing<[u8; 16]>);

impl Mask {
    /// The mask of a packet: of the 16 bytes behind its header, which are encrypted.
    #[inline]
    fn of(&self, behind_header: &[u8]) -> u32 {
        mask(&self.0, behind_header)
    }
}

/// What stands in for a nonce: nothing of it can be changed without another key stream and another tag.
#[inline]
fn nonce(route: u32, counter: u64) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    nonce[..4].copy_from_slice(&route.to_le_bytes());
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}

/// The counter with these lowest bits that is nearest to `expected` (RFC 9000, appendix A.3).
#[inline]
const fn nearest(low: u64, expected: u64) -> u64 {
    const RANGE: u64 = 1 << COUNTER_BITS;
    // Nobody gets near the end of the counter, but whoever has the keys may leap towards it.
    let candidate = expected & !COUNTER_MASK | low;
    if candidate.saturating_add(RANGE / 2) <= expected {
        candidate.saturating_add(RANGE)
    } else if candidate > expected.saturating_add(RANGE / 2) && candidate >= RANGE {
        candidate - RANGE
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests;
