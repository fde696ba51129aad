//! The sessions of a socket, and what those that have ended had counted.
//!
//! A session is entered when it begins and adds its counters when it is dropped, so that nothing it did is lost from the sums.
//! Nothing here is touched by packets. Whoever adds up visits the sessions in small parts, and holds the lock for none of their own
//! locks: a driver waits for it no longer than it takes to copy a few pointers, however many sessions there are.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    vec::Vec,
};

use super::figures::{SESSION, SUMMED_GAUGES, cause};
use crate::{
    net::{error::KcpError, session::Session, stats::EndpointStats},
    proto::Stats,
};

/// The sessions of one socket.
#[derive(Debug, Default)]
pub(in crate::net) struct Registry {
    entries: Mutex<Entries>,
    /// Held for a whole visit: two at a time would get in each other's way.
    visiting: Mutex<()>,
}

#[derive(Debug, Default)]
struct Entries {
    /// By the number that the session has noted.
    sessions: Vec<Option<Weak<Session>>>,
    /// Numbers that are free again.
    free: Vec<u32>,
    count: usize,
    most: usize,
    ended: Totals,
    /// The visit that is under way.
    visit: Option<Visit>,
    /// What the socket had counted when it was closed.
    last: Option<EndpointStats>,
}

#[derive(Debug)]
struct Visit {
    /// Sessions with lower numbers have been visited.
    next: usize,
    /// What those had counted that ended before they were.
    missed: Totals,
}

/// Counters of many sessions, and how many have begun and ended.
#[derive(Debug, Clone)]
pub(super) struct Totals {
    /// In the order of [`SESSION`].
    pub(super) counters: [u64; SESSION.len()],
    /// Sessions that have ended, by [cause](super::figures::cause).
    pub(super) ended: HashMap<&'static str, u64>,
    /// Sessions that this end began.
    pub(super) connected: u64,
}

/// What a visit has found.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) totals: Totals,
    /// In the order of [`SUMMED_GAUGES`].
    pub(super) gauges: [f64; SUMMED_GAUGES.len()],
    pub(super) rtt: RttRange,
    /// The most sessions at a time.
    pub(super) most: usize,
}

/// Round-trip times of many sessions, in seconds.
#[derive(Debug, Clone, Default)]
pub(super) struct RttRange {
    pub(super) least: f64,
    pub(super) greatest: f64,
    sum: f64,
    count: u32,
}

/// Who began a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) enum Side {
    Connected,
    Accepted,
}

impl Registry {
    /// Enters a session.
    pub(in crate::net) fn insert(&self, session: &Arc<Session>, side: Side) {
        let mut entries = self.entries();
        let number = match entries.free.pop() {
            Some(number) => number,
            None => {
                // There is no memory for as many.
                let Ok(number) = u32::try_from(entries.sessions.len()) else { return };
                entries.sessions.push(None);
                number
            }
        };
        entries.sessions[number as usize] = Some(Arc::downgrade(session));
        entries.count += 1;
        entries.most = entries.most.max(entries.count);
        entries.ended.connected += u64::from(side == Side::Connected);
        session.set_registered(number);
    }

    /// Takes out a session that is dropped, and keeps what it has counted.
    pub(in crate::net) fn remove(&self, number: u32, stats: &Stats, reason: &KcpError) {
        let cause = cause(reason);
        let mut entries = self.entries();
        let Some(entry) = entries.sessions.get_mut(number as usize) else { return };
        *entry = None;
        entries.free.push(number);
        entries.count -= 1;
        entries.ended.add_ended(stats, cause);
        if let Some(visit) = entries.visit.as_mut().filter(|visit| visit.next <= number as usize) {
            visit.missed.add_ended(stats, cause);
        }
        if entries.count == 0 {
            // Gives the memory of a crowd back.
            entries.sessions = Vec::new();
            entries.free = Vec::new();
        }
    }

    /// Keeps what the socket has counted, now that it is closed.
    pub(in crate::net) fn close(&self, stats: EndpointStats) {
        self.entries().last = Some(stats);
    }

    /// What the socket had counted when it was closed; `None` while it is open.
    pub(super) fn last(&self) -> Option<EndpointStats> {
        self.entries().last
    }

    /// Adds up what all sessions have counted, those that have ended included, and how the live ones stand.
    ///
    /// One that ends meanwhile is counted once. One that is being dropped at the moment of its visit may be missing until the next:
    /// a recorder takes no counter back.
    pub(super) fn visit(&self) -> Seen {
        let _visiting = lock(&self.visiting);
        let mut seen = Seen::default();
        {
            let mut entries = self.entries();
            seen.totals = entries.ended.clone();
            entries.visit = Some(Visit { next: 0, missed: Totals::default() });
        }
        let mut part: Vec<Arc<Session>> = Vec::with_capacity(PART);
        while self.next_part(&mut part) {
            // Without the lock: the last reference to a session may be dropped here, and it takes the lock then.
            for session in part.drain(..) {
                seen.add_live(&session.stats());
            }
        }
        let mut entries = self.entries();
        if let Some(visit) = entries.visit.take() {
            seen.totals.add(&visit.missed);
        }
        seen.most = entries.most;
        seen
    }

    /// The next sessions of the visit. Returns whether there was a part left; all in it may be about to be dropped.
    fn next_part(&self, part: &mut Vec<Arc<Session>>) -> bool {
        let mut entries = self.entries();
        let Entries { sessions, visit: Some(visit), .. } = &mut *entries else { return false };
        let Some(rest) = sessions.get(visit.next..).filter(|rest| !rest.is_empty()) else { return false };
        let taken = rest.len().min(PART);
        part.extend(rest[..taken].iter().flatten().filter_map(Weak::upgrade));
        visit.next += taken;
        true
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        lock(&self.entries)
    }
}

impl Default for Totals {
    fn default() -> Self {
        Self { counters: [0; SESSION.len()], ended: HashMap::new(), connected: 0 }
    }
}

impl Totals {
    fn add_stats(&mut self, stats: &Stats) {
        for (sum, figure) in self.counters.iter_mut().zip(SESSION) {
            *sum += (figure.get)(stats);
        }
    }

    fn add_ended(&mut self, stats: &Stats, cause: &'static str) {
        self.add_stats(stats);
        *self.ended.entry(cause).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (sum, value) in self.counters.iter_mut().zip(other.counters) {
            *sum += value;
        }
        for (cause, count) in &other.ended {
            *self.ended.entry(cause).or_default() += count;
        }
        self.connected += other.connected;
    }
}

impl Seen {
    fn add_live(&mut self, stats: &Stats) {
        self.totals.add_stats(stats);
        for (sum, figure) in self.gauges.iter_mut().zip(SUMMED_GAUGES) {
            *sum += (figure.get)(stats);
        }
        let rtt = stats.path.rtt.as_secs_f64();
        if rtt > 0.0 {
            self.rtt.add(&RttRange { least: rtt, greatest: rtt, sum: rtt, count: 1 });
        }
    }

    /// Adds what was seen of another socket.
    pub(super) fn add(&mut self, other: &Self) {
        self.totals.add(&other.totals);
        for (sum, value) in self.gauges.iter_mut().zip(other.gauges) {
            *sum += value;
        }
        self.rtt.add(&other.rtt);
        self.most += other.most;
    }
}

impl RttRange {
    /// Zero where there is none.
    pub(super) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / f64::from(self.count) }
    }

    fn add(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.least = if self.count == 0 { other.least } else { self.least.min(other.least) };
        self.greatest = self.greatest.max(other.greatest);
        self.sum += other.sum;
        self.count += other.count;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks, but for a lack of memory.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sessions that are visited at a time.
const PART: usize = 64;
