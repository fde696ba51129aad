//! Inboxes under loom: what is left to a driver is taken in, in whatever order the steps of both come, and drivers end together.

use std::{
    sync::{Arc, atomic::Ordering},
    task::{Wake, Waker},
    vec::Vec,
};

use ::loom::{
    model::Builder,
    sync::atomic::{AtomicBool, AtomicUsize},
    thread,
};

use super::Inbox;
use crate::net::handover::{RunQueue, Scheduled};

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

/// Polls what is woken, at first once, until it is at rest.
struct Polled {
    task: Arc<Task>,
    waker: Waker,
}

impl Polled {
    fn new() -> Self {
        let task = Arc::new(Task { notified: AtomicBool::new(true) });
        Self { waker: Waker::from(Arc::clone(&task)), task }
    }

    fn settle(&self, mut poll: impl FnMut(&Waker)) {
        while self.task.notified.swap(false, Ordering::AcqRel) {
            poll(&self.waker);
        }
    }
}

fn in_every_order(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound.get_or_insert(4);
    builder.check(test);
}

#[test]
fn what_is_left_to_a_driver_is_taken_once_and_in_order() {
    in_every_order(|| {
        let inbox = Arc::new(Inbox::new());
        let leaving: Vec<_> = [10, 20]
            .into_iter()
            .map(|first| {
                let inbox = Arc::clone(&inbox);
                move || (first..first + 2).for_each(|item| assert!(inbox.push(1, || item)))
            })
            .collect();
        let driver = Polled::new();
        let mut taken = Vec::new();
        let mut poll = |waker: &Waker| {
            inbox.register_driver(waker);
            if inbox.has_any() {
                taken.extend(inbox.take());
            }
        };
        let leaving: Vec<_> = leaving.into_iter().map(thread::spawn).collect();
        driver.settle(&mut poll);
        leaving.into_iter().for_each(|leaving| leaving.join().unwrap());
        driver.settle(&mut poll);
        for first in [10, 20] {
            let own: Vec<_> = taken.iter().copied().filter(|item| item / 10 == first / 10).collect();
            assert_eq!(own, [first, first + 1]);
        }
    });
}

#[derive(Debug)]
struct NoSession;

impl AsRef<Scheduled> for NoSession {
    fn as_ref(&self) -> &Scheduled {
        unreachable!("none is scheduled")
    }
}

/// Two drivers, of which the first has a session. They do what [`Driver::is_done`](crate::net::driver) says.
#[derive(Debug)]
struct Port {
    queues: [RunQueue<NoSession>; 2],
    inboxes: [Inbox<()>; 2],
    sessions: AtomicUsize,
}

impl Port {
    /// A turn of a driver. `has_session`: its last one ends in it. Returns whether the driver ends.
    fn turn(&self, shard: usize, waker: &Waker, has_session: &mut bool) -> bool {
        self.queues[shard].register_driver(waker);
        self.inboxes[shard].register_driver(waker);
        if std::mem::take(has_session)
            && self.sessions.fetch_sub(1, Ordering::AcqRel) == 1
            && self.queues[shard].is_abandoned()
        {
            self.inboxes[1 - shard].wake_driver();
        }
        let ends = self.queues[shard].is_abandoned() && self.sessions.load(Ordering::Acquire) == 0;
        if ends {
            self.inboxes[shard].close();
            self.inboxes[1 - shard].wake_driver();
        }
        ends
    }
}

/// The listener is dropped while the last session ends.
#[test]
fn no_driver_is_left_behind_when_the_last_session_ends() {
    in_every_order(|| {
        let port = Arc::new(Port {
            queues: [RunQueue::new(), RunQueue::new()],
            inboxes: [Inbox::new(), Inbox::new()],
            sessions: AtomicUsize::new(1),
        });
        let drive = |shard: usize| {
            let port = Arc::clone(&port);
            let (driver, mut has_session, mut ended) = (Polled::new(), shard == 0, false);
            move || {
                driver.settle(|waker| ended = ended || port.turn(shard, waker, &mut has_session));
                (driver, ended)
            }
        };
        let running = [0, 1].map(drive).map(thread::spawn);
        port.queues.iter().for_each(RunQueue::remove_owner);
        let mut drivers = running.map(|running| running.join().unwrap());
        // They wake each other.
        for _ in 0..2 {
            for (shard, (driver, ended)) in drivers.iter_mut().enumerate() {
                driver.settle(|waker| *ended = *ended || port.turn(shard, waker, &mut false));
            }
        }
        assert!(drivers.iter().all(|(_, ended)| *ended));
    });
}
