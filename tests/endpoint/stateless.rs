//! What an endpoint answers to packets of sessions that it does not know.

use std::time::Duration;

use kcp9::{
    KcpConfig,
    proto::{CloseReason, Command, Extensions, Instant, SegmentHeader},
};
use kcp9_simulator::ms;

use crate::{
    ciphers::aead,
    host::{Host, address, client, first_packet, segment},
    network::deliver_all,
};

const NOW: Instant = Instant::ZERO;
const KEY: &[u8; 16] = b"the key of both.";

/// `frg` of extension segments.
const HELLO: u8 = 1;
const FIN: u8 = 4;
const RESET: u8 = 7;
const PING: u8 = 8;
const PONG: u8 = 9;

fn config() -> KcpConfig {
    let keep_alive = Some(Duration::from_secs(5));
    KcpConfig::builder().extensions(Extensions::Preferred).keep_alive(keep_alive).build().unwrap()
}

fn encrypted() -> KcpConfig {
    KcpConfig::builder()
        .extensions(Extensions::Preferred)
        .keep_alive(Some(Duration::from_secs(5)))
        .crypto(aead(KEY))
        .build()
        .unwrap()
}

fn server(config: &KcpConfig) -> Host {
    Host::accepting(address(1, 1), config)
}

fn extension(subtype: u8, body: &[u8]) -> Vec<u8> {
    let (cmd, len) = (Command::Extension, body.len() as u32);
    let header = SegmentHeader { conv: 7, cmd, frg: subtype, wnd: 9, ts: 11, sn: 0x0505_0505, una: 0, len };
    [&header.to_bytes()[..], body].concat()
}

fn ping() -> Vec<u8> {
    extension(PING, &[3; 8])
}

/// Two hosts with a session between them, which the second has begun, and its handle there.
fn pair(config: &KcpConfig) -> ([Host; 2], kcp9::proto::Handle) {
    let mut hosts = [server(config), Host::connecting(client(1))];
    let peer = hosts[0].address;
    let handle = hosts[1].connect(NOW, peer, 7, config);
    for at in [0, 50, 100] {
        deliver_all(NOW + ms(at), &mut hosts);
    }
    assert!(hosts[1].connection(handle).is_peer_confirmed());
    (hosts, handle)
}

/// Lets time pass until the session of the second host has ended; returns why, and when.
fn until_closed(
    hosts: &mut [Host; 2],
    handle: kcp9::proto::Handle,
    mut now: Instant,
) -> (CloseReason, Instant) {
    loop {
        deliver_all(now, hosts);
        if let Some(reason) = hosts[1].connection(handle).close_reason() {
            return (reason, now);
        }
        now += ms(10);
        assert!(now < NOW + ms(120_000), "it lives for ever");
    }
}

#[test]
fn an_idle_client_learns_of_a_restarted_server_by_its_keep_alive() {
    for config in [config(), encrypted()] {
        let (mut hosts, handle) = pair(&config);
        hosts[0] = server(&config);
        let (reason, at) = until_closed(&mut hosts, handle, NOW + ms(100));
        assert_eq!(reason, CloseReason::Reset);
        assert!(at < NOW + ms(6_000), "{at:?}");
        assert_eq!(hosts[0].stats().replies_sent, 2, "one is not believed");
        assert!(hosts[0].endpoint.is_empty());
    }
}

#[test]
fn a_writing_client_learns_of_a_restarted_server_within_a_few_round_trips() {
    for config in [config(), encrypted()] {
        let (mut hosts, handle) = pair(&config);
        hosts[1].connection(handle).write(NOW + ms(100), b"before").unwrap();
        deliver_all(NOW + ms(100), &mut hosts);
        deliver_all(NOW + ms(200), &mut hosts);
        hosts[0] = server(&config);
        hosts[1].connection(handle).write(NOW + ms(300), b"behind").unwrap();
        let (reason, at) = until_closed(&mut hosts, handle, NOW + ms(300));
        assert_eq!(reason, CloseReason::Reset);
        assert!(at < NOW + ms(3_000), "{at:?}");
        assert!(hosts[0].endpoint.is_empty(), "no session begins in its middle");
    }
}

#[test]
fn only_a_ping_draws_a_reset() {
    let mut server = server(&config());
    for cmd in [Command::Ack, Command::Wask, Command::Wins] {
        server.receive_one(NOW, client(1), &segment(7, cmd, 0));
        server.receive_one(NOW, client(1), &segment(7, cmd, 5));
    }
    server.receive_one(NOW, client(1), &segment(7, Command::Push, 5));
    for subtype in (0..=255).filter(|subtype| *subtype != PING) {
        for body in [&[][..], &[3; 8], &[3; 60]] {
            server.receive_one(NOW, client(1), &extension(subtype, body));
        }
    }
    assert_eq!((server.drive(NOW).len(), server.endpoint.len()), (0, 0));

    server.receive_one(NOW, client(1), &ping());
    let sent = server.drive(NOW).remove(0);
    let expected = SegmentHeader {
        conv: 7,
        cmd: Command::Extension,
        frg: RESET,
        wnd: 0,
        ts: 11,
        sn: 0x0505_0505,
        una: 0,
        len: 8,
    };
    assert_eq!((sent.to, &sent.bytes[..]), (client(1), &[&expected.to_bytes()[..], &[3; 8]].concat()[..]));
    // Padding comes not back.
    server.receive_one(NOW, client(1), &extension(PING, &[3; 1_000]));
    assert_eq!(server.drive(NOW).remove(0).bytes, sent.bytes);
}

/// The source port may be forged, and the system refuses to send to this one.
#[test]
fn nothing_is_answered_at_port_0() {
    let mut server = server(&config());
    let nobody = address(9, 0);
    server.receive_one(NOW, nobody, &ping());
    server.endpoint.stop_accepting();
    server.receive_one(NOW, nobody, &extension(HELLO, &[0; 100]));
    assert_eq!((server.drive(NOW).len(), server.stats().replies_sent), (0, 0));
    server.receive_one(NOW, client(1), &ping());
    assert_eq!(server.drive(NOW).len(), 1);
}

/// Not while its first packet is lost, nor where a full queue refused it.
#[test]
fn no_session_that_may_be_beginning_is_reset() {
    let config = KcpConfig::builder().extensions(Extensions::Preferred).accept_backlog(1).build().unwrap();
    let mut server = server(&config);
    server.receive_one(NOW, client(9), &first_packet(9));
    let mut host = Host::connecting(client(1));
    let handle = host.connect(NOW, server.address, 7, &config);
    host.connection(handle).write(NOW, &[7; 20_000]).unwrap();
    let mut now = NOW;
    while now < NOW + ms(5_000) {
        for batch in host.drive(now) {
            server.receive(now, host.address, batch.bytes, batch.stride);
        }
        now = host.poll_timeout().unwrap();
    }
    assert!(server.stats().dropped_queue_full > 0);
    assert_eq!(server.stats().replies_sent, 0);
    assert!(server.drive(now).iter().all(|batch| batch.to == client(9)));
    assert_eq!(host.connection(handle).close_reason(), None);
}

#[test]
fn who_begins_a_session_where_none_is_accepted_any_more_is_refused_at_once() {
    for config in [config(), encrypted()] {
        let mut hosts = [server(&config), Host::connecting(client(1))];
        hosts[0].endpoint.stop_accepting();
        let peer = hosts[0].address;
        let handle = hosts[1].connect(NOW, peer, 7, &config);
        let (reason, at) = until_closed(&mut hosts, handle, NOW);
        assert_eq!((reason, at), (CloseReason::Refused, NOW));
        assert_eq!((hosts[0].endpoint.len(), hosts[0].stats().dropped_no_session), (0, 1));
    }
}

/// Another process on its port may be accepting: half of all that come would be turned away from that one.
#[test]
fn who_begins_a_session_at_a_shared_port_is_not_refused() {
    for config in [config(), encrypted()] {
        let mut hosts = [server(&config), Host::connecting(client(1))];
        hosts[0].endpoint.set_resets(false);
        hosts[0].endpoint.stop_accepting();
        let peer = hosts[0].address;
        let handle = hosts[1].connect(NOW, peer, 7, &config);
        let hello = hosts[1].drive(NOW);
        assert!(!hello.is_empty());
        for batch in hello {
            hosts[0].receive(NOW, client(1), batch.bytes, batch.stride);
        }
        assert_eq!((hosts[0].drive(NOW).len(), hosts[0].stats().replies_sent), (0, 0));
        assert_eq!(hosts[0].stats().dropped_no_session, 1);
        assert_eq!(hosts[1].connection(handle).close_reason(), None);
    }
}

#[test]
fn an_endpoint_that_never_accepted_does_not_answer_hello() {
    let mut host = Host::connecting(address(1, 1));
    let mut other = Host::connecting(client(1));
    other.connect(NOW, host.address, 7, &config());
    for batch in other.drive(NOW) {
        host.receive(NOW, client(1), batch.bytes, batch.stride);
    }
    assert_eq!((host.drive(NOW).len(), host.stats().dropped_no_session), (0, 1));
    host.receive_one(NOW, client(1), &ping());
    assert_eq!(host.drive(NOW).len(), 1, "it may have been restarted");
}

#[test]
fn where_extensions_or_answers_are_off_nothing_is_answered() {
    let off = KcpConfig::builder().extensions(Extensions::Off).build().unwrap();
    let silent = [
        server(&off),
        {
            let mut server = server(&off);
            server.endpoint.set_resets(true);
            server
        },
        {
            let mut server = server(&config());
            server.endpoint.set_resets(false);
            server
        },
        {
            let mut server = server(&config());
            server.endpoint.set_reply_limit(0);
            server
        },
        server(&KcpConfig::builder().extensions(Extensions::Preferred).reply_limit(0).build().unwrap()),
    ];
    for mut server in silent {
        server.receive_one(NOW, client(1), &ping());
        assert_eq!(server.drive(NOW).len(), 0);
        assert_eq!(server.stats().dropped_no_session, 1);
    }
}

#[test]
fn an_answer_has_the_cipher_of_its_address() {
    let (ours, theirs) = (aead(b"the key of ours."), aead(b"the key of them."));
    let config = KcpConfig::builder().extensions(Extensions::Preferred).crypto(ours.clone()).build().unwrap();
    let mut host = server(&config);
    let other = KcpConfig::builder().crypto(theirs.clone()).build().unwrap();
    host.connect(NOW, client(2), 8, &other);
    host.drive(NOW);
    for (from, crypto) in [(1, ours), (2, theirs)] {
        let cipher = crypto.cipher();
        let mut packet = vec![from as u8; cipher.header_len()];
        packet.extend(ping());
        packet.resize(packet.len() + cipher.trailer_len(), 0);
        cipher.seal(&mut packet).unwrap();
        host.receive_one(NOW, client(from), &packet);
        let mut sent = host.drive(NOW).remove(0).bytes;
        assert_eq!((sent.len(), cipher.open(&mut sent)), (packet.len(), Ok(())));
    }
}

/// R38: a thousand a second and a hundred at once, and twenty a second to one network.
#[test]
fn a_flood_of_pings_is_answered_within_limits() {
    let mut server = server(&config());
    let mut answered = 0;
    for nth in 0..100_000 {
        server.receive_one(NOW + ms(u64::from(nth) / 50), address(0x0a00_0000 + nth, 9), &ping());
        answered += server.drive(NOW).len();
    }
    assert!((2_000..=2_100).contains(&answered), "{answered} in two seconds");
    assert_eq!(server.stats().replies_limited, 100_000 - answered as u64);
    assert!(server.endpoint.is_empty());

    let mut server = Host::accepting(address(1, 1), &config());
    let (mut one, mut other) = (0, 0);
    for nth in 0..20_000 {
        let now = NOW + ms(nth / 10);
        server.receive_one(now, address(9, nth as u16), &ping());
        one += server.drive(now).len();
        if nth % 1_000 == 0 {
            server.receive_one(now, client(1), &ping());
            other += server.drive(now).len();
        }
    }
    assert!((40..=50).contains(&one), "{one} in two seconds");
    assert_eq!(other, 20);
}

/// A reset that nobody asked for, or that answers another session's PING.
#[test]
fn a_stray_reset_ends_nothing_and_is_not_answered() {
    let (mut hosts, handle) = pair(&config());
    let peer = hosts[0].address;
    for subtype in [RESET, PONG, FIN, HELLO] {
        hosts[1].receive_one(NOW + ms(100), peer, &extension(subtype, &[3; 8]));
    }
    for now in (100..20_000).step_by(100) {
        deliver_all(NOW + ms(now), &mut hosts);
    }
    assert_eq!(hosts[1].connection(handle).close_reason(), None);
    assert_eq!((hosts[0].stats().replies_sent, hosts[1].stats().replies_sent), (0, 0));
}

/// The server's session has lived on while its client was restarted with the same port and conv.
#[test]
fn a_restarted_client_with_the_same_port_and_conv_gets_a_session_of_its_own() {
    let config = config();
    let (mut hosts, _) = pair(&config);
    let old = hosts[0].take_accepted().unwrap();
    // With other randomness than before.
    hosts[1] = Host::connecting(client(77));
    hosts[1].address = client(1);
    let mut now = NOW + ms(200);
    let mut attempts = 0;
    let server = hosts[0].address;
    // A client that was refused, or told of the old session, tries again, as a program would.
    let session = loop {
        attempts += 1;
        assert!(attempts < 10, "never accepted");
        let handle = hosts[1].connect(now, server, 7, &config);
        let accepted = loop {
            now += ms(50);
            deliver_all(now, &mut hosts);
            if hosts[0].endpoint.route(old).is_some()
                && hosts[0].connection(old).close_reason() == Some(CloseReason::Reset)
            {
                hosts[0].close(now, old);
            }
            if let Some(session) = hosts[0].take_accepted() {
                break Some(session);
            }
            if hosts[1].connection(handle).close_reason().is_some() {
                hosts[1].close(now, handle);
                break None;
            }
            assert!(now < NOW + ms(60_000), "never");
        };
        if let Some(session) = accepted {
            break session;
        }
    };
    assert!(now < NOW + ms(12_000), "only at {now:?}");
    assert_eq!(hosts[0].endpoint.len(), 1);
    hosts[0].connection(session).write(now, b"welcome back").unwrap();
    deliver_all(now, &mut hosts);
    let handle = hosts[1].endpoint.find(server, 7).unwrap();
    assert_eq!(hosts[1].read(handle), b"welcome back");
}
