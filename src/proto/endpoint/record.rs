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
//! | anything else | late | nothing |
//!
//! A PUSH is taken for a resend only if its `una` shows that its sender knows what the session's peer knew: a session begun
//! anew has received nothing yet, and its `una` says so. So the numbers of the new session, which are those of the old one,
//! are not acknowledged in place of it.
//!
//! Who began the session here is not answered: a session that was begun here had a listener as its peer, and kcp-go's
//! listener takes any packet for the beginning of a session.
//!
//! A record takes 56 bytes. It holds a keyed hash of its route, not the route itself: nobody can find two routes of one hash.

use alloc::collections::VecDeque;
use core::{
    hash::{BuildHasher, Hasher},
    num::NonZeroU64,
    time::Duration,
};

use super::{
    hash::{HashKey, Map},
    routes::{Role, Route},
};
use crate::proto::{Command, Instant, SegmentHeader, connection::ClosedRecord, pipeline::segments, seq};

/// How long a record stays: as long as a peer resends. `linger` and `dead_timeout` are 30 s by default.
const LIFETIME: Duration = Duration::from_secs(60);
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

/// What a record answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// An ACK of the PUSH with this `sn` and `ts`. `una` acknowledges every other PUSH that had arrived, too.
    Ack { sn: u32, ts: u32, una: u32 },
}

impl Records {
    pub(super) fn new(key: HashKey) -> Self {
        Self { key, records: VecDeque::new(), front: 0, latest: Map::with_hasher(key) }
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
        self.latest.insert(route, self.front.wrapping_add(self.records.len() as u32));
        self.records.push_back(Record { route, ended_at: now, role, first_push, left });
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
        let record = self.records.get(number.wrapping_sub(self.front) as usize)?;
        Some(record.judge(self.key, now, payloads))
    }

    fn expire(&mut self, now: Instant) {
        while self.records.front().is_some_and(|record| record.ended_at + LIFETIME <= now) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some(record) = self.records.pop_front() else { return };
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
    fn judge<'a>(&self, key: HashKey, now: Instant, payloads: impl Iterator<Item = &'a [u8]>) -> Verdict {
        if self.role == Role::Connected {
            return Verdict::Nothing;
        }
        let mut answer = Verdict::Nothing;
        for (header, payload) in payloads.flat_map(segments) {
            if header.cmd != Command::Push {
                continue;
            }
            if header.sn == 0 && !self.is_first_push(&header, FirstPush::of(key, payload)) {
                let begins = now - self.ended_at >= QUIET;
                return if begins { Verdict::MayBegin } else { Verdict::Nothing };
            }
            if answer == Verdict::Nothing
                && let Some(una) = self.una_for(&header)
            {
                answer = Verdict::Answer(Answer::Ack { sn: header.sn, ts: header.ts, una });
            }
        }
        answer
    }

    /// Whether a PUSH with `sn` 0 is the session's first one.
    fn is_first_push(&self, header: &SegmentHeader, push: FirstPush) -> bool {
        if self.left.is_some_and(|left| !left.is_told_by(header)) {
            return false;
        }
        // If nothing is known, it is for the time to decide.
        if self.first_push.0.is_some() { push == self.first_push } else { self.left.is_some() }
    }

    /// What acknowledges a PUSH that had arrived; `None` if it had not.
    fn una_for(&self, header: &SegmentHeader) -> Option<u32> {
        let una = self.left.filter(|left| left.is_told_by(header))?.numbers.received;
        seq::before(header.sn, una).then_some(una)
    }
}

impl ClosedRecord {
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

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::net::SocketAddr;

    use super::*;
    use crate::proto::arq::SequenceNumbers;

    const KEY: HashKey = HashKey::for_tests();
    const NOW: Instant = Instant::from_millis(5_000);

    fn route(conv: u32) -> Route {
        (SocketAddr::from(([127, 0, 0, 1], 1)), conv)
    }

    fn push(sn: u32, una: u32, payload: &[u8]) -> Vec<u8> {
        let len = payload.len() as u32;
        let header = SegmentHeader { conv: 1, cmd: Command::Push, frg: 0, wnd: 9, ts: 77, sn, una, len };
        [&header.to_bytes()[..], payload].concat()
    }

    fn closed(received: u32, acknowledged: u32, sent: u32) -> Option<ClosedRecord> {
        Some(ClosedRecord { numbers: SequenceNumbers { received, acknowledged, sent } })
    }

    /// Records with that of an accepted session, which began with `request`.
    fn records_of(left: Option<ClosedRecord>) -> Records {
        let mut records = Records::new(KEY);
        let first = push(0, 0, b"request");
        records.insert(NOW, &route(1), Role::Accepted, FirstPush::find(KEY, [&first[..]].into_iter()), left);
        records
    }

    fn judge(records: &mut Records, after: Duration, packets: &[&[u8]]) -> Option<Verdict> {
        records.judge(NOW + after, &route(1), packets.iter().copied())
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    const fn ack(sn: u32, una: u32) -> Option<Verdict> {
        Some(Verdict::Answer(Answer::Ack { sn, ts: 77, una }))
    }

    #[test]
    fn what_had_arrived_is_acknowledged_for_a_minute() {
        let mut records = records_of(closed(10, 2, 5));
        for after in [0, 100, 2_999, 3_000, 59_999].map(ms) {
            assert_eq!(judge(&mut records, after, &[&push(0, 2, b"request")]), ack(0, 10), "{after:?}");
            assert_eq!(judge(&mut records, after, &[&push(9, 5, b"end")]), ack(9, 10), "{after:?}");
            let both = [push(7, 3, b"x"), push(8, 3, b"y")].concat();
            assert_eq!(judge(&mut records, after, &[&both]), ack(7, 10), "one answer a run");
            assert_eq!(judge(&mut records, after, &[&push(10, 5, b"new"), &push(9, 5, b"end")]), ack(9, 10));
        }
        assert_eq!(judge(&mut records, ms(60_000), &[&push(9, 5, b"end")]), None);
    }

    #[test]
    fn what_had_not_arrived_is_not_acknowledged() {
        let mut records = records_of(closed(10, 0, 0));
        assert_eq!(judge(&mut records, ms(9), &[&push(10, 0, b"more")]), Some(Verdict::Nothing));
        assert_eq!(judge(&mut records, ms(9), &[&push(1 << 31, 0, b"far")]), Some(Verdict::Nothing));
    }

    #[test]
    fn another_first_payload_begins_a_session_after_a_while() {
        let mut records = records_of(closed(10, 0, 5));
        let other = push(0, 0, b"another");
        for (after, verdict) in [(2_999, Verdict::Nothing), (3_000, Verdict::MayBegin)] {
            assert_eq!(judge(&mut records, ms(after), &[&other]), Some(verdict), "{after}");
            // No number of the new session is acknowledged by the old one's record.
            let batch = [&push(1, 0, b"b")[..], &other];
            assert_eq!(judge(&mut records, ms(after), &batch), Some(verdict), "{after}");
        }
    }

    /// A program that begins each session with the same bytes comes back with the same port and conv.
    #[test]
    fn who_has_received_less_than_the_peer_had_is_another() {
        let mut records = records_of(closed(10, 2, 5));
        let again = push(0, 0, b"request");
        assert_eq!(judge(&mut records, ms(2_999), &[&again]), Some(Verdict::Nothing));
        assert_eq!(judge(&mut records, ms(3_000), &[&again]), Some(Verdict::MayBegin));
        for una in [0, 1, 6, u32::MAX] {
            assert_eq!(
                judge(&mut records, ms(3_000), &[&push(1, una, b"x")]),
                Some(Verdict::Nothing),
                "{una}"
            );
        }
    }

    #[test]
    fn numbers_wrap() {
        let mut records = records_of(closed(3, u32::MAX, 2));
        for sn in [0, 2, u32::MAX] {
            for una in [u32::MAX, 0, 2] {
                assert_eq!(
                    judge(&mut records, ms(1), &[&push(sn, una, b"request")]),
                    ack(sn, 3),
                    "{sn} {una}"
                );
            }
        }
        assert_eq!(judge(&mut records, ms(1), &[&push(3, 0, b"x")]), Some(Verdict::Nothing));
        assert_eq!(judge(&mut records, ms(1), &[&push(2, 3, b"x")]), Some(Verdict::Nothing));
    }

    #[test]
    fn without_a_record_of_its_numbers_a_session_is_not_begun_twice_and_nothing_is_answered() {
        let mut records = records_of(None);
        for after in [0, 2_999, 3_000, 59_999].map(ms) {
            assert_eq!(judge(&mut records, after, &[&push(0, 0, b"request")]), Some(Verdict::Nothing));
            assert_eq!(judge(&mut records, after, &[&push(1, 0, b"x")]), Some(Verdict::Nothing));
        }
        assert_eq!(judge(&mut records, ms(3_000), &[&push(0, 0, b"another")]), Some(Verdict::MayBegin));
    }

    #[test]
    fn a_session_that_was_begun_here_answers_nothing() {
        let mut records = Records::new(KEY);
        records.insert(NOW, &route(1), Role::Connected, FirstPush::default(), closed(10, 0, 5));
        for after in [0, 3_000, 59_999].map(ms) {
            for packet in [push(0, 5, b"request"), push(9, 5, b"end")] {
                assert_eq!(judge(&mut records, after, &[&packet]), Some(Verdict::Nothing));
            }
        }
    }

    #[test]
    fn of_a_route_the_last_record_counts_until_it_is_over() {
        let mut records = records_of(closed(10, 0, 5));
        let later = NOW + ms(30_000);
        records.insert(later, &route(1), Role::Accepted, FirstPush::default(), closed(20, 0, 5));
        assert_eq!(judge(&mut records, ms(59_999), &[&push(15, 0, b"x")]), ack(15, 20));
        assert_eq!(judge(&mut records, ms(60_000), &[&push(15, 0, b"x")]), ack(15, 20));
        assert_eq!(judge(&mut records, ms(90_000), &[&push(15, 0, b"x")]), None);
        assert!(records.records.is_empty() && records.latest.is_empty());
    }

    #[test]
    fn a_record_is_small() {
        assert!(size_of::<Record>() <= 56, "{}", size_of::<Record>());
    }

    #[test]
    #[cfg_attr(miri, ignore = "so many take minutes, and do nothing that few do not")]
    fn no_more_than_the_limit_are_kept_and_their_memory_is_given_back() {
        let mut records = Records::new(KEY);
        let count = 2 * MAX as u32 + 5;
        for conv in 0..count {
            records.insert(NOW, &route(conv), Role::Accepted, FirstPush::default(), closed(1, 0, 0));
        }
        assert_eq!((records.records.len(), records.latest.len()), (MAX, MAX));
        let mut known = |conv| records.judge(NOW, &route(conv), core::iter::empty()).is_some();
        assert!(!known(0) && !known(count - MAX as u32 - 1));
        assert!(known(count - MAX as u32) && known(count - 1));
        assert_eq!(records.judge(NOW + LIFETIME, &route(count - 1), core::iter::empty()), None);
        assert!(records.records.capacity() <= MIN_CAPACITY && records.latest.capacity() <= 2 * MIN_CAPACITY);
    }
}
