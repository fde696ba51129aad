//! Tasks that wait for something.

use std::{task::Waker, vec::Vec};

/// Tasks that a list holds before it looks which of them still wait: a future that is cancelled leaves its waker behind.
const MIN_LIMIT: usize = 32;
/// Tasks that a list holds at most: 1 MiB.
const MAX_LIMIT: usize = 65_536;

/// The wakers of tasks waiting for the same thing; mostly none or one. The list's capacity is its limit, from [`MIN_LIMIT`]
/// on.
#[derive(Debug, Default)]
pub(super) struct Waiters(Vec<Waker>);

impl Waiters {
    /// Adds a task. A full list is woken: who still waits comes back, who was cancelled does not. Its limit doubles, so
    /// that all who come back fit, and are not woken for each other again.
    pub(super) fn add(&mut self, waker: &Waker, woken: &mut Woken) {
        if self.0.iter().any(|waiting| waiting.will_wake(waker)) {
            return;
        }
        let limit = self.0.capacity().clamp(MIN_LIMIT, MAX_LIMIT);
        if self.0.len() >= limit {
            self.drain_into(woken);
            self.0.reserve_exact((2 * limit).min(MAX_LIMIT));
        }
        self.0.push(waker.clone());
    }

    /// Moves all to `woken`, to be woken once no lock is held.
    pub(super) fn take_into(&mut self, woken: &mut Woken) {
        if self.0.len() <= 1 && self.0.capacity() <= MIN_LIMIT {
            if let Some(waker) = self.0.pop() {
                woken.push(waker);
            }
            return;
        }
        self.take_many_into(woken);
    }

    #[cold]
    fn take_many_into(&mut self, woken: &mut Woken) {
        let limit = self.0.capacity();
        let few = self.0.len() <= limit / 2;
        self.drain_into(woken);
        if few && limit > MIN_LIMIT {
            self.0.shrink_to((limit / 2).max(MIN_LIMIT));
        }
    }

    fn drain_into(&mut self, woken: &mut Woken) {
        for waker in self.0.drain(..) {
            woken.push(waker);
        }
    }
}

/// Wakers on their way to being woken; dropping it wakes them.
#[derive(Debug, Default)]
#[must_use = "declare it before the lock, so that it is dropped after it"]
pub(super) struct Woken {
    /// A reader and a writer are woken without an allocation.
    first: [Option<Waker>; 2],
    more: Vec<Waker>,
}

impl Woken {
    fn push(&mut self, waker: Waker) {
        match self.first.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(waker),
            None => self.push_more(waker),
        }
    }

    #[cold]
    fn push_more(&mut self, waker: Waker) {
        self.more.push(waker);
    }

    /// Mostly there are none.
    #[inline]
    pub(super) fn wake_all(&mut self) {
        if self.first[0].is_some() {
            self.wake_some();
        }
    }

    fn wake_some(&mut self) {
        for slot in &mut self.first {
            if let Some(waker) = slot.take() {
                waker.wake();
            }
        }
        if !self.more.is_empty() {
            self.wake_more();
        }
    }

    #[cold]
    fn wake_more(&mut self) {
        self.more.drain(..).for_each(Waker::wake);
    }
}

impl Drop for Woken {
    #[inline]
    fn drop(&mut self) {
        self.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
    };

    use super::*;

    /// A task that counts how often it was woken.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn add(waiters: &mut Waiters, task: &Arc<Task>) {
        waiters.add(&Waker::from(Arc::clone(task)), &mut Woken::default());
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
    fn any_number_of_tasks_come_to_rest() {
        for count in [1, 31, 32, 33, 40, 100, 1_000] {
            let tasks: Vec<_> = (0..count).map(|_| Arc::new(Task::default())).collect();
            let mut waiters = Waiters::default();
            tasks.iter().for_each(|task| add(&mut waiters, task));
            assert!(settle(&mut waiters, &tasks) <= 2 * count, "{count} tasks");
            waiters.take_into(&mut Woken::default());
            let woken = tasks.iter().filter(|task| task.0.load(Ordering::Relaxed) == 1).count();
            assert_eq!(woken, count, "all are woken by what they wait for");
            // It was for one of them; the others wait on.
            tasks[0].0.store(0, Ordering::Relaxed);
            assert!(settle(&mut waiters, &tasks) <= 3 * count, "{count} tasks");
        }
    }

    #[test]
    fn what_was_cancelled_is_forgotten() {
        let mut waiters = Waiters::default();
        for _ in 0..3 * MAX_LIMIT {
            add(&mut waiters, &Arc::new(Task::default()));
        }
        assert!(waiters.0.len() <= MAX_LIMIT);
        for _ in 0..16 {
            waiters.take_into(&mut Woken::default());
            add(&mut waiters, &Arc::new(Task::default()));
        }
        assert!(waiters.0.capacity() <= MIN_LIMIT, "{}", waiters.0.capacity());
    }
}
