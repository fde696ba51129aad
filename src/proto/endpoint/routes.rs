//! Which session a packet is for.

mod by_route;

use alloc::{boxed::Box, vec::Vec};
use core::{hash::BuildHasher, net::SocketAddr};

use self::by_route::ByRoute;
use super::{
    hash::{HashKey, Map},
    keys::KeyPhase,
    record::FirstPush,
    shard::Shard,
    sources::Sources,
};
use crate::proto::Instant;

/// What a packet is routed by: the address that it came from, and its conv.
pub(super) type Route = (SocketAddr, u32);

/// What stands in for the tag of sessions whose packets show only their conv.
pub(super) const SEALED_TAG: u32 = u32::MAX;

/// Sealed sessions of one conv that wait for the oldest of them to end, before which they are not found from another address.
#[cfg(feature = "noise")]
const MAX_YOUNGER: usize = 4;

/// An address as it is in a [`Route`]: without the flow label of IPv6, which a sender may set as it likes and which says nothing
/// about who it is.
pub(super) const fn without_flow_label(mut addr: SocketAddr) -> SocketAddr {
    if let SocketAddr::V6(v6) = &mut addr {
        v6.set_flowinfo(0);
    }
    addr
}

/// Names one session of an [`Endpoint`](super::Endpoint).
///
/// Its [`index`](Self::index) is a small number: a `Vec` is enough to store what belongs to the sessions. An index is used
/// again once its session is closed. The handle as a whole is not: it also holds a count of the endpoint's sessions, so an
/// old handle equals no later one (until 2^32 sessions have come and gone), and what is done with it cannot reach another
/// session by mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle {
    index: u32,
    /// Counts the endpoint's sessions.
    serial: u32,
}

impl Handle {
    /// The place of the session among those that live: less than the most that ever lived at once.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// How a session came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Its peer began it.
    Accepted,
    /// It was begun here.
    Connected,
}

/// What an endpoint knows of a session.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) handle: Handle,
    pub(super) route: Route,
    pub(super) role: Role,
    /// Packets to come that are [looked at](super::admission::Admission::early_packets).
    pub(super) early_packets: u16,
    /// Its peer has not shown yet that it hears this end.
    pub(super) half_open: bool,
    /// Its packets are opened by its connection, under keys of its own.
    #[cfg(feature = "noise")]
    pub(super) sealed: bool,
    /// The key of accepted sessions that its packets must be under.
    pub(super) phase: KeyPhase,
    /// Its first PUSH, for its record.
    pub(super) first_push: FirstPush,
    /// The tag by which its packets are found from wherever they come; 0 if they are not.
    tag: u32,
    /// Where its packets came from last that were found so.
    elsewhere: Option<Box<Elsewhere>>,
}

/// Another address than a peer's that packets of its session came from.
#[derive(Debug)]
struct Elsewhere {
    address: SocketAddr,
    /// When the last one did.
    at: Instant,
}

/// The sessions, by handle and by route.
#[derive(Debug)]
pub(super) struct Routes {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    by_route: ByRoute,
    /// The sessions that follow their peers, by conv and tag.
    by_tag: Map<(u32, u32), u32>,
    /// Sealed sessions whose conv an older one is found by, the oldest first: a few of a conv, by their indices.
    #[cfg(feature = "noise")]
    younger: Map<u32, Vec<u32>>,
    /// The same by the addresses that these were found at, and their conv.
    by_elsewhere: Map<Route, u32>,
    /// The addresses of sessions that are not half-open.
    sources: Sources,
    /// The session that a packet was for last. The next is mostly for the same one, which is then found without hashing.
    last: u32,
    next_serial: u32,
    /// The shard that the routes belong to.
    shard: Option<Shard>,
    /// Some sessions open their packets themselves, or did.
    #[cfg(feature = "noise")]
    pub(super) any_sealed: bool,
}

impl Routes {
    pub(super) fn new(key: HashKey) -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_route: ByRoute::new(key),
            by_tag: Map::with_hasher(key),
            #[cfg(feature = "noise")]
            younger: Map::with_hasher(key),
            by_elsewhere: Map::with_hasher(key),
            sources: Sources::new(key),
            last: 0,
            next_serial: 0,
            shard: None,
            #[cfg(feature = "noise")]
            any_sealed: false,
        }
    }

    /// Has the routes of sessions belong to this shard.
    pub(super) fn set_shard(&mut self, shard: Shard) {
        self.shard = Some(shard);
    }

    /// Adds a session. The route must be free.
    pub(super) fn insert(
        &mut self,
        route: Route,
        role: Role,
        early_packets: u16,
        first_push: FirstPush,
    ) -> Handle {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            (self.entries.len() - 1) as u32
        });
        let handle = Handle { index, serial: self.next_serial };
        self.next_serial = self.next_serial.wrapping_add(1);
        self.entries[index as usize] = Some(Entry {
            handle,
            route,
            role,
            early_packets,
            half_open: false,
            #[cfg(feature = "noise")]
            sealed: false,
            phase: KeyPhase::default(),
            first_push,
            tag: 0,
            elsewhere: None,
        });
        self.by_route.insert(&self.entries, index);
        self.sources.add(route.0);
        if let Some(shard) = &self.shard {
            shard.hold_hash(self.by_route.key().hash_one(route));
        }
        handle
    }

    /// Forgets a session; `None` if there is none of this handle.
    pub(super) fn remove(&mut self, handle: Handle) -> Option<Entry> {
        self.get(handle)?;
        self.by_route.remove(&self.entries, handle.index);
        let entry = self.entries[handle.index()].take()?;
        if let Some(shard) = &self.shard {
            shard.release_route(&entry.route);
        }
        if entry.tag != 0 {
            self.forget_tag(&entry);
        }
        #[cfg(feature = "noise")]
        if entry.sealed {
            self.give_tag_on(&entry);
        }
        if !entry.half_open {
            self.sources.remove(entry.route.0);
        }
        self.free.push(handle.index);
        if self.by_route.len() == 0 {
            // A crowd that has left leaves no memory behind. The serial goes on: old handles stay invalid.
            let key = self.by_route.key();
            let shard = self.shard.take();
            *self = Self { next_serial: self.next_serial, shard, ..Self::new(key) };
        }
        Some(entry)
    }

    /// Has packets of a session found by its tag as well.
    pub(super) fn set_tag(&mut self, handle: Handle, tag: u32) {
        let entry = self.entries.get_mut(handle.index()).and_then(Option::as_mut);
        if let Some(entry) = entry.filter(|entry| entry.handle == handle && entry.tag == 0) {
            // What is in front of a sealed packet is its conv alone. Where a peer has chosen that of another session, it gets none as
            // long as that lives.
            #[cfg(feature = "noise")]
            let tag = if entry.sealed { SEALED_TAG } else { tag };
            #[cfg(feature = "noise")]
            if entry.sealed && self.by_tag.contains_key(&(entry.route.1, tag)) {
                let younger = self.younger.entry(entry.route.1).or_default();
                if younger.len() < MAX_YOUNGER {
                    younger.push(handle.index);
                }
                return;
            }
            entry.tag = tag;
            self.by_tag.insert((entry.route.1, tag), handle.index);
            if let Some(shard) = &self.shard {
                shard.hold_tag(entry.route.1, tag);
            }
        }
    }

    fn forget_tag(&mut self, entry: &Entry) {
        let key = (entry.route.1, entry.tag);
        if self.by_tag.get(&key) == Some(&entry.handle.index) {
            self.by_tag.remove(&key);
        }
        if let Some(shard) = &self.shard {
            shard.release_tag(key.0, key.1);
        }
        self.forget_elsewhere(entry.handle.index, entry.elsewhere.as_deref(), entry.route.1);
    }

    /// A sealed session is gone: the oldest of those with its conv is found by it from here on.
    #[cfg(feature = "noise")]
    fn give_tag_on(&mut self, gone: &Entry) {
        let conv = gone.route.1;
        let Some(younger) = self.younger.get_mut(&conv) else { return };
        younger.retain(|index| *index != gone.handle.index);
        let next = (gone.tag == SEALED_TAG && !younger.is_empty()).then(|| younger.remove(0));
        if younger.is_empty() {
            self.younger.remove(&conv);
        }
        let handle =
            next.and_then(|index| self.entries.get(index as usize)?.as_ref().map(|entry| entry.handle));
        if let Some(handle) = handle {
            self.set_tag(handle, SEALED_TAG);
        }
    }

    fn forget_elsewhere(&mut self, index: u32, elsewhere: Option<&Elsewhere>, conv: u32) {
        if let Some(Elsewhere { address, .. }) = elsewhere
            && self.by_elsewhere.get(&(*address, conv)) == Some(&index)
        {
            self.by_elsewhere.remove(&(*address, conv));
            if let Some(shard) = &self.shard {
                shard.release_route(&(*address, conv));
            }
        }
    }

    /// Notes that packets of a session came from another address than its peer's.
    pub(super) fn note_elsewhere(&mut self, now: Instant, handle: Handle, address: SocketAddr) {
        let entry = self.entries.get_mut(handle.index()).and_then(Option::as_mut);
        let Some(entry) = entry.filter(|entry| entry.handle == handle) else { return };
        let (before, conv) =
            (entry.elsewhere.replace(Box::new(Elsewhere { address, at: now })), entry.route.1);
        if before.as_ref().is_none_or(|before| before.address != address) {
            self.forget_elsewhere(handle.index, before.as_deref(), conv);
            let other = self.by_elsewhere.insert((address, conv), handle.index);
            if let Some(shard) = self.shard.as_ref().filter(|_| other.is_none()) {
                shard.hold_hash(self.by_route.key().hash_one((address, conv)));
            }
        }
    }

    /// When packets of a session came last from an address that is not its peer's.
    pub(super) fn was_elsewhere(&self, route: &Route) -> Option<Instant> {
        let index = *self.by_elsewhere.get(route)?;
        self.entries.get(index as usize)?.as_ref()?.elsewhere.as_ref().map(|elsewhere| elsewhere.at)
    }

    /// Whether any session is found by its tag.
    pub(super) fn has_tags(&self) -> bool {
        !self.by_tag.is_empty()
    }

    /// The session of a conversation with this tag, if it is found by it.
    pub(super) fn find_by_tag(&self, conv: u32, tag: u32) -> Option<Handle> {
        let index = *self.by_tag.get(&(conv, tag))?;
        self.entries.get(index as usize)?.as_ref().map(|entry| entry.handle)
    }

    /// Gives a session another address. Returns the one before; `None` where there is no such session, and where the
    /// address has one of that conv, here or in another shard.
    pub(super) fn change_address(&mut self, handle: Handle, to: SocketAddr) -> Option<SocketAddr> {
        let conv = self.get(handle)?.route.1;
        if self.by_route.find(&self.entries, &(to, conv)).is_some() {
            return None;
        }
        if self.shard.as_ref().is_some_and(|shard| shard.hold_route(&(to, conv)).is_err()) {
            return None;
        }
        self.by_route.remove(&self.entries, handle.index);
        let entry = self.entries.get_mut(handle.index())?.as_mut()?;
        let before = core::mem::replace(&mut entry.route.0, to);
        if !entry.half_open {
            self.sources.remove(before);
            self.sources.add(to);
        }
        let elsewhere = entry.elsewhere.take();
        self.forget_elsewhere(handle.index, elsewhere.as_deref(), conv);
        self.by_route.insert(&self.entries, handle.index);
        if let Some(shard) = &self.shard {
            shard.release_route(&(before, conv));
        }
        Some(before)
    }

    /// Sets whether the peer of a session has still to show that it hears this end; returns whether that is a change.
    pub(super) fn set_half_open(&mut self, handle: Handle, half_open: bool) -> bool {
        let entry = self.entries.get_mut(handle.index()).and_then(Option::as_mut);
        let entry = entry.filter(|entry| entry.handle == handle && entry.half_open != half_open);
        let Some(entry) = entry else { return false };
        entry.half_open = half_open;
        if half_open {
            self.sources.remove(entry.route.0);
        } else {
            self.sources.add(entry.route.0);
        }
        true
    }

    /// The addresses with established sessions: those that are not half-open.
    pub(super) const fn sources_mut(&mut self) -> &mut Sources {
        &mut self.sources
    }

    /// The packets of a session are opened by its connection.
    #[cfg(feature = "noise")]
    pub(super) fn set_sealed(&mut self, handle: Handle) {
        let entry = self.entries.get_mut(handle.index()).and_then(Option::as_mut);
        if let Some(entry) = entry.filter(|entry| entry.handle == handle) {
            entry.sealed = true;
            self.any_sealed = true;
        }
    }

    /// Sets the key that a session's packets must be under.
    pub(super) fn set_phase(&mut self, handle: Handle, phase: KeyPhase) {
        let entry = self.entries.get_mut(handle.index()).and_then(Option::as_mut);
        if let Some(entry) = entry.filter(|entry| entry.handle == handle) {
            entry.phase = phase;
        }
    }

    /// Every session.
    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().flatten()
    }

    pub(super) fn get(&self, handle: Handle) -> Option<&Entry> {
        self.entries.get(handle.index())?.as_ref().filter(|entry| entry.handle == handle)
    }

    /// The session of a route, to which a packet is about to be handed.
    pub(super) fn find_for_packet(&mut self, route: &Route) -> Option<(Handle, &mut Entry)> {
        let is_last = |entry: &Entry| entry.route == *route;
        if !self.entries.get(self.last as usize).and_then(Option::as_ref).is_some_and(is_last) {
            self.last = self.by_route.find(&self.entries, route)?;
        }
        let entry = self.entries.get_mut(self.last as usize)?.as_mut()?;
        Some((entry.handle, entry))
    }

    pub(super) fn find(&self, route: &Route) -> Option<Handle> {
        let at = |index: u32| self.entries.get(index as usize)?.as_ref();
        let last = at(self.last).filter(|entry| entry.route == *route);
        last.or_else(|| at(self.by_route.find(&self.entries, route)?)).map(|entry| entry.handle)
    }

    /// The sessions with an address, found by looking at all.
    pub(super) fn of_address(&self, address: SocketAddr) -> impl Iterator<Item = (Handle, Role)> {
        let entries = self.entries.iter().flatten();
        entries.filter(move |entry| entry.route.0 == address).map(|entry| (entry.handle, entry.role))
    }

    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> {
        self.entries.iter().flatten().map(|entry| entry.handle)
    }

    pub(super) fn len(&self) -> usize {
        self.by_route.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(conv: u32) -> Route {
        (SocketAddr::from(([127, 0, 0, 1], 9)), conv)
    }

    fn routes() -> Routes {
        Routes::new(HashKey::for_tests())
    }

    #[cfg(feature = "noise")]
    #[test]
    fn sealed_sessions_of_one_conv_are_found_from_elsewhere_one_after_the_other() {
        let mut routes = routes();
        let mut sealed = |port| {
            let route = (SocketAddr::from(([127, 0, 0, 1], port)), 7);
            let handle = routes.insert(route, Role::Accepted, 0, FirstPush::default());
            routes.set_sealed(handle);
            routes.set_tag(handle, 1);
            handle
        };
        let all: Vec<_> = (1..=8).map(&mut sealed).collect();
        let found = |routes: &Routes| routes.find_by_tag(7, SEALED_TAG);
        assert_eq!(found(&routes), Some(all[0]));
        // One that waits may end before it is its turn.
        routes.remove(all[2]);
        let mut order = Vec::new();
        while let Some(handle) = found(&routes) {
            order.push(handle);
            routes.remove(handle);
        }
        assert_eq!(order, [all[0], all[1], all[3], all[4]], "no more than a few wait");
        assert_eq!((routes.len(), routes.younger.len()), (3, 0));
    }

    #[test]
    fn an_index_is_used_again_and_a_handle_is_not() {
        let mut routes = routes();
        let old = routes.insert(route(1), Role::Accepted, 0, FirstPush::default());
        let other = routes.insert(route(2), Role::Accepted, 0, FirstPush::default());
        assert!(routes.remove(old).is_some());
        let new = routes.insert(route(3), Role::Accepted, 0, FirstPush::default());
        assert_eq!(new.index(), old.index());
        assert_ne!(new, old);
        assert!(routes.get(old).is_none() && routes.remove(old).is_none());
        assert_eq!(
            (routes.find(&route(3)), routes.find(&route(2)), routes.len()),
            (Some(new), Some(other), 2)
        );
    }

    #[test]
    fn a_handle_stays_invalid_when_all_sessions_have_gone() {
        let mut routes = routes();
        let old = routes.insert(route(1), Role::Connected, 0, FirstPush::default());
        routes.remove(old);
        assert_eq!(routes.entries.capacity(), 0, "memory is given back");
        let new = routes.insert(route(1), Role::Connected, 0, FirstPush::default());
        assert!(routes.get(old).is_none());
        assert_eq!(routes.get(new).map(|entry| entry.route), Some(route(1)));
    }

    #[test]
    fn the_session_of_the_last_packet_is_not_taken_for_its_successor() {
        let mut routes = routes();
        let old = routes.insert(route(1), Role::Accepted, 0, FirstPush::default());
        let stays = routes.insert(route(2), Role::Accepted, 0, FirstPush::default());
        assert_eq!(routes.find_for_packet(&route(1)).map(|found| found.0), Some(old));
        routes.remove(old);
        assert!(routes.find_for_packet(&route(1)).is_none());
        let new = routes.insert(route(3), Role::Accepted, 0, FirstPush::default());
        assert!(routes.find_for_packet(&route(1)).is_none());
        assert_eq!(routes.find_for_packet(&route(3)).map(|found| found.0), Some(new));
        assert_eq!(routes.find_for_packet(&route(2)).map(|found| found.0), Some(stays));
    }
}
