//! No encryption, as kcptun offers it: a nonce and a checksum, and all of the packet readable.

use super::encryption::Encryption;

/// Leaves packets as they are.
pub(super) struct None;

impl Encryption for None {
    const BINDS_NONCE: bool = false;

    fn encrypt(&self, _packet: &mut [u8]) {}

    fn decrypt(&self, _packet: &mut [u8]) {}
}
