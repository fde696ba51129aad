//! An idle session without keep-alive costs nothing: its driver does not run and sends nothing.

use std::time::Duration;

use kcp9::{EndpointStats, KcpConfig, KcpEndpoint, KcpStream};
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{ANY, Pair, assert_alive, listen, pair_with, within};

/// Long enough for the last ACK, and for an idle session to give back what it kept for further traffic.
const SETTLE: Duration = Duration::from_millis(2_500);

/// `counters` before and after `quiet`: they must not change.
async fn assert_quiet(quiet: Duration, counters: impl Fn() -> Vec<EndpointStats>) {
    tokio::time::sleep(SETTLE).await;
    let before = counters();
    tokio::time::sleep(quiet).await;
    assert_eq!(before, counters(), "in {quiet:?}");
}

/// A pair of which both directions are in use, and a pair of which one end has shut down. Both have moved 1 MB.
async fn idle_pairs(quiet: Duration) {
    let mut pairs = Vec::new();
    for shuts_down in [false, true] {
        let config = KcpConfig::builder().keep_alive(None).build().unwrap();
        let Pair { mut client, mut server, listener } = pair_with(config).await;
        assert_alive(&mut client, &mut server).await;
        let end = async {
            crate::support::write_payload(&mut client, 1 << 20).await.unwrap();
            if shuts_down {
                client.shutdown().await.unwrap();
            }
        };
        let transfer = async { tokio::join!(end, crate::support::read_payload(&mut server, 1 << 20)).1 };
        within(10, "1 MB", transfer).await.unwrap();
        // A pending read causes no work either.
        let (mut reader, writer) = server.into_split();
        let pending = spawn(async move { reader.read_u8().await });
        pairs.push((client, listener, writer, pending));
    }
    let counters =
        || pairs.iter().flat_map(|pair| [pair.0.endpoint_stats(), pair.1.endpoint_stats()]).collect();
    assert_quiet(quiet, counters).await;
    for (mut client, _listener, mut writer, pending) in pairs {
        writer.write_all(b"still here").await.unwrap();
        let mut said = [0; 10];
        within(5, "a message after the rest", client.read_exact(&mut said)).await.unwrap();
        pending.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_pair_causes_no_wakeups() {
    idle_pairs(Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute: cargo test --test sockets -- --ignored idle::"]
async fn an_idle_pair_causes_no_wakeups_for_a_minute() {
    idle_pairs(Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_idle_sessions_cause_no_wakeups() {
    let listener = listen().await;
    let addr = listener.local_addr().unwrap();
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let mut streams: Vec<KcpStream> = Vec::new();
    for _ in 0..1_000 {
        let mut client = endpoint.connect(addr, KcpConfig::default()).unwrap();
        client.write_all(b"x").await.unwrap();
        let (mut server, _) = within(5, "a client is accepted", listener.accept()).await.unwrap();
        server.read_u8().await.unwrap();
        server.write_all(b"y").await.unwrap();
        within(5, "an answer", client.read_u8()).await.unwrap();
        streams.extend([client, server]);
    }
    assert_quiet(Duration::from_secs(2), || vec![endpoint.endpoint_stats(), listener.endpoint_stats()]).await;
    assert_eq!(listener.endpoint_stats().state.sessions, 1_000);
}
