//! Counters of all sessions together, under the names that kcp-go has for them, and the file that `snmplog` asks for.

use std::{
    collections::HashMap,
    fs::OpenOptions,
    io::{self, Write},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::ZonedDateTime;
use kcp9::{KcpHandle, Stats};

use crate::{go_time, log::say};

/// All sessions of the process.
#[derive(Default)]
pub(crate) struct Counters {
    sessions: Mutex<Sessions>,
    /// Packets of listeners that opened under no key.
    forged: AtomicU64,
}

#[derive(Default)]
struct Sessions {
    /// By their numbers.
    live: HashMap<u64, KcpHandle>,
    /// Those of sessions that have ended.
    ended: Values,
    active_opens: u64,
    passive_opens: u64,
    most: u64,
}

impl Counters {
    /// A session that this end began.
    pub(crate) fn add_active(self: &Arc<Self>, handle: KcpHandle) {
        self.add(handle, |sessions| &mut sessions.active_opens);
    }

    /// A session that this end accepted.
    pub(crate) fn add_passive(self: &Arc<Self>, handle: KcpHandle) {
        self.add(handle, |sessions| &mut sessions.passive_opens);
    }

    fn add(self: &Arc<Self>, handle: KcpHandle, opens: impl FnOnce(&mut Sessions) -> &mut u64) {
        let number = {
            let mut sessions = self.sessions();
            *opens(&mut sessions) += 1;
            let number = sessions.active_opens + sessions.passive_opens;
            sessions.live.insert(number, handle.clone());
            sessions.most = sessions.most.max(sessions.live.len() as u64);
            number
        };
        let counters = Arc::clone(self);
        tokio::spawn(async move {
            handle.closed().await;
            let mut sessions = counters.sessions();
            add(&mut sessions.ended, &of(&handle.stats()));
            sessions.live.remove(&number);
        });
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_forged(&self, packets: u64) {
        self.forged.store(packets, Ordering::Relaxed);
    }

    /// Waits until the peers have all that was written to the sessions that live.
    pub(crate) async fn delivered(&self) {
        while self.has_undelivered() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    fn has_undelivered(&self) -> bool {
        let sessions = self.sessions();
        let mut queues = sessions.live.values().map(|handle| handle.stats().queues);
        queues.any(|queues| queues.unsent_bytes > 0 || queues.in_flight > 0)
    }

    /// The values in the order of [`NAMES`].
    fn values(&self) -> Values {
        let sessions = self.sessions();
        let mut values = sessions.ended;
        for handle in sessions.live.values() {
            add(&mut values, &of(&handle.stats()));
        }
        values[2] = sessions.most;
        values[3] = sessions.active_opens;
        values[4] = sessions.passive_opens;
        values[5] = sessions.live.len() as u64;
        values[7] += self.forged.load(Ordering::Relaxed);
        values
    }

    /// All of them for people.
    pub(crate) fn report(&self) {
        let values = self.values();
        let pairs: Vec<_> = NAMES.iter().zip(values).map(|(name, value)| format!("{name}:{value}")).collect();
        say!("KCP SNMP: {}", pairs.join(" "));
    }

    /// Adds a line to the file at `path` each `period`, for ever. A failure ends it, as with kcptun.
    pub(crate) async fn log(&self, path: &str, period: Duration) {
        loop {
            tokio::time::sleep(period).await;
            if let Err(error) = self.append(path) {
                return say!("snmplog: {path}: {error}");
            }
        }
    }

    fn append(&self, path: &str) -> io::Result<()> {
        let now = ZonedDateTime::now();
        let path = Path::new(path);
        // Only the name of the file is a layout, not that of its folder.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let path = path.with_file_name(go_time::format(&name, &now));
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        let mut lines = String::new();
        if file.metadata()?.len() == 0 {
            lines = format!("Unix,{}\n", NAMES.join(","));
        }
        let values = self.values().map(|value| value.to_string());
        lines += &format!("{},{}\n", now.timestamp().as_second(), values.join(","));
        file.write_all(lines.as_bytes())
    }
}

type Values = [u64; NAMES.len()];

fn add(sum: &mut Values, values: &Values) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += value;
    }
}

/// One session's, in the order of [`NAMES`].
fn of(stats: &Stats) -> Values {
    let Stats { udp, segments, recovery, stream, fec, .. } = stats;
    [
        stream.bytes_written,
        stream.bytes_read,
        0,
        0,
        0,
        0,
        udp.malformed + udp.wrong_conv,
        udp.forged,
        udp.malformed,
        udp.packets_received,
        udp.packets_sent,
        segments.received,
        segments.sent,
        udp.bytes_received,
        udp.bytes_sent,
        recovery.resends(),
        recovery.fast_resends,
        recovery.early_resends,
        recovery.timeout_resends,
        segments.duplicates,
        fec.parity_received,
        fec.mismatches,
        fec.recovered,
        fec.unrecoverable,
    ]
}

/// How often sessions are asked whether their bytes have arrived, at the end of the program.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// kcp-go's names, in its order, which readers of such files know.
const NAMES: [&str; 24] = [
    "BytesSent",
    "BytesReceived",
    "MaxConn",
    "ActiveOpens",
    "PassiveOpens",
    "CurrEstab",
    "InErrs",
    "InCsumErrors",
    "KCPInErrors",
    "InPkts",
    "OutPkts",
    "InSegs",
    "OutSegs",
    "InBytes",
    "OutBytes",
    "RetransSegs",
    "FastRetransSegs",
    "EarlyRetransSegs",
    "LostSegs",
    "RepeatSegs",
    "FECParityShards",
    "FECErrs",
    "FECRecovered",
    "FECShortShards",
];
