//! The server's end.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use kcp9::{KcpListener, KcpStream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
};

use crate::options::{Mode, Session};

/// Bytes that one read may take.
pub(crate) const READ_SIZE: usize = 256 << 10;

/// What a server has done so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Served(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    conns: AtomicUsize,
    bytes: AtomicU64,
    failed: AtomicUsize,
}

impl Served {
    /// Connections, bytes received, connections failed.
    pub(crate) fn figures(&self) -> (usize, u64, usize) {
        let Counts { conns, bytes, failed } = &*self.0;
        (conns.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed), failed.load(Ordering::Relaxed))
    }

    fn received(&self, count: usize) {
        self.0.bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Accepts and serves until accepting fails. Dropping the future ends all sessions.
pub(crate) async fn serve(listener: &KcpListener, session: &Session, served: &Served) -> io::Error {
    let mut sessions = JoinSet::new();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => return error,
        };
        while sessions.try_join_next().is_some() {}
        served.0.conns.fetch_add(1, Ordering::Relaxed);
        let (session, served) = (session.clone(), served.clone());
        sessions.spawn(async move {
            let outcome = match session.mode {
                Mode::Echo => echo(stream, &served).await,
                Mode::Sink => sink(stream, &served, session.stats).await,
            };
            if let Err(error) = outcome {
                served.0.failed.fetch_add(1, Ordering::Relaxed);
                eprintln!("perf: session of {peer}: {error}");
            }
        });
    }
}

async fn echo(mut stream: KcpStream, served: &Served) -> io::Result<()> {
    let mut buffer = vec![0; READ_SIZE];
    loop {
        // KCP has no end of stream: the idle timeout ends the session.
        let Ok(count) = stream.read(&mut buffer).await else { return Ok(()) };
        served.received(count);
        stream.write_all(&buffer[..count]).await?;
    }
}

async fn sink(mut stream: KcpStream, served: &Served, stats: bool) -> io::Result<()> {
    let announced = stream.read_u64_le().await?;
    let mut buffer = vec![0; READ_SIZE];
    let mut left = announced;
    while left > 0 {
        let count = stream.read(&mut buffer).await.map_err(|error| {
            let arrived = announced - left;
            io::Error::new(error.kind(), format!("after {arrived} of {announced} bytes: {error}"))
        })?;
        served.received(count);
        left = left.checked_sub(count as u64).ok_or_else(more_than_announced)?;
    }
    stream.write_all(&announced.to_le_bytes()).await?;
    if stats {
        eprintln!("server: {:#?}", stream.stats());
    }
    // Stay until idle, so that a lost answer is sent again. The large buffer is not needed for that.
    drop(buffer);
    match stream.read(&mut [0; 8]).await {
        Ok(0) | Err(_) => Ok(()),
        Ok(_) => Err(more_than_announced()),
    }
}

fn more_than_announced() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "more bytes than announced")
}
