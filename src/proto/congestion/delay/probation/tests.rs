use super::*;

const BASE: Duration = Duration::from_millis(48);

/// The verdict, and behind how many rounds, of a queue that is so many milliseconds long in each.
fn verdict(delays: impl Fn(u64) -> u64) -> (u64, Verdict) {
    let mut probation = Probation::new(7);
    let mut verdicts = (1..=100).map(|round| {
        let delay = Duration::from_millis(delays(round));
        (round, probation.end_round(BASE, delay))
    });
    verdicts.find(|(_, verdict)| *verdict != Verdict::Unknown).unwrap()
}

/// Windows open again behind a drain, jitter is no growth, and drains of others are none.
#[test]
fn a_queue_that_stays_is_that_of_our_kind() {
    assert_eq!(verdict(|_| 9), (43, Verdict::Gone));
    assert_eq!(verdict(|round| if round <= 3 { 0 } else { 9 + round % 2 * 3 }), (43, Verdict::Gone));
    assert_eq!(verdict(|round| if (20..24).contains(&round) { 0 } else { 9 }), (43, Verdict::Gone));
}

/// CUBIC behind a loss fills the queue by a few milliseconds in a second.
#[test]
fn a_queue_that_grows_or_comes_and_goes_is_that_of_others() {
    assert_eq!(verdict(|round| round), (15, Verdict::Still));
    assert_eq!(verdict(|round| round / 4), (35, Verdict::Still));
    assert_eq!(verdict(|round| if round % 8 == 0 { 5 } else { 0 }), (15, Verdict::Still));
}

#[test]
fn a_link_is_idle_behind_six_rounds_without_a_queue() {
    let mut probation = Probation::new(7);
    let idle = [9, 0, 0, 0, 0, 0, 0, 9].map(|delay| {
        probation.end_round(BASE, Duration::from_millis(delay));
        probation.is_idle()
    });
    assert_eq!(idle, [false, false, false, false, false, false, true, false]);
}
