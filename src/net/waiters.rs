//! The tasks that wait for one thing: for bytes to read, for room to write, for a session to accept.

use std::{boxed::Box, task::Waker, vec::Vec};

use super::wake_list::WakeList;

/// The wakers of tasks that wait for the same thing, usually none or one.
///
/// One task alone needs no memory beside the session's, of which there may be a million. A future that is cancelled leaves its waker
/// behind, so a list of several has a limit, at which it finds out who still waits. The capacity of the `Vec` is that limit, but at
/// least [`MIN_LIMIT`].
#[derive(Debug, Default)]
pub(crate) enum Waiters {
    #[default]
    None,
    /// Mostly it is one task, for as long as the session lives.
    One(Waker),
    Several(Vec<Waker>),
}

impl Waiters {
    /// Adds a task.
    ///
    /// When the list is full, all of its tasks are woken: those that still wait come back, those that were cancelled do
    /// not. The limit doubles, so that all who come back find room and do not wake each other again.
    pub(crate) fn add(&mut self, waker: &Waker, wakes: &mut WakeList) {
        match self {
            Self::None => *self = Self::One(waker.clone()),
            Self::One(waiting) if waiting.will_wake(waker) => {}
            Self::One(_) => {
                if let Self::One(waiting) = core::mem::take(self) {
                    *self = Self::Several(Vec::from([waiting, waker.clone()]));
                }
            }
            Self::Several(waiting) => add_to_several(waiting, waker, wakes),
        }
    }

    /// Moves all tasks to `wakes`. Halves the limit of a list that uses less than half of it.
    pub(crate) fn take_into(&mut self, wakes: &mut WakeList) {
        match self {
            Self::None => {}
            Self::One(_) => {
                if let Self::One(waiting) = core::mem::take(self) {
                    wakes.push(waiting);
                }
            }
            Self::Several(waiting) => take_several_into(waiting, wakes),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::None => true,
            Self::One(_) => false,
            Self::Several(waiting) => waiting.is_empty(),
        }
    }
}

fn add_to_several(waiting: &mut Vec<Waker>, waker: &Waker, wakes: &mut WakeList) {
    if waiting.iter().any(|waiting| waiting.will_wake(waker)) {
        return;
    }
    let limit = waiting.capacity().clamp(MIN_LIMIT, MAX_LIMIT);
    if waiting.len() >= limit {
        drain_into(waiting, wakes);
        waiting.reserve_exact((2 * limit).min(MAX_LIMIT));
    }
    waiting.push(waker.clone());
}

fn take_several_into(waiting: &mut Vec<Waker>, wakes: &mut WakeList) {
    let limit = waiting.capacity();
    let few = waiting.len() <= limit / 2;
    drain_into(waiting, wakes);
    if few && limit > MIN_LIMIT {
        waiting.shrink_to((limit / 2).max(MIN_LIMIT));
    }
}

fn drain_into(waiting: &mut Vec<Waker>, wakes: &mut WakeList) {
    for waker in waiting.drain(..) {
        wakes.push(waker);
    }
}

/// The same for what a task rarely waits for. Without a task it takes a third of the memory.
#[derive(Debug, Default)]
pub(crate) struct RareWaiters(Option<Box<Waiters>>);

impl RareWaiters {
    pub(crate) fn add(&mut self, waker: &Waker, wakes: &mut WakeList) {
        self.0.get_or_insert_default().add(waker, wakes);
    }

    /// Moves all tasks to `wakes`.
    pub(crate) fn take_into(&mut self, wakes: &mut WakeList) {
        if let Some(waiters) = &mut self.0 {
            waiters.take_into(wakes);
        }
    }

    /// Gives the memory back, unless a task waits.
    pub(crate) fn trim(&mut self) {
        self.0.take_if(|waiters| waiters.is_empty());
    }
}

/// Tasks that a list holds before it finds out who still waits.
const MIN_LIMIT: usize = 32;
/// Tasks that a list holds at most: 1 MiB of wakers.
const MAX_LIMIT: usize = 65_536;

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
    };

    use super::{super::wake_list::WakeMutex, *};

    /// A task that counts how often it was woken.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn add(waiters: &mut Waiters, task: &Arc<Task>) {
        WakeMutex::new(()).locked(|_, wakes| waiters.add(&Waker::from(Arc::clone(task)), wakes));
    }

    fn wake_all(waiters: &mut Waiters) {
        WakeMutex::new(()).locked(|_, wakes| waiters.take_into(wakes));
    }

    fn several(waiters: &mut Waiters) -> &mut Vec<Waker> {
        let Waiters::Several(several) = waiters else { panic!("{waiters:?}") };
        several
    }

    /// Polls tasks until none is woken; returns how many polls that took.
    fn settle(waiters: &mut Waiters, tasks: &[Arc<Task>]) -> usize {
        let mut polls = 0;
        loop {
            let before = polls;
            for task in tasks {
                if task.0.swap(0, Ordering::Relaxed) > 0 {
                    add(waiters, task);
                    polls += 1;
                }
            }
            if polls == before {
                return polls;
            }
            assert!(polls < 100 * tasks.len(), "they wake each other for ever");
        }
    }

    #[test]
    fn tasks_that_come_back_do_not_wake_each_other_for_ever() {
        for count in [1, 31, 32, 33, 40, 100, 1_000] {
            let tasks: Vec<_> = (0..count).map(|_| Arc::new(Task::default())).collect();
            let mut waiters = Waiters::default();
            tasks.iter().for_each(|task| add(&mut waiters, task));
            assert!(settle(&mut waiters, &tasks) <= 2 * count, "{count} tasks");
            wake_all(&mut waiters);
            let woken = tasks.iter().filter(|task| task.0.load(Ordering::Relaxed) == 1).count();
            assert_eq!(woken, count, "each task is woken by what it waits for");
            // One task got what it waited for. The others wait again.
            tasks[0].0.store(0, Ordering::Relaxed);
            assert!(settle(&mut waiters, &tasks) <= 3 * count, "{count} tasks");
        }
    }

    #[test]
    fn wakers_of_cancelled_futures_are_forgotten() {
        let mut waiters = Waiters::default();
        for _ in 0..3 * MAX_LIMIT {
            add(&mut waiters, &Arc::new(Task::default()));
        }
        assert!(several(&mut waiters).len() <= MAX_LIMIT);
        for _ in 0..16 {
            wake_all(&mut waiters);
            add(&mut waiters, &Arc::new(Task::default()));
        }
        let capacity = several(&mut waiters).capacity();
        assert!(capacity <= MIN_LIMIT, "{capacity}");
    }
}
