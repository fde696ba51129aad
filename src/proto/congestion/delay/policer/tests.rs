use super::*;
use crate::proto::time::Instant;

/// What rounds with so many losses of 100 segments tell.
fn tell(losses: &[u64]) -> (Option<bool>, Policer) {
    let mut policer = Policer::new(160_000);
    let told = losses.iter().filter_map(|lost| {
        let mut round = Round::new(Instant::ZERO);
        (round.acked, round.lost) = (100 - lost, *lost);
        policer.end_round(&round)
    });
    (told.last(), policer)
}

#[test]
fn losses_with_the_smaller_window_are_the_paths_own() {
    // Those of the first two rounds are the window's before.
    assert_eq!(tell(&[20, 9, 0, 0, 0, 0, 0]).0, Some(false));
    assert_eq!(tell(&[20, 9, 1, 0, 1, 0, 0]).0, Some(true));
    assert_eq!(tell(&[20, 9, 1, 0, 1, 0]).0, None);
}

#[test]
fn the_window_is_less_than_what_passes_and_forgotten_after_a_while() {
    let (_, policer) = tell(&[0; MEMORY as usize - 1]);
    assert_eq!(policer.window(), 150_000);
    assert_eq!([139_999, 140_000].map(|cwnd| policer.is_near(cwnd)), [false, true]);
    assert!(!policer.is_over() && tell(&[0; MEMORY as usize]).1.is_over());
}
