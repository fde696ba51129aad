//! Sessions on virtual time, over paths whose losses are known.

use std::{collections::BTreeSet, time::Duration};

use kcp9::{
    CongestionControl, KcpConfig, KcpConfigBuilder, NoDelay,
    proto::{Command, Connection, Instant, Segments, SessionSeed, Stats},
};
use kcp9_simulator::{CLIENT, LinkSettings, Reader, Rng, SERVER, Simulation, Writer};
use kcp9_tests::collector::{Collector, Recorded};
use tracing::Level;

use crate::{count, ms, named, sum, table};

const LIMIT: Duration = Duration::from_secs(3_600);

fn fast() -> KcpConfigBuilder {
    KcpConfig::builder().nodelay(NoDelay::FAST3).send_window(256).recv_window(256)
}

/// A counter of both ends together.
fn both(simulation: &Simulation, counter: impl Fn(&Stats) -> u64) -> u64 {
    simulation.ends.iter().map(|end| counter(&end.connection.stats())).sum()
}

fn pushes(packet: &[u8]) -> impl Iterator<Item = u32> {
    Segments::new(packet)
        .flatten()
        .filter(|(header, _)| header.cmd == Command::Push)
        .map(|(header, _)| header.sn)
}

/// Each of these segments is lost once, and nothing else: the events name exactly these, by the rule that applies, and so do the
/// counters.
#[test]
fn events_name_the_segments_that_a_trace_loses() {
    // Those behind it are acknowledged, but for the last ones.
    let (in_between, last) = ([10_u32, 40, 41, 100, 200], [499_u32]);
    let collector = Collector::begin(Level::TRACE);
    let config = fast().stream(false).ack_no_delay(true).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(25)));
    let mut left: BTreeSet<u32> = in_between.into_iter().chain(last).collect();
    simulation.client().link.lose_if(move |_, packet| {
        let before = left.len();
        pushes(packet).for_each(|sn| {
            left.remove(&sn);
        });
        left.len() < before
    });
    simulation.client().writer = Writer { sizes: 1_376..=1_376, ..Writer::bulk(500 * 1_376) };
    simulation.complete(LIMIT);
    let events = collector.take();
    table::check(&events);

    let sns = |name: &str, cause: &str| -> BTreeSet<u64> {
        let events = named(&events, name);
        events.iter().filter(|event| event.field("cause") == cause).map(|event| event.number("sn")).collect()
    };
    assert_eq!(simulation.ends[CLIENT].link.counts.lost, 6);
    let expected: BTreeSet<u64> = in_between.into_iter().map(u64::from).collect();
    assert_eq!(sns("lost", "skipped"), expected);
    assert_eq!(sns("resent", "fast"), expected);
    // Nothing is acknowledged behind the last one.
    assert_eq!(sns("lost", "timeout"), BTreeSet::from([499]));
    assert_eq!(sns("resent", "timeout"), BTreeSet::from([499]));
    assert_eq!(named(&events, "rto").iter().map(|event| event.number("sn")).collect::<Vec<_>>(), [499]);
    let recovery = simulation.ends[CLIENT].connection.stats().recovery;
    assert_eq!((recovery.fast_resends, recovery.early_resends, recovery.timeout_resends), (5, 0, 1));
    assert!(named(&events, "resent").iter().all(|event| event.number("bytes") == 1_400));
}

/// Random losses, with FEC and without, in both directions: each counter is the number of its events.
pub fn losses(seed: u64, shards: (usize, usize), writes: bool) -> Vec<Recorded> {
    let collector = Collector::begin(Level::TRACE);
    let config = fast().fec(shards.0, shards.1).build().unwrap();
    let link =
        LinkSettings { reorder: 0.02, reorder_delay: ms(20), ..LinkSettings::delay(ms(25)).loss(0.08) };
    let mut simulation = Simulation::new(seed, &config, &link);
    simulation.client().writer = Writer::bulk(1_500_000);
    if writes {
        // Little by little: there is nothing new to send while segments are missing.
        simulation.server().writer =
            Writer { sizes: 3_000..=3_000, pace: Some(ms(40)), ..Writer::bulk(300_000) };
    }
    simulation.complete(LIMIT);
    let events = collector.take();
    table::check(&events);

    for (cause, counter) in [
        ("fast", both(&simulation, |stats| stats.recovery.fast_resends)),
        ("early", both(&simulation, |stats| stats.recovery.early_resends)),
        ("timeout", both(&simulation, |stats| stats.recovery.timeout_resends)),
    ] {
        assert_eq!(count(&events, "resent", "cause", cause), counter, "{cause}, seed {seed}");
    }
    let timeouts = both(&simulation, |stats| stats.recovery.timeout_resends);
    assert_eq!(named(&events, "rto").len() as u64, timeouts);
    // What is sent again was found lost before. Some of it arrived before it could be.
    assert_eq!(count(&events, "lost", "cause", "timeout"), timeouts);
    for (found, sent) in [("skipped", "fast"), ("skipped_early", "early")] {
        let (found, sent) = (count(&events, "lost", "cause", found), count(&events, "resent", "cause", sent));
        assert!(found >= sent && found <= sent + sent / 10 + 2, "{found} found, {sent} sent again");
    }
    assert_eq!(sum(&events, "recovered", "packets"), both(&simulation, |stats| stats.fec.recovered));
    assert_eq!(sum(&events, "gave_up", "packets"), both(&simulation, |stats| stats.fec.unrecoverable));
    assert_eq!(named(&events, "peer_shards").len() as u64, both(&simulation, |stats| stats.fec.peer_changes));
    assert_eq!(
        named(&events, "window_probe").len() as u64,
        both(&simulation, |stats| stats.segments.window_probes)
    );
    events
}

#[test]
fn events_are_as_many_as_the_counters_say() {
    let (mut early, mut fast, mut timeouts) = (0, 0, 0);
    for seed in 0..4 {
        let events = losses(seed, (0, 0), true);
        early += count(&events, "resent", "cause", "early");
        fast += count(&events, "resent", "cause", "fast");
        timeouts += named(&events, "rto").len();
    }
    assert!(early > 0 && fast > 0 && timeouts > 0, "{early} early, {fast} fast, {timeouts} timeouts");
    for seed in 0..2 {
        let events = losses(seed, (10, 3), false);
        assert!(sum(&events, "recovered", "packets") > 20 && sum(&events, "gave_up", "packets") > 0);
    }
}

/// A path that is late with some packets: they are sent again, and were not lost.
pub fn spurious() -> Vec<Recorded> {
    let collector = Collector::begin(Level::TRACE);
    let link = LinkSettings { reorder: 0.1, reorder_delay: ms(30), ..LinkSettings::delay(ms(25)) };
    let mut simulation = Simulation::new(3, &fast().build().unwrap(), &link);
    simulation.client().writer = Writer::bulk(1_000_000);
    simulation.complete(LIMIT);
    let events = collector.take();
    table::check(&events);
    assert!(sum(&events, "spurious", "bytes") > 0);
    events
}

#[test]
fn what_was_late_and_not_lost_is_said_to_be() {
    spurious();
}

/// Ends with other groups of FEC, then with parity that is of no code.
pub fn peers_with_other_fec() -> Vec<Recorded> {
    let collector = Collector::begin(Level::TRACE);
    let configs = [fast().fec(10, 3).build().unwrap(), fast().fec(5, 2).build().unwrap()];
    let links = [LinkSettings::delay(ms(25)), LinkSettings::delay(ms(25))];
    let mut simulation = Simulation::with(9, [&configs[0], &configs[1]], links, 0, [Duration::ZERO; 2]);
    simulation.client().writer = Writer::bulk(200_000);
    simulation.server().writer = Writer::bulk(200_000);
    simulation.complete(LIMIT);
    let shards = collector.take();
    table::check(&shards);
    let found: BTreeSet<_> = named(&shards, "peer_shards")
        .iter()
        .map(|event| (event.number("data"), event.number("parity")))
        .collect();
    assert_eq!(found, BTreeSet::from([(10, 3), (5, 2)]));

    let mut receiver = Connection::new(7, &configs[0], Instant::ZERO);
    for seqid in 0_u32..100 {
        let mut packet = vec![0x55; 200];
        packet[..4].copy_from_slice(&seqid.to_le_bytes());
        packet[4..6].copy_from_slice(&[0xf2, 0]);
        let _ = receiver.handle_packet(Instant::ZERO, &mut packet);
    }
    while receiver.poll_event().is_some() {}
    assert!(receiver.stats().fec_state.undecodable);
    let undecodable = collector.take();
    assert_eq!(named(&undecodable, "undecodable").len(), 1);
    [shards, undecodable].concat()
}

#[test]
fn the_peers_fec_is_said_if_it_is_another_one() {
    peers_with_other_fec();
}

/// A reader that sleeps: its window closes and opens again, as both ends see it.
pub fn windows() -> Vec<Recorded> {
    let collector = Collector::begin(Level::TRACE);
    let config = KcpConfig::builder().recv_window(128).keep_alive(None).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(20)));
    simulation.client().writer = Writer::bulk(1_000_000);
    simulation.server().reader = Reader { not_before: Instant::from_millis(20_000), ..Reader::eager() };
    simulation.run_for(ms(19_999));
    let asleep = collector.take();
    table::check(&asleep);
    assert_eq!(count(&asleep, "window_closed", "side", "own"), 1);
    assert_eq!(count(&asleep, "window_closed", "side", "peer"), 1);
    assert!(named(&asleep, "window_reopened").is_empty());
    let probes = simulation.client().connection.stats().segments.window_probes;
    assert_eq!(named(&asleep, "window_probe").len() as u64, probes);
    assert!(probes >= 5);
    simulation.complete(LIMIT);
    let awake = collector.take();
    table::check(&awake);
    for side in ["own", "peer"] {
        let closed =
            count(&asleep, "window_closed", "side", side) + count(&awake, "window_closed", "side", side);
        assert_eq!(count(&awake, "window_reopened", "side", side), closed, "{side}");
    }
    [asleep, awake].concat()
}

#[test]
fn a_window_closes_and_opens_again() {
    windows();
}

/// Modes follow each other without a gap, and are those of the table, with and without losses and a queue.
pub fn modes() -> Vec<Recorded> {
    let mut all = Vec::new();
    for (control, least) in [
        (CongestionControl::BbrLike, 2),
        (CongestionControl::Bbr3, 4),
        (CongestionControl::Cubic, 1),
        (CongestionControl::DelayBased, 2),
        (CongestionControl::Kcp, 1),
    ] {
        let collector = Collector::begin(Level::DEBUG);
        let name = control.name();
        let config = KcpConfig::builder().congestion_control(control).build().unwrap();
        let link = LinkSettings::delay(ms(25)).rate(2_000_000, 100_000).loss(0.001);
        let mut simulation = Simulation::new(5, &config, &link);
        simulation.client().writer = Writer::bulk(60_000_000);
        simulation.run_for(Duration::from_secs(25));
        let events = collector.take();
        table::check(&events);
        let modes = named(&events, "mode");
        assert!(modes.len() >= least, "{name}: {modes:?}");
        let known = table::modes(name);
        let first = modes[0].field("from");
        assert!(["startup", "slow_start"].contains(&first), "{name} begins with {first}");
        for pair in modes.windows(2) {
            assert_eq!(pair[0].field("to"), pair[1].field("from"), "{name}");
        }
        for mode in &modes {
            assert!(known.contains(mode.field("to")), "{name}: {mode:?}");
            assert_ne!(mode.field("from"), mode.field("to"), "{name}");
            assert!(mode.number("window") > 0, "{name}: {mode:?}");
        }
        all.extend(events);
    }
    all
}

#[test]
fn controllers_say_their_modes() {
    modes();
}

struct Entropy(Rng);

impl kcp9::proto::Random for Entropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.0.next() as u8);
    }
}

/// A session with extensions from its beginning to its end.
pub fn life() -> Vec<Recorded> {
    let collector = Collector::begin(Level::TRACE);
    let config = KcpConfig::default();
    let mut entropy = Entropy(Rng::new(4));
    let links = [LinkSettings::delay(ms(10)), LinkSettings::delay(ms(10))];
    let mut simulation = Simulation::between(2, links, [Duration::ZERO; 2], |side, conv, now| {
        let seed = SessionSeed::new(&mut entropy);
        if side == CLIENT {
            Connection::connect(conv, &config, now, seed)
        } else {
            Connection::accept(conv, &config, now, seed)
        }
    });
    simulation.client().writer = Writer::bulk(50_000);
    simulation.complete(LIMIT);
    for side in [CLIENT, SERVER] {
        simulation.call(side, |connection, now| connection.shutdown(now));
    }
    simulation.run_for(ms(5_000));
    let events = collector.take();
    table::check(&events);
    assert_eq!((named(&events, "connected").len(), named(&events, "validated").len()), (1, 1));
    let ended = named(&events, "ended");
    assert_eq!(ended.len(), 2, "{events:?}");
    assert!(ended.iter().all(|event| event.field("reason") == "Finished"));
    let written: Vec<_> = ended.iter().map(|event| event.number("bytes_written")).collect();
    assert!(written.contains(&50_000) && written.contains(&0), "{written:?}");
    events
}

#[test]
fn a_session_says_that_it_is_heard_and_that_it_ends() {
    life();
}
