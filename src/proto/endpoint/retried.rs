//! Who was asked for a cookie a moment ago.
//!
//! A peer sends its HELLO and its first data in one flight. The HELLO is answered by RETRY, and the data comes again with the HELLO
//! that returns the cookie. Data that arrives behind the first HELLO must not begin a session meanwhile: that would be a half-open
//! one, which takes the place of a peer without extensions.
//!
//! The memory is small and fixed. Who is not in it any more begins a half-open session, as if nobody had asked.

use alloc::{boxed::Box, vec};
use core::{hash::BuildHasher, time::Duration};

use super::{hash::HashKey, routes::Route};
use crate::proto::Instant;

/// The data of a flight that began with a HELLO comes within this time.
const LIFETIME: Duration = Duration::from_secs(1);
/// How many routes are remembered at most.
const SLOTS: usize = 1_024;

/// The routes that were asked for a cookie last.
#[derive(Debug)]
pub(super) struct Retried {
    key: HashKey,
    /// By the lower bits of the hash of a route: the whole hash, and when the route was asked. Empty while nobody was asked.
    slots: Box<[Option<(u64, Instant)>]>,
}

impl Retried {
    pub(super) fn new(key: HashKey) -> Self {
        Self { key, slots: Box::default() }
    }

    /// A route was asked. Takes the place of another one, perhaps.
    pub(super) fn insert(&mut self, now: Instant, route: Route) {
        if self.slots.is_empty() {
            self.slots = vec![None; SLOTS].into();
        }
        let hash = self.key.hash_one(route);
        self.slots[hash as usize % SLOTS] = Some((hash, now));
    }

    /// Whether a route was asked a moment ago.
    pub(super) fn contains(&self, now: Instant, route: Route) -> bool {
        if self.slots.is_empty() {
            return false;
        }
        let hash = self.key.hash_one(route);
        self.slots[hash as usize % SLOTS].is_some_and(|(asked, at)| asked == hash && now - at < LIFETIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_remembered_for_a_second_and_no_other_is_taken_for_it() {
        let route = |host: u8, conv: u32| -> Route { (([192, 0, 2, host], 4_000).into(), conv) };
        let asked_at = Instant::from_millis(5_000);
        let mut retried = Retried::new(HashKey::for_tests());
        assert!(!retried.contains(asked_at, route(1, 7)));
        retried.insert(asked_at, route(1, 7));
        let late = asked_at + (LIFETIME - Duration::from_micros(1));
        assert!(retried.contains(late, route(1, 7)) && !retried.contains(asked_at + LIFETIME, route(1, 7)));
        assert!(!retried.contains(late, route(2, 7)));
        // Some of them share its slot.
        assert!((8..10_000).all(|conv| !retried.contains(late, route(1, conv))));
    }
}
