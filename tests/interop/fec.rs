//! Forward error correction against kcp-go, live in both directions, through a path that drops 15 % each way.
//!
//! What kcp-go cannot do, whoever sends to it (two of its own end the same way):
//!
//! * 5.6.1 without FEC, or with 1/1, takes parity of other groups for data: the stream breaks on a clean path already,
//!   so that is not met here (5.6.72 reads it well);
//! * where the numbers of shards differ, it decodes with its own until it has found out its peer's, for which it needs
//!   runs of packets without a gap. Through loss, garbage gets into the stream until then: the path is clean at first;
//! * 5.6.72 recovers nothing after a change to larger groups until their numbers, divided by the new size, have come to
//!   where it was by the old one.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use kcp9::{
    KcpConfig, KcpStream,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
    fec::AdaptiveFec,
};
use kcp9_relay::{Counts, Relay};
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    echo::{self, Server},
    go_peer,
};

const LEN: usize = 4 << 20;
const BYTES: &str = "4194304";
const LOSS: f64 = 0.15;
const KEY: &str = "0123456789abcdefFEDCBA9876543210";

/// Cipher, ours, theirs.
const RUNS: [(&str, &str, &str); 8] = [
    ("null", "10/3", "10/3"),
    ("null", "3/2", "3/2"),
    ("null", "1/1", "1/1"),
    ("null", "30/15", "30/15"),
    ("null", "10/3", "5/2"),
    ("null", "0/0", "10/3"),
    ("aes", "10/3", "10/3"),
    ("salsa20", "10/3", "10/3"),
];

fn config(cipher: &str, fec: &str) -> KcpConfig {
    let (data, parity) = fec.split_once('/').unwrap();
    let crypto = cipher.parse::<CipherKind>().ok().map(|kind| {
        let cipher = kind.build(&Key::from_bytes(&KEY.as_bytes()[..kind.key_len()]), Framing::KcpGo).unwrap();
        PacketCrypto::with_os_nonces(cipher).unwrap()
    });
    let builder = echo::config().to_builder().fec(data.parse().unwrap(), parity.parse().unwrap());
    builder.crypto(crypto).build().unwrap()
}

/// The runs with one peer. Debian's 5.6.1 cannot read what is sent with FEC where it has none itself.
fn runs(peer: usize) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    RUNS.into_iter().chain((peer > 0).then_some(("null", "10/3", "0/0")))
}

/// A path whose loss depends on how many packets it has passed.
struct Lossy {
    addr: SocketAddr,
    relay: Arc<Relay>,
}

/// `loss` is asked again and again, with the packets passed so far.
fn lossy(server: SocketAddr, loss: fn(u64) -> f64) -> Lossy {
    let relay = Relay::lossy(server, loss(0)).unwrap();
    let path = Lossy { addr: relay.addr(), relay: Arc::new(relay) };
    let relay = Arc::downgrade(&path.relay);
    spawn(async move {
        while let Some(relay) = relay.upgrade() {
            relay.set_loss(loss(relay.counts().passed));
            drop(relay);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    path
}

impl Lossy {
    fn counts(&self) -> Counts {
        self.relay.counts()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_serves_with_fec_through_losses() {
    for (number, peer) in go_peer::all().into_iter().enumerate() {
        for (cipher, ours, theirs) in runs(number) {
            let flags = ["--crypt", cipher, "--key", KEY, "--fec", theirs];
            let server = go_peer::serve(&peer, "echo", &flags).await;
            let relay = lossy(server.addr, if ours == theirs { always } else { once_acquainted });
            let what = format!("{}: serves {cipher}, ours {ours}, its {theirs}", peer.display());
            let stats = echo::drive_ours(&what, relay.addr, config(cipher, ours), LEN).await;
            assert!(relay.counts().dropped() > 100, "{} packets lost", relay.counts().dropped());
            println!("{what}: {:?}", stats.fec);
            assert_eq!(stats.fec.parity_sent > 0, ours != "0/0", "{what}");
            let peer = format!("{}/{}", stats.fec_state.peer_data_shards, stats.fec_state.peer_parity_shards);
            assert_eq!(peer, theirs, "{what}");
            assert_eq!(stats.fec.recovered > 10, theirs != "0/0", "{what}: {:?}", stats.fec);
            let recovered = server.report().await.recovered();
            assert_eq!(recovered > 10, ours != "0/0", "{what}: it recovered {recovered}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_connects_with_fec_through_losses() {
    for (number, peer) in go_peer::all().into_iter().enumerate() {
        for (cipher, ours, theirs) in runs(number) {
            let server = Server::start(config(cipher, ours)).await;
            let relay = lossy(server.addr, if ours == theirs { always } else { once_acquainted });
            let flags = ["--bytes", BYTES, "--crypt", cipher, "--key", KEY, "--fec", theirs];
            let recovered = go_peer::drive(&peer, "echo", relay.addr, &flags).await.recovered();
            assert!(relay.counts().dropped() > 100, "{} packets lost", relay.counts().dropped());
            let what = format!("{}: drives {cipher}, ours {ours}, its {theirs}", peer.display());
            assert_eq!(recovered > 10, ours != "0/0", "{what}: it recovered {recovered}");
        }
    }
}

/// With the same numbers of shards, kcp-go understands parity that follows the losses, and copies of segments whose group
/// stays incomplete, as server and as client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_understands_adaptive_parity() {
    let config = config("null", "10/6").to_builder().fec_adaptive(Some(AdaptiveFec::default()));
    let config = config.fec_flush(Some(Duration::from_millis(5))).build().unwrap();
    for peer in go_peer::all() {
        let what = format!("{}, adaptive", peer.display());
        let server = go_peer::serve(&peer, "echo", &["--fec", "10/6"]).await;
        let path = lossy(server.addr, changing);
        let stats = echo::drive_ours(&what, path.addr, config.clone(), LEN).await;
        println!("{what}: {stats:?}");
        assert!(path.counts().dropped() > 100, "{} packets lost", path.counts().dropped());
        let sent = stats.udp.packets_sent - stats.fec.parity_sent;
        assert!(stats.fec.parity_sent > 24 && stats.fec.parity_sent < sent * 6 / 10, "{what}: {stats:?}");

        let server = Server::start(config.clone()).await;
        let path = lossy(server.addr, changing);
        go_peer::drive(&peer, "echo", path.addr, &["--bytes", BYTES, "--fec", "10/6"]).await;
        assert!(path.counts().dropped() > 100, "{} packets lost", path.counts().dropped());
    }
}

/// Small messages at a slow pace: kcp-go treats the copies as resends, and its echo is right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_understands_copies_of_incomplete_groups() {
    const MESSAGES: usize = 200;
    let config =
        config("null", "10/3").to_builder().fec_flush(Some(Duration::from_millis(5))).build().unwrap();
    for peer in go_peer::all() {
        let server = go_peer::serve(&peer, "echo", &["--fec", "10/3"]).await;
        let path = lossy(server.addr, always);
        let stream = KcpStream::connect(path.addr, config.clone()).await.unwrap();
        let (mut reader, mut writer) = stream.into_split();
        let payload = echo::payload(MESSAGES * 200);
        let expected = payload.clone();
        let writing = spawn(async move {
            for message in payload.chunks(200) {
                writer.write_all(message).await.unwrap();
                tokio::time::sleep(Duration::from_millis(15)).await;
            }
            writer
        });
        let mut found = vec![0; expected.len()];
        echo::within("the echo of small messages", reader.read_exact(&mut found)).await.unwrap();
        assert!(found == expected, "{}: not what was sent", peer.display());
        drop(writing.await.unwrap());
        let stats = reader.stats();
        assert!(stats.recovery.fec_flush_copies > 20, "{stats:?}");
        assert!(path.counts().dropped() > 50, "{} packets lost", path.counts().dropped());
    }
}

/// A live session changes its shards: kcp-go finds the new numbers out on a clean path, and can then recover packets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_follows_a_change_of_shards() {
    for (number, peer) in go_peer::all().into_iter().enumerate() {
        for (before, after) in [("10/3", (30, 15)), ("30/15", (5, 2))] {
            let follows = number == 0 || after == (5, 2);
            let what = format!("{}, {before} and then {after:?}", peer.display());
            let server = go_peer::serve(&peer, "echo", &["--fec", before]).await;
            let relay = Relay::lossy(server.addr, 0.0).unwrap();
            let mut stream = KcpStream::connect(relay.addr(), config("null", before)).await.unwrap();
            echo_in_turns(&what, &mut stream, 2 << 20).await;
            stream.update_settings(|settings| settings.fec = after).unwrap();
            echo_in_turns(&what, &mut stream, 1 << 20).await;
            relay.set_loss(LOSS);
            echo_in_turns(&what, &mut stream, 2 << 20).await;
            assert!(relay.counts().dropped() > 100, "{what}: {} packets lost", relay.counts().dropped());
            let recovered = server.report().await.recovered();
            println!("{what}: it recovered {recovered}");
            assert!(recovered > 50 || !follows, "{what}: it recovered {recovered}");
        }
    }
}

/// Sends `len` bytes and reads them back, piece by piece.
async fn echo_in_turns(what: &str, stream: &mut KcpStream, len: usize) {
    for piece in echo::payload(len).chunks(64 << 10) {
        stream.write_all(piece).await.unwrap();
        stream.flush().await.unwrap();
        let mut back = vec![0; piece.len()];
        echo::within(what, stream.read_exact(&mut back)).await.unwrap();
        assert!(back == piece, "{what}: not what was sent");
    }
}

fn always(_: u64) -> f64 {
    LOSS
}

/// Nothing is lost until both ends know each other's numbers of shards.
fn once_acquainted(passed: u64) -> f64 {
    if passed > 600 { LOSS } else { 0.0 }
}

/// Nothing is lost at first, then much, then little.
fn changing(passed: u64) -> f64 {
    match passed {
        0..2_000 => 0.0,
        2_000..5_000 => 0.15,
        _ => 0.03,
    }
}
