//! Instructions that a segment takes to be written, sent and acknowledged: they must not grow with what is in flight.
//!
//! The benchmark `arq` measures the time of the same, which depends on the caches as well.

use crate::sender::{BATCH, Sender, Traffic, Turn};

/// Segments in flight that are compared.
pub(crate) const WINDOWS: [u32; 2] = [32, 16_384];
/// More than this share above the smaller window's is a failure.
pub(crate) const LIMIT: f64 = 1.3;
/// Payload bytes of a segment.
const PAYLOAD: usize = 1_376;
/// Turns that are counted: two of the larger window.
const TURNS: u32 = 1_024;

/// How a window is acknowledged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledged {
    pub(crate) name: &'static str,
    losses: bool,
    turn: Turn,
}

impl Acknowledged {
    pub(crate) fn all() -> [Self; 2] {
        [
            Self { name: "cumulative", losses: false, turn: Sender::cumulative },
            Self { name: "selective", losses: true, turn: Sender::selective },
        ]
    }

    /// Runs what `run` names, if it is one of these: `cumulative-32-0`.
    pub(crate) fn run_named(run: &str) -> bool {
        let mut parts = run.split('-');
        let kind = parts.next().and_then(|name| Self::all().into_iter().find(|kind| kind.name == name));
        let mut number = || parts.next()?.parse().ok();
        let (Some(kind), Some(window), Some(turns)) = (kind, number(), number()) else { return false };
        kind.run(window, turns);
        true
    }

    /// `turns` turns after those that fill the window.
    fn run(self, window: u32, turns: u32) {
        let mut traffic = Traffic::new(PAYLOAD);
        let mut sender = Sender::new(window, PAYLOAD, &mut traffic);
        sender.settle(self.turn, &mut traffic);
        for _ in 0..turns {
            (self.turn)(&mut sender, &mut traffic);
        }
        sender.check(self.losses);
    }

    /// Instructions of a segment with `window` in flight; `count` counts those of what it is given the name of.
    pub(crate) fn measure<E>(self, window: u32, count: impl Fn(&str) -> Result<u64, E>) -> Result<f64, E> {
        let [before, after] = [0, TURNS].map(|turns| count(&format!("{}-{window}-{turns}", self.name)));
        Ok((after? - before?) as f64 / f64::from(TURNS * BATCH))
    }
}
