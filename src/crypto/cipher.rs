//! The trait of packet ciphers, and what a configuration holds: a cipher and a source of nonces.

use alloc::{boxed::Box, sync::Arc};
use core::{fmt, sync::atomic::Ordering::Relaxed};

use super::error::{OpenError, SealError};
use crate::proto::trace::tell;

/// Seals and opens packets in place.
///
/// The caller lays a packet out as `header | payload | trailer`, with the lengths that the cipher names. Before it calls
/// [`seal`](Self::seal), it fills the first [`nonce_len`](Self::nonce_len) bytes of the header with a fresh nonce. The
/// cipher writes the rest of the header and the trailer. One cipher serves any number of sessions at once.
///
/// An application's own cipher:
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

    /// Longest packet that the cipher seals, in bytes. Default: no limit.
    fn max_packet_len(&self) -> usize {
        usize::MAX
    }

    /// Bytes at the front of the header that the caller fills with a nonce before it seals the packet.
    fn nonce_len(&self) -> usize;

    /// Whether only a holder of the key can make a packet that opens. Default: no.
    fn is_authenticated(&self) -> bool {
        false
    }

    /// How many packets may be sealed under this cipher's key with random nonces of [`nonce_len`](Self::nonce_len).
    /// Beyond that, the probability that two nonces are equal matters. Default: no limit.
    ///
    /// All sessions of one [`PacketCrypto`] count together. A session that would go past the limit ends;
    /// [`with_warning`](PacketCrypto::with_warning) tells when half of it is used. Packets that other processes seal under the same
    /// key are not counted, nor are the peer's. So replace a key before all of its holders together have reached the limit.
    fn nonce_limit(&self) -> Option<u64> {
        None
    }

    /// A number that tells an opened packet from all others. `packet` is the whole packet as [`open`](Self::open) left it.
    /// A replay window remembers the number. `None` (the default) means that there is no such number, and that replays are
    /// not looked for.
    fn identity(&self, packet: &[u8]) -> Option<u64> {
        let _ = packet;
        None
    }

    /// The [`identity`](Self::identity) that a sealed packet will have once it is opened. A session recognises its own
    /// packets by it when somebody sends them back. `None` (the default) means that they are not looked for.
    fn sealed_identity(&self, packet: &[u8]) -> Option<u64> {
        let _ = packet;
        None
    }

    /// Seals one packet in place.
    ///
    /// # Errors
    /// [`SealError::TooShort`] when the packet is shorter than header and trailer.
    fn seal(&self, packet: &mut [u8]) -> Result<(), SealError>;

    /// Opens one packet in place. The payload is then where it was before the packet was sealed.
    ///
    /// # Errors
    /// Why the packet was refused. Its bytes are unspecified then.
    fn open(&self, packet: &mut [u8]) -> Result<(), OpenError>;

    /// Seals packets that lie back to back in `packets`. Each has `stride` bytes, the last may have fewer. The default seals
    /// one after the other.
    ///
    /// # Errors
    /// As [`seal`](Self::seal), for the first packet that fails.
    fn seal_batch(&self, packets: &mut [u8], stride: usize) -> Result<(), SealError> {
        packets.chunks_mut(stride.max(1)).try_for_each(|packet| self.seal(packet))
    }

    /// Opens packets that lie back to back in `packets`. Each has `stride` bytes, the last may have fewer. The result for each
    /// packet is written to `outcomes`. The default opens one after the other.
    ///
    /// `outcomes` should have room for as many results as there are packets. Packets beyond that are not opened.
    fn open_batch(&self, packets: &mut [u8], stride: usize, outcomes: &mut [Result<(), OpenError>]) {
        for (packet, outcome) in packets.chunks_mut(stride.max(1)).zip(outcomes) {
            *outcome = self.open(packet);
        }
    }
}

/// A source of nonces: bytes that nobody can predict and that never repeat.
///
/// The feature `std` brings one, `OsNonces`. An application without an operating system brings its own.
pub trait NonceSource: fmt::Debug + Send + Sync {
    /// Fills `nonce`.
    fn fill(&self, nonce: &mut [u8]);
}

/// A packet cipher and the source of its nonces, as a [`KcpConfig`](crate::KcpConfig) holds them.
///
/// Clones share both, and they share the count of packets that were sealed under the cipher's key. Two values are equal if
/// one is a clone of the other.
#[derive(Clone)]
pub struct PacketCrypto {
    inner: Arc<Inner>,
}

struct Inner {
    cipher: Arc<dyn PacketCipher>,
    nonces: Arc<dyn NonceSource>,
    sealed: Arc<SealedCount>,
    warn: Option<Box<dyn Fn(NonceBudget) + Send + Sync>>,
}

/// How many packets were sealed under a key, and how many may be: [`PacketCrypto::nonce_budget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NonceBudget {
    /// Packets that were sealed in this process.
    pub sealed: u64,
    /// The cipher's [limit](PacketCipher::nonce_limit).
    pub limit: u64,
}

impl PacketCrypto {
    /// A cipher that takes its nonces from `nonces`.
    #[must_use]
    pub fn new(cipher: Arc<dyn PacketCipher>, nonces: Arc<dyn NonceSource>) -> Self {
        let sealed = Arc::new(SealedCount::new(cipher.nonce_limit()));
        Self { inner: Arc::new(Inner { cipher, nonces, sealed, warn: None }) }
    }

    /// Has `warn` called once, when half of the cipher's [limit](PacketCipher::nonce_limit) is used: it is time for another key.
    ///
    /// It is called in the midst of sending, by whoever seals the packet that reaches the half. So it must return at once, and must
    /// not use the stream or the connection: let it set a flag, or send to a channel. Call this before the first clone is made:
    /// earlier clones count together with this one, but are not equal to it and do not call `warn`, not even if one of them
    /// reaches the half.
    ///
    /// ```
    /// use std::sync::{Arc, atomic::{AtomicBool, Ordering::Relaxed}};
    ///
    /// use kcp9::crypto::PacketCrypto;
    ///
    /// /// Has `is_due` set when it is time for another key. Whoever looks after the keys looks at it now and then.
    /// fn watched(crypto: PacketCrypto, is_due: Arc<AtomicBool>) -> PacketCrypto {
    ///     crypto.with_warning(move |budget| {
    ///         println!("{} of {} packets are sealed", budget.sealed, budget.limit);
    ///         is_due.store(true, Relaxed);
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn with_warning(self, warn: impl Fn(NonceBudget) + Send + Sync + 'static) -> Self {
        let Inner { cipher, nonces, sealed, .. } = &*self.inner;
        let (cipher, nonces, sealed) = (Arc::clone(cipher), Arc::clone(nonces), Arc::clone(sealed));
        Self { inner: Arc::new(Inner { cipher, nonces, sealed, warn: Some(Box::new(warn)) }) }
    }

    /// How much of the cipher's [limit](PacketCipher::nonce_limit) is used. `None` where there is none.
    #[must_use]
    pub fn nonce_budget(&self) -> Option<NonceBudget> {
        self.inner.sealed.budget()
    }

    /// A cipher that takes its nonces from [`OsNonces`](super::OsNonces), which the operating system seeds.
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

    /// Fills `nonce` with fresh bytes.
    pub(crate) fn fill_nonce(&self, nonce: &mut [u8]) {
        self.inner.nonces.fill(nonce);
    }

    /// Counts `packets` more that are about to be sealed. Returns `false`, and counts nothing, if that would pass the
    /// cipher's [limit](PacketCipher::nonce_limit).
    pub(crate) fn reserve(&self, packets: usize) -> bool {
        match self.inner.sealed.reserve(packets) {
            Reservation::Granted => true,
            Reservation::GrantedPastHalf => {
                if let Some(budget) = self.nonce_budget() {
                    tell!(nonces_half_used(budget.sealed, budget.limit));
                    if let Some(warn) = &self.inner.warn {
                        warn(budget);
                    }
                }
                true
            }
            Reservation::Refused => false,
        }
    }

    /// Encrypts one packet of no session, whose header and trailer are still to be written. Returns `false`, and leaves
    /// the packet as it is or useless, if that cannot be done any more.
    pub(crate) fn seal_one(&self, packet: &mut [u8]) -> bool {
        let cipher = self.cipher();
        let nonce_len = cipher.nonce_len().min(cipher.header_len());
        if !self.reserve(1) {
            return false;
        }
        if let Some(nonce) = packet.get_mut(..nonce_len).filter(|nonce| !nonce.is_empty()) {
            self.fill_nonce(nonce);
        }
        cipher.seal(packet).is_ok()
    }

    /// Bytes that the cipher adds to each packet.
    pub(crate) fn overhead(&self) -> usize {
        self.inner.cipher.header_len() + self.inner.cipher.trailer_len()
    }

    /// Whether `other` lays packets out, and authenticates them, in the same way.
    pub(crate) fn is_of_kind(&self, other: &Self) -> bool {
        let kind = |crypto: &Self| {
            let cipher = crypto.cipher();
            let lengths =
                [cipher.header_len(), cipher.trailer_len(), cipher.nonce_len(), cipher.max_packet_len()];
            (lengths, cipher.is_authenticated())
        };
        kind(self) == kind(other)
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

/// How many packets were sealed under one key.
struct SealedCount {
    count: Counter,
    limit: Option<Count>,
}

/// Whether packets may be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reservation {
    /// They may, and are counted.
    Granted,
    /// The same, and with them half of the limit is used for the first time.
    GrantedPastHalf,
    /// They would pass the limit, and are not counted.
    Refused,
}

impl SealedCount {
    /// Where the counter has too few bits for the limit, its largest value is the limit.
    fn new(limit: Option<u64>) -> Self {
        let limit = limit.map(|limit| Count::try_from(limit).unwrap_or(Count::MAX));
        Self { count: Counter::new(0), limit }
    }

    fn reserve(&self, packets: usize) -> Reservation {
        let Some(limit) = self.limit else { return Reservation::Granted };
        let packets = packets as Count;
        let more = |count: Count| count.checked_add(packets).filter(|count| *count <= limit);
        match self.count.fetch_update(Relaxed, Relaxed, more) {
            Ok(before) if before < limit / 2 && before + packets >= limit / 2 => Reservation::GrantedPastHalf,
            Ok(_) => Reservation::Granted,
            Err(_) => Reservation::Refused,
        }
    }

    #[cfg_attr(
        target_has_atomic = "64",
        expect(clippy::unnecessary_cast, reason = "a `Count` has 32 bits elsewhere")
    )]
    fn budget(&self) -> Option<NonceBudget> {
        let limit = self.limit?;
        Some(NonceBudget { sealed: self.count.load(Relaxed) as u64, limit: limit as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_sealed_than_the_limit() {
        let sealed = SealedCount::new(Some(100));
        assert_eq!(sealed.reserve(64), Reservation::GrantedPastHalf);
        assert_eq!(sealed.reserve(37), Reservation::Refused);
        assert_eq!(sealed.reserve(36), Reservation::Granted);
        assert_eq!(sealed.reserve(1), Reservation::Refused);
        assert_eq!(sealed.budget(), Some(NonceBudget { sealed: 100, limit: 100 }));
        let endless = SealedCount::new(None);
        assert_eq!((endless.reserve(usize::MAX), endless.budget()), (Reservation::Granted, None));
        let large = SealedCount::new(Some(u64::MAX));
        assert_eq!(large.reserve(usize::MAX), Reservation::GrantedPastHalf);
        assert_eq!(large.reserve(usize::MAX), Reservation::Refused);
    }

    #[derive(Debug)]
    struct Four;

    impl PacketCipher for Four {
        fn header_len(&self) -> usize {
            0
        }

        fn nonce_len(&self) -> usize {
            0
        }

        fn nonce_limit(&self) -> Option<u64> {
            Some(4)
        }

        fn trailer_len(&self) -> usize {
            0
        }

        fn seal(&self, _: &mut [u8]) -> Result<(), SealError> {
            Ok(())
        }

        fn open(&self, _: &mut [u8]) -> Result<(), OpenError> {
            Ok(())
        }
    }

    #[derive(Debug)]
    struct NoNonces;

    impl NonceSource for NoNonces {
        fn fill(&self, _: &mut [u8]) {}
    }

    #[test]
    fn the_warning_comes_once_when_half_of_the_limit_is_used() {
        use core::sync::atomic::AtomicU64;

        let warnings = Arc::new(AtomicU64::new(0));
        let first = PacketCrypto::new(Arc::new(Four), Arc::new(NoNonces));
        let warned = first.clone().with_warning({
            let warnings = Arc::clone(&warnings);
            move |budget| {
                warnings.fetch_add(10 + budget.sealed, Relaxed);
            }
        });
        assert!(first.reserve(1) && warnings.load(Relaxed) == 0);
        assert!(warned.clone().reserve(1));
        assert_eq!(warnings.load(Relaxed), 12);
        assert!(warned.reserve(2) && !warned.reserve(1) && !first.reserve(1));
        assert_eq!(warnings.load(Relaxed), 12);
    }
}
