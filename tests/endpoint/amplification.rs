//! What is sent to an address in whose name somebody else began a session, and what its true owner waits for.

use std::time::Duration;

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    proto::{Command, Connection, Extensions, HEADER_LEN, Instant, SegmentHeader, Segments, SessionSeed},
};
use kcp9_simulator::{Rng, ms};

use crate::host::{Batch, Entropy, Host, address, client, push, segment};

const CONV: u32 = 7;

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn settings() -> KcpConfigBuilder {
    KcpConfig::builder().extensions(Extensions::Preferred)
}

/// A server whose application writes as much as it can to whoever comes.
struct Server {
    host: Host,
    sent: Vec<(Instant, Vec<u8>)>,
}

impl Server {
    fn new(config: KcpConfigBuilder) -> Self {
        Self { host: Host::accepting(address(1, 1), &config.build().unwrap()), sent: Vec::new() }
    }

    /// From one millisecond to another, but for those in which nothing is due.
    fn run(&mut self, from: u64, until: u64, message: Option<&[u8]>) {
        let mut now = at(from);
        while now < at(until) {
            let mut took = false;
            for connection in self.host.connections() {
                match message {
                    Some(message) => {
                        while connection.send(now, message).is_ok() {
                            took = true
                        }
                    }
                    None => {
                        while connection.write(now, &[7; 4_096]).is_ok() {
                            took = true
                        }
                    }
                }
                // Where there are any, a datagram each millisecond.
                took |= connection.send_datagram(&[7; 50]).is_ok();
            }
            for Batch { bytes, stride, .. } in self.host.drive(now) {
                self.sent.extend(bytes.chunks(stride).map(|packet| (now, packet.to_vec())));
            }
            let soon = now + ms(1);
            now = if took { soon } else { self.host.poll_timeout().unwrap_or(at(until)).max(soon) };
        }
    }

    fn bytes(&self) -> usize {
        self.sent.iter().map(|(_, packet)| packet.len()).sum()
    }
}

/// Segments of what was sent.
fn headers(packets: &[(Instant, Vec<u8>)]) -> Vec<SegmentHeader> {
    packets.iter().flat_map(|(_, packet)| Segments::new(packet).flatten().map(|(header, _)| header)).collect()
}

#[test]
fn a_forged_push_draws_three_times_its_bytes_at_once_and_ten_times_in_all() {
    for len in [1, 5, 100, 600, 1_376] {
        let mut server = Server::new(settings());
        let packet = push(CONV, 0, 0, &vec![1; len]);
        server.host.receive_one(at(0), client(1), &packet);
        server.run(0, 1, None);
        assert!(server.bytes() <= 3 * packet.len(), "{} to {}", server.bytes(), packet.len());
        // It is of use: an ACK and what else there is room for.
        assert!(server.bytes() + HEADER_LEN >= 3 * packet.len(), "{} to {}", server.bytes(), packet.len());
        let flight = server.sent.len();
        server.run(1, 60_000, None);
        assert!(server.bytes() <= 10 * packet.len(), "{} to {}", server.bytes(), packet.len());
        let later = &server.sent[flight..];
        assert!(later.iter().all(|(_, later)| later.len() <= packet.len()), "longer than what came");
        let times: Vec<_> = later.iter().map(|(at, _)| *at).collect();
        assert!(times.len() >= 4, "{times:?}");
        // Each wait is twice as long as the one before, up to 3 s.
        let waits: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(waits[0] >= ms(390), "no backoff: {times:?}");
        let doubles = |pair: &[Duration]| pair[1] + ms(10) >= (2 * pair[0]).min(ms(3_000));
        assert!(waits.windows(2).all(doubles), "no backoff: {times:?}");
        assert_eq!(
            server.host.connections().filter(|end| end.close_reason().is_none()).count(),
            0,
            "it dies"
        );
    }
}

/// What an application may have switched on: parity, encryption, datagrams, and all of it.
fn with_all_kinds_of_layers() -> Vec<(String, KcpConfigBuilder)> {
    let mut all = Vec::new();
    for (data, parity) in [(0, 0), (10, 3), (1, 4), (2, 8)] {
        for sealed in [false, cfg!(feature = "aead")] {
            for datagrams in [0, 1 << 16] {
                let config = settings().fec(data, parity).datagram_queue(datagrams);
                #[cfg(feature = "aead")]
                let config =
                    if sealed { config.crypto(crate::ciphers::aead(b"what both ends k")) } else { config };
                all.push((format!("FEC {data}/{parity}, sealed {sealed}, datagrams {datagrams}"), config));
            }
        }
    }
    all
}

/// The first packets of a client that has as many bytes to say: of its stream, or a datagram behind them.
fn first_packets(config: &KcpConfigBuilder, len: usize, by_hello: bool, datagram: bool) -> Vec<Vec<u8>> {
    let extensions = if by_hello { Extensions::Preferred } else { Extensions::Off };
    let config = config.clone().extensions(extensions).build().unwrap();
    let seed = SessionSeed::new(&mut Entropy(Rng::new(9)));
    let mut forger = Connection::connect(CONV, &config, at(0), seed);
    forger.write(at(0), &vec![1; len]).unwrap();
    if datagram {
        forger.send_datagram(b"!").unwrap();
    }
    let (mut buffer, mut packets) = (vec![0; 65_536], Vec::new());
    while let Some(transmit) = forger.poll_transmit(at(0), &mut buffer) {
        packets.extend(buffer[..transmit.len].chunks(transmit.stride).map(<[u8]>::to_vec));
    }
    packets
}

/// A message that cannot be cut goes once, within 1,200 bytes, where less came than that is three times of; with what asks its
/// peer to answer, all is within 1,400. Whatever is sent beside it is counted.
#[test]
#[ignore = "seconds: cargo test --release --test endpoint -- --ignored"]
fn a_forged_beginning_draws_no_more_than_a_message_where_messages_go_whole() {
    for (what, config) in with_all_kinds_of_layers() {
        let config = config.stream(false);
        let datagrams = config.clone().build().unwrap().datagram_queue() > 0;
        for (len, by_hello) in [(1, false), (100, false), (1_000, false), (1, true), (1_000, true)] {
            for (datagram, message) in [false, datagrams]
                .into_iter()
                .flat_map(|datagram| [1, 500, 1_100, 1_376, 20_000].map(|message| (datagram, message)))
            {
                let what = format!(
                    "{what}, {len} bytes, HELLO {by_hello}, datagram {datagram}, messages of {message} bytes"
                );
                let packets = first_packets(&config, len, by_hello, datagram);
                let mut server = Server::new(config.clone());
                packets.iter().for_each(|packet| server.host.receive_one(at(0), client(1), packet));
                assert_eq!(server.host.endpoint.len(), 1, "{what}");
                let received: usize = packets.iter().map(Vec::len).sum();
                let message = vec![1; message];
                server.run(0, 1, Some(&message));
                let at_once = server.bytes();
                assert!(at_once <= 1_200.max(3 * received), "{what}: {at_once} at once to {received}");
                server.run(1, 60_000, Some(&message));
                let all = server.bytes();
                assert!(all <= 1_400.max(10 * received), "{what}: {all} to {received}");
                let lives = server.host.connections().filter(|end| end.close_reason().is_none()).count();
                assert_eq!(lives, 0, "{what}: it dies");
            }
        }
    }
}

/// Parity, what encryption adds and datagrams are counted as all that is sent. Nobody but the session's own peer, whose key it
/// is, can begin an encrypted one; but a packet of it can be sent again from elsewhere.
#[test]
#[ignore = "seconds: cargo test --release --test endpoint -- --ignored"]
fn a_forged_beginning_draws_no_more_bytes_where_there_is_fec_a_cipher_or_datagrams() {
    for (what, config) in with_all_kinds_of_layers() {
        let datagrams = config.clone().build().unwrap().datagram_queue() > 0;
        for (len, by_hello) in [(1, false), (100, false), (1_000, false), (1, true), (1_000, true)] {
            for datagram in [false, datagrams] {
                let what = format!("{what}, {len} bytes, HELLO {by_hello}, datagram {datagram}");
                let packets = first_packets(&config, len, by_hello, datagram);
                let mut server = Server::new(config.clone());
                packets.iter().for_each(|packet| server.host.receive_one(at(0), client(1), packet));
                assert_eq!(server.host.endpoint.len(), 1, "{what}");
                let received: usize = packets.iter().map(Vec::len).sum();
                let longest = packets.iter().map(Vec::len).max().unwrap();
                server.run(0, 1, None);
                assert!(server.bytes() <= 3 * received, "{what}: {} at once to {received}", server.bytes());
                assert!(server.bytes() > 0, "{what}: it answers nothing");
                let flight = server.sent.len();
                server.run(1, 60_000, None);
                assert!(server.bytes() <= 10 * received, "{what}: {} to {received}", server.bytes());
                let later = &server.sent[flight..];
                assert!(
                    later.iter().all(|(_, later)| later.len() <= longest),
                    "{what}: longer than what came"
                );
                let lives = server.host.connections().filter(|end| end.close_reason().is_none()).count();
                assert_eq!(lives, 0, "{what}: it dies");
            }
        }
    }
}

/// Who answers nothing but with datagrams, as a game's server may.
#[test]
fn a_forged_beginning_draws_no_more_bytes_of_datagrams_alone() {
    for (what, config) in with_all_kinds_of_layers() {
        if config.clone().build().unwrap().datagram_queue() == 0 {
            continue;
        }
        for size in [1, 20, 100, 1_000] {
            let packets = first_packets(&config, 20, false, false);
            let received: usize = packets.iter().map(Vec::len).sum();
            let mut server = Server::new(config.clone());
            packets.iter().for_each(|packet| server.host.receive_one(at(0), client(1), packet));
            let mut flight = 0;
            for millis in 0..20_000 {
                for connection in server.host.connections() {
                    let _ = connection.send_datagram(&vec![3; size]);
                }
                for Batch { bytes, .. } in server.host.drive(at(millis)) {
                    server.sent.push((at(millis), bytes));
                }
                if millis == 0 {
                    flight = server.bytes();
                }
            }
            assert!(flight <= 3 * received, "{what}: {flight} at once to {received}");
            assert!(server.bytes() <= 10 * received, "{what}, of {size}: {} to {received}", server.bytes());
        }
    }
}

/// kcp-go's reader waits for ever behind an empty segment of the stream.
#[test]
fn no_segment_of_the_stream_is_empty_however_little_may_be_sent() {
    for len in 1..200 {
        for received in 1..4 {
            let mut server = Server::new(settings());
            for sn in 0..received {
                server.host.receive_one(at(0), client(1), &push(CONV, sn, 0, &vec![1; len]));
                server.run(sn.into(), 100 + u64::from(sn), None);
            }
            let probes = u32::MAX;
            let empty = headers(&server.sent)
                .into_iter()
                .find(|header| header.cmd == Command::Push && header.sn != probes && header.len == 0);
            assert_eq!(empty, None, "{received} packets of {len} bytes");
            assert!(headers(&server.sent).iter().any(|header| header.len > 0), "{received} of {len}");
        }
    }
}

#[test]
fn a_few_bytes_are_sent_whole_where_no_more_may_be() {
    for unsent in 1..=3 {
        let mut server = Server::new(settings());
        server.host.receive_one(at(0), client(1), &push(CONV, 0, 0, b"!"));
        for connection in server.host.connections() {
            connection.write(at(0), &vec![7; unsent]).unwrap();
        }
        for Batch { bytes, .. } in server.host.drive(at(0)) {
            server.sent.push((at(0), bytes));
        }
        let pushes = headers(&server.sent).into_iter().filter(|header| header.cmd == Command::Push);
        assert_eq!(pushes.map(|header| header.len as usize).collect::<Vec<_>>(), [unsent]);
    }
}

/// A task writes when the time of an ACK has come and the driver has not looked at the session since. The task looks at no
/// deadline, so this one must not count as looked at, or the ACK would wait for the peer's next packet.
#[test]
fn an_ack_whose_time_came_before_a_write_is_sent_at_the_next_look() {
    let config = settings().build().unwrap();
    let mut server = Connection::accept(CONV, &config, at(0), SessionSeed::new(&mut Entropy(Rng::new(4))));
    let mut buffer = vec![0; 65_536];
    let mut sent = |server: &mut Connection, now| {
        let mut packets = Vec::new();
        while let Some(transmit) = server.poll_transmit(now, &mut buffer) {
            packets.push((now, buffer[..transmit.len].to_vec()));
        }
        headers(&packets)
    };
    server.handle_packet(at(0), &mut push(CONV, 0, 0, b"first")).unwrap();
    server.handle_timeout(at(0));
    assert_eq!(sent(&mut server, at(0)).iter().filter(|header| header.cmd == Command::Ack).count(), 1);
    server.handle_packet(at(1), &mut push(CONV, 1, 0, b"second")).unwrap();
    server.handle_timeout(at(1));
    assert_eq!(sent(&mut server, at(1)), []);
    let due = server.poll_timeout().unwrap();
    let late = due + ms(5);
    assert_eq!(sent(&mut server, late), [], "no look, no deadline");
    assert_eq!(server.poll_timeout(), Some(due), "it is still to be looked at");
    server.handle_timeout(late);
    let acks: Vec<_> = sent(&mut server, late).into_iter().map(|header| (header.cmd, header.sn)).collect();
    assert_eq!(acks, [(Command::Ack, 1)]);
}

/// What its peer had asked for was sent; the peer has gone.
#[test]
fn a_session_that_only_takes_dies_like_others_if_nobody_answers_its_probes() {
    let mut server = Server::new(settings());
    server.host.receive_one(at(0), client(1), &push(CONV, 0, 0, b"request"));
    for millis in 0..40_000 {
        server.host.drive(at(millis));
        if server.host.connections().all(|connection| connection.close_reason().is_some()) {
            let dead = KcpConfig::default().dead_timeout().as_millis() as u64;
            assert!((dead..dead + 1_000).contains(&millis), "after {millis} ms");
            return;
        }
    }
    panic!("it lives for ever");
}

/// So much is in flight that the first of it is not among the last few any more.
#[test]
fn the_ack_of_whatever_is_in_flight_shows_that_the_peer_hears() {
    let mut server = Server::new(settings());
    for sn in 0..40 {
        server.host.receive_one(at(0), client(1), &push(CONV, sn, 0, &[1; 1_000]));
    }
    server.run(0, 1, None);
    let sent: Vec<_> = headers(&server.sent).into_iter().filter(|header| header.len > 0).collect();
    assert!(sent.len() > 20, "{}", sent.len());
    let ack = SegmentHeader { cmd: Command::Ack, len: 0, una: 0, ..sent[0] };
    let wrong = SegmentHeader { ts: sent[0].ts.wrapping_add(1), ..ack };
    server.host.receive_one(at(1), client(1), &wrong.to_bytes());
    let session = server.host.take_accepted().unwrap();
    assert!(!server.host.connection(session).is_validated());
    server.host.receive_one(at(1), client(1), &ack.to_bytes());
    assert!(server.host.connection(session).is_validated());
}

#[test]
fn a_packet_is_worth_few_guesses() {
    let mut server = Server::new(settings());
    server.host.receive_one(at(0), client(1), &push(CONV, 0, 0, b"request"));
    server.run(0, 1, None);
    let first = *headers(&server.sent).iter().find(|header| header.len > 0).unwrap();
    let ack = SegmentHeader { cmd: Command::Ack, len: 0, una: 0, ..first };
    let guess = SegmentHeader { ts: first.ts.wrapping_add(9), ..ack }.to_bytes();
    let mut packet = guess.repeat(8);
    packet.extend_from_slice(&ack.to_bytes());
    server.host.receive_one(at(1), client(1), &packet);
    let session = server.host.take_accepted().unwrap();
    assert!(!server.host.connection(session).is_validated());
    server.host.receive_one(at(1), client(1), &packet[HEADER_LEN..]);
    assert!(server.host.connection(session).is_validated());
}

#[test]
fn a_message_that_cannot_be_cut_goes_once_within_1400_bytes() {
    // Longer ones are cut into fragments of 1,176 bytes, of which the first one goes.
    for (message, goes) in [(1_000, true), (1_176, true), (1_177, true), (1_376, true)] {
        let mut server = Server::new(settings().stream(false));
        let packet = push(CONV, 0, 0, b"!");
        server.host.receive_one(at(0), client(1), &packet);
        server.run(0, 60_000, Some(&vec![1; message]));
        let payload = headers(&server.sent).iter().filter(|header| header.len > 0).count();
        assert_eq!(payload, usize::from(goes), "{message} bytes");
        assert!(server.bytes() <= 1_400, "{} for {message}", server.bytes());
    }
}

#[test]
fn nothing_but_an_echoed_time_shows_that_the_peer_hears() {
    let mut rng = Rng::new(3);
    for seed in 0..200 {
        let mut server = Server::new(settings());
        server.host.receive_one(at(0), client(1), &push(CONV, 0, 0, b"request"));
        server.run(0, 1, None);
        let sent = headers(&server.sent);
        let (first, last) = (sent.iter().find(|header| header.len > 0).unwrap(), sent.last().unwrap());
        let mut received = 31;
        for step in 0..50 {
            let cmd = *rng.choose(&[Command::Ack, Command::Wins, Command::Wask, Command::Push]);
            let guess = rng.next() as u32;
            let header = SegmentHeader {
                cmd,
                wnd: *rng.choose(&[0, 1, 128, u16::MAX]),
                // What a forger can know: the numbers, and its own clock.
                ts: *rng.choose(&[0, 1, step, guess]),
                sn: rng.within(0..=u64::from(last.sn)) as u32,
                una: rng.within(0..=u64::from(last.sn) + 2) as u32,
                ..*first
            };
            let header = SegmentHeader { len: 0, ..header };
            received += HEADER_LEN;
            server.host.receive_one(at(1), client(1), &header.to_bytes());
        }
        server.run(1, 20_000, None);
        let session = server.host.take_accepted().unwrap();
        assert!(!server.host.connection(session).is_validated(), "seed {seed}");
        assert!(server.bytes() <= 10 * received, "seed {seed}: {}", server.bytes());
        // The same with what it has not read: the time of any transmission.
        let echoed = *headers(&server.sent).iter().rfind(|header| header.cmd == Command::Push).unwrap();
        let ack = SegmentHeader { cmd: Command::Ack, len: 0, una: 0, ..echoed };
        server.host.receive_one(at(20_000), client(1), &ack.to_bytes());
        server.run(20_000, 20_001, None);
        assert!(server.host.connection(session).is_validated(), "seed {seed}");
        assert_eq!(server.host.endpoint.half_open(), 0, "seed {seed}");
    }
}

#[test]
fn the_times_of_a_session_begin_where_nobody_can_foretell() {
    let mut bases = std::collections::HashSet::new();
    let mut server = Server::new(settings());
    for conv in 1..500 {
        let before = server.sent.len();
        server.host.receive_one(at(0), client(1), &push(conv, 0, 0, b"request"));
        server.run(0, 1, None);
        let sent = headers(&server.sent[before..]);
        let of_session = |header: &&SegmentHeader| header.conv == conv && header.len > 0;
        assert!(
            bases.insert(sent.iter().find(of_session).unwrap().ts),
            "that of another session of this host"
        );
    }
}

/// A client of another kind: it sends no HELLO, and does nothing for the sake of the server.
struct Legacy {
    connection: Connection,
    read: usize,
}

/// A request of `request` bytes and an answer of `answer`, while what `lose` says is lost; returns how long it took.
fn exchange(
    config: &KcpConfigBuilder,
    request: usize,
    answer: usize,
    mut lose: impl FnMut(usize, bool) -> bool,
) -> u64 {
    let off = config.clone().extensions(Extensions::Off).build().unwrap();
    let mut legacy = Legacy { connection: Connection::new(CONV, &off, at(0)), read: 0 };
    let mut host = Host::accepting(address(1, 1), &config.clone().build().unwrap());
    legacy.connection.write(at(0), &vec![1; request]).unwrap();
    let (mut buffer, mut written, mut came) = (vec![0; 65_536], 0, 0);
    let mut under_way: Vec<(u64, bool, Vec<u8>)> = Vec::new();
    let mut count = [0; 2];
    let delay = 20;
    for millis in 0..60_000 {
        let now = at(millis);
        let due: Vec<_> = under_way.extract_if(.., |(due, ..)| *due <= millis).collect();
        for (_, to_server, mut packet) in due {
            if to_server {
                host.receive_one(now, client(1), &packet);
            } else {
                legacy.connection.handle_packet(now, &mut packet).unwrap();
            }
        }
        if legacy.connection.poll_timeout().is_some_and(|at| at <= now) {
            legacy.connection.handle_timeout(now);
        }
        while let Ok(read) = legacy.connection.read(&mut buffer) {
            legacy.read += read;
        }
        if legacy.read == answer {
            return millis;
        }
        for connection in host.connections() {
            while let Ok(read) = connection.read(&mut buffer) {
                came += read;
            }
            while came == request && written < answer {
                let Ok(more) = connection.write(now, &vec![2; answer - written]) else { break };
                written += more;
            }
        }
        let mut packets: Vec<(bool, Vec<u8>)> = Vec::new();
        while let Some(transmit) = legacy.connection.poll_transmit(now, &mut buffer) {
            packets
                .extend(buffer[..transmit.len].chunks(transmit.stride).map(|packet| (true, packet.to_vec())));
        }
        for Batch { bytes, stride, .. } in host.drive(now) {
            packets.extend(bytes.chunks(stride).map(|packet| (false, packet.to_vec())));
        }
        for (to_server, packet) in packets {
            let number = &mut count[usize::from(to_server)];
            if !lose(*number, to_server) {
                under_way.push((millis + delay, to_server, packet));
            }
            *number += 1;
        }
    }
    panic!("{request} bytes were not answered by {answer}: {} came", legacy.read);
}

#[test]
fn a_small_request_of_a_client_without_extensions_gets_its_answer_in_two_round_trips() {
    for stream in [true, false] {
        for (request, answer) in [(1, 10), (1, 1_000), (1, 100_000), (600, 100_000), (1_376, 3_000)] {
            let took = exchange(&settings().stream(stream), request, answer, |_, _| false);
            let free = exchange(&settings().stream(stream), 1_376, answer, |_, _| false);
            assert!(took <= free + 60, "{request} for {answer}: {took} ms, and {free} ms");
        }
    }
}

#[test]
fn a_lost_first_answer_costs_a_round_trip_and_not_the_session() {
    for stream in [true, false] {
        for lost in 1..=8 {
            for (request, answer) in [(1, 1), (1, 1_000), (40, 1_376), (600, 20_000)] {
                let lose = |number: usize, to_server: bool| !to_server && number < lost;
                let took = exchange(&settings().stream(stream), request, answer, lose);
                let free = exchange(&settings().stream(stream), request, answer, |_, _| false);
                // The first RTO of any session, and a round trip of this path.
                assert!(
                    lost > 1 || took <= free + 200 + 40,
                    "{request} for {answer}: {took} ms, and {free} ms"
                );
                // A probe after each RTO, which doubles up to 3 s.
                let limit = [700, 700, 1_500, 3_500, 6_500, 9_500, 12_500, 15_500][lost - 1];
                assert!(took <= limit, "{lost} lost, {request} for {answer}: {took} ms");
            }
        }
    }
}

#[test]
fn no_exchange_through_loss_hangs() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let (request, answer) = (rng.size(1..=2_000), rng.size(1..=20_000));
        let config = settings().stream(rng.chance(0.5));
        let config = if rng.chance(0.3) { config.fec(4, 2) } else { config };
        let loss = rng.within(5..=20) as f64 / 100.0;
        let took = exchange(&config, request, answer, |_, _| rng.chance(loss));
        assert!(took < 30_000, "seed {seed}: {took} ms");
    }
}

#[test]
fn a_forged_hello_draws_no_more_than_three_times_its_bytes_and_a_few_probes() {
    let config = settings().build().unwrap();
    let mut forger = Connection::connect(CONV, &config, at(0), SessionSeed::new(&mut Entropy(Rng::new(9))));
    let mut buffer = vec![0; 65_536];
    let hello = forger.poll_transmit(at(0), &mut buffer).unwrap();
    let mut server = Server::new(settings());
    server.host.receive_one(at(0), client(1), &buffer[..hello.len]);
    server.run(0, 1, None);
    assert!(server.bytes() >= 2 * hello.len, "a peer of ours waits for nothing: {}", server.bytes());
    server.run(1, 60_000, None);
    assert!(server.bytes() <= 4 * hello.len, "{}", server.bytes());
}

#[test]
fn a_session_that_only_takes_is_validated_by_its_probe() {
    let off = settings().extensions(Extensions::Off).build().unwrap();
    let mut legacy = Connection::new(CONV, &off, at(0));
    let mut host = Host::accepting(address(1, 1), &settings().build().unwrap());
    legacy.write(at(0), b"data").unwrap();
    let mut buffer = vec![0; 65_536];
    for millis in 0..1_000 {
        let now = at(millis);
        if legacy.poll_timeout().is_some_and(|at| at <= now) {
            legacy.handle_timeout(now);
        }
        while let Some(transmit) = legacy.poll_transmit(now, &mut buffer) {
            host.receive(now, client(1), buffer[..transmit.len].to_vec(), transmit.stride);
        }
        for Batch { bytes, stride, .. } in host.drive(now) {
            for packet in bytes.chunks(stride) {
                legacy.handle_packet(now, &mut packet.to_vec()).unwrap();
            }
        }
        assert_eq!(host.endpoint.half_open() == 0, millis > 200, "at {millis} ms");
    }
    assert_eq!(legacy.readable_bytes(), 0, "the probe carries nothing");
}

#[test]
fn a_probe_is_nothing_to_a_session_begun_anew() {
    // It does not begin one.
    let mut host = Host::accepting(address(1, 1), &settings().build().unwrap());
    host.receive_one(at(0), client(1), &segment(CONV, Command::Push, u32::MAX));
    assert_eq!(host.take_accepted(), None);
}
