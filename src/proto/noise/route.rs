//! What hides the route of packets: R98 and R99 of `docs/secure-sessions.md`.
//!
//! The receiver needs the route before it knows the session, so what hides it is a key that belongs to the end and to no session. The end
//! that accepts has it before, and tells the other one in its answer what it is made of, where nobody else reads it.

use core::fmt;

use siphasher::sip::SipHasher24;
use zeroize::Zeroizing;

use super::{
    HEADER_LEN, TAG_LEN,
    keys::{KEY_LEN, KeyPair, Psk},
    schedule::derive,
};

const ROUTE_LEN: usize = 4;

/// What a responder tells in its answers, so that initiators have its route key. It follows from its static key pair, and is the same for
/// all of them, and after a restart.
#[derive(Clone)]
pub(super) struct RouteSecret(Zeroizing<[u8; Self::LEN]>);

impl RouteSecret {
    pub(super) const LEN: usize = 16;

    pub(super) fn of(keys: &KeyPair) -> Self {
        let mut secret = Zeroizing::new([0; Self::LEN]);
        secret.copy_from_slice(&derive(keys.secret(), b"kcp9 route secret", &[])[..Self::LEN]);
        Self(secret)
    }

    pub(super) fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    pub(super) fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl fmt::Debug for RouteSecret {
    /// No secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RouteSecret")
    }
}

/// The key under which an end finds the routes of the packets that it receives, before it is known whose they are:
/// [`Responder::route_key`](super::Responder::route_key), [`SessionKeys::route_key`](super::SessionKeys::route_key). Both ends of a session
/// have the same one, and so do all sessions of that responder. It is made of the shared key, and of a secret of the responder, which its
/// answer says under encryption; without static keys, as in [`Pattern::NnPsk0`](super::Pattern::NnPsk0), of the shared key alone. Who
/// only watches the two, and does not have the shared key, cannot tell which packets are of one session. Who begins a handshake with that
/// responder himself can: with a shared key who has that, else anybody, in [`Pattern::Nk`](super::Pattern::Nk) who knows the public key.
#[derive(Clone)]
pub struct RouteKey(Zeroizing<[u8; 16]>);

impl RouteKey {
    pub(super) fn new(psk: Option<&Psk>, secret: Option<&RouteSecret>) -> Self {
        let psk = psk.map_or(&[0; KEY_LEN], Psk::as_bytes);
        let context = secret.map_or(&[][..], |secret| secret.as_bytes());
        let mut key = Zeroizing::new([0; 16]);
        key.copy_from_slice(&derive(psk, b"kcp9 route", context)[..16]);
        Self(key)
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
        *self.0 == *other.0
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

    #[test]
    fn a_key_is_of_the_shared_key_and_the_responders_secret() {
        let secret = |byte| RouteSecret::of(&KeyPair::from_secret_bytes(&[byte; 32]));
        let psk = |byte| Psk::from_bytes(&[byte; 32]);
        let keys = [
            RouteKey::new(Some(&psk(1)), None),
            RouteKey::new(Some(&psk(2)), None),
            RouteKey::new(None, Some(&secret(2))),
            RouteKey::new(None, Some(&secret(3))),
            RouteKey::new(Some(&psk(1)), Some(&secret(2))),
            RouteKey::new(None, None),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "{at}");
        }
        assert_eq!(keys[0], RouteKey::new(Some(&psk(1)), None));
        assert_eq!(
            keys[4],
            RouteKey::new(Some(&psk(1)), Some(&RouteSecret::from_bytes(secret(2).as_bytes())))
        );
    }

    /// Also somebody who has the shared key has to be told the secret.
    #[test]
    fn nothing_that_is_public_makes_the_key() {
        let (keys, psk) = (KeyPair::from_secret_bytes(&[2; 32]), Psk::from_bytes(&[1; 32]));
        let (secret, public) = (RouteSecret::of(&keys), keys.public().as_bytes());
        for psk in [None, Some(&psk)] {
            let key = RouteKey::new(psk, Some(&secret));
            let bytes = psk.map_or(&[0; KEY_LEN], Psk::as_bytes);
            for context in [&public[..], &public[..16], &public[16..], &[]] {
                assert_ne!(key.0[..], derive(bytes, b"kcp9 route", context)[..16]);
            }
            for label in [&b"kcp9 route"[..], b"kcp9 route secret"] {
                assert_ne!(secret.as_bytes()[..], derive(public, label, &[])[..16]);
                assert_ne!(secret.as_bytes()[..], derive(bytes, label, public)[..16]);
            }
        }
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
