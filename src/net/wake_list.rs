//! Wakers are called after the lock is released, never under it.
//!
//! A waker is foreign code. It may poll its task on the spot, and that task may come back for the same lock. Even where it
//! does not, a task that wakes on another core would first wait for the lock of the task that woke it. So every access to
//! what tasks wait for goes through [`WakeMutex::locked`]: it hands out the lock together with a list for wakers, and calls
//! them when the lock is gone. Nothing else can make such a list.

use core::{
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
};
use std::{sync::PoisonError, task::Waker, vec::Vec};

use super::sync::{Mutex, MutexGuard};

/// A mutex whose holders collect the wakers of the tasks that they want to wake.
#[derive(Debug, Default)]
pub(crate) struct WakeMutex<T>(Mutex<T>);

/// The lock of a [`WakeMutex`], while it is held.
pub(crate) struct Locked<'a, T> {
    mutex: &'a WakeMutex<T>,
    guard: MutexGuard<'a, T>,
}

/// Wakers to be called once the lock is released.
///
/// Most lists stay empty, and every access to a session has one. So an empty list is one word to write and to look at:
/// [`ManuallyDrop`] leaves out the code that would look through it once more after it was emptied.
#[derive(Debug)]
pub(crate) struct WakeList(ManuallyDrop<Option<Wakers>>);

/// Room for a reader and a writer without an allocation.
#[derive(Debug)]
struct Wakers {
    first: Waker,
    second: Option<Waker>,
    more: Vec<Waker>,
}

impl<T> WakeMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Runs `work` under the lock, then releases the lock, then wakes the tasks whose wakers `work` put on the list.
    ///
    /// `work` is given the lock as a value, so the lock cannot outlive it: the lifetime of [`Locked`] is one that the
    /// result cannot name.
    #[inline]
    pub(crate) fn locked<R>(&self, work: impl FnOnce(Locked<'_, T>, &mut WakeList) -> R) -> R {
        let mut wakes = WakeList(ManuallyDrop::new(None));
        // The list is dropped behind `work`, and dropping it wakes: also when `work` panics.
        work(self.lock(), &mut wakes)
    }

    fn lock(&self) -> Locked<'_, T> {
        // Nothing in this crate panics by design while it holds a lock. If something did, the value is still the best
        // there is.
        Locked { mutex: self, guard: self.0.lock().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl<T> Locked<'_, T> {
    /// Releases the lock while `work` runs, and takes it again.
    #[inline]
    pub(crate) fn unlocked<R>(self, work: impl FnOnce() -> R) -> (Self, R) {
        let mutex = self.mutex;
        drop(self);
        let result = work();
        (mutex.lock(), result)
    }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Locked<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl WakeList {
    pub(crate) fn push(&mut self, waker: Waker) {
        match &mut *self.0 {
            None => *self.0 = Some(Wakers { first: waker, second: None, more: Vec::new() }),
            Some(wakers) if wakers.second.is_none() => wakers.second = Some(waker),
            Some(wakers) => wakers.push_more(waker),
        }
    }
}

impl Wakers {
    #[cold]
    fn push_more(&mut self, waker: Waker) {
        self.more.push(waker);
    }

    #[inline(never)]
    fn wake(self) {
        self.first.wake();
        if let Some(second) = self.second {
            second.wake();
        }
        self.more.into_iter().for_each(Waker::wake);
    }
}

impl Drop for WakeList {
    #[inline]
    fn drop(&mut self) {
        if let Some(wakers) = self.0.take() {
            wakers.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc, TryLockError,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
    };

    use super::*;

    /// A task that takes the lock as it is woken, as one does that its waker polls on the spot.
    #[derive(Default)]
    struct Reentrant {
        mutex: WakeMutex<u32>,
        woken: AtomicUsize,
    }

    impl Wake for Reentrant {
        fn wake(self: Arc<Self>) {
            let outcome = self.mutex.0.try_lock();
            assert!(!matches!(outcome, Err(TryLockError::WouldBlock)), "woken under the lock");
            drop(outcome);
            self.mutex.locked(|mut value, _| *value += 1);
            self.woken.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn tasks_are_woken_after_the_lock_is_released() {
        let task = Arc::new(Reentrant::default());
        for count in [1, 2, 5] {
            let before = task.woken.load(Ordering::Relaxed);
            let value = task.mutex.locked(|value, wakes| {
                (0..count).for_each(|_| wakes.push(Waker::from(Arc::clone(&task))));
                // Given away and taken again in between: still nobody is woken.
                let (value, ()) = value.unlocked(|| assert_eq!(task.woken.load(Ordering::Relaxed), before));
                *value
            });
            assert_eq!(task.woken.load(Ordering::Relaxed), before + count);
            assert_eq!(task.mutex.locked(|after, _| *after), value + count as u32);
        }
    }

    #[test]
    fn a_panic_under_the_lock_still_wakes() {
        let task = Arc::new(Reentrant::default());
        let panicking = std::panic::AssertUnwindSafe(|| {
            task.mutex.locked(|_value, wakes| {
                wakes.push(Waker::from(Arc::clone(&task)));
                panic!("in the middle");
            });
        });
        assert!(std::panic::catch_unwind(panicking).is_err());
        assert_eq!(task.mutex.locked(|value, _| *value), 1);
    }
}
