//! Paths that break for a time, in one direction or for good.

use std::time::Duration;

use kcp9::{
    KcpConfig, NoDelay,
    proto::{CloseReason, Command, Event, Instant, ReadError, Segments, WriteError},
};

use kcp9_simulator::{CLIENT, LinkSettings, Reader, SERVER, Simulation, Writer, ms};

const SECOND: Duration = Duration::from_secs(1);
const PRESETS: [NoDelay; 5] = [NoDelay::NORMAL, NoDelay::FAST, NoDelay::FAST2, NoDelay::FAST3, NoDelay::IKCP];

fn at(time: Duration) -> Instant {
    Instant::ZERO + time
}

#[test]
fn a_blackout_of_ten_seconds_is_survived() {
    for nodelay in PRESETS {
        let config = KcpConfig::builder().nodelay(nodelay).send_window(64).build().unwrap();
        let blackouts = vec![at(SECOND)..at(11 * SECOND)];
        let link = LinkSettings { blackouts, ..LinkSettings::delay(ms(25)).rate(1_000_000, 200_000) };
        let mut simulation = Simulation::new(1, &config, &link);
        simulation.client().writer = Writer::bulk(3_000_000);
        simulation.server().writer = Writer::bulk(3_000_000);
        simulation.run_for(11 * SECOND);
        let read = simulation.flows[CLIENT].read;
        assert!(read < 2_000_000, "{read}");
        simulation.complete(60 * SECOND);
        assert_eq!((simulation.events(CLIENT), simulation.events(SERVER)), (&[][..], &[][..]));
        // Timeouts back off: a silent peer costs a few transmissions of what is in flight.
        let stats = simulation.client().connection.stats();
        assert!(stats.udp.bytes_sent < 9_000_000, "{nodelay:?}: {stats:?}");
    }
}

#[test]
fn traffic_resumes_soon_after_a_blackout() {
    // The backoff of no-delay mode adds half an RTO a time: after 10 s of silence the next try is under 3 s away.
    let blackouts = vec![at(SECOND)..at(11 * SECOND)];
    let link = LinkSettings { blackouts, ..LinkSettings::delay(ms(25)) };
    let mut simulation = Simulation::new(2, &KcpConfig::default(), &link);
    simulation.client().writer = Writer { pace: Some(ms(10)), sizes: 1..=1_000, ..Writer::bulk(1_000_000) };
    simulation.run_for(11 * SECOND);
    let before = simulation.flows[CLIENT].read;
    simulation.run_for(3 * SECOND);
    assert!(simulation.flows[CLIENT].read > before);
    simulation.complete(60 * SECOND);
}

#[test]
fn a_transfer_survives_the_loss_of_nine_acks_in_ten() {
    for nodelay in PRESETS {
        let config = KcpConfig::builder()
            .nodelay(nodelay)
            .send_window(256)
            .dead_timeout(600 * SECOND)
            .build()
            .unwrap();
        let link = LinkSettings::delay(ms(25));
        let links = [link.clone(), link.loss(0.9)];
        let mut simulation = Simulation::with(3, [&config, &config], links, 0, [Duration::ZERO; 2]);
        simulation.client().writer = Writer::bulk(if nodelay.nc { 1_000_000 } else { 50_000 });
        simulation.complete(600 * SECOND);
        // `una` makes up for lost ACKs: of ten that a round of resends causes one arrives, and confirms everything.
        let stats = simulation.client().connection.stats();
        assert!(stats.recovery.resends() < 15 * stats.segments.push_sent, "{nodelay:?}: {stats:?}");
    }
}

#[test]
fn a_vanished_peer_closes_the_session_at_the_dead_timeout() {
    for dead_timeout in [SECOND, 30 * SECOND, 300 * SECOND] {
        let config = KcpConfig::builder().dead_timeout(dead_timeout).build().unwrap();
        let gone = 5 * SECOND;
        let link =
            LinkSettings { blackouts: vec![at(gone)..at(36_000 * SECOND)], ..LinkSettings::delay(ms(20)) };
        let mut simulation = Simulation::new(4, &config, &link);
        simulation.client().writer = Writer { pace: Some(ms(20)), sizes: 9..=9, ..Writer::bulk(1_000_000) };
        simulation.run_for(gone + ms(40));
        // Both heard each other last within the 20 ms before the cut.
        let last_heard = gone + ms(20);
        simulation.run_for(last_heard + dead_timeout - ms(51) - (gone + ms(40)));
        assert_eq!(simulation.events(CLIENT), [], "too early");
        simulation.run_for(ms(60));
        let [(when, Event::Closed(CloseReason::DeadLink))] = simulation.events(CLIENT) else {
            panic!("{:?}", simulation.events(CLIENT));
        };
        assert!(*when <= at(last_heard + dead_timeout), "{when:?}");
        simulation.run_for(SECOND);
        simulation.client().writer = Writer::none();
        assert_eq!(simulation.client().connection.poll_timeout(), None);
        let closed = CloseReason::DeadLink;
        let refused = simulation.call(CLIENT, |connection, now| connection.write(now, b"x"));
        assert_eq!(refused, Err(WriteError::Closed(closed)));
        let refused = simulation.call(CLIENT, |connection, _| connection.read(&mut [0; 8]));
        assert_eq!(refused, Err(ReadError::Closed(closed)));
        // The other end has nothing in flight and waits for ever.
        assert_eq!(simulation.events(SERVER), []);
    }
}

#[test]
fn the_dead_timeout_counts_from_the_first_unanswered_transmission() {
    let config = KcpConfig::builder().dead_timeout(30 * SECOND).keep_alive(None).build().unwrap();
    let mut simulation = Simulation::new(5, &config, &LinkSettings::delay(ms(20)).loss(1.0));
    // Idle for an hour: without keep-alive, silence alone ends no session.
    simulation.run_for(3_600 * SECOND);
    simulation.call(CLIENT, |connection, now| connection.write(now, b"anyone?")).unwrap();
    simulation.run_for(60 * SECOND);
    let dead = Event::Closed(CloseReason::DeadLink);
    assert_eq!(simulation.events(CLIENT), [(at(3_630 * SECOND), dead)]);
}

#[test]
fn a_peer_that_vanishes_with_its_window_closed_closes_the_session_too() {
    let config = KcpConfig::builder().recv_window(32).dead_timeout(30 * SECOND).build().unwrap();
    let link =
        LinkSettings { blackouts: vec![at(10 * SECOND)..at(36_000 * SECOND)], ..LinkSettings::delay(ms(20)) };
    let mut simulation = Simulation::new(6, &config, &link);
    simulation.client().writer = Writer::bulk(1_000_000);
    simulation.server().reader = Reader { not_before: at(36_000 * SECOND), ..Reader::eager() };
    simulation.run_for(10 * SECOND);
    let stats = simulation.client().connection.stats();
    assert_eq!((stats.queues.peer_window, stats.queues.in_flight), (0, 0));
    simulation.run_for(1_000 * SECOND);
    assert!(
        matches!(simulation.events(CLIENT), [(_, Event::Closed(CloseReason::DeadLink))]),
        "window probes went unanswered for 1,000 s: {}",
        simulation.report()
    );
}

#[test]
fn a_count_of_unanswered_transmissions_ends_a_session_when_asked_to() {
    let config = KcpConfig::builder().dead_link(5).build().unwrap();
    let mut simulation = Simulation::new(7, &config, &LinkSettings::delay(ms(20)).loss(1.0));
    simulation.call(CLIENT, |connection, now| connection.write(now, b"anyone?")).unwrap();
    simulation.client().record();
    simulation.run_for(60 * SECOND);
    // Sent at 0, 200, 400, 700 and 1,100 ms; the sixth, at 1,600 ms, would be one too many.
    let dead = Event::Closed(CloseReason::DeadLink);
    assert_eq!(simulation.events(CLIENT), [(at(ms(1_600)), dead)]);
}

#[test]
fn one_segment_that_never_arrives_does_not_kill_a_peer_that_answers() {
    let config = KcpConfig::builder().dead_timeout(5 * SECOND).build().unwrap();
    let mut simulation = Simulation::new(8, &config, &LinkSettings::delay(ms(20)));
    simulation.client().link.lose_if(|now, packet| {
        let cursed = Segments::new(packet).flatten().any(|(h, _)| h.cmd == Command::Push && h.sn == 7);
        cursed && now < at(60 * SECOND)
    });
    simulation.client().writer =
        Writer { pace: Some(ms(500)), sizes: 100..=100, messages: true, ..Writer::bulk(100 * 200) };
    simulation.server().reader = Reader::messages();
    simulation.run_for(59 * SECOND);
    assert_eq!(simulation.flows[CLIENT].read, 700);
    simulation.complete(600 * SECOND);
    assert_eq!(simulation.events(CLIENT), []);
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
