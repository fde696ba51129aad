//! A UDP relay over real sockets: a bad path between two live programs.
//!
//! Clients send to [`Relay::addr`]. Each client gets a socket of its own towards the server, so that the server sees as many
//! peers. The simulator's [`Link`] decides what becomes of a packet: losses, bursts, delay, jitter, reordering, duplicates,
//! damage, a rate with a queue. There is one link for each direction, which all clients share. The relay sends the packets on
//! at the times that the link says. A [rewriting](Relay::rewriting) relay may send others in a packet's place, too.
//!
//! The system decides in which order packets arrive, so a run cannot be repeated exactly. But the seed fixes which packets are
//! lost by their number, so no run is much luckier than another.
//!
//! Threads do the work, not tasks: packets leave some ten microseconds after their time (Tokio's timers are as coarse as a
//! millisecond), and neither the runtime of a program under test nor its load delays them.

mod counts;
mod schedule;

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use kcp9_simulator::{LinkSettings, Rng, link::Link};

pub use counts::Counts;

use schedule::{Departure, Schedule};

/// Where packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// Is asked about every packet that comes, before the path has its way: adds to the list what goes on in its place.
pub type Rewrite = Box<dyn FnMut(Direction, &[u8], &mut Vec<Vec<u8>>) + Send>;

/// A relay in front of one server. Dropping it ends it; packets still under way are lost.
pub struct Relay {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

impl Relay {
    /// Starts a relay to `server`. Packets meet a path of these settings in each direction; `seed` decides which are lost.
    ///
    /// # Errors
    /// If there is no socket to be had.
    pub fn start(server: SocketAddr, path: &LinkSettings, seed: u64) -> io::Result<Self> {
        Self::new(server, path, seed, None)
    }

    /// A relay over a perfect path that sends on what `rewrite` puts in a packet's place.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn rewriting(server: SocketAddr, rewrite: Rewrite) -> io::Result<Self> {
        Self::new(server, &LinkSettings::default(), SEED, Some(rewrite))
    }

    fn new(server: SocketAddr, path: &LinkSettings, seed: u64, rewrite: Option<Rewrite>) -> io::Result<Self> {
        let front = Arc::new(socket()?);
        let addr = front.local_addr()?;
        let mut rng = Rng::new(seed);
        let shared = Arc::new(Shared {
            started: Instant::now(),
            ways: [(); 2].map(|()| Mutex::new(Way::new(Link::new(path.clone(), rng.fork())))),
            rewrite: rewrite.map(Mutex::new),
            schedule: Schedule::default(),
            ports: AtomicU64::new(0),
            gone: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        thread::spawn(move || own.schedule.run(&own.gone));
        let own = Arc::clone(&shared);
        thread::spawn(move || own.receive_from_clients(&front, server));
        Ok(Self { addr, shared })
    }

    /// A relay that only loses packets: a `loss` of them (0 to 1), in each direction.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn lossy(server: SocketAddr, loss: f64) -> io::Result<Self> {
        Self::start(server, &LinkSettings::default().loss(loss), SEED)
    }

    /// Where clients send to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the path, in both directions.
    pub fn set_path(&self, mut change: impl FnMut(&mut LinkSettings)) {
        for way in [TO_SERVER, TO_CLIENT] {
            change(&mut self.shared.way(way).link.settings);
        }
    }

    /// Changes the loss: 1 is a black hole, 0 a clean path.
    pub fn set_loss(&self, loss: f64) {
        self.set_path(|path| path.loss = loss);
    }

    /// Changes how long every packet is under way.
    pub fn set_delay(&self, delay: Duration) {
        self.set_path(|path| path.delay = delay);
    }

    /// As a NAT does that has forgotten its clients: what they send from now on leaves by other ports, and what comes for the
    /// ports before is lost.
    pub fn change_ports(&self) {
        self.shared.ports.fetch_add(1, Ordering::Relaxed);
    }

    /// What became of the packets to the server so far.
    pub fn to_server(&self) -> Counts {
        self.shared.way(TO_SERVER).counts()
    }

    /// What became of the packets to the clients so far.
    pub fn to_client(&self) -> Counts {
        self.shared.way(TO_CLIENT).counts()
    }

    /// What became of all packets so far.
    pub fn counts(&self) -> Counts {
        self.to_server() + self.to_client()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.gone.store(true, Ordering::Relaxed);
        self.shared.schedule.wake();
    }
}

struct Shared {
    started: Instant,
    /// Towards the server, and towards the clients.
    ways: [Mutex<Way>; 2],
    rewrite: Option<Mutex<Rewrite>>,
    schedule: Schedule,
    /// Counts the changes of the ports towards the server.
    ports: AtomicU64,
    gone: AtomicBool,
}

/// One direction.
struct Way {
    link: Link,
    passed: u64,
    bytes_passed: u64,
    /// Packets that found too many waiting.
    refused: u64,
}

impl Way {
    fn new(link: Link) -> Self {
        Self { link, passed: 0, bytes_passed: 0, refused: 0 }
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::from(self.link.counts);
        counts.passed = self.passed;
        counts.bytes_passed = self.bytes_passed;
        counts.overflowed += self.refused;
        counts
    }
}

impl Shared {
    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    fn way(&self, way: usize) -> MutexGuard<'_, Way> {
        self.ways[way].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends on what takes the packet's place.
    fn carry(&self, direction: Direction, packet: &mut [u8], over: &Arc<UdpSocket>, to: SocketAddr) {
        if self.is_gone() {
            return;
        }
        let Some(rewrite) = &self.rewrite else {
            return self.pass(direction as usize, packet, over, to);
        };
        let mut packets = Vec::new();
        let mut rewrite = rewrite.lock().unwrap_or_else(PoisonError::into_inner);
        (*rewrite)(direction, packet, &mut packets);
        drop(rewrite);
        for packet in &mut packets {
            self.pass(direction as usize, packet, over, to);
        }
    }

    /// Sends a packet on now, later, twice or not at all.
    fn pass(&self, way: usize, packet: &mut [u8], over: &Arc<UdpSocket>, to: SocketAddr) {
        let elapsed = self.started.elapsed();
        let now = kcp9::proto::Instant::from_micros(elapsed.as_micros() as u64);
        let mut direction = self.way(way);
        let arrivals = direction.link.send(now, packet);
        if arrivals[0].is_some() && !packet.is_empty() {
            direction.link.corrupt(packet);
        }
        let mut at_once = 0;
        for arrival in arrivals.into_iter().flatten() {
            let waiting = self.schedule.waiting(way);
            if waiting == MAX_WAITING {
                direction.refused += 1;
                continue;
            }
            // Counted before it is sent: who has received a packet finds it counted.
            direction.passed += 1;
            direction.bytes_passed += packet.len() as u64;
            if arrival <= now && waiting == 0 {
                at_once += 1;
                continue;
            }
            let due = self.started + Duration::from_micros(arrival.as_micros());
            let departure = Departure { due, way, packet: packet.to_vec(), over: Arc::clone(over), to };
            self.schedule.add(departure);
        }
        drop(direction);
        for _ in 0..at_once {
            // An error is an ICMP answer to something sent before: not the relay's business.
            let _ = over.send_to(packet, to);
        }
    }

    fn receive_from_clients(self: Arc<Self>, front: &Arc<UdpSocket>, server: SocketAddr) {
        let mut clients: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
        let mut buffer = vec![0; LONGEST_PACKET];
        let mut ports = 0;
        while !self.is_gone() {
            let Ok((len, client)) = front.recv_from(&mut buffer) else { continue };
            let before = std::mem::replace(&mut ports, self.ports.load(Ordering::Relaxed));
            if ports != before {
                clients.clear();
            }
            let back = match clients.entry(client) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let Ok(back) = socket().map(Arc::new) else { continue };
                    let (shared, front, own) = (Arc::clone(&self), Arc::clone(front), Arc::clone(&back));
                    thread::spawn(move || shared.receive_from_server(&own, &front, client, ports));
                    new.insert(back)
                }
            };
            self.carry(Direction::ToServer, &mut buffer[..len], back, server);
        }
    }

    fn receive_from_server(&self, back: &UdpSocket, front: &Arc<UdpSocket>, client: SocketAddr, ports: u64) {
        let mut buffer = vec![0; LONGEST_PACKET];
        let is_used = || !self.is_gone() && self.ports.load(Ordering::Relaxed) == ports;
        while is_used() {
            if let Ok((len, _)) = back.recv_from(&mut buffer)
                && is_used()
            {
                self.carry(Direction::ToClient, &mut buffer[..len], front, client);
            }
        }
    }
}

/// A socket with room for a burst of a window, so that the relay loses what it is told to and nothing else.
fn socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(LOOK_UP))?;
    // The system gives less where it allows less.
    let options = socket2::SockRef::from(&socket);
    let _ = options.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = options.set_send_buffer_size(SOCKET_BUFFER);
    Ok(socket)
}

/// Indices of the directions.
const TO_SERVER: usize = Direction::ToServer as usize;
const TO_CLIENT: usize = Direction::ToClient as usize;
/// Seed of relays whose caller names none.
const SEED: u64 = 0x6b63_7039;
/// How often waiting threads check whether the relay was dropped.
const LOOK_UP: Duration = Duration::from_millis(100);
const LONGEST_PACKET: usize = 65_536;
/// Packets that may wait in one direction: 114 MB/s over 200 ms, in packets of 1,400 bytes. No test comes near it, and the
/// relay's memory has a bound.
const MAX_WAITING: usize = 16_384;
const SOCKET_BUFFER: usize = 8 << 20;

#[cfg(test)]
mod tests;
