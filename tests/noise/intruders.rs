//! What floods, forgeries and packets kept back do to a server on virtual time, and to who wants to get in meanwhile.

use std::time::Duration;

use kcp9::{
    CookiePolicy, KcpConfig,
    proto::{
        Connection, Instant, Refusal, Routed, SessionSeed,
        noise::{Noise, Pattern},
    },
};
use kcp9_simulator::{Rng, ms};

use crate::{
    ends::Keys,
    virtual_ends::{Client, Server, address, client_address, driven, exchange, go_on},
};

fn config(noise: impl Into<Noise>) -> KcpConfig {
    KcpConfig::builder().noise(noise.into()).build().unwrap()
}

/// What floods a server with first messages costs it no more than its limits say.
#[test]
fn first_messages_fill_no_more_than_the_limit_and_who_is_there_gets_in_by_a_cookie() {
    let keys = Keys::new(2);
    let server = KcpConfig::builder()
        .noise(keys.responder(Pattern::NnPsk0))
        .max_half_open(64)
        .max_half_open_of_network(16)
        .build()
        .unwrap();
    let mut server = Server::new(server, 1);
    let client = KcpConfig::builder().noise(keys.initiator(Pattern::NnPsk0)).build().unwrap();
    let (mut rng, now) = (Rng::new(3), Instant::from_millis(5_000));
    let mut retries = 0;
    for nth in 0..500_u16 {
        let mut flooder = Client::new(&client, now, 1 + u32::from(nth), 0, &mut rng);
        for packet in driven(&mut flooder.connection, now) {
            let [high, low] = nth.to_be_bytes();
            server.receive(now, address(([10, 1, high, low], 9)), &packet);
        }
        retries += server.replies.drain(..).filter(|(_, reply)| reply[5] == 3).count();
    }
    assert_eq!(server.endpoint.agreeing(), 32, "from half of it on, a cookie is asked for");
    assert_eq!(retries, 500 - 32);
    let mut client = Client::new(&client, now, 7, 10, &mut rng);
    for _ in 0..20 {
        client.work(now);
        for packet in driven(&mut client.connection, now) {
            server.receive(now, client_address(1), &packet);
        }
        for (to, packet) in server.drive(now) {
            if to == client_address(1) {
                let _ = client.connection.handle_packet(now, &mut packet.clone());
            }
        }
    }
    assert_eq!((server.accepted, client.answer), (1, client.request));
    // All of it is forgotten before long.
    server.endpoint.forget_expired(now + Duration::from_secs(31));
    assert_eq!(server.endpoint.agreeing(), 0);
}

/// Messages that cost three multiplications on the curve each, and leave nothing that a limit of what is kept would count.
#[test]
fn a_flood_of_wrong_first_messages_has_cookies_asked_for() {
    let keys = Keys::new(2);
    let mut server = Server::new(config(keys.responder(Pattern::NkPsk0)), 1);
    let wrong = Keys { psk: Keys::new(3).psk, ..Keys::new(2) };
    let flooder = config(wrong.initiator(Pattern::NkPsk0));
    let (mut rng, now) = (Rng::new(3), Instant::from_millis(5_000));
    let mut retries = 0;
    for nth in 0..1_000_u16 {
        let mut flooder = Client::new(&flooder, now, 1 + u32::from(nth), 0, &mut rng);
        for packet in driven(&mut flooder.connection, now) {
            let [high, low] = nth.to_be_bytes();
            server.receive(now, address(([10, 1, high, low], 9)), &packet);
        }
        retries += server.replies.drain(..).filter(|(_, reply)| reply[5] == 3).count();
    }
    assert_eq!((server.endpoint.agreeing(), retries), (0, 500), "500 were computed");
    // Who is there pays a round trip.
    let of_client = config(keys.initiator(Pattern::NkPsk0));
    let mut client = Client::new(&of_client, now, 7, 10, &mut rng);
    for packet in driven(&mut client.connection, now) {
        server.receive(now, client_address(1), &packet);
    }
    assert_eq!(server.replies[0].1[5], 3);
    // A second later nobody is asked.
    let now = now + Duration::from_secs(1);
    let mut client = Client::new(&of_client, now, 8, 10, &mut rng);
    server.replies.clear();
    for packet in driven(&mut client.connection, now) {
        server.receive(now, client_address(2), &packet);
    }
    assert_eq!(server.replies[0].1[5], 2);
}

/// Who receives at its address has a cookie, and may send as many wrong messages with it as it likes.
#[test]
fn a_network_that_sends_wrong_first_messages_with_cookies_has_few_of_them_computed() {
    let keys = Keys::new(2);
    let server = KcpConfig::builder().noise(keys.responder(Pattern::NkPsk0)).cookies(CookiePolicy::Always);
    let mut server = Server::new(server.build().unwrap(), 1);
    let wrong = Keys { psk: Keys::new(3).psk, ..Keys::new(2) };
    let (mut rng, now) = (Rng::new(3), Instant::from_millis(5_000));
    let mut refused = 0;
    let mut flood = |server: &mut Server, now, rng: &mut Rng| {
        for nth in 0..300 {
            let mut flooder = Client::new(&config(wrong.initiator(Pattern::NkPsk0)), now, 1 + nth, 0, rng);
            let source = address(([10, 1, 0, 1], 1 + nth as u16));
            for _ in 0..2 {
                for packet in driven(&mut flooder.connection, now) {
                    server.receive(now, source, &packet);
                }
                for (_, packet) in server.drive(now) {
                    refused += u32::from(packet[5] == 2);
                    let _ = flooder.connection.handle_packet(now, &mut packet.clone());
                }
            }
        }
        std::mem::take(&mut refused)
    };
    let told = flood(&mut server, now, &mut rng);
    assert!((1..=100).contains(&told), "{told} were told why");
    let computed = server.endpoint.stats().dropped_no_agreement;
    assert_eq!(computed, 300, "all count as dropped, computed or not");
    // Another network is served meanwhile, and this one a second later.
    for (conv, source, now) in [
        (1_000, client_address(1), now),
        (1_001, address(([10, 1, 0, 1], 999)), now + Duration::from_secs(1)),
    ] {
        let mut client = Client::new(&config(keys.initiator(Pattern::NkPsk0)), now, conv, 10, &mut rng);
        for _ in 0..20 {
            client.work(now);
            for packet in driven(&mut client.connection, now) {
                server.receive(now, source, &packet);
            }
            for (_, packet) in server.drive(now) {
                let _ = client.connection.handle_packet(now, &mut packet.clone());
            }
        }
        assert_eq!(client.answer, client.request, "{source}");
        if conv == 1_000 {
            assert_eq!(flood(&mut server, now, &mut rng), 0, "nothing is computed, so nothing is told");
        }
    }
}

/// Somebody who sees what a client sends makes up a cookie before each true one comes.
#[test]
fn forged_cookies_do_not_keep_the_true_one_away_and_draw_no_more_packets() {
    let keys = Keys::new(2);
    let server = KcpConfig::builder().noise(keys.responder(Pattern::Nk)).cookies(CookiePolicy::Always);
    let mut server = Server::new(server.build().unwrap(), 1);
    let client = KcpConfig::builder().noise(keys.initiator(Pattern::Nk)).build().unwrap();
    let mut client = Client::new(&client, Instant::from_millis(0), 7, 10, &mut Rng::new(3));
    let mut sent = 0;
    for millis in 0..3_000 {
        let now = Instant::from_millis(millis);
        client.work(now);
        for packet in driven(&mut client.connection, now) {
            sent += 1;
            server.receive(now, client_address(1), &packet);
        }
        for (_, packet) in server.drive(now) {
            if packet[4..6] == [0x60, 3] {
                for made_up in 0..10 {
                    let mut forged = packet.clone();
                    *forged.last_mut().unwrap() ^= 1 + made_up;
                    let _ = client.connection.handle_packet(now, &mut forged);
                }
            }
            let _ = client.connection.handle_packet(now, &mut packet.clone());
        }
    }
    assert_eq!((server.accepted, client.answer), (1, client.request));
    assert!(sent < 30, "{sent} packets");
}

/// Once something of the peer was opened, nothing in the clear counts: refusals that somebody has made up least of all.
#[test]
fn refusals_in_the_clear_end_no_session_that_lives() {
    let keys = Keys::new(2);
    let mut server = Server::new(config(keys.responder(Pattern::Xx)), 1);
    let mut rng = Rng::new(3);
    // What a server says to somebody whose pattern is another one.
    let at = Instant::from_millis;
    let other = config(keys.initiator(Pattern::Nk));
    for packet in driven(&mut Client::new(&other, at(0), 7, 0, &mut rng).connection, at(0)) {
        server.receive(at(0), client_address(2), &packet);
    }
    let (_, mut refusal) = server.replies.remove(0);
    let client = config(keys.initiator(Pattern::Xx));
    let seed = SessionSeed::new(&mut rng);
    let mut client = Connection::connect_with_noise(7, &client, at(0), seed, &mut rng).unwrap();
    client.write(at(0), b"one").unwrap();
    for millis in 1..4_000 {
        let now = at(millis);
        if millis == 1_000 || millis == 1_100 || millis == 1_200 {
            let _ = client.handle_packet(now, &mut refusal.clone());
        }
        for packet in driven(&mut client, now) {
            if packet[4..6] == [0x60, 0x0b] {
                // The last message has the tag that a refusal of it must have.
                assert!(millis < 1_000, "it has arrived");
                refusal[12..16].copy_from_slice(&packet[12..16]);
            }
            server.receive(now, client_address(1), &packet);
        }
        for (_, packet) in server.drive(now) {
            let _ = client.handle_packet(now, &mut packet.clone());
        }
        if millis == 2_000 {
            client.write(now, b"two").unwrap();
        }
    }
    let mut bytes = [0; 10];
    assert_eq!(client.read(&mut bytes), Ok(6), "{:?}", client.close_reason());
    assert_eq!((&bytes[..6], client.close_reason()), (&b"onetwo"[..], None));
}

/// Whoever begins a second session from one address and conv shows that it receives there, and gets in although others were first.
#[test]
fn first_messages_of_one_route_do_not_shut_out_who_is_there() {
    let keys = Keys::new(2);
    let mut server = Server::new(config(keys.responder(Pattern::Nk)), 1);
    let client = config(keys.initiator(Pattern::Nk));
    let (mut rng, now) = (Rng::new(3), Instant::from_millis(5_000));
    for _ in 0..10 {
        let mut forger = Client::new(&client, now, 7, 0, &mut rng);
        for packet in driven(&mut forger.connection, now) {
            server.receive(now, client_address(1), &packet);
        }
    }
    assert_eq!(server.endpoint.agreeing(), 1, "the others are asked for a cookie");
    server.replies.clear();
    let mut client = Client::new(&client, now, 7, 10, &mut rng);
    go_on(5_000..6_000, &mut server, &mut client);
    assert_eq!((server.accepted, client.answer), (1, client.request));
}

/// Many may be behind one address, and one of them may send first messages that it never follows.
#[test]
fn at_the_limit_of_a_network_the_oldest_gives_way_to_who_has_a_cookie() {
    let keys = Keys::new(2);
    let server = KcpConfig::builder()
        .noise(keys.responder(Pattern::Nk))
        .cookies(CookiePolicy::Always)
        .max_half_open_of_network(4);
    let mut server = Server::new(server.build().unwrap(), 1);
    let client = KcpConfig::builder().noise(keys.initiator(Pattern::Nk)).build().unwrap();
    let (mut rng, now) = (Rng::new(3), Instant::from_millis(5_000));
    for conv in 1..=6 {
        let mut other = Client::new(&client, now, conv, 0, &mut rng);
        for _ in ["a cookie", "an answer"] {
            exchange(now, &mut server, &mut other.connection);
        }
    }
    assert_eq!(server.endpoint.agreeing(), 4);
    let mut client = Client::new(&client, now, 7, 10, &mut rng);
    for millis in 5_000..7_000 {
        let now = Instant::from_millis(millis);
        client.work(now);
        exchange(now, &mut server, &mut client.connection);
        assert!(millis >= 6_000 || server.accepted == 0, "those that may still come do not give way");
    }
    assert_eq!((server.accepted, client.answer), (1, client.request));
}

/// Somebody who sees a client's last message has copies of it there first, spoilt where it takes the most to find that out.
#[test]
fn spoilt_copies_of_a_last_message_shut_out_the_true_one_for_no_longer_than_they_come() {
    let keys = Keys::new(2);
    let mut server = Server::new(config(keys.responder(Pattern::Xx)), 1);
    let client = config(keys.initiator(Pattern::Xx));
    let mut client = Client::new(&client, Instant::from_millis(5_000), 7, 10, &mut Rng::new(3));
    let mut spoilt = 0;
    for millis in 5_000..8_000 {
        let now = Instant::from_millis(millis);
        client.work(now);
        for packet in driven(&mut client.connection, now) {
            for nth in 0..9 {
                if packet[4..6] == [0x60, 0x0b] && millis < 6_000 {
                    let mut packet = packet.clone();
                    *packet.last_mut().unwrap() ^= 1 << (nth % 8);
                    server.receive(now, client_address(1), &packet);
                    spoilt += 1;
                }
            }
            server.receive(now, client_address(1), &packet);
        }
        for (_, packet) in server.drive(now) {
            let _ = client.connection.handle_packet(now, &mut packet.clone());
        }
        assert!(millis >= 6_000 || server.accepted == 0);
    }
    assert!(spoilt >= 2 * 9, "{spoilt}");
    assert_eq!((server.accepted, client.answer), (1, client.request));
}

/// Its backlog was full in the moment in which the session was to be put there.
#[test]
fn a_session_that_is_refused_for_want_of_room_is_offered_again() {
    let keys = Keys::new(2);
    let mut server = Server::new(config(keys.responder(Pattern::Nk)), 1);
    let client = config(keys.initiator(Pattern::Nk));
    let start = Instant::from_millis(5_000);
    let mut client = Client::new(&client, start, 7, 10, &mut Rng::new(3));
    exchange(start, &mut server, &mut client.connection);
    client.work(start);
    let mut refused = 0;
    for mut packet in driven(&mut client.connection, start) {
        let stride = packet.len();
        server.endpoint.receive(client_address(1), &mut packet, stride);
        while let Some(Routed::Incoming(_)) = server.endpoint.poll_routed(start, &packet) {
            let keys = server.endpoint.take_session_keys().unwrap();
            server.endpoint.return_session_keys(keys);
            server.endpoint.refuse(Refusal::QueueFull);
            refused += 1;
        }
    }
    assert!(refused > 0);
    go_on(5_000..6_000, &mut server, &mut client);
    assert_eq!((server.accepted, client.answer), (1, client.request));
}

#[test]
fn a_configuration_without_key_agreement_says_nothing_for_a_session_that_has_keys() {
    let [_, keys] = Keys::new(2).session(Pattern::Nk, &mut Rng::new(1));
    let (now, seed) = (Instant::from_millis(0), SessionSeed::new(&mut Rng::new(2)));
    let mut connection =
        Connection::accept_with_keys(7, &KcpConfig::default(), now, seed, Box::new(keys), None);
    assert!(connection.write(now, b"secret").is_err());
    assert_eq!(driven(&mut connection, now), Vec::<Vec<u8>>::new());
    assert!(connection.close_reason().is_some());
}

/// What follows the conv in a sealed packet looks like an FEC header in one of 21,845.
#[test]
fn no_sealed_packet_is_lost_for_what_it_looks_like() {
    let keys = Keys::new(2);
    let mut server = Server::new(config(keys.responder(Pattern::Nk)), 1);
    let client = config(keys.initiator(Pattern::Nk));
    let (mut rng, mut now) = (Rng::new(3), Instant::from_millis(0));
    let seed = SessionSeed::new(&mut rng);
    let mut client = Connection::connect_with_noise(7, &client, now, seed, &mut rng).unwrap();
    let (mut sent, mut bytes) = (0, [0; 64]);
    while sent < 150_000 {
        now += ms(1);
        client.write(now, b"x").unwrap();
        for packet in driven(&mut client, now) {
            sent += 1;
            server.receive(now, client_address(1), &packet);
        }
        for (_, packet) in server.drive(now) {
            client.handle_packet(now, &mut packet.clone()).unwrap();
        }
        while client.read(&mut bytes).is_ok() {}
    }
    assert_eq!(server.endpoint.stats().dropped_no_session, 0);
}

/// Somebody keeps the first packets of a session back until its client has given up.
#[test]
fn what_opens_half_a_minute_late_begins_no_session() {
    let keys = Keys::new(2);
    for (late, accepted) in [(29_000, 1), (31_000, 0)] {
        let mut server = Server::new(config(keys.responder(Pattern::Nk)), 1);
        let mut client = Client::new(
            &config(keys.initiator(Pattern::Nk)),
            Instant::from_millis(0),
            7,
            10,
            &mut Rng::new(3),
        );
        let now = Instant::from_millis(0);
        exchange(now, &mut server, &mut client.connection);
        client.work(now);
        for packet in driven(&mut client.connection, now) {
            server.receive(Instant::from_millis(late), client_address(1), &packet);
        }
        assert_eq!(server.accepted, accepted, "{late} ms");
    }
}
