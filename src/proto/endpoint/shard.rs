//! An endpoint that is one of several behind one port: a *shard*.
//!
//! With `SO_REUSEPORT` several sockets have one port, each with an endpoint of its own, so that several threads can serve it. The
//! system gives each packet to one of them, by the addresses that it comes from and goes to. So the packets of a session arrive at one
//! shard, which accepts the session and has it for its whole life. That ends when the peer's address changes, and when a socket joins
//! the port or leaves it: the packets of some sessions arrive at another shard then.
//!
//! What the shards know together is in a [`ShardTable`]. A shard asks it only about packets of which it has no session itself, so
//! where the system keeps to its choice, nothing is shared while a session lives.
//!
//! * **Who has it.** The table names the shard that has a route: that of a session, of the record of one that has ended, or of a
//!   session that was heard from there and may follow its peer. It also names the shard of a tag, by which a session is found whose
//!   peer is at an address that nobody knows, and, where an address may have one session only, that of an address. Packets of another
//!   shard are handed over to it, decrypted ([`Routed::OtherShard`](super::Routed::OtherShard)). It takes them in as its own, but hands
//!   them over to nobody: no packet is handed over twice.
//! * **What began a session before** is known to all, so that a recording begins no second session at another shard. So is the key of
//!   cookies.
//! * **How many** sessions there are is counted over all shards. A session that gives way is one of the shard that needs the room.
//!
//! Each shard has its part of the other limits: of half-open sessions, in all and for a network (`half_open` says why), and of answers
//! without a session.
//!
//! The table's keys are keyed hashes, as those of [records](super::record): nobody can find two things of one hash.

use alloc::{boxed::Box, sync::Arc};
use core::{fmt, hash::BuildHasher, net::SocketAddr, ops::Range};

use super::{
    Endpoint,
    hash::HashKey,
    keys::KeyPhase,
    routes::{Entry, Handle, Route, SEALED_TAG},
};
use crate::proto::{Instant, KcpConfig, Random, extension::probe_tag, pipeline::segments, trace::tell};

/// What the endpoints of one port know together. All of it may be called by several at the same time, and each call is done at once
/// as seen by the others.
///
/// A table is a map of keys to the shards that have them, a counter, and a memory of what began a session. It is to be fast: an
/// endpoint asks it about each packet of which it has no session.
pub trait ShardTable: fmt::Debug + Send + Sync {
    /// How many shards there are.
    fn shards(&self) -> u16;

    /// The shard that has `key`.
    fn owner(&self, key: u64) -> Option<u16>;

    /// Has `shard` have `key`, once more if it does already.
    ///
    /// # Errors
    /// The other shard that has it. It keeps it.
    fn hold(&self, key: u64, shard: u16) -> Result<(), u16>;

    /// Has `shard` have `key` once, whoever had it. Returns the other shard that did.
    fn take_over(&self, key: u64, shard: u16) -> Option<u16>;

    /// Takes back one call of the others. Without effect if `shard` does not have `key`.
    fn release(&self, key: u64, shard: u16);

    /// Counts one more session, if that makes no more than `max`. Returns whether it does.
    fn add_session(&self, max: usize) -> bool;

    /// Counts one less.
    fn remove_session(&self);

    /// How many sessions there are.
    fn sessions(&self) -> usize;

    /// Remembers a packet that begins a session, by its identity; returns whether it is new. The last 16,384 at least are to be
    /// remembered, and beside them as many [resends](Self::remember_resend) and of those that were [sent](Self::remember_sent).
    fn remember_first(&self, identity: u64) -> bool;

    /// Remembers a packet that would begin a session again which another one has begun; returns whether it is new. To
    /// [`remember_first`](Self::remember_first) it is not new from then on.
    fn remember_resend(&self, identity: u64) -> bool;

    /// Remembers a packet that was sent from here, and would begin a session if somebody sent it back: to
    /// [`remember_first`](Self::remember_first) it is not new.
    fn remember_sent(&self, identity: u64);
}

/// Decrypted packets for a session of another shard. The caller brings them, and a copy of the bytes in `range`, to the caller of that
/// shard's endpoint, which calls [`Endpoint::receive_handed_over`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver {
    /// The shard.
    pub shard: u16,
    /// Where they are in the batch, in bytes.
    pub range: Range<usize>,
    /// Bytes of each but the last, which may be shorter.
    pub stride: usize,
    source: SocketAddr,
    phase: Option<KeyPhase>,
}

impl HandOver {
    /// The address that they came from.
    #[must_use]
    pub const fn source(&self) -> SocketAddr {
        self.source
    }
}

/// A session of another shard that ends, because a session followed its peer to the address of its peer:
/// [`one_session_per_address`](crate::KcpConfigBuilder::one_session_per_address). For [`Endpoint::replaced`] of that shard's endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplacedElsewhere {
    /// The shard.
    pub shard: u16,
    /// The address.
    pub address: SocketAddr,
}

/// Which shard an endpoint is, and what it knows together with the others.
#[derive(Debug, Clone)]
pub(super) struct Shard {
    pub(super) index: u16,
    table: Arc<dyn ShardTable>,
    key: HashKey,
}

impl Shard {
    /// Its part of what all have together, at least 1 of what is not nothing.
    pub(super) fn part(&self, of_all: u32) -> u32 {
        of_all.div_ceil(self.table.shards().max(1).into())
    }

    /// Its part of a number of things. The parts of all shards are as many, but each has one at least.
    pub(super) fn part_of(&self, of_all: usize) -> usize {
        let shards = usize::from(self.table.shards().max(1));
        let one_of_the_rest = usize::from(usize::from(self.index) < of_all % shards);
        (of_all / shards + one_of_the_rest).max(1)
    }

    pub(super) fn hold_route(&self, route: &Route) -> Result<(), u16> {
        self.table.hold(self.key.hash_one(route), self.index)
    }

    pub(super) fn release_route(&self, route: &Route) {
        self.release_hash(self.key.hash_one(route));
    }

    /// As [`hold_route`](Self::hold_route), of a hash that the endpoint's key has made.
    pub(super) fn hold_hash(&self, route: u64) {
        // Another shard that has it by now answers for it.
        let _ = self.table.hold(route, self.index);
    }

    pub(super) fn release_hash(&self, route: u64) {
        self.table.release(route, self.index);
    }

    pub(super) fn hold_tag(&self, conv: u32, tag: u32) {
        let _ = self.table.hold(self.key.hash_one((conv, tag)), self.index);
    }

    pub(super) fn release_tag(&self, conv: u32, tag: u32) {
        self.table.release(self.key.hash_one((conv, tag)), self.index);
    }

    /// Takes an address over; returns the shard that had it.
    pub(super) fn take_address(&self, address: SocketAddr) -> Option<u16> {
        self.table.take_over(self.key.hash_one(address), self.index)
    }

    pub(super) fn release_address(&self, address: SocketAddr) {
        self.table.release(self.key.hash_one(address), self.index);
    }

    pub(super) fn remember_first(&self, identity: u64) -> bool {
        self.table.remember_first(identity)
    }

    pub(super) fn remember_resend(&self, identity: u64) -> bool {
        self.table.remember_resend(identity)
    }

    pub(super) fn remember_sent(&self, identity: u64) {
        self.table.remember_sent(identity);
    }

    /// The other shard that packets of no route of this one are for. `payloads` are theirs. Of what `may_be_sealed` only the conv is
    /// known.
    fn other<'a>(
        &self,
        route: &Route,
        payloads: impl Iterator<Item = &'a [u8]>,
        address_counts: bool,
        may_be_sealed: bool,
    ) -> Option<u16> {
        let by_route = || self.table.owner(self.key.hash_one(route));
        let by_tag = || {
            let mut tags = payloads.flat_map(segments).filter_map(|(header, _)| probe_tag(&header));
            tags.find_map(|tag| self.table.owner(self.key.hash_one((route.1, tag))))
        };
        let by_conv = || {
            let owner = || self.table.owner(self.key.hash_one((route.1, SEALED_TAG)));
            may_be_sealed.then(owner).flatten()
        };
        let by_address = || {
            let owner = || self.table.owner(self.key.hash_one(route.0));
            address_counts.then(owner).flatten()
        };
        by_route().or_else(by_tag).or_else(by_conv).or_else(by_address).filter(|owner| *owner != self.index)
    }
}

impl Endpoint {
    /// As [`accepting`](Self::accepting), for one of several endpoints behind sockets of one port: the one with the number `index`, below
    /// [`ShardTable::shards`]. All are given the same `table`, and the same bytes by `random`, since their hashes and their cookies
    /// have the same keys.
    ///
    /// It begins no sessions itself. Its caller has to deal with [`Routed::OtherShard`](super::Routed::OtherShard) and
    /// [`take_replaced_elsewhere`](Self::take_replaced_elsewhere). RESETs are to be [off](Self::set_resets): what the other shards
    /// remember of sessions that have ended is not known here.
    #[must_use]
    pub fn accepting_as_shard(
        config: &KcpConfig,
        random: &mut dyn Random,
        table: Arc<dyn ShardTable>,
        index: u16,
    ) -> Self {
        let mut endpoint = Self::accepting(config, random);
        let shard = Shard { index, table, key: endpoint.key };
        endpoint.routes.set_shard(shard.clone());
        endpoint.records.set_shard(shard.clone());
        endpoint.half_open.set_shard(&shard);
        if let Some(admission) = &mut endpoint.admission {
            admission.set_shard(shard.clone());
        }
        #[cfg(feature = "noise")]
        if let Some(agreements) = &mut endpoint.agreements {
            agreements.set_shard(&shard);
        }
        endpoint.shard = Some(Box::new(shard));
        endpoint.set_reply_limit(config.reply_limit());
        endpoint
    }

    /// As [`receive`](Self::receive), for packets that another shard has handed over: `bytes` are those that it named, and
    /// [`poll_routed`](Self::poll_routed) is to be called with them. None of them is handed over again.
    pub fn receive_handed_over(&mut self, packets: &HandOver, bytes: &[u8]) {
        self.drop_offered();
        let len = if self.decryptor.already_decrypted(packets.phase, &mut self.batch.opened) {
            bytes.len()
        } else {
            // They are under a key that was dropped here already, or is not known here yet.
            self.stats.dropped_no_session += bytes.len().div_ceil(packets.stride.max(1)) as u64;
            0
        };
        self.batch.begin(packets.source, len, packets.stride.max(1));
        self.batch.handed_over = true;
    }

    /// A session followed its peer to an address where a session of another shard was, which ends by that. To be called after
    /// [`moved`](Self::moved) has succeeded.
    pub fn take_replaced_elsewhere(&mut self) -> Option<ReplacedElsewhere> {
        self.admission.as_mut()?.take_replaced_elsewhere()
    }

    /// Another shard has [found](Self::take_replaced_elsewhere) that the session of an address ends. Returns that session, which the
    /// endpoint has forgotten.
    pub fn replaced(&mut self, now: Instant, address: SocketAddr) -> Option<Handle> {
        let handle = self.admission.as_ref()?.latest_of(address)?;
        self.close(now, handle, None).then_some(handle)
    }

    /// The hand-over of a run of packets of no route of this shard, if they are for another one.
    pub(super) fn for_other_shard(
        &mut self,
        conv: u32,
        bytes: &[u8],
        range: &Range<usize>,
    ) -> Option<HandOver> {
        let shard = self.shard.as_ref().filter(|_| !self.batch.handed_over)?;
        let (source, stride, phase) = (self.batch.source, self.batch.stride, self.batch.run_phase);
        let address_counts = self.admission.as_ref().is_some_and(super::Admission::is_one_per_address);
        let run = &bytes[range.clone()];
        #[cfg(feature = "noise")]
        let may_be_sealed = self.may_be_sealed_elsewhere(conv, run);
        #[cfg(not(feature = "noise"))]
        let may_be_sealed = false;
        let shard = shard.other(&(source, conv), self.batch.payloads(run), address_counts, may_be_sealed)?;
        self.stats.handed_over += range.len().div_ceil(stride) as u64;
        Some(HandOver { shard, range: range.clone(), stride, source, phase })
    }

    /// How many sessions there are, with those of other shards.
    pub(super) fn live(&self) -> usize {
        self.shard.as_ref().map_or_else(|| self.routes.len(), |shard| shard.table.sessions())
    }

    /// Counts a session that is about to begin, and has its route belong to this shard. `replaces`: another one gives way to it.
    ///
    /// # Errors
    /// There are too many, or another shard has the route by now. That is counted.
    pub(super) fn reserve(&mut self, route: &Route, replaces: bool, packets: u64) -> Result<(), ()> {
        let Some(shard) = &self.shard else { return Ok(()) };
        let max = if replaces { usize::MAX } else { self.max_sessions };
        if !shard.table.add_session(max) {
            self.stats.dropped_max_sessions += packets;
            tell!(refused(route.0, route.1, "max_sessions", packets));
            return Err(());
        }
        if shard.hold_route(route).is_err() {
            shard.table.remove_session();
            self.stats.dropped_no_session += packets;
            return Err(());
        }
        Ok(())
    }

    /// Removes a session, and counts it no longer.
    pub(super) fn remove(&mut self, handle: Handle) -> Option<Entry> {
        let entry = self.routes.remove(handle)?;
        if let Some(shard) = &self.shard {
            shard.table.remove_session();
        }
        Some(entry)
    }

    /// A session that was to begin does not.
    pub(super) fn unreserve(&self, route: &Route) {
        if let Some(shard) = &self.shard {
            shard.release_route(route);
            shard.table.remove_session();
        }
    }
}
