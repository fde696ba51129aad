//! Records of sessions that had keys of their own.
//!
//! What such a session's peer resends is sealed under those keys, and so is what answers it. So the keys stay with the record, for as
//! long as it does. They take a KiB and a half once they were used, so there are fewer of these records: past [`MAX`] the oldest go early, and their peers learn by a
//! timeout what an answer would have told them.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};

use super::{
    Endpoint, Handle,
    hash::{HashKey, Map},
    record::{LIFETIME, Records, Verdict},
    routed::Reply,
    routes::{Role, Route},
};
use crate::proto::{
    ClosedRecord, Instant,
    noise::{HEADER_LEN, SessionKeys, TAG_LEN},
};

/// Most records that are kept.
const MAX: usize = 4_096;

#[derive(Debug)]
pub(super) struct SealedRecords {
    records: Records,
    keys: Map<Route, (Box<SessionKeys>, Instant)>,
    /// By the time at which they are forgotten. Some may be gone.
    order: VecDeque<(Instant, Route)>,
}

impl SealedRecords {
    fn new(key: HashKey) -> Self {
        Self { records: Records::new(key), keys: Map::with_hasher(key), order: VecDeque::new() }
    }

    fn insert(
        &mut self,
        now: Instant,
        route: Route,
        role: Role,
        record: ClosedRecord,
        mut keys: Box<SessionKeys>,
    ) {
        self.expire(now);
        if self.order.len() >= MAX {
            self.forget_oldest();
        }
        keys.trim(now);
        self.records.insert(now, &route, role, super::record::FirstPush::default(), Some(record));
        self.order.push_back((now + LIFETIME, route));
        self.keys.insert(route, (keys, now + LIFETIME));
    }

    fn forget_oldest(&mut self) {
        let Some((until, route)) = self.order.pop_front() else { return };
        if self.keys.get(&route).is_some_and(|(_, at)| *at == until) {
            self.keys.remove(&route);
        }
    }

    pub(super) fn expire(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            self.forget_oldest();
        }
        self.records.expire(now);
    }

    pub(super) fn expires_at(&self) -> Option<Instant> {
        self.order.front().map(|(until, _)| *until)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn contains(&self, route: &Route) -> bool {
        self.keys.contains_key(route)
    }
}

impl Endpoint {
    /// As [`close`](Self::close), for a session that had keys of its own: those that
    /// [`Connection::take_session_keys`](crate::proto::Connection::take_session_keys) has returned after its record was taken. What the
    /// peer still sends is answered under them. [`close`](Self::close) forgets such a session without a trace.
    pub fn close_sealed(
        &mut self,
        now: Instant,
        handle: Handle,
        record: ClosedRecord,
        keys: Option<Box<SessionKeys>>,
    ) -> bool {
        let Some((route, role)) = self.routes.get(handle).map(|entry| (entry.route, entry.role)) else {
            return false;
        };
        let keys = keys.filter(|keys| keys.is_peer_heard());
        let closed = self.close_keeping(now, handle, None, keys.is_some());
        if record.may_be_asked() {
            self.asked.on_end(now, core::time::Duration::from_millis(record.resend_millis.into()));
        }
        if let Some(keys) = keys {
            let key = self.key;
            let records = self.sealed_records.get_or_insert_with(|| Box::new(SealedRecords::new(key)));
            records.insert(now, route, role, record, keys);
        }
        closed
    }

    /// What the record of a sealed session answers to a packet of its route: `None` if there is no such record, or the packet is not of
    /// its peer.
    pub(super) fn ask_sealed_record(
        &mut self,
        now: Instant,
        conv: u32,
        packet: &[u8],
    ) -> Option<Option<Reply>> {
        let route = (self.batch.source, conv);
        let records = self.sealed_records.as_mut()?;
        records.expire(now);
        let (keys, _) = records.keys.get_mut(&route)?;
        let mut copy: Vec<u8> = packet.to_vec();
        let payload: &[u8] = keys.open(now, conv, &mut copy).ok()?;
        let verdict = records.records.judge(now, &route, core::iter::once(payload));
        self.stats.dropped_recently_closed += 1;
        let Some(Verdict::Answer(answer)) = verdict else { return Some(None) };
        self.asked.on_question(now);
        if !self.limits.take_record(now) {
            self.stats.replies_limited += 1;
            return Some(None);
        }
        let around = HEADER_LEN + TAG_LEN;
        let most = packet.len().checked_sub(around)?;
        let mut sealed = alloc::vec![0; packet.len()];
        let len = answer.write(now, conv, &mut sealed[HEADER_LEN..HEADER_LEN + most])?;
        sealed.truncate(len + around);
        if keys.seal(now, conv, &mut sealed).is_err() {
            return Some(None);
        }
        self.stateless.set_packet(sealed);
        self.stats.replies_sent += 1;
        Some(Some(Reply { to: route.0 }))
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use super::*;
    use crate::proto::{Connection, KcpConfig};

    #[test]
    fn no_more_records_are_kept_than_the_limit_nor_longer_than_a_minute() {
        let record = Connection::new(7, &KcpConfig::default(), Instant::ZERO).record();
        let mut records = SealedRecords::new(HashKey::for_tests());
        let route = |nth: usize| (SocketAddr::from(((nth as u32).to_be_bytes(), 1)), 7);
        let at = |nth: usize| Instant::from_millis(nth as u64);
        for nth in 0..MAX + 10 {
            let [_, keys] = SessionKeys::pair_for_tests();
            records.insert(at(nth), route(nth), Role::Accepted, record, Box::new(keys));
        }
        assert_eq!((records.keys.len(), records.order.len()), (MAX, MAX));
        assert!(!records.contains(&route(9)) && records.contains(&route(10)), "the oldest go");
        let last = at(MAX + 9) + LIFETIME;
        records.expire(at(MAX + 8) + LIFETIME);
        assert!(records.contains(&route(MAX + 9)) && !records.contains(&route(MAX + 8)));
        records.expire(last);
        assert!(records.is_empty() && records.keys.is_empty());
    }
}
