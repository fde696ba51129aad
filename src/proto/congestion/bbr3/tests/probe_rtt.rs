//! ProbeRTT.

use super::*;

/// Sections 2.14 and 5.3.4: after five seconds without a shorter round trip, 200 ms with half of what fits the path in
/// flight, and then CRUISE with the window from before.
#[test]
fn the_path_is_emptied_every_five_seconds() {
    let mut path = Path::in_state(State::Cruise);
    path.bbr.bw_probe_wait = Duration::from_secs(100);
    path.bbr.rounds_since_probe_up = 0;
    path.bbr.cwnd = 2 * BDP;
    while path.bbr.state == State::Cruise {
        path.round(BW);
        path.bbr.rounds_since_probe_up = 0;
    }
    assert_eq!((path.bbr.state, path.now), (State::ProbeRtt, ms(5_100)));
    assert_eq!(path.bbr.window(), BDP / 2);
    // The time counts from when the path is empty.
    path.in_flight = BDP / 2 + 1;
    path.round(BW);
    assert_eq!(path.bbr.probe_rtt_done_stamp, None);
    path.in_flight = BDP / 2;
    path.round(BW / 2);
    assert_eq!(path.bbr.probe_rtt_done_stamp, Some(path.now + Duration::from_millis(200)));
    path.round(BW / 2);
    path.round(BW / 2);
    assert_eq!((path.bbr.state, path.bbr.max_bw), (State::ProbeRtt, BW), "200 ms have to pass");
    path.round(BW / 2);
    assert_eq!(path.bbr.state, State::Cruise);
    assert!(path.bbr.window() >= 2 * BDP - SMSS, "{}", path.bbr.window());
    assert_eq!(path.bbr.probe_rtt_min_stamp, path.now, "the next is five seconds later");
}

/// Section 5.3.4.3: a shorter round trip puts it off.
#[test]
fn shorter_round_trips_put_it_off() {
    let mut path = Path::in_state(State::Cruise);
    path.bbr.bw_probe_wait = Duration::from_secs(100);
    for _ in 0..200 {
        path.rtt -= Duration::from_micros(10);
        path.round(BW);
        path.bbr.rounds_since_probe_up = 0;
        assert_eq!(path.bbr.state, State::Cruise);
        assert_eq!(path.bbr.min_rtt, Some(path.rtt));
    }
}

/// Section 5.3.4.3: min_rtt is of the last ten seconds, the shortest of those that ProbeRTT and the time before it saw.
#[test]
fn the_minimum_is_that_of_ten_seconds() {
    let mut path = Path::in_state(State::Cruise);
    path.rtt = RTT + RTT / 5;
    let mut longest = RTT;
    while path.now < ms(9_900) {
        path.round(BW);
        assert_eq!(path.bbr.min_rtt, Some(RTT), "{:?}", path.now);
    }
    while path.now < ms(15_000) {
        path.in_flight = BDP / 2;
        path.round(BW);
        longest = longest.max(path.bbr.min_rtt.unwrap());
    }
    assert_eq!(longest, path.rtt);
}

/// Section 5.4: an idle session does not empty the path, which is empty.
#[test]
fn a_pause_is_as_good() {
    let mut path = Path::in_state(State::Cruise);
    path.now = ms(7_000);
    let in_flight = InFlight { bytes: SMSS, ..InFlight::default() };
    path.bbr.on_sent(&Sent { now: path.now, bytes: SMSS, in_flight, ..Sent::default() });
    path.in_flight = 0;
    path.round(BW);
    assert_ne!(path.bbr.state, State::ProbeRtt);
    assert_eq!(path.bbr.probe_rtt_min_stamp, path.now);
}
