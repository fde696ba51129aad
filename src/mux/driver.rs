//! The task of a session: it owns the transport.

use core::{
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use std::{boxed::Box, collections::VecDeque, io, sync::Arc, vec::Vec};

use bytes::{BufMut, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    time::{Instant as TokioInstant, Sleep},
};

use super::{MuxError, frame::HEADER_LEN, shared::Shared};
use crate::proto::Instant;

pub(super) struct Driver<T> {
    io: Pin<Box<T>>,
    shared: Arc<Shared>,
    /// What the transport is to get next.
    output: Vec<u8>,
    /// Bytes of it that it has.
    written: usize,
    flush_due: bool,
    /// A stream waits for a flush, and there was something to write before.
    flush_awaited: bool,
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
            flush_awaited: false,
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
            let (took, waiting, flush_awaited) = self.shared.locked(|state, _| {
                let took = state.core.take_output(now, &mut self.output);
                state.driver_writes = took;
                state.register_driver(cx);
                (took, state.core.has_waiting_writers(), state.awaits_flush())
            });
            self.flush_awaited = flush_awaited;
            self.written = 0;
            self.flush_due |= took;
            if !took {
                if waiting {
                    // Some have their turn. The others get theirs when these had the time to use it.
                    cx.waker().wake_by_ref();
                }
                // Else more is to come at once, and the transport may send what it has together with that.
                if !waiting || flush_awaited {
                    self.flush(cx)?;
                }
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
        // Else it is done when there is nothing more: a flush of a KCP stream sends packets that the next bytes would have filled.
        if self.flush_awaited {
            self.flush(cx)?;
        }
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
        let (wanted, one_piece) = self.shared.locked(|state, _| {
            let wanted = state.core.wants_input();
            state.input_paused = !wanted;
            state.register_driver(cx);
            (wanted, state.core.rest_of_large_frame())
        });
        if !wanted {
            return Ok(false);
        }
        let Some(count) = self.poll_read(cx, one_piece)? else { return Ok(false) };
        let (bytes, now) = (self.input[0].split().freeze(), self.shared.now());
        self.shared.locked(|state, _| match count {
            0 => state.core.receive_end(),
            _ => state.core.receive(now, bytes),
        });
        Ok(true)
    }

    /// How many bytes are in the first buffer now; `None` when nothing comes yet. It asks for as many as are wanted in one piece, if
    /// any are.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        one_piece: Option<usize>,
    ) -> Result<Option<usize>, io::Error> {
        if one_piece.is_some() {
            self.read_size = MAX_READ;
        }
        let size = one_piece.unwrap_or(self.read_size);
        // It is free again, unless a stream has a slice of it.
        match self.input.iter_mut().position(|buffer| buffer.try_reclaim(size)) {
            Some(free) => self.input.swap(0, free),
            None => {
                self.input.push_front(BytesMut::with_capacity(self.read_size));
                self.input.truncate(MAX_BUFFERS);
            }
        }
        let mut buffer = (&mut self.input[0]).limit(size);
        let Poll::Ready(count) = pin!(self.io.read_buf(&mut buffer)).poll(cx)? else { return Ok(None) };
        if count == size {
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
        let mut reads = 0;
        for _ in 0..BUDGET {
            let wrote = self.write(cx)?;
            let read = self.read(cx)?;
            if let Some(next) = self.look() {
                return Ok(Poll::Ready(next));
            }
            if !wrote && !read && !self.keep_time(cx) {
                return Ok(Poll::Pending);
            }
            reads += u32::from(read);
            if reads == READS {
                break;
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
            match this.poll_read(cx, None) {
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
/// As many reads are enough: those whose bytes came shall read them while they are in the processor's cache.
const READS: u32 = 2;
/// Buffers that are kept to be read into, 1 MiB. Readers that keep up need a few; what is allocated for each read anew costs as much as
/// a copy of its bytes, since the allocator gives such pieces back to the system.
const MAX_BUFFERS: usize = 16;
/// The first reads ask for so much. Most sessions never need more.
const MIN_READ: usize = 4 << 10;
/// Two payloads of the default `max_frame`, each with the header behind it.
const MAX_READ: usize = 2 * (32_768 + HEADER_LEN);
