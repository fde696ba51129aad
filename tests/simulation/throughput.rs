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
fn the_default_settings_fill_a_link() {
    // 12.5 MB/s (100 Mbit/s) over 40 ms, behind a queue that a window fits.
    const RATE: u64 = 12_500_000;
    let link = LinkSettings::delay(ms(20)).rate(RATE, 3_000_000);
    let mut simulation = Simulation::new(2, &KcpConfig::default(), &link);
    simulation.client().writer = Writer::bulk(50_000_000);
    let took = simulation.complete(60 * SECOND);
    let rate = 50_000_000.0 / took.as_secs_f64();
    // 24 bytes of 1,400 are headers.
    let ideal = RATE as f64 * 1_376.0 / 1_400.0;
    // The first round trips find out how much the link carries.
    assert!(rate >= 0.93 * ideal, "{rate:.0} B/s of {ideal:.0} over {took:?}");
    let stats = simulation.client().connection.stats();
    // Nothing is lost; a few ACKs come late while the queue of the path first fills.
    assert!(stats.recovery.resends() * 100 < stats.segments.push_sent, "{stats:?}");
    // With the queues of both directions full, ACKs take as long as data and some timeouts come too early.
    simulation.client().writer.total += 50_000_000;
    simulation.server().writer = Writer::bulk(50_000_000);
    let took = simulation.complete(60 * SECOND);
    let rate = 50_000_000.0 / took.as_secs_f64();
    assert!(rate >= 0.75 * ideal, "{rate:.0} B/s of {ideal:.0} over {took:?}");
}

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
    let mut simulation = Simulation::new(3, &KcpConfig::default(), &link);
    simulation.client().writer = Writer::bulk(20_000_000);
    let took = simulation.complete(120 * SECOND);
    let rate = 20_000_000.0 / took.as_secs_f64();
    let stats = simulation.client().connection.stats();
    assert!(rate >= 0.9 * RATE as f64, "{rate:.0} B/s of {RATE}; {stats:?}");
    assert!(stats.recovery.resends() * 10 < stats.segments.push_sent, "{stats:?}");
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
