//! Cookies: the proof of a peer with our extensions that it receives what is sent to its address, before there is a session.
//!
//! A HELLO without a cookie is answered by RETRY, which carries one; HELLO comes again with it. Nothing is remembered meanwhile: a
//! cookie is a keyed hash of all that it is bound to, which is the address, the conversation, the id in the HELLO, and the time.
//! So it is of no use to anybody else, and of none after [`LIFETIME`]. The key is the endpoint's own and is never stored, so that
//! a restart makes all cookies invalid. They are asked for again then, which takes a round trip.

use core::{
    hash::Hasher,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::proto::{Instant, Random, extension::SessionId};

/// How long a cookie counts: several of the waits between two HELLOs.
const LIFETIME: Duration = Duration::from_secs(30);

/// The bytes of a cookie: when it was made, in seconds of the endpoint's clock, and the hash.
pub(super) const COOKIE_LEN: usize = 4 + 16;

/// Makes and checks cookies.
pub(super) struct Cookies {
    key: [u8; 16],
}

impl Cookies {
    pub(super) fn new(random: &mut dyn Random) -> Self {
        let mut key = [0; 16];
        random.fill(&mut key);
        Self { key }
    }

    /// The cookie for who sends HELLO with this `id` from `source`.
    pub(super) fn make(
        &self,
        now: Instant,
        source: SocketAddr,
        conv: u32,
        id: SessionId,
    ) -> [u8; COOKIE_LEN] {
        let seconds = seconds(now);
        let mut cookie = [0; COOKIE_LEN];
        cookie[..4].copy_from_slice(&seconds.to_le_bytes());
        cookie[4..].copy_from_slice(&self.hash(seconds, source, conv, id));
        cookie
    }

    /// Whether it is one of this endpoint for this HELLO, and not too old.
    pub(super) fn is_valid(
        &self,
        now: Instant,
        cookie: &[u8],
        source: SocketAddr,
        conv: u32,
        id: SessionId,
    ) -> bool {
        let Some((made_at, hash)) = cookie.split_first_chunk::<4>() else { return false };
        let made_at = u32::from_le_bytes(*made_at);
        let age = seconds(now).wrapping_sub(made_at);
        // Compared without leaving early: the time it takes tells nothing about the hash.
        let differs = |hash: &[u8]| {
            let expected = self.hash(made_at, source, conv, id);
            hash.iter().zip(expected).fold(0, |differs, (byte, expected)| differs | (byte ^ expected)) != 0
        };
        u64::from(age) < LIFETIME.as_secs() && hash.len() == 16 && !differs(hash)
    }

    fn hash(&self, seconds: u32, source: SocketAddr, conv: u32, id: SessionId) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        match source.ip() {
            IpAddr::V4(ip) => hasher.write(&ip.octets()),
            IpAddr::V6(ip) => hasher.write(&ip.octets()),
        }
        hasher.write(&source.port().to_le_bytes());
        hasher.write(&conv.to_le_bytes());
        hasher.write(&id.to_bytes());
        hasher.write(&seconds.to_le_bytes());
        hasher.finish128().as_bytes()
    }
}

fn seconds(now: Instant) -> u32 {
    (now.as_micros() / 1_000_000) as u32
}

impl core::fmt::Debug for Cookies {
    /// The key is a secret: it is not printed.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Cookies(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(u8);

    impl Random for Bytes {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    const NOW: Instant = Instant::from_millis(77_777);

    fn id(byte: u8) -> SessionId {
        SessionId::from_bytes([byte; 8]).unwrap()
    }

    fn source(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, host], port))
    }

    #[test]
    fn a_cookie_is_for_one_hello_from_one_address() {
        let cookies = Cookies::new(&mut Bytes(3));
        let cookie = cookies.make(NOW, source(1, 9), 7, id(5));
        let valid = |from, conv, id| cookies.is_valid(NOW, &cookie, from, conv, id);
        assert!(valid(source(1, 9), 7, id(5)));
        assert!(!valid(source(2, 9), 7, id(5)));
        assert!(!valid(source(1, 8), 7, id(5)));
        assert!(!valid(source(1, 9), 8, id(5)));
        assert!(!valid(source(1, 9), 7, id(6)));
        assert!(!Cookies::new(&mut Bytes(4)).is_valid(NOW, &cookie, source(1, 9), 7, id(5)));
    }

    #[test]
    fn a_cookie_counts_for_half_a_minute() {
        let cookies = Cookies::new(&mut Bytes(3));
        let cookie = cookies.make(NOW, source(1, 9), 7, id(5));
        let valid = |at| cookies.is_valid(at, &cookie, source(1, 9), 7, id(5));
        assert!(valid(NOW + Duration::from_secs(29)));
        assert!(!valid(NOW + Duration::from_secs(30)));
        assert!(!valid(Instant::ZERO), "nor before it was made");
    }

    #[test]
    fn each_byte_of_a_cookie_counts() {
        let cookies = Cookies::new(&mut Bytes(3));
        let cookie = cookies.make(NOW, source(1, 9), 7, id(5));
        for at in 0..COOKIE_LEN {
            for bit in 0..8 {
                let mut changed = cookie;
                changed[at] ^= 1 << bit;
                assert!(!cookies.is_valid(NOW, &changed, source(1, 9), 7, id(5)), "byte {at}, bit {bit}");
            }
            assert!(!cookies.is_valid(NOW, &cookie[..at], source(1, 9), 7, id(5)));
        }
        let mut longer = cookie.to_vec();
        longer.push(0);
        assert!(!cookies.is_valid(NOW, &longer, source(1, 9), 7, id(5)));
    }
}
