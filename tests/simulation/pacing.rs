//! What congestion control must not do: slow down, or stop, what the path would carry.

use std::time::Duration;

use kcp9::{KcpConfig, NoDelay, proto::Instant};

use kcp9_simulator::{CLIENT, LinkSettings, Simulation, Writer, ms};

const SECOND: Duration = Duration::from_secs(1);

/// Bytes a second that the server reads over `time`.
fn rate(simulation: &mut Simulation, time: Duration) -> f64 {
    let before = simulation.flows[CLIENT].read;
    simulation.run_for(time);
    (simulation.flows[CLIENT].read - before) as f64 / time.as_secs_f64()
}

#[test]
fn small_messages_keep_their_rate() {
    for size in [1, 32, 200] {
        let config = KcpConfig::builder().stream(false).build().unwrap();
        let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(20)));
        simulation.client().writer = Writer { sizes: size..=size, ..Writer::bulk(u64::MAX) };
        let first = rate(&mut simulation, 2 * SECOND);
        let later = rate(&mut simulation, 10 * SECOND);
        assert!(later >= 0.9 * first, "{size} bytes: {first:.0} B/s, then {later:.0}");
    }
}

#[test]
fn one_small_write_a_round_trip_goes_on_for_ever() {
    let config = KcpConfig::builder().ack_no_delay(true).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(25)));
    simulation.client().writer = Writer { sizes: 1..=1, pace: Some(ms(50)), ..Writer::bulk(u64::MAX) };
    let rate = rate(&mut simulation, 600 * SECOND);
    assert!(rate >= 19.9, "{rate} B/s of 20");
    let wakeups = simulation.client().activity.wakeups;
    assert!(wakeups < 100, "{wakeups} wakeups");
}

#[test]
fn a_few_requests_do_not_slow_down_the_transfer_behind_them() {
    let link = LinkSettings::delay(ms(50)).rate(12_500_000, 1_500_000);
    let took = [0, 4, 30].map(|requests| {
        let mut simulation = Simulation::new(1, &KcpConfig::default(), &link);
        simulation.client().writer =
            Writer { sizes: 100..=100, pace: Some(ms(150)), ..Writer::bulk(100 * requests) };
        simulation.run_for(6 * SECOND);
        simulation.client().writer = Writer::bulk(100 * requests + 10_000_000);
        simulation.complete(60 * SECOND)
    });
    assert!(took.iter().all(|time| *time <= took[0] + ms(200)), "{took:?}");
}

#[test]
fn congestion_control_turned_on_later_starts_without_debts() {
    let config = KcpConfig::builder().nodelay(NoDelay::FAST3).build().unwrap();
    let link = LinkSettings::delay(ms(20)).rate(12_500_000, 4_000_000);
    let mut simulation = Simulation::new(1, &config, &link);
    simulation.client().writer = Writer::bulk(u64::MAX);
    let off = rate(&mut simulation, 8 * SECOND);
    let nodelay = NoDelay { nc: false, ..NoDelay::FAST3 };
    simulation.update_settings(CLIENT, |settings| settings.nodelay = nodelay).unwrap();
    let on = rate(&mut simulation, 8 * SECOND);
    assert!(on >= 0.9 * off, "{off:.0} B/s, then {on:.0}");
}

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

#[test]
fn frequent_calls_do_not_starve_a_slow_path() {
    let link = LinkSettings::delay(ms(50)).rate(60_000, 200_000);
    let mut simulation = Simulation::new(1, &KcpConfig::default(), &link);
    simulation.client().writer = Writer::bulk(u64::MAX);
    simulation.run_for(20 * SECOND);
    let sent = simulation.client().connection.stats().segments.push_sent;
    let end = simulation.now + 5 * SECOND;
    while simulation.now < end {
        simulation.run_for(Duration::from_micros(10));
    }
    let sent = simulation.client().connection.stats().segments.push_sent - sent;
    assert!(sent >= 150, "{sent} segments in 5 s");
}

#[test]
fn one_lost_probe_is_no_dead_peer() {
    let mut simulation = Simulation::new(1, &KcpConfig::default(), &LinkSettings::delay(ms(50)));
    simulation.client().writer = Writer::bulk(u64::MAX);
    simulation.server().reader.not_before = Instant::from_millis(3_600_000);
    simulation.run_for(100 * SECOND);
    let mut left = 1;
    simulation.client().link.lose_if(move |_, _| std::mem::take(&mut left) > 0);
    simulation.run_for(300 * SECOND);
    assert_eq!(simulation.client().connection.close_reason(), None);
}
