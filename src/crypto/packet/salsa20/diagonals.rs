//! Salsa20 for several blocks at once, with the vectors of any instruction set.
//!
//! Four vectors hold the 16 words of a block, each one of its diagonals. A vector has a lane of 128 bits for each block, and
//! the lane has the four words of the diagonal. So one sequence of instructions on whole vectors does the four quarter
//! rounds of a round, for as many blocks as a vector has lanes:
//!
//! ```text
//!  0  1  2  3      a =  0  5 10 15
//!  4  5  6  7      b =  4  9 14  3
//!  8  9 10 11      c =  8 13  2  7
//! 12 13 14 15      d = 12  1  6 11
//! ```
//!
//! Rotating the words of `b`, `c` and `d` by one, two and three places changes columns into rows and back.
//!
//! The instructions for a group of vectors depend on one another, so the CPU waits between them. Several groups side by side
//! fill these gaps. Three groups are the most that stay in the registers of AVX2, and enough to keep AVX-512 busy.
#![allow(unsafe_code, reason = "vector instructions")]

use super::NONCE_LEN;

/// Bytes of a block.
const BLOCK: usize = 64;
/// Groups of vectors side by side.
const GROUPS: usize = 3;

/// A vector of 32-bit words, four for each of some blocks.
///
/// # Safety
/// An implementation must access no memory but the bytes that its arguments refer to. A caller of any method must make sure
/// that the CPU has the instruction set. All methods are `inline(always)`, so that they are compiled inside a function
/// that enables it.
pub(super) unsafe trait Vector: Copy {
    /// Blocks of a vector, each a lane of 128 bits.
    const BLOCKS: usize;

    /// The same four words in each lane.
    unsafe fn in_each_lane(words: [u32; 4]) -> Self;
    /// The number of each lane as its first word, and zeros.
    unsafe fn lane_numbers() -> Self;
    unsafe fn add(self, other: Self) -> Self;
    /// `self ^ ((x + y) <<< LEFT)`. `RIGHT` is 32 - `LEFT`.
    unsafe fn xor_rotated_sum<const LEFT: i32, const RIGHT: i32>(self, x: Self, y: Self) -> Self;
    /// Reorders the words of each lane: bits `2 * n` and `2 * n + 1` of `ORDER` say which word becomes word `n`.
    unsafe fn shuffle<const ORDER: i32>(self) -> Self;
    /// In each lane: the first word of the first vector, the second word of the second one, and so on.
    unsafe fn diagonal(vectors: [Self; 4]) -> Self;
    /// Xors the blocks into `data`, which may be shorter than they are. `rows` holds the rows of each block in a lane.
    unsafe fn xor_into(rows: [Self; 4], data: &mut [u8]);
}

/// Xors the key stream into `data`, a packet.
///
/// # Safety
/// The CPU must have the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn apply<V: Vector>(key: &[u8; 32], nonce: &[u8; NONCE_LEN], data: &mut [u8]) {
    // SAFETY: the caller promises the instruction set.
    unsafe {
        let mut state = State::<V>::new(key, nonce);
        for data in data.chunks_mut(GROUPS * V::BLOCKS * BLOCK) {
            match data.len().div_ceil(V::BLOCKS * BLOCK) {
                1 => state.xor_into::<1>(data),
                2 => state.xor_into::<2>(data),
                _ => state.xor_into::<GROUPS>(data),
            }
        }
    }
}

/// The input of the next group of blocks.
struct State<V> {
    a: V,
    b: V,
    /// Its first word is word 8, the number of the block. Word 9 is the upper half of the number: it stays zero, since no
    /// packet has 2^32 blocks.
    c: V,
    d: V,
}

impl<V: Vector> State<V> {
    #[inline(always)]
    unsafe fn new(key: &[u8; 32], nonce: &[u8; NONCE_LEN]) -> Self {
        let word = |bytes: &[u8], at: usize| {
            u32::from_le_bytes([bytes[4 * at], bytes[4 * at + 1], bytes[4 * at + 2], bytes[4 * at + 3]])
        };
        let constant = b"expand 32-byte k";
        // SAFETY: the caller promises the instruction set.
        unsafe {
            Self {
                a: V::in_each_lane([
                    word(constant, 0),
                    word(constant, 1),
                    word(constant, 2),
                    word(constant, 3),
                ]),
                b: V::in_each_lane([word(key, 3), 0, word(key, 7), word(key, 2)]),
                c: V::in_each_lane([0, word(key, 6), word(key, 1), word(nonce, 1)]).add(V::lane_numbers()),
                d: V::in_each_lane([word(key, 5), word(key, 0), word(nonce, 0), word(key, 4)]),
            }
        }
    }

    /// Xors the key stream of the next `N` groups of blocks into `data`, which is no longer than they are.
    #[inline(always)]
    unsafe fn xor_into<const N: usize>(&mut self, data: &mut [u8]) {
        // SAFETY: the caller promises the instruction set.
        unsafe {
            let Self { a: a0, b: b0, d: d0, .. } = *self;
            let mut c0 = [self.c; N];
            for c in &mut c0 {
                *c = self.c;
                self.c = self.c.add(V::in_each_lane([V::BLOCKS as u32, 0, 0, 0]));
            }

            let (mut a, mut b, mut c, mut d) = ([a0; N], [b0; N], c0, [d0; N]);
            for _ in 0..10 {
                round(&mut a, &mut b, &mut c, &mut d);
                turn(&mut b, &mut c, &mut d);
                // Now they are rows, and `d` and `b` have changed places.
                round(&mut a, &mut d, &mut c, &mut b);
                turn(&mut d, &mut c, &mut b);
            }

            for (at, data) in data.chunks_mut(V::BLOCKS * BLOCK).enumerate().take(N) {
                let (a, b, c, d) = (a[at].add(a0), b[at].add(b0), c[at].add(c0[at]), d[at].add(d0));
                // Not with `map`: what a closure calls is not compiled with the instruction set.
                let rows = [
                    V::diagonal([a, d, c, b]),
                    V::diagonal([b, a, d, c]),
                    V::diagonal([c, b, a, d]),
                    V::diagonal([d, c, b, a]),
                ];
                V::xor_into(rows, data);
            }
        }
    }
}

/// One round for each block: four quarter rounds.
#[inline(always)]
unsafe fn round<V: Vector, const N: usize>(a: &mut [V; N], b: &mut [V; N], c: &mut [V; N], d: &mut [V; N]) {
    // SAFETY: the caller promises the instruction set.
    unsafe {
        step::<7, 25, V, N>(b, a, d);
        step::<9, 23, V, N>(c, b, a);
        step::<13, 19, V, N>(d, c, b);
        step::<18, 14, V, N>(a, d, c);
    }
}

#[inline(always)]
unsafe fn step<const LEFT: i32, const RIGHT: i32, V: Vector, const N: usize>(
    to: &mut [V; N],
    x: &[V; N],
    y: &[V; N],
) {
    for at in 0..N {
        // SAFETY: the caller promises the instruction set.
        to[at] = unsafe { to[at].xor_rotated_sum::<LEFT, RIGHT>(x[at], y[at]) };
    }
}

/// Turns columns into rows. With `b` and `d` exchanged, it turns rows into columns.
#[inline(always)]
unsafe fn turn<V: Vector, const N: usize>(b: &mut [V; N], c: &mut [V; N], d: &mut [V; N]) {
    for at in 0..N {
        // SAFETY: the caller promises the instruction set.
        unsafe {
            b[at] = b[at].shuffle::<0b10_01_00_11>();
            c[at] = c[at].shuffle::<0b01_00_11_10>();
            d[at] = d[at].shuffle::<0b00_11_10_01>();
        }
    }
}
