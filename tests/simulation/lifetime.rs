//! Sessions at rest, and how they end.

use std::time::Duration;

use kcp9::{
    KcpConfig,
    proto::{CloseReason, Event, Instant, WriteError},
};

use kcp9_simulator::{CLIENT, LinkSettings, SERVER, Simulation, Writer, ms};

const SECOND: Duration = Duration::from_secs(1);

fn at(time: Duration) -> Instant {
    Instant::ZERO + time
}

#[test]
fn without_keep_alive_an_idle_session_has_no_deadline_and_sends_nothing() {
    for seed in 0..20 {
        let config = KcpConfig::builder()
            .keep_alive(None)
            .write_delay(seed % 2 == 0)
            .ack_no_delay(seed % 3 == 0)
            .build()
            .unwrap();
        let mut simulation = Simulation::new(seed, &config, &LinkSettings::delay(ms(40)).loss(0.2));
        simulation.client().writer = Writer::bulk(100_000);
        simulation.server().writer = Writer::bulk(1_000);
        simulation.complete(60 * SECOND);
        let sent = [0, 1].map(|side| simulation.ends[side].connection.stats().udp.packets_sent);
        let before = simulation.now;
        simulation.run_for(3_600 * SECOND);
        assert_eq!(simulation.next_event(), None);
        assert_eq!(simulation.now - before, 3_600 * SECOND);
        assert_eq!(sent, [0, 1].map(|side| simulation.ends[side].connection.stats().udp.packets_sent));
        simulation.check_at_rest();
        // It still works.
        simulation.client().writer.total += 10_000;
        simulation.complete(60 * SECOND);
    }
}

#[test]
fn a_new_session_has_no_deadline_without_keep_alive() {
    let config = KcpConfig::builder().keep_alive(None).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::default());
    simulation.start();
    assert_eq!(simulation.next_event(), None);
    assert_eq!(simulation.client().link.counts.offered, 0);
}

#[test]
fn shutdown_reports_the_end_when_everything_is_delivered() {
    for seed in 0..10 {
        let config = KcpConfig::builder().write_delay(seed % 2 == 1).linger(120 * SECOND).build().unwrap();
        let mut simulation = Simulation::new(seed, &config, &LinkSettings::delay(ms(30)).loss(0.3));
        simulation.client().writer = Writer { shutdown: true, ..Writer::bulk(1_000_000) };
        let mut flushed_early = false;
        simulation.run_until(120 * SECOND, |simulation| {
            let flushed = !simulation.events(CLIENT).is_empty();
            flushed_early |=
                flushed && simulation.ends[SERVER].connection.stats().stream.bytes_read < 1_000_000;
            flushed
        });
        assert!(!flushed_early, "seed {seed}");
        assert!(
            matches!(simulation.events(CLIENT), [(_, Event::Flushed)]),
            "{:?}",
            simulation.events(CLIENT)
        );
        assert_eq!(simulation.flows[CLIENT].read, 1_000_000);
        let refused = simulation.call(CLIENT, |connection, now| connection.write(now, b"late"));
        assert_eq!(refused, Err(WriteError::ShutDown));
        // It can still read.
        simulation.server().writer = Writer::bulk(100_000);
        simulation.complete(120 * SECOND);
        assert_eq!(simulation.events(CLIENT).len(), 1);
    }
}

#[test]
fn shutdown_with_nothing_to_deliver_is_done_at_once() {
    let config = KcpConfig::builder().keep_alive(None).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::default());
    simulation.call(CLIENT, |connection, now| connection.shutdown(now));
    assert_eq!(simulation.events(CLIENT), [(Instant::ZERO, Event::Flushed)]);
    assert_eq!(simulation.next_event(), None);
}

#[test]
fn linger_ends_at_its_limit() {
    let config = KcpConfig::builder().linger(7 * SECOND).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(10)).loss(1.0));
    simulation.run_for(SECOND);
    simulation.call(CLIENT, |connection, now| connection.write(now, b"into the void")).unwrap();
    simulation.call(CLIENT, |connection, now| connection.shutdown(now));
    simulation.run_for(60 * SECOND);
    let expected = Event::Closed(CloseReason::LingerTimeout);
    assert_eq!(simulation.events(CLIENT), [(at(8 * SECOND), expected)]);
    assert_eq!(simulation.client().connection.poll_timeout(), None);
}

#[test]
fn idle_timeout_counts_from_what_was_heard_last() {
    let config = KcpConfig::builder().idle_timeout(Some(20 * SECOND)).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(10)));
    simulation.run_for(15 * SECOND);
    simulation.client().writer = Writer::bulk(10);
    simulation.run_for(60 * SECOND);
    // The server hears the data at 15.01 s; its ACK, the first of the session, does not wait and is heard at 15.02 s.
    let idle = Event::Closed(CloseReason::IdleTimeout);
    assert_eq!(simulation.events(SERVER), [(at(ms(35_010)), idle)]);
    assert_eq!(simulation.events(CLIENT), [(at(ms(35_020)), idle)]);
}

#[test]
fn what_arrived_before_the_end_can_still_be_read() {
    let config = KcpConfig::default();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(10)));
    simulation.server().reader.not_before = at(3_600 * SECOND);
    simulation.client().writer = Writer::bulk(10_000);
    simulation.run_for(SECOND);
    simulation.call(SERVER, |connection, _| connection.close(CloseReason::Aborted));
    assert_eq!(simulation.events(SERVER), [(at(SECOND), Event::Closed(CloseReason::Aborted))]);
    simulation.run_for(3_600 * SECOND);
    assert_eq!(simulation.flows[CLIENT].read, 10_000);
}

/// The peer does not know that nobody reads: it goes on writing, and must not be kept from reading by that.
#[test]
fn a_dropped_session_delivers_what_was_written_and_is_finished_then() {
    for loss in [0.0, 0.2] {
        let link = LinkSettings::delay(ms(10)).loss(loss);
        let mut simulation = Simulation::new(1, &KcpConfig::default(), &link);
        simulation.server().writer = Writer::bulk(50_000_000);
        simulation.client().reader.not_before = at(3_600 * SECOND);
        simulation.client().writer = Writer::bulk(100_000);
        simulation.run_until(20 * SECOND, |simulation| simulation.flows[CLIENT].written == 100_000);
        simulation.call(CLIENT, |connection, now| connection.drop_reader(now));
        assert_eq!(simulation.client().connection.stats().queues.unread_bytes, 0);
        let finished = |simulation: &Simulation| simulation.ends[CLIENT].connection.close_reason().is_some();
        simulation.run_until(20 * SECOND, finished);
        let [(flushed, Event::Flushed), (closed, Event::Closed(CloseReason::Finished))] =
            simulation.events(CLIENT)
        else {
            panic!("{:?}", simulation.events(CLIENT))
        };
        assert!(*closed - *flushed <= ms(10), "what has arrived is acknowledged before");
        let arrived = simulation.server().connection.stats();
        assert_eq!(arrived.stream.bytes_read + arrived.queues.unread_bytes as u64, 100_000);
        assert_eq!(simulation.client().connection.shutdown_result(), Some(Ok(())));
        assert_eq!(simulation.client().connection.stats().queues.unread_bytes, 0);
        assert_eq!(simulation.client().connection.poll_timeout(), None);
    }
}

#[test]
fn a_dropped_session_without_linger_ends_at_once() {
    let config = KcpConfig::builder().linger(Duration::ZERO).build().unwrap();
    let mut simulation = Simulation::new(1, &config, &LinkSettings::delay(ms(10)));
    simulation.call(CLIENT, |connection, now| connection.write(now, b"never sent")).unwrap();
    simulation.call(CLIENT, |connection, now| connection.drop_reader(now));
    assert_eq!(simulation.events(CLIENT), [(Instant::ZERO, Event::Closed(CloseReason::Aborted))]);
}
