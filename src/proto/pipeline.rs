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
//! and those that it lets FEC recover ([`Pipeline::open`]). A cipher comes with its own source of nonces.
//!
//! Without FEC and cipher, which is all there is yet, every datagram is its segments.

use super::{arq::Origin, error::DatagramError};

/// The layers around the segments of one session.
#[derive(Debug, Default)]
pub(super) struct Pipeline {}

impl Pipeline {
    /// Bytes in front of the segments.
    pub(super) const fn head(&self) -> usize {
        0
    }

    /// Bytes behind the segments.
    pub(super) const fn tail(&self) -> usize {
        0
    }

    /// Bytes of a datagram that are not segments.
    pub(super) const fn overhead(&self) -> usize {
        self.head() + self.tail()
    }

    /// Completes the batch of datagrams in the first `len` bytes of `buf`, `size` bytes each, the last perhaps shorter.
    /// Returns the bytes of the batch with what was appended.
    pub(super) fn seal(&mut self, buf: &mut [u8], len: usize, size: usize) -> usize {
        debug_assert!(size > 0 && len > 0 && len <= buf.len());
        len
    }

    /// Checks and decodes a datagram in place and hands over the segments of each packet that it yields.
    pub(super) fn open(
        &mut self,
        datagram: &mut [u8],
        mut deliver: impl FnMut(&[u8], Origin) -> Result<(), DatagramError>,
    ) -> Result<(), DatagramError> {
        deliver(datagram, Origin::Received)
    }
}
