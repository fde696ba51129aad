//! Faults that fuzzing and review once found in the core, each with its smallest trigger.

use std::time::Duration;

use kcp9::{
    KcpConfig,
    proto::{CloseReason, Command, Connection, HEADER_LEN, Instant, SegmentHeader},
};

const CONV: u32 = 7;

const fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn segment(cmd: Command, wnd: u16, sn: u32, len: u32) -> Vec<u8> {
    let header = SegmentHeader { conv: CONV, cmd, frg: 0, wnd, ts: 0, sn, una: 0, len };
    let mut packet = header.to_bytes().to_vec();
    packet.resize(HEADER_LEN + len as usize, 9);
    packet
}

/// Transmits everything and returns how many packets that were.
fn drain(connection: &mut Connection, now: Instant) -> usize {
    let mut buffer = vec![0; 65_536];
    std::iter::from_fn(|| connection.poll_transmit(now, &mut buffer)).map(|transmit| transmit.packets()).sum()
}

fn with_closed_window(config: &KcpConfig) -> Connection {
    let mut connection = Connection::new(CONV, config, ms(0));
    connection.handle_packet(ms(0), &mut segment(Command::Wins, 0, 0, 0)).unwrap();
    connection.write(ms(0), b"hello").unwrap();
    drain(&mut connection, ms(0));
    connection
}

#[test]
fn a_delayed_write_behind_a_closed_window_does_not_spin() {
    let config = KcpConfig::builder().write_delay(true).build().unwrap();
    let mut connection = with_closed_window(&config);
    let now = ms(20);
    connection.handle_timeout(now);
    drain(&mut connection, now);
    assert!(connection.poll_timeout().unwrap() > now, "{:?}", connection.poll_timeout());
}

#[test]
fn an_empty_write_sends_nothing() {
    let mut connection = Connection::new(CONV, &KcpConfig::default(), ms(0));
    assert_eq!(connection.write(ms(0), b""), Ok(0));
    assert_eq!(drain(&mut connection, ms(0)), 0);
}

#[test]
fn unanswered_window_probes_mean_a_dead_peer() {
    let mut connection = with_closed_window(&KcpConfig::default());
    for _ in 0..50 {
        let Some(now) = connection.poll_timeout() else { break };
        connection.handle_timeout(now);
        drain(&mut connection, now);
    }
    let probes = connection.stats().segments.window_probes;
    assert_eq!(connection.close_reason(), Some(CloseReason::DeadLink), "{probes} probes");
}

#[test]
fn turning_write_delay_on_leaves_nothing_unsent() {
    let mut connection = Connection::new(CONV, &KcpConfig::default(), ms(0));
    connection.write(ms(0), b"hello").unwrap();
    connection.update_settings(|settings| settings.write_delay = true).unwrap();
    drain(&mut connection, ms(0));
    assert!(connection.stats().segments.push_sent == 1 || connection.poll_timeout().is_some());
}

#[test]
fn shrinking_the_receive_window_does_not_stop_delivery() {
    let config = KcpConfig::builder().recv_window(2_000).build().unwrap();
    let mut connection = Connection::new(CONV, &config, ms(0));
    for sn in 1..1_000 {
        connection.handle_packet(ms(0), &mut segment(Command::Push, 128, sn, 1_376)).unwrap();
    }
    drain(&mut connection, ms(0));
    connection.update_settings(|settings| (settings.send_window, settings.recv_window) = (32, 32)).unwrap();
    connection.handle_packet(ms(1), &mut segment(Command::Push, 128, 0, 1_376)).unwrap();
    assert!(connection.is_readable(), "{:#?}", connection.stats());
}

#[test]
fn a_message_of_larger_segments_than_ours_is_delivered() {
    let config = KcpConfig::builder().recv_window(32).build().unwrap();
    let jumbo = config.clone().to_builder().mtu(9_000).build().unwrap();
    let mut ends = [Connection::new(CONV, &jumbo, ms(0)), Connection::new(CONV, &config, ms(0))];
    ends[0].send(ms(0), &vec![1; 900_000]).unwrap();
    let mut buffer = vec![0; 65_536];
    let mut now = ms(0);
    while now < ms(600_000) && !ends[1].has_message() {
        for from in [0, 1, 0, 1] {
            ends[from].handle_timeout(now);
            while let Some(transmit) = ends[from].poll_transmit(now, &mut buffer) {
                for packet in buffer[..transmit.len].chunks_mut(transmit.stride) {
                    ends[1 - from].handle_packet(now, packet).unwrap();
                }
            }
        }
        let next = ends.iter().filter_map(Connection::poll_timeout).min();
        now = next.unwrap_or(now).max(now + Duration::from_millis(1));
    }
    assert!(ends[1].has_message(), "{now:?} {:?} {:#?}", ends[0].close_reason(), ends[1].stats());
}
