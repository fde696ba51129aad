extern crate std;

use alloc::{vec, vec::Vec};

use super::*;
use crate::crypto::aead::rust_crypto;

const KINDS: [CipherKind; 2] = [CipherKind::ChaCha20Poly1305, CipherKind::XChaCha20Poly1305];
/// Bytes around a packet that have to stay.
const GUARD: usize = 67;

/// The processor, if it has the instruction sets.
fn cpu() -> Option<Avx512> {
    let cpu = Avx512::detect();
    if cpu.is_none() {
        std::eprintln!("not tested: the processor lacks AVX-512, its IFMA or BMI2");
    }
    cpu
}

/// Bytes that look random, by xorshift64.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    };
    core::iter::repeat_with(next).take(len).collect()
}

/// Seals and opens by both libraries; the packet lies `offset` bytes into what it is sealed in.
fn check(kind: CipherKind, payload_len: usize, offset: usize) {
    let key = noise(32, payload_len as u64 ^ 0xA5);
    let Some(ours) = cpu().and_then(|_| build(kind, &key)) else { return };
    let theirs = rust_crypto::build(kind, &key).unwrap();
    let len = ours.header_len() + payload_len + TAG_LEN;
    let plain = noise(GUARD + offset + len + GUARD, payload_len as u64);
    let inside = GUARD + offset..GUARD + offset + len;

    let (mut sealed, mut expected) = (plain.clone(), plain.clone());
    ours.seal(&mut sealed[inside.clone()]).unwrap();
    theirs.seal(&mut expected[inside.clone()]).unwrap();
    assert!(sealed == expected, "{kind}: {payload_len} bytes at {offset}");

    let mut opened = sealed.clone();
    ours.open(&mut opened[inside.clone()]).unwrap();
    theirs.open(&mut expected[inside.clone()]).unwrap();
    assert!(opened == expected, "{kind}: {payload_len} bytes at {offset}");

    for at in [inside.start + ours.header_len() + payload_len * 2 / 3, inside.end - 1] {
        let mut forged = sealed.clone();
        forged[at] ^= 1 << (payload_len % 8);
        let before = forged.clone();
        assert_eq!(ours.open(&mut forged[inside.clone()]), Err(OpenError::BadTag));
        assert!(forged == before, "nothing unauthenticated is decrypted");
    }
}

#[test]
fn packets_are_those_of_rust_crypto() {
    for kind in KINDS {
        for payload_len in 0..=1_500 {
            check(kind, payload_len, payload_len % 64);
        }
        for payload_len in [4_096, 9_000, 65_000] {
            (0..3).for_each(|offset| check(kind, payload_len, offset));
        }
    }
}

#[test]
fn hchacha20_is_that_of_the_draft() {
    let Some(cpu) = cpu() else { return };
    let key: Vec<u8> = (0..32).collect();
    let nonce = [0, 0, 0, 9, 0, 0, 0, 0x4A, 0, 0, 0, 0, 0x31, 0x41, 0x59, 0x27];
    let derived = chacha20::hchacha20(cpu, &words(&key).unwrap(), &words(&nonce).unwrap());
    let expected = [
        0x423b_4182,
        0xfe7b_b227,
        0x5042_0ed3,
        0x737d_878a,
        0xd5e4_f9a0,
        0x53a8_748a,
        0x13c4_2ec1,
        0xdcec_d326,
    ];
    assert_eq!(derived, expected);
}

/// Numbers modulo 2^130 - 5 the slow way: bit by bit, as two words of 65 bits.
mod slow {
    const HALF: u128 = (1 << 65) - 1;

    type Number = [u128; 2];

    fn reduce([mut low, mut high]: Number) -> Number {
        for _ in 0..2 {
            high += low >> 65;
            low = (low & HALF) + 5 * (high >> 65);
            high &= HALF;
        }
        if high == HALF && low >= HALF - 4 { [low - (HALF - 4), 0] } else { [low, high] }
    }

    fn add(a: Number, b: Number) -> Number {
        reduce([a[0] + b[0], a[1] + b[1]])
    }

    fn multiply(a: Number, r: u128) -> Number {
        (0..128).rev().fold([0, 0], |product, bit| {
            let doubled = add(product, product);
            if r >> bit & 1 == 1 { add(doubled, a) } else { doubled }
        })
    }

    /// The tag of `data`, padded to blocks, and the block of lengths.
    pub(super) fn tag(r: u128, s: u128, data: &[u8]) -> u128 {
        let r = r & 0x0FFF_FFFC_0FFF_FFFC_0FFF_FFFC_0FFF_FFFF;
        let lengths = u128::from(data.len() as u64) << 64;
        let blocks = data.chunks(16).map(|chunk| {
            let mut block = [0; 16];
            block[..chunk.len()].copy_from_slice(chunk);
            u128::from_le_bytes(block)
        });
        let [low, high] = blocks.chain([lengths]).fold([0, 0], |sum, block| {
            let block = [block & HALF, block >> 65 | 1 << 63];
            multiply(add(sum, block), r)
        });
        (low | high << 65).wrapping_add(s)
    }
}

/// The tag by the key stream's first block, with the powers of r computed beside or not.
fn tag(cpu: Avx512, r: u128, s: u128, data: &[u8]) -> u128 {
    let mut block = [0; 64];
    block[..16].copy_from_slice(&r.to_le_bytes());
    block[16..32].copy_from_slice(&s.to_le_bytes());
    poly1305::Key::from_block(cpu, &block, data.len()).tag(cpu, data)
}

#[test]
fn tags_of_extreme_numbers_are_right() {
    let Some(cpu) = cpu() else { return };
    let lens = (0..=272).chain([383, 384, 500, 511, 512, 513, 1_008, 1_024, 1_372]);
    for len in lens {
        let mut small = vec![0; len];
        small.iter_mut().step_by(16).for_each(|byte| *byte = 4);
        for data in [vec![0xFF; len], vec![0; len], small, noise(len, 9)] {
            for r in [u128::MAX, 0, 1, 2, 5, u128::from(u64::MAX), u128::MAX << 64, 0x1234_5678 << 90] {
                for s in [0, u128::MAX] {
                    assert_eq!(tag(cpu, r, s, &data), slow::tag(r, s, &data), "{len} bytes, r = {r:x}");
                }
            }
        }
    }
}

/// With r = 1 the tag is the sum of the blocks, chosen so that it is next to a multiple of the prime.
#[test]
fn sums_next_to_the_prime_are_reduced() {
    let Some(cpu) = cpu() else { return };
    for multiple in 1..=40_u128 {
        let blocks = 2 * multiple;
        let len = 16 * blocks as usize;
        for distance in 0..=20_u128 {
            // A block of 0, those of 2^128 - 1, the last one, the lengths and the bits at 2^128 are together
            // `multiple` * 2^130 - 10 - 5 * `multiple` + `distance`.
            let mut data = vec![0xFF; len];
            data[..16].fill(0);
            let last = (distance + blocks).wrapping_sub(12 + 5 * multiple).wrapping_sub((len as u128) << 64);
            data[len - 16..].copy_from_slice(&last.to_le_bytes());
            let expected = if distance < 10 {
                // The prime, modulo 2^128, less what is missing.
                distance.wrapping_sub(5 + 10)
            } else {
                distance - 10
            };
            assert_eq!(tag(cpu, 1, 0, &data), expected, "{multiple}, {distance}");
            assert_eq!(slow::tag(1, 0, &data), expected, "{multiple}, {distance}");
        }
    }
}
