//! Messages that cannot be cut: how many go to one network in whose name many sessions were begun, and what many true clients behind
//! one address wait for.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use kcp9::{
    KcpConfig,
    proto::{Connection, Extensions, Instant, Segments},
};
use kcp9_simulator::ms;

use crate::host::{Batch, Host, address, client, push};

const NOW: Instant = Instant::from_millis(1_000);
/// Sessions that a network may begin at once: the default.
const CONVS: u32 = 1_024;
/// Bytes of a first PUSH with a byte.
const CAME: usize = 25;
/// Bytes of an answer that fits into 1,200 with all ACKs and probes that went before its turn.
const ANSWER: usize = 900;

/// When the message goes of the session that came as number `n`, where all come at `NOW`.
fn turn(n: u64) -> Instant {
    NOW + Duration::from_micros(n.saturating_sub(15) * 62_500)
}

/// A server in message mode that answers each session with one message.
struct Server {
    host: Host,
    answer: usize,
    sent: Vec<Packet>,
}

#[derive(Clone, Copy)]
struct Packet {
    at: Instant,
    to: SocketAddr,
    conv: u32,
    len: usize,
    has_message: bool,
}

impl Server {
    fn new(answer: usize) -> Self {
        let config = KcpConfig::builder().stream(false).build().unwrap();
        Self { host: Host::accepting(address(1, 1), &config), answer, sent: Vec::new() }
    }

    /// Somebody begins a session in the name of `source`.
    fn forge(&mut self, now: Instant, source: SocketAddr, conv: u32) {
        self.host.receive_one(now, source, &push(conv, 0, 0, b"!"));
        let session = self.host.take_accepted().unwrap();
        self.host.connection(session).send(now, &vec![1; self.answer]).unwrap();
    }

    /// Does what is due, each at its very time, up to `until`.
    fn run(&mut self, from: Instant, until: Instant) {
        let mut now = from;
        while now <= until {
            for Batch { to, bytes, stride } in self.host.drive(now) {
                self.sent.extend(bytes.chunks(stride).map(|packet| {
                    let headers = Segments::new(packet).map(|segment| segment.unwrap().0);
                    let messages = headers.filter(|header| header.len as usize == self.answer);
                    let conv = u32::from_le_bytes(*packet.first_chunk().unwrap());
                    Packet { at: now, to, conv, len: packet.len(), has_message: messages.count() > 0 }
                }));
            }
            let next = self.host.poll_timeout().unwrap_or(until + ms(1));
            assert!(next > now, "what was due is still due");
            now = next;
        }
    }

    /// When messages went to `host`.
    fn messages(&self, to: SocketAddr) -> Vec<Instant> {
        let messages = self.sent.iter().filter(|packet| packet.has_message && packet.to.ip() == to.ip());
        messages.map(|packet| packet.at).collect()
    }

    /// Bytes for each session until then.
    fn bytes_by_conv(&self, until: Instant) -> HashMap<u32, usize> {
        let mut bytes = HashMap::new();
        for packet in self.sent.iter().filter(|packet| packet.at <= until) {
            *bytes.entry(packet.conv).or_default() += packet.len;
        }
        bytes
    }
}

#[test]
fn sessions_forged_in_one_name_draw_sixteen_messages_at_once_and_sixteen_a_second() {
    // Turns end after ten seconds. By nine, the probes have left too little of 1,200 bytes for a message of 1,000.
    for (answer, in_all) in [(ANSWER, 16 + 160), (1_000, 16 + 144)] {
        let mut server = Server::new(answer);
        (0..CONVS).for_each(|conv| server.forge(NOW, client(1), conv));
        assert_eq!(server.host.endpoint.half_open(), CONVS as usize);
        server.run(NOW, NOW + ms(25_000));
        assert_eq!(server.messages(client(1)), (0..in_all).map(turn).collect::<Vec<_>>());

        for (until, messages) in [(NOW, 16), (NOW + ms(1_000), 32), (NOW + ms(25_000), in_all)] {
            let bytes = server.bytes_by_conv(until);
            let times = if until == NOW { 3 } else { 10 };
            let (with, without): (Vec<usize>, Vec<usize>) =
                bytes.values().partition(|bytes| **bytes > times * CAME);
            assert_eq!(with.len() as u64, messages, "until {until:?}");
            assert!(with.iter().all(|bytes| *bytes <= 1_400), "{with:?}");
            assert!(without.iter().all(|bytes| *bytes >= 24), "no question: {without:?}");
            let most = times * CAME * CONVS as usize + messages as usize * 1_400;
            assert!(bytes.values().sum::<usize>() <= most, "until {until:?}");
        }
    }
}

/// Sessions that nothing comes for give way to others after a second, so there can be 1,024 new ones each second. Then most turns are of
/// sessions that give way before they come.
#[test]
fn sessions_forged_in_one_name_again_and_again_draw_no_more_messages() {
    for (each_second, at_least) in [(CONVS, 16), (50, 300)] {
        let mut server = Server::new(ANSWER);
        for second in 0..20 {
            let now = NOW + ms(u64::from(second) * 1_000);
            (0..each_second).for_each(|conv| server.forge(now, client(1), second * each_second + conv));
            server.run(now, now + ms(999));
        }
        assert_eq!(server.host.stats().evicted > 18 * 1_024, each_second == CONVS);
        let messages = server.messages(client(1));
        assert!(messages.len() >= at_least, "{} of {each_second} a second", messages.len());
        for (n, at) in messages.iter().enumerate() {
            assert!(*at >= turn(n as u64), "message {n} at {at:?}");
        }
    }
}

#[test]
fn a_flood_in_one_name_takes_no_turns_of_others() {
    let mut server = Server::new(ANSWER);
    (0..CONVS).for_each(|conv| server.forge(NOW, client(1), conv));
    let other = address(0x0b00_0001, 9);
    (0..20).for_each(|conv| server.forge(NOW, other, conv));
    server.run(NOW, NOW + ms(500));
    assert_eq!(server.messages(other), (0..20).map(turn).collect::<Vec<_>>());
}

/// When each of so many clients behind one address has its answer of so many bytes, from 20 ms away. The server's packets of less than 100 bytes are
/// lost if `lose_short`: its ACKs, and what asks the clients to show that they hear.
fn answered_at(clients: u16, answer: usize, lose_short: bool) -> Vec<u64> {
    let off = KcpConfig::builder().extensions(Extensions::Off).stream(false).build().unwrap();
    let mut server = Server::new(answer);
    let at = |millis| NOW + ms(millis);
    let nat = |number: u16| address(0x0b00_0001, 10_000 + number);
    let mut ends: Vec<_> = (0..clients).map(|_| Connection::new(7, &off, NOW)).collect();
    ends.iter_mut().for_each(|end| end.send(NOW, b"?").unwrap());
    let mut answered = vec![0; clients.into()];
    let mut under_way: Vec<(u64, bool, u16, Vec<u8>)> = Vec::new();
    let mut buffer = vec![0; 65_536];
    for millis in 0..10_000 {
        let now = at(millis);
        for (_, to_server, number, mut packet) in under_way.extract_if(.., |(due, ..)| *due <= millis) {
            if to_server {
                server.host.receive_one(now, nat(number), &packet);
            } else {
                ends[usize::from(number)].handle_packet(now, &mut packet).unwrap();
            }
        }
        while let Some(session) = server.host.take_accepted() {
            server.host.connection(session).send(now, &vec![1; answer]).unwrap();
        }
        for (number, end) in (0..).zip(&mut ends) {
            if end.poll_timeout().is_some_and(|at| at <= now) {
                end.handle_timeout(now);
            }
            while let Some(transmit) = end.poll_transmit(now, &mut buffer) {
                for packet in buffer[..transmit.len].chunks(transmit.stride) {
                    under_way.push((millis + 20, true, number, packet.to_vec()));
                }
            }
            if end.read(&mut buffer) == Ok(answer) {
                answered[usize::from(number)] = millis;
            }
        }
        for Batch { to, bytes, stride } in server.host.drive(now) {
            for packet in bytes.chunks(stride).filter(|packet| !lose_short || packet.len() >= 100) {
                under_way.push((millis + 20, false, to.port() - 10_000, packet.to_vec()));
            }
        }
        if answered.iter().all(|answered| *answered > 0) {
            return answered;
        }
    }
    panic!("{answered:?}");
}

#[test]
fn clients_without_extensions_behind_one_address_wait_for_a_round_trip_at_most() {
    let answered = answered_at(40, 1_000, false);
    assert!(answered[..16].iter().all(|at| *at == 40), "{answered:?}");
    // Those without a turn have shown by then that they hear.
    assert!(answered[16..].iter().all(|at| (80..=90).contains(at)), "{answered:?}");
}

#[test]
fn clients_without_extensions_behind_one_address_get_their_answers_when_their_turn_has_come() {
    // Nothing asks them to show that they hear but the answers themselves. They send their questions again and again, so there are more
    // ACKs.
    let expected: Vec<_> = (0..40).map(|n| 40 + (turn(n) - NOW).as_micros().div_ceil(1_000) as u64).collect();
    assert_eq!(answered_at(40, 600, true), expected);
}

/// A message that is written while it is its session's turn waits for nothing, and a session that has nothing to say does not wake up
/// for its turn.
#[test]
fn a_turn_lasts_for_a_second() {
    for (after, goes) in [(0, true), (999, true), (1_000, false)] {
        let mut server = Server::new(ANSWER);
        (0..20).for_each(|conv| server.forge(NOW, client(1), conv));
        server.host.receive_one(NOW, client(1), &push(20, 0, 0, b"!"));
        let session = server.host.take_accepted().unwrap();
        let (turn, write) = (turn(20), turn(20) + ms(after));
        server.run(NOW, NOW + ms(312));
        let connection = server.host.connection(session);
        assert!(connection.poll_timeout().is_some_and(|at| at > turn), "{:?}", connection.next_timer());
        server.run(turn, write);
        assert_eq!(server.messages(client(1)).len(), 20);
        let connection = server.host.connection(session);
        connection.send(write, &[1; ANSWER]).unwrap();
        let sent = connection.poll_transmit(write, &mut vec![0; 2_048]);
        assert_eq!(sent.is_some_and(|transmit| transmit.len > ANSWER), goes, "{after} ms after it has come");
        // Nothing more is to come.
        assert!(connection.poll_timeout().is_some_and(|at| at > write), "{:?}", connection.next_timer());
    }
}

/// As where an application tells something to all.
#[test]
fn what_is_written_to_all_sessions_forged_in_one_name_does_not_go_at_once() {
    let mut server = Server::new(ANSWER);
    for millis in (0..20_000).step_by(50) {
        let now = NOW + ms(millis);
        server.host.receive_one(now, client(1), &push(millis as u32, 0, 0, b"!"));
        server.run(now, now + ms(49));
    }
    let now = NOW + ms(20_000);
    server.host.connections().for_each(|connection| connection.send(now, &[1; ANSWER]).unwrap());
    server.run(now, now);
    let at_once = server.messages(client(1)).len();
    assert!((16..=32).contains(&at_once), "{at_once}");
}
