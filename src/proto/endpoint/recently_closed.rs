//! Sessions that were closed a moment ago. What their peers still send must not begin them anew.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::{
    hash::{HashKey, Map},
    routes::Route,
};
use crate::proto::Instant;

/// How long a closed session is remembered. It is longer than a packet travels and a first segment is resent, and
/// shorter than a user's patience with a peer that comes back with the same port and conv.
const MEMORY: Duration = Duration::from_secs(3);
/// Most sessions that are remembered. Past it, the oldest are forgotten early.
const MAX: usize = 8_192;

/// The routes of sessions that were closed within the last [`MEMORY`].
#[derive(Debug)]
pub(super) struct RecentlyClosed {
    until: Map<Route, Instant>,
    /// In order of time. A route that was closed twice stands here twice; only the later entry ends its memory.
    order: VecDeque<(Instant, Route)>,
}

impl RecentlyClosed {
    pub(super) fn new(key: HashKey) -> Self {
        Self { until: Map::with_hasher(key), order: VecDeque::new() }
    }

    pub(super) fn insert(&mut self, route: Route, now: Instant) {
        self.expire(now);
        if self.order.len() == MAX {
            self.forget_oldest();
        }
        let until = now + MEMORY;
        self.until.insert(route, until);
        self.order.push_back((until, route));
    }

    pub(super) fn contains(&mut self, route: &Route, now: Instant) -> bool {
        self.expire(now);
        self.until.contains_key(route)
    }

    fn expire(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((until, route)) = self.order.pop_front() else { return };
        if self.until.get(&route) == Some(&until) {
            self.until.remove(&route);
        }
        if self.order.is_empty() {
            // Gives the memory of a crowd back.
            *self = Self::new(*self.until.hasher());
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use super::*;

    fn route(conv: u32) -> Route {
        (SocketAddr::from(([127, 0, 0, 1], 1)), conv)
    }

    #[test]
    fn a_route_is_forgotten_after_a_while() {
        let mut closed = RecentlyClosed::new(HashKey::for_tests());
        closed.insert(route(1), Instant::ZERO);
        closed.insert(route(1), Instant::ZERO + MEMORY / 2);
        assert!(closed.contains(&route(1), Instant::ZERO + MEMORY));
        assert!(!closed.contains(&route(2), Instant::ZERO + MEMORY));
        assert!(!closed.contains(&route(1), Instant::ZERO + MEMORY * 2));
        assert!(closed.order.is_empty());
    }

    #[test]
    #[cfg_attr(miri, ignore = "so many take minutes, and do nothing that few do not")]
    fn no_more_than_the_limit_are_remembered() {
        let mut closed = RecentlyClosed::new(HashKey::for_tests());
        let count = 3 * MAX as u32;
        for conv in 0..count {
            closed.insert(route(conv), Instant::ZERO);
        }
        assert_eq!((closed.order.len(), closed.until.len()), (MAX, MAX));
        assert!(!closed.contains(&route(0), Instant::ZERO));
        assert!(closed.contains(&route(count - 1), Instant::ZERO));
    }
}
