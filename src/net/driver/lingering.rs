//! The sessions whose streams were dropped and that still deliver what was written.
//!
//! They hold memory that nobody waits for, and a peer that has vanished keeps them for as long as
//! [`linger`](crate::KcpConfigBuilder::linger). So there is a limit to it, as there is to the orphans of TCP. Where it is
//! passed, the sessions that have lingered longest are given up: their peers are the most likely to have vanished.

use std::collections::VecDeque;

use crate::proto::Handle;

/// The sessions that linger, those that have done so longest first.
#[derive(Debug)]
pub(super) struct Lingering {
    /// Those that are gone stay in it until they come to its front, or until they are most of it.
    queue: VecDeque<Handle>,
    count: usize,
    cost: usize,
    max_cost: usize,
}

/// Most memory of lingering sessions.
const MAX_COST: usize = 256 << 20;
/// What a session costs beside the bytes that it is to deliver. It also limits how many may linger: 32,768.
const SESSION_COST: usize = 8 << 10;
/// Handles of sessions that are gone which the queue keeps at most beside those that linger.
const MAX_GONE: usize = 64;

impl Lingering {
    /// No sessions, of one of so many drivers, each of which has its part of the memory.
    pub(super) const fn of_one_in(drivers: usize) -> Self {
        Self { queue: VecDeque::new(), count: 0, cost: 0, max_cost: MAX_COST / drivers }
    }

    /// A session with `bytes` to deliver lingers from now on. Returns what it costs, for [`remove`](Self::remove).
    pub(super) fn add(&mut self, handle: Handle, bytes: usize) -> usize {
        let cost = SESSION_COST + bytes;
        self.queue.push_back(handle);
        self.count += 1;
        self.cost += cost;
        cost
    }

    /// A session that cost as much is gone. `lingers` says of a handle whether its session still does.
    pub(super) fn remove(&mut self, cost: usize, lingers: impl Fn(Handle) -> bool) {
        self.count -= 1;
        self.cost -= cost;
        if self.queue.len() > 2 * self.count + MAX_GONE {
            self.queue.retain(|handle| lingers(*handle));
            self.queue.shrink_to(2 * self.queue.len());
        }
    }

    /// The session to be given up, if they cost too much: the first of those that still linger. The newest stays, whatever it
    /// costs.
    pub(super) fn excess(&mut self, lingers: impl Fn(Handle) -> bool) -> Option<Handle> {
        while self.cost > self.max_cost && self.count > 1 {
            let oldest = self.queue.pop_front()?;
            if lingers(oldest) {
                return Some(oldest);
            }
        }
        None
    }

    /// How many sessions linger.
    pub(super) const fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashMap, vec::Vec};

    use super::*;
    use crate::{net::entropy, proto::Endpoint};

    fn handles(count: u16) -> Vec<Handle> {
        let mut endpoint = Endpoint::new(&mut entropy::draw::<{ Endpoint::RANDOM_BYTES }>().unwrap());
        (0..count).map(|port| endpoint.connect(([127, 0, 0, 1], 1 + port).into(), 1, None).unwrap()).collect()
    }

    #[test]
    fn the_oldest_are_given_up_until_the_others_cost_little_enough() {
        let handles = handles(4);
        let mut lingering = Lingering::of_one_in(1);
        let mut costs = HashMap::new();
        for handle in &handles {
            costs.insert(*handle, lingering.add(*handle, 100 << 20));
        }
        // The second has delivered everything meanwhile.
        let cost = costs.remove(&handles[1]).unwrap();
        lingering.remove(cost, |handle| costs.contains_key(&handle));
        let mut given_up = Vec::new();
        while let Some(handle) = lingering.excess(|handle| costs.contains_key(&handle)) {
            given_up.push(handle);
            let cost = costs.remove(&handle).unwrap();
            lingering.remove(cost, |handle| costs.contains_key(&handle));
        }
        assert_eq!((given_up, lingering.count()), (Vec::from([handles[0]]), 2));
    }

    #[test]
    fn a_single_session_may_cost_more() {
        let handle = handles(1)[0];
        let mut lingering = Lingering::of_one_in(1);
        lingering.add(handle, 2 * MAX_COST);
        assert_eq!(lingering.excess(|_| true), None);
    }

    #[test]
    fn sessions_that_are_gone_do_not_pile_up_behind_one_that_is_not() {
        let handles = handles(1_000);
        let mut lingering = Lingering::of_one_in(1);
        lingering.add(handles[0], 1);
        for handle in &handles[1..] {
            let cost = lingering.add(*handle, 1);
            lingering.remove(cost, |other| other == handles[0]);
        }
        assert_eq!((lingering.count(), lingering.cost), (1, SESSION_COST + 1));
        assert!(lingering.queue.len() <= 2 + MAX_GONE, "{} in the queue", lingering.queue.len());
    }
}
