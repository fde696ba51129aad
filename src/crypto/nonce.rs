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

/// Nonces seeded by the operating system: a generator in each thread, ChaCha with 8 rounds, reseeded every 64 KiB. No
/// packet waits for a lock, one in thousands for a system call.
///
/// Randomness that fails after [`new`](Self::new) leads to no predictable nonce: a generator that cannot be reseeded
/// goes on with a key from its own output, and that of a new thread is seeded by the first of the process.
///
/// # Forks
/// A process made by `fork` without `exec` repeats up to 64 KiB of the nonces of the thread that forked, if that thread
/// had drawn any. Fork before, or change the keys in the child.
#[derive(Clone, Copy)]
pub struct OsNonces {
    /// Seeds the generators of threads.
    root: &'static Mutex<Generator>,
}

impl OsNonces {
    /// Nonces of a generator seeded when the first of a process is made.
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

    /// Another generator, seeded by the first one and by the operating system.
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
    // Never dropped, as there is nothing to free: access is cheaper, and works until the very end of the thread.
    static LOCAL: RefCell<Option<ManuallyDrop<Generator>>> = const { RefCell::new(None) };
}

type Seed = Zeroizing<[u8; 32]>;

fn system_seed() -> Option<Seed> {
    let mut seed = Seed::default();
    getrandom::fill(&mut *seed).ok()?;
    Some(seed)
}

/// Both seeds in one: as good as the better of them.
fn mix(seed: &mut Seed, other: Option<Seed>) {
    if let Some(other) = other {
        seed.iter_mut().zip(other.iter()).for_each(|(byte, other)| *byte ^= other);
    }
}

/// Output of ChaCha8, drawn ahead: the cipher is at its best with many blocks at once.
///
/// Nonces must be unique and not be foretold, and 8 rounds have a margin for that: the best attacks known reach 7, and
/// at no practical cost. 12 rounds take a fifth longer. AES would be faster where the processor has it, and slower by far
/// elsewhere.
struct Generator {
    chacha: ChaCha8Rng,
    pool: [u8; POOL_LEN],
    /// Bytes of the pool that were handed out.
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

    /// Fills `bytes`; `seed` is asked for a new seed now and then, and may have none.
    fn fill(&mut self, bytes: &mut [u8], mut seed: impl FnMut() -> Option<Seed>) {
        // The lengths that ciphers have, known to the compiler: copies without a call.
        match bytes.len() {
            12 => self.take::<12>(bytes, seed),
            16 => self.take::<16>(bytes, seed),
            24 => self.take::<24>(bytes, seed),
            _ => bytes.iter_mut().for_each(|byte| self.take::<1>(from_mut(byte), &mut seed)),
        }
    }

    /// Fills `bytes`, which are N.
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
/// 64 KiB between reseeds, as `rand`'s generator of a thread: 4,096 nonces share the cost of one system call.
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
    fn a_million_nonces_of_several_threads_differ() {
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
            // A byte stays 0 in all of 16 draws with a probability of 2^-128.
            for _ in 0..16 {
                source.fill(&mut nonce);
                seen.iter_mut().zip(&nonce).for_each(|(seen, byte)| *seen |= byte);
            }
            assert!(seen.iter().all(|seen| *seen != 0), "{len}");
        }
    }

    #[test]
    fn a_seed_lasts_64_kib() {
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

    /// What one generator draws in 200 KiB when its reseeds give `seed`.
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
    fn a_new_seed_changes_what_follows_and_one_that_fails_repeats_nothing() {
        let (none, one, other) = (drawn(None), drawn(Some([1; 32])), drawn(Some([2; 32])));
        let first_seed = 64 * 64;
        assert_eq!(none[..first_seed], one[..first_seed]);
        assert_eq!(one[..first_seed], other[..first_seed]);
        let rest = [&none[first_seed..], &one[first_seed..], &other[first_seed..], &none[..first_seed]];
        let distinct: HashSet<_> = rest.iter().copied().flatten().collect();
        assert_eq!(distinct.len(), rest.iter().map(|nonces| nonces.len()).sum::<usize>());
    }

    #[test]
    fn a_thread_that_ends_still_has_nonces() {
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
