use super::*;

const BASE: Duration = Duration::from_millis(48);

/// The round behind which somebody is found in these delays, again and again.
fn found(delays: &[u64]) -> Option<usize> {
    let mut spikes = Spikes::default();
    let mut delays = delays.iter().cycle().take(400);
    delays.position(|delay| spikes.end_round(BASE, Duration::from_millis(*delay)))
}

#[test]
fn spikes_again_and_again_are_those_of_bbr() {
    // The third is in the 23rd round, and known two rounds later.
    assert_eq!(found(&[5, 5, 5, 5, 5, 5, 11, 5]), Some(24));
    assert_eq!(found(&[5, 5, 5, 5, 5, 9, 10, 2, 6]), Some(26), "two rounds long, and shorter behind it");
}

#[test]
fn what_stays_longer_or_shorter_is_none() {
    assert_eq!(found(&[5, 5, 5, 9, 13, 13, 13, 9]), None, "one begins");
    assert_eq!(found(&[9, 9, 9, 9, 0, 0, 0, 5]), None, "drains");
    assert_eq!(found(&[5, 7, 6, 9, 5, 8, 7]), None, "jitter");
}

#[test]
fn spikes_that_come_seldom_are_none() {
    let mut delays = [5; 25];
    delays[10] = 20;
    assert_eq!(found(&delays), None);
}

/// A drain, or rounds in which the application had little to send.
#[test]
fn a_pause_makes_no_spike() {
    let mut spikes = Spikes::default();
    for round in 0..200 {
        let delay = if round % 4 == 1 { 20 } else { 5 };
        assert!(!spikes.end_round(BASE, Duration::from_millis(delay)));
        if round % 4 == 1 {
            spikes.pause();
        }
    }
}
