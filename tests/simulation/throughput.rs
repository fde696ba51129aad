//! Full use of windows and links.

use std::time::Duration;

use kcp9::{KcpConfig, NoDelay};

use kcp9_simulator::{CLIENT, LinkSettings, Reader, Simulation, Writer, ms};

const SECOND: Duration = Duration::from_secs(1);

/// Small messages over 200 ms, with a window of 20,000 of them, for `time` behind a warm-up.
fn many_small_segments_in_flight(time: Duration) {
    const WINDOW: u32 = 20_000;
    const MESSAGE: u64 = 16;
    let config = KcpConfig::builder()
        .nodelay(NoDelay::FAST3)
        .send_window(WINDOW)
        .recv_window(2 * WINDOW)
        .stream(false)
        .build()
        .unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(100)));
    simulation.client().writer = Writer { sizes: 16..=16, ..Writer::bulk(u64::MAX) };
    simulation.server().reader = Reader::eager();
    simulation.run_for(2 * SECOND);
    let stats = simulation.client().connection.stats();
    assert_eq!(stats.queues.in_flight, WINDOW);
    let before = simulation.flows[CLIENT].read;
    // The first flight may be resent: the RTO is 200 ms before the first sample, and so is the round trip.
    let resends = stats.recovery.resends();
    simulation.run_for(time);
    let messages = (simulation.flows[CLIENT].read - before) / MESSAGE;
    let rate = messages as f64 / time.as_secs_f64();
    let ideal = f64::from(WINDOW) / 0.2;
    assert!(rate >= 0.95 * ideal, "{rate:.0} messages/s of {ideal:.0}");
    assert_eq!(simulation.client().connection.stats().recovery.resends(), resends);
}

#[test]
fn twenty_thousand_small_segments_in_flight_stay_at_full_rate() {
    many_small_segments_in_flight(4 * SECOND);
}

#[test]
#[ignore = "60 million segments: cargo test --release --test simulation -- --ignored ten_minutes"]
fn twenty_thousand_small_segments_in_flight_stay_at_full_rate_for_ten_minutes() {
    many_small_segments_in_flight(600 * SECOND);
}

#[test]
fn the_round_trip_is_measured_on_a_clean_path() {
    let mut simulation = Simulation::new(4, &KcpConfig::default(), &LinkSettings::delay(ms(150)));
    simulation.client().writer = Writer::bulk(1_000_000);
    simulation.complete(60 * SECOND);
    let stats = simulation.client().connection.stats();
    // 300 ms, and the 10 ms that an ACK may wait.
    assert!(stats.path.min_rtt >= ms(300) && stats.path.rtt <= ms(310), "{stats:?}");
    // The RTO before the first sample, 200 ms, resends what is on its way then; the last segment is a thin stream, whose RTO does
    // not wait for an ACK that is held back for the first time; and nothing else.
    assert!(stats.recovery.resends() <= 32, "{stats:?}");
}
