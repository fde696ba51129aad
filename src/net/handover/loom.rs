//! The hand-over under loom, which runs every test in every order that the steps of its threads can come in.
//!
//! What runs is the real hand-over. Around it stand a connection that only counts bytes, a wire that notices packets out of
//! order, and a driver that is polled when it is woken, and not otherwise. So what is lost stays lost: at rest, a byte is not
//! on the wire, a timer is too late, or a session is still there.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    task::{Wake, Waker},
    vec::Vec,
};

use ::loom::{
    model::Builder,
    sync::atomic::{AtomicBool, AtomicU32},
    thread,
};

use super::{Due, Guard, Handover, Next, RunQueue, Scheduled, Sender, SessionState, transmit};
use crate::{net::wake_list::WakeList, proto::Instant};

/// Bytes of a full batch.
const BATCH: u32 = 2;
/// Sessions of a test, at most.
const SESSIONS: usize = 2;

/// Stands in for a connection.
#[derive(Debug, Default)]
struct Bytes {
    written: u32,
    /// Bytes that went into a batch.
    taken: u32,
    /// Bytes that wait for a flush.
    held_back: u32,
    deadline: Option<Instant>,
    over: bool,
}

impl Bytes {
    fn need(&mut self, deadline: Instant) {
        self.deadline = Some(self.deadline.map_or(deadline, |at| at.min(deadline)));
    }
}

impl SessionState for Bytes {
    fn handle_timeout(&mut self, now: Instant, _: &mut WakeList) -> Due {
        self.deadline = self.deadline.filter(|at| *at > now);
        Due { quiet: self.written == self.taken && !self.over, deadline: self.deadline }
    }

    fn collect_wakes(&mut self, _: &mut WakeList) {}

    fn flush(&mut self) {
        self.written += std::mem::take(&mut self.held_back);
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn end(&mut self, _: &mut WakeList) {
        self.over = true;
    }
}

#[derive(Debug)]
struct Session {
    id: usize,
    scheduled: Scheduled,
    handover: Handover<Bytes>,
    /// Bytes on the wire.
    wire: AtomicU32,
    /// Whether the socket refuses the next batch.
    full: AtomicBool,
}

impl Session {
    fn new(id: usize, bytes: Bytes) -> Arc<Self> {
        Arc::new(Self {
            id,
            scheduled: Scheduled::new(),
            handover: Handover::new(bytes),
            wire: AtomicU32::new(0),
            full: AtomicBool::new(false),
        })
    }

    /// What a task does with the stream: changes it, and sends what that makes sendable.
    fn act(self: &Arc<Self>, queue: &RunQueue<Self>, corked: bool, work: impl FnOnce(&mut Bytes)) {
        let work = |mut state: Guard<'_, Bytes>, _: &mut WakeList| {
            work(&mut state);
            ((), self.transmit(state, corked).1)
        };
        self.handover.act(work, || queue.schedule(self).expect("the driver lives"));
    }

    fn release(self: &Arc<Self>, queue: &RunQueue<Self>) {
        let schedule = || queue.schedule(self).expect("the driver lives");
        self.handover.release(|state| self.transmit(state, false), schedule);
    }

    fn transmit<'g>(&self, state: Guard<'g, Bytes>, corked: bool) -> (Guard<'g, Bytes>, Next) {
        transmit(state, &mut Batches { session: self, corked })
    }

    /// Bytes on the wire, at rest.
    fn sent(&self) -> u32 {
        self.wire.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
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
            return Err(Next::Wait(bytes.deadline));
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
        outcome.map_err(|_| {
            bytes.taken = batch.start;
            Next::Blocked
        })
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

struct Driver {
    queue: Arc<RunQueue<Session>>,
    task: Arc<Task>,
    waker: Waker,
    /// The sessions that it knows of.
    known: [Option<Arc<Session>>; SESSIONS],
    timers: [Option<Instant>; SESSIONS],
    /// Sessions that it has forgotten.
    removed: [bool; SESSIONS],
    /// It ended because no session was left and none could come.
    ended: bool,
}

impl Driver {
    fn new(queue: &Arc<RunQueue<Session>>) -> Self {
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
        }
    }

    /// What the real one does in a turn.
    fn poll(&mut self) {
        self.turn(None);
    }

    /// The same, with a packet received for a session.
    fn receive(&mut self, session: &Arc<Session>) {
        self.turn(Some(session));
    }

    fn turn(&mut self, received: Option<&Arc<Session>>) {
        self.queue.register_driver(&self.waker);
        let mut sessions = Vec::new();
        if self.queue.has_any() {
            self.queue.take(&mut sessions);
        }
        sessions.iter().chain(received).for_each(|session| self.serve(session));
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
        loop {
            match session.handover.serve(at(0), |state| session.transmit(state, false)) {
                // The socket takes packets again.
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
    fn end(&self) {
        self.queue.close();
        let mut scheduled = Vec::new();
        self.queue.take(&mut scheduled);
        scheduled.iter().for_each(fail);
    }
}

fn fail(session: &Arc<Session>) {
    session.handover.locked(|mut state, wakes| state.end(wakes));
}

fn at(millis: u64) -> Instant {
    Instant::from_micros(1_000 * millis)
}

/// Runs `test` in every order, but for those that interrupt threads more than four times in a row.
fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound.get_or_insert(4);
    builder.check(test);
}

/// A test: while a driver runs `drive` and goes on as long as it is woken, others run `tasks`. Returns the driver at rest.
fn run(
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

fn queue() -> Arc<RunQueue<Session>> {
    Arc::new(RunQueue::new())
}

/// `work` with the session and the queue, for a task.
fn with(
    session: &Arc<Session>,
    queue: &Arc<RunQueue<Session>>,
    work: impl FnOnce(&Arc<Session>, &RunQueue<Session>) + Send + 'static,
) -> impl FnOnce() + Send + 'static {
    let (session, queue) = (Arc::clone(session), Arc::clone(queue));
    move || work(&session, &queue)
}

#[test]
fn bytes_written_while_the_driver_sends_are_sent_in_order() {
    model(|| {
        let queue = queue();
        let session = Session::new(0, Bytes { written: 1, ..Bytes::default() });
        let received = Arc::clone(&session);
        let driver = run(
            &queue,
            move |driver| driver.receive(&received),
            tasks![
                with(&session, &queue, |session, queue| session
                    .act(queue, false, |bytes| bytes.written += 1)),
                with(&session, &queue, |session, queue| session
                    .act(queue, false, |bytes| bytes.written += 2)),
            ],
        );
        assert_eq!(session.sent(), 4);
        assert_eq!(driver.timers[0], None);
    });
}

#[test]
fn less_than_a_batch_is_sent_by_the_driver() {
    model(|| {
        let queue = queue();
        let session = Session::new(0, Bytes::default());
        run(
            &queue,
            Driver::poll,
            tasks![
                with(&session, &queue, |session, queue| session.act(queue, true, |bytes| bytes.written += 1)),
                with(&session, &queue, |session, queue| session.act(queue, true, |bytes| bytes.written += 2)),
            ],
        );
        assert_eq!(session.sent(), 3);
    });
}

#[test]
fn a_batch_that_finds_the_socket_full_is_sent_by_the_driver_and_first() {
    model(|| {
        let queue = queue();
        let session = Session::new(0, Bytes::default());
        session.full.store(true, Ordering::Relaxed);
        run(
            &queue,
            Driver::poll,
            tasks![
                with(&session, &queue, |session, queue| session
                    .act(queue, false, |bytes| bytes.written += 1)),
                with(&session, &queue, |session, queue| session
                    .act(queue, false, |bytes| bytes.written += 1)),
            ],
        );
        assert_eq!(session.sent(), 2);
    });
}

#[test]
fn sessions_scheduled_while_the_driver_starts_and_goes_to_sleep_are_served() {
    model(|| {
        let queue = queue();
        let sessions = [Session::new(0, Bytes::default()), Session::new(1, Bytes::default())];
        let driver = run(
            &queue,
            Driver::poll,
            tasks![
                with(&sessions[0], &queue, |session, queue| session.act(queue, false, |it| it.need(at(7)))),
                with(&sessions[1], &queue, |session, queue| session.act(queue, false, |it| it.need(at(8)))),
            ],
        );
        assert_eq!(driver.timers, [Some(at(7)), Some(at(8))]);
        assert!(!queue.has_any());
    });
}

#[test]
fn a_deadline_moved_earlier_is_kept_while_the_driver_arms_another() {
    model(|| {
        let queue = queue();
        let session = Session::new(0, Bytes { written: 1, deadline: Some(at(100)), ..Bytes::default() });
        let received = Arc::clone(&session);
        let driver = run(
            &queue,
            move |driver| driver.receive(&received),
            tasks![
                with(&session, &queue, |session, queue| session.act(queue, false, |it| it.need(at(50)))),
                with(&session, &queue, |session, queue| session.act(queue, false, |it| it.need(at(20)))),
            ],
        );
        assert_eq!(driver.timers[0], Some(at(20)));
    });
}

#[test]
fn a_deadline_is_kept_when_a_writer_sends_as_the_driver_looks() {
    model(|| {
        let queue = queue();
        let session = Session::new(0, Bytes::default());
        let received = Arc::clone(&session);
        let driver = run(
            &queue,
            move |driver| {
                driver.receive(&received);
                // Another packet.
                driver.receive(&received);
            },
            tasks![with(&session, &queue, |session, queue| session.act(queue, false, |bytes| {
                bytes.written += 1;
                bytes.need(at(30));
            }))],
        );
        assert_eq!((session.sent(), driver.timers[0]), (1, Some(at(30))));
    });
}

#[test]
fn a_stream_dropped_while_the_driver_sends_sends_its_rest_and_is_forgotten() {
    model(|| {
        let queue = queue();
        let bytes = Bytes { written: 3, held_back: 1, deadline: Some(at(100)), ..Bytes::default() };
        let session = Session::new(0, bytes);
        let received = Arc::clone(&session);
        let driver = run(
            &queue,
            move |driver| driver.receive(&received),
            tasks![with(&session, &queue, |session, queue| session.release(queue))],
        );
        assert_eq!(session.sent(), 4);
        assert!(session.is_over() && driver.removed[0]);
        assert_eq!(driver.timers[0], None);
    });
}

#[test]
fn a_stream_dropped_behind_a_write_sends_it_although_the_driver_was_called() {
    model(|| {
        let queue = queue();
        let session = Session::new(0, Bytes::default());
        let driver = run(
            &queue,
            Driver::poll,
            tasks![with(&session, &queue, |session, queue| {
                // The driver is to send the byte, and comes while the stream is dropped.
                session.act(queue, true, |bytes| bytes.written += 1);
                session.release(queue);
            })],
        );
        assert_eq!(session.sent(), 1);
        assert!(session.is_over() && driver.removed[0]);
    });
}

#[test]
fn a_driver_does_not_end_before_it_knows_the_session_of_an_owner_that_went() {
    model(|| {
        let queue = queue();
        let session = Session::new(0, Bytes { written: 1, ..Bytes::default() });
        let driver = run(
            &queue,
            Driver::poll,
            tasks![with(&session, &queue, |session, queue| {
                queue.schedule(session).unwrap();
                queue.remove_owner();
            })],
        );
        assert!(!driver.ended && driver.known[0].is_some());
        assert_eq!(session.sent(), 1);
    });
}

#[test]
fn a_driver_ends_when_the_last_stream_and_the_owner_went() {
    model(|| {
        let queue = queue();
        let session = Session::new(0, Bytes::default());
        let received = Arc::clone(&session);
        let driver = run(
            &queue,
            move |driver| {
                driver.receive(&received);
                driver.poll();
            },
            tasks![
                with(&session, &queue, |session, queue| session.release(queue)),
                with(&session, &queue, |_, queue| queue.remove_owner()),
            ],
        );
        assert!(driver.removed[0]);
        assert!(driver.ended, "it sleeps for ever");
    });
}

#[test]
fn a_session_scheduled_as_the_driver_is_dropped_fails_and_is_not_kept() {
    model(|| {
        let queue = queue();
        let session = Session::new(0, Bytes::default());
        run(
            &queue,
            |driver| driver.end(),
            tasks![with(&session, &queue, |session, queue| {
                if queue.schedule(session).is_err() {
                    fail(session);
                }
            })],
        );
        assert!(session.is_over());
        assert_eq!(Arc::strong_count(&session), 1, "it would keep its socket open");
    });
}
