//! The rounds: which peer does what when, and how much of it.

use std::{io, time::Duration};

use crate::{
    cell::{Cell, Path, Work},
    figures::{Outcome, Run},
    options,
    process::{self, Amount, Program},
};

/// Bytes of all connections together with which the search for the right number begins.
const FIRST_BYTES: u64 = 512 << 10;
/// Bytes that no run exceeds.
const MAX_BYTES: u64 = 16 << 30;
/// A run of at least this share of the wanted time shows how fast a peer is.
const TELLING_SHARE: f64 = 0.4;
/// Failures of a peer in a cell after which it is not tried again there.
const MAX_FAILURES: usize = 2;

/// Does everything that the command line asks for.
pub(crate) fn all(options: &options::Run, programs: &[Program]) -> io::Result<Vec<Run>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cells: Vec<_> = Cell::all().into_iter().filter(|cell| options.wants(&cell.words())).collect();
    if cells.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "--only leaves nothing to measure"));
    }
    let (close, others): (Vec<_>, Vec<_>) = groups(&cells).into_iter().partition(|cells| cells[0].is_close());
    let mut runs = runtime.block_on(async {
        let mut close_ones = Vec::new();
        for cells in &close {
            close_ones.push(Group::new(options, cells, programs).await);
        }
        let mut runs = Vec::new();
        // Close figures vary from minute to minute, so their rounds are spread over the whole comparison.
        for (index, cells) in others.iter().enumerate() {
            let mut group = Group::new(options, cells, programs).await;
            group.run_until(group.rounds).await;
            runs.append(&mut group.runs);
            for group in &mut close_ones {
                group.run_until(group.rounds * (index + 1) / others.len()).await;
            }
        }
        for mut group in close_ones {
            group.run_until(group.rounds).await;
            runs.append(&mut group.runs);
        }
        runs
    });
    // The runs of each cell together.
    runs.sort_by_key(|run| cells.iter().position(|cell| *cell == run.cell));
    Ok(runs)
}

/// One connection is compared with many, so cells that differ only in their connections take turns.
fn groups(cells: &[Cell]) -> Vec<Vec<Cell>> {
    let mut groups: Vec<Vec<Cell>> = Vec::new();
    for cell in cells {
        match groups.iter_mut().find(|group| Cell { conns: cell.conns, ..group[0] } == *cell) {
            Some(group) => group.push(*cell),
            None => groups.push(vec![*cell]),
        }
    }
    groups
}

/// Cells that are measured together: in each round every peer does each of them once.
struct Group<'a> {
    turns: Vec<Turn<'a>>,
    rounds: usize,
    done: usize,
    limit: Duration,
    runs: Vec<Run>,
}

struct Turn<'a> {
    program: &'a Program,
    cell: &'a Cell,
    amount: Amount,
    failures: usize,
}

impl<'a> Group<'a> {
    /// Finds out how much each peer can do.
    async fn new(options: &options::Run, cells: &'a [Cell], programs: &'a [Program]) -> Self {
        let relayed = cells.iter().any(|cell| matches!(cell.path, Path::Relay(_)));
        let secs = if relayed { options.relay_secs() } else { options.secs() };
        let limit = Duration::from_secs_f64(15.0 + 10.0 * secs);
        let rounds = if cells.iter().all(Cell::is_close) { options.close_rounds() } else { options.rounds() };
        let mut group = Self { turns: Vec::new(), rounds, done: 0, limit, runs: Vec::new() };
        for program in programs {
            for cell in cells.iter().filter(|cell| cell.suits(&program.name)) {
                match amount(program, cell, secs, limit).await {
                    Ok(amount) => group.turns.push(Turn { program, cell, amount, failures: 0 }),
                    Err(why) => group.runs.push(finished(program, cell, Outcome::Failed(why))),
                }
            }
        }
        group
    }

    /// Continues until `rounds` rounds are done.
    async fn run_until(&mut self, rounds: usize) {
        while self.done < rounds {
            let count = self.turns.len();
            if let Some(turn) = self.turns.first() {
                eprintln!("{}, round {} of {}", turn.cell, self.done + 1, self.rounds);
            }
            for turn in 0..count {
                let Turn { program, cell, amount, failures } = &mut self.turns[(self.done + turn) % count];
                if *failures == MAX_FAILURES {
                    continue;
                }
                amount.seed = self.done as u64 + 1;
                let outcome = match process::run(program, cell, *amount, self.limit).await {
                    Ok(measured) => Outcome::Done(measured),
                    Err(why) => {
                        *failures += 1;
                        Outcome::Failed(why)
                    }
                };
                self.runs.push(finished(program, cell, outcome));
            }
            self.done += 1;
        }
    }
}

fn finished(program: &Program, cell: &Cell, outcome: Outcome) -> Run {
    let name = &program.name;
    match &outcome {
        Outcome::Done(measured) => {
            let rate = measured.bytes as f64 / 1e6 / measured.secs;
            match &measured.latency {
                Some(latency) => eprintln!("  {name}: p50 {:.0} us, p99 {:.0} us", latency.p50, latency.p99),
                None => eprintln!("  {name}, {} connections: {rate:.0} MB/s", cell.conns),
            }
        }
        Outcome::Failed(why) => eprintln!("  {name}: failed: {why}"),
    }
    Run { peer: name.clone(), cell: *cell, outcome }
}

/// How much a peer can do in `secs`.
async fn amount(program: &Program, cell: &Cell, secs: f64, limit: Duration) -> Result<Amount, String> {
    if cell.work == Work::Ping {
        return Ok(Amount { bytes: 0, secs, seed: 0 });
    }
    let mut total = FIRST_BYTES;
    loop {
        let amount = Amount { bytes: per_connection(cell, total), secs, seed: 0 };
        let measured = process::run(program, cell, amount, limit).await?;
        let wanted = (measured.bytes as f64 / measured.secs * secs) as u64;
        if measured.secs >= TELLING_SHARE * secs || total >= MAX_BYTES {
            return Ok(Amount { bytes: per_connection(cell, wanted.min(MAX_BYTES)), ..amount });
        }
        // Short runs tell little, so try what this one suggests.
        total = wanted.clamp(2 * total, 16 * total).min(MAX_BYTES);
    }
}

/// Whole messages, and at least one.
fn per_connection(cell: &Cell, total: u64) -> u64 {
    let msg = cell.msg as u64;
    (total / cell.conns as u64).div_ceil(msg).max(1) * msg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_that_differ_in_their_connections_are_a_group() {
        let cells = Cell::all();
        let groups = groups(&cells);
        assert_eq!(groups.concat().len(), cells.len());
        let close: Vec<_> = groups.iter().filter(|group| group.iter().any(Cell::is_close)).collect();
        assert!(close.iter().all(|group| group.iter().all(Cell::is_close)));
        let mut conns: Vec<Vec<_>> =
            close.iter().map(|group| group.iter().map(|cell| cell.conns).collect()).collect();
        conns.sort();
        assert_eq!(conns, [vec![1], vec![1, 8]]);
        for group in groups {
            assert!(group.iter().all(|cell| Cell { conns: 1, ..*cell } == Cell { conns: 1, ..group[0] }));
        }
    }
}
