use super::*;

const BASE: u64 = 50;

/// Rounds of 50 ms with these waits, in milliseconds.
fn rounds(bursts: &mut Bursts, waits: &[u64], count: u64) {
    for _ in 0..count {
        waits.iter().for_each(|wait| bursts.add(Duration::from_millis(BASE + wait)));
        let now = bursts.updated_at + Duration::from_millis(50);
        bursts.end_round(now);
    }
}

#[test]
fn round_trips_that_fall_again_and_again_are_those_of_bursts() {
    let mut bursts = Bursts::default();
    rounds(&mut bursts, &[9, 6, 3, 1, 8, 5, 0], 1);
    assert!(!bursts.are_found());
    rounds(&mut bursts, &[9, 6, 3, 1, 8, 5, 0], 2);
    assert!(bursts.are_found());
    assert!((Duration::from_millis(7)..Duration::from_millis(10)).contains(&bursts.height()));
    let shortest = Duration::from_millis(BASE + 4);
    assert!(bursts.correct(shortest) < Duration::from_millis(BASE + 1));
    assert_eq!(bursts.least_round(), LEAST_ROUND);
    // They are over.
    rounds(&mut bursts, &[1], 12);
    assert_eq!((bursts.are_found(), bursts.correct(shortest)), (false, shortest));
}

#[test]
fn a_queue_and_jitter_are_none() {
    let mut jitter = Bursts::default();
    rounds(&mut jitter, &[0, 3, 0, 2, 1, 3], 40);
    assert!(!jitter.are_found());
    // BBR's, which it makes longer in every eighth round trip.
    let mut queue = Bursts::default();
    for _ in 0..10 {
        rounds(&mut queue, &[5, 6, 5, 5], 6);
        rounds(&mut queue, &[5, 8, 12, 15], 1);
        rounds(&mut queue, &[13, 9, 4, 2], 1);
        assert!(!queue.are_found());
    }
}
