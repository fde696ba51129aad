//! Peers that die in silence, and peers that are only quiet.

use std::time::Duration;

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    proto::{CloseReason, Command, Connection, Event, Extensions, Instant, SessionSeed},
};

use kcp9_simulator::{
    CLIENT, LinkSettings, Rng, SERVER, Simulation, Writer, ms,
    trace::{Sent, times_of},
};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

fn at(time: Duration) -> Instant {
    Instant::ZERO + time
}

fn kept_alive() -> KcpConfigBuilder {
    KcpConfig::builder().keep_alive(Some(20 * SECOND))
}

/// An end that has connected, and one that has accepted; each with its own clock. What they know of extensions is in the
/// configurations.
pub(crate) fn begun(seed: u64, configs: [&KcpConfig; 2], link: &LinkSettings) -> Simulation {
    let mut rng = Rng::new(!seed);
    let offsets = [(); 2].map(|()| rng.duration(1_000 * SECOND));
    let mut simulation =
        Simulation::between(seed, [link.clone(), link.clone()], offsets, |side, conv, now| {
            let own = SessionSeed::new(&mut rng);
            if side == CLIENT {
                Connection::connect(conv, configs[side], now, own)
            } else {
                let mut server = Connection::accept(conv, configs[side], now, own);
                if configs.iter().any(|config| config.extensions() == Extensions::Off) {
                    // It has accepted a client that says nothing at first, or is of another kind, which sends as it likes.
                    server.set_validated();
                }
                server
            }
        });
    // To a peer without extensions, a segment of them is none at all.
    simulation.may_refuse = configs.iter().any(|config| config.extensions() == Extensions::Off);
    for end in &mut simulation.ends {
        end.record();
    }
    simulation
}

/// The configurations of two ends: both know the extensions, one of them, or none.
pub(crate) fn kinds(config: &KcpConfigBuilder) -> [[KcpConfig; 2]; 4] {
    let [off, on] = [Extensions::Off, Extensions::Preferred]
        .map(|extensions| config.clone().extensions(extensions).build().unwrap());
    [[on.clone(), on.clone()], [on.clone(), off.clone()], [off.clone(), on], [off.clone(), off]]
}

/// How many extension segments of a kind were sent.
pub(crate) fn count(sent: &[Sent], subtype: u8) -> usize {
    let is = |sent: &&Sent| sent.header.cmd == Command::Extension && sent.header.frg == subtype;
    sent.iter().filter(is).count()
}

pub(crate) const PING: u8 = 8;
pub(crate) const PONG: u8 = 9;

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
    let Some((when, Event::Closed(CloseReason::DeadLink))) = simulation.events(survivor).last() else {
        panic!("{}", simulation.report());
    };
    *when - killed
}

#[test]
fn an_end_that_only_reads_finds_its_peer_dead_within_a_minute() {
    for seed in 0..60 {
        for configs in kinds(&kept_alive()) {
            let link = LinkSettings::delay(ms(1 + seed * 4)).loss(0.1);
            let mut simulation = begun(seed, configs.each_ref(), &link);
            let survivor = seed as usize % 2;
            simulation.ends[1 - survivor].writer = Writer::bulk(10_000);
            // It dies in the middle of a silence, or soon after the transfer.
            simulation.run_for(SECOND * (5 + 7 * seed as u32));
            assert_eq!(simulation.flows[1 - survivor].read, 10_000, "{}", simulation.report());
            kill(&mut simulation, 1 - survivor);
            let took = found_dead(&mut simulation, survivor);
            assert!(took < 60 * SECOND, "seed {seed}: {took:?}");
        }
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
    for seed in 0..5 {
        for configs in kinds(&kept_alive()) {
            let link = LinkSettings { jitter: ms(30), ..LinkSettings::delay(ms(20)).loss(0.1) };
            let mut simulation = begun(seed, configs.each_ref(), &link);
            simulation.client().writer = Writer::bulk(1_000);
            simulation.run_for(DAY);
            let ends = [0, 1].map(|side| simulation.ends[side].connection.close_reason());
            assert_eq!(ends, [None; 2], "{}", simulation.report());
            let sent = simulation.ends.each_ref().map(|end| end.sent.as_ref().unwrap());
            let questions: usize =
                sent.iter().map(|sent| count(sent, PING) + times_of(sent, Command::Wask).len()).sum();
            // One in five is lost, or its answer is.
            assert!((86_400 / 22..86_400 / 18 * 3 / 2).contains(&questions), "seed {seed}: {questions}");
            let wakeups: u64 = simulation.ends.iter().map(|end| end.activity.wakeups).sum();
            assert!(
                wakeups < questions as u64 + 100,
                "seed {seed}: {wakeups} wakeups for {questions} questions"
            );
            // It still works.
            simulation.server().writer = Writer::bulk(1_000);
            simulation.run_for(10 * SECOND);
            assert_eq!(simulation.flows[SERVER].read, 1_000);
        }
    }
}

/// The end that connected asks, and the other one does not have to.
#[test]
fn one_end_of_a_session_asks() {
    for seed in 0..20 {
        for (kind, configs) in kinds(&kept_alive()).into_iter().enumerate() {
            let mut simulation = begun(seed, configs.each_ref(), &LinkSettings::delay(ms(100)));
            simulation.client().writer = Writer::bulk(1_000);
            simulation.run_for(DAY / 4);
            let asked = simulation.ends.each_ref().map(|end| {
                let sent = end.sent.as_ref().unwrap();
                [count(sent, PING), times_of(sent, Command::Wask).len()]
            });
            assert_eq!(asked[SERVER], [0, 0], "seed {seed}");
            let expected = 21_600 / 22..=21_600 / 18;
            // With PING where both know the extensions, else with what every peer answers.
            let [of_kind, other] =
                if kind == 0 { asked[CLIENT] } else { [asked[CLIENT][1], asked[CLIENT][0]] };
            assert!(expected.contains(&of_kind) && other == 0, "seed {seed}: {asked:?}");
        }
    }
}

/// A client that does not ask leaves it to the server.
#[test]
fn a_server_asks_where_its_client_does_not() {
    for extensions in [Extensions::Off, Extensions::Preferred] {
        let asks = kept_alive().extensions(extensions).build().unwrap();
        let silent = kept_alive().extensions(extensions).keep_alive(None).build().unwrap();
        let mut simulation = begun(1, [&silent, &asks], &LinkSettings::delay(ms(100)));
        simulation.client().writer = Writer::bulk(1_000);
        simulation.run_for(DAY / 4);
        kill(&mut simulation, CLIENT);
        let took = found_dead(&mut simulation, SERVER);
        assert!(took < 60 * SECOND, "{took:?}");
        let sent = simulation.ends[CLIENT].sent.as_ref().unwrap();
        assert_eq!((count(sent, PING), times_of(sent, Command::Wask).len()), (0, 0));
    }
}

#[test]
fn without_keep_alive_a_session_with_extensions_has_no_deadline_either() {
    let config = kept_alive().keep_alive(None).extensions(Extensions::Preferred).build().unwrap();
    let mut simulation = begun(1, [&config; 2], &LinkSettings::delay(ms(20)));
    simulation.client().writer = Writer::bulk(10_000);
    simulation.run_for(60 * SECOND);
    assert!(simulation.ends.iter().all(|end| end.connection.is_peer_confirmed()));
    assert_eq!(simulation.next_event(), None);
}

/// A peer that acknowledges nothing is asked beside the third transmission, and then beside each. It answers: it is there.
#[test]
fn a_peer_that_does_not_acknowledge_is_asked() {
    let config = KcpConfig::builder().extensions(Extensions::Preferred).build().unwrap();
    let mut simulation = begun(1, [&config; 2], &LinkSettings::delay(ms(20)));
    simulation.run_for(SECOND);
    // Long packets do not pass any more.
    simulation.client().link.lose_if(|_, packet| packet.len() > 100);
    simulation.client().record();
    simulation.server().record();
    simulation.call(CLIENT, |connection, now| connection.write(now, &[7; 500])).unwrap();
    simulation.run_for(300 * SECOND);
    assert_eq!(simulation.client().connection.close_reason(), None, "the peer is there");
    let sent = simulation.ends[CLIENT].sent.as_ref().unwrap();
    let pushes = times_of(sent, Command::Push);
    let first = sent.iter().find(|sent| sent.header.frg == PING).expect("a PING").at;
    assert_eq!(first.as_micros(), pushes[2]);
    // Each answer begins the count anew.
    let pings = count(sent, PING);
    assert!((pushes.len() / 4..=pushes.len() - 2).contains(&pings), "{pings} for {} PUSHes", pushes.len());
    assert_eq!(count(simulation.ends[SERVER].sent.as_ref().unwrap(), PONG), pings, "one PONG each");
}

/// The process was stopped, or its machine was: what came meanwhile is taken in before anyone is called dead.
#[test]
fn an_end_that_was_paused_hears_what_has_come_first() {
    for (pause, writes) in (2..=40).flat_map(|pause| [(pause, false), (pause, true)]) {
        let config =
            kept_alive().keep_alive(Some(SECOND)).dead_timeout(2 * SECOND).extensions(Extensions::Preferred);
        let mut simulation = begun(pause, [&config.build().unwrap(); 2], &LinkSettings::delay(ms(20)));
        simulation.client().writer = Writer::bulk(1_000);
        simulation.run_for(3 * SECOND + ms(500));
        let mut now = simulation.ends[CLIENT].local(simulation.now);
        let mut peer_now = simulation.ends[SERVER].local(simulation.now);
        let [client, server] = &mut simulation.ends;
        let mut buffer = vec![0; 65_536];
        // It asks, or writes, is stopped, and the answer waits in its socket.
        if writes {
            client.connection.write(now, b"x").unwrap();
        } else {
            now = client.connection.poll_timeout().unwrap();
            client.connection.handle_timeout(now);
        }
        let question = client.connection.poll_transmit(now, &mut buffer).unwrap();
        server.connection.handle_packet(peer_now, &mut buffer[..question.len]).unwrap();
        peer_now += ms(20);
        server.connection.handle_timeout(peer_now);
        let answer = server.connection.poll_transmit(peer_now, &mut buffer).unwrap();
        now += SECOND * pause as u32;
        client.connection.handle_packet(now, &mut buffer[..answer.len]).unwrap();
        client.connection.handle_timeout(now);
        assert_eq!(client.connection.close_reason(), None, "{pause} s, writes: {writes}");
        assert!(client.connection.poll_timeout().is_some_and(|at| at > now));
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
        let config = crate::encryption::encrypted((CipherKind::Aes128Gcm, Framing::KcpGo));
        config.replay_window(16).recv_window(64)
    };
    let asks = encrypted().keep_alive(Some(20 * SECOND));
    let idles = encrypted().idle_timeout(Some(50 * SECOND));
    let with = [Extensions::Off, Extensions::Preferred].map(|extensions| {
        [(asks.clone(), CloseReason::DeadLink), (idles.clone(), CloseReason::IdleTimeout)]
            .map(|(config, reason)| (config.extensions(extensions), reason))
    });
    for (config, reason) in with.into_iter().flatten() {
        let config = config.build().unwrap();
        let mut simulation = begun(1, [&config; 2], &LinkSettings::delay(ms(20)));
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&recorded);
        simulation.server().link.lose_if(move |_, packet| {
            record.lock().unwrap().push(packet.to_vec());
            false
        });
        simulation.client().writer = Writer::bulk(10);
        if config.extensions() == Extensions::Preferred {
            // There are WINS among them: its reader pauses, and the client asks for its window.
            simulation.client().writer = Writer::bulk(500_000);
            simulation.server().reader =
                kcp9_simulator::Reader { not_before: at(1_003 * SECOND), ..kcp9_simulator::Reader::eager() };
        }
        simulation.run_for(30 * SECOND);
        simulation.server().writer = Writer::bulk(500_000);
        simulation.run_for(15 * SECOND);
        assert_eq!(simulation.flows[SERVER].read, 500_000);
        if config.extensions() == Extensions::Preferred && config.keep_alive().is_some() {
            // PONGs of a long silence have the numbers that are still right. (So have a legacy peer's WINS, which nobody can
            // tell from new ones.)
            simulation.run_for(1_000 * SECOND);
        }
        // The peer dies.
        kill(&mut simulation, SERVER);
        let killed = simulation.now;
        let recorded = recorded.lock().unwrap().clone();
        assert!(recorded.len() > 300, "{}", recorded.len());
        let (all, latest) = (recorded.iter().cycle(), recorded[recorded.len() - 50..].iter().cycle());
        let mut opened = 0;
        for mut packet in all.zip(latest).flat_map(|(one, other)| [one, other]).take(600).cloned() {
            let outcome =
                simulation.call(CLIENT, |connection, now| connection.handle_packet(now, &mut packet));
            opened += u32::from(outcome.is_ok());
            simulation.run_for(ms(200));
        }
        assert!(opened > 200, "{opened} were opened");
        let Some((when, ended)) = simulation.events(CLIENT).last() else { panic!("{}", simulation.report()) };
        assert_eq!(*ended, Event::Closed(reason), "{}", simulation.report());
        assert!(*when - killed < 60 * SECOND, "{:?}", *when - killed);
    }
}
