use alloc::vec::Vec;

use super::*;
use crate::proto::congestion::LossCause;

const MTU: u64 = 1_000;
const BASE: Duration = Duration::from_millis(50);
const SRTT: Duration = Duration::from_millis(100);
const CWND: u64 = 400_000;

/// What is sent at the time that is returned is lost after the beginning.
fn compete(stands: bool) -> (Compete, Instant) {
    let now = Instant::from_millis(10_000);
    let begin = Begin {
        now,
        mtu: MTU,
        cwnd: CWND,
        target_cwnd: CWND,
        base: BASE,
        srtt: SRTT,
        grows_since: now,
        stands,
    };
    (Compete::new(&begin), now + (GRACE - 1) * SRTT)
}

/// A loss of what was sent then, a round trip later.
fn lose(compete: &mut Compete, sent_time: Instant) {
    compete.on_lost(&Lost {
        now: sent_time + SRTT,
        sn: 0,
        bytes: MTU,
        sent_time,
        cause: LossCause::Skipped,
        tx_in_flight: MTU,
        lost: MTU,
        is_app_limited: false,
    });
}

/// One in which so many of 1,000 segments are lost.
fn round(lost: u64) -> Round {
    let mut round = Round::new(Instant::ZERO);
    (round.acked, round.lost) = (1_000 - lost, lost);
    round
}

/// Periods in which so many of 1,000 segments a round are lost.
fn periods(compete: &mut Compete, now: Instant, lost: &[u64]) -> Option<u64> {
    lost.iter().find_map(|lost| (0..PERIOD).find_map(|_| compete.end_round(now, &round(*lost), 0)))
}

#[test]
fn a_loss_at_the_beginning_does_not_count() {
    let (mut compete, now) = compete(false);
    lose(&mut compete, Instant::from_millis(10_000));
    assert_eq!(compete.window(), CWND);
    lose(&mut compete, now);
    assert_eq!((compete.window(), compete.congested_at()), (CWND / 10 * 7, now + SRTT));
}

/// Four more reductions, each within three round trips.
#[test]
fn it_stands_where_one_reduction_follows_the_other() {
    for (apart, stands) in [(2, true), (4, false)] {
        let (mut compete, mut now) = compete(false);
        for reduction in 0..=REPEATED {
            assert!(!compete.stands(), "{reduction}");
            lose(&mut compete, now);
            now += apart * SRTT;
        }
        assert_eq!(compete.stands(), stands, "{apart} round trips");
        assert_eq!(compete.window() == CWND, stands, "{apart} round trips");
        lose(&mut compete, now);
        assert_eq!(compete.window() == CWND, stands, "{apart} round trips");
    }
}

fn standing() -> (Compete, Instant) {
    let (mut compete, mut now) = compete(false);
    for _ in 0..=REPEATED {
        lose(&mut compete, now);
        now += 2 * SRTT;
    }
    assert!(compete.stands());
    (compete, now)
}

#[test]
fn what_it_loses_proves_that_others_do_not_give_way() {
    let (mut compete, now) = standing();
    assert_eq!(periods(&mut compete, now, &[200, 60, 10, 0]), None);
    assert_eq!(compete.window(), CWND);
    let (mut compete, now) = standing();
    let cwnd = periods(&mut compete, now, &[200, 10]);
    assert!(cwnd.is_some_and(|cwnd| cwnd < CWND / 4), "{cwnd:?}");
}

#[test]
fn a_window_that_loses_much_is_too_large() {
    let (mut compete, now) = standing();
    assert_eq!(periods(&mut compete, now, &[200, 100, 100]), None);
    assert_eq!(compete.window(), 306_250, "two eighths less");
    assert_eq!(periods(&mut compete, now, &[250]), None);
    assert_eq!(compete.window(), 230_250, "as much less as is lost");
    assert!(periods(&mut compete, now, &[200; 10]).is_some(), "others may be many");
}

/// It has a quarter of what it is to have when it begins.
#[test]
fn the_window_grows_to_what_the_session_had_until_something_is_lost() {
    let now = Instant::from_millis(10_000);
    let begin = Begin {
        now,
        mtu: MTU,
        cwnd: CWND / 4,
        target_cwnd: CWND,
        base: BASE,
        srtt: SRTT - BASE / 2,
        grows_since: now,
        stands: false,
    };
    let mut compete = Compete::new(&begin);
    let windows: Vec<u64> = (0..16)
        .map(|_| {
            assert_eq!(compete.end_round(now, &round(0), 0), None);
            compete.window()
        })
        .collect();
    assert!(windows.is_sorted() && windows[0] < CWND / 3 && windows[15] >= CWND / 100 * 99, "{windows:?}");
    let mut compete = Compete::new(&begin);
    (0..4).for_each(|_| assert_eq!(compete.end_round(now, &round(0), 0), None));
    let before = compete.window();
    lose(&mut compete, now + GRACE * SRTT);
    (0..4).for_each(|_| assert_eq!(compete.end_round(now, &round(0), 0), None));
    assert_eq!(compete.window(), before / 10 * 7);
}

/// An eighth less for each marked round, until half is left.
#[test]
fn it_gives_way_to_marks() {
    let (mut compete, now) = standing();
    let mut marked = round(0);
    marked.marked = true;
    assert_eq!(compete.end_round(now, &marked, 0), None);
    assert_eq!(compete.window(), 350_000);
    assert!((0..PERIOD).find_map(|_| compete.end_round(now, &marked, 0)).is_some());
}

#[test]
fn it_does_not_stand_forever() {
    let (mut compete, now) = compete(true);
    assert_eq!(compete.end_round(now + STAND / 2, &round(0), 0), None);
    assert_eq!(compete.end_round(now + STAND, &round(0), 0), Some(CWND));
}

/// The queue becomes longer than the path, and the window with it; the rate grows by a sixteenth in a round.
#[test]
fn it_keeps_its_rate_until_a_loss_counts() {
    let (mut compete, now) = compete(false);
    let longer = RttSample { latest: 2 * SRTT, smoothed: 2 * SRTT, ..RttSample::default() };
    compete.on_rtt(now, &longer);
    assert_eq!(compete.window(), 2 * CWND);
    assert_eq!(compete.end_round(now, &round(0), 0), None);
    assert_eq!(compete.window(), 2 * CWND / 16 * 17);
    lose(&mut compete, now + 4 * SRTT);
    assert_eq!(compete.window(), 2 * CWND / 16 * 17 / 10 * 7);
}
