//! The operating system's randomness, as the core wants it.

use std::io;

use crate::proto::{Random, random_conv};

/// Bytes drawn from the operating system beforehand, so that the core's draw cannot fail.
struct Drawn([u8; 4]);

impl Random for Drawn {
    fn fill(&mut self, bytes: &mut [u8]) {
        for (byte, drawn) in bytes.iter_mut().zip(self.0) {
            *byte = drawn;
        }
    }
}

/// A random conversation number.
pub(super) fn conv() -> io::Result<u32> {
    let mut drawn = Drawn([0; 4]);
    getrandom::fill(&mut drawn.0).map_err(io::Error::other)?;
    Ok(random_conv(&mut drawn))
}
