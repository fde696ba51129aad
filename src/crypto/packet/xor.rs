//! XOR with a table that is derived from the key. It is the same for every packet, so two packets xored with each other
//! reveal their contents. It is here because kcptun offers it.

use alloc::boxed::Box;

use sha1::Sha1;
use zeroize::Zeroizing;

use super::encryption::Encryption;

/// Bytes of kcp-go's table, its longest packet.
const TABLE_LEN: usize = 1500;

/// The table that is derived from a key.
pub(super) struct Xor {
    table: Box<Zeroizing<[u8; TABLE_LEN]>>,
}

impl Xor {
    /// Derives the table by PBKDF2-HMAC-SHA1 from a key of any length.
    pub(super) fn new(key: &[u8]) -> Self {
        let mut table = Box::new(Zeroizing::new([0; TABLE_LEN]));
        pbkdf2::pbkdf2_hmac::<Sha1>(key, b"sH3CIVoF#rWLtJo6", 32, table.as_mut_slice());
        Self { table }
    }
}

impl Encryption for Xor {
    const BINDS_NONCE: bool = false;

    /// kcp-go sends no longer packets. It would not encrypt the bytes beyond the table; here such packets are refused.
    const MAX_LEN: usize = TABLE_LEN;

    fn encrypt(&self, packet: &mut [u8]) {
        packet.iter_mut().zip(self.table.iter()).for_each(|(byte, mask)| *byte ^= mask);
    }

    fn decrypt(&self, packet: &mut [u8]) {
        self.encrypt(packet);
    }
}
