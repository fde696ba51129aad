//! Many sessions over one socket: see [`Endpoint`].
//!
//! What an endpoint does with a packet, in this order:
//!
//! 1. **Share.** While packets are lost because more come than can be received, those of a source that sends too many are dropped
//!    unseen (`overload`, `rations`, `sources`).
//! 2. **Decrypt.** The conv lies behind the encryption, so packets are decrypted before they are routed, a whole batch at
//!    once and in place ([`Endpoint::receive`]; `decryptor`). Those of sessions that agree on keys stay sealed, and show their conv
//!    from here on (`masks`).
//! 3. **Route.** A batch is cut into runs of packets of one conversation (`batch`). A session is found by the address of
//!    its peer and its conv (`routes`). That of the packet before is tried first, without hashing.
//!    Sessions that follow their peers to another address are found by their tag, too (`moves`). Where the endpoint is one of
//!    several behind one port, what is for another one is handed over (`shard`).
//! 4. **Answer.** A session that has ended leaves a record (`record`). It knows what its peer resends, and answers it
//!    ([`Routed::Reply`]; `stateless`, `limit`).
//! 5. **Admit.** A run of an unknown conversation may begin a session. It must carry a HELLO or the first PUSH and be no
//!    replay (`admission`). There must be room for it, and its peer may be asked for a cookie first (`openings`, `half_open`,
//!    `cookie`, `retried`). Then the caller is asked ([`Routed::Incoming`]; `offers`).
//!
//! It decides and returns [`Handle`]s. It does not store the [`Connection`]s: its caller does, as suits it. A program of one
//! thread keeps them in a `Vec`; the Tokio layer keeps each under a lock of its own, so that a write goes to the system call
//! in the writer's own task.
//!
//! There is no clock in here and nothing that must happen in time: an endpoint has no deadlines. What it remembers has limits, and is
//! forgotten when something else is looked up, or when its caller wants the memory back ([`Endpoint::forget_expired`]).

mod admission;
#[cfg(feature = "noise")]
mod agreements;
mod asked;
mod batch;
mod begun;
mod cookie;
mod decryptor;
mod drop_watch;
mod first_packets;
mod half_open;
mod hash;
mod keys;
mod known;
mod limit;
#[cfg(feature = "noise")]
mod masks;
mod moves;
mod offers;
mod openings;
mod overload;
mod rations;
mod record;
mod retried;
mod rotation;
mod routed;
mod routes;
#[cfg(feature = "noise")]
mod sealed_records;
mod shard;
mod sources;
mod stateless;
mod stats;

use alloc::boxed::Box;
use core::{net::SocketAddr, ops::Range, time::Duration};

#[cfg(all(feature = "tracing", feature = "tokio"))]
pub(crate) use self::drop_watch::WarningLimit;
#[cfg(feature = "tokio")]
pub(crate) use self::first_packets::FirstPackets;
use self::{
    admission::Admission,
    asked::Asked,
    batch::Batch,
    cookie::Cookies,
    decryptor::Decryptor,
    drop_watch::DropWatch,
    half_open::HalfOpen,
    hash::HashKey,
    limit::Limits,
    offers::Offer,
    rations::Rations,
    record::{FirstPush, Records, Verdict},
    retried::Retried,
    routes::{Entry, Role, Routes, without_flow_label},
    shard::Shard,
    stateless::{Answer, Stateless},
};
#[cfg(feature = "noise")]
use self::{agreements::Agreements, sealed_records::SealedRecords};
pub use self::{
    rotation::RotateError,
    routed::{Accepted, ConnectError, Incoming, MoveError, Refusal, Reply, Routed, Run},
    routes::Handle,
    shard::{HandOver, ReplacedElsewhere, ShardTable},
    stats::RoutingStats,
};
use super::{ClosedRecord, Connection, CookiePolicy, Extensions, Instant, KcpConfig, Random, time::earliest};
use crate::proto::connection::PeerRecord;

/// Finds the session of each packet that a socket receives, and decides which packets begin one: a state machine without
/// I/O or clock.
///
/// One endpoint accepts sessions ([`accepting`](Self::accepting)), begins them ([`connect`](Self::connect)), or does both.
/// Whatever is received goes through these calls:
///
/// 1. [`receive`](Self::receive) decrypts a batch of packets from one address.
/// 2. [`poll_routed`](Self::poll_routed), until it returns `None`, tells what the batch holds. A [`Routed::Session`] is to
///    be handed to its [`Connection`]. A [`Routed::Incoming`] is to be answered by [`accept`](Self::accept) or
///    [`refuse`](Self::refuse). Where sessions agree on keys, `set_route_key` belongs behind the packet that has
///    brought them. For a [`Routed::Reply`], send [`reply`](Self::reply). A [`Routed::FromElsewhere`] comes only of
///    sessions given to [`follow`](Self::follow).
///
/// A session that has ended, or that nobody wants any more, is to be [closed](Self::close): until then the endpoint knows
/// it, and afterwards the endpoint answers for a minute what the peer still sends. Where packets are authenticated, [`remember_sent`](Self::remember_sent) is to be called after a
/// [`Connection::poll_transmit`].
///
/// ```
/// use std::{collections::HashMap, net::SocketAddr, sync::Arc};
///
/// use kcp9::{
///     KcpConfig,
///     proto::{Connection, Endpoint, Extensions, Handle, Instant, Random, Routed, SessionSeed},
/// };
///
/// # struct Entropy;
/// # impl Random for Entropy {
/// #     fn fill(&mut self, bytes: &mut [u8]) {
/// #         bytes.fill(4);
/// #     }
/// # }
/// // With extensions, HELLO would come first.
/// let config = KcpConfig::builder().extensions(Extensions::Off).build()?;
/// let now = Instant::ZERO;
/// // `Entropy` draws from the operating system.
/// let mut endpoint = Endpoint::accepting(&config, &mut Entropy);
/// let mut sessions: HashMap<Handle, Connection> = HashMap::new();
///
/// // A client somewhere sends its first packet.
/// let mut client = Connection::connect(7, &config, now, SessionSeed::new(&mut Entropy));
/// client.write(now, b"hello")?;
/// let mut block = Arc::new(vec![0; 65_536].into_boxed_slice());
/// let buffer = Arc::get_mut(&mut block).ok_or("in use")?;
/// let transmit = client.poll_transmit(now, buffer).ok_or("nothing to send")?;
/// let source = SocketAddr::from(([192, 0, 2, 1], 4_000));
///
/// // The server receives it.
/// endpoint.receive(source, &mut buffer[..transmit.len], transmit.stride);
/// while let Some(routed) = endpoint.poll_routed(now, &block[..transmit.len]) {
///     let run = match routed {
///         Routed::Session(run) => run,
///         Routed::Incoming(incoming) => {
///             let Some(accepted) = endpoint.accept(now) else { continue };
///             let seed = SessionSeed::new(&mut Entropy);
///             sessions.insert(accepted.run.handle, Connection::accept(incoming.conv, &config, now, seed));
///             accepted.run
///         }
///         _ => continue,
///     };
///     let Some(connection) = sessions.get_mut(&run.handle) else { continue };
///     connection.handle_batch(now, &block, run.range, run.stride);
/// }
/// let mut hello = [0; 5];
/// for connection in sessions.values_mut() {
///     connection.read(&mut hello)?;
/// }
/// assert_eq!(&hello, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Endpoint {
    routes: Routes,
    decryptor: Decryptor,
    /// Where sessions are accepted, or were.
    admission: Option<Admission>,
    half_open: HalfOpen,
    max_sessions: usize,
    cookies: Cookies,
    cookie_policy: CookiePolicy,
    /// Half of the sessions that may wait for the application do.
    backlogged: bool,
    retried: Retried,
    batch: Batch,
    /// What [`accept`](Self::accept) would accept.
    offered: Option<Offer>,
    records: Records,
    asked: Asked,
    stateless: Stateless,
    limits: Limits,
    /// What each source may send, while packets are lost.
    rations: Option<Box<Rations>>,
    /// Whether the extensions are on, and whether a PING of an unknown session is answered by RESET then.
    extensions: bool,
    resets: bool,
    key: HashKey,
    /// Peers that are agreeing on keys, where accepted sessions do.
    #[cfg(feature = "noise")]
    agreements: Option<Box<Agreements>>,
    #[cfg(feature = "noise")]
    sealed_records: Option<Box<SealedRecords>>,
    /// Some sessions hide the routes of their packets, or may.
    #[cfg(feature = "noise")]
    unmasks: bool,
    /// Where it is one of several behind one port.
    shard: Option<Box<Shard>>,
    stats: RoutingStats,
    watch: DropWatch,
}

impl Endpoint {
    /// Bytes of randomness that an endpoint takes when it is made.
    #[doc(hidden)]
    pub const RANDOM_BYTES: usize = if cfg!(feature = "noise") { 64 } else { 32 };

    /// Bytes of randomness that [`reseed_noise`](Self::reseed_noise) takes.
    #[cfg(feature = "noise")]
    #[doc(hidden)]
    pub const NOISE_RANDOM_BYTES: usize = 32;

    /// An endpoint that accepts no sessions. `random` must be unpredictable: it keeps peers from choosing addresses and
    /// convs that make the endpoint slow.
    #[must_use]
    pub fn new(random: &mut dyn Random) -> Self {
        Self::with_admission(None, random)
    }

    /// An endpoint that accepts sessions. `config` is that of every session accepted: the endpoint decrypts with its
    /// cipher, and keeps its rule of how many sessions an address may have. `random` as for [`new`](Self::new).
    #[must_use]
    pub fn accepting(config: &KcpConfig, random: &mut dyn Random) -> Self {
        Self::with_admission(Some(config), random)
    }

    fn with_admission(config: Option<&KcpConfig>, random: &mut dyn Random) -> Self {
        let key = HashKey::new(random);
        let defaults = KcpConfig::default();
        let limits = config.unwrap_or(&defaults);
        #[cfg(feature = "noise")]
        let agrees = config.and_then(KcpConfig::noise).is_some_and(super::noise::Noise::accepts);
        Self {
            half_open: HalfOpen::new(limits.max_half_open(), limits.max_half_open_of_network(), key),
            max_sessions: limits.max_sessions(),
            cookies: Cookies::new(random),
            cookie_policy: limits.cookies(),
            backlogged: false,
            retried: Retried::new(key),
            routes: Routes::new(key),
            decryptor: Decryptor::new(config.and_then(|config| config.crypto().cloned()), key),
            admission: config.map(|config| Admission::new(config, key)),
            batch: Batch::default(),
            offered: None,
            records: Records::new(key),
            asked: Asked::default(),
            stateless: Stateless::default(),
            limits: Limits::new(config.map_or(REPLIES_PER_SECOND, KcpConfig::reply_limit), key),
            rations: None,
            extensions: config.is_none_or(|config| config.extensions() != Extensions::Off),
            resets: true,
            key,
            #[cfg(feature = "noise")]
            agreements: config.and_then(|config| Agreements::new(config, key, random)).map(Box::new),
            #[cfg(feature = "noise")]
            sealed_records: None,
            #[cfg(feature = "noise")]
            unmasks: agrees,
            shard: None,
            stats: RoutingStats::default(),
            watch: DropWatch::default(),
        }
    }

    // ---- Packets ----

    /// Decrypts the packets from `source` that lie back to back in `bytes`, `stride` bytes each, the last perhaps shorter. Of those that
    /// their sessions open, it finds out the convs.
    /// What [`poll_routed`](Self::poll_routed) has not returned of the batch before is dropped.
    pub fn receive(&mut self, source: SocketAddr, bytes: &mut [u8], stride: usize) {
        self.drop_offered();
        if cfg!(feature = "tracing") {
            self.watch.begin_batch();
        }
        let source = without_flow_label(source);
        let stride = stride.max(1);
        if bytes.is_empty() {
            // UDP carries packets without any bytes, too.
            self.stats.dropped_short += 1;
        }
        if self.rations.is_some() && !self.takes(source, bytes.len(), stride) {
            self.batch.begin(source, 0, stride);
            return;
        }
        #[cfg(feature = "noise")]
        if self.unmasks && self.unmask(source, bytes, stride) {
            Decryptor::leave(&mut self.batch.opened);
            self.batch.begin(source, bytes.len(), stride);
            self.batch.raw = true;
            return;
        }
        self.decryptor.decrypt(source, bytes, stride, &mut self.batch.opened);
        self.batch.begin(source, bytes.len(), stride);
    }

    #[inline]
    fn next_run(&mut self, bytes: &[u8]) -> Option<(u32, Range<usize>)> {
        #[cfg(not(feature = "noise"))]
        let is_sealed = |_| false;
        #[cfg(feature = "noise")]
        let source = self.batch.source;
        // Where accepted sessions have a cipher, what was decrypted is of peers without key agreement.
        #[cfg(feature = "noise")]
        let may_be_sealed = self.batch.raw || self.decryptor.accepted().current().is_none();
        #[cfg(feature = "noise")]
        let is_sealed = |conv| {
            may_be_sealed
                && agreements::is_sealed(
                    &(source, conv),
                    &self.routes,
                    self.agreements.as_deref(),
                    self.sealed_records.as_deref(),
                )
        };
        self.batch.next_run(bytes, &mut self.stats, is_sealed)
    }

    /// What the batch holds next; `None` when that was all. `bytes` are those that [`receive`](Self::receive) has
    /// decrypted.
    pub fn poll_routed(&mut self, now: Instant, bytes: &[u8]) -> Option<Routed> {
        self.drop_offered();
        if self.rations.is_some() {
            self.go_on_rationing(now);
        }
        while let Some((conv, range)) = self.next_run(bytes) {
            let route = (self.batch.source, conv);
            #[cfg(feature = "noise")]
            if self.agreements.is_some()
                && self.half_open.len() > 0
                && let Some(routed) = self.route_beside(now, conv, bytes, &range)
            {
                match routed {
                    Some(routed) => return Some(routed),
                    None => continue,
                }
            }
            if let Some((handle, entry)) = self.routes.find_for_packet(&route) {
                #[cfg(feature = "noise")]
                let is_of_other_kind = self.batch.raw && !entry.sealed;
                #[cfg(not(feature = "noise"))]
                let is_of_other_kind = false;
                if is_of_other_kind || !self.batch.is_under(entry.phase) {
                    self.stats.dropped_no_session += range.len().div_ceil(self.batch.stride) as u64;
                    continue;
                }
                if entry.half_open {
                    self.half_open.note_heard(now, handle);
                }
                if entry.early_packets > 0
                    && let Some(admission) = &mut self.admission
                {
                    let run = &bytes[range.clone()];
                    look_at_early_packets(entry, admission, run, self.key, &self.batch, &mut self.decryptor);
                }
                return Some(Routed::Session(Run { handle, range, stride: self.batch.stride }));
            }
            if let Some(routed) = self.route_unknown(now, conv, bytes, range) {
                return Some(routed);
            }
        }
        if cfg!(feature = "tracing") {
            self.watch.end_batch(now, &self.batch, &self.stats, self.key);
        }
        None
    }

    /// The packet of the [`Routed::Reply`] that [`poll_routed`](Self::poll_routed) has just returned.
    #[must_use]
    pub fn reply(&self) -> &[u8] {
        self.stateless.packet()
    }

    /// What becomes of a run of a conversation that has no session.
    #[inline(never)]
    fn route_unknown(
        &mut self,
        now: Instant,
        conv: u32,
        bytes: &[u8],
        range: Range<usize>,
    ) -> Option<Routed> {
        self.decryptor.expire(now);
        #[cfg(feature = "noise")]
        if self.batch.learned
            && let Some(handle) = self.find_masked(&bytes[range.clone()])
        {
            return Some(Routed::Session(Run { handle, range, stride: self.batch.stride }));
        }
        if let Some(packets) = self.for_other_shard(conv, bytes, &range) {
            return Some(Routed::OtherShard(Box::new(packets)));
        }
        #[cfg(feature = "noise")]
        if let Some(routed) = self.route_sealed(now, conv, bytes, &range) {
            return routed;
        }
        let route = (self.batch.source, conv);
        if self.routes.has_tags() {
            if let Some(handle) = self.find_by_tag(conv, &bytes[range.clone()]) {
                self.routes.note_elsewhere(now, handle, route.0);
                let run = Run { handle, range, stride: self.batch.stride };
                return Some(Routed::FromElsewhere(run, route.0));
            }
            if self.may_be_of_moving(now, &route, &bytes[range.clone()]) {
                self.stats.dropped_no_session += range.len().div_ceil(self.batch.stride) as u64;
                return None;
            }
        }
        let cause_len = range.len().min(self.batch.stride);
        let verdict = self.records.judge(now, &route, self.batch.payloads(&bytes[range.clone()]));
        if let Some(verdict @ (Verdict::Answer(_) | Verdict::Nothing)) = verdict {
            self.stats.dropped_recently_closed += range.len().div_ceil(self.batch.stride) as u64;
            let Verdict::Answer(answer) = verdict else { return None };
            self.asked.on_question(now);
            let allowed = self.limits.take_record(now);
            return self.answer(now, conv, answer, cause_len, allowed).map(Routed::Reply);
        }
        if let Some(routed) = self.offer(now, conv, bytes, range.clone()) {
            return Some(routed);
        }
        // Where other processes have the port, one of them may be accepting. Shards are all told to stop at the same time.
        let is_last = self.resets || self.shard.is_some();
        let refuses = is_last && self.admission.as_ref().is_some_and(Admission::refuses);
        let resets = self.extensions && self.resets;
        let answer = Answer::find(self.batch.payloads(&bytes[range]), resets, refuses)?;
        let allowed = self.limits.take_stateless(now, self.batch.source);
        self.answer(now, conv, answer, cause_len, allowed).map(Routed::Reply)
    }

    /// Writes an answer to packets of `cause_len` bytes, if that is allowed.
    fn answer(
        &mut self,
        now: Instant,
        conv: u32,
        answer: Answer,
        cause_len: usize,
        allowed: bool,
    ) -> Option<Reply> {
        let to = self.batch.source;
        // Nobody can be answered at port 0. The system would refuse it, and whoever has to deal with that is kept from its work.
        if to.port() == 0 {
            return None;
        }
        if !allowed {
            self.stats.replies_limited += 1;
            return None;
        }
        if !self.stateless.write(
            now,
            conv,
            answer,
            cause_len,
            self.decryptor.crypto_of(to, self.batch.run_phase),
        ) {
            return None;
        }
        self.stats.replies_sent += 1;
        Some(Reply { to })
    }

    // ---- Sessions ----

    /// Limits what is sent in answer to packets of sessions that are not known here, to so many packets a second: at most a
    /// tenth of them at once, and a fiftieth of them to one IPv4 address or to one network of 64 bits. What is answered for
    /// sessions that ended a moment ago may be ten times as much. 0 is for no answers at all. Default
    /// [`reply_limit`](crate::KcpConfigBuilder::reply_limit), or 1,000 for an endpoint that accepts nothing.
    ///
    /// After a restart, peers of sessions from before learn of it by these answers. Those that the limit leaves out wait for
    /// their [`dead_timeout`](crate::KcpConfigBuilder::dead_timeout).
    pub fn set_reply_limit(&mut self, per_second: u32) {
        let per_second = self.shard.as_ref().map_or(per_second, |shard| shard.part(per_second));
        self.limits = Limits::new(per_second, self.key);
    }

    /// Whether peers of sessions that are not known here are told so, if the extensions are on (default). Turn it off where several
    /// sockets share a port: the session may be known to another one. An endpoint that has [stopped](Self::stop_accepting) accepting
    /// then refuses no peer either, unless it is [one of several](Self::accepting_as_shard).
    pub fn set_resets(&mut self, enabled: bool) {
        self.resets = enabled;
    }

    /// Forgets a session; returns whether the endpoint had it.
    ///
    /// `record` is [`Connection::record`] of its connection. With it, the endpoint acknowledges for a minute what the peer
    /// resends because an ACK was lost ([`Routed::Reply`]). Without it, what the peer resends is dropped. Either way it begins
    /// no session. A session that the peer begins anew with the same address and conv is offered after 3 seconds.
    pub fn close(&mut self, now: Instant, handle: Handle, record: Option<ClosedRecord>) -> bool {
        self.close_keeping(now, handle, record, false)
    }

    /// As [`close`](Self::close). `keeps_keys`: a record of its own kind is kept of a session that was begun here.
    fn close_keeping(
        &mut self,
        now: Instant,
        handle: Handle,
        record: Option<ClosedRecord>,
        keeps_keys: bool,
    ) -> bool {
        let Some(Entry { route, role, first_push, half_open, .. }) = self.remove(handle) else {
            return false;
        };
        if half_open {
            self.half_open.remove(handle);
        }
        // An endpoint that accepts nothing need not know what begins no session, only what it answers.
        let answers = record.is_some_and(|record| record.peer != PeerRecord::Legacy);
        if role == Role::Connected {
            // Where sessions are accepted, the address has their cipher again.
            let keeps = answers && self.admission.is_none()
                || keeps_keys && self.decryptor.accepted().current().is_none();
            let keep = if keeps { record::LIFETIME } else { Duration::ZERO };
            self.decryptor.remove(now, route.0, keep);
        }
        if let Some(admission) = &mut self.admission {
            admission.close(route.0, handle);
        }
        if self.admission.is_some() || answers {
            self.records.insert(now, &route, role, first_push, record);
        }
        if let Some(record) = record.filter(ClosedRecord::may_be_asked) {
            self.asked.on_end(now, Duration::from_millis(record.resend_millis.into()));
        }
        true
    }

    /// When there is something for [`forget_expired`](Self::forget_expired) to forget. `None` if nothing is kept that expires.
    #[must_use]
    pub fn expires_at(&self) -> Option<Instant> {
        let kept = earliest([self.records.expires_at(), self.decryptor.expires_at(), self.rations_end_at()]);
        #[cfg(feature = "noise")]
        let kept = earliest([
            kept,
            self.agreements.as_ref().and_then(|agreements| agreements.expires_at()),
            self.sealed_records.as_ref().and_then(|records| records.expires_at()),
        ]);
        kept
    }

    /// Forgets what was remembered of sessions that ended more than a minute ago. Nobody has to call it: what has expired answers
    /// nothing, and goes with the next packet of an unknown session. It gives the memory back where no such packet comes.
    pub fn forget_expired(&mut self, now: Instant) {
        self.records.expire(now);
        self.decryptor.expire(now);
        self.end_rations(now);
        #[cfg(feature = "noise")]
        {
            if let Some(agreements) = &mut self.agreements {
                agreements.expire(now);
            }
            if let Some(records) = &mut self.sealed_records {
                records.expire(now);
            }
            self.sealed_records.take_if(|records| records.is_empty());
        }
    }

    /// Remembers the packets of `connection` that would begin a session here if an attacker sent them back. To be called
    /// after [`Connection::poll_transmit`] and before what it returned is sent, where packets are authenticated; else it
    /// does nothing.
    pub fn remember_sent(&mut self, connection: &mut Connection) {
        self.remember_first_packets(&connection.take_sent_first());
    }

    /// As [`remember_sent`](Self::remember_sent), of what [`Connection::take_sent_first`] has returned.
    pub(crate) fn remember_first_packets(&mut self, identities: &[u64]) {
        if let Some(admission) = &mut self.admission {
            identities.iter().for_each(|identity| admission.remember_sent(*identity));
        }
    }
}

/// Looks at packets of a session that began a moment ago: for its first PUSH if it began with a HELLO, and for what might
/// begin it once more.
#[inline(never)]
fn look_at_early_packets(
    entry: &mut Entry,
    admission: &mut Admission,
    run: &[u8],
    key: HashKey,
    batch: &Batch,
    decryptor: &mut Decryptor,
) {
    let packets = run.len().div_ceil(batch.stride);
    entry.early_packets = entry.early_packets.saturating_sub(u16::try_from(packets).unwrap_or(u16::MAX));
    if !entry.first_push.is_known() {
        entry.first_push = FirstPush::find(key, batch.payloads(run));
    }
    if admission.remembers() {
        admission.remember_resends(run, batch, decryptor);
    } else if entry.first_push.is_known() {
        entry.early_packets = 0;
    }
}

/// Answers that an endpoint sends in a second without a record to answer from. After a restart that ended more sessions than
/// that, the others wait for their timeouts.
const REPLIES_PER_SECOND: u32 = 1_000;
