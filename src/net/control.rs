//! What the handles of an endpoint ask of its driver: to accept no more, to end its sessions, to say when there is none, and to
//! replace the key of accepted sessions.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
    vec::Vec,
};

use super::{waiters::Waiters, wake_list::WakeMutex};
use crate::crypto::PacketCrypto;

/// What was asked of the driver of one socket.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// The [`Request`] that goes furthest. The driver reads it in every turn, so it is not under a lock.
    asked: AtomicU8,
    /// Whether somebody waits for the driver to have no session.
    idle_awaited: AtomicBool,
    idle: WakeMutex<Idle>,
    /// Keys that the driver is to rotate to, in this order.
    rotations: Mutex<Vec<Rotation>>,
    /// Whether there are any. The driver reads it in every turn.
    has_rotations: AtomicBool,
}

/// Another key for accepted sessions.
#[derive(Debug)]
pub(super) struct Rotation {
    pub(super) crypto: PacketCrypto,
    /// How long the key before is accepted still.
    pub(super) keep: Duration,
}

/// A request includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Request {
    None,
    StopAccepting,
    /// Shut down every session, and end it when that is done.
    ShutDown,
    /// End every session.
    Abort,
}

#[derive(Debug, Default)]
struct Idle {
    /// How often the driver had no session while somebody waited for that.
    times: u64,
    waiters: Waiters,
    /// There is no driver any more.
    ended: bool,
}

impl Control {
    /// Asks for `request`. The caller then wakes the driver.
    pub(super) fn ask(&self, request: Request) {
        self.asked.fetch_max(request as u8, Ordering::AcqRel);
    }

    pub(super) fn asked(&self) -> Request {
        match self.asked.load(Ordering::Acquire) {
            0 => Request::None,
            1 => Request::StopAccepting,
            2 => Request::ShutDown,
            _ => Request::Abort,
        }
    }

    /// Asks for another key. The caller then wakes the driver.
    pub(super) fn rotate(&self, rotation: Rotation) {
        let mut rotations = self.rotations.lock().unwrap_or_else(PoisonError::into_inner);
        rotations.push(rotation);
        self.has_rotations.store(true, Ordering::Release);
    }

    /// Waits for a moment without a session. `since` is `None` in the first poll, after which the caller wakes the driver.
    pub(super) fn poll_idle(&self, cx: &mut Context<'_>, since: &mut Option<u64>) -> Poll<()> {
        self.idle.locked(|mut idle, wakes| {
            if idle.ended || since.is_some_and(|since| idle.times > since) {
                return Poll::Ready(());
            }
            since.get_or_insert(idle.times);
            idle.waiters.add(cx.waker(), wakes);
            self.idle_awaited.store(true, Ordering::Release);
            Poll::Pending
        })
    }

    // ---- The driver's side ----

    /// Whether another key was asked for.
    #[inline]
    pub(super) fn has_rotations(&self) -> bool {
        self.has_rotations.load(Ordering::Acquire)
    }

    /// The keys that were asked for since the last call.
    pub(super) fn take_rotations(&self) -> Vec<Rotation> {
        let mut rotations = self.rotations.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_rotations.store(false, Ordering::Relaxed);
        std::mem::take(&mut rotations)
    }

    /// Whether somebody waits for a moment without a session.
    #[inline]
    pub(super) fn is_idle_awaited(&self) -> bool {
        self.idle_awaited.load(Ordering::Acquire)
    }

    /// There is no session now, if `is_idle` says so. Who began to wait before that is woken.
    pub(super) fn announce_idle(&self, is_idle: impl FnOnce() -> bool) {
        self.idle.locked(|mut idle, wakes| {
            // Under the lock: who has just begun to wait may have begun a session before.
            if is_idle() {
                idle.times += 1;
                idle.waiters.take_into(wakes);
                self.idle_awaited.store(false, Ordering::Relaxed);
            }
        });
    }

    /// The driver has ended.
    pub(super) fn end(&self) {
        self.idle.locked(|mut idle, wakes| {
            idle.ended = true;
            idle.waiters.take_into(wakes);
        });
    }
}
