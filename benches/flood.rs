//! What a flood of one source takes from established sessions: `cargo bench --bench flood`, five minutes; `-- --quick` for two rounds
//! in place of seven, `-- --only AES` for the cases whose names have that in them.
//!
//! Pings of 64 bytes on four sessions, and then the bulk transfer of one, beside nobody, beside each other, and beside a thread that
//! sends packets to the server's port as fast as it can, with GSO. They are of a stranger without the key, or, where nothing is encrypted,
//! repeat an ACK of a session whose client does nothing else.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use kcp9::{
    KcpConfig, KcpEndpoint, KcpListener, KcpStream,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    proto::{Command, SegmentHeader},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
};

const PINGS: usize = 4;
const ROUNDS: usize = 7;
const QUICK: usize = 2;
/// Before anything is measured: the driver takes a second of losses for a burst, not for an overload.
const SETTLE: Duration = Duration::from_secs(2);
const MEASURE: Duration = Duration::from_secs(1);
const ANY: &str = "127.0.0.1:0";
/// The first byte of a session says what its server does.
const ECHO: u8 = 1;
const SINK: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flood {
    None,
    Stranger,
    Session,
}

/// What is measured, with its name.
const CASES: [(&str, Option<CipherKind>, Flood); 6] = [
    ("plain", None, Flood::None),
    ("plain, an established session floods", None, Flood::Session),
    ("AES-128-GCM", Some(CipherKind::Aes128Gcm), Flood::None),
    ("AES-128-GCM, a stranger floods", Some(CipherKind::Aes128Gcm), Flood::Stranger),
    ("CAST5", Some(CipherKind::Cast5), Flood::None),
    ("CAST5, a stranger floods", Some(CipherKind::Cast5), Flood::Stranger),
];

/// Of one round: p50 and p99 of the pings in us, MB/s of the bulk transfer, and both of them beside each other.
#[derive(Clone, Copy)]
struct Figures([f64; 6]);

const NAMES: [&str; 6] =
    ["ping p50 us", "ping p99 us", "bulk MB/s", "both: p50 us", "both: p99 us", "both: MB/s"];

#[tokio::main]
async fn main() -> io::Result<()> {
    let rounds = if std::env::args().any(|argument| argument == "--quick") { QUICK } else { ROUNDS };
    let only = std::env::args().skip_while(|argument| argument != "--only").nth(1).unwrap_or_default();
    let mut cases = CASES.to_vec();
    cases.retain(|(name, ..)| name.contains(&only));
    let mut figures = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        for ((_, cipher, flood), figures) in cases.iter().zip(&mut figures) {
            figures.push(one_round(*cipher, *flood).await?);
        }
    }
    println!("medians of {rounds} rounds in turn");
    println!("{:<40}{}", "", NAMES.map(|name| format!("{name:>14}")).concat());
    for ((name, ..), figures) in cases.iter().zip(&figures) {
        let medians = std::array::from_fn::<_, 6, _>(|of| {
            let mut all: Vec<f64> = figures.iter().map(|Figures(round)| round[of]).collect();
            all.sort_by(f64::total_cmp);
            format!("{:>14.1}", all[all.len() / 2])
        });
        println!("{name:<40}{}", medians.concat());
    }
    Ok(())
}

fn config(cipher: Option<CipherKind>) -> io::Result<KcpConfig> {
    let crypto = match cipher {
        None => None,
        Some(kind) => {
            let cipher = kind
                .build(&Key::from_bytes(&vec![7; kind.key_len()]), Framing::KcpGo)
                .map_err(io::Error::other)?;
            Some(PacketCrypto::with_os_nonces(cipher).map_err(io::Error::other)?)
        }
    };
    KcpConfig::builder().crypto(crypto).build().map_err(io::Error::other)
}

async fn one_round(cipher: Option<CipherKind>, flood: Flood) -> io::Result<Figures> {
    let config = config(cipher)?;
    let mut figures = [0.0; 6];
    for (of, pings, bulk) in [(0, PINGS, false), (2, 0, true), (3, PINGS, true)] {
        let listener = Arc::new(KcpListener::bind(ANY, config.clone()).await?);
        let addr = listener.local_addr()?;
        let sunk = Arc::new(AtomicU64::new(0));
        let server = tokio::spawn(serve(Arc::clone(&listener), Arc::clone(&sunk)));
        let endpoint = KcpEndpoint::bind(ANY).await?;
        // The sessions are established before the flood begins.
        let mut streams = Vec::new();
        for _ in 0..pings {
            streams.push(open(&endpoint, addr, &config).await?);
        }
        let mut writing = JoinSet::new();
        if bulk {
            writing.spawn(write(endpoint.clone(), addr, config.clone()));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let over = Arc::new(AtomicBool::new(false));
        let flooding = begin(flood, addr, &config, &over).await?;
        let mut pinging = JoinSet::new();
        streams.into_iter().for_each(|stream| drop(pinging.spawn(ping(stream))));
        tokio::time::sleep(SETTLE).await;
        let (begun, before) = (Instant::now(), sunk.load(Ordering::Relaxed));
        tokio::time::sleep(MEASURE).await;
        let rate = (sunk.load(Ordering::Relaxed) - before) as f64 / begun.elapsed().as_secs_f64() / 1e6;
        let mut times = Vec::new();
        while let Some(one) = pinging.join_next().await {
            times.extend(one.map_err(io::Error::other)??);
        }
        times.sort();
        let mut figures = figures[of..].iter_mut();
        if pings > 0 {
            for at in [times.len() / 2, times.len() * 99 / 100] {
                figures.next().into_iter().for_each(|figure| *figure = times[at].as_secs_f64() * 1e6);
            }
        }
        if bulk {
            figures.next().into_iter().for_each(|figure| *figure = rate);
        }
        over.store(true, Ordering::Relaxed);
        let sent = flooding.map(|(thread, _endpoint)| thread.join().unwrap_or_default());
        if std::env::args().any(|argument| argument == "--verbose") {
            println!("{sent:?} sent, {:?}", listener.endpoint_stats());
        }
        writing.abort_all();
        endpoint.abort();
        server.abort();
    }
    Ok(Figures(figures))
}

type Flooding = (thread::JoinHandle<u64>, Option<KcpEndpoint>);

/// Begins to flood the port. Counts the packets.
async fn begin(
    flood: Flood,
    to: SocketAddr,
    config: &KcpConfig,
    over: &Arc<AtomicBool>,
) -> io::Result<Option<Flooding>> {
    let socket = UdpSocket::bind(ANY)?;
    let (packet, endpoint) = match flood {
        Flood::None => return Ok(None),
        Flood::Stranger => (vec![0x55; 1_400], None),
        Flood::Session => {
            let endpoint = KcpEndpoint::from_socket(socket.try_clone()?)?;
            let mut stream = endpoint.connect(to, config.clone())?;
            stream.write_all(&[ECHO]).await?;
            stream.write_all(&[9; 64]).await?;
            stream.read_exact(&mut [0; 64]).await?;
            let conv = stream.conv();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(60)).await;
                drop(stream);
            });
            let ack =
                SegmentHeader { conv, cmd: Command::Ack, frg: 0, wnd: 128, ts: 1, sn: 0, una: 0, len: 0 };
            // As many segments as a packet carries.
            (ack.to_bytes().repeat(58), Some(endpoint))
        }
    };
    // As a sender with GSO does it, if there is that: many packets in a call.
    #[cfg(target_os = "linux")]
    let packet = {
        use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
        setsockopt(&socket, UdpGsoSegment, &(packet.len() as i32))?;
        packet.repeat(40)
    };
    let over = Arc::clone(over);
    let thread = thread::spawn(move || {
        let mut sent = 0;
        while !over.load(Ordering::Relaxed) {
            sent += u64::from(socket.send_to(&packet, to).is_ok());
        }
        sent
    });
    Ok(Some((thread, endpoint)))
}

async fn serve(listener: Arc<KcpListener>, sunk: Arc<AtomicU64>) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        let sunk = Arc::clone(&sunk);
        tokio::spawn(async move {
            let mut bytes = vec![0; 65_536];
            let Ok(ECHO) = stream.read_u8().await else {
                while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                    sunk.fetch_add(count as u64, Ordering::Relaxed);
                }
                return;
            };
            while stream.read_exact(&mut bytes[..64]).await.is_ok()
                && stream.write_all(&bytes[..64]).await.is_ok()
            {}
        });
    }
}

async fn write(endpoint: KcpEndpoint, addr: SocketAddr, config: KcpConfig) -> io::Result<()> {
    let mut stream = endpoint.connect(addr, config)?;
    stream.write_all(&[SINK]).await?;
    let bytes = vec![7; 65_536];
    loop {
        stream.write_all(&bytes).await?;
    }
}

/// Opens a session for pings.
async fn open(endpoint: &KcpEndpoint, addr: SocketAddr, config: &KcpConfig) -> io::Result<KcpStream> {
    let mut stream = endpoint.connect(addr, config.clone())?;
    stream.write_all(&[ECHO]).await?;
    for _ in 0..3 {
        stream.write_all(&[9; 64]).await?;
        stream.read_exact(&mut [0; 64]).await?;
    }
    Ok(stream)
}

async fn ping(mut stream: KcpStream) -> io::Result<Vec<Duration>> {
    let (mut times, mut bytes) = (Vec::new(), [9; 64]);
    let begun = Instant::now();
    while begun.elapsed() < SETTLE + MEASURE || times.is_empty() {
        let sent = Instant::now();
        stream.write_all(&bytes).await?;
        stream.read_exact(&mut bytes).await?;
        if begun.elapsed() >= SETTLE {
            times.push(sent.elapsed());
        }
    }
    Ok(times)
}
