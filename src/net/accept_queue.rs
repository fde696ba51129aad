//! The sessions that peers began and the application has not accepted yet.
//!
//! The driver pushes, [`KcpListener`](super::KcpListener) pops. The queue holds at most
//! [`accept_backlog`](crate::KcpConfigBuilder::accept_backlog) sessions, so a flood of new peers takes no more memory than
//! that. It also says how the listener ended, to whoever pushes or pops afterwards.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use super::{session::Session, waiters::Waiters, wake_list::WakeMutex};
use crate::proto::KcpConfig;

#[derive(Debug)]
pub(super) struct AcceptQueue {
    /// What every accepted session is configured with.
    pub(super) config: KcpConfig,
    state: WakeMutex<State>,
    /// Whether the listener ended by being [closed](Ended::Closed). The driver reads it in every turn, so it is not under
    /// the lock.
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Arc<Session>>,
    /// Tasks that wait for a session.
    acceptors: Waiters,
    /// How the listener ended, if it has.
    ended: Option<Ended>,
}

/// How a listener ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It was dropped. Its accepted sessions go on.
    Dropped,
    /// It was closed. Its sessions end with it.
    Closed,
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
        Self { config, state: WakeMutex::default(), closed: AtomicBool::new(false) }
    }

    /// Whether the queue would take one more session.
    pub(super) fn admission(&self) -> Admission {
        let capacity = self.config.accept_backlog();
        self.state.locked(|state, _| match state.ended {
            Some(_) => Admission::Ended,
            None if state.waiting.len() >= capacity => Admission::Full,
            None => Admission::Room,
        })
    }

    /// Adds a session and wakes the tasks that wait for one. Returns `false` without adding it when the listener has ended.
    ///
    /// Only the driver pushes. So the room that [`admission`](Self::admission) found is still there, and the capacity is
    /// not looked at again.
    pub(super) fn push(&self, session: Arc<Session>) -> bool {
        self.state.locked(|mut state, wakes| {
            if state.ended.is_some() {
                return false;
            }
            state.waiting.push_back(session);
            state.acceptors.take_into(wakes);
            true
        })
    }

    /// Takes the session that has waited longest. Without one, `waker` is called when one comes, or when the listener ends.
    ///
    /// # Errors
    /// How the listener ended.
    pub(super) fn pop(&self, waker: &Waker) -> Result<Option<Arc<Session>>, Ended> {
        self.state.locked(|mut state, wakes| {
            if let Some(session) = state.waiting.pop_front() {
                return Ok(Some(session));
            }
            if let Some(ended) = state.ended {
                return Err(ended);
            }
            state.acceptors.add(waker, wakes);
            Ok(None)
        })
    }

    /// Ends the listener and returns the sessions that nobody accepted. Of several calls, the first says how it ended.
    pub(super) fn end(&self, ended: Ended) -> VecDeque<Arc<Session>> {
        self.state.locked(|mut state, wakes| {
            if *state.ended.get_or_insert(ended) == Ended::Closed {
                self.closed.store(true, Ordering::Release);
            }
            state.acceptors.take_into(wakes);
            std::mem::take(&mut state.waiting)
        })
    }

    /// Whether the listener was closed.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}
