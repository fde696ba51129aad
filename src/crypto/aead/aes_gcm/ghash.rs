//! Multiplication in GHASH's field, of four pairs of elements at once.
//!
//! GHASH numbers the bits of a block backwards: a block whose bytes are reversed is its polynomial with the bits
//! reversed. The product of two such is that of the polynomials, reversed, but for one place, for which the hash key
//! makes up by a factor of x ([`times_x`]). Reduction then clears the low half instead of the high one: it divides by
//! x^128, modulo x^128 + x^127 + x^126 + x^121 + 1, as POLYVAL does (RFC 8452, appendix A).

use core::arch::x86_64::{
    __m128i, __m512i, _mm_and_si128, _mm_bslli_si128, _mm_or_si128, _mm_set_epi64x, _mm_shuffle_epi32,
    _mm_slli_epi64, _mm_srai_epi32, _mm_srli_epi64, _mm_xor_si128, _mm256_castsi256_si128,
    _mm256_extracti128_si256, _mm256_xor_si256, _mm512_castsi512_si256, _mm512_clmulepi64_epi128,
    _mm512_extracti64x4_epi64, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_shuffle_epi32,
    _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

/// The high half of the modulus: x^127 + x^126 + x^121.
const MODULUS: i64 = 0xC2 << 56;

/// Sums of products, 256 bits in each of four lanes, not reduced: those of the low halves, of the high halves, and
/// those between, which lie 64 bits above the low ones.
#[derive(Clone, Copy)]
pub(super) struct Products {
    low: __m512i,
    middle: __m512i,
    high: __m512i,
}

impl Products {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn none() -> Self {
        let zero = _mm512_setzero_si512();
        Self { low: zero, middle: zero, high: zero }
    }

    /// Adds the products of four pairs.
    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    pub(super) fn add(&mut self, blocks: __m512i, powers: __m512i) {
        self.low = _mm512_xor_si512(self.low, _mm512_clmulepi64_epi128::<0x00>(blocks, powers));
        self.high = _mm512_xor_si512(self.high, _mm512_clmulepi64_epi128::<0x11>(blocks, powers));
        let first = _mm512_clmulepi64_epi128::<0x01>(blocks, powers);
        let second = _mm512_clmulepi64_epi128::<0x10>(blocks, powers);
        self.middle = xor3(self.middle, first, second);
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            low: _mm512_xor_si512(self.low, other.low),
            middle: _mm512_xor_si512(self.middle, other.middle),
            high: _mm512_xor_si512(self.high, other.high),
        }
    }

    /// The four sums, reduced.
    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn reduce(self) -> __m512i {
        let modulus = _mm512_set1_epi64(MODULUS);
        let folded = _mm512_clmulepi64_epi128::<0x00>(self.low, modulus);
        let rest = xor3(swap_halves(self.low), folded, self.middle);
        let folded = _mm512_clmulepi64_epi128::<0x00>(rest, modulus);
        xor3(swap_halves(rest), folded, self.high)
    }

    /// The sum of the four, reduced.
    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    pub(super) fn sum(self) -> __m128i {
        let lanes = self.reduce();
        let pairs = _mm256_xor_si256(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64::<1>(lanes));
        _mm_xor_si128(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs))
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    // The truth table of the sum of three bits.
    _mm512_ternarylogic_epi64::<0b1001_0110>(a, b, c)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn swap_halves(lanes: __m512i) -> __m512i {
    _mm512_shuffle_epi32::<0b01_00_11_10>(lanes)
}

/// `element` times x.
#[target_feature(enable = "sse2")]
pub(super) fn times_x(element: __m128i) -> __m128i {
    let carries = _mm_bslli_si128::<8>(_mm_srli_epi64::<63>(element));
    let doubled = _mm_or_si128(_mm_slli_epi64::<1>(element), carries);
    let overflows = _mm_shuffle_epi32::<0b11_11_11_11>(_mm_srai_epi32::<31>(element));
    _mm_xor_si128(doubled, _mm_and_si128(overflows, _mm_set_epi64x(MODULUS, 1)))
}
