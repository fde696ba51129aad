//! The trait of packet ciphers, and what a configuration holds of one.

use alloc::sync::Arc;
use core::{fmt, sync::atomic::Ordering::Relaxed};

use super::error::{OpenError, SealError};

/// Seals and opens packets in place.
///
/// A packet is laid out by its caller as `header | payload | trailer`, with the lengths that the cipher names. The
/// first [`nonce_len`](Self::nonce_len) bytes of the header are a fresh nonce before [`seal`](Self::seal) is called;
/// the cipher fills in the rest of header and trailer. One cipher serves any number of sessions at once.
///
/// A cipher of one's own:
///
/// ```
/// use kcp9::crypto::{OpenError, PacketCipher, SealError};
///
/// /// One byte of checksum, no secrecy.
/// #[derive(Debug)]
/// struct Sum;
///
/// fn sum(bytes: &[u8]) -> u8 {
///     bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
/// }
///
/// impl PacketCipher for Sum {
///     fn header_len(&self) -> usize {
///         1
///     }
///     fn nonce_len(&self) -> usize {
///         0
///     }
///     fn seal(&self, packet: &mut [u8]) -> Result<(), SealError> {
///         let (header, payload) = packet.split_first_mut().ok_or(SealError::TooShort)?;
///         *header = sum(payload);
///         Ok(())
///     }
///     fn open(&self, packet: &mut [u8]) -> Result<(), OpenError> {
///         let (header, payload) = packet.split_first_mut().ok_or(OpenError::TooShort)?;
///         if *header == sum(payload) { Ok(()) } else { Err(OpenError::BadChecksum) }
///     }
/// }
///
/// let mut packet = [0, 1, 2, 3];
/// Sum.seal(&mut packet).unwrap();
/// assert_eq!(packet, [6, 1, 2, 3]);
/// assert_eq!(Sum.open(&mut packet), Ok(()));
/// packet[2] ^= 1;
/// assert_eq!(Sum.open(&mut packet), Err(OpenError::BadChecksum));
/// ```
pub trait PacketCipher: fmt::Debug + Send + Sync {
    /// Bytes in front of the payload.
    fn header_len(&self) -> usize;

    /// Bytes behind the payload. Default: none.
    fn trailer_len(&self) -> usize {
        0
    }

    /// Longest packet that it seals, in bytes. Default: any.
    fn max_packet_len(&self) -> usize {
        usize::MAX
    }

    /// Leading bytes of the header that the caller fills with a nonce before it seals.
    fn nonce_len(&self) -> usize;

    /// Whether nobody without the key can make a packet that opens. Default: no.
    fn is_authenticated(&self) -> bool {
        false
    }

    /// How many packets may be sealed under this cipher's key with random nonces of [`nonce_len`](Self::nonce_len)
    /// before two of them might be the same with a probability that matters. All sessions of one [`PacketCrypto`] count
    /// together; the one that would pass the limit ends. What other processes seal under the same key, the peer's among
    /// them, is not counted: a key should not outlive the limit at all of its holders together. Default: no limit.
    fn nonce_limit(&self) -> Option<u64> {
        None
    }

    /// What tells an opened packet, whole as [`open`](Self::open) left it, from every other: a replay window remembers
    /// it. `None` (the default) when nothing does; then replays are not looked for.
    fn identity(&self, packet: &[u8]) -> Option<u64> {
        let _ = packet;
        None
    }

    /// The [`identity`](Self::identity) that a sealed packet will have once it is opened: by it a session knows its own
    /// packets when somebody sends them back. Default: `None`, they are not looked for.
    fn sealed_identity(&self, packet: &[u8]) -> Option<u64> {
        let _ = packet;
        None
    }

    /// Seals one packet in place.
    ///
    /// # Errors
    /// [`SealError::TooShort`] when the packet is shorter than header and trailer.
    fn seal(&self, packet: &mut [u8]) -> Result<(), SealError>;

    /// Opens one packet in place: the payload is then where it was before the packet was sealed.
    ///
    /// # Errors
    /// Why the packet is not one; its bytes are of no use then.
    fn open(&self, packet: &mut [u8]) -> Result<(), OpenError>;

    /// Seals packets that lie back to back in `packets`, `size` bytes each, the last perhaps shorter. The default seals
    /// one after the other.
    ///
    /// # Errors
    /// As [`seal`](Self::seal), for the first packet that fails.
    fn seal_batch(&self, packets: &mut [u8], size: usize) -> Result<(), SealError> {
        packets.chunks_mut(size.max(1)).try_for_each(|packet| self.seal(packet))
    }

    /// Opens packets that lie back to back in `packets`, `size` bytes each, the last perhaps shorter, and writes how it
    /// went into `outcomes`, packet by packet. The default opens one after the other.
    ///
    /// `outcomes` holds at least as many as there are packets; further packets are left alone.
    fn open_batch(&self, packets: &mut [u8], size: usize, outcomes: &mut [Result<(), OpenError>]) {
        for (packet, outcome) in packets.chunks_mut(size.max(1)).zip(outcomes) {
            *outcome = self.open(packet);
        }
    }
}

/// Where nonces come from: bytes that nobody can foretell and that never come twice.
///
/// With the feature `std`, `OsNonces` is one. An application without an operating system brings its
/// own.
pub trait NonceSource: fmt::Debug + Send + Sync {
    /// Fills `nonce`.
    fn fill(&self, nonce: &mut [u8]);
}

/// A packet cipher and the source of its nonces, as a [`KcpConfig`](crate::KcpConfig) holds them. Clones share both, and
/// count together what was sealed under the cipher's key.
///
/// Two are equal when one is a clone of the other.
#[derive(Clone)]
pub struct PacketCrypto {
    inner: Arc<Inner>,
}

struct Inner {
    cipher: Arc<dyn PacketCipher>,
    nonces: Arc<dyn NonceSource>,
    sealed: Sealed,
}

impl PacketCrypto {
    /// A cipher with a source of nonces.
    #[must_use]
    pub fn new(cipher: Arc<dyn PacketCipher>, nonces: Arc<dyn NonceSource>) -> Self {
        let sealed = Sealed::new(cipher.nonce_limit());
        Self { inner: Arc::new(Inner { cipher, nonces, sealed }) }
    }

    /// A cipher with nonces seeded by the operating system ([`OsNonces`](super::OsNonces)).
    ///
    /// # Errors
    /// The operating system has no randomness to give.
    #[cfg(feature = "std")]
    pub fn with_os_nonces(cipher: Arc<dyn PacketCipher>) -> Result<Self, super::EntropyError> {
        Ok(Self::new(cipher, Arc::new(super::OsNonces::new()?)))
    }

    /// The cipher.
    #[must_use]
    pub fn cipher(&self) -> &dyn PacketCipher {
        &*self.inner.cipher
    }

    /// Fills a nonce.
    pub(crate) fn fill_nonce(&self, nonce: &mut [u8]) {
        self.inner.nonces.fill(nonce);
    }

    /// Takes note that `packets` more are about to be sealed; returns whether the cipher's nonces allow that.
    pub(crate) fn reserve(&self, packets: usize) -> bool {
        self.inner.sealed.reserve(packets)
    }

    /// Bytes of a datagram that are not payload.
    pub(crate) fn overhead(&self) -> usize {
        self.inner.cipher.header_len() + self.inner.cipher.trailer_len()
    }
}

impl PartialEq for PacketCrypto {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for PacketCrypto {}

impl fmt::Debug for PacketCrypto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.cipher.fmt(f)
    }
}

#[cfg(target_has_atomic = "64")]
type Counter = core::sync::atomic::AtomicU64;
#[cfg(target_has_atomic = "64")]
type Count = u64;
#[cfg(not(target_has_atomic = "64"))]
type Counter = core::sync::atomic::AtomicUsize;
#[cfg(not(target_has_atomic = "64"))]
type Count = usize;

/// Packets sealed under one key.
struct Sealed {
    count: Counter,
    limit: Option<Count>,
}

impl Sealed {
    /// Where the limit does not fit the counter, the counter's range is the limit.
    fn new(limit: Option<u64>) -> Self {
        let limit = limit.map(|limit| Count::try_from(limit).unwrap_or(Count::MAX));
        Self { count: Counter::new(0), limit }
    }

    fn reserve(&self, packets: usize) -> bool {
        let Some(limit) = self.limit else { return true };
        let more = |count: Count| count.checked_add(packets as Count).filter(|count| *count <= limit);
        self.count.fetch_update(Relaxed, Relaxed, more).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_sealed_than_the_limit() {
        let sealed = Sealed::new(Some(100));
        assert!(sealed.reserve(64));
        assert!(!sealed.reserve(37));
        assert!(sealed.reserve(36));
        assert!(!sealed.reserve(1));
        assert!(Sealed::new(None).reserve(usize::MAX));
        let endless = Sealed::new(Some(u64::MAX));
        assert!(endless.reserve(usize::MAX) && !endless.reserve(usize::MAX));
    }
}
