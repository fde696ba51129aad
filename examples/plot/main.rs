//! Draws recorded sessions: `cargo run --example plot -- session.sqlog --out session.svg`.
//!
//! The records are those that `transfer --qlog` makes (`examples/common/qlog.rs` says what is in them): one of a session, or those of
//! both of its ends. The picture shows rate, round-trip time, window and segments in flight, resends by cause, and what FEC repaired.
//! A session does not count what it finds lost, only what it sends again for it: `fast` and `early` because later segments were
//! acknowledged, `timeout` because the RTO passed.

mod chart;
#[path = "../common/qlog.rs"]
#[allow(dead_code, reason = "this program records nothing")]
mod qlog;

use std::{error::Error, fs::File, io::BufReader, path::PathBuf, process::ExitCode};

use clap::Parser;

use self::qlog::Trace;

/// Draws recorded sessions as SVG
#[derive(Parser)]
#[command(name = "plot", version)]
struct Options {
    /// Records of a session, of one end or of both
    #[arg(value_name = "FILE.sqlog", required = true)]
    records: Vec<PathBuf>,
    /// The picture
    #[arg(long, short, value_name = "FILE.svg", default_value = "session.svg")]
    out: PathBuf,
    /// What is written above it
    #[arg(long, default_value = "A session of kcp9")]
    title: String,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plot: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut traces = Vec::new();
    for path in &options.records {
        let trace = File::open(path).and_then(|file| Trace::read(BufReader::new(file)));
        traces.push(trace.map_err(|error| format!("{}: {error}", path.display()))?);
    }
    for trace in &traces {
        let reason = trace.reason.as_deref().unwrap_or("it had not ended");
        println!("{}: {} samples; {reason}", trace.name, trace.samples.len());
    }
    std::fs::write(&options.out, chart::draw(&options.title, &traces)?)?;
    println!("{}", options.out.display());
    Ok(())
}
