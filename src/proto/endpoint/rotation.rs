//! Another key for accepted sessions, while the one before is accepted for a while.

use alloc::vec::Vec;
use core::{fmt, time::Duration};

use super::{
    Endpoint, Handle,
    routes::{Entry, Role},
};
use crate::{crypto::PacketCrypto, proto::Instant};

/// Why the key is not replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RotateError {
    /// The endpoint was not made to accept sessions, or accepts them without encryption.
    NoKey,
    /// The ciphers differ in more than their keys: packets are laid out, or authenticated, in another way.
    OtherKind,
}

impl fmt::Display for RotateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoKey => "no sessions are accepted under a key",
            Self::OtherKind => "the new cipher is of another kind",
        })
    }
}

impl core::error::Error for RotateError {}

impl Endpoint {
    /// Makes `crypto` the key of the sessions that are accepted. Both keys are accepted for `keep`: sessions under the key before
    /// live on, and peers that have no other yet still begin some ([`Incoming::retiring_key`](super::Incoming::retiring_key)).
    /// After that the key before opens nothing, and [`retired_sessions`](Self::retired_sessions) tells which sessions cannot go
    /// on. If a rotation is still under way, its old key is dropped at once.
    ///
    /// Each session has one key for its whole life. Peers change theirs by beginning new sessions. The keys of sessions that are
    /// begun here do not change.
    ///
    /// # Errors
    /// Nothing is changed then.
    pub fn rotate_key(
        &mut self,
        now: Instant,
        crypto: PacketCrypto,
        keep: Duration,
    ) -> Result<(), RotateError> {
        let current = self.decryptor.accepted().current().filter(|_| self.admission.is_some());
        if !current.ok_or(RotateError::NoKey)?.is_of_kind(&crypto) {
            return Err(RotateError::OtherKind);
        }
        self.drop_offered();
        self.decryptor.rotate(crypto, now + keep);
        self.set_phases_of_connected();
        Ok(())
    }

    /// Until when the key before the current one is accepted, if it is.
    #[must_use]
    pub fn key_retires_at(&self) -> Option<Instant> {
        self.decryptor.accepted().retiring_until()
    }

    /// Drops the key before the current one if its time is over, and returns the accepted sessions whose keys were dropped.
    /// What is still received for them is dropped. To be called after [`rotate_key`](Self::rotate_key), and at
    /// [`key_retires_at`](Self::key_retires_at).
    pub fn retired_sessions(&mut self, now: Instant) -> Vec<Handle> {
        if self.decryptor.expire_key(now) {
            self.set_phases_of_connected();
        }
        let keys = self.decryptor.accepted();
        let is_retired = |entry: &&mut Entry| {
            #[cfg(feature = "noise")]
            if entry.sealed {
                // It has keys of its own.
                return false;
            }
            entry.role == Role::Accepted && !keys.is_accepted(entry.phase)
        };
        let retired = self.routes.entries_mut().filter(is_retired);
        retired.map(|entry| entry.handle).collect()
    }

    /// The keys of accepted sessions have changed. Those begun here keep theirs, which may be one of them.
    fn set_phases_of_connected(&mut self) {
        for entry in self.routes.entries_mut().filter(|entry| entry.role == Role::Connected) {
            entry.phase = self.decryptor.phase_of(entry.route.0).unwrap_or_default();
        }
    }
}
