//! What is computed once a key.

use core::arch::x86_64::{
    __m128i, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_aeskeygenassist_si128, _mm_cvtsi128_si32,
    _mm_set_epi8, _mm_set_epi32, _mm_set1_epi32, _mm_setzero_si128, _mm_shuffle_epi8, _mm_xor_si128,
    _mm512_zextsi128_si512,
};

use zeroize::Zeroizing;

use super::ghash::{Products, times_x};

/// Blocks of a group.
pub(super) const GROUP_BLOCKS: usize = 16;
/// Blocks in a vector.
const LANES: usize = 4;
/// Powers of the hash key: the last group is hashed together with what is behind it, less than a group and the block of
/// lengths. With a vector for the latter, the vectors of a group stay aligned.
const POWERS: usize = 2 * GROUP_BLOCKS + LANES;

/// Round keys and powers of the hash key, overwritten on drop.
#[repr(align(64))]
pub(super) struct Keys<const N: usize> {
    /// From the highest to the first, and zeros behind them, so that a vector can be read from each on.
    powers: Zeroizing<[__m128i; POWERS + LANES - 1]>,
    rounds: Zeroizing<[__m128i; N]>,
}

impl<const N: usize> Keys<N> {
    /// Room for keys.
    #[target_feature(enable = "sse2")]
    pub(super) fn none() -> Self {
        let zero = _mm_setzero_si128();
        Self { powers: Zeroizing::new([zero; POWERS + LANES - 1]), rounds: Zeroizing::new([zero; N]) }
    }

    /// Expands `key`, of N - 7 words.
    #[target_feature(enable = "aes,ssse3,avx512f,vpclmulqdq")]
    pub(super) fn expand(&mut self, key: &[u8]) {
        expand_rounds(key, &mut self.rounds);
        let hash_key = times_x(reverse(self.encrypt(_mm_setzero_si128())));
        let mut power = hash_key;
        self.powers[POWERS - 1] = power;
        for at in (0..POWERS - 1).rev() {
            let mut product = Products::none();
            product.add(_mm512_zextsi128_si512(power), _mm512_zextsi128_si512(hash_key));
            power = product.sum();
            self.powers[at] = power;
        }
    }

    pub(super) fn rounds(&self) -> &[__m128i; N] {
        &self.rounds
    }

    /// The powers for as many blocks, at most [`POWERS`], by vectors.
    #[inline]
    pub(super) fn powers(&self, blocks: usize) -> &[[__m128i; LANES]] {
        self.powers[POWERS - blocks..].as_chunks().0
    }

    /// The powers for a group with `behind` blocks to come.
    #[inline]
    pub(super) fn group_powers(&self, behind: usize) -> &[[__m128i; LANES]; GROUP_BLOCKS / LANES] {
        self.powers(GROUP_BLOCKS + behind).first_chunk().expect("as many powers as blocks")
    }

    /// Encrypts one block.
    #[inline]
    #[target_feature(enable = "aes")]
    pub(super) fn encrypt(&self, block: __m128i) -> __m128i {
        let mut state = _mm_xor_si128(block, self.rounds[0]);
        for key in &self.rounds[1..N - 1] {
            state = _mm_aesenc_si128(state, *key);
        }
        _mm_aesenclast_si128(state, self.rounds[N - 1])
    }
}

/// FIPS 197, section 5.2.
#[target_feature(enable = "aes")]
fn expand_rounds<const N: usize>(key: &[u8], rounds: &mut [__m128i; N]) {
    let key_words = key.len() / 4;
    let mut words = Zeroizing::new([0_u32; 4 * 15]);
    for (word, bytes) in words.iter_mut().zip(key.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    let mut constant = 1;
    for at in key_words..4 * N {
        let mut word = words[at - 1];
        if at % key_words == 0 {
            word = substitute(word).rotate_right(8) ^ constant;
            constant = (constant << 1) ^ ((constant >> 7) * 0x11B);
        } else if key_words == 8 && at % 8 == 4 {
            word = substitute(word);
        }
        words[at] = words[at - key_words] ^ word;
    }
    for (round, words) in rounds.iter_mut().zip(words.as_chunks::<4>().0) {
        let [a, b, c, d] = words.map(u32::cast_signed);
        *round = _mm_set_epi32(d, c, b, a);
    }
}

/// The S-box for each byte, without a table.
#[target_feature(enable = "aes")]
fn substitute(word: u32) -> u32 {
    _mm_cvtsi128_si32(_mm_aeskeygenassist_si128::<0>(_mm_set1_epi32(word.cast_signed()))).cast_unsigned()
}

/// `block` with its bytes reversed.
#[inline]
#[target_feature(enable = "ssse3")]
pub(super) fn reverse(block: __m128i) -> __m128i {
    _mm_shuffle_epi8(block, _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
}
