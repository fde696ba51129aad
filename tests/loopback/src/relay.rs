//! A UDP relay over real sockets that loses and delays packets: a bad path between two live peers.
//!
//! Clients send to [`Relay::addr`]; each gets a socket of its own towards the server, so that the server sees one peer
//! for each. What is lost is decided by a seeded generator, one number a packet: the order in which the packets
//! come is the system's, so a run is not repeated exactly, but no run is luckier than another by much.

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::UdpSocket,
    task::{AbortHandle, JoinHandle},
};

use kcp9_simulator::Rng;

/// A relay in front of one server; gone when it is dropped.
pub struct Relay {
    addr: SocketAddr,
    path: Arc<Path>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Starts a relay to `server` that drops a `loss` of all packets (0 to 1), each way.
    pub async fn start(server: SocketAddr, loss: f64) -> io::Result<Self> {
        let front = Arc::new(socket("127.0.0.1:0").await?);
        let addr = front.local_addr()?;
        let path = Arc::new(Path::new(loss));
        let task = tokio::spawn(serve(front, server, Arc::clone(&path)));
        Ok(Self { addr, path, task })
    }

    /// Where clients send to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes the loss: 1 is a black hole, 0 a clean path.
    pub fn set_loss(&self, loss: f64) {
        self.path.loss.store(loss.to_bits(), Ordering::Relaxed);
    }

    /// Changes how long every packet is under way.
    pub fn set_delay(&self, delay: Duration) {
        self.path.delay.store(delay.as_micros() as u64, Ordering::Relaxed);
    }

    /// Datagrams dropped so far.
    pub fn dropped(&self) -> u64 {
        self.path.dropped.load(Ordering::Relaxed)
    }

    /// Datagrams passed on so far.
    pub fn passed(&self) -> u64 {
        self.path.passed.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What happens to packets on their way.
struct Path {
    loss: AtomicU64,
    delay: AtomicU64,
    dropped: AtomicU64,
    passed: AtomicU64,
    rng: Mutex<Rng>,
}

impl Path {
    fn new(loss: f64) -> Self {
        Self {
            loss: loss.to_bits().into(),
            delay: 0.into(),
            dropped: 0.into(),
            passed: 0.into(),
            rng: Mutex::new(Rng::new(0x6b63_7039)),
        }
    }

    /// Whether the next packet arrives, and after how long.
    fn decide(&self) -> Option<Duration> {
        let loss = f64::from_bits(self.loss.load(Ordering::Relaxed));
        if loss >= 1.0 || self.rng.lock().unwrap().chance(loss) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.passed.fetch_add(1, Ordering::Relaxed);
        Some(Duration::from_micros(self.delay.load(Ordering::Relaxed)))
    }

    async fn carry(&self, packet: &[u8], over: &Arc<UdpSocket>, to: SocketAddr) {
        match self.decide() {
            None => {}
            Some(Duration::ZERO) => drop(over.send_to(packet, to).await),
            Some(delay) => {
                let (packet, over) = (packet.to_vec(), Arc::clone(over));
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    drop(over.send_to(&packet, to).await);
                });
            }
        }
    }
}

async fn serve(front: Arc<UdpSocket>, server: SocketAddr, path: Arc<Path>) {
    let mut clients = HashMap::new();
    let mut buffer = vec![0; 65_536];
    loop {
        // An error is an ICMP answer to something sent: not the relay's business.
        let Ok((len, client)) = front.recv_from(&mut buffer).await else { continue };
        let back = match clients.entry(client) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => match Back::start(client, &front, &path).await {
                Ok(back) => new.insert(back),
                Err(_) => continue,
            },
        };
        path.carry(&buffer[..len], &back.socket, server).await;
    }
}

/// One client's side of the relay that faces the server.
struct Back {
    socket: Arc<UdpSocket>,
    task: AbortHandle,
}

impl Back {
    async fn start(client: SocketAddr, front: &Arc<UdpSocket>, path: &Arc<Path>) -> io::Result<Self> {
        let socket = Arc::new(socket("127.0.0.1:0").await?);
        let (from, to, path) = (Arc::clone(&socket), Arc::clone(front), Arc::clone(path));
        let task = tokio::spawn(async move {
            let mut buffer = vec![0; 65_536];
            loop {
                let Ok((len, _)) = from.recv_from(&mut buffer).await else { continue };
                path.carry(&buffer[..len], &to, client).await;
            }
        });
        Ok(Self { socket, task: task.abort_handle() })
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A socket with room for a window of packets, so that the relay loses what it is told to and nothing else.
async fn socket(addr: &str) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(addr).await?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20)?;
    Ok(socket)
}
