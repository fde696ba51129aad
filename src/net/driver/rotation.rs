//! Another key for accepted sessions: see [`KcpListener::rotate_key`](crate::KcpListener::rotate_key).

use std::boxed::Box;

use super::Driver;
use crate::{
    crypto::PacketCrypto,
    net::{clock, control::Rotation},
    proto::{Instant, KcpConfig},
};

/// What accepted sessions are configured with.
pub(super) struct Rotated {
    current: KcpConfig,
    /// With the key before the current one.
    retiring: KcpConfig,
}

impl Rotated {
    fn new(before: &KcpConfig, crypto: PacketCrypto) -> Self {
        let mut current = before.clone();
        current.crypto = Some(crypto);
        Self { current, retiring: before.clone() }
    }

    /// The configuration for a session under the key before the current one, or under that.
    pub(super) const fn config(&self, retiring: bool) -> &KcpConfig {
        if retiring { &self.retiring } else { &self.current }
    }
}

impl Driver {
    /// Rotates to the keys that the handles have asked for.
    #[inline]
    pub(super) fn take_keys(&mut self) {
        if self.shared.control.has_rotations() {
            self.rotate_keys();
        }
    }

    #[cold]
    fn rotate_keys(&mut self) {
        let now = clock::now();
        for Rotation { crypto, keep } in self.shared.control.take_rotations() {
            // The handles have made sure that it can be done.
            if self.endpoint.rotate_key(now, crypto.clone(), keep).is_err() {
                continue;
            }
            let before = match (&self.rotated, &self.shared.accept_queue) {
                (Some(rotated), _) => &rotated.current,
                (None, Some(queue)) => &queue.config,
                (None, None) => continue,
            };
            self.rotated = Some(Box::new(Rotated::new(before, crypto)));
            self.key_retires_at = Some(now);
            // Those of the key that was retiring until now end before the next key takes its place.
            self.retire_key(now);
        }
    }

    /// Ends the sessions whose key is accepted no longer.
    #[inline]
    pub(super) fn retire_key(&mut self, now: Instant) {
        if self.key_retires_at.is_some_and(|at| at <= now) {
            self.end_retired(now);
        }
    }

    #[cold]
    fn end_retired(&mut self, now: Instant) {
        for handle in self.endpoint.retired_sessions(now) {
            let Some(slot) = self.sessions.get(handle) else { continue };
            slot.session.abort_with_key();
            self.sessions.mark_dirty(handle);
        }
        self.key_retires_at = self.endpoint.key_retires_at();
    }
}
