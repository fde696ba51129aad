//! The bytes that are sent, and the check of those that arrive: a sequence that both ends make from a seed, at the speed of
//! memory.

/// A stream of 64-bit words, no two of them equal: bytes that were moved, repeated, left out or changed are found. It can be
/// split at any byte.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    seed: u64,
    /// Bytes made so far.
    position: u64,
}

/// Bytes compared at a time: they stay in the first-level cache.
const BLOCK: usize = 4_096;
/// The golden ratio's odd 64-bit fraction: multiples of it spread evenly.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Payload {
    /// The payload of connection `index` in a run.
    pub(crate) fn new(seed: u64, index: usize) -> Self {
        let start = (seed << 20).wrapping_add(index as u64);
        Self { seed: mix(start.wrapping_mul(0xd134_2543_de82_ef95)), position: 0 }
    }

    /// The next bytes.
    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        // The rest of the last word, whole words, and the beginning of the next.
        let into = (self.position % 8) as usize;
        let rest = if into == 0 { 0 } else { out.len().min(8 - into) };
        let (head, out) = out.split_at_mut(rest);
        head.copy_from_slice(&self.word().to_le_bytes()[into..][..rest]);
        self.position += rest as u64;

        let mut state = self.state();
        let (words, tail) = out.as_chunks_mut::<8>();
        for word in &mut *words {
            *word = mix(state).to_le_bytes();
            state = state.wrapping_add(GAMMA);
        }
        self.position += 8 * words.len() as u64;
        tail.copy_from_slice(&self.word().to_le_bytes()[..tail.len()]);
        self.position += tail.len() as u64;
    }

    /// Whether `bytes` are the next ones.
    pub(crate) fn check(&mut self, bytes: &[u8]) -> bool {
        let mut block = [0; BLOCK];
        bytes.chunks(BLOCK).all(|bytes| {
            let expected = &mut block[..bytes.len()];
            self.fill(expected);
            expected == bytes
        })
    }

    fn word(&self) -> u64 {
        mix(self.state())
    }

    fn state(&self) -> u64 {
        self.seed.wrapping_add((self.position / 8).wrapping_mul(GAMMA))
    }
}

/// One to one, so that different words stay different, and only with operations that every vector unit has.
const fn mix(state: u64) -> u64 {
    let x = state ^ state >> 29;
    x ^ x << 17
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_split_makes_the_same_bytes() {
        let mut whole = vec![0; 20_000];
        Payload::new(1, 2).fill(&mut whole);
        let mut payload = Payload::new(1, 2);
        let mut rest = whole.as_slice();
        for size in (0..40).chain([4_095, 4_096, 4_097]).cycle() {
            let (bytes, later) = rest.split_at(rest.len().min(size));
            assert!(payload.check(bytes));
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
    }

    #[test]
    fn any_difference_shows() {
        let mut bytes = vec![0; 10_000];
        Payload::new(1, 0).fill(&mut bytes);
        assert!(Payload::new(1, 0).check(&bytes));
        assert!(!Payload::new(1, 1).check(&bytes) && !Payload::new(2, 0).check(&bytes));
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert!(!Payload::new(1, 0).check(&bytes), "changed at {at}");
            bytes[at] ^= 1;
        }
        for shift in 1..9_000 {
            assert!(!Payload::new(1, 0).check(&bytes[shift..]), "{shift} left out");
        }
        bytes[1_376..4_128].rotate_left(1_376);
        assert!(!Payload::new(1, 0).check(&bytes), "two segments swapped");
    }
}
