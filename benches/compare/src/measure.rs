//! The rounds: who does what when, and how much of it.

use std::{io, time::Duration};

use crate::{
    cell::{Cell, Path, Work},
    figures::{Outcome, Run},
    options,
    process::{self, Amount, Program},
};

/// Bytes, of all connections together, that the search for the right number begins with.
const FIRST_BYTES: u64 = 512 << 10;
/// Bytes that no run exceeds.
const MAX_BYTES: u64 = 16 << 30;
/// A run of at least this share of what it should take tells how fast a peer is.
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
    let mut runs = Vec::new();
    let mut left = cells.clone();
    while let Some(first) = left.first().copied() {
        // One and many connections are compared with each other too: they take turns.
        let group: Vec<_>;
        (group, left) = left.into_iter().partition(|cell| Cell { conns: first.conns, ..*cell } == first);
        for (index, cell) in cells.iter().enumerate().filter(|(_, cell)| group.contains(cell)) {
            eprintln!("{} of {}: {cell}", index + 1, cells.len());
        }
        runs.extend(runtime.block_on(rounds(options, &group, programs)));
    }
    // Of each cell together, as without turns.
    runs.sort_by_key(|run| cells.iter().position(|cell| *cell == run.cell));
    Ok(runs)
}

/// The rounds of cells that differ in their connections only: in each, every peer has its turn in each of them.
async fn rounds(options: &options::Run, cells: &[Cell], programs: &[Program]) -> Vec<Run> {
    let relayed = cells.iter().any(|cell| matches!(cell.path, Path::Relay(_)));
    let secs = if relayed { options.relay_secs() } else { options.secs() };
    let limit = Duration::from_secs_f64(15.0 + 10.0 * secs);
    let mut runs = Vec::new();
    let mut turns = Vec::new();
    for program in programs {
        for cell in cells.iter().filter(|cell| cell.suits(&program.name)) {
            match amount(program, cell, secs, limit).await {
                Ok(amount) => turns.push((program, cell, amount, 0)),
                Err(why) => runs.push(finished(program, cell, 0, Outcome::Failed(why))),
            }
        }
    }
    let rounds = if cells.iter().all(Cell::is_close) { options.close_rounds() } else { options.rounds() };
    for round in 0..rounds {
        let count = turns.len();
        for turn in 0..count {
            let (program, cell, amount, failures) = &mut turns[(round + turn) % count];
            if *failures == MAX_FAILURES {
                continue;
            }
            amount.seed = round as u64 + 1;
            let outcome = match process::run(program, cell, *amount, limit).await {
                Ok(measured) => Outcome::Done(measured),
                Err(why) => {
                    *failures += 1;
                    Outcome::Failed(why)
                }
            };
            runs.push(finished(program, cell, round + 1, outcome));
        }
    }
    runs
}

fn finished(program: &Program, cell: &Cell, round: usize, outcome: Outcome) -> Run {
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
    Run { peer: name.clone(), cell: *cell, round, outcome }
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
        // Short runs tell little: what they suggest is tried before it is believed.
        total = wanted.clamp(2 * total, 16 * total).min(MAX_BYTES);
    }
}

/// Whole messages, and at least one.
fn per_connection(cell: &Cell, total: u64) -> u64 {
    let msg = cell.msg as u64;
    (total / cell.conns as u64).div_ceil(msg).max(1) * msg
}
