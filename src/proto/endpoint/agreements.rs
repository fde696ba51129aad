//! Peers that agree on keys with this end and have no session yet: the state of R93 in `docs/secure-sessions.md`.
//!
//! A first message comes from an address that may be false, and may have been recorded. So nothing is offered to the caller for it, and
//! nothing that lives is touched. It is answered, and what comes of that is kept here until a packet opens under the keys: then its
//! sender has the answer, and a session begins. Everything that costs nothing is looked at before anything is computed: whether
//! sessions are accepted, whether it was answered before, the cookie, and whether there is room.
//!
//! What is kept, and within which limits, is in [`table`].

mod table;

use alloc::{boxed::Box, vec};
use core::{ops::Range, time::Duration};

pub(super) use self::table::Agreements;
use self::table::{Next, Pending};
use super::{
    Endpoint, Incoming, Reply, Routed, Run,
    offers::Offer,
    record::FirstPush,
    routes::{Handle, Route, Routes, SEALED_TAG},
    sealed_records::SealedRecords,
    stateless,
};
use crate::proto::{
    AbortReason, CookiePolicy, Instant, Random,
    agreement::{
        Answering, Clear, EarlyData, Greeting, MIN_HELLO, is_clear, own_context, parse, write_answer,
    },
    extension::SessionId,
    noise::{Answer, AnswerNext, NoiseError, SessionKeys, draws_reset, write_reset},
    trace::tell,
};

/// How often a handshake whose last messages are almost right goes on, once it is [spent](crate::proto::noise::ResponderHandshake::is_spent): its peer sends
/// the true one twice a second.
const RENEWAL: Duration = Duration::from_millis(250);

/// Whether a packet of this route is sealed or in the clear, and not of a peer without key agreement. Of a session that has moved it is
/// known where there are no such peers: theirs may begin with any number.
#[inline]
pub(super) fn is_sealed(
    route: &Route,
    routes: &Routes,
    agreements: Option<&Agreements>,
    records: Option<&SealedRecords>,
) -> bool {
    if !routes.any_sealed && agreements.is_none() && records.is_none() {
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
    /// It begins one with early data. Its message's identity, and whether it has a cookie.
    Early(Box<SessionKeys>, EarlyData, u64, bool),
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
        let offer = self.offered.as_mut()?;
        let Incoming { source, conv, .. } = offer.incoming;
        let agreements = self.agreements.as_mut()?;
        let mut keys = offer.early_keys.take().or_else(|| agreements.take_keys(&(source, conv)))?;
        if let Some(key) = agreements.responder.reset_key(source, conv) {
            keys.set_reset_key(key);
        }
        Some(keys)
    }

    /// What came with the first message of the session that [`poll_routed`](Self::poll_routed) has just returned as
    /// [`Routed::Incoming`], if this end [takes early data](crate::proto::noise::Responder::with_early_data) and there was some: for
    /// [`Connection::accept_with_keys`](crate::proto::Connection::accept_with_keys). To be called once, before
    /// [`accept`](Self::accept). Such a session is half-open, as its peer has not shown yet that it is there.
    pub fn take_early_data(&mut self) -> Option<EarlyData> {
        self.offered.as_mut()?.early_data.take()
    }

    /// Gives back what [`take_session_keys`](Self::take_session_keys) has returned, where the session is refused for want of room and
    /// nothing was sent with them: its peer sends again, and is offered again.
    pub fn return_session_keys(&mut self, keys: Box<SessionKeys>) {
        let Some(incoming) = self.offered.as_ref().map(|offer| offer.incoming) else { return };
        if let Some(agreements) = &mut self.agreements {
            agreements.return_keys(&(incoming.source, incoming.conv), keys);
        }
    }

    /// How many peers are agreeing on keys and have no session yet.
    #[must_use]
    pub fn agreeing(&self) -> usize {
        self.agreements.as_ref().map_or(0, |agreements| agreements.len())
    }

    /// Whether a run of no session here may be of a sealed one of another shard, whose peer has another address now. What is in the clear
    /// is not, nor what somebody may have sealed who has agreed on keys with this shard. Peers without key agreement may begin with any
    /// conv.
    pub(super) fn may_be_sealed_elsewhere(&self, conv: u32, run: &[u8]) -> bool {
        let route = (self.batch.source, conv);
        self.agreements.as_ref().is_some_and(|agreements| {
            !agreements.serves_static
                && !agreements.contains(&route)
                && !is_clear(&run[..run.len().min(self.batch.stride)])
        }) && !self.sealed_records.as_ref().is_some_and(|records| records.contains(&route))
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
        if let Some(routed) = self.take_agreements(now, conv, bytes, range, None) {
            return Some(routed);
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
        Some(self.reset_sealed(now, conv, range.len().min(stride)).map(Routed::Reply))
    }

    /// What becomes of a run of a half-open session with keys of its own, as far as it is not that session's: its peer may be a recording,
    /// so others agree beside it, and the first packet under newer keys has the session give way (R125). The run's first packet tells.
    pub(super) fn route_beside(
        &mut self,
        now: Instant,
        conv: u32,
        bytes: &[u8],
        range: &Range<usize>,
    ) -> Option<Option<Routed>> {
        let route = (self.batch.source, conv);
        let handle = self.routes.find(&route)?;
        let entry = self.routes.get(handle).filter(|entry| entry.sealed && entry.half_open)?;
        let agreements = self.agreements.as_mut()?;
        let packet = bytes[range.clone()].chunks(self.batch.stride).next()?;
        let handle = entry.handle;
        let is_beside = match parse(packet) {
            Some(Clear::Hello { greeting, .. }) => {
                self.half_open.message(handle) != Some(greeting.identity())
            }
            Some(Clear::Last { .. }) => true,
            Some(_) => false,
            None => agreements.opens(&route, packet),
        };
        is_beside.then(|| self.take_agreements(now, conv, bytes, range, Some(handle)).flatten())
    }

    /// What becomes of a run by the agreements of its route. `None` if it is of none of them. A session begins in the place of `there`.
    fn take_agreements(
        &mut self,
        now: Instant,
        conv: u32,
        bytes: &[u8],
        range: &Range<usize>,
        there: Option<Handle>,
    ) -> Option<Option<Routed>> {
        let stride = self.batch.stride;
        let mut is_other = true;
        for (nth, packet) in bytes[range.clone()].chunks(stride).enumerate() {
            let range = range.start + nth * stride..range.end;
            match self.take_agreement(now, conv, packet) {
                Fate::Other => continue,
                Fate::Done => {}
                Fate::Replied(reply) => return Some(Some(Routed::Reply(reply))),
                Fate::Opened => {
                    // It was heard with what was sent to its address. But where somebody has agreed since, it may have been kept back.
                    let route = (self.batch.source, conv);
                    let agreements = self.agreements.as_mut();
                    let is_newest = agreements.is_some_and(|agreements| agreements.is_newest_opened(&route));
                    return Some(self.offer_sealed(now, conv, range, is_newest, there));
                }
                Fate::Early(keys, data, message, is_proven) => {
                    let offered = self.offer_sealed(now, conv, range, is_proven, there);
                    if let Some(offer) = self.offered.as_mut().filter(|_| offered.is_some()) {
                        (offer.early_keys, offer.early_data) = (Some(keys), Some(data));
                        offer.early_message = Some(message);
                    }
                    return Some(offered);
                }
            }
            is_other = false;
        }
        (!is_other).then_some(None)
    }

    /// Tells the peer of a session that is not known here that it is lost (R120): an answer to a packet of `cause_len` bytes, if it may be
    /// one of such a session.
    fn reset_sealed(&mut self, now: Instant, conv: u32, cause_len: usize) -> Option<Reply> {
        let to = self.batch.source;
        let agreements = self.agreements.as_mut()?;
        let route = (to, conv);
        // A record answers under the keys that it has. Who is agreeing on some may be somebody else.
        let is_known = self.sealed_records.as_ref().is_some_and(|records| records.contains(&route));
        let tells = self.extensions && self.resets && agreements.responder.has_reset_secret();
        if is_known || !tells || agreements.serves_static || !draws_reset(cause_len) || to.port() == 0 {
            return None;
        }
        if !self.limits.take_stateless(now, to) {
            self.stats.replies_limited += 1;
            return None;
        }
        let key = agreements.responder.reset_key(to, conv)?;
        let (route_key, random) = (agreements.responder.route_key(), &mut agreements.random);
        self.stateless.set_packet(write_reset(&key, route_key, conv, cause_len, random));
        self.stats.replies_sent += 1;
        Some(Reply { to })
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
            let answer =
                stateless::Answer::Abort { reason: AbortReason::Refused.code(), tag: greeting.id.tag() };
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
        // By a session whose peer may not be there.
        let is_taken = self.routes.find(&route).is_some();
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
            CookiePolicy::UnderLoad => agreements.contains(&route) || is_taken || is_loaded(),
            CookiePolicy::Always => true,
        };
        if is_asked && !is_proven {
            self.stats.dropped_no_cookie += 1;
            self.stats.retries += 1;
            tell!(refused(source, conv, "no_cookie", 1));
            let cookie = self.cookies.make(now, source, conv, greeting.id);
            let answer = stateless::Answer::Retry { cookie, tag: greeting.id.tag(), ts };
            return reply(self.answer(now, conv, answer, len, true));
        }
        // A cookie shows that the address is the sender's own, and one is good for any number of messages.
        if is_proven && !agreements.computes_for(now, source.ip()) {
            self.stats.dropped_no_agreement += 1;
            tell!(refused(source, conv, "no_agreement", 1));
            return Fate::Done;
        }
        if !agreements.make_room_on_route(now, &route, is_proven) {
            self.stats.dropped_no_session += 1;
            return Fate::Done;
        }
        if let Err(limit) = agreements.make_room(now, source.ip(), is_proven) {
            self.refuse_half_open(conv, limit, 1);
            return Fate::Done;
        }
        let mut id = [0; 8];
        agreements.random.fill(&mut id);
        let id = SessionId::non_zero(id);
        // Under load, a peer without a cookie was told to come again.
        let is_first = !is_taken && !agreements.contains(&route);
        let takes_early =
            is_first && agreements.responder.takes_early_data() && self.live() < self.max_sessions;
        let answered = self.answer_first(greeting, &own_context(conv, id), takes_early);
        let Some(agreements) = &mut self.agreements else { return Fate::Other };
        let is_wrong =
            matches!(&answered, Err(NoiseError::WrongPsk | NoiseError::Forged | NoiseError::WeakKey));
        if is_wrong || !is_proven && answered.is_ok() {
            agreements.note_computed(now);
        }
        if is_wrong && is_proven {
            agreements.note_wrong(now, source.ip());
        }
        match answered {
            Ok((Answer { message, next: AnswerNext::Session(keys), .. }, data)) if !data.is_empty() => {
                let answering = Answering::new(now, conv, greeting, echo, id, message.into());
                Fate::Early(Box::new(keys), EarlyData { answering, data }, greeting.identity(), is_proven)
            }
            Ok((answer, _)) => {
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

    /// Answers a first message, and takes its early data if that was not taken before. Returns what was taken, mostly nothing.
    fn answer_first(
        &mut self,
        greeting: &Greeting<'_>,
        context: &[u8],
        takes_early: bool,
    ) -> Result<(Answer, Box<[u8]>), NoiseError> {
        let agreements = self.agreements.as_mut().ok_or(NoiseError::Unconfigured)?;
        let message = greeting.message;
        let first = agreements.responder.read_first(message, &greeting.context, &mut agreements.random)?;
        let has_early = agreements.responder.takes_early_data() && !first.early_data().is_empty();
        // What is not taken now comes in the stream, so a recording of it is not taken either.
        let is_new = has_early
            && self
                .admission
                .as_mut()
                .is_some_and(|admission| admission.takes_early_data(greeting.identity()));
        if !(is_new && takes_early) {
            return Ok((first.answer(context)?, Box::default()));
        }
        first.answer_early_data(context)
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
        self.stats.dropped_no_agreement += 1;
        tell!(refused(self.batch.source, conv, "no_agreement", 1));
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

    /// Offers the session of a peer that has shown that it has the keys, or has sent early data.
    fn offer_sealed(
        &mut self,
        now: Instant,
        conv: u32,
        range: Range<usize>,
        validated: bool,
        there: Option<Handle>,
    ) -> Option<Routed> {
        let source = self.batch.source;
        let packets = range.len().div_ceil(self.batch.stride);
        if !self.is_accepting() {
            self.stats.dropped_no_session += packets as u64;
            return None;
        }
        let gives_way = match there {
            Some(there) => Some(there),
            None => self.make_room(now, conv, validated, packets as u64).ok()?,
        };
        self.reserve(&(source, conv), gives_way.is_some(), packets as u64).ok()?;
        let incoming = Incoming {
            source,
            conv,
            packets,
            by_hello: true,
            validated,
            message_at: self.message_at(now, source.ip(), validated, &range),
            retiring_key: false,
            sealed: true,
        };
        let first_push = FirstPush::default();
        let (early_keys, early_data, early_message) = (None, None, None);
        self.offered =
            Some(Offer { incoming, range, first_push, gives_way, early_keys, early_data, early_message });
        Some(Routed::Incoming(incoming))
    }

    /// A session was accepted whose peer has agreed on keys. If it may not be there, who has agreed since may have the session give way.
    pub(super) fn after_accepting_sealed(
        &mut self,
        route: &Route,
        handle: Handle,
        validated: bool,
        message: Option<u64>,
    ) {
        self.routes.set_sealed(handle);
        if let Some(message) = message {
            self.half_open.set_message(handle, message);
        }
        let Some(agreements) = &mut self.agreements else { return };
        if validated {
            agreements.remove_if(route, |_| true);
        } else {
            agreements.remove_to_opened(route);
        }
    }

    /// The peer of a session has shown that it hears this end: nobody else's agreement counts any more.
    pub(super) fn after_validating_sealed(&mut self, handle: Handle) {
        let Some(entry) = self.routes.get(handle).filter(|entry| entry.sealed) else { return };
        if let Some(agreements) = &mut self.agreements {
            agreements.remove_if(&entry.route, |_| true);
        }
    }
}
