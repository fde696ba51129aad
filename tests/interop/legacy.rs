//! Our sessions with extensions, and peers that know none: they are told by their first ACK, and treated as such from then on.
//! See `docs/extensions.md`.
//!
//! A relay that changes nothing counts what passes.

use std::{
    io::ErrorKind,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use kcp9::{
    KcpConfig, KcpConfigBuilder, KcpEndpoint, KcpListener, KcpStream,
    proto::{Extensions, HEADER_LEN},
};
use kcp9_relay::Relay;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    c_peer::programs,
    echo::{self, OtherCrate, Server, payload, within},
    go_peer::{self, Serving},
    kcp_tokio_crate::KcpTokio,
    tokio_kcp_crate::TokioKcp,
};

/// Bytes of an echo, each way.
const LEN: usize = 1 << 20;
const BYTES: &str = "1048576";
const EXTENSION: u8 = 0x60;
const MARK: u8 = 0x60;
const PUSH: u8 = 81;
const HELLO: u8 = 1;

/// What went in one direction, in packets without FEC header.
#[derive(Debug, Default, Clone)]
struct Passed {
    /// Lengths of packets with a HELLO.
    hellos: Vec<usize>,
    other_extensions: usize,
    /// ACK, WASK and WINS.
    marked: usize,
    unmarked: usize,
}

/// A relay that counts, and its counts by direction.
fn watching(server: SocketAddr) -> (Relay, Arc<Mutex<[Passed; 2]>>) {
    let passed = Arc::<Mutex<[Passed; 2]>>::default();
    let counts = Arc::clone(&passed);
    let relay = Relay::rewriting(
        server,
        Box::new(move |direction, packet, out| {
            count(&mut lock(&counts)[direction as usize], packet);
            out.push(packet.to_vec());
        }),
    );
    (relay.unwrap(), passed)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

fn count(passed: &mut Passed, packet: &[u8]) {
    let mut at = 0;
    while let Some(header) = packet.get(at..at + HEADER_LEN) {
        match header[4..6] {
            [EXTENSION, HELLO] => passed.hellos.push(packet.len()),
            [EXTENSION, _] => passed.other_extensions += 1,
            [PUSH, _] => {}
            [_, MARK] => passed.marked += 1,
            [_, 0] => passed.unmarked += 1,
            _ => panic!("{header:02x?}"),
        }
        at += HEADER_LEN + u32::from_le_bytes([header[20], header[21], header[22], header[23]]) as usize;
    }
}

fn builder() -> KcpConfigBuilder {
    // The crates among the peers keep the system's small socket buffers.
    echo::config().to_builder().send_window(32).extensions(Extensions::Preferred)
}

fn config() -> KcpConfig {
    builder().build().unwrap()
}

/// One of our streams drives an echo server and shuts down. Returns what went to the server and back.
async fn drive_ours(what: &str, server: SocketAddr) -> [Passed; 2] {
    let (relay, passed) = watching(server);
    let stream = KcpStream::connect(relay.addr(), config()).await.unwrap();
    let (mut reader, writer) = stream.into_split();
    let mut writer = within(what, echo::drive(what, &mut reader, writer, LEN)).await;
    // It waits for nothing that such a peer does not send.
    let begun = Instant::now();
    within(what, writer.shutdown()).await.unwrap_or_else(|error| panic!("{what}: shutdown: {error}"));
    assert!(begun.elapsed() < Duration::from_secs(5), "{what}: {:?}", begun.elapsed());
    let passed = lock(&passed).clone();
    println!("{what}: {passed:?}");
    passed
}

/// Whether one of our streams behaved as it should with a peer without extensions. Fails where no timeout is an excuse; a HELLO
/// is sent again when the first ACK takes longer than the first RTO, as on a machine that has other work.
fn is_exemplary(what: &str, [to_server, to_client]: &[Passed; 2]) -> bool {
    assert_eq!((to_client.hellos.len(), to_client.other_extensions), (0, 0), "{what}");
    assert_eq!((to_client.marked, to_server.unmarked), (0, 0), "{what}: marks are ours, and on all of ours");
    assert!(to_client.unmarked > 0 && to_server.marked > 0, "{what}");
    assert_eq!(to_server.other_extensions, 0, "{what}: nothing but HELLO goes to who has not spoken");
    assert_eq!(to_server.hellos[0], 1_200, "{what}");
    to_server.hellos.len() == 1
}

/// Runs `run` until it says that all was well, at most six times.
async fn eventually(what: &str, mut run: impl AsyncFnMut() -> bool) {
    for _ in 0..6 {
        if run().await {
            return;
        }
    }
    panic!("{what}: not once in six runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn a_program_that_serves_gets_one_hello_and_accepts_one_session() {
    for peer in programs() {
        let what = format!("{} serves", peer.display());
        let run = async || {
            let server = go_peer::serve(&peer, "echo", &[]).await;
            let passed = drive_ours(&what, server.addr).await;
            let report = server.report().await;
            assert_eq!(report.sessions(), 1, "{what}");
            assert_eq!(report.refused(), passed[0].hellos.len() as u64, "{what}");
            is_exemplary(&what, &passed)
        };
        eventually(&what, run).await;
    }
}

async fn serves<C: OtherCrate>() {
    let what = format!("{} serves", C::NAME);
    let run = async || {
        let server = C::serve().await;
        let passed = drive_ours(&what, server.addr).await;
        assert_eq!(server.accepted(), 1, "{what}");
        is_exemplary(&what, &passed)
    };
    eventually(&what, run).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokio_kcp_gets_one_hello_and_accepts_one_session() {
    serves::<TokioKcp>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_tokio_gets_one_hello_and_accepts_one_session() {
    serves::<KcpTokio>().await;
}

/// Who does not announce extensions hears of none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn a_program_that_connects_gets_no_extension_segment() {
    for peer in programs() {
        let what = format!("{} connects", peer.display());
        let server = Server::start(config()).await;
        let (relay, passed) = watching(server.addr);
        let report = go_peer::drive(&peer, "echo", relay.addr(), &["--bytes", BYTES]).await;
        let [to_server, to_client] = lock(&passed).clone();
        println!("{what}: {to_client:?}");
        assert_eq!((to_client.hellos.len(), to_client.other_extensions), (0, 0), "{what}");
        assert!(to_client.marked > 0 && to_client.unmarked == 0 && to_server.marked == 0, "{what}");
        assert_eq!((server.accepted(), report.refused()), (1, 0), "{what}");
    }
}

/// HELLO goes beside FEC groups, sealed like everything, and is lost like everything.
#[cfg(feature = "kcptun-ciphers")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_echoes_with_fec_and_ciphers_through_losses_as_without_extensions() {
    use kcp9::crypto::{CipherKind, Framing, Key, PacketCrypto};

    const KEY: &str = "0123456789abcdefFEDCBA9876543210";
    for peer in go_peer::all() {
        for (cipher, fec) in [("null", true), ("aes", false), ("aes", true), ("salsa20", true)] {
            let crypto = cipher.parse::<CipherKind>().ok().map(|kind| {
                let key = Key::from_bytes(&KEY.as_bytes()[..kind.key_len()]);
                PacketCrypto::with_os_nonces(kind.build(&key, Framing::KcpGo).unwrap()).unwrap()
            });
            let (data, parity) = if fec { (10, 3) } else { (0, 0) };
            let config = builder().send_window(512).fec(data, parity).crypto(crypto).build().unwrap();
            let shards = format!("{data}/{parity}");
            let flags = ["--crypt", cipher, "--key", KEY, "--fec", &shards];
            for loss in [0.0, 0.1] {
                let what = format!("{}: {cipher}, FEC {shards}, loss {loss}", peer.display());
                let server = go_peer::serve(&peer, "echo", &flags).await;
                let relay = Relay::lossy(server.addr, loss).unwrap();
                echo::drive_ours(&what, relay.addr(), config.clone(), LEN).await;
                assert_eq!(server.report().await.sessions(), 1, "{what}");

                let server = Server::start(config.clone()).await;
                let relay = Relay::lossy(server.addr, loss).unwrap();
                let flags = [&flags[..], &["--bytes", BYTES]].concat();
                go_peer::drive(&peer, "echo", relay.addr(), &flags).await;
                assert_eq!(server.accepted(), 1, "{what}");
            }
        }
    }
}

/// Who needs ends that are told asks for them: kcp-go is refused, in both roles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn kcp_go_is_refused_where_extensions_are_required() {
    let config = builder().extensions(Extensions::Required).build().unwrap();
    for peer in go_peer::all() {
        let server = go_peer::serve(&peer, "echo", &[]).await;
        let mut stream = KcpStream::connect(server.addr, config.clone()).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        // The echo may come before the first ACK, which tells what the peer is.
        let mut echo = Vec::new();
        let ended = within("the client is told", stream.read_to_end(&mut echo)).await.unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::Unsupported, "{}: {ended}", peer.display());

        let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        go_peer::fail_to_drive(&peer, "echo", addr, &["--bytes", "1000", "--timeout", "1"]).await;
        assert_eq!(listener.endpoint_stats().driver.accepted, 0, "{}", peer.display());
    }
}

/// Our end leaves nothing at kcp-go but the session that it had. What kcp-go says when it closes that is not answered: an answer
/// would open another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn no_session_is_left_at_kcp_go_by_a_client_that_ended() {
    for peer in go_peer::all() {
        for shuts_down in [true, false] {
            let server = go_peer::serve(&peer, "echo", &["--idle", "0.3"]).await;
            let endpoint = KcpEndpoint::bind("127.0.0.1:0").await.unwrap();
            for _ in 0..10 {
                let mut stream = endpoint.connect(server.addr, config()).unwrap();
                echo_once(&mut stream).await;
                if shuts_down {
                    within("shutdown", stream.shutdown()).await.unwrap();
                }
                // The endpoint's socket stays: it could answer what comes for the session.
                drop(stream);
            }
            // The program closes what was idle for 0.3 to 0.6 s.
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(endpoint.endpoint_stats().state.sessions, 0);
            let sessions = server.report().await.sessions();
            assert_eq!(sessions, 10, "{}, shuts down: {shuts_down}", peer.display());
        }
    }
}

async fn echo_once(stream: &mut KcpStream) {
    let sent = payload(3_000);
    let mut back = vec![0; sent.len()];
    stream.write_all(&sent).await.unwrap();
    within("an echo", stream.read_exact(&mut back)).await.unwrap();
    assert!(back == sent);
}

/// kcp-go keeps one session an address: that of the last conversation of which a segment with `sn` 0 came. The question of an older
/// one, whether its peer is still there, has another `sn`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn keep_alive_of_an_older_session_does_not_replace_a_newer_one_at_kcp_go() {
    let keep_alive = Duration::from_millis(200);
    let config = builder().keep_alive(Some(keep_alive)).dead_timeout(Duration::from_secs(3)).build().unwrap();
    for peer in go_peer::all() {
        let server = go_peer::serve(&peer, "echo", &[]).await;
        let endpoint = KcpEndpoint::bind("127.0.0.1:0").await.unwrap();
        let mut older = endpoint.connect(server.addr, config.clone()).unwrap();
        echo_once(&mut older).await;
        let mut newer = endpoint.connect(server.addr, config.clone()).unwrap();
        echo_once(&mut newer).await;
        // The older one has no session there any more. It asks in vain until it ends.
        let ended = within("the older session ends", older.read_u8()).await.unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::TimedOut, "{}", peer.display());
        echo_once(&mut newer).await;
        assert_eq!(server.report().await.sessions(), 2, "{}", peer.display());
    }
}

/// A kcp-go server that was started again answers in the place of the one before, and gives itself away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Go and Debian's golang-github-xtaci-kcp-dev: cargo test --test interop -- --ignored"]
async fn a_restarted_kcp_go_server_is_noticed_by_a_client_that_only_reads() {
    let config = builder().keep_alive(Some(Duration::from_millis(500))).build().unwrap();
    for peer in go_peer::all() {
        let server = go_peer::serve(&peer, "echo", &[]).await;
        let mut stream = KcpStream::connect(server.addr, config.clone()).await.unwrap();
        echo_once(&mut stream).await;
        let _server = restart(&peer, server).await;
        let begun = Instant::now();
        let ended = within("the session ends", stream.read_u8()).await.unwrap_err();
        println!("{}: {ended} after {:?}", peer.display(), begun.elapsed());
        assert_eq!(ended.kind(), ErrorKind::ConnectionReset, "{}", peer.display());
    }
}

/// The same program at the same address.
async fn restart(peer: &std::path::Path, server: Serving) -> Serving {
    let addr = server.addr.to_string();
    server.report().await;
    // It ends behind its report.
    tokio::time::sleep(Duration::from_millis(200)).await;
    go_peer::serve(peer, "echo", &["--addr", &addr]).await
}
