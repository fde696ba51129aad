//! The scenario's time in a flow's process.

use std::{
    io,
    time::{Duration, Instant, SystemTime},
};

use tokio::time::{Instant as TokioInstant, sleep_until, timeout_at};

use crate::link::tally::bin_at;

pub(super) struct Clock {
    begin: Instant,
    start: Instant,
    end: Instant,
}

impl Clock {
    /// Says that this end is ready, and waits to be told when the scenario begins. Processes share the wall clock; it is read
    /// once, so that steps of it while the flow runs do no harm.
    pub(super) fn wait(token: &str) -> io::Result<Self> {
        println!("{}", format!("ready {token}").trim_end());
        let mut line = String::new();
        io::stdin().read_line(&mut line)?;
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let mut next = || match numbers.next() {
            Some(Ok(number)) => Ok(number),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no times in {line:?}"))),
        };
        let wall = SystemTime::UNIX_EPOCH + Duration::from_nanos(next()?);
        let now = (Instant::now(), SystemTime::now());
        let begin = match wall.duration_since(now.1) {
            Ok(ahead) => now.0 + ahead,
            Err(ago) => now.0 - ago.duration(),
        };
        let mut later = || Ok::<_, io::Error>(begin + Duration::from_millis(next()?));
        Ok(Self { begin, start: later()?, end: later()? })
    }

    pub(super) async fn until_start(&self) {
        sleep_until(TokioInstant::from_std(self.start)).await;
    }

    /// Lets work go on until the scenario's end; only its failure ends it before. After the end it may fail, as the other end may
    /// be gone.
    pub(super) async fn until_end(&self, work: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        match timeout_at(TokioInstant::from_std(self.end), work).await {
            Ok(Err(error)) if Instant::now() < self.end => Err(error),
            _ => Ok(()),
        }
    }

    /// Seconds since the scenario began.
    pub(super) fn now(&self) -> f64 {
        Instant::now().saturating_duration_since(self.begin).as_secs_f64()
    }

    /// How many bins of received bytes the scenario has.
    pub(super) fn bins(&self) -> usize {
        bin_at((self.end - self.begin).as_secs_f64())
    }
}
