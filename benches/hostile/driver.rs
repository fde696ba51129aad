//! What an ordinary packet costs the driver of a real socket: processor time of the thread that receives, in the kernel and outside, for
//! each packet that it has received over loopback. The reader and the ACKs are in it, and waking up where the driver had to.
//!
//! Three drivers: one that wakes for each packet; one that a single transfer keeps busy, whose sender hands the kernel many packets at
//! once, which stay together up to here; and one that many peers keep busy, as those of a public port do, whose packets come singly.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::mpsc,
    thread,
    time::Duration,
};

use kcp9::{EndpointStats, KcpConfig, KcpListener, KcpStream};
use nix::sys::resource::{UsageWho, getrusage};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime::{Builder, Runtime},
    task::JoinSet,
    time::sleep,
};

/// Bytes of a write: a full packet.
const PACKET: usize = 1_376;
/// Packets that are sent one at a time.
const PACED: usize = 4_000;
/// Between two of them: the driver sleeps again before the next one comes.
const PAUSE: Duration = Duration::from_millis(1);
/// Bytes of the busy flow.
const BUSY: usize = 400_000_000;
/// How far a busy driver is behind.
const BEHIND: Duration = Duration::from_millis(2);
/// Peers that send at once, each through a socket of its own, and how many packets each of them sends, one after the other.
const PEERS: usize = 200;
const PACKETS_OF_A_PEER: usize = 1_000;

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Has the thread sleep between any two looks at its tasks and its socket, so that packets wait for it: it is as busy as one that has
/// others to serve, whatever the speed of the senders. Sleeping takes no processor time.
pub(crate) async fn fall_behind() {
    loop {
        thread::sleep(BEHIND);
        tokio::task::yield_now().await;
    }
}

/// Processor time of this thread, in microseconds: outside of the kernel and in it.
fn used() -> (i64, i64) {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("the system tells");
    let micros = |time: nix::sys::time::TimeVal| time.tv_sec() * 1_000_000 + time.tv_usec();
    (micros(usage.user_time()), micros(usage.system_time()))
}

/// What the thread that receives has used, and what it has received, since a moment.
pub(crate) struct Measured {
    used: (i64, i64),
    stats: EndpointStats,
}

impl Measured {
    pub(crate) fn begin(stats: EndpointStats) -> Self {
        Self { used: used(), stats }
    }

    pub(crate) fn end(self, stats: EndpointStats) -> Costs {
        let (user, system) = used();
        let of = |get: fn(&EndpointStats) -> u64| get(&stats) - get(&self.stats);
        Costs {
            user: user - self.used.0,
            system: system - self.used.1,
            packets: of(|stats| stats.socket.packets_received),
            calls: of(|stats| stats.socket.recv_calls),
            sent: of(|stats| stats.socket.packets_sent),
            wakeups: of(|stats| stats.driver.wakeups),
        }
    }
}

/// Microseconds, and counts.
pub(crate) struct Costs {
    user: i64,
    system: i64,
    packets: u64,
    calls: u64,
    sent: u64,
    wakeups: u64,
}

impl Costs {
    pub(crate) fn print(&self, name: &str) {
        let Self { user, system, packets, calls, sent, wakeups } = *self;
        let each = |micros: i64| micros as f64 * 1_000.0 / packets as f64;
        println!(
            "driver, {name}: {:.0} ns a packet ({:.0} of them in the kernel), {packets} packets, {:.1} of them a receive call, {:.1} a wake-up, {:.2} sent for each",
            each(user + system),
            each(system),
            packets as f64 / calls as f64,
            packets as f64 / wakeups as f64,
            sent as f64 / packets as f64,
        );
    }
}

async fn write(addr: SocketAddr, total: usize, pause: Option<Duration>) -> io::Result<()> {
    let mut stream = KcpStream::connect(addr, KcpConfig::default()).await?;
    let bytes = vec![7; if pause.is_some() { PACKET } else { 65_536 }];
    for _ in 0..total / bytes.len() {
        stream.write_all(&bytes).await?;
        if let Some(pause) = pause {
            stream.flush().await?;
            sleep(pause).await;
        }
    }
    stream.shutdown().await
}

/// Packets of each of `peers`, which write one after the other. They wait for each other at the beginning only.
async fn write_singly(addr: SocketAddr, peers: usize) -> io::Result<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..peers {
        let mut stream = KcpStream::connect(addr, KcpConfig::default()).await?;
        tasks.spawn(async move {
            for _ in 0..PACKETS_OF_A_PEER {
                stream.write_all(&[7; PACKET]).await?;
                stream.flush().await?;
            }
            stream.shutdown().await
        });
    }
    tasks.join_all().await.into_iter().collect()
}

pub(crate) async fn read_to_end(mut stream: KcpStream) -> io::Result<()> {
    let mut buffer = vec![0; 65_536];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}

fn flow<W: Future<Output = io::Result<()>>>(name: &str, peers: usize, write: impl FnOnce(SocketAddr) -> W) {
    let (told, listens) = mpsc::channel();
    let server = thread::spawn(move || {
        runtime().block_on(async {
            let listener = KcpListener::bind((Ipv4Addr::LOCALHOST, 0), KcpConfig::default()).await?;
            told.send(listener.local_addr()?).expect("somebody listens");
            let mut streams = Vec::with_capacity(peers);
            for _ in 0..peers {
                let (mut stream, _) = listener.accept().await?;
                // Not what it takes to begin.
                stream.read_exact(&mut [0; PACKET]).await?;
                streams.push(stream);
            }
            if peers > 1 {
                tokio::spawn(fall_behind());
            }
            let measured = Measured::begin(listener.endpoint_stats());
            let readers: JoinSet<_> = streams.into_iter().map(read_to_end).collect();
            readers.join_all().await.into_iter().collect::<io::Result<()>>()?;
            io::Result::Ok(measured.end(listener.endpoint_stats()))
        })
    });
    let addr = listens.recv().expect("it listens");
    runtime().block_on(write(addr)).expect("a transfer");
    server.join().expect("no panic").expect("a transfer").print(name);
}

pub(crate) fn measure() {
    flow("one packet at a time", 1, |addr| write(addr, PACED * PACKET, Some(PAUSE)));
    flow("busy, one peer", 1, |addr| write(addr, BUSY, None));
    flow("busy, many peers", PEERS, |addr| write_singly(addr, PEERS));
}
