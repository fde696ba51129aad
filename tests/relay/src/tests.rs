use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

use kcp9_simulator::{LinkSettings, ms};

use super::{Counts, Direction, Relay};

/// How long a test waits for packets that may not come.
const PATIENCE: Duration = ms(400);

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// A server behind a relay, and a client.
fn behind(path: &LinkSettings) -> (UdpSocket, Relay, UdpSocket) {
    let server = socket();
    let relay = Relay::start(server.local_addr().unwrap(), path, 1).unwrap();
    (server, relay, socket())
}

/// The first bytes of the packets that arrive until none comes any more.
fn received(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 2_000];
    std::iter::from_fn(|| socket.recv_from(&mut buffer).ok().map(|_| buffer[0])).collect()
}

/// Sends packets of 10 bytes, numbered from 0.
fn send(client: &UdpSocket, relay: &Relay, count: u8) {
    for number in 0..count {
        client.send_to(&[number; 10], relay.addr()).unwrap();
    }
}

#[test]
fn a_perfect_path_passes_everything_in_order_and_both_ways() {
    let (server, relay, client) = behind(&LinkSettings::default());
    send(&client, &relay, 100);
    assert!(received(&server).into_iter().eq(0..100));

    client.send_to(b"question", relay.addr()).unwrap();
    let mut buffer = [0; 100];
    let (len, back) = server.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"question");
    server.send_to(b"answer", back).unwrap();
    let (len, from) = client.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..len], from), (&b"answer"[..], relay.addr()));

    let up =
        Counts { offered: 101, bytes_offered: 1_008, passed: 101, bytes_passed: 1_008, ..Counts::default() };
    let down = Counts { offered: 1, bytes_offered: 6, passed: 1, bytes_passed: 6, ..Counts::default() };
    assert_eq!((relay.to_server(), relay.to_client()), (up, down));
    assert_eq!(relay.counts().wire_bytes(), 1_014 + 102 * 28);
}

#[test]
fn lost_packets_are_counted_and_the_others_keep_their_order_behind_a_delay() {
    let (server, relay, client) = behind(&LinkSettings::delay(ms(20)).loss(0.5));
    let start = Instant::now();
    send(&client, &relay, 200);
    assert_eq!(server.recv_from(&mut [0; 100]).unwrap().0, 10);
    assert!(start.elapsed() >= ms(19), "{:?}", start.elapsed());
    let rest = received(&server);
    assert!(rest.is_sorted(), "{rest:?}");
    assert!((60..140).contains(&rest.len()), "{} of 200 arrived", rest.len());
    let counts = relay.to_server();
    assert_eq!(
        (counts.offered, counts.passed, counts.lost),
        (200, rest.len() as u64 + 1, 199 - rest.len() as u64)
    );
    assert_eq!(counts.dropped(), counts.lost);
}

#[test]
fn every_client_has_its_own_address_before_the_server() {
    let (server, relay, first) = behind(&LinkSettings::default());
    let second = socket();
    let mut buffer = [0; 100];
    for (client, name) in [(&first, b"a"), (&second, b"b"), (&first, b"c")] {
        client.send_to(name, relay.addr()).unwrap();
        let (len, back) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], name);
        server.send_to(&[name[0]; 3], back).unwrap();
        let (len, _) = client.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], &[name[0]; 3]);
    }
}

#[test]
fn a_packet_that_is_held_up_is_overtaken() {
    let path = LinkSettings { reorder: 0.1, reorder_delay: ms(20), ..LinkSettings::delay(ms(2)) };
    let (server, relay, client) = behind(&path);
    send(&client, &relay, 200);
    let arrived = received(&server);
    assert_eq!(arrived.len(), 200);
    assert!(!arrived.is_sorted());
    assert!((5..60).contains(&relay.to_server().reordered), "{:?}", relay.to_server());
}

#[test]
fn duplicates_and_damage_reach_the_server() {
    let path = LinkSettings { duplicate: 1.0, corrupt: 1.0, ..LinkSettings::default() };
    let (server, relay, client) = behind(&path);
    client.send_to(&[0; 10], relay.addr()).unwrap();
    let mut buffer = [0; 100];
    for _ in 0..2 {
        let (len, _) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[..len].iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    }
    let counts = relay.to_server();
    assert_eq!((counts.passed, counts.duplicated, counts.corrupted), (2, 1, 1));
}

#[test]
fn a_rate_spaces_packets_and_its_queue_drops_what_does_not_fit() {
    // 1,000 bytes take 10 ms, and five packets may wait.
    let (server, relay, client) = behind(&LinkSettings::default().rate(100_000, 5_000));
    let start = Instant::now();
    for number in 0..20 {
        client.send_to(&[number; 1_000], relay.addr()).unwrap();
    }
    let mut buffer = [0; 2_000];
    let mut arrived = Vec::new();
    while server.recv_from(&mut buffer).is_ok() {
        arrived.push((buffer[0], start.elapsed()));
    }
    // On a slow machine the last packets are sent later, when the queue is shorter: more of them arrive.
    assert!((5..20).contains(&arrived.len()), "{arrived:?}");
    for (number, (_, at)) in arrived.iter().enumerate() {
        assert!(*at >= ms(10) * (number as u32 + 1) - ms(1), "{arrived:?}");
    }
    assert_eq!(relay.to_server().overflowed, 20 - arrived.len() as u64);
}

#[test]
fn loss_and_delay_change_while_it_runs() {
    let (server, relay, client) = behind(&LinkSettings::default());
    relay.set_loss(1.0);
    send(&client, &relay, 10);
    assert_eq!(received(&server), []);
    relay.set_loss(0.0);
    relay.set_delay(ms(50));
    let start = Instant::now();
    send(&client, &relay, 1);
    assert_eq!(server.recv_from(&mut [0; 100]).unwrap().0, 10);
    assert!(start.elapsed() >= ms(49), "{:?}", start.elapsed());
    assert_eq!((relay.to_server().lost, relay.to_server().passed), (10, 1));
}

#[test]
fn a_dropped_relay_passes_nothing_more() {
    let (server, relay, client) = behind(&LinkSettings::delay(ms(100)));
    let addr = relay.addr();
    send(&client, &relay, 1);
    while relay.to_server().offered == 0 {
        std::thread::yield_now();
    }
    drop(relay);
    client.send_to(b"late", addr).unwrap();
    assert_eq!(received(&server), []);
}

/// Both directions at once, as fast as `transfer` may ever want.
#[test]
#[ignore = "a measurement: cargo test --release -p kcp9-relay -- --ignored --nocapture rate"]
fn rate() {
    let path = LinkSettings {
        jitter: ms(6),
        jitter_hold: ms(20),
        reorder: 0.01,
        reorder_delay: ms(2),
        ..LinkSettings::delay(ms(27)).loss(0.1)
    };
    let (server, relay, client) = behind(&path);
    client.send_to(b"here I am", relay.addr()).unwrap();
    let back = server.recv_from(&mut [0; 16]).unwrap().1;
    let pump = |socket: &UdpSocket, to| {
        socket.set_nonblocking(true).unwrap();
        let (mut sent, mut received, mut buffer) = (0, 0, [0; 2_048]);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(3) {
            while f64::from(sent) < start.elapsed().as_secs_f64() * 40e6 / 1_400.0 {
                let _ = socket.send_to(&[7; 1_400], to);
                sent += 1;
            }
            while let Ok(len) = socket.recv(&mut buffer) {
                received += len;
            }
            std::thread::sleep(ms(1));
        }
        received as f64 / start.elapsed().as_secs_f64() / 1e6
    };
    let (up, down) = std::thread::scope(|scope| {
        let down = scope.spawn(|| pump(&client, relay.addr()));
        (pump(&server, back), down.join().unwrap())
    });
    println!("{up:.1} MB/s and {down:.1} MB/s; {:?}; {:?}", relay.to_server(), relay.to_client());
}

#[test]
fn a_rewriting_relay_sends_what_it_is_given_in_a_packets_place() {
    let server = socket();
    let rewrite = |direction, packet: &[u8], out: &mut Vec<Vec<u8>>| match direction {
        Direction::ToServer if packet[0] == 1 => {}
        Direction::ToServer => out.extend([packet.to_vec(), vec![100 + packet[0]]]),
        Direction::ToClient => out.push(vec![packet[0] + 1]),
    };
    let relay = Relay::rewriting(server.local_addr().unwrap(), Box::new(rewrite)).unwrap();
    let client = socket();
    send(&client, &relay, 3);
    let (_, back) = server.peek_from(&mut [0; 10]).unwrap();
    assert_eq!(received(&server), [0, 100, 2, 102]);
    server.send_to(&[7], back).unwrap();
    assert_eq!(received(&client), [8]);
    assert_eq!((relay.to_server().offered, relay.to_client().passed), (4, 1));
}
