//! Records of sessions (qlog), their pictures, and that all ways to see a session tell the same numbers.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    io::Cursor,
    path::Path,
    time::Duration,
};

use kcp9::{KcpConfig, KcpHandle, KcpListener, KcpMetrics, KcpStream, Stats};
use kcp9_relay::Relay;
use kcp9_simulator::LinkSettings;
use kcp9_tests::{spawn, within};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    chart, pictures,
    qlog::{COUNTERS, MAX_SAMPLES, Recorder, Side, Trace},
    support::{ANY, builder, until},
};

const INTERVAL: Duration = Duration::from_millis(10);

/// With so little in flight, no socket's buffer loses packets: only the relay does.
fn config() -> KcpConfig {
    builder().fec(10, 3).send_window(64).recv_window(64).build().unwrap()
}

/// A transfer through a relay that loses packets, recorded at both ends.
struct Recorded {
    relay: Relay,
    client: KcpHandle,
    server: KcpHandle,
    metrics: KcpMetrics,
    folder: tempfile::TempDir,
}

impl Recorded {
    async fn transfer(bytes: usize, loss: f64) -> Self {
        let listener = KcpListener::bind(ANY, config()).await.unwrap();
        let delay = Duration::from_millis(10);
        let path = LinkSettings { delay, loss, ..LinkSettings::default() };
        let relay = Relay::start(listener.local_addr().unwrap(), &path, 7).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let metrics = KcpMetrics::new();
        metrics.watch("server", listener.endpoint());
        let mut stream = KcpStream::connect(relay.addr(), config()).await.unwrap();
        metrics.watch_stream("client", &stream);
        let client = stream.handle();
        let record = |name: &str, session: &KcpHandle, side| {
            let path = folder.path().join(format!("{name}.sqlog"));
            Recorder::start(&path, session.clone(), side, name, INTERVAL).unwrap()
        };
        let client_record = record("sender", &client, Side::Client);
        stream.write_all(&vec![1; 1_000]).await.unwrap();
        let (mut accepted, _) = within(20, "the session", listener.accept()).await.unwrap();
        let server = accepted.handle();
        let server_record = record("receiver", &server, Side::Server);
        for (name, session) in [("sender", &client), ("receiver", &server)] {
            metrics.watch_session(name, session.clone());
        }
        let reading = spawn(async move {
            let mut all = Vec::new();
            accepted.read_to_end(&mut all).await.unwrap();
            accepted.shutdown().await.unwrap();
            all.len()
        });
        stream.write_all(&vec![2; bytes - 1_000]).await.unwrap();
        within(60, "the transfer", stream.shutdown()).await.unwrap();
        assert_eq!(within(60, "the reader", reading).await.unwrap(), bytes);
        within(60, "the client's end", client.closed()).await;
        drop(stream);
        within(60, "the server's end", server.closed()).await;
        client_record.finish().unwrap();
        server_record.finish().unwrap();
        // The figures of ended sessions are complete when their sessions are gone.
        let recorder = PrometheusBuilder::new().build_recorder();
        let done = || {
            metrics::with_local_recorder(&recorder, || metrics.export());
            let text = recorder.handle().render();
            ["client", "server"].iter().all(|name| {
                text.contains(&format!(
                    r#"kcp9_sessions_ended_total{{endpoint="{name}",cause="finished"}} 1"#
                ))
            })
        };
        until(20, "both sessions are gone", done).await;
        Self { relay, client, server, metrics, folder }
    }

    fn trace(&self, name: &str) -> Trace {
        Trace::read(Cursor::new(self.file(name))).unwrap()
    }

    fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.path().join(format!("{name}.sqlog"))).unwrap()
    }
}

/// The field of `Stats` and the metric of each counter, by the first table of the page.
fn pairs() -> Vec<(String, String, String)> {
    let page = include_str!("../../docs/metrics.md");
    let table =
        page.split("## ").find(|section| section.starts_with("Counters of an endpoint's sessions")).unwrap();
    let mut pairs = Vec::new();
    for line in table.lines().filter_map(|line| line.strip_prefix("| `kcp9_")) {
        let [name, help, field] = line.split(" | ").collect::<Vec<_>>()[..] else { panic!("{line}") };
        let name = format!("kcp9_{}", name.trim_end_matches('`'));
        let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let fields = quoted(field);
        let causes = help.split_once("`cause`: ").map_or(Vec::new(), |(_, causes)| quoted(causes));
        if causes.is_empty() {
            let (group, field) = fields[0].split_once('.').unwrap();
            pairs.push((group.to_owned(), field.to_owned(), name));
        } else {
            let causes: Vec<_> = causes.iter().map(|cause| format!("{name},cause=\"{cause}\"")).collect();
            assert_eq!(fields.len(), causes.len() + 1, "{line}");
            for (field, cause) in fields[1..].iter().zip(causes) {
                pairs.push((fields[0].clone(), field.clone(), cause));
            }
        }
    }
    pairs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stats_metrics_and_records_tell_the_same_numbers() {
    let recorded = Recorded::transfer(1_500_000, 0.05).await;
    let Recorded { relay, client, server, metrics, .. } = &recorded;
    let (client, server) = (client.stats(), server.stats());

    // What is known from outside: the relay has counted what came and what it lost. What comes for a
    // session that has ended already is for nobody, and the answer to it is no session's.
    let (to_server, to_client) = (relay.to_server(), relay.to_client());
    let answers = |sent: u64, offered: u64| offered - sent;
    assert!(answers(client.udp.packets_sent, to_server.offered) <= 8);
    assert!(answers(server.udp.packets_sent, to_client.offered) <= 8);
    assert!(answers(client.udp.bytes_sent, to_server.bytes_offered) <= 8 * 64);
    assert!(to_server.lost > 30, "{to_server:?}");
    let late = |lost: u64, offered: u64, received: u64| offered - received - lost;
    assert!(late(to_server.lost, to_server.offered, server.udp.packets_received) <= 8);
    assert!(late(to_client.lost, to_client.offered, client.udp.packets_received) <= 8);
    assert!(client.recovery.resends() > 0 && server.fec.recovered > 0);
    assert_eq!(client.segments.push_sent, server.segments.push_received - server.segments.duplicates);

    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || metrics.export());
    let text = recorder.handle().render();
    let value = |metric: &str, endpoint: &str| -> u64 {
        let (name, cause) =
            metric.split_once(',').map_or((metric, String::new()), |(n, c)| (n, format!(",{c}")));
        let series = format!("{name}{{endpoint=\"{endpoint}\"{cause}}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&series));
        line.unwrap_or_else(|| panic!("no {series}")).parse().unwrap()
    };
    let pairs = pairs();
    assert_eq!(pairs.len(), COUNTERS.len(), "a counter without a metric, or the other way round");
    for (end, endpoint, stats) in [("sender", "client", &client), ("receiver", "server", &server)] {
        let trace = recorded.trace(end);
        assert_eq!(trace.reason.as_deref(), Some("both ends were done"), "{end}");
        let last = trace.samples.last().unwrap();
        for (group, name, get) in COUNTERS {
            let (_, _, metric) = pairs.iter().find(|pair| (&*pair.0, &*pair.1) == (*group, *name)).unwrap();
            assert_eq!(last.counter(group, name), get(stats), "{end}: {group}.{name} in the record");
            assert_eq!(value(metric, endpoint), get(stats), "{end}: {metric}");
        }
    }
}

/// As draft-ietf-quic-qlog-main-schema and RFC 7464 have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_a_sequential_qlog() {
    let recorded = Recorded::transfer(300_000, 0.02).await;
    let file = String::from_utf8(recorded.file("sender")).unwrap();
    let mut records = file.split_terminator('\n').map(|line| -> serde_json::Value {
        serde_json::from_str(line.strip_prefix('\x1e').expect("a record separator")).unwrap()
    });
    let header = records.next().unwrap();
    assert_eq!(header["file_schema"], "urn:ietf:params:qlog:file:sequential");
    assert_eq!(header["serialization_format"], "application/qlog+json-seq");
    assert_eq!(header["trace"]["vantage_point"]["type"], "client");
    let events: Vec<_> = records.collect();
    let names: Vec<_> = events.iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!((names[0], *names.last().unwrap()), ("kcp9:session_started", "kcp9:session_ended"));
    assert_as_the_page_says(&events);
    let times: Vec<_> = events.iter().map(|event| event["time"].as_f64().unwrap()).collect();
    assert!(times.is_sorted() && times[0] >= 0.0);
    assert_eq!(events[0]["data"]["conv"], recorded.client.conv());
    // No sample without a change, and none of an hour of silence.
    let samples = names.iter().filter(|name| **name == "quic:recovery_metrics_updated").count();
    assert_eq!(samples, recorded.trace("sender").samples.len());
    assert!(
        samples as f64 <= times.last().unwrap() / 10.0 + 3.0,
        "{samples} samples in {:?} ms",
        times.last()
    );
}

/// Each event of the page's table occurs, and no others; so do the members of their data, but for groups without a change.
fn assert_as_the_page_says(events: &[serde_json::Value]) {
    let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let lines = include_str!("../../docs/metrics.md").lines();
    let rows = lines.skip_while(|line| !line.starts_with("| event of a record |")).skip(2);
    let mut listed = BTreeMap::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let [name, _, data] = row.trim_matches('|').split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let members: BTreeSet<_> = quoted(data).into_iter().filter(|member| member != "stats()").collect();
        listed.insert(quoted(name).remove(0), members);
    }
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for event in events {
        let members = event["data"].as_object().unwrap().keys().cloned();
        seen.entry(event["name"].as_str().unwrap().to_owned()).or_default().extend(members);
    }
    let groups = "kcp9:counters_updated";
    assert!(seen[groups].is_subset(&listed[groups]), "{seen:?}");
    let groups_of_stats: BTreeSet<_> = COUNTERS.iter().map(|counter| counter.0.to_owned()).collect();
    assert_eq!(listed[groups], groups_of_stats);
    seen.insert(groups.to_owned(), groups_of_stats);
    assert_eq!(seen, listed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picture_has_all_samples_with_units_and_names() {
    let recorded = Recorded::transfer(600_000, 0.05).await;
    let traces = [recorded.trace("sender"), recorded.trace("receiver")];
    let svg = chart::draw("5 % lost", &traces).unwrap();
    let picture = pictures::check(&svg, &traces);
    assert_eq!(picture.title, "5 % lost");
    let measured = traces[0].samples.iter().filter(|sample| sample.rtt > 0.0).count();
    assert!(measured > 10, "{measured} samples");
    assert!(picture.charts.iter().any(|chart| chart.title == "FEC"), "{:?}", picture.marks());

    // What was never recorded cannot be drawn.
    assert!(chart::draw("nothing", &[]).is_err());
    assert!(chart::draw("nothing", &[Trace::default()]).is_err());
}

#[test]
fn every_counter_is_recorded() {
    let debug = format!("{:?}", Stats::default());
    let groups = debug.split_inclusive(" }").filter_map(|group| group.rsplit_once(" { "));
    let counters =
        groups.filter(|(head, _)| head.ends_with("Stats")).map(|(_, fields)| fields.split(", ").count());
    assert_eq!(COUNTERS.len(), counters.sum::<usize>());
    let unique: HashSet<_> = COUNTERS.iter().map(|counter| (counter.0, counter.1)).collect();
    assert_eq!(unique.len(), COUNTERS.len());
}

const HEADER: &str = concat!(
    "\x1e{\"file_schema\":\"urn:ietf:params:qlog:file:sequential\",",
    "\"trace\":{\"vantage_point\":{\"name\":\"x\"}}}\n"
);

#[test]
fn cut_foreign_and_long_records_are_read_within_bounds() {
    let read = |text: &str| Trace::read(Cursor::new(text.as_bytes().to_vec()));
    for wrong in ["", "{}\n", "no JSON\n", "\x1e{\"qlog_version\":\"0.3\"}\n"] {
        assert!(read(wrong).is_err(), "{wrong:?}");
    }
    // A recorder that was killed leaves half a line.
    let sample = |time: usize| {
        let data = format!("{{\"smoothed_rtt\":{}.0,\"packets_in_flight\":1}}", time + 1);
        format!("\x1e{{\"time\":{time},\"name\":\"quic:recovery_metrics_updated\",\"data\":{data}}}\n")
    };
    let cut = format!("{HEADER}{}\x1e{{\"time\":2,\"na", sample(1));
    let trace = read(&cut).unwrap();
    assert_eq!((trace.samples.len(), trace.name.as_str(), trace.reason), (1, "x", None));
    assert!(read(&format!("{HEADER}half\n{}", sample(1))).is_err(), "a broken line in the middle");
    // Events that are not known are skipped.
    let unknown = format!("{HEADER}\x1e{{\"time\":1,\"name\":\"kcp9:later\",\"data\":[]}}\n{}", sample(2));
    assert_eq!(read(&unknown).unwrap().samples.len(), 1);

    let mut long = HEADER.to_owned();
    for time in 0..3 * MAX_SAMPLES {
        long += &sample(time);
    }
    let samples = read(&long).unwrap().samples;
    assert!((MAX_SAMPLES / 4..=MAX_SAMPLES).contains(&samples.len()), "{} samples", samples.len());
    let step = samples[1].time - samples[0].time;
    assert!(samples.windows(2).all(|pair| (pair[1].time - pair[0].time - step).abs() < 1e-9), "uneven");
}

/// The example `plot` draws what `transfer` has recorded.
#[tokio::test]
async fn transfer_records_and_plot_draws() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("file"), vec![3; 400_000]).unwrap();
    let run = async |name: &str, arguments: &[&Path]| {
        let program = kcp9_tests::example(name);
        let output = tokio::process::Command::new(program).args(arguments).kill_on_drop(true).output();
        let output = within(60, name, output).await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{name}: {said} {}", String::from_utf8_lossy(&output.stderr));
        said
    };
    let arg = Path::new;
    let (picture, records) = (path("one.svg"), path("records"));
    run("transfer", &[&path("file"), arg("--plot"), &picture, arg("--qlog"), &records]).await;
    let traces = pictures::records(&records);
    let drawn = pictures::check(&fs::read_to_string(picture).unwrap(), &traces);
    assert!(drawn.title.starts_with("A file over kcp9: 10 % lost"), "{}", drawn.title);

    let picture = path("two.svg");
    let (sender, receiver) = (records.join("sender.sqlog"), records.join("receiver.sqlog"));
    let said = run("plot", &[&sender, &receiver, arg("--title"), arg("again"), arg("--out"), &picture]).await;
    assert!(said.contains("sender: ") && said.contains("receiver: "), "{said}");
    assert_eq!(pictures::check(&fs::read_to_string(picture).unwrap(), &traces).title, "again");
}
