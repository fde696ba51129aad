//! Twofish with a key of 256 bits.
//!
//! The S-boxes depend on the key. They are computed once, together with the matrix behind them, into four tables of
//! words (“full keying” in the paper); the crate `twofish` computes them anew for every byte.

use cipher::{
    Key, KeyInit,
    consts::{U2, U16, U32},
};
use zeroize::Zeroizing;

use super::words;

/// A keyed Twofish.
pub(in super::super) struct Twofish {
    /// S-box and column of the matrix for each byte of a word, the least significant one first.
    tables: Zeroizing<[[u32; 256]; 4]>,
    /// Eight for the whitening, then two for each round.
    keys: Zeroizing<[u32; 40]>,
}

impl KeyInit for Twofish {
    fn new(key: &Key<Self>) -> Self {
        // What is mixed in stage by stage: for the S-boxes a code of eight bytes of the key each, for the keys of the
        // rounds its words themselves, even and odd ones, from the last.
        let mut stages = Zeroizing::new([[0; 4]; 4]);
        let (mut even, mut odd) = (stages.clone(), stages.clone());
        for (at, bytes) in key.as_chunks::<8>().0.iter().enumerate() {
            stages[at] = reed_solomon(bytes);
            even[3 - at].copy_from_slice(&bytes[..4]);
            odd[3 - at].copy_from_slice(&bytes[4..]);
        }

        let mut keys = Zeroizing::new([0; 40]);
        for (at, [first, second]) in keys.as_chunks_mut().0.iter_mut().enumerate() {
            let word = |index: usize, stages| {
                (0..4).fold(0, |word, place| word ^ column(place, index as u8, stages))
            };
            let a = word(2 * at, &even);
            let b = word(2 * at + 1, &odd).rotate_left(8);
            *first = a.wrapping_add(b);
            *second = first.wrapping_add(b).rotate_left(9);
        }
        let mut tables = Zeroizing::new([[0; 256]; 4]);
        for (place, table) in tables.iter_mut().enumerate() {
            for (byte, word) in table.iter_mut().enumerate() {
                *word = column(place, byte as u8, &stages);
            }
        }
        Self { tables, keys }
    }
}

impl Twofish {
    #[inline(always)]
    fn encrypt_words<const N: usize>(&self, words: &mut [[u32; N]; 4]) {
        let (whitening, rounds) = self.keys.split_at(8);
        for (words, key) in words.iter_mut().zip(whitening) {
            words.iter_mut().for_each(|word| *word ^= key);
        }
        let [a, b, c, d] = words;
        for keys in rounds.as_chunks::<4>().0 {
            for lane in 0..N {
                self.round(a[lane], b[lane], &mut c[lane], &mut d[lane], keys[0], keys[1]);
            }
            for lane in 0..N {
                self.round(c[lane], d[lane], &mut a[lane], &mut b[lane], keys[2], keys[3]);
            }
        }
        core::mem::swap(a, c);
        core::mem::swap(b, d);
        for (words, key) in words.iter_mut().zip(&whitening[4..]) {
            words.iter_mut().for_each(|word| *word ^= key);
        }
    }

    #[inline(always)]
    fn round(&self, a: u32, b: u32, c: &mut u32, d: &mut u32, first: u32, second: u32) {
        let b = self.substituted(b.rotate_left(8));
        let a = self.substituted(a).wrapping_add(b);
        *c = (*c ^ a.wrapping_add(first)).rotate_right(1);
        *d = d.rotate_left(1) ^ a.wrapping_add(b).wrapping_add(second);
    }

    /// The paper's function g.
    #[inline(always)]
    fn substituted(&self, word: u32) -> u32 {
        let [a, b, c, d] = word.to_le_bytes().map(usize::from);
        self.tables[0][a] ^ self.tables[1][b] ^ self.tables[2][c] ^ self.tables[3][d]
    }
}

words::impl_block_cipher!(Twofish: 4 words, from_le_bytes, to_le_bytes, U16, key U32, 2 lanes U2);

/// What a byte at `place` of a word comes to: five permutations with `stages` mixed in between, and the column of the
/// matrix.
fn column(place: usize, byte: u8, stages: &[[u8; 4]; 4]) -> u32 {
    const ORDER: [[usize; 5]; 4] = [[1, 1, 0, 0, 1], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1], [1, 0, 1, 1, 0]];
    let [first, order @ ..] = ORDER[place];
    let start = PERMUTATIONS[first][usize::from(byte)];
    let x = order
        .iter()
        .zip(stages)
        .fold(start, |x, (permutation, stage)| PERMUTATIONS[*permutation][usize::from(x ^ stage[place])]);
    let product = |factor| multiplied(x, factor, 0x69);
    u32::from_le_bytes(match place {
        0 => [x, product(0x5b), product(0xef), product(0xef)],
        1 => [product(0xef), product(0xef), product(0x5b), x],
        2 => [product(0x5b), product(0xef), x, product(0xef)],
        _ => [product(0x5b), x, product(0xef), product(0x5b)],
    })
}

/// The paper's RS code of eight bytes.
fn reed_solomon(bytes: &[u8; 8]) -> [u8; 4] {
    const ROWS: [[u8; 8]; 4] = [
        [0x01, 0xa4, 0x55, 0x87, 0x5a, 0x58, 0xdb, 0x9e],
        [0xa4, 0x56, 0x82, 0xf3, 0x1e, 0xc6, 0x68, 0xe5],
        [0x02, 0xa1, 0xfc, 0xc1, 0x47, 0xae, 0x3d, 0x19],
        [0xa4, 0x55, 0x87, 0x5a, 0x58, 0xdb, 0x9e, 0x03],
    ];
    ROWS.map(|row| {
        row.iter().zip(bytes).fold(0, |sum, (factor, byte)| sum ^ multiplied(*byte, *factor, 0x4d))
    })
}

/// The product in GF(2^8) modulo x^8 and `polynomial`.
fn multiplied(mut a: u8, mut b: u8, polynomial: u8) -> u8 {
    let mut product = 0;
    while b > 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        b >>= 1;
        a = (a << 1) ^ if a & 0x80 == 0 { 0 } else { polynomial };
    }
    product
}

/// The paper's fixed permutations q0 and q1.
static PERMUTATIONS: [[u8; 256]; 2] = {
    let mut permutations = [[0; 256]; 2];
    let mut at = 0;
    while at < 2 * 256 {
        let nibbles = &NIBBLES[at / 256];
        let (mut a, mut b) = ((at % 256) as u8 >> 4, at as u8 & 15);
        let mut stage = 0;
        while stage < 4 {
            let mixed = (a ^ (b << 3 | b >> 1) ^ (a << 3)) & 15;
            (a, b) = (nibbles[stage][(a ^ b) as usize], nibbles[stage + 1][mixed as usize]);
            stage += 2;
        }
        permutations[at / 256][at % 256] = b << 4 | a;
        at += 1;
    }
    permutations
};

const NIBBLES: [[[u8; 16]; 4]; 2] = [
    [
        [8, 1, 7, 13, 6, 15, 3, 2, 0, 11, 5, 9, 14, 12, 10, 4],
        [14, 12, 11, 8, 1, 2, 3, 5, 15, 4, 10, 6, 7, 0, 9, 13],
        [11, 10, 5, 14, 6, 13, 9, 0, 12, 8, 15, 3, 2, 4, 7, 1],
        [13, 7, 15, 4, 1, 2, 6, 14, 9, 11, 3, 0, 8, 5, 12, 10],
    ],
    [
        [2, 8, 11, 13, 15, 7, 6, 14, 3, 1, 9, 4, 0, 10, 12, 5],
        [1, 14, 2, 11, 4, 12, 3, 7, 6, 13, 10, 5, 15, 9, 0, 8],
        [4, 12, 7, 5, 1, 6, 9, 10, 0, 14, 13, 8, 2, 11, 3, 15],
        [11, 9, 5, 1, 12, 3, 13, 14, 6, 4, 7, 15, 2, 0, 8, 10],
    ],
];
