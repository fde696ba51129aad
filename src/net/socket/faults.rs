//! Faults of a socket's system calls, for tests: what the kernel does once in a while, done often and on purpose.
//!
//! A [`Socket`](super::Socket) asks its [`Faults`] before each system call that sends or receives, at three places. A call that a
//! fault strikes is not made, and fails with the fault's error: what it was to send is lost, what it was to receive stays in the
//! kernel. That is all that the kernel does, too, when such a call fails. A batch that is cut short is a call for its first packets
//! that succeeds, and one for the others that fails.
//!
//! A receive call may also stop early: it brings fewer packets than it has slots, as if there were no more, and leaves the others in the kernel.
//! And packets that the kernel joins may come in two slots, as if it had not joined all of them.
//!
//! All of this exists in the library's tests only. Elsewhere a socket has neither the field nor the question.

mod tests;

use std::{
    boxed::Box,
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
};

use super::Received;

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

/// Says of so many how many come, or come first: one at least.
type Part = Box<dyn FnMut(usize) -> usize + Send>;

/// What befalls the system calls of one socket: nothing, until a test says so.
#[derive(Default)]
pub(in crate::net) struct Faults {
    schedule: Mutex<Option<Schedule>>,
    slots: Mutex<Option<Part>>,
    joined: Mutex<Option<Part>>,
}

impl Faults {
    /// From here on `schedule` decides.
    pub(in crate::net) fn set(&self, schedule: impl FnMut(Call) -> Option<i32> + Send + 'static) {
        *self.schedule.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(schedule));
    }

    /// From here on `part` says how many of its slots a receive call fills at most.
    pub(in crate::net) fn stop_receiving(&self, part: impl FnMut(usize) -> usize + Send + 'static) {
        *self.slots.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(part));
    }

    /// From here on `part` says how many of the packets that the kernel has joined come in the first of two slots.
    pub(in crate::net) fn cut_joined(&self, part: impl FnMut(usize) -> usize + Send + 'static) {
        *self.joined.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(part));
    }

    /// From here on nothing befalls them.
    pub(in crate::net) fn clear(&self) {
        *self.schedule.lock().unwrap_or_else(PoisonError::into_inner) = None;
        for part in [&self.slots, &self.joined] {
            *part.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// # Errors
    /// The call is not to be made, and fails with this.
    pub(super) fn strike(&self, call: Call) -> io::Result<()> {
        let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        let code = schedule.as_mut().and_then(|schedule| schedule(call));
        code.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
    }

    /// How many of `slots` the kernel fills at most.
    pub(super) fn most_filled(&self, slots: usize) -> usize {
        let mut part = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        part.as_mut().map_or(slots, |part| part(slots).clamp(1, slots))
    }

    /// Hands on what came in a slot.
    pub(super) fn deliver(&self, received: Received<'_>, handle: &mut impl FnMut(Received<'_>)) {
        let Received { peer, local_ip, len, stride, ecn, .. } = received;
        let packets = len.div_ceil(stride);
        let first = match &mut *self.joined.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(part) if packets > 1 => part(packets).clamp(1, packets - 1) * stride,
            _ => len,
        };
        let mut rest = Arc::new(Box::from(&received.block[first..len]));
        handle(Received { len: first, ..received });
        if first < len {
            handle(Received { peer, local_ip, block: &mut rest, len: len - first, stride, ecn });
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faults")
    }
}
