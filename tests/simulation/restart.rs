//! Peers that were started again, and have forgotten the session; and what must not be taken for that.
//!
//! Ten thousand seeds of what must not: `cargo test --release --test simulation restart -- --ignored`.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    proto::{
        CloseReason, Command, Connection, Extensions, HEADER_LEN, Instant, SegmentHeader, Segments,
        SessionSeed,
    },
};

use kcp9_simulator::{CLIENT, LinkSettings, Reader, Rng, SERVER, Simulation, Writer, ms, trace::times_of};

use crate::death::{PING, begun, count};

const SECOND: Duration = Duration::from_secs(1);
const RESET: u8 = 7;
/// Seeds of each race in every run, and in the long one.
const SEEDS: Range<u64> = 0..100;
const MANY_SEEDS: Range<u64> = 0..10_000;

fn preferred() -> KcpConfigBuilder {
    KcpConfig::builder().extensions(Extensions::Preferred).keep_alive(Some(20 * SECOND))
}

fn off() -> KcpConfigBuilder {
    preferred().extensions(Extensions::Off)
}

/// The process of an end is started again, and has another session of the same conversation. The segments of the former find
/// it, as they do at a listener of kcp-go, and as they do here if the peer's process was started again too.
fn restart(simulation: &mut Simulation, side: usize, config: &KcpConfig) {
    let now = simulation.ends[side].local(simulation.now);
    let conv = simulation.ends[side].connection.conv();
    let mut rng = Rng::new(simulation.now.as_micros() << 1 | side as u64);
    let seed = SessionSeed::new(&mut rng);
    let mut connection = if side == CLIENT {
        Connection::connect(conv, config, now, seed)
    } else {
        Connection::accept(conv, config, now, seed)
    };
    if config.extensions() == Extensions::Off {
        // A listener of another kind sends as it likes.
        connection.set_validated();
    }
    simulation.ends[side].restart(connection);
    simulation.drive(side);
}

fn close_reason(simulation: &Simulation, side: usize) -> Option<CloseReason> {
    simulation.ends[side].connection.close_reason()
}

/// Runs until an end learns that its peer has forgotten the session; returns how long that took.
fn found_reset(simulation: &mut Simulation, side: usize) -> Duration {
    let restarted = simulation.now;
    simulation.run_until(120 * SECOND, |simulation| close_reason(simulation, side).is_some());
    assert_eq!(close_reason(simulation, side), Some(CloseReason::Reset), "{}", simulation.report());
    simulation.now - restarted
}

// ---- Peers with extensions ----

/// Both have confirmed each other, and the client's data was read.
fn in_session(seed: u64, config: &KcpConfig, link: &LinkSettings) -> Simulation {
    let mut simulation = begun(seed, [config; 2], link);
    simulation.client().writer = Writer::bulk(50_000);
    simulation.run_for(10 * SECOND);
    simulation.run_until(100 * SECOND, |simulation| {
        let confirmed = simulation.ends.iter().all(|end| end.connection.is_peer_confirmed());
        confirmed && simulation.flows[CLIENT].read == 50_000
    });
    simulation
}

#[test]
fn a_server_that_was_restarted_is_noticed_at_the_next_question() {
    for seed in SEEDS {
        let config = preferred().build().unwrap();
        let link = LinkSettings { jitter: ms(5), ..LinkSettings::delay(ms(1 + seed % 150)) };
        let mut simulation = in_session(seed, &config, &link.loss(f64::from(seed as u32 % 3) / 10.0));
        // Idle, with nothing but the keep-alive.
        simulation.run_for(SECOND * (seed as u32 % 40));
        restart(&mut simulation, SERVER, &config);
        let took = found_reset(&mut simulation, CLIENT);
        assert!(took < 30 * SECOND, "seed {seed}: {took:?}");
    }
}

#[test]
fn a_server_that_was_restarted_is_noticed_by_a_writer_within_a_second() {
    for seed in SEEDS {
        let config = preferred().keep_alive((seed % 2 == 0).then_some(20 * SECOND)).build().unwrap();
        let mut simulation = in_session(seed, &config, &LinkSettings::delay(ms(1 + seed % 50)));
        restart(&mut simulation, SERVER, &config);
        simulation.call(CLIENT, |connection, now| connection.write(now, b"are you there?")).unwrap();
        let took = found_reset(&mut simulation, CLIENT);
        // Three transmissions, two round trips, and the time of an answer.
        assert!(took < SECOND, "seed {seed}: {took:?}");
    }
}

/// Its ACKs came, and its ANSWER did not, since HELLOs were lost. The new one answers the next HELLO, and waits for what was
/// acknowledged before.
#[test]
fn a_server_that_was_restarted_before_its_answer_came_is_noticed() {
    let mut confirmed = 0;
    for seed in SEEDS {
        let config = preferred().keep_alive((seed % 2 == 0).then_some(20 * SECOND)).build().unwrap();
        let loss = f64::from(seed as u32 % 3) / 10.0;
        let mut simulation = begun(seed, [&config; 2], &LinkSettings::delay(ms(1 + seed % 50)).loss(loss));
        simulation.client().link.lose_if(|_, packet| {
            let mut headers = Segments::new(packet).map_while(Result::ok).map(|(header, _)| header);
            headers.any(|header| header.cmd == Command::Extension)
        });
        simulation.client().writer = Writer::bulk(2_000);
        simulation.run_until(10 * SECOND, |simulation| {
            let stats = simulation.ends[CLIENT].connection.stats();
            stats.segments.push_sent > 0 && stats.queues.in_flight == 0
        });
        assert!(!simulation.client().connection.is_peer_confirmed(), "seed {seed}");
        restart(&mut simulation, SERVER, &config);
        simulation.client().link.lose_nothing_more();
        simulation.run_until(60 * SECOND, |simulation| {
            let closed = close_reason(simulation, CLIENT).is_some();
            closed || simulation.ends[CLIENT].connection.is_peer_confirmed()
        });
        // Where HELLOs were lost, the new server may have been found out before it could confirm anything.
        if close_reason(&simulation, CLIENT).is_none() {
            confirmed += 1;
            // It would be acknowledged, and nobody would ever read it.
            simulation.call(CLIENT, |connection, now| connection.write(now, &[7; 100])).unwrap();
        }
        found_reset(&mut simulation, CLIENT);
    }
    assert!(confirmed > 50, "{confirmed} of {SEEDS:?} were confirmed");
}

/// The path had a copy of the client's first packets still, and delivers it to the server after its restart. That is the beginning of
/// a session there. What the server writes to it has numbers that the client waits for.
#[test]
fn what_a_restarted_server_writes_to_a_copy_of_the_beginning_is_not_read() {
    let mut refused = 0;
    for seed in SEEDS {
        let config = preferred().build().unwrap();
        let mut simulation = begun(seed, [&config; 2], &LinkSettings::delay(ms(1 + seed % 50)));
        let beginning = Arc::new(Mutex::new(Vec::new()));
        let sent = Arc::clone(&beginning);
        simulation.client().link.lose_if(move |_, packet| {
            let mut sent = sent.lock().unwrap();
            if sent.len() < 4 {
                sent.push(packet.to_vec());
            }
            false
        });
        simulation.client().writer = Writer::bulk(3_000);
        simulation.server().writer = Writer::bulk(2_000);
        simulation.run_until(10 * SECOND, |simulation| {
            let confirmed = simulation.ends.iter().all(|end| end.connection.is_peer_confirmed());
            confirmed && simulation.flows.iter().all(|flow| flow.read >= 2_000)
        });
        simulation.run_for(SECOND);
        // Its application reads nothing of what the former has read.
        simulation.server().reader = Reader { not_before: Instant::from_micros(u64::MAX), ..Reader::eager() };
        restart(&mut simulation, SERVER, &config);
        for mut packet in beginning.lock().unwrap().clone() {
            simulation.call(SERVER, |connection, now| connection.handle_packet(now, &mut packet)).unwrap();
        }
        // In segments of other lengths than the former server's, as those of an echo may be.
        for _ in 0..100 {
            simulation.call(SERVER, |connection, now| connection.write(now, &[9; 700])).unwrap();
            simulation.call(SERVER, |connection, _| connection.flush());
        }
        found_reset(&mut simulation, CLIENT);
        assert_eq!(simulation.flows[SERVER].read, 2_000, "seed {seed}");
        refused += simulation.client().connection.stats().udp.wrong_conv;
    }
    assert!(refused > SEEDS.end, "{refused} segments");
}

/// A machine that was suspended: its clock goes on by an hour at once, and it is the same session.
#[test]
fn a_server_whose_clock_jumps_is_still_the_same() {
    for seed in SEEDS {
        for side in [CLIENT, SERVER] {
            let config = preferred().dead_timeout(7_200 * SECOND).build().unwrap();
            let link = LinkSettings::delay(ms(1 + seed % 50)).loss(f64::from(seed as u32 % 3) / 20.0);
            let mut simulation = in_session(seed, &config, &link);
            simulation.ends[side].clock_offset += 3_600 * SECOND;
            simulation.drive(side);
            simulation.server().writer = Writer::bulk(100_000);
            simulation.run_for(60 * SECOND);
            assert_eq!(
                simulation.flows[SERVER].read,
                100_000,
                "seed {seed}, {side}: {}",
                simulation.report()
            );
        }
    }
}

#[test]
fn a_server_that_was_restarted_with_its_window_closed_is_noticed() {
    for seed in 0..20 {
        let config = preferred().recv_window(128).build().unwrap();
        let mut simulation = in_session(seed, &config, &LinkSettings::delay(ms(20)));
        simulation.server().reader = Reader { not_before: Instant::from_micros(u64::MAX), ..Reader::eager() };
        simulation.client().writer = Writer::bulk(5_000_000);
        simulation.run_for(SECOND * (5 + seed as u32 * 10));
        assert_eq!(simulation.client().connection.stats().queues.peer_window, 0);
        restart(&mut simulation, SERVER, &config);
        let took = found_reset(&mut simulation, CLIENT);
        assert!(took < 30 * SECOND, "seed {seed}: {took:?}");
    }
}

/// Whatever RESETs get lost, doubled or late: the client finds out, and nothing follows of it.
#[test]
fn resets_may_be_lost_doubled_and_late() {
    for seed in SEEDS {
        let config = preferred().dead_timeout(300 * SECOND).build().unwrap();
        let mut simulation = in_session(seed, &config, &LinkSettings::delay(ms(20)));
        restart(&mut simulation, SERVER, &config);
        let mut rng = Rng::new(seed);
        simulation.server().link.settings.duplicate = 0.5;
        simulation.server().link.settings.reorder = 0.5;
        simulation.server().link.settings.reorder_delay = ms(300);
        simulation.server().link.lose_if(move |_, packet| {
            let reset = Segments::new(packet).flatten().any(|(header, _)| header.frg == RESET);
            reset && rng.chance(0.5)
        });
        // It takes two, and each is lost as likely as not.
        found_reset(&mut simulation, CLIENT);
    }
}

/// The client is started again with the address and the conversation that it had. The server still has the former session; it
/// must not be taken for the new one, neither by the server nor by the client.
#[test]
fn a_client_that_was_restarted_does_not_continue_its_former_session() {
    for seed in SEEDS {
        for writes in [0, 10, 30_000] {
            let config = preferred().build().unwrap();
            let mut simulation = in_session(seed, &config, &LinkSettings::delay(ms(1 + seed % 100)));
            restart(&mut simulation, CLIENT, &config);
            if writes > 0 {
                let bytes = vec![7; writes];
                simulation.call(CLIENT, |connection, now| connection.write(now, &bytes)).unwrap();
            }
            let took = found_reset(&mut simulation, SERVER);
            assert!(took < 5 * SECOND, "seed {seed}: {took:?}");
            assert_eq!(simulation.server().connection.readable_bytes(), 0, "seed {seed}");
            simulation.run_for(5 * SECOND);
            if writes > 0 {
                // What it wrote was acknowledged by the former session, and is lost.
                assert_eq!(
                    close_reason(&simulation, CLIENT),
                    Some(CloseReason::Reset),
                    "seed {seed}, {writes}"
                );
            } else {
                assert_eq!(close_reason(&simulation, CLIENT), None, "seed {seed}: it may still begin");
            }
        }
    }
}

#[test]
fn two_ends_that_were_both_restarted_begin_anew() {
    for seed in SEEDS {
        let config = preferred().build().unwrap();
        let mut simulation = in_session(seed, &config, &LinkSettings::delay(ms(1 + seed % 100)).loss(0.1));
        restart(&mut simulation, SERVER, &config);
        restart(&mut simulation, CLIENT, &config);
        simulation.run_for(60 * SECOND);
        let ends = [CLIENT, SERVER].map(|side| close_reason(&simulation, side));
        assert_eq!(ends, [None; 2], "seed {seed}");
        assert!(simulation.ends.iter().all(|end| end.connection.is_peer_confirmed()), "seed {seed}");
    }
}

/// The RESET that some other server with the same key sends for a PING that was carried to it.
fn reset_for(header: &SegmentHeader, token: &[u8]) -> Vec<u8> {
    let header = SegmentHeader { frg: RESET, wnd: 0, una: 0, len: 8, ..*header };
    [header.to_bytes().as_slice(), &token[..8]].concat()
}

/// Somebody without the key carries every PING to another server that has the same key and sits nearer, and brings its RESET
/// back, for so many seconds. The true server lives, and some of its answers get lost.
fn a_nearer_server_ends_no_session(seeds: Range<u64>, seconds: u32) {
    for seed in seeds {
        let config = preferred().keep_alive(Some(SECOND)).build().unwrap();
        let mut simulation = in_session(seed, &config, &LinkSettings::delay(ms(20 + seed % 200)));
        let pings = Arc::new(Mutex::new(Vec::new()));
        let carried = Arc::clone(&pings);
        simulation.client().link.lose_if(move |_, packet| {
            let pings = Segments::new(packet).flatten().filter(|(header, _)| header.frg == PING);
            carried.lock().unwrap().extend(pings.map(|(header, token)| reset_for(&header, token)));
            false
        });
        let end = simulation.now + seconds * SECOND;
        let mut resets = 0;
        while simulation.now < end && close_reason(&simulation, CLIENT).is_none() {
            simulation.run_for(ms(5));
            let carried = std::mem::take(&mut *pings.lock().unwrap());
            for mut reset in carried {
                resets += 1;
                simulation.call(CLIENT, |connection, now| connection.handle_packet(now, &mut reset)).unwrap();
            }
        }
        assert!(resets > seconds / 2, "seed {seed}: {resets}");
        assert_eq!(close_reason(&simulation, CLIENT), None, "seed {seed}");
    }
}

#[test]
fn resets_of_a_nearer_server_end_no_session() {
    a_nearer_server_ends_no_session(SEEDS, 20);
}

/// RESETs that somebody makes up: of another session, with another token or time, of a PING that was answered.
#[test]
fn made_up_resets_end_no_session() {
    for seed in SEEDS {
        let config = preferred().keep_alive(Some(SECOND)).build().unwrap();
        let mut simulation = in_session(seed, &config, &LinkSettings::delay(ms(20)));
        let mut rng = Rng::new(seed);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        simulation.client().link.lose_if(move |_, packet| {
            let pings = Segments::new(packet).flatten().filter(|(header, _)| header.frg == PING);
            record.lock().unwrap().extend(pings.map(|(header, token)| reset_for(&header, token)));
            false
        });
        for _ in 0..100 {
            simulation.run_for(ms(300));
            let seen = seen.lock().unwrap().clone();
            let Some(last) = seen.last() else { continue };
            // The last one is answered by now.
            let mut made_up = if rng.chance(0.5) { last.clone() } else { seen[0].clone() };
            if rng.chance(0.7) {
                let at = [8, 12, HEADER_LEN][rng.size(0..=2)] + rng.size(0..=3);
                made_up[at] ^= 1 << rng.size(0..=7);
            }
            simulation.call(CLIENT, |connection, now| connection.handle_packet(now, &mut made_up)).unwrap();
        }
        assert_eq!(close_reason(&simulation, CLIENT), None, "seed {seed}");
        let stats = simulation.client().connection.stats();
        assert!(stats.extensions.dropped > 50, "seed {seed}: {stats:?}");
    }
}

/// PINGs with all tags but this end's own: each is answered by one RESET of the same length at most, and nothing else happens.
#[test]
fn pings_of_other_sessions_are_answered_by_one_short_reset() {
    let config = preferred().build().unwrap();
    let mut simulation = in_session(1, &config, &LinkSettings::delay(ms(20)));
    let conv = simulation.client().connection.conv();
    simulation.server().record();
    for tag in [1, 0x7777, u32::MAX] {
        for padding in [0, 1_000] {
            let header = SegmentHeader {
                conv,
                cmd: Command::Extension,
                frg: PING,
                wnd: 9,
                ts: 77,
                sn: tag,
                una: 0,
                len: 8 + padding,
            };
            let mut ping = [header.to_bytes().as_slice(), &[5; 8], &vec![0; padding as usize]].concat();
            simulation.call(SERVER, |connection, now| connection.handle_packet(now, &mut ping)).unwrap();
            let sent = simulation.ends[SERVER].sent.as_mut().unwrap();
            let answer = sent.pop().expect("a RESET").header;
            let expected = SegmentHeader { frg: RESET, wnd: 0, una: 0, len: 8, ..header };
            assert_eq!((answer, sent.len()), (expected, 0));
        }
    }
    // One with the tag 0 cannot be a peer's, and one with the client's tag is its own, reflected.
    let mut reflected = None;
    simulation.run_until(30 * SECOND, |simulation| {
        let sent = simulation.ends[SERVER].sent.as_ref().unwrap();
        reflected = sent.iter().find(|sent| sent.header.frg == 9).map(|sent| sent.header.sn);
        reflected.is_some()
    });
    simulation.server().record();
    for tag in [0, reflected.unwrap()] {
        let header = SegmentHeader {
            conv,
            cmd: Command::Extension,
            frg: PING,
            wnd: 9,
            ts: 77,
            sn: tag,
            una: 0,
            len: 8,
        };
        let mut ping = [header.to_bytes().as_slice(), &[5; 8]].concat();
        simulation.call(SERVER, |connection, now| connection.handle_packet(now, &mut ping)).unwrap();
    }
    assert_eq!(count(simulation.ends[SERVER].sent.as_ref().unwrap(), RESET), 0);
}

// ---- Peers without extensions ----

/// A listener of kcp-go that was started again opens a new session for whatever comes. It answers, and it is a ghost.
#[test]
fn a_legacy_server_that_was_restarted_is_noticed() {
    for seed in SEEDS {
        for client in [off(), preferred()] {
            let link = LinkSettings::delay(ms(1 + seed % 150)).loss(f64::from(seed as u32 % 3) / 10.0);
            let (client, server) = (client.build().unwrap(), off().keep_alive(None).build().unwrap());
            let mut simulation = begun(seed, [&client, &server], &link);
            simulation.client().writer = Writer::bulk(50_000);
            simulation.run_for(70 * SECOND);
            assert_eq!(simulation.flows[CLIENT].read, 50_000, "seed {seed}");
            restart(&mut simulation, SERVER, &server);
            if seed % 2 == 0 {
                // What is written to a ghost is lost.
                simulation.call(CLIENT, |connection, now| connection.write(now, &[7; 100])).unwrap();
            }
            let took = found_reset(&mut simulation, CLIENT);
            let lossless = seed % 3 == 0;
            let limit = match seed % 2 {
                0 if lossless => 3,
                0 => 15,
                _ if lossless => 24,
                _ => 35,
            };
            assert!(took < SECOND * limit, "seed {seed}: {took:?}");
        }
    }
}

/// The same with its window closed, so that the client asks for the window anyway.
#[test]
fn a_legacy_server_that_was_restarted_with_its_window_closed_is_noticed() {
    let config = off().keep_alive(None).recv_window(64).build().unwrap();
    let mut simulation = begun(1, [&config; 2], &LinkSettings::delay(ms(20)));
    simulation.server().reader = Reader { not_before: Instant::from_micros(u64::MAX), ..Reader::eager() };
    simulation.client().writer = Writer::bulk(5_000_000);
    simulation.run_for(30 * SECOND);
    assert_eq!(simulation.client().connection.stats().queues.peer_window, 0);
    restart(&mut simulation, SERVER, &config);
    let took = found_reset(&mut simulation, CLIENT);
    assert!(took < 60 * SECOND, "{took:?}");
}

/// A client that has written nothing cannot tell: the `una` was 0 before. It is in the docs of `keep_alive`.
#[test]
fn a_restarted_legacy_server_is_not_noticed_by_who_never_wrote() {
    let (client, server) = (off().build().unwrap(), off().keep_alive(None).build().unwrap());
    let mut simulation = begun(1, [&client, &server], &LinkSettings::delay(ms(20)));
    simulation.run_for(100 * SECOND);
    assert!(!times_of(simulation.ends[CLIENT].sent.as_ref().unwrap(), Command::Wask).is_empty());
    restart(&mut simulation, SERVER, &server);
    simulation.run_for(1_000 * SECOND);
    assert_eq!(close_reason(&simulation, CLIENT), None);
}

/// The peer is there all the time. Its answers of the beginning, when nothing was acknowledged, arrive doubled and late, true ones
/// get lost, and the client asks often.
fn a_living_legacy_peer_is_no_ghost(seeds: Range<u64>) {
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let late = rng.duration(10 * SECOND);
        let link = LinkSettings {
            loss: rng.within(0..=40) as f64 / 100.0,
            duplicate: 0.5,
            reorder: 0.5,
            reorder_delay: late,
            ..LinkSettings::delay(rng.duration(ms(200)))
        };
        let client = off().keep_alive(Some(ms(300))).dead_timeout(600 * SECOND).build().unwrap();
        let server = off().keep_alive(None).dead_timeout(600 * SECOND).recv_window(8).build().unwrap();
        let mut simulation = begun(seed, [&client, &server], &link);
        // It asks before it writes, so that there are WINS with the first number.
        simulation.run_for(rng.duration(8 * SECOND));
        simulation.client().writer =
            Writer { pace: Some(rng.duration(2 * SECOND)), sizes: 1..=100, ..Writer::bulk(2_000) };
        let pause = rng.duration(5 * SECOND);
        simulation.server().reader = Reader { pace: Some(pause), ..Reader::eager() };
        simulation.run_for(90 * SECOND);
        assert_eq!(close_reason(&simulation, CLIENT), None, "seed {seed}: {}", simulation.report());
    }
}

#[test]
fn late_and_doubled_answers_of_a_living_legacy_peer_are_no_ghosts() {
    a_living_legacy_peer_is_no_ghost(SEEDS);
}

#[test]
#[ignore = "minutes: cargo test --release --test simulation restart -- --ignored"]
fn late_and_doubled_answers_of_many_living_legacy_peers_are_no_ghosts() {
    a_living_legacy_peer_is_no_ghost(MANY_SEEDS);
}

#[test]
#[ignore = "minutes: cargo test --release --test simulation restart -- --ignored"]
fn resets_of_a_nearer_server_end_none_of_many_sessions() {
    a_nearer_server_ends_no_session(MANY_SEEDS, 20);
}
