//! Random bytes of the operating system, for the core.

use std::{fmt, io};

use zeroize::Zeroizing;

use crate::{
    crypto::{NonceSource, OsNonces},
    proto::{Random, random_conv},
};

/// Bytes that were drawn from the operating system before the core asks for them, since [`Random`] cannot fail. Each is given
/// out once, but by a clone, which gives them out again. They are zeroed when they are dropped.
#[derive(Clone)]
pub(super) struct Drawn<const N: usize> {
    bytes: Zeroizing<[u8; N]>,
    given: usize,
}

impl<const N: usize> fmt::Debug for Drawn<N> {
    /// They become keys: they are not printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Drawn(..)")
    }
}

impl<const N: usize> Random for Drawn<N> {
    fn fill(&mut self, bytes: &mut [u8]) {
        let drawn = &self.bytes[self.given..];
        assert!(bytes.len() <= drawn.len(), "more randomness is asked for than was drawn");
        bytes.copy_from_slice(&drawn[..bytes.len()]);
        self.given += bytes.len();
    }
}

/// The randomness of sessions: each thread's generator of nonces, which the operating system seeds now and then. So a session
/// takes no system call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seeds(OsNonces);

impl Seeds {
    /// # Errors
    /// The operating system has no randomness to give.
    pub(super) fn new() -> io::Result<Self> {
        OsNonces::new().map(Self).map_err(io::Error::other)
    }
}

impl Random for Seeds {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}

/// A random conversation number.
pub(super) fn conv() -> io::Result<u32> {
    Ok(random_conv(&mut draw::<4>()?))
}

/// Draws `N` random bytes.
pub(super) fn draw<const N: usize>() -> io::Result<Drawn<N>> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(&mut *bytes).map_err(io::Error::other)?;
    Ok(Drawn { bytes, given: 0 })
}
