//! From datagrams to segments and back: what stands around the segments of a datagram.
//!
//! ```text
//! datagram = [ crypto header | FEC header | segments | tag ]
//!              <-------- head -------->              <-tail->
//! ```
//!
//! A datagram is built once, in the buffer that is sent: segments are written behind `head` free bytes, then the layers
//! fill those in and work in place ([`Pipeline::seal`], over a whole batch). Received ones are opened in place the same
//! way. Without FEC and cipher, which is all there is yet, both are empty.

use super::error::DatagramError;

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

    /// Completes a batch of datagrams of `size` bytes each, the last perhaps shorter.
    pub(super) fn seal(&self, batch: &mut [u8], size: usize) {
        debug_assert!(size > 0 && !batch.is_empty());
    }

    /// Checks and decodes a datagram in place and returns its segments.
    pub(super) fn open<'a>(&self, datagram: &'a mut [u8]) -> Result<&'a [u8], DatagramError> {
        Ok(datagram)
    }
}
