use alloc::vec::Vec;

use cipher::{Block, BlockCipherEncrypt, Key, KeyInit};

use super::*;

/// A sequence without structure.
fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

/// `Ours` encrypts as `Theirs`, one block and many.
fn agree<Ours, Theirs>()
where
    Ours: KeyInit + BlockCipherEncrypt,
    Theirs: KeyInit + BlockCipherEncrypt<BlockSize = Ours::BlockSize>,
{
    for seed in 0..200 {
        let key = bytes(Key::<Ours>::default().len(), seed);
        let (ours, theirs) = (Ours::new_from_slice(&key).unwrap(), Theirs::new_from_slice(&key).unwrap());
        let mut blocks: [Block<Ours>; 9] = core::array::from_fn(|_| Block::<Ours>::default());
        for (at, block) in blocks.iter_mut().enumerate() {
            let len = block.len();
            block.copy_from_slice(&bytes(len, seed << 8 | at as u64));
        }
        let mut expected = blocks.clone();
        ours.encrypt_blocks(&mut blocks);
        expected.iter_mut().for_each(|block| theirs.encrypt_block(block));
        assert!(blocks == expected, "key {seed}");
        ours.encrypt_block(&mut blocks[0]);
        theirs.encrypt_block(&mut expected[0]);
        assert!(blocks == expected, "key {seed}");
    }
}

#[test]
fn twofish_is_that_of_its_crate() {
    agree::<Twofish, ::twofish::Twofish>();
}

#[test]
fn triple_des_is_that_of_its_crate() {
    agree::<TripleDes, des::TdesEde3>();
}

#[test]
fn sm4_is_that_of_its_crate() {
    agree::<Sm4, ::sm4::Sm4>();
}
