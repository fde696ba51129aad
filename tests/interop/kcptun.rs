//! kcptun, live on the other end of our tunnel: both roles, its 13 ciphers, with FEC or not, smux 1 and 2, compressed or not.
//!
//! Each run moves 20 MB each way at the same time, through a relay that drops 5 % of the packets, and compares hashes. The program
//! must have been built, and newly: these tests take it as it lies there.
//!
//! ```text
//! cargo build --release -p kcp9-tunnel
//! cargo test --release -p kcp9-tests --test interop -- --ignored kcptun --skip every_combination
//! ```
//!
//! In every run of CI each cipher has one of the combinations of the other flags, in both roles: 26 of 208. The rest takes long:
//! `every_combination_of_flags` is for releases (`.ci/run kcptun_all`).

#[path = "../../examples/tunnel/tests/support.rs"]
mod support;

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use kcp9_relay::Relay;
use kcp9_simulator::payload::Payload;
use kcp9_tests::{program, spawn, within};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{Semaphore, mpsc},
};

use self::support::{LIMIT, Program, target, unshared, words};

const LEN: usize = 20_000_000;
/// For one run. Most take a second or two; 3DES, and whatever runs beside much else, take longer.
const RUN_LIMIT: Duration = Duration::from_secs(300);
/// What drops a packet in twenty, each way.
const LOSS: f64 = 0.05;
/// The slow ones first: the last run keeps nobody waiting.
const CIPHERS: [&str; 13] = [
    "3des", "twofish", "sm4", "xtea", "blowfish", "cast5", "tea", "salsa20", "aes", "aes-128", "aes-192",
    "xor", "none",
];
/// Each combination of FEC, smux and compression. The number of one has a bit for each of the three.
const COMBINATIONS: [&str; 8] = [
    "",
    "-nocomp",
    "-smuxver 2",
    "-smuxver 2 -nocomp",
    "-datashard 0 -parityshard 0",
    "-datashard 0 -parityshard 0 -nocomp",
    "-datashard 0 -parityshard 0 -smuxver 2",
    "-datashard 0 -parityshard 0 -smuxver 2 -nocomp",
];
/// Both ends of nearly every run. The windows are those of a server, so that runs are short.
const COMMON: &str = "-key of-these-tests -mode fast3 -sndwnd 1024 -rcvwnd 1024";
/// All else is kcptun's default.
const DEFAULTS: &str = "-key of-these-tests";

#[derive(Debug, Clone, Copy)]
enum Ours {
    Client,
    Server,
}

/// A tunnel with kcptun on one end, through a bad path.
struct Tunnel {
    client: Program,
    server: Program,
    near: SocketAddr,
    _relay: Relay,
}

impl Tunnel {
    async fn start(ours: Ours, target: SocketAddr, flags: &str) -> Self {
        let far = SocketAddr::from((unshared(), 4000));
        let fill =
            |addr: SocketAddr| HashMap::from([("TARGET", target.to_string()), ("FAR", addr.to_string())]);
        let server = words(&format!("server -l FAR -t TARGET {flags}"), &fill(far));
        let relay = Relay::lossy(far, LOSS).unwrap();
        let client = words(&format!("client -l 127.0.0.1:0 -r FAR {flags}"), &fill(relay.addr()));
        let (server, client) = match ours {
            Ours::Client => {
                (Program::start(&kcptun("server"), &server[1..]), Program::start(&program("tunnel"), &client))
            }
            Ours::Server => {
                (Program::start(&program("tunnel"), &server), Program::start(&kcptun("client"), &client[1..]))
            }
        };
        let near = client.addr().await;
        Self { client, server, near, _relay: relay }
    }

    fn said(&self) -> String {
        format!("client:\n{}\nserver:\n{}", self.client.said(), self.server.said())
    }
}

/// The program of a role.
///
/// # Panics
/// Without it: whoever asks for these tests wants them run.
fn kcptun(role: &str) -> PathBuf {
    let path = Path::new("/usr/bin").join(format!("kcptun-{role}"));
    assert!(path.exists(), "there is no {}: is the package kcptun installed?", path.display());
    path
}

/// Bytes of which every other block compresses.
fn payload(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Payload::new(seed).fill(0, &mut bytes);
    for (at, block) in bytes.chunks_mut(10_000).enumerate() {
        if at % 2 == 1 {
            let first = block[0];
            block.fill(first);
        }
    }
    bytes
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Writes `sent` and reads as many bytes at the same time; returns what they hash to.
async fn exchange(stream: &mut TcpStream, sent: &[u8]) -> io::Result<[u8; 32]> {
    let (mut reader, mut writer) = stream.split();
    let mut got = vec![0; sent.len()];
    tokio::try_join!(writer.write_all(sent), reader.read_exact(&mut got))?;
    Ok(hash(&got))
}

async fn move_both_ways(ours: Ours, flags: &str) {
    let (up, down) = (payload(1, LEN), Arc::new(payload(2, LEN)));
    let up_hash = hash(&up);
    let (hashes, mut hashed) = mpsc::channel(1);
    let answers = Arc::clone(&down);
    let target = target(move |mut stream| {
        let (answers, hashes) = (Arc::clone(&answers), hashes.clone());
        async move {
            hashes.send(exchange(&mut stream, &answers).await).await.unwrap();
            // The other end closes.
            let _ = stream.read_u8().await;
        }
    })
    .await;
    let tunnel = Tunnel::start(ours, target, flags).await;
    let begun = std::time::Instant::now();
    let moving = async {
        let mut stream = TcpStream::connect(tunnel.near).await.unwrap();
        // The stream is dropped where it fails, so that the target hears of it too.
        let down = async move { exchange(&mut stream, &up).await };
        let (down, up) = tokio::join!(down, hashed.recv());
        (down, up.unwrap())
    };
    let moved = tokio::time::timeout(RUN_LIMIT, moving).await;
    let took = begun.elapsed().as_secs_f64();
    match moved {
        Ok((Ok(got_down), Ok(got_up))) => {
            assert!(got_down == hash(&down), "{flags}: other bytes came down");
            assert!(got_up == up_hash, "{flags}: other bytes went up");
        }
        failed => {
            panic!("our {ours:?}, {flags}, after {took:.1} s: {failed:?} (down, up)\n{}", tunnel.said())
        }
    }
    println!("our {ours:?}, {flags}: 20 MB each way in {took:.1} s");
}

/// Runs at a time, of all tests here: more would only take turns.
static TURNS: Semaphore = Semaphore::const_new(2);

async fn move_all(runs: impl IntoIterator<Item = (Ours, String)>) {
    let runs: Vec<_> = runs
        .into_iter()
        .map(|(ours, flags)| {
            spawn(async move {
                let _turn = TURNS.acquire().await.unwrap();
                move_both_ways(ours, &flags).await;
            })
        })
        .collect();
    for run in runs {
        run.await.unwrap();
    }
}

/// Each cipher with one of the combinations, in turn. Those of the two roles are opposite in all three things, so that each
/// cipher meets both sides of each.
fn every_cipher(ours: Ours) -> impl Iterator<Item = (Ours, String)> {
    let opposite = match ours {
        Ours::Client => 0,
        Ours::Server => COMBINATIONS.len() - 1,
    };
    CIPHERS.iter().enumerate().map(move |(at, cipher)| {
        let flags = COMBINATIONS[(at % COMBINATIONS.len()) ^ opposite];
        (ours, format!("{COMMON} -crypt {cipher} {flags}"))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Debian's kcptun and a minute: the head of this file has the command"]
async fn kcptuns_server_serves_our_client() {
    move_all(every_cipher(Ours::Client)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Debian's kcptun and a minute: the head of this file has the command"]
async fn our_server_serves_kcptuns_client() {
    move_all(every_cipher(Ours::Server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Debian's kcptun and a minute: the head of this file has the command"]
async fn kcptuns_defaults_work_in_both_roles() {
    move_all([Ours::Client, Ours::Server].map(|ours| (ours, DEFAULTS.to_owned()))).await;
}

/// Each cipher with each of the combinations, in both roles: 208 runs. `KCP9_KCPTUN_ONLY` names flags that the runs must have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Debian's kcptun and a quarter of an hour: .ci/run kcptun_all"]
async fn every_combination_of_flags() {
    let only = std::env::var("KCP9_KCPTUN_ONLY").unwrap_or_default();
    let runs = [Ours::Client, Ours::Server].into_iter().flat_map(|ours| {
        CIPHERS.iter().flat_map(move |cipher| {
            COMBINATIONS.iter().map(move |flags| (ours, format!("{COMMON} -crypt {cipher} {flags}")))
        })
    });
    move_all(runs.filter(|(_, flags)| flags.contains(&only))).await;
}

/// The files that kcptun's package has as examples start a client and a server, and nothing in them is ignored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Debian's kcptun: the head of this file has the command"]
async fn kcptuns_example_files_are_understood() {
    let folder = Path::new("/usr/share/doc/kcptun/examples");
    for (role, name) in [("client", "local.json"), ("server", "server.json")] {
        let file = folder.join(name).to_str().unwrap().to_owned();
        let program = Program::start(&program("tunnel"), &[role, "-c", &file]);
        assert!(program.says("listening on: ").await.ends_with(":2000"), "{}", program.said());
        // Said last, of what is at work.
        program.says("mux: smux 1, nocomp: true").await;
        let said = program.said();
        assert!(said.contains("crypt: aes-128, mode: fast3, mtu: 1400, shards: 10/3"), "{said}");
        assert!(!said.contains("ignored") && !said.contains("warning"), "{said}");
    }
}

/// What the end that closes first has sent arrives whole, and then the end, whichever end it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Debian's kcptun and ten seconds: the head of this file has the command"]
async fn no_answer_is_cut_short() {
    const ANSWER: usize = 3_000_000;
    for ours in [Ours::Client, Ours::Server] {
        for flags in ["", "-smuxver 2 -nocomp"] {
            let answers = Arc::new(payload(3, ANSWER));
            let expected = Arc::clone(&answers);
            let (sender, mut received) = mpsc::channel(1);
            // Answers a byte and closes; reads what comes otherwise.
            let target = target(move |mut stream| {
                let (answers, sender) = (Arc::clone(&answers), sender.clone());
                async move {
                    if stream.read_u8().await.unwrap() == b'?' {
                        return stream.write_all(&answers).await.unwrap();
                    }
                    let mut bytes = Vec::new();
                    stream.read_to_end(&mut bytes).await.unwrap();
                    sender.send(hash(&bytes)).await.unwrap();
                }
            })
            .await;
            let tunnel = Tunnel::start(ours, target, &format!("{COMMON} {flags}")).await;

            let mut stream = TcpStream::connect(tunnel.near).await.unwrap();
            stream.write_all(b"?").await.unwrap();
            let mut answer = Vec::new();
            within(LIMIT, "the answer", stream.read_to_end(&mut answer)).await.unwrap();
            assert!(
                hash(&answer) == hash(&expected),
                "{flags}: {} bytes came\n{}",
                answer.len(),
                tunnel.said()
            );

            let mut stream = TcpStream::connect(tunnel.near).await.unwrap();
            stream.write_all(b"!").await.unwrap();
            stream.write_all(&expected).await.unwrap();
            drop(stream);
            let got = within(LIMIT, "what the target reads", received.recv()).await.unwrap();
            assert!(got == hash(&expected), "{flags}: other bytes went up\n{}", tunnel.said());
        }
    }
}
