//! What other shards have for a driver.
//!
//! It has room for so much, and no more: a shard that gets more than it can serve loses packets, as a full socket does, and holds up
//! nobody. The drivers that hand over wait for nothing but a short lock.

#[cfg(all(test, kcp9_loom))]
mod loom;

use std::{
    sync::{PoisonError, atomic::Ordering},
    task::Waker,
    vec::Vec,
};

use crate::net::{
    handover::DriverWaker,
    sync::{AtomicBool, Mutex, MutexGuard},
};

/// Bytes that wait for a driver at most: as many as a large socket buffer holds.
pub(in crate::net) const MAX_BYTES: usize = 1 << 20;
/// What an item takes beside the bytes that it says. So no more than 4,096 items wait.
pub(in crate::net) const ITEM_COST: usize = 256;

/// The inbox of one driver. Other drivers put items in, it takes them out.
#[derive(Debug)]
pub(in crate::net) struct Inbox<T> {
    queue: Mutex<Queue<T>>,
    /// Whether it holds any. The driver reads it in every turn, so it is not under the lock.
    has_any: AtomicBool,
    driver: DriverWaker,
}

#[derive(Debug)]
struct Queue<T> {
    items: Vec<T>,
    cost: usize,
    /// The driver has ended.
    closed: bool,
}

impl<T> Inbox<T> {
    pub(in crate::net) fn new() -> Self {
        Self {
            queue: Mutex::new(Queue { items: Vec::new(), cost: 0, closed: false }),
            has_any: AtomicBool::new(false),
            driver: DriverWaker::new(),
        }
    }

    /// Leaves the driver an item of so many bytes, if there is room. Returns whether there was.
    pub(in crate::net) fn push(&self, bytes: usize, item: impl FnOnce() -> T) -> bool {
        let mut queue = self.lock();
        let cost = queue.cost + bytes + ITEM_COST;
        if queue.closed || cost > MAX_BYTES {
            return false;
        }
        queue.items.push(item());
        queue.cost = cost;
        self.has_any.store(true, Ordering::Release);
        drop(queue);
        self.wake_driver();
        true
    }

    /// Whether an item waits.
    #[inline]
    pub(in crate::net) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// All that wait, the oldest first.
    pub(in crate::net) fn take(&self) -> Vec<T> {
        let mut queue = self.lock();
        self.has_any.store(false, Ordering::Relaxed);
        queue.cost = 0;
        std::mem::take(&mut queue.items)
    }

    /// The driver ends: nothing is left for it any more.
    pub(in crate::net) fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        queue.items = Vec::new();
    }

    /// Notes how to wake the driver. The driver calls it before it looks whether something waits.
    #[inline]
    pub(in crate::net) fn register_driver(&self, waker: &Waker) {
        self.driver.register(waker);
    }

    pub(in crate::net) fn wake_driver(&self) {
        self.driver.wake();
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        // Nothing panics while it holds this lock, but for a lack of memory.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(kcp9_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_full_inbox_takes_no_more_until_it_is_emptied() {
        let inbox = Inbox::new();
        let mut count = 0;
        while inbox.push(1_000, || count) {
            count += 1;
        }
        assert_eq!(count, MAX_BYTES / (1_000 + ITEM_COST));
        assert!(inbox.has_any());
        assert_eq!(inbox.take(), (0..count).collect::<Vec<_>>());
        assert!(!inbox.has_any() && inbox.push(1_000, || 0));
        inbox.close();
        assert!(!inbox.push(0, || 0));
    }

    #[test]
    fn items_without_bytes_fill_it_too() {
        let inbox = Inbox::new();
        assert_eq!((0..10_000).filter(|number| inbox.push(0, || *number)).count(), MAX_BYTES / ITEM_COST);
    }
}
