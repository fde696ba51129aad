//! Links that lose packets, at random or because their queue is short.

use std::{ops::Range, time::Duration};

use kcp9::{CongestionControl, KcpConfig};

use kcp9_simulator::{CLIENT, LinkSettings, Simulation, Writer, ms};

use super::{SECOND, controllers, kcp, none, with};

const RATE: u64 = 12_500_000;
/// What is under way on [`link`] without a queue.
const UNDER_WAY: usize = RATE as usize / 20;

/// 100 Mbit/s and 50 ms, 1 % of all packets lost each way, and `queue` bytes that may wait.
fn link(queue: usize) -> LinkSettings {
    LinkSettings::delay(ms(25)).rate(RATE, queue).loss(0.01)
}

/// A link of 100 Mbit/s and 50 ms that loses 1 % each way, behind queues that hold a tenth of what is under way without
/// any, as much, and ten times as much.
fn fills_a_lossy_link_but_not_its_queue(seeds: Range<u64>) {
    for queue in [UNDER_WAY / 10, UNDER_WAY, 10 * UNDER_WAY] {
        for seed in seeds.clone() {
            let mut simulation = Simulation::new(seed, &KcpConfig::default(), &link(queue));
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
#[ignore = "seconds: cargo test --release --test simulation lossy -- --ignored"]
fn the_default_settings_fill_a_lossy_link_but_not_its_queue() {
    fills_a_lossy_link_but_not_its_queue(0..1);
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation lossy -- --ignored"]
fn the_default_settings_fill_a_lossy_link_but_not_its_queue_with_any_seed() {
    fills_a_lossy_link_but_not_its_queue(1..8);
}

/// What a session does on [`link`] for `time`.
struct Outcome {
    /// Of the link's rate, as payload.
    share: f64,
    /// Most that waited for the link, of what is under way without a queue.
    queue: f64,
    /// Segments resent, of those sent first.
    resent: f64,
}

fn run(seed: u64, config: &KcpConfig, queue: usize, time: Duration) -> Outcome {
    let mut simulation = Simulation::new(seed, config, &link(queue));
    simulation.client().writer = Writer::bulk(u64::MAX);
    simulation.run_for(time);
    let stats = simulation.client().connection.stats();
    Outcome {
        share: simulation.flows[CLIENT].read as f64 / (RATE as f64 * time.as_secs_f64()),
        queue: simulation.client().link.take_longest_queue() as f64 / UNDER_WAY as f64,
        resent: stats.recovery.resends() as f64 / stats.segments.push_sent as f64,
    }
}

/// It halves its window at each loss, and grows by one segment a round trip: at 1 % and 50 ms that is a twentieth of this link.
#[test]
fn kcps_control_takes_losses_for_congestion() {
    for queue in [UNDER_WAY / 10, UNDER_WAY, 10 * UNDER_WAY] {
        for seed in 0..4 {
            let Outcome { share, queue: waiting, resent } = run(seed, &kcp(), queue, 10 * SECOND);
            let what = format!(
                "seed {seed}, queue of {queue}: {share:.3} of the rate, queue {waiting:.2}, {resent:.4} resent"
            );
            assert!((0.03..0.12).contains(&share), "{what}");
            if queue < UNDER_WAY {
                // A burst of its beginning overflows the queue. All of that times out, and no window limits resends.
                assert!(resent <= 3.0, "{what}");
            } else {
                assert!(waiting <= 0.6 && resent <= 0.03, "{what}");
            }
        }
    }
}

/// 1 % is within what it tolerates, 5 % are not.
#[test]
fn bbr3_tolerates_two_percent() {
    for (loss, shares) in [(0.01, 0.75..1.0), (0.05, 0.02..0.3)] {
        let link = LinkSettings::delay(ms(25)).rate(RATE, UNDER_WAY).loss(loss);
        let mut simulation = Simulation::new(0, &with(CongestionControl::Bbr3), &link);
        simulation.client().writer = Writer::bulk(u64::MAX);
        simulation.run_for(10 * SECOND);
        let share = simulation.flows[CLIENT].read as f64 / (10 * RATE) as f64;
        assert!(shares.contains(&share), "{loss}: {share:.3} of the rate");
    }
}

/// As KCP's: at 1 % and 50 ms CUBIC is in its Reno-friendly region.
#[test]
fn cubic_takes_losses_for_congestion() {
    for seed in 0..2 {
        let config = with(CongestionControl::Cubic);
        let Outcome { share, queue: waiting, resent } = run(seed, &config, UNDER_WAY, 10 * SECOND);
        let what = format!("seed {seed}: {share:.3} of the rate, queue {waiting:.2}, {resent:.4} resent");
        assert!((0.02..0.12).contains(&share) && resent <= 0.03, "{what}");
    }
}

/// Nothing slows down for a loss. What the windows hold beyond the link waits, or is lost and sent again.
#[test]
fn without_a_controller_a_lossy_link_is_filled_if_its_queue_holds_the_window() {
    for (queue, least, most_resent) in
        [(UNDER_WAY / 10, 0.04, 20.0), (UNDER_WAY, 0.6, 1.3), (10 * UNDER_WAY, 0.6, 0.02)]
    {
        for seed in 0..2 {
            let Outcome { share, queue: waiting, resent } = run(seed, &none(), queue, 2 * SECOND);
            let what = format!(
                "seed {seed}, queue of {queue}: {share:.3} of the rate, queue {waiting:.2}, {resent:.4} resent"
            );
            assert!(share >= least && resent <= most_resent, "{what}");
            // The window less what is under way, or all that fits.
            assert!(waiting >= 3.0_f64.min(0.97 * queue as f64 / UNDER_WAY as f64), "{what}");
        }
    }
}

#[test]
fn without_a_controller_a_short_queue_loses_most_of_what_is_sent() {
    const RATE: u64 = 2_000_000;
    let link = LinkSettings::delay(ms(20)).rate(RATE, 100_000);
    let mut simulation = Simulation::new(3, &none(), &link);
    simulation.client().writer = Writer::bulk(5_000_000);
    let took = simulation.complete(120 * SECOND);
    let stats = simulation.client().connection.stats();
    let share = 5_000_000.0 / took.as_secs_f64() / RATE as f64;
    assert!(share >= 0.3 && stats.recovery.resends() > 3 * stats.segments.push_sent, "{share:.3}, {stats:?}");
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
