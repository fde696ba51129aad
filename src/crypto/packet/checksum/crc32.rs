//! kcp-go's checksum.

use super::Checksum;
use crate::crypto::error::OpenError;

/// CRC-32 (IEEE), little-endian.
pub(in super::super) struct Crc32;

impl Checksum for Crc32 {
    const LEN: usize = 4;
    const NAME: &'static str = "CRC-32";

    fn is_keyed(&self) -> bool {
        false
    }

    #[inline]
    fn write(&self, payload: &[u8], field: &mut [u8]) {
        field.copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    }

    #[inline]
    fn check(&self, payload: &[u8], field: &[u8]) -> Result<(), OpenError> {
        if field == crc32fast::hash(payload).to_le_bytes() { Ok(()) } else { Err(OpenError::BadChecksum) }
    }

    /// Payloads are often equal and a CRC-32 is short, so the nonce tells packets apart. The CRC-32 is mixed in so that
    /// packets of different payloads differ as well.
    fn identity(nonce: &[u8; 8], field: &[u8]) -> u64 {
        let crc = field.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        u64::from_le_bytes(*nonce) ^ u64::from(crc).wrapping_mul(GOLDEN)
    }
}

/// 2^64 over the golden ratio. The product with it spreads 32 bits over 64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
