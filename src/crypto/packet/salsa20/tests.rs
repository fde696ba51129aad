extern crate std;

use alloc::{vec, vec::Vec};

use super::*;

type Apply = fn(&[u8; 32], &[u8; NONCE_LEN], &mut [u8]);

/// Each way that the processor has, by its name.
fn ways() -> Vec<(&'static str, Apply)> {
    let avx2: Apply = |key, nonce, data| avx2::Avx2::detect().unwrap().apply(key, nonce, data);
    let avx512: Apply = |key, nonce, data| avx512::Avx512::detect().unwrap().apply(key, nonce, data);
    let mut ways: Vec<(_, Apply)> = vec![("chosen", apply)];
    let vectors =
        [("avx2", avx2::Avx2::detect().map(|_| avx2)), ("avx512", avx512::Avx512::detect().map(|_| avx512))];
    for (name, way) in vectors {
        match way {
            Some(way) => ways.push((name, way)),
            None => std::eprintln!("not tested: the processor lacks {name}"),
        }
    }
    ways
}

#[test]
fn several_blocks_at_a_time_are_the_same_key_stream() {
    let key = core::array::from_fn(|at| at as u8 ^ 0xa5);
    let nonce = *b"8 bytes.";
    let data: Vec<u8> = (0..2_003).map(|at| (at % 251) as u8).collect();
    let ways = ways();
    for offset in 0..3 {
        for len in 0..=2_000 {
            let mut theirs = data.clone();
            portable(&key, &nonce, &mut theirs[offset..offset + len]);
            for (name, apply) in &ways {
                let mut ours = data.clone();
                apply(&key, &nonce, &mut ours[offset..offset + len]);
                assert!(ours == theirs, "{name}: {len} bytes at {offset}");
            }
        }
    }
}

#[test]
fn a_datagram_of_any_size_is_taken() {
    let (key, nonce) = ([7; 32], [9; 8]);
    for len in [4_096, 65_507, 65_535] {
        let mut theirs = vec![3; len];
        portable(&key, &nonce, &mut theirs);
        for (name, apply) in ways() {
            let mut ours = vec![3; len];
            apply(&key, &nonce, &mut ours);
            assert!(ours == theirs, "{name}: {len} bytes");
        }
    }
}
