//! How many sessions there may be, which of them give way, and when a peer is asked for a cookie.

use std::net::SocketAddr;

use kcp9::{
    CookiePolicy, KcpConfig, KcpConfigBuilder,
    proto::{Command, Extensions, HEADER_LEN, Instant, SegmentHeader},
};
use kcp9_simulator::ms;

use crate::{
    host::{Host, address, client, first_packet, push, segment},
    network::deliver_all,
};

const CONV: u32 = 7;

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn settings() -> KcpConfigBuilder {
    KcpConfig::builder().extensions(Extensions::Preferred).accept_backlog(65_536)
}

fn server(config: KcpConfigBuilder) -> Host {
    Host::accepting(address(1, 1), &config.build().unwrap())
}

/// Has a client of another kind begin a session, and shows that it hears the server if it `answers`.
fn knock(host: &mut Host, now: Instant, number: u32, answers: bool) {
    host.receive_one(now, client(number), &first_packet(CONV));
    for connection in host.connections().filter(|connection| !connection.is_validated()) {
        // Somebody has something to say to it.
        let _ = connection.write(now, b"?");
    }
    for batch in host.drive(now) {
        let sent = kcp9::proto::Segments::new(&batch.bytes).flatten().map(|(header, _)| header);
        for header in
            sent.filter(|header| answers && header.cmd == Command::Push && batch.to == client(number))
        {
            let ack = SegmentHeader { cmd: Command::Ack, len: 0, una: header.sn.wrapping_add(1), ..header };
            host.receive_one(now, client(number), &ack.to_bytes());
        }
    }
    host.drive(now);
}

#[test]
fn a_flood_of_openings_holds_no_more_sessions_than_the_limit_and_takes_none_of_the_others() {
    let mut host = server(settings().max_half_open(100).max_half_open_of_network(1_000));
    for number in 0..50 {
        knock(&mut host, at(0), number, true);
    }
    assert_eq!((host.endpoint.len(), host.endpoint.half_open()), (50, 0));
    for number in 1_000..11_000 {
        host.receive_one(at(1_000 + u64::from(number)), client(number), &first_packet(CONV));
        assert!(host.endpoint.half_open() <= 100);
    }
    let stats = host.stats();
    assert_eq!((host.endpoint.len(), host.endpoint.half_open()), (150, 100));
    assert_eq!(stats.accepted, 150 + stats.evicted, "{stats:?}");
    assert_eq!(stats.dropped_max_half_open + stats.evicted, 9_900, "{stats:?}");
    // Each second a hundred became idle, and gave way.
    assert!((800..=1_000).contains(&stats.evicted), "{stats:?}");
    for number in 0..50 {
        assert!(host.endpoint.find(client(number), CONV).is_some(), "{number}");
    }
}

#[test]
fn a_client_with_a_slow_path_gets_in_under_a_flood() {
    let mut host = server(settings().max_half_open(100).max_half_open_of_network(1_000));
    let mut now = 0;
    for number in 1_000..3_000 {
        now += 5;
        host.receive_one(at(now), client(number), &first_packet(CONV));
    }
    // It knocks until it is in, as clients do, and answers half a second later.
    let mut knocks = 0;
    while host.endpoint.find(client(1), CONV).is_none() {
        host.receive_one(at(now), client(1), &first_packet(CONV));
        for number in 0..40 {
            now += 5;
            host.receive_one(at(now), client(10_000 + 100 * knocks + number), &first_packet(CONV));
        }
        knocks += 1;
        assert!(knocks < 20);
    }
    for number in 0..100 {
        now += 5;
        host.receive_one(at(now), client(20_000 + number), &first_packet(CONV));
    }
    assert!(host.endpoint.find(client(1), CONV).is_some());
    knock(&mut host, at(now), 1, true);
}

/// A forger sends something for each session of its own often enough that none is silent for a second, and begins those anew that end.
struct SlowDrip {
    sessions: u32,
    packet: Vec<u8>,
}

impl SlowDrip {
    /// What may come each 900 ms: without having read anything, all of it is worth the same.
    fn all(sessions: u32) -> [Self; 4] {
        let ack = segment(CONV, Command::Ack, 0);
        let packets = [segment(CONV, Command::Wins, 0), first_packet(CONV), push(CONV, 1, 0, b"?"), ack];
        packets.map(|packet| Self { sessions, packet })
    }

    fn send(&self, host: &mut Host, now: Instant) {
        for number in 0..self.sessions {
            let source = client(number);
            let is_there = host.endpoint.find(source, CONV).is_some();
            let packet = if is_there { self.packet.clone() } else { first_packet(CONV) };
            host.receive_one(now, source, &packet);
        }
        host.drive(now);
    }
}

/// A client of another kind, which is there when the forger has all places and has had its turn.
#[test]
fn a_drip_of_packets_for_forged_sessions_holds_their_places_for_ten_seconds() {
    // The first has a limit for all, the second one for the network that all are of.
    let limits = [(20, 1_000), (1_000, 20)];
    for (max, of_network) in limits {
        for drip in SlowDrip::all(20) {
            let limits = settings().max_half_open(max).max_half_open_of_network(of_network);
            let mut host = server(limits);
            let mut got_in = Vec::new();
            for round in 0..80 {
                let now = 900 * round;
                drip.send(&mut host, at(now));
                let next = 100 + got_in.len() as u32;
                knock(&mut host, at(now + 1), next, true);
                if host.endpoint.find(client(next), CONV).is_some() {
                    got_in.push(now);
                }
            }
            assert_eq!(got_in.first(), Some(&10_800), "as soon as they are ten seconds old");
            // And so are those that the forger begins in their places.
            assert!(got_in.len() > 20, "{got_in:?}");
            let (stats, len) = (host.stats(), host.endpoint.half_open());
            assert!(len <= 20, "{len}");
            assert!(stats.evicted >= got_in.len() as u64, "{stats:?}");
            for number in 0..got_in.len() as u32 {
                assert!(host.endpoint.find(client(100 + number), CONV).is_some(), "validated ones stay");
            }
        }
    }
}

/// Its ACKs are lost for long, and it goes on sending.
#[test]
fn who_is_half_open_for_long_stays_while_there_is_room() {
    for drip in SlowDrip::all(19) {
        let mut host = server(settings().max_half_open(20).max_half_open_of_network(20));
        for round in 0..30 {
            drip.send(&mut host, at(900 * round));
            // Others come and are validated.
            knock(&mut host, at(900 * round + 1), 100 + round as u32, true);
        }
        assert_eq!((host.endpoint.half_open(), host.stats().evicted, host.stats().accepted), (19, 0, 49));
        knock(&mut host, at(27_000), 0, true);
        assert_eq!(host.endpoint.half_open(), 18, "the answer to a question of theirs is proof at any time");
    }
}

#[test]
fn half_open_sessions_of_one_network_leave_room_for_others() {
    let mut host = server(settings().max_half_open_of_network(10));
    let neighbour = |port| address(0x0b00_0001, port);
    for port in 1..=50 {
        host.receive_one(at(0), neighbour(port), &first_packet(CONV));
    }
    assert_eq!((host.endpoint.len(), host.stats().dropped_max_half_open_of_network), (10, 40));
    host.receive_one(at(0), address(0x0b00_0002, 1), &first_packet(CONV));
    assert_eq!(host.endpoint.len(), 11);
    // Those that were validated do not count.
    let mut host = server(settings().max_half_open_of_network(10));
    for number in 0..200 {
        knock(&mut host, at(0), number, true);
    }
    assert_eq!(
        (host.endpoint.len(), host.stats().dropped_max_half_open_of_network),
        (200, 0),
        "they share an address"
    );
}

/// Whoever has one address of IPv6 has 64 bits of them.
#[test]
fn a_network_of_ipv6_is_64_bits_of_it() {
    let host_of =
        |network: u16, host: u16| SocketAddr::from(([0x2001, 0xdb8, 0, network, host, 2, 3, host], 4_000));
    let mut host = server(settings().max_half_open_of_network(10));
    for number in 0..50 {
        host.receive_one(at(0), host_of(1, number), &first_packet(CONV));
    }
    assert_eq!((host.endpoint.len(), host.stats().dropped_max_half_open_of_network), (10, 40));
    for network in 2..52 {
        host.receive_one(at(0), host_of(network, 1), &first_packet(CONV));
    }
    assert_eq!((host.endpoint.len(), host.stats().dropped_max_half_open_of_network), (60, 40));
}

#[test]
fn no_more_sessions_live_than_the_limit_in_all() {
    let mut host = server(settings().max_sessions(5));
    for number in 0..4 {
        knock(&mut host, at(0), number, true);
    }
    knock(&mut host, at(0), 4, false);
    knock(&mut host, at(500), 5, true);
    assert_eq!(
        (host.endpoint.len(), host.stats().dropped_max_sessions),
        (5, 1),
        "the fifth may still answer"
    );
    knock(&mut host, at(1_100), 6, true);
    assert_eq!((host.endpoint.len(), host.stats().evicted), (5, 1));
    assert_eq!(host.endpoint.find(client(4), CONV), None);
    knock(&mut host, at(9_000), 7, true);
    assert_eq!(host.stats().dropped_max_sessions, 2, "established ones do not give way");
    let handle = host.endpoint.find(client(0), CONV).unwrap();
    host.close(at(9_000), handle);
    knock(&mut host, at(9_000), 8, true);
    assert_eq!(host.endpoint.len(), 5);
}

#[test]
fn who_gave_way_may_begin_anew_at_once() {
    let mut host = server(settings().max_half_open(1));
    host.receive_one(at(0), client(1), &first_packet(CONV));
    host.receive_one(at(2_000), client(2), &first_packet(CONV));
    assert_eq!((host.evicted.len(), host.endpoint.len()), (1, 1));
    host.receive_one(at(4_000), client(1), &first_packet(CONV));
    assert!(host.endpoint.find(client(1), CONV).is_some());
}

// ---- Cookies ----

fn connecting(number: u32, host: &Host, config: &KcpConfig) -> Host {
    let mut connecting = Host::connecting(client(number));
    let handle = connecting.connect(at(1_000), host.address, CONV, config);
    connecting.connection(handle).write(at(1_000), b"hello").unwrap();
    connecting
}

#[test]
fn a_peer_that_is_asked_for_a_cookie_waits_a_round_trip_and_is_validated() {
    let config = settings().cookies(CookiePolicy::Always).build().unwrap();
    let mut hosts = vec![server(settings().cookies(CookiePolicy::Always))];
    hosts.push(connecting(1, &hosts[0], &config));
    let [source, to] = [hosts[1].address, hosts[0].address];
    let hello = hosts[1].drive_packets(at(1_000));
    assert_eq!(hello[0].bytes.len(), 1_200);
    for batch in hello {
        hosts[0].receive(at(1_000), source, batch.bytes, batch.stride);
    }
    assert_eq!((hosts[0].stats().retries, hosts[0].endpoint.len()), (1, 0), "no state before it comes back");
    let retry = hosts[0].drive(at(1_000));
    assert_eq!(retry.iter().map(|batch| batch.bytes.len()).collect::<Vec<_>>(), [HEADER_LEN + 23]);
    for batch in retry {
        hosts[1].receive(at(1_001), to, batch.bytes, batch.stride);
    }
    // What was dropped with the first HELLO comes again at once.
    deliver_all(at(1_001), &mut hosts);
    let session = hosts[0].take_accepted().unwrap();
    assert_eq!(hosts[0].read(session), b"hello");
    assert!(hosts[0].connection(session).is_validated());
    assert_eq!(hosts[0].endpoint.half_open(), 0);
}

#[test]
fn a_peer_without_extensions_is_not_accepted_where_a_cookie_is_always_asked_for() {
    let mut host = server(settings().cookies(CookiePolicy::Always));
    host.receive_one(at(0), client(1), &first_packet(CONV));
    assert_eq!((host.endpoint.len(), host.stats().dropped_no_cookie), (0, 1));
}

#[test]
fn under_load_peers_with_extensions_need_no_room_and_the_others_have_half_of_it() {
    let limits = settings().max_half_open(100).max_half_open_of_network(100);
    for policy in [CookiePolicy::Never, CookiePolicy::UnderLoad] {
        let mut hosts = vec![server(limits.clone().cookies(policy))];
        let config = limits.clone().build().unwrap();
        // Nobody answers for these.
        for number in 1_000..1_049 {
            hosts[0].receive_one(at(1_000), client(number), &first_packet(CONV));
        }
        let before = hosts[0].stats();
        for number in 0..30 {
            let next = connecting(number, &hosts[0], &config);
            hosts.push(next);
            let (host, connecting) = hosts.split_at_mut(1);
            let source = connecting[number as usize].address;
            // Its HELLO comes alone. What it writes may come later.
            let hello = connecting[number as usize].drive(at(1_000)).swap_remove(0);
            host[0].receive(at(1_000), source, hello.bytes, hello.stride);
        }
        let retries = hosts[0].stats().retries - before.retries;
        let expected = if policy == CookiePolicy::Never { 0 } else { 29 };
        assert_eq!(retries, expected, "{policy:?}: the load begins with the fiftieth session");
        // The others fill what is left.
        for number in 2_000..2_100 {
            hosts[0].receive_one(at(1_001), client(number), &push(CONV, 0, 0, b"!"));
        }
        assert_eq!(hosts[0].endpoint.half_open(), 100);
        let refused = hosts[0].stats().dropped_max_half_open;
        assert_eq!(refused, if policy == CookiePolicy::Never { 79 } else { 50 });
        // And those with a cookie get in all the same.
        if policy == CookiePolicy::UnderLoad {
            for millis in (1_001..1_900).step_by(50) {
                deliver_all(at(millis), &mut hosts);
            }
            for host in &mut hosts[1..] {
                assert_eq!(host.connections().filter(|connection| connection.is_peer_confirmed()).count(), 1);
            }
        }
    }
}

/// Its data arrives apart from its HELLO, as a socket may well deliver it.
#[test]
fn data_behind_a_hello_that_was_asked_for_a_cookie_begins_no_half_open_session() {
    let limits = settings().max_half_open(2).max_half_open_of_network(2);
    let mut hosts = vec![server(limits.clone())];
    hosts[0].receive_one(at(900), client(99), &first_packet(CONV));
    hosts.push(connecting(1, &hosts[0], &limits.build().unwrap()));
    let source = hosts[1].address;
    let flight = hosts[1].drive_packets(at(1_000));
    assert!(flight.len() > 1, "HELLO, then data");
    for batch in flight {
        hosts[0].receive(at(1_000), source, batch.bytes, batch.stride);
    }
    let stats = hosts[0].stats();
    assert_eq!((stats.retries, hosts[0].endpoint.half_open()), (1, 1), "{stats:?}");
    // Another peer begins one at any time.
    hosts[0].receive_one(at(1_000), client(98), &first_packet(CONV));
    assert_eq!(hosts[0].endpoint.half_open(), 2);
    deliver_all(at(1_001), &mut hosts);
    let handle = hosts[0].endpoint.find(source, CONV).unwrap();
    assert_eq!(hosts[0].read(handle), b"hello");
    assert!(hosts[0].connection(handle).is_validated());
}

#[test]
fn where_a_network_has_no_room_its_own_give_way_also_if_there_is_none_for_any() {
    let limits = settings().max_sessions(3).max_half_open_of_network(1).cookies(CookiePolicy::Never);
    let mut host = server(limits);
    let [old, other] = [1, 300].map(client);
    host.receive_one(at(0), other, &first_packet(CONV));
    host.receive_one(at(100), old, &first_packet(CONV));
    host.receive_one(at(200), client(600), &first_packet(CONV));
    // From the same address as the second.
    host.receive_one(at(5_000), old, &first_packet(CONV + 1));
    assert_eq!(host.endpoint.find(old, CONV), None);
    assert!(host.endpoint.find(other, CONV).is_some() && host.endpoint.find(old, CONV + 1).is_some());
}

#[test]
fn an_old_cookie_is_answered_by_a_new_one() {
    let config = settings().cookies(CookiePolicy::Always).dead_timeout(ms(100_000)).build().unwrap();
    let mut host = Host::accepting(address(1, 1), &config);
    let mut connecting = connecting(1, &host, &config);
    let (source, to) = (connecting.address, host.address);
    for batch in connecting.drive(at(1_000)) {
        host.receive(at(1_000), source, batch.bytes, batch.stride);
    }
    for batch in host.drive(at(1_000)) {
        connecting.receive(at(1_001), to, batch.bytes, batch.stride);
    }
    // The HELLO with the cookie is under way for half a minute.
    let late = connecting.drive(at(1_001));
    for batch in late {
        host.receive(at(32_000), source, batch.bytes, batch.stride);
    }
    assert_eq!((host.endpoint.len(), host.stats().retries), (0, 2));
}
