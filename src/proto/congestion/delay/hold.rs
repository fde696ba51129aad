//! Whiles in which the window stays as it is, to see whether others are there.
//!
//! Sessions of our kind hold their windows at the same time, as all do that behind a drain, and the queue stays as it is. Whoever takes
//! what is left (CUBIC) or looks for more (BBR) makes it longer, or longer and shorter again.

use core::time::Duration;

use super::{drain::INTERVAL, fast::QUEUE_TIME};
use crate::proto::time::{Instant, Micros};

/// Rounds behind a drain in which windows open again.
const SETTLING: usize = 3;
/// Rounds of a hold: BBR looks for more once in eight.
const ROUNDS: usize = 12;
/// Rounds of one that decides whether others are gone: CUBIC takes seconds to fill what it has left behind a loss.
const PROBATION_ROUNDS: usize = 40;
/// Rounds without a queue before the window grows in a hold. Behind a drain it takes a round or two until there is one again.
const IDLE_ROUNDS: u8 = 6;
/// The queue has moved if it was longer than usual by this and a sixteenth of the path.
const MOVE: Duration = Duration::from_millis(2);
/// Holds in which the queue has moved before others are taken to be there: a session of our kind that begins moves it once.
const MOVES: u8 = 2;

/// What the window is to do behind a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is no hold.
    Free,
    /// It stays.
    Hold,
    /// Others are there.
    Others,
    /// The others of whom the session has seen nothing for a while are there still. It had so large a window beside them.
    Still(u64),
    /// They are gone.
    Gone,
}

/// The hold that is under way, and when the next one is due.
#[derive(Debug, Default)]
pub(super) struct Holds {
    current: Option<Hold>,
    /// When the last one began.
    began: Instant,
    /// Those in which the queue has moved, less those in which it has not.
    moved: u8,
}

impl Holds {
    /// A drain has found the queue empty. `before` is the window that a session had which was beside others.
    pub(super) fn begin(&mut self, now: Instant, before: Option<u64>) {
        self.began = now;
        self.current = Some(Hold::new(before));
    }

    /// Something else decides about the window.
    pub(super) fn cancel(&mut self) {
        self.current = None;
    }

    /// The window that a session had beside others, while it looks whether they are gone.
    pub(super) fn before(&self) -> Option<u64> {
        self.current.as_ref()?.before
    }

    pub(super) const fn is_holding(&self) -> bool {
        self.current.is_some()
    }

    /// Whether the link was idle for a while.
    pub(super) fn is_idle(&self) -> bool {
        self.current.as_ref().is_some_and(|hold| hold.idle >= IDLE_ROUNDS)
    }

    /// A round ends in which the queue was so long. A hold begins without a drain where there was none for long: beside BBR, the queue
    /// is seen empty, so that no drain is due.
    pub(super) fn end_round(&mut self, now: Instant, base: Duration, delay: Duration) -> Verdict {
        let Some(hold) = &mut self.current else {
            if now - self.began < INTERVAL || !has_queue(base, delay) {
                return Verdict::Free;
            }
            self.begin(now, None);
            return Verdict::Hold;
        };
        let Some(moved) = hold.end_round(base, delay) else { return Verdict::Hold };
        let before = hold.before;
        self.current = None;
        match (moved, before) {
            (true, Some(cwnd)) => Verdict::Still(cwnd),
            (true, None) => {
                self.moved += 1;
                if self.moved >= MOVES {
                    self.moved = 0;
                    return Verdict::Others;
                }
                self.begin(now, None);
                Verdict::Hold
            }
            (false, before) => {
                self.moved = self.moved.saturating_sub(1);
                if before.is_some() { Verdict::Gone } else { Verdict::Free }
            }
        }
    }
}

/// One hold.
#[derive(Debug)]
struct Hold {
    before: Option<u64>,
    rounds: usize,
    /// Rounds in a row without a queue.
    idle: u8,
    /// How long the queue was in each round behind [`SETTLING`].
    delays: [Micros; PROBATION_ROUNDS],
}

impl Hold {
    fn new(before: Option<u64>) -> Self {
        Self { before, rounds: 0, idle: 0, delays: [Micros::default(); PROBATION_ROUNDS] }
    }

    /// A round ends in which the queue was so long. Returns whether the queue has moved, once that is known.
    fn end_round(&mut self, base: Duration, delay: Duration) -> Option<bool> {
        self.rounds += 1;
        self.idle = if has_queue(base, delay) { 0 } else { self.idle.saturating_add(1) };
        let count = self.rounds.checked_sub(SETTLING).filter(|count| *count > 0)?;
        self.delays[count - 1] = delay.into();
        let rounds = if self.before.is_some() { PROBATION_ROUNDS } else { ROUNDS };
        if count < ROUNDS || !count.is_multiple_of(4) {
            return None;
        }
        let moved = has_moved(base, &self.delays[..count]);
        (moved || count >= rounds).then_some(moved)
    }
}

/// Whether there is a queue, so that the link is full.
fn has_queue(base: Duration, delay: Duration) -> bool {
    delay >= QUEUE_TIME.max(base / 16)
}

/// Whether a queue that was so long, one round after the other, was longer than usual. Others of our kind make it shorter for a few
/// rounds when they drain, so that what is usual is what two thirds of the rounds have at least. BBR makes it shorter just after it has
/// made it longer: then half as much is enough.
fn has_moved(base: Duration, delays: &[Micros]) -> bool {
    let mut sorted = [Micros::default(); PROBATION_ROUNDS];
    let sorted = &mut sorted[..delays.len()];
    sorted.copy_from_slice(delays);
    sorted.sort_unstable();
    let (usual, longest) = (sorted[delays.len() / 3].get(), sorted[delays.len() - 1].get());
    let dips = MOVE + base / 32;
    let is_bbr = |pair: &[Micros]| pair[0].get() == longest && pair[1].get() + dips <= usual;
    let is_longer_by = longest - usual;
    is_longer_by >= MOVE + base / 16 || is_longer_by >= dips && delays.windows(2).any(is_bbr)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(48);

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The first verdict that ends the hold, and behind how many rounds, of a queue that is so many milliseconds long in each.
    fn verdict(before: Option<u64>, delays: impl Fn(u64) -> u64) -> (u64, Verdict) {
        let mut holds = Holds::default();
        holds.begin(Instant::ZERO, before);
        let mut verdicts =
            (1..=100).map(|round| (round, holds.end_round(Instant::ZERO, BASE, ms(delays(round)))));
        verdicts.find(|(_, verdict)| *verdict != Verdict::Hold).unwrap()
    }

    #[test]
    fn a_queue_that_stays_is_that_of_our_kind() {
        assert_eq!(verdict(None, |_| 9), (15, Verdict::Free));
        // Windows open again behind a drain, jitter is no move, and drains of others are none.
        assert_eq!(
            verdict(None, |round| if round <= 3 { 0 } else { 9 + round % 2 * 3 }),
            (15, Verdict::Free)
        );
        assert_eq!(verdict(None, |round| if round < 12 { 9 } else { 0 }), (15, Verdict::Free));
    }

    /// It takes two holds, one behind the other.
    #[test]
    fn a_queue_that_grows_or_comes_and_goes_is_that_of_others() {
        assert_eq!(verdict(None, |round| round), (30, Verdict::Others));
        assert_eq!(verdict(None, |round| if round % 8 == 0 { 5 } else { 0 }), (30, Verdict::Others));
        // BBR makes it shorter just after it has made it longer.
        assert_eq!(
            verdict(None, |round| [5, 5, 5, 5, 5, 5, 9, 0][round as usize % 8]),
            (30, Verdict::Others)
        );
        assert_eq!(verdict(None, |round| [5, 5, 5, 0, 5, 5, 9, 5][round as usize % 8]), (15, Verdict::Free));
    }

    #[test]
    fn one_move_is_forgotten_with_a_queue_that_stays() {
        let mut holds = Holds::default();
        let mut now = Instant::ZERO;
        for _ in 0..3 {
            for (delays, verdict) in [([1, 1, 9], Verdict::Hold), ([5, 5, 5], Verdict::Free)] {
                if !holds.is_holding() {
                    now += INTERVAL;
                }
                let rounds = delays.into_iter().flat_map(|delay| core::iter::repeat_n(ms(delay), 5));
                let last = rounds.map(|delay| holds.end_round(now, BASE, delay)).last();
                // The first round of a hold that no drain comes before only begins it.
                let last = if holds.is_holding() && verdict == Verdict::Free {
                    Some(holds.end_round(now, BASE, ms(5)))
                } else {
                    last
                };
                assert_eq!(last, Some(verdict));
            }
        }
    }

    /// CUBIC behind a loss fills the queue by a few milliseconds in a second.
    #[test]
    fn who_was_beside_others_looks_for_longer() {
        assert_eq!(verdict(Some(7), |_| 9), (43, Verdict::Gone));
        assert_eq!(verdict(Some(7), |round| round / 4), (35, Verdict::Still(7)));
    }

    #[test]
    fn a_hold_begins_where_there_was_none_for_long() {
        let mut holds = Holds::default();
        holds.cancel();
        assert_eq!(holds.end_round(Instant::ZERO + INTERVAL / 2, BASE, ms(9)), Verdict::Free);
        assert_eq!(holds.end_round(Instant::ZERO + INTERVAL, BASE, ms(9)), Verdict::Hold);
        assert!(holds.is_holding());
    }
}
