//! A server and a client whose address may change, on virtual time.

use std::net::SocketAddr;

use kcp9::{
    KcpConfig, KcpConfigBuilder,
    proto::{Extensions, Handle, Instant},
};
use kcp9_simulator::{Rng, ms, payload::Payload};

use crate::{
    ciphers::aead,
    host::{Host, address, client},
    network::deliver_all,
};

pub(super) const KEY: &[u8; 16] = b"the key of both.";
pub(super) const CONV: u32 = 7;

pub(super) fn settings() -> KcpConfigBuilder {
    KcpConfig::builder().extensions(Extensions::Preferred).crypto(aead(KEY))
}

pub(super) fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Where others than the client are.
pub(super) fn elsewhere(number: u32) -> SocketAddr {
    address(0x0b00_0001, 5_000 + number as u16)
}

pub(super) struct Packet {
    pub(super) arrival: Instant,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) bytes: Vec<u8>,
}

/// A server, a client with one session, and the packets under way between them. Both ends write at their leisure.
pub(super) struct World {
    pub(super) now: Instant,
    pub(super) server: Host,
    pub(super) client: Host,
    pub(super) theirs: Handle,
    pub(super) ours: Handle,
    pub(super) flows: [Flow; 2],
    pub(super) rng: Rng,
    pub(super) loss: f64,
    pub(super) under_way: Vec<Packet>,
    /// What goes to addresses that are neither's.
    pub(super) strayed: Vec<Packet>,
}

/// What one end writes and the other one reads.
pub(super) struct Flow {
    pub(super) payload: Payload,
    pub(super) written: u64,
    pub(super) read: u64,
    pub(super) limit: u64,
}

impl World {
    /// A session that both ends know of.
    pub(super) fn new(seed: u64, config: &KcpConfig) -> Self {
        let mut rng = Rng::new(seed);
        let mut server = Host::accepting(address(1, 1), config);
        let mut client = Host::connecting(client(1));
        let ours = client.connect(at(0), server.address, CONV, config);
        client.connection(ours).write(at(0), b"?").unwrap();
        let mut hosts = [server, client];
        deliver_all(at(0), &mut hosts);
        [server, client] = hosts;
        let theirs = server.take_accepted().unwrap();
        server.connection(theirs).write(at(0), b"!").unwrap();
        let mut hosts = [server, client];
        deliver_all(at(0), &mut hosts);
        deliver_all(at(100), &mut hosts);
        [server, client] = hosts;
        assert_eq!((server.read(theirs), client.read(ours)), (b"?".to_vec(), b"!".to_vec()));
        let flows = [1, 2].map(|_| Flow { payload: Payload::new(rng.next()), written: 0, read: 0, limit: 0 });
        Self {
            now: at(100),
            server,
            client,
            theirs,
            ours,
            flows,
            rng,
            loss: 0.0,
            under_way: Vec::new(),
            strayed: Vec::new(),
        }
    }

    /// The client, or its NAT, has another address. `knows`: the client is told.
    pub(super) fn change_address(&mut self, to: SocketAddr, knows: bool) {
        self.client.address = to;
        if knows {
            self.client.connection(self.ours).rebind(self.now).unwrap();
        }
    }

    /// Where the server sends to.
    pub(super) fn route(&self) -> SocketAddr {
        self.server.endpoint.route(self.theirs).unwrap().0
    }

    pub(super) fn moves(&mut self) -> u64 {
        self.server.connection(self.theirs).stats().extensions.moves
    }

    /// Lets both ends write so many bytes more.
    pub(super) fn add(&mut self, from_client: u64, from_server: u64) {
        self.flows[0].limit += from_client;
        self.flows[1].limit += from_server;
    }

    pub(super) fn is_done(&self) -> bool {
        self.flows.iter().all(|flow| flow.read == flow.limit)
    }

    /// One step: what has arrived, what the applications do, and what is sent by that. `tap` sees each packet of the two, with
    /// its time of arrival, even if it gets lost, and may add others.
    pub(super) fn step(&mut self, tap: &mut impl FnMut(&Packet) -> Vec<Packet>) {
        let now = self.now;
        let mut arrived: Vec<_> = self.under_way.extract_if(.., |packet| packet.arrival <= now).collect();
        arrived.sort_by_key(|packet| packet.arrival);
        for packet in arrived {
            if packet.to == self.server.address {
                self.server.receive_one(now, packet.from, &packet.bytes);
            } else if packet.to == self.client.address {
                self.client.receive_one(now, packet.from, &packet.bytes);
            } else {
                self.strayed.push(packet);
            }
        }
        let [up, down] = &mut self.flows;
        up.run(now, (&mut self.client, self.ours), (&mut self.server, self.theirs));
        down.run(now, (&mut self.server, self.theirs), (&mut self.client, self.ours));
        for host in [&mut self.server, &mut self.client] {
            let from = host.address;
            for batch in host.drive(now) {
                for bytes in batch.bytes.chunks(batch.stride) {
                    let arrival = now + ms(15 + self.rng.within(0..=10));
                    let packet = Packet { arrival, from, to: batch.to, bytes: bytes.to_vec() };
                    self.under_way.extend(tap(&packet));
                    if !self.rng.chance(self.loss) {
                        self.under_way.push(packet);
                    }
                }
            }
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        let arrivals = self.under_way.iter().map(|packet| packet.arrival);
        arrivals.chain(self.server.poll_timeout()).chain(self.client.poll_timeout()).min()
    }

    /// Goes on until `end`, or until `done`. Returns whether that came.
    pub(super) fn run_until(
        &mut self,
        end: Instant,
        tap: &mut impl FnMut(&Packet) -> Vec<Packet>,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        loop {
            self.step(tap);
            if done(self) {
                return true;
            }
            match self.next() {
                Some(next) if next < end => self.now = next.max(self.now + ms(1)),
                _ => {
                    self.now = end;
                    return false;
                }
            }
        }
    }

    /// Goes on for so many milliseconds, with nobody in between.
    pub(super) fn run(&mut self, millis: u64) {
        self.run_until(self.now + ms(millis), &mut |_| Vec::new(), |_| false);
    }

    /// Goes on until everything has arrived. Returns how many milliseconds that took.
    pub(super) fn finish(&mut self, limit: u64) -> u64 {
        let begin = self.now;
        let done = self.run_until(begin + ms(limit), &mut |_| Vec::new(), |world| world.is_done());
        let reasons = [self.client.connection(self.ours), self.server.connection(self.theirs)];
        let reasons = reasons.map(|connection| connection.close_reason());
        assert!(done, "not everything arrived in {limit} ms: {reasons:?}");
        (self.now - begin).as_millis() as u64
    }
}

impl Flow {
    fn run(&mut self, now: Instant, from: (&mut Host, Handle), to: (&mut Host, Handle)) {
        let mut bytes = [0; 4_000];
        while self.written < self.limit {
            let len = bytes.len().min((self.limit - self.written) as usize);
            self.payload.fill(self.written, &mut bytes[..len]);
            let Ok(count) = from.0.connection(from.1).write(now, &bytes[..len]) else { break };
            self.written += count as u64;
        }
        let read = to.0.read(to.1);
        assert_eq!(self.payload.first_difference(self.read, &read), None);
        self.read += read.len() as u64;
    }
}
