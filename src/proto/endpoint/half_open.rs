//! Accepted sessions whose peers have not shown yet that they hear this end, and how many of them there may be.
//!
//! Anybody can begin sessions in the names of others. Those that nobody else has a part in stay *half-open* until they die, so there
//! is a limit to them: in all, and for one network, since one host has no more than that. Sessions that were validated do not count.
//! Many users may stand behind one address, and no attacker takes their place.
//!
//! Where a limit is reached, the oldest half-open session gives way from whose peer nothing has come for [`IDLE`], or that has been
//! half-open for [`PATIENCE`], whatever came: a forger can send as often as it likes, and needs 24 bytes for that. Otherwise the new
//! one is refused, and its peer tries again. As long as there is room nobody gives way.
//!
//! From half of a limit on, the port is *under load*: a peer with our extensions is asked for a cookie (`cookie.rs`), and with it, its
//! session is not half-open at all. So the other half is left to the peers that know no cookies.
//!
//! Of several [shards](super::shard) each has its part of both limits, and counts its own. They do not count together: only a session of
//! the same shard can give way, so one host whose packets all arrive at one shard could take all places, and the others would have to
//! turn away everybody for as long as it keeps them. With a part each, whoever is refused finds somebody at the same shard who gives way
//! within [`PATIENCE`]; all shards together have no more than the limit at any time, and nothing is shared with them for that. What it
//! costs: who sends everything from one socket, or comes to a shard that others have filled, has no use of what is free elsewhere.

mod message_turns;

use alloc::collections::VecDeque;
use core::{net::IpAddr, time::Duration};

use self::message_turns::MessageTurns;
use super::{
    hash::{HashKey, Map},
    limit::network,
    routes::Handle,
    shard::Shard,
};
use crate::proto::Instant;

/// A half-open session does not give way if its peer was heard in this time. Its answer may be on its way.
const IDLE: Duration = Duration::from_secs(1);
/// A session that has been half-open for so long gives way although its peer is heard. By then that was asked at least six times to
/// show that it hears this end: by probes, where there is nothing else to acknowledge (`path::validation`).
const PATIENCE: Duration = Duration::from_secs(10);
/// Sessions that are looked at for one that gives way. Those looked at go to the end.
const LOOKS: usize = 8;

/// The half-open sessions of an endpoint.
#[derive(Debug)]
pub(super) struct HalfOpen {
    max: usize,
    max_of_network: usize,
    sessions: Map<Handle, HalfOpenSession>,
    order: Order,
    networks: Map<u64, Order>,
    message_turns: MessageTurns,
}

#[derive(Debug)]
struct HalfOpenSession {
    network: u64,
    since: Instant,
    /// When packets came for it last.
    heard_at: Instant,
    /// Where it began with early data: what tells the message from others.
    #[cfg(feature = "noise")]
    message: Option<u64>,
}

impl HalfOpenSession {
    fn is_evictable(&self, now: Instant) -> bool {
        now - self.heard_at >= IDLE || now - self.since >= PATIENCE
    }
}

/// Which limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// That of all.
    All,
    /// That of one network.
    Network,
}

/// Sessions, the oldest first. Those that are no longer half-open are left out when they are met.
#[derive(Debug, Default)]
struct Order {
    handles: VecDeque<Handle>,
    /// How many of them are half-open.
    count: usize,
}

impl HalfOpen {
    pub(super) fn new(max: usize, max_of_network: usize, key: HashKey) -> Self {
        Self {
            max,
            max_of_network,
            sessions: Map::with_hasher(key),
            order: Order::default(),
            networks: Map::with_hasher(key),
            message_turns: MessageTurns::new(key, None),
        }
    }

    /// They are those of one shard, which has its part of the limits.
    pub(super) fn set_shard(&mut self, shard: &Shard) {
        self.message_turns = MessageTurns::new(*self.sessions.hasher(), Some(shard));
        self.max = shard.part_of(self.max);
        self.max_of_network = shard.part_of(self.max_of_network);
    }

    /// How many there are of one network.
    fn count_of(&self, network: u64) -> usize {
        self.networks.get(&network).map_or(0, |order| order.count)
    }

    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether a peer at this address is asked for a cookie, if it can have one.
    pub(super) fn is_under_load(&self, ip: IpAddr) -> bool {
        let of_network = self.count_of(network(ip));
        self.len() >= self.max.div_ceil(2) || of_network >= self.max_of_network.div_ceil(2)
    }

    /// Whether a session of this address may be added, and which one gives way to it.
    ///
    /// # Errors
    /// The limit that is reached, where none gives way.
    pub(super) fn make_room(&mut self, now: Instant, ip: IpAddr) -> Result<Option<Handle>, Limit> {
        let network = network(ip);
        if self.count_of(network) >= self.max_of_network {
            let order = self.networks.get_mut(&network);
            return order
                .and_then(|order| order.oldest_evictable(now, &self.sessions))
                .map(Some)
                .ok_or(Limit::Network);
        }
        if self.len() >= self.max {
            return self.oldest_evictable(now).map(Some).ok_or(Limit::All);
        }
        Ok(None)
    }

    /// The session that gives way to others, if one does.
    pub(super) fn oldest_evictable(&mut self, now: Instant) -> Option<Handle> {
        self.order.oldest_evictable(now, &self.sessions)
    }

    /// Adds a session that was accepted.
    pub(super) fn insert(&mut self, now: Instant, handle: Handle, ip: IpAddr) {
        let network = network(ip);
        let session = HalfOpenSession {
            network,
            since: now,
            heard_at: now,
            #[cfg(feature = "noise")]
            message: None,
        };
        self.sessions.insert(handle, session);
        self.order.push(handle);
        self.networks.entry(network).or_default().push(handle);
    }

    /// When a session that begins with so many `bytes` from this address may send a message beyond three times of them.
    pub(super) fn message_at(&self, now: Instant, ip: IpAddr, bytes: usize) -> Instant {
        self.message_turns.next(now, ip, bytes)
    }

    /// Takes that turn for a session that was accepted.
    pub(super) fn take_message_turn(&mut self, now: Instant, ip: IpAddr, bytes: usize) {
        self.message_turns.take(now, ip, bytes);
    }

    /// Says which message a session began with.
    #[cfg(feature = "noise")]
    pub(super) fn set_message(&mut self, handle: Handle, message: u64) {
        if let Some(session) = self.sessions.get_mut(&handle) {
            session.message = Some(message);
        }
    }

    #[cfg(feature = "noise")]
    pub(super) fn message(&self, handle: Handle) -> Option<u64> {
        self.sessions.get(&handle)?.message
    }

    /// Notes that packets came for a session.
    pub(super) fn note_heard(&mut self, now: Instant, handle: Handle) {
        if let Some(session) = self.sessions.get_mut(&handle) {
            session.heard_at = now;
        }
    }

    /// A session has ended or was validated.
    pub(super) fn remove(&mut self, handle: Handle) {
        let Some(HalfOpenSession { network, .. }) = self.sessions.remove(&handle) else { return };
        self.order.forget_one(&self.sessions);
        if let Some(order) = self.networks.get_mut(&network) {
            order.forget_one(&self.sessions);
            if order.count == 0 {
                self.networks.remove(&network);
            }
        }
        if self.sessions.is_empty() {
            // A crowd leaves no memory behind.
            let key = *self.sessions.hasher();
            self.sessions = Map::with_hasher(key);
            self.order = Order::default();
            self.networks = Map::with_hasher(key);
        }
    }
}

impl Order {
    fn push(&mut self, handle: Handle) {
        self.handles.push_back(handle);
        self.count += 1;
    }

    /// One of the sessions is no longer half-open.
    fn forget_one(&mut self, sessions: &Map<Handle, HalfOpenSession>) {
        self.count = self.count.saturating_sub(1);
        if self.handles.len() > 2 * self.count + 16 {
            self.handles.retain(|handle| sessions.contains_key(handle));
        }
    }

    /// The oldest session that gives way. Those that are looked at go to the end.
    fn oldest_evictable(&mut self, now: Instant, sessions: &Map<Handle, HalfOpenSession>) -> Option<Handle> {
        let (mut looks, max) = (0, LOOKS.min(self.count));
        while looks < max {
            let handle = self.handles.pop_front()?;
            let Some(session) = sessions.get(&handle) else { continue };
            self.handles.push_back(handle);
            if session.is_evictable(now) {
                return Some(handle);
            }
            looks += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::proto::endpoint::{
        record::FirstPush,
        routes::{Role, Routes},
    };

    fn ip(host: u32) -> IpAddr {
        IpAddr::from(host.to_be_bytes())
    }

    fn handles(count: u32) -> Vec<Handle> {
        let mut routes = Routes::new(HashKey::for_tests());
        let mut add =
            |conv| routes.insert(((ip(1), 1).into(), conv), Role::Accepted, 0, FirstPush::default());
        (0..count).map(&mut add).collect()
    }

    const NOW: Instant = Instant::from_millis(5_000);

    #[test]
    fn the_oldest_idle_session_gives_way_at_the_limit_of_all() {
        let handles = handles(4);
        let mut half_open = HalfOpen::new(3, 3, HashKey::for_tests());
        for (host, handle) in handles.iter().take(3).enumerate() {
            assert_eq!(half_open.make_room(NOW, ip(host as u32)), Ok(None));
            half_open.insert(NOW, *handle, ip(host as u32));
        }
        assert_eq!(half_open.make_room(NOW, ip(9)), Err(Limit::All), "their answers may be on their way");
        half_open.note_heard(NOW + IDLE, handles[0]);
        assert_eq!(half_open.make_room(NOW + IDLE, ip(9)), Ok(Some(handles[1])));
        half_open.remove(handles[1]);
        assert_eq!(half_open.make_room(NOW + IDLE, ip(9)), Ok(None));
        half_open.insert(NOW + IDLE, handles[3], ip(9));
        assert_eq!(half_open.make_room(NOW + IDLE, ip(9)), Ok(Some(handles[2])));
    }

    #[test]
    fn who_is_half_open_for_long_gives_way_whatever_is_heard() {
        let handles = handles(2);
        let mut half_open = HalfOpen::new(2, 2, HashKey::for_tests());
        half_open.insert(NOW, handles[0], ip(0));
        half_open.insert(NOW + IDLE, handles[1], ip(1));
        for hundredth in 1..=100 {
            let now = NOW + PATIENCE * hundredth / 100;
            handles.iter().for_each(|handle| half_open.note_heard(now, *handle));
            let expected = if hundredth < 100 { Err(Limit::All) } else { Ok(Some(handles[0])) };
            assert_eq!(half_open.make_room(now, ip(9)), expected, "{hundredth}");
        }
    }

    #[test]
    fn one_network_has_a_limit_of_its_own() {
        let handles = handles(3);
        let mut half_open = HalfOpen::new(100, 2, HashKey::for_tests());
        half_open.insert(NOW, handles[0], ip(1));
        half_open.insert(NOW + IDLE, handles[1], ip(1));
        assert_eq!(half_open.make_room(NOW, ip(1)), Err(Limit::Network));
        assert_eq!(half_open.make_room(NOW, ip(2)), Ok(None), "others have room");
        assert_eq!(half_open.make_room(NOW + IDLE, ip(1)), Ok(Some(handles[0])));
        half_open.remove(handles[0]);
        assert_eq!(half_open.make_room(NOW + IDLE, ip(1)), Ok(None), "who is validated does not count");
    }

    #[test]
    fn load_begins_at_half_of_a_limit() {
        let handles = handles(3);
        let mut half_open = HalfOpen::new(6, 2, HashKey::for_tests());
        assert!(!half_open.is_under_load(ip(1)));
        half_open.insert(NOW, handles[0], ip(1));
        assert!(half_open.is_under_load(ip(1)) && !half_open.is_under_load(ip(2)));
        half_open.insert(NOW, handles[1], ip(2));
        half_open.insert(NOW, handles[2], ip(3));
        assert!(half_open.is_under_load(ip(4)));
    }

    #[test]
    fn a_crowd_leaves_no_memory_behind() {
        let handles = handles(1_000);
        let mut half_open = HalfOpen::new(10_000, 10_000, HashKey::for_tests());
        for handle in &handles {
            half_open.insert(NOW, *handle, ip(1));
        }
        for handle in &handles[1..] {
            half_open.remove(*handle);
        }
        assert!(half_open.order.handles.len() < 40, "{}", half_open.order.handles.len());
        half_open.remove(handles[0]);
        assert_eq!(
            (half_open.len(), half_open.sessions.capacity(), half_open.networks.capacity()),
            (0, 0, 0)
        );
    }
}
