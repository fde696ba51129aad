//! Poly1305 (RFC 8439, section 2.5) with AVX-512 IFMA: 8 blocks a step, one in each 64-bit lane of three vectors.
//!
//! Numbers modulo 2^130 - 5 are limbs of 44, 44 and 42 bits; limbs are multiplied as numbers of 52 bits, so that
//! there is room to add before carries are taken. The message is the ciphertext, padded to blocks, and a block of
//! lengths. Blocks of zero are put in front of it, which change nothing, so that it ends with a whole step, and lane
//! by lane is multiplied by the power of r that is due.

#![allow(unsafe_code, reason = "vector instructions")]

use core::arch::x86_64::{
    __m512i, __mmask8, _mm512_add_epi64, _mm512_and_si512, _mm512_cmpge_epi64_mask, _mm512_loadu_si512,
    _mm512_madd52hi_epu64, _mm512_madd52lo_epu64, _mm512_mask_set1_epi64, _mm512_maskz_expand_epi64,
    _mm512_maskz_loadu_epi8, _mm512_maskz_set1_epi64, _mm512_or_si512, _mm512_permutexvar_epi64,
    _mm512_reduce_add_epi64, _mm512_set1_epi64, _mm512_setr_epi64, _mm512_setzero_si512, _mm512_slli_epi64,
    _mm512_srli_epi64, _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi64,
};

use super::Avx512;

/// Bytes of a block.
const BLOCK: usize = 16;
/// Blocks of a step.
const LANES: usize = 8;
/// Bytes of a step.
const GROUP: usize = LANES * BLOCK;
const MASK_44: u64 = (1 << 44) - 1;
const MASK_42: u64 = (1 << 42) - 1;
/// The bit behind a block's 128, in the third limb.
const HIGH_BIT: i64 = 1 << 40;

/// A number by its limbs, each perhaps some bits longer.
type Number = [u64; 3];
/// A number in each lane.
type Numbers = [__m512i; 3];

/// The product, its limbs within 2^44, 2^44 + 2^8 and 2^42, of factors with limbs below 2^45, 2^45 and 2^43.
#[inline(always)]
fn product([a0, a1, a2]: Number, [b0, b1, b2]: Number) -> Number {
    let full = |a: u64, b: u64| u128::from(a) * u128::from(b);
    let (s1, s2) = (20 * b1, 20 * b2);
    let d0 = full(a0, b0) + full(a1, s2) + full(a2, s1);
    let d1 = full(a0, b1) + full(a1, b0) + full(a2, s2) + u128::from((d0 >> 44) as u64);
    let d2 = full(a0, b2) + full(a1, b1) + full(a2, b0) + u128::from((d1 >> 44) as u64);
    let p0 = (d0 as u64 & MASK_44) + 5 * (d2 >> 42) as u64;
    [p0 & MASK_44, (d1 as u64 & MASK_44) + (p0 >> 44), d2 as u64 & MASK_42]
}

/// How a message is divided.
#[derive(Clone, Copy)]
struct Layout {
    /// Blocks, that of the lengths included.
    blocks: usize,
    groups: usize,
}

impl Layout {
    fn new(len: usize) -> Self {
        let blocks = len.div_ceil(BLOCK) + 1;
        Self { blocks, groups: blocks.div_ceil(LANES) }
    }

    /// Blocks of zero in front.
    fn padding(self) -> usize {
        self.groups * LANES - self.blocks
    }
}

/// The key of one message, with the powers of r that a message of its length takes.
pub(super) struct Key {
    r: Number,
    /// The last power of r that was computed, and its exponent.
    power: Number,
    exponent: usize,
    /// r^8 to r^1 by limbs; 0 where the message has no block.
    powers: [[u64; LANES]; 3],
    /// r^8 and r^16, if there are as many blocks.
    eighth: Number,
    sixteenth: Number,
    layout: Layout,
    /// What is added at the end.
    s: u128,
}

impl Key {
    /// The key that begins `block`, for a message of `len` bytes. [`complete`](Self::complete) it.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    pub(super) fn new(block: __m512i, len: usize) -> Self {
        let mut words = [0_u64; LANES];
        // SAFETY: `words` is valid for writes of 64 bytes; the instruction asks for no alignment.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), block) }
        let r = clamped(words[0], words[1]);
        let mut powers = [[0; LANES]; 3];
        for (powers, limb) in powers.iter_mut().zip(r) {
            powers[LANES - 1] = limb;
        }
        Self {
            r,
            power: r,
            exponent: 1,
            powers,
            eighth: [0; 3],
            sixteenth: [0; 3],
            layout: Layout::new(len),
            s: u128::from(words[2]) | u128::from(words[3]) << 64,
        }
    }

    /// The complete key that begins `block`.
    #[cfg(test)]
    pub(super) fn from_block(_cpu: Avx512, block: &[u8; 64], len: usize) -> Self {
        // SAFETY: `_cpu` proves that the CPU has the instruction sets.
        let mut key = unsafe { Self::new(load(block), len) };
        key.complete();
        key
    }

    /// Computes one more power, if one is missing: beside vector instructions it costs little.
    #[inline(always)]
    pub(super) fn advance(&mut self) {
        if self.exponent < LANES.min(self.layout.blocks) {
            self.power = product(self.power, self.r);
            self.exponent += 1;
            for (powers, limb) in self.powers.iter_mut().zip(self.power) {
                powers[LANES - self.exponent] = limb;
            }
        } else if self.exponent == LANES && self.layout.groups > 1 {
            self.eighth = self.power;
            self.sixteenth = product(self.power, self.power);
            self.exponent += LANES;
        }
    }

    /// Computes what is missing.
    #[inline(always)]
    pub(super) fn complete(&mut self) {
        let last = if self.layout.groups > 1 { 2 * LANES } else { self.layout.blocks.min(LANES) };
        while self.exponent < last {
            self.advance();
        }
    }

    /// The tag of `data`, as long as [`new`](Self::new) was told.
    #[inline]
    pub(super) fn tag(&self, _cpu: Avx512, data: &[u8]) -> u128 {
        // SAFETY: `_cpu` proves that the CPU has the instruction sets.
        unsafe { self.authenticate(data) }
    }

    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn authenticate(&self, data: &[u8]) -> u128 {
        let message = Message { data, layout: self.layout };
        let mut sum = message.outer_group(0);
        if self.layout.groups > 1 {
            let (eighth, sixteenth) = (Factor::everywhere(self.eighth), Factor::everywhere(self.sixteenth));
            let (pairs, rest) = message.inner_groups().as_chunks::<{ 2 * GROUP }>();
            for pair in pairs {
                let ([first, second], _) = pair.as_chunks::<GROUP>() else { break };
                let products = Products::new().add(inner_group(first), &eighth).add(sum, &sixteenth);
                sum = plus(products.carried(), inner_group(second));
            }
            let mut products = Products::new();
            let mut factor = &eighth;
            if let Some(first) = rest.first_chunk() {
                products = products.add(inner_group(first), &eighth);
                factor = &sixteenth;
            }
            sum = plus(products.add(sum, factor).carried(), message.outer_group(self.layout.groups - 1));
        }
        let [t0, t1, t2] = Products::new().add(sum, &self.factor_of_lanes()).sums();
        let total = [
            _mm512_reduce_add_epi64(t0) as u64,
            _mm512_reduce_add_epi64(t1) as u64,
            _mm512_reduce_add_epi64(t2) as u64,
        ];
        reduced(total).wrapping_add(self.s)
    }

    /// The power of r by which each lane is multiplied at the end.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn factor_of_lanes(&self) -> Factor {
        let block = block_of_lane();
        let [r0, r1, r2] = &self.powers;
        Factor::new([
            _mm512_permutexvar_epi64(block, load(r0)),
            _mm512_permutexvar_epi64(block, load(r1)),
            _mm512_permutexvar_epi64(block, load(r2)),
        ])
    }
}

/// r of the key's first 16 bytes.
fn clamped(low: u64, high: u64) -> Number {
    let (low, high) = (low & 0x0FFF_FFFC_0FFF_FFFF, high & 0x0FFF_FFFC_0FFF_FFFC);
    [low & MASK_44, (low >> 44 | high << 20) & MASK_44, high >> 24]
}

/// The number modulo 2^130 - 5, and that modulo 2^128; limbs are below 2^60.
fn reduced([mut h0, mut h1, mut h2]: Number) -> u128 {
    h1 += h0 >> 44;
    h2 += h1 >> 44;
    h0 = (h0 & MASK_44) + 5 * (h2 >> 42);
    h1 = (h1 & MASK_44) + (h0 >> 44);
    h2 = (h2 & MASK_42) + (h1 >> 44);
    (h0, h1) = (h0 & MASK_44, h1 & MASK_44);
    // At most 2^130 and a little: the prime goes into it once or not at all, and once if 5 more reach 2^130.
    let g0 = h0 + 5;
    let g1 = h1 + (g0 >> 44);
    let g2 = h2 + (g1 >> 44);
    let once = (g2 >> 42).wrapping_neg();
    let choose = |h: u64, g: u64| u128::from(h ^ (once & (h ^ g)));
    choose(h0, g0 & MASK_44) | choose(h1, g1 & MASK_44) << 44 | choose(h2, g2) << 88
}

/// What the lanes are multiplied by.
struct Factor {
    r: Numbers,
    /// The second and third limb by 20: products of 2^132 and more, 4 * (2^130 - 5) less.
    s1: __m512i,
    s2: __m512i,
}

impl Factor {
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn new(r: Numbers) -> Self {
        Self { r, s1: by_20(r[1]), s2: by_20(r[2]) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn everywhere(number: Number) -> Self {
        let [r0, r1, r2] = number;
        Self::new([_mm512_set1_epi64(r0 as i64), _mm512_set1_epi64(r1 as i64), _mm512_set1_epi64(r2 as i64)])
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
fn by_20(limb: __m512i) -> __m512i {
    _mm512_add_epi64(_mm512_slli_epi64::<4>(limb), _mm512_slli_epi64::<2>(limb))
}

/// Sums of products, each limb by the lower 52 bits of its products and what is above them.
struct Products {
    low: Numbers,
    high: Numbers,
}

impl Products {
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn new() -> Self {
        Self { low: [_mm512_setzero_si512(); 3], high: [_mm512_setzero_si512(); 3] }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn add(mut self, [h0, h1, h2]: Numbers, Factor { r: [r0, r1, r2], s1, s2 }: &Factor) -> Self {
        let terms =
            [[(h0, r0), (h1, s2), (h2, s1)], [(h0, r1), (h1, r0), (h2, s2)], [(h0, r2), (h1, r1), (h2, r0)]];
        for at in 0..3 {
            for (limb, terms) in terms.iter().enumerate() {
                let (h, r) = terms[at];
                self.low[limb] = _mm512_madd52lo_epu64(self.low[limb], h, *r);
                self.high[limb] = _mm512_madd52hi_epu64(self.high[limb], h, *r);
            }
        }
        self
    }

    /// The sums by limbs, each below 2^56: what was above 52 bits is 2^8 in the next limb, and behind the last one, at
    /// 2^140, 5 * 2^10 in the first.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn sums(self) -> Numbers {
        let ([l0, l1, l2], [h0, h1, h2]) = (self.low, self.high);
        [
            _mm512_madd52lo_epu64(l0, h2, _mm512_set1_epi64(5 << 10)),
            _mm512_add_epi64(l1, _mm512_slli_epi64::<8>(h0)),
            _mm512_add_epi64(l2, _mm512_slli_epi64::<8>(h1)),
        ]
    }

    /// The sums after a single carry of each limb at once: few bits above their lengths are left.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn carried(self) -> Numbers {
        let [t0, t1, t2] = self.sums();
        let (mask_44, mask_42) = (_mm512_set1_epi64(MASK_44 as i64), _mm512_set1_epi64(MASK_42 as i64));
        let c2 = _mm512_srli_epi64::<42>(t2);
        let low = _mm512_add_epi64(_mm512_and_si512(t0, mask_44), c2);
        [
            _mm512_add_epi64(low, _mm512_slli_epi64::<2>(c2)),
            _mm512_add_epi64(_mm512_and_si512(t1, mask_44), _mm512_srli_epi64::<44>(t0)),
            _mm512_add_epi64(_mm512_and_si512(t2, mask_42), _mm512_srli_epi64::<44>(t1)),
        ]
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
fn plus(a: Numbers, b: Numbers) -> Numbers {
    [_mm512_add_epi64(a[0], b[0]), _mm512_add_epi64(a[1], b[1]), _mm512_add_epi64(a[2], b[2])]
}

/// Ciphertext, padded, and lengths.
struct Message<'a> {
    data: &'a [u8],
    layout: Layout,
}

impl Message<'_> {
    /// What is between the first group and the last one.
    #[inline]
    fn inner_groups(&self) -> &[u8] {
        let start = GROUP - self.layout.padding() * BLOCK;
        let len = self.layout.groups.saturating_sub(2) * GROUP;
        self.data.get(start..start + len).unwrap_or_default()
    }

    /// The first group, which may begin with padding, or the last one, which ends with the lengths.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn outer_group(&self, index: usize) -> Numbers {
        let front = self.half_group(index * GROUP);
        let mut back = self.half_group(index * GROUP + GROUP / 2);
        if index + 1 == self.layout.groups {
            // The length of additional data, none, is before it.
            back = _mm512_mask_set1_epi64(back, 1 << 7, self.data.len() as i64);
        }
        let padding = if index == 0 { self.layout.padding() } else { 0 };
        let present = _mm512_cmpge_epi64_mask(block_of_lane(), _mm512_set1_epi64(padding as i64));
        numbers(front, back, _mm512_maskz_set1_epi64(present, HIGH_BIT))
    }

    /// 64 bytes of the message from `at` of what is padded in front, zeros where it has none.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
    fn half_group(&self, at: usize) -> __m512i {
        let padding = self.layout.padding() * BLOCK;
        let data = &self.data[at.saturating_sub(padding).min(self.data.len())..];
        let missing = padding.saturating_sub(at).min(64);
        let bytes = load_up_to(&data[..data.len().min(64 - missing)]);
        let words: __mmask8 = 0xFF_u8.checked_shl((missing / 8) as u32).unwrap_or(0);
        _mm512_maskz_expand_epi64(words, bytes)
    }
}

/// Which block of a group interleaving the halves of two vectors leaves in each lane.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
fn block_of_lane() -> __m512i {
    _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7)
}

/// The blocks of a group as numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
fn inner_group(bytes: &[u8; GROUP]) -> Numbers {
    let ([front, back], _) = bytes.as_chunks::<64>() else { return [_mm512_setzero_si512(); 3] };
    numbers(load(front), load(back), _mm512_set1_epi64(HIGH_BIT))
}

/// Blocks as numbers, with `high_bit` in the third limb.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
fn numbers(front: __m512i, back: __m512i, high_bit: __m512i) -> Numbers {
    // The truth table of `(a | b) & c`.
    const OR_AND: i32 = 0b1010_1000;
    let mask = _mm512_set1_epi64(MASK_44 as i64);
    let low = _mm512_unpacklo_epi64(front, back);
    let high = _mm512_unpackhi_epi64(front, back);
    let (below, above) = (_mm512_srli_epi64::<44>(low), _mm512_slli_epi64::<20>(high));
    [
        _mm512_and_si512(low, mask),
        _mm512_ternarylogic_epi64::<OR_AND>(below, above, mask),
        _mm512_or_si512(_mm512_srli_epi64::<24>(high), high_bit),
    ]
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
fn load<T, const N: usize>(items: &[T; N]) -> __m512i {
    const { assert!(size_of::<[T; N]>() == 64) };
    // SAFETY: `items` is valid for reads of 64 bytes, integers; the instruction asks for no alignment.
    unsafe { _mm512_loadu_si512(items.as_ptr().cast()) }
}

/// At most 64 bytes, zeros behind them.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512ifma,bmi2")]
fn load_up_to(bytes: &[u8]) -> __m512i {
    let len = bytes.len().min(64) as u32;
    let mask = u64::MAX.checked_shr(64 - len).unwrap_or(0);
    // SAFETY: the mask has as many bits as there are bytes, and others are not read.
    unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
}
