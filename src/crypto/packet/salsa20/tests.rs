use alloc::vec::Vec;

use super::*;

/// The key stream through the crate alone.
fn reference(key: &[u8; 32], nonce: &[u8; 8], data: &mut [u8]) {
    apply_from(key, nonce, data, 0);
}

#[test]
fn eight_blocks_at_a_time_are_the_same_key_stream() {
    let key = core::array::from_fn(|at| at as u8 ^ 0xa5);
    let nonce = *b"8 bytes.";
    let data: Vec<u8> = (0..2_003).map(|at| (at % 251) as u8).collect();
    for offset in 0..3 {
        for len in 0..=2_000 {
            let (mut ours, mut theirs) = (data.clone(), data.clone());
            apply(&key, &nonce, &mut ours[offset..offset + len]);
            reference(&key, &nonce, &mut theirs[offset..offset + len]);
            assert!(ours == theirs, "{len} bytes at {offset}");
        }
    }
}

#[test]
fn a_datagram_of_any_size_is_taken() {
    let (key, nonce) = ([7; 32], [9; 8]);
    for len in [4_096, 65_507, 65_535] {
        let (mut ours, mut theirs) = (alloc::vec![3; len], alloc::vec![3; len]);
        apply(&key, &nonce, &mut ours);
        reference(&key, &nonce, &mut theirs);
        assert!(ours == theirs, "{len} bytes");
    }
}
