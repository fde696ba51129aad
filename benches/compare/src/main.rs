//! kcp9 beside TCP, QUIC and the other implementations of KCP: the same work over the same sockets of one machine.
//!
//! ```text
//! cargo run --release --manifest-path benches/compare/Cargo.toml
//! cargo run --release --manifest-path benches/compare/Cargo.toml -- --only sink,plain --peers kcp9,quinn --rounds 5
//! cargo run --release --manifest-path benches/compare/Cargo.toml -- --quick
//! cargo run --release --manifest-path benches/compare/Cargo.toml -- --peers kcp9,kcp9-before --before PROGRAM
//! ```
//!
//! writes `results/results.jsonl` (a line for each peer in each cell), and `results/table.md` and charts, which are made from
//! it: `-- report` makes them again.
//!
//! The last one measures a change: `PROGRAM` is this very program, built from the code before it. Another measurement, of sessions begun a second, is
//! `--features handshakes -- handshakes`.
//!
//! # What is measured
//!
//! A *cell* is one piece of work (see [`cell`]). In each round every peer does it once, one after the other, in another order
//! each round, so that the machine's other work disturbs all of them alike. The tables show medians of the rounds. A run is
//! two processes over loopback, a server and a driver. The driver
//! * `sink`: sends a count and that many bytes, and the server answers with how many it got;
//! * `echo`: sends bytes and compares every one of those that come back;
//! * `ping`: sends a message, waits for it, compares it, and notes how long that took, again and again; over loopback,
//!   and through a relay (`tests/relay`) that delays, loses and counts.
//!
//! The clock starts when all connections have carried a byte each way. CPU seconds and peak memory are the sums of both
//! processes from start to end. Trial runs find out how many bytes each peer moves in about `--secs`. A run that goes wrong or
//! takes too long counts as failed. If a run of kcp9 failed, the comparison fails in the end.

mod bars;
mod cell;
mod chart;
mod figures;
mod go;
#[cfg(feature = "handshakes")]
mod handshakes;
mod machine;
mod measure;
mod options;
#[allow(dead_code, reason = "the measuring example's, with tests")]
#[path = "../../../examples/perf/payload.rs"]
mod payload;
mod peer;
mod process;
mod report;
mod results;
mod summary;
mod usage;

use std::{io, path::Path, process::ExitCode};

use clap::Parser;

use self::{
    options::{Arguments, Command},
    results::{Header, Results},
    summary::Summary,
};

/// The peer that all others are set against.
const OURS: &str = "kcp9";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command {
        Some(Command::Peer(side)) => peer::run(&side),
        #[cfg(feature = "handshakes")]
        Some(Command::Handshakes(run)) => handshakes::run(&run),
        Some(Command::Report { folder }) => make_report(&options::folder_or_default(folder.as_ref())),
        None => compare(&arguments.run),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn make_report(folder: &Path) -> io::Result<()> {
    report::write(&Results::read(folder)?, folder)
}

fn compare(options: &options::Run) -> io::Result<()> {
    let programs = process::programs(options)?;
    let machine = machine::describe(&programs);
    let runs = measure::all(options, &programs)?;
    let header = Header { machine, rounds: options.rounds(), close_rounds: options.close_rounds() };
    let results = Results { header, summary: Summary::of(&runs) };
    let folder = options.out();
    results.write(&folder)?;
    report::write(&results, &folder)?;
    let ours = |run: &&figures::Run| run.peer == OURS && matches!(run.outcome, figures::Outcome::Failed(_));
    match runs.iter().filter(ours).count() {
        0 => Ok(()),
        failed => Err(io::Error::other(format!("{failed} runs of {OURS} failed"))),
    }
}
