//! What is done to a whole packet, nonce and checksum included.

/// Encrypts whole packets in place. Packets are at least as long as a nonce and a checksum, at most
/// [`MAX_LEN`](Self::MAX_LEN).
pub(super) trait Encryption: Send + Sync + 'static {
    /// Bytes of the longest packet.
    const MAX_LEN: usize = usize::MAX;

    /// Whether a change to the front of a sealed nonce, 8 bytes, garbles what the checksum field opens as.
    const BINDS_NONCE: bool;

    /// Encrypts one packet.
    fn encrypt(&self, packet: &mut [u8]);

    /// Decrypts one packet.
    fn decrypt(&self, packet: &mut [u8]);

    /// Encrypts packets that lie back to back, `size` bytes each, the last perhaps shorter. `size` is not 0.
    fn encrypt_batch(&self, packets: &mut [u8], size: usize) {
        packets.chunks_mut(size).for_each(|packet| self.encrypt(packet));
    }
}
