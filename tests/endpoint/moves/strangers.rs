//! Others than the client, who would like a session to go to an address of theirs.

use kcp9::{
    crypto::PacketCrypto,
    proto::{Command, HEADER_LEN, SegmentHeader, Segments},
};
use kcp9_simulator::ms;

use super::world::{CONV, Packet, World, at, elsewhere, settings};
use crate::{host::client, network::SeedOnPanic};

const RESET: u8 = 7;
const PING: u8 = 8;
const PONG: u8 = 9;

/// Someone on the path, without the key, brings a copy of whatever the client sends before the original, from an address of his
/// own, and carries to the client whatever the server sends there.
#[test]
fn copies_that_come_first_from_elsewhere_move_nothing() {
    for seed in 0..20 {
        let _seed = SeedOnPanic(seed);
        let config = settings().keep_alive(Some(ms(2_000))).build().unwrap();
        let mut world = World::new(seed, &config);
        world.loss = [0.0, 0.1][seed as usize % 2];
        let (client, server) = (world.client.address, world.server.address);
        let mut attempts = 0;
        for round in 0..20 {
            if round % 2 == 0 {
                world.add(3_000, 3_000);
            }
            let end = world.now + ms(5_000);
            let mut tap = |packet: &Packet| {
                let arrival = at(packet.arrival.as_micros() / 1_000 - 14);
                let bytes = packet.bytes.clone();
                if packet.from == client {
                    vec![Packet { arrival, from: elsewhere(1), to: server, bytes }]
                } else if packet.to == elsewhere(1) {
                    attempts += 1;
                    vec![Packet { arrival, from: server, to: client, bytes }]
                } else {
                    Vec::new()
                }
            };
            world.run_until(end, &mut tap, |_| false);
            assert_eq!((world.route(), world.moves()), (client, 0), "round {round}");
        }
        assert!(world.is_done());
        assert!(attempts > 10, "{attempts} questions: he has tried");
    }
}

/// He sends a recording instead, while the client lives and after it has moved.
#[test]
fn recordings_move_nothing() {
    let config = settings().keep_alive(Some(ms(1_000))).build().unwrap();
    let mut world = World::new(1, &config);
    let server = world.server.address;
    let mut recorded = Vec::new();
    for address in [client(1), client(2)] {
        if world.client.address != address {
            world.change_address(address, true);
        }
        world.add(5_000, 5_000);
        let end = world.now + ms(10_000);
        let mut tap = |packet: &Packet| {
            if packet.to == server {
                recorded.push(packet.bytes.clone());
            }
            Vec::new()
        };
        world.run_until(end, &mut tap, |_| false);
        // All of it has arrived.
        world.run(100);
        assert_eq!(world.route(), address);
        let moves = world.moves();
        let before = world.server.connection(world.theirs).stats().extensions;
        for (number, packet) in recorded.iter().enumerate() {
            let now = world.now;
            world.server.receive_one(now, elsewhere(number as u32 % 7), packet);
        }
        assert!(world.server.drive(world.now).iter().all(|batch| batch.to == address));
        let after = world.server.connection(world.theirs).stats().extensions;
        assert_eq!(after.received, before.received, "none means anything");
        world.run(5_000);
        assert_eq!((world.route(), world.moves()), (address, moves));
    }
}

/// What a holder of the key makes: a segment of the extensions with 8 bytes of body, sealed.
fn forge(crypto: &PacketCrypto, number: u64, frg: u8, ts: u32, tag: u32, token: [u8; 8]) -> Vec<u8> {
    let cipher = crypto.cipher();
    let header =
        SegmentHeader { conv: CONV, cmd: Command::Extension, frg, wnd: 128, ts, sn: tag, una: 0, len: 8 };
    let mut packet = vec![0; cipher.header_len()];
    packet[..8].copy_from_slice(&number.to_le_bytes());
    packet.extend(header.to_bytes());
    packet.extend(token);
    packet.resize(packet.len() + cipher.trailer_len(), 0);
    cipher.seal(&mut packet).unwrap();
    packet
}

/// The extension segments in a packet: subtype, tag, and the first 8 bytes of the body.
fn extension_segments(crypto: &PacketCrypto, packet: &[u8]) -> Vec<(u8, u32, [u8; 8])> {
    let (cipher, mut packet) = (crypto.cipher(), packet.to_vec());
    cipher.open(&mut packet).unwrap();
    let payload = &packet[cipher.header_len()..packet.len() - cipher.trailer_len()];
    assert!(payload.len() >= HEADER_LEN);
    let extension = |(header, body): (SegmentHeader, &[u8])| {
        let body = *body.first_chunk()?;
        (header.cmd == Command::Extension).then_some((header.frg, header.sn, body))
    };
    Segments::new(payload).map_while(Result::ok).filter_map(extension).collect()
}

/// A holder of the shared key knows the tags, asks for the session at an address of his own and answers there, for as long as he
/// likes. The client answers where it is.
#[test]
fn a_holder_of_the_key_moves_no_session_whose_client_answers() {
    for seed in 0..10 {
        let _seed = SeedOnPanic(seed);
        let config = settings().keep_alive(Some(ms(4_000))).build().unwrap();
        let crypto = config.crypto().unwrap().clone();
        let mut world = World::new(seed, &config);
        world.loss = [0.0, 0.1][seed as usize % 2];
        let (address, server) = (world.client.address, world.server.address);
        let (mut number, mut tags, mut asked) = (1 << 40, [None; 2], 0);
        for round in 0..200 {
            if round % 20 == 0 {
                world.add(2_000, 2_000);
            }
            let now = world.now;
            if let [Some(tag), _] = tags {
                number += 1;
                let ts = now.as_ts() + 1_000 + round;
                let ping = forge(&crypto, number, PING, ts, tag, number.to_le_bytes());
                world.server.receive_one(now, elsewhere(1), &ping);
            }
            let mut tap = |packet: &Packet| {
                for (subtype, tag, token) in extension_segments(&crypto, &packet.bytes) {
                    if packet.from == address && subtype != 1 {
                        tags[0] = Some(tag);
                    }
                    if packet.to == elsewhere(1) && subtype == PING {
                        asked += 1;
                        number += 1;
                        let ts = packet.arrival.as_ts();
                        let bytes = forge(&crypto, number, PONG, ts, tags[0].unwrap(), token);
                        let arrival = packet.arrival;
                        return vec![Packet { arrival, from: elsewhere(1), to: server, bytes }];
                    }
                }
                Vec::new()
            };
            world.run_until(now + ms(500), &mut tap, |_| false);
            assert_eq!((world.route(), world.moves()), (address, 0), "round {round}");
        }
        assert!(world.is_done());
        assert!(asked > 5, "{asked} questions: he has tried");
    }
}

#[test]
fn forged_questions_in_vain_cost_little() {
    let config = settings().build().unwrap();
    let crypto = config.crypto().unwrap().clone();
    let mut world = World::new(1, &config);
    // The tag, from the client's own question.
    let mut tag = None;
    world.change_address(client(2), true);
    let mut tap = |packet: &Packet| {
        let segments = extension_segments(&crypto, &packet.bytes);
        tag = segments
            .iter()
            .find(|segment| segment.0 == PING && packet.from == client(2))
            .map(|s| s.1)
            .or(tag);
        Vec::new()
    };
    world.run_until(at(3_000), &mut tap, |_| false);
    let (tag, begin) = (tag.unwrap(), world.now);
    let (mut resets, mut others) = (0, 0);
    for number in 0..60_000_u64 {
        world.now = begin + ms(number);
        let from = elsewhere((number % 100) as u32);
        let ts = world.now.as_ts() + 10;
        // Every second tag is wrong.
        let tag = tag ^ (number as u32 & 1);
        let ping = forge(&crypto, 1 << 41 | number, PING, ts, tag, [1; 8]);
        let now = world.now;
        world.server.receive_one(now, from, &ping);
        let mut tap = |packet: &Packet| {
            let is_reset =
                extension_segments(&crypto, &packet.bytes).iter().any(|segment| segment.0 == RESET);
            let counter = if is_reset { &mut resets } else { &mut others };
            *counter += u32::from(packet.from != client(2));
            Vec::new()
        };
        world.step(&mut tap);
    }
    assert_eq!((world.route(), world.moves()), (client(2), 1));
    // One for each question that counts, and eight a second to the client. Wrong tags draw RESETs, within their own limit.
    assert!(others < 60 * 15, "{others} packets in a minute");
    assert!(resets < 60 * 21, "{resets} RESETs in a minute");
}

/// The client has two networks, and a question of it takes the other one.
#[test]
fn a_client_that_still_answers_where_it_was_stays_there() {
    let mut world = World::new(1, &settings().keep_alive(Some(ms(1_000))).build().unwrap());
    let (address, server) = (world.client.address, world.server.address);
    let end = world.now + ms(60_000);
    let mut changed = 0;
    let mut tap = |packet: &Packet| {
        // All that the client sends leaves by both.
        changed += 1;
        let both = packet.from == address;
        let bytes = packet.bytes.clone();
        let copy = Packet { arrival: packet.arrival, from: elsewhere(1), to: server, bytes };
        if both { vec![copy] } else { Vec::new() }
    };
    world.run_until(end, &mut tap, |_| false);
    assert!(changed > 100);
    assert_eq!((world.route(), world.moves()), (address, 0));
}
