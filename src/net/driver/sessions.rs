//! What the driver keeps of each session, by the endpoint's handles, and which sessions are dirty.

use std::{sync::Arc, vec::Vec};

use super::{idle::Rest, openings::Opening};
use crate::{net::session::Session, proto::Handle};

/// The sessions of a driver. A session is *dirty* from the time when something happened to it until the driver serves it.
#[derive(Default)]
pub(super) struct Sessions {
    /// By [`Handle::index`].
    slots: Vec<Option<Slot>>,
    /// The dirty sessions, in the order in which they became so.
    dirty: Vec<Handle>,
    /// Those [deferred](Self::defer) in this poll of the driver's task, and in the one before.
    deferred: [Vec<Handle>; 2],
    count: usize,
}

/// What the driver keeps of a session.
pub(super) struct Slot {
    handle: Handle,
    pub(super) session: Arc<Session>,
    /// It stands in one of the lists of those to be served.
    dirty: bool,
    /// Whether it waits for room in the socket's buffer.
    pub(super) blocked: bool,
    /// Whether packets of it came from another address than its peer's, and it has not decided whether it follows.
    pub(super) may_move: bool,
    /// Whether its peer has still to show that it hears this end.
    pub(super) half_open: bool,
    /// How far it has come in its opening, if this end connects it.
    pub(super) opening: Opening,
    /// Whether it was begun here and agrees on keys: it has none yet, and the endpoint no key of its routes.
    #[cfg(feature = "noise")]
    pub(super) awaits_route_key: bool,
    pub(super) rest: Rest,
    /// What it costs that it lingers, if it does: see [`Lingering`](super::lingering::Lingering).
    pub(super) lingering: Option<usize>,
}

impl Sessions {
    pub(super) fn insert(&mut self, handle: Handle, session: Arc<Session>, half_open: bool) {
        if self.slots.len() <= handle.index() {
            self.slots.resize_with(handle.index() + 1, || None);
        }
        session.set_handle(handle);
        let slot = Slot {
            handle,
            session,
            dirty: false,
            blocked: false,
            may_move: false,
            half_open,
            opening: Opening::Over,
            #[cfg(feature = "noise")]
            awaits_route_key: false,
            rest: Rest::NONE,
            lingering: None,
        };
        self.count += 1;
        self.slots[handle.index()] = Some(slot);
    }

    pub(super) fn remove(&mut self, handle: Handle) -> Option<Arc<Session>> {
        self.get(handle)?;
        let slot = self.slots.get_mut(handle.index())?.take()?;
        self.count -= 1;
        if self.count == 0 {
            // Gives the memory of a crowd back.
            self.slots = Vec::new();
        }
        Some(slot.session)
    }

    pub(super) fn get(&self, handle: Handle) -> Option<&Slot> {
        self.slots.get(handle.index())?.as_ref().filter(|slot| slot.handle == handle)
    }

    pub(super) fn get_mut(&mut self, handle: Handle) -> Option<&mut Slot> {
        self.slots.get_mut(handle.index())?.as_mut().filter(|slot| slot.handle == handle)
    }

    /// The handle of the session at an index.
    pub(super) fn handle_at(&self, index: usize) -> Option<Handle> {
        self.slots.get(index)?.as_ref().map(|slot| slot.handle)
    }

    /// Whether the stream of the session is gone, and the session still delivers.
    pub(super) fn lingers(&self, handle: Handle) -> bool {
        self.get(handle).is_some_and(|slot| slot.lingering.is_some())
    }

    /// Whether `handle` is that of `session`.
    pub(super) fn is(&self, handle: Handle, session: &Arc<Session>) -> bool {
        self.get(handle).is_some_and(|slot| Arc::ptr_eq(&slot.session, session))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().flatten()
    }

    /// Has the session served in this turn.
    pub(super) fn mark_dirty(&mut self, handle: Handle) {
        if let Some(slot) = self.slots.get_mut(handle.index()).and_then(Option::as_mut)
            && slot.handle == handle
            && !slot.dirty
        {
            slot.dirty = true;
            self.dirty.push(handle);
        }
    }

    /// Has a session that was just accepted served two polls of the driver's task later. In between, the task that accepts it can run, and
    /// then one that this task spawns for it. What they write takes the ACK and the answer to the HELLO along: one system call instead of
    /// two. Where no other task has anything to do, both polls follow at once.
    pub(super) fn defer(&mut self, handle: Handle) {
        if let Some(slot) = self.get_mut(handle).filter(|slot| !slot.dirty) {
            slot.dirty = true;
            self.deferred[0].push(handle);
        }
    }

    /// Whether any session is deferred.
    pub(super) fn has_deferred(&self) -> bool {
        self.deferred.iter().any(|deferred| !deferred.is_empty())
    }

    /// A poll of the driver's task begins.
    pub(super) fn begin_poll(&mut self) {
        if self.has_deferred() {
            let [now, before] = &mut self.deferred;
            self.dirty.append(before);
            std::mem::swap(now, before);
        }
    }

    /// How many sessions are dirty.
    pub(super) fn dirty_count(&self) -> usize {
        self.dirty.len()
    }

    /// The `nth` dirty session, which is about to be served: from here on it may become dirty again. `None` if it is gone.
    pub(super) fn clean(&mut self, nth: usize) -> Option<(Handle, &mut Slot)> {
        let handle = *self.dirty.get(nth)?;
        let slot = self.get_mut(handle)?;
        slot.dirty = false;
        Some((handle, slot))
    }

    /// Drops the first `count` from the list of dirty sessions.
    pub(super) fn drop_served(&mut self, count: usize) {
        self.dirty.drain(..count);
    }
}
