//! The work itself, the same for every implementation.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    task::JoinSet,
};

use super::{Listener, Peer};
use crate::{
    cell::Work,
    figures::Figures,
    options::{Setting, Task},
    payload::Payload,
};

/// Bytes that one read may take.
const READ_SIZE: usize = 256 << 10;
/// Seed of all payloads.
const SEED: u64 = 1;

/// Serves until standard input ends. Returns what was received.
pub(super) async fn serve<L: Listener>(mut listener: L, work: Work) -> io::Result<Figures> {
    let served = Arc::new(AtomicU64::new(0));
    let mut sessions = JoinSet::new();
    let mut told = [0];
    let mut input = tokio::io::stdin();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (reader, writer) = accepted?;
                let served = Arc::clone(&served);
                sessions.spawn(async move {
                    let outcome = serve_one(reader, writer, work, &served).await;
                    if let Err(error) = outcome {
                        // How a session ends when the driver is gone differs from peer to peer, so errors are only printed.
                        eprintln!("session: {error}");
                    }
                });
            }
            _ = input.read(&mut told) => break,
        }
    }
    Ok(Figures { bytes: served.load(Ordering::Relaxed), ..Figures::default() })
}

async fn serve_one<R, W>(mut reader: R, mut writer: W, work: Work, served: &AtomicU64) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    // The greeting. A stream that ends before it does not count.
    let Ok(hello) = reader.read_u8().await else { return Ok(()) };
    write(&mut writer, &[hello]).await?;
    let announced = if work == Work::Sink { reader.read_u64_le().await? } else { u64::MAX };
    let mut buffer = vec![0; READ_SIZE];
    let mut got = 0;
    while got < announced {
        let count = reader.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        got += count as u64;
        served.fetch_add(count as u64, Ordering::Relaxed);
        if work != Work::Sink {
            write(&mut writer, &buffer[..count]).await?;
        }
    }
    write(&mut writer, &got.to_le_bytes()).await?;
    // Stay, so that a lost answer is sent again.
    match reader.read(&mut buffer).await {
        Ok(0) | Err(_) => Ok(()),
        Ok(count) => Err(wrong(format!("{count} bytes more than announced"))),
    }
}

/// Opens all connections, each with a byte there and back.
pub(super) async fn open<P: Peer>(setting: Setting, task: &Task) -> io::Result<Vec<(P::Reader, P::Writer)>> {
    let mut connections = Vec::with_capacity(task.conns);
    for _ in 0..task.conns {
        let (mut reader, mut writer) = P::connect(setting, task).await?;
        write(&mut writer, &[1]).await?;
        reader.read_u8().await?;
        connections.push((reader, writer));
    }
    Ok(connections)
}

/// Does the work on all connections at the same time.
pub(super) async fn drive<R, W>(connections: Vec<(R, W)>, work: Work, task: &Task) -> io::Result<Figures>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let start = Instant::now();
    let mut running = JoinSet::new();
    for (index, (reader, writer)) in connections.into_iter().enumerate() {
        let connection = Connection { reader, writer, payload: Payload::new(SEED, index) };
        let task = task.clone();
        running.spawn(async move {
            match work {
                Work::Sink => connection.sink(&task).await,
                Work::Echo => connection.echo(&task).await,
                Work::Ping => connection.ping(&task).await,
            }
        });
    }
    let mut figures = Figures::default();
    // The halves are kept until all is done: some peers end a session when they are dropped.
    let mut finished = Vec::new();
    while let Some(done) = running.join_next().await {
        let Done { halves, bytes, mut trips_ns } = done??;
        figures.bytes += bytes;
        figures.trips_ns.append(&mut trips_ns);
        finished.push(halves);
    }
    figures.secs = start.elapsed().as_secs_f64();
    Ok(figures)
}

struct Connection<R, W> {
    reader: R,
    writer: W,
    payload: Payload,
}

struct Done<R, W> {
    halves: (R, W),
    bytes: u64,
    trips_ns: Vec<u64>,
}

impl<R, W> Connection<R, W>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    async fn sink(mut self, task: &Task) -> io::Result<Done<R, W>> {
        self.writer.write_all(&task.bytes.to_le_bytes()).await?;
        write_payload(&mut self.writer, self.payload, task).await?;
        let counted = self.reader.read_u64_le().await?;
        if counted != task.bytes {
            return Err(wrong(format!("the sink counted {counted} bytes, not {}", task.bytes)));
        }
        Ok(Done { halves: (self.reader, self.writer), bytes: task.bytes, trips_ns: Vec::new() })
    }

    async fn echo(self, task: &Task) -> io::Result<Done<R, W>> {
        let Self { mut reader, mut writer, payload } = self;
        let mut expected = payload.clone();
        // A task of its own: both directions may use a core each.
        let own = task.clone();
        let writing = tokio::spawn(async move {
            write_payload(&mut writer, payload, &own).await?;
            Ok::<_, io::Error>(writer)
        });
        let mut buffer = vec![0; READ_SIZE];
        let mut left = task.bytes;
        while left > 0 {
            let count = reader.read(&mut buffer).await?;
            if count == 0 || count as u64 > left || !expected.check(&buffer[..count]) {
                let at = task.bytes - left;
                return Err(wrong(format!("the echo differs within {count} bytes from {at}")));
            }
            left -= count as u64;
        }
        let writer = writing.await??;
        Ok(Done { halves: (reader, writer), bytes: task.bytes, trips_ns: Vec::new() })
    }

    async fn ping(mut self, task: &Task) -> io::Result<Done<R, W>> {
        let (mut out, mut back) = (vec![0; task.msg], vec![0; task.msg]);
        let mut trips_ns = Vec::new();
        let start = Instant::now();
        let limit = Duration::from_secs_f64(task.secs);
        while start.elapsed() < limit {
            self.payload.fill(&mut out);
            let sent = Instant::now();
            write(&mut self.writer, &out).await?;
            self.reader.read_exact(&mut back).await?;
            trips_ns.push(sent.elapsed().as_nanos() as u64);
            if out != back {
                return Err(wrong("the pong differs from the ping".to_owned()));
            }
        }
        let bytes = (trips_ns.len() * task.msg) as u64;
        Ok(Done { halves: (self.reader, self.writer), bytes, trips_ns })
    }
}

async fn write_payload<W: AsyncWrite + Unpin>(
    writer: &mut W,
    mut payload: Payload,
    task: &Task,
) -> io::Result<()> {
    let mut buffer = vec![0; task.msg];
    let mut left = task.bytes;
    while left > 0 {
        let count = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        payload.fill(&mut buffer[..count]);
        writer.write_all(&buffer[..count]).await?;
        left -= count as u64;
    }
    writer.flush().await
}

/// Writes what the other end waits for.
async fn write<W: AsyncWrite + Unpin>(writer: &mut W, bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
