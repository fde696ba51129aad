//! When idle sessions give back the memory that they keep for further traffic.
//!
//! Most do after a second: a crowd that came at once should not hold its buffers. A session that is used every few seconds would then
//! allocate and free all of them each time, which takes longer than the rest of the work. So a session that is used again soon
//! after it gave its memory back keeps it for longer from then on, as long as it goes on so and keeps only little: after a burst, others
//! may need the memory.

use std::{collections::VecDeque, time::Duration};

use crate::proto::{Handle, Instant, time::earliest};

/// How long an idle session keeps its memory.
const WAIT: Duration = Duration::from_secs(1);
/// How long one does that keeps little and comes back before this time is over.
const LONG_WAIT: Duration = Duration::from_secs(30);

/// How a session has rested so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    served_at: Instant,
    /// When its entry in a queue is due, if it has one. It may have older ones, which do not count.
    due: Option<Instant>,
    /// Whether that is the queue of those that rest for long.
    long: bool,
    /// Whether it came back within [`LONG_WAIT`] when it last rested for more than [`WAIT`].
    comes_back: bool,
}

impl Rest {
    /// Of a session that has not been served yet.
    pub(super) const NONE: Self =
        Self { served_at: Instant::ZERO, due: None, long: false, comes_back: false };

    /// The session is served. Returns when it was served before.
    #[inline]
    pub(super) fn end(&mut self, now: Instant) -> Instant {
        let last = std::mem::replace(&mut self.served_at, now);
        let rested = now - last;
        if rested > WAIT {
            self.comes_back = rested < LONG_WAIT;
        }
        last
    }

    #[cfg(test)]
    pub(super) const fn served_at(self) -> Instant {
        self.served_at
    }

    fn over_at(self) -> Instant {
        self.served_at + if self.long { LONG_WAIT } else { WAIT }
    }
}

/// The sessions that went idle, and when to see whether they still are. In each of its queues the earliest stands first, since
/// all of a queue wait for the same time.
#[derive(Debug, Default)]
pub(super) struct Idle {
    short: VecDeque<(Instant, Handle)>,
    long: VecDeque<(Instant, Handle)>,
}

impl Idle {
    /// A session was served, and has nothing to do until `deadline`.
    #[inline]
    pub(super) fn add(
        &mut self,
        handle: Handle,
        rest: &mut Rest,
        deadline: Option<Instant>,
        keeps_little: impl FnOnce() -> bool,
    ) {
        if deadline.is_some_and(|at| at <= rest.served_at + WAIT) {
            return;
        }
        let long = rest.comes_back && keeps_little();
        if rest.due.is_none() || rest.long && !long {
            rest.long = long;
            self.push(handle, rest);
        }
    }

    fn push(&mut self, handle: Handle, rest: &mut Rest) {
        let due = rest.over_at();
        rest.due = Some(due);
        let queue = if rest.long { &mut self.long } else { &mut self.short };
        queue.push_back((due, handle));
    }

    /// When the first entry is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let first = |queue: &VecDeque<(Instant, Handle)>| queue.front().map(|(at, _)| *at);
        earliest([first(&self.short), first(&self.long)])
    }

    /// Takes an entry that is due by now, and when it was.
    #[cold]
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(Instant, Handle)> {
        for queue in [&mut self.short, &mut self.long] {
            if queue.front().is_some_and(|(at, _)| *at <= now) {
                let due = queue.pop_front();
                if queue.is_empty() {
                    // Gives the memory of a crowd back.
                    *queue = VecDeque::new();
                }
                return due;
            }
        }
        None
    }

    /// Whether the session whose entry was due has been idle all the time, and gives its memory back now.
    pub(super) fn is_over(
        &mut self,
        now: Instant,
        (due, handle): (Instant, Handle),
        rest: &mut Rest,
    ) -> bool {
        if rest.due != Some(due) {
            return false;
        }
        if rest.over_at() > now {
            self.push(handle, rest);
            return false;
        }
        rest.due = None;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::{net::entropy, proto::Endpoint};

    const STEP: Duration = Duration::from_millis(100);

    /// Sessions that are served at times that `busy` knows, by number and time.
    struct Crowd {
        idle: Idle,
        sessions: Vec<(Handle, Rest)>,
        now: Instant,
        /// How often each gave its memory back.
        taken: Vec<u32>,
    }

    impl Crowd {
        fn new(count: u16) -> Self {
            let mut endpoint = Endpoint::new(&mut entropy::draw::<{ Endpoint::RANDOM_BYTES }>().unwrap());
            let mut connect = |port| endpoint.connect(([127, 0, 0, 1], 1 + port).into(), 1, None).unwrap();
            Self {
                idle: Idle::default(),
                sessions: (0..count).map(|port| (connect(port), Rest::NONE)).collect(),
                now: Instant::ZERO + Duration::from_secs(1_000),
                taken: std::vec![0; usize::from(count)],
            }
        }

        /// `busy` tells of a session and a tenth of a second whether it is served then, and how much it keeps.
        fn run(&mut self, seconds: u32, busy: impl Fn(usize, u32) -> Option<Keeps>) {
            for step in 0..seconds * 10 {
                let now = self.now;
                while let Some(entry) = self.idle.pop_due(now) {
                    let of_it = self.sessions.iter_mut().zip(&mut self.taken);
                    let Some(((_, rest), taken)) =
                        of_it.into_iter().find(|((handle, _), _)| *handle == entry.1)
                    else {
                        continue;
                    };
                    *taken += u32::from(self.idle.is_over(now, entry, rest));
                }
                for (nth, (handle, rest)) in self.sessions.iter_mut().enumerate() {
                    if let Some(keeps) = busy(nth, step) {
                        rest.end(now);
                        self.idle.add(*handle, rest, None, || keeps == Keeps::Little);
                    }
                }
                self.now = now + STEP;
            }
        }

        fn is_empty(&self) -> bool {
            self.idle.deadline().is_none() && self.idle.short.capacity() + self.idle.long.capacity() == 0
        }
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Keeps {
        Little,
        Much,
    }

    fn little_if(served: bool) -> Option<Keeps> {
        served.then_some(Keeps::Little)
    }

    #[test]
    fn memory_is_kept_by_those_that_come_back_soon() {
        let mut crowd = Crowd::new(4);
        // Served once; twice a second; every ten seconds; every minute.
        crowd.run(300, |nth, step| {
            little_if(match nth {
                0 => step == 0,
                1 => step % 5 == 0,
                2 => step % 100 == 0,
                _ => step % 600 == 0,
            })
        });
        assert_eq!(crowd.taken, [1, 0, 1, 5]);
        // Nothing more comes. The one that came every ten seconds did so last ten seconds ago.
        crowd.run(15, |_, _| None);
        assert_eq!(crowd.taken, [1, 1, 1, 5]);
        crowd.run(20, |_, _| None);
        assert_eq!(crowd.taken, [1, 1, 2, 5]);
        assert!(crowd.is_empty(), "{:?}", crowd.idle);
    }

    #[test]
    fn much_memory_is_given_back_after_a_second_whoever_comes_back() {
        let mut crowd = Crowd::new(2);
        // Every ten seconds; much of it each time, and each third time.
        crowd.run(300, |nth, step| {
            let much = nth == 0 || step % 300 == 0;
            (step % 100 == 0).then_some(if much { Keeps::Much } else { Keeps::Little })
        });
        // The first time for everyone, as nobody has come back yet.
        assert_eq!(crowd.taken, [30, 10]);
        crowd.run(40, |_, _| None);
        assert_eq!(crowd.taken, [30, 11]);
        assert!(crowd.is_empty(), "{:?}", crowd.idle);
    }

    #[test]
    fn who_came_back_once_and_stays_away_is_as_before() {
        let mut crowd = Crowd::new(1);
        crowd.run(100, |_, step| little_if(step == 0 || step == 100));
        assert_eq!(crowd.taken, [2]);
        // Over a minute since.
        crowd.run(2, |_, step| little_if(step == 0));
        assert_eq!(crowd.taken, [3]);
    }

    #[test]
    fn sessions_that_are_gone_are_forgotten() {
        let mut crowd = Crowd::new(2);
        crowd.run(1, |_, step| little_if(step == 0));
        crowd.sessions.truncate(1);
        crowd.run(2, |_, _| None);
        assert_eq!(crowd.taken, [1, 0]);
        assert!(crowd.is_empty(), "{:?}", crowd.idle);
    }
}
