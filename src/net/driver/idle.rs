//! When idle sessions give back the memory that they keep for further traffic.
//!
//! Most do after a second: a crowd that came at once should not hold its buffers. A session that is used every few seconds would then
//! allocate and free all of them each time, which takes longer than the rest of the work. So a session that is used again soon
//! after it gave its memory back keeps it for longer from then on, as long as it goes on so.

use std::{collections::VecDeque, time::Duration};

use crate::proto::{Handle, Instant};

/// How long an idle session keeps its memory.
const WAIT: Duration = Duration::from_secs(1);
/// How long one does that comes back before this time is over.
const LONG_WAIT: Duration = Duration::from_secs(30);

/// How a session has rested so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    served_at: Instant,
    /// Whether it is in one of the queues.
    queued: bool,
    /// Whether it came back within [`LONG_WAIT`] when it last rested for more than [`WAIT`].
    comes_back: bool,
}

impl Rest {
    /// Of a session that has not been served yet.
    pub(super) const NONE: Self = Self { served_at: Instant::ZERO, queued: false, comes_back: false };

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

    /// The session gave its memory back, and is in no queue.
    pub(super) const fn leave(&mut self) {
        self.queued = false;
    }

    const fn wait(self) -> Duration {
        if self.comes_back { LONG_WAIT } else { WAIT }
    }

    fn over_at(self) -> Instant {
        self.served_at + self.wait()
    }
}

/// The sessions that went idle, and when to see whether they still are. In each of its queues the earliest stands first, since
/// all of a queue wait for the same time.
#[derive(Debug, Default)]
pub(super) struct Idle {
    soon: VecDeque<(Instant, Handle)>,
    late: VecDeque<(Instant, Handle)>,
}

impl Idle {
    /// A session was served, and has nothing to do until `deadline`.
    #[inline]
    pub(super) fn add(&mut self, handle: Handle, rest: &mut Rest, deadline: Option<Instant>) {
        if !rest.queued && deadline.is_none_or(|at| at > rest.served_at + WAIT) {
            rest.queued = true;
            self.push(handle, *rest);
        }
    }

    fn push(&mut self, handle: Handle, rest: Rest) {
        let queue = if rest.comes_back { &mut self.late } else { &mut self.soon };
        queue.push_back((rest.over_at(), handle));
    }

    /// When there may be a session to take.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let first = |queue: &VecDeque<(Instant, Handle)>| queue.front().map(|(at, _)| *at);
        match (first(&self.soon), first(&self.late)) {
            (Some(soon), Some(late)) => Some(soon.min(late)),
            (soon, late) => soon.or(late),
        }
    }

    /// Takes a session out that has been idle for long enough. `rest_of` knows those that still live.
    #[cold]
    pub(super) fn take(&mut self, now: Instant, rest_of: impl Fn(Handle) -> Option<Rest>) -> Option<Handle> {
        while let Some(handle) = self.pop_due(now) {
            match rest_of(handle) {
                // It was used meanwhile.
                Some(rest) if rest.over_at() > now => self.push(handle, rest),
                Some(_) => return Some(handle),
                None => {}
            }
        }
        None
    }

    fn pop_due(&mut self, now: Instant) -> Option<Handle> {
        for queue in [&mut self.soon, &mut self.late] {
            if queue.front().is_some_and(|(at, _)| *at <= now) {
                let due = queue.pop_front();
                if queue.is_empty() {
                    // Gives the memory of a crowd back.
                    *queue = VecDeque::new();
                }
                return due.map(|(_, handle)| handle);
            }
        }
        None
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

        fn run(&mut self, seconds: u32, busy: impl Fn(usize, u32) -> bool) {
            for step in 0..seconds * 10 {
                let (now, sessions) = (self.now, &mut self.sessions);
                if self.idle.deadline().is_some_and(|at| at <= now) {
                    let rest_of =
                        |handle| sessions.iter().find(|(one, _)| *one == handle).map(|(_, rest)| *rest);
                    let mut due = Vec::new();
                    while let Some(handle) = self.idle.take(now, rest_of) {
                        due.push(handle);
                    }
                    for handle in due {
                        let nth = sessions.iter().position(|(one, _)| *one == handle).unwrap();
                        sessions[nth].1.leave();
                        self.taken[nth] += 1;
                    }
                }
                for (nth, (handle, rest)) in sessions.iter_mut().enumerate() {
                    if busy(nth, step) {
                        rest.end(now);
                        self.idle.add(*handle, rest, None);
                    }
                }
                self.now = now + STEP;
            }
        }
    }

    #[test]
    fn memory_is_kept_by_those_that_come_back_soon() {
        let mut crowd = Crowd::new(4);
        // Served once; twice a second; every ten seconds; every minute.
        crowd.run(300, |nth, step| match nth {
            0 => step == 0,
            1 => step % 5 == 0,
            2 => step % 100 == 0,
            _ => step % 600 == 0,
        });
        assert_eq!(crowd.taken, [1, 0, 1, 5]);
        // Nothing more comes. The one that came every ten seconds did so last ten seconds ago.
        crowd.run(15, |_, _| false);
        assert_eq!(crowd.taken, [1, 1, 1, 5]);
        crowd.run(20, |_, _| false);
        assert_eq!(crowd.taken, [1, 1, 2, 5]);
        assert_eq!(
            (crowd.idle.deadline(), crowd.idle.soon.capacity(), crowd.idle.late.capacity()),
            (None, 0, 0)
        );
    }

    #[test]
    fn who_came_back_once_and_stays_away_is_as_before() {
        let mut crowd = Crowd::new(1);
        crowd.run(100, |_, step| step == 0 || step == 100);
        assert_eq!(crowd.taken, [2]);
        // Over a minute since.
        crowd.run(2, |_, step| step == 0);
        assert_eq!(crowd.taken, [3]);
    }

    #[test]
    fn sessions_that_are_gone_are_forgotten() {
        let mut crowd = Crowd::new(2);
        crowd.run(1, |_, step| step == 0);
        crowd.sessions.truncate(1);
        crowd.run(2, |_, _| false);
        assert_eq!(crowd.taken, [1, 0]);
        assert_eq!(crowd.idle.deadline(), None);
    }
}
