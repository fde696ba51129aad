//! What an end that accepts draws ephemeral keys and ids from, for all of its sessions: who learns its state learns nothing of the past.

use super::schedule::{Secret, derive};
use crate::proto::Random;

/// Random bytes of a seed that is overwritten with each draw.
pub(in crate::proto) struct Generator(Secret);

impl Generator {
    pub(in crate::proto) fn new(random: &mut dyn Random) -> Self {
        let mut seed = Secret::new([0; 32]);
        random.fill(&mut *seed);
        Self(seed)
    }

    /// Draws something else from here on than those that were made with the same randomness and another number.
    pub(in crate::proto) fn set_apart(&mut self, number: u16) {
        self.0 = derive(&self.0, b"kcp9 shard", &number.to_le_bytes());
    }
}

impl Random for Generator {
    fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(32) {
            let drawn = derive(&self.0, b"kcp9 draw", &[]);
            self.0 = derive(&self.0, b"kcp9 next draw", &[]);
            chunk.copy_from_slice(&drawn[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    struct Zeros;

    impl Random for Zeros {
        fn fill(&mut self, bytes: &mut [u8]) {
            bytes.fill(0);
        }
    }

    #[test]
    fn what_is_drawn_never_comes_again() {
        let mut random = Generator::new(&mut Zeros);
        let mut drawn = Vec::new();
        for len in [32, 8, 32, 40] {
            let mut bytes = vec![0; len];
            random.fill(&mut bytes);
            drawn.push(bytes[..8].to_vec());
        }
        let mut distinct = drawn.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), drawn.len());
    }

    #[test]
    fn what_is_set_apart_draws_something_else() {
        let draw = |number: Option<u16>| {
            let mut random = Generator::new(&mut Zeros);
            number.into_iter().for_each(|number| random.set_apart(number));
            let mut bytes = [0; 32];
            random.fill(&mut bytes);
            bytes
        };
        assert_eq!(draw(Some(1)), draw(Some(1)));
        assert!(draw(None) != draw(Some(0)) && draw(Some(0)) != draw(Some(1)));
    }
}
