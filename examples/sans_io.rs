//! A server and its clients without sockets, clock or runtime: a lossy network in a `Vec`, and virtual time.
//!
//! Three clients upload something, the server sends every byte back, and the clients compare. A stranger sends packets that
//! begin no session. Everything that a program has to do around an [`Endpoint`] and its [`Connection`]s is here, in the
//! order in which it is done:
//!
//! * [`Server::receive`]: packets come in. The endpoint says whose they are, and which ones begin a session.
//! * [`Server::drive`]: what is due is done, the application reads and writes, packets go out, and sessions end.
//!
//! With a `std::net::UdpSocket` and a real clock it is the same: `receive` takes what `recv_from` returned, `Network::send`
//! becomes `send_to`, and the program sleeps until the next deadline.
//!
//! ```text
//! cargo run --no-default-features --example sans_io
//! ```

use std::{
    collections::{BTreeMap, VecDeque},
    error::Error,
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use kcp9::{
    KcpConfig,
    proto::{
        Accepted, Connection, Endpoint, Event, Handle, Instant, Random, Refusal, Routed, SessionSeed,
        random_conv,
    },
};

/// What each client uploads, in bytes.
const UPLOADS: [usize; 3] = [64 << 10, 128 << 10, 256 << 10];
/// One way through the network.
const DELAY: Duration = Duration::from_millis(25);
/// One packet in this many is lost.
const LOSS: u32 = 10;
/// One in this many overtakes others.
const OVERTAKING: u32 = 100;
/// Sessions that the server takes at a time. A real one would count those that its application has not taken yet.
const MAX_SESSIONS: usize = 2;
/// Bytes that the server holds for a client that does not read. Past that it stops reading, too.
const MAX_ECHO: usize = 64 << 10;
/// Virtual time after which something must be wrong.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Randomness for conversation numbers, for sessions, and for the endpoint's hash tables.
struct Entropy;

impl Random for Entropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system has randomness");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // This network has no ECN fields, and so nothing to tell by `Connection::handle_ecn`.
    let config = KcpConfig::builder().send_window(256).recv_window(256).ecn(false).build()?;
    let mut now = Instant::ZERO;
    let mut network = Network { packets: Vec::new(), random: 1, lost: 0 };
    let mut server = Server::new(SocketAddr::from(([192, 0, 2, 1], 4_000)), config.clone());
    let mut clients = Vec::new();
    for (number, size) in (1..).zip(UPLOADS) {
        let address = SocketAddr::from(([198, 51, 100, number], 5_000));
        clients.push(Client::new(address, size, &config, now));
    }
    let stranger = SocketAddr::from(([203, 0, 113, 9], 6_000));
    for packet in [&b"GET / HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n"[..], b"", &[0xff; 1_200]] {
        network.send(now, stranger, server.address, packet);
    }

    loop {
        while let Some(packet) = network.arrived(now) {
            if packet.to == server.address {
                server.receive(now, packet.from, packet.bytes, &mut network);
            } else if let Some(client) = clients.iter_mut().find(|client| client.address == packet.to) {
                client.receive(now, packet.bytes);
            }
        }
        server.drive(now, &mut network)?;
        for client in &mut clients {
            client.drive(now, server.address, &mut network)?;
        }
        if server.endpoint.is_empty() && clients.iter().all(Client::is_done) {
            break;
        }
        // Whatever comes first: a packet, or a deadline. An idle session has no deadline, and is left alone until the
        // network or its application has something for it.
        let deadlines = clients.iter().filter_map(|client| client.connection.poll_timeout());
        let next = deadlines.chain(server.poll_timeout()).chain(network.next_arrival()).min();
        match next {
            Some(next) if next - Instant::ZERO < TIME_LIMIT => now = next,
            _ => return Err(format!("stuck at {now:?}").into()),
        }
    }

    println!(
        "everything came back in {now:?} of virtual time; {} packets were lost on the way",
        network.lost
    );
    for client in &clients {
        let stats = client.connection.stats();
        println!(
            "{}: {} bytes there and back; {} segments resent of {}; round trip {:?}",
            client.address,
            client.sent.len(),
            stats.recovery.resends(),
            stats.segments.push_sent,
            stats.path.rtt,
        );
    }
    let stats = server.endpoint.stats();
    println!(
        "server: {} sessions accepted; packets dropped: {} too short, {} of no session, {} of one that had ended, {} for \
         want of room; {} answered",
        stats.accepted,
        stats.dropped_short,
        stats.dropped_no_session,
        stats.dropped_recently_closed,
        stats.dropped_queue_full,
        stats.replies_sent
    );
    Ok(())
}

/// The server: an endpoint, and its sessions by handle.
struct Server {
    address: SocketAddr,
    config: KcpConfig,
    endpoint: Endpoint,
    sessions: BTreeMap<Handle, Session>,
    /// Packets are written here before they are sent.
    buffer: Vec<u8>,
}

/// A connection, and what its application does: it sends everything back.
struct Session {
    connection: Connection,
    to_send_back: VecDeque<u8>,
    /// How many bytes are to come, once the client has said so.
    expected: Option<u64>,
}

impl Server {
    fn new(address: SocketAddr, config: KcpConfig) -> Self {
        let endpoint = Endpoint::accepting(&config, &mut Entropy);
        Self { address, config, endpoint, sessions: BTreeMap::new(), buffer: vec![0; 65_536] }
    }

    /// Takes in one packet. A socket that receives several packets of one sender at once hands them over as one batch.
    fn receive(&mut self, now: Instant, from: SocketAddr, packet: Vec<u8>, network: &mut Network) {
        let stride = packet.len();
        let mut block = Arc::new(packet.into_boxed_slice());
        // Decrypted in place, where there is a cipher. Nobody else refers to the block yet.
        let Some(bytes) = Arc::get_mut(&mut block) else { return };
        self.endpoint.receive(from, bytes, stride);
        while let Some(routed) = self.endpoint.poll_routed(now, &block) {
            let run = match routed {
                Routed::Session(run) => run,
                Routed::Incoming(incoming) => {
                    if self.sessions.len() == MAX_SESSIONS {
                        // The client sends its first packet again, and may find room then.
                        self.endpoint.refuse(Refusal::QueueFull);
                        continue;
                    }
                    let Some(Accepted { run, .. }) = self.endpoint.accept(now) else { continue };
                    println!("{now:?} server: session {} of {} begins", incoming.conv, from);
                    let seed = SessionSeed::new(&mut Entropy);
                    let mut connection = Connection::accept(incoming.conv, &self.config, now, seed);
                    connection.set_message_at(incoming.message_at);
                    let session = Session { connection, to_send_back: VecDeque::new(), expected: None };
                    self.sessions.insert(run.handle, session);
                    run
                }
                // The client of a session that has ended did not hear the last ACK.
                Routed::Reply(reply) => {
                    network.send(now, self.address, reply.to, self.endpoint.reply());
                    continue;
                }
                _ => continue,
            };
            if let Some(session) = self.sessions.get_mut(&run.handle) {
                session.connection.handle_batch(now, &block, run.range, run.stride);
            }
        }
    }

    /// Does everything that there is to do at `now`.
    fn drive(&mut self, now: Instant, network: &mut Network) -> Result<(), Box<dyn Error>> {
        let mut over = Vec::new();
        for (handle, session) in &mut self.sessions {
            let Some((peer, conv)) = self.endpoint.route(*handle) else { continue };
            if session.connection.poll_timeout().is_some_and(|deadline| deadline <= now) {
                session.connection.handle_timeout(now);
            }
            session.echo(now)?;
            while let Some(transmit) = session.connection.poll_transmit(now, &mut self.buffer) {
                // With an authenticating cipher, the endpoint must know what could be sent back to it.
                self.endpoint.remember_sent(&mut session.connection);
                for packet in self.buffer[..transmit.len].chunks(transmit.stride) {
                    network.send(now, self.address, peer, packet);
                }
            }
            while let Some(event) = session.connection.poll_event() {
                match event {
                    Event::Flushed => {
                        println!("{now:?} server: session {conv} of {peer} has all its bytes back")
                    }
                    Event::Closed(reason) => println!("{now:?} server: session {conv} of {peer}: {reason}"),
                    _ => continue,
                }
                over.push(*handle);
            }
        }
        for handle in over {
            // What its client still sends begins no session. It is answered by what the connection leaves.
            let record = self.sessions.remove(&handle).map(|session| session.connection.record());
            self.endpoint.close(now, handle, record);
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.sessions.values().filter_map(|session| session.connection.poll_timeout()).min()
    }
}

impl Session {
    fn echo(&mut self, now: Instant) -> Result<(), Box<dyn Error>> {
        let mut chunk = [0; 4_096];
        if self.expected.is_none() && self.connection.readable_bytes() >= 8 {
            let mut size = [0; 8];
            self.connection.read(&mut size)?;
            self.expected = Some(u64::from_le_bytes(size));
        }
        let Some(expected) = &mut self.expected else { return Ok(()) };
        while self.to_send_back.len() < MAX_ECHO
            && let Ok(count) = self.connection.read(&mut chunk)
        {
            *expected = expected.saturating_sub(count as u64);
            self.to_send_back.extend(&chunk[..count]);
        }
        write_some(&mut self.connection, now, &mut self.to_send_back);
        if *expected == 0 && self.to_send_back.is_empty() {
            // `Event::Flushed` tells when the client has acknowledged everything.
            self.connection.shutdown(now);
        }
        Ok(())
    }
}

/// Writes as many of `bytes` as there is room for. The rest has to wait until ACKs make room.
fn write_some(connection: &mut Connection, now: Instant, bytes: &mut VecDeque<u8>) {
    while !bytes.is_empty() {
        let (front, _) = bytes.as_slices();
        let Ok(count) = connection.write(now, front) else { return };
        bytes.drain(..count);
    }
}

/// A client: one connection over a socket of its own, which needs no endpoint.
struct Client {
    address: SocketAddr,
    connection: Connection,
    sent: Vec<u8>,
    to_send: VecDeque<u8>,
    received: Vec<u8>,
    buffer: Vec<u8>,
}

impl Client {
    fn new(address: SocketAddr, size: usize, config: &KcpConfig, now: Instant) -> Self {
        let sent: Vec<u8> = (0..size as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        // KCP does not tell the peer where a stream ends, so the application does.
        let to_send = (size as u64).to_le_bytes().into_iter().chain(sent.iter().copied()).collect();
        // The server takes the conversation number from the first packet.
        let (conv, seed) = (random_conv(&mut Entropy), SessionSeed::new(&mut Entropy));
        let connection = Connection::connect(conv, config, now, seed);
        Self { address, connection, sent, to_send, received: Vec::new(), buffer: vec![0; 65_536] }
    }

    fn receive(&mut self, now: Instant, mut packet: Vec<u8>) {
        // A packet that is none of ours does no harm.
        if let Err(error) = self.connection.handle_packet(now, &mut packet) {
            eprintln!("{}: dropped: {error}", self.address);
        }
    }

    fn drive(
        &mut self,
        now: Instant,
        server: SocketAddr,
        network: &mut Network,
    ) -> Result<(), Box<dyn Error>> {
        if self.connection.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.connection.handle_timeout(now);
        }
        let mut chunk = [0; 4_096];
        while let Ok(count) = self.connection.read(&mut chunk) {
            self.received.extend_from_slice(&chunk[..count]);
        }
        write_some(&mut self.connection, now, &mut self.to_send);
        while let Some(transmit) = self.connection.poll_transmit(now, &mut self.buffer) {
            for packet in self.buffer[..transmit.len].chunks(transmit.stride) {
                network.send(now, self.address, server, packet);
            }
        }
        while let Some(event) = self.connection.poll_event() {
            if let Event::Closed(reason) = event {
                return Err(format!("{}: {reason}", self.address).into());
            }
        }
        if !self.sent.starts_with(&self.received) {
            return Err(format!("{}: the bytes that came back are not those sent", self.address).into());
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.received.len() == self.sent.len()
    }
}

/// A network that delays, loses and reorders packets, the same in every run.
struct Network {
    packets: Vec<Packet>,
    random: u32,
    lost: u64,
}

struct Packet {
    arrival: Instant,
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl Network {
    fn send(&mut self, now: Instant, from: SocketAddr, to: SocketAddr, packet: &[u8]) {
        if self.one_in(LOSS) {
            self.lost += 1;
            return;
        }
        let delay = if self.one_in(OVERTAKING) { DELAY / 2 } else { DELAY };
        self.packets.push(Packet { arrival: now + delay, from, to, bytes: packet.to_vec() });
    }

    fn arrived(&mut self, now: Instant) -> Option<Packet> {
        let at = self.packets.iter().position(|packet| packet.arrival <= now)?;
        Some(self.packets.remove(at))
    }

    fn next_arrival(&self) -> Option<Instant> {
        self.packets.iter().map(|packet| packet.arrival).min()
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.random >> 16).is_multiple_of(count)
    }
}
