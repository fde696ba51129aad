//! The core under a lock, with the tasks that wait for it.

use core::task::{Context, Poll, Waker, ready};
use std::{sync::Arc, vec::Vec};

use tokio::{io::ReadBuf, task::coop, time::Instant as TokioInstant};

use super::{MuxConfig, MuxCore, MuxError, MuxEvent, MuxRole, StreamKey};
use crate::{
    net::{Waiters, WakeList, WakeMutex},
    proto::Instant,
};

/// What the handles of a session and its driver have in common.
pub(super) struct Shared {
    state: WakeMutex<State>,
    began: TokioInstant,
}

pub(super) struct State {
    pub(super) core: MuxCore,
    /// By the index of the stream.
    tasks: Vec<StreamTasks>,
    acceptors: Waiters,
    openers: Waiters,
    /// Those that wait for the end of the session, or of the driver.
    enders: Waiters,
    driver: Option<Waker>,
    /// The driver has a buffer to write, and asks for more behind it.
    pub(super) driver_writes: bool,
    /// The driver does not read from the transport, because the receive buffer is used up.
    pub(super) input_paused: bool,
    /// How much of the output the transport has, and has flushed.
    flushed: u64,
    flushing: Vec<StreamKey>,
    /// Handles of the session.
    sessions: usize,
    /// Handles of streams.
    streams: usize,
    /// The session is to end once the transport has everything.
    pub(super) closing: bool,
    /// How the closing of the transport went.
    done: Option<Result<(), MuxError>>,
}

/// The tasks that wait for one stream.
#[derive(Debug, Default)]
struct StreamTasks {
    reader: Option<Waker>,
    writer: Option<Waker>,
    flushing: bool,
}

impl Shared {
    pub(super) fn new(config: MuxConfig, role: MuxRole) -> Arc<Self> {
        let state = State {
            core: MuxCore::new(config, role, Instant::ZERO),
            tasks: Vec::new(),
            acceptors: Waiters::default(),
            openers: Waiters::default(),
            enders: Waiters::default(),
            driver: None,
            driver_writes: false,
            input_paused: false,
            flushed: 0,
            flushing: Vec::new(),
            sessions: 1,
            streams: 0,
            closing: false,
            done: None,
        };
        Arc::new(Self { state: WakeMutex::new(state), began: TokioInstant::now() })
    }

    pub(super) fn now(&self) -> Instant {
        Instant::from_micros(u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    pub(super) fn to_tokio(&self, instant: Instant) -> TokioInstant {
        self.began + core::time::Duration::from_micros(instant.as_micros())
    }

    /// Works on the state, then wakes who waits for what has changed.
    pub(super) fn locked<R>(&self, work: impl FnOnce(&mut State, &mut WakeList) -> R) -> R {
        self.state.locked(|mut state, wakes| {
            let result = work(&mut state, wakes);
            state.settle(wakes);
            result
        })
    }

    // ---- The session ----

    pub(super) fn poll_open(&self, cx: &mut Context<'_>) -> Poll<Result<StreamKey, MuxError>> {
        self.locked(|state, wakes| {
            if state.closing && state.core.end().is_none() {
                return Poll::Ready(Err(MuxError::Closed));
            }
            match state.core.open()? {
                Some(key) => Poll::Ready(Ok(state.hand_out(key))),
                None => {
                    state.openers.add(cx.waker(), wakes);
                    Poll::Pending
                }
            }
        })
    }

    pub(super) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Result<StreamKey, MuxError>> {
        self.locked(|state, wakes| {
            if let Some(key) = state.core.accept() {
                return Poll::Ready(Ok(state.hand_out(key)));
            }
            if let Some(end) = state.core.end() {
                return Poll::Ready(Err(end.clone()));
            }
            state.acceptors.add(cx.waker(), wakes);
            Poll::Pending
        })
    }

    /// Asks for a graceful end, and waits for it.
    pub(super) fn poll_close(&self, cx: &mut Context<'_>) -> Poll<Result<(), MuxError>> {
        self.locked(|state, wakes| {
            state.begin_to_close();
            if let Some(done) = &state.done {
                return Poll::Ready(done.clone());
            }
            state.enders.add(cx.waker(), wakes);
            Poll::Pending
        })
    }

    pub(super) fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<MuxError> {
        self.locked(|state, wakes| {
            if let Some(end) = state.core.end() {
                return Poll::Ready(end.clone());
            }
            state.enders.add(cx.waker(), wakes);
            Poll::Pending
        })
    }

    pub(super) fn add_session(&self) {
        self.locked(|state, _| state.sessions += 1);
    }

    pub(super) fn drop_session(&self) {
        self.locked(|state, _| {
            state.sessions -= 1;
            if state.sessions == 0 {
                state.core.stop_accepting();
                state.close_if_unused();
            }
        });
    }

    // ---- A stream ----

    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        key: StreamKey,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), MuxError>> {
        let budget = ready!(coop::poll_proceed(cx));
        // Copied when the lock is released.
        let mut pieces = [const { None }; PIECES];
        let outcome = self.locked(|state, _| {
            let mut room = buf.remaining();
            for piece in &mut pieces {
                let Some(taken) = state.core.read_piece(key, room) else { break };
                room -= taken.len();
                *piece = Some(taken);
            }
            if pieces[0].is_some() {
                return Poll::Ready(Ok(()));
            }
            let outcome = state.core.read(key, buf.remaining(), |bytes| buf.put_slice(bytes));
            if outcome.is_pending() {
                register(&mut state.tasks[key.index()].reader, cx);
            }
            outcome.map_ok(drop)
        });
        for piece in pieces.into_iter().flatten() {
            buf.put_slice(&piece);
        }
        if outcome.is_ready() {
            budget.made_progress();
        }
        outcome
    }

    pub(super) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        key: StreamKey,
        bytes: &[u8],
    ) -> Poll<Result<usize, MuxError>> {
        let budget = ready!(coop::poll_proceed(cx));
        let now = self.now();
        let outcome = self.locked(|state, _| {
            let outcome = state.core.write(now, key, bytes);
            if outcome.is_pending() {
                register(&mut state.tasks[key.index()].writer, cx);
            }
            outcome
        });
        if outcome.is_ready() {
            budget.made_progress();
        }
        outcome
    }

    /// Waits until the transport has what the stream wrote; first ends its direction, if told so.
    pub(super) fn poll_flush(
        &self,
        cx: &mut Context<'_>,
        key: StreamKey,
        finish: bool,
    ) -> Poll<Result<(), MuxError>> {
        self.locked(|state, _| {
            if finish {
                state.core.finish(key);
            }
            if state.core.written_to(key) <= state.flushed {
                return Poll::Ready(Ok(()));
            }
            if let Some(end) = state.core.end() {
                return Poll::Ready(Err(end.clone()));
            }
            let tasks = &mut state.tasks[key.index()];
            register(&mut tasks.writer, cx);
            if !std::mem::replace(&mut tasks.flushing, true) {
                state.flushing.push(key);
            }
            Poll::Pending
        })
    }

    pub(super) fn drop_stream(&self, key: StreamKey) {
        // A waker may drop a handle as it is dropped: not under the lock.
        let tasks = self.locked(|state, _| {
            state.core.release(key);
            state.streams -= 1;
            state.close_if_unused();
            std::mem::take(&mut state.tasks[key.index()])
        });
        drop(tasks);
    }
}

impl State {
    /// A handle of the stream is made.
    fn hand_out(&mut self, key: StreamKey) -> StreamKey {
        self.streams += 1;
        if self.tasks.len() <= key.index() {
            self.tasks.resize_with(key.index() + 1, StreamTasks::default);
        }
        key
    }

    fn close_if_unused(&mut self) {
        if self.sessions == 0 && self.streams == 0 {
            self.begin_to_close();
        }
    }

    fn begin_to_close(&mut self) {
        self.closing = true;
    }

    /// The transport has flushed all output up to here.
    pub(super) fn set_flushed(&mut self, flushed: u64, wakes: &mut WakeList) {
        self.flushed = flushed;
        self.flushing.retain(|key| {
            let tasks = &mut self.tasks[key.index()];
            let waits = self.core.written_to(*key) > flushed;
            if !waits {
                tasks.flushing = false;
                if let Some(writer) = tasks.writer.take() {
                    wakes.push(writer);
                }
            }
            waits
        });
    }

    /// Whether a stream waits until the transport has flushed its bytes.
    pub(super) fn awaits_flush(&self) -> bool {
        !self.flushing.is_empty()
    }

    /// The driver waits for this task's wake-up.
    pub(super) fn register_driver(&mut self, cx: &mut Context<'_>) {
        register(&mut self.driver, cx);
    }

    /// The transport is closed, or gone.
    pub(super) fn set_done(&mut self, done: Result<(), MuxError>, wakes: &mut WakeList) {
        self.done.get_or_insert(done);
        self.enders.take_into(wakes);
    }

    fn settle(&mut self, wakes: &mut WakeList) {
        while let Some(event) = self.core.poll_event() {
            let task = match event {
                // A stream that nobody has accepted yet has no tasks.
                MuxEvent::Readable(key) => {
                    self.tasks.get_mut(key.index()).and_then(|tasks| tasks.reader.take())
                }
                MuxEvent::Writable(key) => {
                    self.tasks.get_mut(key.index()).and_then(|tasks| tasks.writer.take())
                }
                MuxEvent::Acceptable => {
                    self.acceptors.take_into(wakes);
                    None
                }
                MuxEvent::Openable => {
                    self.openers.take_into(wakes);
                    None
                }
                MuxEvent::Ended => {
                    self.end(wakes);
                    None
                }
            };
            if let Some(task) = task {
                wakes.push(task);
            }
        }
        let output = self.core.has_output() && !self.driver_writes;
        let input = self.input_paused && self.core.wants_input();
        if (output || input || self.closing || self.core.end().is_some())
            && let Some(driver) = self.driver.take()
        {
            wakes.push(driver);
        }
    }

    /// Everybody looks.
    fn end(&mut self, wakes: &mut WakeList) {
        self.acceptors.take_into(wakes);
        self.openers.take_into(wakes);
        self.enders.take_into(wakes);
        for tasks in &mut self.tasks {
            for task in [tasks.reader.take(), tasks.writer.take()].into_iter().flatten() {
                wakes.push(task);
            }
        }
    }
}

/// Pieces that one read takes without copying them under the lock: as many as fill 64 KiB.
const PIECES: usize = 4;

fn register(task: &mut Option<Waker>, cx: &Context<'_>) {
    match task {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *task = Some(cx.waker().clone()),
    }
}
