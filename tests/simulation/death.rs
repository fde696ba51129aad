//! Peers that die in silence, and peers that are only quiet.

use std::time::Duration;

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    proto::{CloseReason, Event, Instant},
};

use kcp9_simulator::{CLIENT, LinkSettings, SERVER, Simulation, Writer, ms};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

fn at(time: Duration) -> Instant {
    Instant::ZERO + time
}

fn kept_alive() -> KcpConfigBuilder {
    KcpConfig::builder().keep_alive(Some(20 * SECOND))
}

/// From here on nothing reaches one end, and nothing of it arrives.
fn kill(simulation: &mut Simulation, victim: usize) {
    for end in &mut simulation.ends {
        end.link.settings.loss = 1.0;
    }
    simulation.ends[victim].writer = Writer::none();
}

/// Runs until an end finds its peer dead, and returns how long that took.
fn found_dead(simulation: &mut Simulation, survivor: usize) -> Duration {
    let killed = simulation.now;
    simulation.run_for(120 * SECOND);
    let [(when, Event::Closed(CloseReason::DeadLink))] = simulation.events(survivor) else {
        panic!("{}", simulation.report());
    };
    *when - killed
}

#[test]
fn an_end_that_only_reads_finds_its_peer_dead_within_a_minute() {
    for seed in 0..60 {
        let config = kept_alive().build().unwrap();
        let link = LinkSettings::delay(ms(1 + seed * 4)).loss(0.1);
        let mut simulation = Simulation::new(seed, &config, &link);
        let survivor = seed as usize % 2;
        simulation.ends[1 - survivor].writer = Writer::bulk(10_000);
        // It dies in the middle of a silence, or at once after the transfer.
        simulation.run_for(SECOND * (3 + 7 * seed as u32));
        assert_eq!(simulation.flows[1 - survivor].read, 10_000);
        kill(&mut simulation, 1 - survivor);
        let took = found_dead(&mut simulation, survivor);
        assert!(took < 60 * SECOND, "seed {seed}: {took:?}");
    }
}

/// A client that has written nothing, and a server that has never been there.
#[test]
fn a_peer_that_was_never_there_is_found_dead() {
    let mut simulation = Simulation::new(1, &kept_alive().build().unwrap(), &LinkSettings::delay(ms(20)));
    kill(&mut simulation, SERVER);
    let took = found_dead(&mut simulation, CLIENT);
    assert!(took < 60 * SECOND, "{took:?}");
}

#[test]
fn without_keep_alive_an_end_that_only_reads_waits_for_ever() {
    let mut simulation =
        Simulation::new(1, &kept_alive().keep_alive(None).build().unwrap(), &LinkSettings::delay(ms(20)));
    simulation.server().writer = Writer::bulk(10_000);
    simulation.run_for(SECOND);
    assert_eq!(simulation.flows[SERVER].read, 10_000);
    kill(&mut simulation, SERVER);
    simulation.run_for(DAY);
    assert_eq!(simulation.events(CLIENT), []);
    assert_eq!(simulation.next_event(), None);
}

/// What a day of silence costs: a question and an answer in 18 to 22 s, and what is lost is asked again. Nobody dies of it.
#[test]
fn quiet_sessions_live_for_a_day_although_packets_are_lost() {
    for seed in 0..10 {
        let link = LinkSettings { jitter: ms(30), ..LinkSettings::delay(ms(20)).loss(0.1) };
        let mut simulation = Simulation::new(seed, &kept_alive().build().unwrap(), &link);
        simulation.client().writer = Writer::bulk(1_000);
        simulation.run_for(DAY);
        assert_eq!((simulation.events(CLIENT), simulation.events(SERVER)), (&[][..], &[][..]), "seed {seed}");
        let stats = [0, 1].map(|side| simulation.ends[side].connection.stats());
        let questions = stats[CLIENT].segments.window_probes + stats[SERVER].segments.window_probes;
        // One in five is lost, or its answer is. Two ends that do not know who connected may ask at the same time.
        assert!((86_400 / 22..86_400 / 18 * 3).contains(&questions), "seed {seed}: {questions}");
        let wakeups = simulation.ends[CLIENT].activity.wakeups + simulation.ends[SERVER].activity.wakeups;
        assert!(wakeups < questions + 100, "seed {seed}: {wakeups} wakeups for {questions} questions");
        // It still works.
        simulation.server().writer = Writer::bulk(1_000);
        simulation.run_for(10 * SECOND);
        assert_eq!(simulation.flows[SERVER].read, 1_000);
    }
}

/// An outage that ends in time leaves nothing behind but a few questions.
#[test]
fn a_quiet_session_survives_an_outage() {
    let blackouts = vec![at(100 * SECOND)..at(125 * SECOND)];
    let link = LinkSettings { blackouts, ..LinkSettings::delay(ms(20)) };
    let mut simulation = Simulation::new(1, &kept_alive().build().unwrap(), &link);
    simulation.client().writer = Writer::bulk(1_000);
    simulation.run_for(1_000 * SECOND);
    assert_eq!((simulation.events(CLIENT), simulation.events(SERVER)), (&[][..], &[][..]));
}

/// A peer that answers is there, but a session without payload is idle all the same.
#[test]
fn answers_do_not_hold_off_the_idle_timeout() {
    let config = kept_alive().idle_timeout(Some(90 * SECOND)).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(10)));
    simulation.run_for(50 * SECOND);
    simulation.client().writer = Writer::bulk(10);
    simulation.run_for(200 * SECOND);
    let idle = Event::Closed(CloseReason::IdleTimeout);
    assert_eq!(simulation.events(SERVER), [(at(ms(140_010)), idle)]);
    assert_eq!(simulation.events(CLIENT), [(at(ms(140_020)), idle)]);
    let questions = simulation.client().connection.stats().segments.window_probes;
    assert!(questions >= 3, "{questions}");
}

/// Payload in one direction is enough for both ends.
#[test]
fn a_download_holds_off_the_idle_timeout_at_both_ends() {
    let config = KcpConfig::builder().idle_timeout(Some(5 * SECOND)).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(10)));
    simulation.server().writer = Writer { pace: Some(SECOND), sizes: 10..=10, ..Writer::bulk(1_000) };
    simulation.run_for(100 * SECOND);
    assert_eq!((simulation.events(CLIENT), simulation.events(SERVER)), (&[][..], &[][..]));
    assert_eq!(simulation.flows[SERVER].read, 1_000);
}

/// Somebody has recorded all that a server sent, and sends it again after the server's end. The client's cipher opens it,
/// and its replay window has forgotten it.
#[cfg(feature = "aead")]
#[test]
fn recorded_packets_do_not_make_a_dead_peer_live() {
    use kcp9::crypto::{CipherKind, Framing};
    use std::sync::{Arc, Mutex};

    let encrypted = || {
        crate::encryption::encrypted((CipherKind::Aes128Gcm, Framing::KcpGo))
            .replay_window(16)
            .send_window(64)
    };
    let asks = encrypted().keep_alive(Some(20 * SECOND));
    let idles = encrypted().idle_timeout(Some(50 * SECOND));
    for (config, reason) in [(asks, CloseReason::DeadLink), (idles, CloseReason::IdleTimeout)] {
        let mut simulation = Simulation::new(1, &config.build().unwrap(), &LinkSettings::delay(ms(20)));
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&recorded);
        simulation.server().link.lose_if(move |_, packet| {
            record.lock().unwrap().push(packet.to_vec());
            false
        });
        simulation.client().writer = Writer::bulk(10);
        simulation.server().writer = Writer::bulk(500_000);
        simulation.run_for(60 * SECOND);
        assert_eq!(simulation.flows[SERVER].read, 500_000);
        // Both are quiet by now. The peer dies.
        kill(&mut simulation, SERVER);
        let killed = simulation.now;
        let recorded = recorded.lock().unwrap().clone();
        assert!(recorded.len() > 300, "{}", recorded.len());
        let mut opened = 0;
        for mut packet in recorded.iter().cycle().take(600).cloned() {
            let local = simulation.ends[CLIENT].local(simulation.now);
            let outcome =
                simulation.call(CLIENT, |connection, _| connection.handle_packet(local, &mut packet));
            opened += u32::from(outcome.is_ok());
            simulation.run_for(ms(200));
        }
        assert!(opened > 200, "{opened} were opened");
        let [(when, ended)] = simulation.events(CLIENT) else { panic!("{}", simulation.report()) };
        assert_eq!(*ended, Event::Closed(reason));
        assert!(*when - killed < 60 * SECOND, "{:?}", *when - killed);
    }
}
