//! Sessions that ended a moment ago: what their peers still send must not open them anew.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    time::Duration,
};

use crate::proto::Instant;

type Route = (SocketAddr, u32);

/// Longer than a packet travels and a first segment is resent; shorter than a user's patience with a peer that comes
/// back with the same port and conv.
const MEMORY: Duration = Duration::from_secs(3);
/// Past this the oldest are forgotten early.
const MAX: usize = 8_192;

#[derive(Debug, Default)]
pub(super) struct RecentlyClosed {
    until: HashMap<Route, Instant>,
    order: VecDeque<(Instant, Route)>,
}

impl RecentlyClosed {
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
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(conv: u32) -> Route {
        (SocketAddr::from(([127, 0, 0, 1], 1)), conv)
    }

    #[test]
    fn forgets_after_a_while() {
        let mut closed = RecentlyClosed::default();
        closed.insert(route(1), Instant::ZERO);
        closed.insert(route(1), Instant::ZERO + MEMORY / 2);
        assert!(closed.contains(&route(1), Instant::ZERO + MEMORY));
        assert!(!closed.contains(&route(2), Instant::ZERO + MEMORY));
        assert!(!closed.contains(&route(1), Instant::ZERO + MEMORY * 2));
        assert!(closed.order.is_empty());
    }

    #[test]
    fn is_bounded() {
        let mut closed = RecentlyClosed::default();
        for conv in 0..3 * MAX as u32 {
            closed.insert(route(conv), Instant::ZERO);
        }
        assert_eq!((closed.order.len(), closed.until.len()), (MAX, MAX));
        assert!(!closed.contains(&route(0), Instant::ZERO));
        assert!(closed.contains(&route(3 * MAX as u32 - 1), Instant::ZERO));
    }
}
