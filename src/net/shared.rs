//! What the streams, the listener and the driver of one socket share.

use std::{
    collections::VecDeque,
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
    driver::Driver,
    error::Failure,
    session::Session,
    socket::Socket,
    stats::Counters,
    waiters::{Waiters, Woken},
};
use crate::proto::{KcpConfig, Transmit};

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) socket: Socket,
    pub(super) counters: Counters,
    /// Sessions that the driver is to look at.
    attention: Mutex<Attention>,
    /// Whether there are any: looked at for every batch received.
    has_attention: AtomicBool,
    /// The driver is a task of its own: its waker stays what it is.
    driver: OnceLock<Waker>,
    /// The listener or endpoint that may open further sessions, while there is one.
    openers: AtomicUsize,
    /// Packets sent by a listener's sessions that would begin one if somebody sent them back.
    sent_first: Mutex<Vec<u64>>,
    /// Sessions that wait to be accepted, where packets from new peers open any.
    pub(super) backlog: Option<Backlog>,
}

#[derive(Debug, Default)]
struct Attention {
    sessions: Vec<Arc<Session>>,
    /// The driver has ended: nobody will look, and a session kept here would keep the socket open.
    ended: bool,
}

impl Shared {
    /// Starts a driver for `socket`, with `backlog` for a listener's. The caller counts as its one opener.
    ///
    /// # Errors
    /// When no Tokio runtime runs here.
    pub(super) fn start(socket: Socket, backlog: Option<Backlog>) -> io::Result<Arc<Self>> {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let shared = Arc::new(Self {
            socket,
            counters: Counters::default(),
            attention: Mutex::default(),
            has_attention: AtomicBool::new(false),
            driver: OnceLock::new(),
            openers: AtomicUsize::new(1),
            sent_first: Mutex::default(),
            backlog,
        });
        runtime.spawn(Driver::new(Arc::clone(&shared)));
        Ok(shared)
    }

    /// Has the driver look at `session` soon.
    pub(super) fn notice(&self, session: &Arc<Session>) {
        if session.noticed.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut attention = lock(&self.attention);
        if attention.ended {
            drop(attention);
            session.fail(Failure::DriverGone);
            return;
        }
        attention.sessions.push(Arc::clone(session));
        self.has_attention.store(true, Ordering::Release);
        drop(attention);
        self.wake_driver();
    }

    /// Whether a session waits to be looked at.
    pub(super) fn has_noticed(&self) -> bool {
        self.has_attention.load(Ordering::Acquire)
    }

    /// Moves the sessions to be looked at into `sessions`.
    pub(super) fn take_noticed(&self, sessions: &mut Vec<Arc<Session>>) {
        let mut attention = lock(&self.attention);
        sessions.append(&mut attention.sessions);
        self.has_attention.store(false, Ordering::Relaxed);
        drop(attention);
        for session in sessions {
            session.noticed.store(false, Ordering::Release);
        }
    }

    /// The driver has ended: from here on, sessions that want its attention fail instead.
    pub(super) fn end_attention(&self) {
        lock(&self.attention).ended = true;
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
        if self.backlog.is_some() && !identities.is_empty() {
            let mut sent = lock(&self.sent_first);
            if sent.len() >= MAX_SENT_FIRST {
                sent.drain(..MAX_SENT_FIRST / 2);
            }
            sent.extend_from_slice(identities);
        }
    }

    pub(super) fn take_sent_first(&self) -> Vec<u64> {
        std::mem::take(&mut lock(&self.sent_first))
    }

    pub(super) fn remove_opener(&self) {
        if self.openers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake_driver();
        }
    }

    pub(super) fn has_openers(&self) -> bool {
        self.openers.load(Ordering::Acquire) > 0
    }
}

/// Packets kept until the driver asks for them.
const MAX_SENT_FIRST: usize = 4_096;

/// Sessions opened by their peers and not yet accepted; at most
/// [`accept_backlog`](crate::KcpConfigBuilder::accept_backlog).
#[derive(Debug)]
pub(super) struct Backlog {
    pub(super) config: KcpConfig,
    state: Mutex<BacklogState>,
    /// Whether it has [ended](Ended) by being closed: looked at whenever the driver runs.
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct BacklogState {
    waiting: VecDeque<Arc<Session>>,
    acceptors: Waiters,
    /// How the listener ended.
    ended: Option<Ended>,
}

/// How a listener ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It was dropped: its sessions go on.
    Dropped,
    /// It was closed: its sessions end.
    Closed,
    /// Its driver is gone.
    DriverGone,
}

/// What became of a session offered to a [`Backlog`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Open,
    Full,
    Ended,
}

impl Backlog {
    pub(super) fn new(config: KcpConfig) -> Self {
        Self { config, state: Mutex::default(), closed: AtomicBool::new(false) }
    }

    /// Whether one more session would be taken.
    pub(super) fn admission(&self) -> Admission {
        let state = lock(&self.state);
        if state.ended.is_some() {
            Admission::Ended
        } else if state.waiting.len() >= self.config.accept_backlog() {
            Admission::Full
        } else {
            Admission::Open
        }
    }

    /// Whether it was taken: not when the listener has ended since [`admission`](Self::admission).
    pub(super) fn push(&self, session: Arc<Session>) -> bool {
        let mut woken = Woken::default();
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            return false;
        }
        state.waiting.push_back(session);
        state.acceptors.take_into(&mut woken);
        true
    }

    /// The session that has waited longest. `Err` once the listener has ended.
    pub(super) fn pop(&self, waker: &Waker) -> Result<Option<Arc<Session>>, Ended> {
        let mut woken = Woken::default();
        let mut state = lock(&self.state);
        if let Some(session) = state.waiting.pop_front() {
            return Ok(Some(session));
        }
        if let Some(ended) = state.ended {
            return Err(ended);
        }
        state.acceptors.add(waker, &mut woken);
        Ok(None)
    }

    /// Ends the listener and returns the sessions that nobody accepted.
    pub(super) fn end(&self, ended: Ended) -> VecDeque<Arc<Session>> {
        let mut woken = Woken::default();
        let mut state = lock(&self.state);
        if *state.ended.get_or_insert(ended) == Ended::Closed {
            self.closed.store(true, Ordering::Release);
        }
        state.acceptors.take_into(&mut woken);
        std::mem::take(&mut state.waiting)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// Locks whatever the last holder left: nothing in this crate panics while it holds a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
