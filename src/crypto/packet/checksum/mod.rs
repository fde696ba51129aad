//! What stands between the nonce and the payload, and checks the payload.

mod crc32;
#[cfg(feature = "highway")]
mod highway;

pub(super) use self::crc32::Crc32;
#[cfg(feature = "highway")]
pub(super) use self::highway::HighwayTag;
use crate::crypto::error::OpenError;

/// A checksum or tag of a payload.
pub(super) trait Checksum: Send + Sync + 'static {
    /// Bytes that it has in a packet.
    const LEN: usize;

    /// Its name in debug output.
    const NAME: &'static str;

    /// Whether nobody can compute it without a secret.
    fn is_keyed(&self) -> bool;

    /// Writes the checksum of `payload` into `field`, which has [`LEN`](Self::LEN) bytes.
    fn write(&self, payload: &[u8], field: &mut [u8]);

    /// Checks that `field`, which has [`LEN`](Self::LEN) bytes, holds the checksum of `payload`.
    fn check(&self, payload: &[u8], field: &[u8]) -> Result<(), OpenError>;

    /// A number that tells a packet from others, made of `nonce` and `field`. `nonce` is the front of the packet's nonce. It
    /// is zeros if an attacker could change that front to make a replay look like another packet.
    fn identity(nonce: &[u8; 8], field: &[u8]) -> u64;
}
