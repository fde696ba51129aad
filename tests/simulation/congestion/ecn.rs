//! ECN: a queue that marks packets where it would drop them, and paths that do something else to the marks.

use std::{sync::Arc, time::Duration};

use kcp9::{
    KcpConfig, NoDelay,
    congestion::{Acked, CongestionControl, Controller, ControllerFactory, MinRtt},
    proto::{Connection, EcnState, EcnStats, Extensions, Instant, SessionSeed, Stats},
};

use kcp9_simulator::{CLIENT, EcnPath, LinkSettings, Rng, SERVER, Simulation, Writer, ms};

use super::{SECOND, controllers, with};

/// 100 Mbit/s, and what is under way at that rate in a round trip of 50 ms.
const RATE: u64 = 12_500_000;
const UNDER_WAY: usize = RATE as usize / 20;

/// Two ends with extensions.
fn simulation(seed: u64, configs: [&KcpConfig; 2], links: [LinkSettings; 2]) -> Simulation {
    let mut rng = Rng::new(!seed);
    Simulation::between(seed, links, [Duration::ZERO; 2], |side, conv, now| {
        let own = SessionSeed::new(&mut rng);
        if side == CLIENT {
            Connection::connect(conv, configs[side], now, own)
        } else {
            Connection::accept(conv, configs[side], now, own)
        }
    })
}

/// Each way 25 ms; on the way there a queue that marks above `mark_above` times what is under way, and drops above twice that.
fn link(mark_above: f64) -> LinkSettings {
    let bytes = (mark_above * UNDER_WAY as f64) as usize;
    LinkSettings {
        mark_above: Some(bytes),
        jitter: Duration::from_micros(100),
        ..LinkSettings::delay(ms(25)).rate(RATE, 2 * bytes + UNDER_WAY)
    }
}

/// What a sender did in some time.
#[derive(Debug)]
struct Outcome {
    /// Part of the link's rate, as payload.
    share: f64,
    /// Packets dropped and marked by the queue, of those offered.
    dropped: f64,
    marked: f64,
    stats: Stats,
}

fn run(seed: u64, config: &KcpConfig, link: &LinkSettings, time: Duration) -> (Outcome, Simulation) {
    let back = LinkSettings { ecn: EcnPath::Kept, ..LinkSettings::delay(ms(25)) };
    let mut simulation = simulation(seed, [config; 2], [link.clone(), back]);
    simulation.client().writer = Writer::bulk(u64::MAX);
    simulation.run_for(time);
    let counts = simulation.ends[CLIENT].link.counts;
    let part = |count: u64| count as f64 / counts.offered as f64;
    let outcome = Outcome {
        share: simulation.flows[CLIENT].read as f64 / (RATE as f64 * time.as_secs_f64()),
        dropped: part(counts.overflowed),
        marked: part(counts.marked),
        stats: simulation.ends[CLIENT].connection.stats(),
    };
    (outcome, simulation)
}

/// The settings without ECN.
fn without(config: &KcpConfig) -> KcpConfig {
    config.clone().to_builder().ecn(false).build().unwrap()
}

/// With the default's Startup, the queue may overflow before the first mark is answered.
#[test]
#[ignore = "seconds: cargo test --release --test simulation ecn -- --ignored"]
fn a_queue_that_marks_drops_less_at_the_same_rate() {
    for (name, config) in controllers() {
        // KCP's own RTO leaves no room for a queue that grows: what it loses to that differs with everything.
        let least = if name == "kcp" { 0.75 } else { 0.97 };
        // The delay-based one does not fill half of the queue.
        let long = if name == "delay" { 0.2 } else { 0.5 };
        for (seed, mark_above) in [(0, 0.25), (1, 0.25), (2, long)] {
            let link = link(mark_above);
            let (with, mut simulation) = run(seed, &config, &link, 10 * SECOND);
            let (without, _) = run(seed, &without(&config), &link, 10 * SECOND);
            let what = format!("seed {seed}, {name}, above {mark_above}: {with:.4?}\nwithout: {without:.4?}");
            assert!(without.dropped > 0.0 && with.dropped <= without.dropped / 2.0, "{what}");
            assert!(with.stats.recovery.resends() <= without.stats.recovery.resends() / 2, "{what}");
            assert!(with.share >= least * without.share, "{what}");
            assert_eq!(with.stats.path.ecn, EcnState::Capable, "{what}");
            assert_eq!((without.stats.path.ecn, without.marked), (EcnState::Off, 0.0), "{what}");
            let ecn = with.stats.ecn;
            let received = simulation.server().connection.stats().ecn;
            assert!(ecn.congestion_events > 0 && ecn.congestion_events <= 200, "once a round trip: {what}");
            assert!(ecn.ce_reported > 0 && ecn.ce_reported <= received.ce_received, "{what}");
            assert!(received.reports_sent <= simulation.server().connection.stats().segments.acks_sent);
        }
    }
}

/// Sends 4 MB each way, and returns the state at both ends.
fn transfer(seed: u64, configs: [&KcpConfig; 2], links: [LinkSettings; 2]) -> (Simulation, Duration) {
    let mut simulation = simulation(seed, configs, links);
    for side in [CLIENT, SERVER] {
        simulation.ends[side].writer = Writer { pace: Some(ms(10)), ..Writer::bulk(4 << 20) };
        simulation.ends[side].writer.sizes = 4_096..=4_096;
    }
    let took = simulation.run_until(60 * SECOND, Simulation::is_complete);
    (simulation, took)
}

fn ecn_of(simulation: &Simulation, side: usize) -> (EcnState, EcnStats) {
    let stats = simulation.ends[side].connection.stats();
    (stats.path.ecn, stats.ecn)
}

#[test]
fn a_path_that_clears_changes_or_drops_marked_packets_gets_none() {
    let config = KcpConfig::default();
    let kept = LinkSettings::delay(ms(25));
    let (_, took) = transfer(0, [&config; 2], [kept.clone(), kept.clone()]);
    for (seed, path) in [(0, EcnPath::Bleached), (1, EcnPath::Remarked), (2, EcnPath::Dropped)] {
        let bad = LinkSettings { ecn: path, ..kept.clone() };
        let (simulation, with) = transfer(seed, [&config; 2], [bad, kept.clone()]);
        let (state, stats) = ecn_of(&simulation, CLIENT);
        let what = format!("seed {seed}, {path:?}: {state:?}, {stats:?}, {with:?} in place of {took:?}");
        assert_eq!(state, EcnState::Failed, "{what}");
        // The ten packets of the test, those of its last run, and three of the seconds thereafter.
        assert!(stats.ect0_sent <= 40, "{what}");
        assert!(with <= took + SECOND, "{what}");
        assert_eq!(ecn_of(&simulation, SERVER).0, EcnState::Capable, "the other direction, {what}");
    }
}

#[test]
fn neither_losses_nor_copies_nor_late_packets_end_ecn() {
    let plain = KcpConfig::default();
    let fec = KcpConfig::builder().fec(10, 3).build().unwrap();
    for seed in 0..20 {
        let loss = [0.0, 0.05, 0.2][seed as usize % 3];
        let link = LinkSettings {
            reorder: 0.1,
            reorder_delay: ms(30),
            duplicate: 0.1,
            ..LinkSettings::delay(ms(25)).loss(loss)
        };
        for config in [&plain, &fec] {
            let (simulation, _) = transfer(seed, [config; 2], [link.clone(), link.clone()]);
            for side in [CLIENT, SERVER] {
                let (state, stats) = ecn_of(&simulation, side);
                assert_eq!(state, EcnState::Capable, "seed {seed}, {loss} lost, end {side}: {stats:?}");
            }
        }
    }
}

/// The default settings but for one thing.
#[test]
fn both_ends_must_want_it_and_answer_marks() {
    let wants = KcpConfig::default();
    let off = KcpConfig::builder().ecn(false).build().unwrap();
    let legacy = KcpConfig::builder().extensions(Extensions::Off).build().unwrap();
    let flood = KcpConfig::builder().nodelay(NoDelay::FAST3).build().unwrap();
    let own = with(CongestionControl::Custom(Arc::new(Deaf)));
    let link = LinkSettings::delay(ms(25));
    for (seed, configs, uses) in [
        (0, [&wants, &wants], [true, true]),
        (1, [&wants, &off], [false, false]),
        (2, [&off, &wants], [false, false]),
        (3, [&wants, &legacy], [false, false]),
        (4, [&legacy, &wants], [false, false]),
        // Who has no congestion control can still report.
        (5, [&flood, &wants], [false, true]),
        (6, [&wants, &own], [true, false]),
    ] {
        let mut simulation = simulation(seed, configs, [link.clone(), link.clone()]);
        // To peers without extensions, a HELLO is no packet.
        simulation.may_refuse = true;
        for side in [CLIENT, SERVER] {
            simulation.ends[side].writer = Writer::bulk(1 << 20);
        }
        simulation.run_until(60 * SECOND, Simulation::is_complete);
        for side in [CLIENT, SERVER] {
            let (state, stats) = ecn_of(&simulation, side);
            let what = format!("seed {seed}, end {side}: {state:?}, {stats:?}");
            let expected = if uses[side] { EcnState::Capable } else { EcnState::Off };
            assert_eq!(state, expected, "{what}");
            assert_eq!(stats.ect0_sent > 0, uses[side], "{what}");
            assert_eq!(stats.reports_sent > 0, uses[1 - side], "{what}");
        }
    }
}

/// A controller of a program that was written before there was ECN.
#[derive(Debug)]
struct Deaf;

impl Controller for Deaf {
    fn on_ack(&mut self, _: &Acked, _: &mut MinRtt) {}

    fn window(&self) -> u64 {
        64 << 10
    }
}

impl ControllerFactory for Deaf {
    fn build(&self, _: Instant, _: usize) -> Box<dyn Controller> {
        Box::new(Self)
    }
}

/// A receiver that sees no codepoints, as where the system does not tell them, is a path that clears them.
#[test]
fn a_receiver_that_is_not_told_the_marks_gets_none() {
    let config = KcpConfig::default();
    let mut simulation = simulation(0, [&config; 2], [(); 2].map(|()| LinkSettings::delay(ms(25))));
    simulation.server().tells_ecn = false;
    simulation.client().writer = Writer { pace: Some(ms(10)), ..Writer::bulk(4 << 20) };
    simulation.client().writer.sizes = 4_096..=4_096;
    simulation.run_until(60 * SECOND, Simulation::is_complete);
    let (state, stats) = ecn_of(&simulation, CLIENT);
    assert!(state == EcnState::Failed && stats.ect0_sent <= 40, "{state:?}, {stats:?}");
}
