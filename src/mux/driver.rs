//! The task of a session: it owns the transport.

use core::{
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use std::{boxed::Box, collections::VecDeque, io, sync::Arc, vec::Vec};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    time::{Instant as TokioInstant, Sleep},
};

use super::{MuxError, shared::Shared};
use crate::proto::Instant;

pub(super) struct Driver<T> {
    io: Pin<Box<T>>,
    shared: Arc<Shared>,
    /// What the transport is to get next.
    output: Vec<u8>,
    /// Bytes of it that it has.
    written: usize,
    flush_due: bool,
    /// Buffers that are read into, in turn: while streams have slices of one, there is another.
    input: VecDeque<BytesMut>,
    /// Bytes that one read asks for: more where much comes.
    read_size: usize,
    timer: Pin<Box<Sleep>>,
    phase: Phase,
    /// How long the transport may take over the last bytes, and over its own end.
    patience: Duration,
    /// Until when the last bytes must be taken.
    closing_until: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// The session is over. The transport is being shut down.
    ShuttingDown,
    /// It is. What the peer still sends is read, since a TCP socket that is closed before resets what it has not delivered.
    Draining,
    /// Nothing is left to do.
    Over,
}

impl<T: AsyncRead + AsyncWrite> Driver<T> {
    pub(super) fn new(io: T, shared: Arc<Shared>) -> Self {
        let patience = shared.locked(|state, _| state.core.patience());
        Self {
            io: Box::pin(io),
            shared,
            output: Vec::new(),
            written: 0,
            flush_due: false,
            input: VecDeque::new(),
            read_size: MIN_READ,
            timer: Box::pin(tokio::time::sleep_until(TokioInstant::now())),
            phase: Phase::Running,
            patience,
            closing_until: None,
        }
    }

    /// Writes one buffer, as far as the transport takes it. Whether it should be called again.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, io::Error> {
        if self.written == self.output.len() {
            let now = self.shared.now();
            let (took, waiting) = self.shared.locked(|state, _| {
                let took = state.core.take_output(now, &mut self.output);
                state.driver_writes = took;
                state.register_driver(cx);
                (took, state.core.has_waiting_writers())
            });
            self.written = 0;
            self.flush_due |= took;
            if !took {
                if waiting {
                    // Some have their turn. The others get theirs when these had the time to use it.
                    cx.waker().wake_by_ref();
                }
                self.flush(cx)?;
                return Ok(false);
            }
        }
        while self.written < self.output.len() {
            match self.io.as_mut().poll_write(cx, &self.output[self.written..]) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(false),
            }
        }
        // Not only when there is nothing more: a stream may wait for its own bytes while others write on.
        self.flush(cx)?;
        Ok(true)
    }

    /// Flushes what was written: all that was taken.
    fn flush(&mut self, cx: &mut Context<'_>) -> Result<(), io::Error> {
        if self.flush_due && self.io.as_mut().poll_flush(cx)?.is_ready() {
            self.flush_due = false;
            self.shared.locked(|state, wakes| {
                let flushed = state.core.taken();
                state.set_flushed(flushed, wakes);
            });
        }
        Ok(())
    }

    /// Reads once. Whether it should be called again.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, io::Error> {
        let wanted = self.shared.locked(|state, _| {
            let wanted = state.core.wants_input();
            state.input_paused = !wanted;
            state.register_driver(cx);
            wanted
        });
        if !wanted {
            return Ok(false);
        }
        let Some(count) = self.poll_read(cx)? else { return Ok(false) };
        let (bytes, now) = (self.input[0].split().freeze(), self.shared.now());
        self.shared.locked(|state, _| match count {
            0 => state.core.receive_end(),
            _ => state.core.receive(now, bytes),
        });
        Ok(true)
    }

    /// How many bytes are in the first buffer now; `None` when nothing comes yet.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Result<Option<usize>, io::Error> {
        // The whole of one each time: what comes in small pieces is copied. It is free again, unless a stream has a slice of it.
        match self.input.iter_mut().position(|buffer| buffer.try_reclaim(self.read_size)) {
            Some(free) => self.input.swap(0, free),
            None => {
                self.input.push_front(BytesMut::with_capacity(self.read_size));
                self.input.truncate(MAX_BUFFERS);
            }
        }
        let buffer = &mut self.input[0];
        let room = buffer.capacity();
        let Poll::Ready(count) = pin!(self.io.read_buf(buffer)).poll(cx)? else { return Ok(None) };
        if count == room {
            self.read_size = (2 * self.read_size).min(MAX_READ);
        }
        Ok(Some(count))
    }

    /// Whether the session has ended, or is to end and the transport has everything.
    fn look(&mut self) -> Option<Phase> {
        let idle = self.written == self.output.len() && !self.flush_due;
        self.shared.locked(|state, _| {
            if state.closing && idle && !state.core.has_output() && state.core.end().is_none() {
                state.core.fail(MuxError::Closed);
                return Some(Phase::ShuttingDown);
            }
            state.core.end().map(|_| Phase::Over)
        })
    }

    /// Runs the timers. Whether something may have changed.
    fn keep_time(&mut self, cx: &mut Context<'_>) -> bool {
        let now = self.shared.now();
        let (deadline, fired) = self.shared.locked(|state, _| {
            let fired = state.core.poll_timeout().is_some_and(|deadline| deadline <= now);
            if fired {
                state.core.handle_timeout(now);
            }
            let mut deadline = state.core.poll_timeout();
            if state.closing {
                let until = *self.closing_until.get_or_insert(now + self.patience);
                if until <= now {
                    state.core.fail(MuxError::Dead);
                    return (None, true);
                }
                deadline = Some(deadline.map_or(until, |deadline| deadline.min(until)));
            }
            (deadline, fired)
        });
        if fired {
            // Nothing much happens: an idle session keeps no buffers.
            if self.written == self.output.len() {
                (self.output, self.written) = (Vec::new(), 0);
            }
            (self.input, self.read_size) = (VecDeque::new(), MIN_READ);
            return true;
        }
        let Some(deadline) = deadline else { return false };
        let deadline = self.shared.to_tokio(deadline);
        // A later deadline is looked at when the earlier one has passed.
        if self.timer.is_elapsed() || deadline < self.timer.deadline() {
            self.timer.as_mut().reset(deadline);
        }
        self.timer.as_mut().poll(cx).is_ready()
    }

    fn run(&mut self, cx: &mut Context<'_>) -> Result<Poll<Phase>, io::Error> {
        for _ in 0..BUDGET {
            let wrote = self.write(cx)?;
            let read = self.read(cx)?;
            if let Some(next) = self.look() {
                return Ok(Poll::Ready(next));
            }
            if !wrote && !read && !self.keep_time(cx) {
                return Ok(Poll::Pending);
            }
        }
        // A session that is always busy has streams that wait, too.
        self.keep_time(cx);
        cx.waker().wake_by_ref();
        Ok(Poll::Pending)
    }
}

impl<T: AsyncRead + AsyncWrite> Future for Driver<T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Nothing in it is pinned but what has a pin of its own.
        let this = self.get_mut();
        if this.phase == Phase::Running {
            match this.run(cx) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(next)) => this.phase = next,
                Err(error) => {
                    this.shared.locked(|state, _| state.core.fail(MuxError::Transport(Arc::new(error))));
                    return Poll::Ready(());
                }
            }
            this.timer.as_mut().reset(TokioInstant::now() + this.patience);
        }
        if this.phase == Phase::Over || this.timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if this.phase == Phase::ShuttingDown {
            let Poll::Ready(outcome) = this.io.as_mut().poll_shutdown(cx) else { return Poll::Pending };
            let outcome = outcome.map_err(|error| MuxError::Transport(Arc::new(error)));
            let failed = outcome.is_err();
            this.shared.locked(|state, wakes| state.set_done(outcome, wakes));
            if failed {
                return Poll::Ready(());
            }
            this.phase = Phase::Draining;
        }
        for _ in 0..BUDGET {
            match this.poll_read(cx) {
                Ok(None) => return Poll::Pending,
                Ok(Some(0)) | Err(_) => return Poll::Ready(()),
                Ok(Some(_)) => this.input[0].clear(),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<T> Drop for Driver<T> {
    fn drop(&mut self) {
        self.shared.locked(|state, wakes| {
            state.core.fail(MuxError::RuntimeGone);
            let end = state.core.end().cloned().unwrap_or(MuxError::RuntimeGone);
            state.set_done(Err(end), wakes);
        });
    }
}

/// Rounds of writing and reading before other tasks of the thread get their turn.
const BUDGET: usize = 32;
/// Buffers that are kept to be read into. Readers that keep up need two or three.
const MAX_BUFFERS: usize = 4;
/// The first reads ask for so much. Most sessions never need more.
const MIN_READ: usize = 4 << 10;
const MAX_READ: usize = 64 << 10;
