use alloc::vec::Vec;

use super::*;
use crate::proto::time::Instant;

/// Two segments a millisecond.
const SHOWN: Shown = Shown {
    cwnd: 112_000,
    mtu: 1_000,
    rate: 2_000_000,
    fits: 100_000,
    has_queue: true,
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

/// Half of 9,000 bytes at a time while three rounds have no queue, then twice and four times as much, up to half the window.
#[test]
fn steps_double_while_there_is_no_queue() {
    let (mut fast, mut cwnd) = (Fast::default(), 112_000);
    let steps: Vec<u64> = (0..8)
        .map(|_| {
            let next = fast.step(&Shown { cwnd, ..SHOWN });
            next - core::mem::replace(&mut cwnd, next)
        })
        .collect();
    assert_eq!(steps, [4_500, 4_500, 4_500, 9_000, 18_000, 36_000, 72_000, 130_250]);
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

/// 100,000 bytes are what comes through, so that the window is a sixteenth less; and as long as that is known, steps stay small.
#[test]
fn losses_without_a_queue_leave_a_window_of_what_comes_through() {
    let policed = Shown { has_queue: false, ..SHOWN };
    let mut fast = Fast::default();
    assert_eq!(fast.step(&Shown { overflows: true, ..policed }), 93_750);
    assert_eq!(Fast::default().step(&Shown { overflows: true, fits: 50_000, ..policed }), 84_000);
    let mut grow = |rounds| {
        (0..rounds).fold(93_750, |cwnd, _| {
            fast.end_round(&Round::new(Instant::ZERO));
            fast.step(&Shown { cwnd, ..policed })
        })
    };
    // Rounds of calm, and steps of half of the target.
    assert_eq!(grow(3), 93_750);
    assert!(grow(20) < 93_750 + 20 * 4_500);
    // Behind a hundred rounds it is forgotten.
    grow(80);
    assert!(grow(10) > 200_000);
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
