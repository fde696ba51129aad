//! Every packet cipher of kcp-go, live in both directions, through a path that drops 5 % each way.

use kcp9::{
    KcpConfig, KcpListener, KcpStream,
    crypto::{CipherKind, Framing, Key, PacketCrypto},
};
use kcp9_relay::Relay;
use tokio::io::AsyncWriteExt;

use crate::{
    echo::{self, Server, within},
    go_peer,
};

const LOSS: f64 = 0.05;
const KEY: &str = "0123456789abcdefFEDCBA9876543210";

/// The ciphers of Debian's kcp-go.
fn kinds() -> impl Iterator<Item = CipherKind> {
    CipherKind::all().filter(|kind| !kind.is_aead())
}

/// Bytes of an echo, each way. A Twofish crate that seals 2 MB/s on a core of its own needs half a minute for what the others move in
/// one or two seconds.
fn len(kind: CipherKind) -> usize {
    if kind == CipherKind::Twofish { 2 << 20 } else { 10 << 20 }
}

/// A third of what the path loses on average.
fn least_dropped(kind: CipherKind) -> u64 {
    len(kind) as u64 / 42_000
}

fn config(kind: CipherKind, key: &str) -> KcpConfig {
    let len = if kind == CipherKind::None { 0 } else { kind.key_len() };
    let cipher = kind.build(&Key::from_bytes(&key.as_bytes()[..len]), Framing::KcpGo).unwrap();
    echo::config().to_builder().crypto(PacketCrypto::with_os_nonces(cipher).unwrap()).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_serves_every_cipher() {
    for peer in go_peer::all() {
        for kind in kinds() {
            let server = go_peer::serve(&peer, "echo", &["--crypt", kind.name(), "--key", KEY]).await;
            let relay = Relay::lossy(server.addr, LOSS).unwrap();
            let what = format!("{}: serves {kind}, 5 % loss", peer.display());
            echo::drive_ours(&what, relay.addr(), config(kind, KEY), len(kind)).await;
            let dropped = relay.counts().dropped();
            assert!(dropped > least_dropped(kind), "{dropped} packets lost");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_connects_with_every_cipher() {
    for peer in go_peer::all() {
        for kind in kinds() {
            let server = Server::start(config(kind, KEY)).await;
            let relay = Relay::lossy(server.addr, LOSS).unwrap();
            let bytes = len(kind).to_string();
            let flags = ["--bytes", &bytes, "--crypt", kind.name(), "--key", KEY];
            go_peer::drive(&peer, "echo", relay.addr(), &flags).await;
            let dropped = relay.counts().dropped();
            assert!(dropped > least_dropped(kind), "{dropped} packets lost");
        }
    }
}

/// No session is accepted for a kcp-go client with another key, and its packets are counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn no_session_comes_about_between_different_keys() {
    for peer in go_peer::all() {
        let listener = KcpListener::bind("127.0.0.1:0", config(CipherKind::Aes128, KEY)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let flags = ["--bytes", "1000", "--crypt", "aes-128", "--key", "another key of 16", "--timeout", "1"];
        go_peer::fail_to_drive(&peer, "echo", addr, &flags).await;
        let stats = listener.endpoint_stats();
        assert!(stats.dropped.bad_checksum > 0, "{stats:?}");
        assert_eq!((stats.driver.accepted, stats.state.sessions), (0, 0), "{stats:?}");

        // Our client drops what a server with another key sends.
        let server = go_peer::serve(&peer, "echo", &["--crypt", "aes-128", "--key", KEY]).await;
        let config = config(CipherKind::Aes128, "another key of 16 bytes")
            .to_builder()
            .dead_timeout(std::time::Duration::from_secs(1))
            .build()
            .unwrap();
        let mut stream = KcpStream::connect(server.addr, config).await.unwrap();
        stream.write_all(b"is anybody there?").await.unwrap();
        let ended = within("nobody answers", stream.shutdown()).await;
        assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    }
}
