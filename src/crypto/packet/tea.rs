//! TEA and XTEA as kcp-go runs them: big-endian words, TEA with 16 rounds instead of the usual 64.
//!
//! They are written here because no maintained crate has them in this form. The crate `xtea` reads little-endian words,
//! and the swaps around it would be as long as the cipher. The crate `tea-soft` has not changed since version 0.2 of the
//! `cipher` traits.

use cipher::{
    Block, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, InOut, Key,
    KeyInit, KeySizeUser, ParBlocks, ParBlocksSizeUser,
    consts::{U4, U8, U16},
};
use zeroize::Zeroizing;

/// TEA of 16 rounds.
#[cfg(feature = "tea")]
pub(super) type Tea = Feistel<TeaRounds>;

/// XTEA of 64 rounds.
#[cfg(feature = "xtea")]
pub(super) type Xtea = Feistel<XteaRounds>;

/// A block cipher that works on the two 32-bit words of a block, its halves, under a key of four words.
pub(super) struct Feistel<R>(R);

/// The rounds of such a cipher.
pub(super) trait Rounds: Send + Sync {
    /// The rounds under a key.
    fn new(key: &[u32; 4]) -> Self;

    /// Encrypts `N` blocks: the first words of all of them are `left`, the second words are `right`. For several blocks
    /// the compiler uses vectors.
    fn encrypt<const N: usize>(&self, left: &mut [u32; N], right: &mut [u32; N]);
}

/// What each cycle of two rounds adds to the sum: 2^32 over the golden ratio.
const DELTA: u32 = 0x9e37_79b9;

#[cfg(feature = "tea")]
pub(super) struct TeaRounds {
    key: Zeroizing<[u32; 4]>,
}

#[cfg(feature = "tea")]
impl TeaRounds {
    /// kcp-go asks for 16 rounds, 2 a cycle.
    const CYCLES: usize = 8;

    #[inline(always)]
    fn mix(half: u32, even: u32, odd: u32, sum: u32) -> u32 {
        (half << 4).wrapping_add(even) ^ half.wrapping_add(sum) ^ (half >> 5).wrapping_add(odd)
    }
}

#[cfg(feature = "tea")]
impl Rounds for TeaRounds {
    fn new(key: &[u32; 4]) -> Self {
        Self { key: Zeroizing::new(*key) }
    }

    #[inline(always)]
    fn encrypt<const N: usize>(&self, left: &mut [u32; N], right: &mut [u32; N]) {
        let [k0, k1, k2, k3] = *self.key;
        let mut sum = 0_u32;
        for _ in 0..Self::CYCLES {
            sum = sum.wrapping_add(DELTA);
            for (left, right) in left.iter_mut().zip(right.iter()) {
                *left = left.wrapping_add(Self::mix(*right, k0, k1, sum));
            }
            for (left, right) in left.iter().zip(right.iter_mut()) {
                *right = right.wrapping_add(Self::mix(*left, k2, k3, sum));
            }
        }
    }
}

#[cfg(feature = "xtea")]
pub(super) struct XteaRounds {
    /// What each of the two rounds of a cycle mixes in: the sum so far plus a word of the key.
    schedule: Zeroizing<[[u32; 2]; XTEA_CYCLES]>,
}

/// 64 rounds, 2 a cycle.
#[cfg(feature = "xtea")]
const XTEA_CYCLES: usize = 32;

#[cfg(feature = "xtea")]
impl XteaRounds {
    #[inline(always)]
    fn mix(half: u32) -> u32 {
        ((half << 4) ^ (half >> 5)).wrapping_add(half)
    }
}

#[cfg(feature = "xtea")]
impl Rounds for XteaRounds {
    fn new(key: &[u32; 4]) -> Self {
        let mut schedule = Zeroizing::new([[0; 2]; XTEA_CYCLES]);
        let mut sum = 0_u32;
        for [even, odd] in schedule.iter_mut() {
            *even = sum.wrapping_add(key[sum as usize & 3]);
            sum = sum.wrapping_add(DELTA);
            *odd = sum.wrapping_add(key[(sum >> 11) as usize & 3]);
        }
        Self { schedule }
    }

    #[inline(always)]
    fn encrypt<const N: usize>(&self, left: &mut [u32; N], right: &mut [u32; N]) {
        for [even, odd] in self.schedule.iter() {
            for (left, right) in left.iter_mut().zip(right.iter()) {
                *left = left.wrapping_add(Self::mix(*right) ^ even);
            }
            for (left, right) in left.iter().zip(right.iter_mut()) {
                *right = right.wrapping_add(Self::mix(*left) ^ odd);
            }
        }
    }
}

impl<R> KeySizeUser for Feistel<R> {
    type KeySize = U16;
}

impl<R> BlockSizeUser for Feistel<R> {
    type BlockSize = U8;
}

impl<R> ParBlocksSizeUser for Feistel<R> {
    /// As many words as a 128-bit vector has.
    type ParBlocksSize = U4;
}

impl<R: Rounds> KeyInit for Feistel<R> {
    fn new(key: &Key<Self>) -> Self {
        Self(R::new(&Zeroizing::new(words(key))))
    }
}

impl<R: Rounds> BlockCipherEncrypt for Feistel<R> {
    #[inline]
    fn encrypt_with_backend(&self, f: impl BlockCipherEncClosure<BlockSize = U8>) {
        f.call(self);
    }
}

impl<R: Rounds> BlockCipherEncBackend for Feistel<R> {
    #[inline(always)]
    fn encrypt_block(&self, mut block: InOut<'_, '_, Block<Self>>) {
        let [left, right] = words(block.get_in());
        let (mut left, mut right) = ([left], [right]);
        self.0.encrypt(&mut left, &mut right);
        write_words([left[0], right[0]], block.get_out());
    }

    #[inline(always)]
    fn encrypt_par_blocks(&self, mut blocks: InOut<'_, '_, ParBlocks<Self>>) {
        let (mut left, mut right) = ([0; 4], [0; 4]);
        for ((block, left), right) in blocks.get_in().iter().zip(&mut left).zip(&mut right) {
            [*left, *right] = words(block);
        }
        self.0.encrypt(&mut left, &mut right);
        for ((block, left), right) in blocks.get_out().iter_mut().zip(left).zip(right) {
            write_words([left, right], block);
        }
    }
}

/// The big-endian words of `bytes`, which has 4 bytes for each.
#[inline(always)]
fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let (words, _) = bytes.as_chunks::<4>();
    core::array::from_fn(|at| u32::from_be_bytes(words[at]))
}

#[inline(always)]
fn write_words(words: [u32; 2], block: &mut [u8]) {
    let (bytes, _) = block.as_chunks_mut::<4>();
    bytes.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_be_bytes());
}
