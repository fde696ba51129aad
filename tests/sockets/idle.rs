//! An idle session costs nothing: its driver does not run and sends nothing.

use std::time::Duration;

use kcp9::{EndpointStats, KcpEndpoint, KcpStream, proto::Extensions};
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{ANY, Pair, assert_alive, listen, pair, within};

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
        let Pair { mut client, mut server, listener } = pair().await;
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
        let mut client = endpoint.connect(addr, kcp9::KcpConfig::default()).unwrap();
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

/// User and system time of this process so far.
#[cfg(target_os = "linux")]
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    // Linux tells programs of 100 ticks a second, whatever its own clock does.
    Duration::from_millis(ticks * 10)
}

/// What keep-alive costs: 10,000 sessions that are asked every 2 s are asked as often as 100,000 every 20 s. Both ends are in this
/// process, which prints what one of them takes.
#[cfg(target_os = "linux")]
async fn questions_of_idle_sessions(extensions: Extensions) {
    const SESSIONS: usize = 10_000;
    let config = kcp9::KcpConfig::builder().extensions(extensions).keep_alive(Some(Duration::from_secs(2)));
    let config = config.build().unwrap();
    let listener = crate::support::listen_with(config.clone()).await;
    let addr = listener.local_addr().unwrap();
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let mut streams: Vec<KcpStream> = Vec::new();
    for _ in 0..SESSIONS {
        let mut client = endpoint.connect(addr, config.clone()).unwrap();
        client.write_all(b"x").await.unwrap();
        let (mut server, _) = within(5, "a client is accepted", listener.accept()).await.unwrap();
        server.read_u8().await.unwrap();
        streams.extend([client, server]);
    }
    tokio::time::sleep(SETTLE).await;
    let counts = || {
        [listener.endpoint_stats().socket.packets_received, endpoint.endpoint_stats().socket.packets_received]
    };
    let (before, begun, packets) = (processor_time(), std::time::Instant::now(), counts());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let share = (processor_time() - before).as_secs_f64() / begun.elapsed().as_secs_f64() / 2.0;
    let [questions, answers] = [0, 1].map(|at| counts()[at] - packets[at]);
    println!(
        "{extensions:?}: {questions} questions, {answers} answers; {:.1} % of a core for each end",
        share * 100.0
    );
    // On a busy machine some are asked twice.
    assert!(questions >= 90_000, "{questions} questions");
    assert_eq!(listener.endpoint_stats().state.sessions, SESSIONS as u64);
    assert!(share < 0.05, "{:.1} % of a core", share * 100.0);
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute: cargo test --release --test sockets -- --ignored --nocapture questions_of"]
async fn questions_of_a_hundred_thousand_idle_sessions_take_little_of_a_core() {
    questions_of_idle_sessions(Extensions::Off).await;
    questions_of_idle_sessions(Extensions::Preferred).await;
}
