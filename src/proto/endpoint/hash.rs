//! Hash maps whose keys a peer may choose.
//!
//! A peer chooses its address (or forges one) and its conv. With a hash that it can compute, it could choose many that
//! fall into one bucket, and every packet would cost a walk along them. So the hash is keyed with a secret: SipHash-1-3,
//! which the standard library uses for the same reason and which `core` does not have.

use core::hash::BuildHasher;

use hashbrown::HashMap;
use siphasher::sip::SipHasher13;

use crate::proto::Random;

/// A map whose buckets nobody outside can foretell.
pub(super) type Map<K, V> = HashMap<K, V, HashKey>;

/// The secret of an endpoint's hash maps.
#[derive(Clone, Copy)]
pub(super) struct HashKey([u8; 16]);

impl HashKey {
    pub(super) fn new(random: &mut dyn Random) -> Self {
        let mut key = [0; 16];
        random.fill(&mut key);
        Self(key)
    }

    #[cfg(test)]
    pub(super) const fn for_tests() -> Self {
        Self([7; 16])
    }
}

impl BuildHasher for HashKey {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.0)
    }
}

impl core::fmt::Debug for HashKey {
    /// The key is a secret: it is not printed.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HashKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(u8);

    impl Random for Counting {
        fn fill(&mut self, bytes: &mut [u8]) {
            for byte in bytes {
                self.0 += 1;
                *byte = self.0;
            }
        }
    }

    #[test]
    fn another_key_gives_other_hashes() {
        let mut random = Counting(0);
        let (one, other) = (HashKey::new(&mut random), HashKey::new(&mut random));
        let differing = (0_u32..64).filter(|conv| one.hash_one(conv) != other.hash_one(conv)).count();
        assert_eq!(differing, 64);
        assert_eq!(one.hash_one(5), one.hash_one(5));
    }

    #[test]
    fn the_key_is_not_printed() {
        assert_eq!(alloc::format!("{:?}", HashKey::for_tests()), "HashKey(..)");
    }
}
