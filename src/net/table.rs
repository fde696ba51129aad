//! The sessions of a driver, by key and by route.

use std::{collections::HashMap, net::SocketAddr, sync::Arc, vec::Vec};

use super::session::Session;
use crate::proto::Instant;

/// Datagrams of a session among which resends of its first packet are looked for: kcp-go's usual window.
const FIRST_PACKETS: usize = 1_024;

pub(super) type Route = (SocketAddr, u32);

/// The sessions, by key and by route.
#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    // Keyed with random state: peers choose their addresses and convs.
    routes: HashMap<Route, u32>,
}

pub(super) struct Slot {
    pub(super) session: Arc<Session>,
    pub(super) touched: bool,
    pub(super) blocked: bool,
    /// Whether it is among those that went idle.
    pub(super) idle: bool,
    pub(super) served_at: Instant,
    /// Opened by its peer.
    pub(super) accepted: bool,
    /// Datagrams to come that may be a resend of its first.
    pub(super) first_packets: usize,
}

impl Table {
    pub(super) fn insert(&mut self, session: Arc<Session>, accepted: bool) -> u32 {
        let route = (session.peer, session.conv);
        let slot = Slot {
            session,
            touched: false,
            blocked: false,
            idle: false,
            served_at: Instant::ZERO,
            accepted,
            first_packets: if accepted { FIRST_PACKETS } else { 0 },
        };
        let key = match self.free.pop() {
            Some(key) => {
                self.slots[key as usize] = Some(slot);
                key
            }
            None => {
                self.slots.push(Some(slot));
                (self.slots.len() - 1) as u32
            }
        };
        self.routes.insert(route, key);
        key
    }

    pub(super) fn remove(&mut self, key: u32) -> Option<Slot> {
        let slot = self.slots.get_mut(key as usize)?.take()?;
        self.routes.remove(&(slot.session.peer, slot.session.conv));
        self.free.push(key);
        if self.routes.is_empty() {
            *self = Self::default();
        }
        Some(slot)
    }

    pub(super) fn get(&mut self, key: u32) -> Option<&mut Slot> {
        self.slots.get_mut(key as usize)?.as_mut()
    }

    pub(super) fn find(&self, route: &Route) -> Option<u32> {
        self.routes.get(route).copied()
    }

    /// The sessions of a peer, by looking at all.
    pub(super) fn keys_of(&self, peer: SocketAddr) -> Vec<u32> {
        self.routes.iter().filter(|((addr, _), _)| *addr == peer).map(|(_, key)| *key).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.routes.len()
    }
}
