//! Faults of a socket's system calls, for tests: what the kernel does once in a while, done often and on purpose.
//!
//! A [`Socket`](super::Socket) asks its [`Faults`] before each system call that sends or receives, at three places. A call that a
//! fault strikes is not made, and fails with the fault's error: what it was to send is lost, what it was to receive stays in the
//! kernel. That is all that the kernel does, too, when such a call fails. A batch that is cut short is a call for its first packets
//! that succeeds, and one for the others that fails.
//!
//! All of this exists in the library's tests only. Elsewhere a socket has neither the field nor the question.

mod tests;

use std::{
    boxed::Box,
    fmt, io,
    sync::{Mutex, PoisonError},
};

/// The system's numbers of errors.
pub(in crate::net) mod errno {
    pub(in crate::net) const EPERM: i32 = 1;
    pub(in crate::net) const EIO: i32 = 5;
    pub(in crate::net) const EBADF: i32 = 9;
    pub(in crate::net) const EAGAIN: i32 = 11;
    pub(in crate::net) const ENOMEM: i32 = 12;
    pub(in crate::net) const EINVAL: i32 = 22;
    pub(in crate::net) const EMSGSIZE: i32 = 90;
    pub(in crate::net) const ENETDOWN: i32 = 100;
    pub(in crate::net) const ENETUNREACH: i32 = 101;
    pub(in crate::net) const ENOBUFS: i32 = 105;
    pub(in crate::net) const ECONNREFUSED: i32 = 111;
}

/// A system call that is about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net) enum Call {
    /// `len` bytes: a single packet without a `stride`, or a batch of packets of `stride` bytes. With ECN, or without.
    Send { len: usize, stride: Option<usize>, has_tos: bool },
    /// Of whatever has arrived.
    Receive,
}

impl Call {
    /// Whether it is to send several packets at once (GSO).
    pub(in crate::net) const fn is_batch(self) -> bool {
        matches!(self, Self::Send { stride: Some(_), .. })
    }

    /// Bytes of the largest packet to be sent.
    pub(in crate::net) const fn packet_len(self) -> usize {
        match self {
            Self::Send { stride: Some(stride), .. } => stride,
            Self::Send { len, stride: None, .. } => len,
            Self::Receive => 0,
        }
    }
}

/// Says which error a call is to fail with, if it is.
type Schedule = Box<dyn FnMut(Call) -> Option<i32> + Send>;

/// What befalls the system calls of one socket: nothing, until a schedule is [set](Self::set).
#[derive(Default)]
pub(in crate::net) struct Faults(Mutex<Option<Schedule>>);

impl Faults {
    /// From here on `schedule` decides.
    pub(in crate::net) fn set(&self, schedule: impl FnMut(Call) -> Option<i32> + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(schedule));
    }

    /// From here on all calls are made.
    pub(in crate::net) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// # Errors
    /// The call is not to be made, and fails with this.
    pub(super) fn strike(&self, call: Call) -> io::Result<()> {
        let mut schedule = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let code = schedule.as_mut().and_then(|schedule| schedule(call));
        code.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faults")
    }
}
