//! How a driver is woken.

use std::{sync::atomic::Ordering, task::Waker};

use crate::net::sync::{OnceLock, fence};

/// The waker of a driver. It stays the same as long as the driver lives, for that is a task of its own.
#[derive(Debug)]
pub(in crate::net) struct DriverWaker(OnceLock<Waker>);

impl DriverWaker {
    pub(in crate::net) fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Notes how to wake the driver. The driver calls it before it looks at what it is woken for.
    #[inline]
    pub(in crate::net) fn register(&self, waker: &Waker) {
        if self.0.get().is_none() {
            let _ = self.0.set(waker.clone());
            // With the fence in `wake`: a task that finds no waker has left its work before this, so the driver, which looks
            // next, finds it there.
            fence(Ordering::SeqCst);
        }
    }

    /// Wakes the driver, for what was left to it before.
    pub(in crate::net) fn wake(&self) {
        fence(Ordering::SeqCst);
        if let Some(driver) = self.0.get() {
            driver.wake_by_ref();
        }
    }
}
