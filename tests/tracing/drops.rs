//! What an endpoint says of packets that it does not accept.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    proto::{
        Command, Connection, CookiePolicy, Endpoint, Extensions, Handle, Instant, Refusal, Routed,
        RoutingStats, SegmentHeader,
    },
};
use kcp9_simulator::{Nonces, Rng};
use kcp9_tests::collector::{Collector, Recorded};
use tracing::Level;

use crate::{agreements, count, ms, named, sum, table};

/// An endpoint whose program accepts what it is offered, or refuses it.
pub struct Server {
    endpoint: Endpoint,
    refusal: Option<Refusal>,
    handles: Vec<Handle>,
}

impl Server {
    pub fn new(config: KcpConfigBuilder) -> Self {
        let endpoint = Endpoint::accepting(&config.build().unwrap(), &mut Rng::new(1));
        Self { endpoint, refusal: None, handles: Vec::new() }
    }

    /// Takes in a packet. Returns what is sent without a session.
    pub fn receive(&mut self, now: Duration, source: SocketAddr, packet: &[u8]) -> Vec<Vec<u8>> {
        let now = Instant::ZERO + now;
        let mut packet = packet.to_vec();
        let len = packet.len();
        let mut replies = Vec::new();
        self.endpoint.receive(source, &mut packet, len);
        while let Some(routed) = self.endpoint.poll_routed(now, &packet) {
            match (routed, self.refusal) {
                (Routed::Incoming(_), Some(refusal)) => self.endpoint.refuse(refusal),
                (Routed::Incoming(_), None) => {
                    self.handles.extend(self.endpoint.accept(now).map(|accepted| accepted.run.handle));
                }
                (Routed::Reply(_), _) => replies.push(self.endpoint.reply().to_vec()),
                _ => {}
            }
        }
        replies
    }

    pub fn stats(&self) -> RoutingStats {
        *self.endpoint.stats()
    }
}

pub fn source(host: u32) -> SocketAddr {
    SocketAddr::from(((0x0a00_0000 + host).to_be_bytes(), 4_000))
}

/// The first packet of a session.
fn push(conv: u32) -> Vec<u8> {
    let header = SegmentHeader { conv, cmd: Command::Push, frg: 0, wnd: 32, ts: 1, sn: 0, una: 0, len: 1 };
    [&header.to_bytes()[..], b"!"].concat()
}

/// A packet that begins nothing.
fn noise() -> [u8; 40] {
    [0xa5; 40]
}

pub type Counter = fn(&RoutingStats) -> u64;

/// Servers that turn sessions away: for which cause, and how that is counted.
fn refusing() -> [(&'static str, KcpConfigBuilder, Option<Refusal>, Counter); 7] {
    [
        ("max_sessions", KcpConfig::builder().max_sessions(2), None, |stats| stats.dropped_max_sessions),
        ("max_half_open", KcpConfig::builder().max_half_open(2), None, |stats| stats.dropped_max_half_open),
        ("max_half_open_of_network", KcpConfig::builder().max_half_open_of_network(2), None, |stats| {
            stats.dropped_max_half_open_of_network
        }),
        ("backlog", KcpConfig::builder(), Some(Refusal::QueueFull), |stats| stats.dropped_queue_full),
        ("unwanted", KcpConfig::builder(), Some(Refusal::Unwanted), |stats| stats.dropped_no_session),
        ("no_hello", KcpConfig::builder().extensions(Extensions::Required), None, |stats| {
            stats.dropped_no_hello
        }),
        ("no_cookie", KcpConfig::builder().cookies(CookiePolicy::Always), None, |stats| {
            stats.dropped_no_cookie
        }),
    ]
}

/// Each limit turns some away: the events are as many as the counters say.
pub fn limits() -> Vec<Recorded> {
    let collector = Collector::begin(Level::TRACE);
    let mut all = Vec::new();
    for (cause, config, refusal, counter) in refusing() {
        let mut server = Server::new(config);
        server.refusal = refusal;
        let is_of_network = cause == "max_half_open_of_network";
        for conv in 1..=9 {
            server.receive(ms(0), source(if is_of_network { 1 } else { conv }), &push(conv));
        }
        let events = collector.take();
        table::check(&events);
        let turned_away = counter(&server.stats());
        assert!(turned_away > 0, "{cause}: {:?}", server.stats());
        assert_eq!(sum(&events, "refused", "packets"), turned_away, "{cause}: {events:?}");
        assert_eq!(count(&events, "refused", "cause", cause), turned_away, "{cause}: {events:?}");
        assert_eq!(9 - turned_away, server.handles.len() as u64, "{cause}");
        assert!(named(&events, "all_dropped").is_empty(), "{cause}: they came at once");
        all.extend(events);
    }
    all
}

#[test]
fn limits_say_whom_they_turn_away() {
    limits();
}

fn encrypted() -> KcpConfigBuilder {
    let cipher = CipherKind::Aes256Gcm.build(&Key::from_bytes(&[7; 32]), Framing::KcpGo).unwrap();
    KcpConfig::builder().crypto(PacketCrypto::new(cipher, Arc::new(Nonces::default())))
}

/// Each cause of a warning, for somebody who goes on for less than the second after which others give way.
pub fn causes() -> Vec<Recorded> {
    let mut cases: Vec<(&str, KcpConfigBuilder, Option<Refusal>, Vec<u8>)> = refusing()
        .into_iter()
        .filter(|(cause, ..)| *cause != "unwanted")
        .map(|(cause, config, refusal, _)| (cause, config, refusal, push(9)))
        .collect();
    cases.push(("no_session", KcpConfig::builder(), None, noise().to_vec()));
    cases.push(("undecryptable", encrypted(), None, noise().to_vec()));
    cases.push(("no_agreement", agreements::server(), None, agreements::wrong_hello(9)));
    let collector = Collector::begin(Level::TRACE);
    let mut all = Vec::new();
    for (cause, config, refusal, packet) in cases {
        let mut server = Server::new(config);
        server.refusal = refusal;
        // Others of its network, who use its limits up.
        for conv in 1..=2 {
            server.receive(ms(0), source(1), &push(conv));
        }
        collector.take();
        let peer = SocketAddr::new(source(1).ip(), 5_000);
        for step in 0..6 {
            server.receive(ms(120 * step), peer, &packet);
        }
        let events = collector.take();
        table::check(&events);
        let [warning] = named(&events, "all_dropped")[..] else { panic!("{cause}, not one: {events:?}") };
        assert_eq!((warning.field("cause"), warning.field("peer")), (cause, &*peer.to_string()));
        assert_eq!((warning.number("packets"), warning.number("suppressed")), (6, 0), "{warning:?}");
        assert_eq!(sum(&events, "dropped", "packets"), 6, "{cause}");
        assert_eq!(count(&events, "dropped", "cause", cause), 6, "{cause}: {events:?}");
        all.extend(events);
    }
    all
}

#[test]
fn each_cause_is_a_warning_of_its_own() {
    causes();
}

/// The first packet of an encrypted session begins no other one, wherever it is sent from.
pub fn replays() -> Vec<Recorded> {
    let config = encrypted();
    let mut client = Connection::new(7, &config.clone().build().unwrap(), Instant::ZERO);
    client.write(Instant::ZERO, b"!").unwrap();
    let mut buffer = vec![0; 2_000];
    let len = client.poll_transmit(Instant::ZERO, &mut buffer).unwrap().len;

    let collector = Collector::begin(Level::TRACE);
    let mut server = Server::new(config);
    for host in 1..=9 {
        server.receive(ms(0), source(host), &buffer[..len]);
    }
    let events = collector.take();
    table::check(&events);
    assert_eq!((server.handles.len(), server.stats().dropped_replayed), (1, 8));
    assert_eq!(count(&events, "refused", "cause", "replayed"), 8, "{events:?}");
    assert_eq!(sum(&events, "refused", "packets"), 8);
    events
}

#[test]
fn recorded_first_packets_are_said_to_be() {
    replays();
}

/// One source with noise for a minute and more: one warning a minute.
pub fn a_source_that_nothing_is_accepted_of() -> Vec<Recorded> {
    let collector = Collector::begin(Level::TRACE);
    let mut server = Server::new(KcpConfig::builder());
    for step in 0..200 {
        server.receive(ms(100 * step), source(1), &noise());
    }
    let events = collector.take();
    table::check(&events);
    let [warning] = named(&events, "all_dropped")[..] else { panic!("not one warning: {events:?}") };
    assert_eq!((warning.field("cause"), warning.field("peer")), ("no_session", "10.0.0.1:4000"));
    assert_eq!((warning.number("packets"), warning.number("suppressed")), (6, 0), "{warning:?}");
    assert!(warning.text.contains("is a cipher set at its end only"), "{warning:?}");
    assert_eq!(sum(&events, "dropped", "packets"), server.stats().dropped_no_session);
    for step in 200..1_210 {
        server.receive(ms(100 * step), source(1), &noise());
    }
    let warnings = named(&collector.take(), "all_dropped").len();
    assert!((1..=2).contains(&warnings), "{warnings} in a hundred seconds more");
    events
}

#[test]
fn a_source_of_which_nothing_is_accepted_is_a_warning_once_a_minute() {
    a_source_that_nothing_is_accepted_of();
}

/// A source that has a session sends noise, too: somebody else behind its address, or damage on the way.
#[test]
fn noise_among_what_is_accepted_is_no_warning() {
    let collector = Collector::begin(Level::WARN);
    let mut server = Server::new(KcpConfig::builder());
    server.receive(ms(0), source(1), &push(7));
    assert_eq!(server.handles.len(), 1);
    for step in 0..600 {
        server.receive(ms(100 * step), source(1), &noise());
        if step % 3 == 0 {
            server.receive(ms(100 * step), source(1), &push(7));
        }
    }
    assert!(collector.take().is_empty());
}

/// Packets of a session from before a restart that were under way together.
#[test]
fn many_packets_at_once_are_no_warning() {
    let collector = Collector::begin(Level::WARN);
    let mut server = Server::new(KcpConfig::builder());
    for step in 0..400 {
        server.receive(ms(step), source(1), &noise());
    }
    assert!(collector.take().is_empty());
}

/// A flood from sources that somebody makes up, each as patient as a client with a wrong key.
#[test]
fn a_flood_of_forged_sources_is_twenty_warnings_a_minute_at_most() {
    let collector = Collector::begin(Level::WARN);
    let mut server = Server::new(KcpConfig::builder());
    for round in 0..40 {
        for host in 0..5_000 {
            server.receive(ms(1_000 * round + u64::from(host) / 5), source(host), &noise());
        }
    }
    assert!(collector.take().is_empty(), "so many are forgotten before they are a reason");
    let mut warnings = 0;
    for minute in 1..=3 {
        for round in 0..50 {
            for host in 0..40 {
                let host = 100_000 * minute as u32 + 40 * (round / 10) + host;
                server.receive(ms(60_000 * minute + u64::from(round) * 1_000), source(host), &noise());
            }
        }
        let events = collector.take();
        assert!((10..=20).contains(&events.len()), "{} in minute {minute}", events.len());
        warnings += events.len();
    }
    assert!(warnings <= 60);
    assert_eq!(server.stats().accepted, 0);
}
