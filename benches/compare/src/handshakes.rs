//! Sessions begun a second, on one thread.
//!
//! Both ends run on it, each with one UDP socket, so nothing but the work of beginning counts. [`AT_ONCE`] tasks each begin a session,
//! write a byte, wait until it has come back, and end the session, again and again. In each round every kind does that for the same
//! time, in another order each round. What is printed are medians.
//!
//! quinn's sessions are under TLS 1.3 with AES-128-GCM, X25519 and a certificate with a key for ECDSA, as its defaults have it, and none
//! is resumed. No address is validated before (Retry in QUIC, cookies here), as QUIC does not by default; the last kind has our defaults,
//! which ask for a cookie when more than 500 begin in a second.

use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use kcp9::{
    CookiePolicy, KcpConfig, KcpEndpoint, KcpListener,
    proto::{
        Random,
        noise::{Initiator, KeyPair, Noise, Psk, Responder, Trust},
    },
};
use quinn::Endpoint;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    runtime, task,
    task::LocalSet,
    time,
};

use crate::{
    options::HandshakeRun,
    peer::{ANY, quinn_peer},
};

/// Sessions that begin at the same time.
const AT_ONCE: usize = 16;
/// No session takes so long to begin.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Quinn,
    Plain,
    NnPsk0,
    Nk,
    Xx,
    NkWithCookies,
}

const KINDS: [(Kind, &str); 6] = [
    (Kind::Quinn, "quinn"),
    (Kind::Plain, "kcp9 without keys"),
    (Kind::NnPsk0, "kcp9 NNpsk0"),
    (Kind::Nk, "kcp9 NK"),
    (Kind::Xx, "kcp9 XX"),
    (Kind::NkWithCookies, "kcp9 NK, cookies"),
];

/// Measures, and prints a table.
pub(crate) fn run(options: &HandshakeRun) -> io::Result<()> {
    let mut figures = vec![Vec::new(); KINDS.len()];
    for round in 0..options.rounds.max(1) {
        for place in 0..KINDS.len() {
            let nth = (round + place) % KINDS.len();
            figures[nth].push(measure(KINDS[nth].0, options.secs)?);
        }
    }
    let medians: Vec<f64> = figures.iter_mut().map(|figures| median(figures)).collect();
    println!("| | sessions begun a second | of quinn's |\n|---|---|---|");
    for ((_, name), median) in KINDS.iter().zip(&medians) {
        println!("| {name} | {median:.0} | {:.2} |", median / medians[0]);
    }
    Ok(())
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Sessions begun a second.
fn measure(kind: Kind, secs: f64) -> io::Result<f64> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let until = Instant::now() + Duration::from_secs_f64(secs);
        let begun = Rc::new(Cell::new(0_usize));
        let start = Instant::now();
        let ends = if kind == Kind::Quinn { Ends::quinn()? } else { Ends::kcp9(kind).await? };
        let tasks: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let (ends, begun) = (ends.clone(), Rc::clone(&begun));
                task::spawn_local(async move {
                    while Instant::now() < until {
                        time::timeout(PATIENCE, ends.begin())
                            .await
                            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
                        begun.set(begun.get() + 1);
                    }
                    Ok::<_, io::Error>(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        Ok(begun.get() as f64 / start.elapsed().as_secs_f64())
    })
}

/// The connecting end, and what it needs to know of the other one, which runs in tasks.
#[derive(Clone)]
enum Ends {
    Quinn { endpoint: Endpoint, addr: SocketAddr },
    Kcp9 { endpoint: KcpEndpoint, addr: SocketAddr, config: Box<KcpConfig> },
}

impl Ends {
    fn quinn() -> io::Result<Self> {
        let (server, client) = quinn_peer::ends()?;
        let addr = server.local_addr()?;
        task::spawn_local(async move {
            while let Some(incoming) = server.accept().await {
                task::spawn_local(async move {
                    let Ok(connection) = incoming.await else { return };
                    let Ok((mut send, mut recv)) = connection.accept_bi().await else { return };
                    let mut byte = [0];
                    if recv.read_exact(&mut byte).await.is_ok() && send.write_all(&byte).await.is_ok() {
                        connection.closed().await;
                    }
                });
            }
        });
        Ok(Self::Quinn { endpoint: client, addr })
    }

    async fn kcp9(kind: Kind) -> io::Result<Self> {
        let [server, client] = configs(kind)?;
        let listener = KcpListener::bind(ANY, server).await?;
        let addr = listener.local_addr()?;
        task::spawn_local(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                task::spawn_local(async move {
                    while let Ok(byte) = stream.read_u8().await {
                        if stream.write_u8(byte).await.is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Ok(Self::Kcp9 { endpoint: KcpEndpoint::bind(ANY).await?, addr, config: Box::new(client) })
    }

    /// One session, from its beginning to its end.
    async fn begin(&self) -> io::Result<()> {
        let mut byte = [0];
        match self {
            Self::Quinn { endpoint, addr } => {
                let connecting = endpoint.connect(*addr, quinn_peer::NAME).map_err(io::Error::other)?;
                let connection = connecting.await?;
                let (mut send, mut recv) = connection.open_bi().await?;
                send.write_all(&[7]).await?;
                recv.read_exact(&mut byte).await.map_err(io::Error::other)?;
                connection.close(0_u32.into(), b"");
            }
            Self::Kcp9 { endpoint, addr, config } => {
                let mut stream = endpoint.connect(*addr, KcpConfig::clone(config))?;
                stream.write_u8(7).await?;
                stream.read_exact(&mut byte).await?;
            }
        }
        if byte == [7] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}

/// Those of the accepting and of the connecting end.
fn configs(kind: Kind) -> io::Result<[KcpConfig; 2]> {
    let mut entropy = Entropy(kcp9::crypto::OsNonces::new()?);
    let (server, client) = (KeyPair::generate(&mut entropy), KeyPair::generate(&mut entropy));
    let public = *server.public();
    let psk = || Psk::from_bytes(&[7; 32]);
    let (accepts, connects): (Option<Noise>, Option<Noise>) = match kind {
        Kind::Quinn | Kind::Plain => (None, None),
        Kind::NnPsk0 => (Responder::nn_psk0(psk()).into(), Initiator::nn_psk0(psk()).into()),
        Kind::Nk | Kind::NkWithCookies => (Responder::nk(server).into(), Initiator::nk(public).into()),
        Kind::Xx => (
            Responder::xx(server, Trust::any()).into(),
            Initiator::xx(client, Trust::pinned([public])).into(),
        ),
    };
    let cookies = if kind == Kind::NkWithCookies { CookiePolicy::UnderLoad } else { CookiePolicy::Never };
    let config = |noise| KcpConfig::builder().cookies(cookies).noise(noise).build().map_err(io::Error::other);
    Ok([config(accepts)?, config(connects)?])
}

struct Entropy(kcp9::crypto::OsNonces);

impl Random for Entropy {
    fn fill(&mut self, bytes: &mut [u8]) {
        kcp9::crypto::NonceSource::fill(&self.0, bytes);
    }
}
