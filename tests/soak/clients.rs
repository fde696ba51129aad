//! The clients' lives.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kcp9::{
    KcpConfig, KcpEndpoint, KcpStream,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
};
use kcp9_simulator::{Rng, payload::Payload};
use kcp9_tests::spawn;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinHandle,
};

use crate::tally::Tally;

/// Endpoints that share the sessions which have no socket of their own.
const ENDPOINTS: usize = 8;
/// Sessions that are killed at once.
const VICTIMS: usize = 50;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) fn crypto() -> PacketCrypto {
    let cipher = CipherKind::Aes128Gcm.build(&Key::from_bytes(b"the key of both."), Framing::KcpGo).unwrap();
    PacketCrypto::with_os_nonces(cipher).unwrap()
}

pub(crate) struct Clients {
    over: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

/// What all lives need.
struct World {
    server: SocketAddr,
    relay: SocketAddr,
    config: KcpConfig,
    over: Arc<AtomicBool>,
    tally: Arc<Tally>,
}

impl Clients {
    /// Starts `count` tasks that each have a session at any time. One in ten has a socket of its own for each, and no relay: a relay
    /// keeps a socket and a thread for every address that it ever saw.
    pub(crate) fn start(
        server: SocketAddr,
        relay: SocketAddr,
        config: &KcpConfig,
        count: usize,
        rng: &mut Rng,
        tally: &Arc<Tally>,
    ) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let world = Arc::new(World {
            server,
            relay,
            config: config.clone(),
            over: Arc::clone(&over),
            tally: Arc::clone(tally),
        });
        let endpoints: Vec<_> = (0..ENDPOINTS).map(|_| endpoint()).collect();
        let tasks = (0..count).map(|index| {
            let (world, rng) = (Arc::clone(&world), rng.fork());
            let endpoint = (index % 10 > 0).then(|| endpoints[index % ENDPOINTS].clone());
            spawn(live(world, endpoint, rng))
        });
        Self { over, tasks: tasks.collect() }
    }

    /// Lets everybody finish the life that it has.
    pub(crate) fn tell_to_stop(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Waits until everybody has.
    pub(crate) async fn stopped(&mut self) {
        for task in self.tasks.drain(..) {
            task.await.unwrap();
        }
    }
}

fn endpoint() -> KcpEndpoint {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    KcpEndpoint::from_socket(socket).unwrap()
}

async fn live(world: Arc<World>, endpoint: Option<KcpEndpoint>, mut rng: Rng) {
    let number = rng.next();
    // Not all at once.
    tokio::time::sleep(rng.duration(LONGEST_PAUSE)).await;
    while !world.over.load(Ordering::Relaxed) {
        match life(&world, number, endpoint.as_ref(), &mut rng).await {
            Ok(how) => world.tally.ended(how),
            Err(error) => world.tally.failed(&error),
        }
    }
    world.tally.gone(number);
}

/// One session, from its beginning to the end that it chose.
async fn life(
    world: &World,
    number: u64,
    endpoint: Option<&KcpEndpoint>,
    rng: &mut Rng,
) -> io::Result<&'static str> {
    let mut stream = match endpoint {
        Some(endpoint) => endpoint.connect(world.relay, world.config.clone())?,
        None => KcpStream::connect(world.server, world.config.clone()).await?,
    };
    let payload = Payload::new(rng.next());
    let mut at = 0;
    let handle = stream.handle();
    let note = |does| world.tally.note(number, does, handle.clone());
    for _ in 0..rng.size(1..=8) {
        note("echo");
        at = echo(&world.tally, &mut stream, payload, at, rng.size(1..=8_192)).await?;
        tokio::time::sleep(rng.duration(LONGEST_PAUSE)).await;
    }
    Ok(match rng.within(0..=9) {
        0..=5 => {
            // What was written before the end comes back, and then the end.
            let last = payload.bytes(at, rng.size(0..=20_000));
            note("write");
            stream.write_all(last).await?;
            note("shutdown");
            stream.shutdown().await?;
            note("read to the end");
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await?;
            assert!(rest == last, "{} bytes of {} came back before the end", rest.len(), last.len());
            world.tally.echoed.fetch_add(rest.len() as u64, Ordering::Relaxed);
            "shut down"
        }
        6 => {
            stream.write_all(payload.bytes(at, 1_000)).await?;
            drop(stream);
            "dropped"
        }
        7 => {
            stream.abort();
            "aborted"
        }
        8 => {
            // Keep-alive finds out whether the server is there.
            tokio::time::sleep(LONGEST_PAUSE * 10).await;
            echo(&world.tally, &mut stream, payload, at, 100).await?;
            "idle"
        }
        _ => {
            // It reads nothing of what it is sent.
            let _ = tokio::time::timeout(LONGEST_PAUSE, stream.write_all(payload.bytes(at, 200_000))).await;
            "stuck"
        }
    })
}

/// Sends `len` bytes of the payload from `at` on, and checks what comes back. Returns where the next ones begin.
async fn echo(
    tally: &Tally,
    stream: &mut KcpStream,
    payload: Payload,
    at: u64,
    len: usize,
) -> io::Result<u64> {
    let sent = payload.bytes(at, len);
    stream.write_all(sent).await?;
    let mut echo = vec![0; len];
    let mut read = 0;
    while read < len {
        let count = stream.read(&mut echo[read..]).await?;
        assert!(count > 0, "the stream ended cleanly within an echo");
        read += count;
    }
    assert!(echo == sent, "{len} bytes from {at} on came back wrong");
    tally.echoed.fetch_add(len as u64, Ordering::Relaxed);
    Ok(at + len as u64)
}

/// Begins sessions in a runtime of their own, and ends that in the midst of their work: as with a process that is killed, nobody
/// says a word.
pub(crate) async fn kill_some(server: SocketAddr, config: &KcpConfig, tally: &Arc<Tally>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let victims = (0..VICTIMS).map(|_| {
        let (config, tally) = (config.clone(), Arc::clone(tally));
        runtime.spawn(async move {
            let mut stream = KcpStream::connect(server, config).await.unwrap();
            let payload = Payload::new(1);
            let mut at = 0;
            while let Ok(next) = echo(&tally, &mut stream, payload, at, 4_000).await {
                at = next;
            }
        })
    });
    let victims: Vec<_> = victims.collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    for victim in victims.into_iter().filter(|victim| victim.is_finished()) {
        victim.await.unwrap();
    }
    runtime.shutdown_background();
}
