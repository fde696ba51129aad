//! Paths that change while a session lives: another network, another route, less capacity.

use kcp9::{CongestionControl, KcpConfig, NoDelay, fec::AdaptiveFec};

use kcp9_simulator::{LinkSettings, Reader, Simulation, Writer, ms};

use super::{SECOND, controllers, kcp, none, rate, with};

/// A session on a link of 100 Mbit/s whose round trips take `before` and from 5 s on `after`: its share of the rate from 3 s
/// after that on, and the segments that it has resent, of those sent first.
fn behind_a_longer_route(config: &KcpConfig, before: u64, after: u64) -> [f64; 2] {
    const RATE: u64 = 12_500_000;
    let link = LinkSettings::delay(ms(before) / 2).rate(RATE, 1_000_000);
    let mut simulation = Simulation::new(1, config, &link);
    simulation.client().writer = Writer::bulk(u64::MAX);
    simulation.run_for(5 * SECOND);
    for link in simulation.ends.iter_mut().map(|end| &mut end.link) {
        link.settings.delay = ms(after) / 2;
    }
    simulation.run_for(3 * SECOND);
    let share = rate(&mut simulation, 5 * SECOND) / RATE as f64;
    let stats = simulation.client().connection.stats();
    [share, stats.recovery.resends() as f64 / stats.segments.push_sent as f64]
}

/// What a session does from 5 s on after its link became ten times slower.
struct Slower {
    /// Of the new rate.
    share: f64,
    /// Most bytes that waited for the link.
    waiting: u64,
    /// Segments resent since the change, of those sent first.
    resent: f64,
}

/// Bytes a second of the slower link.
const SLOW: u64 = 1_250_000;

fn on_a_link_that_becomes_slower(config: &KcpConfig) -> Slower {
    let link = LinkSettings::delay(ms(20)).rate(10 * SLOW, 1_000_000);
    let mut simulation = Simulation::new(1, config, &link);
    simulation.client().writer = Writer::bulk(u64::MAX);
    simulation.run_for(5 * SECOND);
    let before = simulation.client().connection.stats();
    simulation.client().link.settings.rate = Some(SLOW);
    simulation.run_for(5 * SECOND);
    simulation.client().link.take_longest_queue();
    let share = rate(&mut simulation, 10 * SECOND) / SLOW as f64;
    let after = simulation.client().connection.stats();
    Slower {
        share,
        waiting: simulation.client().link.take_longest_queue() as u64,
        resent: (after.recovery.resends() - before.recovery.resends()) as f64
            / (after.segments.push_sent - before.segments.push_sent) as f64,
    }
}

/// Another network, another route: what fitted the path before is no limit on the longer one.
#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn a_path_that_becomes_longer_is_filled_again_soon() {
    // The delay-based one empties the queue that its second startup has made, and on a path of 190 ms that takes some of the time.
    for (name, config, least) in
        [("default", KcpConfig::default(), 0.93), ("delay", with(CongestionControl::DelayBased), 0.86)]
    {
        for (before, after) in [(20, 150), (50, 120), (50, 200), (75, 190)] {
            let [share, resent] = behind_a_longer_route(&config, before, after);
            let what =
                format!("{name}, {before} to {after} ms: {share:.3} of the link's rate, {resent:.4} resent");
            // A second startup, that of the longer path, overflows the queue.
            assert!(share >= least && resent < 0.05, "{what}");
        }
    }
}

/// Timeouts that the longer round trips bring put its window back to one segment, and it grows by one a round trip.
#[test]
fn kcps_control_takes_a_longer_route_for_congestion() {
    for (before, after) in [(20, 150), (75, 190)] {
        let [share, resent] = behind_a_longer_route(&kcp(), before, after);
        let what = format!("{before} to {after} ms: {share:.3} of the link's rate, {resent:.4} resent");
        assert!((0.015..0.15).contains(&share) && resent <= 0.08, "{what}");
    }
}

/// The windows are as large as before; what limits the session is that they hold more than the path and its queue.
#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn without_a_controller_a_longer_route_is_no_congestion() {
    for (before, after) in [(20, 150), (75, 190)] {
        let [share, resent] = behind_a_longer_route(&none(), before, after);
        let what = format!("{before} to {after} ms: {share:.3} of the link's rate, {resent:.4} resent");
        assert!(share >= 0.4 && resent <= 0.8, "{what}");
    }
}

/// What makes round trips longer here is the session's own queue, and it goes away.
#[test]
fn a_link_that_becomes_slower_is_not_taken_for_a_longer_one() {
    for (name, config) in [("default", KcpConfig::default()), ("delay", with(CongestionControl::DelayBased))]
    {
        let Slower { share, waiting, resent } = on_a_link_that_becomes_slower(&config);
        assert!(share >= 0.95, "{name}: {share:.3} of the rate");
        assert!(waiting < SLOW / 25, "{name}: {waiting} bytes wait longer than a round trip");
        // Another startup would overflow the queue.
        assert!(resent == 0.0, "{name}: {resent:.4} resent");
    }
}

#[test]
fn kcps_control_keeps_the_queue_of_a_link_that_becomes_slower_short() {
    let Slower { share, waiting, resent } = on_a_link_that_becomes_slower(&kcp());
    let what = format!("{share:.3} of the rate, {waiting} bytes wait, {resent:.4} resent");
    assert!(share >= 0.12 && waiting < SLOW / 25 && resent <= 0.15, "{what}");
}

#[test]
fn without_a_controller_the_queue_of_a_link_that_becomes_slower_stays_full() {
    let Slower { share, waiting, resent } = on_a_link_that_becomes_slower(&none());
    let what = format!("{share:.3} of the rate, {waiting} bytes wait, {resent:.4} resent");
    assert!(share >= 0.7 && waiting >= 990_000 && resent <= 2.0, "{what}");
}

/// A longer route is no queue, and its losses call for parity.
#[test]
fn adaptive_fec_does_not_take_a_longer_route_for_a_full_queue() {
    let without = KcpConfig::builder().nodelay(NoDelay::FAST3).build().unwrap();
    for (name, config) in controllers().into_iter().chain([("none", without)]) {
        let config =
            config.to_builder().fec(10, 10).fec_adaptive(Some(AdaptiveFec::default())).build().unwrap();
        let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(10)));
        simulation.client().writer = Writer { pace: Some(ms(5)), ..Writer::messages(u64::MAX >> 10, 200) };
        simulation.server().reader = Reader::messages();
        simulation.run_for(20 * SECOND);
        assert_eq!(
            simulation.client().connection.stats().fec_state.current_parity,
            0,
            "{name}: nothing is lost"
        );
        for link in simulation.ends.iter_mut().map(|end| &mut end.link) {
            link.settings.delay = ms(75);
            link.settings.loss = 0.1;
        }
        simulation.run_for(60 * SECOND);
        let stats = simulation.client().connection.stats();
        let parity = stats.fec_state.current_parity;
        assert!(parity >= 4, "{name}: {parity} parity packets; {stats:?}");
        assert!((ms(150)..ms(160)).contains(&stats.path.min_rtt), "{name}: {stats:?}");
    }
}
