//! Records the life of a session as qlog, and reads such records.
//!
//! A thread of its own samples the session's [`Stats`] and writes what has changed: the runtime is not kept by files, and memory does
//! not grow with the length of the session. The file is a sequence of JSON records (RFC 7464), as draft-ietf-quic-qlog-main-schema-14
//! has it: `.sqlog`. `docs/metrics.md` has the table of its events. Times are milliseconds since the recorder began.

use std::{
    fs::File,
    io::{self, BufRead, BufWriter, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use kcp9::{KcpHandle, Stats};
use serde_json::{Map, Value, json};

/// Which end of the session records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// It connected.
    Client,
    /// It accepted.
    Server,
}

/// Records a session until it ends, or until this is finished or dropped.
pub(crate) struct Recorder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<()>>,
}

impl Recorder {
    /// Begins to record into a new file at `path`, with a sample each `interval`. `name` is what plots call this end.
    ///
    /// # Errors
    /// Those of making the file.
    pub(crate) fn start(
        path: &Path,
        session: KcpHandle,
        side: Side,
        name: &str,
        interval: Duration,
    ) -> io::Result<Self> {
        let mut log = Log::new(BufWriter::new(File::create(path)?), Instant::now());
        log.header(side, name)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("qlog".to_owned()).spawn(move || {
            log.started(&session)?;
            loop {
                // In this order: what is sampled last is the whole of the session.
                let is_last = stopped.load(Ordering::Acquire);
                let reason = session.close_reason();
                log.sample(&session.stats())?;
                if let Some(reason) = reason {
                    log.event("kcp9:session_ended", json!({ "reason": reason.to_string() }))?;
                    break;
                }
                if is_last {
                    break;
                }
                thread::park_timeout(interval);
            }
            log.output.flush()
        })?;
        Ok(Self { stop, thread })
    }

    /// Takes a last sample and completes the file.
    ///
    /// # Errors
    /// Those of writing it.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the recorder panicked")))
    }
}

/// A record that is being written.
struct Log<W> {
    output: W,
    began: Instant,
    /// The last sample. All zero in the beginning: what is zero is not told.
    before: Stats,
    gauges: Value,
    is_first: bool,
}

impl<W: Write> Log<W> {
    fn new(output: W, began: Instant) -> Self {
        Self { output, began, before: Stats::default(), gauges: Value::Null, is_first: true }
    }

    fn header(&mut self, side: Side, name: &str) -> io::Result<()> {
        let side = match side {
            Side::Client => "client",
            Side::Server => "server",
        };
        self.record(&json!({
            "file_schema": "urn:ietf:params:qlog:file:sequential",
            "serialization_format": "application/qlog+json-seq",
            "title": "a session of kcp9",
            "trace": {
                "common_fields": {
                    "time_format": "relative_to_epoch",
                    "reference_time": { "clock_type": "monotonic", "epoch": "unknown" },
                },
                "vantage_point": { "name": name, "type": side },
                "event_schemas": ["urn:ietf:params:qlog:events:quic-13", "urn:kcp9:qlog:events:session-1"],
            },
        }))
    }

    fn started(&mut self, session: &KcpHandle) -> io::Result<()> {
        self.event(
            "kcp9:session_started",
            json!({
                "conv": session.conv(),
                "local": session.local_addr().to_string(),
                "peer": session.peer_addr().to_string(),
            }),
        )
    }

    /// Writes what has changed since the sample before.
    fn sample(&mut self, stats: &Stats) -> io::Result<()> {
        let mut groups = Map::new();
        for (group, name, get) in COUNTERS {
            let value = get(stats);
            if value != get(&self.before) {
                let group = groups.entry(*group).or_insert_with(|| Value::Object(Map::new()));
                group[*name] = value.into();
            }
        }
        let gauges = gauges(stats);
        let is_new =
            self.is_first || !groups.is_empty() || gauges != self.gauges || stats.path != self.before.path;
        if !is_new {
            return Ok(());
        }
        if !groups.is_empty() {
            self.event("kcp9:counters_updated", Value::Object(groups))?;
        }
        if gauges != self.gauges {
            self.event("kcp9:gauges_updated", gauges.clone())?;
        }
        self.event(
            SAMPLE,
            json!({
                "smoothed_rtt": ms(stats.path.rtt),
                "min_rtt": ms(stats.path.min_rtt),
                "rtt_variance": ms(stats.path.rtt_var),
                "packets_in_flight": stats.queues.in_flight,
            }),
        )?;
        (self.before, self.gauges, self.is_first) = (*stats, gauges, false);
        Ok(())
    }

    fn event(&mut self, name: &str, data: Value) -> io::Result<()> {
        let time = ms(self.began.elapsed());
        self.record(&json!({ "time": time, "name": name, "data": data }))
    }

    fn record(&mut self, record: &Value) -> io::Result<()> {
        self.output.write_all(&[RECORD_SEPARATOR])?;
        serde_json::to_writer(&mut self.output, record)?;
        self.output.write_all(b"\n")
    }
}

fn gauges(stats: &Stats) -> Value {
    let mut gauges = json!({
        "send_window": stats.queues.send_window,
        "peer_window": stats.queues.peer_window,
        "in_flight": stats.queues.in_flight,
        "unsent_bytes": stats.queues.unsent_bytes,
        "unread_bytes": stats.queues.unread_bytes,
        "out_of_order": stats.queues.out_of_order,
        "memory_bytes": stats.queues.memory_bytes,
        "delivery_rate": stats.path.delivery_rate,
        "plpmtu": stats.path.plpmtu,
    });
    if stats.path.congestion_window != u32::MAX {
        gauges["congestion_window"] = stats.path.congestion_window.into();
    }
    gauges
}

/// Milliseconds, to the microsecond.
fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

/// A counter of [`Stats`]: its group, its name, and where it is.
type Counter = (&'static str, &'static str, fn(&Stats) -> u64);

/// Hands the groups and names of all counters of a session to another macro.
macro_rules! with_counters {
    ($then:ident) => {
        $then! {
            udp { packets_sent bytes_sent packets_received bytes_received wrong_conv malformed forged replayed }
            segments {
                sent received push_sent push_received acks_sent acks_received window_probes duplicates out_of_window
            }
            recovery { fast_resends early_resends timeout_resends fec_flush_copies }
            stream { bytes_written bytes_read }
            fec {
                parity_sent parity_received parity_wasted groups_complete recovered unrecoverable late mismatches
                peer_changes
            }
            datagrams { sent received dropped_unsent dropped_unread unwanted }
            extensions { sent received dropped wrong_tag malformed unknown moves }
            ecn {
                ect0_sent ect0_received ect1_received ce_received reports_sent reports_received ce_reported
                congestion_events
            }
            mtu { black_holes fragmentable }
        }
    };
}

macro_rules! listed {
    ($($group:ident { $($name:ident)* })*) => {
        /// All counters of a session.
        pub(crate) const COUNTERS: &[Counter] =
            &[$($((stringify!($group), stringify!($name), |stats: &Stats| stats.$group.$name),)*)*];
    };
}

with_counters!(listed);

// ---- Reading ----

/// A record of one end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace {
    /// What this end is called.
    pub(crate) name: String,
    pub(crate) samples: Vec<Sample>,
    /// Why the session ended.
    pub(crate) reason: Option<String>,
}

/// A session at one time.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// Seconds since the record began.
    pub(crate) time: f64,
    /// In the order of [`COUNTERS`].
    counters: Vec<u64>,
    /// Milliseconds; zero before the first measurement.
    pub(crate) rtt: f64,
    pub(crate) min_rtt: f64,
    /// Segments.
    pub(crate) in_flight: f64,
    /// Segments that may be in flight: the least of the windows of this end, of the peer and of congestion control.
    pub(crate) window: f64,
}

impl Sample {
    /// The counter of that group and name; zero if there is none.
    pub(crate) fn counter(&self, group: &str, name: &str) -> u64 {
        let place = COUNTERS.iter().position(|counter| (counter.0, counter.1) == (group, name));
        place.map_or(0, |place| self.counters[place])
    }
}

impl Trace {
    /// Reads a record. Events of other kinds are skipped. Of more than [`MAX_SAMPLES`] every second is dropped, as often as needed:
    /// memory does not grow with the file.
    ///
    /// # Errors
    /// Those of reading; `InvalidData` for what is no such record. The last line may be cut: the recorder may have been killed.
    pub(crate) fn read(input: impl BufRead) -> io::Result<Self> {
        let mut trace = Self::default();
        let mut now = Sample {
            time: 0.0,
            counters: vec![0; COUNTERS.len()],
            rtt: 0.0,
            min_rtt: 0.0,
            in_flight: 0.0,
            window: 0.0,
        };
        let (mut stride, mut number) = (1, 0_usize);
        let mut lines = input.lines().peekable();
        let mut is_header = true;
        while let Some(line) = lines.next() {
            let line = line?;
            let text = line.trim_start_matches(char::from(RECORD_SEPARATOR));
            let record: Value = match serde_json::from_str(text) {
                Ok(record) => record,
                Err(_) if lines.peek().is_none() && !is_header => break,
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            };
            if is_header {
                if record["file_schema"] != "urn:ietf:params:qlog:file:sequential" {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "no sequential qlog"));
                }
                record["trace"]["vantage_point"]["name"]
                    .as_str()
                    .unwrap_or("session")
                    .clone_into(&mut trace.name);
                is_header = false;
                continue;
            }
            let data = &record["data"];
            now.time = record["time"].as_f64().unwrap_or(now.time * 1e3) / 1e3;
            match record["name"].as_str() {
                Some("kcp9:counters_updated") => {
                    for (value, (group, name, _)) in now.counters.iter_mut().zip(COUNTERS) {
                        *value = data[*group][*name].as_u64().unwrap_or(*value);
                    }
                }
                Some("kcp9:gauges_updated") => {
                    let windows = ["send_window", "peer_window", "congestion_window"];
                    now.window =
                        windows.iter().filter_map(|name| data[*name].as_f64()).fold(f64::MAX, f64::min);
                }
                Some(SAMPLE) => {
                    now.rtt = data["smoothed_rtt"].as_f64().unwrap_or(0.0);
                    now.min_rtt = data["min_rtt"].as_f64().unwrap_or(0.0);
                    now.in_flight = data["packets_in_flight"].as_f64().unwrap_or(0.0);
                    if number.is_multiple_of(stride) {
                        trace.samples.push(now.clone());
                    }
                    number += 1;
                    if trace.samples.len() == MAX_SAMPLES {
                        let mut place = 0;
                        trace.samples.retain(|_| {
                            place += 1;
                            place % 2 == 1
                        });
                        stride *= 2;
                    }
                }
                Some("kcp9:session_ended") => trace.reason = data["reason"].as_str().map(str::to_owned),
                _ => {}
            }
        }
        if is_header {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an empty record"));
        }
        // The last one tells the sums.
        if let Some(last) = trace.samples.last()
            && last.counters != now.counters
        {
            trace.samples.push(now);
        }
        Ok(trace)
    }
}

/// The event that ends a sample.
const SAMPLE: &str = "quic:recovery_metrics_updated";
/// Before each record: RFC 7464.
const RECORD_SEPARATOR: u8 = 0x1e;
/// Samples that a record is read into.
pub(crate) const MAX_SAMPLES: usize = 1 << 14;
