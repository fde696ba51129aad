//! Links that lose packets, at random or because their queue is short.

use kcp9::KcpConfig;

use kcp9_simulator::{CLIENT, LinkSettings, Simulation, Writer, ms};

use super::{SECOND, controllers};

/// A link of 100 Mbit/s and 50 ms that loses 1 % each way, behind queues that hold a tenth of what is under way without
/// any, as much, and ten times as much.
#[test]
fn the_default_settings_fill_a_lossy_link_but_not_its_queue() {
    const RATE: u64 = 12_500_000;
    const UNDER_WAY: usize = RATE as usize / 20;
    for queue in [UNDER_WAY / 10, UNDER_WAY, 10 * UNDER_WAY] {
        for seed in 0..4 {
            let link = LinkSettings::delay(ms(25)).rate(RATE, queue).loss(0.01);
            let mut simulation = Simulation::new(seed, &KcpConfig::default(), &link);
            simulation.client().writer = Writer::bulk(u64::MAX);
            simulation.run_for(2 * SECOND);
            let (first, startup) =
                (simulation.flows[CLIENT].read, simulation.client().link.take_longest_queue());
            simulation.run_for(8 * SECOND);
            let read = simulation.flows[CLIENT].read;
            let later = simulation.client().link.take_longest_queue();
            // Of payload; headers take 1.7 %, and what is lost is sent again.
            let (share, steady) =
                (read as f64 / (10 * RATE) as f64, (read - first) as f64 / (8 * RATE) as f64);
            let what = format!(
                "seed {seed}, queue of {queue}: {share:.3} of the rate, {steady:.3} behind the start; \
                 {startup} bytes waited, then {later}"
            );
            // Startup doubles: before it knows, as much waits as is under way, and what it sends for the round trip after.
            assert!(startup <= 3 * UNDER_WAY && later <= UNDER_WAY / 3, "{what}");
            assert!(steady >= 0.92 && share >= 0.88, "{what}");
            assert!(share >= 0.92 || queue < UNDER_WAY, "{what}");
        }
    }
}

#[test]
fn congestion_control_keeps_losses_low_on_a_link_with_a_short_queue() {
    const RATE: u64 = 2_000_000;
    let link = LinkSettings::delay(ms(20)).rate(RATE, 100_000);
    for (name, config) in controllers() {
        let mut simulation = Simulation::new(3, &config, &link);
        simulation.client().writer = Writer::bulk(20_000_000);
        let took = simulation.complete(120 * SECOND);
        let rate = 20_000_000.0 / took.as_secs_f64();
        let stats = simulation.client().connection.stats();
        assert!(rate >= 0.9 * RATE as f64, "{name}: {rate:.0} B/s of {RATE}; {stats:?}");
        assert!(stats.recovery.resends() * 10 < stats.segments.push_sent, "{name}: {stats:?}");
    }
}
