//! RESET of a peer that has lost the session and its keys: R120 of `docs/secure-sessions.md`.

use alloc::boxed::Box;
use core::time::Duration;

use super::{Extension, Role};
use crate::proto::{
    noise::{ResetKey, is_reset},
    time::Instant,
};

impl Extension {
    /// The key by which the peer will know a RESET of this end, which accepts: its ANSWER says it.
    pub(in crate::proto) fn set_reset_key(&mut self, key: Box<ResetKey>) {
        self.handshake.set_reset_key(key);
    }

    /// Whether a packet that does not open is a RESET of the peer.
    pub(in crate::proto) fn is_keyed_reset(&self, packet: &[u8]) -> bool {
        let is_told = self.is_confirmed() && self.handshake.role() == Role::Connects;
        is_told && self.handshake.reset_key().is_some_and(|key| is_reset(packet, key))
    }

    /// Such a packet came.
    pub(in crate::proto) fn on_keyed_reset(&mut self, now: Instant, rto: Duration) {
        self.stats.received += 1;
        self.ping.on_keyed_reset(now, rto);
    }

    /// A packet of the peer was opened: it knows the session.
    pub(in crate::proto) fn on_opened(&mut self) {
        self.ping.on_opened();
    }
}
