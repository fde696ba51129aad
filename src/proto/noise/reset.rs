//! RESET of a session whose keys are lost: R120 of `docs/secure-sessions.md`.
//!
//! An end that accepts and was started again has no keys of the sessions before. It cannot say so under a seal, and in the clear anybody
//! could say it. So it tells each peer beforehand, under the session's seal, by which 16 bytes it would be known then: the reset key, made
//! of a secret that outlives it, the address of the peer and the conv. All of these it still has when a packet comes that it knows
//! nothing of. Its answer looks like any other packet, and ends with them:
//!
//! ```text
//! route u32, masked | random bytes | reset key 16
//! ```

use alloc::vec::Vec;
use core::{fmt, net::SocketAddr};

use super::{
    HEADER_LEN, TAG_LEN,
    keys::KeyPair,
    route::RouteKey,
    schedule::{Secret, derive},
};
use crate::proto::{HEADER_LEN as SEGMENT_HEADER_LEN, Random};

/// What tells the peer of one session that this end has lost it.
pub(in crate::proto) type ResetKey = [u8; RESET_KEY_LEN];

const RESET_KEY_LEN: usize = TAG_LEN;

/// The shortest packet of a session: a segment without a body.
const MIN_CAUSE: usize = HEADER_LEN + SEGMENT_HEADER_LEN + TAG_LEN;
/// No longer than an answer to PING is, whatever the cause.
const MAX_LEN: usize = MIN_CAUSE + 8;

/// What reset keys are made of.
#[derive(Clone)]
pub(super) struct ResetSecret(Secret);

impl ResetSecret {
    /// The one that follows from a static key pair.
    pub(super) fn of(keys: &KeyPair) -> Self {
        Self(derive(keys.secret(), b"kcp9 reset secret", &[]))
    }

    pub(super) fn from_bytes(secret: &[u8; 32]) -> Self {
        Self(Secret::new(*secret))
    }

    /// The key of the session of `conv` with `peer`.
    pub(super) fn key(&self, peer: SocketAddr, conv: u32) -> ResetKey {
        let ip = match peer.ip().to_canonical() {
            core::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            core::net::IpAddr::V6(ip) => ip,
        };
        let mut context = [0; 16 + 2 + 4];
        context[..16].copy_from_slice(&ip.octets());
        context[16..18].copy_from_slice(&peer.port().to_le_bytes());
        context[18..].copy_from_slice(&conv.to_le_bytes());
        let mut key = [0; RESET_KEY_LEN];
        key.copy_from_slice(&derive(&self.0, b"kcp9 reset key", &context)[..RESET_KEY_LEN]);
        key
    }
}

impl fmt::Debug for ResetSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResetSecret")
    }
}

/// Whether a packet of `len` bytes can be one of a session, and so may be answered.
pub(in crate::proto) const fn draws_reset(len: usize) -> bool {
    len >= MIN_CAUSE
}

/// The answer to a packet of `cause_len` bytes of a session that is not known. It is shorter than that, so no two ends can go on answering
/// each other.
pub(in crate::proto) fn write_reset(
    key: &ResetKey,
    route_key: &RouteKey,
    conv: u32,
    cause_len: usize,
    random: &mut dyn Random,
) -> Vec<u8> {
    let mut packet = alloc::vec![0; MAX_LEN.min(cause_len.saturating_sub(1))];
    let head = packet.len().saturating_sub(RESET_KEY_LEN);
    let (front, tail) = packet.split_at_mut(head);
    random.fill(front);
    tail.copy_from_slice(&key[..tail.len()]);
    route_key.write(conv, &mut packet);
    packet
}

/// Whether a packet that does not open is the answer of a peer that has lost the session. It takes the same time for all keys.
pub(in crate::proto) fn is_reset(packet: &[u8], key: &ResetKey) -> bool {
    let Some((_, tail)) = packet.split_last_chunk::<RESET_KEY_LEN>() else { return false };
    tail.iter().zip(key).fold(0, |differing, (one, other)| differing | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ones;

    impl Random for Ones {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.fill(1);
        }
    }

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_key_is_of_one_secret_address_and_conv() {
        let keys = KeyPair::from_secret_bytes(&[3; 32]);
        let secret = ResetSecret::of(&keys);
        let (peer, conv) = (addr("192.0.2.1:4000"), 7);
        let key = secret.key(peer, conv);
        assert_eq!(key, ResetSecret::of(&keys.clone()).key(peer, conv), "after a restart");
        assert_eq!(key, secret.key(addr("[::ffff:192.0.2.1]:4000"), conv), "over a socket of both families");
        let others = [
            secret.key(addr("192.0.2.1:4001"), conv),
            secret.key(addr("192.0.2.2:4000"), conv),
            secret.key(addr("[2001:db8::1]:4000"), conv),
            secret.key(peer, 8),
            ResetSecret::from_bytes(&[3; 32]).key(peer, conv),
            ResetSecret::of(&KeyPair::from_secret_bytes(&[4; 32])).key(peer, conv),
        ];
        assert!(!others.contains(&key));
    }

    #[test]
    fn an_answer_is_shorter_than_its_cause_and_known_by_its_key_alone() {
        let key = ResetSecret::from_bytes(&[9; 32]).key(addr("192.0.2.1:4000"), 7);
        let route_key = RouteKey::new(None, None);
        for cause_len in [MIN_CAUSE, MIN_CAUSE + 1, MAX_LEN, MAX_LEN + 1, 1_400] {
            assert!(draws_reset(cause_len));
            let packet = write_reset(&key, &route_key, 7, cause_len, &mut Ones);
            assert!(packet.len() < cause_len && packet.len() <= MAX_LEN, "{} to {cause_len}", packet.len());
            assert!(route_key.route(&packet) == Some(7) && is_reset(&packet, &key));
            for at in packet.len() - RESET_KEY_LEN..packet.len() {
                let mut other = packet.clone();
                other[at] ^= 0x10;
                assert!(!is_reset(&other, &key), "byte {at}");
            }
        }
        assert!(!draws_reset(MIN_CAUSE - 1));
        assert!(!is_reset(&key[1..], &key));
    }
}
