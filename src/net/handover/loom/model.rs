//! What the tests put around the real hand-over: a connection that only counts bytes, a wire that finds packets out of order,
//! and a driver that is polled when it is woken, and not otherwise.
//!
//! So what is lost stays lost: when all are at rest, a byte is not on the wire, a timer is too late, or a session is still
//! there.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    task::{Wake, Waker},
    time::Duration,
    vec::Vec,
};

use ::loom::{
    model::Builder,
    sync::atomic::{AtomicBool, AtomicU32},
    thread,
};

use crate::{
    net::{
        handover::{
            Due, Guard, Handover, Look, Next, RunQueue, Scheduled, Sender, SessionState, transmit,
            transmit_in_task,
        },
        wake_list::WakeList,
    },
    proto::Instant,
};

/// Bytes of a full batch.
const BATCH: u32 = 2;
/// Sessions of a test, at most.
const SESSIONS: usize = 2;

/// Stands in for a connection.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    pub(super) written: u32,
    /// Bytes that went into a batch.
    pub(super) taken: u32,
    /// Bytes that wait for a flush.
    pub(super) held_back: u32,
    /// The peer has not acknowledged what was sent.
    pub(super) unacknowledged: bool,
    /// Times at which something is to be done.
    pub(super) deadlines: Vec<Instant>,
    pub(super) over: bool,
    /// Nobody refers to it any more: it ends when everything was sent and acknowledged.
    pub(super) let_go: bool,
}

impl Bytes {
    pub(super) fn need(&mut self, deadline: Instant) {
        self.deadlines.push(deadline);
    }

    fn check_end(&mut self) {
        self.over |= self.let_go && self.written == self.taken && !self.unacknowledged;
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadlines.iter().copied().min()
    }
}

impl SessionState for Bytes {
    fn handle_timeout(&mut self, look: Look, _: Option<Duration>, _: &mut WakeList) -> Due {
        self.deadlines.retain(|at| *at > look.now);
        Due { quiet: self.written == self.taken && !self.over, deadline: self.deadline() }
    }

    fn collect_wakes(&mut self, _: &mut WakeList) {}

    fn let_go(&mut self, _: &mut WakeList) {
        self.written += std::mem::take(&mut self.held_back);
        self.let_go = true;
        self.check_end();
    }

    fn is_over(&self) -> bool {
        self.over
    }
}

#[derive(Debug)]
pub(super) struct Session {
    id: usize,
    scheduled: Scheduled,
    handover: Handover<Bytes>,
    /// Bytes on the wire.
    wire: AtomicU32,
    /// Whether the socket refuses the next batch.
    pub(super) full: AtomicBool,
}

impl Session {
    pub(super) fn new(id: usize, bytes: Bytes) -> Arc<Self> {
        Arc::new(Self {
            id,
            scheduled: Scheduled::new(),
            handover: Handover::new(bytes),
            wire: AtomicU32::new(0),
            full: AtomicBool::new(false),
        })
    }

    /// What a task does with the stream: changes it, and sends what that makes sendable.
    pub(super) fn act(self: &Arc<Self>, queue: &RunQueue<Self>, corked: bool, work: impl FnOnce(&mut Bytes)) {
        let work = |mut state: Guard<'_, Bytes>, _: &mut WakeList| {
            work(&mut state);
            ((), transmit_in_task(state, &mut Batches { session: self, corked }).1)
        };
        self.handover.act(work, || queue.schedule(self).expect("the driver lives"));
    }

    pub(super) fn release(self: &Arc<Self>, queue: &RunQueue<Self>) {
        let schedule = || queue.schedule(self).expect("the driver lives");
        self.handover.release(|state| self.transmit(state, false), schedule);
    }

    fn transmit<'g>(&self, state: Guard<'g, Bytes>, corked: bool) -> (Guard<'g, Bytes>, Next) {
        transmit(state, &mut Batches { session: self, corked })
    }

    /// Bytes on the wire, at rest.
    pub(super) fn sent(&self) -> u32 {
        self.wire.load(Ordering::Relaxed)
    }

    pub(super) fn written(&self) -> u32 {
        self.handover.locked(|state, _| state.written)
    }

    /// What the driver does as the peer's acknowledgement comes.
    pub(super) fn acknowledge(&self) {
        self.handover.locked(|mut state, _| {
            state.unacknowledged = false;
            state.check_end();
        });
    }

    pub(super) fn is_over(&self) -> bool {
        self.handover.locked(|state, _| state.over)
    }
}

impl AsRef<Scheduled> for Session {
    fn as_ref(&self) -> &Scheduled {
        &self.scheduled
    }
}

struct Batches<'a> {
    session: &'a Session,
    corked: bool,
}

/// A batch: where in the stream it begins and ends.
struct Batch {
    start: u32,
    end: u32,
}

impl Sender<Bytes> for Batches<'_> {
    type Batch = Batch;

    fn take(&mut self, bytes: &mut Bytes) -> Result<Batch, Next> {
        let (start, available) = (bytes.taken, bytes.written - bytes.taken);
        if bytes.over || available == 0 {
            return Err(Next::Wait(bytes.deadline()));
        }
        if self.corked && available < BATCH {
            return Err(Next::Again);
        }
        bytes.taken += available.min(BATCH);
        Ok(Batch { start, end: bytes.taken })
    }

    fn send(&mut self, batch: &Batch) -> io::Result<()> {
        if self.session.full.swap(false, Ordering::Relaxed) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let before = self.session.wire.swap(batch.end, Ordering::Relaxed);
        assert_eq!(before, batch.start, "out of order");
        Ok(())
    }

    fn sent(&mut self, bytes: &mut Bytes, batch: Batch, outcome: io::Result<()>) -> Result<(), Next> {
        if outcome.is_err() {
            bytes.taken = batch.start;
            return Err(Next::Blocked);
        }
        bytes.check_end();
        Ok(())
    }
}

/// The driver's task, as its runtime sees it: to be polled, or not.
#[derive(Debug)]
struct Task {
    notified: AtomicBool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.notified.swap(true, Ordering::AcqRel);
    }
}

pub(super) struct Driver {
    queue: Arc<RunQueue<Session>>,
    task: Arc<Task>,
    waker: Waker,
    /// The sessions that it knows of.
    pub(super) known: [Option<Arc<Session>>; SESSIONS],
    pub(super) timers: [Option<Instant>; SESSIONS],
    /// Sessions that it has forgotten.
    pub(super) removed: [bool; SESSIONS],
    /// It ended because no session was left and none could come.
    pub(super) ended: bool,
    pub(super) now: Instant,
    /// How long a session waits that found the socket full. Without it, the socket takes packets again at once.
    pub(super) retry: Option<Instant>,
}

impl Driver {
    pub(super) fn new(queue: &Arc<RunQueue<Session>>) -> Self {
        let task = Arc::new(Task { notified: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&task));
        Self {
            queue: Arc::clone(queue),
            task,
            waker,
            known: [const { None }; SESSIONS],
            timers: [None; SESSIONS],
            removed: [false; SESSIONS],
            ended: false,
            now: at(0),
            retry: None,
        }
    }

    /// What the real one does in a turn.
    pub(super) fn poll(&mut self) {
        self.turn(None);
    }

    /// The same, with a packet received for a session.
    pub(super) fn receive(&mut self, session: &Arc<Session>) {
        self.turn(Some(session));
    }

    fn turn(&mut self, received: Option<&Arc<Session>>) {
        self.queue.register_driver(&self.waker);
        let mut sessions = Vec::new();
        if self.queue.has_any() {
            self.queue.take(&mut sessions);
        }
        sessions.extend(received.cloned());
        // Each is served once.
        sessions.sort_by_key(|session| session.id);
        sessions.dedup_by_key(|session| session.id);
        sessions.iter().for_each(|session| self.serve(session));
        self.ended |= self.known.iter().all(Option::is_none) && self.queue.is_abandoned();
    }

    /// Polls it as long as it is woken.
    fn settle(&mut self) {
        while self.task.notified.swap(false, Ordering::AcqRel) {
            self.poll();
        }
    }

    fn serve(&mut self, session: &Arc<Session>) {
        let id = session.id;
        self.known[id] = Some(Arc::clone(session));
        let look = Look { now: self.now, read_until: self.now, last: self.now };
        loop {
            match session.handover.serve(look, |state| session.transmit(state, false)) {
                Next::Blocked if self.retry.is_some() => {
                    self.timers[id] = self.retry;
                    break;
                }
                Next::Again | Next::Blocked => {}
                Next::Wait(deadline) => {
                    self.timers[id] = deadline;
                    break;
                }
                Next::Remove => {
                    self.timers[id] = None;
                    self.known[id] = None;
                    self.removed[id] = true;
                    break;
                }
            }
        }
    }

    /// Ends, as when its runtime is shut down. Nobody waits for it any more.
    pub(super) fn end(&self) {
        self.queue.close();
        let mut scheduled = Vec::new();
        self.queue.take(&mut scheduled);
        scheduled.iter().for_each(fail);
    }
}

pub(super) fn fail(session: &Arc<Session>) {
    session.handover.locked(|mut state, _| state.over = true);
}

pub(super) fn at(millis: u64) -> Instant {
    Instant::from_micros(1_000 * millis)
}

/// Runs `test` in every order in which threads are interrupted at most four times before they wait or end: loom's authors
/// found that faults need fewer. `LOOM_MAX_PREEMPTIONS` sets another bound.
pub(super) fn in_every_order(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound.get_or_insert(4);
    builder.check(test);
}

/// A test: while a driver runs `drive` and goes on as long as it is woken, others run `tasks`. Returns the driver at rest.
pub(super) fn run(
    queue: &Arc<RunQueue<Session>>,
    drive: impl FnOnce(&mut Driver) + Send + 'static,
    tasks: Vec<std::boxed::Box<dyn FnOnce() + Send>>,
) -> Driver {
    let mut driver = Driver::new(queue);
    let running = thread::spawn(move || {
        drive(&mut driver);
        driver.settle();
        driver
    });
    let mut tasks = tasks.into_iter();
    // The first runs here: a thread less.
    let first = tasks.next();
    let others: Vec<_> = tasks.map(thread::spawn).collect();
    first.into_iter().for_each(|task| task());
    others.into_iter().for_each(|task| task.join().unwrap());
    let mut driver = running.join().unwrap();
    driver.settle();
    driver
}

macro_rules! tasks {
    ($($task:expr),* $(,)?) => { std::vec![$(std::boxed::Box::new($task) as std::boxed::Box<dyn FnOnce() + Send>),*] };
}
pub(super) use tasks;

pub(super) fn queue() -> Arc<RunQueue<Session>> {
    Arc::new(RunQueue::new())
}

/// `work` with the session and the queue, for a task.
pub(super) fn with(
    session: &Arc<Session>,
    queue: &Arc<RunQueue<Session>>,
    work: impl FnOnce(&Arc<Session>, &RunQueue<Session>) + Send + 'static,
) -> impl FnOnce() + Send + 'static {
    let (session, queue) = (Arc::clone(session), Arc::clone(queue));
    move || work(&session, &queue)
}
