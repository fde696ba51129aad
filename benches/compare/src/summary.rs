//! What the rounds come to: quartiles for each peer in each cell, which is all that is kept of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    cell::{Cell, Work},
    figures::{Measured, Outcome, Run},
};

/// A figure of a peer in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    /// Megabytes (10^6) a second.
    Rate,
    /// Messages a second.
    Messages,
    /// CPU seconds per gigabyte (10^9), both processes.
    Cpu,
    /// CPU microseconds per message, both processes.
    CpuPerMessage,
    /// Peak memory of both processes, MiB.
    Memory,
    /// Microseconds.
    P50,
    P99,
    P999,
    /// Bytes on the wire for each ping and its pong.
    Wire,
}

impl Metric {
    const ALL: [Self; 9] = [
        Self::Rate,
        Self::Messages,
        Self::Cpu,
        Self::CpuPerMessage,
        Self::Memory,
        Self::P50,
        Self::P99,
        Self::P999,
        Self::Wire,
    ];

    fn of(self, run: &Measured) -> Option<f64> {
        let latency = run.latency.as_ref();
        Some(match self {
            Self::Rate => run.bytes as f64 / 1e6 / run.secs,
            Self::Messages => run.messages as f64 / run.secs,
            Self::Cpu => run.cpu_s / (run.bytes as f64 / 1e9),
            Self::CpuPerMessage => run.cpu_s * 1e6 / run.messages as f64,
            Self::Memory => run.peak_kb as f64 / 1024.0,
            Self::P50 => latency?.p50,
            Self::P99 => latency?.p99,
            Self::P999 => latency?.p999,
            Self::Wire => run.wire_bytes?,
        })
    }

    /// What a cell's charts and tables compare first.
    pub(crate) fn main_of(work: Work) -> Self {
        if work == Work::Ping { Self::P99 } else { Self::Rate }
    }
}

/// All rows, those of a cell together, in the order in which cells and peers were measured.
#[derive(Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) rows: Vec<Row>,
}

/// One peer in one cell.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) peer: String,
    pub(crate) cell: Cell,
    /// Rounds that went well.
    done: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<Failed>,
    figures: BTreeMap<Metric, Quartiles>,
}

/// Rounds that went wrong.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Failed {
    rounds: usize,
    /// The reason of the first.
    why: String,
}

/// The lower quartile, the median and the upper quartile of rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Quartiles(f64, f64, f64);

impl Summary {
    pub(crate) fn of(runs: &[Run]) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        for run in runs {
            if !rows.iter().any(|row| row.is(&run.cell, &run.peer)) {
                let same: Vec<_> = runs.iter().filter(|other| is_same(run, other)).collect();
                rows.push(Row::of(run, &same));
            }
        }
        Self { rows }
    }

    /// The cells that were measured, in order.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<Cell> = self.rows.iter().map(|row| row.cell).collect();
        cells.dedup();
        cells
    }

    /// The peers of a cell, in order of first appearance.
    pub(crate) fn peers(&self, is_of: impl Fn(&Cell) -> bool) -> Vec<&str> {
        let mut peers = Vec::new();
        for row in self.rows.iter().filter(|row| is_of(&row.cell)) {
            if !peers.contains(&row.peer.as_str()) {
                peers.push(&row.peer);
            }
        }
        peers
    }

    /// The median of the rounds that went well; `None` without any.
    pub(crate) fn median(&self, cell: &Cell, peer: &str, metric: Metric) -> Option<f64> {
        Some(self.row(cell, peer)?.figures.get(&metric)?.1)
    }

    /// How many runs of a peer went wrong in a cell, and the first reason.
    pub(crate) fn failures(&self, cell: &Cell, peer: &str) -> Option<(usize, &str)> {
        let failed = self.row(cell, peer)?.failed.as_ref()?;
        Some((failed.rounds, &failed.why))
    }

    fn row(&self, cell: &Cell, peer: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.is(cell, peer))
    }
}

impl Row {
    /// `runs` are those of `run`'s peer in its cell.
    fn of(run: &Run, runs: &[&Run]) -> Self {
        let mut measured = Vec::new();
        let mut reasons = Vec::new();
        for run in runs {
            match &run.outcome {
                Outcome::Done(figures) => measured.push(figures),
                Outcome::Failed(why) => reasons.push(why),
            }
        }
        let quartiles =
            |metric: Metric| quartiles(measured.iter().filter_map(|figures| metric.of(figures)).collect());
        Self {
            peer: run.peer.clone(),
            cell: run.cell,
            done: measured.len(),
            failed: reasons.first().map(|why| Failed { rounds: reasons.len(), why: (*why).clone() }),
            figures: Metric::ALL
                .into_iter()
                .filter_map(|metric| Some((metric, quartiles(metric)?)))
                .collect(),
        }
    }

    fn is(&self, cell: &Cell, peer: &str) -> bool {
        self.cell == *cell && self.peer == peer
    }
}

fn is_same(one: &Run, other: &Run) -> bool {
    one.cell == other.cell && one.peer == other.peer
}

fn quartiles(mut values: Vec<f64>) -> Option<Quartiles> {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let at = |share: f64| {
        let place = share * last as f64;
        let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
        rounded(below + (above - below) * place.fract())
    };
    Some(Quartiles(at(0.25), at(0.5), at(0.75)))
}

/// In seven digits: more say nothing, and make the file longer.
fn rounded(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cell::Crypt, figures::Latency};

    #[test]
    fn quartiles_lie_between_the_values_that_were() {
        assert_eq!(quartiles(vec![]), None);
        assert_eq!(quartiles(vec![3.0]), Some(Quartiles(3.0, 3.0, 3.0)));
        assert_eq!(quartiles(vec![3.0, 1.0, 2.0, 5.0, 4.0]), Some(Quartiles(2.0, 3.0, 4.0)));
        assert_eq!(quartiles(vec![4.0, 1.0, 3.0, 2.0]), Some(Quartiles(1.75, 2.5, 3.25)));
        assert_eq!(quartiles(vec![1.0 / 3.0]), Some(Quartiles(0.333_333_3, 0.333_333_3, 0.333_333_3)));
    }

    #[test]
    fn rows_keep_the_order_of_the_runs_and_count_their_failures() {
        let [first, second] = [64, 1_024].map(|msg| Cell::bulk(Work::Sink, Crypt::Plain, 1, msg));
        let run = |peer: &str, cell, secs: Option<f64>| {
            let done = |secs| {
                Outcome::Done(Measured {
                    bytes: 1_000_000,
                    messages: 10,
                    secs,
                    cpu_s: 1.0,
                    peak_kb: 1_024,
                    latency: None,
                    wire_bytes: None,
                })
            };
            let outcome = secs.map_or_else(|| Outcome::Failed("broken".to_owned()), done);
            Run { peer: peer.to_owned(), cell, outcome }
        };
        let summary = Summary::of(&[
            run("b", first, Some(1.0)),
            run("a", first, None),
            run("b", first, Some(2.0)),
            run("a", second, Some(4.0)),
            run("a", second, None),
        ]);
        assert_eq!(summary.cells(), [first, second]);
        assert_eq!(summary.peers(|_| true), ["b", "a"]);
        assert_eq!(summary.peers(|cell| *cell == second), ["a"]);
        assert_eq!(summary.median(&first, "b", Metric::Rate), Some(0.75));
        assert_eq!(summary.median(&first, "a", Metric::Rate), None);
        assert_eq!(summary.median(&first, "b", Metric::P99), None);
        assert_eq!(summary.failures(&first, "a"), Some((1, "broken")));
        assert_eq!(summary.failures(&first, "b"), None);
        assert_eq!(summary.failures(&second, "a"), Some((1, "broken")));
        assert_eq!(summary.row(&second, "a").map(|row| row.done), Some(1));
    }

    #[test]
    fn pings_have_latencies_and_bytes_on_the_wire() {
        let cell = Cell::ping(crate::cell::Path::Relay(5));
        let latency = Some(Latency { p50: 1.0, p99: 2.0, p999: 3.0 });
        let measured = Measured {
            bytes: 64,
            messages: 1,
            secs: 1.0,
            cpu_s: 0.5,
            peak_kb: 1,
            latency,
            wire_bytes: Some(312.0),
        };
        let summary = Summary::of(&[Run { peer: "a".to_owned(), cell, outcome: Outcome::Done(measured) }]);
        let medians = [Metric::P50, Metric::P99, Metric::P999, Metric::Wire, Metric::CpuPerMessage]
            .map(|metric| summary.median(&cell, "a", metric));
        assert_eq!(medians, [1.0, 2.0, 3.0, 312.0, 500_000.0].map(Some));
    }
}
