//! What became of the sessions.

use kcp9::KcpHandle;

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, ErrorKind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// How a session may end beside the way that it chose: its server restarts, or its NAT forgets it.
const EXPECTED: [ErrorKind; 4] = [
    ErrorKind::ConnectionReset,
    ErrorKind::ConnectionAborted,
    ErrorKind::TimedOut,
    ErrorKind::ConnectionRefused,
];

#[derive(Default)]
pub(crate) struct Tally {
    /// What the clients that live are doing, by their numbers.
    living: Mutex<BTreeMap<u64, (&'static str, KcpHandle)>>,
    /// Bytes whose echoes were right.
    pub(crate) echoed: AtomicU64,
    /// Sessions that ended as they chose to, by how.
    ended: Mutex<BTreeMap<&'static str, u64>>,
    /// Sessions that ended otherwise, by the kind of error.
    failed: Mutex<BTreeMap<String, u64>>,
}

impl Tally {
    /// A client does something else now.
    pub(crate) fn note(&self, client: u64, does: &'static str, with: KcpHandle) {
        self.living.lock().unwrap().insert(client, (does, with));
    }

    pub(crate) fn gone(&self, client: u64) {
        self.living.lock().unwrap().remove(&client);
    }

    /// Fails if clients live, and says what they do.
    pub(crate) fn assert_none_lives(&self) {
        let living = std::mem::take(&mut *self.living.lock().unwrap());
        let few: Vec<_> = living
            .values()
            .take(3)
            .map(|(does, with)| (*does, with.stats(), with.close_reason(), with.conv()))
            .collect();
        assert!(living.is_empty(), "{} clients do not end: {few:#?}", living.len());
    }

    pub(crate) fn ended(&self, how: &'static str) {
        *self.ended.lock().unwrap().entry(how).or_default() += 1;
    }

    pub(crate) fn failed(&self, error: &io::Error) {
        assert!(EXPECTED.contains(&error.kind()), "{error:?}");
        *self.failed.lock().unwrap().entry(error.kind().to_string()).or_default() += 1;
    }

    /// Whether enough went well to say something.
    pub(crate) fn check(&self, length: Duration) {
        let ended = self.ended.lock().unwrap();
        assert_eq!(ended.len(), 5, "some way to end was never taken: {self}");
        let all: u64 = ended.values().sum();
        let failed: u64 = self.failed.lock().unwrap().values().sum();
        assert!(all > failed, "most sessions failed: {all} to {failed}");
        let echoed = self.echoed.load(Ordering::Relaxed);
        assert!(echoed > length.as_secs() * 100_000, "little was echoed: {echoed} bytes");
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let echoed = self.echoed.load(Ordering::Relaxed);
        write!(f, "{echoed} bytes echoed; ended: {:?}; ", self.ended.try_lock().as_deref())?;
        write!(f, "failed: {:?}", self.failed.try_lock().as_deref())
    }
}
