//! Until when it is worth to go on receiving for sessions that have ended.

use core::time::Duration;

use crate::proto::time::Instant;

/// A peer that asks again has missed the answer, and may miss the next one. It waits longer each time. (So TIME-WAIT begins anew
/// in TCP.)
const AGAIN: Duration = Duration::from_secs(2);
/// No longer than this behind the end, whoever asks.
const AT_MOST: Duration = Duration::from_secs(10);

/// The time in which peers of sessions that have ended may ask for an answer that was lost.
#[derive(Debug, Default)]
pub(super) struct Asked {
    until: Option<Instant>,
    /// Of the last end.
    at_most: Option<Instant>,
}

impl Asked {
    /// A session has ended, whose peer is likely to ask within `time`, if it does.
    pub(super) fn on_end(&mut self, now: Instant, time: Duration) {
        self.until = self.until.max(Some(now + time));
        self.at_most = Some(now + AT_MOST);
    }

    /// A peer has asked.
    pub(super) fn on_question(&mut self, now: Instant) {
        if self.until.is_some() {
            self.until = self.until.max(self.at_most.min(Some(now + AGAIN)));
        }
    }

    pub(super) const fn until(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Option<Instant> {
        Some(Instant::from_millis(millis))
    }

    #[test]
    fn questions_prolong_it_up_to_a_limit_behind_the_last_end() {
        let mut asked = Asked::default();
        asked.on_question(Instant::ZERO);
        assert_eq!(asked.until(), None, "nothing has ended");
        asked.on_end(Instant::ZERO, Duration::from_millis(500));
        assert_eq!(asked.until(), at(500));
        asked.on_question(Instant::from_millis(400));
        assert_eq!(asked.until(), at(2_400));
        asked.on_question(Instant::from_millis(2_300));
        assert_eq!(asked.until(), at(4_300));
        asked.on_question(Instant::from_millis(9_000));
        assert_eq!(asked.until(), at(10_000));
        asked.on_question(Instant::from_millis(9_900));
        assert_eq!(asked.until(), at(10_000));
        // A later end counts anew, and takes nothing back.
        asked.on_end(Instant::from_millis(9_950), Duration::from_millis(500));
        assert_eq!(asked.until(), at(10_450));
        asked.on_question(Instant::from_millis(10_400));
        assert_eq!(asked.until(), at(12_400));
    }
}
