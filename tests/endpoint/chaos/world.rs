//! The hosts, the path between them, and what befalls them.

use std::{net::SocketAddr, time::Duration};

use kcp9::{
    KcpConfig,
    crypto::PacketCrypto,
    proto::{CloseReason, CookiePolicy, Extensions, Handle, Instant},
};
use kcp9_simulator::{LinkSettings, Rng, ms};

use super::application::{Application, check};
use crate::{
    ciphers::aead,
    host::{Host, address, client},
    network::{Network, SeedOnPanic},
};

const CLIENTS: usize = 3;
const SESSIONS: usize = 8;
/// Until when things happen. Behind it the path is perfect.
const CHAOS: Duration = ms(20_000);
/// By then every session has ended, and every record of one is forgotten.
const END: Instant = Instant::from_millis(400_000);
/// How long the path or a stranger keeps a packet, and some more: clients send the first ones again.
const LONGEST_WAY: Duration = ms(4_000);
const KEEP: Duration = ms(6_000);
/// Of the number that each session begins with.
const HEAD: usize = 8;

/// A session as its client sees it.
struct Session {
    host: usize,
    conv: u32,
    began_at: Instant,
    /// When it ended at its client.
    ended_at: Instant,
    /// `None` when it has ended there, or the client was killed.
    handle: Option<Handle>,
    key: usize,
    client: Application,
    /// The ends that the server had of it, with that of each life.
    server: Option<Application>,
    /// It lost an end or its key, so it may end in any way.
    harmed: bool,
    /// The server was restarted since, so it does not know the beginning of this session any more when a stranger repeats it.
    forgotten: bool,
}

/// A session as the server sees it: first of an unknown client.
struct Accepted {
    handle: Handle,
    head: Vec<u8>,
    /// Which session it is, and the server's end of it.
    known: Option<(usize, Application)>,
    /// It was begun from elsewhere than where its client is, by a first packet that a stranger kept from the server.
    strange: bool,
}

pub(super) struct World {
    now: Instant,
    rng: Rng,
    network: Network,
    /// The server, and its clients.
    hosts: Vec<Host>,
    /// How often something was restarted.
    lives: u64,
    addresses: u32,
    /// Each key with the time when the server drops it.
    keys: Vec<(PacketCrypto, Instant)>,
    /// Which key each client calls with.
    key_of: [usize; CLIENTS + 1],
    /// How often anything had been restarted when the client was.
    life_of: [u32; CLIENTS + 1],
    shape: Shape,
    sessions: Vec<Session>,
    accepted: Vec<Accepted>,
}

/// Settings of all ends.
#[derive(Clone, Copy)]
struct Shape {
    fec: (usize, usize),
    window: u32,
    cookies: CookiePolicy,
    /// Bytes that the buffers of all sessions of a host share.
    memory: usize,
    /// Whether sessions have the numbers of sessions before. Strangers repeat nothing then: a session cannot tell what they kept of
    /// another one of its number, key and addresses.
    convs_come_again: bool,
}

const NEVER: Instant = Instant::from_millis(1 << 40);

fn key(number: usize) -> PacketCrypto {
    aead(&[number as u8 + 1; 16])
}

impl World {
    pub(super) fn run(seed: u64) {
        let _seed = SeedOnPanic(seed);
        let mut world = Self::new(seed);
        let mut next = world.now;
        while world.now < Instant::ZERO + CHAOS {
            if next <= world.now {
                world.something_happens();
                next = world.now + world.rng.duration(ms(400));
            }
            world.step(Some(next));
        }
        world.network.calm_down();
        while world.is_anything_left() {
            assert!(world.now < END, "something is left: {}", world.describe());
            world.step(None);
        }
        for (number, session) in world.sessions.iter().enumerate().filter(|(_, session)| !session.harmed) {
            let server = session.server.as_ref();
            match server {
                Some(server) => check(number, &session.client, server),
                // Aborted before the server heard of it, or nothing was ever to be told.
                None => assert!(session.client.result.is_some(), "session {number}"),
            }
        }
    }

    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let sometimes = |rng: &mut Rng, max: f64| {
            if rng.chance(0.7) { max * rng.within(0..=100) as f64 / 100.0 } else { 0.0 }
        };
        let path = LinkSettings {
            loss: sometimes(&mut rng, 0.2),
            delay: Duration::from_micros(rng.magnitude(0..=100_000)),
            jitter: Duration::from_micros(rng.magnitude(0..=30_000)),
            reorder: sometimes(&mut rng, 0.2),
            reorder_delay: ms(rng.magnitude(1..=200)),
            duplicate: sometimes(&mut rng, 0.2),
            corrupt: sometimes(&mut rng, 0.1),
            ..LinkSettings::default()
        };
        let shape = Shape {
            fec: *rng.choose(&[(0, 0), (0, 0), (3, 1), (10, 3)]),
            window: *rng.choose(&[8, 32, 128]),
            cookies: *rng.choose(&[CookiePolicy::UnderLoad, CookiePolicy::Always]),
            // Drawn apart, so that a seed means what it did before there was this.
            memory: *Rng::new(!seed).choose(&[1 << 14, 1 << 16, 1 << 30]),
            convs_come_again: rng.chance(0.4),
        };
        let mut world = Self {
            now: Instant::ZERO,
            network: Network::new(path, rng.fork()),
            rng,
            hosts: Vec::new(),
            lives: 0,
            addresses: 100,
            keys: vec![(key(0), NEVER)],
            key_of: [0; CLIENTS + 1],
            life_of: [1; CLIENTS + 1],
            shape,
            sessions: Vec::new(),
            accepted: Vec::new(),
        };
        let server = world.new_server();
        world.hosts.push(server);
        for _ in 0..CLIENTS {
            let address = world.new_address();
            let host = world.new_client(address);
            world.hosts.push(host);
        }
        world
    }

    fn config(&self, key: usize) -> KcpConfig {
        let builder = KcpConfig::builder()
            .crypto(self.keys[key].0.clone())
            .extensions(Extensions::Preferred)
            .keep_alive(Some(ms(5_000)))
            .dead_timeout(ms(40_000))
            .linger(ms(60_000))
            .fec(self.shape.fec.0, self.shape.fec.1)
            .send_window(self.shape.window)
            .recv_window(self.shape.window)
            .cookies(self.shape.cookies);
        builder.build().unwrap()
    }

    fn new_address(&mut self) -> SocketAddr {
        self.addresses += 1;
        client(self.addresses)
    }

    fn new_server(&mut self) -> Host {
        self.lives += 1;
        let config = self.config(self.keys.len() - 1);
        Host::accepting(address(1, 9), &config)
            .in_its_life(self.lives, Some(&config))
            .with_memory(self.shape.memory)
    }

    fn new_client(&mut self, address: SocketAddr) -> Host {
        self.lives += 1;
        Host::connecting(address).in_its_life(self.lives, None).with_memory(self.shape.memory)
    }

    // ---- What happens ----

    fn something_happens(&mut self) {
        let host = self.rng.size(1..=CLIENTS);
        match self.rng.within(0..=99) {
            0..=39 => self.open(host),
            40..=54 => self.change_address(host),
            55..=58 => self.kill(host),
            59 => self.restart_server(),
            60..=64 => self.rotate(),
            _ => self.flood(),
        }
    }

    fn open(&mut self, host: usize) {
        if self.sessions.len() >= SESSIONS {
            return;
        }
        let server = self.hosts[0].address;
        // All sessions of one peer have one key.
        if self.hosts[host].endpoint.is_empty() {
            self.key_of[host] = self.keys.len() - 1;
        }
        let key = self.key_of[host];
        let config = self.config(key);
        // At random they hardly ever come again. If they do, it is once both ends have ended the session before.
        let conv = match self.shape.convs_come_again {
            true => self.life_of[host] * 4 + self.rng.size(0..=3) as u32,
            false => self.sessions.len() as u32 + 1,
        };
        // The server may know of a session at an address where its client was before.
        let routes =
            self.accepted.iter().filter_map(|accepted| self.hosts[0].endpoint.route(accepted.handle));
        // And the path may still have packets of one. A client waits as long as a server does.
        let just_ended = |session: &Session| {
            (session.host, session.conv) == (host, conv) && self.now - session.ended_at < ms(3_000)
        };
        if self.sessions.iter().any(just_ended) {
            return;
        }
        if self.hosts[host].endpoint.find(server, conv).is_some()
            || routes.into_iter().any(|route| route.1 == conv)
        {
            return;
        }
        let handle = self.hosts[host].connect(self.now, server, conv, &config);
        let number = self.sessions.len() as u64;
        let client = Application::new(number, true, self.now, &mut self.rng);
        let connection = self.hosts[host].connection(handle);
        assert_eq!(connection.write(self.now, &number.to_le_bytes()), Ok(HEAD));
        self.sessions.push(Session {
            conv,
            began_at: self.now,
            ended_at: self.now,
            host,
            handle: Some(handle),
            key,
            client,
            server: None,
            harmed: false,
            forgotten: false,
        });
    }

    fn change_address(&mut self, host: usize) {
        let knows = self.rng.chance(0.5);
        self.harm_open(host);
        self.hosts[host].address = self.new_address();
        for session in self.sessions.iter_mut().filter(|session| session.host == host) {
            let Some(handle) = session.handle else { continue };
            let connection = self.hosts[host].connection(handle);
            // Until the server has answered, what begins a session at the new address begins another one.
            session.harmed |= !connection.is_connected() || !connection.is_followed();
            // The server has ended it, and remembers it at the address before: elsewhere nobody knows of it.
            session.harmed |= session.server.is_some();
            if knows {
                let _ = connection.rebind(self.now);
            }
        }
    }

    /// The client ends without a word, and comes back at the same address or another.
    fn kill(&mut self, host: usize) {
        let address = if self.rng.chance(0.5) { self.hosts[host].address } else { self.new_address() };
        self.hosts[host] = self.new_client(address);
        self.life_of[host] = self.lives as u32;
        for session in self.sessions.iter_mut().filter(|session| session.host == host) {
            session.harmed |= session.handle.take().is_some();
        }
        self.harm_open(host);
    }

    /// Sessions that have ended at this client, and of which the server may have missed that: nobody will tell it.
    fn harm_open(&mut self, host: usize) {
        for session in self.sessions.iter_mut().filter(|session| session.host == host) {
            session.harmed |= session.handle.is_none() && session.server.is_none();
        }
    }

    fn restart_server(&mut self) {
        self.hosts[0] = self.new_server();
        let current = self.keys.len() - 1;
        self.keys[..current].iter_mut().for_each(|key| key.1 = key.1.min(self.now));
        for session in &mut self.sessions {
            session.forgotten = true;
            let Some(handle) = session.handle else { continue };
            session.harmed = true;
            // The new server may get a copy of what began the session at the one before.
            let may_begin_again = self.now - session.began_at <= LONGEST_WAY;
            if !self.hosts[session.host].connection(handle).is_connected() || may_begin_again {
                session.client.may_read_of_two = true;
            }
        }
        for accepted in self.accepted.drain(..) {
            if let Some((number, application)) = accepted.known.filter(|_| !accepted.strange) {
                self.sessions[number].harmed = true;
                self.sessions[number].server = Some(application);
            }
        }
        // Their clients have ended, and the server has not heard of it yet.
        for session in self.sessions.iter_mut().filter(|session| session.server.is_none()) {
            session.harmed = true;
        }
    }

    fn rotate(&mut self) {
        let current = self.keys.len() - 1;
        self.keys[..current].iter_mut().for_each(|key| key.1 = key.1.min(self.now));
        self.keys[current].1 = self.now + KEEP;
        self.keys.push((key(current + 1), NEVER));
        let config = self.config(current + 1);
        self.hosts[0].rotate(self.now, &config, KEEP);
        self.retire();
    }

    fn flood(&mut self) {
        let server = self.hosts[0].address;
        for _ in 0..self.rng.size(1..=20) {
            let stranger = self.new_address();
            let to =
                if self.rng.chance(0.7) { server } else { self.hosts[self.rng.size(1..=CLIENTS)].address };
            let (from, to, bytes) = match self.rng.within(0..=3) {
                0 => {
                    let mut bytes = vec![0; self.rng.size(0..=1_500)];
                    bytes.fill_with(|| self.rng.next() as u8);
                    (stranger, to, bytes)
                }
                // Said once more, by somebody else or in the name of who said it.
                1 | 2 if self.shape.convs_come_again => continue,
                1 | 2 => match self.network.overhear(&mut self.rng) {
                    Some((from, to, bytes)) => {
                        (if self.rng.chance(0.5) { from } else { stranger }, to, bytes)
                    }
                    None => continue,
                },
                _ => {
                    let mut caller = self.new_client(stranger);
                    let config = self.config(self.keys.len() - 1);
                    caller.connect(self.now, server, 1, &config);
                    match caller.drive(self.now).pop() {
                        Some(batch) => (stranger, server, batch.bytes),
                        None => continue,
                    }
                }
            };
            let arrival = self.now + self.rng.duration(ms(3_000));
            self.network.inject(arrival, from, to, bytes);
        }
    }

    // ---- What everybody does ----

    fn step(&mut self, next: Option<Instant>) {
        self.network.receive(self.now, &mut self.hosts);
        self.retire();
        for host in &mut self.hosts {
            host.endpoint.forget_expired(self.now);
        }
        while let Some(handle) = self.hosts[0].take_accepted() {
            self.accepted.push(Accepted { handle, head: Vec::new(), known: None, strange: false });
        }
        self.work();
        self.network.send(self.now, &mut self.hosts);
        self.sweep();
        let due = self.hosts.iter().filter_map(Host::poll_timeout).min();
        let expiry = self.hosts.iter().filter_map(|host| host.endpoint.expires_at()).min();
        let applications = self.sessions.iter().filter(|session| session.handle.is_some());
        let applications = applications.map(|session| &session.client);
        let wish = applications
            .chain(self.accepted.iter().filter_map(|accepted| Some(&accepted.known.as_ref()?.1)))
            .filter_map(Application::next)
            .min();
        let retires = self.hosts[0].endpoint.key_retires_at();
        // Slow readers have their turns.
        let tick =
            Some(self.now + ms(if self.sessions.iter().any(|s| s.handle.is_some()) { 100 } else { 2_000 }));
        let all = [next, due, expiry, wish, retires, self.network.next_arrival(), tick];
        let soonest = all.into_iter().flatten().min().unwrap();
        self.now = soonest.max(self.now);
    }

    /// Sessions whose keys the server has dropped.
    fn retire(&mut self) {
        for handle in self.hosts[0].endpoint.retired_sessions(self.now) {
            self.hosts[0].close(self.now, handle);
        }
        for session in &mut self.sessions {
            let open = session.handle.is_some() || session.server.is_none();
            session.harmed |= open && self.keys[session.key].1 <= self.now;
        }
    }

    fn work(&mut self) {
        for session in &mut self.sessions {
            let Some(handle) = session.handle else { continue };
            session.client.work(self.now, self.hosts[session.host].connection(handle));
        }
        let now = self.now;
        let (server, clients) = self.hosts.split_first_mut().unwrap();
        let (sessions, rng) = (&mut self.sessions, &mut self.rng);
        self.accepted.retain_mut(|accepted| {
            // Another of the same address and number has taken its place, or its key was dropped.
            let Some((peer, _)) = server.endpoint.route(accepted.handle) else {
                if let Some((number, application)) = accepted.known.take().filter(|_| !accepted.strange) {
                    let session = &mut sessions[number];
                    assert!(session.harmed || session.forgotten, "session {number} was replaced");
                    session.server.get_or_insert(application);
                }
                return false;
            };
            let connection = server.connection(accepted.handle);
            accepted.introduce(now, connection, peer, clients, sessions, rng);
            if let Some((_, application)) = &mut accepted.known {
                application.work(now, connection);
            }
            true
        });
    }

    /// Takes away what has ended. All that it had to say is sent.
    fn sweep(&mut self) {
        let now = self.now;
        for session in &mut self.sessions {
            let Some(handle) = session.handle else { continue };
            let connection = self.hosts[session.host].connection(handle);
            let Some(reason) = connection.close_reason() else { continue };
            session.client.read(connection);
            session.client.result = Some(reason);
            session.ended_at = now;
            self.hosts[session.host].close(now, handle);
            session.handle = None;
        }
        let (sessions, rng) = (&mut self.sessions, &mut self.rng);
        let (server, clients) = self.hosts.split_first_mut().unwrap();
        self.accepted.retain_mut(|accepted| {
            let Some((peer, _)) = server.endpoint.route(accepted.handle) else { return true };
            let connection = server.connection(accepted.handle);
            let Some(reason) = connection.close_reason() else { return true };
            accepted.introduce(now, connection, peer, clients, sessions, rng);
            if let Some((number, mut application)) = accepted.known.take() {
                application.read(connection);
                application.result = Some(reason);
                if !accepted.strange {
                    let session = &mut sessions[number];
                    // All is done, and the client has another address by now: there the server knows nothing of it.
                    let elsewhere = clients[session.host - 1].address != peer;
                    let finished = Some(CloseReason::Finished);
                    session.harmed |= elsewhere && [Some(reason), session.client.result].contains(&finished);
                    if !session.forgotten || session.server.is_none() {
                        session.server = Some(application);
                    }
                }
            }
            server.close(now, accepted.handle);
            false
        });
    }

    fn is_anything_left(&self) -> bool {
        self.hosts.iter().any(|host| !host.endpoint.is_empty() || host.endpoint.expires_at().is_some())
    }

    fn describe(&self) -> String {
        let live: Vec<_> =
            self.sessions.iter().enumerate().filter(|(_, session)| session.handle.is_some()).collect();
        let live: Vec<_> =
            live.iter().map(|(number, session)| (number, session.harmed, &session.client)).collect();
        let accepted: Vec<_> = self.accepted.iter().map(|accepted| &accepted.known).collect();
        format!("clients' {live:?}, the server's {accepted:?}")
    }
}

impl Accepted {
    /// Reads which session it is.
    fn introduce(
        &mut self,
        now: Instant,
        connection: &mut kcp9::proto::Connection,
        peer: SocketAddr,
        clients: &[Host],
        sessions: &[Session],
        rng: &mut Rng,
    ) {
        if self.known.is_some() {
            return;
        }
        let mut bytes = [0; HEAD];
        while self.head.len() < HEAD {
            let Ok(count) = connection.read(&mut bytes[..HEAD - self.head.len()]) else { return };
            self.head.extend_from_slice(&bytes[..count]);
        }
        let number = u64::from_le_bytes(self.head[..].try_into().unwrap()) as usize;
        let session = sessions.get(number);
        let session = session.unwrap_or_else(|| panic!("no session begins with {:?}", self.head));
        self.strange = clients[session.host - 1].address != peer && !session.harmed;
        let again = session.server.is_some() && !session.harmed && !session.forgotten && !self.strange;
        assert!(!again, "session {number} was accepted again");
        self.known = Some((number, Application::new(number as u64, false, now, rng)));
    }
}
