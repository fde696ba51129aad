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
//! A driver may be kept from its work: its process is stopped, or its thread is busy. It finds that out by the deadlines that
//! it comes late for, and ends no session for a silence before it has read what arrived meanwhile: see [`Look`].
//!
//! The last of the stream's handles [releases](Handover::release) the session. From then on the session is the driver's alone.
//! It goes on until the peer has everything that was written. Then it ends, and the driver forgets it. A task that was still sending
//! for it schedules it again, because it may have been that which ended it.
//!
//! This module knows neither sockets nor connections. The tests run it under loom (`loom.rs`), which tries every order of
//! the steps of two and three threads: see `CONTRIBUTING.md`.

mod driver_waker;
#[cfg(all(test, kcp9_loom))]
mod loom;
mod run_queue;

use core::{
    ops::{Deref, DerefMut},
    time::Duration,
};
use std::{io, sync::atomic::Ordering};

pub(super) use self::{
    driver_waker::DriverWaker,
    run_queue::{RunQueue, Scheduled},
};
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

/// When the driver looks at a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) now: Instant,
    /// Everything that arrived before this was read from the socket, and is in the sessions.
    pub(super) read_until: Instant,
    /// When the driver looked last.
    pub(super) last: Instant,
}

/// What the driver does with a session's state, under the lock.
pub(super) trait SessionState {
    /// Does what is due at `look.now` and lists the tasks that this concerns. `pause` is how much too late the look is, if it
    /// is so late that the driver must have been kept from its work.
    fn handle_timeout(&mut self, look: Look, pause: Option<Duration>, wakes: &mut WakeList) -> Due;

    /// Lists the tasks that wait for what has happened.
    fn collect_wakes(&mut self, wakes: &mut WakeList);

    /// No stream refers to the session any more: nothing waits for further writes, and nobody reads. The session ends itself when
    /// nothing is left to do.
    fn let_go(&mut self, wakes: &mut WakeList);

    /// Whether the session has ended.
    fn is_over(&self) -> bool;
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

    /// The driver's turn: does what is due, wakes the tasks that this concerns, and sends with `transmit`.
    #[inline]
    pub(super) fn serve(
        &self,
        look: Look,
        transmit: impl for<'g> Fn(Guard<'g, S>) -> (Guard<'g, S>, Next),
    ) -> Next {
        let done = self.locked(|mut state, wakes| {
            let pause = self.pause_before(look);
            // From here on the driver keeps no deadline, until it notes the next.
            self.arm(None);
            let Due { quiet, deadline } = state.handle_timeout(look, pause, wakes);
            // What was received may need no answer yet: the application may have one that takes the ACK with it.
            let rests = quiet && !state.transmitting && deadline.is_none_or(|at| at > look.now);
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

    /// The stream is gone: sends what can be sent at once, ACKs above all. `schedule` puts the session into the run queue, so that
    /// the driver sees to the rest, or forgets the session. Returns whether the session has ended by this.
    pub(super) fn release(
        &self,
        transmit: impl for<'g> FnOnce(Guard<'g, S>) -> (Guard<'g, S>, Next),
        schedule: impl FnOnce(),
    ) -> bool {
        let ended = self.locked(|mut state, wakes| {
            let was_over = state.is_over();
            state.released = true;
            state.let_go(wakes);
            // If the driver is sending, it sends these too.
            let (mut state, _) = transmit(state);
            state.collect_wakes(wakes);
            !was_over && state.is_over()
        });
        schedule();
        ended
    }

    /// How long nobody looked at the session although its deadline had come, if that is long.
    #[inline]
    fn pause_before(&self, look: Look) -> Option<Duration> {
        // Another look since shows that the driver works, whatever it left to do.
        let due = self.armed.load(Ordering::Relaxed).max(look.last.as_micros());
        let late = Duration::from_micros(look.now.as_micros().saturating_sub(due));
        (late >= PAUSE).then_some(late)
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
    /// Whether somebody sends, who will look for more before it stops.
    pub(super) const fn is_transmitting(&self) -> bool {
        self.transmitting
    }

    /// Whether no stream refers to the session any more.
    pub(super) fn is_released(&self) -> bool {
        self.released
    }
}

/// As [`transmit`], for a task of the application. What it sends may have been the last thing to be done for a session that no
/// stream refers to.
#[inline]
pub(super) fn transmit_in_task<'g, S>(
    state: Guard<'g, S>,
    sender: &mut impl Sender<S>,
) -> (Guard<'g, S>, Next) {
    let (state, next) = transmit(state, sender);
    let next = if state.released { Next::Again } else { next };
    (state, next)
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
/// How late a driver comes only if it was kept from its work. Timers are a few milliseconds late, and so is a task on a busy
/// thread.
const PAUSE: Duration = Duration::from_millis(100);
/// Batches that one call sends, so that neither a writer's task nor the driver is kept by a single session.
const MAX_BATCHES: usize = 8;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    /// A session whose deadline stays where it is, as that of a dead one does whose packets are not read yet.
    #[derive(Debug, Default)]
    struct Overdue {
        /// What the driver said at each look.
        pauses: Vec<Option<Duration>>,
    }

    const DEADLINE: Instant = Instant::from_millis(1_000);

    impl SessionState for Overdue {
        fn handle_timeout(&mut self, _: Look, pause: Option<Duration>, _: &mut WakeList) -> Due {
            self.pauses.push(pause);
            Due { quiet: true, deadline: Some(DEADLINE) }
        }

        fn collect_wakes(&mut self, _: &mut WakeList) {}

        fn let_go(&mut self, _: &mut WakeList) {}

        fn is_over(&self) -> bool {
            false
        }
    }

    /// Has the driver look at a session at these times, in milliseconds; returns the pauses, in milliseconds too.
    fn pauses(looks: &[u64]) -> Vec<Option<u128>> {
        let handover = Handover::new(Overdue::default());
        let mut last = Instant::ZERO;
        for now in looks.iter().copied().map(Instant::from_millis) {
            let look = Look { now, read_until: Instant::ZERO, last };
            handover.serve(look, |state| (state, Next::Wait(Some(DEADLINE))));
            last = now;
        }
        let pauses = handover.locked(|state, _| state.pauses.clone());
        pauses.iter().map(|pause| pause.map(|pause| pause.as_millis())).collect()
    }

    /// Each pause gives a peer more time. So a session whose deadline is past, and that the driver looks at, was not paused: else a
    /// flood that is never read to its end would keep dead peers alive.
    #[test]
    fn a_driver_that_looks_at_an_overdue_session_again_and_again_was_not_kept_from_it() {
        let looks: Vec<u64> = (90..300).map(|look| look * 10).collect();
        assert_eq!(pauses(&looks), std::vec![None; looks.len()]);
    }

    #[test]
    fn a_driver_was_kept_from_a_session_since_its_deadline_or_since_its_last_look() {
        assert_eq!(pauses(&[900, 1_099]), [None, None], "late, as timers are");
        assert_eq!(pauses(&[900, 1_100]), [None, Some(100)]);
        assert_eq!(pauses(&[900, 1_010, 1_500]), [None, None, Some(490)]);
    }
}
