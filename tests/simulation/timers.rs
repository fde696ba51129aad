//! Each timer of a connection: when it fires, for what reason, and what follows.

use std::time::Duration;

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    proto::{CloseReason, Command, Connection, Event, Instant, SegmentHeader, Segments, Timer},
};

use kcp9_simulator::{CLIENT, LinkSettings, Simulation, Writer, ms};

const CONV: u32 = 7;

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn connection(settings: impl FnOnce(KcpConfigBuilder) -> KcpConfigBuilder) -> Connection {
    let config = settings(KcpConfig::builder().stream(false).keep_alive(None)).build().unwrap();
    Connection::new(CONV, &config, Instant::ZERO)
}

fn receive(connection: &mut Connection, now: Instant, cmd: Command, sn: u32, wnd: u16) {
    let header = SegmentHeader { conv: CONV, cmd, frg: 0, wnd, ts: 0, sn, una: 0, len: 0 };
    connection.handle_packet(now, &mut header.to_bytes()).unwrap();
}

/// The segments that are sent now, without encryption and FEC.
fn sent(connection: &mut Connection, now: Instant) -> Vec<(Command, u32)> {
    let mut buffer = vec![0; 65_536];
    let mut found = Vec::new();
    while let Some(transmit) = connection.poll_transmit(now, &mut buffer) {
        for packet in buffer[..transmit.len].chunks(transmit.stride) {
            found
                .extend(Segments::new(packet).map(Result::unwrap).map(|(header, _)| (header.cmd, header.sn)));
        }
    }
    found
}

/// The timer that fires next is this one, at that time and no sooner.
fn fires(connection: &mut Connection, timer: Timer, when: Instant) {
    assert_eq!(connection.next_timer(), Some((timer, when)));
    assert_eq!(connection.poll_timeout(), Some(when));
    let before = Instant::from_micros(when.as_micros() - 1);
    assert_eq!(connection.due_timers(before).next(), None);
    connection.handle_timeout(before);
    assert_eq!(connection.poll_transmit(before, &mut [0; 2_048]), None, "{timer:?} has not fired");
    assert_eq!(connection.close_reason(), None, "{timer:?} has not fired");
    assert_eq!(connection.due_timers(when).next(), Some(timer));
    connection.handle_timeout(when);
}

#[test]
fn an_idle_session_and_one_that_has_ended_have_no_timer() {
    let mut connection = connection(|config| config);
    assert_eq!(connection.next_timer(), None);
    connection.write(at(0), b"hello").unwrap();
    sent(&mut connection, at(0));
    assert!(connection.next_timer().is_some());
    connection.close(CloseReason::Aborted);
    assert_eq!(connection.next_timer(), None);
    assert_eq!(connection.due_timers(at(1_000_000)).next(), None);
}

#[test]
fn acks_wait_for_an_interval() {
    let mut connection = connection(|config| config);
    receive(&mut connection, at(0), Command::Push, 0, 128);
    assert_eq!(sent(&mut connection, at(0)), [(Command::Ack, 0)], "the first is acknowledged at once");
    receive(&mut connection, at(5), Command::Push, 1, 128);
    fires(&mut connection, Timer::Ack, at(15));
    assert_eq!(sent(&mut connection, at(15)), [(Command::Ack, 1)]);
    assert_eq!(connection.next_timer(), None);
}

#[test]
fn a_closed_window_is_asked_for() {
    let mut connection = connection(|config| config);
    receive(&mut connection, at(0), Command::Wins, 0, 0);
    connection.write(at(0), b"waits").unwrap();
    assert_eq!(sent(&mut connection, at(0)), []);
    fires(&mut connection, Timer::WindowProbe, at(500));
    assert_eq!(sent(&mut connection, at(500)), [(Command::Wask, 1)], "0 would begin a session at kcp-go");
}

#[test]
fn a_segment_without_an_ack_is_resent_after_its_rto() {
    let mut connection = connection(|config| config);
    connection.write(at(0), b"lost").unwrap();
    assert_eq!(sent(&mut connection, at(0)), [(Command::Push, 0)]);
    let rto = connection.stats().path.rto;
    assert_eq!(rto, ms(200));
    fires(&mut connection, Timer::Rto, Instant::ZERO + rto);
    assert_eq!(sent(&mut connection, at(200)), [(Command::Push, 0)]);
    assert_eq!(connection.stats().recovery.timeout_resends, 1);
}

#[test]
fn a_segment_skipped_once_is_resent_early_where_nothing_new_is_sent() {
    let mut connection = connection(|config| config);
    for message in [b"lost", b"then"] {
        connection.write(at(0), message).unwrap();
    }
    assert_eq!(sent(&mut connection, at(0)), [(Command::Push, 0), (Command::Push, 1)]);
    receive(&mut connection, at(100), Command::Ack, 1, 128);
    // A quarter of the round trip, an interval at most.
    fires(&mut connection, Timer::EarlyResend, at(110));
    assert_eq!(sent(&mut connection, at(110)), [(Command::Push, 0)]);
    assert_eq!(connection.stats().recovery.early_resends, 1);
}

#[test]
fn new_segments_wait_for_the_pacer() {
    let link = LinkSettings::delay(ms(100)).rate(1_000_000, 100_000);
    let mut simulation = Simulation::new(1, &KcpConfig::default(), &link);
    simulation.client().writer = Writer::bulk(5_000_000);
    simulation.complete(Duration::from_secs(60));
    // The rate is known, the window is empty, and so the pacer alone limits what follows the first burst.
    let now = simulation.now;
    let connection = &mut simulation.ends[CLIENT].connection;
    let written = connection.write(now, &[7; 500_000]).unwrap();
    let burst = sent(connection, now).len();
    assert!(burst > 1 && burst * 1_376 < written, "{burst} segments of {written} bytes");
    let (timer, when) = connection.next_timer().unwrap();
    assert_eq!((timer, connection.poll_timeout()), (Timer::Pacing, Some(when)));
    assert_eq!(connection.due_timers(now).next(), None);
    // It waits for what is worth a call: at a megabyte a second that is at least a millisecond's worth.
    assert!(when >= now + ms(1), "{now:?} {when:?}");
    assert!(connection.due_timers(when).eq([Timer::Pacing]));
    connection.handle_timeout(when);
    let segments = connection.stats().segments.push_sent;
    let pushes = sent(connection, when).len() as u64;
    assert!(pushes > 0 && connection.stats().segments.push_sent == segments + pushes, "new segments");
}

#[test]
fn a_delayed_write_waits_for_an_interval() {
    let mut connection = connection(|config| config.write_delay(true).stream(true));
    connection.write(at(3), b"one ").unwrap();
    connection.write(at(9), b"segment").unwrap();
    fires(&mut connection, Timer::WriteDelay, at(13));
    assert_eq!(sent(&mut connection, at(13)), [(Command::Push, 0)]);
}

#[test]
fn a_group_that_stays_incomplete_is_copied() {
    let mut connection = connection(|config| config.fec(10, 3).fec_flush(Some(ms(7))));
    connection.write(at(0), b"alone").unwrap();
    let mut buffer = [0; 2_048];
    assert!(connection.poll_transmit(at(0), &mut buffer).is_some());
    fires(&mut connection, Timer::FecFlush, at(7));
    assert!(connection.poll_transmit(at(7), &mut buffer).is_some());
    assert_eq!(connection.stats().recovery.fec_flush_copies, 1);
}

/// Has the timers fire one after the other until the session ends; returns which did, and why it ended.
fn until_closed(connection: &mut Connection) -> (Vec<Timer>, Instant, CloseReason) {
    let mut fired = Vec::new();
    while let Some((timer, when)) = connection.next_timer() {
        fired.push(timer);
        fires(connection, timer, when);
        sent(connection, when);
        if let Some(reason) = connection.close_reason() {
            let events: Vec<_> = std::iter::from_fn(|| connection.poll_event()).collect();
            assert_eq!(events, [Event::Closed(reason)]);
            return (fired, when, reason);
        }
    }
    panic!("it never ends: {fired:?}");
}

#[test]
fn a_shutdown_ends_with_its_linger_time() {
    let mut connection = connection(|config| config.linger(ms(50)));
    connection.write(at(0), b"never acknowledged").unwrap();
    sent(&mut connection, at(0));
    connection.shutdown(at(30));
    let end = until_closed(&mut connection);
    assert_eq!(end, (vec![Timer::Linger], at(80), CloseReason::LingerTimeout));
}

#[test]
fn a_silent_peer_that_owes_an_answer_ends_the_session() {
    let mut connection = connection(|config| config.dead_timeout(ms(100)));
    connection.write(at(10), b"never acknowledged").unwrap();
    sent(&mut connection, at(10));
    let (fired, when, reason) = until_closed(&mut connection);
    assert_eq!((when, reason), (at(110), CloseReason::DeadLink));
    let (last, before) = fired.split_last().unwrap();
    assert_eq!(*last, Timer::DeadPeer);
    assert!(before.len() >= 3 && before.iter().all(|timer| *timer == Timer::Rto), "{before:?}");
}

#[test]
fn a_session_without_payload_ends_with_its_idle_timeout() {
    let mut connection = connection(|config| config.idle_timeout(Some(Duration::from_secs(5))));
    receive(&mut connection, at(2_000), Command::Push, 0, 128);
    sent(&mut connection, at(2_000));
    assert_eq!(connection.poll_event(), Some(Event::Readable));
    assert_eq!(connection.recv().as_deref(), Ok(&[][..]));
    // The peer is there, but that is not enough.
    receive(&mut connection, at(3_000), Command::Push, 0, 128);
    sent(&mut connection, at(3_000));
    receive(&mut connection, at(4_000), Command::Wins, 0, 128);
    let end = until_closed(&mut connection);
    assert_eq!(end, (vec![Timer::Ack, Timer::Idle], at(7_000), CloseReason::IdleTimeout));
}

#[test]
fn a_silent_peer_is_asked_whether_it_is_there() {
    let mut connection = connection(|config| config.keep_alive(Some(Duration::from_secs(20))));
    receive(&mut connection, at(1_000), Command::Wins, 0, 128);
    let (timer, when) = connection.next_timer().unwrap();
    assert_eq!(timer, Timer::KeepAlive);
    let wait = when - at(1_000);
    assert!((Duration::from_secs(18)..=Duration::from_secs(22)).contains(&wait), "{wait:?}");
    fires(&mut connection, Timer::KeepAlive, when);
    assert_eq!(sent(&mut connection, when), [(Command::Wask, 1)]);
    // Without an answer it is asked again after the RTO, which is that of the beginning.
    fires(&mut connection, Timer::KeepAlive, when + ms(200));
    assert_eq!(sent(&mut connection, when + ms(200)), [(Command::Wask, 1)]);
    let answered = when + ms(250);
    receive(&mut connection, answered, Command::Wins, 0, 128);
    // Questions are asked at ticks of about a thousandth of the wait.
    let (timer, next) = connection.next_timer().unwrap();
    assert_eq!(timer, Timer::KeepAlive);
    assert!((next - answered).abs_diff(wait) <= ms(17), "{:?}, not {wait:?}", next - answered);
}

#[test]
fn a_peer_that_does_not_go_on_is_told_again_that_the_window_is_open() {
    let mut connection = connection(|config| config.recv_window(1));
    let header =
        SegmentHeader { conv: CONV, cmd: Command::Push, frg: 0, wnd: 9, ts: 0, sn: 0, una: 0, len: 1 };
    let mut packet = header.to_bytes().to_vec();
    packet.push(7);
    connection.handle_packet(at(0), &mut packet).unwrap();
    assert_eq!(sent(&mut connection, at(0)), [(Command::Ack, 0)]);
    assert_eq!(connection.next_timer(), None);
    assert_eq!(connection.read(&mut [0; 8]), Ok(1));
    assert_eq!(sent(&mut connection, at(0)), [(Command::Wins, 1)]);
    for when in [10, 30, 70, 150, 310] {
        fires(&mut connection, Timer::WindowUpdate, at(when));
        assert_eq!(sent(&mut connection, at(when)), [(Command::Wins, 1)]);
    }
    assert_eq!(connection.next_timer(), None);
}
