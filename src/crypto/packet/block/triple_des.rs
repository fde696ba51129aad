//! Triple DES (EDE with three keys).
//!
//! Halves are held rotated left by one bit, as R. Outerbridge did it: the six bits for every second S-box then are the
//! low ones of the four bytes, and those for the others lie four bits higher. S-boxes and the permutation behind them
//! are one table; the permutations at the end of one DES and the start of the next cancel out.

use cipher::{
    Key, KeyInit,
    consts::{U2, U8, U24},
};
use zeroize::Zeroizing;

use super::words;

/// Rounds of one DES.
const ROUNDS: usize = 16;

/// A keyed triple DES.
pub(in super::super) struct TripleDes {
    /// For each round six bits for each S-box, where [`mix`] wants them: for the first, third, fifth and seventh in one
    /// word, for the others in the next.
    keys: Zeroizing<[[u32; 2]; 3 * ROUNDS]>,
}

impl KeyInit for TripleDes {
    fn new(key: &Key<Self>) -> Self {
        let mut keys = Zeroizing::new([[0; 2]; 3 * ROUNDS]);
        for (keys, key) in keys.chunks_exact_mut(ROUNDS).zip(key.as_chunks::<8>().0) {
            schedule(u64::from_be_bytes(*key), keys);
        }
        // The second decrypts.
        keys[ROUNDS..2 * ROUNDS].reverse();
        Self { keys }
    }
}

impl TripleDes {
    #[inline(always)]
    fn encrypt_words<const N: usize>(&self, [left, right]: &mut [[u32; N]; 2]) {
        for lane in 0..N {
            (left[lane], right[lane]) = initial(left[lane], right[lane]);
        }
        for keys in self.keys.chunks_exact(ROUNDS) {
            for [even, odd] in keys.as_chunks().0 {
                for lane in 0..N {
                    left[lane] ^= mix(right[lane], even);
                }
                for lane in 0..N {
                    right[lane] ^= mix(left[lane], odd);
                }
            }
            core::mem::swap(left, right);
        }
        for lane in 0..N {
            (left[lane], right[lane]) = last(left[lane], right[lane]);
        }
    }
}

words::impl_block_cipher!(TripleDes: 2 words, from_be_bytes, to_be_bytes, U8, key U24, 2 lanes U2);

/// The function of a round on one half.
#[inline(always)]
fn mix(half: u32, key: &[u32; 2]) -> u32 {
    let six_bits = |word: u32, shift: u32| (word >> shift) as usize & 0x3f;
    let odd = half ^ key[0];
    let even = half ^ key[1];
    // In parentheses, as one long chain of XORs would be what every round waits for.
    let odd = (TABLES[0][(odd.rotate_left(4) & 0x3f) as usize] ^ TABLES[2][six_bits(odd, 20)])
        ^ (TABLES[4][six_bits(odd, 12)] ^ TABLES[6][six_bits(odd, 4)]);
    let even = (TABLES[1][six_bits(even, 24)] ^ TABLES[3][six_bits(even, 16)])
        ^ (TABLES[5][six_bits(even, 8)] ^ TABLES[7][six_bits(even, 0)]);
    odd ^ even
}

/// The permutation IP, and the rotation.
#[inline(always)]
fn initial(mut left: u32, mut right: u32) -> (u32, u32) {
    exchange(&mut left, &mut right, 4, 0x0f0f_0f0f);
    exchange(&mut left, &mut right, 16, 0x0000_ffff);
    exchange(&mut right, &mut left, 2, 0x3333_3333);
    exchange(&mut right, &mut left, 8, 0x00ff_00ff);
    exchange(&mut left, &mut right, 1, 0x5555_5555);
    (left.rotate_left(1), right.rotate_left(1))
}

/// The rotation back, and the inverse of IP.
#[inline(always)]
fn last(left: u32, right: u32) -> (u32, u32) {
    let (mut left, mut right) = (left.rotate_right(1), right.rotate_right(1));
    exchange(&mut left, &mut right, 1, 0x5555_5555);
    exchange(&mut right, &mut left, 8, 0x00ff_00ff);
    exchange(&mut right, &mut left, 2, 0x3333_3333);
    exchange(&mut left, &mut right, 16, 0x0000_ffff);
    exchange(&mut left, &mut right, 4, 0x0f0f_0f0f);
    (left, right)
}

/// Exchanges the bits of `mask` in `low` with those `shift` places above in `high`.
#[inline(always)]
fn exchange(high: &mut u32, low: &mut u32, shift: u32, mask: u32) {
    let differ = ((*high >> shift) ^ *low) & mask;
    *low ^= differ;
    *high ^= differ << shift;
}

/// The keys of the rounds of one DES.
fn schedule(key: u64, keys: &mut [[u32; 2]]) {
    let chosen = permuted(key, 64, &PC1);
    let (mut c, mut d) = (chosen >> 28, chosen & 0x0fff_ffff);
    for (round, key) in keys.iter_mut().enumerate() {
        let shift = if matches!(round, 0 | 1 | 8 | 15) { 1 } else { 2 };
        c = (c << shift | c >> (28 - shift)) & 0x0fff_ffff;
        d = (d << shift | d >> (28 - shift)) & 0x0fff_ffff;
        let bits = permuted(c << 28 | d, 56, &PC2);
        let six_bits = |s_box: u32| (bits >> (42 - 6 * s_box)) as u32 & 0x3f;
        let word = |first| {
            six_bits(first) << 24 | six_bits(first + 2) << 16 | six_bits(first + 4) << 8 | six_bits(first + 6)
        };
        *key = [word(0).rotate_left(4), word(1)];
    }
}

/// The bits of `input`, which has `len`, that `table` names, the most significant one being number 1.
const fn permuted(input: u64, len: u32, table: &[u8]) -> u64 {
    let mut output = 0;
    let mut at = 0;
    while at < table.len() {
        output = output << 1 | (input >> (len - table[at] as u32)) & 1;
        at += 1;
    }
    output
}

/// What the six bits for an S-box come to behind the permutation P.
static TABLES: [[u32; 64]; 8] = {
    let mut tables = [[0; 64]; 8];
    let mut at = 0;
    while at < 8 * 64 {
        let (s_box, input) = (at / 64, at % 64);
        let output = (S_BOXES[s_box][input] as u64) << (28 - 4 * s_box);
        tables[s_box][input] = (permuted(output, 32, &P) as u32).rotate_left(1);
        at += 1;
    }
    tables
};

#[rustfmt::skip]
const PC1: [u8; 56] = [
    57, 49, 41, 33, 25, 17,  9,  1, 58, 50, 42, 34, 26, 18, 10,  2, 59, 51, 43, 35, 27, 19, 11,  3, 60, 52, 44, 36,
    63, 55, 47, 39, 31, 23, 15,  7, 62, 54, 46, 38, 30, 22, 14,  6, 61, 53, 45, 37, 29, 21, 13,  5, 28, 20, 12,  4,
];

#[rustfmt::skip]
const PC2: [u8; 48] = [
    14, 17, 11, 24,  1,  5,  3, 28, 15,  6, 21, 10, 23, 19, 12,  4, 26,  8, 16,  7, 27, 20, 13,  2,
    41, 52, 31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];

#[rustfmt::skip]
const P: [u8; 32] = [
    16,  7, 20, 21, 29, 12, 28, 17,  1, 15, 23, 26,  5, 18, 31, 10,
     2,  8, 24, 14, 32, 27,  3,  9, 19, 13, 30,  6, 22, 11,  4, 25,
];

/// By the six bits as they come, not by row and column.
#[rustfmt::skip]
const S_BOXES: [[u8; 64]; 8] = [
    [
        14,  0,  4, 15, 13,  7,  1,  4,  2, 14, 15,  2, 11, 13,  8,  1,
         3, 10, 10,  6,  6, 12, 12, 11,  5,  9,  9,  5,  0,  3,  7,  8,
         4, 15,  1, 12, 14,  8,  8,  2, 13,  4,  6,  9,  2,  1, 11,  7,
        15,  5, 12, 11,  9,  3,  7, 14,  3, 10, 10,  0,  5,  6,  0, 13,
    ],
    [
        15,  3,  1, 13,  8,  4, 14,  7,  6, 15, 11,  2,  3,  8,  4, 14,
         9, 12,  7,  0,  2,  1, 13, 10, 12,  6,  0,  9,  5, 11, 10,  5,
         0, 13, 14,  8,  7, 10, 11,  1, 10,  3,  4, 15, 13,  4,  1,  2,
         5, 11,  8,  6, 12,  7,  6, 12,  9,  0,  3,  5,  2, 14, 15,  9,
    ],
    [
        10, 13,  0,  7,  9,  0, 14,  9,  6,  3,  3,  4, 15,  6,  5, 10,
         1,  2, 13,  8, 12,  5,  7, 14, 11, 12,  4, 11,  2, 15,  8,  1,
        13,  1,  6, 10,  4, 13,  9,  0,  8,  6, 15,  9,  3,  8,  0,  7,
        11,  4,  1, 15,  2, 14, 12,  3,  5, 11, 10,  5, 14,  2,  7, 12,
    ],
    [
         7, 13, 13,  8, 14, 11,  3,  5,  0,  6,  6, 15,  9,  0, 10,  3,
         1,  4,  2,  7,  8,  2,  5, 12, 11,  1, 12, 10,  4, 14, 15,  9,
        10,  3,  6, 15,  9,  0,  0,  6, 12, 10, 11,  1,  7, 13, 13,  8,
        15,  9,  1,  4,  3,  5, 14, 11,  5, 12,  2,  7,  8,  2,  4, 14,
    ],
    [
         2, 14, 12, 11,  4,  2,  1, 12,  7,  4, 10,  7, 11, 13,  6,  1,
         8,  5,  5,  0,  3, 15, 15, 10, 13,  3,  0,  9, 14,  8,  9,  6,
         4, 11,  2,  8,  1, 12, 11,  7, 10,  1, 13, 14,  7,  2,  8, 13,
        15,  6,  9, 15, 12,  0,  5,  9,  6, 10,  3,  4,  0,  5, 14,  3,
    ],
    [
        12, 10,  1, 15, 10,  4, 15,  2,  9,  7,  2, 12,  6,  9,  8,  5,
         0,  6, 13,  1,  3, 13,  4, 14, 14,  0,  7, 11,  5,  3, 11,  8,
         9,  4, 14,  3, 15,  2,  5, 12,  2,  9,  8,  5, 12, 15,  3, 10,
         7, 11,  0, 14,  4,  1, 10,  7,  1,  6, 13,  0, 11,  8,  6, 13,
    ],
    [
         4, 13, 11,  0,  2, 11, 14,  7, 15,  4,  0,  9,  8,  1, 13, 10,
         3, 14, 12,  3,  9,  5,  7, 12,  5,  2, 10, 15,  6,  8,  1,  6,
         1,  6,  4, 11, 11, 13, 13,  8, 12,  1,  3,  4,  7, 10, 14,  7,
        10,  9, 15,  5,  6,  0,  8, 15,  0, 14,  5,  2,  9,  3,  2, 12,
    ],
    [
        13,  1,  2, 15,  8, 13,  4,  8,  6, 10, 15,  3, 11,  7,  1,  4,
        10, 12,  9,  5,  3,  6, 14, 11,  5,  0,  0, 14, 12,  9,  7,  2,
         7,  2, 11,  1,  4, 14,  1,  7,  9,  4, 12, 10, 14,  8,  2, 13,
         0, 15,  6, 12, 10,  9, 13,  0, 15,  3,  3,  5,  5,  6,  8, 11,
    ],
];
