//! Exports what sockets and sessions count to the recorder of the crate `metrics`.
//!
//! ```text
//! figures     names, units and sources, in tables
//! registry    the sessions of a socket, and what those that have ended had counted
//! ```
//!
//! The counters are those of [`Stats`](crate::Stats) and [`EndpointStats`](crate::EndpointStats), which exist without this feature.
//! An export reads them and sets the recorder's counters to their values: packets cost nothing more, and the cost of an export grows
//! with the number of sessions. The sums of a socket are those of its live sessions and of what the registry has kept of ended ones.

mod figures;
mod registry;
#[cfg(test)]
mod tests;

use std::{
    format,
    string::String,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
    vec::Vec,
};

use ::metrics::{Counter, Gauge, Key, KeyName, Label, Level, Metadata, Recorder, Unit, with_recorder};

use self::figures::{CAUSES, Figure, SESSION, SESSION_GAUGES, SOCKET, SOCKET_GAUGES, SUMMED_GAUGES};
use super::{
    endpoint::KcpEndpoint, handle::KcpHandle, shared::Shared, stats::EndpointStats, stream::KcpStream,
};
use crate::proto::Stats;

use self::registry::Seen;
pub(super) use self::registry::{Registry, Side};

/// Exports what sockets and sessions count to the recorder of the crate [`metrics`](::metrics), and by it to Prometheus and others.
///
/// Name the endpoints and sessions to be [watched](Self::watch), and [export](Self::export) whenever the figures are asked for, or
/// [each few seconds](Self::run). Names begin with `kcp9_` and have Prometheus' form: base units (seconds, bytes), `_total` for
/// counters. The page `docs/metrics.md` lists them, with the counters of kcp-go that they stand for. The label `endpoint` has the name that was given here, and `cause` tells some figures of one name apart.
/// Sums over the label are those of the process.
///
/// The figures of an endpoint are those of its socket and the sums of all its sessions, ended ones included. They are complete if the
/// endpoint was watched before its first session began or after: it counts from the beginning. They stay when the endpoint is gone.
/// A session's own figures (`kcp9_session_`) are exported where the session was named: each name is a set of time series.
///
/// An export takes about a microsecond for each session of the endpoints, and keeps each from its own work for a fraction of that. It runs
/// in the task that calls it. Clones are cheap, and are the same.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// use std::time::Duration;
///
/// use kcp9::{KcpConfig, KcpListener, KcpMetrics};
///
/// let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
/// let metrics = KcpMetrics::new();
/// metrics.watch("game", listener.endpoint());
/// // Once for each request, before the recorder is asked for its text:
/// metrics.export();
/// // Or by itself:
/// tokio::spawn(async move { metrics.run(Duration::from_secs(5)).await });
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct KcpMetrics {
    watched: Arc<Mutex<Watched>>,
}

#[derive(Debug, Default)]
struct Watched {
    endpoints: Vec<Endpoint>,
    /// By name.
    sessions: Vec<(String, KcpHandle)>,
}

/// What was watched by one name.
#[derive(Debug)]
struct Endpoint {
    name: String,
    /// A source for each socket. Shards of an endpoint are together, because they share its memory.
    sources: Vec<Vec<Source>>,
    /// What those had counted that are closed.
    closed: Figures,
}

/// A socket.
#[derive(Debug)]
struct Source {
    /// Watching keeps no socket open.
    shared: Weak<Shared>,
    registry: Arc<Registry>,
    /// What the socket had counted at the last look.
    seen: EndpointStats,
}

/// All figures of one name.
#[derive(Debug, Default)]
struct Figures {
    sessions: Seen,
    socket: EndpointStats,
}

impl KcpMetrics {
    /// Watches nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Exports the figures of `endpoint` from here on, and what it has counted so far, with the label `endpoint="name"`. A listener's
    /// endpoint is [`KcpListener::endpoint`](crate::KcpListener::endpoint). The figures of several with one name are added up.
    /// Watching one again changes nothing.
    pub fn watch(&self, name: &str, endpoint: &KcpEndpoint) {
        self.watch_sockets(name, endpoint.shards());
    }

    /// The same for the socket of a stream that has one of its own: from [`KcpStream::connect`]. Where other streams share the socket,
    /// they are counted too.
    pub fn watch_stream(&self, name: &str, stream: &KcpStream) {
        self.watch_sockets(name, std::slice::from_ref(stream.shared()));
    }

    fn watch_sockets(&self, name: &str, shards: &[Arc<Shared>]) {
        let mut watched = self.watched();
        let is_known = |endpoint: &Endpoint| endpoint.has(&shards[0]);
        if watched.endpoints.iter().any(is_known) {
            return;
        }
        let endpoint = watched.named(name);
        if endpoint.sources.len().is_power_of_two() {
            // A program that watches a stream for each connection, and never exports, keeps no more than twice those that are open.
            endpoint.fold_closed();
        }
        endpoint.sources.push(shards.iter().map(Source::new).collect());
    }

    /// Exports the figures of one session, with the label `session="name"`, until it has ended. It makes some 75 time series:
    /// name few. A session with the name of another takes its place.
    pub fn watch_session(&self, name: &str, session: KcpHandle) {
        let mut watched = self.watched();
        watched.sessions.retain(|(other, _)| other != name);
        watched.sessions.push((name.into(), session));
    }

    /// Exports the session of that name no more. Recorders keep its last figures, until they forget what is not told again
    /// (`idle_timeout` of Prometheus' exporter).
    pub fn unwatch_session(&self, name: &str) {
        self.watched().sessions.retain(|(other, _)| other != name);
    }

    /// Sets the figures in the recorder of this thread or process as they are now. Without a recorder nothing happens.
    pub fn export(&self) {
        let mut watched = self.watched();
        with_recorder(|recorder| {
            let to = Export { recorder };
            for endpoint in &mut watched.endpoints {
                endpoint.fold_closed();
                let figures = endpoint.figures();
                to.endpoint(&endpoint.name, &figures);
            }
            watched.sessions.retain(|(name, session)| {
                // In this order: the last figures are those of the end.
                let lives = session.close_reason().is_none();
                to.session(name, &session.stats());
                lives
            });
        });
    }

    /// Exports each `interval`, for ever: for recorders that are not asked but tell by themselves.
    pub async fn run(&self, interval: Duration) {
        loop {
            self.export();
            tokio::time::sleep(interval.max(LEAST_INTERVAL)).await;
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn named(&mut self, name: &str) -> &mut Endpoint {
        let place = self.endpoints.iter().position(|endpoint| endpoint.name == name).unwrap_or_else(|| {
            self.endpoints.push(Endpoint {
                name: name.into(),
                sources: Vec::new(),
                closed: Figures::default(),
            });
            self.endpoints.len() - 1
        });
        &mut self.endpoints[place]
    }
}

impl Endpoint {
    fn has(&self, shared: &Arc<Shared>) -> bool {
        self.sources.iter().flatten().any(|source| Arc::ptr_eq(&source.registry, &shared.registry))
    }

    /// Keeps the figures of closed sockets, and nothing else of them.
    fn fold_closed(&mut self) {
        let closed = &mut self.closed;
        self.sources.retain_mut(|shards| {
            if shards.iter().any(|source| source.registry.last().is_none()) {
                return true;
            }
            closed.add_sockets(shards);
            false
        });
    }

    fn figures(&mut self) -> Figures {
        let mut figures = Figures { sessions: self.closed.sessions.clone(), socket: self.closed.socket };
        self.sources.iter_mut().for_each(|shards| figures.add_sockets(shards));
        figures
    }
}

impl Source {
    fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            registry: Arc::clone(&shared.registry),
            seen: EndpointStats::default(),
        }
    }

    /// What the socket has counted so far.
    fn look(&mut self) -> EndpointStats {
        match (self.registry.last(), self.shared.upgrade()) {
            (Some(last), _) => self.seen = last,
            (None, Some(shared)) => self.seen = shared.stats(),
            // It is closed at this very moment.
            (None, None) => {}
        }
        self.seen
    }
}

impl Figures {
    /// Adds the shards of one endpoint.
    fn add_sockets(&mut self, shards: &mut [Source]) {
        let mut all = EndpointStats::default();
        for source in shards {
            let stats = source.look();
            let (memory, taken) = (all.memory, all.state.buffer_memory);
            all = all.add(&stats);
            // Each of them tells of the memory that all have.
            all.memory.refused_segments = memory.refused_segments.max(stats.memory.refused_segments);
            all.memory.refused_writes = memory.refused_writes.max(stats.memory.refused_writes);
            all.state.buffer_memory = taken.max(stats.state.buffer_memory);
            self.sessions.add(&source.registry.visit());
        }
        self.socket = self.socket.add(&all);
    }
}

/// One export.
struct Export<'a> {
    recorder: &'a dyn Recorder,
}

impl Export<'_> {
    fn endpoint(&self, name: &str, figures: &Figures) {
        let Figures { sessions, socket } = figures;
        let of = ("endpoint", name);
        for (figure, value) in SESSION.iter().zip(sessions.totals.counters) {
            self.counter(PREFIX, of, figure, value);
        }
        for figure in SOCKET {
            self.counter(PREFIX, of, figure, (figure.get)(socket));
        }
        for figure in SOCKET_GAUGES {
            self.gauge(PREFIX, of, figure, (figure.get)(socket) as f64);
        }
        for (figure, value) in SUMMED_GAUGES.iter().zip(sessions.gauges) {
            self.gauge(PREFIX, of, figure, value);
        }
        self.counter(PREFIX, of, &CONNECTED, sessions.totals.connected);
        for cause in CAUSES {
            let figure = Figure { label: Some(("cause", cause)), ..ENDED };
            self.counter(PREFIX, of, &figure, sessions.totals.ended.get(cause).copied().unwrap_or(0));
        }
        for (figure, value) in [
            (&RTT_LEAST, sessions.rtt.least),
            (&RTT_MEAN, sessions.rtt.mean()),
            (&RTT_GREATEST, sessions.rtt.greatest),
            (&MOST, sessions.most as f64),
        ] {
            self.gauge(PREFIX, of, figure, value);
        }
    }

    fn session(&self, name: &str, stats: &Stats) {
        let of = ("session", name);
        for figure in SESSION {
            self.counter(SESSION_PREFIX, of, figure, (figure.get)(stats));
        }
        for figure in SUMMED_GAUGES.iter().chain(SESSION_GAUGES) {
            self.gauge(SESSION_PREFIX, of, figure, (figure.get)(stats));
        }
    }

    fn counter<S, T>(&self, prefix: &str, of: (&'static str, &str), figure: &Figure<S, T>, value: u64) {
        let key = key(prefix, of, figure);
        self.recorder.describe_counter(name_of(&key), Some(figure.unit), figure.help.into());
        let counter: Counter = self.recorder.register_counter(&key, &METADATA);
        counter.absolute(value);
    }

    fn gauge<S, T>(&self, prefix: &str, of: (&'static str, &str), figure: &Figure<S, T>, value: f64) {
        let key = key(prefix, of, figure);
        self.recorder.describe_gauge(name_of(&key), Some(figure.unit), figure.help.into());
        let gauge: Gauge = self.recorder.register_gauge(&key, &METADATA);
        gauge.set(value);
    }
}

fn key<S, T>(prefix: &str, (label, value): (&'static str, &str), figure: &Figure<S, T>) -> Key {
    let mut labels = Vec::with_capacity(2);
    labels.push(Label::new(label, String::from(value)));
    labels.extend(figure.label.map(|(name, value)| Label::from_static_parts(name, value)));
    Key::from_parts(format!("{prefix}{}", figure.name), labels)
}

fn name_of(key: &Key) -> KeyName {
    key.name_shared()
}

const PREFIX: &str = "kcp9_";
/// Of figures of a single session: sums over those of an endpoint must not count them twice.
const SESSION_PREFIX: &str = "kcp9_session_";
const METADATA: Metadata<'_> = Metadata::new("kcp9", Level::INFO, Some("kcp9"));
/// A program that asks for no pause gets one.
const LEAST_INTERVAL: Duration = Duration::from_millis(10);

/// Figures that come from the registry.
const fn registered(name: &'static str, unit: Unit, help: &'static str) -> Figure<Seen, ()> {
    Figure { name, label: None, unit, help, get: |_| () }
}

const CONNECTED: Figure<Seen, ()> =
    registered("sessions_connected_total", Unit::Count, "Sessions that this end began");
const ENDED: Figure<Seen, ()> = registered("sessions_ended_total", Unit::Count, "Sessions that have ended");
const MOST: Figure<Seen, ()> = registered("sessions_most", Unit::Count, "The most sessions at a time so far");
const RTT_LEAST: Figure<Seen, ()> =
    registered("rtt_least_seconds", Unit::Seconds, "Least smoothed round-trip time of the sessions");
const RTT_MEAN: Figure<Seen, ()> =
    registered("rtt_mean_seconds", Unit::Seconds, "Mean smoothed round-trip time of the sessions");
const RTT_GREATEST: Figure<Seen, ()> =
    registered("rtt_greatest_seconds", Unit::Seconds, "Greatest smoothed round-trip time of the sessions");
