//! Whether there is room for one more session, and whether its peer has to show first that its address is its own.

use super::{Endpoint, Handle, Reply, half_open::Limit, stateless::Answer};
use crate::proto::{CookiePolicy, Instant, extension::hello_of, trace::tell};

impl Endpoint {
    /// The peer of a session has shown that it hears this end: [`Event::Validated`](crate::proto::Event::Validated) has come. From
    /// here on the session is not half-open any more.
    pub fn validated(&mut self, handle: Handle) {
        if self.routes.set_half_open(handle, false) {
            self.half_open.remove(handle);
            #[cfg(feature = "noise")]
            self.after_validating_sealed(handle);
        }
    }

    /// How many sessions are half-open: their peers have not shown yet that they hear this end.
    #[must_use]
    pub fn half_open(&self) -> usize {
        let half_open = self.half_open.len();
        #[cfg(feature = "noise")]
        let half_open = half_open + self.agreeing();
        half_open
    }

    /// Says whether half of the sessions that may wait for the application do, and there is room for others. While that is so, peers with
    /// the extensions are asked for a cookie, as they are under any other load: see [`CookiePolicy::UnderLoad`].
    pub const fn set_backlogged(&mut self, backlogged: bool) {
        self.backlogged = backlogged;
    }

    /// Whether a run of packets that begins a session carries a cookie which shows that its source is its own.
    ///
    /// # Errors
    /// It has none where one is asked for, and begins no session: the answer, if there is one.
    pub(super) fn look_for_cookie(
        &mut self,
        now: Instant,
        conv: u32,
        run: &[u8],
        by_hello: bool,
    ) -> Result<bool, Option<Reply>> {
        let source = self.batch.source;
        let hello = self.batch.payloads(run).find_map(hello_of).filter(|_| by_hello);
        let cookie = hello.and_then(|(_, hello)| Some((hello.fields.cookie?, hello.id)));
        if cookie.is_some_and(|(cookie, id)| self.cookies.is_valid(now, cookie, source, conv, id)) {
            return Ok(true);
        }
        let is_asked = match self.cookie_policy {
            CookiePolicy::Never => false,
            // Who knows no cookies has no part in this.
            CookiePolicy::UnderLoad => match hello {
                None => self.retried.contains(now, (source, conv)),
                Some(_) => {
                    self.backlogged
                        || self.half_open.is_under_load(source.ip())
                        || self.live() >= self.max_sessions
                }
            },
            CookiePolicy::Always => true,
        };
        if !is_asked {
            return Ok(false);
        }
        let packets = run.len().div_ceil(self.batch.stride) as u64;
        self.stats.dropped_no_cookie += packets;
        tell!(refused(source, conv, "no_cookie", packets));
        let Some((ts, hello)) = hello else { return Err(None) };
        self.stats.retries += 1;
        self.retried.insert(now, (source, conv));
        let cookie = self.cookies.make(now, source, conv, hello.id);
        let answer = Answer::Retry { cookie, tag: hello.id.tag(), ts };
        // It is shorter than the HELLO, and nothing is kept for it. So there is no limit to how many there are.
        Err(self.answer(now, conv, answer, run.len().min(self.batch.stride), true))
    }

    /// Whether there is room for a session of the batch's source, which `packets` begin, and which one gives way to it.
    ///
    /// # Errors
    /// There is none. That is counted.
    pub(super) fn make_room(
        &mut self,
        now: Instant,
        conv: u32,
        validated: bool,
        packets: u64,
    ) -> Result<Option<Handle>, ()> {
        let evicted = if validated {
            None
        } else {
            let room = self.half_open.make_room(now, self.batch.source.ip());
            room.map_err(|limit| self.refuse_half_open(conv, limit, packets))?
        };
        if evicted.is_some() || self.live() < self.max_sessions {
            return Ok(evicted);
        }
        let evicted = self.half_open.oldest_evictable(now);
        evicted.map(Some).ok_or_else(|| {
            self.stats.dropped_max_sessions += packets;
            tell!(refused(self.batch.source, conv, "max_sessions", packets));
        })
    }

    /// Counts packets that would begin a session, and do not because of this limit.
    pub(super) fn refuse_half_open(&mut self, conv: u32, limit: Limit, packets: u64) {
        let (counter, cause) = match limit {
            Limit::All => (&mut self.stats.dropped_max_half_open, "max_half_open"),
            Limit::Network => (&mut self.stats.dropped_max_half_open_of_network, "max_half_open_of_network"),
        };
        *counter += packets;
        tell!(refused(self.batch.source, conv, cause, packets));
    }

    /// Forgets a half-open session that gives way to another one; returns whether it was there. It leaves no record: if its peer is
    /// there after all, it may begin anew at once.
    pub(super) fn evict(&mut self, handle: Handle) -> bool {
        let Some(entry) = self.remove(handle) else { return false };
        self.half_open.remove(handle);
        if let Some(admission) = &mut self.admission {
            admission.close(entry.route.0, handle);
        }
        self.stats.evicted += 1;
        true
    }
}
