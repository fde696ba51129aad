//! Tasks that wait for something.

use std::{mem, task::Waker, vec::Vec};

/// Tasks that one list holds. A future that is cancelled leaves its waker behind, so there must be a limit.
const MAX_WAITING: usize = 32;

/// The wakers of tasks waiting for the same thing; mostly none or one.
#[derive(Debug, Default)]
pub(super) struct Waiters(Vec<Waker>);

impl Waiters {
    /// Adds a task. A full list is woken: who still waits comes back, who was cancelled does not.
    pub(super) fn add(&mut self, waker: &Waker, woken: &mut Woken) {
        if self.0.iter().any(|waiting| waiting.will_wake(waker)) {
            return;
        }
        if self.0.len() >= MAX_WAITING {
            self.take_into(woken);
        }
        self.0.push(waker.clone());
    }

    /// Moves all to `woken`, to be woken once no lock is held.
    pub(super) fn take_into(&mut self, woken: &mut Woken) {
        for waker in self.0.drain(..) {
            woken.push(waker);
        }
    }
}

/// Wakers on their way to being woken; dropping it wakes them.
#[derive(Debug, Default)]
#[must_use = "declare it before the lock, so that it is dropped after it"]
pub(super) struct Woken {
    /// A reader and a writer are woken without an allocation.
    first: [Option<Waker>; 2],
    more: Vec<Waker>,
}

impl Woken {
    fn push(&mut self, waker: Waker) {
        match self.first.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(waker),
            None => self.more.push(waker),
        }
    }

    pub(super) fn wake_all(&mut self) {
        mem::take(&mut self.first).into_iter().flatten().chain(self.more.drain(..)).for_each(Waker::wake);
    }
}

impl Drop for Woken {
    fn drop(&mut self) {
        self.wake_all();
    }
}
