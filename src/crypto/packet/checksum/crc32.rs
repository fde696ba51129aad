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

    /// Equal payloads are not rare and a CRC-32 is short: half a nonce tells packets apart, and the CRC-32 in it keeps
    /// those of another payload from passing as the same.
    fn identity(nonce: &[u8; 8], field: &[u8]) -> u64 {
        let crc = field.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        u64::from_le_bytes(*nonce) ^ u64::from(crc).wrapping_mul(GOLDEN)
    }
}

/// 2^64 over the golden ratio: spreads 32 bits over 64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
