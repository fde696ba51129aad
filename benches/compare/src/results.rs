//! What a comparison leaves in a file: a line for the machine, and one for each peer in each cell.
//!
//! The table and the charts are made from it alone.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    machine::Machine,
    summary::{Row, Summary},
};

/// Name of the file: JSON lines.
pub(crate) const FILE: &str = "results.jsonl";

#[derive(Debug, PartialEq)]
pub(crate) struct Results {
    pub(crate) header: Header,
    pub(crate) summary: Summary,
}

/// The first line.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) machine: Machine,
    /// Rounds of each cell, and of those whose figures are close.
    pub(crate) rounds: usize,
    pub(crate) close_rounds: usize,
}

impl Results {
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join(FILE), self.to_lines()?)
    }

    /// # Errors
    /// If there is none, or it is of another version of this program.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        Ok(Self::from_lines(&fs::read_to_string(folder.join(FILE))?)?)
    }

    fn to_lines(&self) -> serde_json::Result<String> {
        let mut text = serde_json::to_string(&self.header)? + "\n";
        for row in &self.summary.rows {
            text += &serde_json::to_string(row)?;
            text.push('\n');
        }
        Ok(text)
    }

    fn from_lines(text: &str) -> serde_json::Result<Self> {
        let (header, rows) = text.split_once('\n').unwrap_or((text, ""));
        let rows = rows.lines().map(serde_json::from_str::<Row>).collect::<Result<_, _>>()?;
        Ok(Self { header: serde_json::from_str(header)?, summary: Summary { rows } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cell::{Cell, Crypt, Path as Route, Work},
        figures::{Latency, Measured, Outcome, Run},
    };

    #[test]
    fn what_was_written_is_read_again() {
        let measured = Measured {
            bytes: 3_000_000,
            messages: 7,
            secs: 0.7,
            cpu_s: 0.3,
            peak_kb: 9_999,
            latency: Some(Latency { p50: 50.25, p99: 99.0, p999: 1e6 / 3.0 }),
            wire_bytes: Some(300.5),
        };
        let cells = [Cell::ping(Route::Relay(10)), Cell::bulk(Work::Echo, Crypt::Aes128Gcm, 8, 64 << 10)];
        let runs: Vec<_> = cells
            .into_iter()
            .flat_map(|cell| {
                let outcomes = [Outcome::Done(measured.clone()), Outcome::Failed("no \"route\"".to_owned())];
                outcomes.map(|outcome| Run { peer: "kcp9".to_owned(), cell, outcome })
            })
            .collect();
        let header = Header { machine: crate::machine::describe(&[]), rounds: 5, close_rounds: 25 };
        let results = Results { header, summary: Summary::of(&runs) };
        let lines = results.to_lines().unwrap();
        assert_eq!(lines.lines().count(), 1 + cells.len(), "{lines}");
        assert_eq!(Results::from_lines(&lines).unwrap(), results);
    }

    #[test]
    fn the_committed_results_can_be_read_and_are_small() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/results"));
        let results = Results::read(folder).unwrap();
        assert_eq!(results.summary.cells(), Cell::all());
        let lines = results.to_lines().unwrap().lines().count();
        assert!(lines < 1_000, "{lines} lines");
    }
}
