//! HyStart++ (RFC 9406): slow start ends when round trips become longer, before the queue overflows.

use core::time::Duration;

use crate::proto::congestion::Acked;

/// The limits of what counts as longer, and the part of the round trip that does between them (section 4.3).
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
/// Samples that a round's minimum needs.
const N_RTT_SAMPLE: u32 = 8;
/// In Conservative Slow Start (CSS) the window grows by this part, for so many rounds.
const CSS_GROWTH_DIVISOR: u64 = 4;
const CSS_ROUNDS: u32 = 5;

/// What the first slow start of a session watches.
#[derive(Debug, Default)]
pub(super) struct HyStart {
    /// The round ends when a segment is acknowledged that was sent after so many bytes were delivered.
    window_end: u64,
    last_round_min_rtt: Option<Duration>,
    current_round_min_rtt: Option<Duration>,
    rtt_sample_count: u32,
    css: Option<Css>,
}

/// Conservative Slow Start: the window grows more slowly until it shows whether round trips stay longer.
#[derive(Debug)]
struct Css {
    baseline_min_rtt: Duration,
    rounds: u32,
}

impl HyStart {
    pub(super) const fn is_css(&self) -> bool {
        self.css.is_some()
    }

    /// Slow start has ended.
    pub(super) const fn stop(&mut self) {
        self.css = None;
    }

    /// By how much the window grows for `acked` bytes: all of it, and in CSS a part. There is no limit `L` as
    /// the sender paces (section 4.3).
    pub(super) const fn increase(&self, acked: u64) -> u64 {
        if self.is_css() { acked / CSS_GROWTH_DIVISOR } else { acked }
    }

    /// A sample of the round-trip time. What it was taken from is confirmed next.
    pub(super) fn on_rtt(&mut self, rtt: Duration) {
        let shortest = self.current_round_min_rtt.get_or_insert(rtt);
        *shortest = rtt.min(*shortest);
    }

    /// Whether slow start ends now (section 4.2).
    pub(super) fn on_ack(&mut self, acked: &Acked) -> bool {
        if self.current_round_min_rtt.is_some() {
            self.rtt_sample_count = self.rtt_sample_count.saturating_add(acked.segments);
        }
        if self.rtt_sample_count >= N_RTT_SAMPLE {
            self.compare();
        }
        acked.rate.prior_delivered >= self.window_end && self.end_round(acked.total_delivered)
    }

    fn compare(&mut self) {
        let (Some(current), Some(last)) = (self.current_round_min_rtt, self.last_round_min_rtt) else {
            return;
        };
        match &self.css {
            // It was noise.
            Some(css) if current < css.baseline_min_rtt => self.css = None,
            Some(_) => {}
            None => {
                let thresh = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if current >= last + thresh {
                    self.css = Some(Css { baseline_min_rtt: current, rounds: 0 });
                }
            }
        }
    }

    /// A round ends. Returns whether slow start does.
    fn end_round(&mut self, total_delivered: u64) -> bool {
        self.window_end = total_delivered;
        self.last_round_min_rtt = self.current_round_min_rtt.take();
        self.rtt_sample_count = 0;
        let Some(css) = &mut self.css else { return false };
        css.rounds += 1;
        let is_over = css.rounds >= CSS_ROUNDS;
        if is_over {
            self.stop();
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::congestion::RateSample;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Rounds of `segments` that are confirmed one by one.
    struct Rounds {
        hystart: HyStart,
        segments: u64,
    }

    impl Rounds {
        fn new(segments: u64) -> Self {
            Self { hystart: HyStart { window_end: 1_000, ..HyStart::default() }, segments }
        }

        /// A round whose samples are `rtt`; returns whether slow start has ended.
        fn round(&mut self, rtt: Duration) -> bool {
            (0..self.segments).fold(false, |ended, index| {
                self.hystart.on_rtt(rtt);
                // The last of the round is the first that was sent behind the end of the one before.
                let is_last = index + 1 == self.segments;
                let prior_delivered = self.hystart.window_end - u64::from(!is_last);
                let rate = RateSample { prior_delivered, ..RateSample::default() };
                let total_delivered = self.hystart.window_end + 1_000;
                ended | self.hystart.on_ack(&Acked { segments: 1, total_delivered, rate, ..Acked::default() })
            })
        }
    }

    /// Section 4.2: RttThresh is an eighth of the last round's minimum, between 4 and 16 ms.
    #[test]
    fn slow_start_is_conservative_once_round_trips_are_an_eighth_longer() {
        for (last, longer) in [(10, 4), (32, 4), (80, 10), (100, 12), (128, 16), (400, 16)] {
            let thresh = ms(last) / 8;
            let thresh = thresh.clamp(ms(4), ms(16));
            assert_eq!(thresh.as_millis() as u64, longer);
            for (rtt, css) in [(thresh - Duration::from_micros(1), false), (thresh, true)] {
                let mut rounds = Rounds::new(16);
                rounds.round(ms(last));
                rounds.round(ms(last));
                rounds.round(ms(last) + rtt);
                assert_eq!(rounds.hystart.is_css(), css, "{last} ms and {rtt:?}");
            }
        }
    }

    /// Section 4.3: N_RTT_SAMPLE = 8.
    #[test]
    fn a_round_with_few_samples_tells_nothing() {
        for (segments, css) in [(7, false), (8, true)] {
            let mut rounds = Rounds::new(segments);
            rounds.round(ms(50));
            rounds.round(ms(50));
            rounds.round(ms(100));
            assert_eq!(rounds.hystart.is_css(), css, "{segments}");
        }
    }

    /// Section 4.2: CSS grows by a quarter of what is confirmed, and ends slow start after five rounds.
    #[test]
    fn conservative_slow_start_lasts_five_rounds() {
        let mut rounds = Rounds::new(16);
        rounds.round(ms(50));
        rounds.round(ms(50));
        assert_eq!(rounds.hystart.increase(1_000), 1_000);
        let ends: [bool; 5] = core::array::from_fn(|_| {
            let ended = rounds.round(ms(60));
            assert_eq!(rounds.hystart.increase(1_000), if ended { 1_000 } else { 250 });
            ended
        });
        assert_eq!(ends, [false, false, false, false, true]);
        assert!(!rounds.hystart.is_css());
    }

    /// Section 4.2: a round trip below the baseline shows that it was jitter.
    #[test]
    fn round_trips_that_become_shorter_again_resume_slow_start() {
        let mut rounds = Rounds::new(16);
        rounds.round(ms(50));
        rounds.round(ms(50));
        rounds.round(ms(60));
        assert!(rounds.hystart.is_css());
        rounds.round(ms(59));
        assert!(!rounds.hystart.is_css());
        assert!((0..10).all(|_| !rounds.round(ms(59))));
    }
}
