//! Block ciphers in kcp-go's CFB mode.
//!
//! ```text
//! key stream 0 = E(IV)      out[i] = in[i] ^ key stream i      key stream i + 1 = E(ciphertext[i])
//! ```
//!
//! The IV is the same for every packet: the random nonce is the first plaintext. A last partial block is xored with the
//! front of its key stream.
//!
//! Why this crate has code of its own for the mode: each block must be encrypted before the next one can be, so a packet by
//! itself is as slow as the cipher's latency. The crate `cfb-mode` encrypts one packet at a time, and so does kcp-go. But a
//! sender has many packets at a time, and kcptun's users run AES in this mode. So a batch is encrypted side by side here, one
//! block of each of [`LANES`] packets at a time. AES-128 on a core of an AMD EPYC (Zen 4), in MB/s: `cfb-mode` 1,190, kcp-go
//! 940, this module 1,300 for one packet and 5,280 for a batch. The block ciphers themselves are RustCrypto's.
//!
//! Decryption knows all ciphertext in advance. It decrypts as many blocks of a packet side by side as the cipher likes.

use cipher::{
    Array, Block, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, KeyInit,
    ParBlocks, array::ArraySize, typenum::Unsigned,
};

use super::{encryption::Encryption, framed::NONCE_LEN};

/// Packets of a batch that are encrypted side by side. 8 blocks fill AES units that start two instructions a cycle and take
/// four cycles for each. Ciphers without instructions of their own encrypt the blocks one after the other anyway.
const LANES: usize = 8;

/// kcp-go's IV. Ciphers with blocks of 8 bytes use its front.
const IV: [u8; 16] = [167, 115, 79, 156, 18, 172, 27, 1, 164, 21, 242, 193, 252, 120, 230, 107];

/// What [`Cfb`] asks of a block cipher.
pub(super) trait CfbCipher: BlockCipherEncrypt + KeyInit + Send + Sync + 'static {}

impl<C: BlockCipherEncrypt + KeyInit + Send + Sync + 'static> CfbCipher for C {}

/// The block cipher `C` in CFB.
pub(super) struct Cfb<C: BlockSizeUser> {
    cipher: C,
    /// The key stream of the first block, which is the same for every packet.
    first: Block<C>,
}

impl<C: CfbCipher> Cfb<C> {
    /// CFB with `cipher`, which has its key.
    pub(super) fn new(cipher: C) -> Self {
        let mut first = Array::from_fn(|at| IV[at]);
        cipher.encrypt_block(&mut first);
        Self { cipher, first }
    }
}

impl<C: CfbCipher> Encryption for Cfb<C> {
    /// A changed block garbles the next one. The checksum is in that one if a block is as long as the nonce.
    const BINDS_NONCE: bool = C::BlockSize::USIZE == NONCE_LEN;

    fn encrypt(&self, packet: &mut [u8]) {
        self.cipher.encrypt_with_backend(Encrypt { first: &self.first, packet });
    }

    fn decrypt(&self, packet: &mut [u8]) {
        self.cipher.encrypt_with_backend(Decrypt { first: &self.first, packet });
    }

    fn encrypt_batch(&self, packets: &mut [u8], stride: usize) {
        self.cipher.encrypt_with_backend(EncryptBatch { first: &self.first, packets, stride });
    }
}

struct Encrypt<'a, N: ArraySize> {
    first: &'a Array<u8, N>,
    packet: &'a mut [u8],
}

struct Decrypt<'a, N: ArraySize> {
    first: &'a Array<u8, N>,
    packet: &'a mut [u8],
}

struct EncryptBatch<'a, N: ArraySize> {
    first: &'a Array<u8, N>,
    packets: &'a mut [u8],
    stride: usize,
}

impl<N: ArraySize> BlockSizeUser for Encrypt<'_, N> {
    type BlockSize = N;
}

impl<N: ArraySize> BlockSizeUser for Decrypt<'_, N> {
    type BlockSize = N;
}

impl<N: ArraySize> BlockSizeUser for EncryptBatch<'_, N> {
    type BlockSize = N;
}

impl<N: ArraySize> BlockCipherEncClosure for Encrypt<'_, N> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = N>>(self, backend: &B) {
        encrypt_packet(backend, self.first, self.packet);
    }
}

impl<N: ArraySize> BlockCipherEncClosure for Decrypt<'_, N> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = N>>(self, backend: &B) {
        let (blocks, rest) = Array::<u8, N>::slice_as_chunks_mut(self.packet);
        let mut previous = self.first.clone();
        let (groups, blocks) = Array::<Array<u8, N>, B::ParBlocksSize>::slice_as_chunks_mut(blocks);
        for group in groups {
            // The key streams of the next blocks come from the ciphertext, which is about to be overwritten.
            let mut streams = group.clone();
            encrypt_par(backend, &mut streams);
            for (block, stream) in group.iter_mut().zip(&streams) {
                xor_block(block, &previous);
                previous.clone_from(stream);
            }
        }
        for block in blocks {
            let mut next = block.clone();
            backend.encrypt_block_inplace(&mut next);
            xor_block(block, &previous);
            previous = next;
        }
        xor_rest(rest, &previous);
    }
}

impl<N: ArraySize> BlockCipherEncClosure for EncryptBatch<'_, N> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = N>>(self, backend: &B) {
        let Self { first, packets, stride } = self;
        let mut groups = packets.chunks_exact_mut(stride.saturating_mul(LANES));
        for group in &mut groups {
            encrypt_side_by_side(backend, first, group, stride, LANES);
        }
        let rest = groups.into_remainder();
        let lanes = rest.len() / stride;
        let (group, shorter) = rest.split_at_mut(lanes * stride);
        if lanes > 1 {
            encrypt_side_by_side(backend, first, group, stride, lanes);
        } else {
            encrypt_packet(backend, first, group);
        }
        encrypt_packet(backend, first, shorter);
    }
}

/// Encrypts one packet, block after block.
#[inline(always)]
fn encrypt_packet<B: BlockCipherEncBackend>(backend: &B, first: &Block<B>, packet: &mut [u8]) {
    let (blocks, rest) = Array::<u8, B::BlockSize>::slice_as_chunks_mut(packet);
    let mut stream = first.clone();
    for block in blocks {
        xor_block(block, &stream);
        stream.clone_from(block);
        backend.encrypt_block_inplace(&mut stream);
    }
    xor_rest(rest, &stream);
}

/// Encrypts `lanes` packets of `stride` bytes, at most [`LANES`] of them, one block of each at a time.
#[inline(always)]
fn encrypt_side_by_side<B: BlockCipherEncBackend>(
    backend: &B,
    first: &Block<B>,
    packets: &mut [u8],
    stride: usize,
    lanes: usize,
) {
    let block_size = B::BlockSize::USIZE;
    let whole = stride - stride % block_size;
    let mut streams: [Block<B>; LANES] = core::array::from_fn(|_| first.clone());
    for at in (0..whole).step_by(block_size) {
        for (lane, stream) in streams[..lanes].iter_mut().enumerate() {
            let at = lane * stride + at;
            if let Some(block) = Block::<B>::slice_as_mut_array(&mut packets[at..at + block_size]) {
                xor_block(block, stream);
                stream.clone_from(block);
            }
        }
        encrypt_lanes(backend, &mut streams, lanes);
    }
    for (packet, stream) in packets.chunks_exact_mut(stride).zip(&streams) {
        xor_rest(&mut packet[whole..], stream);
    }
}

/// Encrypts the first `lanes` blocks, as many at a time as the cipher likes best. Some of the others may be encrypted as
/// well: with vectors that takes no longer.
#[inline(always)]
fn encrypt_lanes<B: BlockCipherEncBackend>(backend: &B, blocks: &mut [Block<B>; LANES], lanes: usize) {
    let par = B::ParBlocksSize::USIZE;
    let (groups, rest) = Array::<Block<B>, B::ParBlocksSize>::slice_as_chunks_mut(blocks);
    let wanted = lanes.div_ceil(par).min(groups.len());
    groups[..wanted].iter_mut().for_each(|group| backend.encrypt_par_blocks_inplace(group));
    backend.encrypt_tail_blocks_inplace(&mut rest[..lanes.saturating_sub(wanted * par)]);
}

/// Encrypts as many blocks as the cipher likes best.
///
/// Not inlined: in the caller's loop, the compiler would keep AES round keys in registers. Too few would be left for the
/// blocks, and they would run one after the other.
#[inline(never)]
fn encrypt_par<B: BlockCipherEncBackend>(backend: &B, blocks: &mut ParBlocks<B>) {
    backend.encrypt_par_blocks_inplace(blocks);
}

/// Xors `stream` into `block`.
#[inline(always)]
fn xor_block<N: ArraySize>(block: &mut Array<u8, N>, stream: &Array<u8, N>) {
    for (byte, mask) in block.0.as_mut().iter_mut().zip(stream.0.as_ref()) {
        *byte ^= mask;
    }
}

/// Xors the front of `stream` into `rest`.
///
/// It goes through a block of its own: if a variable part of `stream` were read, the compiler could not keep it in a
/// register in the loop before.
#[inline(always)]
fn xor_rest<N: ArraySize>(rest: &mut [u8], stream: &Array<u8, N>) {
    let mut block = Array::<u8, N>::default();
    block[..rest.len()].copy_from_slice(rest);
    xor_block(&mut block, stream);
    rest.copy_from_slice(&block[..rest.len()]);
}
