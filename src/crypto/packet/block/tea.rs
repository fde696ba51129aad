//! TEA: big-endian words, as Go's `x/crypto/tea`. kcp-go runs it with 16 rounds, a quarter of the usual 64.

use cipher::{
    Key, KeyInit,
    consts::{U4, U8, U16},
};
use zeroize::Zeroizing;

use super::words;

/// Two rounds each.
const CYCLES: usize = 8;
const DELTA: u32 = 0x9e37_79b9;

/// A keyed TEA.
pub(in super::super) struct Tea {
    key: Zeroizing<[u32; 4]>,
}

impl KeyInit for Tea {
    fn new(key: &Key<Self>) -> Self {
        Self { key: Zeroizing::new(words::split(u32::from_be_bytes, key)) }
    }
}

impl Tea {
    /// Four blocks are vectors to the compiler.
    #[inline(always)]
    fn encrypt_words<const N: usize>(&self, [left, right]: &mut [[u32; N]; 2]) {
        let [k0, k1, k2, k3] = *self.key;
        let mut sum = 0_u32;
        for _ in 0..CYCLES {
            sum = sum.wrapping_add(DELTA);
            for (left, right) in left.iter_mut().zip(right.iter()) {
                *left = left.wrapping_add(mix(*right, k0, k1, sum));
            }
            for (left, right) in left.iter().zip(right.iter_mut()) {
                *right = right.wrapping_add(mix(*left, k2, k3, sum));
            }
        }
    }
}

words::impl_block_cipher!(Tea: 2 words, from_be_bytes, to_be_bytes, U8, key U16, 4 lanes U4);

#[inline(always)]
fn mix(half: u32, even: u32, odd: u32, sum: u32) -> u32 {
    (half << 4).wrapping_add(even) ^ half.wrapping_add(sum) ^ (half >> 5).wrapping_add(odd)
}
