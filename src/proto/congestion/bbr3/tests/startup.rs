//! Startup and Drain.

use super::*;

/// Section 5.3.1.2: three rounds in a row that do not raise the rate by a quarter.
#[test]
fn startup_ends_after_three_rounds_without_growth_by_a_quarter() {
    let mut path = Path::new();
    for rate in [1_000_000, 2_000_000, 4_000_000, 5_000_000] {
        path.in_flight = bytes_in(rate, RTT);
        path.round(rate);
        assert_eq!((path.bbr.state, path.bbr.full_bw_count), (State::Startup, 0), "{rate}");
    }
    path.in_flight = 2 * bytes_in(6_000_000, RTT);
    path.round(6_249_999);
    path.round(6_249_999);
    assert_eq!((path.bbr.state, path.bbr.full_bw_count), (State::Startup, 2));
    path.round(6_249_999);
    assert_eq!((path.bbr.state, path.bbr.full_bw_reached), (State::Drain, true));
    // 0.5 of the rate, less 1 %.
    assert_eq!(path.bbr.pacing_rate(), Some(percent(percent(6_249_999, 50), 99)));
}

#[test]
fn growth_by_a_quarter_begins_the_count_anew() {
    let mut path = Path::new();
    for rate in [1_000_000, 1_100_000, 1_200_000, 1_250_000, 1_300_000, 1_300_000] {
        path.round(rate);
        assert_eq!(path.bbr.state, State::Startup, "{rate}");
    }
    path.in_flight = BDP;
    path.round(1_300_000);
    assert_eq!(path.bbr.state, State::Drain);
}

/// Section 5.3.1.2: rounds in which the application had too little to send tell nothing.
#[test]
fn app_limited_rounds_do_not_end_startup() {
    let mut path = Path::new();
    path.is_app_limited = true;
    (0..20).for_each(|_| path.round(1_000_000));
    assert_eq!((path.bbr.state, path.bbr.full_bw_count), (State::Startup, 0));
}

/// Startup with `lost` bytes of 10,000,000 lost in a round, in `ranges`.
fn lossy(lost: u64, ranges: u32, rounds: u32) -> Path {
    let mut path = Path::new();
    path.in_flight = 10_000_000;
    path.round(1_000_000);
    path.round(2_000_000);
    let rate = |round| 4_000_000_u64 << round;
    for round in 0..rounds {
        for index in 0..ranges {
            path.lose(path.in_flight, lost / u64::from(ranges) * u64::from(index + 1));
        }
        path.now += RTT;
        path.ack(rate(round), path.bbr.delivered, 100_000, lost);
    }
    path
}

/// Section 5.3.1.3: a whole round in recovery, more than 2 %, in six places.
#[test]
fn startup_ends_with_high_loss() {
    assert_eq!(lossy(600_000, 6, 1).bbr.state, State::Drain);
    assert_eq!(lossy(600_000, 5, 1).bbr.state, State::Startup);
    assert_eq!(lossy(180_000, 6, 1).bbr.state, State::Startup);
    let path = lossy(600_000, 6, 1);
    // 4 MB/s of 100 ms, or what the round has delivered; the larger.
    let expected = bytes_in(2_000_000, RTT).max(200_000);
    assert_eq!((path.bbr.inflight_longterm, path.bbr.full_bw_reached), (expected, true));
    assert_eq!(path.bbr.undo.state, Some(State::Startup));
}

/// Ranges are counted, not segments.
#[test]
fn a_burst_of_losses_is_one_range() {
    let mut path = Path::new();
    for sn in 1..100 {
        // It is two more with each call.
        path.sn = 98 + sn;
        path.lose(100_000, u64::from(sn) * SMSS);
    }
    assert_eq!(path.bbr.loss_ranges_in_round, 1);
    path.sn = 300;
    path.lose(100_000, SMSS);
    assert_eq!(path.bbr.loss_ranges_in_round, 2);
}

/// Section 5.3.2: Drain lasts until what fits the path is in flight, and no more than three rounds.
#[test]
fn drain_ends_with_the_queue_or_after_three_rounds() {
    let mut path = Path::in_state(State::Drain);
    path.in_flight = BDP + 1;
    path.round(BW);
    assert_eq!(path.bbr.state, State::Drain);
    path.in_flight = BDP;
    path.round(BW);
    assert!(path.bbr.is_in_a_probe_bw_state(), "{:?}", path.bbr.state);

    let mut path = Path::in_state(State::Drain);
    path.in_flight = 2 * BDP;
    let rounds = (1..10).find(|_| {
        path.round(BW);
        path.bbr.state != State::Drain
    });
    assert_eq!(rounds, Some(4), "the round after the third");
}
