//! Sessions whose peers have another address than before.
//!
//! A packet is routed by its source. What a peer sends from elsewhere has no route, but its PING and PONG carry the tag of
//! the session's end here, which no other session of that conv has. So the tag finds the session, and the session decides what
//! to think of it: see `proto/extension/moves.rs`.

use core::{net::SocketAddr, time::Duration};

use super::{
    Endpoint, Handle,
    routed::MoveError,
    routes::{Entry, Route, without_flow_label},
};
use crate::proto::{
    Connection, Instant,
    extension::probe_tag,
    pipeline::{Begins, begins_session, segments},
};

/// How long an end that moves may be silent: it asks every two seconds, and a question may be lost.
const MOVING: Duration = Duration::from_secs(5);

impl Endpoint {
    /// Has packets of an accepted session found from wherever they come, if its connection follows its peer: one with the
    /// [extensions](super::Extensions) and an authenticating cipher does. To be called once, after [`accept`](Self::accept).
    /// Such packets are returned as [`Routed::FromElsewhere`](super::Routed::FromElsewhere).
    pub fn follow(&mut self, handle: Handle, connection: &Connection) {
        if let Some(tag) = connection.followed_tag() {
            self.follow_tag(handle, tag);
        }
    }

    /// As [`follow`](Self::follow), with [`Connection::followed_tag`].
    pub(crate) fn follow_tag(&mut self, handle: Handle, tag: u32) {
        if self.is_accepted(handle) == Some(true) {
            self.routes.set_tag(handle, tag);
        }
    }

    /// Gives a session the address of its peer that [`Event::Moved`](crate::proto::Event::Moved) has told. Late packets from the address
    /// before begin no session for a minute. Returns the session that ends by this one, as [`Accepted::replaced`](super::Accepted::replaced) does.
    ///
    /// # Errors
    /// [`MoveError::ConvInUse`] or [`MoveError::ConvInUseElsewhere`] where the new address has a session of that conv by now. Then this
    /// one cannot go on.
    pub fn moved(
        &mut self,
        now: Instant,
        handle: Handle,
        to: SocketAddr,
    ) -> Result<Option<Handle>, MoveError> {
        let to = without_flow_label(to);
        let Entry { route, role, first_push, .. } = self.routes.get(handle).ok_or(MoveError::Unknown)?;
        let (route, role, first_push) = (*route, *role, *first_push);
        if let Some(other) = self.routes.find(&(to, route.1)) {
            return if other == handle { Ok(None) } else { Err(MoveError::ConvInUse(other)) };
        }
        self.routes.change_address(handle, to).ok_or(MoveError::ConvInUseElsewhere)?;
        let Some(admission) = &mut self.admission else { return Ok(None) };
        admission.close(route.0, handle);
        self.records.insert(now, &route, role, first_push, None);
        let replaced = admission.replace(to, handle);
        Ok(replaced.filter(|replaced| self.close(now, *replaced, None)))
    }

    /// Whether packets of no route may be of a session whose peer was at that address a moment ago. They are dropped, and sent
    /// again once the session has followed. A first PUSH among them would begin a second session. A HELLO says that it begins one.
    pub(super) fn may_be_of_moving(&self, now: Instant, route: &Route, run: &[u8]) -> bool {
        self.routes.was_elsewhere(route).is_some_and(|at| now - at < MOVING)
            && !self.batch.payloads(run).any(|payload| begins_session(payload) == Begins::Hello)
    }

    /// The session that packets of no route are from, if they ask or answer whether its peer is there.
    pub(super) fn find_by_tag(&self, conv: u32, run: &[u8]) -> Option<Handle> {
        // What opened under another cipher is not of the key that the session's packets must be made with.
        let source = self.batch.source;
        if !self.decryptor.may_be_of_accepted(source, self.batch.run_phase) || source.port() == 0 {
            return None;
        }
        let mut tags =
            self.batch.payloads(run).flat_map(segments).filter_map(|(header, _)| probe_tag(&header));
        let handle = tags.find_map(|tag| self.routes.find_by_tag(conv, tag))?;
        self.batch.is_under(self.routes.get(handle)?.phase).then_some(handle)
    }
}
