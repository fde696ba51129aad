//! What a session draws at random: its id, and the key of all that nobody else may foretell.

use core::{fmt, hash::Hasher};

use siphasher::sip::SipHasher13;

use crate::proto::Random;

/// The randomness of one session: its id, which the peer learns, and a key, which nobody does. A session that speaks the
/// [extensions](super::Extensions) needs one of its own: [`Connection::connect`](crate::proto::Connection::connect) and
/// [`Connection::accept`](crate::proto::Connection::accept) take it.
///
/// ```
/// use kcp9::proto::{Random, SessionSeed};
///
/// struct Entropy;
/// impl Random for Entropy {
///     fn fill(&mut self, bytes: &mut [u8]) {
///         bytes.fill(4); // A program draws from the operating system.
///     }
/// }
/// let seed = SessionSeed::new(&mut Entropy);
/// assert_eq!(format!("{seed:?}"), "SessionSeed(..)");
/// ```
pub struct SessionSeed {
    pub(super) id: SessionId,
    pub(super) secret: Secret,
}

impl SessionSeed {
    /// Draws a seed: 24 bytes, which must be unpredictable.
    pub fn new(random: &mut dyn Random) -> Self {
        let (mut id, mut key) = ([0; 8], [0; 16]);
        random.fill(&mut id);
        random.fill(&mut key);
        Self { id: SessionId::non_zero(id), secret: Secret(key) }
    }
}

impl SessionSeed {
    /// Where the times of the session's segments begin.
    pub(in crate::proto) fn ts_base(&self) -> u32 {
        self.secret.hash(Purpose::Clock, 0) as u32
    }
}

impl fmt::Debug for SessionSeed {
    /// The key is a secret: nothing is printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSeed(..)")
    }
}

/// The id that an end has for one session. Its first four bytes are the tag, which every segment to this end carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proto) struct SessionId([u8; 8]);

impl SessionId {
    /// `None` where the tag would be 0.
    pub(in crate::proto) fn from_bytes(bytes: [u8; 8]) -> Option<Self> {
        (Self(bytes).tag() != 0).then_some(Self(bytes))
    }

    /// As drawn, but one that would have the tag 0 gets 1.
    pub(in crate::proto) fn non_zero(mut bytes: [u8; 8]) -> Self {
        if Self(bytes).tag() == 0 {
            bytes[0] = 1;
        }
        Self(bytes)
    }

    pub(in crate::proto) const fn to_bytes(self) -> [u8; 8] {
        self.0
    }

    pub(in crate::proto) const fn tag(self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_le_bytes([a, b, c, d])
    }

    /// For comparing the ids of both ends.
    pub(in crate::proto) const fn as_u64(self) -> u64 {
        u64::from_le_bytes(self.0)
    }
}

/// The key of a session's own hashes: what comes of it, nobody else can guess.
#[derive(Clone, Copy)]
pub(in crate::proto) struct Secret([u8; 16]);

/// What a hash is for. Hashes for different purposes have nothing to do with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::proto) enum Purpose {
    /// The token of an ANSWER, of the id of its HELLO.
    Answer = 1,
    /// The token of a PING, of its number.
    Ping = 2,
    /// The tokens of PINGs that ask whether the peer is at another address, and whether it is still where it was.
    Move = 4,
    /// The tokens of PINGs from a socket that took another's place.
    Rebind = 5,
    /// What `ts` begins with.
    Clock = 6,
}

impl Secret {
    /// SipHash-1-3 of `value`.
    pub(in crate::proto) fn hash(self, purpose: Purpose, value: u64) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write_u8(purpose as u8);
        hasher.write(&value.to_le_bytes());
        hasher.finish()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    struct Bytes(u8);

    impl Random for Bytes {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    /// A seed whose 24 bytes are all `byte`.
    pub(in super::super) fn seed(byte: u8) -> SessionSeed {
        SessionSeed::new(&mut Bytes(byte))
    }

    #[test]
    fn no_session_has_the_tag_0() {
        assert_eq!(seed(0).id.tag(), 1);
        assert_eq!(seed(7).id.tag(), 0x0707_0707);
        assert_eq!(SessionId::from_bytes([0, 0, 0, 0, 1, 1, 1, 1]), None);
    }

    #[test]
    fn hashes_differ_by_key_purpose_and_value() {
        let (one, other) = (seed(1).secret, seed(2).secret);
        let hashes = [
            one.hash(Purpose::Ping, 0),
            one.hash(Purpose::Ping, 1),
            one.hash(Purpose::Answer, 0),
            other.hash(Purpose::Ping, 0),
        ];
        for (at, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..at].contains(hash));
        }
        assert_eq!(hashes[0], one.hash(Purpose::Ping, 0));
    }
}
