//! A bad network on one machine: a UDP relay that loses, delays and reorders packets.
//!
//! It has real sockets and a thread of its own, so that what it does to time owes nothing to the ends it stands between.

use std::{
    cell::Cell,
    cmp::Reverse,
    collections::BinaryHeap,
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use indicatif::HumanBytes;
use tokio::{net::UdpSocket, runtime, sync::oneshot, time};

use super::random::Random;

/// What happens to packets, in each direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    /// The part that is lost, 0 to 1.
    pub(crate) loss: f64,
    /// How long all are delayed.
    pub(crate) delay: Duration,
    /// What the delay swings by, either way. Swings take all packets of the moment along, as a queue does.
    pub(crate) jitter: Duration,
    /// The part that is overtaken by those up to 2 ms behind it, 0 to 1.
    pub(crate) reordered: f64,
}

impl fmt::Display for Weather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} % lost, {} +- {} ms of delay, {} % out of order, each way",
            self.loss * 100.0,
            self.delay.as_millis(),
            self.jitter.as_millis(),
            self.reordered * 100.0
        )
    }
}

/// A relay between one client and one server; it ends when dropped.
pub(crate) struct Relay {
    address: SocketAddr,
    /// To the server, to the client.
    counters: [Arc<Counters>; 2],
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What happened to the packets of one direction.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    passed: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    reordered: AtomicU64,
    /// Dropped because too many were waiting, or the socket's buffer was full.
    overflowed: AtomicU64,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed ({}), {} dropped on purpose, {} for lack of room, {} out of order",
            self.passed.load(Relaxed),
            HumanBytes(self.bytes.load(Relaxed)),
            self.lost.load(Relaxed),
            self.overflowed.load(Relaxed),
            self.reordered.load(Relaxed)
        )
    }
}

impl Relay {
    /// Starts a relay to `server` on a port of its own.
    pub(crate) fn start(server: SocketAddr, weather: Weather) -> io::Result<Self> {
        let near = bind()?;
        let far = bind()?;
        far.connect(server)?;
        let address = near.local_addr()?;
        let counters: [Arc<Counters>; 2] = Default::default();
        let (stop, stopped) = oneshot::channel();
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = counters.clone();
        let thread = thread::Builder::new().name("relay".into()).spawn(move || {
            runtime.block_on(async {
                let relayed = relay(near, far, weather, shared);
                tokio::select! {
                    result = relayed => result.unwrap_or_else(|error| eprintln!("relay: {error}")),
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, counters, stop: Some(stop), thread: Some(thread) })
    }

    /// Where the client sends to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn to_server(&self) -> &Counters {
        &self.counters[0]
    }

    pub(crate) fn to_client(&self) -> &Counters {
        &self.counters[1]
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn relay(
    near: std::net::UdpSocket,
    far: std::net::UdpSocket,
    weather: Weather,
    counters: [Arc<Counters>; 2],
) -> io::Result<()> {
    let (near, far) = (UdpSocket::from_std(near)?, UdpSocket::from_std(far)?);
    let client = Cell::new(None);
    let [up, down] = counters;
    let up = Direction::new(&near, &far, weather, &up, 1);
    let down = Direction::new(&far, &near, weather, &down, 2);
    tokio::try_join!(up.run(|from| client.set(Some(from)), || None), down.run(|_| {}, || client.get()))?;
    Ok(())
}

/// One direction of the relay.
struct Direction<'a> {
    from: &'a UdpSocket,
    to: &'a UdpSocket,
    weather: Weather,
    counters: &'a Counters,
    random: Random,
    /// The next to leave on top.
    waiting: BinaryHeap<Reverse<Waiting>>,
    arrivals: u64,
    /// The present swing of the delay, and until when it holds.
    swing: (Duration, Instant),
    /// When the last one leaves that was not reordered: those behind do not leave before it.
    last: Instant,
}

/// A packet on its way: when it leaves, its number among those of the same instant, its bytes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting(Instant, u64, Vec<u8>);

impl<'a> Direction<'a> {
    fn new(
        from: &'a UdpSocket,
        to: &'a UdpSocket,
        weather: Weather,
        counters: &'a Counters,
        seed: u64,
    ) -> Self {
        let now = Instant::now();
        Self {
            from,
            to,
            weather,
            counters,
            random: Random::new(seed),
            waiting: BinaryHeap::new(),
            arrivals: 0,
            swing: (Duration::ZERO, now),
            last: now,
        }
    }

    /// Relays for ever. `heard` is told who sent each packet; `target` tells where to send, `None` for where the socket
    /// is connected to.
    async fn run(
        mut self,
        heard: impl Fn(SocketAddr),
        target: impl Fn() -> Option<SocketAddr>,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 65_536];
        loop {
            let next = self.waiting.peek().map(|Reverse(waiting)| waiting.0);
            let due = async {
                match next {
                    Some(at) => time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ready = self.from.readable() => ready?,
                () = due => {}
            }
            // As many as fit a few wakeups; the rest is as welcome the next time round.
            for _ in 0..BATCH {
                match self.from.try_recv_from(&mut buffer) {
                    Ok((length, from)) => {
                        heard(from);
                        self.arrived(&buffer[..length]);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // A packet of before met a closed port.
                    Err(_) => {}
                }
            }
            self.send_due(target());
            // A current-thread runtime must get round to the other direction.
            tokio::task::yield_now().await;
        }
    }

    fn arrived(&mut self, packet: &[u8]) {
        if self.random.chance(self.weather.loss) {
            self.counters.lost.fetch_add(1, Relaxed);
            return;
        }
        if self.waiting.len() >= MAX_WAITING {
            self.counters.overflowed.fetch_add(1, Relaxed);
            return;
        }
        let now = Instant::now();
        if now >= self.swing.1 {
            let range = 2 * self.weather.jitter.as_micros() as u64 + 1;
            self.swing = (Duration::from_micros(self.random.below(range)), now + SWING_EVERY);
        }
        let base = now + self.weather.delay.saturating_sub(self.weather.jitter) + self.swing.0;
        let mut at = base.max(self.last);
        self.last = at;
        if self.random.chance(self.weather.reordered) {
            self.counters.reordered.fetch_add(1, Relaxed);
            at += Duration::from_micros(200 + self.random.below(1_800));
        }
        self.arrivals += 1;
        self.waiting.push(Reverse(Waiting(at, self.arrivals, packet.to_vec())));
    }

    fn send_due(&mut self, target: Option<SocketAddr>) {
        let now = Instant::now();
        while let Some(Reverse(Waiting(at, ..))) = self.waiting.peek() {
            if *at > now {
                break;
            }
            let Some(Reverse(Waiting(_, _, packet))) = self.waiting.pop() else { break };
            let sent = match target {
                Some(address) => self.to.try_send_to(&packet, address),
                None => self.to.try_send(&packet),
            };
            // The system reports earlier packets that met a closed port as errors of this one; it is lost as well.
            let counter = if sent.is_ok() { &self.counters.passed } else { &self.counters.overflowed };
            counter.fetch_add(1, Relaxed);
            self.counters.bytes.fetch_add(sent.unwrap_or(0) as u64, Relaxed);
        }
    }
}

fn bind() -> io::Result<std::net::UdpSocket> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    // The system gives less when it allows less; a window's burst should not be lost here.
    let options = socket2::SockRef::from(&socket);
    let _ = options.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = options.set_send_buffer_size(SOCKET_BUFFER);
    Ok(socket)
}

/// Datagrams taken in before those that are due leave.
const BATCH: usize = 64;
/// Datagrams on their way in one direction: 100 MB/s over the delay of the demo, in datagrams of 1,400 bytes.
const MAX_WAITING: usize = 16_384;
/// How long a swing of the delay holds.
const SWING_EVERY: Duration = Duration::from_millis(20);
const SOCKET_BUFFER: usize = 8 * 1_024 * 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// One of a burst in a hundred is late; the rest passes, delayed, in both directions.
    #[test]
    fn delays_loses_and_answers() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        }
        let weather = Weather {
            loss: 0.5,
            delay: Duration::from_millis(20),
            jitter: Duration::from_millis(2),
            reordered: 0.1,
        };
        let relay = Relay::start(server.local_addr().unwrap(), weather).unwrap();
        let started = Instant::now();
        for number in 0..200_u8 {
            client.send_to(&[number], relay.address()).unwrap();
        }
        let mut buffer = [0; 16];
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(length, 1);
        assert!(started.elapsed() >= Duration::from_millis(18));
        let mut passed = vec![buffer[0]];
        while server.recv_from(&mut buffer).is_ok() {
            passed.push(buffer[0]);
        }
        assert!((60..140).contains(&passed.len()), "{}", passed.len());
        assert!(!passed.is_sorted());

        for _ in 0..30 {
            server.send_to(b"answer", from).unwrap();
        }
        assert_eq!(client.recv_from(&mut buffer).unwrap(), (6, relay.address()));
        let up = relay.to_server();
        assert_eq!(up.passed.load(Relaxed), passed.len() as u64);
        assert_eq!(up.lost.load(Relaxed) + up.passed.load(Relaxed), 200);
        // Counted once it is sent, which the client may see first.
        while relay.to_client().passed.load(Relaxed) == 0 {
            assert!(started.elapsed() < Duration::from_secs(30));
            thread::yield_now();
        }
    }

    /// Both directions at once, as fast as the demo may ever want.
    #[test]
    #[ignore = "a measurement: cargo test --test transfer -- --ignored --nocapture relay"]
    fn rate() {
        let weather = Weather {
            loss: 0.1,
            delay: Duration::from_millis(30),
            jitter: Duration::from_millis(3),
            reordered: 0.01,
        };
        let server = bind().unwrap();
        let client = bind().unwrap();
        let relay = Relay::start(server.local_addr().unwrap(), weather).unwrap();
        client.connect(relay.address()).unwrap();
        let pump = |socket: &UdpSocket, to: Option<SocketAddr>| {
            let (mut received, mut buffer) = (0_u64, [0; 2_048]);
            let started = Instant::now();
            let mut sent = 0;
            while started.elapsed() < Duration::from_secs(3) {
                while (sent as f64) < started.elapsed().as_secs_f64() * 40e6 / 1_400.0 {
                    let _ = to.map_or_else(|| socket.send(&[7; 1_400]), |to| socket.send_to(&[7; 1_400], to));
                    sent += 1;
                }
                while let Ok(length) = socket.recv(&mut buffer) {
                    received += length as u64;
                }
                thread::sleep(Duration::from_millis(1));
            }
            received as f64 / started.elapsed().as_secs_f64() / 1e6
        };
        client.send(b"here I am").unwrap();
        thread::sleep(Duration::from_millis(100));
        let from = server.recv_from(&mut [0; 16]).unwrap().1;
        let (up, down) = thread::scope(|scope| {
            let up = scope.spawn(|| pump(&server, Some(from)));
            (pump(&client, None), up.join().unwrap())
        });
        println!("{up:.1} MB/s and {down:.1} MB/s; {}; {}", relay.to_server(), relay.to_client());
    }
}
