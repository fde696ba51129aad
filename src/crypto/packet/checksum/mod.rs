//! What stands between nonce and payload and vouches for the payload.

mod crc32;
#[cfg(feature = "highway")]
mod highway;

pub(super) use self::crc32::Crc32;
#[cfg(feature = "highway")]
pub(super) use self::highway::HighwayTag;
use crate::crypto::error::OpenError;

/// A checksum or tag of a payload.
pub(super) trait Checksum: Send + Sync + 'static {
    /// Its bytes in a packet.
    const LEN: usize;

    /// What it is called in debug output.
    const NAME: &'static str;

    /// Whether it takes a secret to make.
    fn is_keyed(&self) -> bool;

    /// Writes that of `payload` into `field`, [`LEN`](Self::LEN) bytes.
    fn write(&self, payload: &[u8], field: &mut [u8]);

    /// Checks that `field`, [`LEN`](Self::LEN) bytes, is that of `payload`.
    fn check(&self, payload: &[u8], field: &[u8]) -> Result<(), OpenError>;

    /// What tells a packet from others: the front of its nonce, or zeros where that could be changed to pass a replay for
    /// another packet, and its checksum field.
    fn identity(nonce: &[u8; 8], field: &[u8]) -> u64;
}
