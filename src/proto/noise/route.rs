//! What hides the route of packets: R98 and R99 of `docs/secure-sessions.md`.
//!
//! The receiver needs the route before it knows the session, so what hides it is a key that belongs to the end and to no session: it is
//! made of what both ends have before they meet.

use alloc::sync::Arc;
use core::fmt;

use siphasher::sip::SipHasher24;
use zeroize::Zeroizing;

use super::{
    HEADER_LEN, TAG_LEN,
    keys::{KEY_LEN, Psk, PublicKey},
    schedule::derive,
};

const ROUTE_LEN: usize = 4;

/// The key under which an end finds the routes of the packets that it receives, before it is known whose they are:
/// [`Responder::route_key`](super::Responder::route_key), [`Initiator::route_key`](super::Initiator::route_key). Both ends of a session
/// have the same one, and so do all sessions of that end. It is made of the shared key, and of the responder's public key where the
/// initiator knows it before. Who has none of these cannot tell which packets are of one session. In [`Pattern::Xx`](super::Pattern::Xx)
/// there is nothing that both ends know before, and the key is one that everybody has.
///
/// Clones are cheap.
#[derive(Clone)]
pub struct RouteKey(Arc<Zeroizing<[u8; 16]>>);

impl RouteKey {
    /// `responder`: the key of the end that accepts, where the other one knows it before the handshake.
    pub(super) fn new(psk: Option<&Psk>, responder: Option<&PublicKey>) -> Self {
        let psk = psk.map_or(&[0; KEY_LEN], Psk::as_bytes);
        let context = responder.map_or(&[][..], |responder| responder.as_bytes());
        let mut key = Zeroizing::new([0; 16]);
        key.copy_from_slice(&derive(psk, b"kcp9 route", context)[..16]);
        Self(Arc::new(key))
    }

    /// The route of a sealed packet, for [`SessionKeys::open`](super::SessionKeys::open). `None` for fewer bytes than any packet has.
    ///
    /// Of a packet that is none, or that was changed, it is a number like any other.
    #[must_use]
    #[inline]
    pub fn route(&self, packet: &[u8]) -> Option<u32> {
        let masked = packet.first_chunk().filter(|_| packet.len() >= HEADER_LEN + TAG_LEN)?;
        Some(u32::from_le_bytes(*masked) ^ self.mask(&packet[HEADER_LEN..]))
    }

    /// Puts the route of a sealed packet in place of what hides it. Without effect on fewer bytes than any packet has.
    #[inline]
    pub(in crate::proto) fn unmask(&self, packet: &mut [u8]) {
        if let Some(route) = self.route(packet) {
            packet[..ROUTE_LEN].copy_from_slice(&route.to_le_bytes());
        }
    }

    /// Writes the route in front of a packet that is sealed otherwise, or looks so.
    #[inline]
    pub(super) fn write(&self, route: u32, packet: &mut [u8]) {
        let mask = packet.get(HEADER_LEN..).map_or(0, |rest| self.mask(rest));
        if let Some(front) = packet.first_chunk_mut::<ROUTE_LEN>() {
            *front = (route ^ mask).to_le_bytes();
        }
    }

    #[inline]
    fn mask(&self, behind_header: &[u8]) -> u32 {
        mask(&self.0, behind_header)
    }
}

impl fmt::Debug for RouteKey {
    /// No secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RouteKey")
    }
}

impl PartialEq for RouteKey {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || *self.0 == *other.0
    }
}

impl Eq for RouteKey {}

/// What hides 32 bits of a header: a pseudo-random function of the 16 bytes behind it, which are encrypted. SipHash-2-4 is in every build
/// of the crate; what QUIC has for it are two ciphers more.
#[inline]
pub(super) fn mask(key: &[u8; 16], behind_header: &[u8]) -> u32 {
    SipHasher24::new_with_key(key).hash(behind_header.get(..TAG_LEN).unwrap_or_default()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::noise::KeyPair;

    #[test]
    fn a_key_is_of_all_that_both_ends_know_before() {
        let (psk, public) = (Psk::from_bytes(&[1; 32]), *KeyPair::from_secret_bytes(&[2; 32]).public());
        let keys = [
            RouteKey::new(Some(&psk), None),
            RouteKey::new(Some(&Psk::from_bytes(&[2; 32])), None),
            RouteKey::new(None, Some(&public)),
            RouteKey::new(Some(&psk), Some(&public)),
            RouteKey::new(None, None),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{at}");
        }
        assert_eq!(keys[0], RouteKey::new(Some(&psk), None));
    }

    #[test]
    fn a_route_is_found_again_under_its_key_alone() {
        let [one, other] = [1, 2].map(|byte| RouteKey::new(Some(&Psk::from_bytes(&[byte; 32])), None));
        let mut packet = [7; HEADER_LEN + TAG_LEN + 3];
        one.write(5, &mut packet);
        assert_eq!(one.route(&packet), Some(5));
        assert_ne!(other.route(&packet), Some(5));
        let masked = packet;
        one.unmask(&mut packet);
        assert_eq!((&packet[..4], &packet[4..]), (&5_u32.to_le_bytes()[..], &masked[4..]));
        let short = &mut packet[..HEADER_LEN + TAG_LEN - 1];
        let before = short.to_vec();
        one.unmask(short);
        assert_eq!((one.route(short), &*short), (None, &before[..]));
    }
}
