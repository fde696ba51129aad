//! What is kept of agreements, and within which limits: as for half-open sessions, of the same numbers, in all and for one network.
//!
//! At the limit in all the oldest gives way if it is a second old, and so does the oldest of a network at that network's limit to who has
//! a cookie; else who comes is refused and asks again.

use alloc::{boxed::Box, collections::VecDeque, sync::Arc, vec::Vec};
use core::{net::IpAddr, time::Duration};

use super::super::{
    half_open::Limit,
    hash::{HashKey, Map},
    limit::{Bucket, NetworkLimit, Rate, network},
    routes::Route,
    shard::Shard,
};
use crate::proto::{
    Instant, KcpConfig, Random,
    agreement::CONTEXT_LEN,
    extension::SessionId,
    noise::{Generator, NoiseError, Responder, ResponderHandshake, RouteKey, SessionKeys},
};

/// How long keys wait for a packet under them: as long as a peer asks by default.
const LIFETIME: Duration = Duration::from_secs(30);
/// One that was answered in this time does not give way: its peer's first packet may be on its way.
const IDLE: Duration = Duration::from_secs(1);

/// First messages a second that are computed without a cookie, or for nothing, beyond which there is load: some 5 % of a core. A burst of
/// them may come from addresses that are false, long before the other limits are half used.
const COMPUTED_PER_SECOND: u32 = 500;

/// First messages a second with a cookie, so from where they say, that are computed for nothing for one network: some 1.5 % of a core.
/// Behind that, no others of the network are computed.
const WRONG_PER_SECOND: u32 = 100;

/// First messages of one address and conv that are kept: those that were damaged or recorded, and the true one.
const MAX_OF_ROUTE: usize = 4;
/// None of them gives way to another one sooner: with a packet lost or two, its peer's last message may still come.
const PATIENCE: Duration = Duration::from_secs(10);

/// The agreements of an endpoint.
pub(in super::super) struct Agreements {
    pub(super) responder: Arc<Responder>,
    /// Peers without key agreement are served, too.
    pub(in super::super) serves_static: bool,
    pub(super) random: Generator,
    /// By address and conv: one, or some where others came later. Each of them may be the true one.
    pending: Map<Route, Vec<Pending>>,
    /// All of them.
    count: usize,
    order: Order,
    networks: Map<u64, OfNetwork>,
    max: usize,
    max_of_network: usize,
    computed_rate: Rate,
    computed: Bucket,
    /// Those with a cookie that were computed for nothing.
    wrong: NetworkLimit,
}

/// Those of one network.
#[derive(Default)]
struct OfNetwork {
    count: usize,
    order: Order,
}

/// The agreements by the time at which they were answered first. Some may be gone.
#[derive(Default)]
struct Order(VecDeque<(Instant, Route)>);

impl Order {
    /// Adds one, as the `count`th of those that are there. What is gone leaves its place: no more of them than of those, and some.
    fn push(&mut self, since: Instant, route: Route, count: usize, all: &Map<Route, Vec<Pending>>) {
        if self.0.len() > 2 * count + 64 {
            self.0.retain(|(since, route)| {
                all.get(route).is_some_and(|all| all.iter().any(|pending| pending.since == *since))
            });
        }
        self.0.push_back((since, route));
    }

    /// Takes out the oldest, if it is so old.
    fn pop(&mut self, now: Instant, age: Duration) -> Option<(Instant, Route)> {
        let (since, _) = self.0.front()?;
        if now - *since >= age { self.0.pop_front() } else { None }
    }
}

impl core::fmt::Debug for Agreements {
    /// No secrets.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Agreements").field("pending", &self.count).finish_non_exhaustive()
    }
}

/// One first message that was answered.
pub(super) struct Pending {
    pub(super) since: Instant,
    pub(super) first: Box<[u8]>,
    /// What was said beside it. XX has no tag that would tell whether somebody has changed that.
    pub(super) context: [u8; CONTEXT_LEN],
    /// The id of this end in the answer.
    pub(super) id: SessionId,
    pub(super) answer: Box<[u8]>,
    pub(super) next: Next,
    /// It came with a cookie, so from whoever receives at its address.
    pub(super) proven: bool,
    /// A packet was opened under its keys.
    pub(super) opened: bool,
    /// When its handshake went on last although it was spent.
    pub(super) renewed: Instant,
}

pub(super) enum Next {
    Last(Box<ResponderHandshake>),
    Keys(Box<SessionKeys>),
    /// They were taken.
    Nothing,
    /// The last message came from somebody who is not trusted. It is refused as often as it comes.
    Refused(NoiseError),
}

impl Agreements {
    pub(in super::super) fn new(config: &KcpConfig, key: HashKey, random: &mut dyn Random) -> Option<Self> {
        let noise = config.noise()?;
        Some(Self {
            responder: Arc::clone(noise.responder()?),
            serves_static: noise.serves_static_peers(),
            random: Generator::new(random),
            pending: Map::with_hasher(key),
            count: 0,
            order: Order::default(),
            networks: Map::with_hasher(key),
            max: config.max_half_open(),
            max_of_network: config.max_half_open_of_network(),
            computed_rate: Rate::new(COMPUTED_PER_SECOND, COMPUTED_PER_SECOND),
            computed: Bucket::default(),
            wrong: NetworkLimit::new(Rate::new(WRONG_PER_SECOND, WRONG_PER_SECOND), key),
        })
    }

    /// What hides the routes of accepted sessions' packets.
    pub(in super::super) fn route_key(&self) -> &RouteKey {
        self.responder.route_key()
    }

    pub(in super::super) fn reseed(&mut self, random: &mut dyn Random) {
        self.random = Generator::new(random);
    }

    /// These are those of one shard: they draw something else than those of the others, which were made with the same randomness, and
    /// have their part of the limits.
    pub(in super::super) fn set_shard(&mut self, shard: &Shard) {
        self.random.set_apart(shard.index);
        self.max = shard.part_of(self.max);
        self.max_of_network = shard.part_of(self.max_of_network);
        let computed = shard.part(COMPUTED_PER_SECOND);
        self.computed_rate = Rate::new(computed, computed);
    }

    pub(in super::super) const fn len(&self) -> usize {
        self.count
    }

    pub(in super::super) fn contains(&self, route: &Route) -> bool {
        self.pending.contains_key(route)
    }

    /// Whether half of a limit is used, or many messages were computed lately.
    pub(super) fn is_under_load(&self, now: Instant, ip: IpAddr) -> bool {
        let of_network = self.of_network(ip);
        2 * self.count >= self.max
            || 2 * of_network >= self.max_of_network
            || !self.computed_rate.allows(self.computed, now)
    }

    /// Forgets those of a route that `is_over` says.
    pub(super) fn remove_if(&mut self, route: &Route, is_over: impl Fn(&Pending) -> bool) {
        let Some(of_route) = self.pending.get_mut(route) else { return };
        let before = of_route.len();
        of_route.retain(|pending| !is_over(pending));
        let removed = before - of_route.len();
        if of_route.is_empty() {
            self.pending.remove(route);
        }
        self.count -= removed;
        let network = network(route.0.ip());
        if let Some(of_network) = self.networks.get_mut(&network) {
            of_network.count -= removed;
            if of_network.count == 0 {
                self.networks.remove(&network);
            }
        }
        if self.pending.is_empty() {
            // Gives the memory of a crowd back.
            let key = *self.pending.hasher();
            (self.pending, self.networks) = (Map::with_hasher(key), Map::with_hasher(key));
            self.order = Order::default();
        }
    }

    pub(in super::super) fn expire(&mut self, now: Instant) {
        while let Some((since, route)) = self.order.pop(now, LIFETIME) {
            self.remove_if(&route, |pending| pending.since == since);
        }
    }

    pub(in super::super) fn expires_at(&self) -> Option<Instant> {
        self.order.0.front().map(|(since, _)| *since + LIFETIME)
    }

    fn of_network(&self, ip: IpAddr) -> usize {
        self.networks.get(&network(ip)).map_or(0, |of_network| of_network.count)
    }

    /// Makes room for one more of this address.
    ///
    /// # Errors
    /// The limit that is reached, where none gives way.
    pub(super) fn make_room(&mut self, now: Instant, ip: IpAddr, is_proven: bool) -> Result<(), Limit> {
        self.expire(now);
        while self.count >= self.max
            && let Some((since, route)) = self.order.pop(now, IDLE)
        {
            self.remove_if(&route, |pending| pending.since == since);
        }
        // Many may share an address, and who has no other must not be locked out by one of them.
        while is_proven
            && let Some(of_network) = self.networks.get_mut(&network(ip))
            && of_network.count >= self.max_of_network
            && let Some((since, route)) = of_network.order.pop(now, IDLE)
        {
            self.remove_if(&route, |pending| pending.since == since);
        }
        if self.of_network(ip) >= self.max_of_network {
            return Err(Limit::Network);
        }
        if self.count < self.max { Ok(()) } else { Err(Limit::All) }
    }

    /// Makes room for one more of this address and conv. Returns whether there is.
    pub(super) fn make_room_on_route(&mut self, now: Instant, route: &Route, is_proven: bool) -> bool {
        let of_route = self.of_route(route);
        if of_route.len() < MAX_OF_ROUTE {
            return true;
        }
        // This one may be a recording, and each of the others that of a peer whose next packet is late.
        let unproven = of_route.iter().find(|pending| is_proven && !pending.proven);
        let gives_way =
            unproven.or_else(|| of_route.first().filter(|pending| now - pending.since >= PATIENCE));
        let Some(id) = gives_way.map(|pending| pending.id) else { return false };
        self.remove_if(route, |pending| pending.id == id);
        true
    }

    /// A first message was computed for a sender without a cookie, or for nothing.
    pub(super) fn note_computed(&mut self, now: Instant) {
        if self.computed_rate.allows(self.computed, now) {
            self.computed_rate.take(&mut self.computed, now);
        }
    }

    /// Whether one more first message with a cookie is computed for a network.
    pub(super) fn computes_for(&self, now: Instant, ip: IpAddr) -> bool {
        self.wrong.allows(now, ip)
    }

    /// A first message with a cookie was computed for nothing.
    pub(super) fn note_wrong(&mut self, now: Instant, ip: IpAddr) {
        self.wrong.take(now, ip);
    }

    pub(super) fn insert(&mut self, route: Route, pending: Pending) {
        let since = pending.since;
        self.count += 1;
        self.order.push(since, route, self.count, &self.pending);
        let of_network = self.networks.entry(network(route.0.ip())).or_default();
        of_network.count += 1;
        of_network.order.push(since, route, of_network.count, &self.pending);
        self.pending.entry(route).or_default().push(pending);
    }

    /// What was answered on a route, the oldest first.
    pub(super) fn of_route(&mut self, route: &Route) -> &mut [Pending] {
        self.pending.get_mut(route).map_or(&mut [], |pending| pending)
    }

    /// Whether a packet of this route opens under keys that wait for one. It can be opened once more.
    pub(super) fn opens(&mut self, route: &Route, packet: &[u8]) -> bool {
        let mut copy = Vec::new();
        let of_route = self.of_route(route);
        of_route.iter_mut().for_each(|pending| pending.opened = false);
        of_route.iter_mut().any(|pending| {
            let Next::Keys(keys) = &mut pending.next else { return false };
            copy.clear();
            copy.extend_from_slice(packet);
            pending.opened = keys.peek(route.1, &mut copy).is_ok();
            pending.opened
        })
    }

    /// Whether nobody has agreed on this route since those whose packet was opened have.
    pub(super) fn is_newest_opened(&mut self, route: &Route) -> bool {
        self.of_route(route).last().is_some_and(|pending| pending.opened)
    }

    /// Forgets those whose packet was opened, and what is older than they are.
    pub(super) fn remove_to_opened(&mut self, route: &Route) {
        let of_route = self.of_route(route);
        let opened = of_route.iter().position(|pending| pending.opened).map_or(0, |at| at + 1);
        for id in of_route.iter().take(opened).map(|pending| pending.id).collect::<Vec<_>>() {
            self.remove_if(route, |pending| pending.id == id);
        }
    }

    /// The keys under which a packet was opened.
    pub(super) fn take_keys(&mut self, route: &Route) -> Option<Box<SessionKeys>> {
        self.of_route(route).iter_mut().filter(|pending| pending.opened).find_map(|pending| {
            match core::mem::replace(&mut pending.next, Next::Nothing) {
                Next::Keys(keys) => Some(keys),
                other => {
                    pending.next = other;
                    None
                }
            }
        })
    }

    /// Keeps keys that were taken, for the next packet under them.
    pub(super) fn return_keys(&mut self, route: &Route, keys: Box<SessionKeys>) {
        let mut of_route = self.of_route(route).iter_mut();
        if let Some(pending) =
            of_route.find(|pending| pending.opened && matches!(pending.next, Next::Nothing))
        {
            (pending.next, pending.opened) = (Next::Keys(keys), false);
        }
    }
}
