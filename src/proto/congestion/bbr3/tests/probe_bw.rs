//! The cycle of ProbeBW.

use super::*;

/// Sections 5.3.3.1 to 5.3.3.4: DOWN until the queue is gone, CRUISE until it is time, REFILL for a round, UP.
#[test]
fn the_phases_follow_each_other() {
    let mut path = Path::in_state(State::Cruise);
    path.bbr.start_probe_bw_down(path.now);
    path.in_flight = BDP + 1;
    path.round(BW);
    path.round(BW);
    assert_eq!(path.bbr.state, State::Down, "a queue");
    path.in_flight = BDP;
    path.round(BW);
    assert_eq!(path.bbr.state, State::Cruise);
    let began = path.bbr.cycle_stamp;
    while path.bbr.state == State::Cruise {
        path.round(BW);
    }
    let waited = path.now - began;
    let (least, most) = (Duration::from_secs(2), Duration::from_secs(3) + RTT);
    assert!((least..=most).contains(&waited), "{waited:?}");
    assert_eq!((path.bbr.state, path.bbr.ack_phase), (State::Refill, AckPhase::Refilling));
    path.round(BW);
    assert_eq!((path.bbr.state, path.bbr.is_bw_probe_sample), (State::Up, true));
    // Section 5.3.3.7: three rounds without growth.
    let rounds = (1..10).find(|_| {
        path.round(BW);
        path.bbr.state != State::Up
    });
    assert_eq!((rounds, path.bbr.state), (Some(3), State::Down));
}

/// Section 5.3.3.7: an UP that finds more goes on.
#[test]
fn up_goes_on_while_the_rate_grows() {
    let mut path = Path::in_state(State::Refill);
    path.round(BW);
    assert_eq!(path.bbr.state, State::Up);
    let mut rate = BW;
    for _ in 0..5 {
        rate = rate / 100 * 126;
        path.round(rate);
        assert_eq!(path.bbr.state, State::Up);
    }
    assert_eq!(path.bbr.max_bw, rate);
}

/// Section 5.3.3.8: no more rounds than Reno would take to grow by what is in flight, up to 63.
#[test]
fn short_paths_probe_as_often_as_reno_would() {
    for (segments, expected) in [(20, 20), (200, 63)] {
        let mut path = Path::in_state(State::Cruise);
        path.rtt = Duration::from_millis(1);
        path.bbr.min_rtt = Some(path.rtt);
        let rate = segments * SMSS * 1_000;
        path.bbr.max_bw = rate;
        path.bbr.bw = rate;
        path.in_flight = segments * SMSS;
        path.bbr.cwnd = 2 * path.in_flight;
        path.bbr.rounds_since_probe_up = 0;
        let rounds = (1..100).find(|_| {
            path.round(rate);
            path.bbr.state == State::Refill
        });
        assert_eq!(rounds, Some(expected));
    }
}

/// Section 5.3.3.8: the waits of sessions differ by up to a second, and by a round.
#[test]
fn waits_are_random() {
    let waits: alloc::collections::BTreeSet<_> = (0..20)
        .map(|seed| {
            let mut bbr = Bbr3::new(ms(seed), SMSS as usize);
            bbr.start_probe_bw_down(ms(1_000));
            assert!(bbr.rounds_since_probe_up <= 1);
            let wait = bbr.bw_probe_wait;
            assert!((Duration::from_secs(2)..Duration::from_secs(3)).contains(&wait));
            wait
        })
        .collect();
    assert_eq!(waits.len(), 20);
}

/// Section 5.3.3.1: 15 % of inflight_longterm stay free in CRUISE.
#[test]
fn down_leaves_headroom() {
    let mut path = Path::in_state(State::Down);
    path.bbr.inflight_longterm = 800_000;
    path.in_flight = 680_001;
    path.round(BW);
    assert_eq!(path.bbr.state, State::Down);
    path.in_flight = 680_000;
    path.round(BW);
    assert_eq!((path.bbr.state, path.bbr.inflight_with_headroom()), (State::Cruise, 680_000));
}

/// Section 5.3.3.5: inflight_longterm grows by 1, 2, 4, ... segments a round while the window is full.
#[test]
fn up_raises_inflight_longterm_ever_faster() {
    let mut path = Path::in_state(State::Refill);
    path.bbr.inflight_longterm = BDP;
    path.in_flight = 900_000;
    path.bbr.cwnd = BDP;
    path.round(BW);
    assert_eq!(path.bbr.state, State::Up);
    let mut grown = alloc::vec::Vec::new();
    for _ in 0..5 {
        path.fill();
        let before = path.bbr.inflight_longterm;
        // A round of BDP in ten ACKs.
        let prior = path.bbr.delivered;
        for index in 0..10 {
            path.now += RTT / 10;
            path.fill();
            let prior_delivered = if index == 9 { prior } else { 0 };
            path.ack(BW, prior_delivered, path.bbr.cwnd / 10, 0);
        }
        grown.push((path.bbr.inflight_longterm - before) / SMSS);
    }
    assert_eq!(grown, [1, 2, 4, 8, 16]);
    assert_eq!(
        path.bbr.state,
        State::Up,
        "the rate is limited by inflight_longterm: the path may carry more"
    );
}

/// Section 5.3.3: a sample with more in flight and little loss raises inflight_longterm.
#[test]
fn what_was_in_flight_without_losses_raises_inflight_longterm() {
    let mut path = Path::in_state(State::Cruise);
    path.bbr.inflight_longterm = 700_000;
    path.in_flight = 800_000;
    path.ack(BW, path.bbr.delivered, SMSS, 16_001);
    assert_eq!(path.bbr.inflight_longterm, 700_000, "more than 2 %");
    path.ack(BW, path.bbr.delivered, SMSS, 16_000);
    assert_eq!(path.bbr.inflight_longterm, 800_000);
}

/// Section 5.3.3.6: behind a probe that went too high, the next ends at inflight_longterm, and if it loses nothing
/// another follows at once.
#[test]
fn a_probe_behind_one_that_was_too_high_is_brief() {
    let mut path = Path::in_state(State::Refill);
    path.bbr.inflight_longterm = BDP;
    path.bbr.prev_probe_too_high = true;
    path.in_flight = BDP - 1;
    path.round(BW);
    path.round(BW);
    assert_eq!(path.bbr.state, State::Up);
    path.in_flight = BDP;
    path.ack(BW, 0, SMSS, 0);
    assert_eq!((path.bbr.state, path.bbr.prev_probe_precautionary), (State::Down, true));
    path.in_flight = 2 * BDP;
    path.round(BW);
    assert_eq!((path.bbr.state, path.bbr.prev_probe_precautionary), (State::Refill, false));
}
