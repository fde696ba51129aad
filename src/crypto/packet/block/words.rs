//! Blocks as words, several blocks side by side.

/// The words of `bytes`, which is as long as they are.
#[inline(always)]
pub(super) fn split<const W: usize>(read: fn([u8; 4]) -> u32, bytes: &[u8]) -> [u32; W] {
    let (words, _) = bytes.as_chunks::<4>();
    core::array::from_fn(|at| read(words[at]))
}

/// Writes `words` into `bytes`.
#[inline(always)]
pub(super) fn join(write: fn(u32) -> [u8; 4], words: impl Iterator<Item = u32>, bytes: &mut [u8]) {
    bytes.as_chunks_mut::<4>().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = write(word));
}

/// The traits of a block cipher with a method `encrypt_words<const N: usize>(&self, words: &mut [[u32; N]; WORDS])`,
/// which encrypts `N` blocks: the first word of each, the second of each, and so on. Blocks are read with
/// `u32::$read`, written with `u32::$write`, and encrypted `$lanes` at a time where there are as many.
macro_rules! impl_block_cipher {
    ($cipher:ty: $words:literal words, $read:ident, $write:ident, $block:ty, key $key:ty, $lanes:literal lanes $par:ty) => {
        impl cipher::KeySizeUser for $cipher {
            type KeySize = $key;
        }

        impl cipher::BlockSizeUser for $cipher {
            type BlockSize = $block;
        }

        impl cipher::ParBlocksSizeUser for $cipher {
            type ParBlocksSize = $par;
        }

        impl cipher::BlockCipherEncrypt for $cipher {
            #[inline]
            fn encrypt_with_backend(&self, f: impl cipher::BlockCipherEncClosure<BlockSize = $block>) {
                f.call(self);
            }
        }

        impl cipher::BlockCipherEncBackend for $cipher {
            #[inline(always)]
            fn encrypt_block(&self, mut block: cipher::InOut<'_, '_, cipher::Block<Self>>) {
                let words: [u32; $words] =
                    $crate::crypto::packet::block::words::split(u32::$read, block.get_in());
                let mut words = words.map(|word| [word]);
                self.encrypt_words(&mut words);
                let words = words.iter().map(|[word]| *word);
                $crate::crypto::packet::block::words::join(u32::$write, words, block.get_out());
            }

            #[inline(always)]
            fn encrypt_par_blocks(&self, mut blocks: cipher::InOut<'_, '_, cipher::ParBlocks<Self>>) {
                let mut words = [[0; $lanes]; $words];
                for (lane, block) in blocks.get_in().iter().enumerate() {
                    let block: [u32; $words] = $crate::crypto::packet::block::words::split(u32::$read, block);
                    for (words, word) in words.iter_mut().zip(block) {
                        words[lane] = word;
                    }
                }
                self.encrypt_words(&mut words);
                for (lane, block) in blocks.get_out().iter_mut().enumerate() {
                    let words = words.iter().map(|words| words[lane]);
                    $crate::crypto::packet::block::words::join(u32::$write, words, block);
                }
            }
        }
    };
}
pub(super) use impl_block_cipher;
