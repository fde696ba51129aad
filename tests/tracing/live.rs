//! A transfer through a path that loses packets, seen in every way that there is: all tell the same numbers.

use std::{
    collections::BTreeSet,
    io::Cursor,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use kcp9::{
    KcpConfig, KcpHandle, KcpListener, KcpMetrics, KcpStream, Stats,
    proto::{Command, Segments},
};
use kcp9_relay::{Direction, Relay};
use kcp9_simulator::LinkSettings;
use kcp9_tests::{
    collector::{Collector, Recorded},
    spawn, within,
};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracing::Level;

use self::qlog::{Recorder, Side, Trace};
use crate::{count, ms, sum, table};

#[allow(dead_code, reason = "only the counters of a record are read here")]
#[path = "../../examples/common/qlog.rs"]
mod qlog;

/// A number that is told in four ways.
struct Told {
    what: &'static str,
    stats: fn(&Stats) -> u64,
    events: fn(&[Recorded]) -> u64,
    /// The name of the metric, and its cause.
    metric: (&'static str, Option<&'static str>),
    /// The group and the name in a record.
    recorded: (&'static str, &'static str),
}

const TOLD: [Told; 6] = [
    Told {
        what: "resent since later ones were acknowledged",
        stats: |stats| stats.recovery.fast_resends,
        events: |events| count(events, "resent", "cause", "fast"),
        metric: ("kcp9_retransmitted_segments_total", Some("fast")),
        recorded: ("recovery", "fast_resends"),
    },
    Told {
        what: "resent since nothing new was to be sent",
        stats: |stats| stats.recovery.early_resends,
        events: |events| count(events, "resent", "cause", "early"),
        metric: ("kcp9_retransmitted_segments_total", Some("early")),
        recorded: ("recovery", "early_resends"),
    },
    Told {
        what: "timeouts",
        stats: |stats| stats.recovery.timeout_resends,
        events: |events| count(events, "lost", "cause", "timeout"),
        metric: ("kcp9_retransmitted_segments_total", Some("timeout")),
        recorded: ("recovery", "timeout_resends"),
    },
    Told {
        what: "recovered by FEC",
        stats: |stats| stats.fec.recovered,
        events: |events| sum(events, "recovered", "packets"),
        metric: ("kcp9_fec_recovered_packets_total", None),
        recorded: ("fec", "recovered"),
    },
    Told {
        what: "given up by FEC",
        stats: |stats| stats.fec.unrecoverable,
        events: |events| sum(events, "gave_up", "packets"),
        metric: ("kcp9_fec_unrecoverable_packets_total", None),
        recorded: ("fec", "unrecoverable"),
    },
    Told {
        what: "questions for the window",
        stats: |stats| stats.segments.window_probes,
        events: |events| crate::named(events, "window_probe").len() as u64,
        metric: ("kcp9_sent_window_probes_total", None),
        recorded: ("segments", "window_probes"),
    },
];

/// What is known of a session in the end, in all ways. Both ends are of this process.
struct Seen {
    events: Vec<Recorded>,
    exported: String,
    folder: tempfile::TempDir,
    client: KcpHandle,
    server: KcpHandle,
}

/// Sends 1.5 MB to a server, by way of a relay to the server's address that `relay` makes. On one thread, as the collector keeps the
/// events of one.
async fn transfer(relay: impl FnOnce(SocketAddr) -> Relay) -> (Seen, Relay) {
    let collector = Collector::begin(Level::TRACE);
    let config = KcpConfig::builder().fec(10, 3).send_window(64).recv_window(64).build().unwrap();
    let listener = KcpListener::bind("127.0.0.1:0", config.clone()).await.unwrap();
    let relay = relay(listener.local_addr().unwrap());
    let metrics = KcpMetrics::new();
    metrics.watch("accepts", listener.endpoint());
    let mut stream = KcpStream::connect(relay.addr(), config).await.unwrap();
    metrics.watch_stream("connects", &stream);
    let folder = tempfile::tempdir().unwrap();
    let record = |role: &str, session: &KcpHandle, side| {
        let file = folder.path().join(role);
        Recorder::start(&file, session.clone(), side, role, ms(10)).unwrap()
    };
    let client = stream.handle();
    let mut records = vec![record("connects", &client, Side::Client)];
    stream.write_all(&[1; 1_000]).await.unwrap();
    let (mut accepted, _) = within(20, "the session", listener.accept()).await.unwrap();
    let server = accepted.handle();
    records.push(record("accepts", &server, Side::Server));
    let reading = spawn(async move {
        let mut all = Vec::new();
        accepted.read_to_end(&mut all).await.unwrap();
        accepted.shutdown().await.unwrap();
        all.len()
    });
    stream.write_all(&vec![2; 1_500_000]).await.unwrap();
    within(60, "the transfer", stream.shutdown()).await.unwrap();
    assert_eq!(within(60, "the reader", reading).await.unwrap(), 1_501_000);
    within(60, "the client's end", client.closed()).await;
    drop(stream);
    within(60, "the server's end", server.closed()).await;
    records.into_iter().for_each(|record| record.finish().unwrap());
    // The figures of ended sessions are complete when these are gone.
    tokio::time::sleep(Duration::from_millis(200)).await;

    let events = collector.take();
    table::check(&events);
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || metrics.export());
    let exported = recorder.handle().render();
    (Seen { events, exported, folder, client, server }, relay)
}

impl Seen {
    fn events_of(&self, role: &str) -> Vec<Recorded> {
        let is_its = |event: &&Recorded| {
            event.spans.iter().any(|span| span.fields.get("role").is_some_and(|known| known == role))
        };
        self.events.iter().filter(is_its).cloned().collect()
    }

    fn assert_told_alike(&self) {
        for (role, session) in [("connects", &self.client), ("accepts", &self.server)] {
            let events = self.events_of(role);
            let record = std::fs::read(self.folder.path().join(role)).unwrap();
            let trace = Trace::read(Cursor::new(record)).unwrap();
            let last = trace.samples.last().unwrap();
            let stats = session.stats();
            for told in &TOLD {
                let expected = (told.stats)(&stats);
                let what = format!("{role}: {}", told.what);
                assert_eq!((told.events)(&events), expected, "{what}, by events");
                assert_eq!(metric(&self.exported, told.metric, role), expected, "{what}, by metrics");
                assert_eq!(last.counter(told.recorded.0, told.recorded.1), expected, "{what}, by the record");
            }
        }
    }
}

#[tokio::test]
async fn stats_events_metrics_and_records_tell_the_same_numbers() {
    let path = LinkSettings { loss: 0.05, ..LinkSettings::delay(ms(10)) };
    let (seen, relay) = transfer(|server| Relay::start(server, &path, 7).unwrap()).await;
    assert!(relay.to_server().lost > 30);
    seen.assert_told_alike();
    let stats = (seen.client.stats(), seen.server.stats());
    assert!(stats.0.recovery.resends() > 0 && stats.1.fec.recovered > 0, "{stats:?}");
}

/// Packets of FEC groups that are lost: the group, and the places in it. Places from 10 on are parity.
const LOST: [(u32, &[u32]); 6] =
    [(5, &[3]), (9, &[0, 4, 9]), (14, &[10, 12]), (20, &[1, 11]), (30, &[2, 3, 5, 7]), (44, &[0, 1, 2, 12])];
/// Of 1, 3 and 1 packets the group has as much parity left; not of 4, nor of 3 without one.
const RECOVERED: u64 = 1 + 3 + 1;
const GIVEN_UP: u64 = 4 + 3;

/// A path that loses these packets and no others.
#[derive(Default)]
struct KnownLosses {
    /// The number of the first packet of the first group.
    first: Option<u32>,
    lost: usize,
    /// All segments with payload that came.
    pushes: BTreeSet<u32>,
    /// How many of them came again.
    resent: u64,
    /// Those of the groups that have too little parity left.
    beyond_repair: BTreeSet<u64>,
}

impl KnownLosses {
    fn loses(&mut self, packet: &[u8]) -> bool {
        let Some((header, payload)) = packet.split_at_checked(8) else { return false };
        let is_data = header[4..6] == [0xf1, 0];
        if !is_data && header[4..6] != [0xf2, 0] {
            return false;
        }
        let number = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let at = number - *self.first.get_or_insert(number);
        let (group, place) = (at / 13, at % 13);
        let is_lost = LOST.iter().any(|(of, places)| *of == group && places.contains(&place));
        self.lost += usize::from(is_lost);
        if is_data {
            for (segment, _) in
                Segments::new(payload).flatten().filter(|(segment, _)| segment.cmd == Command::Push)
            {
                self.resent += u64::from(!self.pushes.insert(segment.sn));
                if is_lost && [30, 44].contains(&group) {
                    self.beyond_repair.insert(u64::from(segment.sn));
                }
            }
        }
        is_lost
    }
}

/// All ways tell what the path has done.
#[tokio::test]
async fn known_losses_are_told_as_they_were() {
    let known = Arc::new(Mutex::new(KnownLosses::default()));
    let losses = Arc::clone(&known);
    let rewrite = move |direction, packet: &[u8], out: &mut Vec<Vec<u8>>| {
        if direction == Direction::ToClient || !losses.lock().unwrap().loses(packet) {
            out.push(packet.to_vec());
        }
    };
    let (seen, _relay) = transfer(|server| Relay::rewriting(server, Box::new(rewrite)).unwrap()).await;
    seen.assert_told_alike();
    let known = known.lock().unwrap();
    assert_eq!(known.lost, LOST.iter().map(|(_, places)| places.len()).sum::<usize>());
    let (client, server) = (seen.client.stats(), seen.server.stats());
    assert_eq!((server.fec.recovered, server.fec.unrecoverable), (RECOVERED, GIVEN_UP), "{server:?}");
    assert_eq!(client.recovery.resends(), known.resent, "{client:?}");
    // What FEC could not repair was found lost and sent again; perhaps more, which was sent again before it was repaired.
    let events = seen.events_of("connects");
    for name in ["lost", "resent"] {
        let sns: BTreeSet<u64> = crate::named(&events, name).iter().map(|event| event.number("sn")).collect();
        assert!(sns.is_superset(&known.beyond_repair), "{name}: {sns:?}, of {:?}", known.beyond_repair);
    }
    assert!(known.beyond_repair.len() >= 7, "{:?}", known.beyond_repair);
}

/// What was exported for an endpoint.
fn metric(exported: &str, (name, cause): (&str, Option<&str>), endpoint: &str) -> u64 {
    let cause = cause.map_or(String::new(), |cause| format!(",cause=\"{cause}\""));
    let series = format!("{name}{{endpoint=\"{endpoint}\"{cause}}} ");
    let value = exported.lines().find_map(|line| line.strip_prefix(&series));
    value.unwrap_or_else(|| panic!("no {series}")).parse().unwrap()
}
