//! Peers that agree on keys with this end and have no session yet: the state of R93 in `docs/secure-sessions.md`.
//!
//! A first message comes from an address that may be false, and may have been recorded. So nothing is offered to the caller for it, and
//! nothing that lives is touched. It is answered, and what comes of that is kept here until a packet opens under the keys: then its
//! sender has the answer, and a session begins. Everything that costs nothing is looked at before anything is computed: whether
//! sessions are accepted, whether it was answered before, the cookie, and whether there is room.
//!
//! There are limits as for half-open sessions, of the same numbers: in all, and for one network. At the one in all the oldest gives way if
//! it is a second old, and so does the oldest of a network at that network's to who has a cookie; else who comes is refused and asks again.

use alloc::{boxed::Box, collections::VecDeque, sync::Arc, vec, vec::Vec};
use core::{
    net::{IpAddr, SocketAddr},
    ops::Range,
    time::Duration,
};

use super::{
    Endpoint, Incoming, Reply, Routed, Run,
    hash::{HashKey, Map},
    limit::{Bucket, Rate, network},
    offers::Offer,
    record::FirstPush,
    routes::{Handle, Route, Routes, SEALED_TAG},
    sealed_records::SealedRecords,
    shard::Shard,
    stateless::Answer,
};
use crate::proto::{
    AbortReason, CookiePolicy, Instant, KcpConfig, Random,
    agreement::{CONTEXT_LEN, Clear, Greeting, MIN_HELLO, is_clear, own_context, parse, write_answer},
    extension::SessionId,
    noise::{AnswerNext, Generator, NoiseError, Responder, ResponderHandshake, SessionKeys},
    trace::tell,
};

/// How long keys wait for a packet under them: as long as a peer asks by default.
const LIFETIME: Duration = Duration::from_secs(30);
/// One that was answered in this time does not give way: its peer's first packet may be on its way.
const IDLE: Duration = Duration::from_secs(1);

/// First messages a second that are computed without a cookie, or for nothing, beyond which there is load: some 5 % of a core. A burst of
/// them may come from addresses that are false, long before the other limits are half used.
const COMPUTED_PER_SECOND: u32 = 500;

/// How often a handshake whose last messages are almost right goes on, once it is [spent](ResponderHandshake::is_spent): its peer sends
/// the true one twice a second.
const RENEWAL: Duration = Duration::from_millis(250);

/// First messages of one address and conv that are kept: those that were damaged or recorded, and the true one.
const MAX_OF_ROUTE: usize = 4;
/// None of them gives way to another one sooner: with a packet lost or two, its peer's last message may still come.
const PATIENCE: Duration = Duration::from_secs(10);

/// The agreements of an endpoint.
pub(super) struct Agreements {
    responder: Arc<Responder>,
    /// Peers without key agreement are served, too.
    pub(super) serves_static: bool,
    random: Generator,
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
struct Pending {
    since: Instant,
    first: Box<[u8]>,
    /// What was said beside it. XX has no tag that would tell whether somebody has changed that.
    context: [u8; CONTEXT_LEN],
    /// The id of this end in the answer.
    id: SessionId,
    answer: Box<[u8]>,
    next: Next,
    /// It came with a cookie, so from whoever receives at its address.
    proven: bool,
    /// A packet was opened under its keys.
    opened: bool,
    /// When its handshake went on last although it was spent.
    renewed: Instant,
}

enum Next {
    Last(Box<ResponderHandshake>),
    Keys(Box<SessionKeys>),
    /// They were taken.
    Nothing,
    /// The last message came from somebody who is not trusted. It is refused as often as it comes.
    Refused(NoiseError),
}

impl Agreements {
    pub(super) fn new(config: &KcpConfig, key: HashKey, random: &mut dyn Random) -> Option<Self> {
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
        })
    }

    pub(super) fn reseed(&mut self, random: &mut dyn Random) {
        self.random = Generator::new(random);
    }

    /// These are those of one shard: they draw something else than those of the others, which were made with the same randomness, and
    /// have their part of the limits.
    pub(super) fn set_shard(&mut self, shard: &Shard) {
        self.random.set_apart(shard.index);
        self.max = shard.part_of(self.max);
        self.max_of_network = shard.part_of(self.max_of_network);
        let computed = shard.part(COMPUTED_PER_SECOND);
        self.computed_rate = Rate::new(computed, computed);
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) fn contains(&self, route: &Route) -> bool {
        self.pending.contains_key(route)
    }

    /// Whether half of a limit is used, or many messages were computed lately.
    fn is_under_load(&self, now: Instant, ip: IpAddr) -> bool {
        let of_network = self.of_network(ip);
        2 * self.count >= self.max
            || 2 * of_network >= self.max_of_network
            || !self.computed_rate.allows(self.computed, now)
    }

    /// Forgets those of a route that `is_over` says.
    fn remove_if(&mut self, route: &Route, is_over: impl Fn(&Pending) -> bool) {
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

    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((since, route)) = self.order.pop(now, LIFETIME) {
            self.remove_if(&route, |pending| pending.since == since);
        }
    }

    pub(super) fn expires_at(&self) -> Option<Instant> {
        self.order.0.front().map(|(since, _)| *since + LIFETIME)
    }

    fn of_network(&self, ip: IpAddr) -> usize {
        self.networks.get(&network(ip)).map_or(0, |of_network| of_network.count)
    }

    /// Makes room for one more of this address. Returns whether there is.
    fn make_room(&mut self, now: Instant, ip: IpAddr, is_proven: bool) -> bool {
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
        self.count < self.max && self.of_network(ip) < self.max_of_network
    }

    fn insert(&mut self, route: Route, pending: Pending) {
        let since = pending.since;
        self.count += 1;
        self.order.push(since, route, self.count, &self.pending);
        let of_network = self.networks.entry(network(route.0.ip())).or_default();
        of_network.count += 1;
        of_network.order.push(since, route, of_network.count, &self.pending);
        self.pending.entry(route).or_default().push(pending);
    }

    /// What was answered on a route, the oldest first.
    fn of_route(&mut self, route: &Route) -> &mut [Pending] {
        self.pending.get_mut(route).map_or(&mut [], |pending| pending)
    }

    /// Whether a packet of this route opens under keys that wait for one. It can be opened once more.
    fn opens(&mut self, route: &Route, packet: &[u8]) -> bool {
        let mut copy = Vec::new();
        self.of_route(route).iter_mut().any(|pending| {
            let Next::Keys(keys) = &mut pending.next else { return false };
            copy.clear();
            copy.extend_from_slice(packet);
            pending.opened = keys.peek(&mut copy).is_ok();
            pending.opened
        })
    }

    /// The keys under which a packet was opened.
    fn take_keys(&mut self, route: &Route) -> Option<Box<SessionKeys>> {
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
    fn return_keys(&mut self, route: &Route, keys: Box<SessionKeys>) {
        let mut of_route = self.of_route(route).iter_mut();
        if let Some(pending) =
            of_route.find(|pending| pending.opened && matches!(pending.next, Next::Nothing))
        {
            (pending.next, pending.opened) = (Next::Keys(keys), false);
        }
    }
}

/// Whether a packet of this route is sealed or in the clear, and not of a peer without key agreement. Of a session that has moved it is
/// known where there are no such peers: theirs may begin with any number.
#[inline]
pub(super) fn is_sealed(
    route: &Route,
    routes: &Routes,
    agreements: Option<&Agreements>,
    records: Option<&SealedRecords>,
) -> bool {
    if !routes.any_sealed && agreements.is_none() {
        return false;
    }
    routes.find(route).map_or_else(
        || {
            agreements.is_some_and(|agreements| agreements.contains(route))
                || records.is_some_and(|records| records.contains(route))
                || (!agreements.is_some_and(|agreements| agreements.serves_static)
                    && routes.find_by_tag(route.1, SEALED_TAG).is_some())
        },
        |handle| routes.get(handle).is_some_and(|entry| entry.sealed),
    )
}

/// What becomes of a packet.
enum Fate {
    /// It is none of an agreement.
    Other,
    /// It was one, and nothing is to be sent.
    Done,
    Replied(Reply),
    /// It was opened, and begins a session.
    Opened,
}

impl Endpoint {
    /// Has the key agreement of accepted sessions draw from `random` from here on. It has drawn from that of
    /// [`accepting`](Self::accepting) before. Where several endpoints were made with the same randomness, as those of
    /// [shards](Self::accepting_as_shard) are, each must be given its own.
    pub fn reseed_noise(&mut self, random: &mut dyn Random) {
        if let Some(agreements) = &mut self.agreements {
            agreements.reseed(random);
        }
    }

    /// The keys of the session that [`poll_routed`](Self::poll_routed) has just returned as [`Routed::Incoming`], where it
    /// [is sealed](Incoming::sealed): for [`Connection::accept_with_keys`](crate::proto::Connection::accept_with_keys). To be called
    /// once, before [`accept`](Self::accept). If the session is refused afterwards, its peer has to begin anew, unless they are
    /// [given back](Self::return_session_keys).
    pub fn take_session_keys(&mut self) -> Option<Box<SessionKeys>> {
        let incoming = self.offered.as_ref()?.incoming;
        self.agreements.as_mut()?.take_keys(&(incoming.source, incoming.conv))
    }

    /// Gives back what [`take_session_keys`](Self::take_session_keys) has returned, where the session is refused for want of room and
    /// nothing was sent with them: its peer sends again, and is offered again.
    pub fn return_session_keys(&mut self, keys: Box<SessionKeys>) {
        let Some(incoming) = self.offered.as_ref().map(|offer| offer.incoming) else { return };
        if let Some(agreements) = &mut self.agreements {
            agreements.return_keys(&(incoming.source, incoming.conv), keys);
        }
    }

    /// Says that the packets of a session that was [begun here](Self::connect) are opened by its connection: of one made by
    /// [`Connection::connect_with_noise`](crate::proto::Connection::connect_with_noise).
    pub fn set_sealed(&mut self, handle: Handle) {
        self.routes.set_sealed(handle);
    }

    /// How many peers are agreeing on keys and have no session yet.
    #[must_use]
    pub fn agreeing(&self) -> usize {
        self.agreements.as_ref().map_or(0, |agreements| agreements.len())
    }

    /// Whether the packets of a batch are to be left as they are, although accepted sessions have a cipher: they are opened by their
    /// sessions, or are in the clear. The first one tells: nobody sends both kinds from one address.
    pub(super) fn leaves_sealed(&self, source: SocketAddr, bytes: &[u8], stride: usize) -> bool {
        let Some(agreements) = &self.agreements else { return false };
        if self.decryptor.accepted().current().is_none() {
            return false;
        }
        let packet = &bytes[..bytes.len().min(stride)];
        let Some(conv) = packet.first_chunk().map(|conv| u32::from_le_bytes(*conv)) else { return false };
        let route = (source, conv);
        is_sealed(&route, &self.routes, Some(agreements), self.sealed_records.as_deref())
            || self.routes.find(&route).is_none() && self.routes.find_by_tag(conv, SEALED_TAG).is_some()
            || is_clear(packet) && self.routes.find(&route).is_none()
    }

    /// What becomes of a run of no session, as far as it is of an agreement or of a sealed session.
    pub(super) fn route_sealed(
        &mut self,
        now: Instant,
        conv: u32,
        bytes: &[u8],
        range: &Range<usize>,
    ) -> Option<Option<Routed>> {
        let stride = self.batch.stride;
        if self.sealed_records.as_ref().is_some_and(|records| records.contains(&(self.batch.source, conv))) {
            // A run of packets draws one answer.
            let packets = bytes[range.clone()].chunks(stride);
            let mut asked = None;
            for packet in packets {
                let answered = self.ask_sealed_record(now, conv, packet);
                if let Some(Some(reply)) = answered {
                    return Some(Some(Routed::Reply(reply)));
                }
                asked = asked.or(answered);
            }
            if asked.is_some() {
                return Some(None);
            }
        }
        let serves_static = self.agreements.as_ref()?.serves_static;
        let mut is_other = true;
        for (nth, packet) in bytes[range.clone()].chunks(stride).enumerate() {
            match self.take_agreement(now, conv, packet) {
                Fate::Other => continue,
                Fate::Done => {}
                Fate::Replied(reply) => return Some(Some(Routed::Reply(reply))),
                Fate::Opened => {
                    let range = range.start + nth * stride..range.end;
                    return Some(self.offer_sealed(now, conv, range));
                }
            }
            is_other = false;
        }
        if !is_other {
            return Some(None);
        }
        let source = self.batch.source;
        let may_be_sealed = self.batch.raw || self.decryptor.accepted().current().is_none();
        if let Some(handle) =
            self.routes.find_by_tag(conv, SEALED_TAG).filter(|_| may_be_sealed && source.port() != 0)
        {
            let run = Run { handle, range: range.clone(), stride };
            return Some(Some(Routed::FromElsewhere(run, source)));
        }
        if serves_static && !self.batch.raw {
            return None;
        }
        self.stats.dropped_no_session += range.len().div_ceil(stride) as u64;
        Some(None)
    }

    fn take_agreement(&mut self, now: Instant, conv: u32, packet: &[u8]) -> Fate {
        let route = (self.batch.source, conv);
        let Some(agreements) = &mut self.agreements else { return Fate::Other };
        agreements.expire(now);
        match parse(packet) {
            Some(Clear::Hello { ts, cookie, greeting }) => {
                self.answer_hello(now, conv, packet.len(), ts, cookie, &greeting)
            }
            Some(Clear::Last { tag, message }) => {
                let mut of_route = agreements.of_route(&route).iter_mut();
                let Some(pending) = of_route.find(|pending| pending.id.tag() == tag) else {
                    return Fate::Done;
                };
                let error = match &mut pending.next {
                    Next::Last(handshake) => {
                        if handshake.is_spent() {
                            if now - pending.renewed < RENEWAL {
                                return Fate::Done;
                            }
                            pending.renewed = now;
                            handshake.renew();
                        }
                        match handshake.read_last(message) {
                            Ok(keys) => {
                                pending.next = Next::Keys(Box::new(keys));
                                return Fate::Done;
                            }
                            Err(error) => {
                                if handshake.is_over() {
                                    pending.next = Next::Refused(error);
                                }
                                error
                            }
                        }
                    }
                    Next::Refused(error) => *error,
                    Next::Keys(_) | Next::Nothing => return Fate::Done,
                };
                let id = pending.id;
                self.refuse_message(now, conv, packet.len(), id, (tag, 0), error)
            }
            Some(_) => Fate::Done,
            None if agreements.opens(&route, packet) => Fate::Opened,
            None => Fate::Other,
        }
    }

    fn answer_hello(
        &mut self,
        now: Instant,
        conv: u32,
        len: usize,
        ts: u32,
        cookie: Option<&[u8]>,
        greeting: &Greeting<'_>,
    ) -> Fate {
        let (source, route) = (self.batch.source, (self.batch.source, conv));
        let echo = (greeting.id.tag(), ts);
        // No peer of ours sends less, and an answer might not fit (R107).
        if source.port() == 0 || len < MIN_HELLO {
            self.stats.dropped_no_session += 1;
            return Fate::Done;
        }
        let reply = |reply: Option<Reply>| reply.map_or(Fate::Done, Fate::Replied);
        if !self.is_accepting() {
            self.stats.dropped_no_session += 1;
            let allowed = self.limits.take_stateless(now, source);
            let answer = Answer::Abort { reason: AbortReason::Refused.code(), tag: greeting.id.tag() };
            return reply(self.answer(now, conv, answer, len, allowed));
        }
        let Some(agreements) = &mut self.agreements else { return Fate::Other };
        agreements.expire(now);
        let of_route = agreements.of_route(&route);
        let is_same =
            |pending: &&Pending| *pending.first == *greeting.message && pending.context == greeting.context;
        if let Some(pending) = of_route.iter().find(is_same) {
            // With another answer, the peer could have keys that this end has not.
            let (id, answer) = (pending.id, pending.answer.clone());
            return reply(self.send_answer(conv, len, id, echo, &answer));
        }
        let is_proven =
            cookie.is_some_and(|cookie| self.cookies.is_valid(now, cookie, source, conv, greeting.id));
        let is_loaded = || {
            self.backlogged
                || agreements.is_under_load(now, source.ip())
                || self.half_open.is_under_load(source.ip())
        };
        let is_asked = match self.cookie_policy {
            CookiePolicy::Never => false,
            // A second one for the same session: one of them is a recording, or of a peer that has begun anew.
            CookiePolicy::UnderLoad => agreements.contains(&route) || is_loaded(),
            CookiePolicy::Always => true,
        };
        if is_asked && !is_proven {
            self.stats.dropped_no_cookie += 1;
            self.stats.retries += 1;
            tell!(refused(source, conv, "no_cookie", 1));
            let cookie = self.cookies.make(now, source, conv, greeting.id);
            let answer = Answer::Retry { cookie, tag: greeting.id.tag(), ts };
            return reply(self.answer(now, conv, answer, len, true));
        }
        let of_route = agreements.of_route(&route);
        if of_route.len() >= MAX_OF_ROUTE {
            // This one may be a recording, and each of the others that of a peer whose next packet is late.
            let unproven = of_route.iter().find(|pending| is_proven && !pending.proven);
            let gives_way =
                unproven.or_else(|| of_route.first().filter(|pending| now - pending.since >= PATIENCE));
            let Some(id) = gives_way.map(|pending| pending.id) else {
                self.stats.dropped_no_session += 1;
                return Fate::Done;
            };
            agreements.remove_if(&route, |pending| pending.id == id);
        }
        if !agreements.make_room(now, source.ip(), is_proven) {
            self.stats.dropped_max_half_open += 1;
            tell!(refused(source, conv, "max_half_open", 1));
            return Fate::Done;
        }
        let mut id = [0; 8];
        agreements.random.fill(&mut id);
        let id = SessionId::non_zero(id);
        let answered = agreements.responder.answer(
            greeting.message,
            &greeting.context,
            &own_context(conv, id),
            &mut agreements.random,
        );
        let counts = match &answered {
            Ok(_) => !is_proven,
            Err(error) => matches!(error, NoiseError::WrongPsk | NoiseError::Forged | NoiseError::WeakKey),
        };
        if counts && agreements.computed_rate.allows(agreements.computed, now) {
            agreements.computed_rate.take(&mut agreements.computed, now);
        }
        match answered {
            Ok(answer) => {
                let next = match answer.next {
                    AnswerNext::Session(keys) => Next::Keys(Box::new(keys)),
                    AnswerNext::Last(handshake) => Next::Last(Box::new(handshake)),
                };
                let (message, answer) = (answer.message.clone(), answer.message.into());
                let (first, context) = (greeting.message.into(), greeting.context);
                let (since, proven) = (now, is_proven);
                let (opened, renewed) = (false, now);
                let pending = Pending { since, first, context, id, answer, next, proven, opened, renewed };
                agreements.insert(route, pending);
                reply(self.send_answer(conv, len, id, echo, &message))
            }
            Err(error) => self.refuse_message(now, conv, len, id, echo, error),
        }
    }

    /// Tells who has sent a message why it is refused, if that may be told.
    fn refuse_message(
        &mut self,
        now: Instant,
        conv: u32,
        len: usize,
        id: SessionId,
        echo: (u32, u32),
        error: NoiseError,
    ) -> Fate {
        self.stats.dropped_bad_tag += 1;
        tell!(refused(self.batch.source, conv, "noise", 1));
        let Some(refusal) = error.refusal() else { return Fate::Done };
        if !self.limits.take_stateless(now, self.batch.source) {
            self.stats.replies_limited += 1;
            return Fate::Done;
        }
        self.send_answer(conv, len, id, echo, &refusal.to_message()).map_or(Fate::Done, Fate::Replied)
    }

    /// Has an ANSWER sent that is no longer than what it answers.
    fn send_answer(
        &mut self,
        conv: u32,
        len: usize,
        id: SessionId,
        echo: (u32, u32),
        message: &[u8],
    ) -> Option<Reply> {
        let mut packet = vec![0; len];
        let written = write_answer(conv, id, echo, message, &mut packet)?;
        packet.truncate(written);
        self.stateless.set_packet(packet);
        self.stats.replies_sent += 1;
        Some(Reply { to: self.batch.source })
    }

    /// Offers the session of a peer that has shown that it has the keys.
    fn offer_sealed(&mut self, now: Instant, conv: u32, range: Range<usize>) -> Option<Routed> {
        let source = self.batch.source;
        let packets = range.len().div_ceil(self.batch.stride);
        if !self.is_accepting() {
            self.stats.dropped_no_session += packets as u64;
            return None;
        }
        // It is not half-open: it was heard with what was sent to its address.
        let gives_way = self.make_room(now, conv, true, packets as u64).ok()?;
        self.reserve(&(source, conv), gives_way.is_some(), packets as u64).ok()?;
        let incoming = Incoming {
            source,
            conv,
            packets,
            by_hello: true,
            validated: true,
            retiring_key: false,
            sealed: true,
        };
        self.offered = Some(Offer { incoming, range, first_push: FirstPush::default(), gives_way });
        Some(Routed::Incoming(incoming))
    }

    /// A session was accepted whose peer has agreed on keys.
    pub(super) fn after_accepting_sealed(&mut self, route: &Route, handle: Handle) {
        self.routes.set_sealed(handle);
        if let Some(agreements) = &mut self.agreements {
            agreements.remove_if(route, |_| true);
        }
    }
}
