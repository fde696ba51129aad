//! A UDP relay of fixed delay that loses packets by a seeded generator and counts what it is given.
//!
//! The tests' relay (`tests/loopback`) sleeps on Tokio's timers, which are as coarse as a millisecond, and has a task for each
//! packet. Here threads do it, to some ten microseconds and in order: latency is what is measured behind it.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    io,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use kcp9_simulator::Rng;

/// IPv4 and UDP.
const HEADERS: u64 = 28;
/// How often threads look whether the relay still stands.
const LOOK_UP: Duration = Duration::from_millis(100);

/// A relay to one server, gone when it is dropped.
pub(crate) struct Relay {
    addr: SocketAddr,
    path: Arc<Path>,
}

impl Relay {
    /// Each way takes `delay`, and loses `loss` of the packets (0 to 1).
    pub(crate) fn start(server: SocketAddr, delay: Duration, loss: f64, seed: u64) -> io::Result<Self> {
        let front = Arc::new(socket()?);
        let addr = front.local_addr()?;
        let path = Arc::new(Path {
            delay,
            loss,
            rng: Mutex::new(Rng::new(seed)),
            bytes: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            under_way: Mutex::default(),
            more: Condvar::new(),
        });
        let own = Arc::clone(&path);
        thread::spawn(move || own.deliver());
        let own = Arc::clone(&path);
        thread::spawn(move || own.receive_from_clients(&front, server));
        Ok(Self { addr, path })
    }

    /// Where clients send to.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Bytes offered so far, both ways, those of lost packets and of headers included.
    pub(crate) fn bytes(&self) -> u64 {
        self.path.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.path.gone.store(true, Ordering::Relaxed);
    }
}

struct Path {
    delay: Duration,
    loss: f64,
    rng: Mutex<Rng>,
    bytes: AtomicU64,
    gone: AtomicBool,
    /// All take equally long, so that this is in the order of arrival.
    under_way: Mutex<VecDeque<UnderWay>>,
    more: Condvar,
}

struct UnderWay {
    due: Instant,
    packet: Vec<u8>,
    over: Arc<UdpSocket>,
    to: SocketAddr,
}

impl Path {
    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    fn carry(&self, packet: &[u8], over: &Arc<UdpSocket>, to: SocketAddr) {
        self.bytes.fetch_add(packet.len() as u64 + HEADERS, Ordering::Relaxed);
        if self.rng.lock().unwrap().chance(self.loss) {
            return;
        }
        let due = Instant::now() + self.delay;
        let under_way = UnderWay { due, packet: packet.to_vec(), over: Arc::clone(over), to };
        self.under_way.lock().unwrap().push_back(under_way);
        self.more.notify_one();
    }

    fn deliver(&self) {
        while !self.is_gone() {
            let mut under_way = self.under_way.lock().unwrap();
            let Some(next) = under_way.pop_front() else {
                drop(self.more.wait_timeout(under_way, LOOK_UP));
                continue;
            };
            drop(under_way);
            thread::sleep(next.due.saturating_duration_since(Instant::now()));
            // An error is an ICMP answer to something sent: not the relay's business.
            let _ = next.over.send_to(&next.packet, next.to);
        }
    }

    fn receive_from_clients(self: Arc<Self>, front: &Arc<UdpSocket>, server: SocketAddr) {
        let mut clients: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
        let mut buffer = vec![0; 65_536];
        while !self.is_gone() {
            let Ok((len, client)) = front.recv_from(&mut buffer) else { continue };
            let back = match clients.entry(client) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let Ok(back) = socket().map(Arc::new) else { continue };
                    let (path, front, own) = (Arc::clone(&self), Arc::clone(front), Arc::clone(&back));
                    thread::spawn(move || path.receive_from_server(&own, &front, client));
                    new.insert(back)
                }
            };
            self.carry(&buffer[..len], back, server);
        }
    }

    fn receive_from_server(&self, back: &UdpSocket, front: &Arc<UdpSocket>, client: SocketAddr) {
        let mut buffer = vec![0; 65_536];
        while !self.is_gone() {
            if let Ok((len, _)) = back.recv_from(&mut buffer) {
                self.carry(&buffer[..len], front, client);
            }
        }
    }
}

fn socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(LOOK_UP))?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_delayed_lost_and_counted() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let delay = Duration::from_millis(20);
        let relay = Relay::start(server.local_addr().unwrap(), delay, 0.5, 1).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let start = Instant::now();
        for number in 0..100 {
            client.send_to(&[number; 10], relay.addr()).unwrap();
        }
        let mut buffer = [0; 100];
        let mut arrived = Vec::new();
        while let Ok((len, _)) = server.recv_from(&mut buffer) {
            assert!(start.elapsed() >= delay);
            assert_eq!(len, 10);
            arrived.push(buffer[0]);
        }
        assert!((20..80).contains(&arrived.len()), "{} of 100 arrived", arrived.len());
        assert!(arrived.is_sorted(), "{arrived:?}");
        assert_eq!(relay.bytes(), 100 * 38);
    }
}
