//! How many sessions one server carries, and at what cost: a server process and a client process on this machine.
//!
//! ```text
//! scale --sessions 100000 --echo 64            # all at once, each with an echo
//! scale --sessions 100000 --hold 60            # then idle for a minute
//! scale --sessions 100000 --echo 64 --every 10 --hold 60
//! scale --sessions 1000000 --hold 20           # 8 GB in both processes
//! scale --sessions 100000 --echo 64 --shards 2 # a server of two sockets, each with a task of its own
//! ```
//!
//! The client connects all sessions in one loop, and each writes its `--echo` bytes without waiting. They are over one socket, or for a
//! server of several over many (`--sockets`), which the system spreads. It starts the server as a process of its own and asks it for
//! its figures, so that what either of them takes is not mixed up with the other. The runtime of each has a worker for each of its
//! sockets, as far as there are cores: with more, which `TOKIO_WORKER_THREADS` asks for, they wake each other to share tasks that take
//! microseconds.
//! One line of JSON tells the outcome:
//!
//! | field | what it is |
//! |---|---|
//! | `sessions`, `failed` | asked for; not opened, or not echoed |
//! | `client_sockets`, `sessions_of_shards` | how many sockets the client has; how the system has spread its sessions over the server's |
//! | `open_s` | from the first `connect` until each session has its echo, or without `--echo`, its server's answer |
//! | `echo_s` | one more echo of each, all at once: from then on until each has it |
//! | `server_pid` | the server, for `perf top -p` and the like, while this runs |
//! | `server_rss_bytes_per_session`, `client_rss_bytes_per_session` | resident memory more than before the first session, once all are idle, with the tasks of this program: one for each session, but none at a server that has nothing to echo |
//! | `server_cpu_us_per_session` | processor time of the server until all are idle |
//! | `echoes_while_held` | with `--every`, how many there were during `--hold`. Where a tenth of them is missing, this program fails |
//! | `server_cpu_percent_idle`, `server_wakeups_per_s_idle` | of one core, and of the socket's task, during `--hold` |
//! | `limits` | what the listener was configured with: `max_sessions`, `max_half_open`, `max_half_open_of_network`, `accept_backlog` |
#![deny(unsafe_op_in_unsafe_fn)]

mod client;
#[path = "../common/encryption.rs"]
mod encryption;
mod options;
mod process;
mod server;

use std::{io, process::ExitCode, thread::available_parallelism};

use clap::Parser;
use tokio::runtime::{Builder, Runtime};

use self::options::{Arguments, Command, Options};

fn main() -> ExitCode {
    let Arguments { command, options } = Arguments::parse();
    let outcome = runtime(command, &options).and_then(|runtime| {
        // A task of its own runs where the sessions' tasks run. What is blocked on runs on another thread, which would have to be woken
        // for each session.
        let task = runtime.spawn(async move {
            match command {
                Some(Command::Serve) => server::serve(&options).await.map(|()| true),
                None => client::run(&options).await,
            }
        });
        runtime.block_on(task).unwrap_or_else(|error| Err(error.into()))
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("scale: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A worker for each socket of this end, unless the environment says how many.
fn runtime(command: Option<Command>, options: &Options) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        let sockets = match command {
            Some(Command::Serve) => options.shards.into(),
            None => options.sockets(),
        };
        builder.worker_threads(sockets.min(available_parallelism()?.get()));
    }
    builder.enable_all().build()
}
