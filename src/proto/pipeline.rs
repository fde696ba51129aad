//! From datagrams to segments and back: what stands around the segments of a datagram.
//!
//! ```text
//! datagram = [ crypto header | FEC header | segments | tag ]
//!              <-------- head -------->              <-tail->
//! ```
//!
//! A datagram is built once, in the buffer that is sent: segments are written behind `head` free bytes, then the layers
//! fill those in and work in place, over a whole batch ([`Pipeline::seal`]), which may append datagrams of its own: the
//! parity of a group. Received ones are opened in place the same way; one datagram may yield several packets, its own
//! and those that it lets FEC recover.
//!
//! Opening is two steps, since who serves many sessions over one socket finds the conv of a datagram only behind its
//! encryption: the cipher opens it ([`PacketCipher::open`]), by whoever received it, and the session it belongs to
//! takes it in ([`Pipeline::open`]), unless its replay window has seen it. Without a cipher a datagram is its segments.
//!
//! [`PacketCipher::open`]: crate::crypto::PacketCipher::open

use alloc::boxed::Box;

use super::{
    arq::Origin,
    config::KcpConfig,
    error::{CloseReason, DatagramError},
    replay::ReplayWindow,
};
use crate::crypto::PacketCrypto;

/// The layers around the segments of one session.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    encryption: Option<Box<Encryption>>,
}

#[derive(Debug)]
struct Encryption {
    crypto: PacketCrypto,
    head: usize,
    tail: usize,
    nonce_len: usize,
    replays: ReplayWindow,
}

impl Pipeline {
    pub(super) fn new(config: &KcpConfig) -> Self {
        let encryption = config.crypto.as_ref().map(|crypto| {
            let cipher = crypto.cipher();
            Box::new(Encryption {
                head: cipher.header_len(),
                tail: cipher.trailer_len(),
                nonce_len: cipher.nonce_len(),
                replays: ReplayWindow::new(config.replay_window),
                crypto: crypto.clone(),
            })
        });
        Self { encryption }
    }

    pub(super) fn crypto(&self) -> Option<&PacketCrypto> {
        self.encryption.as_ref().map(|layer| &layer.crypto)
    }

    /// Bytes in front of the segments.
    pub(super) fn head(&self) -> usize {
        self.encryption.as_ref().map_or(0, |layer| layer.head)
    }

    /// Bytes behind the segments.
    pub(super) fn tail(&self) -> usize {
        self.encryption.as_ref().map_or(0, |layer| layer.tail)
    }

    /// Bytes of a datagram that are not segments.
    pub(super) fn overhead(&self) -> usize {
        self.head() + self.tail()
    }

    /// Completes the batch of datagrams in the first `len` bytes of `buf`, `size` bytes each, the last perhaps shorter.
    /// Returns the bytes of the batch with what was appended, or why the session must end.
    pub(super) fn seal(&mut self, buf: &mut [u8], len: usize, size: usize) -> Result<usize, CloseReason> {
        debug_assert!(size > 0 && len > 0 && len <= buf.len());
        if let Some(layer) = &self.encryption {
            layer.seal(&mut buf[..len], size)?;
        }
        Ok(len)
    }

    /// Takes in a datagram that [`decrypt`](Self::decrypt) has opened and hands over the segments of each packet that
    /// it yields.
    pub(super) fn open(
        &mut self,
        datagram: &[u8],
        mut deliver: impl FnMut(&[u8], Origin) -> Result<(), DatagramError>,
    ) -> Result<(), DatagramError> {
        let payload = match &mut self.encryption {
            Some(layer) => layer.admit(datagram)?,
            None => datagram,
        };
        deliver(payload, Origin::Received)
    }

    /// Checks and decrypts a datagram in place.
    pub(super) fn decrypt(&self, datagram: &mut [u8]) -> Result<(), DatagramError> {
        match &self.encryption {
            Some(layer) => layer.crypto.cipher().open(datagram).map_err(DatagramError::Open),
            None => Ok(()),
        }
    }
}

impl Encryption {
    fn seal(&self, datagrams: &mut [u8], size: usize) -> Result<(), CloseReason> {
        if !self.crypto.reserve(datagrams.len().div_ceil(size)) {
            return Err(CloseReason::NonceLimit);
        }
        if self.nonce_len > 0 {
            for datagram in datagrams.chunks_mut(size) {
                self.crypto.fill_nonce(&mut datagram[..self.nonce_len]);
            }
        }
        self.crypto.cipher().seal_batch(datagrams, size).map_err(CloseReason::SealFailed)
    }

    /// The payload of an opened datagram, unless it was seen before.
    fn admit<'a>(&mut self, datagram: &'a [u8]) -> Result<&'a [u8], DatagramError> {
        let end = datagram.len().saturating_sub(self.tail);
        let payload = datagram.get(self.head..end).unwrap_or_default();
        let identity = self.crypto.cipher().identity(datagram);
        if identity.is_some_and(|identity| !self.replays.insert(identity)) {
            return Err(DatagramError::Replayed);
        }
        Ok(payload)
    }
}
