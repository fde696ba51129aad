//! What losses do, and what becomes of it if nothing was lost.

use super::*;

/// Sections 5.5.10.2: 2 % of 1,000,000 bytes are 20,000. Losses of 30,000 crossed that within the segment that makes
/// them 20,408: at inflight_prev + (0.02 inflight_prev - lost_prev) / 0.98.
#[test]
fn losses_of_a_probe_set_inflight_longterm() {
    let mut path = Path::in_state(State::Refill);
    path.round(BW);
    assert_eq!(path.bbr.state, State::Up);
    path.lose(BDP, 20_000);
    assert_eq!(
        (path.bbr.state, path.bbr.inflight_longterm),
        (State::Up, INFINITY),
        "2 % are no more than 2 %"
    );
    path.lose(BDP, 20_001);
    // inflight_prev = 999,000; lost_prev = 19,001; (19,980 - 19,001) / 0.98 = 998.
    assert_eq!((path.bbr.state, path.bbr.inflight_longterm), (State::Down, 999_998));
    assert!(path.bbr.prev_probe_too_high && !path.bbr.is_bw_probe_sample);
    assert_eq!(path.bbr.undo.state, Some(State::Up));
    // It reacts once for each probe.
    path.lose(BDP / 2, BDP / 2);
    assert_eq!(path.bbr.inflight_longterm, 999_998);
}

/// Section 5.5.10.2: no less than 0.7 of what is meant to be in flight.
#[test]
fn a_probe_cuts_by_beta_at_most() {
    let mut path = Path::in_state(State::Refill);
    path.round(BW);
    path.lose(100 * SMSS, 50 * SMSS);
    assert_eq!(path.bbr.inflight_longterm, BDP / 10 * 7);
    // What the application limited says nothing of the path.
    let mut path = Path::in_state(State::Refill);
    path.round(BW);
    path.is_app_limited = true;
    path.lose(100 * SMSS, 50 * SMSS);
    assert_eq!((path.bbr.inflight_longterm, path.bbr.state), (INFINITY, State::Down));
}

/// Section 5.5.10.3: at the end of a round with losses the bounds of the short term are 0.7 of what they were, or what was
/// delivered.
#[test]
fn losses_of_cruise_lower_the_short_term() {
    let mut path = Path::in_state(State::Cruise);
    path.bbr.bw_probe_wait = Duration::from_secs(100);
    path.round(BW);
    path.lose(BDP, SMSS);
    path.round(BW / 10 * 8);
    assert_eq!((path.bbr.bw_shortterm, path.bbr.bw), (BW, BW), "the round had a sample of the whole rate");
    path.lose(BDP, SMSS);
    path.round(BW / 10 * 8);
    // The window was twice what fits the path and a batch of all that a round delivers: 0.7 × 0.7 of 3,000,000.
    assert_eq!((path.bbr.bw_shortterm, path.bbr.inflight_shortterm), (8_000_000, 1_470_000));
    assert_eq!(path.bbr.bw, 8_000_000);
    path.lose(BDP, SMSS);
    path.round(BW / 10 * 2);
    path.lose(BDP, SMSS);
    path.round(BW / 10 * 2);
    assert_eq!(path.bbr.bw_shortterm, 5_600_000, "0.7 of 8,000,000");
    // Without losses it stays.
    path.round(BW / 10 * 2);
    let bw = path.bbr.bw_shortterm;
    path.round(BW / 10 * 2);
    assert_eq!(path.bbr.bw_shortterm, bw);
    // REFILL forgets it (section 5.3.3.3).
    path.bbr.start_probe_bw_refill();
    assert_eq!((path.bbr.bw_shortterm, path.bbr.inflight_shortterm), (INFINITY, INFINITY));
}

/// Section 5.5.10: while it probes, a loss does not touch the short term.
#[test]
fn losses_of_a_probe_leave_the_short_term() {
    let mut path = Path::in_state(State::Refill);
    path.lose(BDP, SMSS);
    path.round(BW);
    assert_eq!(path.bbr.state, State::Up);
    path.lose(BDP, SMSS);
    path.round(BW);
    assert_eq!(path.bbr.bw_shortterm, INFINITY);
}

/// Section 5.6.4.4: a timeout leaves one segment. A round trip without losses restores the window.
#[test]
fn a_timeout_leaves_one_segment() {
    let mut path = Path::in_state(State::Cruise);
    path.bbr.last_ack = Some(ms(0));
    path.bbr.prior_cwnd = 0;
    path.bbr.cwnd = 3 * BDP;
    path.now = ms(500);
    path.lose_with(BDP, SMSS, LossCause::Timeout);
    assert_eq!(path.bbr.window(), SMSS);
    path.round(BW);
    assert!(path.bbr.window() < 2 * BDP);
    path.bbr.reset_short_term_model();
    path.round(BW);
    // Twice what fits the path, and a batch of at least all that a round delivers.
    let window = path.bbr.window();
    assert!(window >= 3 * BDP, "{window}");
    // With ACKs since the segment was sent, it is a loss as any other.
    path.bbr.last_ack = Some(path.now + RTT);
    path.lose_with(BDP, SMSS, LossCause::Timeout);
    assert_eq!(path.bbr.window(), window);
}

/// Section 5.5.11: what losses have lowered is as before if there were none, and a probe begins anew.
#[test]
fn losses_that_were_none_are_undone() {
    let mut path = Path::in_state(State::Refill);
    path.bbr.inflight_longterm = 2 * BDP;
    path.round(BW);
    path.lose(BDP, 50_000);
    path.lose(BDP, 51_000);
    assert_eq!((path.bbr.state, path.bbr.inflight_longterm < BDP), (State::Down, true));
    path.bbr.on_spurious_loss(path.now, SMSS);
    assert_eq!(path.bbr.state, State::Down);
    path.bbr.on_spurious_loss(path.now, SMSS);
    assert_eq!((path.bbr.state, path.bbr.inflight_longterm), (State::Refill, 2 * BDP));
    assert!(!path.bbr.is_loss_in_round);
    path.bbr.state = State::Cruise;
    path.bbr.on_spurious_loss(path.now, SMSS);
    assert_eq!(path.bbr.state, State::Cruise, "it is undone once");
}

/// Section 5.5.11: so is the end of Startup.
#[test]
fn startup_goes_on_if_it_lost_nothing() {
    let mut path = Path::in_state(State::Startup);
    path.lose(BDP, SMSS);
    path.bbr.undo.state = Some(State::Startup);
    path.bbr.state = State::Cruise;
    path.bbr.on_spurious_loss(path.now, SMSS);
    assert_eq!((path.bbr.state, path.bbr.full_bw_reached), (State::Startup, false));
}

/// What was sent before the sampler counted tells nothing of what was in flight.
#[test]
fn a_loss_of_unknown_circumstances_ends_no_probe() {
    let mut path = Path::in_state(State::Refill);
    path.round(BW);
    path.lose(0, SMSS);
    assert_eq!((path.bbr.state, path.bbr.is_loss_in_round), (State::Up, true));
}

fn mark(path: &mut Path) {
    let in_flight = InFlight { bytes: path.in_flight, ..InFlight::default() };
    path.bbr.on_ecn(&Marked { now: path.now, packets: 1, sent_time: path.now, in_flight });
}

/// As a loss of more than 2 % would, but for what is undone.
#[test]
fn a_mark_lowers_the_bounds_and_ends_a_probe() {
    let mut path = Path::in_state(State::Cruise);
    mark(&mut path);
    path.round(BW);
    assert!(path.bbr.bw_shortterm < INFINITY && path.bbr.inflight_shortterm < INFINITY);
    let mut path = Path::in_state(State::Up);
    path.bbr.is_bw_probe_sample = true;
    mark(&mut path);
    assert_eq!((path.bbr.state, path.bbr.inflight_longterm), (State::Down, BDP));
    let mut path = Path::in_state(State::Startup);
    path.bbr.full_bw_reached = false;
    mark(&mut path);
    assert!(path.bbr.full_bw_reached && path.bbr.inflight_longterm < INFINITY);
    path.lose(SMSS, SMSS);
    assert!(!path.bbr.undo.on_spurious(SMSS), "there was congestion");
}
