//! How many of the sessions that this end connects begin at the same time.
//!
//! A program may connect 100,000 sessions in one loop. Each sends a HELLO of 1,200 bytes and its first data. Sent all at once, most of
//! that overflows the socket buffer of the peer, and the answers this end's own. It is all sent again, by each session for itself, and
//! overflows again: the sockets dropped a fourth of the packets of such a storm. So there is a *window* of openings, as there is one
//! of segments. A session is *held* until it is let in: it takes writes and sends nothing. Its place is free again when its peer was
//! heard, when it ends, or after [`PATIENCE`]: who does not answer must not keep the others waiting.
//!
//! Sessions with a socket of their own have no others to wait for. Those that peers begin are limited by the endpoint.

use core::time::Duration;
use std::collections::VecDeque;

use super::{Driver, sessions::Sessions};
use crate::{
    net::shared::Sharing,
    proto::{Handle, Instant},
};

/// Sessions that may be opening. Over a path of 250 ms these are 8,000 a second, and 10 MB/s of HELLOs.
pub(super) const WINDOW: usize = 2_048;
/// How long one that is not answered counts: longer than most round trips.
pub(super) const PATIENCE: Duration = Duration::from_millis(300);

/// Where a session is in its opening.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Opening {
    /// It was answered, was given up waiting for, or is none that waits.
    #[default]
    Over,
    /// It sends nothing yet.
    Held,
    /// It waits for the first answer.
    UnderWay,
}

/// The sessions that are opening.
#[derive(Debug, Default)]
pub(super) struct Openings {
    under_way: usize,
    /// When those under way began. Some may be over, and some gone.
    begun: VecDeque<(Instant, Handle)>,
    /// Some may be gone.
    held: VecDeque<Handle>,
}

impl Openings {
    /// When the next place becomes free of itself, if somebody waits for one.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let (began, _) = self.begun.front().filter(|_| !self.held.is_empty())?;
        Some(*began + PATIENCE)
    }

    /// A session that was under way is answered or gone.
    pub(super) const fn end(&mut self) {
        self.under_way -= 1;
    }

    /// Ends what was not answered in time.
    fn expire(&mut self, now: Instant, sessions: &mut Sessions) {
        while let Some((began, handle)) = self.begun.front().copied() {
            let slot = sessions.get_mut(handle).filter(|slot| slot.opening == Opening::UnderWay);
            if let Some(slot) = slot {
                if now < began + PATIENCE {
                    break;
                }
                slot.opening = Opening::Over;
                self.end();
            }
            self.begun.pop_front();
        }
        if self.begun.is_empty() {
            self.begun = VecDeque::new();
        }
    }

    /// Lets a session begin that was held.
    fn begin(&mut self, now: Instant, handle: Handle, sessions: &mut Sessions) {
        let Some(slot) = sessions.get_mut(handle).filter(|slot| slot.opening == Opening::Held) else {
            return;
        };
        slot.opening = Opening::UnderWay;
        slot.session.begin();
        self.under_way += 1;
        self.begun.push_back((now, handle));
        sessions.mark_dirty(handle);
    }
}

impl Driver {
    /// A session that this end connects has come.
    pub(super) fn hold(&mut self, handle: Handle) {
        if self.shared.sharing == Sharing::Many
            && let Some(slot) = self.sessions.get_mut(handle)
        {
            slot.opening = Opening::Held;
            self.openings.held.push_back(handle);
        }
    }

    /// Lets as many begin as there are places for.
    #[inline]
    pub(super) fn begin_held(&mut self, now: Instant) {
        if !self.openings.held.is_empty() {
            self.begin_some_held(now);
        }
    }

    #[cold]
    fn begin_some_held(&mut self, now: Instant) {
        self.openings.expire(now, &mut self.sessions);
        while self.openings.under_way < WINDOW
            && let Some(handle) = self.openings.held.pop_front()
        {
            self.openings.begin(now, handle, &mut self.sessions);
        }
        if self.openings.held.is_empty() {
            self.openings.held = VecDeque::new();
        }
    }

    /// Lets a session begin, whether there is a place or not: its stream is gone, and its time to deliver runs.
    #[cold]
    pub(super) fn begin_at_once(&mut self, now: Instant, handle: Handle) {
        self.openings.begin(now, handle, &mut self.sessions);
    }

    /// Gives back the place of a session whose peer was heard.
    #[cold]
    pub(super) fn note_if_answered(&mut self, handle: Handle) {
        if let Some(slot) = self.sessions.get_mut(handle).filter(|slot| slot.session.is_answered()) {
            slot.opening = Opening::Over;
            self.openings.end();
        }
    }
}
