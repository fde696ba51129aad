//! Randomness, which the caller provides.

/// A source of unpredictable bytes. The core has none of its own.
pub trait Random {
    /// Fills `bytes` with unpredictable bytes.
    fn fill(&mut self, bytes: &mut [u8]);
}

/// A conversation number for a new session: random, but not 0, which some peers take for no number.
///
/// ```
/// use kcp9::proto::{Random, random_conv};
///
/// struct Zeros;
/// impl Random for Zeros {
///     fn fill(&mut self, bytes: &mut [u8]) {
///         bytes.fill(0);
///     }
/// }
/// assert_eq!(random_conv(&mut Zeros), 1);
/// ```
pub fn random_conv(random: &mut dyn Random) -> u32 {
    let mut bytes = [0; 4];
    random.fill(&mut bytes);
    u32::from_le_bytes(bytes).max(1)
}
