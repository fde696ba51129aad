//! Sends files over KCP: `cargo run --release --example transfer`.
//!
//! ```text
//! transfer [FILE]                          a demonstration, through a bad network on this machine
//! transfer receive DIR                     on one machine,
//! transfer send FILE... HOST:PORT          on others
//! ```
//!
//! Where to look:
//!
//! | module | what |
//! |---|---|
//! | `protocol` | the messages between the two ends, and their order |
//! | `channel` | messages over a stream, and signs of life |
//! | `send`, `source` | the sending end; the files it reads |
//! | `receive`, `store` | the receiving end; the folder it writes |
//! | `names` | which names are taken from the network |
//! | `encryption` | the flags that say how packets are encrypted |
//! | `fec` | the flag that says how much parity is sent |
//! | `endpoints` | both as KCP sessions |
//! | `demo` | the demonstration; its bad network is `tests/relay` |
//! | `record`, `qlog`, `chart` | records of sessions, and pictures of them; `chart` is that of the example `plot` |

pub(crate) mod channel;
#[path = "../plot/chart.rs"]
mod chart;
mod demo;
#[path = "../common/encryption.rs"]
mod encryption;
mod endpoints;
#[path = "../common/fec.rs"]
mod fec;
mod names;
mod options;
mod progress;
pub(crate) mod protocol;
#[path = "../common/qlog.rs"]
mod qlog;
mod receive;
mod record;
mod send;
mod source;
mod stop;
mod store;

use std::{process::ExitCode, time::Duration};

use clap::Parser;

use self::{
    options::{Command, Options},
    progress::Screen,
    stop::Stop,
};

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("transfer: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(run(&options));
    // A thread that still reads or writes a file is not waited for long.
    runtime.shutdown_timeout(Duration::from_millis(500));
    code
}

async fn run(options: &Options) -> ExitCode {
    let (stopping, stop) = Stop::channel();
    let screen = Screen::new();
    let work = async {
        match &options.command {
            None => demo::run(&options.demo, &screen, stop.clone()).await,
            Some(Command::Demo(demo)) => demo::run(demo, &screen, stop.clone()).await,
            Some(Command::Send(send)) => endpoints::send(send, &screen, stop.clone()).await,
            Some(Command::Receive(receive)) => endpoints::receive(receive, &screen, stop.clone()).await,
        }
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        () = stop::on_signals(stopping) => return ExitCode::from(INTERRUPTED),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(_) if stop.is_set() => ExitCode::from(INTERRUPTED),
        Err(error) => {
            screen.error(format_args!("transfer: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// What shells use for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;
