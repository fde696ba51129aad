//! Clients that get another address while their sessions go on (here), and others who would like a session to go elsewhere
//! (`strangers`).

mod strangers;
mod world;

use kcp9::{
    KcpConfig,
    proto::{Extensions, ReadError, RebindError},
};
use kcp9_simulator::ms;

use self::world::{CONV, KEY, World, at, settings};
use crate::{
    ciphers::aead,
    host::{Host, address, client, first_packet},
    network::{SeedOnPanic, deliver_all},
};

#[test]
fn a_client_that_takes_another_socket_is_followed_within_a_second() {
    let mut world = World::new(1, &settings().build().unwrap());
    world.add(100_000, 100_000);
    world.run(100);
    assert!(world.server.connection(world.theirs).stats().path.rtt > ms(0));
    world.change_address(client(2), true);
    let end = world.now + ms(1_000);
    assert!(world.run_until(end, &mut |_| Vec::new(), |world| world.moves() == 1));
    assert_eq!(world.route(), client(2));
    // Nothing that was learnt of the old path is kept.
    let path = world.server.connection(world.theirs).stats().path;
    assert_eq!((path.rtt, path.min_rtt, path.delivery_rate), (ms(0), ms(0), 0));
    world.run(200);
    // It was told, and asks no more.
    let asked = world.client.connection(world.ours).stats().extensions;
    world.run(5_000);
    assert!(world.is_done());
    assert_eq!(world.client.connection(world.ours).stats().extensions.sent, asked.sent);
    assert_eq!(asked.moves, 1);
    assert_eq!(world.server.stats().accepted, 1);
}

#[test]
fn a_client_whose_nat_takes_another_port_is_found_by_what_it_sends_again() {
    for (up, down) in [(50_000, 0), (50_000, 50_000)] {
        let mut world = World::new(2, &settings().keep_alive(None).build().unwrap());
        world.change_address(client(2), false);
        world.add(up, down);
        let took = world.finish(10_000);
        assert!(took < 5_000, "{took} ms for {up} and {down}");
        assert_eq!((world.route(), world.moves()), (client(2), 1));
    }
}

#[test]
fn a_client_that_only_receives_is_found_by_its_keep_alive() {
    let mut world = World::new(3, &settings().keep_alive(Some(ms(5_000))).build().unwrap());
    world.change_address(client(2), false);
    world.add(0, 50_000);
    world.finish(12_000);
    assert_eq!((world.route(), world.moves()), (client(2), 1));
}

/// The server has not heard that its ANSWER came.
#[test]
fn a_client_may_move_before_the_handshake_is_done() {
    let config = settings().build().unwrap();
    let mut hosts = [Host::accepting(address(1, 1), &config), Host::connecting(client(1))];
    let handle = hosts[1].connect(at(0), hosts[0].address, CONV, &config);
    let [server, moving] = &mut hosts;
    for batch in moving.drive(at(0)) {
        server.receive(at(0), client(1), batch.bytes, batch.stride);
    }
    for batch in server.drive(at(0)) {
        moving.receive(at(0), server.address, batch.bytes, batch.stride);
    }
    moving.address = client(2);
    moving.connection(handle).rebind(at(0)).unwrap();
    moving.connection(handle).write(at(0), b"here I am").unwrap();
    for millis in (0..2_000).step_by(20) {
        deliver_all(at(millis), &mut hosts);
    }
    let session = hosts[0].take_accepted().unwrap();
    assert_eq!(hosts[0].endpoint.route(session).unwrap().0, client(2));
    assert_eq!(hosts[0].read(session), b"here I am");
    assert_eq!(hosts[0].stats().accepted, 1);
}

/// Its first PUSH comes from another address than its HELLO.
#[test]
fn a_client_that_has_only_read_begins_no_second_session_elsewhere() {
    for knows in [false, true] {
        let config = settings().build().unwrap();
        let mut hosts = [Host::accepting(address(1, 1), &config), Host::connecting(client(1))];
        let peer = hosts[0].address;
        let handle = hosts[1].connect(at(0), peer, CONV, &config);
        deliver_all(at(0), &mut hosts);
        deliver_all(at(50), &mut hosts);
        let session = hosts[0].take_accepted().unwrap();
        hosts[0].connection(session).write(at(50), b"220 ready").unwrap();
        deliver_all(at(50), &mut hosts);
        deliver_all(at(150), &mut hosts);
        assert_eq!(hosts[1].read(handle), b"220 ready");
        hosts[1].address = client(2);
        if knows {
            hosts[1].connection(handle).rebind(at(5_000)).unwrap();
        }
        hosts[1].connection(handle).write(at(5_000), b"request").unwrap();
        for millis in (5_000..9_000).step_by(20) {
            deliver_all(at(millis), &mut hosts);
        }
        assert_eq!(hosts[0].stats().accepted, 1);
        assert_eq!(hosts[0].endpoint.route(session).unwrap().0, client(2));
        assert_eq!(hosts[0].read(session), b"request");
    }
}

/// The server has its first PUSH, and the ACK of that was lost: it comes again, from another address.
#[test]
fn a_client_that_sends_its_first_push_again_begins_no_second_session_elsewhere() {
    let config = settings().build().unwrap();
    let mut hosts = [Host::accepting(address(1, 1), &config), Host::connecting(client(1))];
    let peer = hosts[0].address;
    let handle = hosts[1].connect(at(0), peer, CONV, &config);
    deliver_all(at(0), &mut hosts);
    deliver_all(at(50), &mut hosts);
    let session = hosts[0].take_accepted().unwrap();
    hosts[1].connection(handle).write(at(50), b"request").unwrap();
    let [server, moving] = &mut hosts;
    for batch in moving.drive(at(50)) {
        server.receive(at(50), client(1), batch.bytes, batch.stride);
    }
    assert_eq!(server.read(session), b"request");
    assert!(!server.drive(at(60)).is_empty());
    moving.address = client(2);
    for millis in (100..9_000).step_by(20) {
        deliver_all(at(millis), &mut hosts);
    }
    assert_eq!(hosts[0].stats().accepted, 1);
    assert_eq!(hosts[0].endpoint.route(session).unwrap().0, client(2));
}

/// Its NAT changes its address while nothing but its FIN is under way, and nobody tells it.
#[test]
fn a_client_that_shuts_down_elsewhere_is_followed() {
    let config = settings().keep_alive(None).build().unwrap();
    let mut hosts = [Host::accepting(address(1, 1), &config), Host::connecting(client(1))];
    let peer = hosts[0].address;
    let handle = hosts[1].connect(at(0), peer, CONV, &config);
    hosts[1].connection(handle).write(at(0), b"request").unwrap();
    for millis in (0..2_000).step_by(20) {
        deliver_all(at(millis), &mut hosts);
    }
    let session = hosts[0].take_accepted().unwrap();
    assert_eq!(hosts[0].read(session), b"request");
    hosts[1].address = client(2);
    hosts[1].connection(handle).shutdown(at(2_000));
    for millis in (2_000..8_000).step_by(20) {
        deliver_all(at(millis), &mut hosts);
    }
    assert_eq!(hosts[0].endpoint.route(session).unwrap().0, client(2));
    assert_eq!(hosts[0].connection(session).read(&mut [0]), Err(ReadError::Finished));
}

/// Nobody has anything to send: the session is at the new address all the same.
#[test]
fn an_idle_client_is_followed() {
    let mut world = World::new(4, &settings().build().unwrap());
    for round in 2..6 {
        world.change_address(client(round), true);
        world.run(1_500);
        assert_eq!(world.route(), client(round));
    }
    assert_eq!(world.moves(), 4);
    world.add(10_000, 10_000);
    world.finish(2_000);
}

#[test]
fn a_client_may_come_back_to_an_address() {
    let mut world = World::new(5, &settings().build().unwrap());
    for round in [2, 1, 2, 1] {
        world.add(20_000, 20_000);
        world.run(50);
        world.change_address(client(round), true);
        world.finish(10_000);
        world.run(1_000);
        assert_eq!(world.route(), client(round));
    }
    assert_eq!((world.moves(), world.server.stats().accepted), (4, 1));
}

#[test]
fn data_flows_on_over_bad_paths_whatever_moves_when() {
    for seed in 0..60 {
        let _seed = SeedOnPanic(seed);
        let config = settings().dead_timeout(ms(60_000)).keep_alive(Some(ms(3_000)));
        let config = if seed % 3 == 0 { config.fec(4, 2) } else { config };
        let mut world = World::new(seed, &config.build().unwrap());
        world.loss = [0.0, 0.02, 0.1, 0.2][seed as usize % 4];
        for round in 0..4 {
            let bytes = [0; 2].map(|_| world.rng.within(0..=150_000));
            world.add(bytes[0], bytes[1]);
            let pause = world.rng.within(0..=400);
            world.run(pause);
            let knows = world.rng.chance(0.5);
            world.change_address(client(10 + round), knows);
            if world.rng.chance(0.7) {
                world.finish(90_000);
            }
        }
        world.add(10_000, 10_000);
        world.finish(120_000);
        assert_eq!(world.server.stats().accepted, 1, "no second session of it");
        assert_eq!(world.server.endpoint.len(), 1);
    }
}

#[test]
fn without_extensions_or_a_cipher_that_authenticates_nobody_is_followed() {
    let plain = KcpConfig::builder().extensions(Extensions::Preferred);
    // One cipher, so that no nonce comes twice.
    let on = settings();
    let off = on.clone().extensions(Extensions::Off);
    for (name, server, client_side) in [
        ("no cipher", plain.clone(), plain),
        ("a server without extensions", off.clone(), on.clone()),
        ("a client without extensions", on, off),
    ] {
        let server = server.dead_timeout(ms(5_000)).build().unwrap();
        let client_side = client_side.dead_timeout(ms(5_000)).build().unwrap();
        let mut hosts = [Host::accepting(address(1, 1), &server), Host::connecting(client(1))];
        let peer = hosts[0].address;
        let handle = hosts[1].connect(at(0), peer, CONV, &client_side);
        hosts[1].connection(handle).write(at(0), b"hello").unwrap();
        deliver_all(at(0), &mut hosts);
        deliver_all(at(100), &mut hosts);
        let session = hosts[0].take_accepted().unwrap();
        assert!(!hosts[1].connection(handle).is_followed(), "{name}");
        assert_eq!(hosts[1].connection(handle).rebind(at(100)), Err(RebindError::NotFollowed), "{name}");
        hosts[1].address = client(2);
        hosts[1].connection(handle).write(at(200), b"hello?").unwrap();
        for millis in (200..10_000).step_by(50) {
            deliver_all(at(millis), &mut hosts);
        }
        assert_eq!(hosts[0].endpoint.route(session).unwrap().0, client(1), "{name}");
        assert!(hosts[1].connection(handle).close_reason().is_some(), "{name}: it dies as ever");
        assert_eq!(hosts[0].read(session), b"hello", "{name}");
    }
}

#[test]
fn the_session_that_moves_replaces_one_at_its_new_address_where_there_may_be_one_only() {
    let config = settings().one_session_per_address(true).build().unwrap();
    let mut world = World::new(1, &config);
    // Another client of the same NAT, whose port the first one gets.
    let mut other = Host::connecting(client(2));
    let handle = other.connect(world.now, world.server.address, CONV + 1, &config);
    other.connection(handle).write(world.now, b"hello").unwrap();
    for batch in other.drive(world.now) {
        let now = world.now;
        world.server.receive(now, client(2), batch.bytes, batch.stride);
    }
    let replaced = world.server.take_accepted().unwrap();
    world.change_address(client(2), true);
    world.run(2_000);
    assert_eq!((world.route(), world.moves()), (client(2), 1));
    assert_eq!(world.server.replaced, [replaced]);
    world.add(1_000, 1_000);
    world.finish(1_000);
}

#[test]
fn late_packets_of_the_address_before_begin_nothing() {
    let mut world = World::new(1, &settings().build().unwrap());
    world.change_address(client(2), true);
    world.run(2_000);
    assert_eq!(world.route(), client(2));
    // A first packet that was never received there: sealed anew, so that no replay is found.
    let crypto = aead(KEY);
    let cipher = crypto.cipher();
    let mut packet = vec![0xee; cipher.header_len()];
    packet.extend(first_packet(CONV));
    packet.resize(packet.len() + cipher.trailer_len(), 0);
    cipher.seal(&mut packet).unwrap();
    let (now, accepted) = (world.now, world.server.stats().accepted);
    world.server.receive_one(now, client(1), &packet);
    assert_eq!((world.server.stats().accepted, world.server.endpoint.len()), (accepted, 1));
}

#[test]
fn a_session_that_has_ended_is_found_no_more() {
    let mut world = World::new(1, &settings().build().unwrap());
    let (now, theirs) = (world.now, world.theirs);
    world.server.close(now, theirs);
    world.client.address = client(2);
    world.client.connection(world.ours).rebind(now).unwrap();
    for batch in world.client.drive(now) {
        world.server.receive(now, client(2), batch.bytes, batch.stride);
    }
    assert!(world.server.drive(now).iter().all(|batch| batch.stride <= 64), "a RESET at most");
}
