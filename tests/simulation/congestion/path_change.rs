//! Paths that change while a session lives: another network, another route, less capacity.

use kcp9::{KcpConfig, NoDelay, fec::AdaptiveFec};

use kcp9_simulator::{LinkSettings, Reader, Simulation, Writer, ms};

use super::{SECOND, controllers, rate};

/// Another network, another route: what fitted the path before is no limit on the longer one.
#[test]
fn a_path_that_becomes_longer_is_filled_again_soon() {
    const RATE: u64 = 12_500_000;
    for (before, after) in [(20, 150), (50, 120), (50, 200), (75, 190)] {
        let link = LinkSettings::delay(ms(before) / 2).rate(RATE, 1_000_000);
        let mut simulation = Simulation::new(1, &KcpConfig::default(), &link);
        simulation.client().writer = Writer::bulk(u64::MAX);
        simulation.run_for(5 * SECOND);
        for link in simulation.ends.iter_mut().map(|end| &mut end.link) {
            link.settings.delay = ms(after) / 2;
        }
        simulation.run_for(3 * SECOND);
        let rate = rate(&mut simulation, 5 * SECOND) / RATE as f64;
        assert!(rate >= 0.93, "{before} to {after} ms: {rate:.3} of the link's rate");
        // A second startup, that of the longer path, overflows the queue.
        let stats = simulation.client().connection.stats();
        assert!(
            stats.recovery.resends() * 20 < stats.segments.push_sent,
            "{before} to {after} ms: {stats:?}"
        );
    }
}

/// What makes round trips longer here is the session's own queue, and it goes away.
#[test]
fn a_link_that_becomes_slower_is_not_taken_for_a_longer_one() {
    const RATE: u64 = 1_250_000;
    let link = LinkSettings::delay(ms(20)).rate(10 * RATE, 1_000_000);
    let mut simulation = Simulation::new(1, &KcpConfig::default(), &link);
    simulation.client().writer = Writer::bulk(u64::MAX);
    simulation.run_for(5 * SECOND);
    let resends = simulation.client().connection.stats().recovery.resends();
    simulation.client().link.settings.rate = Some(RATE);
    simulation.run_for(5 * SECOND);
    simulation.client().link.take_longest_queue();
    let rate = rate(&mut simulation, 10 * SECOND);
    assert!(rate >= 0.95 * RATE as f64, "{rate:.0} B/s of {RATE}");
    let waiting = simulation.client().link.take_longest_queue() as u64;
    assert!(waiting < RATE / 25, "{waiting} bytes wait longer than a round trip");
    // Another startup would overflow the queue.
    let stats = simulation.client().connection.stats();
    assert_eq!(stats.recovery.resends(), resends, "{stats:?}");
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
