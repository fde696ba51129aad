//! Parity that follows the losses, copies where groups stay incomplete, and what is told of a peer whose FEC differs.

use std::{ops::RangeInclusive, time::Duration};

use kcp9::{
    KcpConfig, NoDelay,
    fec::{AdaptiveFec, FecEvent},
    proto::{Event, FecState, Instant},
};

use kcp9_simulator::{CLIENT, LinkSettings, Reader, SERVER, Simulation, Writer, ms};

const LIMIT: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);

fn adaptive(limits: AdaptiveFec) -> KcpConfig {
    KcpConfig::builder().fec(10, 10).fec_adaptive(Some(limits)).build().unwrap()
}

/// Messages at a steady pace, or bulk that the path's rate limits; both for ever.
fn begin(config: &KcpConfig, loss: f64, pace: Option<Duration>) -> Simulation {
    let link = LinkSettings::delay(ms(50)).loss(loss).rate(500_000, 60_000);
    let mut simulation = Simulation::new(5, config, &link);
    let messages = Writer { pace, ..Writer::messages(u64::MAX >> 10, 200) };
    simulation.client().writer = if pace.is_some() { messages } else { Writer::bulk(u64::MAX >> 1) };
    simulation.server().reader = if pace.is_some() { Reader::messages() } else { Reader::eager() };
    simulation
}

fn sent(simulation: &Simulation) -> FecState {
    simulation.ends[CLIENT].connection.stats().fec_state
}

/// The parity of each second for half a minute, and the mean of the losses seen.
fn watch(simulation: &mut Simulation) -> (Vec<u32>, f64) {
    let (mut parity, mut seen) = (Vec::new(), 0.0);
    for _ in 0..30 {
        simulation.run_for(SECOND);
        parity.push(sent(simulation).current_parity);
        seen += f64::from(sent(simulation).loss_ppm) / 1e6 / 30.0;
    }
    (parity, seen)
}

fn set_loss(simulation: &mut Simulation, loss: f64) {
    simulation.ends.iter_mut().for_each(|end| end.link.settings.loss = loss);
}

/// `warm_up` after the losses begin the parity suits them and stays so. After the losses end it goes back.
fn follows(pace: Option<Duration>, loss: f64, warm_up: Duration, expected: RangeInclusive<u32>) {
    let mut simulation = begin(&adaptive(AdaptiveFec::default()), loss, pace);
    simulation.run_for(warm_up);
    let (parity, seen) = watch(&mut simulation);
    let usual = parity.iter().filter(|parity| expected.contains(*parity)).count();
    assert!(usual >= 27, "{loss} at {pace:?}: {parity:?}");
    let changes = parity.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes <= 10, "{loss} at {pace:?} flaps: {parity:?}");
    assert!(
        pace.is_none() || (seen >= loss * 0.7 && seen <= loss * 1.4 + 0.001),
        "{loss} at {pace:?}: {seen}"
    );
    set_loss(&mut simulation, 0.0);
    simulation.run_for(2 * warm_up);
    assert_eq!(sent(&simulation).current_parity, 0, "{loss} at {pace:?}");
    let peer = simulation.ends[SERVER].connection.stats();
    assert_eq!((peer.fec_state.peer_data_shards, peer.fec_state.peer_parity_shards), (10, 10));
    assert_eq!(peer.fec.mismatches, 0);
}

#[test]
fn parity_of_messages_follows_the_losses_and_goes_back() {
    // A sample takes 64 of them.
    for (loss, expected) in [(0.0, 0..=0), (0.05, 2..=6), (0.1, 4..=8), (0.2, 7..=10)] {
        follows(Some(ms(20)), loss, 60 * SECOND, expected);
    }
    follows(Some(ms(2)), 0.1, 20 * SECOND, 4..=8);
}

/// Bulk fills the path's queue and loses packets there too; parity must not fill it further.
#[test]
fn parity_of_bulk_follows_the_losses_and_goes_back() {
    for (loss, expected) in [(0.0, 0..=0), (0.05, 0..=6), (0.2, 3..=10)] {
        follows(None, loss, 45 * SECOND, expected);
    }
}

#[test]
fn parity_follows_losses_that_come_and_go() {
    for seed in 0..2 {
        let config = adaptive(AdaptiveFec { min_parity: 1, ..AdaptiveFec::default() });
        let mut simulation = begin(&config, 0.0, Some(ms(5)));
        simulation.seed = seed;
        for (loss, expected) in [(0.0, 1..=1), (0.15, 5..=10), (0.0, 1..=1), (0.05, 2..=5)] {
            set_loss(&mut simulation, loss);
            simulation.run_for(60 * SECOND);
            let parity = sent(&simulation).current_parity;
            assert!(expected.contains(&parity), "{loss}: {parity}");
        }
    }
}

/// Bytes of parity per byte of data packets, in a transfer whose losses call for more than there may be.
#[test]
fn parity_stays_within_its_budget() {
    for budget in [10, 60] {
        let limits = AdaptiveFec { budget, ..AdaptiveFec::default() };
        let mut simulation = begin(&adaptive(limits), 0.2, None);
        simulation.client().record();
        simulation.run_for(20 * SECOND);
        let before = simulation.ends[CLIENT].connection.stats();
        simulation.run_for(30 * SECOND);
        let after = simulation.ends[CLIENT].connection.stats();
        assert_eq!(after.fec_state.current_parity, 10, "what the losses call for");
        let parity = after.fec.parity_sent - before.fec.parity_sent;
        let all = after.udp.packets_sent - before.udp.packets_sent;
        let share = 100.0 * parity as f64 / (all - parity) as f64;
        let budget = f64::from(budget);
        assert!(share <= budget * 1.02 && share >= budget * 0.9, "{share:.1} % of {budget} %");
    }
}

/// Latencies of messages at a pace, sorted.
fn latencies(config: &KcpConfig, loss: f64, pace: Duration) -> Vec<Duration> {
    const COUNT: u64 = 3_000;
    let mut simulation = Simulation::new(3, config, &LinkSettings::delay(ms(50)).loss(loss));
    simulation.client().writer = Writer { pace: Some(pace), ..Writer::messages(COUNT, 200) };
    simulation.server().reader = Reader::messages();
    simulation.start();
    let (mut sent, mut latencies) = (Vec::<Instant>::new(), Vec::new());
    while latencies.len() < COUNT as usize {
        let flow = &simulation.flows[CLIENT];
        sent.resize((flow.written / 200) as usize, simulation.now);
        for at in &sent[latencies.len()..(flow.read / 200) as usize] {
            latencies.push(simulation.now - *at);
        }
        assert!(simulation.step());
    }
    simulation.complete(LIMIT);
    latencies.sort_unstable();
    latencies
}

/// The purpose of copies: in sparse traffic, a lost message does not wait for a round trip.
#[test]
fn sparse_messages_are_repaired_within_a_round_trip() {
    let builder = KcpConfig::builder().nodelay(NoDelay::FAST3);
    let off = builder.clone().build().unwrap();
    let fixed = builder.clone().fec(10, 3).build().unwrap();
    let flush = builder.fec(10, 3).fec_flush(Some(ms(10))).build().unwrap();
    for pace in [ms(20), ms(300), ms(900)] {
        let p98 = |config: &KcpConfig| latencies(config, 0.08, pace)[2_940];
        let (off, fixed, flush) = (p98(&off), p98(&fixed), p98(&flush));
        assert!(
            flush <= ms(85) && off >= ms(120) && fixed >= ms(120),
            "{pace:?}: {off:?} {fixed:?} {flush:?}"
        );
    }
}

/// No copies are made where other traffic completes the groups, nor once everything is acknowledged.
#[test]
fn copies_are_made_of_incomplete_groups_only() {
    let config = KcpConfig::builder().fec(10, 3).fec_flush(Some(ms(10))).build().unwrap();
    let mut simulation = begin(&config, 0.0, None);
    simulation.client().writer = Writer::bulk(5_000_000);
    simulation.complete(LIMIT);
    let copies = simulation.ends[CLIENT].connection.stats().recovery.fec_flush_copies;
    assert!(copies <= 30, "{copies} copies of {} segments", 5_000_000 / 1_368);
    // One more message is copied once. Then the session is at rest.
    simulation.client().writer.total += 100;
    simulation.complete(LIMIT);
    let more = simulation.ends[CLIENT].connection.stats().recovery.fec_flush_copies - copies;
    assert_eq!(more, 1);
    let quick = LinkSettings::delay(ms(2));
    let mut simulation = Simulation::new(1, &config, &quick);
    simulation.client().writer = Writer { pace: Some(ms(100)), ..Writer::messages(50, 200) };
    simulation.server().reader = Reader::messages();
    simulation.complete(LIMIT);
    let stats = simulation.ends[CLIENT].connection.stats();
    assert!(stats.recovery.fec_flush_copies <= 50 && stats.recovery.resends() == 0, "{stats:?}");
}

/// Adaptive parity and copies can be changed on a live session.
#[test]
fn settings_change_while_the_session_lives() {
    let config = KcpConfig::builder().fec(10, 3).build().unwrap();
    let mut simulation = begin(&config, 0.05, Some(ms(10)));
    simulation.client().writer.total = 200 * 20_000;
    simulation.run_for(10 * SECOND);
    assert_eq!((sent(&simulation).current_parity, sent(&simulation).loss_ppm), (3, 0));
    let changed = simulation.update_settings(CLIENT, |settings| {
        settings.fec_adaptive = Some(AdaptiveFec::default());
        settings.fec = (20, 12);
        settings.fec_flush = Some(ms(5));
    });
    changed.unwrap();
    simulation.run_for(60 * SECOND);
    let fec = sent(&simulation);
    assert_eq!((fec.data_shards, fec.parity_shards), (20, 12));
    assert!(fec.current_parity < 12 && fec.loss_ppm > 0, "{fec:?}");
    let copies = simulation.ends[CLIENT].connection.stats().recovery.fec_flush_copies;
    assert!(copies > 100);
    let changed = simulation
        .update_settings(CLIENT, |settings| (settings.fec_adaptive, settings.fec_flush) = (None, None));
    changed.unwrap();
    simulation.run_for(SECOND);
    assert_eq!(sent(&simulation).current_parity, 12);
    let copies = simulation.ends[CLIENT].connection.stats().recovery.fec_flush_copies;
    simulation.complete(LIMIT);
    assert_eq!(simulation.ends[CLIENT].connection.stats().recovery.fec_flush_copies, copies);
}

/// Each end gets one event for each change when the other's shards differ from its own.
#[test]
fn ends_with_different_shards_get_an_event() {
    let config = |data, parity| KcpConfig::builder().fec(data, parity).build().unwrap();
    let told = |simulation: &Simulation, side: usize| -> Vec<Event> {
        simulation.events(side).iter().map(|(_, event)| *event).collect()
    };
    let shards = |data, parity| Event::Fec(FecEvent::PeerShards { data, parity });
    let link = || [LinkSettings::delay(ms(20)).loss(0.05), LinkSettings::delay(ms(20)).loss(0.05)];
    for (ours, theirs, client, server) in [
        ((10, 3), (10, 3), vec![], vec![]),
        ((10, 3), (5, 2), vec![shards(5, 2)], vec![shards(10, 3)]),
        ((0, 0), (5, 2), vec![shards(5, 2)], vec![]),
    ] {
        let configs = [config(ours.0, ours.1), config(theirs.0, theirs.1)];
        let mut simulation = Simulation::with(2, [&configs[0], &configs[1]], link(), 0, [Duration::ZERO; 2]);
        for side in [CLIENT, SERVER] {
            simulation.ends[side].writer = Writer::bulk(1_000_000);
            simulation.ends[side].reader = Reader::eager();
        }
        simulation.complete(LIMIT);
        assert_eq!(told(&simulation, CLIENT), client);
        assert_eq!(told(&simulation, SERVER), server);
        let counted = |side: usize| simulation.ends[side].connection.stats().fec.peer_changes;
        assert_eq!([counted(CLIENT), counted(SERVER)], [client.len() as u64, server.len() as u64]);
    }
    // And again when they change.
    let mut simulation = Simulation::new(2, &config(10, 3), &LinkSettings::delay(ms(20)).loss(0.05));
    simulation.client().writer = Writer::bulk(1_000_000);
    simulation.complete(LIMIT);
    for (data, parity) in [(4, 4), (10, 3)] {
        simulation.update_settings(CLIENT, |settings| settings.fec = (data, parity)).unwrap();
        simulation.client().writer.total += 1_000_000;
        simulation.complete(LIMIT);
    }
    assert_eq!(told(&simulation, SERVER), [shards(4, 4), shards(10, 3)]);
}
