//! PING, PONG and RESET: whether the peer is there, and whether it still knows the session.
//!
//! A PING carries a token that nobody can guess, and a PONG brings it back. So a PONG is an answer to this very PING, sent
//! after it by somebody who received it. No recorded packet can pass for one.
//!
//! When a peer is asked is not decided here: see `proto/arq/keep_alive.rs`. A PING that gets lost is not resent. The next
//! question is a PING with the next token.
//!
//! # Who knows no session answers RESET
//!
//! A RESET echoes token, `ts` and tag of the PING that it answers. That alone is not believed. Where several servers share a
//! static key, somebody without that key could carry a sealed PING to another one of them, and bring back its honest RESET.
//! So it takes two, the second in answer to a PING that was sent after the first RESET came. And even then the session goes on
//! for as long as the true peer's answer to that PING may take: the other server may be nearer. Anything that the peer says
//! with the right tag in the meantime, such as a PONG, clears it. After a true restart the wait costs nearly nothing, because
//! the RESETs take as long as that answer would.
//!
//! Where packets are sealed under keys that a restart has lost, a RESET is known by a key of its own (R120 of
//! `docs/secure-sessions.md`), and answers packets of any kind. It takes two of them and a longer silence, in which the peer is asked several times.

use alloc::boxed::Box;
use core::time::Duration;

use super::{
    mtu::MtuProbes,
    seed::{Purpose, Secret},
    segment::Envelope,
};
use crate::proto::{
    path::MAX_RTO,
    time::{Instant, Micros, earliest},
};

/// PINGs whose answers count. A path with a longer round trip than four questions take is one that has just become so, and
/// the next questions are further apart.
const OUTSTANDING: usize = 4;
/// PINGs of the peer that wait to be answered: as many as it may have outstanding. Of more, the newest are answered.
const ANSWERS: usize = OUTSTANDING;

/// How long a peer whose RESETs are known by a key has to say something else: answers to some of many questions, and long enough for a path
/// that fails for a moment.
#[cfg(feature = "noise")]
const KEYED_RESET_RTOS: u32 = 8;
#[cfg(feature = "noise")]
const KEYED_RESET_WAIT: Duration = Duration::from_secs(3);
/// Least time between two of these questions, which are asked once in an RTO.
#[cfg(feature = "noise")]
const LEAST_PAUSE: Duration = Duration::from_millis(100);

/// The 8 bytes of a PING that its PONG brings back.
pub(super) type Token = u64;

/// A PING that was sent.
#[derive(Debug, Clone, Copy)]
struct Question {
    token: Token,
    /// As it stands in the segment.
    ts: u32,
    sent_at: Instant,
}

/// A RESET that is to be sent: what it echoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResetEcho {
    pub(super) tag: u32,
    pub(super) ts: u32,
    pub(super) token: Token,
}

/// A segment that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    /// Bytes with its header.
    pub(super) len: usize,
    /// The peer owes an answer to it.
    pub(super) owed: bool,
    /// It tells the peer of another session that this end does not know it.
    pub(super) refuses: bool,
}

/// RESETs were received, and nothing else from the peer.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    /// When the first RESET came. Only a PING sent later counts as the second.
    since: Instant,
    /// Until when the true peer's answer to the second PING may come.
    until: Option<Instant>,
    /// Where the RESETs were known by a key: when the peer is asked next, and the time between two questions.
    asks: Option<(Instant, Micros)>,
}

/// The PINGs of one session, and what answers those of the peer.
#[derive(Debug)]
pub(super) struct Ping {
    /// PINGs sent so far, those that probe the path's MTU among them: the number of the next token.
    sent: u32,
    /// A PING is to be sent.
    due: bool,
    /// A session that is idle between two questions goes without.
    under_way: Option<Box<UnderWay>>,
}

/// What was asked and is not answered yet, at either end.
#[derive(Debug, Default)]
struct UnderWay {
    /// The newest are kept, and the newest is first.
    outstanding: [Option<Question>; OUTSTANDING],
    doubt: Option<Doubt>,
    answers: Answers,
    reset: Option<ResetEcho>,
    mtu_probes: Option<Box<MtuProbes>>,
}

impl Ping {
    pub(super) const fn new() -> Self {
        Self { sent: 0, due: false, under_way: None }
    }

    fn under_way(&mut self) -> &mut UnderWay {
        self.under_way.get_or_insert_default()
    }

    /// Gives back the memory of what is over. Most probes of the path's MTU that have no answer by now are lost.
    pub(super) fn trim(&mut self) {
        if let Some(under_way) = &mut self.under_way {
            under_way.mtu_probes.take_if(|probes| !probes.is_due());
        }
        self.under_way.take_if(|under_way| under_way.is_over());
    }

    // ---- Asking ----

    /// A PING is to be sent.
    pub(super) const fn ask(&mut self) {
        self.due = true;
    }

    /// A PING is to be sent, unless one was within `pause`.
    pub(super) fn ask_unless_asked(&mut self, now: Instant, pause: Duration) {
        let questions = self.under_way.iter().flat_map(|under_way| under_way.outstanding.iter().flatten());
        let last = questions.map(|question| question.sent_at).max();
        self.due |= last.is_none_or(|at| now - at >= pause);
    }

    /// The token of the PING that is due, which is sent at once in a segment with this `ts`. `secret`: the key of the tokens.
    pub(super) fn take_due(&mut self, now: Instant, ts: u32, secret: Secret) -> Option<Token> {
        if !core::mem::take(&mut self.due) {
            return None;
        }
        let token = self.next_token(secret);
        let outstanding = &mut self.under_way().outstanding;
        outstanding.rotate_right(1);
        outstanding[0] = Some(Question { token, ts, sent_at: now });
        Some(token)
    }

    fn next_token(&mut self, secret: Secret) -> Token {
        let token = secret.hash(Purpose::Ping, self.sent.into());
        self.sent = self.sent.wrapping_add(1);
        token
    }

    // ---- Probes of the path's MTU ----

    /// A PING is to be sent in a packet of `size` bytes.
    pub(super) fn probe_mtu(&mut self, size: usize) {
        self.under_way().mtu_probes.get_or_insert_default().ask(size);
    }

    pub(super) fn has_mtu_probe(&self) -> bool {
        self.mtu_probes().is_some_and(|probes| probes.is_due())
    }

    /// The size of the packet that is due, and the token of the PING in it, which is sent at once.
    pub(super) fn take_mtu_probe(&mut self, secret: Secret) -> Option<(usize, Token)> {
        let token = self.has_mtu_probe().then(|| self.next_token(secret))?;
        let size = self.under_way().mtu_probes.as_mut()?.take_due(token)?;
        Some((size, token))
    }

    /// A PONG came: the size of the packet, if its token is that of a probe. It counts once.
    pub(super) fn on_mtu_pong(&mut self, token: Token) -> Option<usize> {
        self.under_way.as_mut()?.mtu_probes.as_mut()?.take(token)
    }

    /// The session goes on over another path, of which answers to what was sent before say nothing.
    pub(super) fn forget_mtu_probes(&mut self) {
        if let Some(under_way) = &mut self.under_way {
            under_way.mtu_probes = None;
        }
    }

    fn mtu_probes(&self) -> Option<&MtuProbes> {
        self.under_way.as_ref()?.mtu_probes.as_deref()
    }

    // ---- Answers of the peer ----

    /// A PONG came: the round-trip time, if its token is outstanding. A time of a minute or more says nothing.
    pub(super) fn on_pong(&mut self, now: Instant, token: Token) -> Option<Option<Duration>> {
        let question = self.take_question(|question| question.token == token)?;
        Some(Some(now - question.sent_at).filter(|rtt| *rtt < MAX_RTO))
    }

    /// A RESET came whose tag is the peer's. Returns whether it answers a PING that is outstanding.
    pub(super) fn on_reset(&mut self, now: Instant, token: Token, ts: u32, rto: Duration) -> bool {
        let Some(question) = self.take_question(|question| question.token == token && question.ts == ts)
        else {
            return false;
        };
        let doubt = &mut self.under_way.get_or_insert_default().doubt;
        match doubt {
            None => {
                *doubt = Some(Doubt { since: now, until: None, asks: None });
                self.due = true;
            }
            Some(doubt) if doubt.until.is_none() && question.sent_at >= doubt.since => {
                doubt.until = Some(question.sent_at + rto);
            }
            Some(_) => {}
        }
        true
    }

    /// A RESET came that shows by a key that it is the peer's, and not which PING it answers. Another one behind a question that was asked
    /// since is the second. The peer is asked again and again from the first one on, as questions may be lost.
    #[cfg(feature = "noise")]
    pub(super) fn on_keyed_reset(&mut self, now: Instant, rto: Duration) {
        let UnderWay { outstanding, doubt, .. } = self.under_way.get_or_insert_default().as_mut();
        let is_asked = |since| outstanding.iter().flatten().any(|question| question.sent_at >= since);
        match doubt {
            None => {
                let pause = rto.max(LEAST_PAUSE);
                *doubt = Some(Doubt { since: now, until: None, asks: Some((now + pause, pause.into())) });
                self.due = true;
            }
            Some(doubt) if doubt.until.is_none() && is_asked(doubt.since) => {
                doubt.until = Some(now + (rto * KEYED_RESET_RTOS).max(KEYED_RESET_WAIT));
            }
            Some(_) => {}
        }
    }

    /// A packet was opened: the peer has the session's keys. What was said under a key of RESETs is not so.
    #[cfg(feature = "noise")]
    pub(super) fn on_opened(&mut self) {
        if let Some(under_way) = &mut self.under_way {
            under_way.doubt.take_if(|doubt| doubt.asks.is_some());
        }
    }

    /// Nobody has listened for a while: the peer may answer until `at`, if it is in doubt.
    pub(super) fn wait_until(&mut self, at: Instant) {
        let doubt = self.under_way.as_mut().and_then(|under_way| under_way.doubt.as_mut());
        if let Some(until) = doubt.and_then(|doubt| doubt.until.as_mut()) {
            *until = (*until).max(at);
        }
    }

    fn take_question(&mut self, is: impl Fn(&Question) -> bool) -> Option<Question> {
        self.under_way.as_mut()?.outstanding.iter_mut().find_map(|slot| slot.take_if(|question| is(question)))
    }

    /// The peer has said something with the right tag that is no RESET: it knows the session.
    pub(super) fn on_vouched(&mut self) {
        if let Some(under_way) = &mut self.under_way {
            under_way.doubt = None;
        }
    }

    /// When the session ends, because the peer does not know it, if nothing else comes from the peer.
    fn ends_at(&self) -> Option<Instant> {
        self.under_way.as_ref()?.doubt?.until
    }

    /// When [`is_reset`](Self::is_reset) or [`on_timeout`](Self::on_timeout) has something to say or to do.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let Doubt { until, asks, .. } = self.under_way.as_ref()?.doubt?;
        earliest([until, asks.map(|(at, _)| at)])
    }

    /// Asks a peer in doubt once more, if it is time.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        let doubt = self.under_way.as_mut().and_then(|under_way| under_way.doubt.as_mut());
        if let Some((at, pause)) = doubt.and_then(|doubt| doubt.asks.as_mut())
            && *at <= now
        {
            *at = now + *pause;
            self.due = true;
        }
    }

    /// Whether the session ends now, because the peer does not know it.
    pub(super) fn is_reset(&self, now: Instant) -> bool {
        self.ends_at().is_some_and(|at| at <= now)
    }

    // ---- Answering the peer ----

    /// A PING came, or the token of a handshake: a PONG is to be sent.
    pub(super) fn answer(&mut self, token: Token) {
        self.under_way().answers.push(token);
    }

    /// The token of the next PONG to be sent.
    pub(super) fn take_answer(&mut self) -> Option<Token> {
        self.under_way.as_mut()?.answers.pop()
    }

    /// A PING of another session came: a RESET is to be sent. One waits at most, which bounds what forged PINGs cost.
    pub(super) fn refuse(&mut self, echo: ResetEcho) {
        self.under_way().reset = Some(echo);
    }

    /// The RESET to be sent.
    pub(super) fn take_reset(&mut self) -> Option<ResetEcho> {
        self.under_way.as_mut()?.reset.take()
    }

    // ---- Sending ----

    /// Writes the next segment into `out`. `peer_tag` is on what goes to the session's peer; without one, only RESET is sent.
    pub(super) fn write(
        &mut self,
        now: Instant,
        envelope: Envelope,
        peer_tag: Option<u32>,
        secret: Secret,
        out: &mut [u8],
    ) -> Option<Sent> {
        if let Some(ResetEcho { tag, ts, token }) = self.take_reset() {
            let len = Envelope { ts, ..envelope }.write_reset(token, tag, out)?;
            return Some(Sent { len, owed: false, refuses: true });
        }
        let Some(tag) = peer_tag else {
            if let Some(under_way) = &mut self.under_way {
                under_way.answers = Answers::default();
            }
            self.due = false;
            return None;
        };
        if let Some(token) = self.take_answer() {
            return Some(Sent { len: envelope.write_pong(token, tag, out)?, owed: false, refuses: false });
        }
        let token = self.take_due(now, envelope.ts, secret)?;
        Some(Sent { len: envelope.write_ping(token, tag, out)?, owed: true, refuses: false })
    }

    /// Whether anything is to be sent.
    pub(super) fn has_urgent(&self) -> bool {
        self.due || self.under_way.as_ref().is_some_and(|under_way| under_way.has_urgent())
    }
}

impl UnderWay {
    /// Whether anything is to be sent.
    const fn has_urgent(&self) -> bool {
        !self.answers.is_empty() || self.reset.is_some()
    }

    /// Whether there is nothing to be sent or to be waited for.
    fn is_over(&self) -> bool {
        !self.has_urgent()
            && self.doubt.is_none()
            && self.mtu_probes.is_none()
            && self.outstanding.iter().all(Option::is_none)
    }
}

/// Tokens that wait to be sent back, the oldest first.
#[derive(Debug, Default)]
struct Answers {
    tokens: [Token; ANSWERS],
    first: usize,
    len: usize,
}

impl Answers {
    const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the place of the oldest if there is no room.
    const fn push(&mut self, token: Token) {
        self.tokens[(self.first + self.len) % ANSWERS] = token;
        if self.len < ANSWERS {
            self.len += 1;
        } else {
            self.first = (self.first + 1) % ANSWERS;
        }
    }

    const fn pop(&mut self) -> Option<Token> {
        if self.len == 0 {
            return None;
        }
        let token = self.tokens[self.first];
        self.first = (self.first + 1) % ANSWERS;
        self.len -= 1;
        Some(token)
    }
}

#[cfg(test)]
mod tests;
