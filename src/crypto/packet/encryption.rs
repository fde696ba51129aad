//! The encryption of a whole packet, nonce and checksum included.

/// Encrypts whole packets in place. The caller passes packets that hold at least a nonce and a checksum, and have at most
/// [`MAX_LEN`](Self::MAX_LEN) bytes.
pub(super) trait Encryption: Send + Sync + 'static {
    /// Bytes of the longest packet. Default: no limit.
    const MAX_LEN: usize = usize::MAX;

    /// Whether a change to the first 8 bytes of an encrypted packet garbles the checksum when the packet is decrypted.
    const BINDS_NONCE: bool;

    /// Encrypts one packet.
    fn encrypt(&self, packet: &mut [u8]);

    /// Decrypts one packet.
    fn decrypt(&self, packet: &mut [u8]);

    /// Encrypts packets that lie back to back. Each has `stride` bytes, the last may have fewer. `stride` is not 0.
    fn encrypt_batch(&self, packets: &mut [u8], stride: usize) {
        packets.chunks_mut(stride).for_each(|packet| self.encrypt(packet));
    }
}
