//! Path MTU discovery: paths that drop long packets without a word, from the beginning or from some moment on.

use std::{collections::HashMap, ops::Range, sync::Arc, time::Duration};

use kcp9::{
    KcpConfig, KcpConfigBuilder, NoDelay,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    proto::{CloseReason, Command, Connection, HEADER_LEN, SessionSeed, Stats},
};

use kcp9_simulator::{CLIENT, LinkSettings, Nonces, Rng, SERVER, Simulation, Writer, ms, trace::Sent};

const LIMIT: Duration = Duration::from_secs(600);
const DELAY: Duration = ms(25);
const RTT: Duration = ms(50);
/// `frg` of a PING.
const PING: u8 = 8;

/// Who is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    Ours,
    /// One that knows no extensions.
    Legacy,
}

const PEERS: [Peer; 2] = [Peer::Ours, Peer::Legacy];

fn simulation(seed: u64, peer: Peer, config: &KcpConfig, link: &LinkSettings) -> Simulation {
    let mut rng = Rng::new(!seed);
    let links = [link.clone(), link.clone()];
    let mut simulation = Simulation::between(seed, links, [Duration::ZERO; 2], |side, conv, now| {
        let seed = SessionSeed::new(&mut rng);
        match (side, peer) {
            (CLIENT, _) => Connection::connect(conv, config, now, seed),
            (_, Peer::Ours) => Connection::accept(conv, config, now, seed),
            (_, Peer::Legacy) => Connection::new(conv, config, now),
        }
    });
    // To a legacy peer, an extension segment is none at all.
    simulation.may_refuse = peer == Peer::Legacy;
    simulation
}

/// 2 MB/s, so that a transfer takes as long as a search.
fn clear() -> LinkSettings {
    LinkSettings::delay(DELAY).rate(2_000_000, 300_000)
}

fn path(max_packet: usize, loss: f64) -> LinkSettings {
    LinkSettings { max_packet: Some(max_packet), ..clear().loss(loss) }
}

fn config() -> KcpConfigBuilder {
    KcpConfig::builder().keep_alive(None)
}

fn sealed() -> PacketCrypto {
    let cipher = CipherKind::Aes256Gcm.build(&Key::from_bytes(&[7; 32]), Framing::KcpGo).unwrap();
    PacketCrypto::new(cipher, Arc::new(Nonces::default()))
}

fn stats(simulation: &Simulation, side: usize) -> Stats {
    simulation.ends[side].connection.stats()
}

fn plpmtu(simulation: &Simulation, side: usize) -> usize {
    stats(simulation, side).path.plpmtu as usize
}

fn transfer(simulation: &mut Simulation, bytes: u64) {
    simulation.client().writer =
        Writer { total: simulation.flows[CLIENT].written + bytes, ..Writer::bulk(0) };
    let (seed, expected) = (simulation.seed, simulation.flows[CLIENT].written + bytes);
    simulation.run_until(LIMIT, |simulation| simulation.flows[CLIENT].read == expected);
    assert_eq!(simulation.flows[CLIENT].read, expected, "seed {seed}");
}

/// The PLPMTU that a search ends with: at most 32 bytes less than what the path carries.
#[track_caller]
fn assert_found(simulation: &Simulation, side: usize, carried: usize, what: &str) {
    let found = plpmtu(simulation, side);
    assert!(
        (carried - 32..=carried).contains(&found),
        "{what}, seed {}: {found} of {carried}: {:?}",
        simulation.seed,
        stats(simulation, side)
    );
}

#[test]
fn a_path_of_1300_and_one_of_1250_bytes_is_found_and_used() {
    for seed in 0..20 {
        for peer in PEERS {
            for carried in [1_300, 1_250] {
                let what = format!("{peer:?}");
                let mut simulation = simulation(seed, peer, &config().build().unwrap(), &path(carried, 0.0));
                transfer(&mut simulation, 4_000_000);
                assert_found(&simulation, CLIENT, carried, &what);
                let used = simulation.ends[CLIENT].link.counts;
                assert!(used.too_long < 20, "{what}, seed {seed}: {used:?}");
                assert_eq!(stats(&simulation, CLIENT).mtu.black_holes, 0, "it was never carried");
            }
        }
    }
}

/// What a session sends that is short costs nothing for this.
#[test]
fn a_session_that_sends_little_has_no_packet_more() {
    for peer in PEERS {
        let [with, without] = [1_400, 1_200].map(|mtu| {
            let config = config().mtu(mtu).build().unwrap();
            let mut simulation = simulation(1, peer, &config, &clear());
            transfer(&mut simulation, 32 * 1_176);
            (stats(&simulation, CLIENT).udp.packets_sent, simulation.ends[CLIENT].activity.transmits)
        });
        assert_eq!(with, without, "{peer:?}");
    }
}

/// Whatever becomes of the path: all arrives, a segment keeps its size, and new ones are cut for what is known. The simulator checks
/// that nothing else may be fragmented than what is too long.
#[test]
#[ignore = "seconds: cargo test --release --test simulation mtu -- --ignored"]
fn what_is_too_long_keeps_its_size_and_nothing_new_is() {
    let (mut fragmented, mut falls) = (0, 0);
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let max = *rng.choose(&[1_400, 1_472, 4_000]);
        let mut config = config().mtu(max).write_delay(rng.chance(0.5));
        let messages = rng.chance(0.3);
        let fec = rng.chance(0.3);
        if fec {
            config = config.fec(5, 2).fec_flush(rng.chance(0.5).then_some(ms(10)));
        }
        if rng.chance(0.5) {
            config = config.nodelay(NoDelay::FAST3);
        }
        let config = config.stream(!messages).build().unwrap();
        let overhead = if fec { 8 } else { 0 } + HEADER_LEN;
        let link = LinkSettings { fragments: true, ..clear().loss(0.03 * rng.within(0..=2) as f64) };
        let mut simulation = simulation(seed, *rng.choose(&PEERS), &config, &link);
        for side in [CLIENT, SERVER] {
            simulation.ends[side].record();
            simulation.ends[side].writer = Writer { sizes: 1..=20_000, messages, ..Writer::bulk(3_000_000) };
        }
        simulation.start();
        for _ in 0..12 {
            simulation.run_for(ms(rng.within(1..=400)));
            let side = *rng.choose(&[CLIENT, SERVER]);
            let sizes = [Some(600), Some(1_000), Some(1_210), Some(1_300), Some(1_450), None];
            simulation.ends[side].link.settings.max_packet = *rng.choose(&sizes);
            if rng.chance(0.3) {
                let now = simulation.now;
                let end = &mut simulation.ends[side];
                end.connection.handle_too_long(end.local(now), rng.size(500..=max));
            }
        }
        simulation.run_until(LIMIT, |simulation| simulation.flows.iter().all(|flow| flow.read == 3_000_000));
        for side in [CLIENT, SERVER] {
            assert_eq!(simulation.flows[side].read, 3_000_000, "seed {seed}: {:?}", stats(&simulation, side));
            fragmented += simulation.ends[side].link.counts.fragmented;
            let mut lens = HashMap::new();
            let mut plpmtu = max;
            for Sent { header, plpmtu: now, .. } in simulation.ends[side].sent.iter().flatten() {
                falls += u32::from(*now < plpmtu);
                plpmtu = *now;
                // What fills a probe has a number that no segment has.
                if header.cmd != Command::Push || header.sn > u32::MAX / 2 {
                    continue;
                }
                let len = *lens.entry(header.sn).or_insert_with(|| {
                    let packet = header.len as usize + overhead;
                    assert!(messages || packet <= plpmtu, "seed {seed}: {header:?}, {plpmtu}");
                    header.len
                });
                assert_eq!(header.len, len, "seed {seed}: {header:?}");
            }
        }
    }
    assert!(fragmented > 2_500 && falls > 60, "{fragmented} packets as fragments, {falls} times less");
}

/// Half way between BASE_PLPMTU and MAX_PLPMTU is 1,300.
#[test]
fn what_half_way_probes_find_is_used_within_a_few_round_trips() {
    for peer in PEERS {
        let mut simulation = simulation(1, peer, &config().build().unwrap(), &path(1_300, 0.0));
        simulation.client().writer = Writer::bulk(5_000_000);
        simulation.start();
        let took = simulation.run_until(LIMIT, |simulation| plpmtu(simulation, CLIENT) == 1_300);
        assert!(took <= 12 * RTT, "{peer:?}: {took:?}");
    }
}

#[test]
fn a_path_that_carries_everything_is_used_from_the_third_round_trip_on() {
    for peer in PEERS {
        let mut simulation = simulation(1, peer, &config().build().unwrap(), &clear());
        simulation.client().writer = Writer::bulk(500_000);
        simulation.start();
        let took = simulation.run_until(LIMIT, |simulation| plpmtu(simulation, CLIENT) == 1_400);
        assert!(took <= 2 * RTT + ms(40), "{peer:?}: {took:?}");
    }
}

fn search_ends_in_spite_of_losses(seeds: Range<u64>) {
    for loss in [0.01, 0.05, 0.2] {
        for seed in seeds.clone() {
            for peer in PEERS {
                for carried in [1_250, 1_300] {
                    let what = format!("{peer:?}, {loss}");
                    let config = config().nodelay(NoDelay::FAST3).build().unwrap();
                    let mut simulation = simulation(seed, peer, &config, &path(carried, loss));
                    transfer(&mut simulation, 6_000_000);
                    let found = plpmtu(&simulation, CLIENT);
                    assert!((1_200..=carried).contains(&found), "{what}, seed {seed}: {found} of {carried}");
                }
            }
        }
    }
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn losses_delay_the_search_and_it_ends_all_the_same() {
    search_ends_in_spite_of_losses(0..3);
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation mtu -- --ignored"]
fn losses_delay_the_search_and_it_ends_all_the_same_with_any_seed() {
    search_ends_in_spite_of_losses(3..10);
}

fn fec_and_ciphers_count_with(seeds: Range<u64>) {
    let configs = [
        ("FEC", config().fec(10, 3).build().unwrap()),
        ("AEAD", config().crypto(sealed()).build().unwrap()),
        ("both", config().crypto(sealed()).fec(5, 2).build().unwrap()),
        ("messages", config().stream(false).build().unwrap()),
    ];
    for (what, config) in configs {
        for seed in seeds.clone() {
            for (peer, loss) in [(Peer::Ours, 0.0), (Peer::Legacy, 0.0), (Peer::Ours, 0.05)] {
                let mut simulation = simulation(seed, peer, &config, &path(1_300, loss));
                transfer(&mut simulation, 5_000_000);
                let found = plpmtu(&simulation, CLIENT);
                assert!((1_200..=1_300).contains(&found), "{what}, {peer:?}, seed {seed}: {found}");
                assert!(loss > 0.0 || found == 1_300, "{what}, {peer:?}, seed {seed}: {found}");
            }
        }
    }
}

#[test]
fn fec_and_ciphers_count() {
    fec_and_ciphers_count_with(0..2);
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation mtu -- --ignored"]
fn fec_and_ciphers_count_with_any_seed() {
    fec_and_ciphers_count_with(2..5);
}

/// The path changes in the middle of a transfer. What is in flight goes as fragments.
fn later_black_hole_is_noticed(seeds: Range<u64>) {
    for loss in [0.0, 0.1, 0.2] {
        for seed in seeds.clone() {
            for peer in PEERS {
                let config = config().nodelay(NoDelay::FAST3).build().unwrap();
                let link = LinkSettings { fragments: true, ..clear().loss(loss) };
                let mut simulation = simulation(seed, peer, &config, &link);
                simulation.client().writer = Writer::bulk(40_000_000);
                simulation.start();
                simulation.run_until(LIMIT, |simulation| plpmtu(simulation, CLIENT) >= 1_368);
                simulation.run_for(ms(500));
                simulation.client().link.settings.max_packet = Some(1_300);
                let noticed = simulation.run_until(LIMIT, |simulation| plpmtu(simulation, CLIENT) <= 1_300);
                assert!(noticed < Duration::from_secs(6), "{peer:?}, {loss}, seed {seed}: {noticed:?}");
                simulation.run_until(LIMIT, |simulation| stats(simulation, CLIENT).mtu.black_holes > 0);
                simulation.client().writer.total = simulation.flows[CLIENT].written + 2_000_000;
                simulation.run_until(LIMIT, |simulation| {
                    simulation.flows[CLIENT].read == simulation.ends[CLIENT].writer.total
                });
                let stats = stats(&simulation, CLIENT);
                assert_eq!(stats.mtu.black_holes, 1, "{peer:?}, {loss}, seed {seed}: {stats:?}");
                let found = stats.path.plpmtu;
                assert!((1_200..=1_300).contains(&found), "{peer:?}, {loss}, seed {seed}: {found}");
            }
        }
    }
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation mtu -- --ignored"]
fn a_black_hole_that_appears_later_is_noticed() {
    later_black_hole_is_noticed(0..3);
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation mtu -- --ignored"]
fn a_black_hole_that_appears_later_is_noticed_with_any_seed() {
    later_black_hole_is_noticed(3..10);
}

/// A session that speaks KCP alone begins at its mtu, and both ends send.
#[test]
fn a_session_without_extensions_notices_a_black_hole_from_the_beginning() {
    for seed in 0..10 {
        let config = config().build().unwrap();
        let link = LinkSettings { fragments: true, ..path(1_300, 0.0) };
        let mut simulation = Simulation::new(seed, &config, &link);
        simulation.server().writer = Writer::bulk(10_000_000);
        transfer(&mut simulation, 10_000_000);
        simulation.run_until(LIMIT, |simulation| simulation.flows[SERVER].read == 10_000_000);
        for side in [CLIENT, SERVER] {
            let stats = stats(&simulation, side);
            assert_eq!(stats.mtu.black_holes, 1, "seed {seed}: {stats:?}");
            assert!(plpmtu(&simulation, side) <= 1_300, "seed {seed}");
        }
    }
}

/// Less than BASE_PLPMTU: the state `Error` of RFC 8899.
#[test]
fn a_path_of_less_than_the_base_is_found() {
    for seed in 0..10 {
        for peer in PEERS {
            let link = LinkSettings { fragments: true, ..path(1_000, 0.0) };
            let mut simulation = simulation(seed, peer, &config().build().unwrap(), &link);
            transfer(&mut simulation, 4_000_000);
            let found = plpmtu(&simulation, CLIENT);
            assert!((900..=1_000).contains(&found), "{peer:?}, seed {seed}: {found}");
        }
    }
}

/// After PMTU_RAISE_TIMER, once data flows again. Meanwhile nothing wakes up.
#[test]
fn a_path_that_carries_more_again_is_found_after_ten_minutes() {
    for peer in PEERS {
        let mut simulation = simulation(3, peer, &config().build().unwrap(), &path(1_300, 0.0));
        transfer(&mut simulation, 12_000_000);
        simulation.run_for(Duration::from_secs(5));
        assert_found(&simulation, CLIENT, 1_300, "before");
        simulation.client().link.settings.max_packet = None;
        let before = simulation.ends[CLIENT].activity.wakeups;
        simulation.run_for(Duration::from_secs(599));
        assert_eq!(simulation.ends[CLIENT].activity.wakeups, before, "{peer:?}: it is idle");
        simulation.run_for(Duration::from_secs(2));
        transfer(&mut simulation, 500_000);
        assert_eq!(plpmtu(&simulation, CLIENT), 1_400, "{peer:?}");
    }
}

/// Random loss is not taken for a black hole. It may be suspected, which costs little, and heals.
fn random_loss_is_no_black_hole(seeds: Range<u64>) {
    let (mut found, mut below, mut runs) = (0, 0, 0_u32);
    for seed in seeds {
        for peer in PEERS {
            for nodelay in [NoDelay::FAST3, NoDelay::NORMAL] {
                let config = config().nodelay(nodelay).build().unwrap();
                let link = clear().loss(0.2);
                let mut simulation = simulation(seed, peer, &config, &link);
                transfer(&mut simulation, 4_000_000);
                let stats = stats(&simulation, CLIENT);
                found += stats.mtu.black_holes;
                transfer(&mut simulation, 8_000_000);
                below += u32::from(plpmtu(&simulation, CLIENT) < 1_368);
                runs += 1;
            }
        }
    }
    assert_eq!(found, 0, "of {runs} transfers");
    assert!(below <= runs / 50, "{below} of {runs} end with shorter packets");
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation mtu -- --ignored"]
fn loss_of_20_percent_is_no_black_hole() {
    random_loss_is_no_black_hole(0..10);
}

#[test]
#[ignore = "seconds: cargo test --release --test simulation mtu -- --ignored"]
fn loss_of_20_percent_is_no_black_hole_with_any_seed() {
    random_loss_is_no_black_hole(10..100);
}

/// One long message at a time, which is where chance may look like a black hole the most.
#[test]
fn single_messages_under_loss_are_seldom_taken_for_a_black_hole() {
    let (mut found, mut messages) = (0, 0);
    for seed in 0..40 {
        for peer in PEERS {
            let config = config().nodelay(NoDelay::FAST3).build().unwrap();
            let mut simulation = simulation(seed, peer, &config, &LinkSettings::delay(DELAY).loss(0.2));
            for side in [CLIENT, SERVER] {
                simulation.ends[side].writer =
                    Writer { sizes: 1_300..=1_300, pace: Some(ms(100)), ..Writer::bulk(1_300 * 200) };
            }
            simulation
                .run_until(LIMIT, |simulation| simulation.flows.iter().all(|flow| flow.read == 1_300 * 200));
            found += stats(&simulation, CLIENT).mtu.black_holes + stats(&simulation, SERVER).mtu.black_holes;
            messages += 400;
        }
    }
    assert!(found * 2_000 <= messages, "{found} in {messages} messages");
}

/// Nothing passes for a while: that is no black hole either, and afterwards packets are as long as before.
#[test]
#[ignore = "seconds: cargo test --release --test simulation -- --ignored"]
fn an_outage_is_no_black_hole() {
    for seed in 0..10 {
        for peer in PEERS {
            let config = config().nodelay(NoDelay::FAST3).build().unwrap();
            let mut simulation = simulation(seed, peer, &config, &clear());
            simulation.client().writer = Writer::bulk(15_000_000);
            simulation.start();
            simulation.run_for(ms(500));
            for side in [CLIENT, SERVER] {
                simulation.ends[side].link.settings.loss = 1.0;
            }
            simulation.run_for(Duration::from_secs(5));
            for side in [CLIENT, SERVER] {
                simulation.ends[side].link.settings.loss = 0.0;
            }
            simulation.run_until(LIMIT, |simulation| simulation.flows[CLIENT].read == 15_000_000);
            let stats = stats(&simulation, CLIENT);
            assert_eq!((stats.mtu.black_holes, stats.path.plpmtu), (0, 1_400), "{peer:?}, seed {seed}");
        }
    }
}

/// The path loses fragments, too. What is in flight when it changes can never arrive: that becomes an error.
#[test]
fn a_stream_that_no_path_carries_ends() {
    for seed in 0..5 {
        let config = config().dead_timeout(Duration::from_secs(5)).build().unwrap();
        let mut simulation = simulation(seed, Peer::Ours, &config, &clear());
        simulation.client().writer = Writer::bulk(10_000_000);
        simulation.start();
        simulation.run_for(ms(800));
        simulation.client().link.settings.max_packet = Some(1_300);
        let took = simulation.run_until(LIMIT, |simulation| {
            simulation.ends[CLIENT].connection.close_reason() == Some(CloseReason::DeadLink)
        });
        assert!(took < Duration::from_secs(20), "seed {seed}: {took:?}");
    }
}

/// Padded PINGs of `side` so far.
fn padded_pings(simulation: &Simulation, side: usize) -> usize {
    let is_ping = |sent: &&Sent| sent.header.cmd == Command::Extension && sent.header.frg == PING;
    let is_padded = |sent: &&Sent| is_ping(sent) && sent.header.len > 1_000;
    simulation.ends[side].sent.iter().flatten().filter(is_padded).count()
}

/// This end has another address from one moment to the next, while the answer to a probe is under way. It says nothing of the path from
/// there, which carries less.
#[test]
fn an_answer_over_the_path_before_says_nothing_of_the_new_one() {
    for seed in 0..10 {
        let config = config().crypto(sealed()).build().unwrap();
        let mut simulation = simulation(seed, Peer::Ours, &config, &clear());
        simulation.client().record();
        simulation.client().writer = Writer::bulk(20_000_000);
        simulation.start();
        // It is sent behind the first flight, and its answer is due a round trip later.
        simulation.run_until(LIMIT, |simulation| padded_pings(simulation, CLIENT) == 1);
        simulation.client().link.settings =
            LinkSettings { fragments: true, max_packet: Some(1_300), ..clear() };
        simulation.call(CLIENT, |connection, now| connection.rebind(now)).unwrap();
        let mut longest = 0;
        for _ in 0..400 {
            simulation.run_for(ms(5));
            longest = longest.max(plpmtu(&simulation, CLIENT));
        }
        assert!(padded_pings(&simulation, CLIENT) > 1, "seed {seed}: the search goes on");
        assert!((1_250..=1_300).contains(&longest), "seed {seed}: {longest}");
    }
}

/// A session of datagrams alone asks for their sake, and those that are too long go as fragments as soon as something speaks against
/// them.
#[test]
fn datagrams_alone_find_the_mtu_too() {
    for (carried, found) in
        [(None, 1_400..=1_400), (Some(1_300), 1_300..=1_300), (Some(1_250), 1_218..=1_250)]
    {
        for seed in 0..5 {
            let what = format!("{carried:?}, seed {seed}");
            let config = config().datagram_queue(65_536).build().unwrap();
            let link = LinkSettings { max_packet: carried, fragments: true, ..clear() };
            let mut simulation = simulation(seed, Peer::Ours, &config, &link);
            simulation.start();
            let longest = simulation.call(CLIENT, |connection, _| connection.max_datagram_len()).unwrap();
            let mut arrived = 0;
            for sent in 0..400 {
                // Short ones are no reason to ask.
                let len = if sent < 100 { 1_000 } else { longest };
                simulation.call(CLIENT, |connection, _| connection.send_datagram(&vec![7; len])).unwrap();
                simulation.run_for(ms(20));
                if sent < 100 {
                    assert_eq!(plpmtu(&simulation, CLIENT), 1_200, "{what}");
                }
                while simulation.call(SERVER, |connection, _| connection.recv_datagram()).is_some() {
                    arrived += 1;
                }
            }
            assert!(found.contains(&plpmtu(&simulation, CLIENT)), "{what}: {}", plpmtu(&simulation, CLIENT));
            let counts = simulation.ends[CLIENT].link.counts;
            let lost_at_first = if carried.is_some() { 50 } else { 0 };
            assert!(arrived >= 398 - lost_at_first, "{what}: {arrived} have arrived, {counts:?}");
            assert_eq!(counts.fragmented > 200, carried.is_some(), "{what}: {counts:?}");
        }
    }
}
