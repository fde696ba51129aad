//! kcp9's measuring instrument: it moves bytes between two ends, checks them, and prints what that cost.
//!
//! ```text
//! perf serve --addr 127.0.0.1:0 --mode echo|sink
//! perf drive --addr HOST:PORT   --mode echo|sink --bytes 300M --msg 64K --conns 1
//! perf self                     --mode echo|sink --bytes 300M --msg 64K --conns 1
//! ```
//!
//! `serve` prints `listening HOST:PORT` once it is bound, and its figures when a signal or `--timeout` ends it. `drive`
//! and `self` (both ends in one process) print one JSON line with the figures of the run, and exit with 1 when anything
//! is missing. `tests/interop/go-peer` has the same commands and talks to this program.
//!
//! * `echo`: every byte comes back, and is compared with what was sent.
//! * `sink`: a connection's first 8 bytes are the little-endian count of the bytes that follow; when all have come, the
//!   server answers with its own count, 8 bytes.
#![deny(unsafe_op_in_unsafe_fn)]

mod drive;
#[path = "../common/encryption.rs"]
mod encryption;
#[path = "../common/fec.rs"]
mod fec;
mod options;
mod payload;
mod report;
mod serve;

use std::{
    io,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use kcp9::KcpListener;

use self::{
    drive::drive,
    options::{Arguments, Command},
    report::Report,
    serve::{Served, serve},
};

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Serve(options) => serve_until_told(options).await,
        Command::Drive(options) => drive_and_report(options).await,
        Command::Self_(options) => drive_myself(options).await,
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("perf: {error}");
        ExitCode::FAILURE
    })
}

async fn serve_until_told(options: options::Serve) -> io::Result<ExitCode> {
    let session = &options.session;
    let config = session.config(options.idle())?;
    let listener = KcpListener::bind(&options.addr, config).await?;
    println!("listening {}", listener.local_addr()?);

    let start = Instant::now();
    let served = Served::default();
    let expired = tokio::select! {
        outcome = serve(&listener, session, &served) => return Err(outcome),
        outcome = interrupted() => outcome.map(|()| false)?,
        () = sleep_or_forever(session.timeout(0.0)) => true,
    };
    if expired {
        eprintln!("perf: serve timed out");
    }
    if session.stats {
        eprintln!("{:#?}", listener.endpoint_stats());
    }
    let (conns, bytes, failed) = served.figures();
    Report::new(session, conns, bytes, start.elapsed(), failed).print()?;
    Ok(if expired { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn drive_myself(mut options: options::Drive) -> io::Result<ExitCode> {
    let session = options.session.clone();
    let listener = KcpListener::bind(&options.addr, session.config(None)?).await?;
    options.addr = listener.local_addr()?.to_string();
    let served = Served::default();
    let outcome = tokio::select! {
        error = serve(&listener, &session, &served) => Err(error),
        outcome = drive_and_report(options) => outcome,
    };
    if session.stats {
        eprintln!("server: {:#?}", listener.endpoint_stats());
    }
    outcome
}

async fn drive_and_report(options: options::Drive) -> io::Result<ExitCode> {
    let outcome = drive(&options).await?;
    let session = &options.session;
    Report::new(session, options.conns, outcome.bytes, outcome.elapsed, outcome.failed).print()?;
    let complete = outcome.failed == 0 && outcome.bytes == options.bytes;
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Sleeps for a limit that may be none.
async fn sleep_or_forever(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// Waits for an interrupt or, where there is one, the signal to terminate.
async fn interrupted() -> io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            outcome = tokio::signal::ctrl_c() => outcome,
            _ = terminate.recv() => Ok(()),
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await
}
