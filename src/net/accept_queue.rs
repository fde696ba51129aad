//! The sessions that peers began and the application has not accepted yet.
//!
//! The driver pushes, [`KcpListener`](super::KcpListener) pops. The queue holds at most
//! [`accept_backlog`](crate::KcpConfigBuilder::accept_backlog) sessions, so a flood of new peers takes no more memory than
//! that. A session that ends while it waits leaves the queue, and its place is there for others, unless there is something to read of a
//! peer that has shown that it hears this end. Anybody can forge the first packet of one that has not. The queue also says how the
//! listener ended, to whoever pushes or pops afterwards.
//!
//! Where `accept` is slow, forged first packets could fill the queue and keep everybody out. So such peers have half of it, as they have
//! of every limit, and from then on the others are asked for a cookie.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use super::{session::Session, waiters::Waiters, wake_list::WakeMutex};
use crate::proto::{CookiePolicy, KcpConfig};

#[derive(Debug)]
pub(super) struct AcceptQueue {
    /// What every accepted session is configured with, but for its key where that was [rotated](super::KcpListener::rotate_key).
    pub(super) config: KcpConfig,
    state: WakeMutex<State>,
    /// As many sessions wait as those of unknown peers may, and there is room for others.
    wants_cookies: AtomicBool,
    /// Held while another key is given to the drivers: each gets the keys in the same order.
    rotating: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The sessions that wait, and some that have ended. These no longer say that they wait.
    waiting: VecDeque<Arc<Session>>,
    /// How many of them have ended.
    ended_waiting: usize,
    /// Tasks that wait for a session.
    acceptors: Waiters,
    /// How the listener ended, if it has.
    ended: Option<Ended>,
}

impl State {
    /// Sessions that wait.
    fn len(&self) -> usize {
        self.waiting.len() - self.ended_waiting
    }
}

/// What those peers have of the backlog that have not shown that they hear this end.
const fn half_of(backlog: usize) -> usize {
    backlog.div_ceil(2)
}

/// How a listener ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The application wants no more sessions.
    Stopped,
    /// The task that served its socket is gone.
    DriverGone,
}

/// Whether the queue takes a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// There is room.
    Room,
    /// Too many sessions wait to be accepted.
    Full,
    /// The listener has ended.
    Ended,
}

impl AcceptQueue {
    pub(super) fn new(config: KcpConfig) -> Self {
        Self {
            config,
            state: WakeMutex::default(),
            wants_cookies: AtomicBool::new(false),
            rotating: Mutex::default(),
        }
    }

    /// Runs `rotate`, which gives another key to the drivers of all shards.
    pub(super) fn rotate(&self, rotate: impl FnOnce()) {
        let _rotating = self.rotating.lock().unwrap_or_else(PoisonError::into_inner);
        rotate();
    }

    /// Whether the queue would take one more session, whose peer has shown that it hears this end or has not.
    pub(super) fn admission(&self, validated: bool) -> Admission {
        self.state.locked(|state, _| self.admission_by(&state, validated))
    }

    fn admission_by(&self, state: &State, validated: bool) -> Admission {
        let all = self.config.accept_backlog();
        let limit = match self.config.cookies() {
            CookiePolicy::UnderLoad if !validated => half_of(all),
            _ => all,
        };
        match state.ended {
            Some(_) => Admission::Ended,
            None if state.len() >= limit => Admission::Full,
            None => Admission::Room,
        }
    }

    /// Whether there is room only for peers that have shown that they hear this end.
    pub(super) fn wants_cookies(&self) -> bool {
        self.wants_cookies.load(Ordering::Relaxed)
    }

    /// Sessions have come or gone.
    fn note_len(&self, state: &State) {
        let all = self.config.accept_backlog();
        self.wants_cookies.store((half_of(all)..all).contains(&state.len()), Ordering::Relaxed);
    }

    /// Adds a session if there is room, and wakes the tasks that wait for one. Returns whether there was: the driver of another shard
    /// may have taken the room that [`admission`](Self::admission) found.
    pub(super) fn push(&self, session: Arc<Session>, validated: bool) -> Admission {
        self.state.locked(|mut state, wakes| {
            let admission = self.admission_by(&state, validated);
            if admission != Admission::Room {
                return admission;
            }
            if state.ended_waiting > state.waiting.len() / 2 {
                state.waiting.retain(|session| session.is_waiting.load(Ordering::Relaxed));
                state.ended_waiting = 0;
            }
            session.is_waiting.store(true, Ordering::Relaxed);
            state.waiting.push_back(session);
            self.note_len(&state);
            state.acceptors.take_into(wakes);
            Admission::Room
        })
    }

    /// Takes the session that has waited longest. Without one, `waker` is called when one comes, or when the listener ends.
    ///
    /// # Errors
    /// How the listener ended.
    pub(super) fn pop(&self, waker: &Waker) -> Result<Option<Arc<Session>>, Ended> {
        self.state.locked(|mut state, wakes| {
            while let Some(session) = state.waiting.pop_front() {
                if session.is_waiting.swap(false, Ordering::Relaxed) {
                    self.note_len(&state);
                    return Ok(Some(session));
                }
                state.ended_waiting -= 1;
            }
            if let Some(ended) = state.ended {
                return Err(ended);
            }
            state.acceptors.add(waker, wakes);
            Ok(None)
        })
    }

    /// A session has ended. If it waits, it does so no longer, unless it has something to read, and of a true peer.
    pub(super) fn forget(&self, session: &Session) {
        if session.is_waiting.load(Ordering::Relaxed) && !(session.is_validated() && session.has_unread()) {
            self.state.locked(|mut state, _| {
                if session.is_waiting.swap(false, Ordering::Relaxed) {
                    state.ended_waiting += 1;
                    self.note_len(&state);
                }
            });
        }
    }

    /// Takes no more sessions. Those that wait can still be popped.
    pub(super) fn stop(&self) {
        self.end(Ended::Stopped);
    }

    /// Nobody is there any more to bring sessions.
    pub(super) fn driver_gone(&self) {
        self.end(Ended::DriverGone);
    }

    /// Of several ends, the first counts.
    fn end(&self, ended: Ended) {
        self.state.locked(|mut state, wakes| {
            state.ended.get_or_insert(ended);
            state.acceptors.take_into(wakes);
        });
    }

    /// Takes the sessions that nobody accepted.
    pub(super) fn take(&self) -> VecDeque<Arc<Session>> {
        self.state.locked(|mut state, _| {
            state.ended_waiting = 0;
            let waiting = std::mem::take(&mut state.waiting);
            for session in &waiting {
                session.is_waiting.store(false, Ordering::Relaxed);
            }
            self.note_len(&state);
            waiting
        })
    }
}
