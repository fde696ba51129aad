//! What a process reports about itself, and the result of a run.

use serde::{Deserialize, Serialize};

use crate::cell::Cell;

/// The last line that each process of a run prints, Go's as well.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Payload bytes. At a server: those that arrived. At a driver: those that were delivered, and in an echo came back.
    pub(crate) bytes: u64,
    /// From the first byte of the work to the last; 0 at a server.
    pub(crate) secs: f64,
    /// Processor time of the process, user and system.
    pub(crate) cpu_s: f64,
    /// Largest resident size, KiB.
    pub(crate) peak_kb: u64,
    /// Round trips of pings, nanoseconds.
    pub(crate) trips_ns: Vec<u64>,
}

/// One run of one peer.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) peer: String,
    pub(crate) cell: Cell,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Done(Measured),
    Failed(String),
}

/// The figures of a run that went well.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) bytes: u64,
    pub(crate) messages: u64,
    pub(crate) secs: f64,
    /// Both processes together.
    pub(crate) cpu_s: f64,
    /// Both processes together, KiB.
    pub(crate) peak_kb: u64,
    pub(crate) latency: Option<Latency>,
    /// Bytes that both ends gave to the relay for each ping and its pong, IP and UDP headers included.
    pub(crate) wire_bytes: Option<f64>,
}

/// Round trips, microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

impl Latency {
    /// `None` if there are none.
    pub(crate) fn of(mut trips_ns: Vec<u64>) -> Option<Self> {
        trips_ns.sort_unstable();
        if trips_ns.is_empty() {
            return None;
        }
        // The smallest trip that at least this share of them does not exceed.
        let at = |share: f64| {
            let rank = (share * trips_ns.len() as f64).ceil() as usize;
            trips_ns[rank.clamp(1, trips_ns.len()) - 1]
        };
        let micros = |nanos: u64| nanos as f64 / 1e3;
        Some(Self { p50: micros(at(0.5)), p99: micros(at(0.99)), p999: micros(at(0.999)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_trips_that_were() {
        assert!(Latency::of(Vec::new()).is_none());
        let latency = Latency::of((1..=1_000).rev().map(|micros| micros * 1_000).collect()).unwrap();
        assert_eq!((latency.p50, latency.p99, latency.p999), (500.0, 990.0, 999.0));
        let one = Latency::of(vec![7_000]).unwrap();
        assert_eq!((one.p50, one.p999), (7.0, 7.0));
    }
}
