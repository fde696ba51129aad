//! The window among sessions of this kind: FAST's, with a smaller part of the queue for each after it was full.

use core::time::Duration;

/// What each session means to have in the queue: so many full segments, and what it sends in so much time, at most the other number
/// of segments.
const QUEUE_SEGMENTS: u64 = 5;
pub(super) const QUEUE_TIME: Duration = Duration::from_millis(2);
const MAX_QUEUE_TIME_SEGMENTS: u64 = 256;
/// [`Fast::queue_segments`] counts sixteenths of a segment, and is one more each round. Slower, sessions that share a queue overflow it
/// more seldom, and have uneven parts of the link for longer, as not all of them see each overflow.
const PARTS: u64 = 16;
/// Rounds without a queue before steps double.
const PATIENCE: u32 = 3;
/// Rounds behind losses of a full queue before the window grows again, and before they are forgotten.
const CALM: u32 = 4;
const FORGOTTEN: u32 = 16;

/// What a round has shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    pub(super) cwnd: u64,
    /// The size of a full segment.
    pub(super) mtu: u64,
    /// Bytes a second that were confirmed.
    pub(super) rate: u64,
    /// How long the queue was.
    pub(super) delay: Duration,
    /// Packets had marks of ECN.
    pub(super) marked: bool,
    /// More was lost than the path's own.
    pub(super) overflows: bool,
    /// The window was what limited the sender.
    pub(super) is_limit: bool,
}

/// The state of the window's steps.
#[derive(Debug)]
pub(super) struct Fast {
    /// What the session means to have in the queue, in parts of a segment: see [`PARTS`].
    queue_segments: u64,
    /// Rounds without a queue.
    quick: u32,
    /// Rounds since the queue was full.
    calm: u32,
    /// The window before the queue was full; 0 if that was long ago.
    uncut: u64,
    /// What it meant to have in the queue then.
    queue_segments_uncut: u64,
}

impl Default for Fast {
    fn default() -> Self {
        Self {
            queue_segments: QUEUE_SEGMENTS * PARTS,
            quick: 0,
            calm: FORGOTTEN,
            uncut: 0,
            queue_segments_uncut: 0,
        }
    }
}

impl Fast {
    /// Bytes that the session means to have in the queue.
    pub(super) fn target(&self, mtu: u64, rate: u64) -> u64 {
        let in_time = bytes_in(rate, QUEUE_TIME).min(MAX_QUEUE_TIME_SEGMENTS * mtu);
        self.queue_segments * mtu / PARTS + in_time
    }

    /// It was not a full queue that lost. Returns the window that was before, or `cwnd` if that is larger.
    pub(super) fn undo(&mut self, cwnd: u64) -> u64 {
        self.queue_segments = self.queue_segments.max(self.queue_segments_uncut);
        cwnd.max(self.uncut)
    }

    /// The queue was full: the session means to have less in it.
    fn on_full_queue(&mut self) {
        self.queue_segments = (self.queue_segments / 2).max(PARTS);
    }

    /// One step: the window of the next round.
    pub(super) fn step(&mut self, shown: &Shown) -> u64 {
        let &Shown { cwnd, mtu, rate, delay, marked, overflows, is_limit } = shown;
        let is_full = marked || overflows;
        let least = self.queue_segments == PARTS;
        if overflows {
            self.uncut = self.uncut.max(cwnd);
            self.queue_segments_uncut = self.queue_segments_uncut.max(self.queue_segments);
        } else if self.calm >= FORGOTTEN {
            (self.uncut, self.queue_segments_uncut) = (0, 0);
        }
        if is_full {
            self.on_full_queue();
        } else {
            self.queue_segments = (self.queue_segments + 1).min(QUEUE_SEGMENTS * PARTS);
        }
        let (queued, target) = (bytes_in(rate, delay), self.target(mtu, rate));
        let no_queue = queued < target / 2 && !is_full && self.calm >= CALM;
        self.quick = if no_queue { self.quick.saturating_add(1) } else { 0 };
        self.calm = if is_full { 0 } else { self.calm.saturating_add(1) };
        if overflows {
            return cwnd - cwnd / 4;
        }
        if queued > target {
            let less = ((queued - target) / 2).min(cwnd / 3);
            return cwnd - if marked && least { less.max(cwnd / 8) } else { less };
        }
        if marked {
            return if least { cwnd - cwnd / 8 } else { cwnd };
        }
        // Only what the window holds back is a reason for a larger one.
        if !is_limit || self.calm < CALM {
            return cwnd;
        }
        let step = (target - queued) / 2;
        let doublings = self.quick.saturating_sub(PATIENCE).min(16);
        let more = if doublings > 0 { (step << doublings).min(cwnd / 4).max(step) } else { step };
        cwnd.saturating_add(more.min(cwnd / 2))
    }
}

/// What `rate` bytes a second are in `time`.
pub(super) fn bytes_in(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate).saturating_mul(time.as_micros()) / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX).min(MOST)
}

/// More than any window, and little enough to be added up.
const MOST: u64 = 1 << 48;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// Two segments a millisecond.
    const SHOWN: Shown = Shown {
        cwnd: 112_000,
        mtu: 1_000,
        rate: 2_000_000,
        delay: Duration::ZERO,
        marked: false,
        overflows: false,
        is_limit: true,
    };

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// At 2 MB/s, 5 ms are 10,000 bytes in the queue and 3 ms 6,000; the session means to have 5,000 and what is sent in 2 ms there.
    #[test]
    fn a_step_goes_half_the_way_to_what_is_meant_to_be_in_the_queue() {
        for (delay, step) in [(5, -500), (3, 1_500)] {
            let cwnd = Fast::default().step(&Shown { delay: ms(delay), ..SHOWN });
            assert_eq!(cwnd as i64 - 112_000, step, "{delay}");
        }
    }

    /// Half as many segments in the queue, and one more each 16 rounds. All at once if it was no full queue after all.
    #[test]
    fn who_has_seen_a_full_queue_fills_it_slowly() {
        let mut fast = Fast::default();
        fast.step(&Shown { overflows: true, ..SHOWN });
        let mut after = |rounds| {
            (0..rounds).for_each(|_| _ = fast.step(&SHOWN));
            fast.target(1_000, 0)
        };
        assert_eq!([16, 16, 16].map(&mut after), [3_500, 4_500, 5_000]);
        fast.step(&Shown { overflows: true, ..SHOWN });
        assert_eq!((fast.undo(1), fast.target(1_000, 0)), (112_000, 5_000));
    }

    /// Half of 9,000 bytes at a time while three rounds have no queue, then twice and four times as much, up to a quarter of the window.
    #[test]
    fn steps_double_while_there_is_no_queue() {
        let (mut fast, mut cwnd) = (Fast::default(), 112_000);
        let steps: Vec<u64> = (0..6)
            .map(|_| {
                let next = fast.step(&Shown { cwnd, ..SHOWN });
                next - core::mem::replace(&mut cwnd, next)
            })
            .collect();
        assert_eq!(steps, [4_500, 4_500, 4_500, 9_000, 18_000, 36_000]);
    }

    #[test]
    fn what_the_window_does_not_hold_back_is_no_reason_for_a_larger_one() {
        assert_eq!(Fast::default().step(&Shown { is_limit: false, ..SHOWN }), 112_000);
    }

    /// A quarter less, and four rounds later it grows again.
    #[test]
    fn a_full_queue_takes_a_quarter_of_the_window() {
        let mut fast = Fast::default();
        assert_eq!(fast.step(&Shown { overflows: true, ..SHOWN }), 84_000);
        assert_eq!(fast.uncut, 112_000);
        let grows: Vec<bool> = (0..5).map(|_| fast.step(&SHOWN) > SHOWN.cwnd).collect();
        assert_eq!(grows, [false, false, false, true, true]);
        (0..16).for_each(|_| _ = fast.step(&SHOWN));
        assert_eq!(fast.uncut, 0);
    }

    /// Half as many segments in the queue; when there are no fewer, an eighth of the window.
    #[test]
    fn marks_are_those_of_a_full_queue() {
        let mut fast = Fast::default();
        let marked = Shown { marked: true, ..SHOWN };
        let windows: Vec<u64> = (0..4).map(|_| fast.step(&marked)).collect();
        assert_eq!(windows, [112_000, 112_000, 112_000, 98_000]);
        assert_eq!(fast.target(1_000, 0), 1_000);
    }

    #[test]
    fn nothing_overflows() {
        let most = Shown { cwnd: u64::MAX, mtu: 65_535, rate: u64::MAX, delay: Duration::MAX, ..SHOWN };
        let mut fast = Fast::default();
        assert!(fast.step(&most) < u64::MAX);
        (0..100).for_each(|_| _ = fast.step(&Shown { delay: Duration::ZERO, ..most }));
    }
}
