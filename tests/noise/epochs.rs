//! Keys change while a session goes on, over a path that loses, doubles and reorders, and while its client moves to another address. On
//! virtual time. A failure prints its seed.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use kcp9::{
    KcpConfig,
    proto::{
        Connection, Instant, SessionSeed, WriteError,
        noise::{Noise, Pattern, SessionCipher},
    },
};
use kcp9_simulator::{LinkSettings, Rng, link::Link, ms, payload::Payload};

use crate::{
    ends::Keys,
    virtual_ends::{SERVER, SeedOnPanic, Server, address, client_address, driven},
};

const START: Instant = Instant::from_millis(1_000);
/// After so long a key is used no more (R101).
const HOUR: Duration = Duration::from_secs(3_600);

/// What one end writes and the other one reads.
struct Flow {
    payload: Payload,
    written: u64,
    read: u64,
}

impl Flow {
    const fn new(key: u64) -> Self {
        Self { payload: Payload::new(key), written: 0, read: 0 }
    }

    fn write(&mut self, connection: &mut Connection, now: Instant, len: usize) {
        match connection.write(now, self.payload.bytes(self.written, len)) {
            Ok(len) => self.written += len as u64,
            Err(error) => assert_eq!(error, WriteError::Blocked),
        }
    }

    fn read(&mut self, connection: &mut Connection) {
        let mut bytes = [0; 4_096];
        while let Ok(len) = connection.read(&mut bytes) {
            assert_eq!(self.payload.first_difference(self.read, &bytes[..len]), None, "other bytes");
            self.read += len as u64;
        }
    }
}

/// A client that may move, its server, and what is under way between them.
struct World {
    now: Instant,
    server: Server,
    client: Connection,
    /// Where the client is.
    at: SocketAddr,
    links: [Link; 2],
    /// From where, to where, by arrival and order of sending.
    under_way: BTreeMap<(Instant, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    sent: u64,
    /// From the client, and to it.
    flows: [Flow; 2],
    /// Packets that neither end had a key for, while the two agreed on keys: what is in the clear may come late.
    unopened: [u64; 2],
}

impl World {
    fn new(
        seed: u64,
        [client, server]: [Noise; 2],
        link: &LinkSettings,
        settings: impl Fn(Noise) -> KcpConfig,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let links = [1, 2].map(|_| Link::new(link.clone(), rng.fork()));
        let mut server = Server::new(settings(server), seed ^ 1);
        (server.echoes, server.follows) = (false, true);
        let own = SessionSeed::new(&mut rng);
        let client = Connection::connect_with_noise(7, &settings(client), START, own, &mut rng).unwrap();
        let flows = [Flow::new(rng.next()), Flow::new(rng.next())];
        let at = client_address(1);
        Self {
            now: START,
            server,
            client,
            at,
            links,
            under_way: BTreeMap::new(),
            sent: 0,
            flows,
            unopened: [0; 2],
        }
    }

    /// The one session of the server.
    fn accepted(&mut self) -> &mut Connection {
        assert_eq!((self.server.accepted, self.server.sessions.len()), (1, 1));
        self.server.sessions.values_mut().next().unwrap()
    }

    fn write(&mut self, from: usize, len: usize) {
        let now = self.now;
        let connection = if from == 0 {
            &mut self.client
        } else {
            self.server.sessions.values_mut().next().expect("the session lives")
        };
        self.flows[from].write(connection, now, len);
    }

    fn send(&mut self, up: bool, from: SocketAddr, to: SocketAddr, packet: Vec<u8>) {
        let arrivals = self.links[usize::from(up)].send(self.now, &packet);
        for arrival in arrivals.into_iter().flatten() {
            self.sent += 1;
            self.under_way.insert((arrival, self.sent), (from, to, packet.clone()));
        }
    }

    /// Does what is due, and goes to what comes next, `limit` at the latest.
    fn step(&mut self, limit: Instant) {
        let now = self.now;
        let later = self.under_way.split_off(&(now, u64::MAX));
        for (from, to, mut packet) in std::mem::replace(&mut self.under_way, later).into_values() {
            if to == address(SERVER) {
                self.server.receive(now, from, &packet);
            } else if to == self.at {
                let _ = self.client.handle_packet(now, &mut packet);
            }
        }
        self.flows[1].read(&mut self.client);
        for session in self.server.sessions.values_mut() {
            self.flows[0].read(session);
        }
        for packet in driven(&mut self.client, now) {
            self.send(true, self.at, address(SERVER), packet);
        }
        for (to, packet) in self.server.drive(now) {
            self.send(false, address(SERVER), to, packet);
        }
        assert_eq!(self.client.close_reason(), None, "at {now:?}");
        let timers = self.server.sessions.values().filter_map(|session| session.poll_timeout());
        let timers = timers.chain(self.client.poll_timeout());
        let arrival = self.under_way.first_key_value().map(|((at, _), _)| *at);
        let next = timers.chain(arrival).min().unwrap_or(limit);
        self.now = next.max(now + Duration::from_micros(100)).min(limit);
    }

    fn run_until(&mut self, end: Instant) {
        while self.now < end {
            self.step(end);
        }
        self.step(end);
    }

    /// These ends write ten times a second.
    fn write_until(&mut self, end: Instant, writes: [bool; 2], rng: &mut Rng) {
        while self.now < end {
            for from in [0, 1].into_iter().filter(|from| writes[*from]) {
                self.write(from, rng.size(1..=400));
            }
            self.run_until((self.now + ms(100)).min(end));
        }
    }

    /// How often each end has changed its keys. The session is over then.
    fn key_changes(&mut self) -> [u64; 2] {
        let client = self.client.take_session_keys().unwrap();
        let server = self.accepted().take_session_keys().unwrap();
        [client.key_changes(), server.key_changes()]
    }

    fn forged(&mut self) -> [u64; 2] {
        [self.client.stats(), self.accepted().stats()].map(|stats| stats.udp.forged)
    }

    fn check_that_all_has_arrived(&mut self) {
        for flow in &self.flows {
            assert_eq!(flow.read, flow.written, "bytes are missing");
        }
        // Nothing was damaged, so each end has had a key for whatever came.
        assert_eq!(self.forged(), self.unopened);
        let hash = self.client.handshake_hash();
        assert!(hash.is_some() && hash == self.accepted().handshake_hash());
    }
}

/// Over two changes of keys. Within some seconds of each, before or after, the client moves.
fn run(seed: u64) {
    let _seed = SeedOnPanic(seed);
    let mut rng = Rng::new(seed);
    let keys = Keys::new(1);
    let pattern = Pattern::all().nth(seed as usize % 5).unwrap();
    let cipher = *rng.choose(&[SessionCipher::Aes256Gcm, SessionCipher::ChaCha20Poly1305]);
    let noise = [keys.initiator(pattern).with_cipher(cipher).into(), keys.responder(pattern).into()];
    let link = LinkSettings {
        jitter: ms(rng.within(0..=40)),
        duplicate: 0.05,
        reorder: 0.1,
        reorder_delay: ms(300),
        ..LinkSettings::delay(ms(rng.within(1..=80))).loss(rng.within(0..=20) as f64 / 100.0)
    };
    // In a session of which nothing is heard around the change, the first word behind it is of whoever has something to say.
    let rests = rng.chance(0.3);
    let knows = rests || rng.chance(0.5);
    let writes = *rng.choose(&[[true, true], [true, false], [false, true]]);
    let mut world = World::new(seed, noise, &link, |noise| {
        let keep_alive = (!rests).then_some(Duration::from_secs(5));
        let builder = KcpConfig::builder().noise(noise).keep_alive(keep_alive);
        let builder = builder.dead_timeout(Duration::from_secs(120));
        if seed.is_multiple_of(3) { builder.fec(5, 2).build().unwrap() } else { builder.build().unwrap() }
    });
    world.write(0, 100);
    world.run_until(START + Duration::from_secs(10));
    world.unopened = world.forged();
    world.write(1, 100);
    for nth in 1..=2 {
        let change = START + HOUR * nth;
        let (before, after) = (Duration::from_secs(20), Duration::from_secs(40));
        let moves = change - START + rng.duration(2 * before);
        let moves = START + (moves - before);
        if rests {
            world.run_until(moves);
        } else {
            world.run_until(START + (change - START - before));
            world.write_until(moves, writes, &mut rng);
        }
        world.at = client_address(1 + nth as usize);
        if knows {
            world.client.rebind(world.now).unwrap();
        }
        if rests {
            world.run_until(change + Duration::from_secs(3));
        }
        world.write_until(change + after, writes, &mut rng);
    }
    // Both have spoken under the last keys, and what was lost is sent again.
    (0..2).for_each(|from| world.write(from, 100));
    world.run_until(world.now + Duration::from_secs(60));
    world.check_that_all_has_arrived();
    let moves = world.accepted().stats().extensions.moves;
    let handle = *world.server.sessions.keys().next().unwrap();
    assert_eq!((moves, world.server.endpoint.route(handle).unwrap().0), (2, client_address(3)));
    assert_eq!(world.key_changes(), [2, 2]);
}

#[test]
fn a_session_goes_on_while_keys_change_and_its_client_moves() {
    (0..30).for_each(run);
}

#[test]
#[ignore = "half a minute: cargo test -p kcp9-tests --release --test noise -- --ignored many_seeds"]
fn a_session_goes_on_while_keys_change_and_its_client_moves_for_many_seeds() {
    (0..1_000).for_each(run);
}

/// A session that only keeps itself alive changes its keys, too, once an hour.
#[test]
fn keep_alives_change_keys_once_an_hour() {
    let keys = Keys::new(1);
    for pattern in Pattern::all() {
        let noise = [keys.initiator(pattern).into(), keys.responder(pattern).into()];
        let path = LinkSettings::delay(ms(20));
        let mut world =
            World::new(1, noise, &path, |noise| KcpConfig::builder().noise(noise).build().unwrap());
        world.write(0, 1);
        world.run_until(START + HOUR * 3 + HOUR / 2);
        (0..2).for_each(|from| world.write(from, 1_000));
        world.run_until(world.now + Duration::from_secs(1));
        world.check_that_all_has_arrived();
        assert_eq!(world.key_changes(), [3, 3], "{pattern}");
    }
}

/// A question that a client asks from elsewhere comes when its key is the one before: what comes from elsewhere is opened on trial, under
/// the keys of now. Such a question is as good as lost, and the next one counts.
#[test]
fn a_question_under_the_key_before_is_lost_and_the_next_one_moves_the_session() {
    let keys = Keys::new(1);
    for (asks_at, is_asked_there) in
        [(HOUR / 2, true), (HOUR - ms(10), false), (HOUR + Duration::from_secs(1), true)]
    {
        let noise = [keys.initiator(Pattern::Nk).into(), keys.responder(Pattern::Nk).into()];
        let mut world = World::new(1, noise, &LinkSettings::default(), |noise| {
            KcpConfig::builder().noise(noise).build().unwrap()
        });
        let (there, here) = (client_address(2), world.at);
        world.write(0, 1);
        world.run_until(START + asks_at);
        world.write(0, 1);
        world.run_until(START + asks_at);
        // Its NAT sends it elsewhere for one packet, which takes its time.
        world.client.rebind(world.now).unwrap();
        let late = driven(&mut world.client, world.now);
        assert!(!late.is_empty(), "a question, and what was not acknowledged");
        world.run_until(world.now + ms(20));
        (0..2).for_each(|from| world.write(from, 100));
        world.run_until(world.now + ms(1));
        late.iter().for_each(|packet| world.server.receive(world.now, there, packet));
        let sent = world.server.drive(world.now);
        assert_eq!(sent.iter().any(|(to, _)| *to == there), is_asked_there, "at {asks_at:?}");
        for (to, packet) in sent {
            world.send(false, address(SERVER), to, packet);
        }
        world.run_until(world.now + Duration::from_secs(10));
        (0..2).for_each(|from| world.write(from, 100));
        world.run_until(world.now + Duration::from_secs(10));
        let handle = *world.server.sessions.keys().next().unwrap();
        assert_eq!(world.server.endpoint.route(handle).unwrap().0, here, "it is still here");
        world.at = there;
        world.client.rebind(world.now).unwrap();
        (0..2).for_each(|from| world.write(from, 100));
        world.run_until(world.now + Duration::from_secs(10));
        assert_eq!(world.server.endpoint.route(handle).unwrap().0, there);
        world.check_that_all_has_arrived();
        let changes = u64::from(asks_at >= HOUR - ms(10));
        assert_eq!(world.key_changes(), [changes, changes]);
    }
}
