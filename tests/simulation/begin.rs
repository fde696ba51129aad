//! How sessions with extensions begin, over paths that lose, repeat and reorder any of the packets that begin them.
//!
//! `docs/extensions.md`, 6.3, lists the races. Ten thousand seeds of each:
//! `cargo test --release --test simulation begin -- --ignored`.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    proto::{
        CloseReason, Command, Connection, Event, Extensions, HEADER_LEN, Instant, SegmentHeader, Segments,
        SessionSeed,
    },
};

use kcp9_simulator::{CLIENT, LinkSettings, Rng, SERVER, Simulation, Writer, ms};

/// Seeds of each race in every run, and in the long one.
const SEEDS: Range<u64> = 0..200;
const MANY_SEEDS: Range<u64> = 0..10_000;
const LIMIT: Duration = Duration::from_secs(3_600);
const DELAY: Duration = ms(20);

const HELLO: u8 = 1;
const ANSWER: u8 = 2;
const PONG: u8 = 9;
const MARK: u8 = 0x60;

/// What an end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One without extensions: a peer of another implementation, as far as the extensions are concerned.
    Legacy,
    Connects,
    Accepts,
}

const OURS: [Kind; 2] = [Kind::Connects, Kind::Accepts];

fn preferred() -> KcpConfigBuilder {
    // Nobody gives up, however long the path loses everything, and what is done is silent.
    KcpConfig::builder().dead_timeout(LIMIT).linger(LIMIT).keep_alive(None)
}

/// Two ends over these paths.
fn simulation(seed: u64, kinds: [Kind; 2], configs: [&KcpConfig; 2], links: [LinkSettings; 2]) -> Simulation {
    simulation_at(seed, kinds, configs, links, 0)
}

fn simulation_at(
    seed: u64,
    kinds: [Kind; 2],
    configs: [&KcpConfig; 2],
    links: [LinkSettings; 2],
    first_sn: u32,
) -> Simulation {
    let mut rng = Rng::new(!seed);
    let offsets = [(); 2].map(|()| rng.duration(Duration::from_secs(5_000_000)));
    let mut simulation = Simulation::between(seed, links, offsets, |side, conv, now| {
        let (config, own) = (configs[side], SessionSeed::new(&mut rng));
        match kinds[side] {
            Kind::Legacy => Connection::starting_at(conv, config, now, first_sn),
            Kind::Connects => Connection::connecting_at(conv, config, now, own, first_sn),
            Kind::Accepts => Connection::accepting_at(conv, config, now, own, first_sn),
        }
    });
    simulation.client().record();
    simulation.server().record();
    // To it, an extension segment is none at all.
    simulation.may_refuse = kinds.contains(&Kind::Legacy);
    simulation
}

fn plain(seed: u64, link: &LinkSettings) -> Simulation {
    let config = preferred().build().unwrap();
    simulation(seed, OURS, [&config; 2], [link.clone(), link.clone()])
}

/// The extension segments of a packet that is not encrypted, by their subtypes.
fn subtypes(packet: &[u8]) -> impl Iterator<Item = u8> {
    let segments = Segments::new(packet).flatten().map(|(header, _)| header);
    segments.filter(|header| header.cmd == Command::Extension).map(|header| header.frg)
}

fn count(simulation: &Simulation, side: usize, subtype: u8) -> usize {
    let sent = simulation.ends[side].sent.as_ref().unwrap();
    sent.iter().filter(|sent| sent.header.cmd == Command::Extension && sent.header.frg == subtype).count()
}

/// Loses the first `count` packets of `side` that hold this extension segment.
fn lose_first(simulation: &mut Simulation, side: usize, subtype: u8, mut count: usize) {
    simulation.ends[side].link.lose_if(move |_, packet| {
        let lost = count > 0 && subtypes(packet).any(|found| found == subtype);
        count -= usize::from(lost);
        lost
    });
}

fn is_confirmed(simulation: &Simulation, side: usize) -> bool {
    simulation.ends[side].connection.is_peer_confirmed()
}

fn events(simulation: &Simulation, side: usize) -> Vec<Event> {
    simulation.events(side).iter().map(|(_, event)| *event).collect()
}

/// A path of any kind.
fn bad_link(rng: &mut Rng) -> LinkSettings {
    LinkSettings {
        loss: rng.within(0..=30) as f64 / 100.0,
        jitter: rng.duration(ms(30)),
        reorder: rng.within(0..=30) as f64 / 100.0,
        reorder_delay: rng.duration(ms(400)),
        duplicate: rng.within(0..=20) as f64 / 100.0,
        ..LinkSettings::delay(rng.duration(ms(150)))
    }
}

/// A configuration of any cipher, with FEC or without.
fn any_config(rng: &mut Rng) -> KcpConfig {
    let config = preferred();
    let config = if rng.chance(0.4) { config.fec(rng.size(1..=10), rng.size(1..=3)) } else { config };
    let config = config.mtu(*rng.choose(&[200, 576, 1_400, 1_500]));
    #[cfg(all(feature = "kcptun-ciphers", feature = "aead"))]
    let config = {
        use kcp9::crypto::{CipherKind, Framing, Key, PacketCrypto};
        use kcp9_simulator::Nonces;
        match rng.choose(&[None, Some(CipherKind::Aes128), Some(CipherKind::Aes128Gcm)]) {
            None => config,
            Some(kind) => {
                let cipher = kind.build(&Key::from_bytes(&[7; 16]), Framing::KcpGo).unwrap();
                config.crypto(PacketCrypto::new(cipher, Arc::new(Nonces::default())))
            }
        }
    };
    config.build().unwrap()
}

fn any_length(rng: &mut Rng) -> u64 {
    *rng.choose(&[0, 1, 700, 30_000])
}

/// Lets the server hear nothing before a packet that begins a session, as an endpoint does.
fn admit(simulation: &mut Simulation, mut also_lost: impl FnMut(&[u8]) -> bool + Send + 'static) {
    let mut begun = false;
    simulation.client().link.lose_if(move |_, packet| {
        if also_lost(packet) {
            return true;
        }
        begun |= Segments::new(packet).flatten().any(|(header, _)| {
            (header.cmd == Command::Push && header.sn == 0)
                || (header.cmd == Command::Extension && header.frg == HELLO)
        });
        !begun
    });
}

// ---- One misfortune at a time ----

#[test]
fn a_handshake_takes_one_round_trip_and_holds_no_data_back() {
    let mut simulation = plain(1, &LinkSettings::delay(DELAY));
    simulation.client().writer = Writer::bulk(1_000);
    simulation.run_until(LIMIT, |simulation| simulation.flows[CLIENT].read == 1_000);
    assert_eq!(simulation.now, Instant::ZERO + DELAY, "the data comes with the HELLO");
    simulation.run_until(LIMIT, |simulation| is_confirmed(simulation, CLIENT));
    assert_eq!(simulation.now, Instant::ZERO + 2 * DELAY);
    simulation.run_until(LIMIT, |simulation| is_confirmed(simulation, SERVER));
    assert!(simulation.now <= Instant::ZERO + 3 * DELAY + ms(10));
    simulation.complete(LIMIT);
    let counts = [(CLIENT, HELLO), (SERVER, ANSWER), (CLIENT, PONG)];
    assert_eq!(counts.map(|(side, subtype)| count(&simulation, side, subtype)), [1; 3]);
    assert_eq!(events(&simulation, CLIENT), [Event::Connected]);
    assert_eq!(events(&simulation, SERVER), [Event::Validated]);
}

#[test]
fn what_is_lost_of_the_handshake_costs_time_and_nothing_else() {
    for lost in 1..=4 {
        for (side, subtype) in [(CLIENT, HELLO), (SERVER, ANSWER), (CLIENT, PONG)] {
            for writes in [true, false] {
                let name = format!("{subtype} lost {lost} times, the client writes: {writes}");
                let mut simulation = plain(lost as u64, &LinkSettings::delay(DELAY));
                lose_first(&mut simulation, side, subtype, lost);
                simulation.client().connection.await_peer(Instant::ZERO);
                let bytes = if writes { 1_000 } else { 0 };
                simulation.client().writer = Writer::bulk(bytes);
                simulation.run_until(LIMIT, |simulation| is_confirmed(simulation, CLIENT));
                // The first ACK bears the mark. A quarter of a round trip later, and then after each RTO, HELLO is sent again.
                // But the ACK goes with the ANSWER, and is lost with it.
                let is_marked = writes && subtype != ANSWER;
                let most = if is_marked { [130, 250, 500, 1_000] } else { [700, 1_500, 3_200, 6_500] };
                let waited = simulation.now - Instant::ZERO;
                assert!(subtype == PONG || waited <= ms(most[lost - 1]), "{name}: {waited:?}");
                simulation.complete(LIMIT);
                assert_eq!(simulation.flows[CLIENT].read, bytes, "{name}");
                assert_eq!(events(&simulation, CLIENT), [Event::Connected], "{name}");
                // Nothing returns a token that was lost. What else carries the server's tag shows as much.
                assert_eq!(is_confirmed(&simulation, SERVER), subtype != PONG, "{name}");
            }
        }
    }
}

#[test]
fn without_any_hello_the_data_still_flows_and_the_client_goes_on_asking() {
    let mut simulation = plain(1, &LinkSettings::delay(DELAY));
    lose_first(&mut simulation, CLIENT, HELLO, usize::MAX);
    simulation.client().writer = Writer::bulk(100_000);
    simulation.server().writer = Writer::bulk(100_000);
    simulation.run_until(LIMIT, Simulation::is_complete);
    simulation.run_for(Duration::from_secs(300));
    assert!(!is_confirmed(&simulation, CLIENT) && !is_confirmed(&simulation, SERVER));
    let before = count(&simulation, CLIENT, HELLO);
    simulation.run_for(Duration::from_secs(80));
    assert_eq!(count(&simulation, CLIENT, HELLO) - before, 10, "one in 8 s");
    simulation.client().link.lose_nothing_more();
    simulation.run_for(Duration::from_secs(9));
    assert!(is_confirmed(&simulation, CLIENT) && is_confirmed(&simulation, SERVER));
}

#[test]
fn a_server_that_speaks_first_is_heard() {
    for lost in 0..4 {
        let mut simulation = plain(1, &LinkSettings::delay(DELAY));
        admit(&mut simulation, {
            let mut left = lost;
            move |packet| {
                let lose = left > 0 && subtypes(packet).any(|found| found == HELLO);
                left -= usize::from(lose);
                lose
            }
        });
        // It greets once it knows of the session.
        simulation.run_until(LIMIT, |simulation| {
            simulation.ends[SERVER].connection.stats().udp.packets_received > 0
        });
        // As much as three times its HELLO.
        simulation.server().writer = Writer::bulk(3_000);
        simulation.run_until(LIMIT, |simulation| simulation.flows[SERVER].read == 3_000);
        let waited = simulation.now - Instant::ZERO;
        let first = [0, 200, 600, 1_400][lost];
        // Later HELLOs are short, so that the greeting goes in more than one flight.
        let flights = if lost < 2 { 1 } else { 2 };
        assert!(waited <= ms(first) + (1 + 2 * flights) * DELAY, "{lost} lost: {waited:?}");
        simulation.complete(LIMIT);
        assert!(is_confirmed(&simulation, CLIENT) && is_confirmed(&simulation, SERVER));
    }
}

#[test]
fn a_server_without_room_for_five_seconds_is_asked_until_it_has() {
    let link = LinkSettings {
        blackouts: vec![Instant::ZERO..Instant::from_millis(5_000)],
        ..LinkSettings::delay(DELAY)
    };
    for bytes in [0, 10_000] {
        let mut simulation = plain(1, &link);
        simulation.client().connection.await_peer(Instant::ZERO);
        simulation.client().writer = Writer::bulk(bytes);
        simulation.run_until(Duration::from_secs(14), |simulation| is_confirmed(simulation, CLIENT));
        simulation.complete(LIMIT);
        assert_eq!(simulation.flows[CLIENT].read, bytes);
    }
}

#[test]
fn nobody_waits_for_a_peer_that_never_was_there_for_ever() {
    let link = LinkSettings { loss: 1.0, ..LinkSettings::default() };
    let asks = KcpConfig::default().keep_alive();
    for (awaits, writes, keep_alive) in
        [(true, 0, None), (false, 1, None), (false, 0, asks), (false, 0, None)]
    {
        let config = KcpConfig::builder().keep_alive(keep_alive).build().unwrap();
        let mut simulation = simulation(1, OURS, [&config; 2], [link.clone(), link.clone()]);
        if awaits {
            simulation.client().connection.await_peer(Instant::ZERO);
        }
        simulation.client().writer = Writer::bulk(writes);
        simulation.run_for(Duration::from_secs(29));
        assert_eq!(simulation.client().connection.close_reason(), None);
        simulation.run_for(Duration::from_secs(3));
        let expected = (awaits || writes > 0 || keep_alive.is_some()).then_some(CloseReason::DeadLink);
        assert_eq!(simulation.client().connection.close_reason(), expected);
        if expected.is_none() {
            assert_eq!(count(&simulation, CLIENT, HELLO), 4);
            assert_eq!(simulation.next_event(), None, "it waits for its application alone");
        }
    }
}

#[test]
fn the_numbers_of_the_stream_may_wrap_meanwhile() {
    let config = preferred().build().unwrap();
    let link = LinkSettings::delay(DELAY).loss(0.2);
    for before_the_wrap in 0..40 {
        let first_sn = 0_u32.wrapping_sub(before_the_wrap);
        let links = [link.clone(), link.clone()];
        let mut simulation = simulation_at(before_the_wrap.into(), OURS, [&config; 2], links, first_sn);
        simulation.client().writer = Writer::bulk(30_000);
        simulation.server().writer = Writer::bulk(30_000);
        simulation.complete(LIMIT);
        simulation.run_for(Duration::from_secs(60));
        assert!(is_confirmed(&simulation, CLIENT), "{before_the_wrap}");
    }
}

// ---- Any path ----

/// Runs until everything is there and the client knows its server.
fn begin_on_a_bad_path(seed: u64) {
    let mut rng = Rng::new(seed);
    let config = any_config(&mut rng);
    let links = [bad_link(&mut rng), bad_link(&mut rng)];
    let mut simulation = simulation(seed, OURS, [&config; 2], links);
    if config.crypto().is_none() {
        // What begins the session is lost a few times more, and the server hears nothing before.
        let mut lost = [HELLO, PONG].map(|subtype| (subtype, rng.size(0..=4)));
        admit(&mut simulation, move |packet| {
            let found = |subtype| subtypes(packet).any(|found| found == subtype);
            let Some((_, left)) = lost.iter_mut().find(|(subtype, left)| *left > 0 && found(*subtype)) else {
                return false;
            };
            *left -= 1;
            true
        });
        let answers = rng.size(0..=4);
        lose_first(&mut simulation, SERVER, ANSWER, answers);
    }
    simulation.client().writer = Writer::bulk(any_length(&mut rng));
    simulation.client().connection.await_peer(Instant::ZERO);
    // The server does not speak to who is not there.
    simulation
        .run_until(LIMIT, |simulation| simulation.ends[SERVER].connection.stats().udp.packets_received > 0);
    simulation.server().writer = Writer::bulk(any_length(&mut rng));
    simulation.run_until(LIMIT, |simulation| simulation.is_complete() && is_confirmed(simulation, CLIENT));
    simulation.run_for(Duration::from_secs(120));
    assert_eq!(events(&simulation, CLIENT), [Event::Connected], "seed {seed}");
    assert_eq!(events(&simulation, SERVER), [Event::Validated], "seed {seed}");
    let lost = simulation.ends[CLIENT].link.counts.lost;
    assert!(is_confirmed(&simulation, SERVER) || lost > 0, "seed {seed}");
    for side in [CLIENT, SERVER] {
        let stats = simulation.ends[side].connection.stats();
        assert_eq!((stats.udp.malformed, stats.extensions.malformed), (0, 0), "seed {seed}, side {side}");
        assert_eq!(
            (stats.extensions.wrong_tag, stats.extensions.unknown),
            (0, 0),
            "seed {seed}, side {side}"
        );
    }
    // Nothing of it goes on.
    let before = [CLIENT, SERVER].map(|side| simulation.ends[side].connection.stats().udp.packets_sent);
    simulation.run_for(Duration::from_secs(600));
    let after = [CLIENT, SERVER].map(|side| simulation.ends[side].connection.stats().udp.packets_sent);
    assert_eq!(before, after, "seed {seed}");
}

#[test]
fn sessions_begin_on_bad_paths() {
    SEEDS.for_each(begin_on_a_bad_path);
}

#[test]
#[ignore = "minutes: cargo test --release --test simulation begin -- --ignored"]
fn sessions_begin_on_bad_paths_of_many_seeds() {
    MANY_SEEDS.for_each(begin_on_a_bad_path);
}

/// Both ends connect, as through two NATs.
fn both_connect(seed: u64) {
    let mut rng = Rng::new(seed);
    let config = any_config(&mut rng);
    let links = [bad_link(&mut rng), bad_link(&mut rng)];
    let mut simulation = simulation(seed, [Kind::Connects; 2], [&config; 2], links);
    for side in [CLIENT, SERVER] {
        simulation.ends[side].writer = Writer::bulk(any_length(&mut rng));
        simulation.ends[side].connection.await_peer(Instant::ZERO);
    }
    simulation.run_until(LIMIT, |simulation| {
        simulation.is_complete() && [CLIENT, SERVER].iter().all(|side| is_confirmed(simulation, *side))
    });
    for side in [CLIENT, SERVER] {
        assert_eq!(events(&simulation, side), [Event::Connected], "seed {seed}");
    }
}

#[test]
fn both_ends_may_connect() {
    SEEDS.for_each(both_connect);
}

#[test]
#[ignore = "minutes: cargo test --release --test simulation begin -- --ignored"]
fn both_ends_may_connect_with_many_seeds() {
    MANY_SEEDS.for_each(both_connect);
}

// ---- Peers without extensions ----

/// One end has extensions and the other does not.
fn meet_a_legacy_peer(seed: u64) {
    let mut rng = Rng::new(seed);
    let (ours, plain) = (any_config(&mut rng), KcpConfig::builder().keep_alive(None));
    // The same cipher and packets.
    let settings = ours.settings();
    let plain = plain.settings(settings).crypto(ours.crypto().cloned()).dead_timeout(LIMIT).build().unwrap();
    let links = [bad_link(&mut rng), bad_link(&mut rng)];
    let connects = rng.chance(0.6);
    let (kinds, configs, side) = if connects {
        ([Kind::Connects, Kind::Legacy], [&ours, &plain], CLIENT)
    } else {
        ([Kind::Legacy, Kind::Accepts], [&plain, &ours], SERVER)
    };
    let mut simulation = simulation(seed, kinds, configs, links);
    let lengths = [any_length(&mut rng), any_length(&mut rng)];
    // Without a HELLO, a session begins with data.
    let lengths = [lengths[0].max(u64::from(!connects)), lengths[1]];
    for (end, length) in simulation.ends.iter_mut().zip(lengths) {
        end.writer = Writer { shutdown: rng.chance(0.5), ..Writer::bulk(length) };
    }
    if connects {
        simulation.client().connection.await_peer(Instant::ZERO);
    }
    simulation.run_until(LIMIT, |simulation| {
        let heard = !connects || events(simulation, CLIENT).contains(&Event::Connected);
        simulation.is_complete() && heard
    });
    simulation.run_for(Duration::from_secs(120));
    assert!(!is_confirmed(&simulation, side), "seed {seed}");
    // HELLOs went out while nothing was heard, and not after.
    let heard =
        simulation.events(CLIENT).iter().find(|(_, event)| *event == Event::Connected).map(|(at, _)| *at);
    let sent = simulation.ends[side].sent.as_ref().unwrap();
    for sent in sent.iter().filter(|sent| sent.header.cmd == Command::Extension) {
        assert!(connects && sent.header.frg == HELLO, "seed {seed}: {sent:?}");
        assert!(heard.is_none_or(|heard| sent.at <= heard), "seed {seed}: {sent:?}, heard at {heard:?}");
    }
    // All of its own segments are marked, and none of the other's.
    for (end, kind) in simulation.ends.iter().zip(kinds) {
        let answers = end.sent.as_ref().unwrap().iter().map(|sent| sent.header);
        let mark = if kind == Kind::Legacy { 0 } else { MARK };
        for header in answers.filter(|header| !matches!(header.cmd, Command::Push | Command::Extension)) {
            assert_eq!(header.frg, mark, "seed {seed}: {header:?}");
        }
    }
    let before = [CLIENT, SERVER].map(|side| simulation.ends[side].connection.stats().udp.packets_sent);
    simulation.run_for(Duration::from_secs(600));
    let after = [CLIENT, SERVER].map(|side| simulation.ends[side].connection.stats().udp.packets_sent);
    assert_eq!(before, after, "seed {seed}");
}

#[test]
fn peers_without_extensions_notice_nothing() {
    SEEDS.for_each(meet_a_legacy_peer);
}

#[test]
#[ignore = "minutes: cargo test --release --test simulation begin -- --ignored"]
fn peers_without_extensions_notice_nothing_with_many_seeds() {
    MANY_SEEDS.for_each(meet_a_legacy_peer);
}

#[test]
fn required_extensions_are_demanded_of_both_roles() {
    let required = preferred().extensions(Extensions::Required).build().unwrap();
    let off = KcpConfig::default();
    let link = [LinkSettings::delay(DELAY), LinkSettings::delay(DELAY)];
    // A server without extensions answers the data.
    let mut run = simulation(1, [Kind::Connects, Kind::Legacy], [&required, &off], link.clone());
    run.client().writer = Writer::bulk(1_000);
    run.run_for(Duration::from_secs(1));
    let closed = Event::Closed(CloseReason::PeerLacksExtensions);
    assert_eq!(events(&run, CLIENT), [closed], "and no `Connected` before it");
    assert_eq!(run.now, Instant::from_millis(1_000));

    // A client without extensions gets no answer.
    let short = required.clone().to_builder().dead_timeout(Duration::from_secs(5)).build().unwrap();
    let mut run = simulation(1, [Kind::Legacy, Kind::Accepts], [&off, &short], link.clone());
    run.client().writer = Writer::bulk(1_000);
    run.run_for(Duration::from_secs(4));
    assert_eq!(run.server().connection.stats().udp.packets_sent, 0);
    assert_eq!(run.flows[CLIENT].read, 0);
    run.run_for(Duration::from_secs(2));
    assert_eq!(events(&run, SERVER), [closed]);

    // Two that require it of each other have it.
    for seed in 0..50 {
        let mut rng = Rng::new(seed);
        let links = [bad_link(&mut rng), bad_link(&mut rng)];
        let mut run = simulation(seed, OURS, [&required; 2], links);
        for side in [CLIENT, SERVER] {
            run.ends[side].writer = Writer::bulk(10_000);
        }
        run.run_until(LIMIT, |run| run.is_complete() && is_confirmed(run, CLIENT));
        assert_eq!(events(&run, CLIENT), [Event::Connected], "seed {seed}");
    }
}

// ---- Forgers ----

/// A HELLO of somebody else.
fn forged_hello(conv: u32, rng: &mut Rng) -> Vec<u8> {
    let config = preferred().build().unwrap();
    let mut forger = Connection::connect(conv, &config, Instant::ZERO, SessionSeed::new(rng));
    let mut buffer = vec![0; 65_536];
    let hello = forger.poll_transmit(Instant::ZERO, &mut buffer).unwrap();
    buffer.truncate(hello.len);
    buffer
}

/// Gives `side` a packet that nobody sent.
fn inject(simulation: &mut Simulation, side: usize, mut packet: Vec<u8>) {
    let now = simulation.ends[side].local(simulation.now);
    let _ = simulation.ends[side].connection.handle_packet(now, &mut packet);
}

fn forge_hellos(seed: u64) {
    let mut rng = Rng::new(seed);
    let link = LinkSettings::delay(rng.duration(ms(100))).loss(rng.within(0..=20) as f64 / 100.0);
    let mut simulation = plain(seed, &link);
    simulation.client().writer = Writer::bulk(50_000);
    simulation.server().writer = Writer::bulk(50_000);
    let conv = simulation.client().connection.conv();
    for _ in 0..rng.size(1..=6) {
        simulation.run_for(rng.duration(ms(100)));
        inject(&mut simulation, SERVER, forged_hello(conv, &mut rng));
        if rng.chance(0.3) {
            inject(&mut simulation, CLIENT, forged_hello(conv, &mut rng));
        }
    }
    simulation.run_until(LIMIT, |simulation| simulation.is_complete() && is_confirmed(simulation, CLIENT));
    simulation.run_for(Duration::from_secs(120));
    let stats = simulation.server().connection.stats();
    // Of what draws its token anew, something may be lost as well. Then it shows at the next occasion.
    let lost: u64 = simulation.ends.iter().map(|end| end.link.counts.lost).sum();
    assert!(is_confirmed(&simulation, SERVER) || lost > 0, "seed {seed}: {stats:?}");
    assert_eq!(events(&simulation, SERVER), [Event::Validated], "seed {seed}");
}

#[test]
fn forged_hellos_do_not_keep_the_true_peer_out() {
    SEEDS.for_each(forge_hellos);
}

fn forge_into_a_legacy_session(seed: u64) {
    let off = KcpConfig::default();
    let config = preferred().build().unwrap();
    let mut rng = Rng::new(seed);
    let links = [bad_link(&mut rng), bad_link(&mut rng)];
    let mut simulation = simulation(seed, [Kind::Legacy, Kind::Accepts], [&off, &config], links);
    simulation.client().writer = Writer::bulk(30_000);
    simulation.server().writer = Writer::bulk(30_000);
    let conv = simulation.client().connection.conv();
    for _ in 0..3 {
        simulation.run_for(rng.duration(ms(300)));
        inject(&mut simulation, SERVER, forged_hello(conv, &mut rng));
    }
    simulation.run_until(LIMIT, Simulation::is_complete);
    // It may have acknowledged everything by the `una` of its own data so far.
    let acks = simulation.server().connection.stats().segments.acks_received;
    while simulation.server().connection.stats().segments.acks_received == acks {
        simulation.server().writer.total += 100;
        simulation.run_for(Duration::from_secs(10));
    }
    // The client's ACKs bear no mark: later HELLOs are not even answered.
    let answers = count(&simulation, SERVER, ANSWER);
    inject(&mut simulation, SERVER, forged_hello(conv, &mut rng));
    simulation.run_for(Duration::from_secs(10));
    assert_eq!(count(&simulation, SERVER, ANSWER), answers, "seed {seed}");
    assert!(!is_confirmed(&simulation, SERVER), "seed {seed}");
}

#[test]
fn a_hello_forged_into_a_legacy_session_changes_nothing() {
    SEEDS.for_each(forge_into_a_legacy_session);
}

/// A forger who knows the conv and not the tag.
fn forge(segments: u64) {
    let mut simulation = plain(1, &LinkSettings::delay(DELAY));
    simulation.client().writer = Writer::bulk(1_000);
    simulation.complete(LIMIT);
    assert!(is_confirmed(&simulation, CLIENT) && is_confirmed(&simulation, SERVER));
    let conv = simulation.client().connection.conv();
    let mut rng = Rng::new(5);
    for _ in 0..segments {
        let mut body = vec![0; rng.size(0..=60)];
        kcp9::proto::Random::fill(&mut rng, &mut body);
        let header = SegmentHeader {
            conv,
            cmd: Command::Extension,
            frg: rng.within(0..=12) as u8,
            wnd: rng.next() as u16,
            ts: rng.next() as u32,
            sn: rng.next() as u32,
            una: rng.within(0..=2) as u32,
            len: body.len() as u32,
        };
        let mut packet = header.to_bytes().to_vec();
        packet.extend_from_slice(&body);
        assert_eq!(packet.len(), HEADER_LEN + body.len());
        let side = rng.size(CLIENT..=SERVER);
        inject(&mut simulation, side, packet);
    }
    for side in [CLIENT, SERVER] {
        let end = &mut simulation.ends[side];
        assert_eq!(end.connection.close_reason(), None);
        assert_eq!(end.connection.poll_timeout(), None, "nothing is to be done for it");
        let stats = end.connection.stats().extensions;
        assert_eq!(stats.received, if side == CLIENT { 1 } else { 2 }, "{stats:?}");
    }
    simulation.client().writer.total += 50_000;
    simulation.server().writer = Writer::bulk(50_000);
    simulation.run_until(LIMIT, Simulation::is_complete);
}

#[test]
fn who_does_not_know_the_tag_changes_nothing() {
    forge(50_000);
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation begin -- --ignored"]
fn who_does_not_know_the_tag_changes_nothing_in_a_million_attempts() {
    forge(1_000_000);
}

fn repeat_the_handshake(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut simulation = plain(seed, &LinkSettings::delay(DELAY));
    let kept: [Arc<Mutex<Vec<Vec<u8>>>>; 2] = Default::default();
    for (end, kept) in simulation.ends.iter_mut().zip(&kept) {
        let kept = Arc::clone(kept);
        end.link.lose_if(move |_, packet| {
            if subtypes(packet).next().is_some() {
                kept.lock().unwrap().push(packet.to_vec());
            }
            false
        });
    }
    simulation.client().writer = Writer::bulk(5_000);
    simulation.complete(LIMIT);
    let bytes_sent = |simulation: &Simulation| -> u64 {
        simulation.ends.iter().map(|end| end.connection.stats().udp.bytes_sent).sum()
    };
    let before = bytes_sent(&simulation);
    let mut bytes = 0;
    for _ in 0..10 {
        simulation.run_for(rng.duration(Duration::from_secs(7)));
        for side in [CLIENT, SERVER] {
            let packets = kept[1 - side].lock().unwrap().clone();
            let copy = rng.choose(&packets).clone();
            bytes += copy.len() as u64;
            inject(&mut simulation, side, copy);
        }
    }
    simulation.run_for(Duration::from_secs(1));
    assert!(is_confirmed(&simulation, CLIENT) && is_confirmed(&simulation, SERVER), "seed {seed}");
    assert_eq!(events(&simulation, CLIENT), [Event::Connected], "seed {seed}");
    let drawn = bytes_sent(&simulation) - before;
    // A HELLO draws an ANSWER, which draws a PONG.
    assert!(drawn < bytes, "seed {seed}: {drawn} for {bytes}");
    simulation.client().writer.total += 5_000;
    simulation.run_until(LIMIT, Simulation::is_complete);
}

#[test]
fn copies_of_the_handshake_that_come_late_change_nothing() {
    SEEDS.for_each(repeat_the_handshake);
}

#[test]
#[ignore = "minutes: cargo test --release --test simulation begin -- --ignored"]
fn forged_and_late_copies_of_many_seeds() {
    for race in [forge_hellos, forge_into_a_legacy_session, repeat_the_handshake] {
        MANY_SEEDS.for_each(race);
    }
}
