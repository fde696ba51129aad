//! WebSocket over KCP: `cargo run --release --example websocket --features websocket`.
//!
//! ```text
//! websocket                                      a server and clients in one process, which check each other
//! websocket server                               sends every message back, until Ctrl-C; browsers get a page that tries it
//! websocket client ws://127.0.0.1:4080/          sends each line of its input, prints what comes
//! websocket client 127.0.0.1:4080 --text hello   sends this, prints the answer, closes
//! websocket bench --connections 10000            messages a second and memory, beside TCP
//! ```
//!
//! Both ends take `--compress` with `--no-context-takeover` and `--window-bits` (RFC 7692), `--subprotocol`, `--max-message` and
//! `--fragment`, and with `--tcp` a TCP connection in place of a session of KCP: browsers, and the Autobahn test suite, know no
//! other. Nothing is encrypted here: a cipher comes with KCP's configuration, and TLS over the stream as in the example `tls`.
//!
//! # The library
//!
//! [yawc](https://docs.rs/yawc) does the frames, the masks and the compression. Of the kept WebSocket libraries that take any
//! `AsyncRead + AsyncWrite`, tungstenite, tokio-websockets and fastwebsockets do not compress. ratchet does, but its `deflate` feature
//! brings a C library, and its state is kept for each connection. yawc has context takeover, windows of 9 to 15 bits, sizes for its
//! buffers, and state that connections without context takeover share; its CI runs the Autobahn suite as a server and as a client.
//! Handshakes are by hyper, messages are put together here, and what is negotiated about compression is decided here: `ws` says why.
//!
//! The Autobahn suite (25.10.1) against this server over TCP, `server --tcp --compress --max-message 20000000`: of 517 cases, 512 are as they have
//! to be, 2 are not strict (6.4.3 and 6.4.4: invalid text is noticed at the end of a frame, not inside it), 3 are for information, none failed.
//! As a client (`autobahn`) it is the same. An opcode that does not exist is answered by the code 1003 where the suite expects 1002, and a
//! server's yawc sends a close frame back that is longer than RFC 6455 allows (7.3.6) before it is refused here. `.ci/run autobahn` runs
//! all cases in both roles, half an hour, and fails at what is not known (`tests/autobahn/judge.py`): a step for releases.
//!
//! 10,000 connections beside TCP: benches/README.md.
//!
//! MPL-2.0, yawc's licence, asks that changes to yawc itself be published, and nothing of a program that uses it.
#![forbid(unsafe_code)]

mod autobahn;
mod bench;
mod check;
mod client;
mod options;
mod process;
mod server;
mod ws;

use std::{error::Error, process::ExitCode};

use clap::Parser;

use self::options::{Command, Options};

#[tokio::main]
async fn main() -> ExitCode {
    let outcome: Result<(), Box<dyn Error>> = match Options::parse().command {
        None => check::run().await.map_err(Into::into),
        Some(Command::Server(options)) => server::run(&options).await.map_err(Into::into),
        Some(Command::Client(options)) => client::run(&options).await.map_err(Into::into),
        Some(Command::Bench(options)) => bench::run(&options).await.map_err(Into::into),
        Some(Command::Measure(options)) => bench::measure(&options).await.map_err(Into::into),
        Some(Command::Autobahn(options)) => autobahn::run(&options).await.map_err(Into::into),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("websocket: {error}");
            ExitCode::FAILURE
        }
    }
}
