//! Salsa20 with AVX2.
//!
//! A block's 16 words are held by diagonals, one in each 128-bit half of a vector, so that the four quarter rounds of a
//! round are one sequence of instructions on whole vectors, for two blocks at once:
//!
//! ```text
//!  0  1  2  3      a =  0  5 10 15
//!  4  5  6  7      b =  4  9 14  3
//!  8  9 10 11      c =  8 13  2  7
//! 12 13 14 15      d = 12  1  6 11
//! ```
//!
//! Turning the words of `b`, `c` and `d` by one, two and three places changes columns into rows and back. A pair of
//! blocks is a chain of dependent instructions; several pairs side by side fill the gaps, and three of them are the most
//! whose vectors all stay in registers.

#![allow(unsafe_code, reason = "vector instructions")]

use core::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_blend_epi32, _mm256_loadu_si256, _mm256_or_si256,
    _mm256_permute2x128_si256, _mm256_setr_epi32, _mm256_shuffle_epi32, _mm256_slli_epi32, _mm256_srli_epi32,
    _mm256_storeu_si256, _mm256_xor_si256,
};

use super::NONCE_LEN;

/// Pairs of blocks side by side.
const PAIRS: usize = 3;
/// Bytes of a pair.
const PAIR: usize = 128;

/// Xors the key stream into `data` and returns how many bytes of it are done: all, or none where the processor lacks
/// AVX2.
pub(super) fn apply(key: &[u8; 32], nonce: &[u8; NONCE_LEN], data: &mut [u8]) -> usize {
    if !is_available() {
        return 0;
    }
    // SAFETY: the processor has AVX2.
    unsafe { apply_pairs(key, nonce, data) };
    data.len()
}

/// Whether the processor has AVX2: found out at run time with the feature `std`, else when the crate is built.
#[inline]
fn is_available() -> bool {
    #[cfg(feature = "std")]
    {
        std::arch::is_x86_feature_detected!("avx2")
    }
    #[cfg(not(feature = "std"))]
    {
        cfg!(target_feature = "avx2")
    }
}

#[target_feature(enable = "avx2")]
fn apply_pairs(key: &[u8; 32], nonce: &[u8; NONCE_LEN], data: &mut [u8]) {
    let mut state = State::new(key, nonce);
    let mut groups = data.chunks_exact_mut(PAIRS * PAIR);
    for group in &mut groups {
        state.xor_into::<PAIRS>(group.as_chunks_mut().0);
    }
    let rest = groups.into_remainder();
    let mut group = [0; PAIRS * PAIR];
    group[..rest.len()].copy_from_slice(rest);
    let pairs = group.as_chunks_mut().0;
    match rest.len().div_ceil(PAIR) {
        0 => {}
        1 => state.xor_into::<1>(pairs),
        2 => state.xor_into::<2>(pairs),
        _ => state.xor_into::<PAIRS>(pairs),
    }
    rest.copy_from_slice(&group[..rest.len()]);
}

/// The input of a pair of blocks, but for its number.
struct State {
    a: __m256i,
    b: __m256i,
    c: __m256i,
    d: __m256i,
    /// Number of its first block, words 8 and 9.
    block: u64,
}

impl State {
    #[target_feature(enable = "avx2")]
    fn new(key: &[u8; 32], nonce: &[u8; NONCE_LEN]) -> Self {
        let word = |bytes: &[u8], at: usize| {
            i32::from_le_bytes([bytes[4 * at], bytes[4 * at + 1], bytes[4 * at + 2], bytes[4 * at + 3]])
        };
        let both = |w: [i32; 4]| _mm256_setr_epi32(w[0], w[1], w[2], w[3], w[0], w[1], w[2], w[3]);
        let constant = b"expand 32-byte k";
        Self {
            a: both([word(constant, 0), word(constant, 1), word(constant, 2), word(constant, 3)]),
            b: both([word(key, 3), 0, word(key, 7), word(key, 2)]),
            c: both([0, word(key, 6), word(key, 1), word(nonce, 1)]),
            d: both([word(key, 5), word(key, 0), word(nonce, 0), word(key, 4)]),
            block: 0,
        }
    }

    /// Xors the key stream of `N` pairs of blocks into the first `N` of `pairs` and goes on to the next.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn xor_into<const N: usize>(&mut self, pairs: &mut [[u8; PAIR]]) {
        let a0 = self.a;
        let d0 = self.d;
        let (mut b0, mut c0) = ([self.b; N], [self.c; N]);
        for at in 0..N {
            // Words 8 and 9 come first in `c` and second in `b`.
            let (first, second) = (self.block, self.block.wrapping_add(1));
            self.block = self.block.wrapping_add(2);
            let low = _mm256_setr_epi32(first as i32, 0, 0, 0, second as i32, 0, 0, 0);
            let high = _mm256_setr_epi32(0, (first >> 32) as i32, 0, 0, 0, (second >> 32) as i32, 0, 0);
            c0[at] = _mm256_or_si256(c0[at], low);
            b0[at] = _mm256_or_si256(b0[at], high);
        }

        let (mut a, mut b, mut c, mut d) = ([a0; N], b0, c0, [d0; N]);
        for _ in 0..10 {
            round(&mut a, &mut b, &mut c, &mut d);
            turn(&mut b, &mut c, &mut d);
            // Rows: what was `d` takes the place of `b`.
            round(&mut a, &mut d, &mut c, &mut b);
            turn(&mut d, &mut c, &mut b);
        }

        for (at, pair) in pairs.iter_mut().take(N).enumerate() {
            let a = _mm256_add_epi32(a[at], a0);
            let b = _mm256_add_epi32(b[at], b0[at]);
            let c = _mm256_add_epi32(c[at], c0[at]);
            let d = _mm256_add_epi32(d[at], d0);
            let rows = [row(a, d, c, b), row(b, a, d, c), row(c, b, a, d), row(d, c, b, a)];
            let (vectors, _) = pair.as_chunks_mut::<32>();
            if let [first, second, third, fourth] = vectors {
                xor(first, _mm256_permute2x128_si256::<0x20>(rows[0], rows[1]));
                xor(second, _mm256_permute2x128_si256::<0x20>(rows[2], rows[3]));
                xor(third, _mm256_permute2x128_si256::<0x31>(rows[0], rows[1]));
                xor(fourth, _mm256_permute2x128_si256::<0x31>(rows[2], rows[3]));
            }
        }
    }
}

/// Four quarter rounds for each pair.
#[inline]
#[target_feature(enable = "avx2")]
fn round<const N: usize>(
    a: &mut [__m256i; N],
    b: &mut [__m256i; N],
    c: &mut [__m256i; N],
    d: &mut [__m256i; N],
) {
    step::<7, 25, N>(b, a, d);
    step::<9, 23, N>(c, b, a);
    step::<13, 19, N>(d, c, b);
    step::<18, 14, N>(a, d, c);
}

/// `to ^= (x + y) <<< LEFT`, and `RIGHT` is 32 - `LEFT`.
#[inline]
#[target_feature(enable = "avx2")]
fn step<const LEFT: i32, const RIGHT: i32, const N: usize>(
    to: &mut [__m256i; N],
    x: &[__m256i; N],
    y: &[__m256i; N],
) {
    for at in 0..N {
        let sum = _mm256_add_epi32(x[at], y[at]);
        to[at] = _mm256_xor_si256(to[at], _mm256_slli_epi32::<LEFT>(sum));
        to[at] = _mm256_xor_si256(to[at], _mm256_srli_epi32::<RIGHT>(sum));
    }
}

/// Turns columns into rows; with the roles of `b` and `d` exchanged, back.
#[inline]
#[target_feature(enable = "avx2")]
fn turn<const N: usize>(b: &mut [__m256i; N], c: &mut [__m256i; N], d: &mut [__m256i; N]) {
    for at in 0..N {
        b[at] = _mm256_shuffle_epi32::<0b10_01_00_11>(b[at]);
        c[at] = _mm256_shuffle_epi32::<0b01_00_11_10>(c[at]);
        d[at] = _mm256_shuffle_epi32::<0b00_11_10_01>(d[at]);
    }
}

/// A row of each of two blocks: one word of each diagonal.
#[inline]
#[target_feature(enable = "avx2")]
fn row(first: __m256i, second: __m256i, third: __m256i, fourth: __m256i) -> __m256i {
    let front = _mm256_blend_epi32::<0b1010_1010>(first, second);
    let back = _mm256_blend_epi32::<0b1010_1010>(third, fourth);
    _mm256_blend_epi32::<0b1100_1100>(front, back)
}

#[inline]
#[target_feature(enable = "avx2")]
fn xor(bytes: &mut [u8; 32], stream: __m256i) {
    let bytes = bytes.as_mut_ptr().cast::<__m256i>();
    // SAFETY: `bytes` is valid for 32 bytes in both directions; these instructions ask for no alignment.
    unsafe { _mm256_storeu_si256(bytes, _mm256_xor_si256(_mm256_loadu_si256(bytes), stream)) }
}
