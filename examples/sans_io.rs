//! The protocol without sockets, clock or runtime: two ends in one thread, a lossy network in a `Vec`, virtual time.
//!
//! The client uploads half a mebibyte, the server sends every byte back, and the client compares. What a program does
//! around a [`Connection`] is all here, in the order in which it is done ([`Peer::drive`]); with a socket and a real
//! clock it is the same.
//!
//! ```text
//! cargo run --no-default-features --example sans_io
//! ```

use std::{collections::VecDeque, process::ExitCode, time::Duration};

use kcp9::{
    KcpConfig,
    proto::{Connection, Event, Instant, WriteError},
};

/// What is uploaded, and comes back.
const TRANSFER: usize = 512 * 1_024;
/// One way through the network.
const DELAY: Duration = Duration::from_millis(25);
/// One packet in this many is lost.
const LOSS: u32 = 10;
/// One in this many overtakes others.
const OVERTAKING: u32 = 100;
/// Virtual time after which something must be wrong.
const TIME_LIMIT: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let config = KcpConfig::builder().send_window(256).recv_window(256).build().expect("settings in range");

    // Both ends must agree on the conversation. A real client picks it at random (`random_conv`), a real server takes
    // it from the first packet (`peek_conv`).
    let conv = 0x5eed;
    let mut now = Instant::ZERO;
    let mut client = Peer::new(Connection::new(conv, &config, now));
    let mut server = Peer::new(Connection::new(conv, &config, now));
    let (mut upstream, mut downstream) = (Network::new(1), Network::new(2));

    let sent: Vec<u8> = (0..TRANSFER as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    client.outgoing.extend(&sent);
    client.finished_writing = true;

    loop {
        client.drive(now, &mut downstream, &mut upstream);
        // The server's application: everything that has come goes back.
        server.outgoing.extend(server.received.drain(..));
        server.drive(now, &mut upstream, &mut downstream);

        if client.received.len() >= sent.len() && client.flushed {
            break;
        }

        // Wait for whatever comes first: a packet on the network, or a deadline of either end. An idle session has
        // none, and would be left alone until its application or the network has something for it.
        let wakeups = [
            upstream.next_arrival(),
            downstream.next_arrival(),
            client.connection.poll_timeout(),
            server.connection.poll_timeout(),
        ];
        match wakeups.into_iter().flatten().min() {
            Some(next) if next - Instant::ZERO < TIME_LIMIT => now = next,
            _ => {
                eprintln!("stuck at {now:?} with {} of {} bytes back", client.received.len(), sent.len());
                return ExitCode::FAILURE;
            }
        }
    }

    if client.received != sent {
        eprintln!("the bytes that came back are not those sent");
        return ExitCode::FAILURE;
    }
    println!("{TRANSFER} bytes there and back in {now:?} of virtual time, as they were sent");
    for (name, peer, network) in [("client", &client, &upstream), ("server", &server, &downstream)] {
        let stats = peer.connection.stats();
        println!(
            "{name}: {} packets sent, {} of them lost; {} segments resent of {}; round trip {:?}",
            stats.udp.packets_sent,
            network.lost,
            stats.recovery.resends(),
            stats.segments.push_sent,
            stats.path.rtt,
        );
    }
    ExitCode::SUCCESS
}

/// One end: the protocol, and an application with bytes to write and a place for those it reads.
struct Peer {
    connection: Connection,
    outgoing: VecDeque<u8>,
    received: Vec<u8>,
    /// Nothing will be added to `outgoing`.
    finished_writing: bool,
    /// The other end has acknowledged everything.
    flushed: bool,
    /// Reused for every packet batch.
    buffer: Vec<u8>,
}

impl Peer {
    fn new(connection: Connection) -> Self {
        Self {
            connection,
            outgoing: VecDeque::new(),
            received: Vec::new(),
            finished_writing: false,
            flushed: false,
            buffer: vec![0; 65_536],
        }
    }

    /// Everything that there is to do at `now`.
    fn drive(&mut self, now: Instant, from: &mut Network, to: &mut Network) {
        // 1. Input: packets that have arrived, then deadlines that have come.
        while let Some(mut packet) = from.arrived(now) {
            // A packet that is none of ours harms nothing; a server would count the error.
            if let Err(error) = self.connection.handle_packet(now, &mut packet) {
                eprintln!("dropped: {error}");
            }
        }
        if self.connection.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.connection.handle_timeout(now);
        }

        // 2. The application. Events say when it is worth trying again; asking every time, as here, works as well.
        self.read();
        self.write(now);

        // 3. Output: packets back to back in one buffer, all of one size but the last, ready for one GSO send.
        while let Some(transmit) = self.connection.poll_transmit(now, &mut self.buffer) {
            for packet in self.buffer[..transmit.len].chunks(transmit.stride) {
                to.send(now, packet);
            }
        }

        // 4. What has happened meanwhile. The deadline to wait for is asked for in `main`.
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Flushed => self.flushed = true,
                Event::Closed(reason) => eprintln!("closed: {reason}"),
                // `Readable` and `Writable`: a runtime would wake the tasks that wait to read or write.
                _ => {}
            }
        }
    }

    fn read(&mut self) {
        let mut chunk = [0; 4_096];
        while let Ok(count) = self.connection.read(&mut chunk) {
            self.received.extend_from_slice(&chunk[..count]);
        }
    }

    fn write(&mut self, now: Instant) {
        while !self.outgoing.is_empty() {
            let (front, _) = self.outgoing.as_slices();
            match self.connection.write(now, front) {
                Ok(count) => drop(self.outgoing.drain(..count)),
                // The queue is full: back pressure, until ACKs make room.
                Err(WriteError::Blocked) => return,
                Err(error) => {
                    eprintln!("write: {error}");
                    self.outgoing.clear();
                }
            }
        }
        if self.finished_writing {
            // Everything written is still delivered, and `Event::Flushed` tells when. The peer is not told: KCP has no
            // segment for it, so protocols say in their own bytes where their data ends.
            self.connection.shutdown(now);
        }
    }
}

/// One direction of a network that delays, loses and reorders packets, the same in every run.
struct Network {
    packets: Vec<(Instant, Vec<u8>)>,
    random: u32,
    lost: u64,
}

impl Network {
    const fn new(seed: u32) -> Self {
        Self { packets: Vec::new(), random: seed, lost: 0 }
    }

    fn send(&mut self, now: Instant, packet: &[u8]) {
        if self.one_in(LOSS) {
            self.lost += 1;
            return;
        }
        let delay = if self.one_in(OVERTAKING) { DELAY / 2 } else { DELAY };
        self.packets.push((now + delay, packet.to_vec()));
    }

    fn arrived(&mut self, now: Instant) -> Option<Vec<u8>> {
        let at = self.packets.iter().position(|(arrival, _)| *arrival <= now)?;
        Some(self.packets.remove(at).1)
    }

    fn next_arrival(&self) -> Option<Instant> {
        self.packets.iter().map(|(arrival, _)| *arrival).min()
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.random >> 16).is_multiple_of(count)
    }
}
