//! The sessions that a driver is to look at, and how it is woken for them.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    task::Waker,
    vec::Vec,
};

use super::driver_waker::DriverWaker;
use crate::net::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard};

/// The run queue of one socket's driver. Tasks put sessions in, the driver takes them out.
#[derive(Debug)]
pub(in crate::net) struct RunQueue<T> {
    queue: Mutex<Queue<T>>,
    /// Whether the queue holds any. The driver reads it for every batch that it receives, so it is not under the lock.
    has_any: AtomicBool,
    driver: DriverWaker,
    /// The handles through which sessions may still be added: the listener or endpoint.
    owners: AtomicUsize,
}

#[derive(Debug)]
struct Queue<T> {
    sessions: Vec<Arc<T>>,
    /// The driver has ended. Nobody will look, and a session kept here would keep the socket from being closed.
    closed: bool,
}

/// Whether a session is in the run queue, or on its way there. A part of each session.
#[derive(Debug)]
pub(in crate::net) struct Scheduled(AtomicBool);

impl Scheduled {
    pub(in crate::net) fn new() -> Self {
        Self(AtomicBool::new(false))
    }
}

impl<T: AsRef<Scheduled>> RunQueue<T> {
    /// An empty queue with one owner.
    pub(in crate::net) fn new() -> Self {
        Self {
            queue: Mutex::new(Queue { sessions: Vec::new(), closed: false }),
            has_any: AtomicBool::new(false),
            driver: DriverWaker::new(),
            owners: AtomicUsize::new(1),
        }
    }

    /// Has the driver look at `session` soon. A session that is already scheduled is not queued twice.
    ///
    /// # Errors
    /// When the driver has ended.
    pub(in crate::net) fn schedule(&self, session: &Arc<T>) -> Result<(), DriverEnded> {
        let scheduled = &(**session).as_ref().0;
        // A writer of small pieces finds the flag set each time, and reading it costs a part of what a swap does. That is enough, since
        // sessions are changed under their lock, and the driver clears the flag before it takes that. Who had the lock before the driver
        // changed what the driver sees; who has it afterwards reads the flag as it was cleared.
        if scheduled.load(Ordering::Acquire) || scheduled.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let mut queue = self.lock();
        if queue.closed {
            return Err(DriverEnded);
        }
        queue.sessions.push(Arc::clone(session));
        self.has_any.store(true, Ordering::Release);
        drop(queue);
        self.wake_driver();
        Ok(())
    }

    /// Whether a session waits to be looked at.
    #[inline]
    pub(in crate::net) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Moves the scheduled sessions to the end of `sessions`. From then on they may be scheduled again.
    pub(in crate::net) fn take(&self, sessions: &mut Vec<Arc<T>>) {
        let first = sessions.len();
        let mut queue = self.lock();
        sessions.append(&mut queue.sessions);
        self.has_any.store(false, Ordering::Relaxed);
        drop(queue);
        // Before the driver looks at them. A task that still finds the flag set changed the session before this, and the
        // driver sees that when it takes the session's lock.
        for session in &sessions[first..] {
            (**session).as_ref().0.store(false, Ordering::Release);
        }
    }

    /// The driver ends: sessions are not queued any more.
    pub(in crate::net) fn close(&self) {
        self.lock().closed = true;
    }

    /// Notes how to wake the driver. The driver calls it before it looks at the queue.
    #[inline]
    pub(in crate::net) fn register_driver(&self, waker: &Waker) {
        self.driver.register(waker);
    }

    pub(in crate::net) fn wake_driver(&self) {
        self.driver.wake();
    }

    /// The listener or endpoint is dropped: it adds no more sessions.
    pub(in crate::net) fn remove_owner(&self) {
        if self.owners.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake_driver();
        }
    }

    /// Whether no session is queued and none can be added: a driver without sessions may end.
    ///
    /// In this order: an owner schedules the sessions that it adds before it goes.
    pub(in crate::net) fn is_abandoned(&self) -> bool {
        self.owners.load(Ordering::Acquire) == 0 && !self.has_any()
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        // Nothing panics while it holds this lock, but for a lack of memory.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that served the socket is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) struct DriverEnded;
