//! How long the peer holds back ACKs of few segments.
//!
//! A peer acknowledges a full batch of segments at once, and fewer after a while (kcp9's after eight, or 10 ms). A session with a small window
//! never fills a batch. Its round trips are longer by that while, which is no queue: of many sessions that share one, those with a
//! small window would make it still smaller, and leave the link to the others.

use core::time::Duration;

use crate::proto::time::{Instant, Micros};

/// Segments of an ACK packet that waited for no others, and the longest that a wait is taken for.
pub(super) const PROMPT_SEGMENTS: u32 = 8;
const LONGEST: Duration = Duration::from_millis(10);
/// The shortest round trip is that of the last one or two of these.
const WINDOW: Duration = Duration::from_millis(1_500);

/// The shortest round trips of two windows, of ACK packets with few segments.
#[derive(Debug, Default)]
pub(super) struct AckDelay {
    since: Instant,
    before: Option<Micros>,
    current: Option<Micros>,
}

impl AckDelay {
    /// The queue is full: what round trips were longer by was no wait.
    pub(super) fn forget(&mut self, now: Instant, base: Duration) {
        (self.since, self.before, self.current) = (now, None, Some(base.into()));
    }

    /// A round trip that an ACK packet of so many segments told, without what the peer waited.
    pub(super) fn correct(&mut self, now: Instant, base: Duration, rtt: Duration, segments: u32) -> Duration {
        if segments >= PROMPT_SEGMENTS {
            return rtt;
        }
        if now - self.since >= WINDOW {
            (self.since, self.before, self.current) = (now, self.current, None);
        }
        let current = self.current.map_or(rtt, |current| current.get().min(rtt));
        self.current = Some(current.into());
        let shortest = self.before.map_or(current, |before| before.get().min(current));
        rtt.saturating_sub(shortest.saturating_sub(base).min(LONGEST))
    }
}

#[cfg(test)]
mod tests;
