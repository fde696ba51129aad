//! The program as two processes, one on each end: ends of connections, addresses, signals, keys and files, and a
//! browser behind it.
//!
//! With kcptun on one end: `tests/interop`.
#![cfg(unix)]
#![allow(missing_docs, unreachable_pub, reason = "a test")]

mod browser;
mod connections;
#[cfg(target_os = "linux")]
mod flags;
#[cfg(target_os = "linux")]
mod image;
mod messages;
mod sessions;
mod signals;
mod support;

use std::{collections::HashMap, io, net::SocketAddr, path::Path};

use kcp9_tests::within;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use self::support::{LIMIT, Program, words};

fn start(flags: &str) -> Program {
    Program::start(Path::new(env!("CARGO_BIN_EXE_tunnel")), &words(flags, &HashMap::new()))
}

/// Both ends in front of `target`, with the same flags.
async fn pair(target: SocketAddr, flags: &str) -> (Program, Program, SocketAddr) {
    let server = start(&format!("server -l 127.0.0.1:0 -t {target} {flags}"));
    let far = server.addr().await;
    let client = start(&format!("client -l 127.0.0.1:0 -r {far} {flags}"));
    let near = client.addr().await;
    (client, server, near)
}

const ANSWER: usize = 1_000_000;

/// Reads a question to its end, then answers.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut question = Vec::new();
    // A connection that was cut off has no answer.
    if stream.read_to_end(&mut question).await.is_ok() {
        let answer: Vec<u8> = question.iter().copied().cycle().take(ANSWER).collect();
        stream.write_all(&answer).await.unwrap();
        stream.shutdown().await.unwrap();
    }
}

/// Asks, ends its own direction, and reads the answer.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin + Send) {
    let question = b"What is longer than its question?";
    stream.write_all(question).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    within(LIMIT, "the answer", stream.read_to_end(&mut answer)).await.unwrap();
    let expected: Vec<u8> = question.iter().copied().cycle().take(ANSWER).collect();
    assert!(answer == expected, "an answer of {} bytes", answer.len());
}

/// Sends words to and fro over a connection that stays open, so that it has a life of its own.
async fn chat(stream: &mut TcpStream) -> io::Result<()> {
    let mut back = [0; 5];
    stream.write_all(b"hello").await?;
    within(LIMIT, "the echo", stream.read_exact(&mut back)).await?;
    assert_eq!(&back, b"hello");
    Ok(())
}

async fn echo(mut stream: TcpStream) {
    let (mut reader, mut writer) = stream.split();
    // A connection that was cut off is no failure of the target.
    let _ = tokio::io::copy(&mut reader, &mut writer).await;
}

async fn connect(addr: SocketAddr) -> TcpStream {
    TcpStream::connect(addr).await.unwrap()
}
