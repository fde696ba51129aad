//! Packets with AVX-512, VAES and VPCLMULQDQ.
//!
//! Groups of four vectors are encrypted side by side, which hides the latency of a round, and hashed in the gaps: a
//! group to open itself, a group to seal one group later, when its ciphertext is known. What is behind the last group
//! comes first of all: its few vectors do not hide their latency by themselves, and the last group's products and its
//! are reduced together.

#![allow(unsafe_code, reason = "vector instructions")]

use core::arch::asm;
use core::arch::x86_64::{
    __m128i, __m512i, __mmask8, __mmask64, _mm_loadu_si128, _mm_set_epi64x, _mm_storeu_si128,
    _mm_test_epi64_mask, _mm_xor_si128, _mm512_add_epi32, _mm512_aesenc_epi128, _mm512_aesenclast_epi128,
    _mm512_broadcast_i32x4, _mm512_castsi512_si128, _mm512_loadu_si512, _mm512_mask_mov_epi64,
    _mm512_mask_set1_epi64, _mm512_mask_storeu_epi8, _mm512_maskz_compress_epi64, _mm512_maskz_loadu_epi8,
    _mm512_maskz_mov_epi8, _mm512_maskz_set1_epi32, _mm512_set_epi32, _mm512_set_epi64, _mm512_setzero_si512,
    _mm512_shuffle_epi8, _mm512_storeu_si512, _mm512_xor_si512, _mm512_zextsi128_si512,
};

use super::{
    NONCE_LEN, TAG_LEN,
    ghash::Products,
    keys::{GROUP_BLOCKS, Keys, reverse},
};

/// Bytes of a vector.
const VECTOR: usize = 64;
/// Vectors of a group.
const GROUP: usize = 4;
type Group = [u8; GROUP * VECTOR];
type Vectors = [__m512i; GROUP];
type Powers = [[__m128i; 4]; GROUP];

/// Proof that the CPU has AVX-512 (F, BW, VL), VAES and VPCLMULQDQ.
#[derive(Clone, Copy)]
pub(super) struct Vaes512(());

impl Vaes512 {
    pub(super) fn detect() -> Option<Self> {
        cpu_has!("aes", "avx512f", "avx512bw", "avx512vl", "vaes", "vpclmulqdq").then_some(Self(()))
    }

    /// Room for keys.
    pub(super) fn no_keys<const N: usize>(self) -> Keys<N> {
        // SAFETY: `self` proves that the CPU has the instruction sets, here and below.
        unsafe { Keys::none() }
    }

    /// Expands `key`.
    pub(super) fn expand<const N: usize>(self, key: &[u8], keys: &mut Keys<N>) {
        // SAFETY: as above.
        unsafe { keys.expand(key) }
    }

    /// Encrypts `payload` and writes the tag.
    pub(super) fn seal<const N: usize>(
        self,
        keys: &Keys<N>,
        nonce: &[u8; NONCE_LEN],
        payload: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) {
        // SAFETY: as above.
        unsafe { seal(keys, nonce, payload, tag) }
    }

    /// Decrypts `payload` and returns whether the tag is right.
    pub(super) fn open<const N: usize>(
        self,
        keys: &Keys<N>,
        nonce: &[u8; NONCE_LEN],
        payload: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        // SAFETY: as above.
        unsafe { open(keys, nonce, payload, tag) }
    }
}

#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
fn seal<const N: usize>(
    keys: &Keys<N>,
    nonce: &[u8; NONCE_LEN],
    payload: &mut [u8],
    tag: &mut [u8; TAG_LEN],
) {
    let made = crypt::<N, true>(keys, nonce, payload);
    // SAFETY: 16 bytes are writable; the instruction asks for no alignment.
    unsafe { _mm_storeu_si128(tag.as_mut_ptr().cast(), made) }
}

#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
fn open<const N: usize>(
    keys: &Keys<N>,
    nonce: &[u8; NONCE_LEN],
    payload: &mut [u8],
    tag: &[u8; TAG_LEN],
) -> bool {
    let made = crypt::<N, false>(keys, nonce, payload);
    // SAFETY: 16 bytes are readable; the instruction asks for no alignment.
    let given = unsafe { _mm_loadu_si128(tag.as_ptr().cast()) };
    let differences = _mm_xor_si128(made, given);
    _mm_test_epi64_mask(differences, differences) == 0
}

/// Encrypts `payload` if `SEALS`, decrypts it if not, and returns its tag.
#[inline]
#[target_feature(enable = "aes,avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
fn crypt<const N: usize, const SEALS: bool>(
    keys: &Keys<N>,
    nonce: &[u8; NONCE_LEN],
    payload: &mut [u8],
) -> __m128i {
    let mut stream = KeyStream::<N, SEALS>::new(keys, nonce);
    let bits = payload.len() as i64 * 8;
    let (groups, rest) = payload.as_chunks_mut();
    let behind = rest.len().div_ceil(16) + 1;
    let ahead = stream.ahead(groups.len() * GROUP_BLOCKS);
    let (rest, tag_mask) = crypt_rest(keys, ahead, rest, bits);
    let groups = if SEALS {
        encrypt_groups(keys, &mut stream, groups, behind)
    } else {
        decrypt_groups(keys, &mut stream, groups, behind)
    };
    _mm_xor_si128(reverse(groups.plus(rest).sum()), tag_mask)
}

/// Encrypts each group while the one before it is hashed. Returns the hash with `behind` blocks to come.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes,vpclmulqdq")]
fn encrypt_groups<const N: usize, const SEALS: bool>(
    keys: &Keys<N>,
    stream: &mut KeyStream<N, SEALS>,
    groups: &mut [Group],
    behind: usize,
) -> Products {
    let mut products = Products::none();
    let Some((first, others)) = groups.split_first_mut() else { return products };
    let key_stream = stream.group();
    let mut hashed = xor_group(first, key_stream);
    for group in others {
        let key_stream;
        (key_stream, products) = stream.group_and_hash(products, hashed, keys.group_powers(0));
        hashed = xor_group(group, key_stream);
    }
    let mut hash = GroupHash::new(products, hashed, keys.group_powers(behind));
    hash.add::<3>();
    hash.add::<2>();
    hash.add::<1>();
    hash.add::<0>();
    hash.products
}

/// Hashes and decrypts each group. Returns the hash with `behind` blocks to come.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes,vpclmulqdq")]
fn decrypt_groups<const N: usize, const SEALS: bool>(
    keys: &Keys<N>,
    stream: &mut KeyStream<N, SEALS>,
    groups: &mut [Group],
    behind: usize,
) -> Products {
    let mut products = Products::none();
    let mut left = groups.len();
    for group in groups {
        left -= 1;
        let powers = keys.group_powers(if left == 0 { behind } else { 0 });
        let key_stream;
        (key_stream, products) = stream.group_and_hash(products, load_group(group), powers);
        xor_group(group, key_stream);
    }
    products
}

/// Less than a group, and the block of lengths, whose second half is `bits`. Returns the hash and the mask of the tag:
/// the key stream of the first counter block, which is made in the place of the block of lengths.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,vaes,vpclmulqdq")]
fn crypt_rest<const N: usize, const SEALS: bool>(
    keys: &Keys<N>,
    mut stream: KeyStream<N, SEALS>,
    rest: &mut [u8],
    bits: i64,
) -> (Products, __m128i) {
    let blocks = rest.len().div_ceil(16);
    // Two bits a block, for its halves.
    let mut lengths_at = 0b11_u64 << (2 * blocks);
    let mut products = Products::none();
    let mut tag_mask = _mm512_setzero_si512();
    let mut vectors = rest.chunks_mut(VECTOR);
    for powers in keys.powers(blocks + 1) {
        let vector = vectors.next().unwrap_or_default();
        let lengths = lengths_at as __mmask8;
        let key_stream = stream.vector(lengths);
        tag_mask = _mm512_xor_si512(tag_mask, _mm512_maskz_compress_epi64(lengths, key_stream));
        let data = load_part(vector);
        let made = _mm512_xor_si512(data, key_stream);
        store_part(vector, made);
        let made = _mm512_maskz_mov_epi8(first_bytes(vector.len()), made);
        let hashed = reverse_each(if SEALS { made } else { data });
        // The first half, the high one, is the length of the additional data: none.
        let hashed = _mm512_mask_set1_epi64(hashed, lengths & 0b0101_0101, bits);
        products.add(hashed, load_powers(powers));
        lengths_at >>= 8;
    }
    (products, _mm512_castsi512_si128(tag_mask))
}

/// The key stream of a packet. `SEALS` makes each of its functions one that is called from a single place: else the
/// compiler does not inline them, and passes vectors and round keys through memory.
struct KeyStream<const N: usize, const SEALS: bool> {
    rounds: [__m512i; N],
    /// The first counter block, its bytes reversed, in each lane.
    first: __m512i,
    /// The next four counter blocks, their bytes reversed.
    counters: __m512i,
}

impl<const N: usize, const SEALS: bool> KeyStream<N, SEALS> {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(keys: &Keys<N>, nonce: &[u8; NONCE_LEN]) -> Self {
        let mut rounds = [_mm512_setzero_si512(); N];
        for (vector, key) in rounds.iter_mut().zip(keys.rounds()) {
            *vector = _mm512_broadcast_i32x4(*key);
        }
        let first = _mm512_broadcast_i32x4(first_block(nonce));
        let ahead = _mm512_set_epi32(0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 1);
        Self { rounds, first, counters: _mm512_add_epi32(first, ahead) }
    }

    /// The key stream `blocks` further on.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn ahead(&self, blocks: usize) -> Self {
        let blocks = _mm512_maskz_set1_epi32(0b0001_0001_0001_0001, blocks as i32);
        Self { counters: _mm512_add_epi32(self.counters, blocks), ..*self }
    }

    /// Four counter blocks with the first round key.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn next(&mut self) -> __m512i {
        let blocks = reverse_each(self.counters);
        let step = _mm512_set_epi32(0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 4);
        self.counters = _mm512_add_epi32(self.counters, step);
        _mm512_xor_si512(blocks, self.rounds[0])
    }

    /// The key stream of a vector; at `first`, two bits a block, that of the first block.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,vaes")]
    fn vector(&mut self, first: __mmask8) -> __m512i {
        self.counters = _mm512_mask_mov_epi64(self.counters, first, self.first);
        let mut state = self.next();
        for round in 1..N - 1 {
            state = _mm512_aesenc_epi128(state, self.rounds[round]);
        }
        _mm512_aesenclast_epi128(state, self.rounds[N - 1])
    }

    /// The key stream of a group.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,vaes")]
    fn group(&mut self) -> Vectors {
        let mut states = [self.next(), self.next(), self.next(), self.next()];
        self.encrypt::<1>(&mut states);
        self.encrypt::<3>(&mut states);
        self.encrypt::<5>(&mut states);
        self.encrypt::<7>(&mut states);
        self.encrypt_last(states)
    }

    /// The key stream of a group, and the hash of `blocks` behind what has the hash `before`, in alternation.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,vaes,vpclmulqdq")]
    fn group_and_hash(&mut self, before: Products, blocks: Vectors, powers: &Powers) -> (Vectors, Products) {
        let mut states = [self.next(), self.next(), self.next(), self.next()];
        let mut hash = GroupHash::new(before, blocks, powers);
        self.encrypt::<1>(&mut states);
        hash.add::<3>();
        self.encrypt::<3>(&mut states);
        hash.add::<2>();
        self.encrypt::<5>(&mut states);
        hash.add::<1>();
        self.encrypt::<7>(&mut states);
        hash.add::<0>();
        (self.encrypt_last(states), hash.products)
    }

    /// The round `ROUND` and the next.
    #[inline]
    #[target_feature(enable = "avx512f,vaes")]
    fn encrypt<const ROUND: usize>(&self, states: &mut Vectors) {
        for state in &mut *states {
            *state = _mm512_aesenc_epi128(*state, self.rounds[ROUND]);
        }
        pin(states);
        for state in &mut *states {
            *state = _mm512_aesenc_epi128(*state, self.rounds[ROUND + 1]);
        }
        pin(states);
    }

    /// The rounds from the ninth on.
    #[inline]
    #[target_feature(enable = "avx512f,vaes")]
    fn encrypt_last(&self, mut states: Vectors) -> Vectors {
        for round in 9..N - 1 {
            for state in &mut states {
                *state = _mm512_aesenc_epi128(*state, self.rounds[round]);
            }
        }
        for state in &mut states {
            *state = _mm512_aesenclast_epi128(*state, self.rounds[N - 1]);
        }
        states
    }
}

/// A group's hash in the making.
struct GroupHash<'a> {
    before: __m512i,
    blocks: Vectors,
    powers: &'a Powers,
    products: Products,
}

impl<'a> GroupHash<'a> {
    #[inline]
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    fn new(before: Products, blocks: Vectors, powers: &'a Powers) -> Self {
        let before = _mm512_zextsi128_si512(before.sum());
        Self { before, blocks, powers, products: Products::none() }
    }

    /// Adds a vector of the group; what was before goes with the first.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,vpclmulqdq")]
    fn add<const AT: usize>(&mut self) {
        let mut blocks = reverse_each(self.blocks[AT]);
        if AT == 0 {
            blocks = _mm512_xor_si512(blocks, self.before);
        }
        self.products.add(blocks, load_powers(&self.powers[AT]));
    }
}

/// No instruction, but an order of them: the compiler would rather encrypt one state after the other, which needs fewer
/// registers and takes a tenth longer.
#[inline]
#[target_feature(enable = "avx512f")]
fn pin(states: &mut Vectors) {
    let [a, b, c, d] = states;
    // SAFETY: there is no instruction: neither memory nor stack nor flags are touched.
    unsafe {
        asm!(
            "/* {} {} {} {} */",
            inout(zmm_reg) * a,
            inout(zmm_reg) * b,
            inout(zmm_reg) * c,
            inout(zmm_reg) * d,
            options(nomem, nostack, preserves_flags),
        );
    }
}

/// The counter block of the tag, its bytes reversed: the nonce and the number 1.
#[inline]
#[target_feature(enable = "sse2")]
fn first_block(nonce: &[u8; NONCE_LEN]) -> __m128i {
    let [a, b, c, d, e, f, g, h, rest @ ..] = *nonce;
    let low = i64::from(u32::from_be_bytes(rest)) << 32 | 1;
    _mm_set_epi64x(i64::from_be_bytes([a, b, c, d, e, f, g, h]), low)
}

/// Each block with its bytes reversed.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn reverse_each(blocks: __m512i) -> __m512i {
    let (low, high) = (0x0001_0203_0405_0607, 0x0809_0A0B_0C0D_0E0F);
    _mm512_shuffle_epi8(blocks, _mm512_set_epi64(low, high, low, high, low, high, low, high))
}

/// A bit for each of the first `len` bytes of a vector.
#[inline]
fn first_bytes(len: usize) -> __mmask64 {
    1_u64.checked_shl(len as u32).unwrap_or(0).wrapping_sub(1)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_powers(powers: &[__m128i; 4]) -> __m512i {
    // SAFETY: 64 bytes are readable; the instruction asks for no alignment.
    unsafe { _mm512_loadu_si512(powers.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; VECTOR]) -> __m512i {
    // SAFETY: 64 bytes are readable; the instruction asks for no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(bytes: &mut [u8; VECTOR], vector: __m512i) {
    // SAFETY: 64 bytes are writable; the instruction asks for no alignment.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_group(group: &Group) -> Vectors {
    let vectors = group.as_chunks().0;
    [load(&vectors[0]), load(&vectors[1]), load(&vectors[2]), load(&vectors[3])]
}

/// Xors the key stream into `group` and returns what it is then.
#[inline]
#[target_feature(enable = "avx512f")]
fn xor_group(group: &mut Group, key_stream: Vectors) -> Vectors {
    let mut made = key_stream;
    for (bytes, made) in group.as_chunks_mut().0.iter_mut().zip(&mut made) {
        *made = _mm512_xor_si512(load(bytes), *made);
        store(bytes, *made);
    }
    made
}

/// Zeros behind `bytes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_part(bytes: &[u8]) -> __m512i {
    // SAFETY: none but the bytes of the mask are read, as many as there are at most.
    unsafe { _mm512_maskz_loadu_epi8(first_bytes(bytes.len()), bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store_part(bytes: &mut [u8], vector: __m512i) {
    // SAFETY: none but the bytes of the mask are written, as many as there are at most.
    unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), first_bytes(bytes.len()), vector) }
}
