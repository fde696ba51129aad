//! Pacing spreads a stream over time and must not slow it down.

use std::time::Duration;

use kcp9::NoDelay;

use kcp9_simulator::{CLIENT, LinkSettings, Simulation, Writer, ms};

use super::{SECOND, controllers, rate};

#[test]
#[ignore = "seconds: cargo test --release --test simulation pacing -- --ignored"]
fn small_messages_keep_their_rate() {
    for (size, (name, config)) in
        [1, 32, 200].into_iter().flat_map(|size| controllers().map(|case| (size, case)))
    {
        let config = config.to_builder().stream(false).build().unwrap();
        let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(20)));
        simulation.client().writer = Writer { sizes: size..=size, ..Writer::bulk(u64::MAX) };
        let first = rate(&mut simulation, 2 * SECOND);
        let later = rate(&mut simulation, 10 * SECOND);
        assert!(later >= 0.9 * first, "{name}, {size} bytes: {first:.0} B/s, then {later:.0}");
    }
}

#[test]
fn one_small_write_a_round_trip_goes_on_for_ever() {
    for (name, config) in controllers() {
        let config = config.to_builder().ack_no_delay(true).build().unwrap();
        let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(25)));
        simulation.client().writer = Writer { sizes: 1..=1, pace: Some(ms(50)), ..Writer::bulk(u64::MAX) };
        let rate = rate(&mut simulation, 600 * SECOND);
        assert!(rate >= 19.9, "{name}: {rate} B/s of 20");
        let wakeups = simulation.client().activity.wakeups;
        assert!(wakeups < 100, "{name}: {wakeups} wakeups");
    }
}

#[test]
fn a_few_requests_do_not_slow_down_the_transfer_behind_them() {
    let link = LinkSettings::delay(ms(50)).rate(12_500_000, 1_500_000);
    for (name, config) in controllers() {
        let took = [0, 4, 30].map(|requests| {
            let mut simulation = Simulation::new(1, &config, &link);
            simulation.client().writer =
                Writer { sizes: 100..=100, pace: Some(ms(150)), ..Writer::bulk(100 * requests) };
            simulation.run_for(6 * SECOND);
            simulation.client().writer = Writer::bulk(100 * requests + 10_000_000);
            simulation.complete(60 * SECOND)
        });
        assert!(took.iter().all(|time| *time <= took[0] + ms(200)), "{name}: {took:?}");
    }
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation pacing -- --ignored"]
fn congestion_control_turned_on_later_starts_without_debts() {
    let link = LinkSettings::delay(ms(20)).rate(12_500_000, 4_000_000);
    for (name, config) in controllers() {
        let config = config.to_builder().nodelay(NoDelay::FAST3).build().unwrap();
        let mut simulation = Simulation::new(1, &config, &link);
        simulation.client().writer = Writer::bulk(u64::MAX);
        let off = rate(&mut simulation, 8 * SECOND);
        assert_eq!(simulation.client().connection.stats().path.congestion_window, u32::MAX, "{name}");
        let nodelay = NoDelay { nc: false, ..NoDelay::FAST3 };
        simulation.update_settings(CLIENT, |settings| settings.nodelay = nodelay).unwrap();
        let on = rate(&mut simulation, 8 * SECOND);
        assert!(on >= 0.9 * off, "{name}: {off:.0} B/s, then {on:.0}");
        assert!(simulation.client().connection.stats().path.congestion_window < u32::MAX, "{name}");
    }
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation pacing -- --ignored"]
fn frequent_calls_do_not_starve_a_slow_path() {
    let link = LinkSettings::delay(ms(50)).rate(60_000, 200_000);
    for (name, config) in controllers() {
        let mut simulation = Simulation::new(1, &config, &link);
        simulation.client().writer = Writer::bulk(u64::MAX);
        simulation.run_for(20 * SECOND);
        let sent = simulation.client().connection.stats().segments.push_sent;
        let end = simulation.now + 2 * SECOND;
        while simulation.now < end {
            simulation.run_for(Duration::from_micros(10));
        }
        let sent = simulation.client().connection.stats().segments.push_sent - sent;
        assert!(sent >= 60, "{name}: {sent} segments in 2 s");
    }
}
