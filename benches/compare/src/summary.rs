//! Medians of the rounds.

use crate::{
    cell::{Cell, Work},
    figures::{Measured, Outcome, Run},
};

/// A figure of a peer in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// What all runs come to.
pub(crate) struct Summary<'a>(pub(crate) &'a [Run]);

impl Summary<'_> {
    /// The cells that were measured, in order.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<Cell> = Vec::new();
        for run in self.0 {
            if cells.last() != Some(&run.cell) {
                cells.push(run.cell);
            }
        }
        cells
    }

    /// The peers of a cell, in order of first appearance.
    pub(crate) fn peers(&self, is_of: impl Fn(&Cell) -> bool) -> Vec<&str> {
        let mut peers = Vec::new();
        for run in self.0.iter().filter(|run| is_of(&run.cell)) {
            if !peers.contains(&run.peer.as_str()) {
                peers.push(&run.peer);
            }
        }
        peers
    }

    /// The median of the rounds that went well; `None` without any.
    pub(crate) fn median(&self, cell: &Cell, peer: &str, metric: Metric) -> Option<f64> {
        let runs = self.0.iter().filter(|run| run.cell == *cell && run.peer == peer);
        let values = runs.filter_map(|run| match &run.outcome {
            Outcome::Done(measured) => metric.of(measured),
            Outcome::Failed(_) => None,
        });
        median(values.collect())
    }

    /// How many runs of a peer went wrong in a cell, and the first reason.
    pub(crate) fn failures(&self, cell: &Cell, peer: &str) -> Option<(usize, &str)> {
        let runs = self.0.iter().filter(|run| run.cell == *cell && run.peer == peer);
        let mut reasons = runs.filter_map(|run| match &run.outcome {
            Outcome::Failed(why) => Some(why.as_str()),
            Outcome::Done(_) => None,
        });
        let first = reasons.next()?;
        Some((1 + reasons.count(), first))
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }
}
