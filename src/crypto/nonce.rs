//! Nonces from the operating system's randomness.

use core::{cell::RefCell, fmt, mem::ManuallyDrop, slice::from_mut};
use std::{
    sync::{Mutex, OnceLock, PoisonError},
    thread_local,
};

use chacha20::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use zeroize::Zeroizing;

use super::cipher::NonceSource;

/// Nonces from random numbers that the operating system seeds. Each thread has a generator of its own, ChaCha with 8
/// rounds, which gets a new seed every 64 KiB. So a nonce needs no lock, and only one in thousands a system call.
///
/// Nonces stay unpredictable even if the operating system has no more randomness after [`new`](Self::new). A generator
/// without a new seed takes its next key from its own output. The generator of a new thread is also seeded by the first
/// generator of the process.
///
/// # Forks
/// After `fork` without `exec`, the child repeats up to 64 KiB of the nonces of the thread that forked, if that thread had
/// already made some. So fork before the first nonce, or use other keys in the child.
#[derive(Clone, Copy)]
pub struct OsNonces {
    /// The first generator of the process. It takes part in the seed of every thread's generator.
    root: &'static Mutex<Generator>,
}

impl OsNonces {
    /// Seeds the first generator of the process, unless that has been done.
    ///
    /// # Errors
    /// The operating system has no randomness to give.
    pub fn new() -> Result<Self, EntropyError> {
        static ROOT: OnceLock<Mutex<Generator>> = OnceLock::new();
        if let Some(root) = ROOT.get() {
            return Ok(Self { root });
        }
        let mut seed = Seed::default();
        getrandom::fill(&mut *seed).map_err(EntropyError)?;
        Ok(Self { root: ROOT.get_or_init(|| Mutex::new(Generator::new(&seed))) })
    }

    fn fill_from_root(&self, bytes: &mut [u8]) {
        self.root.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes, system_seed);
    }

    /// A generator for a thread, seeded by the first one and by the operating system.
    fn generator(&self) -> Generator {
        let mut seed = Seed::default();
        self.fill_from_root(&mut *seed);
        mix(&mut seed, system_seed());
        Generator::new(&seed)
    }
}

impl NonceSource for OsNonces {
    fn fill(&self, nonce: &mut [u8]) {
        LOCAL.with_borrow_mut(|local| {
            local.get_or_insert_with(|| ManuallyDrop::new(self.generator())).fill(nonce, system_seed);
        });
    }
}

impl fmt::Debug for OsNonces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OsNonces")
    }
}

thread_local! {
    // Never dropped, since it owns no memory. That makes access cheaper, and it works until the very end of the thread.
    static LOCAL: RefCell<Option<ManuallyDrop<Generator>>> = const { RefCell::new(None) };
}

type Seed = Zeroizing<[u8; 32]>;

fn system_seed() -> Option<Seed> {
    let mut seed = Seed::default();
    getrandom::fill(&mut *seed).ok()?;
    Some(seed)
}

/// Xors `other` into `seed`. The result is as hard to guess as the better of the two.
fn mix(seed: &mut Seed, other: Option<Seed>) {
    if let Some(other) = other {
        seed.iter_mut().zip(other.iter()).for_each(|(byte, other)| *byte ^= other);
    }
}

/// A pool of output of ChaCha8, filled many blocks at a time, which is when the cipher is fastest.
///
/// 8 rounds are enough: nonces must be unique and unpredictable, and the best known attacks reach 7 rounds at a cost that
/// nobody can pay. 12 rounds take a fifth longer. AES would be faster on a CPU that has instructions for it, and much
/// slower elsewhere.
struct Generator {
    chacha: ChaCha8Rng,
    pool: [u8; POOL_LEN],
    /// Bytes of the pool that were used.
    used: usize,
    refills_until_reseed: u32,
}

impl Generator {
    fn new(seed: &Seed) -> Self {
        Self {
            chacha: ChaCha8Rng::from_seed(**seed),
            pool: [0; POOL_LEN],
            used: POOL_LEN,
            refills_until_reseed: REFILLS_A_SEED,
        }
    }

    /// Fills `bytes`. Calls `seed` when it is time for a new seed. `seed` may return `None`.
    fn fill(&mut self, bytes: &mut [u8], mut seed: impl FnMut() -> Option<Seed>) {
        // These are the lengths of the ciphers' nonces. Known to the compiler, they are copied without a call.
        match bytes.len() {
            12 => self.take::<12>(bytes, seed),
            16 => self.take::<16>(bytes, seed),
            24 => self.take::<24>(bytes, seed),
            _ => bytes.iter_mut().for_each(|byte| self.take::<1>(from_mut(byte), &mut seed)),
        }
    }

    /// Fills `bytes`, which has N bytes.
    #[inline]
    fn take<const N: usize>(&mut self, bytes: &mut [u8], seed: impl FnOnce() -> Option<Seed>) {
        if POOL_LEN - self.used < N {
            self.refill(seed);
        }
        let drawn = self.pool[self.used..].first_chunk::<N>();
        if let (Ok(bytes), Some(drawn)) = (<&mut [u8; N]>::try_from(bytes), drawn) {
            *bytes = *drawn;
            self.used += N;
        }
    }

    #[cold]
    fn refill(&mut self, seed: impl FnOnce() -> Option<Seed>) {
        if self.refills_until_reseed == 0 {
            let mut next = Seed::default();
            self.chacha.fill_bytes(&mut *next);
            mix(&mut next, seed());
            self.chacha = ChaCha8Rng::from_seed(*next);
            self.refills_until_reseed = REFILLS_A_SEED;
        }
        self.refills_until_reseed -= 1;
        self.chacha.fill_bytes(&mut self.pool);
        self.used = 0;
    }
}

/// 64 nonces of 16 bytes.
const POOL_LEN: usize = 1_024;
/// Refills between two seeds: 64 KiB, as in `rand`'s thread generator. 4,096 nonces share the cost of a system call.
const REFILLS_A_SEED: u32 = 64;

/// The operating system has no randomness to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntropyError(getrandom::Error);

impl fmt::Display for EntropyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no randomness from the operating system")
    }
}

impl core::error::Error for EntropyError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl From<EntropyError> for std::io::Error {
    fn from(error: EntropyError) -> Self {
        Self::other(error)
    }
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};
    use std::{collections::HashSet, format, thread};

    use super::*;

    fn nonces(count: usize) -> Vec<u128> {
        let source = OsNonces::new().unwrap();
        let mut nonce = [0; 16];
        (0..count)
            .map(|_| {
                source.fill(&mut nonce);
                u128::from_le_bytes(nonce)
            })
            .collect()
    }

    #[test]
    fn a_million_nonces_from_eight_threads_differ() {
        let threads: Vec<_> = (0..8).map(|_| thread::spawn(|| nonces(125_000))).collect();
        let distinct: HashSet<u128> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(distinct.len(), 1_000_000);
    }

    #[test]
    fn every_byte_of_any_length_is_filled() {
        let source = OsNonces::new().unwrap();
        for len in [0, 1, 12, 16, 24, POOL_LEN - 1, POOL_LEN, 3 * POOL_LEN + 5] {
            let mut seen = vec![0_u8; len];
            let mut nonce = vec![0; len];
            // A byte that is filled is 0 in all of 16 draws with a probability of 2^-128.
            for _ in 0..16 {
                source.fill(&mut nonce);
                seen.iter_mut().zip(&nonce).for_each(|(seen, byte)| *seen |= byte);
            }
            assert!(seen.iter().all(|seen| *seen != 0), "{len}");
        }
    }

    #[test]
    fn a_generator_asks_for_a_new_seed_every_64_kib() {
        let mut generator = Generator::new(&Seed::default());
        let mut seeds = 0;
        let mut bytes = [0; POOL_LEN];
        for drawn in 1..=1_000_u32 {
            generator.fill(&mut bytes, || {
                seeds += 1;
                Some(Zeroizing::new([9; 32]))
            });
            assert_eq!(seeds, (drawn - 1) / REFILLS_A_SEED);
        }
    }

    /// 200 KiB of nonces from a generator whose later seeds are all `seed`.
    fn drawn(seed: Option<[u8; 32]>) -> Vec<[u8; 16]> {
        let mut generator = Generator::new(&Seed::default());
        let mut nonce = [0; 16];
        (0..200 * 64)
            .map(|_| {
                generator.fill(&mut nonce, || seed.map(Zeroizing::new));
                nonce
            })
            .collect()
    }

    #[test]
    fn a_new_seed_changes_the_nonces_and_a_missing_one_repeats_none() {
        let (none, one, other) = (drawn(None), drawn(Some([1; 32])), drawn(Some([2; 32])));
        let first_seed = 64 * 64;
        assert_eq!(none[..first_seed], one[..first_seed]);
        assert_eq!(one[..first_seed], other[..first_seed]);
        let rest = [&none[first_seed..], &one[first_seed..], &other[first_seed..], &none[..first_seed]];
        let distinct: HashSet<_> = rest.iter().copied().flatten().collect();
        assert_eq!(distinct.len(), rest.iter().map(|nonces| nonces.len()).sum::<usize>());
    }

    #[test]
    fn nonces_can_be_drawn_while_a_thread_ends() {
        struct Last;
        impl Drop for Last {
            fn drop(&mut self) {
                let last = nonces(2);
                assert_ne!(last[0], last[1]);
            }
        }
        thread_local! {
            static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
        }
        let thread = thread::spawn(|| {
            nonces(1);
            LAST.with_borrow_mut(|last| *last = Some(Last));
        });
        thread.join().unwrap();
    }

    #[test]
    fn debug_shows_no_state() {
        assert_eq!(format!("{:?}", OsNonces::new().unwrap()), "OsNonces");
    }
}
