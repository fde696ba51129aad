//! What the streams, the listener and the driver of one socket share.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    },
    task::Waker,
    vec::Vec,
};

use super::{
    accept_queue::AcceptQueue, driver::Driver, error::Failure, session::Session, socket::Socket,
    stats::Counters,
};
use crate::proto::Transmit;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) socket: Socket,
    pub(super) counters: Counters,
    /// Sessions that the driver is to look at.
    run_queue: Mutex<RunQueue>,
    /// Whether there are any: looked at for every batch received.
    has_any: AtomicBool,
    /// The driver is a task of its own: its waker stays what it is.
    driver: OnceLock<Waker>,
    /// The listener or endpoint that may open further sessions, while there is one.
    owners: AtomicUsize,
    /// Packets sent by a listener's sessions that would begin one if somebody sent them back.
    sent_first: Mutex<Vec<u64>>,
    /// Whether there are any: looked at for every batch received.
    has_sent_first: AtomicBool,
    /// Sessions that wait to be accepted, where packets from new peers open any.
    pub(super) accept_queue: Option<AcceptQueue>,
}

#[derive(Debug, Default)]
struct RunQueue {
    sessions: Vec<Arc<Session>>,
    /// The driver has ended: nobody will look, and a session kept here would keep the socket open.
    ended: bool,
}

impl Shared {
    /// Starts a driver for `socket`, with `backlog` for a listener's. The caller counts as its one opener.
    ///
    /// # Errors
    /// When no Tokio runtime runs here.
    pub(super) fn start(socket: Socket, accept_queue: Option<AcceptQueue>) -> io::Result<Arc<Self>> {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let shared = Arc::new(Self {
            socket,
            counters: Counters::default(),
            run_queue: Mutex::default(),
            has_any: AtomicBool::new(false),
            driver: OnceLock::new(),
            owners: AtomicUsize::new(1),
            sent_first: Mutex::default(),
            has_sent_first: AtomicBool::new(false),
            accept_queue,
        });
        runtime.spawn(Driver::new(Arc::clone(&shared))?);
        Ok(shared)
    }

    /// Has the driver look at `session` soon.
    pub(super) fn schedule(&self, session: &Arc<Session>) {
        if session.scheduled.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut run_queue = lock(&self.run_queue);
        if run_queue.ended {
            drop(run_queue);
            session.fail(Failure::DriverGone);
            return;
        }
        run_queue.sessions.push(Arc::clone(session));
        self.has_any.store(true, Ordering::Release);
        drop(run_queue);
        self.wake_driver();
    }

    /// Whether a session waits to be looked at.
    pub(super) fn has_scheduled(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Moves the sessions to be looked at into `sessions`.
    pub(super) fn take_scheduled(&self, sessions: &mut Vec<Arc<Session>>) {
        let mut run_queue = lock(&self.run_queue);
        sessions.append(&mut run_queue.sessions);
        self.has_any.store(false, Ordering::Relaxed);
        drop(run_queue);
        for session in sessions {
            session.scheduled.store(false, Ordering::Release);
        }
    }

    /// The driver has ended: from here on, sessions that are scheduled fail instead.
    pub(super) fn close_run_queue(&self) {
        lock(&self.run_queue).ended = true;
    }

    pub(super) fn register_driver(&self, waker: &Waker) {
        if self.driver.get().is_none() {
            let _ = self.driver.set(waker.clone());
            // Who saw no waker to wake did before this what the driver looks at after it.
            fence(Ordering::SeqCst);
        }
    }

    pub(super) fn wake_driver(&self) {
        fence(Ordering::SeqCst);
        if let Some(driver) = self.driver.get() {
            driver.wake_by_ref();
        }
    }

    pub(super) fn send(
        &self,
        peer: SocketAddr,
        local_ip: Option<IpAddr>,
        transmit: Transmit,
        bytes: &[u8],
        sent: &mut usize,
    ) -> io::Result<()> {
        let outcome = self.socket.try_send(peer, local_ip, transmit, bytes, sent);
        match &outcome {
            Ok(()) => {
                self.counters.send_calls.add(1);
                self.counters.packets_sent.add(transmit.packets());
            }
            Err(error) => self.count_unsent(error, *sent, transmit),
        }
        outcome
    }

    #[cold]
    fn count_unsent(&self, error: &io::Error, sent: usize, transmit: Transmit) {
        if error.kind() == io::ErrorKind::WouldBlock {
            self.counters.send_blocked.add(1);
            self.counters.packets_sent.add(sent.div_ceil(transmit.stride));
        } else {
            self.counters.send_errors.add(1);
        }
    }

    /// Takes note of packets that were sent.
    pub(super) fn note_sent_first(&self, identities: &[u64]) {
        if self.accept_queue.is_some() && !identities.is_empty() {
            let mut sent = lock(&self.sent_first);
            if sent.len() >= MAX_SENT_FIRST {
                sent.drain(..MAX_SENT_FIRST / 2);
            }
            sent.extend_from_slice(identities);
            self.has_sent_first.store(true, Ordering::Release);
        }
    }

    /// Whether there are packets for [`take_sent_first`](Self::take_sent_first).
    pub(super) fn has_sent_first(&self) -> bool {
        self.has_sent_first.load(Ordering::Acquire)
    }

    pub(super) fn take_sent_first(&self) -> Vec<u64> {
        let mut sent = lock(&self.sent_first);
        self.has_sent_first.store(false, Ordering::Relaxed);
        std::mem::take(&mut sent)
    }

    pub(super) fn remove_owner(&self) {
        if self.owners.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake_driver();
        }
    }

    pub(super) fn has_owners(&self) -> bool {
        self.owners.load(Ordering::Acquire) > 0
    }
}

/// Packets kept until the driver asks for them.
const MAX_SENT_FIRST: usize = 4_096;

/// Locks whatever the last holder left: nothing in this crate panics while it holds a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
