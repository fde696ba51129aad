//! The locks and atomics of what streams and the driver hand to each other.
//!
//! They are those of the standard library, but for a test build with `--cfg kcp9_loom`: there they are loom's, which runs
//! [`handover`](super::handover) in every order that two threads can come in. The flag is not called `loom` because Tokio
//! knows that one, and then has no sockets.

#[cfg(not(all(test, kcp9_loom)))]
pub(super) use std::sync::{
    Mutex, MutexGuard, OnceLock,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, fence},
};

#[cfg(all(test, kcp9_loom))]
pub(super) use self::modelled::*;

#[cfg(all(test, kcp9_loom))]
mod modelled {
    use std::sync::atomic::Ordering;

    pub(in crate::net) use loom::sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, fence},
    };

    /// loom has none. Whether another thread sees the value is up to an atomic that loom knows.
    #[derive(Debug)]
    pub(in crate::net) struct OnceLock<T> {
        value: std::sync::OnceLock<T>,
        is_set: AtomicBool,
    }

    impl<T> OnceLock<T> {
        pub(in crate::net) fn new() -> Self {
            Self { value: std::sync::OnceLock::new(), is_set: AtomicBool::new(false) }
        }

        pub(in crate::net) fn get(&self) -> Option<&T> {
            self.value.get().filter(|_| self.is_set.load(Ordering::Acquire))
        }

        pub(in crate::net) fn set(&self, value: T) -> Result<(), T> {
            self.value.set(value)?;
            self.is_set.store(true, Ordering::Release);
            Ok(())
        }
    }
}
