//! XTEA: big-endian words and 64 rounds, as Go's `x/crypto/xtea`.

use cipher::{
    Key, KeyInit,
    consts::{U4, U8, U16},
};
use zeroize::Zeroizing;

use super::words;

/// Two rounds each.
const CYCLES: usize = 32;
const DELTA: u32 = 0x9e37_79b9;

/// A keyed XTEA.
pub(in super::super) struct Xtea {
    /// What each round mixes in: the sum so far and a word of the key.
    schedule: Zeroizing<[[u32; 2]; CYCLES]>,
}

impl KeyInit for Xtea {
    fn new(key: &Key<Self>) -> Self {
        let key: Zeroizing<[u32; 4]> = Zeroizing::new(words::split(u32::from_be_bytes, key));
        let mut schedule = Zeroizing::new([[0; 2]; CYCLES]);
        let mut sum = 0_u32;
        for [even, odd] in schedule.iter_mut() {
            *even = sum.wrapping_add(key[sum as usize & 3]);
            sum = sum.wrapping_add(DELTA);
            *odd = sum.wrapping_add(key[(sum >> 11) as usize & 3]);
        }
        Self { schedule }
    }
}

impl Xtea {
    /// Four blocks are vectors to the compiler.
    #[inline(always)]
    fn encrypt_words<const N: usize>(&self, [left, right]: &mut [[u32; N]; 2]) {
        for [even, odd] in self.schedule.iter() {
            for (left, right) in left.iter_mut().zip(right.iter()) {
                *left = left.wrapping_add(mix(*right) ^ even);
            }
            for (left, right) in left.iter().zip(right.iter_mut()) {
                *right = right.wrapping_add(mix(*left) ^ odd);
            }
        }
    }
}

words::impl_block_cipher!(Xtea: 2 words, from_be_bytes, to_be_bytes, U8, key U16, 4 lanes U4);

#[inline(always)]
fn mix(half: u32) -> u32 {
    ((half << 4) ^ (half >> 5)).wrapping_add(half)
}
