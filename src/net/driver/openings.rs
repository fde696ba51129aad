//! How many of the sessions that this end connects begin at the same time.
//!
//! A program may connect 100,000 sessions in one loop. Each sends a HELLO of 1,200 bytes and its first data. Sent all at once, most of
//! that overflows the socket buffer of the peer, and the answers this end's own. It is all sent again, by each session for itself, and
//! overflows again: the sockets dropped a fourth of the packets of such a storm. So there is a *window* of openings, as there is one
//! of segments. A session is *held* until it is let in: it takes writes and sends nothing. Its place is free again when its peer was
//! heard, when it ends, or after [`PATIENCE`]: who does not answer must not keep the others waiting.
//!
//! A long path needs a large window to be full, and on a short one the same window is a queue in front of the peer. So it grows while
//! answers come about as fast as the fastest of this crowd, and shrinks while they take longer, as TCP Vegas' window does.
//!
//! Sessions with a socket of their own have no others to wait for. Those that peers begin are limited by the endpoint.

use core::time::Duration;
use std::collections::VecDeque;

use super::{Driver, sessions::Sessions};
use crate::{
    net::shared::Sharing,
    proto::{Handle, Instant},
};

/// Sessions that may be opening, at least. They keep a server on the same machine busy.
pub(super) const MIN_WINDOW: usize = 512;
/// And at most. Over a path of 250 ms these are 8,000 a second, and 10 MB/s of HELLOs.
pub(super) const MAX_WINDOW: usize = 2_048;
/// An answer that takes so many times as long as the fastest one has waited in a queue.
const QUEUED: u32 = 2;
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
    /// It waits for the first answer, since then.
    UnderWay(Instant),
}

impl Opening {
    pub(super) const fn is_under_way(self) -> bool {
        matches!(self, Self::UnderWay(_))
    }
}

/// The sessions that are opening.
#[derive(Debug)]
pub(super) struct Openings {
    window: usize,
    under_way: usize,
    /// The shortest time that an answer took in this crowd.
    fastest: Option<Duration>,
    /// When those under way began. Some may be over, and some gone.
    begun: VecDeque<(Instant, Handle)>,
    /// Some may be gone.
    held: VecDeque<Handle>,
}

impl Default for Openings {
    fn default() -> Self {
        Self {
            window: MIN_WINDOW,
            under_way: 0,
            fastest: None,
            begun: VecDeque::new(),
            held: VecDeque::new(),
        }
    }
}

impl Openings {
    /// When the next place becomes free of itself, if somebody waits for one.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let (began, _) = self.begun.front().filter(|_| !self.held.is_empty())?;
        Some(*began + PATIENCE)
    }

    /// A session that was under way is gone.
    pub(super) const fn end(&mut self) {
        self.under_way -= 1;
    }

    /// A session that was under way is answered, after this time.
    fn answered(&mut self, after: Duration) {
        self.end();
        self.adapt(after, !self.held.is_empty());
    }

    /// Adapts the window to an answer that took this long, where others wait for a place or not.
    fn adapt(&mut self, after: Duration, others_wait: bool) {
        let fastest = self.fastest.map_or(after, |fastest| fastest.min(after));
        self.fastest = Some(fastest);
        if after >= fastest.saturating_mul(QUEUED) {
            self.shrink();
        } else if others_wait {
            self.window = (self.window + 1).min(MAX_WINDOW);
        }
    }

    /// Sessions begin while none is under way: they may have another path than those before.
    const fn begin_crowd(&mut self) {
        self.window = MIN_WINDOW;
        self.fastest = None;
    }

    fn shrink(&mut self) {
        self.window = (self.window - 1).max(MIN_WINDOW);
    }

    /// Ends what was not answered in time.
    fn expire(&mut self, now: Instant, sessions: &mut Sessions) {
        while let Some((began, handle)) = self.begun.front().copied() {
            let slot = sessions.get_mut(handle).filter(|slot| slot.opening.is_under_way());
            if let Some(slot) = slot {
                if now < began + PATIENCE {
                    break;
                }
                slot.opening = Opening::Over;
                self.end();
                self.shrink();
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
        slot.opening = Opening::UnderWay(now);
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
        if self.openings.under_way == 0 {
            self.openings.begin_crowd();
        }
        while self.openings.under_way < self.openings.window
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
    pub(super) fn note_if_answered(&mut self, now: Instant, handle: Handle) {
        if let Some(slot) = self.sessions.get_mut(handle)
            && let Opening::UnderWay(since) = slot.opening
            && slot.session.is_answered()
        {
            slot.opening = Opening::Over;
            self.openings.answered(now - since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A crowd whose answers take this long, the first of them 100 ms.
    fn window_after(window: usize, answers: Duration, others_wait: bool) -> usize {
        let mut openings = Openings { window, ..Openings::default() };
        openings.adapt(100 * MS, others_wait);
        (0..MAX_WINDOW).for_each(|_| openings.adapt(answers, others_wait));
        openings.window
    }

    #[test]
    fn the_window_grows_while_answers_come_as_fast_as_the_path_brings_them() {
        assert_eq!(window_after(MIN_WINDOW, 199 * MS, true), MAX_WINDOW);
    }

    #[test]
    fn answers_that_have_waited_in_a_queue_shrink_the_window() {
        assert_eq!(window_after(MAX_WINDOW, 200 * MS, true), MIN_WINDOW);
    }

    /// Else a program that connects one session after the other would have the whole window for a crowd that comes later.
    #[test]
    fn a_window_that_nobody_waits_for_does_not_grow() {
        assert_eq!(window_after(MIN_WINDOW, 100 * MS, false), MIN_WINDOW);
    }
}
