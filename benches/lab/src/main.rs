//! Flows of kcp9, Linux's TCP, quinn and kcp-go through a real bottleneck.
//!
//! ```text
//! cargo run --release --manifest-path benches/lab/Cargo.toml
//! cargo run --release --manifest-path benches/lab/Cargo.toml -- --only '1 kcp9, 1 BDP' --only cellular
//! cargo run --release --manifest-path benches/lab/Cargo.toml -- report
//! ```
//!
//! The README beside this crate's manifest says how it works and what the figures mean.

#![forbid(unsafe_code)]

mod bottleneck;
mod evaluate;
mod flow;
mod go;
mod kind;
mod link;
mod machine;
mod options;
mod process;
mod report;
mod results;
mod run;
mod scenario;

use std::{io, path::Path, process::ExitCode};

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use self::{
    options::{Arguments, Command, Run},
    process::Programs,
    results::Results,
};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.command {
        Some(Command::Flow(end)) => flow::run(end),
        Some(Command::Report { folder }) => make_report(&options::folder_or_default(folder.as_ref())),
        None if arguments.run.list => list(&arguments.run),
        None => measure(&arguments.run),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::FAILURE
        }
    }
}

fn list(options: &Run) -> io::Result<()> {
    for scenario in options.scenarios().map_err(io::Error::other)? {
        println!("{}", scenario.name);
    }
    Ok(())
}

fn measure(options: &Run) -> io::Result<()> {
    let folder = options.folder();
    let programs = Programs {
        own: std::env::current_exe()?.into(),
        kcp_go: go::build(),
        tcp: machine::tcp_controllers(),
        kcp9_cc: options.kcp9_cc,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        // What is dropped with the run takes its processes and namespaces away.
        tokio::select! {
            outcome = run::all(options, &programs, &folder) => outcome,
            _ = tokio::signal::ctrl_c() => Err(io::Error::other("interrupted")),
            _ = terminate.recv() => Err(io::Error::other("terminated")),
        }
    });
    // Also what an interrupted run has measured.
    if folder.join(results::FILE).exists() {
        make_report(&folder)?;
    }
    outcome
}

fn make_report(folder: &Path) -> io::Result<()> {
    report::write(&Results::read(folder)?.records, folder)
}
