//! How a session passes between the tasks that use its stream and the driver of its socket.
//!
//! Both work on one state under a lock, and both send: a writer sends what it wrote in its own task, the driver sends ACKs,
//! resends, and what a full socket kept back. Three rules keep them apart.
//!
//! * **One sender at a time.** The lock is released during a send, which is a system call. A flag says that somebody is at
//!   it, since two senders would reorder packets. Whoever finds the flag set leaves its packets to the other: that one takes
//!   the next batch until there is none, and clears the flag under the same lock under which it found none.
//! * **One deadline a session.** The driver keeps a timer for it, and notes its end in [`Handover::armed`]. A task that needs
//!   an earlier one schedules the session. A task that needs a later one does nothing: the driver looks too early, and sets
//!   the timer anew.
//! * **A scheduled session is served.** A task puts a session into the [run queue](RunQueue), once, and wakes the driver. The
//!   driver takes it out and allows it to be queued again before it looks at its state, so what changes after the look
//!   queues it again.
//!
//! The last of the stream's handles [releases](Handover::release) the session: what can be sent at once still is, then the
//! session ends and the driver forgets it.
//!
//! This module knows neither sockets nor connections. The tests run it under loom (`loom.rs`), which tries every order of
//! the steps of two and three threads: see `CONTRIBUTING.md`.

#[cfg(all(test, kcp9_loom))]
mod loom;
mod run_queue;

use core::ops::{Deref, DerefMut};
use std::{io, sync::atomic::Ordering};

pub(super) use self::run_queue::{RunQueue, Scheduled};
use super::{
    sync::AtomicU64,
    wake_list::{Locked, WakeList, WakeMutex},
};
use crate::proto::Instant;

/// A session's state `S`, shared by the tasks of its stream and the driver.
#[derive(Debug)]
pub(super) struct Handover<S> {
    /// When the driver will look at the session, in microseconds; [`NEVER`] without a deadline.
    armed: AtomicU64,
    state: WakeMutex<Inner<S>>,
}

/// The state under the lock. It dereferences to `S`.
#[derive(Debug)]
pub(super) struct Inner<S> {
    /// Somebody sends, and may have released the lock for that.
    transmitting: bool,
    /// No stream refers to the session any more.
    released: bool,
    state: S,
}

/// The lock of a [`Handover`], while it is held.
pub(super) type Guard<'a, S> = Locked<'a, Inner<S>>;

/// What is to be done about a session next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing before its deadline, if it has one.
    Wait(Option<Instant>),
    /// Serve it again at once: there is more to send.
    Again,
    /// Serve it again when the socket takes packets.
    Blocked,
    /// Forget it: it is over.
    Remove,
}

/// What the driver does with a session's state, under the lock.
pub(super) trait SessionState {
    /// Does what is due at `now` and lists the tasks that this concerns.
    fn handle_timeout(&mut self, now: Instant, wakes: &mut WakeList) -> Due;

    /// Lists the tasks that wait for what has happened.
    fn collect_wakes(&mut self, wakes: &mut WakeList);

    /// Prepares everything for sending that waits for more to go with it.
    fn flush(&mut self);

    /// Whether the session has ended.
    fn is_over(&self) -> bool;

    /// Ends the session because no stream refers to it.
    fn end(&mut self, wakes: &mut WakeList);
}

/// What is due in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// Whether there is nothing to send and the session lives.
    pub(super) quiet: bool,
    /// When something else is.
    pub(super) deadline: Option<Instant>,
}

/// Sends the packets of a session with state `S`, batch by batch.
pub(super) trait Sender<S> {
    type Batch;

    /// Takes the next batch, under the lock.
    ///
    /// # Errors
    /// What is to be done next, when there is no batch.
    fn take(&mut self, state: &mut S) -> Result<Self::Batch, Next>;

    /// Sends a batch, without the lock.
    ///
    /// # Errors
    /// Those of the socket; `WouldBlock` when it is full.
    fn send(&mut self, batch: &Self::Batch) -> io::Result<()>;

    /// Deals with the outcome, under the lock again.
    ///
    /// # Errors
    /// What is to be done next, when no further batch can be sent now.
    fn sent(&mut self, state: &mut S, batch: Self::Batch, outcome: io::Result<()>) -> Result<(), Next>;
}

impl<S: SessionState> Handover<S> {
    pub(super) fn new(state: S) -> Self {
        Self {
            armed: AtomicU64::new(NEVER),
            state: WakeMutex::new(Inner { transmitting: false, released: false, state }),
        }
    }

    /// Runs `work` under the lock. Tasks that it lists are woken after the lock is released.
    #[inline]
    pub(super) fn locked<R>(&self, work: impl FnOnce(Guard<'_, S>, &mut WakeList) -> R) -> R {
        self.state.locked(work)
    }

    /// A turn of a task that uses the stream: runs `work` under the lock, and wakes the tasks that it lists. `schedule` then
    /// puts the session into the run queue, if what `work` says is to be done next needs the driver.
    #[inline]
    pub(super) fn act<R>(
        &self,
        work: impl FnOnce(Guard<'_, S>, &mut WakeList) -> (R, Next),
        schedule: impl FnOnce(),
    ) -> R {
        let (result, next) = self.locked(work);
        if self.needs_driver(next) {
            schedule();
        }
        result
    }

    /// The driver's turn: does what is due at `now`, wakes the tasks that this concerns, and sends with `transmit`.
    #[inline]
    pub(super) fn serve(
        &self,
        now: Instant,
        transmit: impl for<'g> Fn(Guard<'g, S>) -> (Guard<'g, S>, Next),
    ) -> Next {
        let done = self.locked(|mut state, wakes| {
            // From here on the driver keeps no deadline, until it notes the next.
            self.arm(None);
            if state.released {
                return Some(Self::finish(state, wakes, &transmit));
            }
            let Due { quiet, deadline } = state.handle_timeout(now, wakes);
            // What was received may need no answer yet: the application may have one that takes the ACK with it.
            let rests = quiet && !state.transmitting && deadline.is_none_or(|at| at > now);
            rests.then(|| self.arm(deadline))
        });
        // The tasks are woken in between, before the system calls: a reader can start on another core meanwhile.
        done.unwrap_or_else(|| {
            self.locked(|state, wakes| {
                let (mut state, next) = transmit(state);
                state.collect_wakes(wakes);
                match next {
                    // Its stream reads what has arrived; its peer may begin anew.
                    _ if state.is_over() => Next::Remove,
                    Next::Wait(deadline) => self.arm(deadline),
                    next => next,
                }
            })
        })
    }

    /// The driver's last turn for a session without a stream.
    #[cold]
    fn finish(
        state: Guard<'_, S>,
        wakes: &mut WakeList,
        transmit: &impl for<'g> Fn(Guard<'g, S>) -> (Guard<'g, S>, Next),
    ) -> Next {
        let (mut state, _) = transmit(state);
        if state.transmitting {
            // The task that released it is still sending, and schedules it again behind that.
            return Next::Wait(None);
        }
        state.end(wakes);
        Next::Remove
    }

    /// The stream is gone: sends what can be sent at once, ACKs above all, and ends the session. `schedule` puts it into the
    /// run queue, so that the driver forgets it.
    pub(super) fn release(
        &self,
        transmit: impl for<'g> FnOnce(Guard<'g, S>) -> (Guard<'g, S>, Next),
        schedule: impl FnOnce(),
    ) {
        self.locked(|mut state, wakes| {
            state.released = true;
            state.flush();
            let (mut state, _) = transmit(state);
            // If the driver is sending, it sends these too, and ends the session when it next serves it.
            if !state.transmitting {
                state.end(wakes);
            }
        });
        schedule();
    }

    /// Notes, under the lock, which deadline the driver will keep.
    fn arm(&self, deadline: Option<Instant>) -> Next {
        self.armed.store(deadline.map_or(NEVER, Instant::as_micros), Ordering::Relaxed);
        Next::Wait(deadline)
    }

    /// Whether the driver must look at the session for `next`: it has to do something, or to look earlier than it plans to.
    ///
    /// The caller has released the lock, so it may be late: the driver may have served the session since. Then the deadline
    /// is an old one, and at worst the driver looks once for nothing. It does not look too late, since it has seen the state
    /// that the caller left.
    #[inline]
    fn needs_driver(&self, next: Next) -> bool {
        match next {
            Next::Wait(None) => false,
            Next::Wait(Some(at)) => self.armed.fetch_min(at.as_micros(), Ordering::Relaxed) > at.as_micros(),
            Next::Again | Next::Blocked | Next::Remove => true,
        }
    }
}

impl<S> Inner<S> {
    /// Whether no stream refers to the session any more.
    pub(super) fn is_released(&self) -> bool {
        self.released
    }
}

/// Sends batch after batch, without the lock. At most [`MAX_BATCHES`]: the rest is for the driver's next turn.
pub(super) fn transmit<'g, S>(mut state: Guard<'g, S>, sender: &mut impl Sender<S>) -> (Guard<'g, S>, Next) {
    if state.transmitting {
        // The other one looks again before it stops.
        return (state, Next::Wait(None));
    }
    state.transmitting = true;
    let mut next = Next::Again;
    for _ in 0..MAX_BATCHES {
        let batch = match sender.take(&mut state) {
            Ok(batch) => batch,
            Err(stop) => {
                next = stop;
                break;
            }
        };
        let outcome;
        (state, outcome) = state.unlocked(|| sender.send(&batch));
        if let Err(stop) = sender.sent(&mut state, batch, outcome) {
            next = stop;
            break;
        }
    }
    state.transmitting = false;
    (state, next)
}

impl<S> Deref for Inner<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S> DerefMut for Inner<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.state
    }
}

/// No deadline.
const NEVER: u64 = u64::MAX;
/// Batches that one call sends, so that neither a writer's task nor the driver is kept by a single session.
const MAX_BATCHES: usize = 8;
