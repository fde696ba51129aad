//! Windows that close and open, absent peers, and how much memory both may cost.

use std::time::Duration;

use kcp9::{
    KcpConfig,
    proto::{Command, Connection, Instant, SegmentHeader, Segments, WriteError},
};

use kcp9_simulator::{
    CLIENT, LinkSettings, Reader, SERVER, Simulation, Writer, ms,
    trace::{times_of, transmissions_of},
};

const TOTAL: u64 = 2_000_000;

/// The server's application does not read before `wakes`.
fn sleeping_reader(seed: u64, wakes: Duration, link: &LinkSettings) -> Simulation {
    let config = KcpConfig::builder().recv_window(128).keep_alive(None).build().unwrap();
    let mut simulation = Simulation::new(seed, &config, link);
    simulation.client().writer = Writer::bulk(TOTAL);
    simulation.server().reader = Reader { not_before: Instant::ZERO + wakes, ..Reader::eager() };
    simulation
}

#[test]
fn a_window_that_a_sleeping_reader_closed_opens_when_it_reads() {
    let minute = Duration::from_secs(60);
    let mut simulation = sleeping_reader(1, minute, &LinkSettings::delay(ms(20)));
    simulation.run_for(minute - ms(1));
    let (client, server) = (simulation.client().connection.stats(), simulation.server().connection.stats());
    assert_eq!(client.queues.peer_window, 0);
    assert_eq!((server.queues.unread_segments, server.queues.recv_window), (128, 128));
    // At most one more window waits beyond the queue.
    assert!(server.queues.out_of_order <= 128, "{server:?}");
    assert!(client.segments.window_probes >= 8, "{client:?}");
    assert_eq!(client.queues.in_flight, 0, "nothing is resent into a closed window: {client:?}");
    assert_eq!(simulation.events(CLIENT), []);
    let woken = simulation.now;
    simulation.complete(minute);
    // The window update is sent without a probe.
    let done = simulation.events(SERVER).len();
    assert_eq!(done, 0);
    let probes = simulation.client().connection.stats().segments.window_probes;
    assert_eq!(probes, client.segments.window_probes, "resumed at {woken:?} without a probe");
}

fn is_open_update(packet: &[u8]) -> bool {
    Segments::new(packet).flatten().any(|(header, _)| header.cmd == Command::Wins && header.wnd > 0)
}

/// The sender has waited so long that its next probe is up to two minutes away. Whichever window update is lost, it goes on
/// within two round trips and the interval of the receiver.
#[test]
fn a_sender_goes_on_at_once_although_a_window_update_is_lost() {
    for (round_trip, slept) in [(2, 3), (20, 40), (100, 600), (400, 3_600)] {
        for lost in 0..8 {
            let wakes = Duration::from_secs(slept);
            let mut simulation = sleeping_reader(lost, wakes, &LinkSettings::delay(ms(round_trip / 2)));
            simulation.run_for(wakes - ms(1));
            let mut updates = 0;
            simulation.server().link.lose_if(move |_, packet| {
                let update = is_open_update(packet);
                updates += u64::from(update);
                update && updates == lost
            });
            simulation.client().record();
            let probes = simulation.client().connection.stats().segments.window_probes;
            simulation.run_for(ms(1) + 4 * ms(round_trip) + ms(50));
            let sent = simulation.client().sent.as_ref().unwrap();
            let resumed = sent.iter().find(|sent| sent.header.cmd == Command::Push).map(|sent| sent.at);
            let limit = Instant::ZERO + wakes + ms(2 * round_trip) + ms(10);
            assert!(
                resumed.is_some_and(|at| at <= limit),
                "{round_trip} ms, {slept} s, update {lost} lost: {resumed:?} after {limit:?}"
            );
            simulation.complete(Duration::from_secs(60));
            let asked = simulation.client().connection.stats().segments.window_probes;
            assert_eq!(
                asked, probes,
                "{round_trip} ms, {slept} s, update {lost} lost: it went on without a probe"
            );
        }
    }
}

/// The same where the receiver knows its round-trip time, because it has sent something itself.
#[test]
fn a_receiver_that_knows_its_round_trip_time_repeats_no_update_in_vain() {
    let wakes = Duration::from_secs(60);
    let mut simulation = sleeping_reader(9, wakes, &LinkSettings::delay(ms(50)));
    simulation.server().writer =
        Writer { pace: Some(Duration::from_secs(1)), sizes: 10..=10, ..Writer::bulk(100) };
    simulation.run_for(wakes - ms(1));
    simulation.server().record();
    simulation.run_for(ms(1) + ms(109));
    let updates = times_of(simulation.server().sent.as_ref().unwrap(), Command::Wins);
    assert_eq!(updates.len(), 1, "the sender went on within a round trip");
}

/// A sender that has nothing left to send does not answer an update.
#[test]
fn updates_for_a_sender_that_is_done_come_to_an_end() {
    let wakes = Duration::from_secs(60);
    let mut simulation = sleeping_reader(10, wakes, &LinkSettings::delay(ms(50)));
    // It fills the window exactly.
    simulation.client().writer = Writer::bulk(128 * 1_376);
    simulation.server().record();
    simulation.complete(2 * wakes);
    let updates = times_of(simulation.server().sent.as_ref().unwrap(), Command::Wins);
    assert_eq!(updates.len(), 6, "{updates:?}");
    assert_eq!(simulation.next_event(), None);
}

#[test]
fn updates_that_are_all_lost_are_asked_for() {
    let mut simulation = sleeping_reader(2, Duration::from_secs(10), &LinkSettings::delay(ms(20)));
    let mut left = 7;
    simulation.server().link.lose_if(move |_, packet| {
        let update = is_open_update(packet);
        left -= u32::from(update && left > 0);
        update && left > 0
    });
    simulation.run_for(Duration::from_secs(10) - ms(1));
    let probes = simulation.client().connection.stats().segments.window_probes;
    assert!(probes > 0, "the window was closed");
    simulation.complete(Duration::from_secs(60));
    assert_eq!(simulation.server().link.counts.lost, 6, "window updates");
    let asked = simulation.client().connection.stats().segments.window_probes;
    assert!(asked > probes, "{asked} probes, {probes} of them before there was room");
}

#[test]
fn probes_come_after_half_a_second_and_then_half_as_late_again() {
    let mut simulation = sleeping_reader(3, Duration::from_secs(86_400), &LinkSettings::delay(ms(10)));
    simulation.client().record();
    simulation.server().record();
    simulation.run_for(Duration::from_secs(1_200));
    let probes = times_of(simulation.client().sent.as_ref().unwrap(), Command::Wask);
    let closed =
        simulation.server().sent.as_ref().unwrap().iter().find(|sent| sent.header.wnd == 0).unwrap().at;
    assert_eq!(probes[0], (closed + ms(10) + ms(500)).as_micros());
    let waits: Vec<u64> = probes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(waits[..4], [750_000, 1_125_000, 1_687_500, 2_531_250]);
    assert_eq!(waits.last(), Some(&120_000_000));
    let answers = times_of(simulation.server().sent.as_ref().unwrap(), Command::Wins);
    assert_eq!(answers.len(), probes.len(), "each is answered once");
    assert_eq!(answers[0], probes[0] + 10_000, "at once");
}

#[test]
fn a_one_segment_window_works() {
    let config = KcpConfig::builder().recv_window(1).send_window(1).build().unwrap();
    let mut simulation = Simulation::new(4, &config, &LinkSettings::delay(ms(5)).loss(0.2));
    simulation.client().writer = Writer::bulk(100_000);
    simulation.server().writer = Writer::bulk(100_000);
    simulation.complete(Duration::from_secs(600));
}

#[test]
fn a_message_longer_than_the_window_arrives() {
    let config = KcpConfig::builder().recv_window(4).mtu(124).build().unwrap();
    let mut simulation = Simulation::new(5, &config, &LinkSettings::delay(ms(5)).loss(0.1));
    simulation.client().writer = Writer::messages(5, 255 * 100);
    simulation.server().reader = Reader::messages();
    simulation.complete(Duration::from_secs(60));
}

#[test]
fn writes_to_an_absent_peer_fill_a_bounded_queue() {
    let config = KcpConfig::builder().dead_timeout(Duration::from_secs(3_600)).build().unwrap();
    let link = LinkSettings::delay(ms(10)).loss(1.0);
    for messages in [false, true] {
        let mut simulation = Simulation::new(6, &config, &link);
        simulation.client().writer =
            if messages { Writer::messages(100_000, 3_000) } else { Writer::bulk(300_000_000) };
        simulation.run_for(Duration::from_secs(600));
        let refused = simulation
            .call(CLIENT, |connection, now| (0..1_000).find_map(|_| connection.send(now, &[0; 1_000]).err()));
        assert_eq!(refused, Some(WriteError::Blocked));
        let stats = simulation.client().connection.stats();
        // Less than a window's worth, as long as nothing says that the peer takes more.
        assert!(stats.queues.in_flight < 32, "{stats:?}");
        assert!(stats.queues.unsent_bytes <= 256 * 3_000, "{stats:?}");
        assert!(stats.stream.bytes_written < 1_000_000, "{stats:?}");
    }
}

#[test]
fn segments_past_the_window_are_refused_without_memory() {
    let config = KcpConfig::builder().recv_window(8).build().unwrap();
    let eager = KcpConfig::builder().send_window(1_024).build().unwrap();
    let link = LinkSettings::delay(ms(10));
    let mut simulation = Simulation::with(7, [&eager, &config], [link.clone(), link], 0, [Duration::ZERO; 2]);
    simulation.client().writer = Writer::bulk(TOTAL);
    simulation.client().record();
    simulation.run_until(Duration::from_secs(60), |simulation| {
        assert!(simulation.ends[SERVER].connection.stats().queues.out_of_order <= 8);
        simulation.is_complete()
    });
    // The first flight did not know of the small window, so the refused segments had to be resent.
    assert!(simulation.server().connection.stats().segments.out_of_window > 0);
    assert!(transmissions_of(simulation.client().sent.as_ref().unwrap(), 20).len() > 1);
}

#[test]
fn a_peer_that_ignores_the_window_gets_exactly_two_windows_in() {
    let config = KcpConfig::builder().recv_window(8).ack_no_delay(true).build().unwrap();
    let now = Instant::ZERO;
    let mut connection = Connection::new(7, &config, now);
    let mut acknowledged = Vec::new();
    let mut buffer = vec![0; 65_536];
    for sn in 0..100 {
        let header = SegmentHeader { conv: 7, cmd: Command::Push, frg: 0, wnd: 1, ts: 0, sn, una: 0, len: 1 };
        let mut packet = [header.to_bytes().as_slice(), &[sn as u8]].concat();
        connection.handle_packet(now, &mut packet).unwrap();
        while let Some(transmit) = connection.poll_transmit(now, &mut buffer) {
            let segments = Segments::new(&buffer[..transmit.len]).map(|segment| segment.unwrap().0);
            let acks = segments.filter(|header| header.cmd == Command::Ack);
            acknowledged.extend(acks.map(|header| header.sn));
        }
    }
    // One window in order, for the reader, and one beyond it, as in kcp-go, each of whose ACKs is sent twice. The rest is not
    // acknowledged.
    let expected: Vec<u32> = (0..8).chain((8..16).flat_map(|sn| [sn, sn])).collect();
    assert_eq!(acknowledged, expected);
    let stats = connection.stats();
    assert_eq!(
        (stats.queues.unread_segments, stats.queues.out_of_order, stats.segments.out_of_window),
        (8, 8, 84)
    );
}
