extern crate std;

use alloc::{vec, vec::Vec};

use super::*;

type Apply = fn(&[u8; 32], &[u8; NONCE_LEN], &mut [u8]);

/// The kernels that the CPU can run, by name.
fn kernels() -> Vec<(&'static str, Apply)> {
    let avx2: Apply = |key, nonce, data| avx2::Avx2::detect().unwrap().apply(key, nonce, data);
    let avx512: Apply = |key, nonce, data| avx512::Avx512::detect().unwrap().apply(key, nonce, data);
    let mut kernels: Vec<(_, Apply)> = vec![("chosen", apply)];
    let vectors =
        [("avx2", avx2::Avx2::detect().map(|_| avx2)), ("avx512", avx512::Avx512::detect().map(|_| avx512))];
    for (name, kernel) in vectors {
        match kernel {
            Some(kernel) => kernels.push((name, kernel)),
            None => std::eprintln!("not tested: the CPU lacks {name}"),
        }
    }
    kernels
}

#[test]
fn every_kernel_makes_the_key_stream_of_the_salsa20_crate() {
    let key = core::array::from_fn(|at| at as u8 ^ 0xa5);
    let nonce = *b"8 bytes.";
    let data: Vec<u8> = (0..2_003).map(|at| (at % 251) as u8).collect();
    let kernels = kernels();
    // Blocks are of 64 bytes, and a kernel encrypts 8 or 16 of them at once.
    let lengths: Vec<usize> =
        if cfg!(miri) { vec![0, 63, 65, 511, 600, 1_100] } else { (0..=2_000).collect() };
    for offset in 0..if cfg!(miri) { 2 } else { 3 } {
        for &len in &lengths {
            let mut theirs = data.clone();
            portable(&key, &nonce, &mut theirs[offset..offset + len]);
            for (name, apply) in &kernels {
                let mut ours = data.clone();
                apply(&key, &nonce, &mut ours[offset..offset + len]);
                assert!(ours == theirs, "{name}: {len} bytes at {offset}");
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri takes long, and lengths are tried above")]
fn packets_of_up_to_64_kib_are_encrypted() {
    let (key, nonce) = ([7; 32], [9; 8]);
    for len in [4_096, 65_507, 65_535] {
        let mut theirs = vec![3; len];
        portable(&key, &nonce, &mut theirs);
        for (name, apply) in kernels() {
            let mut ours = vec![3; len];
            apply(&key, &nonce, &mut ours);
            assert!(ours == theirs, "{name}: {len} bytes");
        }
    }
}
