//! What peers without the extension segments make of them: nothing. See `docs/extensions.md`.
//!
//! A relay puts them into the sessions of live peers, whatever the two ends know of them:
//!
//! * the mark: 0x60 in `frg` of every ACK, WASK and WINS, in both directions. Only in packets without FEC header, since parity
//!   covers those that have one;
//! * HELLO, in both directions, without FEC header: one of 1,200 bytes in front of the first packet, one of 128 behind each.
//!   So they come before, within and behind everything that a session does, hundreds of times as many as an end may send.
//!
//! Every byte of an echo comes back, one session is accepted, nothing is resent for it. The last of these hangs on the machine,
//! and is asked for by `KCP9_QUIET`.
//!
//! ```text
//! KCP9_QUIET=1 KCP9_IKCP=/path/to/ikcp cargo test --test interop -- --ignored extension     with ikcp.c and ikcp.h of that folder as well
//! ```

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kcp9::{
    KcpConfig, KcpStream, NoDelay, Stats,
    proto::{Extensions, HEADER_LEN},
};
use kcp9_relay::{Direction, Relay};
use tokio::net::UdpSocket;

use crate::{
    c_peer::programs,
    echo::{self, OtherCrate, Server, within},
    go_peer,
    kcp_tokio_crate::KcpTokio,
    tokio_kcp_crate::TokioKcp,
};

/// Bytes of an echo, each way.
const LEN: usize = 1 << 20;
const BYTES: &str = "1048576";
/// Bytes of the echo that follows when everything was quiet for a while.
const LATER: usize = 50_000;
const PAUSE: Duration = Duration::from_millis(100);

const MARK: u8 = 0x60;
const EXTENSION: u8 = 0x60;
const ACK: u8 = 82;
const PUSH: u8 = 81;
/// `frg` of a HELLO.
const HELLO: u8 = 1;
/// The session id of every HELLO here. `sn` is its first half.
const ID: [u8; 8] = [0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8];
const FEC_HEADER: usize = 8;

/// What the relay has put into a session, in each direction.
#[derive(Debug, Default)]
struct Added {
    marks: [AtomicU64; 2],
    hellos: [AtomicU64; 2],
}

impl Added {
    fn marks(&self, direction: Direction) -> u64 {
        self.marks[direction as usize].load(Ordering::Relaxed)
    }

    fn hellos(&self, direction: Direction) -> u64 {
        self.hellos[direction as usize].load(Ordering::Relaxed)
    }
}

/// A relay that adds extension segments.
fn extending(server: SocketAddr) -> (Relay, Arc<Added>) {
    let added = Arc::new(Added::default());
    let counts = Arc::clone(&added);
    // The last segment that each end has sent.
    let mut last = [None; 2];
    let relay = Relay::rewriting(
        server,
        Box::new(move |direction, packet, out| {
            let way = direction as usize;
            let mut packet = packet.to_vec();
            let begins = last[way].is_none();
            let (segments, is_fec) = segments_of(&packet);
            for at in segments {
                last[way] = packet[at..].first_chunk().copied();
                if packet[at + 4] > PUSH && !is_fec {
                    packet[at + 5] = MARK;
                    counts.marks[way].fetch_add(1, Ordering::Relaxed);
                }
            }
            let Some(header) = last[way] else { return out.push(packet) };
            if begins {
                counts.hellos[way].fetch_add(1, Ordering::Relaxed);
                out.push(hello(&header, 1_200));
            }
            counts.hellos[way].fetch_add(1, Ordering::Relaxed);
            out.extend([packet, hello(&header, 128)]);
        }),
    );
    (relay.unwrap(), added)
}

/// Where the segments of a packet are, and whether it has an FEC header. Parity has none.
fn segments_of(packet: &[u8]) -> (Vec<usize>, bool) {
    let mut at = match packet[4..6] {
        [0xf1, 0] => FEC_HEADER,
        [0xf2 | 0xf3, 0] => return (Vec::new(), true),
        _ => 0,
    };
    let is_fec = at > 0;
    let mut segments = Vec::new();
    while let Some(header) = packet.get(at..at + HEADER_LEN) {
        assert!((PUSH..PUSH + 4).contains(&header[4]), "{header:02x?} at {at}");
        segments.push(at);
        let len = u32::from_le_bytes([header[20], header[21], header[22], header[23]]);
        at += HEADER_LEN + len as usize;
    }
    (segments, is_fec)
}

/// A HELLO of `len` bytes of the end that has sent the segment `beside`: of the same conversation, with its window, clock and
/// `una`.
fn hello(beside: &[u8; HEADER_LEN], len: usize) -> Vec<u8> {
    const FIXED: usize = 24;
    const KEEP_ALIVE: [u8; 7] = [0x01, 4, 0, 0x20, 0x4e, 0, 0];
    let mut packet = beside.to_vec();
    packet[4..6].copy_from_slice(&[EXTENSION, HELLO]);
    packet[12..16].copy_from_slice(&ID[..4]);
    // Magic, highest and lowest version, 2 bytes that say nothing, no capability.
    packet.extend(*b"kcp9\x01\x01\0\0\0\0\0\0");
    packet.extend(ID);
    // It answers none.
    packet.extend([0; 4]);
    assert_eq!(packet.len(), HEADER_LEN + FIXED);
    packet.extend(KEEP_ALIVE);
    if let Some(padding) = len.checked_sub(packet.len() + 3) {
        packet.push(0);
        packet.extend((padding as u16).to_le_bytes());
        packet.resize(len, 0);
    }
    let body = (packet.len() - HEADER_LEN) as u32;
    packet[20..24].copy_from_slice(&body.to_le_bytes());
    packet
}

/// The HELLOs here are those of the document.
#[test]
fn a_hello_has_the_documented_bytes() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut beside = [0; HEADER_LEN];
    beside[..4].copy_from_slice(&0x1122_3344_u32.to_le_bytes());
    beside[6..8].copy_from_slice(&128_u16.to_le_bytes());
    beside[8..12].copy_from_slice(&1_000_u32.to_le_bytes());
    assert_eq!(
        hex(&hello(&beside, 0)),
        "4433221160018000e8030000a1a2a3a4000000001f0000006b6370390101000000000000a1a2a3a4a5a6a7a800000000010400204e0000"
    );
    let padded = hello(&beside, 1_200);
    assert_eq!(padded.len(), 1_200);
    let begin = "4433221160018000e8030000a1a2a3a400000000980400006b6370390101000000000000a1a2a3a4a5a6a7a800000000010400204e0000007604";
    assert_eq!(hex(&padded[..58]), begin);
    assert!(padded[58..].iter().all(|byte| *byte == 0));
}

/// One of our streams drives an echo server twice, with a pause between.
async fn drive_ours(what: &str, addr: SocketAddr, config: KcpConfig) -> Stats {
    let stream = KcpStream::connect(addr, config).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    for len in [LEN, LATER] {
        writer = within(what, echo::drive(what, &mut reader, writer, len)).await;
        tokio::time::sleep(PAUSE).await;
    }
    reader.stats()
}

/// Runs `run`, whose outcome is how many segments were resent, and prints that. Timeouts come early where the machine has
/// other work. So only where the environment says that it has none, hardly anything may be resent, in the best of six runs:
/// if HELLOs or marks disturbed anything, it would be hundreds of segments, every time.
async fn count_resends(what: &str, mut run: impl AsyncFnMut() -> u64) {
    let mut seen = Vec::new();
    while seen.len() < 6 {
        let resent = run().await;
        println!("{what}: {resent} segments resent");
        if std::env::var_os("KCP9_QUIET").is_none() || resent * 10 < SEGMENTS {
            return;
        }
        seen.push(resent);
    }
    panic!("{what}: of {SEGMENTS} segments, resent were {seen:?}");
}

fn check_added(what: &str, added: &Added, fec: bool) {
    println!("{what}: {added:?}");
    for direction in [Direction::ToServer, Direction::ToClient] {
        // One ACK stands for many segments.
        let (marks, hellos) = (added.marks(direction), added.hellos(direction));
        assert!(hellos > 500 && (fec || marks >= 5), "{what}: {added:?}");
    }
}

/// No RTO is shorter than 100 ms.
const PATIENT: NoDelay = NoDelay::FAST;
const PATIENT_FLAG: &str = "0,10,2,1";
/// Segments of an echo of [`LEN`].
const SEGMENTS: u64 = LEN as u64 / 1_400;

/// The programs without FEC, and with, where they know it.
fn cases() -> impl Iterator<Item = (PathBuf, bool)> {
    let plain = programs().map(|peer| (peer, false));
    plain.chain(go_peer::all().into_iter().map(|peer| (peer, true)))
}

fn config(fec: bool) -> KcpConfig {
    let (data, parity) = if fec { (10, 3) } else { (0, 0) };
    // Whatever is known of extensions here comes from the relay.
    let builder = echo::config().to_builder().extensions(Extensions::Off);
    builder.nodelay(PATIENT).fec(data, parity).build().unwrap()
}

/// The shards of [`config`], as a program's flag.
fn shards(fec: bool) -> &'static str {
    if fec { "10/3" } else { "0/0" }
}

fn name(peer: &Path, what: &str, fec: bool) -> String {
    format!("{} {what}, FEC {}", peer.display(), shards(fec))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn programs_serve_as_if_there_was_no_extension() {
    for (peer, fec) in cases() {
        let what = name(&peer, "serves", fec);
        let run = async || {
            let server =
                go_peer::serve(&peer, "echo", &["--fec", shards(fec), "--nodelay", PATIENT_FLAG]).await;
            let (relay, added) = extending(server.addr);
            let ours = drive_ours(&what, relay.addr(), config(fec)).await;
            check_added(&what, &added, fec);
            let report = server.report().await;
            assert_eq!(report.sessions(), 1, "{what}");
            // It has seen each HELLO, and took none for anything else.
            assert_eq!(report.refused(), added.hellos(Direction::ToServer), "{what}");
            ours.recovery.resends() + report.resent()
        };
        count_resends(&what, run).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn programs_connect_as_if_there_was_no_extension() {
    for (peer, fec) in cases() {
        let what = name(&peer, "connects", fec);
        let run = async || {
            let server = Server::start(config(fec)).await;
            let (relay, added) = extending(server.addr);
            let flags = ["--bytes", BYTES, "--fec", shards(fec), "--nodelay", PATIENT_FLAG];
            let report = go_peer::drive(&peer, "echo", relay.addr(), &flags).await;
            check_added(&what, &added, fec);
            assert_eq!(server.accepted(), 1, "{what}");
            // It may end before the last have come.
            let (refused, hellos) = (report.refused(), added.hellos(Direction::ToClient));
            assert!(refused + 10.max(hellos / 10) >= hellos, "{what}: {refused} of {hellos}");
            report.resent()
        };
        count_resends(&what, run).await;
    }
}

async fn serves<C: OtherCrate>() {
    let what = format!("{} serves", C::NAME);
    let run = async || {
        let server = C::serve().await;
        let (relay, added) = extending(server.addr);
        // These keep the system's small socket buffers, which a larger window overflows, with HELLOs or without. And
        // kcp-tokio loses what comes before `accept`: a first flight of 31 segments.
        let config = config(false).to_builder().send_window(32).build().unwrap();
        let ours = drive_ours(&what, relay.addr(), config).await;
        check_added(&what, &added, false);
        assert_eq!(server.accepted(), 1, "{what}");
        ours.recovery.resends()
    };
    count_resends(&what, run).await;
}

async fn connects<C: OtherCrate>() {
    let what = format!("{} connects", C::NAME);
    let server = Server::start(config(false)).await;
    let (relay, added) = extending(server.addr);
    let (mut reader, mut writer) = tokio::io::split(C::connect(relay.addr()).await);
    for len in [LEN, LATER] {
        writer = within(&what, echo::drive(&what, &mut reader, writer, len)).await;
        tokio::time::sleep(PAUSE).await;
    }
    check_added(&what, &added, false);
    assert_eq!(server.accepted(), 1, "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokio_kcp_serves_as_if_there_was_no_extension() {
    serves::<TokioKcp>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokio_kcp_connects_as_if_there_was_no_extension() {
    connects::<TokioKcp>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_tokio_serves_as_if_there_was_no_extension() {
    serves::<KcpTokio>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_tokio_connects_as_if_there_was_no_extension() {
    connects::<KcpTokio>().await;
}

/// Why an end may send HELLO at the beginning, and not later than it hears an ACK without mark: kcp-go's listener accepts a
/// session for any packet. It takes HELLO and what follows for one, and one that comes late for a new one.
#[tokio::test]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn a_hello_opens_a_session_at_kcp_go_and_a_late_one_another() {
    for peer in go_peer::all() {
        let server = go_peer::serve(&peer, "echo", &["--idle", "0.2"]).await;
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut beside = [0; HEADER_LEN];
        beside[..4].copy_from_slice(&7_u32.to_le_bytes());
        beside[6..8].copy_from_slice(&128_u16.to_le_bytes());
        for len in [1_200, 128, 128] {
            socket.send_to(&hello(&beside, len), server.addr).await.unwrap();
        }
        // It has closed the session when it read nothing in two times 0.2 s.
        tokio::time::sleep(Duration::from_secs(1)).await;
        socket.send_to(&hello(&beside, 128), server.addr).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let report = server.report().await;
        assert_eq!((report.sessions(), report.refused()), (2, 4), "{}", peer.display());
    }
}

/// A HELLO and a PUSH behind it are one session.
#[tokio::test]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_answers_the_push_behind_a_hello_in_the_same_session() {
    for peer in programs() {
        let server = go_peer::serve(&peer, "echo", &[]).await;
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut push = [0; HEADER_LEN];
        push[..4].copy_from_slice(&7_u32.to_le_bytes());
        push[4] = PUSH;
        push[6..8].copy_from_slice(&128_u16.to_le_bytes());
        push[20] = 5;
        socket.send_to(&hello(&push, 1_200), server.addr).await.unwrap();
        socket.send_to(&[&push[..], b"hello"].concat(), server.addr).await.unwrap();
        let mut answer = [0; 1_500];
        let mut echoed = false;
        while !echoed {
            let (len, _) = within("an answer", socket.recv_from(&mut answer)).await.unwrap();
            let (segments, _) = segments_of(&answer[..len]);
            // Whatever it sends is a segment that everybody knows, and `frg` is 0.
            assert!(segments.iter().all(|at| answer[at + 5] == 0 && answer[at + 4] <= ACK + 2));
            echoed = segments.iter().any(|at| answer[at + 4] == PUSH && answer[..len].ends_with(b"hello"));
        }
        let report = server.report().await;
        assert_eq!((report.sessions(), report.refused()), (1, 1), "{}", peer.display());
    }
}
