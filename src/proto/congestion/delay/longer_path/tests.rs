use super::*;

const BASE: Duration = Duration::from_millis(50);

/// The round behind which the path is found to be longer, of rounds with these round trips and windows.
fn found(rounds: &[(u64, u64)]) -> Option<usize> {
    let mut path = LongerPath::default();
    rounds.iter().position(|(rtt, cwnd)| path.end_round(BASE, Duration::from_millis(*rtt), *cwnd))
}

#[test]
fn round_trips_that_stay_long_while_the_window_shrinks_are_those_of_a_longer_path() {
    // Some packets were on their way when it changed.
    let rounds = [(52, 90), (52, 90), (100, 60), (150, 40), (151, 30), (150, 20), (150, 15)];
    assert_eq!(found(&rounds), Some(5));
    let still = rounds.map(|(rtt, cwnd)| (rtt, cwnd.max(50)));
    assert_eq!(found(&still), None, "the window has not shrunk to half");
}

#[test]
fn a_queue_is_no_longer_path() {
    let shrinks = [90, 90, 90, 60, 40, 30, 20, 15, 10];
    for rtts in [
        // It grows, and is full.
        [52, 60, 75, 98, 130, 130, 130, 130, 130],
        // It becomes shorter with the window.
        [52, 52, 52, 150, 150, 130, 110, 90, 80],
        // It grows on.
        [52, 52, 52, 110, 150, 200, 220, 240, 250],
        // It was not twice the path.
        [52, 52, 52, 98, 98, 98, 98, 98, 98],
    ] {
        let rounds: [(u64, u64); 9] = core::array::from_fn(|round| (rtts[round], shrinks[round]));
        assert_eq!(found(&rounds), None, "{rtts:?}");
    }
}
