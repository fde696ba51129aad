//! Sleeping until a deadline that moves with every packet.

use std::{
    boxed::Box,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{task::coop, time::Sleep};

use crate::{net::clock, proto::Instant};

/// By how much the deadline may move before the timer is moved. Tokio's timers do not tell shorter times apart.
const TIMER_GRAIN: Duration = Duration::from_millis(1);

/// A timer of Tokio's that is moved as seldom as possible.
#[derive(Default)]
pub(super) struct Alarm {
    /// When the timer ends, and the timer. It is polled whenever it is set, so that it wakes the task.
    sleep: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Alarm {
    /// `Ready` once `deadline` has come; without one, pending for ever.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) -> Poll<()> {
        let Some(deadline) = deadline else {
            self.sleep = None;
            return Poll::Pending;
        };
        // To move the timer for every packet would cost too much. To never move it would cost too much as well: the task
        // would wake early only to sleep again, and the runtime would wait in the kernel with a timeout so short that the
        // kernel has to set and take back a timer for each wait, which takes 5 us on a virtual machine.
        let is_near = |at: Instant| (at..at + TIMER_GRAIN).contains(&deadline);
        if let Some((at, sleep)) = &self.sleep
            && is_near(*at)
            && !sleep.is_elapsed()
            && !cfg!(tokio_unstable)
        {
            // The timer wakes this task, whose waker does not change. (A runtime that traces tasks polls some of them
            // without effect, so there the timer is polled every time.)
            return Poll::Pending;
        }
        // The timer is made anew. `Sleep::reset` would leave the runtime's next wait ending when it did before.
        let sleep_until = tokio::time::sleep_until(clock::to_tokio(deadline));
        let sleep = match &mut self.sleep {
            Some((at, sleep)) => {
                *at = deadline;
                sleep.as_mut().set(sleep_until);
                sleep
            }
            none => &mut none.insert((deadline, Box::pin(sleep_until))).1,
        };
        // The timer must be registered, so the task's budget does not count here.
        Pin::new(&mut coop::unconstrained(sleep.as_mut())).poll(cx)
    }
}
