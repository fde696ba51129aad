use super::*;
use crate::proto::time::Instant;

fn round(acked: u64, lost: u64, marked: bool) -> Round {
    let mut round = Round::new(Instant::ZERO);
    (round.acked, round.lost, round.marked) = (acked, lost, marked);
    round
}

#[test]
fn it_ends_three_rounds_behind_the_last_that_raised_the_rate_by_a_quarter() {
    let mut startup = Startup::default();
    let ends = [100, 124, 125, 150, 155, 150].map(|rate| startup.end_round(&round(100, 0, false), rate));
    assert_eq!(ends, [false, false, false, false, false, true]);
    assert_eq!(startup.rate(), 125);
}

#[test]
fn it_ends_with_a_third_lost_or_a_mark() {
    for (acked, lost, marked, ends) in
        [(66, 33, false, false), (66, 34, false, true), (8, 8, false, false), (100, 0, true, true)]
    {
        let mut startup = Startup::default();
        assert_eq!(startup.end_round(&round(acked, lost, marked), 100), ends, "{acked} {lost}");
    }
}

#[test]
fn a_window_without_acks_does_not_end_it() {
    for (timeouts, ends) in [(30, true), (36, false), (48, false)] {
        let mut round = round(50, 48, false);
        round.timeouts = timeouts;
        assert_eq!(Startup::default().end_round(&round, 100), ends, "{timeouts}");
    }
}

/// 32 segments at once, on a path that holds 145: they arrive at the rate of the path, which is idle for the rest of the round.
#[test]
fn a_small_window_that_leaves_at_once_is_not_that_of_the_path() {
    const BASE: Duration = Duration::from_millis(200);
    for (segments, elapsed, is_so) in [(32, 45, false), (90, 120, false), (92, 120, true), (145, 24, false)] {
        let elapsed = Duration::from_millis(elapsed);
        let is_of_path = Startup::is_window_of_path(segments * 1_400, BASE, 1_015_000, elapsed);
        assert_eq!(is_of_path, is_so, "{segments} segments behind {elapsed:?}");
    }
}

#[test]
fn losses_that_were_none_are_forgotten() {
    let mut startup = Startup::default();
    startup.end_round(&round(100, 2, false), 100);
    assert!(startup.has_losses());
    startup.forgive(1);
    assert!(!startup.has_losses());
}
