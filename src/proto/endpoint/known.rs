//! What an endpoint tells of its sessions.

use core::net::SocketAddr;

use super::{
    Endpoint, Handle, RoutingStats,
    routes::{Role, without_flow_label},
};
use crate::proto::Instant;

impl Endpoint {
    /// Until when it is worth to go on receiving for sessions that have ended, if there are no others: half a second to three
    /// behind the end of the last one with the extensions, and 2 s behind each question of such a peer, but no longer than 10 s
    /// behind that end. Its peer may have missed the answer to its own end, and is answered by the record. A peer that is not
    /// answered takes longer to end, or cannot tell that everything arrived. `None` if there was no such session.
    #[must_use]
    pub const fn asked_until(&self) -> Option<Instant> {
        self.asked.until()
    }

    /// The session of a conversation with `peer`.
    #[must_use]
    pub fn find(&self, peer: SocketAddr, conv: u32) -> Option<Handle> {
        self.routes.find(&(without_flow_label(peer), conv))
    }

    /// The address and the conv of a session; `None` once it is closed.
    #[must_use]
    pub fn route(&self, handle: Handle) -> Option<(SocketAddr, u32)> {
        self.routes.get(handle).map(|entry| entry.route)
    }

    /// Whether a peer began the session; `None` once it is closed.
    #[must_use]
    pub fn is_accepted(&self, handle: Handle) -> Option<bool> {
        self.routes.get(handle).map(|entry| entry.role == Role::Accepted)
    }

    /// Every session.
    pub fn sessions(&self) -> impl Iterator<Item = Handle> {
        self.routes.handles()
    }

    /// Every session with `peer`, found by looking at all.
    pub fn sessions_with(&self, peer: SocketAddr) -> impl Iterator<Item = Handle> {
        self.routes.of_address(without_flow_label(peer)).map(|(handle, _)| handle)
    }

    /// How many sessions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there is no session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was accepted and dropped so far.
    #[must_use]
    pub const fn stats(&self) -> &RoutingStats {
        &self.stats
    }
}
