//! Single ends, with the packets lost that matter.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use kcp9::proto::{
    AbortReason, CloseReason, Command, Connection, Event, Instant, ReadError, SegmentHeader, WriteError,
};
use kcp9_simulator::{CLIENT, LinkSettings, Reader, SERVER, Simulation, Writer, ms};

use super::{Know, SECOND, both, closed, reason, session, session_at, when};

const DELAY: Duration = ms(25);
const ROUND_TRIP: Duration = ms(50);

const PUSH: u8 = 81;
const FIN: (u8, u8) = (0x60, 4);
const FIN_ACK: (u8, u8) = (0x60, 5);
const ABORT: (u8, u8) = (0x60, 6);

/// Two ends that know each other: a few bytes went both ways.
fn acquainted(know: Know) -> Simulation {
    let mut simulation = session(1, know, both(&LinkSettings::delay(DELAY)), |config| config);
    for side in [CLIENT, SERVER] {
        simulation.ends[side].writer = Writer::bulk(100);
    }
    simulation.run_for(SECOND);
    for side in [CLIENT, SERVER] {
        assert_eq!(simulation.flows[side].read, 100);
    }
    simulation
}

/// The subtypes of the extension segments of a packet without FEC and encryption; for others, the command and 0.
fn segments(packet: &[u8]) -> Vec<(u8, u8)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(header) = packet.get(at..at + 24) {
        found.push((header[4], if header[4] == 0x60 { header[5] } else { 0 }));
        at += 24 + u32::from_le_bytes([header[20], header[21], header[22], header[23]]) as usize;
    }
    found
}

/// Loses the next `count` packets that hold such a segment. Returns a counter of those that were sent.
fn lose(simulation: &mut Simulation, side: usize, kind: (u8, u8), count: u32) -> Arc<AtomicU32> {
    let sent = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&sent);
    simulation.ends[side].link.lose_if(move |_, packet| {
        segments(packet).contains(&kind) && counter.fetch_add(1, Ordering::Relaxed) < count
    });
    sent
}

fn write(simulation: &mut Simulation, side: usize, bytes: u64) {
    simulation.ends[side].writer.total += bytes;
    simulation.drive(side);
}

fn shutdown(simulation: &mut Simulation, side: usize) {
    simulation.call(side, Connection::shutdown);
}

fn drop_reader(simulation: &mut Simulation, side: usize) {
    simulation.call(side, Connection::drop_reader);
}

/// Time from the start of an action, at `began`, to an event.
fn after(simulation: &Simulation, began: Instant, side: usize, event: Event) -> Duration {
    when(simulation, side, event).unwrap_or_else(|| panic!("no {event:?}")) - (began - Instant::ZERO)
}

#[test]
fn the_end_of_the_stream_comes_with_its_last_byte_and_shutdown_takes_a_round_trip() {
    let mut simulation = acquainted(Know::Both);
    let began = simulation.now;
    write(&mut simulation, CLIENT, 10_000);
    shutdown(&mut simulation, CLIENT);
    simulation.run_for(SECOND);
    assert!(simulation.server().reader.finished && simulation.flows[CLIENT].read == 10_100);
    assert_eq!(after(&simulation, began, SERVER, Event::Finished), DELAY);
    assert!(after(&simulation, began, CLIENT, Event::Flushed) <= ROUND_TRIP + ms(10));
    assert_eq!([reason(&simulation, CLIENT), reason(&simulation, SERVER)], [None, None], "half-closed");
    assert!(!simulation.client().reader.finished);

    let began = simulation.now;
    shutdown(&mut simulation, SERVER);
    simulation.run_for(SECOND);
    for side in [CLIENT, SERVER] {
        assert_eq!(reason(&simulation, side), Some(CloseReason::Finished));
        assert!(after(&simulation, began, side, closed(CloseReason::Finished)) <= ROUND_TRIP + ms(10));
        assert!(simulation.ends[side].reader.finished);
        assert_eq!(simulation.ends[side].connection.shutdown_result(), Some(Ok(())));
    }
    assert_eq!(simulation.next_event(), None, "nothing is left to do");
}

#[test]
fn a_request_that_ends_with_the_session_is_answered_and_both_are_done() {
    for knows in [Know::Both, Know::Client, Know::Server, Know::Neither] {
        let mut simulation = session(1, knows, both(&LinkSettings::delay(DELAY)), |config| config);
        simulation.client().writer = Writer { shutdown: true, ..Writer::bulk(50_000) };
        simulation.run_for(SECOND);
        assert_eq!(simulation.flows[CLIENT].read, 50_000);
        let flushed = when(&simulation, CLIENT, Event::Flushed);
        assert!(flushed.is_some_and(|at| at <= 4 * ROUND_TRIP), "{knows:?}: {flushed:?}");
        assert_eq!(simulation.server().reader.finished, knows == Know::Both, "{knows:?}");
        simulation.server().writer = Writer { shutdown: true, ..Writer::bulk(50_000) };
        simulation.run_for(SECOND);
        assert_eq!(simulation.flows[SERVER].read, 50_000);
        let finished = (knows == Know::Both).then_some(CloseReason::Finished);
        assert_eq!([CLIENT, SERVER].map(|side| reason(&simulation, side)), [finished; 2], "{knows:?}");
    }
}

/// Race 13.
#[test]
fn one_direction_goes_on_for_a_minute_after_the_end_of_the_other() {
    let mut simulation = acquainted(Know::Both);
    shutdown(&mut simulation, CLIENT);
    simulation.run_for(SECOND);
    assert!(simulation.server().reader.finished);
    simulation.server().writer =
        Writer { pace: Some(ms(10)), sizes: 1_000..=1_000, blocked: false, ..Writer::bulk(6_000_100) };
    simulation.run_for(59 * SECOND);
    assert_eq!(reason(&simulation, CLIENT), None);
    simulation.server().writer.shutdown = true;
    simulation.run_for(10 * SECOND);
    assert_eq!(simulation.flows[SERVER].read, 6_000_100);
    assert_eq!([CLIENT, SERVER].map(|side| reason(&simulation, side)), [Some(CloseReason::Finished); 2]);
}

/// Race 11.
#[test]
fn lost_fins_and_lost_answers_only_cost_time() {
    for kind in [FIN, FIN_ACK] {
        for count in 0..6 {
            let mut simulation = acquainted(Know::Both);
            let loser = if kind == FIN { CLIENT } else { SERVER };
            let sent = lose(&mut simulation, loser, kind, count);
            shutdown(&mut simulation, CLIENT);
            simulation.run_for(20 * SECOND);
            assert!(simulation.server().reader.finished, "{kind:?} {count}");
            assert_eq!(simulation.client().connection.shutdown_result(), Some(Ok(())), "{kind:?} {count}");
            assert_eq!(sent.load(Ordering::Relaxed), count + 1, "{kind:?}: one more than were lost");
            assert_eq!(reason(&simulation, CLIENT), None);
        }
    }
}

/// Race 12.
#[test]
fn a_fin_that_overtakes_data_waits_for_it() {
    let mut simulation = acquainted(Know::Both);
    let sent = lose(&mut simulation, CLIENT, (PUSH, 0), 3);
    let began = simulation.now;
    write(&mut simulation, CLIENT, 3_000);
    shutdown(&mut simulation, CLIENT);
    simulation.run_for(DELAY);
    assert!(!simulation.server().reader.finished);
    assert_eq!(simulation.flows[CLIENT].read, 100);
    simulation.run_for(5 * SECOND);
    assert!(sent.load(Ordering::Relaxed) > 3);
    assert!(simulation.server().reader.finished && simulation.flows[CLIENT].read == 3_100);
    assert!(after(&simulation, began, SERVER, Event::Finished) > DELAY);
    assert_eq!(simulation.client().connection.shutdown_result(), Some(Ok(())));
}

#[test]
fn the_last_data_and_the_fin_share_a_packet_if_there_is_room() {
    // With 1,176 bytes of payload, the last packet is full: nothing has asked for longer ones yet.
    for (bytes, shared) in [(10_000, true), (1, true), (1_176, false), (1_144, true), (1_145, false)] {
        let mut simulation = acquainted(Know::Both);
        let packets = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&packets);
        simulation.client().link.lose_if(move |_, packet| {
            seen.lock().unwrap().push(segments(packet));
            false
        });
        let began = simulation.now;
        // The end is known when the data is sent.
        simulation.client().writer.total += bytes;
        simulation.client().writer.shutdown = true;
        simulation.run_for(SECOND);
        assert!(simulation.server().reader.finished && simulation.flows[CLIENT].read == 100 + bytes);
        assert_eq!(after(&simulation, began, SERVER, Event::Finished), DELAY);
        let packets = packets.lock().unwrap();
        let fins: Vec<_> = packets.iter().filter(|packet| packet.contains(&FIN)).collect();
        assert_eq!(fins.len(), 1, "{bytes}: {packets:?}");
        assert_eq!(fins[0].contains(&(PUSH, 0)), shared, "{bytes}: {packets:?}");
    }
}

/// Race 12: each packet of data is lost, and what makes up for it has the FIN as well.
#[test]
fn a_fin_may_come_in_a_packet_that_fec_recovers() {
    let link = both(&LinkSettings::delay(DELAY));
    let mut simulation = session(1, Know::Both, link, |config| config.fec(1, 1));
    for side in [CLIENT, SERVER] {
        simulation.ends[side].writer = Writer::bulk(20_000);
    }
    // Parity comes with data that follows other data soon.
    simulation.run_for(ms(300));
    simulation.client().link.lose_if(|_, packet| packet[4..6] == [0xf1, 0]);
    let began = simulation.now;
    simulation.client().writer.total += 500;
    simulation.client().writer.shutdown = true;
    simulation.run_for(SECOND);
    assert!(simulation.server().reader.finished && simulation.flows[CLIENT].read == 20_500);
    assert_eq!(after(&simulation, began, SERVER, Event::Finished), DELAY);
}

/// Race 14: the peer's window is full when the reader goes, before its FIN and after.
#[test]
fn who_writes_to_a_dropped_stream_learns_of_it_and_gives_up() {
    for ended in [false, true] {
        let mut simulation = acquainted(Know::Both);
        simulation.client().reader =
            Reader { not_before: simulation.now + 3_600 * SECOND, ..Reader::eager() };
        write(&mut simulation, SERVER, 10_000_000);
        simulation.run_for(SECOND);
        let stats = simulation.server().connection.stats();
        assert_eq!(stats.queues.peer_window, 0);
        if ended {
            simulation.server().writer.total = simulation.flows[SERVER].written;
            shutdown(&mut simulation, SERVER);
            simulation.run_for(SECOND);
        }
        write(&mut simulation, CLIENT, 500);
        let began = simulation.now;
        drop_reader(&mut simulation, CLIENT);
        assert_eq!(simulation.client().connection.stats().queues.unread_bytes, 0);
        simulation.run_for(SECOND);
        assert!(after(&simulation, began, SERVER, Event::NoReader) <= DELAY);
        assert_eq!(simulation.server().writer.refused, (!ended).then_some(WriteError::NoReader));
        let server = &simulation.server().connection;
        assert_eq!(server.stats().queues.unsent_bytes + server.stats().queues.in_flight as usize, 0);
        assert_eq!(simulation.flows[CLIENT].read, 600, "what was written before is delivered");
        // All that this end wrote has arrived, and of what it should read nothing is left.
        assert!(simulation.server().reader.finished);
        for side in [CLIENT, SERVER] {
            assert_eq!(reason(&simulation, side), Some(CloseReason::Finished));
        }
        simulation.call(SERVER, |connection, now| {
            connection.shutdown(now);
            assert_eq!(connection.shutdown_result(), Some(Err(WriteError::NoReader)));
            assert_eq!(connection.write(now, b"more"), Err(WriteError::NoReader));
            assert_eq!(connection.read(&mut [0; 8]), Err(ReadError::Finished));
        });
    }
}

#[test]
fn a_shutdown_is_done_if_everything_was_acknowledged_before_the_reader_went() {
    let mut simulation = acquainted(Know::Both);
    write(&mut simulation, SERVER, 5_000);
    simulation.run_for(SECOND);
    drop_reader(&mut simulation, CLIENT);
    simulation.run_for(SECOND);
    assert_eq!(reason(&simulation, SERVER), Some(CloseReason::Finished));
    simulation.call(SERVER, |connection, now| {
        connection.shutdown(now);
        assert_eq!(connection.shutdown_result(), Some(Ok(())));
    });
}

/// The FIN that says so is lost, and the peer goes on writing: it is told again with each of its packets, though not more often than
/// once an RTO.
#[test]
fn a_lost_no_reader_is_repeated_for_who_goes_on_writing() {
    let mut simulation = acquainted(Know::Both);
    simulation.server().writer =
        Writer { pace: Some(ms(5)), sizes: 1_000..=1_000, blocked: false, ..Writer::bulk(10_000_000) };
    simulation.run_for(SECOND);
    let sent = lose(&mut simulation, CLIENT, FIN, 3);
    let began = simulation.now;
    drop_reader(&mut simulation, CLIENT);
    let rto = simulation.client().connection.stats().path.rto;
    simulation.run_for(5 * SECOND);
    let took = after(&simulation, began, SERVER, Event::NoReader);
    assert!(took <= 3 * (rto + ms(30)) + DELAY, "{took:?} with an RTO of {rto:?}");
    assert_eq!(sent.load(Ordering::Relaxed), 4);
    assert_eq!([CLIENT, SERVER].map(|side| reason(&simulation, side)), [Some(CloseReason::Finished); 2]);
}

/// The peer's application is gone as well, but its last bytes are not. It is told all the same: else it would send them again, and be
/// answered by an ABORT.
#[test]
fn who_has_dropped_its_stream_is_told_that_nobody_takes_its_last_bytes() {
    for count in 0..4 {
        let mut simulation = acquainted(Know::Both);
        lose(&mut simulation, CLIENT, FIN, count);
        drop_reader(&mut simulation, CLIENT);
        write(&mut simulation, SERVER, 500);
        drop_reader(&mut simulation, SERVER);
        simulation.run_for(5 * SECOND);
        let reasons = [CLIENT, SERVER].map(|side| reason(&simulation, side));
        assert_eq!(reasons, [Some(CloseReason::Finished); 2], "{count} lost");
        assert_eq!(simulation.flows[SERVER].read, 100, "{count} lost");
    }
}

/// Race 15.
#[test]
fn an_abort_reaches_the_peer_also_if_the_first_is_lost() {
    for count in [0, 1, 3] {
        let mut simulation = acquainted(Know::Both);
        let began = simulation.now;
        let sent = lose(&mut simulation, CLIENT, ABORT, count);
        write(&mut simulation, SERVER, 1_000);
        write(&mut simulation, CLIENT, 1_000);
        simulation.call(CLIENT, |connection, now| connection.abort(now, AbortReason::Application));
        assert_eq!(reason(&simulation, CLIENT), Some(CloseReason::Aborted));
        let error = CloseReason::AbortedByPeer(AbortReason::Application);
        simulation.run_for(20 * SECOND);
        assert_eq!(reason(&simulation, SERVER), Some(error));
        assert_eq!(sent.load(Ordering::Relaxed), count + 1);
        if count == 0 {
            assert_eq!(after(&simulation, began, SERVER, closed(error)), DELAY);
        }
        let read = simulation.call(SERVER, |connection, _| connection.read(&mut [0; 2_000]));
        assert_eq!(read, Err(ReadError::Closed(error)));
        assert_eq!(simulation.next_event(), None);
    }
}

#[test]
fn aborts_that_cross_each_other_or_an_end_are_both_believed() {
    let mut simulation = acquainted(Know::Both);
    for side in [CLIENT, SERVER] {
        simulation.call(side, |connection, now| connection.abort(now, AbortReason::EndpointClosed));
    }
    simulation.run_for(SECOND);
    assert_eq!([CLIENT, SERVER].map(|side| reason(&simulation, side)), [Some(CloseReason::Aborted); 2]);
    assert_eq!(simulation.next_event(), None, "an ABORT is not answered");

    let mut simulation = acquainted(Know::Both);
    shutdown(&mut simulation, SERVER);
    simulation.call(CLIENT, |connection, now| connection.abort(now, AbortReason::EndpointClosed));
    simulation.run_for(10 * SECOND);
    let error = CloseReason::AbortedByPeer(AbortReason::EndpointClosed);
    assert_eq!(reason(&simulation, SERVER), Some(error));
    assert_eq!(simulation.server().connection.shutdown_result(), Some(Err(WriteError::Closed(error))));
}

/// Race 16.
#[test]
fn linger_passes_and_the_peer_is_told() {
    let link = both(&LinkSettings::delay(DELAY));
    let mut simulation = session(1, Know::Both, link, |config| config.linger(3 * SECOND).recv_window(64));
    simulation.client().writer = Writer::bulk(100);
    simulation.run_for(SECOND);
    // The server does not read, so that its window closes with most of it unsent.
    simulation.server().reader.not_before = simulation.now + 3_600 * SECOND;
    write(&mut simulation, CLIENT, 500_000);
    simulation.run_for(SECOND);
    let (began, all) = (simulation.now, simulation.flows[CLIENT].written);
    simulation.client().writer.total = all;
    drop_reader(&mut simulation, CLIENT);
    simulation.run_for(10 * SECOND);
    assert_eq!(after(&simulation, began, CLIENT, closed(CloseReason::LingerTimeout)), 3 * SECOND);
    let error = CloseReason::AbortedByPeer(AbortReason::TimedOut);
    assert_eq!(after(&simulation, began, SERVER, closed(error)), 3 * SECOND + DELAY);
}

#[test]
fn without_linger_a_dropped_session_is_aborted_at_once() {
    let link = both(&LinkSettings::delay(DELAY));
    let mut simulation = session(1, Know::Both, link, |config| config.linger(Duration::ZERO));
    simulation.client().writer = Writer::bulk(100);
    simulation.run_for(SECOND);
    let began = simulation.now;
    write(&mut simulation, CLIENT, 1_000);
    drop_reader(&mut simulation, CLIENT);
    assert_eq!(reason(&simulation, CLIENT), Some(CloseReason::Aborted));
    simulation.run_for(SECOND);
    let error = CloseReason::AbortedByPeer(AbortReason::Application);
    assert_eq!(after(&simulation, began, SERVER, closed(error)), DELAY);
}

/// R31a: the server has everything and said that it is done, but what it says to the last FIN never comes.
#[test]
fn the_last_answer_may_be_lost_with_its_sender() {
    let mut simulation = acquainted(Know::Both);
    shutdown(&mut simulation, SERVER);
    simulation.run_for(SECOND);
    assert!(simulation.client().reader.finished);
    let began = simulation.now;
    let answers = lose(&mut simulation, SERVER, FIN_ACK, u32::MAX);
    shutdown(&mut simulation, CLIENT);
    simulation.run_for(10 * SECOND);
    let took = after(&simulation, began, CLIENT, Event::Flushed);
    assert!((5 * SECOND..=7 * SECOND).contains(&took), "{took:?}");
    assert!(answers.load(Ordering::Relaxed) >= 8);
    assert_eq!([CLIENT, SERVER].map(|side| reason(&simulation, side)), [Some(CloseReason::Finished); 2]);
}

/// Race 7: everything is written and shut down before anything was heard.
#[test]
fn an_end_that_is_over_before_the_handshake_is_told_behind_it() {
    for first in [Event::Flushed, closed(CloseReason::Finished)] {
        let mut simulation = session(1, Know::Both, both(&LinkSettings::delay(DELAY)), |config| config);
        write(&mut simulation, CLIENT, 10_000);
        match first {
            Event::Flushed => shutdown(&mut simulation, CLIENT),
            _ => drop_reader(&mut simulation, CLIENT),
        }
        simulation.run_for(SECOND);
        assert!(simulation.server().reader.finished, "{first:?}");
        assert_eq!(simulation.flows[CLIENT].read, 10_000);
        let took = after(&simulation, Instant::ZERO, CLIENT, first);
        assert!(took <= 2 * ROUND_TRIP + ms(20), "{first:?}: {took:?}");
    }
}

/// Race 9: the server's application is gone before it has read anything.
#[test]
fn a_session_dropped_at_accept_ends_at_the_client() {
    let mut simulation = session(1, Know::Both, both(&LinkSettings::delay(DELAY)), |config| config);
    write(&mut simulation, CLIENT, 1_000_000);
    simulation.run_for(DELAY);
    drop_reader(&mut simulation, SERVER);
    simulation.run_for(2 * SECOND);
    assert_eq!(simulation.client().writer.refused, Some(WriteError::NoReader));
    assert_eq!([CLIENT, SERVER].map(|side| reason(&simulation, side)), [Some(CloseReason::Finished); 2]);
}

/// Race 8 with a legacy peer that writes all the time, and reads only when it can write.
#[test]
fn what_was_written_reaches_a_legacy_peer_that_goes_on_writing() {
    let mut simulation = acquainted(Know::Client);
    write(&mut simulation, SERVER, 5_000_000);
    write(&mut simulation, CLIENT, 200_000);
    simulation.client().writer.total = simulation.flows[CLIENT].written;
    drop_reader(&mut simulation, CLIENT);
    simulation.run_for(SECOND);
    let written = simulation.flows[CLIENT].written;
    assert_eq!(simulation.flows[CLIENT].read, written);
    assert_eq!(reason(&simulation, CLIENT), Some(CloseReason::Finished));
    assert_eq!(simulation.client().connection.stats().queues.unread_bytes, 0);
}

#[test]
fn a_dropped_session_that_nobody_answered_ends_soon() {
    let link = both(&LinkSettings::delay(DELAY).loss(1.0));
    let mut simulation = session(1, Know::Client, link, |config| config);
    simulation.run_for(ms(10));
    drop_reader(&mut simulation, CLIENT);
    simulation.run_for(10 * SECOND);
    let reason = reason(&simulation, CLIENT).expect("it has ended");
    let took = when(&simulation, CLIENT, closed(reason)).unwrap();
    assert!((ms(800)..=ms(3_000)).contains(&took), "{took:?}");
}

/// Race 27, and messages: the numbers wrap between the last message and the end, or the stream is empty.
#[test]
fn messages_end_where_the_stream_does_whatever_its_numbers_are() {
    for (first_sn, messages) in [(0, 0), (u32::MAX - 5, 0), (u32::MAX - 5, 2), (u32::MAX - 4, 5), (0, 3)] {
        let link = both(&LinkSettings::delay(DELAY));
        let mut simulation =
            session_at(1, Know::Both, link, first_sn, |config| config.stream(false).recv_window(3));
        simulation.client().writer = Writer { shutdown: true, ..Writer::messages(messages, 4_000) };
        simulation.server().reader = Reader::messages();
        simulation.run_for(5 * SECOND);
        assert_eq!(simulation.flows[CLIENT].read, messages * 4_000);
        assert!(simulation.server().reader.finished, "{first_sn}, {messages} messages");
        assert_eq!(simulation.client().connection.shutdown_result(), Some(Ok(())));
    }
}

/// A peer of another make may end within a message.
#[test]
fn a_message_without_its_end_is_an_error_once() {
    let link = both(&LinkSettings::delay(DELAY));
    let mut simulation = session(1, Know::Both, link, |config| config.stream(false));
    // Whatever is read is read by the test.
    simulation.server().reader.not_before = simulation.now + 3_600 * SECOND;
    simulation.call(CLIENT, |connection, now| {
        connection.send(now, b"whole").unwrap();
        connection.send(now, &[7; 3_000]).unwrap();
    });
    let mut arrived = Vec::new();
    simulation.run_for(SECOND);
    while let Ok(message) = simulation.server().connection.recv() {
        arrived.push(message.len());
    }
    assert_eq!(arrived, [5, 3_000]);
    let now = simulation.now;
    // A fragment that says that two more follow, with the number of the client's next message.
    let header = SegmentHeader {
        conv: simulation.client().connection.conv(),
        cmd: Command::Push,
        frg: 2,
        wnd: 128,
        ts: 0,
        sn: 4,
        una: 0,
        len: 3,
    };
    let mut fragment = [&header.to_bytes()[..], b"odd"].concat();
    simulation.server().connection.handle_packet(now, &mut fragment).unwrap();
    // That message takes the place of the fragment, and the client's stream ends behind it.
    simulation.call(CLIENT, |connection, now| connection.send(now, b"unseen")).unwrap();
    shutdown(&mut simulation, CLIENT);
    simulation.run_for(SECOND);
    let server = &mut simulation.server().connection;
    assert_eq!(server.recv(), Err(ReadError::UnexpectedEof));
    assert_eq!(server.recv(), Err(ReadError::Finished));
}
