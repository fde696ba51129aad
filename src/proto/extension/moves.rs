//! A peer that has another address than before: another network, another socket, or a NAT that chose another port.
//!
//! The end that accepted the session follows. A PING from elsewhere, which its tag tells to be of this session, makes it
//! *attempt* to move: it asks whether somebody answers at the new address, and whether somebody still answers at the old
//! one. It moves when the new address has answered and the old one has been silent for a while. **A live old path wins**,
//! whatever is said elsewhere:
//!
//! | told by | so |
//! |---|---|
//! | the token of the old path, from wherever it comes | somebody was asked at the old address, and lives |
//! | what was sent to or from the new address, over the old path | somebody carries copies to another address and back |
//! | anything heard over the old path when what was under way has arrived | the peer sends from there |
//!
//! So who copies packets, keeps them back or replays them cannot move a session, and a holder of the shared key cannot
//! either, unless he also stops what the peer answers. Until the session has moved, a PING from elsewhere gets no PONG: its
//! sender shall not believe that it is heard. It gets one PING for each of its own, so no address is sent more than came
//! from it.
//!
//! The end that connected only asks: [`Rebind`] sends PING from the new socket until the PONG.

use core::{net::SocketAddr, time::Duration};

use super::{
    ping::Token,
    seed::{Purpose, Secret},
};
use crate::proto::time::Instant;

/// How often the old address is asked in one attempt. Of so many questions one is answered, although many packets are lost.
const QUESTIONS: u32 = 8;
/// How long the old address is asked: three RTO within these limits.
const MIN_WAIT: Duration = Duration::from_millis(300);
const MAX_WAIT: Duration = Duration::from_secs(3);
/// The new address may take this long to answer: a path is not known before it is used.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long there is no attempt after one that the old path ended. It doubles with each.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(8);
/// The longest wait between two PINGs of an end that moves.
const MAX_PING_WAIT: Duration = Duration::from_secs(2);

/// What the session is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) to: SocketAddr,
    /// The token of the PING that is answered there.
    pub(super) pong: Token,
}

/// The end that follows its peer.
#[derive(Debug)]
pub(super) struct Follower {
    secret: Secret,
    /// Attempts so far. Their numbers make the tokens.
    attempts: u64,
    attempt: Option<Attempt>,
    /// The pause after the next attempt that the old path ends.
    pause: Duration,
    paused_until: Option<Instant>,
}

#[derive(Debug)]
struct Attempt {
    to: SocketAddr,
    number: u64,
    /// The tokens of the peer's first and latest PING from there.
    first_ping: Token,
    latest_ping: Token,
    /// A PING is to be sent there.
    ask_new: bool,
    /// Somebody has answered there.
    answered: bool,
    began: Instant,
    wait: Duration,
    /// PINGs to the old address: how many were due so far, when the last one was, and whether one is to be sent.
    questions: u32,
    asked_at: Instant,
    ask_old: bool,
}

impl Follower {
    pub(super) const fn new(secret: Secret) -> Self {
        Self { secret, attempts: 0, attempt: None, pause: FIRST_PAUSE, paused_until: None }
    }

    // ---- What comes in ----

    /// A PING of this session that came from elsewhere. It opened, was not received before, and was sent later than all that
    /// came before (R53). Returns whether it is answered.
    pub(super) fn on_ping_from(
        &mut self,
        now: Instant,
        from: SocketAddr,
        token: Token,
        rto: Duration,
    ) -> bool {
        match &mut self.attempt {
            Some(attempt) if attempt.to == from => {
                attempt.latest_ping = token;
                attempt.ask_new = true;
            }
            Some(_) => return false,
            None if self.paused_until.is_some_and(|until| now < until) => return false,
            None => self.begin(now, from, token, rto),
        }
        true
    }

    /// A PONG of this session that came from elsewhere. Returns whether it answers a PING of the attempt.
    pub(super) fn on_pong_from(&mut self, now: Instant, from: SocketAddr, token: Token) -> bool {
        let Some(attempt) = &mut self.attempt else { return false };
        if token == attempt.old_token(self.secret) {
            self.stay(now);
            return true;
        }
        let answers = attempt.to == from && token == attempt.new_token(self.secret);
        attempt.answered |= answers;
        answers
    }

    /// A PING that came over the session's path.
    pub(super) fn on_ping(&mut self, now: Instant, token: Token) {
        if let Some(attempt) = &self.attempt
            && (token == attempt.first_ping || token == attempt.latest_ping)
        {
            self.stay(now);
        }
    }

    /// A PONG that came over the session's path. Returns whether it answers a PING of the attempt.
    pub(super) fn on_pong(&mut self, now: Instant, token: Token) -> bool {
        let Some(attempt) = &self.attempt else { return false };
        let answers = token == attempt.old_token(self.secret) || token == attempt.new_token(self.secret);
        if answers {
            self.stay(now);
        }
        answers
    }

    fn begin(&mut self, now: Instant, to: SocketAddr, ping: Token, rto: Duration) {
        self.attempt = Some(Attempt {
            to,
            number: self.attempts,
            first_ping: ping,
            latest_ping: ping,
            ask_new: true,
            answered: false,
            began: now,
            wait: (rto * 3).clamp(MIN_WAIT, MAX_WAIT),
            questions: 1,
            asked_at: now,
            ask_old: true,
        });
        self.attempts += 1;
    }

    /// The peer is where it was.
    fn stay(&mut self, now: Instant) {
        self.attempt = None;
        self.paused_until = Some(now + self.pause);
        self.pause = (self.pause * 2).min(MAX_PAUSE);
    }

    // ---- Time ----

    pub(super) fn deadline(&self) -> Option<Instant> {
        let attempt = self.attempt.as_ref()?;
        let waits = attempt.questions == QUESTIONS && !attempt.answered;
        Some(if waits { attempt.end() } else { attempt.next() })
    }

    /// Does what is due. `last_heard`: when the session's path last brought a sign of life. What arrived before `read_until`
    /// is known. Returns where the session is to move, if it is.
    pub(super) fn on_timeout(
        &mut self,
        now: Instant,
        read_until: Instant,
        last_heard: Instant,
    ) -> Option<Move> {
        let attempt = self.attempt.as_mut()?;
        if last_heard >= attempt.began + attempt.wait / 3 {
            self.stay(now);
            return None;
        }
        if attempt.questions < QUESTIONS {
            // One after the other, however late this is: each must have its time to be answered.
            if attempt.next() <= now {
                attempt.questions += 1;
                attempt.asked_at = now;
                attempt.ask_old = true;
            }
            return None;
        }
        // An answer may wait to be read.
        if attempt.answered && attempt.next() <= read_until {
            let moved = Move { to: attempt.to, pong: attempt.latest_ping };
            self.attempt = None;
            self.pause = FIRST_PAUSE;
            self.paused_until = None;
            return Some(moved);
        }
        if !attempt.answered && attempt.end() <= now {
            self.attempt = None;
        }
        None
    }

    // ---- What goes out ----

    /// Whether a PING is to be sent over the session's path.
    pub(super) fn asks_old(&self) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.ask_old)
    }

    /// The token of the PING that is sent over the session's path now.
    pub(super) fn take_old(&mut self) -> Option<Token> {
        let attempt = self.attempt.as_mut().filter(|attempt| attempt.ask_old)?;
        attempt.ask_old = false;
        Some(attempt.old_token(self.secret))
    }

    /// The PING that is sent elsewhere now: where to, and its token.
    pub(super) fn take_new(&mut self) -> Option<(SocketAddr, Token)> {
        let attempt = self.attempt.as_mut().filter(|attempt| attempt.ask_new)?;
        attempt.ask_new = false;
        Some((attempt.to, attempt.new_token(self.secret)))
    }
}

impl Attempt {
    fn new_token(&self, secret: Secret) -> Token {
        secret.hash(Purpose::Move, self.number << 1)
    }

    fn old_token(&self, secret: Secret) -> Token {
        secret.hash(Purpose::Move, self.number << 1 | 1)
    }

    /// When the old address is asked again, or has been silent for long enough.
    fn next(&self) -> Instant {
        self.asked_at + self.wait / QUESTIONS
    }

    /// When nobody is expected to answer any more.
    fn end(&self) -> Instant {
        self.began + self.wait.max(PATIENCE)
    }
}

/// The end that has another address than before, and knows it.
#[derive(Debug)]
pub(super) struct Rebind {
    token: Token,
    due: bool,
    at: Option<Instant>,
    /// The wait behind the next PING; zero before the first.
    wait: Duration,
}

impl Rebind {
    /// `number`: how many there were before, in this session.
    pub(super) fn new(secret: Secret, number: u64) -> Self {
        Self { token: secret.hash(Purpose::Rebind, number), due: true, at: None, wait: Duration::ZERO }
    }

    /// Whether a PONG is the one that is waited for.
    pub(super) const fn is_done_by(&self, token: Token) -> bool {
        self.token == token
    }

    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.at
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.due |= self.at.take_if(|at| *at <= now).is_some();
    }

    pub(super) const fn asks(&self) -> bool {
        self.due
    }

    /// The token of the PING that is sent now, if one is due.
    pub(super) fn take(&mut self, now: Instant, rto: Duration) -> Option<Token> {
        if !core::mem::take(&mut self.due) {
            return None;
        }
        self.wait = if self.wait.is_zero() { rto } else { self.wait * 2 }.min(MAX_PING_WAIT);
        self.at = Some(now + self.wait);
        Some(self.token)
    }
}

#[cfg(test)]
mod tests;
