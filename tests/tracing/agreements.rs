//! What a server says of peers with which it does not agree on keys.

use std::{net::SocketAddr, time::Duration};

use kcp9::{
    CookiePolicy, KcpConfig, KcpConfigBuilder,
    proto::{
        Connection, Instant, SessionSeed,
        noise::{Initiator, Psk, Responder},
    },
};
use kcp9_simulator::Rng;
use kcp9_tests::collector::{Collector, Recorded};
use tracing::Level;

use crate::{
    count,
    drops::{Counter, Server, source},
    ms, named, sum, table,
};

fn psk(byte: u8) -> Psk {
    Psk::from_bytes(&[byte; 32])
}

/// A server that never asks for a cookie by itself.
pub fn server() -> KcpConfigBuilder {
    KcpConfig::builder().noise(Responder::nn_psk0(psk(1))).cookies(CookiePolicy::Never)
}

/// A client that has this key.
fn client(conv: u32, byte: u8) -> Connection {
    let config = KcpConfig::builder().noise(Initiator::nn_psk0(psk(byte))).build().unwrap();
    let mut rng = Rng::new(conv.into());
    let seed = SessionSeed::new(&mut rng);
    Connection::connect_with_noise(conv, &config, Instant::ZERO, seed, &mut rng).unwrap()
}

/// The packet that a client sends now.
fn sent(client: &mut Connection) -> Vec<u8> {
    let mut buffer = vec![0; 2_000];
    let len = client.poll_transmit(Instant::ZERO, &mut buffer).expect("a HELLO is due").len;
    buffer[..len].to_vec()
}

/// The first message of a client with another key.
pub fn wrong_hello(conv: u32) -> Vec<u8> {
    sent(&mut client(conv, 2))
}

fn check(events: &[Recorded], cause: &str, counted: u64) {
    table::check(events);
    assert!(counted > 0, "{cause}");
    assert_eq!(sum(events, "refused", "packets"), counted, "{cause}: {events:?}");
    assert_eq!(count(events, "refused", "cause", cause), counted, "{cause}: {events:?}");
}

/// Those who agree on keys are limited as half-open sessions are, and a key that is wrong is none of a limit.
pub fn refusals() -> Vec<Recorded> {
    let cases: [(&str, KcpConfigBuilder, u8, u64, Counter); 3] = [
        ("max_half_open", server().max_half_open(2), 1, 7, |stats| stats.dropped_max_half_open),
        ("max_half_open_of_network", server().max_half_open_of_network(2), 1, 7, |stats| {
            stats.dropped_max_half_open_of_network
        }),
        ("no_agreement", server(), 2, 9, |stats| stats.dropped_no_agreement),
    ];
    let collector = Collector::begin(Level::TRACE);
    let mut all = Vec::new();
    for (cause, config, byte, expected, counter) in cases {
        let mut server = Server::new(config);
        for conv in 1..=9 {
            let source = source(if cause == "max_half_open_of_network" { 1 } else { conv });
            server.receive(ms(0), source, &sent(&mut client(conv, byte)));
        }
        let events = collector.take();
        assert_eq!(counter(&server.stats()), expected, "{cause}: {:?}", server.stats());
        check(&events, cause, expected);
        assert!(named(&events, "all_dropped").is_empty(), "{cause}: they came at once");
        all.extend(events);
    }
    all
}

#[test]
fn who_does_not_agree_on_keys_is_said_to_be_refused() {
    refusals();
}

/// Behind a hundred wrong ones a second of one network, with cookies, no others are looked at: they are counted, and said, all the same.
#[test]
fn those_that_are_not_looked_at_are_said_to_be_refused_too() {
    let collector = Collector::begin(Level::TRACE);
    let mut server = Server::new(server().cookies(CookiePolicy::Always));
    let (mut told, now) = (0, Duration::ZERO);
    for conv in 1..=150 {
        let source = SocketAddr::new(source(1).ip(), conv as u16);
        let mut client = client(conv, 2);
        for retry in server.receive(now, source, &sent(&mut client)) {
            let _ = client.handle_packet(Instant::ZERO, &mut retry.clone());
        }
        told += server.receive(now, source, &sent(&mut client)).len();
    }
    let events = collector.take();
    table::check(&events);
    assert!(told <= 100, "{told} were told why");
    assert_eq!((server.stats().dropped_no_cookie, server.stats().dropped_no_agreement), (150, 150));
    assert_eq!(count(&events, "refused", "cause", "no_cookie"), 150);
    assert_eq!(count(&events, "refused", "cause", "no_agreement"), 150);
}
