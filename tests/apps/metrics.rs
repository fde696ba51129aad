//! What the example `metrics` tells Prometheus, against what was sent and what the sessions say themselves.

use std::{collections::BTreeSet, net::SocketAddr, process::Stdio};

use kcp9::{KcpConfig, KcpEndpoint, KcpHandle, KcpListener, KcpMetrics, KcpStream};
use kcp9_tests::{example, within};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

use crate::support::{ANY, config, until};

/// What was exported, by the lines of Prometheus' text format.
struct Scrape(String);

impl Scrape {
    /// The value of the line that begins so: a name, or a name with its labels.
    fn value(&self, series: &str) -> Option<f64> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        Some(line.parse().unwrap())
    }

    /// The value of a figure of the example's endpoint.
    fn echo(&self, name: &str) -> f64 {
        self.value(&format!("{name}{{endpoint=\"echo\"}}"))
            .unwrap_or_else(|| panic!("no {name} in:\n{}", self.0))
    }

    /// The sum over all causes.
    fn sum(&self, name: &str) -> f64 {
        let series = self.0.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        series.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    }

    fn names(&self) -> BTreeSet<String> {
        let described = self.0.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        described.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }
}

/// The example, until it is dropped.
struct Server {
    _child: Child,
    addr: SocketAddr,
    http: SocketAddr,
}

impl Server {
    async fn start() -> Self {
        let mut child = Command::new(example("metrics"))
            .args(["serve", "--listen", ANY, "--metrics", ANY])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = async |prefix: &str, suffix: &str| {
            let line = within(20, prefix, lines.next_line()).await.unwrap().unwrap();
            let addr = line.strip_prefix(prefix).and_then(|line| line.strip_suffix(suffix));
            addr.unwrap_or_else(|| panic!("{line}")).parse().unwrap()
        };
        let addr = line("listening on ", "").await;
        let http = line("figures at http://", "/metrics").await;
        Self { _child: child, addr, http }
    }

    async fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.http).await.unwrap();
        let request = format!("{request} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        within(20, "the figures", stream.read_to_string(&mut answer)).await.unwrap();
        answer
    }

    async fn scrape(&self) -> Scrape {
        let answer = self.ask("GET /metrics").await;
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.contains("content-type: text/plain; version=0.0.4")
        );
        Scrape(answer)
    }
}

/// A client that has its `bytes` echoed and is done; what its session has counted.
async fn echoed(addr: SocketAddr, bytes: usize) -> KcpHandle {
    let stream = KcpStream::connect(addr, config()).await.unwrap();
    let handle = stream.handle();
    let (mut reader, mut writer) = stream.into_split();
    let write = async {
        writer.write_all(&vec![5; bytes]).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut answer = Vec::new();
    let read = reader.read_to_end(&mut answer);
    let both = async { tokio::join!(write, read) };
    within(30, "the echo", both).await.1.unwrap();
    assert_eq!(answer.len(), bytes);
    handle
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_tells_what_was_sent_also_by_sessions_that_have_ended() {
    let server = Server::start().await;
    let lengths = [1_000, 200_000, 3_000_000];
    let mut clients = Vec::new();
    for bytes in lengths {
        clients.push(echoed(server.addr, bytes).await);
    }
    let mut idle = KcpStream::connect(server.addr, config()).await.unwrap();
    idle.write_all(b"hello").await.unwrap();
    within(20, "the echo", idle.read_exact(&mut [0; 5])).await.unwrap();
    for client in &clients {
        within(20, "the end of a session", client.closed()).await;
    }

    let bytes = lengths.iter().sum::<usize>() as f64 + 5.0;
    let mut scrape = server.scrape().await;
    for _ in 0..200 {
        // The server's sessions end after the clients'.
        if scrape.sum("kcp9_sessions_ended_total") == 3.0 && scrape.echo("kcp9_sessions") == 1.0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        scrape = server.scrape().await;
    }
    assert_eq!(scrape.value(r#"kcp9_sessions_ended_total{endpoint="echo",cause="finished"}"#), Some(3.0));
    assert_eq!(scrape.echo("kcp9_sessions"), 1.0);
    assert_eq!(scrape.echo("kcp9_sessions_accepted_total"), 4.0);
    assert_eq!(scrape.echo("kcp9_sessions_connected_total"), 0.0);
    assert!((1.0..=4.0).contains(&scrape.echo("kcp9_sessions_most")));
    assert_eq!(scrape.echo("kcp9_stream_read_bytes_total"), bytes);
    assert_eq!(scrape.echo("kcp9_stream_written_bytes_total"), bytes);
    assert!(scrape.echo("kcp9_sent_bytes_total") > bytes && scrape.echo("kcp9_received_bytes_total") > bytes);
    assert!(scrape.echo("kcp9_rtt_least_seconds") > 0.0);
    assert!(scrape.echo("kcp9_rtt_least_seconds") <= scrape.echo("kcp9_rtt_mean_seconds"));

    // The other end says the same.
    let sent: u64 = clients.iter().map(|client| client.stats().segments.push_sent).sum::<u64>()
        + idle.stats().segments.push_sent;
    let received =
        scrape.echo("kcp9_received_push_segments_total") - scrape.echo("kcp9_duplicate_segments_total");
    assert_eq!(received, sent as f64);

    assert!(server.ask("GET /").await.starts_with("HTTP/1.1 404 "));
    assert!(server.ask("POST /metrics").await.starts_with("HTTP/1.1 405 "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dashboard_asks_only_for_what_is_exported() {
    let exported = Server::start().await.scrape().await.names();
    let dashboard: serde_json::Value = serde_json::from_str(include_str!("../../docs/grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut asked = BTreeSet::new();
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        asked.extend(names_in(target["expr"].as_str().unwrap()));
    }
    assert!(panels.len() >= 10 && asked.len() >= 20, "{} names in {} panels", asked.len(), panels.len());
    let missing: Vec<_> = asked.difference(&exported).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
}

fn names_in(text: &str) -> impl Iterator<Item = String> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(move |c| !is_of_name(c)).filter(|word| word.starts_with("kcp9_")).map(str::to_owned)
}

/// An endpoint that accepts, a client of it, and what is exported of both.
struct Local {
    listener: KcpListener,
    metrics: KcpMetrics,
}

impl Local {
    async fn start() -> Self {
        let listener = KcpListener::bind(ANY, config()).await.unwrap();
        Self { listener, metrics: KcpMetrics::new() }
    }

    fn scrape(metrics: &KcpMetrics, recorder: &metrics_exporter_prometheus::PrometheusRecorder) -> Scrape {
        metrics::with_local_recorder(recorder, || metrics.export());
        Scrape(recorder.handle().render())
    }
}

/// The page lists all of them, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_lists_what_is_exported() {
    let local = Local::start().await;
    let stream = KcpStream::connect(local.listener.local_addr().unwrap(), config()).await.unwrap();
    local.metrics.watch_stream("client", &stream);
    local.metrics.watch_session("one", stream.handle());
    let recorder = PrometheusBuilder::new().build_recorder();
    let scrape = Local::scrape(&local.metrics, &recorder);
    let exported = scrape.names();
    let mut listed: BTreeSet<_> = names_in(include_str!("../../docs/metrics.md")).collect();
    // Names of counters and summed gauges are listed once; a session's begin with another prefix.
    let of_session = |name: &str| name.strip_prefix("kcp9_session_").map(|name| format!("kcp9_{name}"));
    for prefix in ["kcp9_", "kcp9_session_"] {
        listed.remove(prefix);
    }
    let unlisted: Vec<_> = exported
        .iter()
        .filter(|name| !listed.contains(*name) && of_session(name).is_none_or(|name| !listed.contains(&name)))
        .collect();
    assert!(unlisted.is_empty(), "not in docs/metrics.md: {unlisted:?}");
    let series = scrape.0.lines().filter(|line| line.contains(r#"{session="one""#)).count();
    let said = format!("Each takes {series} time series.");
    assert!(include_str!("../../docs/metrics.md").contains(&said), "docs/metrics.md does not say: {said}");
    let unknown: Vec<_> = listed.difference(&exported).collect();
    assert!(unknown.is_empty(), "in docs/metrics.md, and not exported: {unknown:?}");
}

/// Endpoints, streams and sessions of one process, until after their end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures_stay_when_their_endpoint_is_gone_and_are_added_up_by_name() {
    let Local { listener, metrics } = Local::start().await;
    let addr = listener.local_addr().unwrap();
    metrics.watch("server", listener.endpoint());
    metrics.watch("again", listener.endpoint());
    let recorder = PrometheusBuilder::new().build_recorder();
    let value = |series: &str| Local::scrape(&metrics, &recorder).value(series);

    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    metrics.watch("clients", &endpoint);
    let mut streams = Vec::new();
    for nth in 0..4 {
        // One after the other: of several that begin at once, any may be accepted first.
        let mut stream = if nth < 2 {
            endpoint.connect(addr, config()).unwrap()
        } else {
            KcpStream::connect(addr, KcpConfig::default()).await.unwrap()
        };
        match nth {
            0 => metrics.watch_session("first", stream.handle()),
            1 => {}
            _ => metrics.watch_stream("clients", &stream),
        }
        stream.write_all(b"hello").await.unwrap();
        let (mut peer, _) = within(20, "a session", listener.accept()).await.unwrap();
        within(20, "a greeting", peer.read_exact(&mut [0; 5])).await.unwrap();
        stream.write_all(b"!").await.unwrap();
        within(20, "more of it", peer.read_exact(&mut [0; 1])).await.unwrap();
        within(20, "the end of the answer", peer.shutdown()).await.unwrap();
        streams.push(stream);
    }
    assert_eq!(value(r#"kcp9_sessions_connected_total{endpoint="clients"}"#), Some(4.0));
    assert_eq!(value(r#"kcp9_sessions_accepted_total{endpoint="server"}"#), Some(4.0));
    assert_eq!(value(r#"kcp9_sessions{endpoint="again"}"#), None, "it was watched before");
    assert_eq!(value(r#"kcp9_stream_written_bytes_total{endpoint="clients"}"#), Some(24.0));
    assert_eq!(value(r#"kcp9_session_stream_written_bytes_total{session="first"}"#), Some(6.0));

    for stream in &mut streams {
        stream.shutdown().await.unwrap();
        within(20, "the end", stream.closed()).await;
    }
    let packets: u64 = streams.iter().map(|stream| stream.stats().udp.packets_sent).sum();
    drop((streams, endpoint));
    listener.close();
    within(20, "the server's sessions", listener.wait_idle()).await;
    drop(listener);
    let ended = r#"kcp9_sessions_ended_total{endpoint="clients",cause="finished"}"#;
    until(20, "the sessions are gone", || value(ended) == Some(4.0)).await;
    until(20, "the sockets are closed", || value(r#"kcp9_sessions{endpoint="clients"}"#) == Some(0.0)).await;
    for _ in 0..3 {
        assert_eq!(value(r#"kcp9_sent_packets_total{endpoint="clients"}"#), Some(packets as f64));
        assert_eq!(value(r#"kcp9_stream_written_bytes_total{endpoint="clients"}"#), Some(24.0));
        assert_eq!(value(r#"kcp9_stream_read_bytes_total{endpoint="server"}"#), Some(24.0));
        assert_eq!(value(r#"kcp9_session_stream_written_bytes_total{session="first"}"#), Some(6.0));
    }
}

/// Exports while sessions begin and end: what is exported never exceeds what there was, and nothing is missing in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_counted_twice_while_sessions_come_and_go() {
    const SESSIONS: u32 = 600;

    let Local { listener, metrics } = Local::start().await;
    let addr = listener.local_addr().unwrap();
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    metrics.watch("clients", &endpoint);
    let recorder = PrometheusBuilder::new().build_recorder();
    let written = r#"kcp9_stream_written_bytes_total{endpoint="clients"}"#;
    let clients = kcp9_tests::spawn(async move {
        for number in 0..SESSIONS {
            let mut stream = endpoint.connect(addr, config()).unwrap();
            stream.write_all(&[1; 10]).await.unwrap();
            if number % 3 == 0 {
                stream.abort();
            }
        }
        endpoint
    });
    let server = kcp9_tests::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            kcp9_tests::spawn(async move { stream.read_to_end(&mut Vec::new()).await });
        }
    });
    let mut before = 0.0;
    while !clients.is_finished() {
        let now = Local::scrape(&metrics, &recorder).value(written).unwrap();
        assert!(now >= before && now <= f64::from(10 * SESSIONS), "{before} bytes, then {now}");
        before = now;
        tokio::task::yield_now().await;
    }
    let endpoint = clients.await.unwrap();
    within(60, "the sessions", endpoint.wait_idle()).await;
    server.abort();
    drop(endpoint);
    until(20, "all sessions are gone", || {
        Local::scrape(&metrics, &recorder).sum("kcp9_sessions_ended_total") == f64::from(SESSIONS)
    })
    .await;
    assert_eq!(Local::scrape(&metrics, &recorder).value(written), Some(f64::from(10 * SESSIONS)));
}
