//! What of the handshake is under way.

use alloc::boxed::Box;

use super::{PeerInfo, hellos::Hellos};
use crate::proto::{
    extension::{fields::KindSet, seed::SessionId},
    time::{Instant, earliest},
};

/// Cookies that are taken in one session.
const MAX_RETRIES: u8 = 3;

/// A HELLO that is to be answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) info: PeerInfo,
    /// `ts` and bytes of its last HELLO.
    pub(super) ts: u32,
    pub(super) len: usize,
    pub(super) due: bool,
}

/// An answer to a HELLO that makes no state here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusal {
    pub(super) tag: u32,
    pub(super) ts: u32,
    pub(super) len: usize,
    pub(super) unknown: KindSet,
}

/// The HELLOs and ANSWERs of one session.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) hellos: Hellos,
    /// The HELLOs that have come, the newest first.
    pub(super) candidates: [Option<Candidate>; 2],
    pub(super) refusal: Option<Refusal>,
    /// Bytes received in HELLOs, and sent in answers to them.
    pub(super) hello_bytes: u64,
    pub(super) answer_bytes: u64,
    pub(super) cookie: Option<Box<[u8]>>,
    /// When it was taken.
    cookie_at: Instant,
    retries: u8,
    /// The token of the peer's ANSWER, which is to be returned.
    pub(super) pong: Option<u64>,
    /// Until when it may wait for a packet to go with.
    pub(super) pong_at: Option<Instant>,
    pub(super) confirm_by: Option<Instant>,
}

impl Exchange {
    /// `connects`: this end is to send HELLO. `confirm_by`: until when the peer must be confirmed.
    pub(super) fn begin(connects: bool, now: Instant, confirm_by: Option<Instant>) -> Self {
        Self {
            hellos: Hellos::new(connects),
            candidates: [None; 2],
            refusal: None,
            hello_bytes: 0,
            answer_bytes: 0,
            cookie: None,
            cookie_at: now,
            retries: 0,
            pong: None,
            pong_at: None,
            confirm_by,
        }
    }

    /// That of a session whose peer is settled.
    pub(super) fn resume(now: Instant) -> Self {
        Self { hellos: Hellos::of_settled(), ..Self::begin(false, now, None) }
    }

    /// Takes a HELLO for one to be answered.
    pub(super) fn add_candidate(&mut self, info: PeerInfo, ts: u32, len: usize) {
        let mut known = self.candidates.iter_mut().flatten();
        if let Some(candidate) = known.find(|candidate| candidate.info.id == info.id) {
            (candidate.ts, candidate.len, candidate.due) = (ts, len, true);
            return;
        }
        self.candidates.swap(0, 1);
        self.candidates[0] = Some(Candidate { info, ts, len, due: true });
    }

    /// Takes the cookie of a RETRY that answers the HELLO of the time `ts`, if this is news.
    pub(super) fn take_cookie(&mut self, now: Instant, ts: u32, cookie: &[u8]) -> bool {
        let is_new = |sent: Instant| self.cookie.is_none() || sent >= self.cookie_at;
        if self.retries == MAX_RETRIES || !self.hellos.sent_at(ts).is_some_and(is_new) {
            return false;
        }
        self.retries += 1;
        self.cookie = Some(cookie.into());
        self.cookie_at = now;
        self.hellos.due = true;
        self.hellos.long = self.hellos.long.max(1);
        true
    }

    /// The peer is the one with this id. Returns its HELLO, and forgets the others.
    pub(super) fn confirm(&mut self, peer: SessionId) -> Option<Candidate> {
        self.hellos.stop();
        self.hellos.marked = true;
        self.confirm_by = None;
        self.cookie = None;
        self.refusal = None;
        let own = self.candidates.into_iter().flatten().find(|candidate| candidate.info.id == peer);
        self.candidates = [own, None];
        own
    }

    /// When something is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        earliest([self.hellos.at, self.pong_at, self.confirm_by])
    }

    /// Whether a segment is to be sent in a packet of its own, before anything else.
    pub(super) fn is_urgent(&self) -> bool {
        self.hellos.due
            || self.refusal.is_some()
            || self.candidates.iter().flatten().any(|candidate| candidate.due)
            || (self.pong.is_some() && self.pong_at.is_none())
    }

    /// Whether nothing is to be sent or to be waited for.
    pub(super) fn is_over(&self) -> bool {
        self.deadline().is_none() && !self.is_urgent() && self.pong.is_none()
    }
}
