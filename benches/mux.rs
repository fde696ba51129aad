//! What streams in one session cost: `cargo bench --bench mux`, two minutes; `-- --quick` for three rounds in place of nine.
//!
//! Bytes go over loopback to a reader that counts them: through one plain stream, and through 100 streams of one session over such a
//! stream, in versions 1 and 2. Rounds of the three take turns. The bar is 0.9 of the plain stream.
//!
//! Writers and readers have buffers of 8 KiB, as `tokio::io::copy` has, and then of 64 KiB. Those of 100 streams do not fit a core's cache
//! in the second case, and the plain stream's do.

use std::{io, time::Instant};

use kcp9::{
    KcpConfig, KcpListener, KcpStream,
    mux::{MuxConfig, MuxSession, MuxVersion},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    task::JoinSet,
};

const STREAMS: usize = 100;
/// Bytes of a round, in all streams together.
const BYTES: usize = 800_000_000;
/// Bytes of each buffer.
const BUFFERS: [usize; 2] = [8 << 10, 64 << 10];
const ROUNDS: usize = 9;
const QUICK: usize = 3;
const KINDS: [(&str, Option<MuxVersion>); 3] =
    [("one plain stream", None), ("version 1", Some(MuxVersion::V1)), ("version 2", Some(MuxVersion::V2))];

#[tokio::main]
async fn main() -> io::Result<()> {
    let rounds = if std::env::args().any(|argument| argument == "--quick") { QUICK } else { ROUNDS };
    for buffer in BUFFERS {
        let mut rates = [const { Vec::new() }; KINDS.len()];
        // The first round warms up.
        for round in 0..=rounds {
            for at in 0..KINDS.len() {
                let kind = (at + round) % KINDS.len();
                let rate = one_round(KINDS[kind].1, buffer).await?;
                if round > 0 {
                    rates[kind].push(rate);
                }
            }
        }
        println!(
            "{STREAMS} streams over one session, buffers of {buffer} bytes, medians of {rounds} rounds in turn:"
        );
        let medians = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        });
        for ((name, _), rate) in KINDS.iter().zip(medians) {
            println!("{name}: {rate:.0} MB/s, ratio {:.2}", rate / medians[0]);
        }
    }
    Ok(())
}

/// MB/s of a transfer.
async fn one_round(version: Option<MuxVersion>, buffer: usize) -> io::Result<f64> {
    let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await?;
    let addr = listener.local_addr()?;
    let config =
        MuxConfig::builder().version(version.unwrap_or_default()).build().map_err(io::Error::other)?;
    let server_config = config.clone();
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await?;
        if version.is_none() {
            return read(stream, buffer).await;
        }
        let session = MuxSession::server(stream, server_config);
        let mut readers = JoinSet::new();
        for _ in 0..STREAMS {
            readers.spawn(read(session.accept().await?, buffer));
        }
        let mut count = 0;
        while let Some(one) = readers.join_next().await {
            count += one??;
        }
        Ok(count)
    });
    let stream = KcpStream::connect(addr, KcpConfig::default()).await?;
    let began = Instant::now();
    let mut writers = JoinSet::new();
    let session = match version {
        None => {
            writers.spawn(write(stream, BYTES, buffer));
            None
        }
        Some(_) => {
            let session = MuxSession::client(stream, config);
            for _ in 0..STREAMS {
                writers.spawn(write(session.open().await?, BYTES / STREAMS, buffer));
            }
            Some(session)
        }
    };
    let count = server.await.map_err(io::Error::other)??;
    let seconds = began.elapsed().as_secs_f64();
    while let Some(one) = writers.join_next().await {
        one.map_err(io::Error::other)??;
    }
    drop(session);
    if count != BYTES / STREAMS * STREAMS {
        return Err(io::Error::other(format!("{count} bytes came")));
    }
    Ok(count as f64 / seconds / 1e6)
}

async fn write(mut stream: impl AsyncWrite + Unpin, bytes: usize, buffer: usize) -> io::Result<()> {
    let buffer = vec![7; buffer];
    let mut left = bytes;
    while left > 0 {
        let count = left.min(buffer.len());
        stream.write_all(&buffer[..count]).await?;
        left -= count;
    }
    stream.shutdown().await
}

async fn read(mut stream: impl AsyncRead + Unpin, buffer: usize) -> io::Result<usize> {
    let (mut buffer, mut count) = (vec![0; buffer], 0);
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(count),
            more => count += more,
        }
    }
}
