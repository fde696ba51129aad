//! Records of sessions that have ended: TCP's TIME-WAIT.
//!
//! The last ACK of a session may be lost. Its sender has ended the session by then, and the peer resends. The resend must not
//! begin a second session for the same request, and the peer must learn that everything has arrived. So a session leaves a
//! record: what it had received, and enough to tell its peer's resends from a session that the peer begins anew with the same
//! address and conv.
//!
//! | the packet holds | what it is | what the record does |
//! |---|---|---|
//! | the first PUSH, with the payload of the session's first PUSH | a resend | acknowledges it |
//! | the first PUSH, with another payload | a new session | lets it begin if the record is 3 s old, else nothing |
//! | another PUSH that had arrived | a resend | acknowledges it |
//! | HELLO of another id | a new session | as for the first PUSH |
//! | FIN that the session knew | a resend | answers FIN_ACK |
//! | PING | a peer that takes the session for alive, since every FIN was lost | answers FIN |
//! | anything else | late | nothing |
//!
//! Where the session was aborted here, ABORT is the answer to all that its peer sends. Where the peer ended it, nothing is
//! answered but PING, by RESET.
//!
//! A PUSH is taken for a resend only if its `una` shows that its sender knows what the session's peer knew: a session begun
//! anew has received nothing yet, and its `una` says so. So the numbers of the new session, which are those of the old one,
//! are not acknowledged in place of it.
//!
//! A peer without extensions is answered only if it began the session. Else it is a listener, and kcp-go's takes any packet for
//! the beginning of a session.
//!
//! A record takes 88 bytes. It holds a keyed hash of its route, not the route itself: nobody can find two routes of one hash.

#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use core::{
    hash::{BuildHasher, Hasher},
    num::NonZeroU64,
    time::Duration,
};

use super::{
    hash::{HashKey, Map},
    routes::{Role, Route},
    shard::Shard,
    stateless::Answer,
};
use crate::proto::{
    AbortReason, Command, Instant, SegmentHeader,
    connection::{ClosedRecord, Ended, KnownPeer, PeerRecord},
    extension::{Fin, Segment, SessionId, Subtype, is_beginning},
    pipeline::segments,
    seq,
};

/// How long a record stays: as long as a peer resends. `linger` and `dead_timeout` are 30 s by default.
pub(super) const LIFETIME: Duration = Duration::from_secs(60);
/// How long nothing begins a session anew with the same address and conv. It is longer than a packet travels, so that late
/// packets of the old session, whose numbers begin at 0 as well, do not get into the new one. It is shorter than a user's
/// patience with a peer that comes back.
const QUIET: Duration = Duration::from_secs(3);
/// Most records. Past it, the oldest go early.
const MAX: usize = 65_536;
/// Records that memory is kept for, at least.
const MIN_CAPACITY: usize = 64;

/// The records of an endpoint, the oldest first.
#[derive(Debug)]
pub(super) struct Records {
    key: HashKey,
    records: VecDeque<Record>,
    /// The number of the record at the front. Each record has the next number.
    front: u32,
    /// The numbers of the latest records, by the hashes of their routes.
    latest: Map<u64, u32>,
    shard: Option<Shard>,
}

/// What is known of one session that has ended.
#[derive(Debug)]
struct Record {
    /// The hash of its route.
    route: u64,
    ended_at: Instant,
    role: Role,
    first_push: FirstPush,
    /// `None` if the caller had none: then nothing is answered.
    left: Option<ClosedRecord>,
    /// The id of a HELLO that came only now.
    late_id: Option<SessionId>,
}

/// A keyed hash of the payload of a session's first PUSH, if that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FirstPush(Option<NonZeroU64>);

/// What a record makes of packets of its route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// They may begin a session.
    MayBegin,
    /// They begin none, and are answered.
    Answer(Answer),
    /// They begin none.
    Nothing,
}

/// What a segment means to a record.
#[derive(Debug, Clone, Copy)]
enum Meaning {
    /// Its sender begins a session anew.
    Begins,
    /// The peer of the old session asks for this.
    Asks(Answer),
    /// It is late, or of somebody else.
    Late,
}

impl Records {
    pub(super) fn new(key: HashKey) -> Self {
        Self { key, records: VecDeque::new(), front: 0, latest: Map::with_hasher(key), shard: None }
    }

    /// Has the routes of records belong to this shard.
    pub(super) fn set_shard(&mut self, shard: Shard) {
        self.shard = Some(shard);
    }

    /// Adds the record of a session that has ended.
    pub(super) fn insert(
        &mut self,
        now: Instant,
        route: &Route,
        role: Role,
        first_push: FirstPush,
        left: Option<ClosedRecord>,
    ) {
        self.expire(now);
        if self.records.len() == MAX {
            self.forget_oldest();
        }
        let route = self.key.hash_one(route);
        if let Some(shard) = &self.shard {
            shard.hold_hash(route);
        }
        self.latest.insert(route, self.front.wrapping_add(self.records.len() as u32));
        self.records.push_back(Record { route, ended_at: now, role, first_push, left, late_id: None });
    }

    /// What is to become of decrypted packets of a route that has no session. `None` if there is no record of it.
    pub(super) fn judge<'a>(
        &mut self,
        now: Instant,
        route: &Route,
        payloads: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Verdict> {
        self.expire(now);
        if self.records.is_empty() {
            return None;
        }
        let number = self.latest.get(&self.key.hash_one(route))?;
        let record = self.records.get_mut(number.wrapping_sub(self.front) as usize)?;
        Some(record.judge(self.key, now, payloads))
    }

    /// When the oldest record has lived its time.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        self.records.front().map(|record| record.ended_at + LIFETIME)
    }

    /// Forgets the records that have lived their time.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.records.front().is_some_and(|record| record.ended_at + LIFETIME <= now) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(record) = self.records.pop_front() else { return };
        if let Some(shard) = &self.shard {
            shard.release_hash(record.route);
        }
        // A route that has a later record keeps that one.
        if self.latest.get(&record.route) == Some(&self.front) {
            self.latest.remove(&record.route);
        }
        self.front = self.front.wrapping_add(1);
        // Gives the memory of a crowd back.
        let capacity = self.records.capacity();
        if capacity > MIN_CAPACITY && self.records.len() < capacity / 4 {
            self.records.shrink_to(capacity / 2);
            self.latest.shrink_to(capacity / 2);
        }
    }
}

impl Record {
    fn judge<'a>(&mut self, key: HashKey, now: Instant, payloads: impl Iterator<Item = &'a [u8]>) -> Verdict {
        let mut answer: Option<Answer> = None;
        for (payload, (header, body)) in
            payloads.flat_map(|payload| segments(payload).map(move |segment| (payload, segment)))
        {
            let meaning = match header.cmd {
                Command::Push => self.on_push(&header, || FirstPush::of(key, body)),
                Command::Extension => self.on_extension(payload, &header, body),
                Command::Ack | Command::Wask | Command::Wins => Meaning::Late,
            };
            match meaning {
                // Nothing of what stands around it is of the old session.
                Meaning::Begins if now - self.ended_at >= QUIET => return Verdict::MayBegin,
                Meaning::Begins => return Verdict::Nothing,
                Meaning::Asks(other) if answer.is_none_or(|answer| other.rank() > answer.rank()) => {
                    answer = Some(other);
                }
                Meaning::Asks(_) | Meaning::Late => {}
            }
        }
        answer.map_or(Verdict::Nothing, Verdict::Answer)
    }

    fn on_push(&self, header: &SegmentHeader, push: impl FnOnce() -> FirstPush) -> Meaning {
        let is_accepted = self.role == Role::Accepted;
        let is_told = self.left.is_none_or(|left| left.is_told_by(header));
        if is_accepted && header.sn == 0 && !(is_told && self.is_first_push(push())) {
            return Meaning::Begins;
        }
        let Some(left) = self.left.filter(|_| is_told) else { return Meaning::Late };
        let una = left.numbers.received;
        let had_arrived = seq::before(header.sn, una);
        let ack = Answer::Ack { sn: header.sn, ts: header.ts, una, mark: left.mark };
        match left.peer {
            PeerRecord::Legacy | PeerRecord::Unknown if is_accepted && had_arrived => Meaning::Asks(ack),
            // A legacy listener takes an ACK for the beginning of a session.
            PeerRecord::Legacy | PeerRecord::Unknown => Meaning::Late,
            PeerRecord::Known(peer) => match peer.ended {
                Ended::Finished | Ended::WithoutReader if had_arrived => Meaning::Asks(ack),
                Ended::WithoutReader => peer.abort(AbortReason::Unspecified.code()),
                Ended::Aborted(reason) => peer.abort(reason),
                Ended::Finished | Ended::ByPeer => Meaning::Late,
            },
        }
    }

    /// Whether a PUSH with `sn` 0 is the session's first one.
    fn is_first_push(&self, push: FirstPush) -> bool {
        // If nothing is known, it is for the time to decide.
        if self.first_push.is_known() { push == self.first_push } else { self.left.is_some() }
    }

    /// Of a segment of the packet with this `payload`.
    fn on_extension(&mut self, payload: &[u8], header: &SegmentHeader, body: &[u8]) -> Meaning {
        let Some(subtype) = Subtype::from_byte(header.frg) else { return Meaning::Late };
        let Ok(segment) = Segment::parse(subtype, header, body) else { return Meaning::Late };
        match (self.left.map(|left| left.peer), segment) {
            // A session can begin with it only where nothing else is in the packet.
            (_, Segment::Hello(_)) if !is_beginning(payload) => Meaning::Late,
            (Some(PeerRecord::Known(peer)), segment) => self.on_tagged(&peer, header, &segment),
            (Some(PeerRecord::Unknown), Segment::Hello(hello)) => self.on_late_hello(header, hello.id),
            (_, Segment::Hello(_)) if self.role == Role::Accepted => Meaning::Begins,
            _ => Meaning::Late,
        }
    }

    /// The HELLO of a session that its first PUSH had begun, or that of a new session. The first one counts as the old
    /// session's if its sender knows what the peer knew. It learns that the session is over.
    fn on_late_hello(&mut self, header: &SegmentHeader, id: SessionId) -> Meaning {
        let is_told = self.left.is_some_and(|left| left.is_told_by(header));
        if self.late_id.is_none() && is_told {
            self.late_id = Some(id);
        }
        if self.late_id != Some(id) {
            return Meaning::Begins;
        }
        Meaning::Asks(Answer::Abort { reason: AbortReason::Unspecified.code(), tag: id.tag() })
    }

    fn on_tagged(&self, peer: &KnownPeer, header: &SegmentHeader, segment: &Segment<'_>) -> Meaning {
        let is_for_us = header.sn == peer.tag;
        let numbers = self.left.map(|left| left.numbers);
        match (segment, peer.ended) {
            (Segment::Hello(hello), _) => {
                // That of this end was reflected.
                let is_known = peer.id.is_none_or(|id| id == hello.id) || is_for_us;
                if is_known { Meaning::Late } else { Meaning::Begins }
            }
            // One with the peer's own tag is a PING of this end that somebody sends back.
            (Segment::Ping(_), _) if peer.id.is_none_or(|id| id.tag() == header.sn) => Meaning::Late,
            (Segment::Ping(token), ended) if !is_for_us || ended == Ended::ByPeer => {
                Meaning::Asks(Answer::Reset { token: *token, tag: header.sn, ts: header.ts })
            }
            (Segment::Answer(answer), Ended::Aborted(reason)) if is_for_us && peer.id.is_none() => {
                Meaning::Asks(Answer::Abort { reason, tag: answer.id.tag() })
            }
            (Segment::Fin(_) | Segment::Ping(_), Ended::Aborted(reason)) if is_for_us => peer.abort(reason),
            (Segment::Fin(fin), Ended::Finished | Ended::WithoutReader) if is_for_us => {
                let is_known = peer.fin.is_some_and(|known| known.end == fin.end);
                match (peer.id, numbers) {
                    (Some(id), Some(numbers)) if is_known || peer.ended == Ended::WithoutReader => {
                        Meaning::Asks(Answer::FinAck { fin: *fin, tag: id.tag(), una: numbers.received })
                    }
                    _ => Meaning::Late,
                }
            }
            // The peer lacks nothing but our FIN: every one was lost.
            (Segment::Ping(_), ended) => match (peer.id, numbers) {
                (Some(id), Some(numbers)) => {
                    let fin = Fin { end: numbers.sent, no_reader: ended == Ended::WithoutReader };
                    Meaning::Asks(Answer::Fin { fin, tag: id.tag(), una: numbers.received })
                }
                _ => Meaning::Late,
            },
            _ => Meaning::Late,
        }
    }
}

impl KnownPeer {
    fn abort(&self, reason: u16) -> Meaning {
        self.id.map_or(Meaning::Late, |id| Meaning::Asks(Answer::Abort { reason, tag: id.tag() }))
    }
}

impl ClosedRecord {
    /// Whether the peer may wait for the answer to its FIN.
    pub(super) fn may_be_asked(&self) -> bool {
        let PeerRecord::Known(peer) = self.peer else { return false };
        matches!(peer.ended, Ended::Finished | Ended::WithoutReader)
    }

    /// Whether the sender of a segment has received what the peer had: no less than it had told, and no more than was sent.
    fn is_told_by(&self, header: &SegmentHeader) -> bool {
        let numbers = &self.numbers;
        seq::within(header.una, numbers.acknowledged, numbers.sent.wrapping_add(1))
    }
}

impl FirstPush {
    pub(super) const fn is_known(self) -> bool {
        self.0.is_some()
    }

    /// That of the session which decrypted packets begin.
    pub(super) fn find<'a>(key: HashKey, payloads: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut all = payloads.flat_map(segments);
        let first = all.find(|(header, _)| header.cmd == Command::Push && header.sn == 0);
        first.map_or_else(Self::default, |(_, payload)| Self::of(key, payload))
    }

    fn of(key: HashKey, payload: &[u8]) -> Self {
        let mut hasher = key.build_hasher();
        hasher.write(payload);
        Self(NonZeroU64::new(hasher.finish().max(1)))
    }
}
