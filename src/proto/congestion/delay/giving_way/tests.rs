use alloc::vec::Vec;

use super::*;

const BASE: Duration = Duration::from_millis(50);

/// The look in which the session is found to give way, and the rate at first, with these rates and queues (in milliseconds) look by look.
fn found(looks: &[(u64, u64)]) -> Option<(usize, u64)> {
    let mut giving_way = GivingWay::default();
    let mut now = Instant::ZERO;
    looks.iter().enumerate().find_map(|(look, &(rate, delay))| {
        (0..12).find_map(|_| {
            now += BASE;
            let gives_way = giving_way.end_round(now, BASE, rate, Duration::from_millis(delay));
            gives_way.then(|| (look, giving_way.first_rate()))
        })
    })
}

/// Four beside four of CUBIC that had lost early, as it was in the lab.
#[test]
fn who_has_less_with_every_look_behind_a_queue_that_grows_gives_way() {
    let looks = [(640, 5), (590, 7), (550, 8), (520, 9), (490, 13), (450, 13), (420, 14)];
    assert_eq!(found(&looks), Some((4, 640)));
}

#[test]
fn a_step_is_that_of_a_session_that_begins() {
    let steps: Vec<_> = (0..40).map(|look| (640 - look / 4 * 50, 5 + look / 4)).collect();
    assert_eq!(found(&steps), None);
}

#[test]
fn a_queue_that_does_not_grow_is_that_of_our_kind() {
    let looks: Vec<_> = (0..20).map(|look| (640 - look * 25, 5)).collect();
    assert_eq!(found(&looks), None);
}

#[test]
fn who_was_wrong_once_is_not_asked_again() {
    let mut giving_way = GivingWay::default();
    let mut now = Instant::ZERO;
    let mut gives_way = |giving_way: &mut GivingWay| {
        (0..8).any(|look| {
            now += 12 * BASE;
            giving_way.end_round(now, BASE, 640 - 50 * look, Duration::from_millis(5 + look))
        })
    };
    assert!(gives_way(&mut giving_way));
    giving_way.begin_anew();
    assert!(gives_way(&mut giving_way));
    giving_way.begin_anew();
    giving_way.on_mistake();
    assert!(!gives_way(&mut giving_way));
}

/// Its own rate is small behind it.
#[test]
fn rounds_behind_a_drain_are_left_out() {
    let mut giving_way = GivingWay::default();
    let mut now = Instant::ZERO;
    for round in 0..400 {
        now += BASE;
        let behind_drain = round % 50;
        if behind_drain == 0 {
            giving_way.pause();
        }
        let rate = if behind_drain < 6 { 300 - round / 2 } else { 600 };
        assert!(!giving_way.end_round(now, BASE, rate, Duration::from_millis(round)), "{round}");
    }
}
