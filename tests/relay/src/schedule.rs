//! Packets that wait for their time, and the thread that sends them then.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    net::{SocketAddr, UdpSocket},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Instant,
};

use super::LOOK_UP;

/// A packet on its way.
pub(super) struct Departure {
    pub(super) due: Instant,
    /// Its direction.
    pub(super) way: usize,
    pub(super) packet: Vec<u8>,
    pub(super) over: Arc<UdpSocket>,
    pub(super) to: SocketAddr,
}

/// What both directions have under way, in the order in which it leaves.
#[derive(Default)]
pub(super) struct Schedule {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// The next to leave on top.
    queue: BinaryHeap<Reverse<Queued>>,
    /// How many there are of each direction.
    count: [usize; 2],
    serial: u64,
}

impl Schedule {
    pub(super) fn add(&self, departure: Departure) {
        let mut waiting = self.lock();
        waiting.count[departure.way] += 1;
        waiting.serial += 1;
        let queued = Queued { serial: waiting.serial, departure };
        let earliest = waiting.queue.peek().is_none_or(|Reverse(next)| queued < *next);
        waiting.queue.push(Reverse(queued));
        drop(waiting);
        // Otherwise the thread wakes in time for one before it.
        if earliest {
            self.wake();
        }
    }

    /// How many packets of a direction wait.
    pub(super) fn waiting(&self, way: usize) -> usize {
        self.lock().count[way]
    }

    pub(super) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Sends what is due until the relay is gone.
    pub(super) fn run(&self, gone: &AtomicBool) {
        let mut waiting = self.lock();
        while !gone.load(std::sync::atomic::Ordering::Relaxed) {
            let next = waiting.queue.peek().map(|Reverse(next)| next.departure.due);
            let pause =
                next.map_or(LOOK_UP, |due| due.saturating_duration_since(Instant::now()).min(LOOK_UP));
            if !pause.is_zero() {
                let woken = self.changed.wait_timeout(waiting, pause);
                waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let Some(Reverse(Queued { departure, .. })) = waiting.queue.pop() else { continue };
            waiting.count[departure.way] -= 1;
            drop(waiting);
            // An error is an ICMP answer to something sent before: not the relay's business.
            let _ = departure.over.send_to(&departure.packet, departure.to);
            waiting = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ordered by time, and by when it was added.
struct Queued {
    serial: u64,
    departure: Departure,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.departure.due, self.serial).cmp(&(other.departure.due, other.serial))
    }
}
