//! What a connection waits for, and what it does when the time has come.

use core::time::Duration;

use super::{Connection, State};
use crate::proto::{
    arq::Arq,
    error::CloseReason,
    time::{Instant, earliest},
    timer::Timer,
};

impl Connection {
    /// The instant at which [`handle_timeout`](Self::handle_timeout) is to be called. `None` when the session waits only for
    /// its peer and its application.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if let State::Closed(_) = self.state {
            return None;
        }
        #[cfg(feature = "noise")]
        if self.agreement.is_some() {
            let agreement = self.agreement_timeout();
            return if self.is_asking() { agreement } else { earliest([agreement, self.session_timeout()]) };
        }
        self.session_timeout()
    }

    /// As [`poll_timeout`](Self::poll_timeout), once packets may be sent.
    #[inline]
    fn session_timeout(&self) -> Option<Instant> {
        match self.arq.blocked_at() {
            None => earliest([self.arq.next_timeout(), self.lifetime(), self.extension_deadline()]),
            Some(_) => self.timers().map(|(_, at)| at).min(),
        }
    }

    /// Does what is due at `now`. Calling it early is harmless.
    ///
    /// It may end the session because nothing was heard from the peer. So hand in first what has arrived meanwhile.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeout_unread(now, now);
    }

    /// As [`handle_timeout`](Self::handle_timeout), for a caller that has handed in only what arrived before `read_until`: it
    /// ends no session for a silence that may be over.
    pub(crate) fn handle_timeout_unread(&mut self, now: Instant, read_until: Instant) {
        if let State::Closed(_) = self.state {
            return;
        }
        #[cfg(feature = "noise")]
        if self.agreement.is_some() && self.on_agreement_timeout(now, read_until) {
            return;
        }
        self.arq.on_timeout(now);
        self.note_room();
        self.on_extension_timeout(now, read_until);
        self.check_ends(now);
        if let Some(reason) = self.expired(read_until) {
            self.expire(reason);
        }
    }

    /// Tells the session that nobody could drive it for the time `pause` before `now`: the process was stopped, its machine
    /// was moved, or its threads were busy.
    ///
    /// The peer may have answered, and nobody heard it; or it was stopped as well. So it is given as much time again before its
    /// silence ends the session: whoever resends waits about as long again each time. But it gets at least half a second, and at most
    /// [`dead_timeout`](crate::KcpConfigBuilder::dead_timeout) or 5 seconds, whichever is longer. How to notice: a deadline of
    /// [`poll_timeout`](Self::poll_timeout) has long passed, and nobody asked before.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use kcp9::{KcpConfig, proto::{Connection, Instant}};
    ///
    /// let config = KcpConfig::builder().idle_timeout(Some(Duration::from_secs(2))).build()?;
    /// let mut connection = Connection::new(7, &config, Instant::ZERO);
    /// let (deadline, now) = (connection.poll_timeout().unwrap(), Instant::from_millis(10_000));
    ///
    /// connection.handle_pause(now, now - deadline);
    /// connection.handle_timeout(now);
    /// assert_eq!(connection.close_reason(), None, "its peer may have spoken meanwhile");
    /// # Ok::<(), kcp9::proto::ConfigError>(())
    /// ```
    pub fn handle_pause(&mut self, now: Instant, pause: Duration) {
        let most = self.dead_timeout.get().max(MAX_PATIENCE);
        self.no_end_before = self.no_end_before.max(now + pause.clamp(MIN_PATIENCE, most));
        if let Some(extension) = self.extension.as_mut() {
            extension.wait_until(self.no_end_before);
        }
    }

    /// Which timer fires next, and when: as [`poll_timeout`](Self::poll_timeout), with the reason. Of timers that fire at the
    /// same instant, one that ends the session is named first.
    #[must_use]
    pub fn next_timer(&self) -> Option<(Timer, Instant)> {
        self.timers().min_by_key(|(_, at)| *at)
    }

    /// The timers whose time has come by `now`. Ask before [`handle_timeout`](Self::handle_timeout) to trace why it is
    /// called; what they are due for is sent by the calls of [`poll_transmit`](Self::poll_transmit) that follow.
    ///
    /// ```
    /// use kcp9::{KcpConfig, proto::{Connection, Instant, Timer}};
    ///
    /// let mut connection = Connection::new(7, &KcpConfig::default(), Instant::ZERO);
    /// connection.write(Instant::ZERO, b"hello")?;
    /// let mut buffer = [0; 2_048];
    /// assert!(connection.poll_transmit(Instant::ZERO, &mut buffer).is_some());
    ///
    /// // Nobody answers.
    /// let (timer, at) = connection.next_timer().unwrap();
    /// assert_eq!((timer, Some(at)), (Timer::Rto, connection.poll_timeout()));
    /// assert!(connection.due_timers(at).eq([Timer::Rto]));
    /// connection.handle_timeout(at);
    /// assert!(connection.poll_transmit(at, &mut buffer).is_some());
    /// assert_eq!(connection.stats().recovery.timeout_resends, 1);
    /// # Ok::<(), kcp9::proto::WriteError>(())
    /// ```
    pub fn due_timers(&self, now: Instant) -> impl Iterator<Item = Timer> {
        self.timers().filter(move |(_, at)| *at <= now).map(|(timer, _)| timer)
    }

    /// The timers that are set. An instant at the end of the clock never comes. What was due when no more might be sent waits until
    /// more may be.
    fn timers(&self) -> impl Iterator<Item = (Timer, Instant)> {
        let ends = ENDS.into_iter().zip(self.ends());
        let all =
            ends.chain(Arq::TIMERS.into_iter().zip(self.arq.deadlines())).chain(self.extension_timers());
        #[cfg(feature = "noise")]
        let (all, is_asking) = (all.chain([(Timer::Hello, self.agreement_timeout())]), self.is_asking());
        #[cfg(not(feature = "noise"))]
        let is_asking = false;
        let lives = !matches!(self.state, State::Closed(_));
        let blocked_at = self.arq.blocked_at();
        let waits = move |timer, at| {
            let goes_on = timer == Timer::AddressValidation || ENDS.contains(&timer);
            // Without keys nothing else is sent.
            let has_no_keys = is_asking && timer != Timer::Hello && !ENDS.contains(&timer);
            has_no_keys || blocked_at.is_some_and(|served_at| at <= served_at) && !goes_on
        };
        all.filter_map(move |(timer, at)| {
            let at = at.filter(|at| lives && *at < Instant::NEVER && !waits(timer, *at))?;
            Some((timer, at))
        })
    }

    /// Why the session ends at `now`, if it does. Everything that arrived before is handed in.
    pub(super) fn expired(&self, now: Instant) -> Option<CloseReason> {
        // It is sent again before long, so this has no timer.
        if self.arq.stuck_since().is_some_and(|since| since + self.dead_timeout.get() <= now)
            && self.no_end_before <= now
        {
            return Some(CloseReason::DeadLink);
        }
        if self.lifetime()? > now {
            // `dead_link` counts transmissions without an answer, and while one is due, `DeadPeer` is set.
            let dead =
                self.dead_link > 0 && self.no_end_before <= now && self.arq.is_link_dead(now, self.dead_link);
            return dead.then_some(CloseReason::DeadLink);
        }
        let ends = ENDS.into_iter().zip(self.ends()).filter(|(_, at)| at.is_some());
        ends.min_by_key(|(_, at)| *at).map(|(timer, _)| match timer {
            Timer::Linger => CloseReason::LingerTimeout,
            Timer::Idle => CloseReason::IdleTimeout,
            _ => CloseReason::DeadLink,
        })
    }

    /// When the session ends if nothing more is heard from the peer.
    pub(super) fn lifetime(&self) -> Option<Instant> {
        earliest(self.ends())
    }

    /// When each of [`ENDS`] fires; `None` for one that is not set.
    fn ends(&self) -> [Option<Instant>; 3] {
        let dead = self.arq.unanswered_since().map(|since| since + self.dead_timeout);
        let idle = self.idle_timeout.map(|limit| self.arq.last_payload() + limit);
        // Silence counts only while somebody listened. How long a shutdown may take is the application's to say.
        let patient = |at: Option<Instant>| at.map(|at| at.max(self.no_end_before));
        [self.linger_until(), patient(dead), patient(idle)]
    }
}

/// How much time a peer has at least after a pause of this end: a packet of each end and some delay in between.
const MIN_PATIENCE: Duration = Duration::from_millis(500);
/// After a pause of this end, a peer that waits for an answer may take so long to ask again, however impatient this end is else.
const MAX_PATIENCE: Duration = Duration::from_secs(5);
/// The timers that end the session, in the order of [`Connection::ends`].
const ENDS: [Timer; 3] = [Timer::Linger, Timer::DeadPeer, Timer::Idle];
