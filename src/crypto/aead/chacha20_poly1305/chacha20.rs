//! ChaCha20 (RFC 8439, section 2.4) with AVX-512, and HChaCha20 (draft-irtf-cfrg-xchacha-03, section 2.2).
//!
//! A vector holds one of the state's 16 words for each of 16 blocks, or of 8 where no more are needed: the rounds
//! need no shuffles then, and the four quarter rounds of a round fill one another's gaps. Transposed, a vector is a
//! block.
//!
//! On Zen 4, 16 blocks take 1.7 times as long as 8: they are limited by the vector units, which need two steps for
//! 512 bits, and 8 blocks by the latency of their rotations. Their scalar units are idle, which is why work goes on
//! `beside`.

#![allow(unsafe_code, reason = "vector instructions")]

use core::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_add_epi32, _mm_loadu_si128, _mm_rol_epi32, _mm_shuffle_epi32,
    _mm_storeu_si128, _mm_xor_si128, _mm256_add_epi32, _mm256_rol_epi32, _mm256_set1_epi32,
    _mm256_setr_epi32, _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32,
    _mm256_unpacklo_epi64, _mm256_xor_si256, _mm512_add_epi32, _mm512_castsi256_si512, _mm512_inserti64x4,
    _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_rol_epi32,
    _mm512_set1_epi32, _mm512_setr_epi32, _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64, _mm512_xor_si512,
};
use core::{mem::MaybeUninit, slice};

use super::{Avx512, poly1305};

/// Bytes of a block.
pub(super) const BLOCK: usize = 64;
/// Blocks of a wide pass: the words of a vector.
const WIDE: usize = 16;
/// Blocks of a narrow pass.
const NARROW: usize = 8;
/// Blocks that [`Keystream`] makes in advance, the one of Poly1305's key among them.
const AHEAD: usize = 2 * WIDE;
const CONSTANT: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// The key stream of a packet.
pub(super) struct Keystream {
    state: [u32; 16],
}

/// The first blocks of a key stream, made before the packet is touched, so that its tag can be checked in between.
pub(super) struct Ahead {
    blocks: [MaybeUninit<__m512i>; AHEAD],
    made: usize,
}

impl Ahead {
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Self { blocks: [const { MaybeUninit::uninit() }; AHEAD], made: 0 }
    }

    /// Appends `blocks`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn push(&mut self, blocks: &[__m512i]) {
        let end = self.made + blocks.len();
        for (to, block) in self.blocks[self.made..end].iter_mut().zip(blocks) {
            to.write(*block);
        }
        self.made = end;
    }

    #[inline]
    fn blocks(&self) -> &[__m512i] {
        let made = &self.blocks[..self.made];
        // SAFETY: these blocks have been written, and `MaybeUninit` lies in memory as what it holds.
        unsafe { slice::from_raw_parts(made.as_ptr().cast(), made.len()) }
    }
}

impl Keystream {
    #[inline(always)]
    pub(super) fn new(_cpu: Avx512, key: &[u32; 8], nonce: &[u32; 3]) -> Self {
        let [k0, k1, k2, k3, k4, k5, k6, k7] = *key;
        let [c0, c1, c2, c3] = CONSTANT;
        let [n0, n1, n2] = *nonce;
        Self { state: [c0, c1, c2, c3, k0, k1, k2, k3, k4, k5, k6, k7, 0, n0, n1, n2] }
    }

    /// Encrypts `data`; returns the key of Poly1305.
    #[inline]
    pub(super) fn encrypt(self, data: &mut [u8]) -> poly1305::Key {
        // SAFETY: `new` was given the proof that the CPU has the instruction sets.
        unsafe { self.xor_all(data) }
    }

    /// Makes the first blocks for `len` bytes; returns the key of Poly1305.
    #[inline]
    pub(super) fn begin(&mut self, ahead: &mut Ahead, len: usize) -> poly1305::Key {
        // SAFETY: as above.
        unsafe { self.make(ahead, len) }
    }

    /// Decrypts `data`, as long as [`begin`](Self::begin) was told when it made the blocks `ahead`.
    #[inline]
    pub(super) fn decrypt(self, ahead: &Ahead, data: &mut [u8]) {
        // SAFETY: as above.
        unsafe { self.xor(ahead, data) }
    }

    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn xor_all(mut self, data: &mut [u8]) -> poly1305::Key {
        let mut done = 0;
        let key = self.first_passes(data.len(), |blocks| {
            let len = (blocks.len() * BLOCK).min(data.len() - done);
            xor_blocks(&mut data[done..done + len], blocks);
            done += len;
        });
        self.xor_rest(&mut data[done..]);
        key
    }

    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn make(&mut self, ahead: &mut Ahead, len: usize) -> poly1305::Key {
        self.first_passes(len, |blocks| ahead.push(blocks))
    }

    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn xor(mut self, ahead: &Ahead, data: &mut [u8]) {
        let blocks = ahead.blocks();
        let (front, rest) = data.split_at_mut(data.len().min(blocks.len() * BLOCK));
        xor_blocks(front, blocks);
        self.xor_rest(rest);
    }

    /// Makes the blocks for `len` bytes, at most [`AHEAD`], in one or two passes, and hands them to `take`, but for the
    /// first one that has the key of Poly1305. What that needs is computed beside the second pass.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn first_passes(&mut self, len: usize, mut take: impl FnMut(&[__m512i])) -> poly1305::Key {
        let blocks = 1 + len.div_ceil(BLOCK);
        let mut key;
        if blocks <= NARROW || (WIDE + 1..=WIDE + NARROW).contains(&blocks) {
            let [first, made @ ..] = self.narrow(|| {});
            key = poly1305::Key::new(first, len);
            take(&made);
        } else {
            let [first, made @ ..] = self.wide(|| {});
            key = poly1305::Key::new(first, len);
            take(&made);
        }
        if blocks > self.state[12] as usize {
            take(&self.wide(|| key.advance()));
        }
        key.complete();
        key
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn xor_rest(&mut self, data: &mut [u8]) {
        for chunk in data.chunks_mut(WIDE * BLOCK) {
            if chunk.len() <= NARROW * BLOCK {
                xor_blocks(chunk, &self.narrow(|| {}));
            } else {
                xor_blocks(chunk, &self.wide(|| {}));
            }
        }
    }

    /// The next 16 blocks.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn wide(&mut self, beside: impl FnMut()) -> [__m512i; WIDE] {
        let blocks = wide(&self.state, beside);
        self.state[12] = self.state[12].wrapping_add(WIDE as u32);
        blocks
    }

    /// The next 8 blocks.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn narrow(&mut self, beside: impl FnMut()) -> [__m512i; NARROW] {
        let blocks = narrow(&self.state, beside);
        self.state[12] = self.state[12].wrapping_add(NARROW as u32);
        blocks
    }
}

/// Xors `blocks` into `data`, which is no longer.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
fn xor_blocks(data: &mut [u8], blocks: &[__m512i]) {
    let (chunks, tail) = data.as_chunks_mut::<BLOCK>();
    for (chunk, block) in chunks.iter_mut().zip(blocks) {
        let at = chunk.as_mut_ptr().cast();
        // SAFETY: the chunk is valid for 64 bytes in both directions; these instructions ask for no alignment.
        unsafe { _mm512_storeu_si512(at, _mm512_xor_si512(_mm512_loadu_si512(at), *block)) }
    }
    if let Some(block) = blocks.get(chunks.len()).filter(|_| !tail.is_empty()) {
        let mask = u64::MAX >> (BLOCK - tail.len());
        let at = tail.as_mut_ptr().cast();
        // SAFETY: the mask has as many bits as the tail bytes, and the others are neither read nor written.
        unsafe {
            let bytes = _mm512_maskz_loadu_epi8(mask, at);
            _mm512_mask_storeu_epi8(at.cast(), mask, _mm512_xor_si512(bytes, *block));
        }
    }
}

/// The rounds on vectors of one length, and the first half of transposing them.
macro_rules! lanes {
    (
        $lanes:ident, $vector:ty, $set1:ident, $add:ident, $xor:ident, $rol:ident,
        $low_32:ident, $high_32:ident, $low_64:ident, $high_64:ident
    ) => {
        mod $lanes {
            use super::*;

            /// Ten double rounds of the state by rows, and in each something else `beside`.
            #[inline]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
            pub(super) fn rounds([a, b, c, d]: &mut [[$vector; 4]; 4], mut beside: impl FnMut()) {
                for _ in 0..10 {
                    step::<16, 0>(a, b, d);
                    step::<12, 0>(c, d, b);
                    step::<8, 0>(a, b, d);
                    step::<7, 0>(c, d, b);
                    step::<16, 1>(a, b, d);
                    step::<12, 1>(c, d, b);
                    step::<8, 1>(a, b, d);
                    step::<7, 1>(c, d, b);
                    beside();
                }
            }

            /// `x += y; z = (z ^ x) <<< LEFT` in four columns, or with `TURN` 1 in four diagonals.
            #[inline]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
            fn step<const LEFT: i32, const TURN: usize>(
                x: &mut [$vector; 4],
                y: &[$vector; 4],
                z: &mut [$vector; 4],
            ) {
                for at in 0..4 {
                    x[at] = $add(x[at], y[(at + TURN) % 4]);
                }
                for at in 0..4 {
                    let z = &mut z[(at + 3 * TURN) % 4];
                    *z = $rol::<LEFT>($xor(*z, x[at]));
                }
            }

            /// `state`, its words in all lanes, block numbers from `lanes` on.
            #[inline]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
            pub(super) fn input(state: &[u32; 16], lanes: $vector) -> [[$vector; 4]; 4] {
                let mut rows = [[lanes; 4]; 4];
                for (at, word) in state.iter().enumerate() {
                    rows[at / 4][at % 4] = $set1(*word as i32);
                }
                rows[3][0] = $add(rows[3][0], lanes);
                rows
            }

            /// The sums of `v` and `input`: words 4q to 4q + 3 of block 4l + b in 128-bit lane l of vector b of row q.
            #[inline]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
            pub(super) fn output(v: &[[$vector; 4]; 4], input: &[[$vector; 4]; 4]) -> [[$vector; 4]; 4] {
                let mut rows = *input;
                for (row, v) in rows.iter_mut().zip(v) {
                    let [v0, v1, v2, v3] =
                        [$add(row[0], v[0]), $add(row[1], v[1]), $add(row[2], v[2]), $add(row[3], v[3])];
                    let (front, back) = ($low_32(v0, v1), $low_32(v2, v3));
                    let (front_high, back_high) = ($high_32(v0, v1), $high_32(v2, v3));
                    *row = [
                        $low_64(front, back),
                        $high_64(front, back),
                        $low_64(front_high, back_high),
                        $high_64(front_high, back_high),
                    ];
                }
                rows
            }
        }
    };
}

lanes!(
    lanes_512,
    __m512i,
    _mm512_set1_epi32,
    _mm512_add_epi32,
    _mm512_xor_si512,
    _mm512_rol_epi32,
    _mm512_unpacklo_epi32,
    _mm512_unpackhi_epi32,
    _mm512_unpacklo_epi64,
    _mm512_unpackhi_epi64
);
lanes!(
    lanes_256,
    __m256i,
    _mm256_set1_epi32,
    _mm256_add_epi32,
    _mm256_xor_si256,
    _mm256_rol_epi32,
    _mm256_unpacklo_epi32,
    _mm256_unpackhi_epi32,
    _mm256_unpacklo_epi64,
    _mm256_unpackhi_epi64
);

/// 16 blocks, the first of the number in `state`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
fn wide(state: &[u32; 16], beside: impl FnMut()) -> [__m512i; WIDE] {
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let input = lanes_512::input(state, lanes);
    let mut v = input;
    lanes_512::rounds(&mut v, beside);
    let rows = lanes_512::output(&v, &input);
    let mut blocks = [lanes; WIDE];
    for b in 0..4 {
        let [q0, q1, q2, q3] = [rows[0][b], rows[1][b], rows[2][b], rows[3][b]];
        let (front, back) = (_mm512_shuffle_i32x4::<0x44>(q0, q1), _mm512_shuffle_i32x4::<0x44>(q2, q3));
        [blocks[b], blocks[4 + b]] = two_blocks(front, back);
        let (front, back) = (_mm512_shuffle_i32x4::<0xEE>(q0, q1), _mm512_shuffle_i32x4::<0xEE>(q2, q3));
        [blocks[8 + b], blocks[12 + b]] = two_blocks(front, back);
    }
    blocks
}

/// 8 blocks, the first of the number in `state`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
fn narrow(state: &[u32; 16], beside: impl FnMut()) -> [__m512i; NARROW] {
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let input = lanes_256::input(state, lanes);
    let mut v = input;
    lanes_256::rounds(&mut v, beside);
    let rows = lanes_256::output(&v, &input);
    let mut blocks = [_mm512_set1_epi32(0); NARROW];
    for b in 0..4 {
        let [q0, q2] = [_mm512_castsi256_si512(rows[0][b]), _mm512_castsi256_si512(rows[2][b])];
        let front = _mm512_inserti64x4::<1>(q0, rows[1][b]);
        let back = _mm512_inserti64x4::<1>(q2, rows[3][b]);
        [blocks[b], blocks[4 + b]] = two_blocks(front, back);
    }
    blocks
}

/// Two blocks of which `front` has the words 0 to 3 and then 4 to 7, `back` those from 8.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
fn two_blocks(front: __m512i, back: __m512i) -> [__m512i; 2] {
    [_mm512_shuffle_i32x4::<0x88>(front, back), _mm512_shuffle_i32x4::<0xDD>(front, back)]
}

/// HChaCha20: the key of the packets whose nonce begins with `nonce`.
#[inline]
pub(super) fn hchacha20(_cpu: Avx512, key: &[u32; 8], nonce: &[u32; 4]) -> [u32; 8] {
    // SAFETY: `_cpu` proves that the CPU has the instruction sets.
    unsafe { derive(key, nonce) }
}

/// The state's rows as vectors; turned against one another, diagonals are where columns were.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
fn derive(key: &[u32; 8], nonce: &[u32; 4]) -> [u32; 8] {
    let ([front, back], _) = key.as_chunks::<4>() else { return *key };
    let (mut a, mut b, mut c, mut d) = (row(&CONSTANT), row(front), row(back), row(nonce));
    for _ in 0..10 {
        [a, b, c, d] = row_round(a, b, c, d);
        // `b` is what the next round waits for: the others are turned.
        a = _mm_shuffle_epi32::<0b10_01_00_11>(a);
        c = _mm_shuffle_epi32::<0b00_11_10_01>(c);
        d = _mm_shuffle_epi32::<0b01_00_11_10>(d);
        [a, b, c, d] = row_round(a, b, c, d);
        a = _mm_shuffle_epi32::<0b00_11_10_01>(a);
        c = _mm_shuffle_epi32::<0b10_01_00_11>(c);
        d = _mm_shuffle_epi32::<0b01_00_11_10>(d);
    }
    let mut derived = [0; 8];
    let (rows, _) = derived.as_chunks_mut::<4>();
    for (to, row) in rows.iter_mut().zip([a, d]) {
        // SAFETY: `to` is valid for writes of 16 bytes; the instruction asks for no alignment.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), row) }
    }
    derived
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
fn row(words: &[u32; 4]) -> __m128i {
    // SAFETY: `words` is valid for reads of 16 bytes; the instruction asks for no alignment.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}

/// Four quarter rounds.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
fn row_round(mut a: __m128i, mut b: __m128i, mut c: __m128i, mut d: __m128i) -> [__m128i; 4] {
    a = _mm_add_epi32(a, b);
    d = _mm_rol_epi32::<16>(_mm_xor_si128(d, a));
    c = _mm_add_epi32(c, d);
    b = _mm_rol_epi32::<12>(_mm_xor_si128(b, c));
    a = _mm_add_epi32(a, b);
    d = _mm_rol_epi32::<8>(_mm_xor_si128(d, a));
    c = _mm_add_epi32(c, d);
    b = _mm_rol_epi32::<7>(_mm_xor_si128(b, c));
    [a, b, c, d]
}
